// SPDX-License-Identifier: BSD-3-Clause
// The target `connection` attacks this device. The device has a listener on 127.0.0.1 in this process, its
// memory, and one connection at a time, which it accepts or makes itself. It lives as long as the process. A
// call that fails here, and not because of the peer, is a broken invariant.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "softrdma.h"

namespace fuzz {

// The regions have room between them that is not registered. Peers may change the first region and the last
// two. Durable is a file, on storage where the current folder is, so a flush there parks the connection.
enum class Area { Open, LocalOnly, ReadOnly, Foreign, Spare, Durable };
constexpr std::size_t areas = 6;

// This is how the program treats a request.
struct Acceptance {
    bool reject = false;
    unsigned receives = 0;
};

class FuzzDevice {
public:
    static constexpr std::size_t open_bytes = 64 * 1024;
    static constexpr std::size_t small_bytes = 4096;
    static constexpr std::size_t margin_bytes = 4096;
    static constexpr std::uint8_t depth = 4;  // the limit of outstanding reads and flushes

    static FuzzDevice &instance();
    // Returns whether RPMA_FUZZ_TLS asks for TLS.
    [[nodiscard]] static bool uses_tls();

    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] std::uint32_t key(Area area) const;
    // Returns the key that the spare area had before its last registration.
    [[nodiscard]] std::uint32_t stale_key() const { return stale_key_; }
    [[nodiscard]] std::uint64_t address(Area area) const;
    [[nodiscard]] static std::size_t size(Area area) { return area == Area::Open ? open_bytes : small_bytes; }

    // Has the program treat the request of the peer at this port like this from here on. The program drops
    // any other request, whose peer has gone.
    void expect(std::uint16_t peer_port, const Acceptance &acceptance) {
        peer_port_ = peer_port;
        acceptance_ = acceptance;
    }
    // Asks 127.0.0.1:port for a connection, as initiator.
    void connect(std::uint16_t port, unsigned receives);
    // Does what a program does that polls: takes events and completions, and answers a request.
    void turn();
    // Returns whether the program has answered a request since expect().
    [[nodiscard]] bool answered() const { return answered_; }

    // A program may call these at any time. They do nothing without a connection.
    void post_receive(std::size_t bytes);
    void post(unsigned kind, std::size_t bytes);
    void disconnect();
    void register_spare_again();

    // Destroys the objects of the connection. Then requires that each byte
    // that no peer may change is as it was.
    void close();
    void check_memory() const;

private:
    FuzzDevice();
    void answer(rdma_cm_id *id);
    void create_queue_pair(rdma_cm_id *id, unsigned receives);
    [[nodiscard]] ibv_mr *register_area(Area area);
    [[nodiscard]] std::byte *bytes(Area area) const;

    std::uint16_t port_ = 0;
    rdma_event_channel *events_ = nullptr;
    rdma_cm_id *listener_ = nullptr;
    ibv_pd *pd_ = nullptr;
    ibv_pd *other_pd_ = nullptr;
    ibv_cq *cq_ = nullptr;
    std::span<std::byte> memory_;
    std::array<ibv_mr *, areas> regions_{};
    std::uint32_t stale_key_ = 0;
    std::uint16_t peer_port_ = 0;
    Acceptance acceptance_;
    bool answered_ = false;
    rdma_cm_id *id_ = nullptr;
    std::size_t reads_ = 0;  // the posted reads; each has a place of its own
};

}  // namespace fuzz
