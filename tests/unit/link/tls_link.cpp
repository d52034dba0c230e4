// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_link: what is TLS's own, beyond the contract that every link keeps.
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "faulty_link.hpp"
#include "tls_links.hpp"

// Last, as it wants.
#include "../base/fixture.hpp"

namespace {

using soft::TlsLink;
using test::Bytes;
using test::Links;
using State = soft::Link::Received::State;

struct FreshTls : Links {
    FreshTls() : Links{test::tls_links()} {}

    [[nodiscard]] TlsLink &tls_here() const { return dynamic_cast<TlsLink &>(*here); }
    [[nodiscard]] TlsLink &tls_there() const { return dynamic_cast<TlsLink &>(*there); }
};

// Sends bytes through a link that has room for them, and receives them at the other end.
void pass(soft::Link &from, soft::Link &to, const Bytes &bytes) {
    Bytes arrived;
    std::size_t taken = 0;
    while (arrived.size() < bytes.size()) {
        if (taken < bytes.size()) {
            const auto sent = test::send(from, std::span{bytes}.subspan(taken));
            assert_int_equal(sent.error, 0);
            taken += sent.bytes;
        }
        const auto got = test::receive(to, arrived, bytes.size() - arrived.size());
        assert_true(got.state == State::More || got.state == State::Drained);
    }
    test::assert_same_bytes(arrived, bytes);
}

// Waits for bytes on the socket below the link, and returns what an observer on the way sees; it leaves them
// there.
Bytes on_the_wire(const soft::Link &link) {
    pollfd socket{.fd = link.descriptor(), .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&socket, 1, 40'000), 1);
    Bytes bytes(2000);
    const ssize_t count = recv(link.descriptor(), bytes.data(), bytes.size(), MSG_PEEK);
    assert_true(count > 0);
    bytes.resize(static_cast<std::size_t>(count));
    return bytes;
}

// Writes bytes on the socket below the link, as an attacker on the way can.
void inject(const soft::Link &link, std::span<const std::byte> bytes) {
    assert_int_equal(write(link.descriptor(), bytes.data(), bytes.size()), bytes.size());
}

void bytes_on_the_wire_are_not_readable(FreshTls &links) {
    const auto &[here, there] = links;
    const Bytes secret = test::pattern(200, 7);
    assert_int_equal(test::send(*here, secret).bytes, secret.size());
    const Bytes wire = on_the_wire(*there);
    assert_in_range(wire.size(), secret.size(), secret.size() + 256);
    assert_null(memmem(wire.data(), wire.size(), secret.data(), 16));
}

// An end that anybody on the way can make is no end.
void an_end_without_the_end_of_tls_is_a_failure(FreshTls &links) {
    const auto &[here, there] = links;
    assert_int_equal(test::send(*here, test::pattern(100, 1)).bytes, 100);
    assert_int_equal(shutdown(here->descriptor(), SHUT_WR), 0);
    Bytes arrived;
    const auto last = test::receive_rest(*there, arrived);
    assert_true(last.state == State::Failed);
    assert_int_equal(last.error, ECONNRESET);
    test::assert_same_bytes(arrived, test::pattern(100, 1));
    assert_int_equal(test::send(*there, Bytes(1)).error, ECONNRESET);
    assert_int_equal(there->failure(), ECONNRESET);
    assert_int_equal(there->failure(), 0);
}

// A sender finds the connection broken before the receiver has read all. Plain TCP hides no byte then.
void a_failed_send_hides_no_byte(FreshTls &links) {
    auto &[here, there] = links;
    for (const bool ends : {true, false}) {
        const Bytes last = test::pattern(100, 1);
        assert_int_equal(test::send(*here, last).bytes, last.size());
        if (ends) {
            assert_true(here->finish());
        }
        here.reset();
        while (test::send(*there, Bytes(1)).error == 0) {
        }
        Bytes arrived;
        const auto end = test::receive_rest(*there, arrived);
        assert_true(end.state == (ends ? State::Ended : State::Failed));
        test::assert_same_bytes(arrived, last);
        static_cast<Links &>(links) = test::tls_links();
    }
}

void a_record_that_ends_in_the_middle_is_a_failure(FreshTls &links) {
    const auto &[here, there] = links;
    assert_int_equal(test::send(*here, test::pattern(100, 1)).bytes, 100);
    const Bytes record = on_the_wire(*there);
    inject(*here, std::span{record}.first(60));
    assert_int_equal(shutdown(here->descriptor(), SHUT_WR), 0);
    Bytes arrived;
    const auto last = test::receive_rest(*there, arrived);
    assert_true(last.state == State::Failed);
    assert_int_equal(last.error, ECONNRESET);
    test::assert_same_bytes(arrived, test::pattern(100, 1));
}

// The other end learns it too, because it gets an alert.
void a_record_of_another_connection_is_a_failure(FreshTls &links) {
    const auto &[here, there] = links;
    const Links other = test::tls_links();
    assert_int_equal(test::send(*other.here, test::pattern(100, 1)).bytes, 100);
    inject(*here, on_the_wire(*other.there));
    Bytes arrived;
    for (soft::Link *const link : {there.get(), here.get()}) {
        const auto last = test::receive_rest(*link, arrived);
        assert_true(last.state == State::Failed);
        assert_int_equal(last.error, EPROTO);
    }
    assert_int_equal(arrived.size(), 0);
}

void bytes_that_are_no_record_are_a_failure(FreshTls &links) {
    const auto &[here, there] = links;
    inject(*here, test::pattern(100, 3));
    Bytes arrived;
    const auto last = test::receive_rest(*there, arrived);
    assert_true(last.state == State::Failed);
    assert_int_equal(last.error, EPROTO);
    assert_true(there->ready().ended);
    assert_false(there->rest());
}

void a_record_that_comes_twice_is_a_failure(FreshTls &links) {
    const auto &[here, there] = links;
    assert_int_equal(test::send(*here, test::pattern(100, 1)).bytes, 100);
    inject(*here, on_the_wire(*there));
    Bytes arrived;
    assert_int_equal(test::receive_rest(*there, arrived).error, EPROTO);
    test::assert_same_bytes(arrived, test::pattern(100, 1));
}

void either_end_changes_its_key(FreshTls &links) {
    const auto &[here, there] = links;
    for (const bool both : {false, true}) {
        for (const bool forth : {true, false}) {
            TlsLink &changes = forth ? links.tls_here() : links.tls_there();
            assert_true(changes.change_key(both));
            pass(*here, *there, test::pattern(1000, 1));
            pass(*there, *here, test::pattern(70'000, 2));
            pass(*here, *there, test::pattern(1000, 3));
        }
    }
}

// The key of AES-GCM is good for so many records only.
void a_sender_changes_its_key_by_itself(FreshTls &) {
    const auto [here, there] = test::tls_over(test::tcp_links(), 3);
    for (unsigned number = 0; number < 20; ++number) {
        pass(*here, *there, test::pattern(100, number));
    }
}

// A peer that asks for changes again and again, and reads no answer, is given up before it takes much memory.
void endless_changes_of_the_key_end_the_link(FreshTls &links) {
    const auto &[here, there] = links;
    const Bytes some(100'000);
    while (there->ready().writable) {
        (void)test::send(*there, some);
    }
    std::byte byte{};
    const iovec room{.iov_base = &byte, .iov_len = 1};
    soft::Link::Received got;
    for (int number = 0; number < 10'000'000 && got.state == State::Drained; ++number) {
        assert_true(links.tls_here().change_key(true));
        got = there->receive({&room, 1});
    }
    assert_true(got.state == State::Failed);
    assert_int_equal(got.error, EPROTO);
}

// A TCP link that always has more: when no bytes are there, the peer makes some.
class EndlessLink final : public test::FaultyLink {
public:
    EndlessLink(std::unique_ptr<soft::Link> link, std::function<bool()> make)
        : FaultyLink{std::move(link), {}}, make_{std::move(make)} {}

    [[nodiscard]] Received receive(std::span<const iovec> pieces) override {
        Received got = FaultyLink::receive(pieces);
        if (got.bytes == 0 && got.state == State::Drained && make_()) {
            (void)on_the_wire(*this);
            got = FaultyLink::receive(pieces);
        }
        if (got.bytes != 0) {
            got.state = State::More;
        }
        return got;
    }

private:
    const std::function<bool()> make_;
};

// A peer that sends changes of its key as fast as they are read, and no content, keeps no thread.
void changes_of_the_key_without_content_end_the_link(FreshTls &) {
    constexpr int most = 10'000;
    int made = most;
    TlsLink *peer = nullptr;
    Links below = test::tcp_links();
    below.there = std::make_unique<EndlessLink>(std::move(below.there),
                                                [&] { return made++ < most && peer->change_key(false); });
    const auto [here, there] = test::tls_over(std::move(below));
    peer = &dynamic_cast<TlsLink &>(*here);
    std::byte byte{};
    const iovec room{.iov_base = &byte, .iov_len = 1};
    for (unsigned number = 0; number < 100; ++number) {
        made = most - 1;
        pass(*here, *there, test::pattern(100, number));
    }
    made = 0;
    const auto got = there->receive({&room, 1});
    assert_true(got.state == State::Failed);
    assert_int_equal(got.error, EPROTO);
    assert_in_range(made, 1, 100);
    assert_int_equal(there->unread_bytes(), 0);
    assert_in_range(made, 1, 100);
}

std::vector<unsigned long> errors_of_openssl() {
    std::vector<unsigned long> errors;
    while (const unsigned long error = ERR_get_error()) {
        errors.push_back(error);
    }
    return errors;
}

// A program that uses OpenSSL has a queue of errors for each thread, in which it looks for its own.
void the_programs_errors_of_openssl_stay(FreshTls &links) {
    const auto &[here, there] = links;
    for (const std::vector<int> &reasons :
         {std::vector<int>{}, std::vector<int>{ERR_R_EVP_LIB, ERR_R_BIO_LIB}}) {
        ERR_clear_error();
        std::vector<unsigned long> before;
        for (const int reason : reasons) {
            ERR_raise_data(ERR_LIB_USER, reason, "%s", "the program's");
            before.push_back(ERR_peek_last_error());
        }
        static_cast<Links &>(links) = test::tls_links();
        assert_true(links.tls_here().change_key(true));
        pass(*here, *there, test::pattern(1000, 1));
        pass(*there, *here, test::pattern(1000, 2));
        inject(*here, test::pattern(100, 3));
        Bytes arrived;
        assert_true(test::receive_rest(*there, arrived).state == State::Failed);
        here->abort();
        if (!reasons.empty()) {
            const char *data = nullptr;
            int flags = 0;
            assert_int_equal(ERR_peek_error_data(&data, &flags), before[0]);
            assert_string_equal(data, "the program's");
        }
        assert_true(errors_of_openssl() == before);
    }
}

// One record carries the bytes of many pieces.
void small_pieces_share_a_record(FreshTls &links) {
    const auto &[here, there] = links;
    Bytes all = test::pattern(640, 5);
    std::vector<iovec> pieces;
    for (std::size_t at = 0; at < all.size(); at += 10) {
        pieces.push_back({.iov_base = all.data() + at, .iov_len = 10});
    }
    assert_int_equal(here->send(pieces).bytes, all.size());
    assert_in_range(on_the_wire(*there).size(), all.size(), all.size() + 32);
    Bytes arrived;
    (void)test::receive(*there, arrived, all.size());
    test::assert_same_bytes(arrived, all);
}

void pieces_of_any_size_arrive(FreshTls &links) {
    const auto &[here, there] = links;
    for (const std::size_t size :
         {1U, 2U, 16'383U, 16'384U, 16'385U, 65'536U, 65'537U, 200'000U, 1'000'000U}) {
        pass(*here, *there, test::pattern(size, static_cast<unsigned>(size)));
    }
}

// A thread sends in each direction while another receives.
void both_directions_go_at_once(FreshTls &links) {
    const auto &[here, there] = links;
    const Bytes all = test::pattern(3'000'000, 11);
    const auto send_all = [&all](soft::Link &link) {
        for (std::size_t taken = 0; taken < all.size();) {
            const auto sent = test::send(link, std::span{all}.subspan(taken));
            assert_int_equal(sent.error, 0);
            taken += sent.bytes;
        }
    };
    const auto receive_all = [&all](soft::Link &link) {
        Bytes arrived;
        while (arrived.size() < all.size()) {
            (void)test::receive(link, arrived, 65'536);
        }
        test::assert_same_bytes(arrived, all);
    };
    const std::jthread sends{[&] { send_all(*here); }};
    const std::jthread answers{[&] { send_all(*there); }};
    const std::jthread receives{[&] { receive_all(*here); }};
    receive_all(*there);
}

// The bytes of a record that the link below has only in part are the next that go, and arrive once.
void a_full_link_loses_no_byte(FreshTls &links) {
    const auto &[here, there] = links;
    const Bytes all = test::pattern(16 << 20, 13);
    std::size_t taken = 0;
    while (here->ready().writable) {
        taken += test::send(*here, std::span{all}.subspan(taken, 100'000)).bytes;
    }
    Bytes arrived;
    while (arrived.size() < 14'000'000) {
        if (here->ready().writable) {
            // Another number of bytes than before.
            const std::size_t next = std::min<std::size_t>(all.size() - taken, 1 + taken % 30'011);
            taken += test::send(*here, std::span{all}.subspan(taken, next)).bytes;
        }
        (void)test::receive(*there, arrived, 50'000);
    }
    arrived.resize(14'000'000);
    assert_memory_equal(arrived.data(), all.data(), arrived.size());
}

// The end of TLS needs room too.
void a_full_link_ends_when_it_has_room(FreshTls &) {
    constexpr test::LinkFaults full_every_other_time{.most = 1000, .delays = true};
    Links below = test::tcp_links();
    below.here = std::make_unique<test::FaultyLink>(std::move(below.here), full_every_other_time);
    const auto [here, there] = test::tls_over(std::move(below));
    const Bytes all = test::pattern(100'000, 17);
    const iovec piece{.iov_base = const_cast<std::byte *>(all.data()), .iov_len = all.size()};
    assert_int_equal(here->send({&piece, 1}).bytes, 0);  // a part of the first record is on its way
    assert_false(here->finish());
    assert_true(here->undelivered());
    assert_int_equal(test::send(*here, Bytes(1)).error, EPIPE);
    while (!here->finish()) {
    }
    Bytes arrived;
    assert_true(test::receive_rest(*there, arrived).state == State::Ended);
    assert_memory_equal(arrived.data(), all.data(), arrived.size());
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        fixture_test(bytes_on_the_wire_are_not_readable),
        fixture_test(an_end_without_the_end_of_tls_is_a_failure),
        fixture_test(a_failed_send_hides_no_byte),
        fixture_test(a_record_that_ends_in_the_middle_is_a_failure),
        fixture_test(a_record_of_another_connection_is_a_failure),
        fixture_test(bytes_that_are_no_record_are_a_failure),
        fixture_test(a_record_that_comes_twice_is_a_failure),
        fixture_test(either_end_changes_its_key),
        fixture_test(a_sender_changes_its_key_by_itself),
        fixture_test(endless_changes_of_the_key_end_the_link),
        fixture_test(changes_of_the_key_without_content_end_the_link),
        fixture_test(the_programs_errors_of_openssl_stay),
        fixture_test(small_pieces_share_a_record),
        fixture_test(pieces_of_any_size_arrive),
        fixture_test(both_directions_go_at_once),
        fixture_test(a_full_link_loses_no_byte),
        fixture_test(a_full_link_ends_when_it_has_room),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
