// SPDX-License-Identifier: BSD-3-Clause
// A peer of the rpma command that behaves badly: `test_peer MODE [ADDRESS PORT]`. Ends with 0 when the other
// side reacted as it should.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "../loopback.hpp"
#include "base/fd.hpp"
#include "cli/checksum.hpp"
#include "cli/peer.hpp"
#include "cli/perf/tcp_answers.hpp"
#include "cli/protocol/blocks.hpp"
#include "cli/protocol/protocol.hpp"
#include "soft/wire/ddp.hpp"
#include "soft/wire/mpa.hpp"

namespace {

namespace wire = soft::wire;

[[noreturn]] void die(const char *what) {
    std::fprintf(stderr, "test_peer: %s\n", what);
    std::exit(1);
}

void check(int result, const char *what) {
    if (result != 0) {
        die(what);
    }
}

void wait_readable(int fd, const char *what) {
    pollfd waiting{fd, POLLIN, 0};
    if (poll(&waiting, 1, 30'000) != 1) {
        die(what);
    }
}

// A client of librpma. Members are destroyed in the reverse order: the connection before the objects that it
// uses.
struct Client {
    std::array<std::byte, 4096> memory{};
    cli::Peer peer;
    cli::LocalRegion local;
    cli::RemoteRegion remote;
    cli::Connection connection;

    // Connects with this private data; returns the first event.
    rpma_conn_event connect(const char *address, const char *port, std::span<std::byte> data) {
        ibv_context *context = nullptr;
        check(rpma_utils_get_ibv_context(address, RPMA_UTIL_IBV_CONTEXT_REMOTE, &context), "context");
        rpma_peer *new_peer = nullptr;
        check(rpma_peer_new(context, &new_peer), "peer");
        peer.reset(new_peer);
        rpma_mr_local *region = nullptr;
        check(rpma_mr_reg(new_peer, memory.data(), memory.size(),
                          RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &region),
              "region");
        local.reset(region);
        rpma_conn_req *request = nullptr;
        check(rpma_conn_req_new(new_peer, address, port, nullptr, &request), "request");
        const rpma_conn_private_data private_data{data.data(), static_cast<std::uint8_t>(data.size())};
        rpma_conn *connected = nullptr;
        check(rpma_conn_req_connect(&request, data.empty() ? nullptr : &private_data, &connected), "connect");
        connection.reset(connected);
        return next_event("no answer to the request");
    }

    rpma_conn_event next_event(const char *otherwise) const {
        int fd = -1;
        check(rpma_conn_get_event_fd(connection.get(), &fd), "event fd");
        wait_readable(fd, otherwise);
        rpma_conn_event event = RPMA_CONN_UNDEFINED;
        check(rpma_conn_next_event(connection.get(), &event), "event");
        return event;
    }

    // Waits for an event, and returns whether it is the end of the connection.
    bool is_ended(const char *otherwise) const {
        const rpma_conn_event event = next_event(otherwise);
        return event == RPMA_CONN_CLOSED || event == RPMA_CONN_LOST;
    }

    // Returns the offer of the server, or the reason why it is none of our servers.
    cli::Outcome<cli::Offer> offer() const {
        rpma_conn_private_data data{};
        check(rpma_conn_get_private_data(connection.get(), &data), "private data");
        return cli::decode_offer({static_cast<const std::byte *>(data.ptr), data.len});
    }

    cli::Offer connect_well(const char *address, const char *port, cli::Mode mode,
                            std::string_view wanted = cli::default_name) {
        const bool has_name = mode == cli::Mode::Push || mode == cli::Mode::Pull;
        const std::string name{has_name ? wanted : ""};
        auto hello = cli::encode_hello({.version = cli::protocol_version, .mode = mode, .name = name});
        if (connect(address, port, hello) != RPMA_CONN_ESTABLISHED) {
            die("not connected");
        }
        const auto said = offer();
        if (!said) {
            die(said.error().text.c_str());
        }
        return *said;
    }

    // Returns the answer to what says_that_it_is_there() has asked.
    cli::Answer last_answer() const {
        return cli::decode_answer(std::span{memory}.subspan(3072, sizeof(cli::AnswerBytes))).value();
    }

    void take_region(const std::array<std::byte, 21> &descriptor) {
        rpma_mr_remote *region = nullptr;
        check(rpma_mr_remote_from_descriptor(descriptor.data(), descriptor.size(), &region), "descriptor");
        remote.reset(region);
    }

    // Returns the next completion of this connection.
    ibv_wc completion() const {
        rpma_cq *completions = nullptr;
        int fd = -1;
        check(rpma_conn_get_cq(connection.get(), &completions), "completion queue");
        check(rpma_cq_get_fd(completions, &fd), "completion queue");
        ibv_wc taken{};
        while (rpma_cq_get_wc(completions, 1, &taken, nullptr) != 0) {
            wait_readable(fd, "no completion");
            check(rpma_cq_wait(completions), "completion");
        }
        return taken;
    }

    // Writes the beginning of the memory into the server's, and asks.
    cli::Answer write_and_ask(std::size_t length, const cli::Request &request) {
        constexpr std::size_t asked = 2048;
        constexpr std::size_t answered = 3072;
        std::ranges::copy(cli::encode_request(request), memory.begin() + asked);
        check(rpma_recv(connection.get(), local.get(), answered, sizeof(cli::AnswerBytes), nullptr),
              "receive");
        check(rpma_write(connection.get(), remote.get(), 0, local.get(), 0, length,
                         RPMA_F_COMPLETION_ON_ERROR, nullptr),
              "write");
        check(rpma_send(connection.get(), local.get(), asked, sizeof(cli::RequestBytes),
                        RPMA_F_COMPLETION_ON_ERROR, nullptr),
              "send");
        if (completion().status != IBV_WC_SUCCESS) {
            die("no answer");
        }
        const auto answer = cli::decode_answer(std::span{memory}.subspan(answered, sizeof(cli::AnswerBytes)));
        if (!answer) {
            die(answer.error().text.c_str());
        }
        return *answer;
    }

    // Returns false when the connection has ended.
    bool says_that_it_is_there(const cli::Request &request = {.ask = cli::Ask::Alive}) {
        constexpr std::size_t asked = 2048;
        constexpr std::size_t answered = 3072;
        std::ranges::copy(cli::encode_request(request), memory.begin() + asked);
        check(rpma_recv(connection.get(), local.get(), answered, sizeof(cli::AnswerBytes), nullptr),
              "receive");
        check(rpma_send(connection.get(), local.get(), asked, sizeof(cli::RequestBytes),
                        RPMA_F_COMPLETION_ALWAYS, nullptr),
              "send");
        // The message, and its answer.
        return completion().status == IBV_WC_SUCCESS && completion().status == IBV_WC_SUCCESS;
    }

    // The target refuses a write there, which ends the connection.
    void expect_refused(std::size_t offset) const {
        check(rpma_write(connection.get(), remote.get(), offset, local.get(), 0, memory.size(),
                         RPMA_F_COMPLETION_ALWAYS, nullptr),
              "write");
        if (!is_ended("the server took a write that it should refuse")) {
            die("not disconnected");
        }
    }
};

int bad_hello(const char *address, const char *port, std::span<std::byte> data) {
    Client client;
    return client.connect(address, port, data) == RPMA_CONN_REJECTED ? 0 : 1;
}

// Sends so many that the server counts the last ones instead of printing them.
int bad_hellos(const char *address, const char *port) {
    std::array<std::byte, 16> data{};
    int failed = 0;
    for (int i = 0; i < 24; ++i) {
        failed |= bad_hello(address, port, data);
    }
    return failed;
}

int other_version(const char *address, const char *port) {
    Client client;
    auto hello = cli::encode_hello({.version = cli::protocol_version + 1, .mode = cli::Mode::Push});
    if (client.connect(address, port, hello) != RPMA_CONN_ESTABLISHED) {
        die("rejected without a reason");
    }
    const auto offer = client.offer();
    return !offer && offer.error().text.contains("version") ? 0 : 1;
}

int bad_key(const char *address, const char *port) {
    Client client;
    auto descriptor = client.connect_well(address, port, cli::Mode::Push).memory_region;
    descriptor[17] ^= std::byte{0x55};  // in the rkey
    client.take_region(descriptor);
    client.expect_refused(0);
    return 0;
}

int out_of_bounds(const char *address, const char *port) {
    Client client;
    client.take_region(client.connect_well(address, port, cli::Mode::Push).memory_region);
    std::size_t size = 0;
    check(rpma_mr_remote_get_size(client.remote.get(), &size), "size");
    client.expect_refused(size - 1);
    return 0;
}

int write_as_puller(const char *address, const char *port) {
    Client client;
    client.take_region(client.connect_well(address, port, cli::Mode::Pull).memory_region);
    client.expect_refused(0);
    return 0;
}

// A puller uses a pusher's key.
int others_key(const char *address, const char *port) {
    Client pusher;
    const auto offer = pusher.connect_well(address, port, cli::Mode::Push);
    Client puller;
    puller.connect_well(address, port, cli::Mode::Pull);
    puller.take_region(offer.memory_region);
    puller.expect_refused(0);
    return 0;
}

// The pusher of one name uses the key of another's.
int others_key_as_pusher(const char *address, const char *port) {
    Client pusher;
    const auto offer = pusher.connect_well(address, port, cli::Mode::Push);
    Client other;
    other.connect_well(address, port, cli::Mode::Push, "other");
    other.take_region(offer.memory_region);
    other.expect_refused(0);
    return 0;
}

// Asks for room that is none, has more stored than its window has, or asks as a pull: the server ends the
// connection. It commits no content of which bytes are missing.
int bad_room(const char *address, const char *port) {
    const auto expect_end = [&](cli::Mode mode, const cli::Request &request) {
        Client client;
        client.connect_well(address, port, mode);
        (void)client.says_that_it_is_there(request);
        if (!client.is_ended("the server took a bad request for room")) {
            die("not disconnected");
        }
    };
    for (const cli::Request &request :
         {cli::Request{.ask = cli::Ask::Reserve, .length = UINT64_MAX},
          cli::Request{.ask = cli::Ask::Reserve, .offset = cli::largest_capacity, .length = 1},
          cli::Request{.ask = cli::Ask::Store, .length = cli::window_size + 1}}) {
        expect_end(cli::Mode::Push, request);
    }
    expect_end(cli::Mode::Pull, {.ask = cli::Ask::Reserve, .length = 4096});
    for (const cli::Request &request : {cli::Request{.ask = cli::Ask::Store, .offset = 4096, .length = 1},
                                        cli::Request{.ask = cli::Ask::Commit, .length = 1}}) {
        Client client;
        client.connect_well(address, port, cli::Mode::Push);
        if (!client.says_that_it_is_there(request) ||
            client.last_answer().verdict != cli::Verdict::Different) {
            die("the server took bytes that are missing for others");
        }
    }
    return 0;
}

// Claims that blocks are those of the newest content: without having asked for them, within a block, behind
// the content's end, backwards, and of blocks that differ. Nothing is committed.
int bad_blocks(const char *address, const char *port) {
    constexpr std::size_t block = cli::smallest_block;
    const auto tries = [&](bool looks, std::uint64_t offset, std::uint64_t length) {
        Client client;
        const auto window = client.connect_well(address, port, cli::Mode::Push).memory_region;
        if (looks && (!client.says_that_it_is_there({.ask = cli::Ask::Look, .length = length}) ||
                      client.last_answer().sequence == 0)) {
            die("no checksums of blocks");
        }
        client.take_region(window);
        const auto reserved = client.write_and_ask(1, {.ask = cli::Ask::Reserve, .length = length});
        const auto stored = client.write_and_ask(1, {.ask = cli::Ask::Store, .offset = offset, .length = 1});
        const auto committed =
            client.write_and_ask(1, {.ask = cli::Ask::Commit, .length = length, .checksum = 1});
        if (reserved.verdict != cli::Verdict::Done || committed.verdict != cli::Verdict::Different) {
            die("bytes that nobody sent are taken");
        }
        return stored.verdict;
    };
    const bool refused = tries(false, block, 2 * block) == cli::Verdict::Different &&
                         tries(true, block / 2, 2 * block) == cli::Verdict::Different &&
                         tries(true, 1000 * block, 1001 * block) == cli::Verdict::Different;
    const bool taken = tries(true, block, 2 * block) == cli::Verdict::Done;
    Client again;
    again.connect_well(address, port, cli::Mode::Push);
    (void)again.says_that_it_is_there({.ask = cli::Ask::Look, .length = block});
    (void)again.says_that_it_is_there({.ask = cli::Ask::Look, .length = block});
    return refused && taken && again.is_ended("the server made the checksums twice") ? 0 : 1;
}

// Commits bytes that did not arrive.
int wrong_checksum(const char *address, const char *port) {
    Client client;
    client.take_region(client.connect_well(address, port, cli::Mode::Push).memory_region);
    (void)client.write_and_ask(1000, {.ask = cli::Ask::Store, .length = 1000});
    const auto answer = client.write_and_ask(1000, {.ask = cli::Ask::Commit, .length = 1000, .checksum = 1});
    return answer.verdict == cli::Verdict::Different ? 0 : 1;
}

// Commits although the server said that its bytes are not durable.
int commit_after_failure(const char *address, const char *port) {
    Client client;
    client.take_region(client.connect_well(address, port, cli::Mode::Push).memory_region);
    const auto bytes = std::span{client.memory}.first(1000);
    const auto stored = client.write_and_ask(1000, {.ask = cli::Ask::Store, .length = bytes.size()});
    const cli::Request commit{
        .ask = cli::Ask::Commit, .length = bytes.size(), .checksum = cli::crc32c(bytes)};
    return (stored.verdict == cli::Verdict::NotDurable || stored.verdict == cli::Verdict::NoRoom) &&
                   client.write_and_ask(1000, commit).verdict == cli::Verdict::NotDurable
               ? 0
               : 1;
}

// Commits as a pusher that was refused after the server had posted its receives.
int refused_commit(const char *address, const char *port) {
    Client client;
    if (client.connect_well(address, port, cli::Mode::Push).status != cli::Status::Failed) {
        die("not refused");
    }
    std::ranges::copy(cli::encode_request({.ask = cli::Ask::Commit}), client.memory.begin());
    check(rpma_send(client.connection.get(), client.local.get(), 0, sizeof(cli::RequestBytes),
                    RPMA_F_COMPLETION_ON_ERROR, nullptr),
          "send");
    return client.is_ended("the server keeps a pusher that it refused") ? 0 : 1;
}

// Changes the window after the server has stored the bytes, and after the commit, as its pusher.
int write_after_commit(const char *address, const char *port) {
    Client client;
    client.take_region(client.connect_well(address, port, cli::Mode::Push).memory_region);
    const auto bytes = std::span{client.memory}.first(1000);
    std::ranges::fill(bytes, std::byte{'a'});
    const cli::Request commit{.ask = cli::Ask::Commit, .length = 1000, .checksum = cli::crc32c(bytes)};
    if (client.write_and_ask(1000, {.ask = cli::Ask::Store, .length = 1000}).verdict != cli::Verdict::Done) {
        die("not stored");
    }
    std::ranges::fill(bytes, std::byte{'b'});
    if (client.write_and_ask(1000, commit).verdict != cli::Verdict::Done) {
        die("not committed");
    }
    check(rpma_write(client.connection.get(), client.remote.get(), 0, client.local.get(), 0, bytes.size(),
                     RPMA_F_COMPLETION_ALWAYS, nullptr),
          "write");
    return client.completion().status == IBV_WC_SUCCESS ? 0 : 1;
}

// Writes and stores a content, but does not commit it.
int no_commit(const char *address, const char *port) {
    Client client;
    client.take_region(client.connect_well(address, port, cli::Mode::Push).memory_region);
    const auto answer = client.write_and_ask(1000, {.ask = cli::Ask::Store, .length = 1000});
    return answer.verdict == cli::Verdict::Done ? 0 : 1;
}

// Says that it is there behind requests to store, of which the last cannot be done: the answers come in
// order.
int ask_in_order(const char *address, const char *port) {
    constexpr std::size_t answers = 2048;
    constexpr std::size_t asks = 8;  // librpma's usual queues have room for them
    Client client;
    client.connect_well(address, port, cli::Mode::Push);
    const auto at = [](std::size_t place) { return answers + place * sizeof(cli::AnswerBytes); };
    for (std::size_t place = 0; place < asks; ++place) {
        check(rpma_recv(client.connection.get(), client.local.get(), at(place), sizeof(cli::AnswerBytes),
                        nullptr),
              "receive");
    }
    for (std::size_t place = 0; place < asks; ++place) {
        const std::size_t asked = place * sizeof(cli::RequestBytes);
        const bool is_last = place == asks - 1;
        const bool is_refused = place == asks - 2;
        std::ranges::copy(
            cli::encode_request({.ask = is_last ? cli::Ask::Alive : cli::Ask::Store,
                                 .offset = is_last ? 0 : (place + (is_refused ? 1 : 0)) << 20,
                                 .length = is_last ? std::uint64_t{0} : std::uint64_t{1} << 20}),
            client.memory.begin() + static_cast<std::ptrdiff_t>(asked));
        check(rpma_send(client.connection.get(), client.local.get(), asked, sizeof(cli::RequestBytes),
                        RPMA_F_COMPLETION_ON_ERROR, nullptr),
              "send");
    }
    for (std::size_t place = 0; place < asks; ++place) {
        if (client.completion().status != IBV_WC_SUCCESS) {
            die("no answer");
        }
        const auto answer =
            cli::decode_answer(std::span{client.memory}.subspan(at(place), sizeof(cli::AnswerBytes)));
        const bool is_refused = place == asks - 2;
        if (!answer || answer->verdict != (is_refused ? cli::Verdict::Different : cli::Verdict::Done)) {
            die("an answer came before the one to an earlier request");
        }
    }
    return 0;
}

// Requests a range that no content has, or sends no request: the server ends the connection.
int bad_request(const char *address, const char *port) {
    for (const cli::Request &request :
         {cli::Request{.ask = cli::Ask::Store, .offset = 1, .length = UINT64_MAX},
          cli::Request{.ask = cli::Ask::Commit, .length = UINT64_MAX}, cli::Request{.ask = cli::Ask{99}}}) {
        Client client;
        client.connect_well(address, port, cli::Mode::Push);
        std::ranges::copy(cli::encode_request(request), client.memory.begin());
        check(rpma_send(client.connection.get(), client.local.get(), 0, sizeof(cli::RequestBytes),
                        RPMA_F_COMPLETION_ON_ERROR, nullptr),
              "send");
        if (!client.is_ended("the server took a bad request")) {
            die("not disconnected");
        }
    }
    return 0;
}

// Gives its content a second tag, or one after its first byte: the server ends the connection.
int late_tag(const char *address, const char *port) {
    const auto tag = [](std::uint64_t number) {
        return cli::Request{.ask = cli::Ask::Tag, .length = 1, .label = cli::tag_text({0, number, 1})};
    };
    for (const cli::Request &first : {tag(1), cli::Request{.ask = cli::Ask::Store, .length = 1}}) {
        Client client;
        client.connect_well(address, port, cli::Mode::Push);
        if (!client.says_that_it_is_there(first) || client.last_answer().verdict != cli::Verdict::Done) {
            die("the server refuses a push");
        }
        (void)client.says_that_it_is_there(tag(2));
        if (!client.is_ended("the server took a tag that comes too late")) {
            die("not disconnected");
        }
    }
    return 0;
}

// Sends a request that nobody needs, and gets its answer.
void ask_once(const char *address, const char *port, const cli::Request &request) {
    Client client;
    client.connect_well(address, port, cli::Mode::Push);
    if (!client.says_that_it_is_there(request)) {
        die("no answer");
    }
}

// Has no bytes stored.
int store_nothing(const char *address, const char *port) {
    ask_once(address, port, {.ask = cli::Ask::Store});
    return 0;
}

// Has a content committed again that is not there.
int roll_back_to_nothing(const char *address, const char *port) {
    ask_once(address, port, {.ask = cli::Ask::Rollback, .offset = 1'000'000});
    return 0;
}

// The server admits the client, which says so.
void be_admitted(Client &client, const char *address, const char *port, cli::Mode mode, const char *word) {
    if (client.connect_well(address, port, mode).status != cli::Status::Ok) {
        die("not admitted");
    }
    std::puts(word);
    std::fflush(stdout);
}

int hold(const char *address, const char *port) {
    Client client;
    be_admitted(client, address, port, cli::Mode::Push, "holding");
    pause();
    return 1;
}

// Asks again and again, until the server ends the connection. The offsets are so far apart.
int keep_asking(const char *address, const char *port, cli::Ask ask, std::uint64_t distance = 1) {
    Client client;
    const auto offer = client.connect_well(address, port, cli::Mode::Push);
    client.take_region(offer.memory_region);
    std::puts("holding");
    std::fflush(stdout);
    int fd = -1;
    check(rpma_conn_get_event_fd(client.connection.get(), &fd), "event fd");
    constexpr std::uint64_t most = 600;
    pollfd ended{fd, POLLIN, 0};
    for (std::uint64_t said = 0; said < most; ++said) {
        const cli::Request request =
            ask == cli::Ask::Alive ? cli::Request{ask, 0, said} : cli::Request{ask, said * distance, 1};
        if (poll(&ended, 1, 100) == 1 || !client.says_that_it_is_there(request)) {
            return 0;
        }
    }
    die("the server keeps a push that makes no progress");
}

// Claims to have read more and more of its source, and pushes nothing.
int talk(const char *address, const char *port) {
    return keep_asking(address, port, cli::Ask::Alive);
}

// Has byte after byte stored, so slowly that it would never end.
int trickle(const char *address, const char *port) {
    return keep_asking(address, port, cli::Ask::Store);
}

// Asks to store bytes further and further behind those that the server has, which it refuses.
int claim(const char *address, const char *port) {
    return keep_asking(address, port, cli::Ask::Store, std::uint64_t{128} << 10);
}

// Reserves much room, and fills it so slowly that it would take long, until the server ends the connection.
int hoard(const char *address, const char *port) {
    Client client;
    const std::string name = "hoard" + std::to_string(getpid());
    const auto offer = client.connect_well(address, port, cli::Mode::Push, name);
    client.take_region(offer.memory_region);
    constexpr std::uint64_t room = std::uint64_t{60} << 20;
    if (!client.says_that_it_is_there({.ask = cli::Ask::Reserve, .length = room}) ||
        client.last_answer().verdict != cli::Verdict::Done) {
        die("no room");
    }
    std::puts("hoarding");
    std::fflush(stdout);
    int fd = -1;
    check(rpma_conn_get_event_fd(client.connection.get(), &fd), "event fd");
    constexpr std::uint64_t portion = std::uint64_t{8} << 10;
    constexpr std::uint64_t most = 600;
    pollfd ended{fd, POLLIN, 0};
    for (std::uint64_t stored = 0; stored < most * portion; stored += portion) {
        if (poll(&ended, 1, 100) == 1 ||
            !client.says_that_it_is_there({.ask = cli::Ask::Store, .offset = stored, .length = portion})) {
            return 0;
        }
    }
    die("the server keeps room that is filled too slowly");
}

// Has a plain TCP connection.
int connect_tcp(const char *port) {
    sockaddr_in address = test::loopback(static_cast<std::uint16_t>(std::atoi(port)));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof(address)), "connect");
    return fd;
}

bool send_all(int fd, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
}

// Appends the FPDU of a segment.
void add_segment(std::vector<std::byte> &to, const wire::Segment &segment,
                 std::span<const std::byte> payload) {
    const std::size_t begin = to.size();
    to.resize(begin + wire::untagged_bytes);
    to.resize(begin +
              wire::encode_header(segment, std::span{to}.subspan(begin).first<wire::untagged_bytes>()));
    to.insert(to.end(), payload.begin(), payload.end());
    to.resize(begin + wire::fpdu_bytes(segment));  // padding, and a checksum that the peer does not look at
}

// As a client that pulls, sends messages until the server ends the connection, and takes the answers. The
// device of a program would wait for these, so this client has no device.
void flood_once(const char *port, bool &told) {
    const base::Fd fd{connect_tcp(port)};
    const auto hello = cli::encode_hello(
        {.version = cli::protocol_version, .mode = cli::Mode::Pull, .name = std::string{cli::default_name}});
    wire::MpaFrame request;
    request.private_data = hello;
    std::array<std::byte, wire::mpa_max_frame_bytes> frame{};
    if (!send_all(fd.get(), std::span{frame}.first(wire::encode_mpa_frame(request, frame)))) {
        die("no request");
    }
    std::jthread reader{[&fd] {
        std::vector<char> bytes(std::size_t{1} << 20);
        while (recv(fd.get(), bytes.data(), bytes.size(), 0) > 0) {
        }
    }};
    const auto alive = cli::encode_request({.ask = cli::Ask::Alive});
    constexpr std::uint32_t at_once = 1000;
    constexpr std::uint32_t begun = 20 * at_once;
    for (std::uint32_t sent = 0;; sent += at_once) {
        std::vector<std::byte> bytes;
        for (std::uint32_t number = 1; number <= at_once; ++number) {
            add_segment(bytes,
                        {.opcode = wire::Opcode::Send,
                         .msn = sent + number,
                         .payload_bytes = static_cast<std::uint32_t>(alive.size())},
                        alive);
        }
        if (!send_all(fd.get(), bytes)) {
            (void)shutdown(fd.get(), SHUT_RDWR);
            return;
        }
        if (sent >= begun && !std::exchange(told, true)) {
            std::puts("flooding");
            std::fflush(stdout);
        }
    }
}

int flood(const char *, const char *port) {
    bool told = false;
    constexpr int most = 100'000;
    for (int again = 0; again < most; ++again) {
        flood_once(port, told);
    }
    return 1;
}

// Sends requests that want no answer on its TCP baseline, also when its connection has ended, until the
// server ends the baseline.
int flood_baseline(const char *address, const char *port) {
    const std::vector<std::byte> requests(std::size_t{1} << 20);
    base::Fd fd;
    std::vector<std::jthread> senders;  // several, so that the socket is hardly ever empty
    {
        Client client;
        const auto offer = client.connect_well(address, port, cli::Mode::Measure);
        fd.reset(connect_tcp(std::to_string(offer.tcp_port).c_str()));
        if (!send_all(fd.get(), cli::encode_tcp_header({1, 1})) || !send_all(fd.get(), requests)) {
            die("no baseline");
        }
        for (int number = 0; number < 4; ++number) {
            senders.emplace_back([&] {
                while (send_all(fd.get(), requests)) {
                }
            });
        }
    }
    std::puts("flooding");
    std::fflush(stdout);
    return 0;
}

// Writes as a client that measures flushes, and leaves without a flush.
int measure_and_leave(const char *address, const char *port) {
    Client client;
    client.take_region(client.connect_well(address, port, cli::Mode::MeasureDurable).memory_region);
    check(rpma_write(client.connection.get(), client.remote.get(), 0, client.local.get(), 0,
                     client.memory.size(), RPMA_F_COMPLETION_ALWAYS, nullptr),
          "write");
    return client.completion().status == IBV_WC_SUCCESS ? 0 : 1;
}

// Asks for the status on many connections, and keeps them.
int status_crowd(const char *address, const char *port) {
    constexpr std::size_t most = 100;
    std::vector<std::unique_ptr<Client>> clients;
    while (clients.size() < most) {
        clients.push_back(std::make_unique<Client>());
        if (clients.back()->connect_well(address, port, cli::Mode::Status).status != cli::Status::Ok) {
            die("no status");
        }
    }
    std::puts("answered");
    std::fflush(stdout);
    pause();
    return 1;
}

// Asks more questions than any queue of the server has places.
int ask_often(const char *address, const char *port) {
    Client client;
    client.connect_well(address, port, cli::Mode::Pull);
    constexpr int questions = 1000;
    for (int said = 0; said < questions; ++said) {
        if (!client.says_that_it_is_there()) {
            die("the server ends a connection that asks often");
        }
    }
    return 0;
}

// Commits, takes the answer, and stays connected.
int commit_and_stay(const char *address, const char *port) {
    Client client;
    client.take_region(client.connect_well(address, port, cli::Mode::Push).memory_region);
    const auto bytes = std::span{client.memory}.first(1000);
    const cli::Request commit{.ask = cli::Ask::Commit, .length = 1000, .checksum = cli::crc32c(bytes)};
    if (client.write_and_ask(1000, {.ask = cli::Ask::Store, .length = 1000}).verdict != cli::Verdict::Done ||
        client.write_and_ask(1000, commit).verdict != cli::Verdict::Done) {
        die("not committed");
    }
    std::puts("committed");
    std::fflush(stdout);
    pause();
    return 1;
}

// Makes pulls that do nothing, until the server takes no more and says why.
int crowd(const char *address, const char *port) {
    constexpr std::size_t most = 300;
    std::vector<std::unique_ptr<Client>> clients;
    for (cli::Status status = cli::Status::Ok; status == cli::Status::Ok && clients.size() < most;) {
        clients.push_back(std::make_unique<Client>());
        const auto offer = clients.back()->connect_well(address, port, cli::Mode::Pull);
        status = offer.status;
        if (status == cli::Status::Full && offer.reason.contains("are connected")) {
            std::puts("refused");
            std::fflush(stdout);
            pause();
        }
    }
    die("the server takes any number");
}

// The server ends a pull that does nothing.
int idle(const char *address, const char *port) {
    Client client;
    client.connect_well(address, port, cli::Mode::Pull);
    return client.is_ended("the server waits for ever") ? 0 : 1;
}

// Stays as a pull until the server ends the connection.
int stay(const char *address, const char *port) {
    Client client;
    be_admitted(client, address, port, cli::Mode::Pull, "staying");
    return client.is_ended("the server keeps the connection") ? 0 : 1;
}

// Prints its port; takes connections until it is killed, and answers each with bytes of no protocol, or
// never.
int serve_badly(bool answer) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = test::loopback(0);
    socklen_t size = sizeof(address);
    check(bind(listener, reinterpret_cast<sockaddr *>(&address), size), "bind");
    check(listen(listener, 8), "listen");
    check(getsockname(listener, reinterpret_cast<sockaddr *>(&address), &size), "getsockname");
    std::printf("%u\n", unsigned{ntohs(address.sin_port)});
    std::fflush(stdout);
    while (true) {
        const int connection = accept(listener, nullptr, nullptr);
        if (answer && connection >= 0) {
            std::array<char, 4096> bytes;
            (void)!read(connection, bytes.data(), bytes.size());
            bytes.fill('?');
            (void)!write(connection, bytes.data(), bytes.size());
            close(connection);
        }
    }
}

}  // namespace

int main(int argc, char **argv) {
    const std::string_view mode = argc > 1 ? argv[1] : "";
    if (mode == "garbage_server" || mode == "silent_server") {
        return serve_badly(mode == "garbage_server");
    }
    if (argc != 4) {
        die("expected MODE [ADDRESS PORT]");
    }
    std::array<std::byte, 56> garbage;
    garbage.fill(std::byte{0xa5});
    if (mode == "no_hello" || mode == "bad_hello") {
        return bad_hello(argv[2], argv[3], std::span{garbage}.first(mode == "no_hello" ? 0 : garbage.size()));
    }
    struct {
        const char *name;
        int (*run)(const char *, const char *);
    } const modes[] = {{"bad_hellos", bad_hellos},
                       {"other_version", other_version},
                       {"bad_key", bad_key},
                       {"out_of_bounds", out_of_bounds},
                       {"write_as_puller", write_as_puller},
                       {"others_key", others_key},
                       {"wrong_checksum", wrong_checksum},
                       {"commit_after_failure", commit_after_failure},
                       {"others_key_as_pusher", others_key_as_pusher},
                       {"bad_room", bad_room},
                       {"bad_blocks", bad_blocks},
                       {"refused_commit", refused_commit},
                       {"write_after_commit", write_after_commit},
                       {"no_commit", no_commit},
                       {"bad_request", bad_request},
                       {"late_tag", late_tag},
                       {"ask_in_order", ask_in_order},
                       {"store_nothing", store_nothing},
                       {"roll_back_to_nothing", roll_back_to_nothing},
                       {"crowd", crowd},
                       {"idle", idle},
                       {"stay", stay},
                       {"talk", talk},
                       {"trickle", trickle},
                       {"claim", claim},
                       {"hoard", hoard},
                       {"flood", flood},
                       {"flood_baseline", flood_baseline},
                       {"measure_and_leave", measure_and_leave},
                       {"status_crowd", status_crowd},
                       {"ask_often", ask_often},
                       {"commit_and_stay", commit_and_stay},
                       {"hold", hold}};
    for (const auto &known : modes) {
        if (mode == known.name) {
            return known.run(argv[2], argv[3]);
        }
    }
    die("unknown mode");
}
