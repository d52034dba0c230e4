// SPDX-License-Identifier: BSD-3-Clause
// librpma/mr_local: registered memory of this process.
#include "librpma/mr_local.hpp"

#include <cerrno>

librpma::MrDescriptor rpma_mr_local::descriptor() const {
    return {.address = address_,
            .size = size(),
            .rkey = region_->rkey,
            .usage = static_cast<std::uint8_t>(usage_),
            .takes_native = takes_native_};
}

int rpma_mr_local::close() {
    librpma::FirstError error;
    error.add(region_.reset(), "ibv_dereg_mr");
    return error.code();
}

int rpma_mr_reg(struct rpma_peer *peer, void *ptr, size_t size, int usage, struct rpma_mr_local **mr_ptr) {
    if (peer == nullptr || ptr == nullptr || size == 0 || mr_ptr == nullptr || usage == 0 ||
        (usage & ~librpma::all_usages) != 0) {
        return RPMA_E_INVAL;
    }
    auto memory = peer->register_memory(ptr, size, usage);
    if (!memory) {
        return memory.error();
    }
    auto mr = librpma::make<rpma_mr_local>(peer->provider(), std::move(*memory), usage);
    if (mr == nullptr) {
        return RPMA_E_NOMEM;
    }
    *mr_ptr = mr.release();
    return 0;
}

int rpma_mr_dereg(struct rpma_mr_local **mr_ptr) {
    return librpma::destroy(mr_ptr);
}

int rpma_mr_get_descriptor(const struct rpma_mr_local *mr, void *desc) {
    if (mr == nullptr || desc == nullptr) {
        return RPMA_E_INVAL;
    }
    librpma::write(mr->descriptor(), std::span<std::byte, librpma::mr_descriptor_size>{
                                         static_cast<std::byte *>(desc), librpma::mr_descriptor_size});
    return 0;
}

int rpma_mr_get_descriptor_size(const struct rpma_mr_local *mr, size_t *desc_size) {
    if (mr == nullptr || desc_size == nullptr) {
        return RPMA_E_INVAL;
    }
    *desc_size = librpma::mr_descriptor_size;
    return 0;
}

int rpma_mr_get_ptr(const struct rpma_mr_local *mr, void **ptr) {
    if (mr == nullptr || ptr == nullptr) {
        return RPMA_E_INVAL;
    }
    *ptr = mr->region().addr;
    return 0;
}

int rpma_mr_get_size(const struct rpma_mr_local *mr, size_t *size) {
    if (mr == nullptr || size == nullptr) {
        return RPMA_E_INVAL;
    }
    *size = mr->region().length;
    return 0;
}

int rpma_mr_advise(struct rpma_mr_local *mr, size_t offset, size_t len, int advice, uint32_t flags) {
    if (mr == nullptr) {
        return RPMA_E_INVAL;
    }
    ibv_sge part = mr->part(offset, len);
    const int result =
        mr->provider().advise_mr(mr->region().pd, static_cast<ibv_advise_mr_advice>(advice), flags, &part, 1);
    switch (result) {
        case 0:
            return 0;
        case EOPNOTSUPP:
            BASE_LOG(Warning, "ibv_advise_mr: this %s device does not take advice %d", mr->provider().name,
                     advice);
            return RPMA_E_NOSUPP;
        case EFAULT:
        case EINVAL:
            BASE_LOG(Error, "ibv_advise_mr(offset %zu, %zu bytes of %zu, advice %d, flags 0x%x) failed: %s",
                     offset, len, mr->region().length, advice, flags, librpma::error_text(result));
            return RPMA_E_INVAL;
        default:
            BASE_LOG(Error, "ibv_advise_mr failed: %s", librpma::error_text(result));
            return RPMA_E_PROVIDER;
    }
}
