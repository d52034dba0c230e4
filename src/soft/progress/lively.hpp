// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/lively: the sources of a group that had work lately, and whose links tell of more without a
// descriptor (Link::look()). A poller looks at each of these, so their links do not rest, and no peer needs
// to ring. A source that has no work for long leaves the list.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "soft/progress/source.hpp"

namespace soft {

// It is not thread-safe: its owner locks.
class Lively {
public:
    // A look at so many takes as long as a question to the kernel.
    static constexpr std::size_t most = 64;

    [[nodiscard]] std::span<Source *const> all() const { return {sources_.get(), count_}; }
    [[nodiscard]] static bool has(const Source &source) { return source.lively_place_ != Source::nowhere; }
    // Adds a source that is not there. Returns false when its link does not tell, or there is no place.
    [[nodiscard]] bool add(Source &source);
    // Removes the source, if it is there.
    void remove(Source &source);

    struct Taken {
        std::size_t count = 0;    // of the sources that have work
        Source *quiet = nullptr;  // has left the list, and is to rest; null when none has
        bool alone = false;       // the descriptors may be asked another time
    };
    // Looks at all of them, and puts those that have work into `to`, which has room for `most`.
    [[nodiscard]] Taken take(std::span<Source *> to);

private:
    std::unique_ptr<Source *[]> sources_;  // room for `most`, allocated for the first
    std::size_t count_ = 0;
    unsigned turns_alone_ = 0;  // since the descriptors were asked
};

}  // namespace soft
