// SPDX-License-Identifier: BSD-3-Clause
// carry/mirror: which Socket of this process has a mirror, and the library that makes them.
#include "carry/mirror.hpp"

#include <dlfcn.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/address.hpp"
#include "base/clock.hpp"
#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "base/log.hpp"
#include "base/network.hpp"
#include "base/own_pages.hpp"
#include "carry/meeting.hpp"
#include "carry/sockets.hpp"

namespace carry {

namespace {

constinit std::atomic<Mirror *> all[most_sockets]{};
// Places from here on have none.
constinit std::atomic<std::uint32_t> end_of_all{0};
constinit std::atomic<MirrorDevice *> loaded{nullptr};

// A peer that is stopped, or whose program is, does not answer. Then the process goes on.
constexpr std::chrono::seconds waits_for_answers{1};

// Returns whether the kernel's route to an address ends on this host. A program that may not ask gets false.
bool is_of_this_host(const FourTuple::End &end) {
    const bool is_four = IN6_IS_ADDR_V4MAPPED(&end.address);
    const auto bytes = is_four ? std::span{end.address.s6_addr}.subspan(12)
                               : std::span<const std::uint8_t>{end.address.s6_addr};
    struct {
        nlmsghdr head;
        rtmsg route;
        rtattr to;
        std::array<std::uint8_t, sizeof(in6_addr)> address;
        rtattr over;
        std::uint32_t interface;
    } ask{};
    ask.route.rtm_family = is_four ? AF_INET : AF_INET6;
    ask.route.rtm_dst_len = static_cast<unsigned char>(bytes.size() * 8);
    ask.to = {.rta_len = static_cast<unsigned short>(RTA_LENGTH(bytes.size())), .rta_type = RTA_DST};
    std::ranges::copy(bytes, ask.address.begin());
    ask.over = {.rta_len = RTA_LENGTH(sizeof(ask.interface)), .rta_type = RTA_OIF};
    ask.interface = end.scope;
    const std::size_t size = end.scope != 0 ? sizeof(ask) : NLMSG_LENGTH(sizeof(rtmsg)) + ask.to.rta_len;
    ask.head = {.nlmsg_len = static_cast<std::uint32_t>(size),
                .nlmsg_type = RTM_GETROUTE,
                .nlmsg_flags = NLM_F_REQUEST,
                .nlmsg_seq = 0,
                .nlmsg_pid = 0};
    struct {
        nlmsghdr head;
        rtmsg route;
        std::array<std::byte, 1024> attributes;
    } answer{};
    const int fd = LIBC(socket)(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    const bool is_answered = fd >= 0 && LIBC(send)(fd, &ask, size, 0) == static_cast<ssize_t>(size) &&
                             LIBC(recv)(fd, &answer, sizeof(answer), 0) > 0;
    if (fd >= 0) {
        (void)LIBC(close)(fd);
    }
    return is_answered && answer.head.nlmsg_type == RTM_NEWROUTE && answer.route.rtm_type == RTN_LOCAL;
}

// The kinds of the devices. They are read at the start: nginx clears its environment, and others write their
// titles there, or see other files later.
struct Wanted {
    char forced[16] = "";
    char for_peers[16] = "";
    std::vector<base::Network> peers;

    Wanted() {
        read("RPMA_CARRY_DEVICE", forced);
        read("RPMA_CARRY_PEERS", for_peers);
        if (for_peers[0] != '\0') {
            peers = base::networks_of_file(RSOCKET_CONFIGURATION "/peers");
        }
    }
    [[nodiscard]] bool has_peer(const in6_addr &address) const {
        sockaddr_storage name{};
        auto &six = reinterpret_cast<sockaddr_in6 &>(name);
        six.sin6_family = AF_INET6;
        six.sin6_addr = address;
        const sockaddr_storage plain = base::without_mapping(name);
        return std::ranges::any_of(peers, [&](const base::Network &network) { return network.has(plain); });
    }
    [[nodiscard]] bool any() const { return forced[0] != '\0' || !peers.empty(); }

private:
    template <std::size_t size>
    static void read(const char *name, char (&kind)[size]) {
        if (const char *const given = secure_getenv(name); given != nullptr) {
            (void)std::snprintf(kind, size, "%s", given);
        }
    }
};
// Never destroyed: other threads may be in a call when main() returns.
const Wanted &wanted() {
    static const Wanted &read = *new Wanted;
    return read;
}
[[gnu::constructor]] void read_wanted() {
    (void)wanted();
}

// Pages are there when they are used. Forked children share them, as they share the Sockets.
BeginningOf *beginnings() {
    static BeginningOf *const made = []() -> BeginningOf * {
        if (!wanted().any()) {
            return nullptr;
        }
        void *const memory = mmap(nullptr, sizeof(BeginningOf) * most_sockets, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return memory != MAP_FAILED ? static_cast<BeginningOf *>(memory) : nullptr;
    }();
    return made;
}

bool is_peer(const in6_addr &address) {
    return wanted().forced[0] != '\0' || wanted().has_peer(address);
}

bool told(std::uint32_t place, Mirror &mirror) {
    bool is_answered = true;
    (void)sockets.with_number(place, [&](int fd, Socket &socket) {
        if (mirrors::of(socket) == &mirror) {
            is_answered = socket.answer(fd) && socket.tells_news();
        }
    });
    return is_answered;
}

bool lost(std::uint32_t place, Mirror &mirror, bool is_last) {
    bool is_settled = true;
    (void)sockets.with_number(place, [&](int fd, Socket &socket) {
        if (mirrors::of(socket) == &mirror) {
            is_settled = socket.lost_mirror(fd, is_last) && socket.tells_news();
        }
    });
    return is_settled;
}

void found(std::uint32_t place) {
    (void)sockets.with_number(place, [](int, Socket &socket) { Meeting::look_soon(socket); });
}

// A child that has only a copy of the parent's memory has no agent, and a lock that the agent held stays
// held.
void drain_until(base::Clock::time_point until) {
    if (MirrorDevice *const used = loaded; used != nullptr && !base::is_in_parents_memory()) {
        used->drain(until);
    }
}

// Each socket of this process sends through TCP from here on, and its peer is asked to. Waits for a second at
// most.
void come_back() {
    bool any = false;
    const auto for_mirrored = [](auto use) {
        sockets.for_all([&](int fd, Socket &socket) {
            if (mirrors::of(socket) != nullptr && socket.is_linked()) {
                use(fd, socket);
            }
        });
    };
    sockets.for_all([](int, Socket &socket) { Meeting::look_no_more(socket); });
    const auto until = base::Clock::now() + waits_for_answers;
    for_mirrored([&](int, Socket &socket) {
        socket.ask_back(until);
        any = true;
    });
    bool waits = any;
    while (waits && base::Clock::now() < until) {
        waits = false;
        for_mirrored([&](int, const Socket &socket) { waits = waits || !socket.is_back(); });
        if (waits) {
            (void)sched_yield();
        }
    }
    if (any) {
        drain_until(until);
    }
}

// Stands beside this library, under the name that the environment gives the device.
MirrorDevice *load(const char *name) {
    Dl_info own{};
    if (dladdr(reinterpret_cast<const void *>(&load), &own) == 0 || own.dli_fname == nullptr) {
        return nullptr;
    }
    std::string path{own.dli_fname};
    path.resize(path.rfind('/') + 1);
    path += "libcarry-device.so";
    void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
        BASE_LOG(Error, "the device %s for connections: %s: they stay in TCP", name, dlerror());
        return nullptr;
    }
    // A fork calls the last one first: the device's hooks, which stop it, come behind.
    (void)pthread_atfork(come_back, nullptr, nullptr);
    using Begin = MirrorDevice *(const char *, const Answers *);
    static constexpr Answers answers{.told = told, .lost = lost, .found = found, .is_peer = is_peer};
    auto *const begin = reinterpret_cast<Begin *>(dlsym(library, "rpma_carry_device"));
    return begin != nullptr ? begin(name, &answers) : nullptr;
}

const base::ForkHook mirrors_stay_with_parents{
    base::ForkLevel::EndedThreads, {.after_in_child = [] {
        for (std::uint32_t place = 0; place < end_of_all; ++place) {
            all[place] = nullptr;
        }
        if (MirrorDevice *const device = loaded; device != nullptr) {
            device->forget_all_in_child();
        }
    }}};

}  // namespace

namespace mirrors {

MirrorDevice *device_for(const FourTuple &connection) {
    const FourTuple::End &own = connection.ends[connection.side];
    const FourTuple::End &peers = connection.ends[1 - connection.side];
    const bool is_forced = wanted().forced[0] != '\0';
    const auto is_another_host = [&] {
        return IN6_ARE_ADDR_EQUAL(&own.address, &peers.address) == 0 && wanted().has_peer(peers.address) &&
               !is_of_this_host(peers);
    };
    if (beginnings() == nullptr || (!is_forced && !is_another_host())) {
        return nullptr;
    }
    static MirrorDevice *const chosen = load(is_forced ? wanted().forced : wanted().for_peers);
    loaded = chosen;
    return chosen;
}

MirrorDevice *device() {
    return loaded;
}

BeginningOf *beginning_of(const Socket &socket) {
    BeginningOf *const all_beginnings = beginnings();
    return all_beginnings != nullptr ? &all_beginnings[sockets.place_of(socket)] : nullptr;
}

Mirror *of(const Socket &socket) {
    return all[sockets.place_of(socket)].load(std::memory_order_acquire);
}

void set(const Socket &socket, Mirror *mirror) {
    const std::uint32_t place = sockets.place_of(socket);
    std::uint32_t end = end_of_all;
    while (end <= place && !end_of_all.compare_exchange_weak(end, place + 1)) {
    }
    if (Mirror *const before = all[place].exchange(mirror); before != nullptr) {
        loaded.load()->retire(*before);
    }
}

void drain() {
    drain_until(base::Clock::now() + waits_for_answers);
}

bool share_no_more(std::uint32_t used) {
    BeginningOf *const all_beginnings = beginnings();
    if (all_beginnings == nullptr) {
        return true;
    }
    const std::uint32_t end = std::min(used + 1, most_sockets);
    if (!base::take_own_pages(all_beginnings, sizeof(BeginningOf) * end,
                              sizeof(BeginningOf) * most_sockets)) {
        return false;
    }
    for (std::uint32_t place = 0; place < end; ++place) {
        if (sockets.number_of(place) < 0) {
            new (&all_beginnings[place]) BeginningOf{};
        }
    }
    MirrorDevice *const used_device = loaded;
    return used_device == nullptr || used_device->share_no_more();
}

}  // namespace mirrors

}  // namespace carry
