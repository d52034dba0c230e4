// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "fuzz_device.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "../limits.hpp"
#include "../loopback.hpp"
#include "../wire.hpp"
#include "base/fd.hpp"
#include "choices.hpp"

namespace fuzz {

namespace {

constexpr std::byte untouched{0xee};
constexpr std::uint32_t queue_depth = 16;
constexpr std::uint64_t made_up_address = 0x100000;
constexpr std::uint32_t made_up_key = 0x4711;

constexpr Area all_areas[] = {Area::Open,    Area::LocalOnly, Area::ReadOnly,
                              Area::Foreign, Area::Spare,     Area::Durable};

// Formats every line, so that a wrong argument is seen, and prints none.
// NOLINTNEXTLINE(cert-dcl50-cpp): the signature is the device's.
void swallow(int, const char *, int, const char *, const char *format, ...) {
    std::array<char, 512> text;
    va_list arguments;
    va_start(arguments, format);
    const int size = std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    require(size > 0, "a line of log can be formatted");
}

// Replaces the mapping at this address by a file, and deletes the name of the file.
void map_file(std::byte *at, std::size_t size) {
    char name[] = "fuzz-durable-XXXXXX";
    const base::Fd file{mkstemp(name)};
    require(file && unlink(name) == 0 && ftruncate(file.get(), static_cast<off_t>(size)) == 0,
            "there is a file");
    require(mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) == at,
            "a file can be mapped");
}

unsigned access_of(Area area) {
    constexpr unsigned everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                    SOFTRDMA_ACCESS_FLUSH_GLOBAL;
    switch (area) {
        case Area::LocalOnly:
            return IBV_ACCESS_LOCAL_WRITE;
        case Area::ReadOnly:
            return IBV_ACCESS_REMOTE_READ;
        case Area::Durable:
            return everything | SOFTRDMA_ACCESS_FLUSH_PERSISTENT;
        default:
            return everything;
    }
}

rdma_conn_param wanted() {
    rdma_conn_param parameters{};
    parameters.responder_resources = FuzzDevice::depth;
    parameters.initiator_depth = FuzzDevice::depth;
    return parameters;
}

}  // namespace

FuzzDevice &FuzzDevice::instance() {
    static FuzzDevice &device = *new FuzzDevice;  // never destroyed: the process ends with it
    return device;
}

bool FuzzDevice::uses_tls() {
    return std::getenv("RPMA_FUZZ_TLS") != nullptr;
}

FuzzDevice::FuzzDevice() {
    require(!uses_tls() || test::use_tls(), "there is a file of keys");
    test::limits().wrong_keys_a_minute = 1'000'000'000;
    constexpr int every_level = 5;
    softrdma_set_log(swallow, every_level);
    events_ = softrdma_rdma_create_event_channel();
    require(events_ != nullptr && fcntl(events_->fd, F_SETFL, O_NONBLOCK) == 0, "there is an event channel");
    sockaddr_in address = test::loopback(0);
    require(softrdma_rdma_create_id(events_, &listener_, nullptr, RDMA_PS_TCP) == 0 &&
                softrdma_rdma_bind_addr(listener_, reinterpret_cast<sockaddr *>(&address)) == 0 &&
                softrdma_rdma_listen(listener_, 16) == 0,
            "the device listens");
    port_ = ntohs(softrdma_rdma_get_src_port(listener_));
    pd_ = softrdma_ibv_alloc_pd(listener_->verbs);
    other_pd_ = softrdma_ibv_alloc_pd(listener_->verbs);
    cq_ = softrdma_ibv_create_cq(listener_->verbs, 4 * queue_depth, nullptr, nullptr, 0);
    require(pd_ != nullptr && other_pd_ != nullptr && cq_ != nullptr, "there are objects");

    std::size_t total = margin_bytes;
    for (const Area area : all_areas) {
        total += size(area) + margin_bytes;
    }
    void *const mapped = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(mapped != MAP_FAILED, "there is memory");
    memory_ = {static_cast<std::byte *>(mapped), total};
    map_file(bytes(Area::Durable), size(Area::Durable));
    std::ranges::fill(memory_, untouched);
    for (const Area area : all_areas) {
        regions_[static_cast<std::size_t>(area)] = register_area(area);
    }
    stale_key_ = key(Area::Spare);
    register_spare_again();
}

std::byte *FuzzDevice::bytes(Area area) const {
    std::size_t at = margin_bytes;
    for (const Area one : all_areas) {
        if (one == area) {
            break;
        }
        at += size(one) + margin_bytes;
    }
    return memory_.data() + at;
}

ibv_mr *FuzzDevice::register_area(Area area) {
    ibv_pd *const pd = area == Area::Foreign ? other_pd_ : pd_;
    const auto access = static_cast<int>(access_of(area));
    ibv_mr *region = softrdma_ibv_reg_mr(pd, bytes(area), size(area), access);
    if (region == nullptr && area == Area::Durable && errno == EOPNOTSUPP) {
        // The current folder, which has the file, is in memory.
        region = softrdma_ibv_reg_mr(pd, bytes(area), size(area), access & ~SOFTRDMA_ACCESS_FLUSH_PERSISTENT);
    }
    require(region != nullptr, "memory can be registered");
    return region;
}

std::uint32_t FuzzDevice::key(Area area) const {
    return regions_[static_cast<std::size_t>(area)]->rkey;
}

std::uint64_t FuzzDevice::address(Area area) const {
    return reinterpret_cast<std::uintptr_t>(bytes(area));
}

void FuzzDevice::register_spare_again() {
    stale_key_ = key(Area::Spare);
    ibv_mr *&region = regions_[static_cast<std::size_t>(Area::Spare)];
    require(softrdma_ibv_dereg_mr(region) == 0, "memory can be deregistered");
    region = register_area(Area::Spare);
    require(region->rkey != stale_key_, "a key is not given twice in a row");
}

void FuzzDevice::turn() {
    rdma_cm_event *event = nullptr;
    while (softrdma_rdma_get_cm_event(events_, &event) == 0) {
        const rdma_cm_event_type type = event->event;
        rdma_cm_id *const id = event->id;
        require(softrdma_rdma_ack_cm_event(event) == 0, "an event can be acknowledged");
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            answer(id);
        }
    }
    require(errno == EAGAIN, "an event channel with nothing says EAGAIN");
    std::array<ibv_wc, queue_depth> completions;
    int count = 0;
    do {
        count = ibv_poll_cq(cq_, static_cast<int>(completions.size()), completions.data());
        require(count >= 0, "a completion queue can be polled");
    } while (count != 0);
}

void FuzzDevice::answer(rdma_cm_id *id) {
    if (ntohs(softrdma_rdma_get_dst_port(id)) != peer_port_) {
        require(softrdma_rdma_destroy_id(id) == 0, "an id can be destroyed");  // its peer is gone
        return;
    }
    require(id_ == nullptr, "one connection asks once");
    id_ = id;
    answered_ = true;
    reads_ = 0;
    if (acceptance_.reject) {
        (void)softrdma_rdma_reject(id, "no", 2);  // the peer may be gone
        return;
    }
    create_queue_pair(id, acceptance_.receives);
    rdma_conn_param parameters = wanted();
    (void)softrdma_rdma_accept(id, &parameters);  // the peer may be gone
}

void FuzzDevice::create_queue_pair(rdma_cm_id *id, unsigned receives) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq_;
    attributes.cap.max_send_wr = attributes.cap.max_recv_wr = queue_depth;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    attributes.qp_type = IBV_QPT_RC;
    require(softrdma_rdma_create_qp(id, pd_, &attributes) == 0, "there is a queue pair");
    for (unsigned i = 0; i < receives; ++i) {
        post_receive(std::size_t{64} << i);
    }
}

void FuzzDevice::connect(std::uint16_t port, unsigned receives) {
    rdma_cm_id *id = nullptr;
    sockaddr_in address = test::loopback(port);
    require(softrdma_rdma_create_id(events_, &id, nullptr, RDMA_PS_TCP) == 0 &&
                softrdma_rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&address), 1000) == 0 &&
                softrdma_rdma_resolve_route(id, 1000) == 0,
            "an address of this machine can be resolved");
    id_ = id;
    reads_ = 0;
    create_queue_pair(id, receives);
    rdma_conn_param parameters = wanted();
    require(softrdma_rdma_connect(id, &parameters) == 0, "a connection can be begun");
}

// A full queue or an ended connection refuses the request, which is no failure.
void FuzzDevice::post_receive(std::size_t bytes_wanted) {
    if (id_ == nullptr || id_->qp == nullptr) {
        return;
    }
    ibv_sge place{.addr = address(Area::Open),
                  .length = static_cast<std::uint32_t>(std::min(bytes_wanted, open_bytes)),
                  .lkey = key(Area::Open)};
    ibv_recv_wr request{};
    request.sg_list = &place;
    request.num_sge = 1;
    ibv_recv_wr *bad = nullptr;
    const int error = ibv_post_recv(id_->qp, &request, &bad);
    require(error == 0 || error == ENOMEM, "a receive is posted, or the queue is full");
}

void FuzzDevice::post(unsigned kind, std::size_t bytes_wanted) {
    if (id_ == nullptr || id_->qp == nullptr) {
        return;
    }
    static constexpr int kinds[] = {IBV_WR_SEND,
                                    IBV_WR_RDMA_WRITE,
                                    IBV_WR_RDMA_READ,
                                    SOFTRDMA_WR_FLUSH,
                                    IBV_WR_SEND_WITH_IMM,
                                    IBV_WR_RDMA_WRITE_WITH_IMM,
                                    IBV_WR_ATOMIC_FETCH_AND_ADD,
                                    IBV_WR_ATOMIC_CMP_AND_SWP};
    const int opcode = kinds[(kind & 3) + (kind & 8) / 2];
    const bool is_atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    bytes_wanted = is_atomic ? sizeof(std::uint64_t) : bytes_wanted;
    const std::size_t at = opcode == IBV_WR_RDMA_READ ? reads_++ % depth * 1024 : 0;
    ibv_sge place{.addr = address(Area::Open) + at,
                  .length = static_cast<std::uint32_t>(std::min(bytes_wanted, open_bytes - at)),
                  .lkey = key(Area::Open)};
    ibv_send_wr request{};
    request.sg_list = &place;
    request.num_sge = 1;
    request.opcode = static_cast<ibv_wr_opcode>(opcode);
    request.send_flags = (kind & 4) != 0 ? IBV_SEND_SIGNALED | IBV_SEND_FENCE : IBV_SEND_SIGNALED;
    request.imm_data = SOFTRDMA_FLUSH_GLOBAL;
    if (is_atomic) {
        request.wr.atomic.remote_addr = made_up_address;
        request.wr.atomic.rkey = made_up_key;
    } else {
        request.wr.rdma.remote_addr = made_up_address;
        request.wr.rdma.rkey = made_up_key;
    }
    ibv_send_wr *bad = nullptr;
    const int error = ibv_post_send(id_->qp, &request, &bad);
    require(error == 0 || error == ENOMEM || error == EINVAL || error == EOPNOTSUPP,
            "a request is posted, or refused for a reason");
}

void FuzzDevice::disconnect() {
    if (id_ != nullptr && id_->qp != nullptr) {
        (void)softrdma_rdma_disconnect(id_);
    }
}

void FuzzDevice::close() {
    turn();
    if (id_ != nullptr) {
        if (id_->qp != nullptr) {
            softrdma_rdma_destroy_qp(id_);
        }
        require(softrdma_rdma_destroy_id(id_) == 0, "an id can be destroyed");
        id_ = nullptr;
    }
    answered_ = false;
    peer_port_ = 0;  // the peer has gone, and its request may still come
    turn();
}

void FuzzDevice::check_memory() const {
    const auto same = [](std::span<const std::byte> part) {
        return std::ranges::all_of(part, [](std::byte byte) { return byte == untouched; });
    };
    const std::byte *from = memory_.data();
    for (const Area area : {Area::Open, Area::Spare, Area::Durable}) {
        require(same({from, bytes(area)}), "nothing but what was opened to the peer has changed");
        from = bytes(area) + size(area);
    }
    require(same({from, memory_.data() + memory_.size()}), "the end of the memory has not changed");
}

}  // namespace fuzz
