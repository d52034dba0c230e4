// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/client: the order of a push's requests, and the time that counts as a client's own.
#include "cli/serve/client.hpp"

#include <algorithm>
#include <cerrno>
#include <span>

namespace cli {

namespace {

// A push that stores fewer bytes than these within its lease makes no progress.
constexpr std::uint64_t least_progress = std::uint64_t{64} << 10;
// Storage that answers sooner does not count as the reason why a push is slow.
constexpr auto slow_answer = std::chrono::seconds{1};

}  // namespace

void Activity::be_active() {
    active_ = Clock::now();
    waits_ = waits_ ? std::optional{active_} : std::nullopt;
}

void Activity::wait_for_storage(bool waits) {
    const auto now = Clock::now();
    if (!waits) {
        active_ += waits_ ? now - *waits_ : Clock::duration::zero();
        waits_.reset();
    } else if (!waits_) {
        waits_ = now;
    }
}

void Activity::answered() {
    held_up_ += held_up_now();
    answered_ = Clock::now();
}

// A client may ask again and again so soon that it always waits, which slows it down only where storage is
// slow.
Activity::Clock::duration Activity::held_up_now() const {
    const auto since = waits_ ? Clock::now() - std::max(*waits_, answered_) : Clock::duration::zero();
    return since >= slow_answer ? since : Clock::duration::zero();
}

Outcome<> Push::take(const Request &request, std::uint64_t capacity, Storage::Job &job) {
    if (is_over_) {
        return failed(
            "asks for more after its end (expected nothing after a commit, or after the answer that another "
            "push was faster)");
    }
    const bool rolls_back = request.ask == Ask::Rollback;
    if (rolls_back ? request.length != 0
                   : request.offset > capacity || request.length > capacity - request.offset) {
        return failed("asks for {} bytes at {} (expected {} bytes at most in all)", request.length,
                      request.offset, capacity);
    }
    if (request.ask == Ask::Tag) {
        (void)TRY(parse_tag(request.label));
        if (asked_ != 0 || std::exchange(has_tagged_, true)) {
            return failed("asks for a tag (expected one, before any byte)");
        }
    }
    if (request.ask == Ask::Reserve && std::exchange(has_reserved_, true)) {
        return failed("asks for room again (expected that once)");
    }
    if (request.ask == Ask::Store) {
        TRY(take_bytes(request, job));
    }
    // A push makes progress only by what is stored, because anybody can claim to be active. The answer to
    // Alive comes behind those to the requests before, in whose order the client takes it.
    if (request.ask != Ask::Alive) {
        job.upload = upload_;
    }
    is_over_ = commits(request.ask);
    return {};
}

Outcome<> Push::take_bytes(const Request &request, Storage::Job &job) {
    if (request.length > window_size) {
        return failed("asks to store {} bytes (expected at most the {} of its window)", request.length,
                      window_size);
    }
    const std::size_t begin = put_ % window_size;
    const std::size_t first = std::min<std::size_t>(request.length, window_size - begin);
    job.first = window_.bytes.subspan(begin, first);
    job.rest = window_.bytes.first(request.length - first);
    job.memory = window_;
    put_ += request.length;
    asked_ = std::max(asked_, request.offset + request.length);
    return {};
}

bool Push::finish(const Storage::Job &job) {
    const Request &request = job.request;
    const Answer &answer = job.answer;
    const auto has_trouble = [this](const char *reason, std::string text) {
        if (!trouble_) {
            trouble_ = {reason, std::move(text)};
        }
    };
    if (answer.verdict == Verdict::NoRoom) {
        has_trouble("no_room", answer.error == 0
                                   ? "the store has no room (--max-bytes)"
                                   : fmt::format("the store has no room: {}", errno_text(answer.error)));
    } else if (answer.verdict == Verdict::NotDurable) {
        has_trouble("storage", fmt::format("it cannot be made durable: {}", errno_text(answer.error)));
    }
    is_over_ = is_over_ || answer.verdict == Verdict::Newer;
    if (request.ask != Ask::Store) {
        return false;
    }
    if (answer.verdict != Verdict::Done) {
        was_refused_ = true;
        return false;
    }
    stored_ = std::max(stored_, request.offset + request.length);
    const bool is_progress = stored_ >= counted_ + least_progress;
    counted_ = is_progress ? stored_ : counted_;
    return is_progress;
}

std::uint64_t Push::reserved() const {
    const std::uint64_t room = upload_->room();
    return room - std::min(room, stored_);
}

Storage::Job Client::job(Request request, std::uint64_t place) const {
    Storage::Job made;
    made.client = number;
    made.place = place;
    made.origin = origin;
    made.request = std::move(request);
    made.who = who;
    return made;
}

}  // namespace cli
