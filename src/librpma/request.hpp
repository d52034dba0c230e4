// SPDX-License-Identifier: BSD-3-Clause
// librpma/request: makes a work request of an operation. The functions check the arguments of rpma_X and
// make the request, for rpma_X and rpma_post both. They are inlines, except where an operation is rare.
#pragma once

#include <arpa/inet.h>

#include <bit>

#include "librpma/conn.hpp"
#include "librpma/mr_local.hpp"
#include "librpma/mr_remote.hpp"
#include "verbs/native.hpp"

namespace librpma {

// A prepared request is not moved, because it points to its element.
struct Request {
    ibv_send_wr wr;
    ibv_sge part;
    // Is set only for a flush and an atomic write. When the provider has posts_native_alone, native.post
    // posts them.
    bool is_native;
};

// Only the RPMA_F_ bit that asks for a completion in any case matters, because errors always complete.
inline unsigned send_flags(int flags) {
    constexpr int always = RPMA_F_COMPLETION_ALWAYS & ~RPMA_F_COMPLETION_ON_ERROR;
    return (flags & always) != 0 ? IBV_SEND_SIGNALED : 0;
}

// Messages have the flag, and writes that complete a receive.
inline unsigned solicited_flag(int flags) {
    return (flags & RPMA_F_SOLICITED) != 0 ? IBV_SEND_SOLICITED : 0;
}

inline std::uint64_t wr_id(const void *op_context) {
    return std::bit_cast<std::uintptr_t>(op_context);
}

// Returns whether a range is inside a region.
inline bool is_within(std::size_t offset, std::size_t len, std::uint64_t size) {
    return offset <= size && len <= size - offset;
}

// Returns whether the arguments are a message's place, or none for an empty message.
inline bool is_message(const rpma_mr_local *dst, std::size_t offset, std::size_t len) {
    return (dst != nullptr || (offset == 0 && len == 0)) && len <= UINT32_MAX;
}

// A small source is taken during the post, an empty one is not. Two comparisons need one register less than
// len - 1 < inline_size, so that no register of the caller has to be saved.
inline unsigned inline_flag(const rpma_conn &conn, std::size_t len) {
    return len != 0 && len <= conn.inline_size() ? IBV_SEND_INLINE : 0;
}

// The arguments of an operation that break a rule. Its function logs the rule at ERROR, under the name of the
// public function, and returns RPMA_E_INVAL. The flags are not among them, because a post that kept them for
// this call would have to save a register. When no other rule is broken, the flags are 0.
struct Arguments {
    const char *function;
    const rpma_conn *conn;
    bool needs_both;  // regions
    std::size_t len;
    const rpma_mr_local *local;
    std::size_t local_offset;
    const rpma_mr_remote *remote;
    std::size_t remote_offset;
};
[[gnu::cold, gnu::noinline]] int invalid_operation(const Arguments &its);
[[gnu::cold, gnu::noinline]] int invalid_transfer(ibv_wr_opcode opcode, const rpma_conn *conn,
                                                  const rpma_mr_local *local, std::size_t local_offset,
                                                  const rpma_mr_remote *remote, std::size_t remote_offset,
                                                  std::size_t len);

// Prepares a read or write without bytes. It is not inline, because that is rare.
void prepare_nothing(Request &request, ibv_wr_opcode opcode, int flags, const void *op_context);

// Prepares a read, or a write with or without immediate. It has both ends, or neither and no bytes. Returns
// false when the arguments break a rule; the caller then reports the rule (invalid_transfer) in a tail call,
// so that valid arguments pay nothing for it.
inline bool prepare_transfer(Request &request, ibv_wr_opcode opcode, const rpma_conn *conn,
                             const rpma_mr_local *local, std::size_t local_offset,
                             const rpma_mr_remote *remote, std::size_t remote_offset, std::size_t len,
                             int flags, const void *op_context) {
    if (conn == nullptr || flags == 0) {
        return false;
    }
    if (local == nullptr) [[unlikely]] {
        const bool is_nothing = remote == nullptr && (local_offset | remote_offset | len) == 0;
        if (is_nothing) {
            prepare_nothing(request, opcode, flags, op_context);
        }
        return is_nothing;
    }
    if (remote == nullptr) [[unlikely]] {
        return false;
    }
    unsigned wr_flags = send_flags(flags);
    if (conn->needs_checks(len)) [[unlikely]] {
        if (len > UINT32_MAX || (conn->checks_bounds() && (!is_within(local_offset, len, local->size()) ||
                                                           !is_within(remote_offset, len, remote->size())))) {
            return false;
        }
        wr_flags |= opcode != IBV_WR_RDMA_READ ? inline_flag(*conn, len) : 0;
    }
    if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        wr_flags |= solicited_flag(flags);
    }
    request.part = local->part(local_offset, len);
    request.wr =
        verbs::request_of(opcode, &request.part, remote->at(remote_offset), wr_flags, wr_id(op_context));
    return true;
}

// Prepares a message with or without immediate; without a region it is empty. Returns false as
// prepare_transfer does.
inline bool prepare_message(Request &request, ibv_wr_opcode opcode, const rpma_conn *conn,
                            const rpma_mr_local *local, std::size_t offset, std::size_t len, int flags,
                            const void *op_context) {
    if (conn == nullptr || flags == 0 || (local == nullptr && (offset != 0 || len != 0))) {
        return false;
    }
    unsigned wr_flags = send_flags(flags);
    if (conn->needs_checks(len)) [[unlikely]] {
        if (len > UINT32_MAX ||
            (conn->checks_bounds() && local != nullptr && !is_within(offset, len, local->size()))) {
            return false;
        }
        wr_flags |= inline_flag(*conn, len);
    }
    wr_flags |= solicited_flag(flags);
    if (local != nullptr) {
        request.part = local->part(offset, len);
    }
    request.wr =
        verbs::request_of(opcode, local != nullptr ? &request.part : nullptr, wr_flags, wr_id(op_context));
    return true;
}

inline void set_immediate(Request &request, std::uint32_t imm) {
    request.wr.imm_data = htonl(imm);
}

[[gnu::cold, gnu::noinline]] int invalid_atomic_write(const rpma_conn *conn, const rpma_mr_remote *remote,
                                                      std::size_t offset, const char *source);

inline int prepare_atomic_write(Request &request, const rpma_conn *conn, const rpma_mr_remote *remote,
                                std::size_t offset, const char *source, int flags, const void *op_context) {
    if (conn == nullptr || remote == nullptr || source == nullptr || flags == 0 ||
        offset % RPMA_ATOMIC_WRITE_ALIGNMENT != 0) {
        (void)invalid_atomic_write(conn, remote, offset, source);
        return RPMA_E_INVAL;
    }
    constexpr std::uint32_t length = 8;
    if (conn->checks_bounds() && !is_within(offset, length, remote->size())) {
        (void)invalid_atomic_write(conn, remote, offset, source);
        return RPMA_E_INVAL;
    }
    request.part = {.addr = std::bit_cast<std::uintptr_t>(source), .length = length, .lkey = 0};
    // A flush above 4 GiB is always a read. A fence is needed so that such a flush is done first. Between
    // soft devices it is not needed, because they answer requests in order.
    const unsigned fence = conn->keeps_order() ? 0 : IBV_SEND_FENCE;
    request.is_native = conn->has_native(verbs::native_atomic_write, *remote);
    if (request.is_native) {
        request.wr = verbs::atomic_write_request(&request.part, remote->at(offset), send_flags(flags) | fence,
                                                 wr_id(op_context));
    } else {
        request.wr =
            verbs::request_of(IBV_WR_RDMA_WRITE, &request.part, remote->at(offset),
                              send_flags(flags) | IBV_SEND_INLINE | IBV_SEND_FENCE, wr_id(op_context));
    }
    return 0;
}

// Prepares a flush (flush.cpp); without native flush that is a read after write.
int prepare_flush(Request &request, const rpma_conn *conn, const rpma_mr_remote *remote, std::size_t offset,
                  std::size_t len, int type, int flags, const void *op_context);

// Returns the return code for the result of a post that failed. It is not inline, because that is rare.
[[nodiscard]] int log_refused_post(int returned);

// Returns the return code for the result of a post.
inline int posted(int number) {
    if (number != 0) [[unlikely]] {
        return log_refused_post(number);
    }
    return 0;
}

inline int post(const rpma_conn &conn, Request &request) {
    return posted(verbs::post(conn.qp(), request.wr));
}

// Returns whether the provider posts the flush or atomic write only separately, by native.post.
inline bool is_posted_alone(const rpma_conn &conn, const Request &request) {
    return request.is_native && conn.provider().capabilities.posts_native_alone;
}

// Posts a flush or atomic write.
inline int post_either(const rpma_conn &conn, Request &request) {
    if (is_posted_alone(conn, request)) {
        return posted(conn.provider().native.post(conn.qp(), request.wr));
    }
    return post(conn, request);
}

}  // namespace librpma
