// SPDX-License-Identifier: BSD-3-Clause
// rsocket/repoll: waiting for its members.
#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "rsocket/poll.hpp"
#include "rsocket/repoll.hpp"

namespace rsockets {

// One wait. A look takes the events that it finds, so only one look of a wait finds any.
class Repoll::Round {
public:
    Round(Repoll &repoll, std::span<epoll_event> events, bool sleeps)
        : repoll_{repoll}, events_{events}, kernel_{sleeps ? Kernel::Later : Kernel::Now} {}

    [[nodiscard]] Result<int> look() {
        if (found_ && *found_ == 0) {
            found_ = repoll_.look(events_, std::exchange(kernel_, Kernel::Now));
        }
        return found_;
    }
    [[nodiscard]] Result<void> sleep(const std::shared_ptr<Waiter> &waiter, Deadline deadline) {
        Sleep sleep{waiter};
        const AfterSleep ends{[&] { repoll_.end_sleep(sleep); }};
        auto slept = repoll_.begin_sleep(sleep);
        kernel_ = Kernel::Later;
        if (slept && look().value_or(-1) == 0) {
            slept = sleep.until(deadline);
            kernel_ = sleep.was_ended_by(repoll_.fd()) ? Kernel::Now : Kernel::HasNothing;
        }
        return slept;
    }

private:
    Repoll &repoll_;
    const std::span<epoll_event> events_;
    Result<int> found_ = 0;
    Kernel kernel_;
};

Result<int> Repoll::wait(std::span<epoll_event> events, Deadline deadline) {
    const bool sleeps = !deadline || *deadline > base::Clock::now();
    Round round{*this, events, sleeps};
    auto found = wait_in_rounds(round, deadline);
    if (!sleeps && !is_watched_outside_ && !closed_) {
        begin_outside();
    }
    const base::Lock lock{mutex_};
    if (!ready_.empty()) {
        (void)wake_one();  // another thread, for what this one leaves
    }
    outside_news_.set(is_watched_outside_ && !ready_.empty());
    return found;
}

Result<void> Repoll::begin_sleep(Sleep &sleep) {
    if (is_watched_outside_) {
        end_outside();
    }
    sleep.add({.fd = outer_.get(), .events = POLLIN, .revents = 0});
    {
        const base::Lock lock{mutex_};
        sleepers_.push_back(sleep.waiter());
    }
    const base::SharedLock lock{shards_mutex_};
    for (const Followed &followed : shards_) {
        if (auto joined = sleep.join(followed.shard); !joined) {
            return joined;
        }
    }
    return {};
}

void Repoll::end_sleep(const Sleep &sleep) {
    const base::Lock lock{mutex_};
    if (const auto found = std::ranges::find(sleepers_, sleep.waiter()); found != sleepers_.end()) {
        sleepers_.erase(found);
    }
}

// ---- what is ready ----

// A look at the shards may give only the completions that a device had put aside, and the next look the new
// ones. So this goes on while a shard has completions, even for no member, up to most_rounds times.
Result<int> Repoll::look(std::span<epoll_event> events, Kernel kernel) {
    constexpr int most_rounds = 8;
    if (closed_) {
        return base::failure(EBADF);
    }
    const bool asks = kernel_is_due_.exchange(false) || kernel == Kernel::Now;
    if (asks) {
        ask_kernel();
    }
    const bool asks_others = asks && has_others_;
    for (int round = 1;; ++round) {
        const bool any = serve_shards();
        const auto taken = take(events, asks_others);
        if (!taken || *taken != 0 || !any || round == most_rounds) {
            kernel_is_due_ = !asks && kernel == Kernel::Later && taken && *taken != 0;
            return taken;
        }
    }
}

Result<int> Repoll::take(std::span<epoll_event> events, bool asks_others) {
    std::size_t count = 0;
    // Rsockets and other descriptors take turns in being first, so that neither kind keeps the other from
    // being told when the program asks for few events. A look that does not ask for the others is no turn.
    const bool others_first = asks_others && others_first_.exchange(!others_first_);
    if (others_first) {
        count += take_others(events);
    }
    const auto taken = take_ready(events.subspan(count));
    if (!taken && count == 0) {
        return std::unexpected{taken.error()};
    }
    count += taken.value_or(0);
    if (asks_others && !others_first && count < events.size()) {
        count += take_others(events.subspan(count));
    }
    return static_cast<int>(count);
}

// Takes the events of the members that are no rsockets. inner_, which the kernel may tell too, has data that
// is no program's: the address of this object. When the kernel has told as much as was asked for, and nothing
// else, the others are behind it.
std::size_t Repoll::take_others(std::span<epoll_event> events) {
    const auto most = std::min<std::size_t>(events.size(), INT32_MAX);
    for (int round = 1;; ++round) {
        const int count = epoll_wait(outer_.get(), events.data(), static_cast<int>(most), 0);
        const auto told = events.first(static_cast<std::size_t>(std::max(count, 0)));
        const auto inner =
            std::ranges::remove_if(told, [this](const epoll_event &one) { return one.data.ptr == this; });
        const std::size_t taken = told.size() - inner.size();
        if (taken != 0 || told.size() < most || round == 2) {
            return taken;
        }
    }
}

// Asks the kernel about inner_, and queues the entries that it names.
void Repoll::ask_kernel() {
    constexpr int at_once = 64;
    {
        const base::Lock lock{mutex_};
        if (!has_inner_ || (watched_.empty() && !is_watched_outside_)) {
            return;
        }
    }
    std::array<epoll_event, at_once> events;
    const int count = epoll_wait(inner_.get(), events.data(), at_once, 0);
    for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        std::shared_ptr<Entry> entry;
        {
            const base::Lock lock{mutex_};
            const auto known = watched_.find(fd);
            entry = known != watched_.end() ? known->second : nullptr;
        }
        if (entry != nullptr) {
            (void)queue(*entry);
        }
        const base::SharedLock lock{shards_mutex_};
        for (const Followed &followed : shards_) {
            if (!followed.watched.empty() && followed.watched.back() == fd) {
                followed.shard->events_came();
            }
        }
    }
}

bool Repoll::serve_shards() {
    bool any = false;
    const base::SharedLock lock{shards_mutex_};
    for (const Followed &followed : shards_) {
        const base::Lock in_shard{followed.shard->mutex()};
        if (!followed.watched.empty() && followed.shard->device().is_of_kernel()) {
            std::vector<int> same;
            (void)followed.shard->begin_watch(same, true);
        }
        any = followed.shard->serve() || any;
    }
    return any;
}

// Checks each entry that is in line now once, however fast others come.
Result<std::size_t> Repoll::take_ready(std::span<epoll_event> events) {
    std::size_t left = 0;
    {
        const base::Lock lock{mutex_};
        left = ready_.size();
    }
    std::size_t count = 0;
    for (; left != 0 && count < events.size(); --left) {
        const auto entry = next_in_line();
        if (entry == nullptr) {
            break;
        }
        const auto is_ready = check(*entry, events[count]);
        if (!is_ready) {
            return count != 0 ? Result<std::size_t>{count} : std::unexpected{is_ready.error()};
        }
        count += *is_ready ? 1 : 0;
    }
    return count;
}

// Takes the next entry out of the line. The caller checks it.
std::shared_ptr<RepollEntry> Repoll::next_in_line() {
    const base::Lock lock{mutex_};
    if (ready_.empty()) {
        return nullptr;
    }
    auto entry = ready_.front()->shared_from_this();
    entry->out_of_line.splice(entry->out_of_line.end(), ready_, entry->place);
    entry->is_checked = true;
    entry->is_changed = false;
    entry->is_modified = false;
    return entry;
}

Result<bool> Repoll::check(Entry &entry, epoll_event &told) {
    const auto socket = entry.socket();  // perhaps the last to have it, so that it goes after the lock
    constexpr int most_rounds = 4;
    epoll_event wanted{};
    Result<void> prepared;
    short found = 0;
    base::Lock lock{mutex_};
    // A socket that has changed its state meanwhile, perhaps by this call, is waited for on other
    // descriptors.
    for (int round = 1; round == 1 || (prepared && found == 0 && entry.is_changed && round <= most_rounds);
         ++round) {
        entry.is_changed = false;
        wanted = entry.wanted;
        lock.unlock();
        if (socket != nullptr) {
            prepared = prepare(entry, *socket, wanted.events);
            found = prepared ? socket->readiness(poll_events(wanted.events)) : short{0};
        }
        lock.lock();
    }
    entry.is_checked = false;
    if (entry.is_removed) {
        lock.unlock();
        release(entry, socket.get());
        return false;
    }
    const bool is_ready = found != 0 && (found & POLLNVAL) == 0;
    // EPOLL_CTL_MOD may have armed it again meanwhile.
    entry.is_disarmed = is_ready && (wanted.events & EPOLLONESHOT) != 0 && !entry.is_modified;
    const bool stays = is_ready && (wanted.events & (EPOLLET | EPOLLONESHOT)) == 0;
    if (!entry.is_disarmed && (stays || entry.is_changed || !prepared)) {
        ready_.splice(ready_.end(), entry.out_of_line);
    }
    if (!prepared) {
        return std::unexpected{prepared.error()};
    }
    if (is_ready) {
        told = wanted;
        told.events = static_cast<std::uint32_t>(found);
    }
    return is_ready;
}

}  // namespace rsockets
