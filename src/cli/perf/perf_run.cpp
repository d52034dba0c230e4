// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_run: measures with a closed loop: an operation starts when the one before it in its slot is
// done. Operations that would have been requested meanwhile do not count as waiting (coordinated omission),
// so the percentiles are of the operations that were started, and not of time.
#include "cli/perf/perf_run.hpp"

#include <algorithm>

#include "cli/perf/perf_tcp.hpp"

namespace cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned usual_pairs = 9;
// Reading the clock takes as long as looking for completions.
constexpr unsigned looks_between_clocks = 64;
// After a signal the run ends when the operations under way are done, or after this time.
constexpr double drain_seconds = 2;

// The operations of one load on one path.
class Loop {
public:
    Loop(Path &path, const Address &address, const Load &load, const PerfLimits &limits)
        : path_{path}, address_{address}, load_{load}, limits_{limits}, started_(load.slots()) {}

    // Adds its results to `measured`.
    Outcome<> run(double seconds, std::uint64_t operations, Measured &measured) {
        const auto begin = Clock::now();
        const auto end =
            begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>{seconds});
        left_ = operations;
        under_way_ = 0;
        for (std::uint32_t slot = 0; slot < load_.slots() && left_ > 0; ++slot) {
            TRY(start(slot));
        }
        while (under_way_ > 0) {
            const std::size_t count = TRY(collect());
            const auto now = Clock::now();
            for (const std::uint32_t slot : std::span{done_}.first(count)) {
                measured.latencies.record(now - started_[slot]);
                --under_way_;
                if (left_ > 0 && now < end && !interrupted()) {
                    TRY(start(slot));
                }
            }
        }
        if (load_.is_one_way()) {
            TRY(settle());
        }
        measured.seconds += std::chrono::duration<double>{Clock::now() - begin}.count();
        return {};
    }

private:
    Outcome<> start(std::uint32_t slot) {
        --left_;
        ++under_way_;
        started_[slot] = Clock::now();
        return path_.post(slot);
    }

    Outcome<> settle() {
        for (std::uint32_t connection = 0; connection < load_.connections; ++connection) {
            TRY(path_.post_barrier(connection * load_.depth));
        }
        for (std::size_t settled = 0; settled < load_.connections;) {
            settled += TRY(collect());
        }
        return {};
    }

    // Waits for at least one completed slot.
    Outcome<std::size_t> collect() {
        auto since = Clock::time_point::max();
        for (unsigned looks = 0;; ++looks) {
            if (const std::size_t count = TRY(path_.collect(done_)); count > 0) {
                return count;
            }
            if (!limits_.polled && !interrupted()) {
                TRY(path_.wait());
            } else if (looks % looks_between_clocks == 0) {
                const auto now = Clock::now();
                since = std::min(since, now);
                const double patience = interrupted() ? drain_seconds : limits_.timeout_seconds;
                if (std::chrono::duration<double>{now - since}.count() > patience) {
                    return failed("{}: no answer for {} seconds", address_.text(), patience);
                }
            }
        }
    }

    Path &path_;
    const Address &address_;
    const Load &load_;
    const PerfLimits &limits_;
    std::vector<Clock::time_point> started_;  // of each slot's operation
    std::array<std::uint32_t, 64> done_{};
    std::uint64_t left_ = 0;  // operations that are still to be started
    std::uint64_t under_way_ = 0;
};

}  // namespace

Outcome<> measure(const DevicePeer &device, const Address &address, const PerfLimits &limits,
                  const std::function<void(unsigned pair, unsigned pairs)> &progress, PerfRow &row) {
    const auto rdma_path =
        TRY(RdmaPath::open(device, address, row.load, limits.polled, limits.timeout_seconds));
    const auto tcp_path = TRY(TcpPath::open(rdma_path->baselines(), row.load, limits.timeout_seconds));
    row.durability = rdma_path->durability();
    Loop rdma{*rdma_path, address, row.load, limits};
    Loop tcp{*tcp_path, address, row.load, limits};
    constexpr std::uint64_t endless = std::numeric_limits<std::uint64_t>::max();
    if (limits.warmup_seconds > 0) {
        const auto ignored = std::make_unique<Measured>();
        TRY(rdma.run(limits.warmup_seconds, endless, *ignored));
        TRY(tcp.run(limits.warmup_seconds, endless, *ignored));
    }
    const bool counted = limits.operations > 0;
    // A pair takes a second at most, so that a signal loses no more than that.
    const auto pairs = static_cast<unsigned>(
        counted ? std::min<std::uint64_t>(limits.operations, usual_pairs)
                : std::max<std::uint64_t>(static_cast<std::uint64_t>(limits.seconds), usual_pairs));
    const double seconds = counted ? std::numeric_limits<std::int32_t>::max() : limits.seconds / pairs;
    row.ratios.reserve(pairs);
    for (unsigned pair = 0; pair < pairs && !interrupted(); ++pair) {
        progress(pair, pairs);
        const std::uint64_t operations =
            counted ? limits.operations / pairs + (pair < limits.operations % pairs ? 1 : 0) : endless;
        const auto rate = [&](Loop &loop, Measured &all) -> Outcome<double> {
            const double begin = all.seconds;
            const std::uint64_t had = all.latencies.count();
            TRY(loop.run(seconds, operations, all));
            return static_cast<double>(all.latencies.count() - had) / (all.seconds - begin);
        };
        const bool tcp_first = pair % 2 == 1;
        const double first = TRY(tcp_first ? rate(tcp, row.tcp) : rate(rdma, row.rdma));
        if (!interrupted()) {
            const double second = TRY(tcp_first ? rate(rdma, row.rdma) : rate(tcp, row.tcp));
            row.ratios.push_back(tcp_first ? second / first : first / second);
        }
    }
    std::ranges::sort(row.ratios);
    return {};
}

}  // namespace cli
