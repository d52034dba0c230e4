// SPDX-License-Identifier: BSD-3-Clause
#include "soft/api/device_memory.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "base/log.hpp"
#include "soft/api/made.hpp"
#include "soft/api/regions.hpp"
#include "soft/device/device.hpp"

namespace soft {

namespace {

constexpr std::size_t unit = 4;  // of offsets and lengths, as on cards
constexpr std::uint32_t most_log_alignment = 12;
constexpr std::align_val_t alignment{std::size_t{1} << most_log_alignment};  // what any program asks for

struct Free {
    void operator()(std::byte *bytes) const { ::operator delete[](bytes, alignment); }
};

struct DeviceMemory : ibv_dm {
    std::unique_ptr<std::byte[], Free> bytes;
    std::size_t length = 0;
    std::atomic<int> regions{0};

    // Returns the place of a part; null when there is no such part.
    [[nodiscard]] std::byte *at(std::uint64_t offset, std::size_t size) const {
        return offset <= length && size <= length - offset ? bytes.get() + offset : nullptr;
    }
    [[nodiscard]] std::byte *place_to_copy(std::uint64_t offset, std::size_t size) const {
        return offset % unit == 0 && size % unit == 0 ? at(offset, size) : nullptr;
    }
};

DeviceMemory &of(ibv_dm *memory) {
    return *static_cast<DeviceMemory *>(memory);
}

int copy_to(ibv_dm *memory, std::uint64_t offset, const void *from, std::size_t length) {
    std::byte *const to = of(memory).place_to_copy(offset, length);
    if (to == nullptr) {
        return EINVAL;
    }
    std::memcpy(to, from, length);
    return 0;
}

int copy_from(void *to, ibv_dm *memory, std::uint64_t offset, std::size_t length) {
    const std::byte *const from = of(memory).place_to_copy(offset, length);
    if (from == nullptr) {
        return EINVAL;
    }
    std::memcpy(to, from, length);
    return 0;
}

}  // namespace

ibv_dm *alloc_device_memory(ibv_context *context, ibv_alloc_dm_attr *attributes) {
    if (attributes->comp_mask != 0) {
        return failed<ibv_dm>(EOPNOTSUPP);
    }
    if (attributes->length == 0 || attributes->length > max_device_memory_bytes ||
        attributes->log_align_req > most_log_alignment) {
        BASE_LOG(Error,
                 "no device memory of %zu bytes, aligned to 2^%u: 1 to %zu bytes and 2^%u are possible",
                 attributes->length, attributes->log_align_req, max_device_memory_bytes, most_log_alignment);
        return failed<ibv_dm>(EINVAL);
    }
    return made([&] {
        auto memory = std::make_unique<DeviceMemory>();
        memory->bytes.reset(new (alignment) std::byte[attributes->length]{});
        memory->length = attributes->length;
        memory->context = context;
        memory->memcpy_to_dm = copy_to;
        memory->memcpy_from_dm = copy_from;
        Context::of(*context).uses.fetch_add(1, std::memory_order_relaxed);
        return memory.release();
    });
}

int free_device_memory(ibv_dm *memory) {
    if (of(memory).regions.load(std::memory_order_acquire) != 0) {
        return EBUSY;
    }
    Context::of(*memory->context).uses.fetch_sub(1, std::memory_order_release);
    delete &of(memory);
    return 0;
}

ibv_mr *register_device_memory(ibv_pd *pd, ibv_dm *memory, std::uint64_t offset, std::size_t length,
                               unsigned access) {
    std::byte *const place = of(memory).at(offset, length);
    if (place == nullptr || pd->context != memory->context || (access & IBV_ACCESS_ZERO_BASED) == 0) {
        BASE_LOG(Error,
                 "no region of %zu bytes of device memory at offset %llu: expected a part of its %zu bytes, "
                 "a domain of its context and IBV_ACCESS_ZERO_BASED; access is 0x%x",
                 length, static_cast<unsigned long long>(offset), of(memory).length, access);
        return failed<ibv_mr>(EINVAL);
    }
    return made(
        [&] { return register_region(*pd, place, length, 0, access, {.holds = &of(memory).regions}); });
}

}  // namespace soft
