// SPDX-License-Identifier: BSD-3-Clause
// cli/session: one send queue that is kept full.
#include "cli/session.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "cli/log.hpp"

namespace cli {

namespace {

// A completion on the same machine takes less than going to sleep for it does.
constexpr auto spin_time = std::chrono::microseconds{50};
void *context_of(Session::Operation operation) {
    return reinterpret_cast<void *>(static_cast<std::uintptr_t>(operation));
}

}  // namespace

Outcome<std::unique_ptr<Session>> Session::open(const Address &address, Mode mode, double timeout_seconds) {
    std::unique_ptr<Session> session{new Session{address, timeout_seconds}};
    session->device_ = TRY(open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE));
    TRY(session->allocate());
    const Offer offer = TRY(
        session->link_.connect(session->device_, {version_of(mode), mode},
                               {.sends = queue_size + most_store_requests, .receives = most_store_requests}));
    if (offer.status != Status::Ok) {
        return nullptr;
    }
    TRY(session->take_offer(offer, mode));
    return session;
}

Outcome<> Session::allocate() {
    constexpr std::size_t size = messages_offset + page_size;
    memory_ = Mapping{size, MAP_PRIVATE | MAP_ANONYMOUS, -1};
    if (!memory_) {
        return failed("cannot allocate {} bytes: {}", size, errno_text(errno));
    }
    local_ = TRY(register_memory(
        device_, memory_.bytes(),
        RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV));
    return {};
}

Outcome<> Session::take_offer(const Offer &offer, Mode mode) {
    layout_ = Layout{offer.capacity};
    durability_ = offer.durability;
    TRY(checked(rpma_conn_get_cq(link_.get(), &completions_), "{}: completion queue", link_.name()));
    std::size_t size = 0;
    int flush_types = 0;
    (void)rpma_mr_remote_get_size(link_.remote(), &size);
    (void)rpma_mr_remote_get_flush_type(link_.remote(), &flush_types);
    const int needed = durability_ == Durability::None || durability_ == Durability::ByMessage
                           ? RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY
                           : RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;
    if (size != layout_.region_size() || (mode == Mode::Push && (flush_types & needed) == 0)) {
        return failed("{}: offers {} bytes with flush types {:#x} (expected {} and {:#x})", link_.name(),
                      size, flush_types, layout_.region_size(), needed);
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
    TRY(checked(result, "{}: cannot post a {}", link_.name(), what));
    return ++posted_;
}

Outcome<Session::Operation> Session::read(std::span<std::byte> local, std::uint64_t offset) {
    TRY(reserve());
    return posted(rpma_read(link_.get(), local_.get(), local_offset(local), link_.remote(), offset,
                            local.size(), RPMA_F_COMPLETION_ALWAYS, context_of(posted_ + 1)),
                  "read");
}

Outcome<Session::Operation> Session::write(std::uint64_t offset, std::span<const std::byte> local) {
    TRY(reserve());
    return posted(rpma_write(link_.get(), link_.remote(), offset, local_.get(), local_offset(local),
                             local.size(), RPMA_F_COMPLETION_ALWAYS, context_of(posted_ + 1)),
                  "write");
}

Outcome<Session::Operation> Session::flush(std::uint64_t offset, std::uint64_t length) {
    if (durability_ == Durability::ByMessage) {
        return ask_to_store(offset, length);
    }
    const auto type =
        durability_ == Durability::None ? RPMA_FLUSH_TYPE_VISIBILITY : RPMA_FLUSH_TYPE_PERSISTENT;
    TRY(reserve());
    flushes_.push_back({posted_ + 1, Clock::now()});
    return posted(rpma_flush(link_.get(), link_.remote(), offset, length, type, RPMA_F_COMPLETION_ALWAYS,
                             context_of(posted_ + 1)),
                  "flush");
}

// Done when the answer is there. What was written before has arrived when the message does.
Outcome<Session::Operation> Session::ask_to_store(std::uint64_t offset, std::uint64_t length) {
    while (flushes_.size() >= most_store_requests) {
        TRY(wait_for(flushes_.front().operation));
    }
    TRY(reserve());
    const StoreRequestBytes request = encode_store_request({offset, length});
    const std::size_t number = flush_seconds_.size() + flushes_.size();
    const std::size_t sent = messages_offset + number % most_store_requests * request.size();
    // Answers are empty; siw takes no receive without memory.
    const std::size_t answered = messages_offset + most_store_requests * request.size();
    std::ranges::copy(request, memory_.bytes().begin() + static_cast<std::ptrdiff_t>(sent));
    flushes_.push_back({posted_ + 1, Clock::now()});
    TRY(checked(rpma_recv(link_.get(), local_.get(), answered, 1, context_of(posted_ + 1)),
                "{}: cannot post a receive", link_.name()));
    return posted(rpma_send(link_.get(), local_.get(), sent, request.size(), RPMA_F_COMPLETION_ON_ERROR,
                            context_of(posted_ + 1)),
                  "message");
}

Outcome<Session::Operation> Session::atomic_write(std::uint64_t offset, std::span<const std::byte, 8> word) {
    TRY(reserve());
    return posted(
        rpma_atomic_write(link_.get(), link_.remote(), offset, reinterpret_cast<const char *>(word.data()),
                          RPMA_F_COMPLETION_ALWAYS, context_of(posted_ + 1)),
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
            TRY(link_.wait_readable(fd, since + link_.timeout()));
            const int result = rpma_cq_wait(completions_);  // may be spurious
            TRY(checked(result == RPMA_E_NO_COMPLETION ? 0 : result, "{}: completion queue", link_.name()));
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
    TRY(checked(result == RPMA_E_NO_COMPLETION ? 0 : result, "{}: completion queue", link_.name()));
    for (const ibv_wc &completion : std::span{completions}.first(static_cast<std::size_t>(count))) {
        if (completion.status != IBV_WC_SUCCESS) {
            return link_.ended(completion.status);
        }
        if (completion.wr_id <= completed_ || completion.wr_id > posted_) {
            return failed("{}: operation {} completed (expected one from {} to {})", link_.name(),
                          completion.wr_id, completed_ + 1, posted_);
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

}  // namespace cli
