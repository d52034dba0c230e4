// SPDX-License-Identifier: BSD-3-Clause
// rstream/endpoint: one stream. It has a shard of its own, so that its descriptor tells of it alone.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "rstream/event_queue.hpp"
#include "rstream/fabric.hpp"
#include "stream/connection.hpp"

namespace rstream {

class Endpoint final : public fid_ep, private stream::Observer, private EventQueue::Source {
public:
    [[nodiscard]] static int open(fid_domain *domain, fi_info *info, fid_ep **ep, void *context);
    Endpoint(Domain &domain, const fi_info &info, std::optional<Request> request, void *context);
    Endpoint(const Endpoint &) = delete;
    Endpoint &operator=(const Endpoint &) = delete;

    // fi_trywait calls these. The program's thread looks, and does not wait.
    void begin_to_look();
    // It has found some news of this endpoint or another.
    void end_look();
    // Returns whether a receive or a send would not give -FI_EAGAIN now, after such a result. Serves the
    // stream.
    [[nodiscard]] bool has_news();
    // From now on the descriptor tells of news. Returns whether there is some already.
    [[nodiscard]] base::Result<bool> begin_to_wait();

private:
    ~Endpoint() = default;
    static Endpoint &of(fid_ep *ep) { return static_cast<Endpoint &>(*ep); }
    static Endpoint &of(fid_t object) { return object_of<Endpoint, fid_ep>(object); }
    [[nodiscard]] int close();
    [[nodiscard]] int bind(const Fid &object);
    [[nodiscard]] int control(int command, void *argument);
    [[nodiscard]] int get_wait(int *fd);
    [[nodiscard]] int set_option(int level, int name, const void *value, std::size_t size);
    [[nodiscard]] int get_option(int level, int name, void *value, std::size_t *size) const;

    [[nodiscard]] int connect(const void *address);
    [[nodiscard]] int accept();
    [[nodiscard]] int begin(stream::Approach approach);
    [[nodiscard]] int shutdown();
    [[nodiscard]] base::Result<sockaddr_storage> name(base::End end) const;

    // The program's bytes, in endpoint_bytes.cpp.
    [[nodiscard]] ssize_t receive(std::span<const iovec> parts);
    [[nodiscard]] ssize_t send(std::span<const iovec> parts);
    [[nodiscard]] ssize_t can_receive();
    [[nodiscard]] ssize_t can_send();
    template <typename Try>
    [[nodiscard]] ssize_t try_served(Try attempt);

    // The event queue calls these, and the stream calls changed() with the shard's lock held.
    void serve() override;
    [[nodiscard]] base::Result<void> watch() override;
    void unwatch() override;
    void changed() override;
    // Those that need the device's descriptors to tell of work.
    enum class Watcher : std::uint8_t { Queue = 1, Program = 2 };
    [[nodiscard]] bool is_watched_by(Watcher who) const REQUIRES(shard_->mutex()) {
        return (watchers_ & static_cast<unsigned>(who)) != 0;
    }
    [[nodiscard]] base::Result<void> begin_watch(Watcher who) REQUIRES(shard_->mutex());
    void end_watch(Watcher who) REQUIRES(shard_->mutex());
    void end_watch_of_queue() REQUIRES(shard_->mutex());
    [[nodiscard]] base::Result<void> watch_with(WaitSet made);
    [[nodiscard]] base::Result<void> watch_for_program() REQUIRES(shard_->mutex());
    [[nodiscard]] bool waits_by_rule() const REQUIRES(shard_->mutex());
    void note_caller() REQUIRES(shard_->mutex());
    void begin_call() REQUIRES(shard_->mutex());
    void end_call(bool found) REQUIRES(shard_->mutex());
    void serve_and_arm() REQUIRES(shard_->mutex());
    void serve_before_wait() REQUIRES(shard_->mutex());
    [[nodiscard]] bool is_ready() const REQUIRES(shard_->mutex());
    void tell_descriptor() REQUIRES(shard_->mutex());

    static fi_ops fid_ops;
    static fi_ops_ep endpoint_ops;
    static fi_ops_cm connection_ops;
    static fi_ops_msg message_ops;

    const Use<Domain> domain_;
    // The program sets these before the stream begins, in one thread.
    sockaddr_storage local_{};
    std::optional<sockaddr_storage> peer_;
    std::optional<Request> request_;
    stream::Settings settings_;
    EventQueue *queue_ = nullptr;

    std::shared_ptr<stream::Shard> shard_;
    std::unique_ptr<stream::Connection> stream_;
    std::atomic<stream::Connection *> open_{nullptr};  // the stream, once it has begun
    std::optional<WaitSet> wait_set_;                  // once the program has asked for a descriptor
    // The lock of the shard guards these, and wait_set_ once the stream has begun.
    unsigned watchers_ = 0;
    std::vector<int> descriptors_;      // of the device, since it was watched first
    bool set_has_descriptors_ = false;  // wait_set_ has them, for ever
    bool calls_trywait_ = false;        // the program does
    bool waited_before_ = false;        // the program may have waited before the call that is under way
    const void *caller_ = nullptr;      // the thread that has called
    bool has_several_callers_ = false;  // others may wait while one calls
    bool send_waits_ = false;           // a send has found no room
    bool told_connected_ = false;
    bool told_end_ = false;
};

}  // namespace rstream
