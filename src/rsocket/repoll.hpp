// SPDX-License-Identifier: BSD-3-Clause
// rsocket/repoll: a set of rsockets and other descriptors that are waited for together, as epoll(7).
//
//     outer_, which is    ──┬─ descriptors that are no rsockets, as the program wants them
//     the program's         └─ inner_, once ──┬─ watched_       of rsockets in no shard (AnySocket::watch)
//                              it has an      ├─ outside_news_  there are members to be    ┐ while another
//                              rsocket        │                 looked at                  │ loop may wait
//                                             └─ shards_'                                  ┘ for outer_
//
// So a set without rsockets is one of the kernel's, and may be in as many others.
//
// A thread that notices a change of an rsocket puts it into ready_ (Watcher). A wait looks at those, not at
// all that are there, and leaves those in it that are level-triggered and ready. A thread that sleeps is
// woken as for any rsocket (Sleep).
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <list>
#include <unordered_map>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "base/readable.hpp"
#include "base/shared_mutex.hpp"
#include "rsocket/any_socket.hpp"
#include "rsocket/repoll_entry.hpp"

namespace rsockets {

// Any number of threads may call. The caller holds no lock of a socket or shard.
class Repoll final : public base::Inheritable,
                     public EntryOwner,
                     public std::enable_shared_from_this<Repoll> {
public:
    // flags is 0 or EPOLL_CLOEXEC.
    [[nodiscard]] static Result<std::shared_ptr<Repoll>> create(int flags);
    Repoll(base::Fd outer, base::Fd inner, base::Readable outside_news);
    Repoll(const Repoll &) = delete;
    Repoll &operator=(const Repoll &) = delete;
    ~Repoll();

    [[nodiscard]] int fd() const { return outer_.get(); }
    // Does what epoll_ctl(2) does for EPOLL_CTL_ADD, EPOLL_CTL_MOD and EPOLL_CTL_DEL. socket is the rsocket
    // of fd, and null when fd is none.
    [[nodiscard]] Result<void> control(int operation, int fd, const std::shared_ptr<AnySocket> &socket,
                                       epoll_event *event);
    // Waits as epoll_wait(2), and returns how many events there are. EBADF: the repoll was closed.
    [[nodiscard]] Result<int> wait(std::span<epoll_event> events, Deadline deadline);
    // The caller has taken it out of the table.
    void close();

private:
    using Entry = RepollEntry;
    struct Followed {
        std::shared_ptr<stream::Shard> shard;
        std::size_t members;
        std::vector<int> watched;  // in inner_; the last one tells of events
    };
    class Round;
    // Says whether a look asks the kernel about outer_ and inner_: now; or later, because the sleep that
    // follows a look in vain does, and otherwise the next look; or not at all, because a sleep has.
    enum class Kernel : std::uint8_t { Now, Later, HasNothing };

    [[nodiscard]] Result<void> add(int fd, const std::shared_ptr<AnySocket> &socket, const epoll_event &event)
        REQUIRES(control_mutex_);
    [[nodiscard]] Result<void> modify(Entry &entry, const epoll_event &event) REQUIRES(control_mutex_);
    void remove(int fd) REQUIRES(control_mutex_);
    void forget(const Entry &entry) override EXCLUDES(control_mutex_);
    // The thread that checks the entry calls these, or the one that removes it while no thread checks it.
    [[nodiscard]] Result<void> prepare(Entry &entry, AnySocket &socket, std::uint32_t events);
    [[nodiscard]] Result<void> watch_kernels(Entry &entry, std::span<const pollfd> descriptors);
    void follow(Entry &entry, const std::shared_ptr<stream::Shard> &shard);
    void release(Entry &entry, AnySocket *socket);

    bool queue(Entry &entry) override EXCLUDES(mutex_);
    bool put_in_line(Entry &entry) REQUIRES(mutex_);
    bool wake_one() REQUIRES(mutex_);
    // Wakes all threads that sleep.
    void wake_sleepers() EXCLUDES(mutex_);

    [[nodiscard]] Result<int> look(std::span<epoll_event> events, Kernel kernel);
    void ask_kernel();
    bool serve_shards();
    [[nodiscard]] Result<int> take(std::span<epoll_event> events, bool asks_others);
    [[nodiscard]] std::size_t take_others(std::span<epoll_event> events);
    [[nodiscard]] Result<std::size_t> take_ready(std::span<epoll_event> events);
    [[nodiscard]] std::shared_ptr<Entry> next_in_line();
    // Looks at the entry's rsocket. Returns whether `told` has something for the program.
    [[nodiscard]] Result<bool> check(Entry &entry, epoll_event &told);
    // Makes ready what the sleep needs. Anything that comes from here on ends the sleep.
    [[nodiscard]] Result<void> begin_sleep(Sleep &sleep);
    void end_sleep(const Sleep &sleep);
    void begin_outside();
    void end_outside();
    void watch_outside(Followed &followed);
    void unwatch_outside(Followed &followed);

    const base::Fd outer_;
    const base::Fd inner_;
    std::atomic<bool> has_inner_{false};
    std::atomic<bool> has_others_{false};
    std::atomic<bool> closed_{false};
    std::atomic<bool> others_first_{false};
    std::atomic<bool> kernel_is_due_{false};  // the last look found something, and left the kernel for later
    // Says whether another loop, poll(2) for instance, may wait for outer_. It may until a thread sleeps in
    // wait(), and again after a wait() that was not to sleep. Keeping the shards' descriptors in inner_ takes
    // time, which a program that sleeps in wait() does not pay.
    std::atomic<bool> is_watched_outside_{true};

    base::Mutex control_mutex_;  // before all others, also a socket's
    std::unordered_map<int, std::shared_ptr<Entry>> members_ GUARDED_BY(control_mutex_);
    base::SharedMutex shards_mutex_;  // before a shard's
    std::vector<Followed> shards_ GUARDED_BY(shards_mutex_);
    base::Mutex mutex_;  // after a socket's; the last
    std::list<Entry *> ready_ GUARDED_BY(mutex_);
    std::unordered_map<int, std::shared_ptr<Entry>> watched_ GUARDED_BY(mutex_);
    std::vector<std::shared_ptr<Waiter>> sleepers_ GUARDED_BY(mutex_);
    base::Readable outside_news_ GUARDED_BY(mutex_);
};

}  // namespace rsockets
