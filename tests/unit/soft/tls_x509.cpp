// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/certificate_proof: a device that has a certificate, and peers with certificates that are right,
// wrong or missing, each as client and as server. Every refusal has its errno and its line of log on the side
// that refuses and on the side that is refused, and nothing reaches the program.
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../../certificates.hpp"

// This comes last, because it asserts.
#include "tls_ends.hpp"

namespace {

using namespace soft::wire;
using test::Bytes;
using test::CertificateWish;
using test::Ends;
using test::expect_line;
using test::expect_refused_client;
using test::expect_refused_server;
using test::Issued;
using test::TlsHabits;
using test::TlsPeer;

std::filesystem::path folder;

const Issued &authority() {
    static const Issued one = test::make_authority("the CA");
    return one;
}
const Issued &stranger() {
    static const Issued one = test::make_authority("another CA");
    return one;
}

// The signer of a certificate is one of these.
enum class By : std::uint8_t { Authority, Stranger, Itself };

Issued issued(const CertificateWish &wish, By by = By::Authority) {
    return test::issue(wish, by == By::Authority ? &authority() : by == By::Stranger ? &stranger() : nullptr);
}

const CertificateWish of_device{.name = "device", .others = "DNS:Device,DNS:other,IP:127.0.0.1"};

// ---- the device's files ----

void write_own(const Issued &own) {
    test::write_certificates(folder / "own.pem", {own.certificate.get()});
    test::write_key(folder / "own.key", *own.key);
}

void write_list(const std::string &more = "") {
    std::ofstream{folder / "list"} << "ca ca.pem\ncertificate own.pem\nkey own.key\n" << more;
}

void write_files() {
    std::filesystem::create_directories(folder);
    test::write_certificates(folder / "ca.pem", {authority().certificate.get()});
    write_own(issued(of_device));
    write_list();
}

// The files are right before the device looks at them.
struct Files {
    Files() { write_files(); }
};

struct X509Ends : Files, Ends {
    X509Ends() { test::KeptLog::begin(); }
};

// ---- the peer ----

int content_with_all(int, X509_STORE_CTX *) {
    return 1;
}

// Gives the peer a certificate. It trusts the CA, or asks the device for any certificate.
void certify(SSL_CTX *context, const Issued *own, bool checks) {
    if (own != nullptr) {
        assert_int_equal(SSL_CTX_use_certificate(context, own->certificate.get()), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(context, own->key.get()), 1);
    }
    X509_STORE *const store = SSL_CTX_get_cert_store(context);
    assert_int_equal(X509_STORE_add_cert(store, authority().certificate.get()), 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       checks ? nullptr : content_with_all);
}

// The certificate outlives the peer.
TlsHabits peer_with(const Issued &own) {
    return {.certify = [&own](SSL_CTX *context) { certify(context, &own, false); }};
}

// A peer whose certificate is right, and that looks at the device's.
TlsHabits strict_peer(const char *address = nullptr) {
    static const Issued own = issued({});
    return {.certify = [address](SSL_CTX *context) {
        certify(context, &own, true);
        if (address != nullptr) {
            assert_int_equal(X509_VERIFY_PARAM_set1_ip_asc(SSL_CTX_get0_param(context), address), 1);
        }
    }};
}

// ---- the right certificates ----

rdma_cm_id *let_in(test::Device &device, test::Peer &peer, const TlsHabits &habits) {
    peer.connect(device.port());
    TlsPeer client{peer, true, habits};
    assert_true(client.shake());
    client.send(test::encoded(test::from_a_soft_device));
    rdma_cm_id *const request = device.take_request();
    device.accept(request, "welcome");
    const Bytes reply = client.receive(mpa_header_bytes);
    assert_memory_equal(reply.data(), "MPA ID Rep Frame", 16);
    return request;
}

void a_client_of_the_ca_is_let_in(X509Ends &ends) {
    const Issued own =
        issued({.others = "IP:192.0.2.1,DNS:Host-A.example,DNS:second", .purposes = "clientAuth"});
    rdma_cm_id *const id = let_in(ends.device, ends.peer, peer_with(own));
    assert_string_equal(softrdma_identity(id), "host-a.example");
    expect_line(ends.device, "the certificate of host-a.example");
}

void a_strict_client_takes_the_device(X509Ends &ends) {
    assert_string_equal(softrdma_identity(let_in(ends.device, ends.peer, strict_peer("127.0.0.1"))), "peer");
}

void expect_taken_server(Ends &ends, test::Peer &peer, const TlsHabits &habits) {
    rdma_cm_id *const id = ends.device.connect(peer.listen(), "hello");
    peer.accept();
    TlsPeer server{peer, false, habits};
    assert_true(server.shake());
    const Bytes request = server.receive(mpa_header_bytes);
    assert_memory_equal(request.data(), "MPA ID Req Frame", 16);
    MpaFrame reply = test::from_a_soft_device;
    reply.role = MpaRole::Reply;
    server.send(test::encoded(reply));
    (void)ends.device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    assert_string_equal(softrdma_identity(id), "device");
}

void a_server_with_its_address_is_spoken_to(X509Ends &ends) {
    expect_taken_server(ends, ends.peer, strict_peer());
    const Issued own = issued({.purposes = "serverAuth"});
    expect_taken_server(ends, ends.other, peer_with(own));
}

// ---- the matrix: what is wrong with a certificate, and who has it ----

struct Wrong {
    CertificateWish wish;
    By by = By::Authority;
    const char *of_client = nullptr;  // the line of a device that is shown it by a client
    const char *of_server = nullptr;
    const char *own = nullptr;  // the line of a device whose certificate it is
};

Wrong expired() {
    return {.wish = {.begins = -7200, .ends = -3600},
            .of_client = "the certificate of the client peer expired on 20",
            .of_server = "the certificate of the server peer expired on 20",
            .own = "own.pem: it expired on 20"};
}
Wrong early() {
    return {.wish = {.begins = 3600, .ends = 7200},
            .of_client = "the certificate of the client peer is not valid before 20",
            .of_server = "the certificate of the server peer is not valid before 20",
            .own = "own.pem: it is not valid before 20"};
}
Wrong foreign() {
    return {.wish = {},
            .by = By::Stranger,
            .of_client = "the certificate of the client peer is not issued by the CA of ",
            .of_server = "the certificate of the server peer is not issued by the CA of ",
            .own = "own.pem: it is not issued by a CA that is trusted there"};
}
Wrong self_signed() {
    return {.wish = {},
            .by = By::Itself,
            .of_client = "the certificate of the client peer is self-signed, and not issued by the CA of ",
            .of_server = "the certificate of the server peer is self-signed, and not issued by the CA of ",
            .own = "own.pem: it is not issued by a CA that is trusted there"};
}

// Each peer with the wrong certificate is refused, and says so to a device that has it.
void expect_wrong(X509Ends &ends, const Wrong &wrong) {
    const Issued own = issued(wrong.wish, wrong.by);
    expect_refused_client(ends, peer_with(own), wrong.of_client);
    {
        test::Peer &peer = ends.other;
        rdma_cm_id *const id = ends.device.connect(peer.listen());
        peer.accept();
        TlsPeer server{peer, false, peer_with(own)};
        assert_true(!server.shake() || server.is_refused());
        assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EACCES);
        expect_line(ends.device, wrong.of_server);
    }
    write_own(own);
    test::Peer peer;
    peer.connect(ends.device.port());
    TlsPeer client{peer, true, strict_peer()};
    assert_false(client.shake());
    expect_line(ends.device,
                std::string{"the client refuses the certificate "} + (folder / wrong.own).string());
    test::Peer second;
    rdma_cm_id *const id = ends.device.connect(second.listen());
    second.accept();
    TlsPeer server{second, false, strict_peer()};
    assert_false(server.shake());
    assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EACCES);
    expect_line(ends.device,
                std::string{"the server refuses the certificate "} + (folder / wrong.own).string());
    assert_false(ends.device.has_event());
}

void what_is_expired_is_refused(X509Ends &ends) {
    expect_wrong(ends, expired());
}
void what_is_not_valid_yet_is_refused(X509Ends &ends) {
    expect_wrong(ends, early());
}
void what_another_ca_issued_is_refused(X509Ends &ends) {
    expect_wrong(ends, foreign());
}
void what_signs_itself_is_refused(X509Ends &ends) {
    expect_wrong(ends, self_signed());
}

// A certificate without purposes is for neither side: it was made for something else.
void what_is_for_another_purpose_is_refused(X509Ends &ends) {
    for (const char *const purposes : {"serverAuth", "emailProtection", ""}) {
        test::KeptLog::begin();
        const Issued own = issued({.purposes = purposes});
        test::Peer peer;
        peer.connect(ends.device.port());
        TlsPeer client{peer, true, peer_with(own)};
        assert_true(!client.shake() || client.is_refused());
        expect_line(ends.device,
                    "the certificate of the client peer is not for clients (expected the extendedKeyUsage "
                    "clientAuth)");
    }
    assert_false(ends.device.has_event());
    const Issued of_client = issued({.purposes = "clientAuth"});
    expect_refused_server(
        ends, peer_with(of_client), EACCES,
        "the certificate of the server peer is not for servers (expected the extendedKeyUsage serverAuth)");
}

void a_device_for_another_purpose_is_refused(X509Ends &ends) {
    CertificateWish wish = of_device;
    wish.purposes = "serverAuth";
    write_own(issued(wish));
    expect_refused_server(ends, strict_peer(), EACCES,
                          "it is not for this side; expected the extendedKeyUsage clientAuth");
    wish.purposes = "clientAuth";
    write_own(issued(wish));
    ends.other.connect(ends.device.port());
    TlsPeer client{ends.other, true, strict_peer()};
    assert_false(client.shake());
    expect_line(ends.device, "it is not for this side; expected the extendedKeyUsage serverAuth");
}

void who_shows_no_certificate_is_refused(X509Ends &ends) {
    expect_refused_client(ends, {.certify = [](SSL_CTX *context) { certify(context, nullptr, false); }},
                          "the client has shown no certificate");
    // The server has keys instead.
    rdma_cm_id *const id = ends.device.connect(ends.other.listen());
    ends.other.accept();
    TlsPeer server{ends.other, false, {}};
    assert_false(server.shake());
    assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EACCES);
    expect_line(ends.device, "the server and this host have no way to authenticate each other");
}

void who_speaks_an_old_version_is_refused(X509Ends &ends) {
    TlsHabits old = strict_peer();
    old.old_version = true;
    expect_refused_client(ends, old, "the client does not speak TLS 1.3");
    expect_refused_server(ends, old, EPROTO, "the server does not speak TLS 1.3");
}

// ---- names ----

void who_has_no_name_is_refused(X509Ends &ends) {
    for (const char *const others : {"", "IP:127.0.0.1", "DNS:*.example,IP:127.0.0.1"}) {
        test::KeptLog::begin();
        const Issued own = issued({.others = others});
        test::Peer peer;
        peer.connect(ends.device.port());
        TlsPeer client{peer, true, peer_with(own)};
        assert_true(!client.shake() || client.is_refused());
        expect_line(ends.device, "the certificate of the client has no name of DNS");
    }
    assert_false(ends.device.has_event());
    const Issued own = issued({.others = "IP:127.0.0.1"});
    expect_refused_server(ends, peer_with(own), EACCES, "the certificate of the server has no name of DNS");
}

void a_server_at_another_address_is_refused(X509Ends &ends) {
    const Issued own = issued({.others = "DNS:peer,IP:192.0.2.1,IP:::1,DNS:127.0.0.1"});
    expect_refused_server(ends, peer_with(own), EACCES,
                          "the certificate of the server peer does not have its address");
    // A list of names is in place of the address.
    write_list("server another\nserver 127.0.0.1\n");
    expect_taken_server(ends, ends.other, peer_with(own));
}

void a_server_that_is_not_listed_is_refused(X509Ends &ends) {
    write_list("server another\nclient peer\n");
    expect_refused_server(ends, strict_peer(), EACCES, "the server is peer, which is not wanted");
}

void a_client_that_is_not_listed_is_refused(X509Ends &ends) {
    write_list("client another\nserver peer\n");
    const Issued own = issued({.others = "DNS:peer,DNS:another"});  // the first name is the identity
    expect_refused_client(ends, peer_with(own),
                          "the client peer is not let in (expected a line \"client peer\" in ");
    write_list("client another\nclient peer\n");
    (void)let_in(ends.device, ends.other, peer_with(own));
}

void a_client_that_expects_another_address_is_noticed(X509Ends &ends) {
    ends.peer.connect(ends.device.port());
    TlsPeer client{ends.peer, true, strict_peer("192.0.2.1")};
    assert_false(client.shake());
    expect_line(ends.device, "it has not the name or the address that is expected there; its name is device");
}

// ---- time ----

void peers_that_stop_are_given_up(X509Ends &ends) {
    test::expect_given_up_at_each_message(ends, strict_peer(), strict_peer());
}

// ---- revoked, and out of bounds ----

void who_is_revoked_is_refused(X509Ends &ends) {
    const Issued own = issued({});
    const Issued other = issued({.others = "DNS:other,IP:127.0.0.1"});
    write_list("crl list.pem\n");
    test::write_revocations(folder / "list.pem", *test::revoke(authority(), {own.certificate.get()}));
    expect_refused_client(ends, peer_with(own), "the certificate of the client peer is revoked");
    rdma_cm_id *const id = let_in(ends.device, ends.other, peer_with(other));
    assert_string_equal(softrdma_identity(id), "other");
}

// Returns a peer that shows so many certificates between its own and that of the CA.
TlsHabits peer_below(unsigned between, std::vector<Issued> &chain) {
    for (unsigned number = 0; number < between; ++number) {
        chain.push_back(test::make_authority("number " + std::to_string(number),
                                             chain.empty() ? &authority() : &chain.back()));
    }
    chain.push_back(test::issue({}, chain.empty() ? &authority() : &chain.back()));
    return {.certify = [&chain](SSL_CTX *context) {
        certify(context, &chain.back(), false);
        for (std::size_t place = 0; place + 1 < chain.size(); ++place) {
            assert_int_equal(SSL_CTX_add1_chain_cert(context, chain[place].certificate.get()), 1);
        }
    }};
}

// The connection goes on, and its program learns that the peer would not be let in any more.
void a_peer_is_known_while_its_certificate_is(X509Ends &ends) {
    std::vector<Issued> chain;
    chain.reserve(8);
    rdma_cm_id *const id = let_in(ends.device, ends.peer, peer_below(1, chain));
    const auto expect_unknown = [&](const char *text) {
        assert_int_equal(softrdma_peer_is_known(id), 0);
        expect_line(ends.device, text);
    };
    assert_int_equal(softrdma_peer_is_known(id), 1);
    write_list("client another\n");
    expect_unknown("the client peer is not let in");
    write_list("client peer\n");
    assert_int_equal(softrdma_peer_is_known(id), 1);
    write_list("crl list.pem\n");
    test::write_revocations(folder / "list.pem",
                            *test::revoke(chain.front(), {chain.back().certificate.get()}));
    expect_unknown("the certificate of the client peer is revoked");
    test::write_revocations(folder / "list.pem", *test::revoke(chain.front(), {}));
    assert_int_equal(softrdma_peer_is_known(id), 1);
    write_list("");
    const Issued another = test::make_authority("another");
    test::write_certificates(folder / "ca.pem", {another.certificate.get()});
    expect_unknown("the certificate of the client peer is not issued by the CA of");
    std::filesystem::remove(folder / "ca.pem");
    assert_int_equal(softrdma_peer_is_known(id), -1);
    assert_int_equal(errno, ENOENT);
    write_files();
    assert_int_equal(softrdma_peer_is_known(id), 1);
}

void a_chain_is_not_deep(X509Ends &ends) {
    std::vector<Issued> chain;
    chain.reserve(8);
    const TlsHabits three = peer_below(3, chain);
    (void)let_in(ends.device, ends.other, three);
    std::vector<Issued> longer;
    longer.reserve(8);
    test::Peer peer;
    peer.connect(ends.device.port());
    TlsPeer client{peer, true, peer_below(4, longer)};
    assert_true(!client.shake() || client.is_refused());
    expect_line(ends.device, "the certificate of the client peer has more than 3 others up to its CA");
    assert_true(ends.device.next_event()->type != RDMA_CM_EVENT_CONNECT_REQUEST);
}

void a_chain_is_not_large(X509Ends &ends) {
    std::vector<Issued> chain;
    chain.reserve(64);
    expect_refused_client(ends, peer_below(60, chain),
                          "the certificates of the client have more than 16384 bytes");
}

// ---- the files ----

// The device looks at no file for a client that has not begun a handshake of TLS.
void a_client_without_tls_costs_no_file(X509Ends &ends) {
    std::filesystem::remove(folder / "list");
    ends.peer.connect(ends.device.port());
    ends.peer.send(test::pattern(3000, 5));
    (void)ends.peer.receive_rest();
    expect_line(ends.device, "the client does not speak TLS");
    assert_false(test::KeptLog::contains("No such file"));
    TlsPeer client{(ends.other.connect(ends.device.port()), ends.other), true, strict_peer()};
    assert_false(client.shake());
    expect_line(ends.device, "list: No such file or directory");
    assert_false(ends.device.has_event());
}

// The device uses what the files have now: a new certificate, another CA, a key that others may read.
void a_changed_file_counts_for_the_next_connection(X509Ends &ends) {
    (void)let_in(ends.device, ends.peer, strict_peer());
    write_own(issued({.name = "renewed", .others = "DNS:renewed,IP:127.0.0.1"}));
    test::Peer second;
    second.connect(ends.device.port());
    TlsPeer client{second, true, strict_peer()};
    assert_true(client.shake());
    assert_string_equal(client.name_of_peer().c_str(), "renewed");
    test::write_certificates(folder / "ca.pem", {stranger().certificate.get()});
    test::Peer third;
    third.connect(ends.device.port());
    TlsPeer refused{third, true, strict_peer()};
    assert_true(!refused.shake() || refused.is_refused());
    expect_line(ends.device, "the certificate of the client peer is not issued by the CA of");
    std::filesystem::permissions(folder / "own.key", std::filesystem::perms::group_read,
                                 std::filesystem::perm_options::add);
    test::Peer fourth;
    fourth.connect(ends.device.port());
    TlsPeer again{fourth, true, strict_peer()};
    assert_false(again.shake());
    expect_line(ends.device, "others than its owner may use");
}

// Each of these has a line of log that says which file is wrong, and the program's call fails.
void files_that_do_not_fit_are_refused(X509Ends &ends) {
    const auto expect = [&](const char *line) {
        test::KeptLog::begin();
        rdma_cm_id *const id = ends.device.connect(ends.peer.listen());
        assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EINVAL);
        expect_line(ends.device, line);
        ends.peer.close();
        write_files();
    };
    test::write_key(folder / "own.key", *issued({}).key);
    expect("own.key: expected the private key of ");
    std::ofstream{folder / "own.pem"} << "nothing\n";
    expect("own.pem: number 1 is no valid certificate in PEM");
    std::ofstream{folder / "ca.pem", std::ios::app}
        << "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    expect("ca.pem: number 2 is no valid certificate in PEM");
    std::ofstream{folder / "own.key"}
        << "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    expect("own.key: number 1 is no valid private key without a passphrase");
    write_own(issued({.others = "IP:127.0.0.1"}));
    expect("own.pem: expected a name of DNS in the certificate");
    write_list("crl ca.pem\n");
    expect("ca.pem: number 1 is no valid list of revoked certificates");
}

// A program that listens learns at once that nobody would get in.
void nobody_listens_without_certificates(X509Ends &) {
    test::write_key(folder / "own.key", *issued({}).key);
    rdma_cm_id *id = nullptr;
    assert_int_equal(softrdma_rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
    assert_int_equal(softrdma_rdma_listen(id, 1), -1);
    assert_int_equal(errno, EINVAL);
    write_files();
    assert_int_equal(softrdma_rdma_listen(id, 1), 0);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
}

}  // namespace

int main() {
    (void)std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a device that has closed
    folder = std::filesystem::absolute("x509");
    write_files();
    (void)setenv("RPMA_TLS", ("x509:" + (folder / "list").string()).c_str(), 1);
    const CMUnitTest tests[] = {
        fixture_test(a_client_of_the_ca_is_let_in),
        fixture_test(a_strict_client_takes_the_device),
        fixture_test(a_server_with_its_address_is_spoken_to),
        fixture_test(what_is_expired_is_refused),
        fixture_test(what_is_not_valid_yet_is_refused),
        fixture_test(what_another_ca_issued_is_refused),
        fixture_test(what_signs_itself_is_refused),
        fixture_test(what_is_for_another_purpose_is_refused),
        fixture_test(a_device_for_another_purpose_is_refused),
        fixture_test(who_shows_no_certificate_is_refused),
        fixture_test(who_speaks_an_old_version_is_refused),
        fixture_test(who_has_no_name_is_refused),
        fixture_test(a_server_at_another_address_is_refused),
        fixture_test(a_server_that_is_not_listed_is_refused),
        fixture_test(a_client_that_is_not_listed_is_refused),
        fixture_test(a_client_that_expects_another_address_is_noticed),
        fixture_test(peers_that_stop_are_given_up),
        fixture_test(who_is_revoked_is_refused),
        fixture_test(a_peer_is_known_while_its_certificate_is),
        fixture_test(a_chain_is_not_deep),
        fixture_test(a_chain_is_not_large),
        fixture_test(a_client_without_tls_costs_no_file),
        fixture_test(a_changed_file_counts_for_the_next_connection),
        fixture_test(files_that_do_not_fit_are_refused),
        fixture_test(nobody_listens_without_certificates),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
