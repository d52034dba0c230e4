// SPDX-License-Identifier: BSD-3-Clause
#include "requests.hpp"

#include <cstdio>
#include <cstring>

#include "suite.hpp"

namespace conformance {

namespace {

constexpr std::uint64_t settling_wr_id = 0x5e77'1e00;

std::byte pattern(std::size_t i, unsigned seed) {
    return static_cast<std::byte>(i * 7 + (i >> 8) * 3 + seed);
}

Request with_flag(Request request, unsigned flag) {
    request.flags |= flag;
    return request;
}

}  // namespace

int post(const End &end, const std::vector<Request> &requests, std::size_t *refused) {
    std::vector<ibv_send_wr> chain(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const Request &request = requests[i];
        chain[i] = {};
        chain[i].wr_id = request.wr_id;
        chain[i].next = i + 1 < requests.size() ? &chain[i + 1] : nullptr;
        chain[i].sg_list = const_cast<ibv_sge *>(request.sges.data());
        chain[i].num_sge = static_cast<int>(request.sges.size());
        chain[i].opcode = request.opcode;
        chain[i].send_flags = request.flags;
        chain[i].imm_data = request.immediate;
        chain[i].wr.rdma.remote_addr = request.remote_address;
        chain[i].wr.rdma.rkey = request.rkey;
        chain[i].qp_type.xrc.remote_srqn = request.shared_queue;
        if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            chain[i].wr.atomic = {.remote_addr = request.remote_address,
                                  .compare_add = request.compare_add,
                                  .swap = request.swap,
                                  .rkey = request.rkey};
        }
    }
    ibv_send_wr *bad = nullptr;
    int result = ibv_post_send(end.id->qp, chain.data(), &bad);
    if (result != 0) {
        result = verbs::post_error(result);
    }
    if (refused != nullptr && bad != nullptr) {
        *refused = static_cast<std::size_t>(bad - chain.data());
    }
    return result;
}

int post_receive(const End &end, std::uint64_t wr_id, const std::vector<ibv_sge> &sges) {
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = const_cast<ibv_sge *>(sges.data());
    request.num_sge = static_cast<int>(sges.size());
    ibv_recv_wr *bad = nullptr;
    const int result = ibv_post_recv(end.id->qp, &request, &bad);
    return result == 0 ? 0 : verbs::post_error(result);
}

int post_shared_receive(const End &end, std::uint64_t wr_id, const std::vector<ibv_sge> &sges) {
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = const_cast<ibv_sge *>(sges.data());
    request.num_sge = static_cast<int>(sges.size());
    ibv_recv_wr *bad = nullptr;
    return ibv_post_srq_recv(end.srq, &request, &bad);
}

ibv_sge sge(const End &end, std::size_t offset, std::size_t length) {
    return {.addr = end.address(offset), .length = static_cast<std::uint32_t>(length), .lkey = end.mr->lkey};
}

Request write_request(const End &from, const End &to, std::size_t offset, std::size_t length,
                      std::uint64_t wr_id) {
    return {.opcode = IBV_WR_RDMA_WRITE,
            .wr_id = wr_id,
            .sges = {sge(from, offset, length)},
            .remote_address = to.address(offset),
            .rkey = to.mr->rkey};
}

Request read_request(const End &from, const End &to, std::size_t offset, std::size_t length,
                     std::uint64_t wr_id) {
    Request request = write_request(from, to, offset, length, wr_id);
    request.opcode = IBV_WR_RDMA_READ;
    return request;
}

Request flush_request(const End &to, std::size_t offset, std::size_t length, std::uint32_t level,
                      std::uint64_t wr_id) {
    return {.opcode = flush_opcode,
            .wr_id = wr_id,
            .sges = {{.addr = 0, .length = static_cast<std::uint32_t>(length), .lkey = 0}},
            .remote_address = to.address(offset),
            .rkey = to.mr->rkey,
            .immediate = level};
}

Request send_request(const End &from, std::size_t offset, std::size_t length, std::uint64_t wr_id) {
    return {.opcode = IBV_WR_SEND, .wr_id = wr_id, .sges = {sge(from, offset, length)}};
}

Request atomic_write_request(const End &from, const End &to, std::size_t offset, std::uint64_t wr_id) {
    Request request = write_request(from, to, offset, 8, wr_id);
    request.opcode = IBV_WR_ATOMIC_WRITE;
    return request;
}

Request settling_request(const End &from, const End &to, std::uint64_t wr_id) {
    if (from.native(verbs::native_flush)) {
        return flush_request(to, 0, to.memory.size(), SOFTRDMA_FLUSH_GLOBAL, wr_id);
    }
    // The read takes the last byte of the reader's memory, which tests leave alone.
    Request request = read_request(from, to, to.memory.size() - 1, 1, wr_id);
    request.sges = {sge(from, from.memory.size() - 1, 1)};
    return request;
}

Request with_immediate(Request request, std::uint32_t immediate) {
    request.opcode = request.opcode == IBV_WR_SEND ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM;
    request.immediate = immediate;
    return request;
}
Request unsignaled(Request request) {
    request.flags &= ~unsigned{IBV_SEND_SIGNALED};
    return request;
}
Request fenced(Request request) {
    return with_flag(std::move(request), IBV_SEND_FENCE);
}
Request inlined(Request request) {
    return with_flag(std::move(request), IBV_SEND_INLINE);
}
Request solicited(Request request) {
    return with_flag(std::move(request), IBV_SEND_SOLICITED);
}

bool poll_for(ibv_cq *cq, ibv_wc &completion) {
    constexpr unsigned polls_of_a_turn = 32;
    const auto deadline = std::chrono::steady_clock::now() + patience;
    int polled = 0;
    for (unsigned empty = 0; (polled = ibv_poll_cq(cq, 1, &completion)) == 0; ++empty) {
        if (std::chrono::steady_clock::now() > deadline) {
            return false;
        }
        // The other end's thread may need this processor. On a busy machine it comes back after some
        // milliseconds, and a poll moves only a part of a long message.
        if (empty % polls_of_a_turn == polls_of_a_turn - 1) {
            std::this_thread::yield();
        }
    }
    return polled == 1;
}

ibv_wc next_completion(ibv_cq *cq) {
    ibv_wc completion{};
    assert_true(poll_for(cq, completion));
    return completion;
}

void expect_completion(ibv_cq *cq, std::uint64_t wr_id, ibv_wc_status status) {
    const ibv_wc completion = next_completion(cq);
    if (completion.status != status || completion.wr_id != wr_id) {
        std::fprintf(stderr, "expected %llu: %s, got %llu: %s\n", static_cast<unsigned long long>(wr_id),
                     ibv_wc_status_str(status), static_cast<unsigned long long>(completion.wr_id),
                     ibv_wc_status_str(completion.status));
    }
    assert_int_equal(completion.status, status);
    assert_int_equal(completion.wr_id, wr_id);
}

void expect_no_completion(ibv_cq *cq) {
    ibv_wc completion{};
    assert_int_equal(ibv_poll_cq(cq, 1, &completion), 0);
}

ibv_cq *take_cq_event(const End &end) {
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    assert_int_equal(provider().completion.get_cq_event(end.channel, &cq, &context), 0);
    assert_ptr_equal(context, &end);
    return cq;
}

void expect_cq_event(const End &end, ibv_cq *cq) {
    assert_ptr_equal(take_cq_event(end), cq);
    provider().completion.ack_cq_events(cq, 1);
}

void arm(ibv_cq *cq, bool solicited_only) {
    assert_int_equal(ibv_req_notify_cq(cq, solicited_only ? 1 : 0), 0);
}

void settle(const End &from, const End &to) {
    assert_int_equal(post(from, {settling_request(from, to, settling_wr_id)}), 0);
    expect_completion(from.cq, settling_wr_id);
}

void fill(End &end, std::size_t offset, std::size_t length, unsigned seed) {
    for (std::size_t i = 0; i < length; ++i) {
        end.memory[offset + i] = pattern(i, seed);
    }
}

bool holds(const End &end, std::size_t offset, std::size_t length, unsigned seed) {
    for (std::size_t i = 0; i < length; ++i) {
        if (end.memory[offset + i] != pattern(i, seed)) {
            std::fprintf(stderr, "byte %zu of %zu is %02x, not %02x\n", i, length,
                         static_cast<unsigned>(end.memory[offset + i]),
                         static_cast<unsigned>(pattern(i, seed)));
            return false;
        }
    }
    return true;
}

bool same(const End &a, const End &b, std::size_t offset, std::size_t length) {
    return std::memcmp(a.memory.data() + offset, b.memory.data() + offset, length) == 0;
}

}  // namespace conformance
