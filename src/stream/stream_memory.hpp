// SPDX-License-Identifier: BSD-3-Clause
// stream/stream_memory: the memory of one stream, registered with its device.
//
//      shared, which the peer writes:  windows | slots | receive buffer
//      private:                        places of the words that come | send buffer, if there is one
#pragma once

#include "stream/device.hpp"
#include "stream/owned.hpp"
#include "stream/settings.hpp"
#include "stream/wire.hpp"

namespace stream {

class StreamMemory {
public:
    // Registers it. has_send_buffer: bytes are copied there before they are posted. ENOMEM, ENOBUFS.
    [[nodiscard]] static base::Result<StreamMemory> make(const Device &device, const Settings &settings,
                                                         bool has_send_buffer);

    // The list of windows, and the slots behind them.
    [[nodiscard]] std::byte *windows_list() const { return list_; }
    [[nodiscard]] const std::byte *slot(std::uint32_t index) const {
        return list_ + windows * window_bytes + index * slot_bytes;
    }
    [[nodiscard]] std::byte *receive_buffer() const { return buffer_; }
    [[nodiscard]] const std::byte *word(std::size_t index) const { return words_ + index * word_bytes; }
    [[nodiscard]] std::byte *send_buffer() const { return words_ + send_buffer_at_; }
    // Operations of librpma name these two.
    [[nodiscard]] rpma_mr_local *private_memory() const { return private_.get(); }
    [[nodiscard]] std::size_t send_buffer_at() const { return send_buffer_at_; }
    // The peer names this one in its writes.
    [[nodiscard]] std::uint32_t shared_key() const { return shared_key_; }

private:
    Memory shared_;
    Memory private_;
    std::byte *list_ = nullptr;
    std::byte *buffer_ = nullptr;
    std::byte *words_ = nullptr;
    std::size_t send_buffer_at_ = 0;
    std::uint32_t shared_key_ = 0;
};

}  // namespace stream
