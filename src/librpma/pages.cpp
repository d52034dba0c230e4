// SPDX-License-Identifier: BSD-3-Clause
// librpma/pages: memory that has its pages for itself, to be registered.
#include "librpma/pages.hpp"

#include <sys/mman.h>

#include <cerrno>

namespace librpma {

Result<Pages> Pages::create(std::size_t size) {
    void *const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
        BASE_LOG(Error, "no memory: mmap(%zu bytes) failed: %s", size, error_text(errno));
        return Failure{RPMA_E_NOMEM};
    }
    return Pages{address, size};
}

int Pages::close() {
    void *const address = std::exchange(address_, nullptr);
    if (address != nullptr && ::munmap(address, size_) != 0) {
        BASE_LOG(Error, "munmap failed: %s", error_text(errno));
        return RPMA_E_INVAL;
    }
    return 0;
}

}  // namespace librpma
