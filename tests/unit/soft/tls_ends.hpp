// SPDX-License-Identifier: BSD-3-Clause
// The tests of TLS keep the log of the device here, and check what it refuses.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

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

}  // namespace test
