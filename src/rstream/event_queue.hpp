// SPDX-License-Identifier: BSD-3-Clause
// rstream/event_queue: the events of connections, for the endpoints that are bound to the queue. A thread
// that reads the queue serves them, so that connections advance (manual progress).
//
// An endpoint is watched while a program may wait for the queue: its device's descriptors then tell when
// there is something to serve. Being watched costs each message system calls, so other endpoints are served
// without a question.
#pragma once

#include <rdma/fi_eq.h>

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "base/mutex.hpp"
#include "rstream/fids.hpp"
#include "rstream/wait_set.hpp"

namespace rstream {

class Fabric;

class EventQueue final : public fid_eq, public Used {
public:
    // A bound endpoint. The queue calls its functions with the lock of serving held.
    class Source {
    public:
        // Takes what its device has.
        virtual void serve() = 0;
        // From now on, until as many calls of unwatch(), the device's descriptors are readable when there is
        // something to serve.
        [[nodiscard]] virtual base::Result<void> watch() = 0;
        virtual void unwatch() = 0;

    protected:
        ~Source() = default;
    };
    struct Event {
        std::uint32_t type = 0;
        fid_t fid = nullptr;
        Info info;
        int error = 0;                // why a connection failed, or 0
        std::vector<std::byte> data;  // that the peer gave as its reason
    };

    [[nodiscard]] static int open(fid_fabric *fabric, fi_eq_attr *attributes, fid_eq **eq, void *context);
    EventQueue(Fabric &fabric, fi_wait_obj wait_object, WaitSet wait_set, void *context);
    EventQueue(const EventQueue &) = delete;
    EventQueue &operator=(const EventQueue &) = delete;

    // From now on a thread that reads the queue serves the source.
    [[nodiscard]] base::Result<void> join(Source &source);
    // After this the queue does not serve the source, and has no event of the object. Returns the events that
    // nobody has read.
    std::deque<Event> leave(const Source &source, fid_t object);
    // A watched source has its device's descriptors here.
    [[nodiscard]] WaitSet &wait_set() { return wait_set_; }
    void push(Event event);
    // Returns whether a read would give an event or an error. Serves the sources if there is none.
    [[nodiscard]] bool has_event();

private:
    ~EventQueue() = default;
    static EventQueue &of(fid_eq *eq) { return static_cast<EventQueue &>(*eq); }
    [[nodiscard]] int close();
    [[nodiscard]] int control(int command, void *argument);
    [[nodiscard]] ssize_t read(std::uint32_t *event, void *buffer, std::size_t size, std::uint64_t flags);
    [[nodiscard]] ssize_t read_waiting(std::uint32_t *event, void *buffer, std::size_t size, int timeout_ms,
                                       std::uint64_t flags);
    [[nodiscard]] ssize_t read_error(fi_eq_err_entry &entry, std::uint64_t flags);
    class Waiting;
    [[nodiscard]] base::Result<void> begin_wait() REQUIRES(serving_);
    void end_wait() REQUIRES(serving_);
    void serve_sources();
    void pop() REQUIRES(mutex_);

    static fi_ops fid_ops;
    static fi_ops_eq eq_ops;

    const Use<Fabric> fabric_;  // endpoints and listeners use the queue while they are bound
    const fi_wait_obj wait_object_;
    base::Mutex serving_;  // taken before the lock of any shard
    std::vector<Source *> sources_ GUARDED_BY(serving_);
    int waits_ GUARDED_BY(serving_) = 0;  // of threads, and one for ever once the program has a descriptor
    bool has_descriptor_ GUARDED_BY(serving_) = false;
    base::Mutex mutex_;  // taken after the lock of any shard
    WaitSet wait_set_;   // its light needs mutex_
    std::deque<Event> events_ GUARDED_BY(mutex_);
    std::vector<std::byte> last_data_ GUARDED_BY(mutex_);  // of the error that was read last
};

}  // namespace rstream
