// SPDX-License-Identifier: BSD-3-Clause
// stream/report: how a stream fares, which other programs may read (registry/record.hpp).
#pragma once

#include "registry/record.hpp"

namespace stream {

// The stream writes here from its beginning; others see it once report_to() has said where.
class Report {
public:
    Report() = default;
    Report(const Report &) = delete;
    Report &operator=(const Report &) = delete;

    // From now on the stream says there how it fares. thread: the kernel's number of its shard's.
    void report_to(registry::Live &live, std::uint32_t thread) {
        own_.thread = thread;
        live = own_;
        live_ = &live;
    }
    // Others are told nothing any more.
    void end() {
        own_ = *live_;
        live_ = &own_;
    }
    [[nodiscard]] registry::Live *operator->() { return live_; }

private:
    registry::Live own_;
    registry::Live *live_ = &own_;
};

}  // namespace stream
