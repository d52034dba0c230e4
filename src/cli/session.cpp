// SPDX-License-Identifier: BSD-3-Clause
// cli/session: connecting, and one send queue that is kept full.
#include "cli/session.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "cli/log.hpp"

namespace cli {

namespace {

// A completion on the same machine takes less than going to sleep for it does.
constexpr auto spin_time = std::chrono::microseconds{50};
// What was done is done; a server that does not answer to that is not waited for.
constexpr auto close_timeout = std::chrono::milliseconds{2000};

// Written by the signal handler, hence lock-free; relaxed, nothing is published with it.
std::atomic<bool> was_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void *context_of(Session::Operation operation) {
    return reinterpret_cast<void *>(static_cast<std::uintptr_t>(operation));
}

}  // namespace

void end_waits_on_signals() {
    struct sigaction action{};
    action.sa_handler = [](int) { was_interrupted.store(true, std::memory_order_relaxed); };
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

Outcome<std::unique_ptr<Session>> Session::open(const Address &address, Mode mode, double timeout_seconds) {
    const auto timeout = std::chrono::ceil<Milliseconds>(std::chrono::duration<double>{timeout_seconds});
    std::unique_ptr<Session> session{new Session{address, timeout}};
    session->device_ = TRY(open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE));
    TRY(session->connect(address, mode));
    const Offer offer = TRY(session->receive_offer());
    if (offer.status == Status::Busy) {
        session->close();
        return nullptr;
    }
    if (offer.status == Status::Failed) {
        return failed("{}: the server cannot use its pool; its own output says why", session->name_);
    }
    TRY(session->take_offer(offer, mode));
    return session;
}

Outcome<> Session::connect(const Address &address, Mode mode) {
    memory_ = Mapping{depth * chunk_size, MAP_PRIVATE | MAP_ANONYMOUS, -1};
    if (!memory_) {
        return failed("cannot allocate {} bytes: {}", depth * chunk_size, errno_text(errno));
    }
    rpma_mr_local *local = nullptr;
    TRY(checked(rpma_mr_reg(device_.peer.get(), memory_.bytes().data(), memory_.bytes().size(),
                            RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC, &local),
                "cannot register {} bytes with {}", depth * chunk_size, device()));
    local_.reset(local);

    rpma_conn_cfg *configuration = nullptr;
    TRY(checked(rpma_conn_cfg_new(&configuration), "connection configuration"));
    const ConnectionConfiguration owner{configuration};
    (void)rpma_conn_cfg_set_sq_size(configuration, queue_size);
    (void)rpma_conn_cfg_set_cq_size(configuration, queue_size);
    (void)rpma_conn_cfg_set_timeout(configuration, static_cast<int>(timeout_.count()));
    rpma_conn_req *request = nullptr;
    TRY(checked(rpma_conn_req_new(device_.peer.get(), address.host.c_str(), address.port.c_str(),
                                  configuration, &request),
                "{}: cannot reach it", name_));
    HelloBytes hello = encode_hello({protocol_version, mode});
    const rpma_conn_private_data data{hello.data(), sizeof(hello)};
    rpma_conn *connection = nullptr;
    TRY(checked(rpma_conn_req_connect(&request, &data, &connection), "{}: cannot connect", name_));
    connection_.reset(connection);
    return {};
}

Outcome<rpma_conn_event> Session::next_event(Milliseconds timeout) {
    int fd = -1;
    (void)rpma_conn_get_event_fd(connection_.get(), &fd);
    TRY(wait_readable(fd, Clock::now() + timeout));
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    TRY(checked(rpma_conn_next_event(connection_.get(), &event), "{}: connection event", name_));
    return event;
}

Outcome<Offer> Session::receive_offer() {
    const rpma_conn_event event = TRY(next_event(timeout_));
    if (event == RPMA_CONN_REJECTED) {
        return failed("{}: refused: nobody serves a pool there (rpma serve){}", name_, logged_reason());
    }
    if (event != RPMA_CONN_ESTABLISHED) {
        return failed("{}: cannot connect: {}{}", name_, rpma_utils_conn_event_2str(event), logged_reason());
    }
    rpma_conn_private_data data{};
    (void)rpma_conn_get_private_data(connection_.get(), &data);
    auto offer = decode_offer({static_cast<const std::byte *>(data.ptr), data.len});
    if (!offer) {
        return failed("{}: {}", name_, offer.error().text);
    }
    return offer;
}

Outcome<> Session::take_offer(const Offer &offer, Mode mode) {
    layout_ = Layout{offer.capacity};
    durability_ = offer.durability;
    rpma_mr_remote *remote = nullptr;
    TRY(checked(
        rpma_mr_remote_from_descriptor(offer.memory_region.data(), offer.memory_region.size(), &remote),
        "{}: its memory region's descriptor", name_));
    remote_.reset(remote);
    rpma_peer_cfg *configuration = nullptr;
    TRY(checked(rpma_peer_cfg_from_descriptor(&offer.peer_configuration, 1, &configuration),
                "{}: its peer configuration", name_));
    const PeerConfiguration owner{configuration};
    TRY(checked(rpma_conn_apply_remote_peer_cfg(connection_.get(), configuration),
                "{}: its peer configuration", name_));
    TRY(checked(rpma_conn_get_cq(connection_.get(), &completions_), "{}: completion queue", name_));

    std::size_t size = 0;
    int flush_types = 0;
    (void)rpma_mr_remote_get_size(remote, &size);
    (void)rpma_mr_remote_get_flush_type(remote, &flush_types);
    const int needed = durability_ == Durability::None ? RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY
                                                       : RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
    if (size != layout_.region_size() || (mode == Mode::Push && (flush_types & needed) == 0)) {
        return failed("{}: offers {} bytes with flush types {:#x} (expected {} and {:#x})", name_, size,
                      flush_types, layout_.region_size(), needed);
    }
    return {};
}

std::span<std::byte> Session::chunk(std::uint64_t offset, std::uint64_t end) const {
    const std::size_t index = offset / chunk_size % depth;
    return memory_.bytes().subspan(index * chunk_size, std::min(end - offset, std::uint64_t{chunk_size}));
}

std::size_t Session::local_offset(std::span<const std::byte> local) const {
    return static_cast<std::size_t>(local.data() - memory_.bytes().data());
}

Outcome<> Session::reserve() {
    return posted_ - completed_ < queue_size ? Outcome<>{} : wait_for(posted_ - queue_size + 1);
}

Outcome<Session::Operation> Session::posted(int result, const char *what) {
    TRY(checked(result, "{}: cannot post a {}", name_, what));
    return ++posted_;
}

Outcome<Session::Operation> Session::read(std::span<std::byte> local, std::uint64_t offset) {
    TRY(reserve());
    return posted(rpma_read(connection_.get(), local_.get(), local_offset(local), remote_.get(), offset,
                            local.size(), RPMA_F_COMPLETION_ALWAYS, context_of(posted_ + 1)),
                  "read");
}

Outcome<Session::Operation> Session::write(std::uint64_t offset, std::span<const std::byte> local) {
    TRY(reserve());
    return posted(rpma_write(connection_.get(), remote_.get(), offset, local_.get(), local_offset(local),
                             local.size(), RPMA_F_COMPLETION_ALWAYS, context_of(posted_ + 1)),
                  "write");
}

Outcome<Session::Operation> Session::flush(std::uint64_t offset, std::uint64_t length) {
    const auto type =
        durability_ == Durability::None ? RPMA_FLUSH_TYPE_VISIBILITY : RPMA_FLUSH_TYPE_PERSISTENT;
    TRY(reserve());
    flushes_.push_back({posted_ + 1, Clock::now()});
    return posted(rpma_flush(connection_.get(), remote_.get(), offset, length, type, RPMA_F_COMPLETION_ALWAYS,
                             context_of(posted_ + 1)),
                  "flush");
}

Outcome<Session::Operation> Session::atomic_write(std::uint64_t offset, std::span<const std::byte, 8> word) {
    TRY(reserve());
    return posted(rpma_atomic_write(connection_.get(), remote_.get(), offset,
                                    reinterpret_cast<const char *>(word.data()), RPMA_F_COMPLETION_ALWAYS,
                                    context_of(posted_ + 1)),
                  "atomic write");
}

Outcome<std::span<const std::byte>> Session::read_control() {
    const auto control = memory_.bytes().first(Layout::control_size);
    TRY(read(control, 0));
    TRY(wait_for_all());
    return control;
}

Outcome<> Session::wait_for(Operation operation) {
    int fd = -1;
    (void)rpma_cq_get_fd(completions_, &fd);
    Operation seen = completed_;
    auto since = Clock::now();
    while (completed_ < operation) {
        TRY(reap());
        const auto now = Clock::now();
        if (completed_ != seen) {
            seen = completed_;
            since = now;
        } else if (now - since > spin_time) {
            TRY(wait_readable(fd, since + timeout_));
            const int result = rpma_cq_wait(completions_);  // may be spurious
            TRY(checked(result == RPMA_E_NO_COMPLETION ? 0 : result, "{}: completion queue", name_));
        }
    }
    return {};
}

// Takes the completions that are there, none included.
Outcome<> Session::reap() {
    std::array<ibv_wc, 8> completions;
    int count = 0;
    const int result =
        rpma_cq_get_wc(completions_, static_cast<int>(completions.size()), completions.data(), &count);
    TRY(checked(result == RPMA_E_NO_COMPLETION ? 0 : result, "{}: completion queue", name_));
    for (const ibv_wc &completion : std::span{completions}.first(static_cast<std::size_t>(count))) {
        if (completion.status != IBV_WC_SUCCESS) {
            return failed("{}: the connection ended ({}){}", name_, ibv_wc_status_str(completion.status),
                          logged_reason());
        }
        if (completion.wr_id <= completed_ || completion.wr_id > posted_) {
            return failed("{}: operation {} completed (expected one from {} to {})", name_, completion.wr_id,
                          completed_ + 1, posted_);
        }
        complete(completion.wr_id);
    }
    return {};
}

// Verbs completes in order; the kernel's siw does not let a write wait for a read before it.
void Session::complete(Operation operation) {
    done_.set(operation % queue_size);
    while (done_.test((completed_ + 1) % queue_size)) {
        ++completed_;
        done_.reset(completed_ % queue_size);
        if (!flushes_.empty() && flushes_.front().operation == completed_) {
            const std::chrono::duration<double> took = Clock::now() - flushes_.front().since;
            flush_seconds_.push_back(took.count());
            flushes_.pop_front();
        }
    }
}

Outcome<> Session::wait_readable(int fd, Clock::time_point deadline) const {
    while (!was_interrupted.load(std::memory_order_relaxed)) {
        const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
        if (left <= 0) {
            return failed("{}: no answer for {} seconds", name_,
                          std::chrono::duration<double>{timeout_}.count());
        }
        pollfd waiting{fd, POLLIN, 0};
        const int ready = poll(&waiting, 1, static_cast<int>(left));
        if (ready > 0) {
            return {};
        }
        if (ready < 0 && errno != EINTR) {
            return failed("poll: {}", errno_text(errno));
        }
    }
    return failed("{}: interrupted", name_);
}

void Session::close() {
    if (rpma_conn_disconnect(connection_.get()) == 0) {
        (void)next_event(std::min(timeout_, close_timeout));
    }
    connection_.reset();
}

}  // namespace cli
