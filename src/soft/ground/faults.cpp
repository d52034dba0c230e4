// SPDX-License-Identifier: BSD-3-Clause
#include "soft/ground/faults.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdlib>
#include <optional>

#include "base/log.hpp"
#include "base/number.hpp"

namespace soft {

namespace {

struct Item {
    std::string_view name;
    const char *expected;
    std::uint64_t most;
};

// The items are in the order of Faults::Kind.
constexpr std::array<Item, Faults::kinds> items{{
    {"drop", "drop=REQUESTS[:CHANCE], REQUESTS up to 4294967295", UINT32_MAX},
    {"delay_us", "delay_us=MICROSECONDS[:CHANCE], MICROSECONDS up to 10000000", 10'000'000},
    {"tear", "tear=BYTES[:CHANCE], BYTES up to 4294967295", UINT32_MAX},
    {"register", "register=REGISTRATIONS[:CHANCE], REGISTRATIONS up to 4294967295", UINT32_MAX},
    {"fill", "fill=COMPLETIONS[:CHANCE], COMPLETIONS up to 4294967295", UINT32_MAX},
}};

// For the other kinds the number is how many occasions have no fault.
constexpr bool is_amount(Faults::Kind kind) {
    return kind == Faults::Kind::Delay || kind == Faults::Kind::Tear;
}

// Reads a number like "0.01", without sign or exponent; "nan" and "inf" are not valid.
bool read_chance(std::string_view text, double &chance) {
    return text.find_first_not_of("0123456789.") == std::string_view::npos &&
           base::read_number(text, chance) && chance <= 1;
}

std::unexpected<std::string> bad_item(std::string_view item, const char *expected) {
    return std::unexpected{'"' + std::string{item} + "\", expected " + expected};
}

// The finalizer of splitmix64: every bit of the result depends on every bit of the argument.
std::uint64_t mixed(std::uint64_t word) {
    word += 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
}

struct Environment {
    bool understood = true;
    std::optional<Faults> faults;
};

Environment read_environment() {
    const char *const text = secure_getenv("SOFTRDMA_FAULTS");
    if (text == nullptr || *text == '\0') {
        return {};
    }
    const auto parsed = Faults::parse(text);
    if (!parsed) {
        BASE_LOG(Error, "SOFTRDMA_FAULTS has %s: no device is opened", parsed.error().c_str());
        return {.understood = false, .faults = {}};
    }
    BASE_LOG(Warning, "SOFTRDMA_FAULTS is \"%s\": faults happen on purpose", text);
    return {.understood = true, .faults = *parsed};
}

const Environment &environment() {
    static const Environment once = read_environment();
    return once;
}

}  // namespace

std::expected<Faults, std::string> Faults::parse(std::string_view text) {
    Faults faults;
    bool has_seed = false;
    for (bool more = true; more;) {
        const std::size_t comma = text.find(',');
        const std::string_view item = text.substr(0, comma);
        more = comma != std::string_view::npos;
        text.remove_prefix(more ? comma + 1 : text.size());
        const std::size_t equals = std::min(item.find('='), item.size());
        const std::string_view name = item.substr(0, equals);
        const std::string_view value = item.substr(std::min(equals + 1, item.size()));
        if (name == "seed") {
            if (has_seed || !base::read_number(value, faults.seed_)) {
                return bad_item(item, "seed=NUMBER once, NUMBER up to 18446744073709551615");
            }
            has_seed = true;
            continue;
        }
        const auto *const known = std::ranges::find(items, name, &Item::name);
        if (known == items.end()) {
            return bad_item(item, "one of seed=, drop=, delay_us=, tear=, register=, fill=");
        }
        Wish &wish = faults.wishes_[static_cast<std::size_t>(known - items.begin())];
        const std::size_t colon = value.find(':');
        if (wish.given) {
            return bad_item(item, "each kind of fault once");
        }
        if (!base::read_number(value.substr(0, colon), wish.number) || wish.number > known->most) {
            return bad_item(item, known->expected);
        }
        if (colon != std::string_view::npos && !read_chance(value.substr(colon + 1), wish.chance)) {
            return bad_item(item, "a CHANCE from 0 to 1 behind the colon, such as 0.01");
        }
        wish.given = true;
    }
    return faults;
}

const Faults *Faults::active() {
    return environment().faults ? &*environment().faults : nullptr;
}

bool Faults::understood() {
    return environment().understood;
}

std::uint64_t Faults::at(Kind kind, std::uint32_t object, std::uint64_t occasion) const {
    const Wish &wish = wishes_[static_cast<std::size_t>(kind)];
    if (!wish.given || (!is_amount(kind) && occasion < wish.number)) {
        return none;
    }
    std::uint64_t draw = mixed(seed_);
    for (const std::uint64_t word :
         {std::uint64_t{static_cast<std::uint8_t>(kind)}, std::uint64_t{object}, occasion}) {
        draw = mixed(draw ^ word);
    }
    // A double holds 53 bits exactly.
    return static_cast<double>(draw >> 11) * 0x1p-53 < wish.chance ? wish.number : none;
}

bool Faults::fails_registration() const {
    static std::atomic<std::uint64_t> registrations{0};
    const std::uint64_t number = registrations.fetch_add(1, std::memory_order_relaxed);
    if (at(Kind::Register, 0, number) == none) {
        return false;
    }
    BASE_LOG(Warning, "SOFTRDMA_FAULTS: registration %" PRIu64 " fails", number + 1);
    return true;
}

bool Faults::fills(std::uint32_t completion_queue, std::uint64_t completion) const {
    if (at(Kind::Fill, completion_queue, completion) == none) {
        return false;
    }
    BASE_LOG(Warning, "SOFTRDMA_FAULTS: completion queue %u is full at completion %" PRIu64, completion_queue,
             completion + 1);
    return true;
}

RequestFaults::RequestFaults(const Faults &faults, std::uint32_t queue_pair)
    : faults_{faults},
      queue_pair_{queue_pair},
      timer_{timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)} {}

// Sets the timer; with 0 it never fires.
void RequestFaults::set_timer(std::uint64_t us) {
    constexpr std::uint64_t us_in_a_second = 1'000'000;
    itimerspec time{};
    time.it_value.tv_sec = static_cast<time_t>(us / us_in_a_second);
    time.it_value.tv_nsec = static_cast<long>(us % us_in_a_second) * 1000;
    waiting_ = timerfd_settime(timer_.get(), 0, &time, nullptr) == 0 && us != 0;
}

bool RequestFaults::delay_is_over() {
    std::uint64_t times = 0;
    if (!waiting_ || ::read(timer_.get(), &times, sizeof(times)) != sizeof(times)) {
        return false;
    }
    waiting_ = false;
    return true;
}

void RequestFaults::stop() {
    set_timer(0);
}

void RequestFaults::draw(std::size_t write_bytes) {
    drawn_ = true;
    if (const auto delay_us = faults_.at(Faults::Kind::Delay, queue_pair_, request_);
        delay_us != Faults::none) {
        set_timer(delay_us);
    }
    const auto bytes = faults_.at(Faults::Kind::Tear, queue_pair_, request_);
    if (faults_.at(Faults::Kind::Drop, queue_pair_, request_) != Faults::none) {
        torn_at_ = 0;
    } else if (bytes < write_bytes) {
        torn_at_ = bytes;
    }
    if (torn_at_ != SIZE_MAX) {
        BASE_LOG(Warning,
                 "SOFTRDMA_FAULTS: queue pair %u loses its connection at request %" PRIu64
                 ", of which %zu bytes are sent",
                 queue_pair_, request_ + 1, torn_at_);
    }
}

RequestFaults::Verdict RequestFaults::verdict(std::size_t offset, std::size_t write_bytes) {
    if (!drawn_) {
        draw(write_bytes);
    }
    if (waiting_) {
        return Verdict::Wait;
    }
    return offset >= torn_at_ ? Verdict::Die : Verdict::Go;
}

void RequestFaults::next() {
    ++request_;
    drawn_ = false;
}

}  // namespace soft
