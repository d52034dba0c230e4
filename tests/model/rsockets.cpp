// SPDX-License-Identifier: BSD-3-Clause
// model_rsockets SEED STEPS [WORD]...: random calls on pairs of rsockets of this process, and forks, against
// an oracle of bytes, from a seed. The words:
//   split: TCP takes and gives as little as it likes (short_transfers.cpp)
//   delay: requests are sent late (SOFTRDMA_FAULTS)
//   cut: connections end, and writes are torn (SOFTRDMA_FAULTS)
//   fork_safe: children also have what their parent has accepted (RDMAV_FORK_SAFE)
// Ends with 1 when a byte differs, a call does what it must not, nothing moves for a while, or descriptors
// are lost. STEPS may be 10,000,000; some 100,000 take seconds.
#include <poll.h>
#include <rpma/rsocket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "../forks.h"
#include "rsocket_heirs.hpp"
#include "rsocket_repoll.hpp"
#include "short_transfers.hpp"

namespace {

constexpr std::size_t most_pairs = 12;
constexpr std::size_t repolls = 2;
constexpr std::size_t most_children = 4;
// A queue more or less, as streams share them.
constexpr std::size_t spare_descriptors = 8;
constexpr std::chrono::seconds patience{30};

using model::Dice;
using model::RsocketPair;
using model::RsocketRepoll;
using model::Setting;

class Model {
public:
    Model(std::uint64_t seed, Setting &setting) : dice_{seed} {
        for (std::size_t i = 0; i < most_pairs; ++i) {
            pairs_.push_back(std::make_unique<RsocketPair>(dice_, setting));
        }
        for (std::size_t i = 0; i < repolls; ++i) {
            repolls_.push_back(std::make_unique<RsocketRepoll>(dice_));
        }
    }

    [[nodiscard]] std::string step() {
        RsocketPair &pair = *pairs_[dice_.below(pairs_.size())];
        if (pair.is_broken()) {
            return pair.renew();
        }
        const int end = static_cast<int>(dice_.below(2));
        const std::size_t choice = dice_.below(10'000);
        if (choice < 4'000) {
            return pair.send(end);
        }
        if (choice < 8'500) {
            return pair.receive(end);
        }
        if (choice < 8'900) {
            return dice_.one_in(8) ? pair.map(end) : pair.place(end);
        }
        if (choice < 9'300) {
            return poll();
        }
        if (choice < 9'700) {
            RsocketRepoll &repoll = *repolls_[dice_.below(repolls_.size())];
            return dice_.one_in(2) ? repoll.control(pair, end) : repoll.wait();
        }
        if (choice < (model::may_fork ? 9'900 : 9'910)) {
            return pair.settle();
        }
        if (choice < 9'910) {
            return dice_.one_in(2) ? fork() : pair.hand_over();
        }
        if (choice < 9'930) {
            return pair.talk();
        }
        return choice < 9'950 ? pair.end_writing(end) : last(pair, end);
    }
    [[nodiscard]] std::string wait_for_children(std::size_t left = 0) {
        std::string text;
        while (children_.size() > left) {
            if (!model::ended_well(children_.front())) {
                text = "a forked child ended wrongly";
            }
            children_.erase(children_.begin());
        }
        return text;
    }
    [[nodiscard]] std::string state() const {
        std::string text;
        for (const auto &pair : pairs_) {
            text += pair->state();
        }
        return text;
    }

private:
    // The end of a pair, in one of several ways.
    [[nodiscard]] std::string last(RsocketPair &pair, int end) {
        auto text = dice_.one_in(2) ? pair.settle() : "";
        if (text.empty() && !pair.is_broken() && !dice_.one_in(4)) {
            text = pair.close_one(end, dice_.one_in(3));
        }
        return text.empty() ? pair.renew() : text;
    }

    // A child that has lost the streams, and ends in one of several ways, perhaps while the parent goes on.
    [[nodiscard]] std::string fork() {
        const bool waits = dice_.one_in(2);
        const pid_t child = model::make_child();
        if (child == 0) {
            if (const auto text = check_in_child(); !text.empty()) {
                std::fprintf(stderr, "child: %s\n", text.c_str());
                _exit(1);
            }
            model::leave(dice_);
        }
        children_.push_back(child);
        return wait_for_children(waits ? 0 : most_children);
    }

    [[nodiscard]] std::string check_in_child() {
        std::string text;
        for (const auto &pair : pairs_) {
            text += pair->check_in_child(0) + pair->check_in_child(1);
        }
        for (const auto &repoll : repolls_) {
            text += repoll->check_in_child();
        }
        return text;
    }

    // A few ends at once. What rpoll says holds until something else is done with them.
    [[nodiscard]] std::string poll() {
        std::vector<pollfd> entries;
        std::vector<std::pair<RsocketPair *, int>> ends;
        const std::size_t first = dice_.below(pairs_.size());
        for (std::size_t i = 0; i <= dice_.below(most_pairs); ++i) {
            RsocketPair &pair = *pairs_[(first + i) % pairs_.size()];
            const int end = static_cast<int>(dice_.below(2));
            if (!pair.is_broken()) {
                constexpr std::array<short, 3> events{POLLIN, POLLOUT, POLLIN | POLLOUT};
                ends.emplace_back(&pair, end);
                entries.push_back({.fd = pair.fd(end), .events = events[dice_.below(3)], .revents = 0});
            }
        }
        const int count = rpoll(entries.data(), entries.size(), static_cast<int>(dice_.below(2)));
        if (count < 0 || static_cast<std::size_t>(count) > entries.size()) {
            return "rpoll gives " + std::to_string(count);
        }
        for (std::size_t i = 0; i < ends.size(); ++i) {
            auto text = ends[i].first->check_ready(ends[i].second, entries[i].events, entries[i].revents);
            if (!text.empty()) {
                return text;
            }
        }
        return {};
    }

    Dice dice_;
    std::vector<std::unique_ptr<RsocketPair>> pairs_;
    std::vector<std::unique_ptr<RsocketRepoll>> repolls_;
    std::vector<pid_t> children_;
};

// Ends the program when no step was made, and nothing was received, for a while. On a busy machine a step
// that sends much through small buffers takes longer.
class Watchdog {
public:
    Watchdog(const Model &model, const Setting &setting)
        : setting_{setting}, thread_{[this, &model](const std::stop_token &stop) { watch(stop, model); }} {}
    void stepped() { steps_.fetch_add(1, std::memory_order_relaxed); }

private:
    void watch(const std::stop_token &stop, const Model &model) {
        std::unique_lock lock{mutex_};
        const auto moves = [this] { return steps_ + setting_.receives; };
        for (std::uint64_t before = UINT64_MAX; before != moves();) {
            before = moves();
            (void)changed_.wait_for(lock, stop, patience, [] { return false; });
            if (stop.stop_requested()) {
                return;
            }
        }
        std::fprintf(stderr, "step %llu does not come to an end\n%s", static_cast<unsigned long long>(steps_),
                     model.state().c_str());
        std::abort();
    }

    const Setting &setting_;
    std::atomic<std::uint64_t> steps_{0};
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::jthread thread_;
};

std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all{"/proc/self/fd"};
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::string run(std::uint64_t seed, std::uint64_t steps, Setting &setting) {
    Model model{seed, setting};
    Watchdog watchdog{model, setting};
    for (std::uint64_t step = 0; step < steps; ++step) {
        if (auto wrong = model.step(); !wrong.empty()) {
            return "seed " + std::to_string(seed) + ", step " + std::to_string(step) + ": " + wrong;
        }
        watchdog.stepped();
    }
    return model.wait_for_children();
}

// Sockets whose peers have not everything yet are closed behind the program's back.
bool comes_back_to(std::size_t descriptors) {
    for (int i = 0; i < 5000 && open_descriptors() > descriptors; ++i) {
        usleep(1000);
    }
    return open_descriptors() <= descriptors;
}

}  // namespace

SET_TSAN_OPTIONS("die_after_fork=0:atexit_sleep_ms=0")

int main(int argc, char **argv) {
    if (argv[0] == std::string_view{"heir"}) {
        return 0;
    }
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s SEED STEPS [split] [delay] [cut] [fork_safe]\n", argv[0]);
        return 2;
    }
    const std::uint64_t seed = std::strtoull(argv[1], nullptr, 10);
    const std::uint64_t steps = std::strtoull(argv[2], nullptr, 10);
    std::string faults = "seed=" + std::to_string(seed);
    Setting setting;
    for (int i = 3; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "split") {
            test::split_transfers(seed);
        } else if (word == "delay") {
            faults += ",delay_us=100:0.005";
        } else if (word == "cut") {
            faults += ",drop=0:0.0005,tear=1000:0.001";
            setting.may_break = true;
        } else if (word == "fork_safe") {
            setenv("RDMAV_FORK_SAFE", "1", 1);
            setting.fork_safe = true;
        } else {
            std::fprintf(stderr, "no word %s\n", argv[i]);
            return 2;
        }
    }
    setenv("SOFTRDMA_FAULTS", faults.c_str(), 1);
    std::printf("seed %s, %s steps, %s\n", argv[1], argv[2], faults.c_str());
    std::fflush(stdout);
    // After the first part the library has allocated all the memory that it keeps for itself.
    std::string wrong = run(seed, steps / 4, setting);
    const std::size_t before = open_descriptors();
    if (wrong.empty()) {
        wrong = run(seed + 1, steps - steps / 4, setting);
    }
    if (wrong.empty() && !comes_back_to(before + spare_descriptors)) {
        wrong = "descriptors are lost: " + std::to_string(open_descriptors()) + " are open, before it were " +
                std::to_string(before);
    }
    if (!wrong.empty()) {
        std::fprintf(stderr, "%s\n", wrong.c_str());
        return 1;
    }
    return 0;
}
