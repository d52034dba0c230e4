// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/changes: compares in several threads, a segment at a time, so that the server copies what did
// not change in one segment while the next is compared.
#include "cli/transfer/changes.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "cli/perf/tcp_answers.hpp"
#include "cli/report.hpp"

namespace cli {

namespace {

constexpr std::uint64_t segment_size = std::uint64_t{64} << 20;  // a multiple of each size of blocks
constexpr unsigned most_threads = 4;

// Computes the sums of the blocks of a part of the source.
class Comparison {
public:
    Comparison(const Source &source, const Blocks &content) : source_{source}, content_{content} {}

    // Sets the sums of the blocks from one to another. Blocks until all threads have ended.
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
            if (const auto read = source_.read_at(bytes, block * content_.block_size); !read) {
                const base::Lock lock{mutex_};
                outcome_ = read;
                return;
            }
            found_[block - begin] = sum_of(bytes);
        }
    }

    const Source &source_;
    const Blocks &content_;
    std::atomic<std::size_t> next_{0};
    std::size_t end_ = 0;
    std::vector<BlockSum> found_;  // each thread sets those of its blocks
    base::Mutex mutex_;
    Outcome<> outcome_ GUARDED_BY(mutex_);
};

}  // namespace

Outcome<std::uint64_t> send_changes(Session &session, const Source &source, const Blocks &newest,
                                    Content &content, const Sent &wait, bool show_progress) {
    Blocks blocks{newest.block_size, *source.size(), {}};
    const std::size_t count = blocks_in(blocks.length, blocks.block_size);
    const std::size_t in_segment = segment_size / blocks.block_size;
    blocks.sums.reserve(count);
    Progress progress{blocks.length, show_progress};
    Comparison comparison{source, blocks};
    std::uint64_t sent = 0;
    while (blocks.sums.size() < count) {
        const std::size_t begin = blocks.sums.size();
        const std::size_t end = std::min(count, begin + in_segment);
        for (const BlockSum &sum : TRY(comparison.sums(begin, end))) {
            blocks.sums.push_back(sum);
        }
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
        if (blocks.has_same(end - 1, newest)) {
            TRY(session.store(std::min<std::uint64_t>(blocks.length, end * blocks.block_size), {}));
        }
        TRY(session.keep_alive());
        if (interrupted()) {
            return failed("interrupted");
        }
        progress.update(std::min(blocks.length, end * blocks.block_size));
    }
    content.length = blocks.length;
    content.checksum = blocks.checksum();
    TRY(session.wait_for_all());
    return sent;
}

}  // namespace cli
