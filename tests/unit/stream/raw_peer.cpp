// SPDX-License-Identifier: BSD-3-Clause
// This file has a peer of a stream that speaks rsockets' protocol by itself. See the header.
#include "raw_peer.hpp"

#include <fcntl.h>
#include <rpma/rsocket.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "../../loopback.hpp"

namespace test {

namespace {

using stream::made;

void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

}  // namespace

RawPeer::RawPeer(rpma_peer *peer, Side side, base::Fd socket, std::vector<std::byte> private_data)
    : side_{side},
      socket_{std::move(socket)},
      private_data_{std::move(private_data)},
      memory_{*made<stream::Memory>(rpma_mr_alloc, peer, words_at() + receives * most_inline,
                                    RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_RECV)},
      queue_{*made<stream::Queue>(rpma_cq_new, peer, sends + receives, RPMA_CQ_UNARMED)},
      events_{*made<stream::Events>(rpma_events_new, peer)} {
    void *base = nullptr;
    require(rpma_mr_get_ptr(memory_.get(), &base) == 0 && rpma_mr_get_key(memory_.get(), &key_) == 0);
    memory_base_ = static_cast<std::byte *>(base);
    int events = -1;
    require(rpma_events_get_fd(events_.get(), &events) == 0 && fcntl(events, F_SETFL, O_NONBLOCK) == 0);
    const auto configuration = *made<stream::Configuration>(rpma_conn_cfg_new);
    rpma_conn_cfg *const cfg = configuration.get();
    require(rpma_conn_cfg_set_cq(cfg, queue_.get()) == 0 &&
            rpma_conn_cfg_set_events(cfg, events_.get()) == 0 && rpma_conn_cfg_set_sq_size(cfg, sends) == 0 &&
            rpma_conn_cfg_set_rq_size(cfg, receives) == 0 &&
            rpma_conn_cfg_set_inline_size(cfg, most_inline) == 0);
    const int flags = RPMA_ADOPT_KEEP_FD | (side_ == Side::Asks ? RPMA_ADOPT_INITIATOR : 0);
    auto request = made<stream::Request>(rpma_conn_req_adopt_fd, peer, socket_.get(), flags,
                                         static_cast<const rpma_conn_cfg *>(cfg));
    over_ = !request;
    if (request) {
        request_ = std::move(*request);
        connect();
    }
}

stream::KeyedMemory RawPeer::window_of_ours() const {
    return {.address = reinterpret_cast<std::uintptr_t>(memory_base_) + buffer_at(),
            .key = key_,
            .length = half_bytes};
}

void RawPeer::connect() {
    const int result = rpma_conn_req_proceed(request_.get());
    if (result == RPMA_E_AGAIN) {
        return;
    }
    if (result != 0) {
        over_ = true;
        return;
    }
    rpma_conn_private_data data{};
    (void)rpma_conn_req_get_private_data(request_.get(), &data);
    if (side_ == Side::IsAsked) {
        theirs_ = stream::decode_hello({static_cast<const std::byte *>(data.ptr), data.len})
                      .value_or(stream::Hello{});
    }
    for (std::size_t slot = 0; slot < receives; ++slot) {
        require(rpma_conn_req_recv(request_.get(), memory_.get(), words_at() + slot * most_inline,
                                   most_inline, reinterpret_cast<const void *>(slot)) == 0);
    }
    if (private_data_.empty()) {
        const auto hello = encode(stream::Hello{.credits = credits,
                                                .slots = 0,
                                                .list = {.address = reinterpret_cast<std::uintptr_t>(list()),
                                                         .key = key_,
                                                         .length = stream::windows},
                                                .data = window_of_ours()});
        private_data_.assign(hello.begin(), hello.end());
    }
    const rpma_conn_private_data ours{.ptr = private_data_.data(),
                                      .len = static_cast<std::uint8_t>(private_data_.size())};
    rpma_conn_req *request = request_.release();
    rpma_conn *conn = nullptr;
    over_ = rpma_conn_req_connect(&request, &ours, &conn) != 0;
    conn_.reset(conn);
}

void RawPeer::established(const rpma_conn_private_data &data) {
    if (side_ == Side::Asks) {
        theirs_ = stream::decode_hello({static_cast<const std::byte *>(data.ptr), data.len})
                      .value_or(stream::Hello{});
    }
    established_ = true;
    allowance_.emplace(theirs_.credits, theirs_.data);
    granted_.emplace(theirs_.data.length);
}

bool RawPeer::step() {
    rpma_event event{};
    while (!over_ && rpma_events_take(events_.get(), &event) == 0) {
        if (event.type == RPMA_EVENT_CONN_REQ) {
            connect();
        } else if (event.type == RPMA_EVENT_CONN && event.conn_event == RPMA_CONN_ESTABLISHED) {
            rpma_conn_private_data data{};
            (void)rpma_conn_get_private_data(conn_.get(), &data);
            established(data);
        } else {
            over_ = true;
        }
    }
    std::array<ibv_wc, 32> completions;
    int count = 0;
    while (established_ && rpma_cq_get_wc(queue_.get(), 32, completions.data(), &count) == 0) {
        for (const ibv_wc &completion : std::span{completions}.first(static_cast<std::size_t>(count))) {
            take(completion);
        }
    }
    return !over_;
}

// Takes a word of the other end, and uses only its credits and windows.
void RawPeer::take(const ibv_wc &completion) {
    if (completion.status != IBV_WC_SUCCESS) {
        return;
    }
    if ((completion.opcode & IBV_WC_RECV) == 0) {
        --unsent_;
        return;
    }
    const std::size_t at = words_at() + completion.wr_id * most_inline;
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, memory_base_ + at, sizeof(bytes));
    const stream::Word word = stream::decode_word(bytes);
    (void)rpma_recv(conn_.get(), memory_.get(), at, most_inline,
                    reinterpret_cast<const void *>(completion.wr_id));
    if (word.op == static_cast<std::uint8_t>(stream::Op::Window)) {
        require(allowance_->extend(static_cast<std::uint16_t>(word.value)));
        stream::KeyedMemory window;
        while (granted_->take(list(), window) == stream::WindowList::Taken::Window) {
            require(allowance_->open(window));
        }
    } else if (word.op == static_cast<std::uint8_t>(stream::Op::Data)) {
        require(ring_.arrived(word.value));
        ring_.consume(word.value);
    }
}

rpma_op &RawPeer::add(rpma_op_type type, std::span<const std::byte> bytes) {
    bytes_.emplace_back(bytes.begin(), bytes.end());
    rpma_op op{};
    op.type = type;
    op.flags = RPMA_F_COMPLETION_ALWAYS;
    return ops_.emplace_back(op);
}

void RawPeer::word(std::uint32_t word) {
    (void)add(RPMA_OP_SEND, std::as_bytes(std::span{&word, 1}));
    ++words_;
}

void RawPeer::message(std::size_t bytes) {
    (void)add(RPMA_OP_SEND, std::vector<std::byte>(bytes));
    ++words_;
}

void RawPeer::write(std::uint64_t address, std::uint32_t key, std::span<const std::byte> bytes) {
    rpma_op &op = add(RPMA_OP_WRITE, bytes);
    op.remote_addr = address;
    op.remote_key = key;
}

void RawPeer::window(const stream::KeyedMemory &window) {
    write(theirs_.list.address + std::uint64_t{their_window_} * stream::window_bytes, theirs_.list.key,
          encode_window(window, std::endian::native));
    their_window_ = (their_window_ + 1) % stream::windows;
}

void RawPeer::data(std::size_t most) {
    const std::uint32_t bytes =
        std::min<std::uint32_t>({allowance_->room(), static_cast<std::uint32_t>(most), most_inline});
    if (bytes == 0) {
        return;
    }
    std::vector<std::byte> content(bytes);
    for (std::byte &byte : content) {
        byte = pattern(sent_++);
    }
    const stream::KeyedMemory to = allowance_->take(bytes);
    write(to.address, to.key, content);
    word(stream::Op::Data, bytes);
}

void RawPeer::update() {
    if (!ring_.owes_update()) {
        return;
    }
    const auto update = ring_.update();
    limit_ = update.limit;
    if (update.window) {
        stream::KeyedMemory given = window_of_ours();
        given.address += update.window->offset;
        window(given);
    }
    word(stream::Op::Window, update.limit);
}

void RawPeer::send() {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
        ops_[i].bytes = bytes_[i].data();
        ops_[i].len = bytes_[i].size();
    }
    std::size_t posted = 0;
    if (!ops_.empty() && rpma_post(conn_.get(), ops_.data(), ops_.size(), &posted) != 0) {
        over_ = true;
    }
    unsent_ += posted;
    ops_.clear();
    bytes_.clear();
}

rpma_peer *device() {
    static rpma_peer *const peer = [] {
        ibv_context *context = nullptr;
        rpma_peer *made = nullptr;
        require(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context) == 0 &&
                rpma_peer_new(context, &made) == 0);
        return made;
    }();
    return peer;
}

Ends connect_ends(RawPeer::Side side, int receive_bytes) {
    sockaddr_in address = test::loopback(0);
    socklen_t length = sizeof(address);
    auto *const name = reinterpret_cast<sockaddr *>(&address);
    const bool asks = side == RawPeer::Side::Asks;
    Ends ends;
    const base::Fd plain{socket(AF_INET, SOCK_STREAM, 0)};
    const int stream = rsocket(AF_INET, SOCK_STREAM | (asks ? 0 : SOCK_NONBLOCK), 0);
    require(rsetsockopt(stream, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes)) == 0);
    if (asks) {
        require(rbind(stream, name, length) == 0 && rlisten(stream, 1) == 0 &&
                rgetsockname(stream, name, &length) == 0);
        ends.peer = base::Fd{socket(AF_INET, SOCK_STREAM, 0)};
        require(connect(ends.peer.get(), name, length) == 0);
        ends.stream = raccept(stream, nullptr, nullptr);
        require(rfcntl(ends.stream, F_SETFL, O_NONBLOCK) == 0 && rclose(stream) == 0);
    } else {
        require(bind(plain.get(), name, length) == 0 && listen(plain.get(), 1) == 0 &&
                getsockname(plain.get(), name, &length) == 0);
        require(rconnect(stream, name, length) != 0 && errno == EINPROGRESS);
        ends.stream = stream;
        ends.peer = base::Fd{accept(plain.get(), nullptr, nullptr)};
    }
    require(fcntl(ends.peer.get(), F_SETFL, O_NONBLOCK) == 0);
    return ends;
}

}  // namespace test
