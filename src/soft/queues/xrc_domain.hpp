// SPDX-License-Identifier: BSD-3-Clause
// soft/queues/xrc_domain: an XRC domain: the shared receive queues whose numbers the messages of its queue
// pairs name. A program has it through handles (ibv_xrcd). Handles of one file have the same domain, within
// this process: another process has a domain of its own, whose queues no peer of this one reaches.
//
//     handle ─┐
//             ├─► domain ─► number ─► shared receive queue
//     handle ─┘      └─ one group: the sockets of all its queue pairs of type XRC_RECV
//
// These queue pairs have no completion queues and no protection domain, so the domain has one of each for
// them. A completion goes to the shared queue's own completion queue, which serves the group as well.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/fd.hpp"
#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "soft/memory/memory.hpp"
#include "soft/queues/completion_queue.hpp"
#include "soft/wire/ddp.hpp"

namespace soft {

class SharedReceiveQueue;
class TakesReceives;

class XrcDomain : public base::Inheritable {
public:
    // `context` lives as long as the process. Fails with EMFILE or ENFILE.
    [[nodiscard]] static base::Result<std::shared_ptr<XrcDomain>> create(ibv_context &context);
    // Returns the domain of the file of a descriptor, for the device of `context`. With O_CREAT among `flags`
    // it is made if there is none. Fails with EBADF; EMFILE; EAGAIN when there is none; EINVAL when there is
    // one, with O_EXCL.
    [[nodiscard]] static base::Result<std::shared_ptr<XrcDomain>> of_file(ibv_context &context,
                                                                          int descriptor, int flags);
    XrcDomain(const XrcDomain &) = delete;
    XrcDomain &operator=(const XrcDomain &) = delete;

    [[nodiscard]] ibv_pd &protection_domain() { return protection_domain_; }
    [[nodiscard]] CompletionQueue &no_completions() { return *no_completions_; }
    [[nodiscard]] const std::shared_ptr<Group> &group() const { return no_completions_->group(); }

    // Gives a queue its number. Throws std::bad_alloc.
    [[nodiscard]] wire::Queue add(SharedReceiveQueue &queue) EXCLUDES(group()->mutex());
    // The caller of these three has locked the group. Messages that wait for the removed queue end their
    // connections.
    void remove(wire::Queue number);
    // Returns null when there is no such queue.
    [[nodiscard]] SharedReceiveQueue *find(wire::Queue number) const;
    // Removes a queue pair from the lines of all queues.
    void forget(TakesReceives &taker) const;

private:
    explicit XrcDomain(std::unique_ptr<CompletionQueue> no_completions);

    base::Fd file_;      // keeps the inode number from another file
    DomainSet reached_;  // those of the shared queues
    ProtectionDomain protection_domain_;
    const std::unique_ptr<CompletionQueue> no_completions_;
    std::unordered_map<wire::Queue, SharedReceiveQueue *> queues_ GUARDED_BY(group()->mutex());
};

struct XrcHandle : ibv_xrcd {
    XrcHandle(ibv_context &of, std::shared_ptr<XrcDomain> its) : ibv_xrcd{&of}, domain_{std::move(its)} {}

    [[nodiscard]] XrcDomain &domain() const { return *domain_; }

    std::atomic<int> users{0};  // queue pairs and shared receive queues

private:
    const std::shared_ptr<XrcDomain> domain_;
};

}  // namespace soft
