// SPDX-License-Identifier: BSD-3-Clause
// soft/drain: the sockets whose owners are gone, until their peers have everything.
#include <new>
#include <utility>

#include "base/log.hpp"
#include "soft/engine_state.hpp"
#include "soft/limits.hpp"
#include "soft/tcp.hpp"

namespace soft {

// A socket that was shut down for writing: reads what still comes, so that no reset destroys what TCP still
// has for a peer that is slow. What the peer's TCP has, a reset does not destroy.
class Engine::Drain final : public Source {
public:
    Drain(Engine &engine, std::shared_ptr<Group> group, base::Fd socket)
        : engine_{engine}, group_{std::move(group)}, socket_{std::move(socket)} {
        const std::scoped_lock lock{group_->mutex()};
        group_->add(*this, socket_.get(), {.readable = true});
        group_->set_deadline(*this, began_ + limits::drain_timeout);
    }

    void progress() override {
        if (tcp::discard_input(socket_.get()) == tcp::Input::Ended) {
            end();
        }
    }

    void expire() override {
        const auto now = base::Clock::now();
        if (tcp::has_unacknowledged(socket_.get()) && now - began_ < limits::silence_timeout) {
            group_->set_deadline(*this, now + limits::drain_timeout);
        } else {
            end();
        }
    }

private:
    // The last thing it does.
    void end() {
        group_->remove(*this, socket_.get());
        Engine &engine = engine_;
        delete this;
        engine.drained();
    }

    Engine &engine_;
    std::shared_ptr<Group> group_;
    base::Fd socket_;
    const base::Clock::time_point began_ = base::Clock::now();
};

void Engine::drain(base::Fd socket) {
    std::shared_ptr<Group> made;  // destroyed, if another thread was faster, without the lock
    std::shared_ptr<Group> group;
    {
        const std::scoped_lock lock{state_->mutex};
        ++state_->drains;
        group = state_->draining;
    }
    try {
        if (!group) {
            made = Group::create();
            const std::scoped_lock lock{state_->mutex};
            if (!state_->draining) {
                state_->draining = made;
            }
            group = state_->draining;
        }
        if (group) {
            new Drain{*this, std::move(group), std::move(socket)};  // deletes itself
            return;
        }
    } catch (const std::bad_alloc &) {
        BASE_LOG_PEER(Error, "a connection is closed before its peer may have read all: out of memory");
    }
    drained();
}

void Engine::drained() {
    std::shared_ptr<Group> last;  // destroyed without the lock
    const std::scoped_lock lock{state_->mutex};
    if (--state_->drains == 0) {
        last = std::move(state_->draining);
        state_->draining = nullptr;
    }
    state_->ended.notify_all();
}

}  // namespace soft
