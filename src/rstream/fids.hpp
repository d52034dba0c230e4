// SPDX-License-Identifier: BSD-3-Clause
// rstream/fids: what the objects of the provider have in common. Each is one of libfabric's, from which it
// derives, so that libfabric's inline functions find the tables of its functions.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <new>

#include "base/result.hpp"

namespace rstream {

// It stands for each function of a table that the provider does not have.
struct Absent {
    template <typename Returned, typename... Arguments>
    using Function = Returned (*)(Arguments...);
    template <typename Returned, typename... Arguments>
    constexpr operator Function<Returned, Arguments...>() const {
        return [](Arguments...) -> Returned { return -FI_ENOSYS; };
    }
};
inline constexpr Absent absent;

// In the classes, fid is the member of this type.
using Fid = ::fid;

// Returns the object of a fid of libfabric, which is the object's first member.
template <typename Object, typename Base>
[[nodiscard]] Object &object_of(fid_t object) {
    return static_cast<Object &>(*reinterpret_cast<Base *>(object));
}

// An object that other objects of the program use. It closes when there are none of these any more.
class Used {
public:
    void use() { ++users_; }
    void release() { --users_; }
    [[nodiscard]] bool is_used() const { return users_ != 0; }

private:
    std::atomic<int> users_{0};
};

// Its owner uses the object while this lives.
template <typename Object>
class Use {
public:
    explicit Use(Object &object) : object_{object} { object.use(); }
    ~Use() { object_.release(); }
    Use(const Use &) = delete;
    Use &operator=(const Use &) = delete;
    [[nodiscard]] Object &operator*() const { return object_; }
    [[nodiscard]] Object *operator->() const { return &object_; }

private:
    Object &object_;
};

struct FreeInfo {
    void operator()(fi_info *info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// Returns an errno value as libfabric's functions return it. Its names for them lack EPIPE.
[[nodiscard]] inline int status_of(int error) {
    return error == EPIPE ? -FI_ESHUTDOWN : -error;
}

// Returns a result as libfabric's functions do.
template <typename Returned, typename T>
[[nodiscard]] Returned returned(const base::Result<T> &result) {
    if (!result) {
        return status_of(result.error().number);
    }
    if constexpr (std::is_void_v<T>) {
        return 0;
    } else {
        return static_cast<Returned>(*result);
    }
}

// Returns the result of work(), or -FI_ENOMEM.
template <typename Work>
[[nodiscard]] auto guarded(Work work) -> decltype(work()) {
    try {
        return work();
    } catch (const std::bad_alloc &) {
        return -FI_ENOMEM;
    }
}

}  // namespace rstream
