// SPDX-License-Identifier: BSD-3-Clause
// librpma/peer_cfg: the configuration that a peer declares, and its descriptor:
//
//   byte 0: 1 when what is written to the peer is durable once flushed, otherwise 0; received: any other
//   value is 1
#include "librpma/peer_cfg.hpp"

#include <cstddef>

namespace {

constexpr std::size_t descriptor_size = 1;

}  // namespace

int rpma_peer_cfg_new(struct rpma_peer_cfg **pcfg_ptr) {
    if (pcfg_ptr == nullptr) {
        return librpma::invalid("pcfg_ptr is NULL");
    }
    auto pcfg = librpma::make<rpma_peer_cfg>();
    if (pcfg == nullptr) {
        return RPMA_E_NOMEM;
    }
    *pcfg_ptr = pcfg.release();
    return 0;
}

int rpma_peer_cfg_delete(struct rpma_peer_cfg **pcfg_ptr) {
    return librpma::destroy(pcfg_ptr);
}

int rpma_peer_cfg_set_direct_write_to_pmem(struct rpma_peer_cfg *pcfg, bool supported) {
    if (pcfg == nullptr) {
        return librpma::invalid("pcfg is NULL");
    }
    pcfg->set_direct_write_to_pmem(supported);
    return 0;
}

int rpma_peer_cfg_get_direct_write_to_pmem(const struct rpma_peer_cfg *pcfg, bool *supported) {
    if (pcfg == nullptr || supported == nullptr) {
        return librpma::invalid("pcfg or supported is NULL");
    }
    *supported = pcfg->direct_write_to_pmem();
    return 0;
}

int rpma_peer_cfg_get_descriptor(const struct rpma_peer_cfg *pcfg, void *desc) {
    if (pcfg == nullptr || desc == nullptr) {
        return librpma::invalid("pcfg or desc is NULL");
    }
    *static_cast<std::byte *>(desc) = std::byte{pcfg->direct_write_to_pmem()};
    return 0;
}

int rpma_peer_cfg_get_descriptor_size(const struct rpma_peer_cfg *pcfg, size_t *desc_size) {
    if (pcfg == nullptr || desc_size == nullptr) {
        return librpma::invalid("pcfg or desc_size is NULL");
    }
    *desc_size = descriptor_size;
    return 0;
}

int rpma_peer_cfg_from_descriptor(const void *desc, size_t desc_size, struct rpma_peer_cfg **pcfg_ptr) {
    if (desc == nullptr || pcfg_ptr == nullptr) {
        return librpma::invalid("desc or pcfg_ptr is NULL");
    }
    if (desc_size < descriptor_size) {
        BASE_LOG(Error, "a peer configuration's descriptor has %zu bytes, at least %zu are needed", desc_size,
                 descriptor_size);
        return RPMA_E_INVAL;
    }
    const bool supported = *static_cast<const std::byte *>(desc) != std::byte{0};
    const int result = rpma_peer_cfg_new(pcfg_ptr);
    if (result != 0) {
        return result;
    }
    (*pcfg_ptr)->set_direct_write_to_pmem(supported);
    BASE_LOG(Info, "remote peer configuration: direct write to persistent memory %s",
             supported ? "supported" : "not supported");
    return 0;
}
