// SPDX-License-Identifier: BSD-3-Clause
#include "soft/cm/wanted.hpp"

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

bool crc_wanted(const base::TlsAsked &tls) {
    return crc_of_environment().value_or(false) && !tls.is_required();
}

base::Result<void> may_be_secure(const base::TlsAsked &asked, Group &group) {
    return asked.is_required() ? group.allow_nudges() : base::Result<void>{};
}

base::Result<rdma_conn_param> wanted_parameters(const rdma_conn_param *given) {
    rdma_conn_param wanted{};
    wanted.responder_resources = RDMA_MAX_RESP_RES;
    wanted.initiator_depth = RDMA_MAX_INIT_DEPTH;
    if (given != nullptr) {
        wanted = *given;
    }
    if (wanted.private_data_len > limits::max_private_bytes) {
        BASE_LOG(Error, "private data of %u bytes: the most is %zu", wanted.private_data_len,
                 limits::max_private_bytes);
        return base::failure(EINVAL);
    }
    const auto too_deep = [](std::uint8_t depth, std::uint8_t most) {
        return depth > limits::max_rd_atomic && depth != most;
    };
    if (too_deep(wanted.responder_resources, RDMA_MAX_RESP_RES) ||
        too_deep(wanted.initiator_depth, RDMA_MAX_INIT_DEPTH)) {
        BASE_LOG(Error, "%u and %u reads at once: the most is %u", wanted.responder_resources,
                 wanted.initiator_depth, limits::max_rd_atomic);
        return base::failure(EINVAL);
    }
    return wanted;
}

std::uint8_t told_depth(std::uint16_t depth) {
    return static_cast<std::uint8_t>(std::min<std::uint16_t>(depth, UINT8_MAX));
}

std::uint16_t granted_depth(std::uint8_t wanted) {
    return std::min(wanted, limits::max_rd_atomic);
}

}  // namespace soft
