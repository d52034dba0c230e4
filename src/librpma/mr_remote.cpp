// SPDX-License-Identifier: BSD-3-Clause
// librpma/mr_remote: a peer's memory, from its descriptor.
#include "librpma/mr_remote.hpp"

#include <cinttypes>

int rpma_mr_remote_from_descriptor(const void *desc, size_t desc_size, struct rpma_mr_remote **mr_ptr) {
    if (desc == nullptr || mr_ptr == nullptr) {
        return librpma::invalid("desc or mr_ptr is NULL");
    }
    const auto descriptor = librpma::read_mr_descriptor({static_cast<const std::byte *>(desc), desc_size});
    if (!descriptor) {
        return descriptor.error();
    }
    auto mr = librpma::make<rpma_mr_remote>(*descriptor);
    if (mr == nullptr) {
        return RPMA_E_NOMEM;
    }
    BASE_LOG(Debug,
             "remote region: address 0x%" PRIx64 ", %" PRIu64 " bytes, rkey 0x%" PRIx32 ", usage 0x%x%s",
             descriptor->address, descriptor->size, descriptor->rkey, unsigned{descriptor->usage},
             descriptor->takes_native ? ", takes native flush and atomic write" : "");
    *mr_ptr = mr.release();
    return 0;
}

int rpma_mr_remote_get_size(const struct rpma_mr_remote *mr, size_t *size) {
    if (mr == nullptr || size == nullptr) {
        return librpma::invalid("mr or size is NULL");
    }
    *size = mr->size();
    return 0;
}

int rpma_mr_remote_get_flush_type(const struct rpma_mr_remote *mr, int *flush_type) {
    if (mr == nullptr || flush_type == nullptr) {
        return librpma::invalid("mr or flush_type is NULL");
    }
    *flush_type = mr->usage() & (RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);
    return 0;
}

int rpma_mr_remote_delete(struct rpma_mr_remote **mr_ptr) {
    return librpma::destroy(mr_ptr);
}
