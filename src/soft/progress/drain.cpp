// SPDX-License-Identifier: BSD-3-Clause
#include "soft/progress/drain.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "soft/ground/limits.hpp"
#include "soft/progress/progress.hpp"

namespace soft {

// A finished link. It reads the bytes that still come, so that no reset destroys the bytes that TCP still has
// for a slow peer. A reset does not destroy bytes that the peer's TCP has.
class Drains::Drain final : public Source {
public:
    Drain(Drains &drains, std::shared_ptr<Group> group, std::unique_ptr<Link> link, base::Origin origin,
          UnreadShare unread_share)
        : drains_{drains},
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
        drains_.ended(this);
    }

private:
    Drains &drains_;
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
void Drains::add(std::unique_ptr<Link> link, base::Origin origin, UnreadShare unread_share) {
    if (!link->own_lent_descriptor()) {
        return;
    }
    std::shared_ptr<Group> made;  // destroyed without the lock, if another thread was faster
    std::shared_ptr<Group> group;
    {
        const base::Lock lock{mutex_};
        ++count_;
        group = group_;
    }
    try {
        if (!group) {
            made = Group::create().value_or(nullptr);
            if (made) {
                (void)made->allow_nudges();  // without them a link that keeps bytes ends later
            }
            const base::Lock lock{mutex_};
            if (!group_) {
                group_ = made;
            }
            group = group_;
        }
        if (group) {
            begin(group,
                  std::make_unique<Drain>(*this, group, std::move(link), origin, std::move(unread_share)));
            return;
        }
    } catch (const std::bad_alloc &) {
        BASE_LOG_PEER(Error, "a connection is closed before its peer may have read all: out of memory");
    }
    ended(nullptr);
}

// When there are too many, the oldest drain of the origin that has most ends, because its peer has had the
// longest time to read.
void Drains::begin(const std::shared_ptr<Group> &group, std::unique_ptr<Drain> drain) {
    const base::Lock serving{group->mutex()};
    std::unique_ptr<Drain> made{std::move(drain)};  // destroyed with the lock, when there is no memory
    made->begin();
    Drain *oldest = nullptr;
    {
        const base::Lock lock{mutex_};
        all_.reserve(all_.size() + 1);
        shares_.add(made->origin());
        all_.push_back(made.get());
        if (all_.size() > std::min(limits::in_force().max_draining, limits::share_of_descriptors())) {
            oldest = *std::ranges::find_if(all_, [this, most = shares_.most()](const Drain *one) {
                mutex_.assert_held();
                return shares_.of(one->origin()) == most;
            });
        }
    }
    (void)made.release();  // deletes itself
    if (oldest != nullptr) {
        oldest->end();
    }
}

void Drains::ended(const Drain *drain) {
    std::shared_ptr<Group> last;  // destroyed without the lock
    const base::Lock lock{mutex_};
    if (drain != nullptr) {
        shares_.remove(drain->origin());
        std::erase(all_, drain);
    }
    if (--count_ == 0) {
        last = std::move(group_);
        group_ = nullptr;
        none_left_.notify_all();
    }
}

void Drains::wait(base::Clock::time_point until) {
    const base::Lock lock{mutex_};
    while (count_ != 0 && none_left_.wait_until(mutex_, until)) {
    }
}

}  // namespace soft
