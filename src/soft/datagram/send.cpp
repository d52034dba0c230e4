// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram: the send queue, from ibv_post_send into UDP. A message is one datagram.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>

#include "soft/datagram/queue_pair.hpp"

namespace soft {

namespace {

constexpr std::uint32_t qp_num_mask = 0xffffff;
constexpr std::uint32_t own_qkey = 0x80000000;  // in a request it stands for the queue pair's Q_Key

}  // namespace

int DatagramQueuePair::post_sends(ibv_send_wr *request, ibv_send_wr **bad, ChainPart when_bad) {
    const base::Lock lock{send_mutex_};
    ibv_send_wr *const chain = request;
    const std::size_t before = requests_.size();
    int error = 0;
    for (; request != nullptr; request = request->next) {
        error = check(*request);
        if (error == 0) {
            error = enqueue(*request, when_bad);
        }
        if (error != 0) {
            *bad = request;
            if (when_bad == ChainPart::Nothing) {
                requests_.take_back(requests_.size() - before);
            }
            break;
        }
    }
    if (phase_.load(std::memory_order_relaxed) != IBV_QPS_RTS) {
        flush_requests();
        return error;
    }
    const std::size_t posted = requests_.size() - before;
    transmit();
    if (ibv_send_wr *const refused =
            requests_.keep_waiting(chain, posted, std::min(posted, requests_.size()))) {
        *bad = refused;
        return ENOMEM;
    }
    return error;
}

int DatagramQueuePair::check(const ibv_send_wr &request) const {
    const ibv_qp_state now = phase_.load(std::memory_order_relaxed);
    if ((now != IBV_QPS_RTS && now != IBV_QPS_SQE && now != IBV_QPS_ERR) || request.num_sge < 0 ||
        static_cast<unsigned>(request.num_sge) > cap_.max_send_sge) {
        return EINVAL;
    }
    if (request.opcode != IBV_WR_SEND && request.opcode != IBV_WR_SEND_WITH_IMM) {
        return EOPNOTSUPP;
    }
    const auto *const handle_to = static_cast<const AddressHandle *>(request.wr.ud.ah);
    const std::uint64_t bytes = total_bytes(request);
    const bool is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
    if (handle_to == nullptr || &domain_of(*handle_to->pd) != &domain_of(*qp_base.pd) ||
        request.wr.ud.remote_qpn > qp_num_mask ||
        handle_to->multicast != (request.wr.ud.remote_qpn == multicast_qp_num) ||
        bytes > limits::max_datagram_bytes || (is_inline && bytes > cap_.max_inline_data)) {
        return EINVAL;
    }
    return 0;
}

// The request gets a copy of the address handle, because the program may destroy the handle while a send
// waits for its socket.
int DatagramQueuePair::enqueue(const ibv_send_wr &request, ChainPart when_bad) {
    if (requests_.full()) {
        return ENOMEM;
    }
    const auto &handle_to = *static_cast<const AddressHandle *>(request.wr.ud.ah);
    const bool has_immediate = request.opcode == IBV_WR_SEND_WITH_IMM;
    PostedDatagram made{
        .header = {.solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0,
                   .has_immediate = has_immediate,
                   .destination = request.wr.ud.remote_qpn,
                   .source = qp_base.qp_num,
                   .qkey = (request.wr.ud.remote_qkey & own_qkey) != 0 ? qkey_.load(std::memory_order_relaxed)
                                                                       : request.wr.ud.remote_qkey,
                   .immediate = has_immediate ? ntohl(request.imm_data) : 0},
        .to = handle_to.to,
        .source = handle_to.source,
        .wr_id = request.wr_id,
        .length = static_cast<std::uint32_t>(total_bytes(request)),
        .flags =
            static_cast<std::uint8_t>(request.send_flags | (signal_all_ ? unsigned{IBV_SEND_SIGNALED} : 0U)),
        .sges = static_cast<std::uint8_t>(request.num_sge)};
    if (!handle_to.multicast) {
        made.to.port = wire::port_of(request.wr.ud.remote_qpn);
    }
    PostedDatagram &pushed = requests_.push(request, [&made] { return made; });
    if (when_bad == ChainPart::Nothing && !requests_.keep(pushed)) {
        requests_.take_back(1);
        return ENOMEM;
    }
    return 0;
}

// A datagram that the network refuses is lost, which UD allows. Only bad memory of the program, and a
// completion without room, are errors; later requests are then flushed.
void DatagramQueuePair::transmit() {
    while (!requests_.empty() && phase_.load(std::memory_order_relaxed) == IBV_QPS_RTS) {
        const SendOutcome sent = send_now(requests_.front());
        if (sent == SendOutcome::SocketFull) {
            want_writable(true);
            return;
        }
        const PostedDatagram request = requests_.take();
        if (sent == SendOutcome::BadMemory) {
            fail_sending();
        }
        complete(request, sent == SendOutcome::BadMemory ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
    }
    flush_requests();
}

void DatagramQueuePair::fail_sending() {
    phase_.store(IBV_QPS_SQE, std::memory_order_release);
    qp_base.state = IBV_QPS_SQE;
}

DatagramQueuePair::SendOutcome DatagramQueuePair::send_now(const PostedDatagram &request) {
    auto header = wire::encode(request.header);
    std::array<iovec, limits::max_sge + 1> pieces;
    std::array<Pin, limits::max_sge> pins;
    pieces[0] = {.iov_base = header.data(), .iov_len = header.size()};
    std::size_t count = 1;
    for (const ibv_sge &sge : requests_.sges_of(request)) {
        if (sge.length == 0) {
            continue;
        }
        if (request.is(IBV_SEND_INLINE)) {
            pieces[count++] = {.iov_base = requests_.address_of(sge), .iov_len = sge.length};
        } else {
            auto pin = Memory::instance().pin({.by = {&domain_of(*qp_base.pd)},
                                               .key = sge.lkey,
                                               .address = sge.addr,
                                               .length = sge.length,
                                               .rights = 0});
            if (!pin) {
                return SendOutcome::BadMemory;
            }
            pieces[count] = {.iov_base = pin->region().at(sge.addr), .iov_len = sge.length};
            pins[count++ - 1] = std::move(*pin);
        }
    }
    const int error = udp::send(socket_.get(), request.source, request.to, std::span{pieces}.first(count));
    return error == EAGAIN   ? SendOutcome::SocketFull
           : error == EFAULT ? SendOutcome::BadMemory
                             : SendOutcome::Gone;
}

void DatagramQueuePair::wait_for_posts() const {
    const base::Lock lock{send_mutex_};
}

void DatagramQueuePair::complete(const PostedDatagram &request, ibv_wc_status status) {
    ++unsignaled_;
    if (!request.is(IBV_SEND_SIGNALED) && status == IBV_WC_SUCCESS) {
        return;
    }
    ibv_wc completion{};
    completion.wr_id = request.wr_id;
    completion.status = status;
    completion.opcode = IBV_WC_SEND;
    completion.byte_len = request.length;
    completion.qp_num = qp_base.qp_num;
    const bool pushed = send_queue_cq_.push(completion, *this, CompletionQueue::WorkQueue::Send, unsignaled_,
                                            status != IBV_WC_SUCCESS);
    unsignaled_ = 0;
    if (!pushed && phase_.load(std::memory_order_relaxed) == IBV_QPS_RTS) {
        fail_sending();
    }
}

void DatagramQueuePair::flush_requests() {
    while (!requests_.empty()) {
        const PostedDatagram request = requests_.take();
        complete(request, IBV_WC_WR_FLUSH_ERR);
    }
    want_writable(false);
}

void DatagramQueuePair::want_writable(bool wanted) {
    if (wanted != waits_for_socket_.load(std::memory_order_relaxed)) {
        waits_for_socket_.store(wanted, std::memory_order_relaxed);
        group_->change(*this, socket_.get(), {.readable = true, .writable = !wanted},
                       {.readable = true, .writable = wanted});
    }
}

}  // namespace soft
