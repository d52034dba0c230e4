// SPDX-License-Identifier: BSD-3-Clause
// librpma/mr_local: registered memory of this process.
#include "librpma/mr_local.hpp"

#include <cerrno>

#include "librpma/conn_req.hpp"

librpma::MrDescriptor rpma_mr_local::descriptor() const {
    return {.address = address_,
            .size = size(),
            .rkey = region_->rkey,
            .usage = static_cast<std::uint8_t>(usage_),
            .takes_native = takes_native_};
}

bool rpma_mr_local::is_accessed() {
    // With a device of the kernel the object ends whatever ibv_dereg_mr returns, as in librpma 1.3.
    if (&provider_ != &verbs::soft || region_.try_reset() != EBUSY) {
        return false;
    }
    BASE_LOG(Error, "ibv_dereg_mr failed: a peer on this host may still access the memory");
    return true;
}

int rpma_mr_local::close() {
    librpma::FirstError error;
    error.add(region_.reset(), "ibv_dereg_mr");
    error.add_code(pages_.close());
    return error.code();
}

librpma::Result<std::unique_ptr<rpma_mr_local>> rpma_mr_local::create(const rpma_peer &peer,
                                                                      librpma::Pages pages, void *address,
                                                                      std::size_t size, int usage,
                                                                      ibv_qp *only_for) {
    auto memory = peer.register_memory(address, size, usage, only_for);
    if (!memory) {
        return librpma::Failure{memory.error()};
    }
    auto mr = librpma::make<rpma_mr_local>(peer.provider(), std::move(pages), std::move(*memory));
    if (mr == nullptr) {
        return librpma::Failure{RPMA_E_NOMEM};
    }
    return mr;
}

namespace {

bool is_usage(int usage) {
    return usage != 0 && (usage & ~librpma::all_usages) == 0;
}

}  // namespace

int rpma_mr_reg(struct rpma_peer *peer, void *ptr, size_t size, int usage, struct rpma_mr_local **mr_ptr) {
    if (peer == nullptr || ptr == nullptr || size == 0 || mr_ptr == nullptr || !is_usage(usage)) {
        return librpma::invalid(
            "peer, ptr or mr_ptr is NULL, or size is 0, or usage is 0 or has unknown bits");
    }
    return librpma::give(rpma_mr_local::create(*peer, {}, ptr, size, usage), mr_ptr);
}

int rpma_conn_req_mr_reg(struct rpma_conn_req *req, void *ptr, size_t size, int usage,
                         struct rpma_mr_local **mr_ptr) {
    if (req == nullptr || ptr == nullptr || size == 0 || mr_ptr == nullptr || !is_usage(usage)) {
        return librpma::invalid(
            "req, ptr or mr_ptr is NULL, or size is 0, or usage is 0 or has unknown bits");
    }
    if (!req->ready()) {
        BASE_LOG(Error, "memory cannot be registered for the request yet (rpma_conn_req_proceed)");
        return RPMA_E_INVAL;
    }
    return librpma::give(rpma_mr_local::create(req->peer(), {}, ptr, size, usage, req->qp()), mr_ptr);
}

int rpma_conn_mr_reg(struct rpma_conn *conn, void *ptr, size_t size, int usage,
                     struct rpma_mr_local **mr_ptr) {
    if (conn == nullptr || ptr == nullptr || size == 0 || mr_ptr == nullptr || !is_usage(usage)) {
        return librpma::invalid(
            "conn, ptr or mr_ptr is NULL, or size is 0, or usage is 0 or has unknown bits");
    }
    return librpma::give(rpma_mr_local::create(conn->peer(), {}, ptr, size, usage, conn->qp()), mr_ptr);
}

int rpma_mr_alloc(struct rpma_peer *peer, size_t size, int usage, struct rpma_mr_local **mr_ptr) {
    if (peer == nullptr || size == 0 || mr_ptr == nullptr || !is_usage(usage)) {
        return librpma::invalid("peer or mr_ptr is NULL, or size is 0, or usage is 0 or has unknown bits");
    }
    auto pages = librpma::Pages::create(size);
    if (!pages) {
        return pages.error();
    }
    void *const address = pages->address();
    return librpma::give(rpma_mr_local::create(*peer, std::move(*pages), address, size, usage), mr_ptr);
}

int rpma_mr_dereg(struct rpma_mr_local **mr_ptr) {
    if (mr_ptr != nullptr && *mr_ptr != nullptr && (*mr_ptr)->is_accessed()) {
        return RPMA_E_PROVIDER;
    }
    return librpma::destroy(mr_ptr);
}

int rpma_mr_get_descriptor(const struct rpma_mr_local *mr, void *desc) {
    if (mr == nullptr || desc == nullptr) {
        return librpma::invalid("mr or desc is NULL");
    }
    librpma::write(mr->descriptor(), std::span<std::byte, librpma::mr_descriptor_size>{
                                         static_cast<std::byte *>(desc), librpma::mr_descriptor_size});
    return 0;
}

int rpma_mr_get_descriptor_size(const struct rpma_mr_local *mr, size_t *desc_size) {
    if (mr == nullptr || desc_size == nullptr) {
        return librpma::invalid("mr or desc_size is NULL");
    }
    *desc_size = librpma::mr_descriptor_size;
    return 0;
}

int rpma_mr_get_ptr(const struct rpma_mr_local *mr, void **ptr) {
    if (mr == nullptr || ptr == nullptr) {
        return librpma::invalid("mr or ptr is NULL");
    }
    *ptr = mr->region().addr;
    return 0;
}

int rpma_mr_get_size(const struct rpma_mr_local *mr, size_t *size) {
    if (mr == nullptr || size == nullptr) {
        return librpma::invalid("mr or size is NULL");
    }
    *size = mr->region().length;
    return 0;
}

int rpma_mr_get_key(const struct rpma_mr_local *mr, uint32_t *key) {
    if (mr == nullptr || key == nullptr) {
        return librpma::invalid("mr or key is NULL");
    }
    *key = mr->region().rkey;
    return 0;
}

int rpma_mr_advise(struct rpma_mr_local *mr, size_t offset, size_t len, int advice, uint32_t flags) {
    if (mr == nullptr) {
        return librpma::invalid("mr is NULL");
    }
    ibv_sge part = mr->part(offset, len);
    const int result = mr->provider().domain.advise_mr(
        mr->region().pd, static_cast<ibv_advise_mr_advice>(advice), flags, &part, 1);
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
