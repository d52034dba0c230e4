// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket_repoll.hpp"

#include <poll.h>
#include <rpma/rsocket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace model {

namespace {

constexpr int patience_ms = 40'000;
constexpr std::size_t spare_events = 32;

short asked(std::uint32_t events) {
    return static_cast<short>(events & (EPOLLIN | EPOLLOUT | EPOLLRDHUP));
}

// An epoll_event is packed: no reference to its number is aligned.
std::uint64_t number_of(const epoll_event &event) {
    return event.data.u64;
}

}  // namespace

RsocketRepoll::RsocketRepoll(Dice &dice) : dice_{dice}, fd_{repoll_create(EPOLL_CLOEXEC)} {}

RsocketRepoll::~RsocketRepoll() {
    (void)rclose(fd_);
}

std::string RsocketRepoll::wrong(const char *what, const Member &member) const {
    return std::string{what} + ": fd " + std::to_string(member.fd) + " with events " +
           std::to_string(member.events) + " (errno: " + std::strerror(errno) + ")\n" + member.pair->state();
}

// A socket that is closed is no member any more.
void RsocketRepoll::forget_closed() {
    std::erase_if(members_, [&](const auto &numbered) {
        const Member &member = numbered.second;
        return member.pair->times() != member.times || member.pair->fd(member.end) != member.fd;
    });
}

RsocketRepoll::Members::iterator RsocketRepoll::member_of(const RsocketPair &pair, int end) {
    return std::ranges::find_if(members_, [&](const auto &numbered) {
        return numbered.second.pair == &pair && numbered.second.end == end;
    });
}

std::uint32_t RsocketRepoll::any_events(bool may_be_exclusive) {
    constexpr std::array<std::uint32_t, 3> which{EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT};
    const std::uint32_t events = which[dice_.below(3)] | (dice_.one_in(2) ? std::uint32_t{EPOLLET} : 0U);
    if (may_be_exclusive && dice_.one_in(4)) {
        return events | EPOLLEXCLUSIVE;
    }
    return events | (dice_.one_in(4) ? std::uint32_t{EPOLLRDHUP} : 0U) |
           (dice_.one_in(4) ? std::uint32_t{EPOLLONESHOT} : 0U);
}

std::string RsocketRepoll::change(std::uint64_t number, Member &member) {
    const bool is_exclusive = (member.events & EPOLLEXCLUSIVE) != 0;
    epoll_event event{.events = is_exclusive ? member.events : any_events(false), .data = {.u64 = number}};
    const int result = repoll_ctl(fd_, EPOLL_CTL_MOD, member.fd, &event);
    if (is_exclusive) {
        return result == -1 && errno == EINVAL ? "" : wrong("EPOLL_CTL_MOD of one that is exclusive", member);
    }
    member.events = event.events;
    member.is_due = true;
    member.is_disarmed = false;
    return result == 0 ? "" : wrong("EPOLL_CTL_MOD", member);
}

std::string RsocketRepoll::control(RsocketPair &pair, int end) {
    forget_closed();
    if (pair.is_broken() || pair.fd(end) < 0) {
        return {};
    }
    const auto known = member_of(pair, end);
    if (known != members_.end()) {
        auto &[number, member] = *known;
        if (!dice_.one_in(3)) {
            return change(number, member);
        }
        const bool removed = repoll_ctl(fd_, EPOLL_CTL_DEL, member.fd, nullptr) == 0;
        auto text = removed ? "" : wrong("EPOLL_CTL_DEL", member);
        members_.erase(known);
        return text;
    }
    Member member{
        .pair = &pair, .end = end, .fd = pair.fd(end), .times = pair.times(), .events = any_events(true)};
    epoll_event event{.events = member.events, .data = {.u64 = ++added_}};
    if (repoll_ctl(fd_, EPOLL_CTL_ADD, member.fd, &event) != 0) {
        return wrong("EPOLL_CTL_ADD", member);
    }
    members_.emplace(added_, member);
    return {};
}

// Sees which members are ready: what is ready stays so until something is done with it.
std::string RsocketRepoll::look() {
    std::vector<pollfd> entries;
    for (const auto &[number, member] : members_) {
        entries.push_back({.fd = member.fd, .events = asked(member.events), .revents = 0});
    }
    if (rpoll(entries.data(), entries.size(), 0) < 0) {
        return std::string{"rpoll of a repoll's members: "} + std::strerror(errno);
    }
    std::size_t i = 0;
    for (auto &[number, member] : members_) {
        const bool is_ready = entries[i++].revents != 0;
        member.is_due = member.is_due || !is_ready;
        // One of two repolls that have it exclusively is told.
        const bool may_be_others = (member.events & EPOLLEXCLUSIVE) != 0;
        const bool is_due = (member.events & EPOLLET) == 0 || member.is_due;
        member.must_be_told = is_ready && is_due && !member.is_disarmed && !may_be_others;
    }
    return {};
}

std::string RsocketRepoll::told(const epoll_event &event) {
    const auto known = members_.find(number_of(event));
    if (known == members_.end()) {
        return "repoll_wait tells of number " + std::to_string(number_of(event)) + ", which is no member";
    }
    Member &member = known->second;
    if (member.is_disarmed) {
        return wrong("repoll_wait tells of one that is disarmed", member);
    }
    if (event.events == 0) {
        return wrong("repoll_wait tells of no event", member);
    }
    member.is_due = false;
    member.must_be_told = false;
    member.is_disarmed = (member.events & EPOLLONESHOT) != 0;
    return {};
}

std::string RsocketRepoll::wait() {
    forget_closed();
    auto text = look();
    std::vector<epoll_event> events(members_.size() + spare_events);
    const bool is_any =
        std::ranges::any_of(members_, [](const auto &numbered) { return numbered.second.must_be_told; });
    int count = -1;
    const auto wait_for = [&](int timeout) {
        count = repoll_wait(fd_, events.data(), static_cast<int>(events.size()), timeout);
    };
    if (is_any && dice_.one_in(8)) {
        std::jthread{[&] { wait_for(patience_ms); }}.join();
    } else {
        wait_for(is_any && dice_.one_in(2) ? patience_ms : static_cast<int>(dice_.below(2)));
    }
    if (count < 0) {
        return std::string{"repoll_wait: "} + std::strerror(errno);
    }
    events.resize(static_cast<std::size_t>(count));
    if (events.size() > members_.size()) {
        return "repoll_wait gives " + std::to_string(events.size()) + " of " +
               std::to_string(members_.size());
    }
    for (std::size_t i = 0; text.empty() && i < events.size(); ++i) {
        text = told(events[i]);
    }
    for (const auto &[number, member] : members_) {
        if (text.empty() && member.must_be_told) {
            text = wrong("repoll_wait does not tell of one that is ready", member);
        }
    }
    for (std::size_t i = 0; text.empty() && i < events.size(); ++i) {
        const Member &member = members_.at(number_of(events[i]));
        if (!member.pair->is_broken()) {
            text = member.pair->check_ready(member.end, asked(member.events),
                                            static_cast<short>(events[i].events));
        }
    }
    return text;
}

std::string RsocketRepoll::check_in_child() {
    epoll_event event{};
    if (repoll_wait(fd_, &event, 1, 0) != -1 || errno != ECONNRESET) {
        return std::string{"repoll_wait of a repoll of the parent's: "} + std::strerror(errno);
    }
    return dice_.one_in(2) || rclose(fd_) == 0 ? "" : "rclose of a repoll of the parent's";
}

}  // namespace model
