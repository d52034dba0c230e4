// SPDX-License-Identifier: BSD-3-Clause
// stream/connection: the completions that the shard hands over, and the end of the stream.
#include <cerrno>

#include "base/log.hpp"
#include "stream/connection.hpp"

namespace stream {

void Connection::go_on() {
    mutex().assert_held();
    if (life_.established() && exchange_->owes()) [[unlikely]] {
        (void)fail_if(exchange_->settle());
    }
    if (observer_ != nullptr) {
        observer_->changed();
    }
}

void Connection::take_completion(const ibv_wc &completion) {
    mutex().assert_held();
    if (!life_.established() || completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        take_unusual(completion);
        return;
    }
    if (const Trouble trouble = exchange_->take(completion)) [[unlikely]] {
        end_for(trouble);
    }
}

// A completion may come before the peer's Hello is known.
//
// When an operation failed, an event says why the connection has ended. On the kernel's devices it comes only
// when one side disconnects, and the side whose operation failed does so.
[[gnu::noinline]] void Connection::take_unusual(const ibv_wc &completion) {
    if (!life_.established()) {
        if (life_.phase() == Phase::Connecting) {
            early_completions_.push_back(completion);
        }
        return;
    }
    rpma_.expect_event(true);
    if (!device_.is_of_kernel() || completion.status == IBV_WC_WR_FLUSH_ERR) {
        return;
    }
    rpma_.disconnect();
    if (life_.peer_left()) {
        life_.enter(Phase::Over);
    } else {
        fail(completion.status == IBV_WC_RETRY_EXC_ERR ? ETIMEDOUT : ECONNRESET);
    }
}

void Connection::fail(int number) {
    life_.fail(number);
    rpma_.expect_event(false);
}

// Ends the stream, and tells the peer at once, not when the program closes.
void Connection::break_off(int number) {
    fail(number);
    if (rpma_) {
        rpma_.disconnect();
    }
}

[[gnu::noinline]] void Connection::end_for(Trouble trouble) {
    if (trouble.violation == nullptr) {
        fail(trouble.error);
        return;
    }
    BASE_LOG(Error, "the peer sent %s: the stream ends", trouble.violation);
    break_off(trouble.error);
}

}  // namespace stream
