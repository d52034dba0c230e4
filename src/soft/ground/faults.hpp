// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/faults: faults on purpose (SOFTRDMA_FAULTS, softrdma(7)), for programs that want to see how
// they fail. Whether one happens is computed from the seed, its kind, the number of the object it happens to,
// and the number of occasions that object had before. There is no stream of random numbers: threads cannot
// take each other's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "base/fd.hpp"

namespace soft {

class Faults {
public:
    enum class Kind : std::uint8_t { Drop, Delay, Tear, Register, Fill };
    static constexpr std::size_t kinds = 5;

    // Returns what a text asks for; else what is wrong with it: the item, and what was expected.
    [[nodiscard]] static std::expected<Faults, std::string> parse(std::string_view text);
    // Returns what SOFTRDMA_FAULTS asks for; nullptr when that is nothing.
    [[nodiscard]] static const Faults *active();
    // Returns false when the variable has no meaning, which is logged once: then no device opens.
    [[nodiscard]] static bool understood();

    // The amount when a fault of that kind happens to the object at this occasion, else `none`.
    static constexpr std::uint64_t none = UINT64_MAX;
    [[nodiscard]] std::uint64_t at(Kind kind, std::uint32_t object, std::uint64_t occasion) const;

    // The process's next registration fails.
    [[nodiscard]] bool fails_registration() const;
    // The completion queue takes no entry, as if it were full.
    [[nodiscard]] bool fills(std::uint32_t completion_queue, std::uint64_t completion) const;

private:
    struct Wish {
        bool given = false;
        std::uint64_t number = 0;  // an amount, or how many occasions are spared
        double chance = 1;
    };

    std::uint64_t seed_ = 0;
    std::array<Wish, kinds> wishes_;
};

// The faults of one queue pair's requests. Guarded by its lock for sending.
class RequestFaults {
public:
    RequestFaults(const Faults &faults, std::uint32_t queue_pair);

    // Says what becomes of the request in hand when `offset` of its bytes are built; `write_bytes`: those of
    // a write.
    enum class Verdict { Go, Wait, Die };
    [[nodiscard]] Verdict verdict(std::size_t offset, std::size_t write_bytes);
    // So much of the request in hand may be built.
    [[nodiscard]] std::size_t most(std::size_t length) const { return length < torn_at_ ? length : torn_at_; }
    // Readable when the request in hand has waited; -1 when the process had no more file descriptors.
    [[nodiscard]] int timer() const { return timer_.get(); }
    // It has, since the last time this was asked; the timer is not readable any more.
    [[nodiscard]] bool delay_is_over();
    // The timer stays silent: nothing is sent any more.
    void stop();
    // The request in hand is built: the next one's turn.
    void next();

private:
    void draw(std::size_t write_bytes);
    void set_timer(std::uint64_t us);

    const Faults &faults_;
    const std::uint32_t queue_pair_;
    const base::Fd timer_;
    std::uint64_t request_ = 0;  // the number of the one in hand
    bool drawn_ = false;
    bool waiting_ = false;
    std::size_t torn_at_ = SIZE_MAX;
};

}  // namespace soft
