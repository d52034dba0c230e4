// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket_options: the options that the program has set on an rsocket. An accepted rsocket gets those
// of its listener.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "stream/settings.hpp"

namespace rsockets {

// Options as setsockopt(2) takes them, each once. They are replaced as a whole: a forked child has those
// before a change or those after it.
class KeptOptions {
public:
    void keep(int level, int name, const void *value, socklen_t length);
    // Sets them on the kernel's socket. An option that the kernel refuses stays as it is.
    void apply(int fd) const;

private:
    struct Option {
        int level;
        int name;
        std::vector<std::byte> value;
    };
    std::shared_ptr<const std::vector<Option>> options_;  // null when there is none
};

// The lock of the rsocket guards it.
class SocketOptions {
public:
    explicit SocketOptions(const stream::Settings &settings) : settings_{settings} {}

    // Returns whether the option of SOL_SOCKET is the stream's, and not the kernel's.
    [[nodiscard]] static bool is_of_stream(int name);
    // Sets such an option. EINVAL: the value is none that the option can have.
    [[nodiscard]] base::Result<void> set_of_stream(int name, const void *value, socklen_t length);
    // Sets an option of SOL_RDMA. EINVAL: the value is no number, or below 0. ENOPROTOOPT: it cannot be set.
    [[nodiscard]] base::Result<void> set_of_rdma(int name, const void *value, socklen_t length);

    // Returns how large a stream's queues and buffers are to be.
    [[nodiscard]] const stream::Settings &settings() const { return settings_; }
    // A time-out of 0 is none.
    [[nodiscard]] std::chrono::milliseconds receive_timeout() const { return receive_timeout_; }
    [[nodiscard]] std::chrono::milliseconds send_timeout() const { return send_timeout_; }
    // It is at least 1.
    [[nodiscard]] std::size_t receive_low_water() const { return receive_low_water_; }
    [[nodiscard]] const linger &lingering() const { return lingering_; }
    // The kernel's options that the program has set. The device sets some of them too; then the program's are
    // set again.
    [[nodiscard]] KeptOptions &of_kernel() { return of_kernel_; }

private:
    stream::Settings settings_;
    std::chrono::milliseconds receive_timeout_{0};
    std::chrono::milliseconds send_timeout_{0};
    std::size_t receive_low_water_ = 1;
    linger lingering_{};
    KeptOptions of_kernel_;
};

}  // namespace rsockets
