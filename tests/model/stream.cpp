// SPDX-License-Identifier: BSD-3-Clause
// model/stream: see the header.
#include "stream.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace model {

namespace {

// Messages without a receive: fewer than the device keeps.
constexpr std::size_t most_unexpected = 32;
constexpr std::size_t most_unexpected_bytes = 1024;
constexpr std::size_t longest_chain = 8;

}  // namespace

// Mostly small, sometimes more than an FPDU takes.
std::size_t Stream::size() {
    switch (below(8)) {
        case 0:
            return below(3) == 0 ? 0 : 8;
        case 1:
        case 2:
        case 3:
            return below(65);
        case 4:
        case 5:
            return below(5000);
        case 6:
            return below(20'000);
        default:
            return below(Layout::slot_bytes + 1);
    }
}

Range Stream::range_within(std::size_t bytes, std::size_t length) {
    return {.offset = below(bytes - length + 1), .length = length};
}

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
    client_ = std::make_unique<Side>(ends_->client, "client");
    server_ = std::make_unique<Side>(ends_->server, "server");
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
        return side.poll(static_cast<int>(1 + below(16)));
    }
    if (choice < 990) {
        return settle();
    }
    return choice < 996 ? disconnect(side, other) : blunder(side, other);
}

// Parts of the source: content and scatter list.
void Stream::gather(Side &side, Planned &planned, std::size_t length) {
    const conformance::End &end = side.end();
    const std::size_t count = length == 0 ? below(2) : 1 + below(end.sizes.sge);
    const bool is_inline = length <= end.sizes.max_inline && one_in(2);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t left = length - planned.content.size();
        const std::size_t bytes = i + 1 == count ? left : below(left + 1);
        const Range from = range_within(Layout::source_bytes, bytes);
        planned.request.sges.push_back(conformance::sge(end, from.offset, bytes));
        const auto *const data = end.memory.data() + from.offset;
        planned.content.insert(planned.content.end(), data, data + bytes);
        if (is_inline) {
            planned.request.sges.back().lkey = 0;
        }
    }
    planned.request.flags |= is_inline ? unsigned{IBV_SEND_INLINE} : 0U;
}

// A write, atomic write or read. What a read that is open has not brought yet must not be changed before it.
void Stream::aim(Side &side, Side &other, Planned &planned, const std::vector<Planned> &before) {
    const bool is_read = planned.operation.opcode == IBV_WR_RDMA_READ;
    const bool is_atomic = planned.operation.opcode == IBV_WR_ATOMIC_WRITE;
    const std::size_t length = is_atomic ? 8 : size();
    Range &remote = planned.operation.remote;
    remote = range_within(Layout::target_bytes, length);
    if (is_atomic) {
        remote.offset &= ~std::size_t{7};
    }
    if (is_read) {
        planned.operation.local = range_within(Layout::sink_bytes, length);
        planned.request.sges = {
            conformance::sge(side.end(), Layout::sink + planned.operation.local.offset, length)};
    } else {
        gather(side, planned, length);
        const bool read_before = std::ranges::any_of(before, [&remote](const Planned &one) {
            return one.operation.opcode == IBV_WR_RDMA_READ && one.operation.remote.overlaps(remote);
        });
        if (read_before || side.reads_from(remote)) {
            planned.request.flags |= IBV_SEND_FENCE;
        }
    }
    planned.request.remote_address = other.end().address(Layout::target + remote.offset);
    planned.request.rkey = length == 0 && one_in(2) ? 0 : other.end().mr->rkey;
}

Stream::Planned Stream::plan_flush(Side &other) {
    Planned planned;
    const Range place = range_within(Layout::target_bytes, size());
    planned.request = conformance::flush_request(other.end(), Layout::target + place.offset, place.length);
    planned.operation.opcode = conformance::flush_opcode;
    return planned;
}

Stream::Planned Stream::plan(Side &side, Side &other, const std::vector<Planned> &before) {
    const conformance::End &end = side.end();
    const auto sends_before = static_cast<std::size_t>(std::ranges::count_if(
        before, [](const Planned &one) { return one.operation.opcode == IBV_WR_SEND; }));
    const std::size_t waiting = other.messages_waiting() + sends_before;
    Planned planned;
    planned.request.flags = 0;
    switch (below(7)) {
        case 0:
        case 1:
            planned.operation.opcode = IBV_WR_RDMA_READ;
            break;
        case 2:
            if (end.native(verbs::native_atomic_write)) {
                planned.operation.opcode = IBV_WR_ATOMIC_WRITE;
            }
            break;
        case 3:
            if (end.native(verbs::native_flush)) {
                planned = plan_flush(other);
            }
            break;
        case 4:
            if (waiting < other.receives_posted() + most_unexpected) {
                planned.operation.opcode = IBV_WR_SEND;
            }
            break;
        default:
            break;
    }
    if (planned.operation.opcode == IBV_WR_SEND) {
        const bool expected = waiting < other.receives_posted();
        gather(side, planned, expected ? size() : std::min(size(), most_unexpected_bytes));
    } else if (planned.operation.opcode != conformance::flush_opcode) {
        aim(side, other, planned, before);
    }
    planned.request.opcode = planned.operation.opcode;
    planned.request.wr_id = planned.operation.wr_id = next_wr_id_++;
    planned.operation.signaled = one_in(2) || side.signal_is_due(before.size());
    planned.request.flags &= ~unsigned{IBV_SEND_SIGNALED};
    planned.request.flags |= (planned.operation.signaled ? unsigned{IBV_SEND_SIGNALED} : 0U) |
                             (one_in(8) ? unsigned{IBV_SEND_FENCE} : 0U) |
                             (one_in(8) ? unsigned{IBV_SEND_SOLICITED} : 0U);
    return planned;
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
        // Whose receive is done by the time its slot comes round: there are no more receives than slots.
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

// Both have seen the end: everything was told.
std::string Stream::ended(Side &here, Side &there) {
    ends_->expect_disconnected();
    for (Side *const side : {&here, &there}) {
        if (auto wrong = side->poll_rest(); !wrong.empty()) {
            return wrong;
        }
    }
    if (here.ending() == Ending::Here) {
        there.forget_unsettled(here);  // `here` no longer looked
    }
    for (const Side *const side : {&here, &there}) {
        if (auto wrong = side->compare(); !wrong.empty()) {
            return "after the end, " + wrong;
        }
    }
    reconnect();
    return {};
}

std::string Stream::disconnect(Side &side, Side &other) {
    side.end(Ending::Here);
    other.end(Ending::There);
    if (conformance::provider().disconnect(side.end().id) != 0) {
        return "disconnect fails";
    }
    return ended(side, other);
}

// A write that is not allowed, and a question behind it.
std::string Stream::blunder(Side &side, Side &other) {
    if (side.slots_free() < 2) {
        return {};
    }
    const std::uint64_t bad_wr_id = next_wr_id_++;
    const std::uint64_t wr_id = next_wr_id_++;
    conformance::Request bad = conformance::unsignaled(
        conformance::write_request(side.end(), other.end(), 0, 1 + below(9000), bad_wr_id));
    bad.rkey ^= 0xfff;
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
