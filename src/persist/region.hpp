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
#include "persist/portion.hpp"
#include "persist/worker.hpp"

namespace persist {

class Region {
public:
    // Opens a region over memory that stays the caller's and may vanish at any time. Blocks while it reads
    // /proc. Any thread may call it. Fails with EOPNOTSUPP when a part cannot be durable (the log names it,
    // and a remedy), EFAULT when a part is not mapped, or the error of storage when storage has lost bytes of
    // a file of the region.
    [[nodiscard]] static base::Result<std::unique_ptr<Region>> open(void *address, std::size_t length);

    // Does the same with known mappings, which cover the range in order.
    [[nodiscard]] static base::Result<std::unique_ptr<Region>> open_as(void *address, std::size_t length,
                                                                       std::vector<Mapping> mappings);

    // Returns the worker on whose threads persist() should run, because it may wait for the worker's device;
    // nullptr when it waits for none. For a region on several devices this is the first one's worker.
    [[nodiscard]] Worker *worker() const { return worker_; }

    // Makes the bytes durable that were stored in the range before the call. Any number of threads may call
    // it at once. Fails with EINVAL when the range is not inside the region; with EFAULT or ENOMEM when the
    // memory has vanished, and then always; or with the error of storage (EIO, ENOSPC), and then always, for
    // every region of the file (File).
    [[nodiscard]] base::Result<void> persist(const void *address, std::size_t length);

    // Does the same with the first bytes of the range, and returns their number. It is 0 for an empty range
    // alone.
    [[nodiscard]] base::Result<std::size_t> persist_portion(const void *address, std::size_t length,
                                                            Portion &portion);

    // Makes the whole region durable, and then never touches the memory again: persist() returns the result
    // of this call from then on. The memory is still mapped during the call. Blocks for storage. It is called
    // once.
    void close();
    // Returns whether the region is closed and all of it is durable.
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
