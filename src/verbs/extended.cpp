// SPDX-License-Identifier: BSD-3-Clause
// verbs/extended: flush and atomic write of the kernel's devices.
#include "verbs/extended.hpp"

#include <dlfcn.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "verbs/native.hpp"

namespace verbs::extended {

namespace {

constexpr int first_package_with_flush = 45;

// Later versions of rdma-core name these bits, and the present headers may not. The kernel's values do not
// change.
constexpr std::uint64_t device_flush = std::uint64_t{1} << 38 | std::uint64_t{1} << 39;  // global, persistent
constexpr std::uint64_t device_atomic_write = std::uint64_t{1} << 40;
constexpr std::uint64_t send_operation_flush = 1 << 11;
constexpr std::uint8_t flush_range = 0;

using FlushFunction = void (*)(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t remote_addr,
                               std::size_t length, std::uint8_t type, std::uint8_t level);
constexpr std::size_t flush_offset =
    offsetof(ibv_qp_ex, wr_atomic_write) + sizeof(ibv_qp_ex::wr_atomic_write);

FlushFunction flush_function(const ibv_qp_ex *qp) {
    FlushFunction function = nullptr;
    std::memcpy(static_cast<void *>(&function), reinterpret_cast<const std::byte *>(qp) + flush_offset,
                sizeof(function));
    return function;
}

}  // namespace

bool has_flush(std::string_view library_file) {
    constexpr std::string_view stem = "libibverbs.so.";
    const auto start = library_file.rfind(stem);
    if (start == std::string_view::npos) {
        return false;
    }
    std::string_view version = library_file.substr(start + stem.size());
    // The first two numbers are those of the interface.
    for (int i = 0; i < 2; ++i) {
        const auto dot = version.find('.');
        if (dot == std::string_view::npos) {
            return false;
        }
        version.remove_prefix(dot + 1);
    }
    int package = 0;
    const auto parsed = std::from_chars(version.data(), version.data() + version.size(), package);
    return parsed.ec == std::errc{} && package >= first_package_with_flush;
}

bool library_has_flush() {
    static const bool has = [] {
        Dl_info library{};
        if (dladdr(reinterpret_cast<const void *>(&ibv_get_device_list), &library) == 0 ||
            library.dli_fname == nullptr) {
            return false;
        }
        const std::unique_ptr<char, decltype(&std::free)> file{realpath(library.dli_fname, nullptr),
                                                               &std::free};
        return file != nullptr && has_flush(file.get());
    }();
    return has;
}

unsigned device_operations(const ibv_device_attr_ex &attributes, bool library_has_flush) {
    unsigned operations = 0;
    // The device must support both kinds, because a connection flushes in one way.
    if (library_has_flush && (attributes.device_cap_flags_ex & device_flush) == device_flush) {
        operations |= native_flush;
    }
    if ((attributes.device_cap_flags_ex & device_atomic_write) != 0) {
        operations |= native_atomic_write;
    }
    return operations;
}

std::uint64_t send_operations(unsigned native_operations) {
    return ((native_operations & native_flush) != 0 ? send_operation_flush : 0) |
           ((native_operations & native_atomic_write) != 0 ? std::uint64_t{IBV_QP_EX_WITH_ATOMIC_WRITE} : 0);
}

unsigned queue_pair_operations(ibv_qp_ex *qp, bool library_has_flush) {
    if (qp == nullptr) {
        return 0;
    }
    return (library_has_flush && flush_function(qp) != nullptr ? native_flush : 0) |
           (qp->wr_atomic_write != nullptr ? native_atomic_write : 0);
}

int post(ibv_qp_ex *qp, const ibv_send_wr &request) {
    const auto &remote = request.wr.rdma;
    ibv_wr_start(qp);
    qp->wr_id = request.wr_id;
    if (request.opcode == IBV_WR_ATOMIC_WRITE) {
        qp->wr_flags = request.send_flags & ~unsigned{IBV_SEND_INLINE};
        ibv_wr_atomic_write(qp, remote.rkey, remote.remote_addr,
                            reinterpret_cast<const void *>(request.sg_list->addr));
    } else {
        qp->wr_flags = request.send_flags;
        flush_function(qp)(qp, remote.rkey, remote.remote_addr, request.sg_list->length,
                           static_cast<std::uint8_t>(request.imm_data), flush_range);
    }
    return ibv_wr_complete(qp);
}

}  // namespace verbs::extended
