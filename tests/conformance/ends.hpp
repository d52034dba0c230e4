// SPDX-License-Identifier: BSD-3-Clause
// conformance/ends: the two ends of a connection, over any device a provider has. Every function asserts
// (cmocka) that what it does succeeds, unless it says what it returns.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "fixture.hpp"

namespace conformance {

// How long anything may take that has to happen: a bound, not an expectation.
inline constexpr std::chrono::seconds patience{60};
inline constexpr int patience_ms = 60'000;

// Reading and writing, local and remote.
inline constexpr int full_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Sizes {
    std::uint32_t send_wr = 16;
    std::uint32_t receive_wr = 16;
    std::uint32_t shared_receive_wr = 0;  // more: a shared receive queue, and none of its own
    int cqe = 64;
    std::uint32_t max_inline = 64;
    std::uint32_t sge = 1;
    std::uint8_t depth = 16;  // reads and flushes at once
    bool separate_cqs = false;
    bool signal_all = false;
    bool extended_cq = false;           // the completion queue is an ibv_cq_ex
    std::uint64_t send_operations = 0;  // IBV_QP_EX_WITH_ bits: requests are prepared one by one
    std::size_t memory_bytes = 1 << 20;
};

// An event of the connection manager, fetched and acknowledged.
struct CmEvent {
    rdma_cm_event_type type;
    rdma_cm_id *id;
    rdma_cm_id *listen_id;
    int status;
    std::string data;
};
// Waits for the next one. Asserts its type; prints what came instead.
CmEvent expect_event(rdma_event_channel *events, rdma_cm_event_type type);
// The next one, whatever it is.
CmEvent next_event(rdma_event_channel *events);
// Whether an event is there now.
bool has_event(int fd);
void make_non_blocking(int fd);

// One end: its own event channel, protection domain, completion queue(s), buffer, unless it borrows the verbs
// objects of another end, which then must live longer.
class End {
public:
    explicit End(const Sizes &wanted = {}, const End *lender = nullptr);
    ~End() { destroy(); }
    End(const End &) = delete;
    End &operator=(const End &) = delete;

    // As a client: an id for the port, up to connect, with its objects.
    void resolve(std::uint16_t port);
    void request(const std::string &private_data = {});
    // As a server: takes over the id of a request, with objects of its own.
    void take(rdma_cm_id *requested);
    void accept(const std::string &private_data = {});
    void create_objects();

    // Destroys the parts in the right order; those that are gone already are left out.
    void destroy_queue_pair();
    void destroy();
    // Whether the device of this end, which has an id, has shared receive queues.
    [[nodiscard]] bool can_share_receives() const;

    // Another region of this end's protection domain; deregistered with the end. May fail: nullptr and errno.
    [[nodiscard]] ibv_mr *register_memory(void *address, std::size_t length, int access);

    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
    }
    // Operations beyond RFC 5040, verbs::native_ bits; of a connected end. The suite's queue pairs do not ask
    // a kernel's device for any.
    [[nodiscard]] bool native(unsigned operation) const {
        return subject.is_soft && (provider().native_operations(id->qp) & operation) == operation;
    }
    [[nodiscard]] bool is_iwarp() const { return id->verbs->device->transport_type == IBV_TRANSPORT_IWARP; }

    Sizes sizes;
    rdma_event_channel *events = nullptr;
    rdma_cm_id *id = nullptr;
    ibv_pd *pd = nullptr;
    ibv_comp_channel *channel = nullptr;
    ibv_cq *cq = nullptr;
    ibv_srq *srq = nullptr;  // with Sizes::shared_receive_wr, or what was set before the objects are made
    ibv_cq *receive_cq = nullptr;  // the same as cq unless Sizes::separate_cqs
    std::vector<std::byte> memory;
    ibv_mr *mr = nullptr;

private:
    [[nodiscard]] ibv_cq *create_extended_cq();
    void create_shared_receive_queue();
    void create_queue_pair();

    const End *lender_;
    bool owns_srq_ = false;
    std::vector<ibv_mr *> more_regions_;
};

// An id that listens, on the subject's address unless told otherwise.
class Listener {
public:
    explicit Listener(int backlog = 64, const std::string &address = subject.address);
    ~Listener() { destroy(); }
    Listener(const Listener &) = delete;
    Listener &operator=(const Listener &) = delete;

    // The next request.
    CmEvent take_request();
    void destroy();

    rdma_event_channel *events = nullptr;
    rdma_cm_id *id = nullptr;
    std::uint16_t port = 0;
};

// Two ends in this process.
class Ends {
public:
    explicit Ends(const Sizes &sizes = {}, const std::string &listens_on = subject.address)
        : listener{64, listens_on}, client{sizes}, server{sizes} {}

    void connect(const std::string &client_data = {}, const std::string &server_data = {});
    // The parts of connect().
    void request(const std::string &client_data = {});
    void take_request();
    void accept(const std::string &server_data = {});
    void expect_established();
    // Both see the end of the connection.
    void expect_disconnected();

    Listener listener;
    End client;
    End server;
    std::string client_data_seen;
    std::string server_data_seen;
};

// Two ends that are connected, until the end of the test.
Ends &connected(const Sizes &sizes = {});

// The parameters that the ends connect and accept with. They point to the private data.
rdma_conn_param connection_parameters(const std::string &private_data, std::uint8_t depth);
rdma_conn_param connection_parameters(std::string &&private_data, std::uint8_t depth) = delete;
inline const std::string no_data;
// Begins to resolve a port of the subject's address.
void resolve_address(rdma_cm_id *id, std::uint16_t port);
// The subject's address, or another one, with this port.
sockaddr_storage subject_address(std::uint16_t port);
sockaddr_storage numeric_address(const std::string &text, std::uint16_t port);
std::uint16_t port_of(const rdma_cm_id &id);

}  // namespace conformance
