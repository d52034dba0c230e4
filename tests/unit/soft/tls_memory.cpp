// SPDX-License-Identifier: BSD-3-Clause
// The device finds no memory during a handshake of TLS, at each place where the device or OpenSSL asks for
// some. The connection is not made, and the process goes on.
#include <openssl/crypto.h>
#include <sys/socket.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "failing_new.hpp"

// These come last, because they assert.
#include "device.hpp"
#include "tls_peer.hpp"

namespace {

using test::Ends;
using test::TlsPeer;

std::atomic<int> allocations_left{INT32_MAX};
thread_local bool is_the_test = false;  // this thread always has memory

bool fails() {
    return !is_the_test && allocations_left.load() != INT32_MAX && allocations_left.fetch_sub(1) <= 0;
}

// OpenSSL's memory.
void *allocate(std::size_t size, const char *, int) {
    return fails() ? nullptr : std::malloc(size);
}
void *reallocate(void *memory, std::size_t size, const char *, int) {
    return fails() ? nullptr : std::realloc(memory, size);
}
void release(void *memory, const char *, int) {
    std::free(memory);
}

}  // namespace

// OpenSSL loses some of its own memory for a thread when it has too little.
// NOLINTNEXTLINE(bugprone-reserved-identifier): LeakSanitizer calls it.
extern "C" const char *__lsan_default_suppressions() {
    return "leak:libcrypto.so.3\n";
}

bool test::allocation_fails(std::size_t) {
    return fails();
}

namespace {

// Lets this many allocations of the device succeed while it lives.
class Outage {
public:
    explicit Outage(int left) { allocations_left.store(left); }
    ~Outage() { end(); }
    Outage(const Outage &) = delete;
    Outage &operator=(const Outage &) = delete;

    // Returns whether an allocation has failed.
    static bool end() { return allocations_left.exchange(INT32_MAX) < 0; }
};

// Calls connect(), which has the engine's thread do the handshake, until it finds all memory.
void at_each_place(const auto &connect) {
    int failed = 0;
    for (int left = 0; left < 5000; ++left) {
        const Outage outage{left};
        connect();
        if (!Outage::end()) {
            break;
        }
        ++failed;
    }
    assert_in_range(failed, 10, 4000);
}

void a_server_without_memory(Ends &ends) {
    at_each_place([&ends] {
        test::Peer one;
        one.connect(ends.device.port());
        TlsPeer client{one, true, {}};
        if (client.shake()) {
            (void)shutdown(one.socket(), SHUT_WR);
            (void)client.is_refused();
        }
    });
    assert_false(ends.device.has_event());
}

void a_client_without_memory(Ends &ends) {
    auto &[device, peer, other] = ends;
    at_each_place([&device] {
        test::Peer one;
        rdma_cm_id *const id = device.connect(one.listen());
        one.accept();
        TlsPeer server{one, false, {.identity = std::string(60, 'i')}};
        if (server.shake()) {
            (void)server.is_refused();  // or the request comes
        }
        one.close();
        device.close(id);
    });
}

}  // namespace

int main() {
    is_the_test = true;
    (void)std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a peer that has closed
    assert_int_equal(CRYPTO_set_mem_functions(allocate, reallocate, release), 1);
    const auto keys = std::filesystem::absolute("keys_of_memory");
    std::filesystem::remove(keys);
    // The device as a client has a long identity, which is in memory of its own.
    const std::string identity(60, 'i');
    std::ofstream{keys} << identity << ":30313233343536373839616263646566\n"
                        << "one:30313233343536373839616263646566\n";
    std::filesystem::permissions(keys, std::filesystem::perms::owner_read);
    (void)setenv("RPMA_TLS", ("psk:" + keys.string()).c_str(), 1);
    const CMUnitTest tests[] = {
        fixture_test(a_server_without_memory),
        fixture_test(a_client_without_memory),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
