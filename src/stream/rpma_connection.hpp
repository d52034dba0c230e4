// SPDX-License-Identifier: BSD-3-Clause
// stream/rpma_connection: the connection of librpma under a stream, from its request on, and the stream's
// place in its shard.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <span>

#include "registry/record.hpp"
#include "stream/owned.hpp"
#include "stream/settings.hpp"
#include "stream/shard.hpp"

namespace stream {

// The lock of the shard guards it.
class RpmaConnection {
public:
    // Makes the request of librpma.
    using MakeRequest = std::move_only_function<base::Result<Request>(rpma_conn_cfg *)>;

    // completions: how many of this stream there may be at once.
    RpmaConnection(Shard &shard, std::uint32_t completions) : shard_{shard}, completions_{completions} {}
    ~RpmaConnection() = default;
    RpmaConnection(const RpmaConnection &) = delete;
    RpmaConnection &operator=(const RpmaConnection &) = delete;
    // Ends the request or the connection, and gives the place in the shard back. disconnects: it tells the
    // peer first.
    void end(bool disconnects);

    // Makes the request, whose events go to the member.
    [[nodiscard]] base::Result<void> ask(Member &member, const Settings &settings, MakeRequest make_request);
    // Returns whether there is a request, and no connection yet.
    [[nodiscard]] bool asks() const { return request_ != nullptr; }
    // Takes the request further. Returns whether the peer can be connected to. A failure ends the request.
    [[nodiscard]] base::Result<bool> proceed();
    // Returns the private data of the peer's request.
    [[nodiscard]] rpma_conn_private_data request_data() const;
    void drop_request() { request_.reset(); }
    // Posts the receives, and connects. The member takes the completions. reaches: a failure of the provider
    // means that no program listens there. Any failure ends the request.
    [[nodiscard]] base::Result<void> connect(Member &member, std::span<const rpma_recv_op> receives,
                                             std::span<const std::byte> hello, bool reaches);

    // Returns whether there is a connection.
    explicit operator bool() const { return conn_ != nullptr; }
    [[nodiscard]] const Connected &conn() const { return conn_; }
    // Returns the private data of the peer's answer.
    [[nodiscard]] rpma_conn_private_data answer_data() const;
    // Returns why the connection has ended, as an errno value, and 0 when there is no reason.
    [[nodiscard]] int error() const;
    [[nodiscard]] registry::Link link() const;
    void disconnect() { (void)rpma_conn_disconnect(conn_.get()); }
    // Has the device end the connection by itself when what is posted has left. Returns false when it cannot.
    [[nodiscard]] bool drain() { return rpma_conn_drain(conn_.get()) == 0; }
    // The addresses of both ends, over a device of the kernel.
    [[nodiscard]] base::Result<sockaddr_storage> local_name() const;
    [[nodiscard]] base::Result<sockaddr_storage> peer_name() const;

    // Returns whether the shard looks for an event of this stream.
    void expect_event(bool expected);

private:
    Shard &shard_;
    const std::uint32_t completions_;
    Shard::Lane *lane_ = nullptr;
    std::uint32_t number_ = 0;  // the queue pair's, of conn_
    bool expects_event_ = false;
    Request request_;
    Connected conn_;
};

}  // namespace stream
