// SPDX-License-Identifier: BSD-3-Clause
// This link wraps another link and adds the faults that a test chose. The user of a link has to bear all of
// them.
#pragma once

#include <cstddef>
#include <memory>

#include "soft/link/link.hpp"

namespace test {

struct LinkFaults {
    static constexpr std::size_t never = SIZE_MAX;

    std::size_t most = never;  // bytes that are sent, or received, at once
    bool delays = false;       // every other time nothing is sent, or received
    // The link cuts the connection once it has sent, or received, this many bytes.
    std::size_t sent_before_cut = never;
    std::size_t received_before_cut = never;
};

class FaultyLink : public soft::Link {
public:
    FaultyLink(std::unique_ptr<soft::Link> link, const LinkFaults &faults)
        : link_{std::move(link)}, faults_{faults} {}

    [[nodiscard]] Sent send(std::span<const iovec> pieces) override;
    bool finish() override { return link_->finish(); }
    [[nodiscard]] Received receive(std::span<const iovec> pieces) override;
    void abort() override { link_->abort(); }
    void abandon() override { link_->abandon(); }
    [[nodiscard]] int descriptor() const override { return link_->descriptor(); }
    [[nodiscard]] soft::Interest watched(soft::Interest wanted) const override {
        return link_->watched(wanted);
    }
    [[nodiscard]] bool want(soft::Interest interest) override { return link_->want(interest); }
    [[nodiscard]] bool rest() override { return link_->rest(); }
    void reported() override { link_->reported(); }
    [[nodiscard]] std::optional<bool> look() override { return link_->look(); }
    [[nodiscard]] bool own_lent_descriptor() override { return link_->own_lent_descriptor(); }
    [[nodiscard]] base::Fd take_descriptor() override { return link_->take_descriptor(); }
    [[nodiscard]] Ready ready() const override { return link_->ready(); }
    [[nodiscard]] int failure() override { return link_->failure(); }
    [[nodiscard]] std::size_t unread_bytes() const override { return link_->unread_bytes(); }
    [[nodiscard]] bool undelivered() const override { return link_->undelivered(); }
    [[nodiscard]] base::Clock::time_point gives_up_at() const override { return link_->gives_up_at(); }
    void limit_unsent(std::size_t bytes) override { link_->limit_unsent(bytes); }
    [[nodiscard]] const char *name() const override { return link_->name(); }
    [[nodiscard]] std::size_t max_segment() const override { return link_->max_segment(); }

    [[nodiscard]] std::size_t sent() const { return sending_.bytes; }
    [[nodiscard]] std::size_t received() const { return receiving_.bytes; }

private:
    struct Direction {
        std::size_t bytes = 0;
        bool delayed = false;
    };
    [[nodiscard]] bool delays(Direction &direction) const {
        return faults_.delays && (direction.delayed = !direction.delayed);
    }

    const std::unique_ptr<soft::Link> link_;
    const LinkFaults faults_;
    Direction sending_;
    Direction receiving_;
};

}  // namespace test
