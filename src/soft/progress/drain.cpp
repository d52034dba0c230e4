// SPDX-License-Identifier: BSD-3-Clause
// soft/progress/drain: the links whose owners are gone, until their peers have everything.
#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "soft/ground/limits.hpp"
#include "soft/link/link.hpp"
#include "soft/progress/engine_state.hpp"

namespace soft {

// A link that is finished: reads what still comes, so that no reset destroys what TCP still has for a peer
// that is slow. A reset does not destroy what the peer's TCP has.
class Engine::Drain final : public Source {
public:
    Drain(Engine &engine, std::shared_ptr<Group> group, std::unique_ptr<Link> link, Origin origin,
          Allowance allowance)
        : engine_{engine},
          group_{std::move(group)},
          link_{std::move(link)},
          origin_{origin},
          allowance_{std::move(allowance)} {}

    ~Drain() override { group_->remove(*this, link_->descriptor()); }
    Drain(const Drain &) = delete;
    Drain &operator=(const Drain &) = delete;

    void begin() {
        group_->mutex().assert_held();
        (void)link_->want({.readable = true});  // its turn comes first
        group_->add(*this, link_->descriptor(), link_->watched({.readable = true}));
        group_->let_rest(*this);
        group_->set_deadline(*this, began_ + limits::drain_timeout);
    }

    void progress() override {
        if (link_->discard()) {
            end();
        }
    }

    [[nodiscard]] bool rest() override { return link_->rest(); }

    void expire() override {
        group_->mutex().assert_held();
        const auto now = base::Clock::now();
        if (link_->undelivered() && now - began_ < limits::silence_timeout) {
            group_->set_deadline(*this, now + limits::drain_timeout);
        } else {
            end();
        }
    }

    [[nodiscard]] Origin origin() const { return origin_; }

    // The last thing it does. Closed alone, the kernel would go on trying, and keep what it has.
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
    const Origin origin_;
    const Allowance allowance_;
    const base::Clock::time_point began_ = base::Clock::now();
};

// The owner of a descriptor that was lent may close it as soon as it hears that the connection is no more.
// Without one of our own the kernel still sends what it has.
void Engine::drain(std::unique_ptr<Link> link, Origin origin, Allowance allowance) {
    if (!link->own_descriptor()) {
        return;
    }
    std::shared_ptr<Group> made;  // destroyed, if another thread was faster, without the lock
    std::shared_ptr<Group> group;
    {
        const base::Lock lock{state_->mutex};
        ++state_->drains;
        group = state_->draining;
    }
    try {
        if (!group) {
            made = Group::create().value_or(nullptr);
            const base::Lock lock{state_->mutex};
            if (!state_->draining) {
                state_->draining = made;
            }
            group = state_->draining;
        }
        if (group) {
            begin_drain(group,
                        std::make_unique<Drain>(*this, group, std::move(link), origin, std::move(allowance)));
            return;
        }
    } catch (const std::bad_alloc &) {
        BASE_LOG_PEER(Error, "a connection is closed before its peer may have read all: out of memory");
    }
    drained(nullptr);
}

// One too many makes the oldest of the origin that has most go: what its peer has not read by now it will not
// read. The others are those that still may.
void Engine::begin_drain(const std::shared_ptr<Group> &group, std::unique_ptr<Drain> drain) {
    const base::Lock serving{group->mutex()};
    std::unique_ptr<Drain> made{std::move(drain)};  // goes, when memory is out, with the lock
    made->begin();
    Drain *oldest = nullptr;
    {
        const base::Lock lock{state_->mutex};
        auto &all = state_->all_drains;
        Shares &shares = state_->shares_of_drains;
        all.reserve(all.size() + 1);
        shares.add(made->origin());
        all.push_back(made.get());
        if (all.size() > std::min(limits::max_draining, limits::share_of_descriptors())) {
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
