// SPDX-License-Identifier: BSD-3-Clause
// The tests of TLS keep the log of the device here, and check what it refuses.
#pragma once

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"

// These come last, because they assert.
#include "device.hpp"
#include "tls_peer.hpp"

namespace test {

struct KeptLog {
    // NOLINTNEXTLINE(cert-dcl50-cpp): the signature is the device's.
    static void keep(int, const char *, int, const char *, const char *format, ...) {
        char text[640];
        va_list arguments;
        va_start(arguments, format);
        (void)std::vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        const std::lock_guard lock{mutex};
        lines += text;
    }
    static void begin() {
        base::set_log_sink(keep);
        base::log_threshold.store(static_cast<int>(base::LogLevel::Info));
        const std::lock_guard lock{mutex};
        lines.clear();
    }
    static bool contains(std::string_view text) {
        const std::lock_guard lock{mutex};
        return lines.contains(text);
    }

    static inline std::mutex mutex;
    static inline std::string lines;
};

// Waits for a line of log, which another thread may write.
inline void expect_line(Device &device, std::string_view text) {
    device.work_until([text] { return KeptLog::contains(text); });
}

// Waits until the device refuses the client, and checks that the program does not hear of it.
inline void expect_refused_client(Ends &ends, const TlsHabits &habits, std::string_view line) {
    ends.peer.connect(ends.device.port());
    TlsPeer client{ends.peer, true, habits};
    assert_true(!client.shake() || client.is_refused());
    expect_line(ends.device, line);
    assert_false(ends.device.has_event());
}

// Has the device connect to a server that refuses it, or that it refuses.
inline void expect_refused_server(Ends &ends, const TlsHabits &habits, int error, std::string_view line) {
    rdma_cm_id *const id = ends.device.connect(ends.peer.listen());
    ends.peer.accept();
    TlsPeer server{ends.peer, false, habits};
    (void)server.shake();
    const auto failed = ends.device.wait_for(RDMA_CM_EVENT_CONNECT_ERROR, id);
    assert_int_equal(failed.status, -error);
    expect_line(ends.device, line);
}

// A peer that stops somewhere in its handshake, and stays.
struct StoppedPeer {
    Peer peer;
    std::optional<TlsPeer> tls;
};

// Returns the sizes of the beginnings of these records that end in the middle of one or behind one, and 0.
inline std::vector<std::size_t> beginnings_of(const Bytes &records) {
    constexpr std::size_t header_bytes = 5;
    std::vector<std::size_t> sizes{0};
    for (std::size_t at = 0; at < records.size();) {
        assert_true(records.size() - at >= header_bytes);
        const std::size_t size = header_bytes + (std::to_integer<std::size_t>(records[at + 3]) << 8U) +
                                 std::to_integer<std::size_t>(records[at + 4]);
        sizes.push_back(at + size / 2);
        sizes.push_back(at += size);
    }
    assert_int_equal(sizes.back(), records.size());
    return sizes;
}

// Has servers and clients stop in and behind each message of the handshake. All are given up after the time
// of a start-up, and the program hears of its own requests alone.
inline void expect_given_up_at_each_message(Ends &ends, const TlsHabits &of_clients,
                                            const TlsHabits &of_servers) {
    Device &device = ends.device;
    std::deque<StoppedPeer> servers;
    std::vector<const rdma_cm_id *> ids;
    std::size_t stops = 0;
    do {
        auto &[peer, tls] = servers.emplace_back();
        ids.push_back(device.connect(peer.listen()));
        peer.accept();
        const Bytes flight = tls.emplace(peer, false, of_servers).flight();
        const auto sizes = beginnings_of(flight);
        stops = sizes.size();
        peer.send(std::span{flight}.first(sizes[ids.size() - 1]));
    } while (ids.size() != stops);

    // A client has two turns. One that has done both sends no request.
    std::deque<StoppedPeer> clients;
    for (const bool stops_in_hello : {true, false}) {
        std::size_t place = 0;
        do {
            auto &[peer, tls] = clients.emplace_back();
            peer.connect(device.port());
            tls.emplace(peer, true, of_clients);
            Bytes flight = tls->flight();
            if (!stops_in_hello) {
                peer.send(flight);
                flight = tls->flight();
            }
            const auto sizes = beginnings_of(flight);
            stops = sizes.size();
            peer.send(std::span{flight}.first(sizes[place]));
        } while (++place != stops);
    }

    for (const rdma_cm_id *const id : ids) {
        assert_int_equal(device.wait_for(RDMA_CM_EVENT_UNREACHABLE, id).status, -ETIMEDOUT);
    }
    for (StoppedPeer &stopped : clients) {
        (void)stopped.peer.receive_rest();
    }
    expect_line(device, "no answer to the handshake of TLS");
    expect_line(device, "no handshake of TLS");
    expect_line(device, "no MPA request");
    assert_false(device.has_event());
}

}  // namespace test
