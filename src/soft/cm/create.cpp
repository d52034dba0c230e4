// SPDX-License-Identifier: BSD-3-Clause
// soft/cm: creates an id of the kind that its port space asks for.
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "soft/cm/datagram_id.hpp"
#include "soft/cm/tcp_id.hpp"
#include "soft/ground/environment.hpp"

namespace soft {

base::Result<CmId *> CmId::create(EventChannel *channel, void *context, rdma_port_space port_space) {
    OwnChannel own;
    if (channel != nullptr && channel->group()->inherited()) {
        return base::failure(EINVAL);
    }
    // The questions and answers of these ids carry private data, and nobody authenticates them.
    if (port_space != RDMA_PS_TCP && tls_is_required()) {
        BASE_LOG(Error, "no id but of RDMA_PS_TCP: RPMA_TLS asks for TLS, which datagrams do not have");
        return base::failure(EOPNOTSUPP);
    }
    if (channel == nullptr) {
        auto made = EventChannel::create();
        if (!made) {
            return std::unexpected{made.error()};
        }
        own.reset(*made);
        channel = own.get();
    }
    auto *const id = port_space == RDMA_PS_TCP ? static_cast<CmId *>(new TcpId{channel, context})
                                               : new DatagramId{channel, context, port_space};
    id->own_channel_ = std::move(own);
    id->sync = id->own_channel_ ? 1 : 0;
    return id;
}

}  // namespace soft
