// SPDX-License-Identifier: BSD-3-Clause
#include "cli/thread.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace cli {

StopEvent::StopEvent() : fd_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {}

void StopEvent::stop() {
    stopped_.store(true, std::memory_order_relaxed);
    (void)eventfd_write(fd_.get(), 1);
}

bool StopEvent::wait(int fd, short events) const {
    std::array<pollfd, 2> waiting{pollfd{fd, events, 0}, pollfd{fd_.get(), POLLIN, 0}};
    while (poll(waiting.data(), waiting.size(), -1) < 0) {
        if (errno != EINTR) {
            return false;
        }
    }
    return waiting[1].revents == 0;
}

Outcome<std::thread> start_thread(std::function<void()> run) {
    try {
        return std::thread{std::move(run)};
    } catch (const std::system_error &error) {
        return failed("cannot start a thread: {}", errno_text(error.code().value()));
    }
}

}  // namespace cli
