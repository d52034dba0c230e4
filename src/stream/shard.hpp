// SPDX-License-Identifier: BSD-3-Clause
// stream/shard: the objects that the streams of one thread share: queues for their completions, one queue
// for their events, and one lock, which guards all of them. The thread that began the streams makes them;
// any thread may use them. A stream may also have a shard of its own.
//
//     stream ─┐
//     stream ─┼─► lane (a completion queue) ─┐
//     stream ─┘   lane ──────────────────────┼──► serve(), by whoever calls; asleep on the descriptors of
//     all streams ──► events ────────────────┘    all these: one thread at a time
//
// The queues are not armed, so no thread is told of a completion. A thread that finds nothing sleeps on the
// device's descriptors, and serves the device when one of them is readable. Other threads sleep on a
// descriptor of their own. The first thread wakes them for their streams, or when it leaves and one of them
// takes its place.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/small_mutex.hpp"
#include "stream/device.hpp"

namespace stream {

// One stream, as its shard sees it. The shard calls all functions with its lock held.
class Member {
public:
    virtual void take_completion(const ibv_wc &completion) = 0;
    virtual void take_request_event() = 0;
    virtual void take_event(rpma_conn_event event) = 0;
    // The shard calls this after it has taken all completions and events, if any was for this stream.
    virtual void go_on() = 0;

protected:
    ~Member() = default;

private:
    friend class Shard;
    bool touched_ = false;
    Member *next_touched_ = nullptr;
};

// A thread that sleeps and can be woken.
class Sleeper {
public:
    virtual void wake() = 0;

protected:
    ~Sleeper() = default;
};

// The longest message of a stream, in bytes. With its headers and the word it is one segment of TCP on
// loopback (65483 bytes). Bytes beyond the segment would be a second one, which a congestion control that
// paces (bbr) holds back by a timer: that costs more than to send the message.
inline constexpr std::size_t longest_message = 61440;

class Shard {
public:
    // Returns this thread's shard for a device. In a forked child it is another than before.
    [[nodiscard]] static base::Result<std::shared_ptr<Shard>> of_this_thread(const Device &device);
    // Makes a shard that is no thread's: the caller alone serves it.
    [[nodiscard]] static base::Result<std::shared_ptr<Shard>> make(const Device &device);
    Shard(const Device &device, Events events);
    ~Shard() = default;
    Shard(const Shard &) = delete;
    Shard &operator=(const Shard &) = delete;

    // The caller also holds it in all calls of the streams.
    [[nodiscard]] base::SmallMutex &mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }
    [[nodiscard]] const Device &device() const { return device_; }
    // The thread that it was made for, as the kernel numbers it.
    [[nodiscard]] std::uint32_t thread() const { return thread_; }
    [[nodiscard]] rpma_events *events() const { return events_.get(); }

    // A place for one stream, in a queue that has room for all its completions.
    class Lane;
    [[nodiscard]] base::Result<Lane *> join(std::uint32_t completions) REQUIRES(mutex_);
    static void leave(Lane &lane, std::uint32_t completions);
    [[nodiscard]] static rpma_cq *queue_of(const Lane &lane);
    // Completions of the connection with that number go to the stream until the caller detaches it, after
    // the end of the connection.
    static void attach(Lane &lane, std::uint32_t number, Member &member);
    void detach(Lane &lane, std::uint32_t number) REQUIRES(mutex_);
    // Adds `streams`, which may be negative, to the number of streams that expect an event. The shard looks
    // for events only while one does: a look costs a system call.
    void expect_events(int streams) REQUIRES(mutex_) {
        expectations_ += streams > 0 ? 1 : 0;
        expected_.store(expected_.load(std::memory_order_relaxed) + streams, std::memory_order_relaxed);
        expected_anywhere.fetch_add(streams, std::memory_order_relaxed);
    }
    // Returns whether a stream of any shard expects an event.
    [[nodiscard]] static bool any_expects() { return expected_anywhere.load(std::memory_order_relaxed) != 0; }
    // This thread's shards in which a stream expects an event. Its program may have begun to connect in a
    // call that did not block, and may wait for something else now: a thread that waits for anything serves
    // these.
    [[nodiscard]] static std::vector<std::shared_ptr<Shard>> expecting();
    // Serves them. Returns whether there was anything. Takes their locks.
    static bool serve_expecting() { return any_expects() && serve_those_that_expect(); }

    // A stream puts a message together here. The bytes stay until the caller releases the lock.
    [[nodiscard]] std::span<std::byte, longest_message> scratch() REQUIRES(mutex_) { return scratch_; }

    // Hands over what has come for all streams, without waiting. Returns whether there was anything.
    bool serve() REQUIRES(mutex_);

    // Between these two calls the thread sleeps on the descriptors that begin_wait() adds, the last of which
    // is the events', and may be woken. Where another thread has them begin_wait() adds none. The caller
    // looks once more, with serve(), before it sleeps.
    [[nodiscard]] base::Result<void> begin_wait(Sleeper &thread, std::vector<int> &descriptors)
        REQUIRES(mutex_);
    void end_wait(Sleeper &thread) REQUIRES(mutex_);
    // Between these two calls the caller calls serve() when one of the descriptors is readable, also while no
    // thread sleeps; the last descriptor is the events'. It may begin again before it ends: there may be more
    // descriptors by then, and a device of the kernel makes them readable once each time.
    [[nodiscard]] base::Result<void> begin_watch(std::vector<int> &descriptors, bool again) REQUIRES(mutex_);
    void end_watch() REQUIRES(mutex_);
    // The descriptor of the events was readable. Needs no lock.
    void events_came() { events_came_.store(true, std::memory_order_relaxed); }

private:
    struct Event {
        Member *member;
        bool of_request;
        rpma_conn_event what;
    };
    [[nodiscard]] bool grow(Lane &lane, std::uint32_t completions) REQUIRES(mutex_);
    [[nodiscard]] base::Result<Lane *> open_lane(std::uint32_t completions) REQUIRES(mutex_);
    [[nodiscard]] static bool serve_those_that_expect();
    void serve(Lane &lane) REQUIRES(mutex_);
    bool serve_with_events() REQUIRES(mutex_);
    void take_events() REQUIRES(mutex_);
    void touch(Member &member) REQUIRES(mutex_);
    void forget_touched(const Member &member) REQUIRES(mutex_);
    bool tell_touched() REQUIRES(mutex_);
    [[nodiscard]] base::Result<void> arm(std::vector<int> &descriptors) REQUIRES(mutex_);
    void disarm() REQUIRES(mutex_);

    const Device &device_;
    const std::uint32_t thread_;
    const Events events_;
    base::SmallMutex mutex_;
    std::vector<std::unique_ptr<Lane>> lanes_ GUARDED_BY(mutex_);
    std::atomic<int> expected_{0};                  // written with the lock held
    unsigned expectations_ GUARDED_BY(mutex_) = 0;  // how often a stream has begun to expect an event
    static inline std::atomic<int> expected_anywhere{0};
    std::uint32_t serves_ GUARDED_BY(mutex_) = 0;
    std::atomic<bool> events_came_{false};
    // serve() puts here what it found. It is a member so that serve() allocates nothing.
    std::vector<Event> found_ GUARDED_BY(mutex_);
    Member *touched_ GUARDED_BY(mutex_) = nullptr;  // the first of a list
    std::array<std::byte, longest_message> scratch_
        GUARDED_BY(mutex_);  // not initialised, so that only used pages take memory
    int watches_ GUARDED_BY(mutex_) = 0;
    bool events_waited_for_ GUARDED_BY(mutex_) = false;
    int events_fd_ GUARDED_BY(mutex_) = -1;
    // The thread that sleeps in the device, and the others that sleep, the first of which is next.
    Sleeper *in_device_ GUARDED_BY(mutex_) = nullptr;
    unsigned nested_waits_ GUARDED_BY(mutex_) = 0;  // of the same thread, in handlers of signals
    std::vector<Sleeper *> others_ GUARDED_BY(mutex_);
};

}  // namespace stream
