// SPDX-License-Identifier: BSD-3-Clause
// librpma/mr_remote: a peer's memory, from its descriptor.
#pragma once

#include "librpma/mr_descriptor.hpp"
#include "verbs/post.hpp"

struct rpma_mr_remote final {
public:
    explicit rpma_mr_remote(const librpma::MrDescriptor &descriptor) : descriptor_{descriptor} {}

    [[nodiscard]] std::uint64_t size() const { return descriptor_.size; }
    [[nodiscard]] int usage() const { return descriptor_.usage; }
    // Returns whether the peer's descriptor says that the region takes native flush and atomic write.
    [[nodiscard]] bool takes_native() const { return descriptor_.takes_native; }
    // The offset is not checked, because the target checks it.
    [[nodiscard]] verbs::Remote at(std::size_t offset) const {
        return {.address = descriptor_.address + offset, .rkey = descriptor_.rkey};
    }

private:
    librpma::MrDescriptor descriptor_;
};
