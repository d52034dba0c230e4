// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_heirs: pairs and child processes, as librsocket(7) has them under SEVERAL PROCESSES.
#include "rsocket_heirs.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "../child.hpp"
#include "../loopback.hpp"

namespace model {

namespace {

constexpr unsigned most_seconds = 60;
constexpr std::size_t most_handed_over = 50'000;
// LeakSanitizer would take the memory of the parent's threads for leaks of a forked child.
#ifdef __SANITIZE_ADDRESS__
constexpr bool may_exit = false;
#else
constexpr bool may_exit = true;
#endif

// A program of its own, which ends at once.
[[noreturn]] void be_program() {
    std::string name{"heir"};
    const std::array<char *, 2> arguments{name.data(), nullptr};
    (void)execv("/proc/self/exe", arguments.data());
    _exit(127);
}

// Works as _exit(2). ThreadSanitizer's _exit looks for threads that were not joined: the device's thread has
// ended with the last object, and only the library's end of a process joins it.
[[noreturn]] void end_at_once() {
    (void)syscall(SYS_exit_group, 0);
    std::abort();
}

[[noreturn]] void be_heir(const Inheritance &what, Setting &setting) {
    Dice dice{what.seed};
    RsocketPair pair{dice, setting};
    if (const auto text = pair.inherit(what); !text.empty()) {
        std::fprintf(stderr, "heir %d: %s\n", getpid(), text.c_str());
        _exit(1);
    }
    if (what.ending == Inheritance::Ending::Break && dice.one_in(2)) {
        (void)raise(SIGKILL);
    }
    if (what.ending == Inheritance::Ending::Close || what.ending == Inheritance::Ending::Exit) {
        std::exit(0);  // NOLINT(concurrency-mt-unsafe): the library's end of a process is what is tested
    }
    end_at_once();
}

}  // namespace

pid_t make_child() {
    const pid_t child = test::fork_child();
    if (child == 0) {
        (void)alarm(most_seconds);
    }
    return child;
}

bool ended_well(pid_t child) {
    int status = 0;
    return waitpid(child, &status, 0) == child &&
           (status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

void leave(Dice &dice) {
    switch (dice.below(4)) {
        case 0:
            be_program();
        case 1:
            if (may_exit) {
                std::exit(0);  // NOLINT(concurrency-mt-unsafe): as above
            }
            [[fallthrough]];
        case 2:
            (void)raise(SIGKILL);
            [[fallthrough]];
        default:
            _exit(0);
    }
}

std::string RsocketPair::begin_to_hand_over(Inheritance &what, int &listener) {
    sockaddr_in address{};
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    listener = listening(address);
    ends_[0].fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const int result = rconnect(fd(0), name, sizeof(address));
    if (listener < 0 || (result != 0 && errno != EINPROGRESS)) {
        return wrong(0, "rconnect to what a child is to have", result);
    }
    (void)rfcntl(fd(0), F_SETFL, 0);
    ends_[1].fd = what.is_listener ? -1 : raccept(listener, nullptr, nullptr);
    what.fd = what.is_listener ? listener : fd(1);
    return what.fd >= 0 ? "" : wrong(1, "raccept of what a child is to have", what.fd);
}

std::string RsocketPair::hand_over() {
    close_all();
    ++times_;
    broken_ = false;
    may_break_ = setting_.may_break;
    Inheritance what{.is_listener = !setting_.fork_safe || dice_.one_in(3),
                     .ending = static_cast<Inheritance::Ending>(dice_.below(4)),
                     .seed = dice_.any()};
    if (!may_exit && what.ending != Inheritance::Ending::Break) {
        what.ending = Inheritance::Ending::Linger;
    }
    for (int end = 0; end < 2; ++end) {
        what.salts[index(end)] = dice_.any();
        what.totals[index(end)] = dice_.below(most_handed_over);
        ends_[index(end)] = {};
        ends_[index(end)].sent.begin(what.salts[index(end)]);
    }
    int listener = -1;
    auto text = begin_to_hand_over(what, listener);
    const pid_t child = text.empty() ? make_child() : -1;
    if (child == 0) {
        be_heir(what, setting_);
    }
    if (fd(1) >= 0) {
        (void)rclose(std::exchange(ends_[1].fd, -1));
    }
    if (child > 0) {
        may_break_ = may_break_ || what.ending == Inheritance::Ending::Break;
        text = converse(what.totals, 0, 0);
        text += end_of_heir(child, what);
    }
    (void)rclose(listener);
    broken_ = true;
    return text;
}

std::string RsocketPair::end_of_heir(pid_t child, const Inheritance &what) {
    std::string text;
    if (!broken_) {
        std::byte byte{};
        const ssize_t count = rrecv(fd(0), &byte, 1, 0);
        const bool is_end = count == 0 && what.ending != Inheritance::Ending::Break;
        const bool is_reset = count < 0 && may_break_ && is_break(errno);
        text = is_end || is_reset ? "" : wrong(0, "the end that a child has made", count);
    }
    return ended_well(child) ? text : text + "a child that had an end ended wrongly";
}

std::string RsocketPair::inherit(const Inheritance &what) {
    broken_ = false;
    for (int end = 0; end < 2; ++end) {
        ends_[index(end)].sent.begin(what.salts[index(end)]);
    }
    ends_[1].fd = what.is_listener ? raccept(what.fd, nullptr, nullptr) : what.fd;
    if (fd(1) < 0 || rfcntl(fd(1), F_SETFL, 0) != 0) {
        return wrong(1, "raccept", fd(1));
    }
    auto text = converse(what.totals, 1, 1);
    const bool lingers = what.ending == Inheritance::Ending::Linger;
    const linger time{.l_onoff = lingers ? 1 : 0, .l_linger = most_seconds};
    if (rsetsockopt(fd(1), SOL_SOCKET, SO_LINGER, &time, sizeof(time)) != 0) {
        text += wrong(1, "SO_LINGER", -1);
    }
    if ((lingers || what.ending == Inheritance::Ending::Close) &&
        rclose(std::exchange(ends_[1].fd, -1)) != 0) {
        text += wrong(1, "rclose", -1);
    }
    return text;
}

std::string RsocketPair::check_in_child(int end) {
    const End &one = ends_[index(end)];
    if (broken_ || one.fd < 0) {
        return {};
    }
    std::byte byte{};
    if (const ssize_t count = rsend(one.fd, &byte, 1, MSG_DONTWAIT); count != -1 || errno != ECONNRESET) {
        return wrong(end, "rsend of a stream of the parent's", count);
    }
    if (const ssize_t count = rrecv(one.fd, &byte, 1, MSG_DONTWAIT); count != -1 || errno != ECONNRESET) {
        return wrong(end, "rrecv of a stream of the parent's", count);
    }
    pollfd ready{.fd = one.fd, .events = POLLIN, .revents = 0};
    if (rpoll(&ready, 1, 0) != 1 || (ready.revents & POLLERR) == 0) {
        return wrong(end, "rpoll of a stream of the parent's", ready.revents);
    }
    return dice_.one_in(2) || rclose(one.fd) == 0 ? "" : wrong(end, "rclose of a stream of the parent's", -1);
}

}  // namespace model
