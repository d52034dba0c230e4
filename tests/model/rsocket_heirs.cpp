// SPDX-License-Identifier: BSD-3-Clause
// model/rsocket_heirs: pairs and child processes, as the table of librsocket(7) has them under SEVERAL
// PROCESSES.
#include "rsocket_heirs.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

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

// The numbers of an inheritance, as the arguments of a program have them.
std::vector<std::uint64_t> numbers_of(const Inheritance &what, bool may_break) {
    return {static_cast<std::uint64_t>(what.fd),
            static_cast<std::uint64_t>(what.is_listener),
            static_cast<std::uint64_t>(what.ending),
            what.seed,
            what.salts[0],
            what.salts[1],
            what.totals[0],
            what.totals[1],
            static_cast<std::uint64_t>(may_break)};
}

[[noreturn]] void be_program(std::vector<std::string> arguments) {
    std::vector<char *> pointers;
    for (std::string &argument : arguments) {
        pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    (void)execv("/proc/self/exe", pointers.data());
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
            be_program({"heir"});
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

int be_heir(std::span<char *const> arguments) {
    std::array<std::uint64_t, 9> numbers{};
    if (arguments.size() != numbers.size()) {
        return arguments.empty() ? 0 : 2;
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = std::strtoull(arguments[i], nullptr, 10);
    }
    (void)alarm(most_seconds);
    Setting setting{.may_break = numbers[8] != 0};
    be_heir({.fd = static_cast<int>(numbers[0]),
             .is_listener = numbers[1] != 0,
             .is_by_exec = true,
             .ending = static_cast<Inheritance::Ending>(numbers[2]),
             .seed = numbers[3],
             .salts = {numbers[4], numbers[5]},
             .totals = {numbers[6], numbers[7]}},
            setting);
}

// The listener stays open, so that a child that is slow is known to answer.
std::string RsocketPair::begin_to_hand_over(Inheritance &what, int &listener) {
    const bool is_plain = setting_.has_plain && setting_.probe != Probe::Only && dice_.one_in(4);
    sockaddr_in address{};
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    listener = listening(of_rsockets, true, address);
    ends_[0].calls = is_plain ? &of_kernel : &of_rsockets;
    ends_[0].fd = ends_[0].calls->make(AF_INET, SOCK_STREAM | (is_plain ? 0 : SOCK_NONBLOCK), 0);
    const int result = ends_[0].calls->connect(fd(0), name, sizeof(address));
    if (listener < 0 || (result != 0 && errno != EINPROGRESS)) {
        return wrong(0, "connect to what a child is to have", result);
    }
    if (is_plain) {
        ends_[1].reasons = 1;
    } else if (auto text = find_mode(address.sin_port); !text.empty()) {
        return text;
    }
    (void)ends_[0].calls->control(fd(0), F_SETFL, 0);
    ends_[1].fd = what.is_listener ? -1 : raccept(listener, nullptr, nullptr);
    what.fd = what.is_listener ? listener : fd(1);
    return what.fd >= 0 ? "" : wrong(1, "raccept of what a child is to have", what.fd);
}

std::string RsocketPair::hand_over() {
    close_all();
    ++times_;
    broken_ = false;
    may_break_ = setting_.may_break;
    Inheritance what{.is_listener = dice_.one_in(3),
                     .is_by_exec = dice_.one_in(3),
                     .ending = static_cast<Inheritance::Ending>(dice_.below(4)),
                     .seed = dice_.any()};
    if (!may_exit && !what.is_by_exec && what.ending != Inheritance::Ending::Break) {
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
        if (what.is_by_exec) {
            std::vector<std::string> arguments{"heir"};
            for (const std::uint64_t number : numbers_of(what, setting_.may_break)) {
                arguments.push_back(std::to_string(number));
            }
            be_program(std::move(arguments));
        }
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
        const ssize_t count = ends_[0].calls->receive(fd(0), &byte, 1, 0);
        const bool is_end = count == 0 && (is_tcp() || what.ending != Inheritance::Ending::Break);
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
    if (what.is_by_exec && radopt(what.fd) != 0) {
        return wrong(1, "radopt", -1);
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

std::string RsocketPair::check_in_child(int end, bool looks) {
    const End &one = ends_[index(end)];
    if (broken_ || one.fd < 0) {
        return {};
    }
    if (is_plain(end) || one.reasons != 0) {
        room_.resize(1 + dice_.size());
        const ssize_t count =
            looks ? one.calls->receive(one.fd, room_.data(), room_.size(), MSG_PEEK | MSG_DONTWAIT) : 0;
        const bool is_nothing = !looks || (count < 0 && errno == EAGAIN);
        return is_nothing  ? ""
               : count < 0 ? wrong(end, "a look in a child", count)
                           : received(end, count, room_, true);
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
