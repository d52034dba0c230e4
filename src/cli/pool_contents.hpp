// SPDX-License-Identifier: BSD-3-Clause
// cli/pool_contents: the one content of a pool, as a server serves it.
#pragma once

#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "cli/contents.hpp"
#include "cli/pool.hpp"

namespace cli {

// The faults that were found in the pool's contents before it is served.
struct Damage {
    bool is_committed_damaged = false;
    // The sequence of the other content, if only that one is good: no push may overwrite it. Otherwise 0.
    std::uint64_t only_good = 0;
};

// The pool outlives it.
class PoolContents final : public Contents {
public:
    PoolContents(const Pool &pool, Damage damage)
        : pool_{pool}, damage_{damage}, committed_{pool.content()} {}

    [[nodiscard]] std::string text() const override { return "pool " + pool_.path(); }
    [[nodiscard]] std::uint64_t capacity() const override { return pool_.layout().capacity; }
    [[nodiscard]] bool is_dax() const override { return pool_.is_dax(); }
    [[nodiscard]] bool is_copied() const override { return pool_.is_copied(); }
    [[nodiscard]] std::span<std::byte> sample() const override { return pool_.slot(0); }
    // Returns the slot that a push would write.
    [[nodiscard]] Outcome<std::span<std::byte>> measured() override {
        return pool_.slot(next_content(committed_).slot);
    }

    void tell(Offer &offer) const override;
    [[nodiscard]] std::string why_no_push() const override;
    [[nodiscard]] bool is_exclusive() const override { return true; }
    [[nodiscard]] bool is_without_room() const override { return pool_.is_without_room(); }
    [[nodiscard]] std::string what_stays(const std::string &name) const override;

    [[nodiscard]] Outcome<std::unique_ptr<Upload>> upload(const std::string &name, Memory &memory) override;
    Content committed(const Upload &upload) override;
    // The pool stays open, and the kernel reports lost bytes only once.
    [[nodiscard]] bool is_fatal(int error) const override { return error != 0 && error != EOPNOTSUPP; }
    [[nodiscard]] Outcome<Download> download(const std::string &name, std::uint64_t sequence) override;
    [[nodiscard]] Outcome<std::string> list(const std::string &name) const override;

private:
    const Pool &pool_;
    Damage damage_;
    // The durable content, which pulls get. It is not read from the commit word of the mapping or of the
    // file, because these change before they are durable.
    std::optional<Content> committed_;
    // The errno value of storage's first failure, which all later uploads get.
    std::shared_ptr<int> error_ = std::make_shared<int>(0);
};

}  // namespace cli
