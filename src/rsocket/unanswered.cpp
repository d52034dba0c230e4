// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket/unanswered.hpp"

#include <poll.h>

#include "rsocket/any_socket.hpp"

namespace rsockets {

Unanswered &Unanswered::of_this_thread() {
    thread_local auto own = std::make_unique<Unanswered>();
    if (own->inherited()) {
        own = std::make_unique<Unanswered>();
    }
    return *own;
}

void Unanswered::add(const std::shared_ptr<AnySocket> &accepted) {
    if (sockets_.size() == sockets_.capacity()) {
        std::erase_if(sockets_, [](const auto &one) { return one.expired(); });
        sockets_.reserve(2 * sockets_.size() + 1);
    }
    sockets_.push_back(accepted);
}

base::Result<bool> Unanswered::begin_wait(Sleep &sleep) {
    base::Result<void> begun;
    bool any = false;
    std::erase_if(sockets_, [&](const std::weak_ptr<AnySocket> &one) {
        const auto socket = one.lock();
        if (socket == nullptr || !begun) {
            return socket == nullptr;
        }
        waited_for_.push_back(socket);
        begun = socket->begin_wait(sleep, POLLIN);
        if (!begun) {
            return false;
        }
        const auto [did_something, is_awaited] = socket->answer();
        any = any || did_something;
        return !is_awaited;
    });
    return begun ? base::Result<bool>{any} : std::unexpected{begun.error()};
}

void Unanswered::end_wait(const Sleep &sleep) {
    for (const auto &socket : waited_for_) {
        socket->end_wait(sleep);
    }
    waited_for_.clear();
}

}  // namespace rsockets
