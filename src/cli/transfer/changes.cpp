// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/changes: compares in several threads, a segment at a time. The server copies what did not
// change in one segment of a push while the next is compared.
#include "cli/transfer/changes.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/mutex.hpp"
#include "cli/report.hpp"
#include "cli/thread.hpp"

namespace cli {

namespace {

constexpr std::uint64_t segment_size = std::uint64_t{64} << 20;  // a multiple of each size of blocks
constexpr unsigned most_threads = 4;

// Takes a block that was read, and its sum. Several threads call it.
using TakeBlock =
    std::function<Outcome<>(std::size_t block, std::span<const std::byte> bytes, const BlockSum &sum)>;

// Computes the sums of the blocks of a part of the source.
class Comparison {
public:
    Comparison(const Source &source, const Blocks &content, TakeBlock take)
        : source_{source}, content_{content}, take_{std::move(take)} {}

    // Returns the sums of the blocks from one to another. Blocks until all threads have ended.
    [[nodiscard]] Outcome<std::vector<BlockSum>> sums(std::size_t begin, std::size_t end) {
        next_ = begin;
        end_ = end;
        found_.assign(end - begin, {});
        std::vector<std::thread> threads;
        const unsigned count = std::min(std::thread::hardware_concurrency(), most_threads);
        while (threads.size() + 1 < count) {
            auto thread = start_thread([this, begin] { run(begin); });
            if (!thread) {
                break;  // this one does all
            }
            threads.push_back(*std::move(thread));
        }
        run(begin);
        for (std::thread &thread : threads) {
            thread.join();
        }
        const base::Lock lock{mutex_};
        return outcome_ ? Outcome<std::vector<BlockSum>>{std::move(found_)}
                        : std::unexpected{outcome_.error()};
    }

private:
    void run(std::size_t begin) {
        std::vector<std::byte> memory(content_.block_size);
        for (std::size_t block = next_++; block < end_; block = next_++) {
            const auto bytes = std::span{memory}.first(content_.size_of(block));
            BlockSum &sum = found_[block - begin];
            auto done = source_.read_at(bytes, block * content_.block_size);
            if (done) {
                sum = sum_of(bytes);
                done = take_(block, bytes, sum);
            }
            if (!done) {
                const base::Lock lock{mutex_};
                outcome_ = std::move(done);
                return;
            }
        }
    }

    const Source &source_;
    const Blocks &content_;
    TakeBlock take_;
    std::atomic<std::size_t> next_{0};
    std::size_t end_ = 0;
    std::vector<BlockSum> found_;  // each thread sets those of its blocks
    base::Mutex mutex_;
    Outcome<> outcome_ GUARDED_BY(mutex_);
};

// Computes the sums of all blocks of a source, of which `blocks` has the size and the length, and calls
// `segment_done` with the first block of each segment and the one behind it.
Outcome<> compare(Session &session, const Source &source, Blocks &blocks, TakeBlock take, bool show_progress,
                  const std::function<Outcome<>(std::size_t, std::size_t)> &segment_done) {
    const std::size_t count = blocks_in(blocks.length, blocks.block_size);
    const std::size_t in_segment = segment_size / blocks.block_size;
    blocks.sums.reserve(count);
    Progress progress{blocks.length, show_progress};
    Comparison comparison{source, blocks, std::move(take)};
    while (blocks.sums.size() < count) {
        const std::size_t begin = blocks.sums.size();
        const std::size_t end = std::min(count, begin + in_segment);
        const auto sums = TRY(comparison.sums(begin, end));
        blocks.sums.insert(blocks.sums.end(), sums.begin(), sums.end());
        TRY(segment_done(begin, end));
        TRY(session.keep_alive());
        if (interrupted()) {
            return failed("interrupted");
        }
        progress.update(std::min<std::uint64_t>(blocks.length, end * blocks.block_size));
    }
    return {};
}

}  // namespace

Outcome<std::uint64_t> send_changes(Session &session, const Source &source, const Blocks &newest,
                                    Content &content, const Sent &wait, bool show_progress) {
    Blocks blocks{newest.block_size, *source.size(), {}};
    std::uint64_t sent = 0;
    const auto segment_done = [&](std::size_t begin, std::size_t end) -> Outcome<> {
        for (std::size_t block = begin; block < end; ++block) {
            if (blocks.has_same(block, newest)) {
                continue;
            }
            const auto bytes = TRY(session.next_chunk()).first(blocks.size_of(block));
            TRY(source.read_at(bytes, block * blocks.block_size));
            TRY(session.store(block * blocks.block_size, bytes));
            sent += bytes.size();
            TRY(wait(bytes.size()));
        }
        // The server verifies, and copies, what it has not got while the next segment is compared.
        return blocks.has_same(end - 1, newest)
                   ? session.store(std::min<std::uint64_t>(blocks.length, end * blocks.block_size), {})
                   : Outcome<>{};
    };
    const auto take = [](std::size_t, std::span<const std::byte>, const BlockSum &) { return Outcome<>{}; };
    TRY(compare(session, source, blocks, take, show_progress, segment_done));
    content.length = blocks.length;
    content.checksum = blocks.checksum();
    TRY(session.wait_for_all());
    return sent;
}

std::vector<Session::Range> differing(const Blocks &content, const Blocks &other) {
    std::vector<Session::Range> ranges;
    for (std::size_t block = 0; block < content.sums.size(); ++block) {
        const std::uint64_t offset = block * content.block_size;
        if (content.has_same(block, other)) {
            continue;
        }
        if (!ranges.empty() && ranges.back().offset + ranges.back().length == offset) {
            ranges.back().length += content.size_of(block);
        } else {
            ranges.push_back({offset, content.size_of(block)});
        }
    }
    return ranges;
}

Outcome<std::optional<Blocks>> blocks_of(Session &session, std::uint64_t length, std::uint32_t checksum) {
    auto blocks = decode_blocks(TRY(session.look(longest_blocks)));
    if (!blocks || blocks->length != length || blocks->checksum() != checksum) {
        return std::nullopt;
    }
    return *std::move(blocks);
}

// Bytes that were read are written, and no others: another program may write the old file meanwhile.
Outcome<std::vector<Session::Range>> take_same(Session &session, Destination &destination, const Source &old,
                                               const Blocks &content, bool show_progress) {
    Blocks blocks{content.block_size, std::min(*old.size(), content.length), {}};
    const auto take = [&](std::size_t block, std::span<const std::byte> bytes, const BlockSum &sum) {
        const bool is_same = bytes.size() == content.size_of(block) && sum == content.sums[block];
        return is_same ? destination.keep(bytes, block * content.block_size) : Outcome<>{};
    };
    const auto segment_done = [](std::size_t, std::size_t) { return Outcome<>{}; };
    TRY(compare(session, old, blocks, take, show_progress, segment_done));
    return differing(content, blocks);
}

}  // namespace cli
