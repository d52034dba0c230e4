// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/set_attributes: the attributes that a program has set on a queue pair with ibv_modify_qp,
// and which of them it must and may set with each change of state (the InfiniBand specification's table).
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace soft {

// Its owner locks.
class SetAttributes {
public:
    // Returns whether a queue pair of this type may go from one state to another one, or keep its state, with
    // these attributes; it logs what is missing or too much.
    [[nodiscard]] static bool allow(const ibv_qp &queue_pair, ibv_qp_state from, ibv_qp_state to,
                                    const ibv_qp_attr &attributes, int mask);

    // Comes before take(). A queue pair of rdma_cm, whose program sets nothing, has no room. Returns false
    // when memory is lacking.
    [[nodiscard]] bool make_room();
    // Keeps the attributes of the mask.
    void take(const ibv_qp_attr &attributes, int mask);
    void forget() {
        if (kept_ != nullptr) {
            *kept_ = {};
        }
    }
    // Writes the kept ones, and no others.
    void tell(ibv_qp_attr &attributes) const;

private:
    std::unique_ptr<ibv_qp_attr> kept_;
};

}  // namespace soft
