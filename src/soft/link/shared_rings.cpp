// SPDX-License-Identifier: BSD-3-Clause
// soft/link/shared_rings: see the header.
#include "soft/link/shared_rings.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace soft {

namespace {

// A peer that truncated the memory would end this process (SIGBUS). These seals prevent that.
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

base::Result<void *> mapped(int file, std::size_t bytes) {
    void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? base::Result<void *>{base::last_failure()} : memory;
}

}  // namespace

SharedRings::SharedRings(base::Fd file, void *memory, Side side)
    : file_{std::move(file)}, memory_{static_cast<Memory *>(memory)}, side_{side} {}

SharedRings::~SharedRings() {
    if (memory_ != nullptr) {
        munmap(memory_, sizeof(Memory));
    }
}

base::Result<SharedRings> SharedRings::make() {
    base::Fd file{memfd_create("softrdma", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (!file || ftruncate(file.get(), sizeof(Memory)) != 0 || fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
        return base::last_failure();
    }
    const auto memory = mapped(file.get(), sizeof(Memory));
    if (!memory) {
        return std::unexpected{memory.error()};
    }
    // The initial state is all zero.
    return SharedRings{std::move(file), *memory, Side::Maker};
}

base::Result<SharedRings> SharedRings::join(base::Fd file) {
    struct stat what;
    if (fstat(file.get(), &what) != 0 || what.st_size != sizeof(Memory) ||
        (fcntl(file.get(), F_GET_SEALS) & seals) != seals) {
        return base::failure(EPROTO);
    }
    const auto memory = mapped(file.get(), sizeof(Memory));
    if (!memory) {
        return std::unexpected{memory.error()};
    }
    return SharedRings{base::Fd{}, *memory, Side::Guest};
}

}  // namespace soft
