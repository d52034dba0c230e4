// SPDX-License-Identifier: BSD-3-Clause
// soft/ud_transfer: messages of a datagram queue pair, one UDP datagram each.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "persist/guard.hpp"
#include "soft/ud_qp.hpp"

namespace soft {

namespace {

constexpr std::uint32_t qp_num_mask = 0xffffff;
constexpr std::uint32_t port_mask = 0xffff;
constexpr std::uint32_t own_qkey = 0x80000000;  // in a request: the queue pair's
constexpr std::uint32_t grh_version = 6U << 28;
constexpr std::uint8_t grh_next_header = 0x1b;  // an InfiniBand transport header

std::uint64_t total_bytes(const ibv_send_wr &request) {
    std::uint64_t total = 0;
    for (int i = 0; i < request.num_sge; ++i) {
        total += request.sg_list[i].length;
    }
    return total;
}

// What stands before a message in its receive: 40 bytes, from whom and to whom.
ibv_grh global_route_header(const udp::Arrival &arrival, std::size_t payload_bytes) {
    ibv_grh header{};
    header.version_tclass_flow = htonl(grh_version);
    header.paylen = htons(static_cast<std::uint16_t>(payload_bytes));
    header.next_hdr = grh_next_header;
    header.sgid = arrival.source.gid;
    header.dgid = arrival.destination;
    return header;
}

bool is_loopback(const ibv_gid &gid) {
    return udp::is_ipv4(gid) && gid.raw[12] == IN_LOOPBACKNET;
}

}  // namespace

// ---- from ibv_post_send into UDP ----

int DatagramQueuePair::post_send(ibv_send_wr *request, ibv_send_wr **bad, Part when_bad) {
    const std::scoped_lock lock{send_mutex_};
    const std::size_t before = requests_.size();
    int error = 0;
    for (; request != nullptr; request = request->next) {
        error = check(*request);
        if (error == 0) {
            error = enqueue(*request);
        }
        if (error != 0) {
            *bad = request;
            if (when_bad == Part::Nothing) {
                take_back(requests_.size() - before);
            }
            break;
        }
    }
    if (phase_.load(std::memory_order_relaxed) == IBV_QPS_RTS) {
        transmit();
    } else {
        flush_requests();
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
    if (handle_to == nullptr || handle_to->pd != qp_base.pd || request.wr.ud.remote_qpn > qp_num_mask ||
        handle_to->multicast != (request.wr.ud.remote_qpn == multicast_qp_num) ||
        bytes > limits::max_datagram_bytes || (is_inline && bytes > cap_.max_inline_data)) {
        return EINVAL;
    }
    return 0;
}

// What the address handle says is copied: it may be destroyed before a send that waits for its socket.
int DatagramQueuePair::enqueue(const ibv_send_wr &request) {
    // Relaxed: only a count. A slot is free again when a completion behind it was polled, as on hardware.
    if (send_slots_used_.load(std::memory_order_relaxed) >= cap_.max_send_wr || requests_.full()) {
        return ENOMEM;
    }
    send_slots_used_.fetch_add(1, std::memory_order_relaxed);
    const std::size_t slot = next_slot_;
    next_slot_ = next_slot_ + 1 == requests_.capacity() ? 0 : next_slot_ + 1;
    const auto &handle_to = *static_cast<const AddressHandle *>(request.wr.ud.ah);
    const bool has_immediate = request.opcode == IBV_WR_SEND_WITH_IMM;
    SendRequest &made = requests_.push();
    made = {
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
        .signaled = signal_all_ || (request.send_flags & IBV_SEND_SIGNALED) != 0,
        .copied = (request.send_flags & IBV_SEND_INLINE) != 0,
        .sges = static_cast<std::uint8_t>(request.num_sge),
        .slot = slot};
    if (!handle_to.multicast) {
        made.to.port = static_cast<std::uint16_t>(request.wr.ud.remote_qpn & port_mask);
    }
    if (made.copied) {
        std::byte *to = inline_.data() + slot * cap_.max_inline_data;
        for (int i = 0; i < request.num_sge; ++i) {
            const ibv_sge &sge = request.sg_list[i];
            if (sge.length != 0) {
                // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs passes addresses as integers.
                std::memcpy(to, reinterpret_cast<const void *>(sge.addr), sge.length);
            }
            to += sge.length;
        }
    } else {
        std::copy_n(request.sg_list, made.sges,
                    sges_.begin() + static_cast<std::ptrdiff_t>(slot * cap_.max_send_sge));
    }
    return 0;
}

// The youngest requests, none of which has been looked at since it was posted.
void DatagramQueuePair::take_back(std::size_t count) {
    // Relaxed: only a count.
    send_slots_used_.fetch_sub(static_cast<unsigned>(count), std::memory_order_relaxed);
    for (; count != 0; --count) {
        next_slot_ = requests_.back().slot;
        requests_.pop_back();
    }
}

// Datagrams get lost: one that the network refuses is lost at once. Only bad memory of our own is an error.
void DatagramQueuePair::transmit() {
    while (!requests_.empty()) {
        const SendRequest request = requests_.front();
        const int error = send_now(request);
        if (error == EAGAIN) {
            want_writable(true);
            return;
        }
        requests_.pop();
        if (error == EFAULT) {
            phase_.store(IBV_QPS_SQE, std::memory_order_release);
            qp_base.state = IBV_QPS_SQE;
            complete(request, IBV_WC_LOC_PROT_ERR);
            flush_requests();
            return;
        }
        complete(request, IBV_WC_SUCCESS);
    }
    want_writable(false);
}

int DatagramQueuePair::send_now(const SendRequest &request) {
    auto header = wire::encode(request.header);
    std::array<iovec, limits::max_sge + 1> pieces;
    std::array<Pin, limits::max_sge> pins;
    pieces[0] = {.iov_base = header.data(), .iov_len = header.size()};
    std::size_t count = 1;
    if (request.copied) {
        pieces[count++] = {.iov_base = inline_.data() + request.slot * cap_.max_inline_data,
                           .iov_len = request.length};
    } else {
        for (std::size_t i = 0; i < request.sges; ++i) {
            const ibv_sge &sge = sges_[request.slot * cap_.max_send_sge + i];
            if (sge.length == 0) {
                continue;
            }
            auto pin = Memory::instance().pin(
                {.pd = qp_base.pd, .key = sge.lkey, .address = sge.addr, .length = sge.length, .rights = 0});
            if (!pin) {
                return EFAULT;
            }
            pieces[count] = {.iov_base = pin->region().at(sge.addr), .iov_len = sge.length};
            pins[count++ - 1] = std::move(*pin);
        }
    }
    return udp::send(socket_.get(), request.source, request.to, std::span{pieces}.first(count));
}

void DatagramQueuePair::complete(const SendRequest &request, ibv_wc_status status) {
    ++unsignaled_;
    if (!request.signaled && status == IBV_WC_SUCCESS) {
        return;
    }
    ibv_wc completion{};
    completion.wr_id = request.wr_id;
    completion.status = status;
    completion.opcode = IBV_WC_SEND;
    completion.byte_len = request.length;
    completion.qp_num = qp_base.qp_num;
    const bool pushed = send_queue_cq_.push(completion, *this, CompletionQueue::Queue::Send, unsignaled_,
                                            status != IBV_WC_SUCCESS);
    unsignaled_ = 0;
    if (!pushed && phase_.load(std::memory_order_relaxed) == IBV_QPS_RTS) {
        phase_.store(IBV_QPS_SQE, std::memory_order_release);
        qp_base.state = IBV_QPS_SQE;
    }
}

void DatagramQueuePair::flush_requests() {
    while (!requests_.empty()) {
        const SendRequest request = requests_.front();
        requests_.pop();
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

// ---- from UDP into posted receives ----

int DatagramQueuePair::post_receive(ibv_recv_wr *request, ibv_recv_wr **bad) {
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
        const std::scoped_lock lock{group_->mutex()};
        flush_receives();
    }
    return error;
}

void DatagramQueuePair::progress() {
    // Relaxed: only a hint; the socket stays writable.
    if (waits_for_socket_.load(std::memory_order_relaxed)) {
        const std::scoped_lock lock{send_mutex_};
        if (phase_.load(std::memory_order_relaxed) == IBV_QPS_RTS) {
            transmit();
        }
    }
    receive_from(socket_.get(), false);
    for (const Membership &membership : memberships_) {
        receive_from(membership.socket.get(), true);
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

// Sent to us, by the queue pair that it says: whose number has the port that it came from.
bool DatagramQueuePair::addressed(const wire::MessageHeader &header, const udp::Arrival &arrival,
                                  bool multicast) const {
    const auto is_ours = [&](const ibv_gid &gid) { return udp::same(gid, arrival.destination); };
    return header.destination == (multicast ? multicast_qp_num : qp_base.qp_num) &&
           header.qkey == qkey_.load(std::memory_order_relaxed) &&
           (header.source & port_mask) == arrival.source.port &&
           (multicast || std::ranges::any_of(gids_, is_ours) ||
            (is_loopback(arrival.destination) && std::ranges::any_of(gids_, is_loopback)));
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
    std::uint64_t room = 0;
    for (const ibv_sge &sge : receive_.sges) {
        room += sge.length;
    }
    if (room < sizeof(route) + payload.size()) {
        return Drop::TooLong;  // the receive waits for one that fits: no peer ends this queue pair
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
    const bool failed = completion.status != IBV_WC_SUCCESS;
    if (!receive_queue_cq_.push(completion, *this, CompletionQueue::Queue::Receive, 1,
                                header->solicited || failed) ||
        failed) {
        fail_receiving();
    }
    return std::nullopt;
}

// Both parts, one after the other, into receive_, which has room for them.
ibv_wc_status DatagramQueuePair::scatter(std::span<const std::byte> route,
                                         std::span<const std::byte> payload) const {
    std::size_t sge_index = 0;
    std::size_t filled = 0;  // of that scatter entry
    for (auto part : {route, payload}) {
        while (!part.empty()) {
            const ibv_sge &sge = receive_.sges[sge_index];
            const std::size_t bytes = std::min<std::size_t>(part.size(), sge.length - filled);
            if (bytes != 0) {
                const auto pin = Memory::instance().pin({.pd = qp_base.pd,
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
    const std::scoped_lock lock{send_mutex_};
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
        (void)receive_queue_cq_.push(completion, *this, CompletionQueue::Queue::Receive, 1, true);
    }
}

}  // namespace soft
