// SPDX-License-Identifier: BSD-3-Clause
#include "end.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/fd.hpp"
#include "verbs/address.hpp"

namespace interop {

namespace {

constexpr int resolve_timeout_ms = 5000;
constexpr int everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::size_t note_out = data_bytes;  // where notes leave from and arrive, behind the data
constexpr std::size_t note_in = note_out + sizeof(Note);
constexpr std::size_t flush_sink = note_in + sizeof(Note);
constexpr std::size_t flush_read_bytes = 8;
constexpr std::size_t memory_bytes = flush_sink + flush_read_bytes;
constexpr std::uint64_t operation = 1;
constexpr std::uint64_t note = 2;

// Throws Failed unless the result is 0: an errno value, or -1 with errno set, is a failure.
void require_done(int result, const char *call) {
    if (result != 0) {
        throw Failed{std::string{call} + ": " + verbs::error_text(result < 0 ? errno : result)};
    }
}

template <typename T>
T *require_made(T *object, const char *call) {
    require_done(object != nullptr ? 0 : -1, call);
    return object;
}

void wait_readable(int fd, const char *what, std::chrono::milliseconds wait = patience) {
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    require(poll(&readable, 1, static_cast<int>(wait.count())) == 1,
            std::string{"nothing came while waiting for "} + what);
}

std::byte padding(std::size_t at) {
    return static_cast<std::byte>(at * 3 + 1);
}

}  // namespace

void require(bool holds, const std::string &what) {
    if (!holds) {
        throw Failed{what};
    }
}

std::vector<std::byte> encoded(const Hello &hello, std::size_t private_bytes) {
    std::vector<std::byte> bytes(private_bytes);
    std::memcpy(bytes.data(), &hello, sizeof(hello));
    for (std::size_t i = sizeof(hello); i < bytes.size(); ++i) {
        bytes[i] = padding(i);
    }
    return bytes;
}

Hello decoded(std::span<const std::byte> private_data) {
    Hello hello;
    require(private_data.size() >= sizeof(hello), "private data is too short");
    std::memcpy(&hello, private_data.data(), sizeof(hello));
    require(hello.magic == Hello::right_magic, "private data is not what the peer sent");
    for (std::size_t i = sizeof(hello); i < private_data.size(); ++i) {
        require(private_data[i] == padding(i), "private data changed on its way");
    }
    return hello;
}

CmEvent next_event(const verbs::Provider &provider, rdma_event_channel *events, std::chrono::seconds wait) {
    wait_readable(events->fd, "an event of the connection manager", wait);
    rdma_cm_event *raw = nullptr;
    require_done(provider.cm.get_cm_event(events, &raw), "rdma_get_cm_event");
    const verbs::Event event{provider, raw};
    CmEvent copy{.type = event->event, .status = event->status, .private_data = {}, .id = event->id};
    if (event->param.conn.private_data != nullptr) {
        const auto *bytes = static_cast<const std::byte *>(event->param.conn.private_data);
        copy.private_data.assign(bytes, bytes + event->param.conn.private_data_len);
    }
    return copy;
}

MappedFile::MappedFile(const char *path) : bytes_{nullptr} {
    const base::Fd fd{open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    require_done(fd ? ftruncate(fd.get(), durable_bytes) : -1, path);
    void *const at = mmap(nullptr, durable_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    require_done(at == MAP_FAILED ? -1 : 0, "mmap");
    bytes_ = static_cast<std::byte *>(at);
}

MappedFile::~MappedFile() {
    munmap(bytes_, durable_bytes);
}

std::size_t MappedFile::dirty_kib() const {
    std::ifstream smaps{"/proc/self/smaps"};
    std::size_t dirty = 0;
    bool ours = false;
    bool found = false;
    for (std::string line; std::getline(smaps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        std::size_t kib = 0;
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
            const auto at = reinterpret_cast<std::uintptr_t>(bytes_);
            ours = begin < at + durable_bytes && at < end;
            found = found || ours;
        } else if (ours && (std::sscanf(line.c_str(), "Shared_Dirty: %zu", &kib) == 1 ||
                            std::sscanf(line.c_str(), "Private_Dirty: %zu", &kib) == 1)) {
            dirty += kib;
        }
    }
    require(found, "the mapped file is not in /proc/self/smaps");
    return dirty;
}

End::End(const verbs::Provider &provider, const char *server, const char *port)
    : address{server},
      provider_{provider},
      events_{provider, require_made(provider.cm.create_event_channel(), "event channel")} {
    rdma_cm_id *raw = nullptr;
    require_done(provider.cm.create_id(events_.get(), &raw, nullptr, RDMA_PS_TCP), "rdma_create_id");
    id_ = verbs::Id{provider, raw};
    const auto there = verbs::look_up(provider, server, port, verbs::Side::Remote);
    require(there.has_value(), "no such address");
    require_done(provider.cm.resolve_addr(raw, nullptr, (*there)->ai_dst_addr, resolve_timeout_ms),
                 "rdma_resolve_addr");
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    require_done(provider.cm.resolve_route(raw, resolve_timeout_ms), "rdma_resolve_route");
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    create_objects(nullptr);
}

End::End(const verbs::Provider &provider, rdma_cm_id *requested, const char *file)
    : provider_{provider},
      events_{provider, require_made(provider.cm.create_event_channel(), "event channel")},
      id_{provider, requested} {
    require_done(provider.cm.migrate_id(requested, events_.get()), "rdma_migrate_id");
    create_objects(file);
}

void End::create_objects(const char *file) {
    require(id_->verbs != nullptr, "no device serves this address");
    pd_ = {provider_, require_made(provider_.domain.alloc_pd(id_->verbs), "ibv_alloc_pd")};
    channel_ = {provider_, require_made(provider_.completion.create_comp_channel(id_->verbs),
                                        "ibv_create_comp_channel")};
    for (auto *cq : {&send_cq_, &receive_cq_}) {
        *cq = {provider_, require_made(provider_.completion.create_cq(id_->verbs, 2 * queue_entries, nullptr,
                                                                      channel_.get(), 0),
                                       "ibv_create_cq")};
    }
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = send_cq_.get();
    attributes.recv_cq = receive_cq_.get();
    attributes.cap = {.max_send_wr = queue_entries,
                      .max_recv_wr = queue_entries,
                      .max_send_sge = 4,
                      .max_recv_sge = 4,
                      .max_inline_data = inline_bytes};
    attributes.qp_type = IBV_QPT_RC;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = pd_.get();
    require_done(provider_.cm.create_qp_ex(id_.get(), &attributes), "rdma_create_qp_ex");
    qp_ = {provider_, id_.get()};
    memory_.resize(memory_bytes);
    region_ = {provider_,
               require_made(provider_.domain.reg_mr(
                                pd_.get(), memory_.data(), memory_bytes,
                                everything | verbs::flush_access(provider_, verbs::Flush::Visibility)),
                            "ibv_reg_mr")};
    if (file != nullptr) {
        file_ = std::make_unique<MappedFile>(file);
        file_region_ = {
            provider_,
            require_made(provider_.domain.reg_mr(
                             pd_.get(), file_->bytes(), durable_bytes,
                             everything | verbs::flush_access(provider_, verbs::Flush::Persistent)),
                         "ibv_reg_mr of the file")};
    }
}

Hello End::hello() const {
    Hello hello;
    hello.number = number_;
    hello.data_address = reinterpret_cast<std::uintptr_t>(memory_.data());
    hello.data_rkey = region_->rkey;
    hello.durable_address = file_ ? reinterpret_cast<std::uintptr_t>(file_->bytes()) : hello.data_address;
    hello.durable_rkey = file_ ? file_region_->rkey : hello.data_rkey;
    return hello;
}

int End::connect(std::uint32_t number, std::size_t private_bytes) {
    number_ = number;
    prepare_to_hear();
    const auto bytes = encoded(hello(), private_bytes);
    rdma_conn_param parameters{};
    parameters.private_data = bytes.data();
    parameters.private_data_len = static_cast<std::uint8_t>(bytes.size());
    parameters.responder_resources = parameters.initiator_depth = default_depth;
    return provider_.cm.connect(id_.get(), &parameters) == 0 ? 0 : errno;
}

void End::join() {
    peer = decoded(expect(RDMA_CM_EVENT_ESTABLISHED).private_data);
    require(peer.number == number_, "the server answers for another case");
}

void End::accept(const Hello &client, std::size_t private_bytes, std::uint8_t depth) {
    peer = client;
    number_ = client.number;
    prepare_to_hear();
    const auto bytes = encoded(hello(), private_bytes);
    rdma_conn_param parameters{};
    parameters.private_data = bytes.data();
    parameters.private_data_len = static_cast<std::uint8_t>(bytes.size());
    parameters.responder_resources = depth;
    parameters.initiator_depth = depth;
    require_done(provider_.cm.accept(id_.get(), &parameters), "rdma_accept");
}

void End::reject(const char *private_data) {
    require_done(
        provider_.cm.reject(id_.get(), private_data, static_cast<std::uint8_t>(std::strlen(private_data))),
        "rdma_reject");
}

void End::disconnect() {
    require_done(provider_.cm.disconnect(id_.get()), "rdma_disconnect");
}

CmEvent End::expect(rdma_cm_event_type type) {
    CmEvent got = event();
    require(got.type == type, std::string{"expected "} + provider_.cm.event_str(type) + ", got " +
                                  provider_.cm.event_str(got.type) + " with status " +
                                  std::to_string(got.status));
    return got;
}

void End::prepare_to_hear() {
    if (!note_receive_posted_) {
        post_receive(note_in, sizeof(Note));
        note_receive_posted_ = true;
    }
}

void End::tell(const Note &said) {
    prepare_to_hear();
    std::memcpy(memory_.data() + note_out, &said, sizeof(said));
    ibv_sge from = part(note_out, sizeof(said));
    require_done(verbs::post(qp(), verbs::request_of(IBV_WR_SEND, &from, IBV_SEND_SIGNALED, note)),
                 "ibv_post_send of a note");
    require(sent().wr_id == note, "a completion that is not the note's");
}

Note End::hear() {
    const ibv_wc arrived = received();
    require(arrived.byte_len == sizeof(Note), "a note of another length");
    note_receive_posted_ = false;
    Note heard;
    std::memcpy(&heard, memory_.data() + note_in, sizeof(heard));
    return heard;
}

void End::ask(const Note &said) {
    tell(said);
    require(hear().kind == Note::Kind::Ok, "the peer does not answer Ok");
}

void End::post_write(std::size_t from, std::size_t to, std::size_t length, unsigned flags) {
    ibv_sge source = part(from, length);
    const verbs::Remote there{.address = peer.data_address + to, .rkey = peer.data_rkey};
    require_done(verbs::post(qp(), verbs::request_of(IBV_WR_RDMA_WRITE, &source, there, flags, operation)),
                 "ibv_post_send of a write");
}

void End::post_read(std::size_t from, std::size_t to, std::size_t length, unsigned flags) {
    ibv_sge sink = part(to, length);
    const verbs::Remote there{.address = peer.data_address + from, .rkey = peer.data_rkey};
    require_done(verbs::post(qp(), verbs::request_of(IBV_WR_RDMA_READ, &sink, there, flags, operation)),
                 "ibv_post_send of a read");
}

void End::post_write_and_read(std::size_t to, std::uint32_t rkey, std::size_t length) {
    ibv_sge local = part(0, length);
    const verbs::Remote target{.address = peer.data_address + to, .rkey = rkey};
    const verbs::Remote source{.address = peer.data_address, .rkey = peer.data_rkey};
    ibv_send_wr write = verbs::request_of(IBV_WR_RDMA_WRITE, &local, target, 0, operation);
    ibv_send_wr read = verbs::request_of(IBV_WR_RDMA_READ, &local, source, IBV_SEND_SIGNALED, operation);
    write.next = &read;
    require_done(verbs::post(qp(), write), "ibv_post_send of a write and a read");
}

void End::write(std::size_t from, std::size_t to, std::size_t length) {
    post_write(from, to, length);
    require(sent().opcode == IBV_WC_RDMA_WRITE, "the completion is not a write's");
}

void End::read(std::size_t from, std::size_t to, std::size_t length) {
    post_read(from, to, length);
    require(sent().opcode == IBV_WC_RDMA_READ, "the completion is not a read's");
}

void End::send(std::size_t from, std::size_t length, unsigned flags) {
    ibv_sge source = part(from, length);
    require_done(
        verbs::post(qp(), verbs::request_of(IBV_WR_SEND, &source, IBV_SEND_SIGNALED | flags, operation)),
        "ibv_post_send");
    require(sent().opcode == IBV_WC_SEND, "the completion is not a send's");
}

void End::write_durably(std::size_t from, std::size_t to, std::size_t length) {
    ibv_sge source = part(from, length);
    const verbs::Remote target{.address = peer.durable_address + to, .rkey = peer.durable_rkey};
    require_done(verbs::post(qp(), verbs::request_of(IBV_WR_RDMA_WRITE, &source, target, 0, operation)),
                 "ibv_post_send of a write");
    if (native_flush()) {
        const auto level =
            peer.durable_rkey != peer.data_rkey ? verbs::Flush::Persistent : verbs::Flush::Visibility;
        ibv_sge extent{.addr = 0, .length = static_cast<std::uint32_t>(length), .lkey = 0};
        require_done(
            verbs::post(qp(), verbs::flush_request(&extent, target, level, IBV_SEND_SIGNALED, operation)),
            "ibv_post_send of a flush");
    } else {
        ibv_sge sink = part(flush_sink, flush_read_bytes);
        require_done(verbs::post(qp(), verbs::request_of(IBV_WR_RDMA_READ, &sink, target, IBV_SEND_SIGNALED,
                                                         operation)),
                     "ibv_post_send of a read");
    }
    (void)sent();
}

void End::post_receive(std::size_t to, std::size_t length) {
    ibv_sge into = part(to, length);
    require_done(verbs::post_receive(qp(), &into, operation), "ibv_post_recv");
}

ibv_wc End::completion(ibv_cq *cq, int solicited_only) {
    ibv_wc completion{};
    bool armed = false;
    int polled = 0;
    while ((polled = ibv_poll_cq(cq, 1, &completion)) == 0) {
        if (armed) {
            wait_channel();
            armed = false;
        } else {
            require_done(ibv_req_notify_cq(cq, solicited_only), "ibv_req_notify_cq");
            armed = true;
        }
    }
    require(polled == 1, "ibv_poll_cq failed");
    return completion;
}

ibv_wc End::successful(const ibv_wc &completion) {
    require(completion.status == IBV_WC_SUCCESS,
            std::string{"an operation ended with: "} + ibv_wc_status_str(completion.status));
    return completion;
}

void End::wait_channel() {
    wait_readable(channel_->fd, "a completion");
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    require_done(provider_.completion.get_cq_event(channel_.get(), &cq, &context), "ibv_get_cq_event");
    provider_.completion.ack_cq_events(cq, 1);
}

ibv_sge End::part(std::size_t offset, std::size_t length) const {
    return {.addr = reinterpret_cast<std::uintptr_t>(memory_.data()) + offset,
            .length = static_cast<std::uint32_t>(length),
            .lkey = region_->lkey};
}

std::span<std::byte> End::data(std::size_t offset, std::size_t length) {
    require(offset <= data_bytes && length <= data_bytes - offset, "a range outside the data");
    return std::span{memory_}.subspan(offset, length);
}

std::span<std::byte> End::durable(std::size_t offset, std::size_t length) {
    require(offset <= durable_bytes && length <= durable_bytes - offset,
            "a range outside the durable memory");
    return {(file_ ? file_->bytes() : memory_.data()) + offset, length};
}

}  // namespace interop
