// SPDX-License-Identifier: BSD-3-Clause
// stream/owned: owners of librpma's objects, and its return codes as errno values.
#pragma once

#include <fcntl.h>
#include <librpma.h>

#include <cerrno>
#include <memory>

#include "base/result.hpp"

namespace stream {

template <auto Delete>
struct Deleter {
    template <typename T>
    void operator()(T *object) const {
        // It logs what it could not release. A region into which a stopped peer may still store stays, so
        // nothing else gets memory that is its own. A program's memory (riomap) may be reused after riounmap
        // or rclose, which tell that failure.
        (void)Delete(&object);
    }
};

using Peer = std::unique_ptr<rpma_peer, Deleter<rpma_peer_delete>>;
using Memory = std::unique_ptr<rpma_mr_local, Deleter<rpma_mr_dereg>>;
using Queue = std::unique_ptr<rpma_cq, Deleter<rpma_cq_delete>>;
using Configuration = std::unique_ptr<rpma_conn_cfg, Deleter<rpma_conn_cfg_delete>>;
using Events = std::unique_ptr<rpma_events, Deleter<rpma_events_delete>>;
using Request = std::unique_ptr<rpma_conn_req, Deleter<rpma_conn_req_delete>>;
using Endpoint = std::unique_ptr<rpma_ep, Deleter<rpma_ep_shutdown>>;
using EndpointConfiguration = std::unique_ptr<rpma_ep_cfg, Deleter<rpma_ep_cfg_delete>>;
using Connected = std::unique_ptr<rpma_conn, Deleter<rpma_conn_delete>>;

// Turns a failure of librpma, which has logged more, into an errno value. Where the process has no
// descriptors or memory, errno says that.
[[nodiscard]] inline base::Failure failure_of(int result) {
    switch (result) {
        case RPMA_E_NOMEM:
            return base::failure(ENOMEM);
        case RPMA_E_NOSUPP:
            return base::failure(EOPNOTSUPP);
        case RPMA_E_INVAL:
            return base::failure(EINVAL);
        default:
            return base::failure(errno == EMFILE || errno == ENFILE || errno == ENOMEM ? errno : ENOBUFS);
    }
}

// Calls a "new" function of librpma, whose last argument is where the object goes.
template <typename Owner, typename Function, typename... Arguments>
[[nodiscard]] base::Result<Owner> made(Function function, Arguments... arguments) {
    typename Owner::pointer object = nullptr;
    errno = 0;
    if (const int result = function(arguments..., &object); result != 0) {
        return failure_of(result);
    }
    return Owner{object};
}

// Makes a queue for events that does not block.
[[nodiscard]] inline base::Result<Events> made_events(rpma_peer *peer) {
    auto events = made<Events>(rpma_events_new, peer);
    int fd = -1;
    if (events && (rpma_events_get_fd(events->get(), &fd) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0)) {
        return base::last_failure();
    }
    return events;
}

}  // namespace stream
