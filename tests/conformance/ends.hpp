// SPDX-License-Identifier: BSD-3-Clause
// conformance/ends: tests connect two ends over any device of a provider. Every function asserts (cmocka)
// that it succeeds, unless its comment says otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "fixture.hpp"

namespace conformance {

// A test gives up after this time. It only notices a hang, and measures nothing.
inline constexpr std::chrono::seconds patience{60};
inline constexpr int patience_ms = 60'000;

// Allows reading and writing, local and remote.
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
    ibv_qp_type type = IBV_QPT_RC;      // of ends that are connected by number
    bool extended_cq = false;           // the completion queue is an ibv_cq_ex
    std::uint64_t send_operations = 0;  // IBV_QP_EX_WITH_ bits: requests are prepared one by one
    std::size_t memory_bytes = 1 << 20;
};

// A copy of an event of the connection manager, which is acknowledged already.
struct CmEvent {
    rdma_cm_event_type type;
    rdma_cm_id *id;
    rdma_cm_id *listen_id;
    int status;
    std::string data;
};
// Waits for the next event and asserts its type. Prints the event that came when it is another one.
CmEvent expect_event(rdma_event_channel *events, rdma_cm_event_type type);
// Waits for the next event of any type.
CmEvent next_event(rdma_event_channel *events);
// Returns whether an event is there now.
bool has_event(int fd);
void make_non_blocking(int fd);

// An end has an event channel, a protection domain, one or two completion queues and a buffer. Or it borrows
// the verbs objects of another end, which then must live longer.
class End {
public:
    explicit End(const Sizes &wanted = {}, const End *lender = nullptr);
    ~End() { destroy(); }
    End(const End &) = delete;
    End &operator=(const End &) = delete;

    // Makes an id with its objects as a client, and resolves the address and the route of the port.
    void resolve(std::uint16_t port);
    void request(const std::string &private_data = {});
    // Takes over the id of a request as a server, with objects of its own.
    void take(rdma_cm_id *requested);
    void accept(const std::string &private_data = {});
    void create_objects();
    // Makes an id at the subject's address with its objects, for an end that is connected by number.
    void prepare();
    // Brings the queue pair to RTS. It is connected to the queue pair with that number at the subject's
    // address.
    void connect_to(std::uint32_t number);

    // Destroys the parts that are left, in the right order.
    void destroy_queue_pair();
    void destroy();
    // Returns whether the device of this end has shared receive queues. The end must have an id.
    [[nodiscard]] bool can_share_receives() const;

    // Registers another region in the protection domain of this end, until the end is destroyed. On failure
    // it returns nullptr and sets errno.
    [[nodiscard]] ibv_mr *register_memory(void *address, std::size_t length, int access);

    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
    }
    // Returns whether this connected end has these operations beyond RFC 5040 (verbs::native_ bits). The
    // queue pairs of the suite do not ask a device of the kernel for any.
    [[nodiscard]] bool native(unsigned operation) const {
        return subject.is_soft && (provider().native.of_queue_pair(id->qp) & operation) == operation;
    }
    // The soft device speaks iWARP also when it looks like RoCE (SOFTRDMA_ROCE).
    // Returns whether a write or send is complete when the peer has it, and is told the peer's error.
    [[nodiscard]] bool is_acknowledged() const { return !is_iwarp() || subject.by_number; }
    [[nodiscard]] bool is_iwarp() const {
        return subject.is_soft || id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
    }

    Sizes sizes;
    rdma_event_channel *events = nullptr;
    rdma_cm_id *id = nullptr;
    ibv_pd *pd = nullptr;
    ibv_comp_channel *channel = nullptr;
    ibv_cq *cq = nullptr;
    // The end has this queue with Sizes::shared_receive_wr, or when the queue was
    // set before the objects are made.
    ibv_srq *srq = nullptr;
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

// A listener is an id that listens, on the address of the subject unless the test gives another one.
class Listener {
public:
    explicit Listener(int backlog = 64, const std::string &address = subject.address);
    ~Listener() { destroy(); }
    Listener(const Listener &) = delete;
    Listener &operator=(const Listener &) = delete;

    // Waits for the next request.
    CmEvent take_request();
    void destroy();

    rdma_event_channel *events = nullptr;
    rdma_cm_id *id = nullptr;
    std::uint16_t port = 0;
};

// These bring a queue pair that is connected by number to a state, with a peer at the subject's address, and
// return what verbs returns.
int enter_init(ibv_qp *qp);
int enter_rtr(ibv_qp *qp, std::uint32_t peer, std::uint8_t depth = 16);
int enter_rts(ibv_qp *qp, std::uint8_t depth = 16, std::uint8_t timeout = 14);
// Returns the index of the subject's address among the GIDs of a device.
std::uint8_t gid_index(ibv_context *context);

// Both ends are in this process.
class Ends {
public:
    explicit Ends(const Sizes &sizes = {}, const std::string &listens_on = subject.address)
        : listener{64, listens_on}, client{sizes}, server{sizes} {}

    void connect(const std::string &client_data = {}, const std::string &server_data = {});
    // connect() consists of these steps.
    void request(const std::string &client_data = {});
    void take_request();
    void accept(const std::string &server_data = {});
    void expect_established();
    // Asserts that both ends see the end of the connection. By number there is no event to see.
    void expect_disconnected();
    // Ends the connection at the client, and asserts the same.
    void disconnect();

    Listener listener;
    End client;
    End server;
    std::string client_data_seen;
    std::string server_data_seen;
};

// Returns two connected ends, which live until the end of the test.
Ends &connected(const Sizes &sizes = {});

// Returns the parameters for connecting and accepting. They point to the private data.
rdma_conn_param connection_parameters(const std::string &private_data, std::uint8_t depth);
rdma_conn_param connection_parameters(std::string &&private_data, std::uint8_t depth) = delete;
inline const std::string no_data;
// Begins to resolve a port of the subject's address.
void resolve_address(rdma_cm_id *id, std::uint16_t port);
// These return the address of the subject, or another one, with this port.
sockaddr_storage subject_address(std::uint16_t port);
sockaddr_storage numeric_address(const std::string &text, std::uint16_t port);
std::uint16_t port_of(const rdma_cm_id &id);

}  // namespace conformance
