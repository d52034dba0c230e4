// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/drain: keeps links whose owners are gone until their peers have everything.
#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "soft/ground/limits.hpp"
#include "soft/link/link.hpp"
#include "soft/progress/engine_state.hpp"

namespace soft {

// A finished link. It reads the bytes that still come, so that no reset destroys the bytes that TCP still has
// for a slow peer. A reset does not destroy bytes that the peer's TCP has.
class Engine::Drain final : public Source {
public:
    Drain(Engine &engine, std::shared_ptr<Group> group, std::unique_ptr<Link> link, base::Origin origin,
          UnreadShare unread_share)
        : engine_{engine},
          group_{std::move(group)},
          link_{std::move(link)},
          origin_{origin},
          unread_share_{std::move(unread_share)} {}

    ~Drain() override { group_->remove(*this, link_->descriptor()); }
    Drain(const Drain &) = delete;
    Drain &operator=(const Drain &) = delete;

    void begin() {
        group_->mutex().assert_held();
        (void)link_->want(wanted_);  // its first turn follows in any case
        group_->add(*this, link_->descriptor(), link_->watched(wanted_));
        group_->let_rest(*this);
        group_->set_deadline(*this, began_ + limits::in_force().drain_timeout);
    }

    void progress() override {
        if (wanted_.writable && link_->finish()) {
            group_->change(*this, link_->descriptor(), link_->watched(wanted_),
                           link_->watched({.readable = true}));
            wanted_.writable = false;
            (void)link_->want(wanted_);  // it looks below
        }
        if (link_->discard()) {
            end();
        }
    }

    [[nodiscard]] Link *link_to_rest() override { return link_.get(); }

    void expire() override {
        group_->mutex().assert_held();
        const auto now = base::Clock::now();
        if (link_->undelivered() && now - began_ < limits::silence_timeout) {
            group_->set_deadline(*this, now + limits::in_force().drain_timeout);
        } else {
            end();
        }
    }

    [[nodiscard]] base::Origin origin() const { return origin_; }

    // Ends the drain, as its last step. After a mere close the kernel would continue to send, and keep its
    // bytes.
    void end() {
        if (link_->undelivered()) {
            link_->abandon();
        }
        const std::unique_ptr<Drain> gone{this};
        engine_.drained(this);
    }

private:
    Engine &engine_;
    std::shared_ptr<Group> group_;
    const std::unique_ptr<Link> link_;
    const base::Origin origin_;
    const UnreadShare unread_share_;
    // A link that was full when its owner finished it still has its end.
    Interest wanted_{.readable = true, .writable = !link_->finish()};
    const base::Clock::time_point began_ = base::Clock::now();
};

// The owner of a lent descriptor may close it as soon as it is told of the connection's end, so the link
// needs a descriptor of its own. Without one, the kernel still sends the bytes that it has.
void Engine::drain(std::unique_ptr<Link> link, base::Origin origin, UnreadShare unread_share) {
    if (!link->own_lent_descriptor()) {
        return;
    }
    std::shared_ptr<Group> made;  // destroyed without the lock, if another thread was faster
    std::shared_ptr<Group> group;
    {
        const base::Lock lock{state_->mutex};
        ++state_->drains;
        group = state_->draining;
    }
    try {
        if (!group) {
            made = Group::create().value_or(nullptr);
            if (made) {
                (void)made->allow_nudges();  // without them a link that keeps bytes ends later
            }
            const base::Lock lock{state_->mutex};
            if (!state_->draining) {
                state_->draining = made;
            }
            group = state_->draining;
        }
        if (group) {
            begin_drain(group, std::make_unique<Drain>(*this, group, std::move(link), origin,
                                                       std::move(unread_share)));
            return;
        }
    } catch (const std::bad_alloc &) {
        BASE_LOG_PEER(Error, "a connection is closed before its peer may have read all: out of memory");
    }
    drained(nullptr);
}

// When there are too many, the oldest drain of the origin that has most ends, because its peer has had the
// longest time to read.
void Engine::begin_drain(const std::shared_ptr<Group> &group, std::unique_ptr<Drain> drain) {
    const base::Lock serving{group->mutex()};
    std::unique_ptr<Drain> made{std::move(drain)};  // destroyed with the lock, when there is no memory
    made->begin();
    Drain *oldest = nullptr;
    {
        const base::Lock lock{state_->mutex};
        auto &all = state_->all_drains;
        base::Shares &shares = state_->shares_of_drains;
        all.reserve(all.size() + 1);
        shares.add(made->origin());
        all.push_back(made.get());
        if (all.size() > std::min(limits::in_force().max_draining, limits::share_of_descriptors())) {
            oldest = *std::ranges::find_if(all, [this, most = shares.most(), &shares](const Drain *one) {
                state_->mutex.assert_held();
                return shares.of(one->origin()) == most;
            });
        }
    }
    (void)made.release();  // deletes itself
    if (oldest != nullptr) {
        oldest->end();
    }
}

void Engine::drained(const Drain *drain) {
    std::shared_ptr<Group> last;  // destroyed without the lock
    const base::Lock lock{state_->mutex};
    if (drain != nullptr) {
        state_->shares_of_drains.remove(drain->origin());
        std::erase(state_->all_drains, drain);
    }
    if (--state_->drains == 0) {
        last = std::move(state_->draining);
        state_->draining = nullptr;
    }
    state_->ended.notify_all();
}

}  // namespace soft
