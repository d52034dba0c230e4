// SPDX-License-Identifier: BSD-3-Clause
// soft/tls/tls_start: a device that has to use TLS, and peers that speak it, speak it wrongly, or do not
// speak it, each as client and as server. Every refusal has its errno and its line of log, and nothing
// reaches the program.
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "soft/cm/handshake.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/limits.hpp"
#include "soft/link/multipath_link.hpp"

// This comes last, because it asserts.
#include "tls_ends.hpp"

namespace {

using namespace soft::wire;
using test::Bytes;
using test::Ends;
using test::expect_line;
using test::expect_refused_client;
using test::expect_refused_server;
using test::TlsHabits;
using test::TlsPeer;

constexpr const char *key_of_one =
    "one:30313233343536373839616263646566\n";  // TlsHabits has it in characters
constexpr const char *key_of_two = "two:ffffffffffffffffffffffffffffffff\n";

std::filesystem::path keys;

void write_keys(std::string_view text, mode_t mode = 0600) {
    std::filesystem::remove(keys);
    const int fd = open(keys.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text.data(), text.size()), text.size());
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

// The device, which listens at once, knows two keys, and the log is kept.
struct TwoKeys {
    TwoKeys() { write_keys(std::string{key_of_one} + key_of_two); }
};
struct TlsEnds : TwoKeys, Ends {
    TlsEnds() { test::KeptLog::begin(); }
};

// ---- the right key ----

// Has a client that has the key ask, and returns its request.
rdma_cm_id *request_of(TlsPeer &client, test::Device &device) {
    assert_true(client.shake());
    client.send(test::encoded(test::from_a_soft_device));
    return device.take_request();
}

void a_client_with_the_key_is_let_in(TlsEnds &ends) {
    auto &[device, peer, other] = static_cast<Ends &>(ends);
    peer.connect(device.port());
    TlsPeer client{peer, true, {}};
    rdma_cm_id *const request = request_of(client, device);
    assert_string_equal(softrdma_identity(request), "one");
    device.accept(request, "welcome");
    assert_string_equal(softrdma_identity(request), "one");
    const Bytes reply = client.receive(mpa_header_bytes);
    assert_memory_equal(reply.data(), "MPA ID Rep Frame", 16);
}

// The bytes behind the request come with it, in the same record.
void bytes_in_one_record_all_arrive(TlsEnds &ends) {
    auto &[device, peer, other] = static_cast<Ends &>(ends);
    peer.connect(device.port());
    TlsPeer client{peer, true, {}};
    assert_true(client.shake());
    Segment segment{
        .opcode = Opcode::Write, .last = true, .stag = device.mr->rkey, .offset = device.address()};
    client.send(
        test::joined(test::encoded(test::from_a_soft_device), test::fpdu(segment, test::pattern(100, 9))));
    device.accept(device.take_request());
    device.work_until(
        [&device] { return std::memcmp(device.at(0), test::pattern(100, 9).data(), 100) == 0; });
}

void a_server_with_the_key_is_spoken_to(TlsEnds &ends) {
    auto &[device, peer, other] = static_cast<Ends &>(ends);
    rdma_cm_id *const id = device.connect(peer.listen(), "hello");
    peer.accept();
    TlsPeer server{peer, false, {}};
    assert_true(server.shake());
    const Bytes request = server.receive(mpa_header_bytes);
    assert_memory_equal(request.data(), "MPA ID Req Frame", 16);
    MpaFrame reply = test::from_a_soft_device;
    reply.role = MpaRole::Reply;
    assert_null(softrdma_identity(id));
    server.send(test::encoded(reply));
    (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    assert_string_equal(softrdma_identity(id), "one");
    // TLS is no reason to stay on TCP. The one that a line gives at info is the environment's.
    assert_true(!test::KeptLog::contains("stays on TCP") || test::KeptLog::contains("SOFTRDMA_SHM says so"));
}

// An identity that is taken out of the file gets no further connection.
void a_key_that_is_taken_away_lets_nobody_in(TlsEnds &ends) {
    a_client_with_the_key_is_let_in(ends);
    write_keys(key_of_two);
    test::Peer again;
    again.connect(ends.device.port());
    TlsPeer client{again, true, {}};
    assert_true(!client.shake() || client.is_refused());
    expect_line(ends.device, "the key identity one of the client is not known here");
    while (const auto event = ends.device.next_event()) {
        assert_true(event->type != RDMA_CM_EVENT_CONNECT_REQUEST);  // others are of the first connection
    }
}

// ---- the device is the server ----

void a_client_without_tls_is_refused(TlsEnds &ends) {
    ends.peer.connect(ends.device.port());
    ends.peer.send_frame(test::from_a_soft_device);
    assert_int_equal(ends.peer.receive_rest().size(), 0);
    expect_line(ends.device, "the client does not speak TLS");
    assert_false(ends.device.has_event());
}

void a_client_with_a_wrong_key_is_refused(TlsEnds &ends) {
    expect_refused_client(ends, {.key = "0123456789abcdeF"}, "the key of identity one is not the client's");
}

void a_client_with_an_unknown_identity_is_refused(TlsEnds &ends) {
    // Nothing that a peer sends makes a line of log that a person cannot read.
    expect_refused_client(ends, {.identity = "three\n\x1b"},
                          "the key identity three?? of the client is not known here");
}

void a_client_without_a_key_is_refused(TlsEnds &ends) {
    expect_refused_client(ends, {.no_key = true}, "the client names no key");
}

void a_client_of_an_old_version_is_refused(TlsEnds &ends) {
    expect_refused_client(ends, {.old_version = true}, "the client does not speak TLS 1.3");
}

void a_client_that_sends_garbage_is_refused(TlsEnds &ends) {
    ends.peer.connect(ends.device.port());
    ends.peer.send(test::pattern(3000, 5));
    (void)ends.peer.receive_rest();
    expect_line(ends.device, "the client does not speak TLS");
    assert_false(ends.device.has_event());
}

void a_client_that_leaves_is_noticed(TlsEnds &ends) {
    ends.peer.connect(ends.device.port());
    ends.peer.send(test::bytes({0x16, 3, 1}));
    ends.peer.close();
    expect_line(ends.device, "the client closed the connection during the handshake of TLS");
    assert_false(ends.device.has_event());
}

// Before a peer names a key, it costs no look at the file.
void a_client_that_names_no_key_costs_no_file(TlsEnds &ends) {
    std::filesystem::remove(keys);
    a_client_that_sends_garbage_is_refused(ends);
    test::Peer silent;
    silent.connect(ends.device.port());
    TlsPeer client{silent, true, {.no_key = true}};
    assert_true(!client.shake() || client.is_refused());
    expect_line(ends.device, "the client names no key");
    assert_false(test::KeptLog::contains("No such file"));
}

// ---- many identities ----

// Appends a number of so many bytes, or bytes with their number in front, as TLS writes them.
void add(Bytes &to, std::size_t number, unsigned size) {
    for (unsigned left = size; left != 0; --left) {
        to.push_back(static_cast<std::byte>(number >> (8 * (left - 1))));
    }
}
void add(Bytes &to, unsigned size, const Bytes &bytes) {
    add(to, bytes.size(), size);
    to.insert(to.end(), bytes.begin(), bytes.end());
}

void add_extension(Bytes &to, std::size_t type, const Bytes &content) {
    add(to, type, 2);
    add(to, 2, content);
}

// Returns a ClientHello (RFC 8446 section 4.1.2) that names the identities id0, id1 and so on.
Bytes hello_of(unsigned identities) {
    Bytes extensions;
    add_extension(extensions, 43, test::bytes({2, 3, 4}));        // supported_versions: TLS 1.3
    add_extension(extensions, 10, test::bytes({0, 2, 0, 0x1d}));  // supported_groups: X25519
    add_extension(extensions, 45, test::bytes({1, 1}));           // psk_key_exchange_modes: psk_dhe_ke
    Bytes share = test::bytes({0, 0x1d});
    add(share, 2, test::pattern(32, 3));
    Bytes shares;
    add(shares, 2, share);
    add_extension(extensions, 51, shares);
    Bytes names;
    Bytes binders;
    for (unsigned number = 0; number < identities; ++number) {
        const std::string name = "id" + std::to_string(number);
        const auto characters = std::as_bytes(std::span{name});
        add(names, 2, Bytes{characters.begin(), characters.end()});
        add(names, 0, 4);
        add(binders, 1, Bytes(32));
    }
    Bytes keys_of_client;
    add(keys_of_client, 2, names);
    add(keys_of_client, 2, binders);
    add_extension(extensions, 41, keys_of_client);  // pre_shared_key is the last
    Bytes body;
    add(body, 0x0303, 2);
    body.resize(body.size() + 32);
    add(body, 1, Bytes{});
    add(body, 2, test::bytes({0x13, 1}));
    add(body, 1, Bytes(1));
    add(body, 2, extensions);
    Bytes message = test::bytes({1});
    add(message, 3, body);
    Bytes records;
    for (std::span<const std::byte> rest{message}; !rest.empty();) {
        const auto part = rest.first(std::min<std::size_t>(rest.size(), 16'384));
        rest = rest.subspan(part.size());
        add(records, 0x160301, 3);
        add(records, 2, Bytes{part.begin(), part.end()});
    }
    return records;
}

// Each identity costs a search, so the device looks for the first few only.
void a_client_with_very_many_identities_is_refused(TlsEnds &ends) {
    ends.peer.connect(ends.device.port());
    ends.peer.send(hello_of(1000));
    expect_line(ends.device, "the key identity id7 of the client is not known here");
    assert_false(ends.device.has_event());
}

// ---- the end ----

// An end that anybody on the way can make is a failure, also behind the last whole message.
void an_end_without_the_end_of_tls_is_a_failure(TlsEnds &ends) {
    auto &[device, peer, other] = static_cast<Ends &>(ends);
    for (const bool ended : {true, false}) {
        test::Peer one;
        one.connect(device.port());
        TlsPeer client{one, true, {}};
        assert_true(client.shake());
        client.send(test::encoded(test::from_a_soft_device));
        rdma_cm_id *const id = device.take_request();
        device.accept(id);
        (void)client.receive(mpa_header_bytes);
        Segment segment{
            .opcode = Opcode::Write, .last = true, .stag = device.mr->rkey, .offset = device.address()};
        client.send(test::fpdu(segment, test::pattern(100, ended ? 9 : 10)));
        if (ended) {
            client.end();
        }
        one.finish();
        (void)device.wait_for(RDMA_CM_EVENT_DISCONNECTED, id);
        assert_memory_equal(device.at(0), test::pattern(100, ended ? 9 : 10).data(), 100);
        expect_line(device, ended ? "ends: closed by the peer" : "ends: Connection reset by peer");
        device.close(id);
    }
}

// ---- datagrams ----

void an_id_for_datagrams_is_refused(TlsEnds &ends) {
    for (const rdma_port_space space : {RDMA_PS_UDP, RDMA_PS_IPOIB}) {
        rdma_cm_id *id = nullptr;
        assert_int_equal(softrdma_rdma_create_id(nullptr, &id, nullptr, space), -1);
        assert_int_equal(errno, EOPNOTSUPP);
    }
    expect_line(ends.device, "RPMA_TLS asks for TLS, which datagrams do not have");
}

// ---- the device is the client ----

void a_server_without_tls_is_refused(TlsEnds &ends) {
    rdma_cm_id *const id = ends.device.connect(ends.peer.listen());
    ends.peer.accept();
    MpaFrame reply = test::from_a_soft_device;
    reply.role = MpaRole::Reply;
    ends.peer.send_frame(reply);
    assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EPROTO);
    expect_line(ends.device, "the server does not speak TLS");
}

void a_server_that_leaves_is_noticed(TlsEnds &ends) {
    rdma_cm_id *const id = ends.device.connect(ends.peer.listen());
    ends.peer.accept();
    ends.peer.finish();
    assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_REJECTED, id).status, -ECONNRESET);
    expect_line(ends.device, "the server closed the connection during the handshake of TLS");
}

void a_server_with_a_wrong_key_is_refused(TlsEnds &ends) {
    expect_refused_server(ends, {.key = "0123456789abcdeF"}, EACCES,
                          "the key of identity one is not the server's");
}

void a_server_without_the_identity_is_refused(TlsEnds &ends) {
    expect_refused_server(ends, {.identity = "three"}, EACCES,
                          "the server does not know the key identity one");
}

void a_server_with_a_certificate_is_refused(TlsEnds &ends) {
    expect_refused_server(ends, {.no_key = true}, EACCES,
                          "the server uses a certificate, and not the key of identity one");
}

void a_server_of_an_old_version_is_refused(TlsEnds &ends) {
    expect_refused_server(ends, {.old_version = true}, EPROTO, "the server does not speak TLS 1.3");
}

void a_server_that_sends_garbage_is_refused(TlsEnds &ends) {
    rdma_cm_id *const id = ends.device.connect(ends.peer.listen());
    ends.peer.accept();
    ends.peer.send(test::pattern(3000, 5));
    assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EPROTO);
    expect_line(ends.device, "the server does not speak TLS");
}

// ---- time ----

void peers_that_stop_are_given_up(TlsEnds &ends) {
    test::expect_given_up_at_each_message(ends, {}, {});
}

// ---- the file ----

void a_file_that_others_may_read_is_refused(TlsEnds &ends) {
    for (const mode_t mode : {0640U, 0604U, 0620U}) {
        write_keys(key_of_one, mode);
        test::Peer peer;
        peer.connect(ends.device.port());
        TlsPeer client{peer, true, {}};
        assert_false(client.shake());
    }
    expect_line(ends.device, "others than its owner may use");
    rdma_cm_id *const id = ends.device.connect(ends.peer.listen());
    assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EACCES);
    assert_false(ends.device.has_event());
}

// The process has no descriptor left when the client names its key.
void without_descriptors_the_log_names_the_file(TlsEnds &ends) {
    auto &[device, peer, other] = static_cast<Ends &>(ends);
    const Bytes hello = hello_of(1);
    peer.connect(device.port());
    peer.send(std::span{hello}.first(3));
    device.work_until_read(peer);
    rlimit most{};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &most), 0);
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(close(next), 0);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = most.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    peer.send(std::span{hello}.subspan(3));
    expect_line(device, "the files of TLS cannot be used: Too many open files (" + keys.string() + ")");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &most), 0);
    assert_false(device.has_event());
}

// The client learns that the cause is on the server's side.
void a_server_that_cannot_read_its_keys_says_so_little(TlsEnds &ends) {
    rdma_cm_id *const id = ends.device.connect(ends.peer.listen());
    ends.peer.accept();
    (void)ends.peer.receive(5);
    ends.peer.send(test::bytes({21, 3, 3, 0, 2, 2, 80}));  // a fatal alert: internal_error
    assert_int_equal(ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id).status, -EPROTO);
    expect_line(ends.device,
                "the server cannot go on with TLS, for instance because it cannot read its keys");
}

void a_peer_is_known_while_the_file_has_its_key(TlsEnds &ends) {
    auto &[device, peer, other] = static_cast<Ends &>(ends);
    peer.connect(device.port());
    TlsPeer client{peer, true, {}};
    rdma_cm_id *const request = request_of(client, device);
    const auto expect_failure = [](const rdma_cm_id *id, int error) {
        assert_int_equal(softrdma_peer_is_known(id), -1);
        assert_int_equal(errno, error);
    };
    assert_int_equal(softrdma_peer_is_known(request), 1);
    device.accept(request);
    assert_int_equal(softrdma_peer_is_known(request), 1);
    expect_failure(nullptr, EINVAL);
    write_keys(key_of_two);
    assert_int_equal(softrdma_peer_is_known(request), 0);
    expect_line(device, "has no key of identity one any more");
    // Without a peer, a program asks about the file alone.
    const auto expect_wrong_file = [&](int error) {
        expect_failure(request, error);
        assert_int_equal(softrdma_check_settings(), -1);
        assert_int_equal(errno, error);
    };
    assert_int_equal(softrdma_check_settings(), 0);
    write_keys("nonsense");
    expect_wrong_file(EINVAL);
    write_keys(key_of_one, 0640);
    expect_wrong_file(EACCES);
    std::filesystem::remove(keys);
    expect_wrong_file(ENOENT);
    write_keys(key_of_one);
    assert_int_equal(softrdma_check_settings(), 0);
    assert_int_equal(softrdma_peer_is_known(request), 1);
    rdma_cm_id *id = nullptr;
    assert_int_equal(softrdma_rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
    expect_failure(id, EINVAL);
    assert_int_equal(softrdma_rdma_destroy_id(id), 0);
}

// Two clients with one identity and a third with another are asked about at once.
void several_peers_are_known_by_one_reading(TlsEnds &ends) {
    constexpr std::size_t number = 3;
    std::array<test::Peer, number> peers;
    std::array<std::optional<TlsPeer>, number> clients;
    std::array<const rdma_cm_id *, number> ids{};
    for (std::size_t place = 0; place < number; ++place) {
        peers[place].connect(ends.device.port());
        clients[place].emplace(
            peers[place], true,
            place == 2 ? TlsHabits{.identity = "two", .key = std::string(16, '\xff')} : TlsHabits{});
        ids[place] = request_of(*clients[place], ends.device);
    }
    write_keys(key_of_two);
    const base::Fd readings{inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
    assert_true(readings.get() >= 0);
    assert_true(inotify_add_watch(readings.get(), keys.c_str(), IN_OPEN | IN_CLOSE_NOWRITE) >= 0);
    std::array<bool, number> known{true, true, false};
    assert_int_equal(softrdma_peers_are_known(ids.data(), number, known.data()), 0);
    assert_true(!known[0] && !known[1] && known[2]);
    std::array<inotify_event, 2 * number> events{};
    assert_int_equal(read(readings.get(), events.data(), sizeof(events)), 2 * sizeof(inotify_event));
    write_keys("nonsense");
    assert_int_equal(softrdma_peers_are_known(ids.data(), number, known.data()), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(softrdma_peers_are_known(ids.data(), 0, nullptr), 0);
}

void without_a_file_nobody_connects(TlsEnds &ends) {
    std::filesystem::remove(keys);
    ends.peer.connect(ends.device.port());
    TlsPeer client{ends.peer, true, {}};
    assert_false(client.shake());
    expect_line(ends.device, "No such file or directory: no connection is made");
    assert_false(ends.device.has_event());
}

// ---- many start-ups at once ----

// Keeps the start-ups as long as they last.
class Asked final : public soft::HandshakeOwner {
public:
    void handshake_done(soft::Handshake &, const MpaFrame &) override { ++over; }
    void handshake_failed(soft::Handshake &, int) override { ++over; }
    int over = 0;
};

// Makes a connection to the peer, and returns this end of it.
base::Fd accepted_from(test::Peer &peer) {
    const base::Fd listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address = test::loopback(0);
    socklen_t size = sizeof(address);
    assert_int_equal(bind(listener.get(), reinterpret_cast<sockaddr *>(&address), size), 0);
    assert_int_equal(listen(listener.get(), 1), 0);
    assert_int_equal(getsockname(listener.get(), reinterpret_cast<sockaddr *>(&address), &size), 0);
    peer.connect(ntohs(address.sin_port));
    base::Fd near{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    assert_true(static_cast<bool>(near));
    return near;
}

// One has four in all. The other start-ups have theirs in later turns, and the time for which they wait is
// not their peers'.
void an_origin_has_one_step_in_a_turn(TlsEnds &) {
    struct Client {
        std::uint32_t host;
        bool has_turn;
    };
    constexpr std::array<Client, 6> hosts{
        {{1, true}, {1, false}, {2, true}, {3, true}, {4, true}, {5, false}}};
    const auto group = soft::Group::create().value();
    Asked asked;
    std::array<test::Peer, hosts.size()> peers;
    std::vector<std::unique_ptr<TlsPeer>> clients;
    std::vector<std::unique_ptr<soft::Handshake>> handshakes;
    {
        const base::Lock lock{group->mutex()};  // no other thread serves the group
        for (std::size_t i = 0; i < hosts.size(); ++i) {
            base::Fd near = accepted_from(peers.at(i));
            clients.push_back(std::make_unique<TlsPeer>(peers.at(i), true, TlsHabits{}));
            peers.at(i).send(clients.back()->flight());
            soft::tcp::Address from{};
            auto &address = reinterpret_cast<sockaddr_in &>(from);
            address.sin_family = AF_INET;
            address.sin_addr.s_addr = htonl(hosts.at(i).host);
            handshakes.push_back(std::make_unique<soft::Handshake>(
                asked, group, soft::link_on(std::move(near), soft::limits::silence_timeout), from,
                soft::tls_of_new_ids(), nullptr, base::Milliseconds{0}));
            handshakes.back()->progress();
            for (int times = 0; !hosts.at(i).has_turn && times < 2; ++times) {
                handshakes.back()->expire();
            }
            assert_int_equal(peers.at(i).has_data(), hosts.at(i).has_turn);
        }
        assert_int_equal(asked.over, 0);
    }
    for (const auto &client : clients) {
        assert_true(client->shake());
    }
    const base::Lock lock{group->mutex()};
    assert_int_equal(asked.over, 0);
    handshakes.clear();
}

}  // namespace

int main() {
    (void)std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a device that has closed
    keys = std::filesystem::absolute("keys");
    write_keys(key_of_one);
    (void)setenv("RPMA_TLS", ("psk:" + keys.string()).c_str(), 1);
    const CMUnitTest tests[] = {
        fixture_test(a_client_with_the_key_is_let_in),
        fixture_test(bytes_in_one_record_all_arrive),
        fixture_test(a_server_with_the_key_is_spoken_to),
        fixture_test(a_key_that_is_taken_away_lets_nobody_in),
        fixture_test(a_client_without_tls_is_refused),
        fixture_test(a_client_with_a_wrong_key_is_refused),
        fixture_test(a_client_with_an_unknown_identity_is_refused),
        fixture_test(a_client_without_a_key_is_refused),
        fixture_test(a_client_of_an_old_version_is_refused),
        fixture_test(a_client_that_sends_garbage_is_refused),
        fixture_test(a_client_that_leaves_is_noticed),
        fixture_test(a_client_that_names_no_key_costs_no_file),
        fixture_test(a_client_with_very_many_identities_is_refused),
        fixture_test(an_end_without_the_end_of_tls_is_a_failure),
        fixture_test(an_id_for_datagrams_is_refused),
        fixture_test(a_server_without_tls_is_refused),
        fixture_test(a_server_that_leaves_is_noticed),
        fixture_test(a_server_with_a_wrong_key_is_refused),
        fixture_test(a_server_without_the_identity_is_refused),
        fixture_test(a_server_with_a_certificate_is_refused),
        fixture_test(a_server_of_an_old_version_is_refused),
        fixture_test(a_server_that_sends_garbage_is_refused),
        fixture_test(peers_that_stop_are_given_up),
        fixture_test(a_file_that_others_may_read_is_refused),
        fixture_test(without_a_file_nobody_connects),
        fixture_test(without_descriptors_the_log_names_the_file),
        fixture_test(a_server_that_cannot_read_its_keys_says_so_little),
        fixture_test(a_peer_is_known_while_the_file_has_its_key),
        fixture_test(several_peers_are_known_by_one_reading),
        fixture_test(an_origin_has_one_step_in_a_turn),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
