// SPDX-License-Identifier: BSD-3-Clause
// cli/outlet: a queue of lines, and the thread that writes them.
#include "cli/outlet.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.hpp"
#include "cli/thread.hpp"

namespace cli {

// Another process may have made the descriptor one that does not wait.
int write_to(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(fd, text.data(), text.size());
        if (written >= 0) {
            text.remove_prefix(static_cast<std::size_t>(written));
        } else if (errno == EAGAIN) {
            pollfd ready{fd, POLLOUT, 0};
            (void)poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

void Outlet::put(int level, std::string line) {
    {
        const base::Lock lock{mutex_};
        if (state_ != State::Direct) {
            if (lost_lines_ != 0 || bytes_ + line.size() > most_) {
                ++lost_lines_;
            } else {
                bytes_ += line.size();
                lines_.push_back({level, std::move(line)});
            }
            changed_.notify_all();
            return;
        }
    }
    write_(level, line);
}

Outcome<> Outlet::begin(Lost lost) {
    lost_ = std::move(lost);
    thread_ = TRY(start_thread([this] { run(); }));
    const base::Lock lock{mutex_};
    state_ = State::Queues;
    return {};
}

void Outlet::run() {
    const base::Lock lock{mutex_};
    while (true) {
        while (lines_.empty() && lost_lines_ == 0 && state_ != State::Ends) {
            changed_.wait(mutex_);
        }
        Line line{static_cast<int>(base::LogLevel::Warning), {}};
        if (!lines_.empty()) {
            line = std::move(lines_.front());
            lines_.pop_front();
            bytes_ -= line.text.size();
        } else if (lost_lines_ != 0) {
            line.text = lost_(std::exchange(lost_lines_, 0));
        } else {
            state_ = State::Direct;
            changed_.notify_all();
            return;
        }
        const base::Unlock unlocked{mutex_};
        write_(line.level, line.text);
    }
}

void Outlet::end(base::Clock::time_point deadline) {
    if (!thread_.joinable()) {
        return;
    }
    bool has_ended = false;
    {
        const base::Lock lock{mutex_};
        state_ = State::Ends;
        changed_.notify_all();
        while (state_ != State::Direct && changed_.wait_until(mutex_, deadline)) {
        }
        has_ended = state_ == State::Direct;
    }
    if (has_ended) {
        thread_.join();
    } else {
        thread_.detach();
    }
}

}  // namespace cli
