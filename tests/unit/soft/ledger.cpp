// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "ledger.hpp"

#include <cerrno>
#include <cstring>

namespace test {

namespace {

constexpr int flush = SOFTRDMA_WR_FLUSH;

bool is_atomic(int opcode) {
    return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

}  // namespace

void Ledger::post_receive(ibv_qp *qp) {
    Sinks::Cell *const sink = sinks_.take(Disorder::receive_bytes);
    if (sink == nullptr) {
        return;
    }
    ibv_sge place = sinks_.sge(*sink);
    ibv_recv_wr request{};
    request.wr_id = next_wr_id_++;
    request.sg_list = &place;
    request.num_sge = 1;
    ibv_recv_wr *bad = nullptr;
    // When the connection is over, a receive completes at once. So the receive is noted before it is posted.
    auto &receives = queues_[qp->qp_num].receives;
    receives.push_back({.wr_id = request.wr_id, .sink = sink});
    const int error = ibv_post_recv(qp, &request, &bad);
    if (error != 0) {
        assert_int_equal(error, ENOMEM);
        give_back(receives.back());
        receives.pop_back();
        return;
    }
    ++counts_.posted;
}

// Returns a size that is small most of the time.
std::size_t Ledger::any_size() {
    const auto kind = dice_.below(100);
    return dice_.below(kind < 90 ? 512 : kind < 97 ? 4096 : Sinks::most_bytes);
}

ibv_send_wr Ledger::any_request() {
    static constexpr int kinds[] = {IBV_WR_RDMA_READ,
                                    IBV_WR_RDMA_READ,
                                    IBV_WR_RDMA_READ,
                                    IBV_WR_RDMA_READ,
                                    flush,
                                    flush,
                                    IBV_WR_ATOMIC_FETCH_AND_ADD,
                                    IBV_WR_ATOMIC_CMP_AND_SWP,
                                    IBV_WR_RDMA_WRITE,
                                    IBV_WR_SEND,
                                    IBV_WR_RDMA_WRITE_WITH_IMM,
                                    IBV_WR_SEND_WITH_IMM,
                                    IBV_WR_SEND_WITH_INV,
                                    IBV_WR_ATOMIC_WRITE};
    ibv_send_wr request{};
    request.wr_id = next_wr_id_++;
    request.opcode = static_cast<ibv_wr_opcode>(kinds[dice_.below(std::size(kinds))]);
    request.send_flags = (dice_.chance(80) ? unsigned{IBV_SEND_SIGNALED} : 0U) |
                         (dice_.chance(5) ? unsigned{IBV_SEND_FENCE} : 0U) |
                         (dice_.chance(10) ? unsigned{IBV_SEND_SOLICITED} : 0U);
    request.imm_data = SOFTRDMA_FLUSH_GLOBAL;
    const std::uint64_t address = dice_.any() / 8 * 8;
    if (is_atomic(request.opcode)) {
        request.wr.atomic.remote_addr = address;
    } else {
        request.wr.rdma.remote_addr = address;
    }
    request.num_sge = 1;
    return request;
}

void Ledger::post_request(ibv_qp *qp) {
    ibv_send_wr request = any_request();
    const int opcode = static_cast<int>(request.opcode);
    const bool is_word = is_atomic(opcode) || opcode == IBV_WR_ATOMIC_WRITE;
    const std::size_t bytes = is_word ? sizeof(std::uint64_t) : any_size();
    Posted posted{.wr_id = request.wr_id,
                  .opcode = opcode,
                  .signaled = (request.send_flags & IBV_SEND_SIGNALED) != 0,
                  .address = is_atomic(opcode) ? request.wr.atomic.remote_addr : request.wr.rdma.remote_addr};
    ibv_sge place = source_;
    place.length = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, source_.length));
    if (is_atomic(opcode) || opcode == IBV_WR_RDMA_READ) {
        posted.sink = sinks_.take(bytes);
        if (posted.sink == nullptr) {
            return;
        }
        place = sinks_.sge(*posted.sink);
    }
    request.sg_list = &place;
    ibv_send_wr *bad = nullptr;
    auto &requests = queues_[qp->qp_num].requests;
    requests.push_back(posted);
    const int error = ibv_post_send(qp, &request, &bad);
    if (error != 0) {
        assert_true(error == ENOMEM || error == EINVAL || error == EOPNOTSUPP);
        give_back(posted);
        requests.pop_back();
        return;
    }
    ++counts_.posted;
}

void Ledger::give_back(const Posted &posted) {
    if (posted.sink != nullptr) {
        sinks_.give_back(*posted.sink, posted.sink->used);
    }
}

// Asserts that the request has brought all of its bytes.
void Ledger::succeeded(const Posted &request) {
    if (request.opcode == IBV_WR_RDMA_READ) {
        const auto seen = sinks_.filled_part(*request.sink);
        assert_same_bytes(seen, read_at(request.address, seen.size()));
        ++counts_.answered;
    } else if (is_atomic(request.opcode)) {
        std::uint64_t seen = 0;
        std::memcpy(&seen, sinks_.filled_part(*request.sink).data(), sizeof(seen));
        assert_true(seen == found_at(request.address));
        ++counts_.answered;
    } else if (request.opcode == flush) {
        ++counts_.answered;
    }
    give_back(request);
}

void Ledger::completed(const ibv_wc &completion) {
    const auto known = queues_.find(completion.qp_num);
    assert_true(known != queues_.end());
    auto &[requests, receives] = known->second;
    const bool succeeds = completion.status == IBV_WC_SUCCESS;
    counts_.failed += succeeds ? 0 : 1;
    if (!receives.empty() && receives.front().wr_id == completion.wr_id) {
        const Posted receive = receives.front();
        receives.pop_front();
        const bool is_writes = succeeds && completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
        sinks_.give_back(*receive.sink, is_writes ? 0 : succeeds ? completion.byte_len : receive.sink->used);
        return;
    }
    // Requests that were not signaled, and succeeded, are done with the next that completes.
    while (!requests.empty() && requests.front().wr_id != completion.wr_id) {
        assert_false(requests.front().signaled);
        succeeded(requests.front());
        requests.pop_front();
    }
    assert_false(requests.empty());  // completed twice, out of order, or never posted
    if (succeeds) {
        assert_true(requests.front().signaled);
        succeeded(requests.front());
    } else {
        give_back(requests.front());
    }
    requests.pop_front();
}

bool Ledger::is_settled(const ibv_qp &qp) const {
    const auto known = queues_.find(qp.qp_num);
    return known == queues_.end() || (known->second.receives.empty() &&
                                      std::ranges::none_of(known->second.requests, &Posted::signaled));
}

void Ledger::forget(std::uint32_t qp_num) {
    const auto known = queues_.find(qp_num);
    if (known == queues_.end()) {
        return;
    }
    for (const auto *const queue : {&known->second.requests, &known->second.receives}) {
        for (const Posted &posted : *queue) {
            give_back(posted);
        }
    }
    queues_.erase(known);
}

}  // namespace test
