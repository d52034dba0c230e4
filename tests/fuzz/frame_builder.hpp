// SPDX-License-Identifier: BSD-3-Clause
// This class makes FPDUs that are nearly right. The codecs make them from choices of the input, with the real
// keys and addresses of the device, in any order, and with one or another field wrong.
#pragma once

#include <vector>

#include "choices.hpp"
#include "fuzz_device.hpp"
#include "soft/wire/ddp.hpp"

namespace fuzz {

class FrameBuilder {
public:
    FrameBuilder(Choices &choices, FuzzDevice &device, bool crc)
        : choices_{choices}, device_{device}, crc_{crc} {}

    static constexpr unsigned kinds = 14;
    // Returns an FPDU of this kind (modulo `kinds`), borrowed until the next call.
    [[nodiscard]] std::span<const std::byte> build(unsigned kind);
    [[nodiscard]] std::span<const std::byte> last() const { return frame_; }

private:
    struct Place {
        std::uint32_t key;
        std::uint64_t address;
    };
    [[nodiscard]] Place place();
    [[nodiscard]] soft::wire::Segment segment(unsigned kind);
    void body(soft::wire::Opcode opcode);
    void twist(soft::wire::Segment &segment);

    Choices &choices_;
    FuzzDevice &device_;
    const bool crc_;
    std::uint32_t send_msn_ = 1;
    std::uint32_t request_msn_ = 1;
    std::uint32_t response_msn_ = 1;
    std::uint32_t message_bytes_ = 0;
    std::vector<std::byte> payload_;
    std::vector<std::byte> frame_;
};

}  // namespace fuzz
