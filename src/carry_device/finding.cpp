// SPDX-License-Identifier: BSD-3-Clause
// carry_device/finding: the datagrams.
#include "carry_device/finding.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/address.hpp"
#include "carry_device/names.hpp"

namespace carry_device {

namespace {

constexpr int datagrams = SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

bool allows(int fd, int option) {
    constexpr int on = 1;
    return setsockopt(fd, SOL_SOCKET, option, &on, sizeof(on)) == 0;
}

bool is_loopback(const in6_addr &address) {
    constexpr std::uint8_t network = 127;
    return IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == network;
}

}  // namespace

bool Finding::take_port(int events) {
    events_ = events;
    port_ =
        Watched{events, bound_to_all(datagrams, number_, [](int fd) { return allows(fd, SO_REUSEADDR); })};
    return static_cast<bool>(port_);
}

void Finding::close_in_child() {
    port_.close_in_child();
    passes_.reset();
    for (Own &one : own_) {
        one.fd.close_in_child();
    }
}

int Finding::own_at(const carry::FourTuple::End &end) {
    const auto known = std::ranges::find_if(own_, [&](const Own &one) {
        return IN6_ARE_ADDR_EQUAL(&one.end.address, &end.address) != 0 && one.end.scope == end.scope;
    });
    if (known != own_.end()) {
        return known->fd.get();
    }
    const Name name = name_of(end, 0);
    base::Fd fd{carry::high_number(socket(name.address.ss_family, datagrams, 0))};
    if (!fd || bind(fd.get(), name.get(), name.length) != 0) {
        return -1;
    }
    own_.push_back({.end = end, .fd = Watched{events_, std::move(fd)}});
    return own_.back().fd.get();
}

void Finding::send(const carry::FourTuple &connection, std::uint16_t port, const Word &word) {
    const Name to = name_of(connection.ends[1 - connection.side], port);
    const int fd = own_at(connection.ends[connection.side]);
    (void)sendto(fd, &word, sizeof(word), MSG_NOSIGNAL, to.get(), to.length);
}

// Returns false when there is no datagram any more. One that is no word gets no mark.
bool Finding::hear(int fd, Heard &heard) {
    sockaddr_storage from{};
    socklen_t length = sizeof(from);
    heard = {};
    heard.word.mark = 0;
    std::array<std::byte, sizeof(Word) + 1> bytes;
    const ssize_t size =
        recvfrom(fd, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr *>(&from), &length);
    if (size < 0) {
        return errno == EINTR || errno == ECONNREFUSED;
    }
    const auto passed_on = static_cast<std::uint8_t>(bytes[offsetof(Word, is_passed_on)]);
    if (size == sizeof(Word) && passed_on <= 1) {
        std::memcpy(&heard.word, bytes.data(), sizeof(Word));
        heard.address = address_of(from);
        heard.port = base::port_of(from);
    }
    return true;
}

bool Finding::serve(const std::function<bool(const Heard &)> &heard) {
    Heard one;
    bool is_more = false;
    const auto for_all_at = [&](int fd, auto use) {
        int count = 0;
        while (count < most_at_once && hear(fd, one)) {
            use();
            ++count;
        }
        is_more = is_more || count == most_at_once;
    };
    for (const Own &own : own_) {
        for_all_at(own.fd.get(), [&] {
            if (one.word.mark == carry::Link::mark && !one.word.is_passed_on) {
                (void)heard(one);
            }
        });
    }
    for_all_at(port_.get(), [&] {
        const bool is_word = one.word.mark == carry::Link::mark && one.word.kind != Word::Answers;
        if (is_word && one.word.is_passed_on && is_loopback(one.address)) {
            one.port = one.word.port;
            (void)heard(one);
        } else if (is_word && !one.word.is_passed_on && is_peer_(one.address) && !heard(one)) {
            pass_on(one);
        }
    });
    return is_more;
}

void Finding::pass_on(const Heard &heard) {
    if (!passes_) {
        passes_ = base::Fd{carry::high_number(socket(AF_INET, datagrams, 0))};
        if (passes_ && !allows(passes_.get(), SO_BROADCAST)) {
            passes_.reset();
        }
    }
    sockaddr_in all{};
    all.sin_family = AF_INET;
    all.sin_port = htons(number_);
    constexpr in_addr_t loopback_broadcast = 0x7fffffff;  // 127.255.255.255
    all.sin_addr.s_addr = htonl(loopback_broadcast);
    Word word = heard.word;
    word.port = heard.port;
    word.is_passed_on = true;
    (void)sendto(passes_.get(), &word, sizeof(word), MSG_NOSIGNAL, reinterpret_cast<const sockaddr *>(&all),
                 sizeof(all));
}

}  // namespace carry_device
