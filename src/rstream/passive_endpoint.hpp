// SPDX-License-Identifier: BSD-3-Clause
// rstream/passive_endpoint: listens at an address, and tells the event queue of each peer that asks.
#pragma once

#include <rdma/fi_cm.h>

#include <vector>

#include "rstream/event_queue.hpp"
#include "rstream/fids.hpp"
#include "stream/listener.hpp"

namespace rstream {

class PassiveEndpoint final : public fid_pep, private EventQueue::Source {
public:
    [[nodiscard]] static int open(fid_fabric *fabric, fi_info *info, fid_pep **pep, void *context);
    PassiveEndpoint(Fabric &fabric, Info info, sockaddr_storage local, void *context);
    PassiveEndpoint(const PassiveEndpoint &) = delete;
    PassiveEndpoint &operator=(const PassiveEndpoint &) = delete;

    // Returns the address at which it listens, or will.
    [[nodiscard]] sockaddr_storage name() const;

private:
    using Listeners = std::vector<std::shared_ptr<stream::Listener>>;

    ~PassiveEndpoint() = default;
    static PassiveEndpoint &of(fid_pep *pep) { return static_cast<PassiveEndpoint &>(*pep); }
    [[nodiscard]] int close();
    [[nodiscard]] int bind(const Fid &object);
    [[nodiscard]] int control(int command, const void *argument);
    [[nodiscard]] int set_name(const void *address, std::size_t size);
    [[nodiscard]] int get_option(int level, int name, void *value, std::size_t *size) const;
    [[nodiscard]] int listen();
    [[nodiscard]] base::Result<Listeners> make_listeners() const;
    [[nodiscard]] int reject(fid_t handle, const void *reason, std::size_t size);
    void serve() override;
    // The descriptors of listeners are always readable when a peer asks.
    [[nodiscard]] base::Result<void> watch() override { return {}; }
    void unwatch() override {}
    [[nodiscard]] Info info_of(const stream::Asked &asked) const;

    static fi_ops fid_ops;
    static fi_ops_ep endpoint_ops;
    static fi_ops_cm connection_ops;

    const Use<Fabric> fabric_;
    const Info info_;
    sockaddr_storage local_;
    int backlog_ = SOMAXCONN;
    EventQueue *queue_ = nullptr;
    Listeners listeners_;
};

}  // namespace rstream
