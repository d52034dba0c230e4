// SPDX-License-Identifier: BSD-3-Clause
#include "registry/tcp_diag.hpp"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/mptcp_info.hpp"

namespace registry {

namespace {

// These are the values of <netinet/tcp.h>.
constexpr int tcp_established = 1;
constexpr int tcp_listen = 10;

inet_diag_req_v2 question_of(const sockaddr_storage &local) {
    inet_diag_req_v2 question{};
    question.sdiag_family = static_cast<std::uint8_t>(local.ss_family);
    question.sdiag_protocol = IPPROTO_TCP;
    question.idiag_states = ~0U;
    question.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
    question.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (local.ss_family == AF_INET) {
        const auto &v4 = reinterpret_cast<const sockaddr_in &>(local);
        question.id.idiag_sport = v4.sin_port;
        question.id.idiag_src[0] = v4.sin_addr.s_addr;
    } else if (local.ss_family == AF_INET6) {
        const auto &v6 = reinterpret_cast<const sockaddr_in6 &>(local);
        question.id.idiag_sport = v6.sin6_port;
        std::memcpy(question.id.idiag_src, &v6.sin6_addr, sizeof(v6.sin6_addr));
        question.id.idiag_if = v6.sin6_scope_id;
    }
    return question;
}

// Returns what INET_DIAG_INFO tells of a connection of MPTCP. An older kernel's is shorter, and ends with
// zeros here.
std::optional<base::MptcpInfo> info_of(std::span<const char> attributes) {
    while (attributes.size() >= sizeof(rtattr)) {
        rtattr head{};
        std::memcpy(&head, attributes.data(), sizeof(head));
        if (head.rta_len < sizeof(head) || head.rta_len > attributes.size()) {
            break;
        }
        if (head.rta_type == INET_DIAG_INFO) {
            base::MptcpInfo info{};
            std::memcpy(&info, attributes.data() + RTA_LENGTH(0),
                        std::min(sizeof(info), head.rta_len - sizeof(head)));
            return info;
        }
        attributes = attributes.subspan(std::min<std::size_t>(RTA_ALIGN(head.rta_len), attributes.size()));
    }
    return std::nullopt;
}

base::Result<TcpSocket> socket_of(std::span<const char> answer) {
    nlmsghdr header{};
    nlmsgerr refusal{};
    inet_diag_msg found{};
    if (answer.size() < NLMSG_HDRLEN) {
        return base::failure(EPROTO);
    }
    std::memcpy(&header, answer.data(), sizeof(header));
    const auto body = answer.subspan(NLMSG_HDRLEN);
    if (header.nlmsg_type == NLMSG_ERROR && body.size() >= sizeof(refusal)) {
        std::memcpy(&refusal, body.data(), sizeof(refusal));
        return base::failure(-refusal.error);
    }
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || body.size() < sizeof(found)) {
        return base::failure(EPROTO);
    }
    std::memcpy(&found, body.data(), sizeof(found));
    return TcpSocket{
        .user = found.idiag_uid, .inode = found.idiag_inode, .listens = found.idiag_state == tcp_listen};
}

// Returns false behind the last message.
bool take_multipath(std::span<const char> answer, std::map<std::uint32_t, unsigned> &all) {
    while (answer.size() >= NLMSG_HDRLEN) {
        nlmsghdr header{};
        std::memcpy(&header, answer.data(), sizeof(header));
        if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || header.nlmsg_len > answer.size() ||
            header.nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
            return false;
        }
        const auto body = answer.subspan(NLMSG_HDRLEN, header.nlmsg_len - NLMSG_HDRLEN);
        inet_diag_msg found{};
        std::memcpy(&found, body.data(), sizeof(found));
        const auto info = info_of(body.subspan(sizeof(found)));
        if (info && (info->flags & base::MptcpInfo::is_plain) == 0) {
            all[found.idiag_inode] = info->all_subflows;
        }
        answer = answer.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), answer.size()));
    }
    return true;
}

}  // namespace

base::Result<TcpSocket> tcp_socket_at(const sockaddr_storage &local) {
    struct Question {
        nlmsghdr header;
        inet_diag_req_v2 body;
    } question{.header = {.nlmsg_len = sizeof(Question),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST,
                          .nlmsg_seq = 1,
                          .nlmsg_pid = 0},
               .body = question_of(local)};
    const base::Fd kernel{::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)};
    alignas(nlmsghdr) std::array<char, 4096> answer{};
    ssize_t size = -1;
    if (kernel && send(kernel.get(), &question, sizeof(question), 0) == ssize_t{sizeof(question)}) {
        size = recv(kernel.get(), answer.data(), answer.size(), MSG_DONTWAIT);  // it answers within send()
    }
    if (size < 0) {
        const auto failed = base::last_failure();
        BASE_LOG(Debug, "the kernel cannot be asked about TCP's sockets: %s",
                 std::strerror(failed.error().number));
        return failed;
    }
    return socket_of(std::span{answer}.first(static_cast<std::size_t>(size)));
}

// The kernel tells all of them only, and the number of their protocol is longer than the question's field.
std::map<std::uint32_t, unsigned> multipath_connections() {
    constexpr int mptcp = IPPROTO_MPTCP;
    struct Question {
        nlmsghdr header;
        inet_diag_req_v2 body;
        rtattr head;
        std::uint32_t protocol;
    } question{.header = {.nlmsg_len = sizeof(Question),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                          .nlmsg_seq = 1,
                          .nlmsg_pid = 0},
               .body = {},
               .head = {.rta_len = RTA_LENGTH(sizeof(std::uint32_t)), .rta_type = INET_DIAG_REQ_PROTOCOL},
               .protocol = mptcp};
    question.body.sdiag_protocol = IPPROTO_RAW;
    question.body.idiag_ext = 1U << (INET_DIAG_INFO - 1);
    question.body.idiag_states = 1U << tcp_established;
    std::map<std::uint32_t, unsigned> all;
    for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) {
        question.body.sdiag_family = family;
        const base::Fd kernel{::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)};
        if (!kernel || send(kernel.get(), &question, sizeof(question), 0) != ssize_t{sizeof(question)}) {
            continue;
        }
        alignas(nlmsghdr) std::array<char, 32768> answer{};
        ssize_t size = 0;
        do {
            size = recv(kernel.get(), answer.data(), answer.size(), MSG_DONTWAIT);
        } while (size > 0 && take_multipath(std::span{answer}.first(static_cast<std::size_t>(size)), all));
    }
    return all;
}

}  // namespace registry
