// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/faults: injected faults (SOFTRDMA_FAULTS, softrdma(7)), for programs that want to see how they
// fail. Whether a fault happens is computed from the seed, its kind, the number of the object, and the number
// of occasions that this object had before. So the result does not depend on the order of threads, as it
// would with one stream of random numbers.
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

    // Returns the faults that a text asks for, or an error text: the wrong item, and the expected form.
    [[nodiscard]] static std::expected<Faults, std::string> parse(std::string_view text);
    // Returns the faults that SOFTRDMA_FAULTS asks for; nullptr when there are none.
    [[nodiscard]] static const Faults *active();
    // Returns false when the variable's value is not valid, which is logged once; then no device opens.
    [[nodiscard]] static bool understood();

    // Returns the amount when a fault of that kind happens to the object at this occasion, otherwise `none`.
    static constexpr std::uint64_t none = UINT64_MAX;
    [[nodiscard]] std::uint64_t at(Kind kind, std::uint32_t object, std::uint64_t occasion) const;

    // Returns whether the process's next registration fails.
    [[nodiscard]] bool fails_registration() const;
    // Returns whether the completion queue takes no entry, as if it were full.
    [[nodiscard]] bool fills(std::uint32_t completion_queue, std::uint64_t completion) const;

private:
    struct Wish {
        bool given = false;
        std::uint64_t number = 0;  // an amount, or how many occasions have no fault
        double chance = 1;
    };

    std::uint64_t seed_ = 0;
    std::array<Wish, kinds> wishes_;
};

// The faults of one queue pair's requests. The queue pair's lock for sending guards it.
class RequestFaults {
public:
    RequestFaults(const Faults &faults, std::uint32_t queue_pair);

    // Says what to do with the current request when `offset` of its bytes are built; `write_bytes` is the
    // length of a write.
    enum class Verdict { Go, Wait, Die };
    [[nodiscard]] Verdict verdict(std::size_t offset, std::size_t write_bytes);
    // Returns how many bytes of the current request may be built.
    [[nodiscard]] std::size_t most(std::size_t length) const { return length < torn_at_ ? length : torn_at_; }
    // Returns a descriptor that is readable when the current request has waited long enough; -1 when the
    // process had no more file descriptors.
    [[nodiscard]] int timer() const { return timer_.get(); }
    // Returns whether the delay has ended since the last call. The timer is then not readable any more.
    [[nodiscard]] bool delay_is_over();
    // Stops the timer, because no request is sent any more.
    void stop();
    // Goes on to the next request; the current one is built.
    void next();

private:
    void draw(std::size_t write_bytes);
    void set_timer(std::uint64_t us);

    const Faults &faults_;
    const std::uint32_t queue_pair_;
    const base::Fd timer_;
    std::uint64_t request_ = 0;  // the number of the current one
    bool drawn_ = false;
    bool waiting_ = false;
    std::size_t torn_at_ = SIZE_MAX;
};

}  // namespace soft
