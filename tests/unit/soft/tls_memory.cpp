// SPDX-License-Identifier: BSD-3-Clause
// The device finds no memory during a handshake of TLS, at each place where the device or OpenSSL asks for
// some. The connection is not made, the process goes on, and the next connection is made. Without arguments
// both ends have a key. `x509 STEP` gives both ends certificates, and tries one place of every STEP, because
// there are thousands.
#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../../certificates.hpp"
#include "failing_new.hpp"

// These come last, because they assert.
#include "device.hpp"
#include "tls_peer.hpp"

namespace {

using test::Ends;
using test::TlsHabits;
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

int step = 1;

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
    int left = 0;
    while (true) {
        const Outage outage{left};
        connect();
        if (!Outage::end()) {
            break;
        }
        left += step;
        assert_true(left < 20'000);
    }
    assert_true(left >= 10 * step);
}

// ---- the device as a server, and as a client ----

void with_little_memory_a_client_comes(test::Device &device, const TlsHabits &habits, const auto &prepare) {
    at_each_place([&] {
        prepare();
        test::Peer one;
        one.connect(device.port());
        TlsPeer client{one, true, habits};
        if (client.shake()) {
            (void)shutdown(one.socket(), SHUT_WR);
            (void)client.is_refused();
        }
    });
    assert_false(device.has_event());
    // What was made with little memory, and lasts, does not stand in the way of the next client.
    test::Peer one;
    one.connect(device.port());
    TlsPeer client{one, true, habits};
    assert_true(client.shake());
    client.send(test::encoded(test::from_a_soft_device));
    device.close(device.take_request());
}

// Has the device go to a server. Returns whether its request comes there.
bool request_comes(test::Device &device, const TlsHabits &habits) {
    test::Peer one;
    rdma_cm_id *const id = device.connect(one.listen());
    one.accept();
    TlsPeer server{one, false, habits};
    const bool comes = server.shake() && !server.is_refused();
    one.close();
    device.close(id);
    return comes;
}

void with_little_memory_it_goes_to_a_server(test::Device &device, const TlsHabits &habits,
                                            const auto &prepare) {
    at_each_place([&] {
        prepare();
        (void)request_comes(device, habits);
    });
    assert_true(request_comes(device, habits));
}

// ---- keys ----

// The device as a client has a long identity, which is in memory of its own.
const std::string long_identity(60, 'i');

void use_keys() {
    const auto file = std::filesystem::absolute("keys_of_memory");
    std::filesystem::remove(file);
    std::ofstream{file} << long_identity << ":30313233343536373839616263646566\n"
                        << "one:30313233343536373839616263646566\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    (void)setenv("RPMA_TLS", ("psk:" + file.string()).c_str(), 1);
}

void nothing() {}

void a_server_without_memory(Ends &ends) {
    with_little_memory_a_client_comes(ends.device, {}, nothing);
}

void a_client_without_memory(Ends &ends) {
    with_little_memory_it_goes_to_a_server(ends.device, {.identity = long_identity}, nothing);
}

// ---- certificates ----

std::filesystem::path folder;

const test::Issued &authority() {
    static const test::Issued one = test::make_authority("the CA");
    return one;
}
const test::Issued &own() {
    static const test::Issued one = test::issue({}, &authority());
    return one;
}

void write_list() {
    std::ofstream{folder / "list"} << "ca ca.pem\ncertificate own.pem\nkey own.key\ncrl none.pem\n";
}

void use_certificates() {
    folder = std::filesystem::absolute("certificates_of_memory");
    std::filesystem::create_directories(folder);
    test::write_certificates(folder / "ca.pem", {authority().certificate.get()});
    test::write_certificates(folder / "own.pem", {own().certificate.get()});
    test::write_key(folder / "own.key", *own().key);
    test::write_revocations(folder / "none.pem", *test::revoke(authority(), {}));
    write_list();
    (void)setenv("RPMA_TLS", ("x509:" + (folder / "list").string()).c_str(), 1);
}

// The device reads the files for each handshake, because one of them has always changed just now.
const auto change_the_files = write_list;

const TlsHabits certified{.certify = [](SSL_CTX *context) {
    assert_int_equal(SSL_CTX_use_certificate(context, own().certificate.get()), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, own().key.get()), 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, [](int, X509_STORE_CTX *) { return 1; });
}};

// When OpenSSL has too little memory for its first use of an algorithm, it may not find that one later either
// (seen with 3.0.19). So it uses all of them before.
void a_client_with_memory_for_certificates(Ends &ends) {
    assert_true(request_comes(ends.device, certified));
}

void a_server_without_memory_for_certificates(Ends &ends) {
    with_little_memory_a_client_comes(ends.device, certified, change_the_files);
}

void a_client_without_memory_for_certificates(Ends &ends) {
    with_little_memory_it_goes_to_a_server(ends.device, certified, change_the_files);
}

}  // namespace

int main(int count, char **words) {
    is_the_test = true;
    (void)std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a peer that has closed
    assert_int_equal(CRYPTO_set_mem_functions(allocate, reallocate, release), 1);
    if (count == 3) {
        step = std::atoi(words[2]);
        use_certificates();
        const CMUnitTest tests[] = {
            fixture_test(a_client_with_memory_for_certificates),
            fixture_test(a_server_without_memory_for_certificates),
            fixture_test(a_client_without_memory_for_certificates),
        };
        return cmocka_run_group_tests(tests, nullptr, nullptr);
    }
    use_keys();
    const CMUnitTest tests[] = {
        fixture_test(a_server_without_memory),
        fixture_test(a_client_without_memory),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
