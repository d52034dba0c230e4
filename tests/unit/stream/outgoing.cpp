// SPDX-License-Identifier: BSD-3-Clause
// stream/outgoing: tests of a device of the kernel with iWARP: no place of the send buffer is free before the
// device has completed the write from it, and the end that was asked is silent until its peer's first word.
#include <dlfcn.h>
#include <sys/socket.h>

#include <chrono>
#include <vector>

#include "../../loopback.hpp"
#include "raw_peer.hpp"
#include "stream/connection.hpp"

// This comes last, because it has macros with everyday names.
#include "../base/check.hpp"

namespace {

using namespace stream;

// The operations that were posted without a connection, and how many calls of a stream posted on one.
std::vector<rpma_op> posted;
bool stream_runs = false;
int posts_of_stream = 0;

// Returns the soft device, which is iWARP, as if it were the kernel's.
const Device &device_of_kernel() {
    static const Device made = [] {
        ibv_context *context = nullptr;
        rpma_peer *peer = nullptr;
        assert_int_equal(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context), 0);
        assert_int_equal(rpma_peer_new(context, &peer), 0);
        return Device{context, Peer{peer}, true};
    }();
    assert_true(made.is_iwarp());
    return made;
}

constexpr std::uint32_t send_bytes = 8192;
constexpr Hello theirs{.credits = 100,
                       .slots = 0,
                       .list = {.address = 0x10000, .key = 1, .length = 2},
                       .data = {.address = 0x100000, .key = 1, .length = 0x100000}};

// One end that posts; the operations are in `posted`.
struct End {
    Settings settings{.sends = 16, .receives = 16, .send_bytes = send_bytes, .receive_bytes = 8192};
    StreamMemory memory = *StreamMemory::make(device_of_kernel(), settings, true);
    Connected conn;
    Report report;
    std::vector<std::byte> scratch = std::vector<std::byte>(longest_message);
    Outgoing outgoing{{.device = device_of_kernel(),
                       .settings = settings,
                       .memory = memory,
                       .conn = conn,
                       .report = report,
                       .scratch = std::span<std::byte, longest_message>{scratch}},
                      theirs};
    std::vector<std::byte> bytes = std::vector<std::byte>(send_bytes);

    End() { posted.clear(); }
    void send(std::size_t size) {
        const iovec part{.iov_base = bytes.data(), .iov_len = size};
        const auto [sent, error] = outgoing.send({&part, 1});
        assert_int_equal(error, 0);
        assert_int_equal(sent, size);
    }
};

// Returns how many operations that were posted since the last call have a completion, and asserts that all
// writes from the send buffer do, and that these have `bytes` bytes.
std::size_t completions_of(std::size_t bytes) {
    std::size_t copied = 0;
    std::size_t completions = 0;
    for (const rpma_op &op : posted) {
        completions += op.flags == RPMA_F_COMPLETION_ALWAYS ? 1 : 0;
        if (op.local != nullptr) {
            assert_int_equal(op.type, RPMA_OP_WRITE);
            assert_int_equal(op.flags, RPMA_F_COMPLETION_ALWAYS);
            copied += op.len;
        }
    }
    posted.clear();
    assert_int_equal(copied, bytes);
    return completions;
}

void a_write_from_the_send_buffer_frees_its_bytes(void **) {
    End end;
    end.send(send_bytes);
    assert_int_equal(completions_of(send_bytes), 2);
    assert_int_equal(end.outgoing.room(), 0);
    end.outgoing.completed();
    assert_int_equal(end.outgoing.room(), send_bytes);
    assert_false(end.outgoing.idle());
    end.outgoing.completed();
    assert_true(end.outgoing.idle());
}

void both_writes_of_a_message_around_the_end_complete(void **) {
    End end;
    end.send(5000);
    assert_int_equal(completions_of(5000), 2);
    end.send(2000);
    assert_int_equal(completions_of(2000), 2);
    end.outgoing.completed();
    end.outgoing.completed();
    end.send(3000);
    assert_int_equal(posted.size(), 3);
    assert_int_equal(posted[0].len, send_bytes - 7000);
    assert_int_equal(completions_of(3000), 3);
    for (int left = 5; left != 0; --left) {
        assert_false(end.outgoing.idle());
        end.outgoing.completed();
    }
    assert_true(end.outgoing.idle());
    assert_int_equal(end.outgoing.room(), send_bytes);
}

void a_write_into_a_mapping_completes_once(void **) {
    End end;
    const iovec from{.iov_base = end.bytes.data(), .iov_len = 5000};
    const auto [written, error] =
        end.outgoing.write(from, 0, {.address = 0x300000, .key = 2, .length = 5000});
    assert_int_equal(error, 0);
    assert_int_equal(written, 5000);
    assert_int_equal(completions_of(5000), 1);
    end.outgoing.completed();
    assert_true(end.outgoing.idle());
}

void bytes_that_the_device_takes_need_no_completion(void **) {
    End end;
    end.send(end.settings.inline_bytes);
    assert_int_equal(posted.size(), 2);
    assert_int_equal(posted[0].flags, RPMA_F_COMPLETION_ON_ERROR);
    assert_int_equal(completions_of(0), 1);
    end.outgoing.completed();
    assert_true(end.outgoing.idle());
}

void nothing_is_posted_while_the_peer_is_waited_for(void **) {
    End end;
    end.outgoing.wait_for_peer();
    assert_int_equal(end.outgoing.room(), 0);
    assert_false(end.outgoing.has_place_for_control());
    assert_false(end.outgoing.has_place_for_update());
    end.outgoing.begin();
    assert_int_equal(end.outgoing.room(), send_bytes);
    assert_true(end.outgoing.has_place_for_update());
}

// Returns both ends of a TCP connection.
std::pair<base::Fd, base::Fd> connected_sockets() {
    sockaddr_in address = test::loopback(0);
    socklen_t length = sizeof(address);
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    const base::Fd listener{socket(AF_INET, SOCK_STREAM, 0)};
    assert_true(bind(listener.get(), name, length) == 0 && listen(listener.get(), 1) == 0 &&
                getsockname(listener.get(), name, &length) == 0);
    base::Fd one{socket(AF_INET, SOCK_STREAM, 0)};
    assert_int_equal(connect(one.get(), name, length), 0);
    base::Fd other{accept(listener.get(), nullptr, nullptr)};
    for (const base::Fd *fd : {&one, &other}) {
        assert_int_equal(fcntl(fd->get(), F_SETFL, O_NONBLOCK), 0);
    }
    return {std::move(one), std::move(other)};
}

class Owner final : public Observer {
    void changed() override {}
};

// Lets both ends continue until the condition holds.
void continue_until(Connection &stream, test::RawPeer &peer, auto holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{40};
    for (bool is_over = false; !is_over;) {
        (void)peer.step();
        const base::Lock lock{stream.mutex()};
        stream_runs = true;
        (void)stream.serve_shard();
        stream_runs = false;
        is_over = holds();
        assert_true(std::chrono::steady_clock::now() < deadline);
    }
}

void an_end_that_was_asked_is_silent_until_the_first_word(void **) {
    auto [asks, asked] = connected_sockets();
    Owner owner;
    const int socket = asked.get();
    auto make_request = [socket](rpma_conn_cfg *cfg) {
        return made<Request>(rpma_conn_req_adopt_fd, device_of_kernel().peer(), socket,
                             int{RPMA_ADOPT_SHARE_FD}, static_cast<const rpma_conn_cfg *>(cfg));
    };
    test::RawPeer peer{test::device(), test::RawPeer::Side::Asks, std::move(asks)};
    auto begun = Connection::begin(Approach{.device = &device_of_kernel(),
                                            .side = Side::Passive,
                                            .make_request = std::move(make_request),
                                            .on_socket_of_caller = true},
                                   Settings{}, owner);
    assert_true(begun.has_value());
    Connection &stream = **begun;
    continue_until(stream, peer, [&] {
        stream.mutex().assert_held();
        return stream.life().established() && peer.is_ready();
    });
    assert_int_equal(posts_of_stream, 0);
    peer.update();
    peer.send();
    continue_until(stream, peer, [] { return posts_of_stream != 0; });
}

}  // namespace

// It takes the place of librpma's.
int rpma_post(struct rpma_conn *conn, const struct rpma_op *ops, std::size_t count, std::size_t *done) {
    if (conn == nullptr) {
        posted.insert(posted.end(), ops, ops + count);
        return 0;
    }
    posts_of_stream += stream_runs ? 1 : 0;
    static const auto real = reinterpret_cast<decltype(&rpma_post)>(dlsym(RTLD_NEXT, "rpma_post"));
    return real(conn, ops, count, done);
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_write_from_the_send_buffer_frees_its_bytes),
        cmocka_unit_test(both_writes_of_a_message_around_the_end_complete),
        cmocka_unit_test(a_write_into_a_mapping_completes_once),
        cmocka_unit_test(bytes_that_the_device_takes_need_no_completion),
        cmocka_unit_test(nothing_is_posted_while_the_peer_is_waited_for),
        cmocka_unit_test(an_end_that_was_asked_is_silent_until_the_first_word),
    };
    return cmocka_run_group_tests_name("stream_outgoing", tests, nullptr, nullptr);
}
