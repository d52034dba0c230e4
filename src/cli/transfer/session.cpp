// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/session: keeps one send queue full.
#include "cli/transfer/session.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "cli/checksum.hpp"
#include "cli/log.hpp"

namespace cli {

namespace {

// The client reports at this interval that a transfer is active; the server waits longer.
constexpr auto alive_interval = std::chrono::seconds{1};
// A completion on the same machine takes less time than going to sleep for it.
constexpr auto session_spins = std::chrono::microseconds{50};
// Marks the completion of a request's message; the operation itself is done when its answer has come. The
// completions of answers have the numbers from the other one on.
constexpr Session::Operation of_request = 0;
constexpr Session::Operation of_answers = Session::Operation{1} << 63;

// Returns what a person can act on.
std::string why_no_room(const Answer &answer) {
    const auto because = [&](const char *hint) {
        return fmt::format("the server has no room: {} ({})", errno_text(answer.error), hint);
    };
    switch (answer.error) {
        case 0:
            return fmt::format("the server has room for {} bytes (rpma serve --max-bytes)", answer.sequence);
        case ENOSPC:
            return because(
                "the file system of its store has less than the push needs, or no inode; rpma status tells");
        case EDQUOT:
            return because("the quota of the server's user is used up");
        case EFBIG:
            return because("its user, or its file system, may have no file so large: ulimit -f");
        default:
            return because("the server's memory or its store");
    }
}

void *context_of(Session::Operation operation) {
    return reinterpret_cast<void *>(static_cast<std::uintptr_t>(operation));
}

}  // namespace

Outcome<std::unique_ptr<Session>> Session::open(const Address &address, const Hello &hello,
                                                double timeout_seconds) {
    std::unique_ptr<Session> session{new Session{address, timeout_seconds}};
    session->device_ = TRY(open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE));
    TRY(session->allocate());
    session->offer_ = TRY(session->server_.connect(
        session->device_, hello, {.sends = queue_size + most_requests, .receives = most_answers}));
    if (session->offer_.status == Status::Ok) {
        TRY(session->take_offer(hello.mode));
    }
    return session;
}

Outcome<> Session::allocate() {
    constexpr std::size_t size = answers_offset + most_answers * sizeof(AnswerBytes);
    memory_ = Mapping{size, MAP_PRIVATE | MAP_ANONYMOUS, -1};
    if (!memory_) {
        return failed("cannot allocate {} bytes: {}", size, errno_text(errno));
    }
    local_ = TRY(register_memory(
        device_, memory_.bytes(),
        RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV));
    return {};
}

Outcome<> Session::take_offer(Mode mode) {
    TRY(checked(rpma_conn_get_cq(server_.get(), &completions_), "{}: completion queue", server_.name()));
    std::size_t size = 0;
    if (server_.remote() != nullptr) {
        (void)rpma_mr_remote_get_size(server_.remote(), &size);
    }
    const std::uint64_t expected = mode == Mode::Push ? window_size : offer_.length;
    if (mode == Mode::Push ? size != expected : size < expected) {
        return failed("{}: offers {} bytes (expected {} of {})", server_.name(), size, expected,
                      mode == Mode::Push ? "a window" : "a content");
    }
    for (std::size_t place = 0; place < most_answers; ++place) {
        TRY(listen_for_answer(place));
    }
    return {};
}

std::size_t Session::local_offset(std::span<const std::byte> local) const {
    return static_cast<std::size_t>(local.data() - memory_.bytes().data());
}

Outcome<> Session::wait_for_place() {
    return posted_ - completed_ < queue_size ? Outcome<>{} : wait_for(posted_ - queue_size + 1);
}

Outcome<Session::Operation> Session::posted(int result, const char *what) {
    if (result != 0) {
        TRY(reap());  // the server may have said why it ends the connection
        return std::unexpected{checked(result, "{}: cannot post a {}", server_.name(), what).error()};
    }
    return ++posted_;
}

Outcome<Session::Operation> Session::read(std::span<std::byte> local, std::uint64_t offset) {
    TRY(wait_for_place());
    return posted(rpma_read(server_.get(), local_.get(), local_offset(local), server_.remote(), offset,
                            local.size(), RPMA_F_COMPLETION_ALWAYS, context_of(posted_ + 1)),
                  "read");
}

Outcome<Session::Operation> Session::write(std::uint64_t offset, std::span<const std::byte> local) {
    TRY(wait_for_place());
    return posted(rpma_write(server_.get(), server_.remote(), offset, local_.get(), local_offset(local),
                             local.size(), RPMA_F_COMPLETION_ALWAYS, context_of(posted_ + 1)),
                  "write");
}

Outcome<std::span<std::byte>> Session::next_chunk() {
    const std::size_t place = put_ % window_size;
    if (place % chunk_size == 0) {
        TRY(wait_for(stores_.at(place / chunk_size)));
    }
    return memory_.bytes().subspan(place, chunk_size - place % chunk_size);
}

Outcome<> Session::store(std::uint64_t offset, std::span<const std::byte> local) {
    const std::size_t place = put_ % window_size;
    if (!local.empty()) {
        TRY(write(place, local));
    }
    stores_.at(place / chunk_size) = TRY(ask({.ask = Ask::Store, .offset = offset, .length = local.size()}));
    put_ += local.size();
    return {};
}

// Each read has a chunk of its own, and the oldest is waited for when all have one.
Outcome<> Session::read_ranges(std::span<const Range> ranges, const Take &take) {
    struct Part {
        Operation operation;
        std::uint64_t offset;
        std::span<std::byte> bytes;
    };
    std::deque<Part> parts;
    const auto take_oldest = [&]() -> Outcome<> {
        const Part part = parts.front();
        parts.pop_front();
        TRY(wait_for(part.operation));
        TRY(take(part.bytes, part.offset));
        return keep_alive();
    };
    std::size_t place = 0;
    for (const Range &range : ranges) {
        for (std::uint64_t done = 0; done < range.length;) {
            if (parts.size() == depth) {
                TRY(take_oldest());
            }
            const std::size_t size = std::min<std::uint64_t>(range.length - done, chunk_size);
            const auto bytes = memory_.bytes().subspan(place++ % depth * chunk_size, size);
            const Operation operation = TRY(read(bytes, range.offset + done));
            parts.push_back({operation, range.offset + done, bytes});
            done += size;
        }
    }
    while (!parts.empty()) {
        TRY(take_oldest());
    }
    return {};
}

Outcome<std::uint32_t> Session::read_all(std::uint64_t length, const Take &take) {
    Crc32c checksum;
    const auto add = [&](std::span<const std::byte> bytes, std::uint64_t offset) -> Outcome<> {
        TRY(take(bytes, offset));
        checksum.update(bytes);
        return {};
    };
    const Range whole{0, length};
    TRY(read_ranges({&whole, 1}, add));
    return checksum.value();
}

Outcome<> Session::keep_alive() {
    TRY(reap());  // an answer counts from when it comes, and the server may have said why it ends the
                  // connection
    if (Clock::now() - last_asked_ > alive_interval && asked_.size() < most_requests) {
        TRY(ask({.ask = Ask::Alive}));
    }
    return {};
}

Outcome<Answer> Session::roll_back(std::uint64_t sequence) {
    TRY(ask({.ask = Ask::Rollback, .offset = sequence}));
    TRY(wait_for_all());
    return answer_;
}

Outcome<std::string> Session::look(std::uint64_t longest, std::uint64_t length, std::uint64_t offset) {
    TRY(ask({.ask = Ask::Look, .offset = offset, .length = length}));
    TRY(wait_for_all());
    const Answer made = answer_;
    if (made.verdict != Verdict::Done) {
        return failed("{}: the server cannot make the answer: {}", server_.name(), errno_text(made.error));
    }
    if (made.sequence > longest) {
        return failed("{}: has {} bytes to tell (expected at most {})", server_.name(), made.sequence,
                      longest);
    }
    TRY(server_.take(made.memory_region));
    std::size_t size = 0;
    (void)rpma_mr_remote_get_size(server_.remote(), &size);
    if (size < made.sequence) {
        return failed("{}: offers {} bytes for a text of {}", server_.name(), size, made.sequence);
    }
    std::string text;
    text.reserve(made.sequence);
    const auto add = [&text](std::span<const std::byte> bytes, std::uint64_t) -> Outcome<> {
        text.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
        return {};
    };
    if (TRY(read_all(made.sequence, add)) != made.checksum) {
        return failed("{}: its text has a wrong checksum", server_.name());
    }
    if (offer_.memory_region != RegionBytes{}) {
        TRY(server_.take(offer_.memory_region));  // the window again
    }
    return text;
}

Outcome<Answer> Session::give_tag(const Tag &tag, std::uint64_t length, std::uint32_t checksum) {
    TRY(ask({.ask = Ask::Tag, .length = length, .checksum = checksum, .label = tag_text(tag)}));
    TRY(wait_for_all());
    return answer_;
}

Outcome<> Session::reserve(std::uint64_t length) {
    TRY(ask({.ask = Ask::Reserve, .length = length}));
    return wait_for_all();
}

Outcome<Answer> Session::commit(std::uint64_t length, std::uint32_t checksum, const std::string &label) {
    TRY(ask({.ask = Ask::Commit, .length = length, .checksum = checksum, .label = label}));
    TRY(wait_for_all());
    return answer_;
}

// The operation is done when the answer has come. All bytes that were written before have arrived when the
// message does.
Outcome<Session::Operation> Session::ask(const Request &request) {
    while (asked_.size() >= most_requests) {
        TRY(wait_for(asked_.front().operation));
    }
    TRY(wait_for_place());
    const std::size_t sent = requests_offset + asked_count_++ % most_requests * sizeof(RequestBytes);
    std::ranges::copy(encode_request(request), memory_.bytes().begin() + static_cast<std::ptrdiff_t>(sent));
    last_asked_ = Clock::now();
    asked_.push_back({posted_ + 1, request.ask, last_asked_});
    // It has a completion, which frees its place in the queue, because no other operation may be posted
    // meanwhile.
    return posted(rpma_send(server_.get(), local_.get(), sent, sizeof(RequestBytes), RPMA_F_COMPLETION_ALWAYS,
                            context_of(of_request)),
                  "message");
}

// It sleeps only after it has found the queue empty, because nothing tells of completions that were there
// before.
Outcome<> Session::wait_for(Operation operation) {
    int fd = -1;
    (void)rpma_cq_get_fd(completions_, &fd);
    Operation seen = completed_;
    auto since = Clock::now();
    while (completed_ < operation) {
        const bool found = TRY(reap());
        const auto now = Clock::now();
        if (completed_ != seen) {
            seen = completed_;
            since = now;
        } else if (!found && now - since > session_spins) {
            TRY(server_.wait_readable(fd, since + server_.timeout()));
            const int result = rpma_cq_wait(completions_);  // may wake up without an event
            TRY(checked(result == RPMA_E_NO_COMPLETION ? 0 : result, "{}: completion queue", server_.name()));
        }
    }
    return {};
}

// Takes some of the completions that are there. Returns false when there was none.
Outcome<bool> Session::reap() {
    std::array<ibv_wc, 8> completions;
    int count = 0;
    const int result =
        rpma_cq_get_wc(completions_, static_cast<int>(completions.size()), completions.data(), &count);
    TRY(checked(result == RPMA_E_NO_COMPLETION ? 0 : result, "{}: completion queue", server_.name()));
    for (const ibv_wc &completion : std::span{completions}.first(static_cast<std::size_t>(count))) {
        if (completion.status != IBV_WC_SUCCESS) {
            return server_.ended(completion.status);
        }
        if (completion.wr_id == of_request) {
            continue;
        }
        if (completion.wr_id >= of_answers) {
            TRY(take_answer(completion.wr_id - of_answers));
            continue;
        }
        if (completion.wr_id <= completed_ || completion.wr_id > posted_) {
            return failed("{}: operation {} completed (expected one from {} to {})", server_.name(),
                          completion.wr_id, completed_ + 1, posted_);
        }
        complete(completion.wr_id);
    }
    return count != 0;
}

// Verbs completes in order, but with the kernel's siw a write does not wait for a read before it.
void Session::complete(Operation operation) {
    done_.set(operation % queue_size);
    while (done_.test((completed_ + 1) % queue_size)) {
        ++completed_;
        done_.reset(completed_ % queue_size);
    }
}

// The answers come in the order of the receives.
Outcome<> Session::listen_for_answer(std::size_t place) {
    const std::size_t offset = answers_offset + place * sizeof(AnswerBytes);
    std::ranges::fill(memory_.bytes().subspan(offset, sizeof(AnswerBytes)), std::byte{});  // no answer yet
    return checked(
        rpma_recv(server_.get(), local_.get(), offset, sizeof(AnswerBytes), context_of(of_answers + place)),
        "{}: cannot post a receive", server_.name());
}

// Takes the answer to the oldest request. The caller decides about the answer to other requests than those to
// store.
Outcome<> Session::take_answer(std::size_t place) {
    const auto answer = decode_answer(
        memory_.bytes().subspan(answers_offset + place * sizeof(AnswerBytes), sizeof(AnswerBytes)));
    if (!answer) {
        return failed("{}: {}", server_.name(), answer.error().text);
    }
    if (answer->verdict == Verdict::Ended) {
        return failed(Exit::Unreachable, "{}: the server ended the connection: {}", server_.name(),
                      ending_text(*answer));
    }
    if (asked_.empty()) {
        return failed("{}: answered what was not asked", server_.name());
    }
    const Asked asked = asked_.front();
    asked_.pop_front();
    answer_ = *answer;
    if (asked.ask == Ask::Store) {
        store_times_.record(Clock::now() - asked.since);
    }
    const bool is_stored = asked.ask == Ask::Store || asked.ask == Ask::Alive || asked.ask == Ask::Reserve;
    if (is_stored && answer->verdict == Verdict::NoRoom) {
        return failed(Exit::Refused, "{}: refused: {}", server_.name(), why_no_room(*answer));
    }
    if (is_stored && answer->verdict == Verdict::Different) {
        return failed(
            "{}: the server cannot build on what it has (expected a push without --incremental, or --resume "
            "again)",
            server_.name());
    }
    if (is_stored && answer->verdict != Verdict::Done) {
        return failed("{}: the server could not make the data durable: {}", server_.name(),
                      errno_text(answer->error));
    }
    complete(asked.operation);
    return listen_for_answer(place);
}

}  // namespace cli
