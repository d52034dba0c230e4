// SPDX-License-Identifier: BSD-3-Clause
// model ADDRESS [faults] [numbers]: random operations on the soft device against an oracle in memory, with
// injected faults from the same seed if asked for, and between queue pairs that are connected by number.
// RPMA_MODEL_STEPS steps (as many as take seconds), from RPMA_MODEL_SEED (a random one); both are printed,
// and repeat a run as far as threads allow.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "stream.hpp"

namespace {

constexpr std::uint64_t default_steps = 20'000;
constexpr std::size_t torn_bytes = 1000;

std::uint64_t from_environment(const char *name, std::uint64_t otherwise) {
    const char *const value = std::getenv(name);
    return value != nullptr ? std::strtoull(value, nullptr, 0) : otherwise;
}

// Many connections break on purpose, and each end is logged, so this drops the lines.
void no_log(int, const char *, int, const char *, const char *, ...) {}

}  // namespace

int main(int argc, char **argv) {
    int words = 2;
    const auto next_is = [&](const char *word) {
        return words < argc && std::strcmp(argv[words], word) == 0 && ++words != 0;
    };
    const bool with_faults = next_is("faults");
    conformance::subject.by_number = next_is("numbers");
    if (argc < 2 || words != argc) {
        std::fprintf(stderr, "usage: %s ADDRESS [faults] [numbers]\n", argv[0]);
        return 2;
    }
    conformance::subject.provider = &verbs::soft;
    conformance::subject.provider_name = "soft";
    conformance::subject.address = argv[1];
    conformance::subject.is_soft = true;
    verbs::set_soft_log(no_log, static_cast<int>(base::LogLevel::Disabled));
    const std::uint64_t steps = from_environment("RPMA_MODEL_STEPS", default_steps);
    const std::uint64_t seed = from_environment("RPMA_MODEL_SEED", std::random_device{}());
    std::printf("RPMA_MODEL_SEED=%llu RPMA_MODEL_STEPS=%llu\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(steps));
    std::fflush(stdout);
    std::optional<model::Faults> faults;
    if (with_faults) {
        const std::string text = "seed=" + std::to_string(seed) +
                                 ",drop=0:0.002,delay_us=50:0.01,tear=" + std::to_string(torn_bytes) +
                                 ":0.01";
        setenv("SOFTRDMA_FAULTS", text.c_str(), 1);
        faults = model::Faults{.torn_bytes = torn_bytes};
    }
    model::Stream stream{seed, faults};
    for (std::uint64_t step = 0; step < steps; ++step) {
        std::string wrong = stream.step();
        if (wrong.empty() && step + 1 == steps) {
            wrong = stream.settle();
        }
        if (!wrong.empty()) {
            std::fprintf(stderr, "step %llu: %s\n", static_cast<unsigned long long>(step), wrong.c_str());
            return 1;
        }
    }
    return 0;
}
