// SPDX-License-Identifier: BSD-3-Clause
// soft/api/address_info: rdma_getaddrinfo, which turns names and services into addresses for ids to bind and
// resolve.
#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "soft/api/made.hpp"
#include "softrdma.h"

namespace {

using soft::status_failed;

// One answer, which owns its addresses.
struct AddressInfo : rdma_addrinfo {
    sockaddr_storage source;
    sockaddr_storage destination;

    void set_source(const sockaddr &address, socklen_t length) {
        std::memcpy(&source, &address, length);
        ai_src_addr = reinterpret_cast<sockaddr *>(&source);
        ai_src_len = length;
    }
    void set_destination(const sockaddr &address, socklen_t length) {
        std::memcpy(&destination, &address, length);
        ai_dst_addr = reinterpret_cast<sockaddr *>(&destination);
        ai_dst_len = length;
    }
};

// Returns whether the queue pair type or the port space asks for datagrams. The default is a stream.
bool wants_datagrams(const rdma_addrinfo &hints) {
    if (hints.ai_qp_type != 0) {
        return hints.ai_qp_type == IBV_QPT_UD;
    }
    return hints.ai_port_space == RDMA_PS_UDP || hints.ai_port_space == RDMA_PS_IPOIB;
}

// Returns 0, or as librdmacm does: a code of getaddrinfo(3), or -1 and errno.
int look_up(const char *node, const char *service, const rdma_addrinfo &hints, AddressInfo &answer) {
    const bool passive = (hints.ai_flags & RAI_PASSIVE) != 0;
    addrinfo asked{};
    asked.ai_socktype = wants_datagrams(hints) ? SOCK_DGRAM : SOCK_STREAM;
    asked.ai_family = hints.ai_family;
    asked.ai_flags =
        (passive ? AI_PASSIVE : 0) | ((hints.ai_flags & RAI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0);
    addrinfo *found = nullptr;
    if (const int error = getaddrinfo(node, service, &asked, &found); error != 0) {
        return error == EAI_SYSTEM ? -1 : error;
    }
    answer.ai_flags = passive ? RAI_PASSIVE : 0;
    answer.ai_family = found->ai_family;
    if (passive) {
        answer.set_source(*found->ai_addr, found->ai_addrlen);
    } else {
        answer.set_destination(*found->ai_addr, found->ai_addrlen);
    }
    freeaddrinfo(found);
    return 0;
}

bool fits(const sockaddr *address, socklen_t length) {
    return address != nullptr && length <= sizeof(sockaddr_storage);
}

}  // namespace

// The answer takes each value from the hints or from the look-up. RAI_NOROUTE has no effect, because there is
// no route to leave out.
int softrdma_rdma_getaddrinfo(const char *node, const char *service, const rdma_addrinfo *hints,
                              rdma_addrinfo **res) {
    static constexpr rdma_addrinfo no_hints{};
    const rdma_addrinfo &wanted = hints != nullptr ? *hints : no_hints;
    const bool bad_source = wanted.ai_src_len != 0 && !fits(wanted.ai_src_addr, wanted.ai_src_len);
    const bool bad_destination = wanted.ai_dst_len != 0 && !fits(wanted.ai_dst_addr, wanted.ai_dst_len);
    if ((node == nullptr && service == nullptr && hints == nullptr) || bad_source || bad_destination) {
        return status_failed(EINVAL);
    }
    std::unique_ptr<AddressInfo> answer{new (std::nothrow) AddressInfo{}};
    if (!answer) {
        return status_failed(ENOMEM);
    }
    if (node != nullptr || service != nullptr) {
        if (const int error = look_up(node, service, wanted, *answer); error != 0) {
            return error;
        }
    } else {
        answer->ai_flags = wanted.ai_flags;
        answer->ai_family = wanted.ai_family;
        if (wanted.ai_dst_len != 0) {
            answer->set_destination(*wanted.ai_dst_addr, wanted.ai_dst_len);
        }
    }
    if (answer->ai_src_len == 0 && wanted.ai_src_len != 0) {
        answer->set_source(*wanted.ai_src_addr, wanted.ai_src_len);
    }
    const bool datagrams = wants_datagrams(wanted);
    answer->ai_qp_type = wanted.ai_qp_type != 0 ? wanted.ai_qp_type : (datagrams ? IBV_QPT_UD : IBV_QPT_RC);
    answer->ai_port_space =
        wanted.ai_port_space != 0 ? wanted.ai_port_space : (datagrams ? RDMA_PS_UDP : RDMA_PS_TCP);
    *res = answer.release();
    return 0;
}

void softrdma_rdma_freeaddrinfo(rdma_addrinfo *res) {
    delete static_cast<AddressInfo *>(res);
}
