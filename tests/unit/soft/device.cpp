// SPDX-License-Identifier: BSD-3-Clause
// See the header.

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>

#include "../../limits.hpp"
#include "base/log.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace test {

namespace {

constexpr int patience_ms = 40'000;
constexpr int everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC | SOFTRDMA_ACCESS_FLUSH_GLOBAL;

std::atomic<int> errors{0};
std::atomic<int> warnings{0};

// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is the device's.
void count(int level, const char *, int, const char *, const char *, ...) {
    (level <= static_cast<int>(base::LogLevel::Error) ? errors : warnings).fetch_add(1);
}

rdma_conn_param parameters(std::string_view private_data) {
    rdma_conn_param all{};
    all.private_data = private_data.data();
    all.private_data_len = static_cast<std::uint8_t>(private_data.size());
    all.responder_resources = Device::depth;
    all.initiator_depth = Device::depth;
    return all;
}

// Returns the device's end of the peer's connection. The device is in this process, so that
// end is one of the process's descriptors.
int device_end_of(const Peer &peer) {
    constexpr int most_descriptors = 1024;
    sockaddr_in wanted{};
    socklen_t size = sizeof(wanted);
    assert_int_equal(getsockname(peer.socket(), reinterpret_cast<sockaddr *>(&wanted), &size), 0);
    for (int fd = 0; fd < most_descriptors; ++fd) {
        sockaddr_in6 found{};  // the ports of both families have one place
        size = sizeof(found);
        if (getpeername(fd, reinterpret_cast<sockaddr *>(&found), &size) == 0 &&
            found.sin6_port == wanted.sin_port &&
            std::memcmp(found.sin6_family == AF_INET6 ? &found.sin6_addr.s6_addr[12]
                                                      : reinterpret_cast<const std::uint8_t *>(&found) +
                                                            offsetof(sockaddr_in, sin_addr),
                        &wanted.sin_addr, sizeof(wanted.sin_addr)) == 0) {
            return fd;
        }
    }
    return -1;
}

// Returns how many bytes have come to the socket, including those that were not received from it.
std::uint64_t arrived(int socket) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    assert_int_equal(getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_bytes_received;
}

bool has_unread(int socket) {
    int bytes = -1;
    assert_int_equal(ioctl(socket, SIOCINQ, &bytes), 0);
    return bytes != 0;
}

}  // namespace

void watch_log() {
    softrdma_set_log(count, static_cast<int>(base::LogLevel::Warning));
    test::log_lines_of_place() = std::numeric_limits<unsigned>::max();  // each counts
    (void)logged();
}

LogCount logged() {
    return {.errors = errors.exchange(0), .warnings = warnings.exchange(0)};
}

Device::Device() {
    watch_log();
    events_ = softrdma_rdma_create_event_channel();
    assert_non_null(events_);
    assert_int_equal(fcntl(events_->fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(softrdma_rdma_create_id(events_, &listener_, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in address = loopback(0);
    assert_int_equal(softrdma_rdma_bind_addr(listener_, reinterpret_cast<sockaddr *>(&address)), 0);
    assert_int_equal(softrdma_rdma_listen(listener_, 16), 0);
    ibv_context *const context = listener_->verbs;
    assert_non_null(context);
    pd_ = softrdma_ibv_alloc_pd(context);
    other_pd_ = softrdma_ibv_alloc_pd(context);
    cq = softrdma_ibv_create_cq(context, 256, nullptr, nullptr, 0);
    assert_non_null(cq);
    memory_.resize(memory_bytes + 2 * margin_bytes);
    fill(0);
    mr = softrdma_ibv_reg_mr(pd_, at(0), memory_bytes, everything);
    local_mr = softrdma_ibv_reg_mr(pd_, at(0), memory_bytes, IBV_ACCESS_LOCAL_WRITE);
    foreign_mr = softrdma_ibv_reg_mr(other_pd_, at(0), memory_bytes, everything);
    assert_true(mr != nullptr && local_mr != nullptr && foreign_mr != nullptr);
}

Device::~Device() {
    while (!open_.empty()) {
        close(open_.back());
    }
    (void)softrdma_rdma_destroy_id(listener_);
    softrdma_rdma_destroy_event_channel(events_);
    for (ibv_mr *const region : {mr, local_mr, foreign_mr}) {
        if (region != nullptr) {
            (void)softrdma_ibv_dereg_mr(region);
        }
    }
    (void)softrdma_ibv_destroy_cq(cq);
    (void)softrdma_ibv_dealloc_pd(pd_);
    (void)softrdma_ibv_dealloc_pd(other_pd_);
}

std::uint16_t Device::port() const {
    return ntohs(softrdma_rdma_get_src_port(listener_));
}

void Device::poll_events() {
    rdma_cm_event *event = nullptr;
    while (softrdma_rdma_get_cm_event(events_, &event) == 0) {
        Event &seen =
            seen_.emplace_back(event->event, event->status, event->id, event->param.conn.responder_resources,
                               event->param.conn.initiator_depth, std::string{});
        if (event->param.conn.private_data != nullptr) {
            seen.private_data.assign(static_cast<const char *>(event->param.conn.private_data),
                                     event->param.conn.private_data_len);
        }
        if (seen.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            open_.push_back(seen.id);
        }
        assert_int_equal(softrdma_rdma_ack_cm_event(event), 0);
    }
    assert_int_equal(errno, EAGAIN);
}

void Device::work() {
    for (int round = 0; round < 10; ++round) {
        ibv_wc completion;
        while (ibv_poll_cq(cq, 1, &completion) == 1) {
            completions_.push_back(completion);
        }
        poll_events();
    }
}

void Device::work_until(const std::function<bool()> &done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{patience_ms};
    while (!done()) {
        assert_true(std::chrono::steady_clock::now() < deadline);
        work();
    }
}

// A thread that has taken bytes from TCP handles them under a lock,
// which asking for a notification takes too.
void Device::work_until_read(const Peer &peer) {
    int device_end = -1;
    work_until([&] { return (device_end = device_end_of(peer)) >= 0; });  // it may not have accepted yet
    work_until([&] { return arrived(device_end) == peer.sent_bytes() && !has_unread(device_end); });
    assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
}

std::uint64_t Device::bytes_taken(const Peer &peer) {
    int unsent = 0;
    assert_int_equal(ioctl(device_end_of(peer), SIOCOUTQNSD, &unsent), 0);
    return arrived(peer.socket()) + static_cast<std::uint64_t>(unsent);
}

bool Device::has_event() {
    work();
    return !seen_.empty();
}

std::optional<Event> Device::next_event() {
    poll_events();
    if (seen_.empty()) {
        return std::nullopt;
    }
    Event event = seen_.front();
    seen_.erase(seen_.begin());
    return event;
}

Event Device::wait_for(rdma_cm_event_type type, const rdma_cm_id *id) {
    const auto wanted = [&](const Event &event) {
        return event.type == type && (id == nullptr || event.id == id);
    };
    while (true) {
        poll_events();
        const auto found = std::ranges::find_if(seen_, wanted);
        if (found != seen_.end()) {
            Event event = *found;
            seen_.erase(found);
            return event;
        }
        pollfd readable{.fd = events_->fd, .events = POLLIN, .revents = 0};
        if (::poll(&readable, 1, patience_ms) != 1) {
            for (const Event &event : seen_) {
                std::fprintf(stderr, "seen: %s (status %d)\n", softrdma_rdma_event_str(event.type),
                             event.status);
            }
            fail_msg("no %s", softrdma_rdma_event_str(type));
        }
    }
}

void Device::create_queue_pair(rdma_cm_id *id) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.srq = srq;
    attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 64;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 2;
    attributes.cap.max_inline_data = inline_bytes;
    attributes.qp_type = IBV_QPT_RC;
    assert_int_equal(softrdma_rdma_create_qp(id, pd_, &attributes), 0);
}

rdma_cm_id *Device::take_request() {
    rdma_cm_id *const id = wait_for(RDMA_CM_EVENT_CONNECT_REQUEST).id;
    create_queue_pair(id);
    return id;
}

void Device::accept(rdma_cm_id *id, std::string_view private_data) {
    rdma_conn_param all = parameters(private_data);
    assert_int_equal(softrdma_rdma_accept(id, &all), 0);
}

rdma_cm_id *Device::connect(std::uint16_t to, std::string_view private_data) {
    rdma_cm_id *id = nullptr;
    assert_int_equal(softrdma_rdma_create_id(events_, &id, nullptr, RDMA_PS_TCP), 0);
    open_.push_back(id);
    sockaddr_in address = loopback(to);
    assert_int_equal(
        softrdma_rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&address), patience_ms), 0);
    (void)wait_for(RDMA_CM_EVENT_ADDR_RESOLVED, id);
    assert_int_equal(softrdma_rdma_resolve_route(id, patience_ms), 0);
    (void)wait_for(RDMA_CM_EVENT_ROUTE_RESOLVED, id);
    create_queue_pair(id);
    rdma_conn_param all = parameters(private_data);
    assert_int_equal(softrdma_rdma_connect(id, &all), 0);
    return id;
}

void Device::close(rdma_cm_id *id) {
    std::erase(open_, id);
    if (id->qp != nullptr) {
        softrdma_rdma_destroy_qp(id);
    }
    (void)softrdma_rdma_destroy_id(id);
    std::erase_if(seen_, [id](const Event &event) { return event.id == id; });
}

rdma_cm_id *Device::establish(Peer &peer, const soft::wire::MpaFrame &request) {
    peer.connect(port());
    peer.send_frame(request);
    rdma_cm_id *const id = take_request();
    accept(id);
    (void)peer.receive_frame(soft::wire::MpaRole::Reply);
    peer.send(ready_to_receive(request.crc));
    (void)wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    return id;
}

ibv_sge Device::sge(std::size_t offset, std::size_t length) const {
    return {.addr = address(offset), .length = static_cast<std::uint32_t>(length), .lkey = mr->lkey};
}

void Device::post_receive(rdma_cm_id *id, std::uint64_t wr_id, std::size_t offset, std::size_t length) {
    ibv_sge place = sge(offset, length);
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &place;
    request.num_sge = 1;
    ibv_recv_wr *bad = nullptr;
    assert_int_equal(ibv_post_recv(id->qp, &request, &bad), 0);
}

void Device::post(rdma_cm_id *id, ibv_wr_opcode opcode, std::uint64_t wr_id, std::size_t offset,
                  std::size_t length, std::uint64_t remote_address, std::uint32_t rkey) {
    ibv_sge place = sge(offset, length);
    ibv_send_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &place;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = remote_address;
    request.wr.rdma.rkey = rkey;
    ibv_send_wr *bad = nullptr;
    assert_int_equal(ibv_post_send(id->qp, &request, &bad), 0);
}

ibv_wc Device::next_completion() {
    work_until([this] { return !completions_.empty(); });
    const ibv_wc completion = completions_.front();
    completions_.pop_front();
    return completion;
}

bool Device::has_completion() {
    work();
    return !completions_.empty();
}

void Device::forget_completions() {
    work();
    completions_.clear();
}

void Device::expect_completion(std::uint64_t wr_id, ibv_wc_status status) {
    const ibv_wc completion = next_completion();
    assert_int_equal(completion.wr_id, wr_id);
    assert_int_equal(completion.status, status);
}

std::uint64_t Device::address(std::size_t offset) const {
    return reinterpret_cast<std::uintptr_t>(memory_.data()) + margin_bytes + offset;
}

// Asking for a notification takes the lock under which connections are served, so the reads and writes of the
// device's thread are before the filling. (TSan does not see that a peer's receive comes after a send.)
void Device::fill(unsigned seed) {
    assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
    std::ranges::fill(memory_, untouched);
    std::ranges::copy(pattern(memory_bytes, seed), at(0));
}

bool Device::margins_are_untouched() const {
    const auto is_untouched = [](std::byte byte) { return byte == untouched; };
    const std::span all{memory_};
    return std::ranges::all_of(all.first(margin_bytes), is_untouched) &&
           std::ranges::all_of(all.last(margin_bytes), is_untouched);
}

}  // namespace test
