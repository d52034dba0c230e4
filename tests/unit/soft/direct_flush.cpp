// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/direct_flush: a flush of a file that another process of this host offers is made here, by
// the thread that waits for it in rpma_cq_wait(), or by a worker. Both processes have this program's msync.
#include <librpma.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../child.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

// The calls of msync for the pool, in either process.
struct Calls {
    std::atomic<unsigned> of_server{0};
    std::atomic<unsigned> of_client{0};
    std::atomic<pid_t> last_thread{0};  // of the client
};
Calls *calls = nullptr;  // shared by both
bool is_server = false;

// Holds the client's calls, and lets one fail.
struct Storage {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_slow = false;
    int error = 0;
} storage;

void let_storage(bool be_slow) {
    const std::lock_guard lock{storage.mutex};
    storage.is_slow = be_slow;
    storage.changed.notify_all();
}

constexpr auto patience = std::chrono::seconds{60};

bool is_within_patience(const std::function<bool()> &is) {
    std::unique_lock lock{storage.mutex};
    return storage.changed.wait_for(lock, patience, is);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int msync(void *address, std::size_t length, int flags) {
    if (is_server) {
        ++calls->of_server;
    } else if (calls != nullptr) {
        std::unique_lock lock{storage.mutex};
        ++calls->of_client;
        calls->last_thread = gettid();
        storage.changed.notify_all();
        storage.changed.wait(lock, [] { return !storage.is_slow; });
        if (const int error = std::exchange(storage.error, 0); error != 0) {
            errno = error;
            return -1;
        }
    }
    return static_cast<int>(syscall(SYS_msync, address, length, flags));
}

namespace {

constexpr std::size_t pool_bytes = std::size_t{1} << 20;
constexpr std::size_t page = 4096;

// A process with a pool, which one client after the other may write to and flush.
class Server {
public:
    Server() {
        char name[] = "direct_flush-XXXXXX";
        const int file = mkstemp(name);
        // The file stays, so that no other file gets its inode number.
        assert_true(file >= 0 && ftruncate(file, pool_bytes) == 0);
        pool_ = mmap(nullptr, pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        assert_ptr_not_equal(pool_, MAP_FAILED);
        close(file);
        int end[2];
        assert_int_equal(pipe(end), 0);
        child_ = test::fork_child();
        assert_true(child_ >= 0);
        if (child_ == 0) {
            is_server = true;
            serve(pool_, end[1]);
            _exit(EXIT_SUCCESS);
        }
        close(end[1]);
        assert_int_equal(read(end[0], port_.data(), port_.size()), port_.size());
        close(end[0]);
    }
    ~Server() {
        (void)kill(child_, SIGKILL);
        (void)waitpid(child_, nullptr, 0);
        (void)munmap(pool_, pool_bytes);
    }
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;

    [[nodiscard]] const char *port() const { return port_.data(); }
    // Returns the first word of a page of the pool, which this process has mapped too.
    [[nodiscard]] std::uint64_t word(std::size_t number) const {
        auto *const at = reinterpret_cast<std::uint64_t *>(static_cast<std::byte *>(pool_) + number * page);
        return std::atomic_ref<std::uint64_t>{*at}.load();
    }

private:
    static void serve(void *pool, int told) {
        ibv_context *context = nullptr;
        rpma_peer *peer = nullptr;
        rpma_ep *endpoint = nullptr;
        rpma_mr_local *mr = nullptr;
        sockaddr_storage address{};
        assert_int_equal(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context), 0);
        assert_int_equal(rpma_peer_new(context, &peer), 0);
        assert_int_equal(rpma_ep_listen_cfg(peer, "127.0.0.1", "0", nullptr, &endpoint), 0);
        assert_int_equal(
            rpma_mr_reg(peer, pool, pool_bytes,
                        RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT,
                        &mr),
            0);
        assert_int_equal(rpma_ep_get_local_addr(endpoint, &address), 0);
        char port[6] = "";
        std::snprintf(port, sizeof(port), "%u", ntohs(reinterpret_cast<sockaddr_in &>(address).sin_port));
        assert_int_equal(write(told, port, sizeof(port)), sizeof(port));
        char descriptor[32];
        std::size_t size = 0;
        assert_int_equal(rpma_mr_get_descriptor_size(mr, &size), 0);
        assert_true(size <= sizeof(descriptor) && rpma_mr_get_descriptor(mr, descriptor) == 0);
        const rpma_conn_private_data ours{.ptr = descriptor, .len = static_cast<std::uint8_t>(size)};
        while (true) {
            rpma_conn_req *request = nullptr;
            rpma_conn *conn = nullptr;
            rpma_conn_event event = RPMA_CONN_UNDEFINED;
            assert_int_equal(rpma_ep_next_conn_req(endpoint, nullptr, &request), 0);
            assert_int_equal(rpma_conn_req_recv(request, mr, pool_bytes - page, page, nullptr), 0);
            assert_int_equal(rpma_conn_req_connect(&request, &ours, &conn), 0);
            while (event != RPMA_CONN_CLOSED && event != RPMA_CONN_LOST) {
                assert_int_equal(rpma_conn_next_event(conn, &event), 0);
            }
            (void)rpma_conn_disconnect(conn);
            assert_int_equal(rpma_conn_delete(&conn), 0);
        }
    }

    void *pool_ = nullptr;
    pid_t child_ = -1;
    std::array<char, 6> port_{};
};

class Client {
public:
    explicit Client(const Server &server) {
        ibv_context *context = nullptr;
        rpma_conn_req *request = nullptr;
        rpma_conn_event event = RPMA_CONN_UNDEFINED;
        rpma_conn_private_data theirs{};
        assert_int_equal(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_REMOTE, &context), 0);
        assert_int_equal(rpma_peer_new(context, &peer), 0);
        assert_int_equal(rpma_mr_reg(peer, from_.data(), from_.size(),
                                     RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND, &local),
                         0);
        rpma_conn_cfg *sizes = nullptr;
        assert_int_equal(rpma_conn_cfg_new(&sizes), 0);
        assert_int_equal(rpma_conn_cfg_set_sq_size(sizes, 64), 0);
        assert_int_equal(rpma_conn_cfg_set_cq_size(sizes, 64), 0);
        assert_int_equal(rpma_conn_req_new(peer, "127.0.0.1", server.port(), sizes, &request), 0);
        assert_int_equal(rpma_conn_cfg_delete(&sizes), 0);
        assert_int_equal(rpma_conn_req_connect(&request, nullptr, &conn), 0);
        assert_int_equal(rpma_conn_next_event(conn, &event), 0);
        assert_int_equal(event, RPMA_CONN_ESTABLISHED);
        rpma_peer_cfg *features = nullptr;
        assert_int_equal(rpma_peer_cfg_new(&features), 0);
        assert_int_equal(rpma_peer_cfg_set_direct_write_to_pmem(features, true), 0);
        assert_int_equal(rpma_conn_apply_remote_peer_cfg(conn, features), 0);
        assert_int_equal(rpma_peer_cfg_delete(&features), 0);
        assert_int_equal(rpma_conn_get_cq(conn, &cq), 0);
        assert_int_equal(rpma_conn_get_private_data(conn, &theirs), 0);
        assert_int_equal(rpma_mr_remote_from_descriptor(theirs.ptr, theirs.len, &remote), 0);
    }
    ~Client() {
        (void)rpma_conn_disconnect(conn);
        end();
        (void)rpma_mr_remote_delete(&remote);
        (void)rpma_mr_dereg(&local);
        (void)rpma_peer_delete(&peer);
    }
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;

    void end() { (void)rpma_conn_delete(&conn); }

    void write(std::size_t number) {
        assert_int_equal(
            rpma_write(conn, remote, number * page, local, 0, page, RPMA_F_COMPLETION_ON_ERROR, nullptr), 0);
    }
    void flush(std::size_t number, const void *context = nullptr) {
        assert_int_equal(rpma_flush(conn, remote, number * page, page, RPMA_FLUSH_TYPE_PERSISTENT,
                                    RPMA_F_COMPLETION_ALWAYS, context),
                         0);
    }
    // Returns the next completion. Sleeps as librpma's examples do, or polls.
    ibv_wc completion(bool sleeps = true) {
        ibv_wc next{};
        int got = rpma_cq_get_wc(cq, 1, &next, nullptr);
        while (got == RPMA_E_NO_COMPLETION) {
            if (sleeps) {
                assert_int_equal(rpma_cq_wait(cq), 0);
            }
            got = rpma_cq_get_wc(cq, 1, &next, nullptr);
        }
        assert_int_equal(got, 0);
        return next;
    }
    void write_and_flush(std::size_t number, bool sleeps) {
        write(number);
        flush(number);
        assert_int_equal(completion(sleeps).status, IBV_WC_SUCCESS);
    }
    // Writes until this process makes the flushes. Skips the test where it never does: the device takes no
    // direct way under Valgrind's memcheck.
    void warm_up() {
        for (int rounds = 0; rounds < 64; ++rounds) {
            const unsigned before = calls->of_client;
            write_and_flush(0, true);
            if (calls->of_client != before) {
                write_and_flush(0, true);
                return;
            }
        }
        skip();
    }

    rpma_peer *peer = nullptr;
    rpma_conn *conn = nullptr;
    rpma_cq *cq = nullptr;
    rpma_mr_local *local = nullptr;
    rpma_mr_remote *remote = nullptr;

private:
    alignas(page) std::array<std::byte, page> from_{};
};

// The servers are made before this process has other threads, one for each test.
std::vector<std::unique_ptr<Server>> servers;

// A failed assertion jumps past destructors, so both belong to the test's state.
struct Ends {
    std::unique_ptr<Server> server;
    std::unique_ptr<Client> client = std::make_unique<Client>(*server);
};

int begin(void **state) {
    storage.is_slow = false;
    storage.error = 0;
    *state = new Ends{.server = std::move(servers.back())};
    servers.pop_back();
    return 0;
}

int end(void **state) {
    let_storage(false);
    delete static_cast<Ends *>(*state);
    return 0;
}

Client &client_of(void **state) {
    Client &client = *static_cast<Ends *>(*state)->client;
    client.warm_up();
    return client;
}

// Ends the connection, and makes the next one to the same server.
Client &next_client_of(void **state) {
    Ends &ends = *static_cast<Ends *>(*state);
    ends.client.reset();
    ends.client = std::make_unique<Client>(*ends.server);
    return *ends.client;
}

// On a busy machine the engine's tick may come before the thread sleeps.
void the_thread_that_sleeps_flushes(void **state) {
    Client &client = client_of(state);
    const unsigned before = calls->of_client;
    const unsigned of_server = calls->of_server;
    unsigned rounds = 0;
    for (unsigned by_this_thread = 0; by_this_thread < 20; ++rounds) {
        assert_true(rounds < 1000);
        calls->last_thread = 0;
        client.write_and_flush(1, true);
        by_this_thread += calls->last_thread == gettid() ? 1 : 0;
    }
    assert_int_equal(calls->of_client, before + rounds);
    assert_int_equal(calls->of_server, of_server);
}

void a_worker_flushes_for_a_thread_that_polls(void **state) {
    Client &client = client_of(state);
    const unsigned of_server = calls->of_server;
    for (unsigned number = 1; number <= 20; ++number) {
        calls->last_thread = 0;
        client.write_and_flush(number, false);
        assert_int_not_equal(calls->last_thread, 0);
        assert_int_not_equal(calls->last_thread, gettid());
    }
    assert_int_equal(calls->of_server, of_server);
}

// The flush was left to the thread that slept for the last one.
void a_worker_flushes_when_no_thread_sleeps(void **state) {
    Client &client = client_of(state);
    const unsigned before = calls->of_client;
    client.write(1);
    client.flush(1);
    assert_true(is_within_patience([&] { return calls->of_client != before; }));
    assert_int_not_equal(calls->last_thread, gettid());
    assert_int_equal(client.completion().status, IBV_WC_SUCCESS);
}

void many_at_once_complete_in_order(void **state) {
    Client &client = client_of(state);
    const unsigned of_server = calls->of_server;
    std::array<char, 16> names{};
    for (const bool sleeps : {true, false, true}) {
        for (std::size_t number = 0; number < names.size(); ++number) {
            client.write(number);
            client.flush(number, &names[number]);
        }
        for (const char &name : names) {
            const ibv_wc completion = client.completion(sleeps);
            assert_int_equal(completion.status, IBV_WC_SUCCESS);
            assert_ptr_equal(reinterpret_cast<const void *>(completion.wr_id), &name);
        }
    }
    assert_int_equal(calls->of_server, of_server);
}

// Storage holds the first flush; the writes behind it are done, and the second flush waits.
void writes_go_on_during_a_flush(void **state) {
    Client &client = client_of(state);
    const unsigned before = calls->of_client;
    let_storage(true);
    client.write(1);
    client.flush(1, &client);
    assert_true(is_within_patience([&] { return calls->of_client != before; }));
    client.write(2);
    client.flush(2);
    assert_int_equal(calls->of_client, before + 1);
    let_storage(false);
    assert_ptr_equal(reinterpret_cast<const void *>(client.completion().wr_id), &client);
    assert_int_equal(client.completion().status, IBV_WC_SUCCESS);
    assert_int_equal(calls->of_client, before + 2);
}

// A program may tell by it that what was flushed is there.
void an_atomic_write_waits_for_the_flush(void **state) {
    Client &client = client_of(state);
    const unsigned before = calls->of_client;
    const Server &server = *static_cast<Ends *>(*state)->server;
    constexpr std::size_t told_at = 9;
    constexpr std::uint64_t told = 0x1122334455667788;
    let_storage(true);
    client.write(1);
    client.flush(1);
    assert_int_equal(
        rpma_atomic_write(client.conn, client.remote, told_at * page, reinterpret_cast<const char *>(&told),
                          RPMA_F_COMPLETION_ALWAYS, nullptr),
        0);
    assert_true(is_within_patience([&] { return calls->of_client != before; }));
    assert_int_not_equal(server.word(told_at), told);
    let_storage(false);
    assert_int_equal(client.completion().status, IBV_WC_SUCCESS);
    assert_int_equal(client.completion().status, IBV_WC_SUCCESS);
    assert_int_equal(server.word(told_at), told);
}

// The peer places a write with immediate data, so only it knows the pages.
void what_the_peer_placed_is_flushed_there(void **state) {
    Client &client = client_of(state);
    const unsigned of_server = calls->of_server;
    const unsigned before = calls->of_client;
    assert_int_equal(rpma_write_with_imm(client.conn, client.remote, page, client.local, 0, page,
                                         RPMA_F_COMPLETION_ON_ERROR, 1, nullptr),
                     0);
    client.flush(0);
    assert_int_equal(client.completion().status, IBV_WC_SUCCESS);
    assert_true(calls->of_server > of_server);
    assert_int_equal(calls->of_client, before);
    // The message has to be delivered before a flush goes another way.
    for (int rounds = 0; calls->of_client == before; ++rounds) {
        assert_true(rounds < 1000);
        client.write_and_flush(1, true);
    }
}

// From then on this process cannot tell what storage has, so the server is asked, which had no error.
void failing_storage_ends_the_connection(bool sleeps, void **state) {
    Client &client = client_of(state);
    const unsigned asked = calls->of_server;
    storage.error = EIO;
    client.write(1);
    client.flush(1);
    client.flush(2);
    assert_int_equal(client.completion(sleeps).status, IBV_WC_REM_OP_ERR);
    assert_int_equal(client.completion(sleeps).status, IBV_WC_WR_FLUSH_ERR);
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    assert_int_equal(rpma_conn_next_event(client.conn, &event), 0);
    assert_int_equal(event, RPMA_CONN_CLOSED);
    // The server flushes too, so that it learns of the failure.
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (calls->of_server == asked) {
        assert_true(std::chrono::steady_clock::now() < deadline);
        std::this_thread::yield();
    }

    Client &next = next_client_of(state);
    const unsigned before = calls->of_client;
    const unsigned of_server = calls->of_server;
    for (unsigned rounds = 0; rounds < 32; ++rounds) {
        next.write_and_flush(0, sleeps);
    }
    assert_int_equal(calls->of_client, before);
    assert_true(calls->of_server >= of_server + 32);
}

void storage_fails_for_a_sleeper(void **state) {
    failing_storage_ends_the_connection(true, state);
}

void storage_fails_for_a_worker(void **state) {
    failing_storage_ends_the_connection(false, state);
}

// The program ends the connection while a flush is left to a thread that will sleep, and is with storage.
void a_connection_ends_during_a_flush(void **state) {
    Client &client = client_of(state);
    client.write(1);
    client.flush(1);
    assert_int_equal(rpma_conn_disconnect(client.conn), 0);
    const ibv_wc_status status = client.completion().status;
    assert_true(status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_SUCCESS);

    Client &next = next_client_of(state);
    next.warm_up();
    const unsigned before = calls->of_client;
    let_storage(true);
    next.write(1);
    next.flush(1);
    assert_true(is_within_patience([&] { return calls->of_client != before; }));
    assert_int_equal(rpma_conn_disconnect(next.conn), 0);
    assert_int_equal(next.completion().status, IBV_WC_WR_FLUSH_ERR);
    std::thread ends{[&] { next.end(); }};
    let_storage(false);
    ends.join();
}

}  // namespace

int main() {
    void *const shared = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return EXIT_FAILURE;
    }
    calls = new (shared) Calls;
    constexpr CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_thread_that_sleeps_flushes, begin, end),
        cmocka_unit_test_setup_teardown(a_worker_flushes_for_a_thread_that_polls, begin, end),
        cmocka_unit_test_setup_teardown(a_worker_flushes_when_no_thread_sleeps, begin, end),
        cmocka_unit_test_setup_teardown(many_at_once_complete_in_order, begin, end),
        cmocka_unit_test_setup_teardown(writes_go_on_during_a_flush, begin, end),
        cmocka_unit_test_setup_teardown(an_atomic_write_waits_for_the_flush, begin, end),
        cmocka_unit_test_setup_teardown(what_the_peer_placed_is_flushed_there, begin, end),
        cmocka_unit_test_setup_teardown(storage_fails_for_a_sleeper, begin, end),
        cmocka_unit_test_setup_teardown(storage_fails_for_a_worker, begin, end),
        cmocka_unit_test_setup_teardown(a_connection_ends_during_a_flush, begin, end),
    };
    while (servers.size() < std::size(tests)) {
        servers.push_back(std::make_unique<Server>());
    }
    return cmocka_run_group_tests_name("direct_flush", tests, nullptr, nullptr);
}
