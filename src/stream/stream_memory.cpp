// SPDX-License-Identifier: BSD-3-Clause
#include "stream/stream_memory.hpp"

#include <cerrno>
#include <utility>

namespace stream {

namespace {

base::Result<std::byte *> address_of(const rpma_mr_local *memory) {
    void *address = nullptr;
    if (const int result = rpma_mr_get_ptr(memory, &address); result != 0) {
        return failure_of(result);
    }
    return static_cast<std::byte *>(address);
}

}  // namespace

base::Result<StreamMemory> StreamMemory::make(const Device &device, const Settings &settings,
                                              bool has_send_buffer) {
    StreamMemory memory;
    const std::size_t list_bytes = windows * window_bytes + settings.slots * slot_bytes;
    auto registered = made<Memory>(rpma_mr_alloc, device.peer(), list_bytes + settings.receive_bytes,
                                   RPMA_MR_USAGE_WRITE_DST);
    if (!registered) {
        return std::unexpected{registered.error()};
    }
    memory.shared_ = std::move(*registered);
    memory.send_buffer_at_ = std::size_t{settings.receives} * word_bytes;
    registered = made<Memory>(rpma_mr_alloc, device.peer(),
                              memory.send_buffer_at_ + (has_send_buffer ? settings.send_bytes : 0),
                              RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_WRITE_SRC);
    if (!registered) {
        return std::unexpected{registered.error()};
    }
    memory.private_ = std::move(*registered);
    const auto shared_at = address_of(memory.shared_.get());
    const auto private_at = address_of(memory.private_.get());
    if (!shared_at || !private_at || rpma_mr_get_key(memory.shared_.get(), &memory.shared_key_) != 0) {
        return base::failure(ENOBUFS);
    }
    memory.list_ = *shared_at;
    memory.buffer_ = *shared_at + list_bytes;
    memory.words_ = *private_at;
    return memory;
}

}  // namespace stream
