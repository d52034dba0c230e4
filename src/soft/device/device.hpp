// SPDX-License-Identifier: BSD-3-Clause
// soft/device/device: the device of an interface that is up and has an address, and its context.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "soft/device/async_events.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/memory/memory.hpp"

namespace soft {

struct Device;

// A verbs_context with the layout of verbs.h: its inlines for posting and polling go through the ops.
struct Context : verbs_context {
    Context() : verbs_context{} {}
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
    ~Context();
    // Returns the whole of a context that verbs passes.
    [[nodiscard]] static Context &of(const ibv_context &context);

    Device *device = nullptr;
    ProtectionDomain domain;  // for callers without one of their own
    std::unique_ptr<AsyncEvents> async_events;
    std::vector<std::unique_ptr<AsyncEvents>> of_parents;  // from before a fork, never touched again
    std::atomic<int> uses{0};  // protection domains, completion queues and channels, and waits for an event
};

// A use of a context, for the time of a call.
class ContextUse {
public:
    explicit ContextUse(const ibv_context &context) : uses_{Context::of(context).uses} {
        uses_.fetch_add(1, std::memory_order_relaxed);
    }
    ContextUse(const ContextUse &) = delete;
    ContextUse &operator=(const ContextUse &) = delete;
    ~ContextUse() { uses_.fetch_sub(1, std::memory_order_release); }

private:
    std::atomic<int> &uses_;
};

struct Device : ibv_device {
    std::string interface;
    std::unique_ptr<Context> context;  // of the connection manager's ids: made at the first use, and kept
    std::vector<std::unique_ptr<Context>> opened;  // by the program
};

[[nodiscard]] AsyncEvents &async_events_of(const ibv_context &context);

[[nodiscard]] ibv_pd &default_domain_of(const ibv_context &context);

// Returns an address as a GID; IPv4 is mapped into IPv6.
[[nodiscard]] ibv_gid gid_of(const sockaddr &address);
// A row of the table that ibv_query_gid reads. As on cards of RoCE, with SOFTRDMA_ROCE an address has two:
// that of version 1, and behind it that of version 2.
struct GidRow {
    ibv_gid gid;
    ibv_gid_type type;
};
[[nodiscard]] std::vector<GidRow> gids_of(const Device &device);
inline constexpr __be16 default_pkey = 0xffff;

// Returns the present devices. A device is never destroyed, so pointers to it stay valid.
[[nodiscard]] std::vector<Device *> devices();
// Returns the index of the interface, which devices of one machine do not share. With SOFTRDMA_ROCE it is
// combined with a number of this machine's boot, because programs compare the GUIDs of several machines.
[[nodiscard]] __be64 guid_of(const Device &device);
// Returns the device that serves a local address; null when no interface has it; a failure when the addresses
// cannot be read.
[[nodiscard]] base::Result<Device *> device_of(const sockaddr &address);
// Returns whether the device's interface has a local address.
[[nodiscard]] bool has_address(const Device &device, const sockaddr &address);
[[nodiscard]] std::vector<tcp::Address> addresses_of(const Device &device);
// Checks the environment variables that the device reads. Fails with EINVAL, and logs it.
[[nodiscard]] base::Result<void> check_variables();
// Returns the context of the device's ids. Fails with EMFILE or ENFILE, and with EINVAL, logged, when the
// value of an environment variable is not valid; then no device opens.
[[nodiscard]] base::Result<ibv_context *> context_of(Device &device);
// Makes a context with events of its own, and fails likewise. close_context() frees it, unless it is in use;
// then it stays until the process ends.
[[nodiscard]] base::Result<ibv_context *> open_context(Device &device);
void close_context(ibv_context &context);
// Fills in the table of calls of a new context. It is defined in api/context_calls, which knows all queues.
void add_calls(verbs_context &context);

void query(const Device &device, ibv_device_attr &attributes);
void query(const Device &device, ibv_port_attr &attributes);

}  // namespace soft
