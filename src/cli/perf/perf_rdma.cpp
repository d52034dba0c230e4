// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_rdma: prepares the operation of each slot, so that the measurement contains only posting and
// collecting.
#include "cli/perf/perf_rdma.hpp"

#include <algorithm>
#include <array>

#include "base/address.hpp"
#include "cli/log.hpp"
#include "cli/protocol/protocol.hpp"

namespace cli {

namespace {

constexpr std::uint64_t cache_line = 64;
constexpr std::uint32_t answer_bytes = 8;  // room for an answer, which is empty
// ibv_wc.wr_id is a slot, or has one of these bits.
constexpr std::uint64_t is_receive = std::uint64_t{1} << 32;  // the rest is the connection
constexpr std::uint64_t is_message = std::uint64_t{1} << 33;  // the message is done when its answer comes

constexpr std::array<char, 8> atomic_word = {1, 2, 3, 4, 5, 6, 7, 8};

void *context(std::uint64_t value) {
    return reinterpret_cast<void *>(static_cast<std::uintptr_t>(value));
}

// Returns the place of a slot. Slots have memory of their own as long as there is room, and begin at a cache
// line.
std::uint64_t place(std::uint64_t slot, std::uint64_t bytes, std::uint64_t room) {
    const std::uint64_t stride = (bytes + cache_line - 1) / cache_line * cache_line;
    return slot % std::max<std::uint64_t>(room / stride, 1) * stride;
}

int type_of(PerfOp op) {
    switch (op) {
        case PerfOp::Read:
            return RPMA_OP_READ;
        case PerfOp::Send:
            return RPMA_OP_SEND;
        case PerfOp::Atomic:
            return RPMA_OP_ATOMIC_WRITE;
        case PerfOp::Write:
        case PerfOp::Flush:
            break;
    }
    return RPMA_OP_WRITE;
}

}  // namespace

Outcome<std::unique_ptr<RdmaPath>> RdmaPath::open(const DevicePeer &device, const Address &address,
                                                  const Load &load, bool polled, double timeout_seconds) {
    std::unique_ptr<RdmaPath> path{new RdmaPath{load}};
    TRY(path->allocate(device, polled));
    for (std::uint32_t i = 0; i < load.connections; ++i) {
        TRY(path->connect(device, address, timeout_seconds));
    }
    TRY(path->prepare_slots());
    return path;
}

RdmaPath::~RdmaPath() {
    for (const auto &server : servers_) {
        server->close();
    }
}

Outcome<> RdmaPath::allocate(const DevicePeer &device, bool polled) {
    const std::uint64_t size = std::max(
        std::min<std::uint64_t>(std::uint64_t{load_.slots()} * (load_.bytes + cache_line), largest_message),
        std::uint64_t{answer_bytes});
    memory_ = Mapping{size, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1};
    if (!memory_) {
        return failed("cannot allocate {} bytes: {}", size, errno_text(errno));
    }
    local_ = TRY(register_memory(
        device, memory_.bytes(),
        RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV));
    // Each operation has at most two completions: a message has its own and its answer's, a failed write has
    // its own and its flush's.
    rpma_cq *completions = nullptr;
    TRY(checked(rpma_cq_new(device.peer.get(), 2 * load_.slots() + load_.connections,
                            polled ? RPMA_CQ_POLLED : 0, &completions),
                "a completion queue for {} operations", load_.slots()));
    completions_.reset(completions);
    return {};
}

Outcome<> RdmaPath::connect(const DevicePeer &device, const Address &address, double timeout_seconds) {
    const bool sends = load_.op == PerfOp::Send;
    const Mode mode = load_.op == PerfOp::Flush ? Mode::MeasureDurable : Mode::Measure;
    auto server = std::make_unique<ClientConnection>(address, timeout_seconds);
    const Offer offer = TRY(
        server->connect(device, {protocol_version, mode, sends ? load_.depth : 0, sends ? load_.bytes : 0},
                        {2 * load_.depth, load_.depth, completions_.get()}));
    if (offer.status == Status::Busy) {
        return failed(Exit::Busy, "{}: {} (expected no push while flushes are measured)", server->name(),
                      offer.reason);
    }
    std::size_t room = 0;
    (void)rpma_mr_remote_get_size(server->remote(), &room);
    if (room < load_.bytes || room < sizeof(atomic_word)) {
        return failed("{}: takes at most {} bytes at once (expected --size of at most that, not {})",
                      server->name(), room, load_.bytes);
    }
    if (offer.tcp_port == 0) {
        return failed("{}: has no TCP port to compare with", server->name());
    }
    durability_ = offer.durability;
    auto &baseline = baselines_.emplace_back();
    TRY(checked(rpma_conn_get_peer_addr(server->get(), &baseline), "{}: its address", server->name()));
    base::set_port(baseline, offer.tcp_port);
    servers_.push_back(std::move(server));
    sent_.emplace_back(load_.depth);
    for (std::uint32_t i = 0; sends && i < load_.depth; ++i) {
        TRY(post_receive(static_cast<std::uint32_t>(servers_.size() - 1)));
    }
    return {};
}

Outcome<> RdmaPath::post_receive(std::uint32_t connection) {
    const ClientConnection &server = *servers_[connection];
    return checked(rpma_recv(server.get(), local_.get(), 0, answer_bytes, context(is_receive | connection)),
                   "{}: cannot post a receive", server.name());
}

Outcome<> RdmaPath::prepare_slots() {
    const bool flushes = load_.op == PerfOp::Flush;
    operations_.resize(std::size_t{load_.slots()} * (flushes ? 2 : 1));
    auto *next = operations_.data();
    for (std::uint32_t slot = 0; slot < load_.slots(); ++slot) {
        const ClientConnection &server = *servers_[slot / load_.depth];
        std::size_t room = 0;
        (void)rpma_mr_remote_get_size(server.remote(), &room);
        rpma_op &operation = *next++;
        operation.type = type_of(load_.op);
        operation.flags = flushes ? RPMA_F_COMPLETION_ON_ERROR : RPMA_F_COMPLETION_ALWAYS;
        operation.op_context = context(load_.op == PerfOp::Send ? is_message : slot);
        operation.local = local_.get();
        operation.local_offset = place(slot, load_.bytes, memory_.bytes().size());
        operation.remote = server.remote();
        operation.remote_offset = place(slot, load_.bytes, room);
        operation.len = load_.bytes;
        operation.word = atomic_word.data();
        if (flushes) {
            rpma_op &flush = *next++;
            flush = operation;
            flush.type = RPMA_OP_FLUSH;
            flush.flags = RPMA_F_COMPLETION_ALWAYS;
            flush.flush_type =
                durability_ == Durability::None ? RPMA_FLUSH_TYPE_VISIBILITY : RPMA_FLUSH_TYPE_PERSISTENT;
        }
    }
    return {};
}

Outcome<> RdmaPath::post_all(const ClientConnection &server, std::span<const rpma_op> operations) {
    return checked(rpma_post(server.get(), operations.data(), operations.size(), nullptr),
                   "{}: cannot post an operation", server.name());
}

Outcome<> RdmaPath::post(std::uint32_t slot) {
    const std::uint32_t connection = slot / load_.depth;
    const std::size_t each = load_.op == PerfOp::Flush ? 2 : 1;
    if (load_.op == PerfOp::Send) {
        sent_[connection].push(slot);
    }
    return post_all(*servers_[connection], std::span{operations_}.subspan(slot * each, each));
}

// A read is answered after all earlier writes were placed.
Outcome<> RdmaPath::post_barrier(std::uint32_t slot) {
    rpma_op read{};
    read.type = RPMA_OP_READ;
    read.flags = RPMA_F_COMPLETION_ALWAYS;
    read.op_context = context(slot);
    read.local = local_.get();
    read.remote = servers_[slot / load_.depth]->remote();
    read.len = 1;
    return post_all(*servers_[slot / load_.depth], std::span{&read, 1});
}

// Returns the slot whose operation is done with this completion, if one is.
Outcome<std::optional<std::uint32_t>> RdmaPath::done_by(const ibv_wc &completion) {
    if (completion.status != IBV_WC_SUCCESS) {
        return servers_.front()->ended(completion.status);
    }
    const auto number = static_cast<std::uint32_t>(completion.wr_id);
    if ((completion.wr_id & is_receive) == 0) {
        return completion.wr_id < load_.slots() ? std::optional{number} : std::nullopt;
    }
    auto &sent = sent_[number];
    if (sent.empty()) {
        return failed("{}: answered a message that was not sent", servers_[number]->name());
    }
    const std::uint32_t answered = sent.front();
    sent.pop();
    TRY(post_receive(number));
    return answered;
}

// Returns 0 only when it has found the queue empty, because nothing tells a caller that sleeps of completions
// that were there before.
Outcome<std::size_t> RdmaPath::collect(std::span<std::uint32_t> done) {
    std::array<ibv_wc, 16> completions;
    std::size_t found = 0;
    for (int count = 1; found == 0 && count != 0;) {
        count = 0;
        const int result =
            rpma_cq_get_wc(completions_.get(), static_cast<int>(std::min(done.size(), completions.size())),
                           completions.data(), &count);
        TRY(checked(result == RPMA_E_NO_COMPLETION ? 0 : result, "{}: completion queue",
                    servers_.front()->name()));
        for (const ibv_wc &completion : std::span{completions}.first(static_cast<std::size_t>(count))) {
            if (const auto slot = TRY(done_by(completion)); slot) {
                done[found++] = *slot;
            }
        }
    }
    return found;
}

Outcome<> RdmaPath::wait() {
    int fd = -1;
    (void)rpma_cq_get_fd(completions_.get(), &fd);
    const ClientConnection &server = *servers_.front();
    TRY(server.wait_readable(fd, ClientConnection::Clock::now() + server.timeout()));
    const int result = rpma_cq_wait(completions_.get());  // may wake up without an event
    return checked(result == RPMA_E_NO_COMPLETION ? 0 : result, "{}: completion queue", server.name());
}

}  // namespace cli
