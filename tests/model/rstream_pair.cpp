// SPDX-License-Identifier: BSD-3-Clause
#include "rstream_pair.hpp"

#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace model {

// ---- what all pairs share ----

StreamFabric::~StreamFabric() {
    forget_request();
    for (fid *const object :
         {pep_ != nullptr ? &pep_->fid : nullptr, eq_ != nullptr ? &eq_->fid : nullptr,
          domain_ != nullptr ? &domain_->fid : nullptr, fabric_ != nullptr ? &fabric_->fid : nullptr}) {
        if (object != nullptr && fi_close(object) != 0) {
            std::abort();
        }
    }
    fi_freeinfo(info_);
}

std::string StreamFabric::open() {
    fi_info *const hints = fi_allocinfo();
    hints->ep_attr->type = FI_EP_SOCK_STREAM;
    hints->fabric_attr->prov_name = strdup("rstream");
    const int found = fi_getinfo(FI_VERSION(1, 17), host_, "0", FI_SOURCE, hints, &info_);
    fi_freeinfo(hints);
    fi_eq_attr queue{};
    queue.wait_obj = FI_WAIT_FD;
    std::size_t size = sizeof(address_);
    return found == 0 && fi_fabric(info_->fabric_attr, &fabric_, nullptr) == 0 &&
                   fi_domain(fabric_, info_, &domain_, nullptr) == 0 &&
                   fi_eq_open(fabric_, &queue, &eq_, nullptr) == 0 &&
                   fi_passive_ep(fabric_, info_, &pep_, nullptr) == 0 &&
                   fi_pep_bind(pep_, &eq_->fid, 0) == 0 && fi_listen(pep_) == 0 &&
                   fi_getname(&pep_->fid, &address_, &size) == 0
               ? ""
               : "no listener";
}

std::uint16_t StreamFabric::port() const {
    return reinterpret_cast<const sockaddr_in &>(address_).sin_port;
}

void StreamFabric::set_port(std::uint16_t port) {
    reinterpret_cast<sockaddr_in &>(address_).sin_port = port;
}

fid_ep *StreamFabric::make_endpoint(fi_info *request) {
    fid_ep *made = nullptr;
    if (fi_endpoint(domain_, request != nullptr ? request : info_, &made, nullptr) != 0) {
        return nullptr;
    }
    told_[&made->fid] = {};
    return fi_ep_bind(made, &eq_->fid, 0) == 0 && fi_enable(made) == 0 ? made : nullptr;
}

void StreamFabric::close(fid_ep *endpoint) {
    told_.erase(&endpoint->fid);
    if (fi_close(&endpoint->fid) != 0) {
        std::abort();
    }
}

void StreamFabric::forget_request() {
    fi_freeinfo(std::exchange(request_, nullptr));
}

std::string StreamFabric::read_one() {
    std::uint32_t event = 0;
    fi_eq_cm_entry entry{};
    const ssize_t got = fi_eq_sread(eq_, &event, &entry, sizeof(entry), 1000, 0);
    if (got == -FI_EAGAIN) {
        return "";
    }
    fi_eq_err_entry error{};
    if (got == -FI_EAVAIL && fi_eq_readerr(eq_, &error, 0) == sizeof(error)) {
        return std::string{"a connection fails: "} + fi_strerror(error.err);
    }
    if (got != sizeof(entry)) {
        return "fi_eq_sread gives " + std::to_string(got);
    }
    if (event == FI_CONNREQ) {
        request_ = entry.info;
        return "";
    }
    const auto known = told_.find(entry.fid);
    if (known == told_.end()) {
        return "an event of an endpoint that is closed";
    }
    Told &told = known->second;
    (event == FI_CONNECTED ? told.connected : told.ends) += 1;
    return told.connected == 1 && told.ends <= 1 ? ""
                                                 : "an endpoint is told an event twice, or its end first";
}

// ---- one end ----

std::string StreamEnd::begin(fid_ep *endpoint) {
    close();
    endpoint_ = endpoint;
    waiting_ = static_cast<Waiting>(dice_.below(3));
    fd_ = -1;
    for (const int name : {FI_OPT_SEND_BUF_SIZE, FI_OPT_RECV_BUF_SIZE}) {
        const auto bytes = static_cast<std::uint32_t>(1 + dice_.below(200'000));
        if (dice_.one_in(2) && fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, name, &bytes, sizeof(bytes)) != 0) {
            return "fi_setopt of a size in bytes";
        }
    }
    for (const int name : {FI_OPT_TX_SIZE, FI_OPT_RX_SIZE}) {
        const auto messages = static_cast<std::uint16_t>(1 + dice_.below(500));
        if (dice_.one_in(2) &&
            fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, name, &messages, sizeof(messages)) != 0) {
            return "fi_setopt of a number of messages";
        }
    }
    return waiting_ == Waiting::Spins || fi_control(&endpoint->fid, FI_GETWAIT, &fd_) == 0 ? ""
                                                                                           : "FI_GETWAIT";
}

void StreamEnd::close() {
    if (endpoint_ != nullptr) {
        fabric_.close(std::exchange(endpoint_, nullptr));
    }
}

std::vector<iovec> StreamEnd::parts_of(std::span<std::byte> bytes) {
    std::vector<iovec> parts;
    for (std::size_t left = dice_.below(4); left != 0; --left) {
        const std::size_t size = dice_.below(bytes.size() + 1);
        parts.push_back({.iov_base = bytes.data(), .iov_len = size});
        bytes = bytes.subspan(size);
    }
    parts.push_back({.iov_base = bytes.data(), .iov_len = bytes.size()});
    return parts;
}

ssize_t StreamEnd::send(std::span<std::byte> bytes) {
    if (dice_.one_in(2)) {
        return fi_send(endpoint_, bytes.data(), bytes.size(), nullptr, 0, nullptr);
    }
    const std::vector<iovec> parts = parts_of(bytes);
    const fi_msg message{parts.data(), nullptr, parts.size(), 0, nullptr, 0};
    return dice_.one_in(2) ? fi_sendv(endpoint_, parts.data(), nullptr, parts.size(), 0, nullptr)
                           : fi_sendmsg(endpoint_, &message, 0);
}

ssize_t StreamEnd::receive(std::span<std::byte> bytes) {
    if (dice_.one_in(2)) {
        return fi_recv(endpoint_, bytes.data(), bytes.size(), nullptr, 0, nullptr);
    }
    const std::vector<iovec> parts = parts_of(bytes);
    const fi_msg message{parts.data(), nullptr, parts.size(), 0, nullptr, 0};
    return dice_.one_in(2) ? fi_recvv(endpoint_, parts.data(), nullptr, parts.size(), 0, nullptr)
                           : fi_recvmsg(endpoint_, &message, 0);
}

bool StreamEnd::may_send() {
    return fi_sendmsg(endpoint_, nullptr, FI_PEEK) != -FI_EAGAIN;
}

bool StreamEnd::may_receive() {
    return fi_recvmsg(endpoint_, nullptr, FI_PEEK) != -FI_EAGAIN;
}

std::string StreamEnd::poll_once() const {
    pollfd descriptor{.fd = fd_, .events = POLLIN, .revents = 0};
    const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(stream_patience);
    return ::poll(&descriptor, 1, static_cast<int>(patience.count())) == 1 ? "" : "the descriptor is silent";
}

std::string StreamEnd::wait() {
    if (waiting_ == Waiting::Spins) {
        return "";
    }
    if (waiting_ == Waiting::Tries) {
        fid *object = &endpoint_->fid;
        const int tried = fi_trywait(fabric_.fabric(), &object, 1);
        if (tried != 0) {
            return tried != -FI_EAGAIN           ? "fi_trywait gives " + std::to_string(tried)
                   : may_receive() || may_send() ? ""
                                                 : "fi_trywait tells of news, and there are none";
        }
    }
    return poll_once();
}

// ---- a pair ----

std::string StreamPair::wrong(int end, const char *call, ssize_t result) {
    return std::string{call} + " at end " + std::to_string(end) + " gives " + std::to_string(result);
}

std::string StreamPair::renew() {
    for (Side &one : sides_) {
        one.end = std::make_unique<StreamEnd>(fabric_, dice_);
        one.sent.begin(dice_.any());
        one.writes = true;
        one.has_read_end = false;
    }
    StreamEnd &client = *sides_[0].end;
    StreamEnd &server = *sides_[1].end;
    fid_ep *made = fabric_.make_endpoint(nullptr);
    if (made == nullptr) {
        return "no endpoint";
    }
    if (std::string begun = client.begin(made); !begun.empty()) {
        return begun;
    }
    if (fi_connect(made, fabric_.address(), nullptr, 0) != 0) {
        return "fi_connect";
    }
    if (std::string asked = fabric_.read_until([this] { return fabric_.request() != nullptr; });
        !asked.empty()) {
        return asked;
    }
    made = fabric_.make_endpoint(fabric_.request());
    fabric_.forget_request();
    if (made == nullptr) {
        return "no endpoint for a request";
    }
    if (std::string begun = server.begin(made); !begun.empty()) {
        return begun;
    }
    if (fi_accept(made, nullptr, 0) != 0) {
        return "fi_accept";
    }
    is_open_ = true;
    return fabric_.read_until([&] {
        return fabric_.told(client.endpoint()).connected == 1 &&
               fabric_.told(server.endpoint()).connected == 1;
    });
}

std::string StreamPair::send(int end, bool must) {
    Side &from = side(end);
    const std::span bytes = std::span{room_}.first(std::max(dice_.size(), std::size_t{must}));
    from.sent.next(bytes);
    const ssize_t put = from.end->send(bytes);
    if (put >= 0) {
        from.sent.send(static_cast<std::size_t>(put));
    }
    const bool is_right = !from.writes        ? put == -FI_ESHUTDOWN
                          : put == -FI_EAGAIN ? !must && !bytes.empty()
                                              : put >= 0 && static_cast<std::size_t>(put) <= bytes.size() &&
                                                    (put != 0 || bytes.empty());
    return is_right ? "" : wrong(end, "a send", put);
}

std::string StreamPair::receive(int end, bool must) {
    Side &to = side(end);
    Side &from = side(1 - end);
    const std::span bytes = std::span{room_}.first(std::max(dice_.size(), std::size_t{1}));
    const ssize_t got = to.end->receive(bytes);
    if (got > 0) {
        const bool are_next =
            !to.has_read_end && from.sent.are_next(bytes.first(static_cast<std::size_t>(got)));
        from.sent.receive(static_cast<std::size_t>(got));
        return are_next ? "" : wrong(end, "a receive of wrong bytes", got);
    }
    if (got == 0) {
        to.has_read_end = true;
        return !from.writes && from.sent.on_their_way() == 0 ? "" : wrong(end, "an early end", got);
    }
    return got == -FI_EAGAIN && !must && !to.has_read_end ? "" : wrong(end, "a receive", got);
}

std::string StreamPair::peek(int end) {
    if (side(end).end->may_receive()) {
        return receive(end, true);
    }
    return side(end).end->may_send() ? send(end, true) : "";
}

std::string StreamPair::end_writing(int end) {
    side(end).writes = false;
    return fi_shutdown(side(end).end->endpoint(), 0) == 0 ? "" : "fi_shutdown";
}

bool StreamPair::has_all(int end) {
    const Side &from = side(1 - end);
    return from.sent.on_their_way() == 0 && (from.writes || side(end).has_read_end);
}

std::string StreamPair::receive_all(int end) {
    const auto patience = std::chrono::steady_clock::now() + stream_patience;
    while (!has_all(end)) {
        const std::uint64_t before = side(1 - end).sent.received();
        if (std::string got = receive(end); !got.empty()) {
            return got;
        }
        if (side(1 - end).sent.received() == before && !has_all(end)) {
            if (std::string waited = side(end).end->wait(); !waited.empty()) {
                return waited;
            }
        }
        if (std::chrono::steady_clock::now() > patience) {
            return "bytes do not arrive at end " + std::to_string(end);
        }
    }
    return "";
}

std::string StreamPair::settle() {
    std::string first = receive_all(0);
    return first.empty() ? receive_all(1) : first;
}

std::string StreamPair::close_one(int end) {
    side(end).end->close();
    side(end).writes = false;
    is_open_ = false;
    std::string all = receive_all(1 - end);
    const fid_ep *const left = side(1 - end).end->endpoint();
    if (all.empty()) {
        all = fabric_.read_until([&] { return fabric_.told(left).ends == 1; });
    }
    side(1 - end).end->close();
    return all;
}

}  // namespace model
