// SPDX-License-Identifier: BSD-3-Clause
// soft/datagram: from UDP into posted receives. No part of a datagram can be trusted.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "persist/guard.hpp"
#include "soft/datagram/queue_pair.hpp"

namespace soft {

namespace {

constexpr std::uint32_t grh_version = 6U << 28;
constexpr std::uint8_t grh_next_header = 0x1b;  // an InfiniBand transport header

// Returns the 40 bytes that stand before a message in its receive: its source and its destination.
ibv_grh global_route_header(const udp::Arrival &arrival, std::size_t payload_bytes) {
    ibv_grh header{};
    header.version_tclass_flow = htonl(grh_version);
    header.paylen = htons(static_cast<std::uint16_t>(payload_bytes));
    header.next_hdr = grh_next_header;
    header.sgid = arrival.source.gid;
    header.dgid = arrival.destination;
    return header;
}

}  // namespace

int DatagramQueuePair::post_receives(ibv_recv_wr *request, ibv_recv_wr **bad) {
    int error = 0;
    for (; request != nullptr && error == 0; request = request->next) {
        if (phase_.load(std::memory_order_acquire) == IBV_QPS_RESET || request->num_sge < 0 ||
            static_cast<unsigned>(request->num_sge) > cap_.max_recv_sge) {
            error = EINVAL;
        } else {
            bool starved = false;
            const auto posted = receives_.post(*request, starved);
            error = posted ? 0 : posted.error().number;
        }
        if (error != 0) {
            *bad = request;
        }
    }
    if (phase_.load(std::memory_order_acquire) == IBV_QPS_ERR) {
        const base::Lock lock{group_->mutex()};
        flush_receives();
    }
    return error;
}

void DatagramQueuePair::progress() {
    group_->mutex().assert_held();
    // Relaxed is enough for a hint; the socket stays writable.
    if (waits_for_socket_.load(std::memory_order_relaxed)) {
        const base::Lock lock{send_mutex_};
        if (phase_.load(std::memory_order_relaxed) == IBV_QPS_RTS) {
            transmit();
        }
    }
    receive_from(socket_.get(), false);
    for (const Attachment &attachment : attachments_) {
        receive_from(attachment.socket.get(), true);
    }
}

void DatagramQueuePair::receive_from(int socket, bool multicast) {
    std::array<std::byte, wire::message_header_bytes + limits::max_datagram_bytes> buffer;
    for (int round = 0; round < limits::datagrams_in_a_turn; ++round) {
        int error = 0;
        const auto arrival = udp::receive(socket, buffer, error);
        if (!arrival) {
            return;
        }
        if (const auto drop = deliver(std::span{buffer}.first(arrival->bytes), *arrival, multicast)) {
            ++drops_[static_cast<std::size_t>(*drop)];
        }
    }
}

// Returns whether a message is for this queue pair, and came from the port of the queue pair that it names.
bool DatagramQueuePair::addressed(const wire::MessageHeader &header, const udp::Arrival &arrival,
                                  bool multicast) {
    return header.destination == (multicast ? multicast_qp_num : qp_base.qp_num) &&
           header.qkey == qkey_.load(std::memory_order_relaxed) &&
           wire::port_of(header.source) == arrival.source.port &&
           (multicast || is_of_device(arrival.destination));
}

// Checks the interface's present addresses, because they may change while the queue pair exists. Most
// messages come to the same address.
bool DatagramQueuePair::is_of_device(const ibv_gid &gid) {
    if (udp::same(gid, last_destination_)) {
        return true;
    }
    const tcp::Address address = udp::address_of({.gid = gid});
    try {
        if (!has_address(*static_cast<const Device *>(qp_base.context->device),
                         reinterpret_cast<const sockaddr &>(address))) {
            return false;
        }
    } catch (const std::bad_alloc &) {
        return false;  // the datagram is lost, which UD allows
    }
    last_destination_ = gid;
    return true;
}

std::optional<DatagramQueuePair::Drop> DatagramQueuePair::deliver(std::span<const std::byte> datagram,
                                                                  const udp::Arrival &arrival,
                                                                  bool multicast) {
    const auto header = wire::decode_message(datagram);
    if (!header) {
        return Drop::Malformed;
    }
    if (!addressed(*header, arrival, multicast)) {
        return Drop::Misaddressed;
    }
    const ibv_qp_state now = phase_.load(std::memory_order_acquire);
    if (now != IBV_QPS_RTR && now != IBV_QPS_RTS && now != IBV_QPS_SQE) {
        return Drop::Unready;
    }
    has_receive_ = has_receive_ || receives_.take(receive_);
    if (!has_receive_) {
        return Drop::NoReceive;
    }
    const auto payload = datagram.subspan(wire::message_header_bytes);
    const ibv_grh route = global_route_header(arrival, payload.size());
    if (total_bytes(receive_.sges) < sizeof(route) + payload.size()) {
        return Drop::TooLong;  // the receive stays for a datagram that fits, so that no peer can end this
                               // queue pair
    }
    has_receive_ = false;
    ibv_wc completion{};
    completion.wr_id = receive_.wr_id;
    completion.status = scatter(std::as_bytes(std::span{&route, 1}), payload);
    completion.opcode = IBV_WC_RECV;
    completion.byte_len = static_cast<std::uint32_t>(sizeof(route) + payload.size());
    completion.imm_data = htonl(header->immediate);
    completion.qp_num = qp_base.qp_num;
    completion.src_qp = header->source;
    completion.wc_flags = IBV_WC_GRH | (header->has_immediate ? unsigned{IBV_WC_WITH_IMM} : 0U);
    wait_for_posts();
    const bool failed = completion.status != IBV_WC_SUCCESS;
    if (!receive_queue_cq_.push(completion, *this, CompletionQueue::WorkQueue::Receive, 1,
                                header->solicited || failed) ||
        failed) {
        fail_receiving();
    }
    return std::nullopt;
}

// Copies both parts, one after the other, into receive_, which has room for them.
ibv_wc_status DatagramQueuePair::scatter(std::span<const std::byte> route,
                                         std::span<const std::byte> payload) const {
    std::size_t sge_index = 0;
    std::size_t filled = 0;  // in the current scatter entry
    for (auto part : {route, payload}) {
        while (!part.empty()) {
            const ibv_sge &sge = receive_.sges[sge_index];
            const std::size_t bytes = std::min<std::size_t>(part.size(), sge.length - filled);
            if (bytes != 0) {
                const auto pin = Memory::instance().pin({.by = {&domain_of(*qp_base.pd)},
                                                         .key = sge.lkey,
                                                         .address = sge.addr + filled,
                                                         .length = bytes,
                                                         .rights = IBV_ACCESS_LOCAL_WRITE});
                if (!pin || !persist::guarded_copy(pin->region().at(sge.addr + filled), part.data(), bytes)) {
                    return IBV_WC_LOC_PROT_ERR;
                }
                part = part.subspan(bytes);
                filled += bytes;
            }
            if (filled == sge.length) {
                ++sge_index;
                filled = 0;
            }
        }
    }
    return IBV_WC_SUCCESS;
}

void DatagramQueuePair::fail_receiving() {
    const base::Lock lock{send_mutex_};
    enter(IBV_QPS_ERR);
}

void DatagramQueuePair::flush_receives() {
    while (has_receive_ || receives_.take(receive_)) {
        has_receive_ = false;
        ibv_wc completion{};
        completion.wr_id = receive_.wr_id;
        completion.status = IBV_WC_WR_FLUSH_ERR;
        completion.opcode = IBV_WC_RECV;
        completion.qp_num = qp_base.qp_num;
        (void)receive_queue_cq_.push(completion, *this, CompletionQueue::WorkQueue::Receive, 1, true);
    }
}

}  // namespace soft
