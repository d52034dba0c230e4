// SPDX-License-Identifier: BSD-3-Clause
// model/rstream_pair: two connected endpoints of libfabric's provider rstream, with an oracle of bytes and
// events.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rsocket_bytes.hpp"

namespace model {

// Nothing takes longer than this.
inline constexpr std::chrono::seconds stream_patience{60};

// A function of this file that returns a string returns "" or a text that says what is wrong.

// The events that an endpoint has had.
struct Told {
    int connected = 0;
    int ends = 0;
};

// The objects of libfabric that all pairs share: a listener, and one event queue for it and all endpoints.
class StreamFabric {
public:
    explicit StreamFabric(const char *host) : host_{host} {}
    ~StreamFabric();
    StreamFabric(const StreamFabric &) = delete;
    StreamFabric &operator=(const StreamFabric &) = delete;

    [[nodiscard]] std::string open();
    [[nodiscard]] fid_fabric *fabric() const { return fabric_; }
    [[nodiscard]] std::uint16_t port() const;
    void set_port(std::uint16_t port);
    [[nodiscard]] const void *address() const { return &address_; }
    // Makes an endpoint, for a request if there is one. Null when that fails.
    [[nodiscard]] fid_ep *make_endpoint(fi_info *request);
    void close(fid_ep *endpoint);
    [[nodiscard]] const Told &told(const fid_ep *endpoint) { return told_[&endpoint->fid]; }
    // Reads events until done() is true. A request is in request() then.
    template <typename Done>
    [[nodiscard]] std::string read_until(Done done) {
        const auto end = std::chrono::steady_clock::now() + stream_patience;
        while (!done()) {
            if (std::string wrong = read_one(); !wrong.empty()) {
                return wrong;
            }
            if (std::chrono::steady_clock::now() > end) {
                return "an event has not come";
            }
        }
        return "";
    }
    [[nodiscard]] fi_info *request() const { return request_; }
    void forget_request();

private:
    [[nodiscard]] std::string read_one();

    const char *const host_;
    fi_info *info_ = nullptr;
    fid_fabric *fabric_ = nullptr;
    fid_domain *domain_ = nullptr;
    fid_eq *eq_ = nullptr;
    fid_pep *pep_ = nullptr;
    fi_info *request_ = nullptr;
    sockaddr_storage address_{};
    std::map<const fid *, Told> told_;
};

// One endpoint, and how the program waits for it.
class StreamEnd {
public:
    // Without a descriptor; by poll(2) after -FI_EAGAIN; by poll(2) after fi_trywait.
    enum class Waiting { Spins, Polls, Tries };

    StreamEnd(StreamFabric &fabric, Dice &dice) : fabric_{fabric}, dice_{dice} {}
    ~StreamEnd() { close(); }
    StreamEnd(const StreamEnd &) = delete;
    StreamEnd &operator=(const StreamEnd &) = delete;

    // Takes the endpoint, which does not connect yet.
    [[nodiscard]] std::string begin(fid_ep *endpoint);
    void close();
    [[nodiscard]] fid_ep *endpoint() const { return endpoint_; }
    // Each moves some bytes, by one call. With `must`, the provider has promised that this gives no
    // -FI_EAGAIN.
    [[nodiscard]] ssize_t send(std::span<std::byte> bytes);
    [[nodiscard]] ssize_t receive(std::span<std::byte> bytes);
    // Returns whether a call would give something else than -FI_EAGAIN.
    [[nodiscard]] bool may_send();
    [[nodiscard]] bool may_receive();
    // Waits until a call may be of use.
    [[nodiscard]] std::string wait();

private:
    [[nodiscard]] std::vector<iovec> parts_of(std::span<std::byte> bytes);
    [[nodiscard]] std::string poll_once() const;

    StreamFabric &fabric_;
    Dice &dice_;
    fid_ep *endpoint_ = nullptr;
    Waiting waiting_ = Waiting::Spins;
    int fd_ = -1;
};

class StreamPair {
public:
    StreamPair(StreamFabric &fabric, Dice &dice) : fabric_{fabric}, dice_{dice} {}
    // Closes what is open, and connects two new ends.
    [[nodiscard]] std::string renew();
    [[nodiscard]] bool is_open() const { return is_open_; }
    [[nodiscard]] std::string send(int end, bool must = false);
    [[nodiscard]] std::string receive(int end, bool must = false);
    // Compares what peeks say with what calls do.
    [[nodiscard]] std::string peek(int end);
    [[nodiscard]] std::string end_writing(int end);
    // Receives all bytes that are on their way, and the ends, and waits for them.
    [[nodiscard]] std::string settle();
    // Closes one end. The other receives all bytes, then the end, and its event.
    [[nodiscard]] std::string close_one(int end);

private:
    struct Side {
        std::unique_ptr<StreamEnd> end;
        Bytes sent{};
        bool writes = true;
        bool has_read_end = false;  // of the other side
    };
    [[nodiscard]] Side &side(int end) { return sides_[static_cast<std::size_t>(end)]; }
    [[nodiscard]] bool has_all(int end);
    [[nodiscard]] std::string receive_all(int end);
    [[nodiscard]] static std::string wrong(int end, const char *call, ssize_t result);

    StreamFabric &fabric_;
    Dice &dice_;
    bool is_open_ = false;
    std::array<Side, 2> sides_{};
    std::vector<std::byte> room_ = std::vector<std::byte>(most_bytes);
};

}  // namespace model
