// SPDX-License-Identifier: BSD-3-Clause
// rstream/fabric: the fabric, which knows the requests of peers that are not answered, and its domains. A
// domain has nothing but its endpoints: the device of a stream is the one that serves its local address.
#pragma once

#include <rdma/fi_domain.h>

#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/mutex.hpp"
#include "rstream/fids.hpp"
#include "stream/listener.hpp"

namespace rstream {

// A peer that asks. Its fid is the handle in the info of FI_CONNREQ.
struct Request {
    std::shared_ptr<stream::Listener> listener;  // the request uses its queue of events
    stream::Asked asked;
};

class Fabric final : public fid_fabric, public Used {
public:
    [[nodiscard]] static int open(fi_fabric_attr *attributes, fid_fabric **fabric, void *context);
    Fabric(std::uint32_t version, void *context);
    Fabric(const Fabric &) = delete;
    Fabric &operator=(const Fabric &) = delete;
    static Fabric &of(fid_fabric *fabric) { return static_cast<Fabric &>(*fabric); }

    // Keeps a request until it is taken, or the fabric is closed. Returns its handle.
    [[nodiscard]] fid_t keep(Request request);
    // Returns the request of a handle, once.
    [[nodiscard]] std::optional<Request> take(fid_t handle);

    // A passive endpoint calls these while it is made, and when it is closed.
    void add_listener(fid_t passive);
    void remove_listener(fid_t passive);
    // Returns whether this is an open passive endpoint. The handle of a request that was taken is no object
    // any more, so it may not be read.
    [[nodiscard]] bool listens_by(fid_t handle);

private:
    ~Fabric() = default;
    [[nodiscard]] int close();
    [[nodiscard]] static int try_wait(fid_fabric *fabric, fid_t *fids, int count);

    static fi_ops fid_ops;
    static fi_ops_fabric fabric_ops;

    base::Mutex mutex_;
    // A node keeps its place, so the fid in it is the handle.
    struct Kept {
        Fid handle;
        Request request;
    };
    std::map<fid_t, std::unique_ptr<Kept>> requests_ GUARDED_BY(mutex_);
    std::set<fid_t> listeners_ GUARDED_BY(mutex_);
};

class Domain final : public fid_domain, public Used {
public:
    [[nodiscard]] static int open(fid_fabric *fabric, fi_info *info, fid_domain **domain, void *context);
    Domain(Fabric &fabric, std::string device, void *context);
    Domain(const Domain &) = delete;
    Domain &operator=(const Domain &) = delete;
    static Domain &of(fid_domain *domain) { return static_cast<Domain &>(*domain); }

    [[nodiscard]] Fabric &fabric() const { return *fabric_; }
    // Returns the name of the device that the program has chosen; empty: any.
    [[nodiscard]] const std::string &device() const { return device_; }

private:
    ~Domain() = default;
    [[nodiscard]] int close();

    static fi_ops fid_ops;
    static fi_ops_domain domain_ops;
    static fi_ops_mr memory_ops;

    const Use<Fabric> fabric_;
    const std::string device_;
};

}  // namespace rstream
