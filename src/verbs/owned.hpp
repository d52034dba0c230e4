// SPDX-License-Identifier: BSD-3-Clause
// verbs/owned: owners of verbs and rdma_cm objects, which destroy them through their provider.
#pragma once

#include <cerrno>
#include <type_traits>
#include <utility>

#include "verbs/provider.hpp"

namespace verbs {

// Owns one object; Destroy is the member of Table, a table of Provider, that destroys it.
template <typename T, auto Table, auto Destroy>
class Owned {
public:
    Owned() = default;
    Owned(const Provider &provider, T *object) : provider_{&provider}, object_{object} {}
    Owned(Owned &&other) noexcept
        : provider_{other.provider_}, object_{std::exchange(other.object_, nullptr)} {}
    Owned &operator=(Owned &&other) noexcept {
        if (this != &other) {
            reset();
            provider_ = other.provider_;
            object_ = std::exchange(other.object_, nullptr);
        }
        return *this;
    }
    Owned(const Owned &) = delete;
    Owned &operator=(const Owned &) = delete;
    ~Owned() { reset(); }

    [[nodiscard]] T *get() const { return object_; }
    T *operator->() const { return object_; }
    T &operator*() const { return *object_; }
    explicit operator bool() const { return object_ != nullptr; }

    // Destroys the object now, if there is one. Returns 0 or the errno of the failure. In either case the
    // object is no longer owned.
    int reset() { return destroy(std::exchange(object_, nullptr)); }
    // Does the same, but an object that cannot be destroyed stays owned.
    int try_reset() {
        const int number = destroy(object_);
        object_ = number == 0 ? nullptr : object_;
        return number;
    }

private:
    int destroy(T *object) {
        if (object == nullptr) {
            return 0;
        }
        const auto call = provider_->*Table.*Destroy;
        if constexpr (std::is_void_v<decltype(call(object))>) {
            call(object);
            return 0;
        } else {
            // ibv_ calls return an errno value; rdma_ calls return -1 and set errno.
            const int result = call(object);
            return result == -1 ? errno : result;
        }
    }

    const Provider *provider_ = nullptr;
    T *object_ = nullptr;
};

using ProtectionDomain = Owned<ibv_pd, &Provider::domain, &DomainCalls::dealloc_pd>;
using MemoryRegion = Owned<ibv_mr, &Provider::domain, &DomainCalls::dereg_mr>;
using CompletionChannel =
    Owned<ibv_comp_channel, &Provider::completion, &CompletionCalls::destroy_comp_channel>;
using CompletionQueue = Owned<ibv_cq, &Provider::completion, &CompletionCalls::destroy_cq>;
using SharedReceiveQueue = Owned<ibv_srq, &Provider::domain, &DomainCalls::destroy_srq>;
using AddressHandle = Owned<ibv_ah, &Provider::domain, &DomainCalls::destroy_ah>;
using AddressInfo = Owned<rdma_addrinfo, &Provider::cm, &ConnectionCalls::freeaddrinfo>;
using EventChannel = Owned<rdma_event_channel, &Provider::cm, &ConnectionCalls::destroy_event_channel>;
using Event = Owned<rdma_cm_event, &Provider::cm, &ConnectionCalls::ack_cm_event>;
using Id = Owned<rdma_cm_id, &Provider::cm, &ConnectionCalls::destroy_id>;
// rdma_cm makes and destroys an id's queue pair through the id, which must outlive the queue pair.
using QueuePair = Owned<rdma_cm_id, &Provider::cm, &ConnectionCalls::destroy_qp>;

}  // namespace verbs
