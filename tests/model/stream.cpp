// SPDX-License-Identifier: BSD-3-Clause
#include "stream.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace model {

namespace {

constexpr std::size_t longest_chain = 8;

}  // namespace

void Stream::reconnect() {
    client_.reset();
    server_.reset();
    ends_.reset();
    const conformance::Sizes sizes{.send_wr = static_cast<std::uint32_t>(2 + below(40)),
                                   .receive_wr = static_cast<std::uint32_t>(1 + below(Layout::slots)),
                                   .cqe = 128,
                                   .max_inline = static_cast<std::uint32_t>(below(3) * 128),
                                   .sge = static_cast<std::uint32_t>(1 + below(4)),
                                   .depth = static_cast<std::uint8_t>(1 + below(16)),
                                   .separate_cqs = one_in(2),
                                   .memory_bytes = Layout::all_bytes};
    ends_ = std::make_unique<conformance::Ends>(sizes);
    ends_->connect();
    client_ = std::make_unique<Side>(ends_->client, "client", faults_);
    server_ = std::make_unique<Side>(ends_->server, "server", faults_);
    client_->begin(random_());
    server_->begin(random_());
}

std::string Stream::step() {
    if (!ends_) {
        reconnect();
    }
    const bool by_client = one_in(2);
    Side &side = by_client ? *client_ : *server_;
    Side &other = by_client ? *server_ : *client_;
    const std::size_t choice = below(1000);
    if (choice < 500) {
        return post_chain(side, other);
    }
    if (choice < 700) {
        return post_receives(side, 1 + below(4));
    }
    if (choice < 970) {
        return poll(side, static_cast<int>(1 + below(16)));
    }
    if (choice < 990) {
        return settle();
    }
    return choice < 996 || faults_ ? disconnect(side, other) : blunder(side, other);
}

std::string Stream::poll(Side &side, int most) {
    auto wrong = side.poll(most);
    return wrong.empty() && failed() ? ended_by_fault() : wrong;
}

// As many are accepted as there are slots.
std::string Stream::post_chain(Side &side, Side &other) {
    std::vector<Planned> chain;
    std::vector<conformance::Request> requests;
    const std::size_t count = 1 + below(longest_chain);
    for (std::size_t i = 0; i < count; ++i) {
        chain.push_back(plan(side, other, chain));
        requests.push_back(chain.back().request);
    }
    const std::size_t fit = std::min(side.slots_free(), count);
    std::size_t refused = count;
    const int result = conformance::post(side.end(), requests, &refused);
    if (result != (fit == count ? 0 : ENOMEM) || refused != fit) {
        return "a post of " + std::to_string(count) + " requests gives " + std::to_string(result) + " at " +
               std::to_string(refused) + " with " + std::to_string(fit) + " slots free";
    }
    for (std::size_t i = 0; i < fit; ++i) {
        side.posted(chain[i].operation, chain[i].content, other);
    }
    return {};
}

std::string Stream::post_receives(Side &side, std::size_t count) {
    const conformance::End &end = side.end();
    for (; count != 0; --count) {
        const std::uint64_t number = next_wr_id_++;
        // The receive of a slot is done by the time that the slot comes round again: there are no more
        // receives than slots.
        const std::size_t slot = Layout::first_slot + side.take_slot() * Layout::slot_bytes;
        std::vector<ibv_sge> sges;
        std::size_t done = 0;
        for (std::size_t parts = 1 + below(end.sizes.sge); parts != 0; --parts) {
            const std::size_t bytes =
                parts == 1 ? Layout::slot_bytes - done : below(Layout::slot_bytes - done + 1);
            sges.push_back(conformance::sge(end, slot + done, bytes));
            done += bytes;
        }
        const int expected = side.receives_free() == 0 ? ENOMEM : 0;
        const int result = conformance::post_receive(end, number | receive_mark, sges);
        if (result != expected) {
            return "a receive is answered with " + std::to_string(result) + ", not " +
                   std::to_string(expected);
        }
        if (result == 0) {
            side.posted_receive(number | receive_mark, std::move(sges));
        } else {
            side.give_back_slot();
        }
    }
    return {};
}

std::string Stream::settle() {
    const auto deadline = std::chrono::steady_clock::now() + conformance::patience;
    const std::array<Side *, 2> sides{client_.get(), server_.get()};
    std::array<bool, 2> asked{};
    while (!asked[0] || !asked[1] || !client_->settled() || !server_->settled()) {
        for (std::size_t i = 0; i < sides.size(); ++i) {
            Side &side = *sides[i];
            if (auto wrong = side.poll(16); !wrong.empty()) {
                return wrong;
            }
            if (failed()) {
                return ended_by_fault();
            }
            if (side.messages_waiting() > side.receives_posted() && side.receives_free() != 0) {
                if (auto wrong = post_receives(side, 1); !wrong.empty()) {
                    return wrong;
                }
            }
            // A question behind everything: its answer settles the writes.
            if (!asked[i] && side.slots_free() != 0) {
                const std::uint64_t wr_id = next_wr_id_++;
                conformance::Request question =
                    conformance::settling_request(side.end(), sides[1 - i]->end(), wr_id);
                if (conformance::post(side.end(), {question}) != 0) {
                    return "a post is refused though there is a slot";
                }
                side.posted({.opcode = question.opcode, .wr_id = wr_id, .signaled = true}, {}, *sides[1 - i]);
                asked[i] = true;
            }
        }
        if (std::chrono::steady_clock::now() > deadline) {
            return "what is open does not come to an end";
        }
    }
    for (Side *const side : sides) {
        if (auto wrong = side->compare(); !wrong.empty()) {
            return wrong;
        }
        side->change_source(random_());
    }
    return {};
}

// A side may have seen its end already.
void Stream::leave(Side &side) {
    if (!conformance::subject.by_number) {
        (void)conformance::provider().cm.disconnect(side.end().id);
        return;
    }
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    (void)softrdma_ibv_modify_qp(side.end().id->qp, &error, IBV_QP_STATE);
}

// By number the other side is not told of an end: it goes on, and its requests fail.
std::string Stream::go_on_alone(Side &side) {
    Side &other = &side == client_.get() ? *server_ : *client_;
    for (std::size_t left = below(8); left != 0; --left) {
        auto wrong = one_in(2)   ? side.poll(static_cast<int>(1 + below(16)))
                     : one_in(2) ? post_receives(side, 1 + below(4))
                                 : post_chain(side, other);
        if (!wrong.empty()) {
            return wrong;
        }
    }
    return {};
}

std::string Stream::poll_until_failed(Side &side) {
    const auto deadline = std::chrono::steady_clock::now() + conformance::patience;
    std::string wrong;
    while (wrong.empty() && !side.failed()) {
        wrong = std::chrono::steady_clock::now() > deadline ? "a request that is refused does not fail"
                                                            : side.poll(1);
    }
    return wrong;
}

// Both have seen the end: everything was told.
std::string Stream::ended(Side &here, Side &there) {
    if (conformance::subject.by_number) {
        if (auto wrong = go_on_alone(there); !wrong.empty()) {
            return wrong;
        }
        if (here.ending() == Ending::RefusedThere) {
            if (auto wrong = poll_until_failed(here); !wrong.empty()) {
                return wrong;
            }
        }
        leave(here);
        leave(there);
    }
    // A side that has messages and no receives for them sees the end only after a time: mostly it leaves too.
    for (Side *const side : {&here, &there}) {
        if (!conformance::subject.by_number && here.ending() != Ending::RefusedThere &&
            side->ending() != Ending::Here && side->messages_waiting() > side->receives_posted() &&
            !one_in(16)) {
            side->end(Ending::Here);
            leave(*side);
        }
    }
    ends_->expect_disconnected();
    for (Side *const side : {&here, &there}) {
        if (auto wrong = side->poll_rest(); !wrong.empty()) {
            return wrong;
        }
    }
    for (Side *const side : {&here, &there}) {
        Side &other = side == &here ? there : here;
        if (side->ending() == Ending::Here || side->cut() || conformance::subject.by_number) {
            other.forget_unsettled(*side);  // it no longer looked
        }
        if (auto wrong = side->account_for_messages(other); !wrong.empty()) {
            return "after the end, " + wrong;
        }
        if (auto wrong = side->account_for_failed(other); !wrong.empty()) {
            return "after the end, " + wrong;
        }
    }
    for (const Side *const side : {&here, &there}) {
        if (auto wrong = side->compare(); !wrong.empty()) {
            return "after the end, " + wrong;
        }
    }
    reconnect();
    return {};
}

std::string Stream::ended_by_fault() {
    return ended(*client_, *server_);
}

std::string Stream::disconnect(Side &side, Side &other) {
    side.end(Ending::Here);
    other.end(Ending::There);
    leave(side);
    return ended(side, other);
}

// A write that is not allowed, and a question behind it: beyond the memory, or seldom with a wrong key,
// because connections from an address that guesses many keys are delayed.
std::string Stream::blunder(Side &side, Side &other) {
    if (side.slots_free() < 2) {
        return {};
    }
    const std::uint64_t bad_wr_id = next_wr_id_++;
    const std::uint64_t wr_id = next_wr_id_++;
    const std::size_t length = 1 + below(9000);
    conformance::Request bad =
        conformance::unsignaled(conformance::write_request(side.end(), other.end(), 0, length, bad_wr_id));
    if (one_in(16)) {
        bad.rkey ^= 0xfff;
    } else {
        bad.remote_address = other.end().address(Layout::all_bytes) - below(length);
    }
    const conformance::Request question = conformance::settling_request(side.end(), other.end(), wr_id);
    side.end(Ending::RefusedThere);
    other.end(Ending::There);
    if (conformance::post(side.end(), {bad, question}) != 0) {
        return "a post is refused though there are slots";
    }
    side.posted({.opcode = IBV_WR_RDMA_WRITE, .wr_id = bad_wr_id}, {}, other);
    side.posted({.opcode = question.opcode, .wr_id = wr_id, .signaled = true}, {}, other);
    return ended(side, other);
}

}  // namespace model
