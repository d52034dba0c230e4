// SPDX-License-Identifier: BSD-3-Clause
// Feeds a fuzz target its corpus, for compilers without libFuzzer: `fuzz_NAME FOLDER-OR-FILE...`. The target
// gets every input unchanged, then each of its prefixes, then seeded mutations, so that an ordinary build
// explores a little too. RPMA_SEED (decimal) repeats a run, and RPMA_MUTATIONS is the number of mutations of
// each input, for targets that take their time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t max_prefixes = 1024;
constexpr std::uint32_t default_mutations = 500;
constexpr std::uint32_t default_seed = 7204;

void run(std::span<const std::uint8_t> input) {
    // The block has exactly this size, so that the sanitizer sees an access one byte too far.
    const auto block = std::make_unique_for_overwrite<std::uint8_t[]>(input.size());
    std::copy(input.begin(), input.end(), block.get());
    LLVMFuzzerTestOneInput(block.get(), input.size());
}

Bytes mutated(const Bytes &input, std::mt19937 &random) {
    Bytes bytes = input;
    const auto edits = 1 + random() % 4;
    for (std::uint_fast32_t edit = 0; edit < edits && !bytes.empty(); ++edit) {
        const auto place = random() % bytes.size();
        switch (random() % 4) {
            case 0:
                bytes[place] = static_cast<std::uint8_t>(random());
                break;
            case 1:
                bytes[place] ^= static_cast<std::uint8_t>(1U << (random() % 8));
                break;
            case 2:
                bytes.resize(place);
                break;
            default:
                bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(place),
                             static_cast<std::uint8_t>(random()));
                break;
        }
    }
    return bytes;
}

// Returns the variable's decimal number, or `otherwise` when the variable is not set.
std::uint32_t environment(const char *name, std::uint32_t otherwise) {
    const char *const given = std::getenv(name);
    return given == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10));
}

void run_around(const Bytes &input, std::mt19937 &random, std::uint32_t mutations) {
    run(input);
    for (std::size_t size = 0; size < input.size() && size < max_prefixes; ++size) {
        run(std::span(input).first(size));
    }
    for (std::uint32_t mutation = 0; mutation < mutations; ++mutation) {
        run(mutated(input, random));
    }
}

std::vector<std::filesystem::path> files_of(std::span<char *const> names) {
    std::vector<std::filesystem::path> files;
    for (const char *name : names) {
        if (!std::filesystem::is_directory(name)) {
            files.emplace_back(name);
            continue;
        }
        for (const auto &entry : std::filesystem::directory_iterator(name)) {
            files.push_back(entry.path());
        }
    }
    // The order decides which mutation an input gets, so it is the same on every machine.
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace

int main(int count, char **arguments) {
    const auto seed = environment("RPMA_SEED", default_seed);
    const auto mutations = environment("RPMA_MUTATIONS", default_mutations);
    std::mt19937 random(seed);

    const auto files = files_of(std::span(arguments, static_cast<std::size_t>(count)).subspan(1));
    for (const auto &file : files) {
        std::ifstream stream(file, std::ios::binary);
        const Bytes input{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
        if (!stream.is_open()) {
            std::fprintf(stderr, "%s: cannot be read\n", file.c_str());
            return EXIT_FAILURE;
        }
        run_around(input, random, mutations);
    }
    std::printf("%zu inputs replayed, %u mutations of each, RPMA_SEED=%u\n", files.size(), mutations, seed);
    return files.empty() ? EXIT_FAILURE : EXIT_SUCCESS;
}
