// SPDX-License-Identifier: BSD-3-Clause
#include "soft/link/shared_rings.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/file_limit.hpp"

namespace soft {

namespace {

// A peer that truncated the memory would end this process (SIGBUS). These seals prevent that.
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

base::Result<void *> mapped(int file, std::size_t bytes) {
    void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? base::Result<void *>{base::last_failure()} : memory;
}

}  // namespace

std::atomic<int> SharedRings::mapped_memories{0};

SharedRings::SharedRings(base::Fd file, void *memory, std::size_t ring_bytes, Side side)
    : file_{std::move(file)}, memory_{static_cast<Layout *>(memory)}, ring_bytes_{ring_bytes}, side_{side} {
    mapped_memories.fetch_add(1, std::memory_order_relaxed);
}

SharedRings::~SharedRings() {
    if (memory_ != nullptr) {
        munmap(memory_, memory_bytes(ring_bytes_));
        mapped_memories.fetch_sub(1, std::memory_order_relaxed);
    }
}

base::Result<SharedRings> SharedRings::make() {
    const std::size_t ring =
        mapped_memories.load(std::memory_order_relaxed) < most_large ? large_ring : small_ring;
    const auto size = static_cast<off_t>(memory_bytes(ring));
    base::Fd file{memfd_create("softrdma", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (!file || !base::may_make_file(memory_bytes(ring)) || ftruncate(file.get(), size) != 0 ||
        fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
        return base::last_failure();
    }
    const auto memory = mapped(file.get(), memory_bytes(ring));
    if (!memory) {
        return std::unexpected{memory.error()};
    }
    // The initial state is all zero.
    return SharedRings{std::move(file), *memory, ring, Side::Maker};
}

base::Result<SharedRings> SharedRings::join(base::Fd file) {
    struct stat what;
    if (fstat(file.get(), &what) != 0 || (fcntl(file.get(), F_GET_SEALS) & seals) != seals) {
        return base::failure(EPROTO);
    }
    for (std::size_t ring = small_ring; ring <= large_ring; ring *= 2) {
        if (what.st_size == static_cast<off_t>(memory_bytes(ring))) {
            const auto memory = mapped(file.get(), memory_bytes(ring));
            if (!memory) {
                return std::unexpected{memory.error()};
            }
            return SharedRings{base::Fd{}, *memory, ring, Side::Guest};
        }
    }
    return base::failure(EPROTO);
}

// The counter of the first bytes and the end order these: the guest stores them later, and the maker has
// loaded one of them before.
void SharedRings::write_password(const Password &password) const {
    for (std::size_t i = 0; i < password.size(); ++i) {
        memory_->password[i].store(password[i], std::memory_order_relaxed);
    }
}

bool SharedRings::has_password(const Password &password) const {
    bool same = true;
    for (std::size_t i = 0; i < password.size(); ++i) {
        same = memory_->password[i].load(std::memory_order_relaxed) == password[i] && same;
    }
    return same;
}

}  // namespace soft
