// SPDX-License-Identifier: BSD-3-Clause
// Brings a queue pair to RTS with the number of a peer on 127.0.0.1.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "softrdma.h"

// This comes last, because it asserts.
#include "../base/fixture.hpp"

namespace test {

inline void make_ready(ibv_qp *of, std::uint32_t peers_number) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    assert_int_equal(softrdma_ibv_modify_qp(of, &attributes, IBV_QP_STATE | IBV_QP_PORT), 0);
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peers_number;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid.raw[10] = attributes.ah_attr.grh.dgid.raw[11] = 0xff;
    attributes.ah_attr.grh.dgid.raw[12] = 127;
    attributes.ah_attr.grh.dgid.raw[15] = 1;
    const bool reliable = of->qp_type != IBV_QPT_UC;
    assert_int_equal(
        softrdma_ibv_modify_qp(of, &attributes,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
        0);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 1;
    assert_int_equal(softrdma_ibv_modify_qp(of, &attributes,
                                            IBV_QP_STATE | IBV_QP_SQ_PSN |
                                                (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                                                          : 0)),
                     0);
}

}  // namespace test
