// SPDX-License-Identifier: BSD-3-Clause
// rstream/event_queue: see the header.
#include "rstream/event_queue.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "rstream/fabric.hpp"

namespace rstream {

namespace {

constexpr std::size_t served_at_once = 64;

}  // namespace

fi_ops EventQueue::fid_ops{
    .size = sizeof(fi_ops),
    .close = [](fid_t object) { return object_of<EventQueue, fid_eq>(object).close(); },
    .bind = absent,
    .control =
        [](fid_t object, int command, void *argument) {
            return object_of<EventQueue, fid_eq>(object).control(command, argument);
        },
    .ops_open = absent,
    .tostr = absent,
    .ops_set = absent,
};

fi_ops_eq EventQueue::eq_ops{
    .size = sizeof(fi_ops_eq),
    .read = [](fid_eq *eq, std::uint32_t *event, void *buffer, std::size_t size,
               std::uint64_t flags) { return of(eq).read(event, buffer, size, flags); },
    .readerr = [](fid_eq *eq, fi_eq_err_entry *entry,
                  std::uint64_t flags) { return of(eq).read_error(*entry, flags); },
    .write = absent,
    .sread = [](fid_eq *eq, std::uint32_t *event, void *buffer, std::size_t size, int timeout,
                std::uint64_t flags) { return of(eq).read_waiting(event, buffer, size, timeout, flags); },
    .strerror = [](fid_eq *, int number, const void *, char *buffer, std::size_t size) -> const char * {
        const char *const text = fi_strerror(number);
        if (buffer != nullptr && size != 0) {
            *std::copy_n(text, std::min(std::strlen(text), size - 1), buffer) = '\0';
            return buffer;
        }
        return text;
    },
};

int EventQueue::open(fid_fabric *fabric, fi_eq_attr *attributes, fid_eq **eq, void *context) {
    const fi_wait_obj wanted = attributes != nullptr ? attributes->wait_obj : FI_WAIT_UNSPEC;
    if (wanted != FI_WAIT_NONE && wanted != FI_WAIT_UNSPEC && wanted != FI_WAIT_FD) {
        return -FI_ENOSYS;
    }
    return guarded([&] {
        auto wait_set = WaitSet::make();
        if (!wait_set) {
            return -wait_set.error().number;
        }
        *eq = new EventQueue{Fabric::of(fabric), wanted, std::move(*wait_set), context};
        return 0;
    });
}

EventQueue::EventQueue(Fabric &fabric, fi_wait_obj wait_object, WaitSet wait_set, void *context)
    : fid_eq{.fid = {.fclass = FI_CLASS_EQ, .context = context, .ops = &fid_ops}, .ops = &eq_ops},
      fabric_{fabric},
      wait_object_{wait_object},
      wait_set_{std::move(wait_set)} {}

int EventQueue::close() {
    if (is_used()) {
        return -FI_EBUSY;
    }
    delete this;
    return 0;
}

int EventQueue::control(int command, void *argument) {
    if (command != FI_GETWAIT && command != FI_GETWAITOBJ) {
        return -FI_ENOSYS;
    }
    if (argument == nullptr) {
        return -FI_EINVAL;
    }
    if (command == FI_GETWAITOBJ) {
        *static_cast<fi_wait_obj *>(argument) = wait_object_ == FI_WAIT_NONE ? FI_WAIT_NONE : FI_WAIT_FD;
        return 0;
    }
    if (wait_object_ == FI_WAIT_NONE) {
        return -FI_ENODATA;
    }
    *static_cast<int *>(argument) = wait_set_.fd();
    return guarded([this] {
        const base::Lock lock{serving_};
        if (has_descriptor_) {
            return 0;
        }
        const auto begun = begin_wait();
        has_descriptor_ = begun.has_value();
        if (!begun) {
            end_wait();
        }
        return returned<int>(begun);
    });
}

base::Result<void> EventQueue::join(Source &source) {
    const base::Lock lock{serving_};
    sources_.push_back(&source);
    return waits_ != 0 ? source.watch() : base::Result<void>{};
}

// The threads that wait share what the first begins. When that fails for a source, end_wait() still ends it
// for all.
base::Result<void> EventQueue::begin_wait() {
    base::Result<void> result;
    if (++waits_ == 1) {
        for (Source *const source : sources_) {
            const auto watched = source->watch();
            result = result ? watched : result;
        }
    }
    return result;
}

void EventQueue::end_wait() {
    --waits_;
    for (Source *const source : sources_) {
        if (waits_ == 0) {
            source->unwatch();
        }
    }
}

std::deque<EventQueue::Event> EventQueue::leave(const Source &source, fid_t object) {
    const base::Lock in_serving{serving_};
    std::erase(sources_, &source);
    const base::Lock lock{mutex_};
    std::deque<Event> unread;
    std::deque<Event> others;
    for (Event &event : events_) {
        (event.fid == object ? unread : others).push_back(std::move(event));
    }
    events_ = std::move(others);
    wait_set_.light(!events_.empty());
    return unread;
}

void EventQueue::push(Event event) {
    const base::Lock lock{mutex_};
    events_.push_back(std::move(event));
    wait_set_.light(true);
}

void EventQueue::pop() {
    events_.pop_front();
    wait_set_.light(!events_.empty());
}

void EventQueue::serve_sources() {
    const base::Lock lock{serving_};
    if (waits_ == 0) {
        std::ranges::for_each(sources_, &Source::serve);
        return;
    }
    std::array<epoll_event, served_at_once> events;
    for (const epoll_event &event : wait_set_.ready(events)) {
        if (event.data.ptr != nullptr) {
            static_cast<Source *>(event.data.ptr)->serve();
        }
    }
}

bool EventQueue::has_event() {
    const auto any = [this] {
        const base::Lock lock{mutex_};
        return !events_.empty();
    };
    if (any()) {
        return true;
    }
    serve_sources();
    return any();
}

ssize_t EventQueue::read(std::uint32_t *event, void *buffer, std::size_t size, std::uint64_t flags) {
    if (event == nullptr || buffer == nullptr) {
        return -FI_EINVAL;
    }
    if ((flags & ~FI_PEEK) != 0) {
        return -FI_EBADFLAGS;
    }
    if (!guarded([&] { return has_event() ? 1 : 0; })) {
        return -FI_EAGAIN;
    }
    const base::Lock lock{mutex_};
    if (events_.empty()) {
        return -FI_EAGAIN;  // another thread has read it
    }
    Event &first = events_.front();
    if (first.error != 0) {
        return -FI_EAVAIL;
    }
    if (size < sizeof(fi_eq_cm_entry)) {
        return -FI_ETOOSMALL;
    }
    auto &entry = *static_cast<fi_eq_cm_entry *>(buffer);
    entry.fid = first.fid;
    entry.info = first.info.get();
    *event = first.type;
    if ((flags & FI_PEEK) == 0) {
        (void)first.info.release();
        pop();
    }
    return sizeof(fi_eq_cm_entry);
}

// A thread waits while there is one.
class EventQueue::Waiting {
public:
    explicit Waiting(EventQueue &queue) : queue_{queue} {
        const base::Lock lock{queue_.serving_};
        begun_ = queue_.begin_wait();
    }
    ~Waiting() {
        const base::Lock lock{queue_.serving_};
        queue_.end_wait();
    }
    Waiting(const Waiting &) = delete;
    Waiting &operator=(const Waiting &) = delete;

    [[nodiscard]] const base::Result<void> &begun() const { return begun_; }

private:
    EventQueue &queue_;
    base::Result<void> begun_;
};

ssize_t EventQueue::read_waiting(std::uint32_t *event, void *buffer, std::size_t size, int timeout_ms,
                                 std::uint64_t flags) {
    if (const ssize_t result = read(event, buffer, size, flags); result != -FI_EAGAIN || timeout_ms == 0) {
        return result;
    }
    const auto end =
        timeout_ms < 0 ? base::Clock::time_point::max() : base::Clock::now() + base::Milliseconds{timeout_ms};
    const Waiting waiting{*this};
    if (!waiting.begun()) {
        return -waiting.begun().error().number;
    }
    while (true) {
        const ssize_t result = read(event, buffer, size, flags);
        if (result != -FI_EAGAIN) {
            return result;
        }
        pollfd descriptor{.fd = wait_set_.fd(), .events = POLLIN, .revents = 0};
        const int ready = ::poll(&descriptor, 1, base::poll_timeout(end));
        if (ready <= 0) {
            return ready == 0 ? -FI_EAGAIN : -errno;
        }
    }
}

ssize_t EventQueue::read_error(fi_eq_err_entry &entry, std::uint64_t flags) {
    const base::Lock lock{mutex_};
    if (events_.empty() || events_.front().error == 0) {
        return -FI_EAGAIN;
    }
    Event &first = events_.front();
    const bool copies = entry.err_data_size != 0 && entry.err_data != nullptr;
    const std::size_t size = copies ? std::min(entry.err_data_size, first.data.size()) : first.data.size();
    void *data = entry.err_data;
    if (copies) {
        std::copy_n(first.data.data(), size, static_cast<std::byte *>(data));
    } else {
        last_data_ = first.data;
        data = last_data_.empty() ? nullptr : last_data_.data();
    }
    entry = {.fid = first.fid,
             .context = first.fid->context,
             .data = 0,
             .err = first.error,
             .prov_errno = first.error,
             .err_data = data,
             .err_data_size = size};
    if ((flags & FI_PEEK) == 0) {
        pop();
    }
    return sizeof(entry);
}

}  // namespace rstream
