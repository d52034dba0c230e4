// SPDX-License-Identifier: BSD-3-Clause
// persist/region: an area of memory whose bytes can be made durable.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "persist/file.hpp"
#include "persist/mapping.hpp"
#include "persist/worker.hpp"

namespace persist {

class Region {
public:
    // Looks at the memory, which stays the caller's and may vanish at any time. Blocks as long as reading
    // /proc does. Any thread. EOPNOTSUPP when a part cannot be durable (logged: which, and what to do),
    // EFAULT when a part is not mapped, the error of storage when it has lost bytes of a file of the region.
    [[nodiscard]] static base::Result<std::unique_ptr<Region>> open(void *address, std::size_t length);

    // The same with mappings already known; they cover the range, in order.
    [[nodiscard]] static base::Result<std::unique_ptr<Region>> open_as(void *address, std::size_t length,
                                                                       std::vector<Mapping> mappings);

    // The worker of the device that persist() may wait for, on whose threads it belongs; nullptr when it
    // waits for none. A region on several devices names the first one's.
    [[nodiscard]] Worker *worker() const { return worker_; }

    // Makes what was stored in the range before the call durable before it returns. Any number of threads.
    // EINVAL when the range leaves the region; EFAULT or ENOMEM when the memory has vanished, and then
    // always; else the error of storage (EIO, ENOSPC), and then always, for every region of the file (File).
    [[nodiscard]] base::Result<void> persist(const void *address, std::size_t length);

    // Makes all of it durable, while the memory is still the program's to keep, and touches it no more: from
    // then on persist() says what came of this. Blocks for storage. Once.
    void close();
    // Closed, and all of it durable.
    [[nodiscard]] bool closed_durable() const;

private:
    struct Part {
        Mapping mapping;
        std::shared_ptr<File> file;  // of the page cache
    };
    struct Failure {
        int error;
        const Mapping *mapping;
    };
    Region(std::uintptr_t begin, std::uintptr_t end, std::vector<Part> parts, Worker *worker);
    [[nodiscard]] std::optional<Failure> sync(std::uintptr_t begin, std::uintptr_t end) const;

    std::uintptr_t begin_;
    std::uintptr_t end_;
    std::vector<Part> parts_;
    Worker *worker_;
    std::atomic<int> failed_{0};
    std::atomic<bool> closed_{false};
};

}  // namespace persist
