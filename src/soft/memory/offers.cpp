// SPDX-License-Identifier: BSD-3-Clause
#include "soft/memory/offers.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cinttypes>
#include <cstdlib>
#include <iterator>
#include <new>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/multipath.hpp"
#include "base/shared_value.hpp"
#include "soft/ground/limits.hpp"
#include "soft/memory/peer_thread.hpp"

namespace soft {

namespace {

// Memcheck does not see what other processes write, and would report that the program reads it.
bool is_under_memcheck() {
    static const bool once = [] {
        const char *const preloads = getenv("LD_PRELOAD");
        return preloads != nullptr &&
               std::string_view{preloads}.find("/vgpreload_memcheck") != std::string_view::npos;
    }();
    return once;
}

}  // namespace

constinit base::LastingMutex Offers::mutex;

const Offers::Held Offers::held_while_forking{base::ForkLevel::SoftMemory};

// All offers of regions that connections have made, for the thread that deregisters one.
Offers::All &Offers::all_offers() {
    static auto &all = *new All;
    return all;
}

void Offers::begin(const Boards &boards, const std::atomic<pid_t> &thread, int socket, pid_t process) {
    if (boards.own != nullptr && !is_under_memcheck()) {
        const base::Lock lock{mutex};
        boards_ = boards;
        thread_ = &thread;
        socket_ = socket;
        process_ = process;
    }
}

void Offers::end() {
    if (boards_.own != nullptr && !inherited()) {
        withdraw_all();
        const base::Lock lock{mutex};
        left_.clear();
        if (std::exchange(has_left_, false)) {
            for (auto &[region, place] : all_offers()) {
                place.offers = place.offers == this ? nullptr : place.offers;
            }
        }
        boards_ = {};
    }
}

void Offers::offer_now(const MemoryRegion &region, const std::atomic<unsigned> &withheld) {
    const pid_t thread = thread_->load(std::memory_order_relaxed);
    if (thread == 0) {
        return;
    }
    const base::Lock lock{mutex};
    auto *const offered_already = std::ranges::find(offered_, &region, &Offered::region);
    if (offered_already != offered_.end() &&
        offered_already->among_all->second.state == Place::State::Withdrawn) {
        return;  // a later access offers it again
    }
    base::set_shared(last_offered_, region.rkey);
    auto *const free = std::ranges::find(offered_, nullptr, &Offered::region);
    // A read of a region that can be made durable makes all earlier writes durable, so the target serves it.
    const unsigned served = region.durable != nullptr ? unsigned{IBV_ACCESS_REMOTE_READ} : 0U;
    const unsigned offered = region.access & ~(served | withheld.load(std::memory_order_relaxed));
    if (offered_already != offered_.end() || free == offered_.end() ||
        (offered & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)) == 0) {
        return;
    }
    const auto number = static_cast<std::size_t>(free - offered_.begin());
    try {
        if (region.durable != nullptr) {
            left_.reserve(left_.size() + Board::most_offers);
        }
        const auto among_all = all_offers().emplace(&region, Place{.offers = this, .number = number});
        *free = {.region = &region, .durable = region.durable, .among_all = among_all};
    } catch (const std::bad_alloc &) {
        return;  // the peer goes on as before
    }
    base::set_shared(region.offered, true);
    Board::Offer &place = boards_.own->offers[number];
    place.rights.store(offered, std::memory_order_relaxed);
    place.begin.store(region.iova, std::memory_order_relaxed);
    place.length.store(region.length, std::memory_order_relaxed);
    place.place.store(reinterpret_cast<std::uintptr_t>(region.addr), std::memory_order_relaxed);
    place.registration.store(region.registration, std::memory_order_relaxed);
    boards_.own->peers_place.store(reinterpret_cast<std::uintptr_t>(boards_.peers),
                                   std::memory_order_relaxed);
    boards_.own->thread.store(thread, std::memory_order_relaxed);
    place.key.store(region.rkey, std::memory_order_release);
    boards_.own->changes.fetch_add(1, std::memory_order_release);
}

void Offers::withdraw(std::uint32_t key) {
    withdraw_those([key](const MemoryRegion &region) { return region.rkey == key; });
}

void Offers::withdraw_all() {
    base::set_shared(last_offered_, 0);
    withdraw_those([](const MemoryRegion &) { return true; });
}

// The looks at accesses that have to end. An access takes as long as one copy
// (DirectAccess::most_mapped_bytes), and ends when the peer does not run. A peer that waits in the kernel's
// copy, or whose board has any number, is not waited for without end. No thread has the lock between two
// looks, so that the other connections of the process go on.
class Offers::Looks {
public:
    [[nodiscard]] bool are_first() const { return count_ == 1; }
    [[nodiscard]] bool are_last() const { return are_last_; }
    [[nodiscard]] bool ask_kernel() const { return are_last_ || count_ % looks_without_kernel == 0; }
    void next() {
        sched_yield();
        ++count_;
        are_last_ = base::Clock::now() >= until_;
    }

private:
    static constexpr unsigned looks_without_kernel = 64;
    const base::Clock::time_point until_ = base::Clock::now() + limits::in_force().access_timeout;
    unsigned count_ = 1;
    bool are_last_ = false;
};

bool Offers::withdraw_region(const MemoryRegion &region) {
    if (!region.offered.load(std::memory_order_acquire) || region.inherited()) {
        return true;
    }
    for (Looks looks;; looks.next()) {
        const base::Lock lock{mutex};
        bool all_ended = true;
        auto [next, last] = all_offers().equal_range(&region);
        while (next != last) {
            const auto place = next++;
            take_away(place->second);
            const bool ended = let_go(place, looks);
            all_ended = all_ended && ended;
        }
        if (all_ended || looks.are_last()) {
            return all_ended;
        }
    }
}

// Another thread may offer a region again, or for the first time, between two looks; that offer stands.
template <typename Is>
void Offers::withdraw_those(Is is) {
    for (Looks looks;; looks.next()) {
        const base::Lock lock{mutex};
        bool all_ended = true;
        for (const Offered &offered : offered_) {
            if (offered.region == nullptr || !is(*offered.region)) {
                continue;
            }
            const auto place = offered.among_all;
            if (looks.are_first()) {
                take_away(place->second);
            }
            if (place->second.state == Place::State::Withdrawn) {
                const bool ended = let_go(place, looks);
                all_ended = all_ended && ended;
            }
        }
        if (all_ended || looks.are_last()) {
            return;
        }
    }
}

// The order with DirectAccess::begin_access() is sequentially consistent: either the peer sees that the key
// is gone, or this thread sees the peer's access.
void Offers::take_away(Place &place) {
    if (place.state == Place::State::Offered) {
        place.offers->mutex.assert_held();
        place.offers->boards_.own->offers[place.number].key.store(0, std::memory_order_seq_cst);
        place.process = place.offers->process_;
        place.state = Place::State::Withdrawn;
    }
}

// Forgets the place of an offer that is withdrawn, and returns true, when its last access has ended. After
// the last look the place stays, until the region is deregistered.
bool Offers::let_go(All::iterator place, const Looks &looks) {
    const bool ended = has_ended(place->second, looks.ask_kernel());
    if (!ended && !looks.are_last()) {
        return false;
    }
    if (place->second.state == Place::State::Withdrawn) {
        place->second.state = Place::State::Left;
        Offers &offers = *place->second.offers;
        offers.mutex.assert_held();
        offers.keep_written(place->second.number);
        offers.offered_[place->second.number] = {};
        offers.has_left_ = offers.has_left_ || !ended;
    }
    if (ended) {
        all_offers().erase(place);
    } else {
        BASE_LOG(Error,
                 "process %d has not finished an access to registered memory that it may no longer access; "
                 "the memory cannot be deregistered until it has",
                 place->second.process);
    }
    return ended;
}

// The peer's program may never ask for these bytes. Those that deregistering has made durable are forgotten.
void Offers::keep_written(std::size_t number) {
    Left range{};
    if (offered_[number].durable != nullptr && take_written(number, range)) {
        std::erase_if(left_, [](const Left &known) { return known.durable->closed_durable(); });
        left_.push_back(std::move(range));  // there is room, since the offer was made
    }
}

// Returns whether the peer has closed its socket, as the kernel does for a process that ends. A thread that
// accesses memory keeps its process's sockets open. This end may have shut its own side down. A reset may
// come from somebody else, so it counts only where the peer's process has no number here. Of MPTCP the kernel
// tells the state of one path only.
bool Offers::peer_is_gone() const {
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (base::is_multipath(socket_) || getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
        return false;
    }
    const bool is_reset = info.tcpi_state == TCP_CLOSE;
    return is_reset ? process_ <= 0
                    : info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_FIN_WAIT1 &&
                          info.tcpi_state != TCP_FIN_WAIT2;
}

// Returns whether no access to an offer that is withdrawn is under way. To ask the kernel takes longer.
bool Offers::has_ended(Place &place, bool asks_kernel) {
    const Offers *const offers = place.offers;
    if (offers != nullptr) {
        offers->mutex.assert_held();
        place.access = Board::Access::of(offers->boards_.peers->access.load(std::memory_order_seq_cst));
        if (place.access.offer != place.number + 1) {
            return true;
        }
    }
    return asks_kernel &&
           ((offers != nullptr && offers->peer_is_gone()) || has_let_go(place.process, place.access));
}

bool Offers::take_written(std::size_t number, Left &range) const {
    Board::Written &written = boards_.peers->written[number];
    const std::uint64_t from = written.from.exchange(0, std::memory_order_acq_rel);
    const std::uint64_t to = written.to.exchange(0, std::memory_order_acq_rel);
    if (from == 0 && to == 0) {
        return false;
    }
    const MemoryRegion &region = *offered_[number].region;
    const std::uint64_t begin = from == 0 ? 0 : region.length - std::min<std::uint64_t>(from, region.length);
    const std::uint64_t end = to == 0 ? region.length : std::min<std::uint64_t>(to, region.length);
    auto *const memory = static_cast<std::byte *>(region.addr);
    range = {
        .durable = offered_[number].durable, .begin = memory + begin, .end = memory + std::max(begin, end)};
    return true;
}

void Offers::note_written(Durability &durability) {
    if (boards_.own == nullptr) {
        return;
    }
    const base::Lock lock{mutex};
    for (std::size_t number = 0; number < offered_.size(); ++number) {
        Left range{};
        if (offered_[number].durable != nullptr && take_written(number, range)) {
            durability.note(range.durable, range.begin, range.end);
        }
    }
    for (const Left &range : left_) {
        durability.note(range.durable, range.begin, range.end);
    }
    left_.clear();
}

}  // namespace soft
