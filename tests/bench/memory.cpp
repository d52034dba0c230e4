// SPDX-License-Identifier: BSD-3-Clause
// bench_memory copy BLOCK BYTES FOLDER | writev BLOCK BYTES | round-trip ROUNDS BYTES | msync BLOCK BYTES
// FOLDER: prints for scripts what two bare processes of one host reach through memory, in bytes a second, and
// in seconds. `copy` is memcpy() between shared mappings of two files in FOLDER, `writev` is
// process_vm_writev() into the other's private memory. In a round trip each process copies the bytes into
// shared memory, and spins until the other has answered. `msync` is one process's memcpy() into a file of
// FOLDER, and msync(2) after each block, in seconds for a block.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

#include "bench.hpp"

namespace {

// Returns zeroed memory whose pages are there. It ends with the process.
std::byte *memory(std::size_t bytes, int sharing) {
    void *const made =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (made == MAP_FAILED) {
        bench::die("mmap");
    }
    return static_cast<std::byte *>(made);
}

// Returns the bytes a second of `move`, which moves one block to the same place each time, as perftest does.
template <class Move>
double bandwidth(std::size_t block, std::size_t total, const Move &move) {
    move();
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t moved = 0; moved < total; moved += block) {
        move();
    }
    return static_cast<double>(total) / bench::seconds_since(start);
}

// Returns a shared mapping of a new file without a name, whose pages are there. It ends with the process.
std::byte *file_memory(std::size_t bytes, const char *folder) {
    const int file = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
        bench::die(folder);
    }
    void *const made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (made == MAP_FAILED) {
        bench::die("mmap");
    }
    std::memset(made, 1, bytes);
    return static_cast<std::byte *>(made);
}

double copy_bandwidth(std::size_t block, std::size_t total, const char *folder) {
    std::byte *const to = file_memory(block, folder);
    std::byte *const from = file_memory(block, folder);
    return bandwidth(block, total, [&] {
        std::memcpy(to, from, block);
        std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler drops no copy
    });
}

// One block is written again and again, as `rpma perf` does.
double msync_seconds(std::size_t block, std::size_t total, const char *folder) {
    std::byte *const to = file_memory(block, folder);
    std::byte *const from = memory(block, MAP_PRIVATE);
    const double rate = bandwidth(block, total, [&] {
        std::memcpy(to, from, block);
        if (msync(to, block, MS_SYNC) != 0) {
            bench::die("msync");
        }
    });
    return static_cast<double>(block) / rate;
}

double writev_bandwidth(std::size_t block, std::size_t total) {
    std::byte *const from = memory(block, MAP_PRIVATE);
    int end[2];
    if (pipe(end) != 0) {
        bench::die("pipe");
    }
    const pid_t other = fork();  // it has the same addresses, and pages of its own once it has written them
    if (other < 0) {
        bench::die("fork");
    }
    if (other == 0) {
        close(end[1]);
        std::memset(from, 1, block);
        char byte = 0;
        _exit(read(end[0], &byte, 1) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    close(end[0]);
    const double rate = bandwidth(block, total, [&] {
        const iovec piece{.iov_base = from, .iov_len = block};
        if (process_vm_writev(other, &piece, 1, &piece, 1, 0) != static_cast<ssize_t>(block)) {
            bench::die("process_vm_writev");
        }
    });
    close(end[1]);
    (void)waitpid(other, nullptr, 0);
    return rate;
}

// One process's way to the other.
struct Way {
    alignas(64) std::atomic<std::size_t> turn{0};
    alignas(64) std::byte bytes[1];  // as many as a round trip has
};

void send(Way &way, const std::byte *from, std::size_t bytes, std::size_t turn) {
    std::memcpy(way.bytes, from, bytes);
    way.turn.store(turn, std::memory_order_release);
}

void receive(Way &way, std::byte *to, std::size_t bytes, std::size_t turn) {
    while (way.turn.load(std::memory_order_acquire) != turn) {
    }
    std::memcpy(to, way.bytes, bytes);
}

double round_trip(std::size_t rounds, std::size_t bytes) {
    const std::size_t distance = (sizeof(Way) + bytes + 4095) / 4096 * 4096;
    std::byte *const shared = memory(2 * distance, MAP_SHARED);
    Way &there = *new (shared) Way;
    Way &back = *new (shared + distance) Way;
    std::byte *const own = memory(bytes, MAP_PRIVATE);
    const std::size_t warm = rounds / 10;
    const pid_t other = fork();
    if (other < 0) {
        bench::die("fork");
    }
    if (other == 0) {
        for (std::size_t turn = 1; turn <= warm + rounds; ++turn) {
            receive(there, own, bytes, turn);
            send(back, own, bytes, turn);
        }
        _exit(EXIT_SUCCESS);
    }
    std::chrono::steady_clock::time_point start;
    for (std::size_t turn = 1; turn <= warm + rounds; ++turn) {
        if (turn == warm + 1) {
            start = std::chrono::steady_clock::now();
        }
        send(there, own, bytes, turn);
        receive(back, own, bytes, turn);
    }
    const double seconds = bench::seconds_since(start);
    (void)waitpid(other, nullptr, 0);
    return seconds / static_cast<double>(rounds);
}

}  // namespace

int main(int argc, char **argv) {
    const std::span arguments{argv, static_cast<std::size_t>(argc)};
    const std::string_view what = argc == 4 || argc == 5 ? arguments[1] : "";
    if (what == "copy" && argc == 5) {
        fmt::print("{}\n",
                   copy_bandwidth(bench::number(arguments[2]), bench::number(arguments[3]), arguments[4]));
    } else if (what == "writev" && argc == 4) {
        fmt::print("{}\n", writev_bandwidth(bench::number(arguments[2]), bench::number(arguments[3])));
    } else if (what == "round-trip" && argc == 4) {
        fmt::print("{}\n", round_trip(bench::number(arguments[2]), bench::number(arguments[3])));
    } else if (what == "msync" && argc == 5) {
        fmt::print("{}\n",
                   msync_seconds(bench::number(arguments[2]), bench::number(arguments[3]), arguments[4]));
    } else {
        fmt::print(
            stderr,
            "usage: bench_memory copy BLOCK BYTES FOLDER | writev BLOCK BYTES | round-trip ROUNDS BYTES "
            "| msync BLOCK BYTES FOLDER\n");
        return 2;
    }
    return 0;
}
