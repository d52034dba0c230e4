// SPDX-License-Identifier: BSD-3-Clause
// conformance: two connected ends in one process, over any device a provider has. The tests run the same on each; where devices
// differ by their class (is_soft, native operations) a test says so.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "verbs/provider.hpp"

namespace conformance {

// What the suite runs on: set by main() from its arguments.
struct Subject {
    const verbs::Provider *provider = nullptr;
    std::string address;
    bool is_soft = false;
};
extern Subject subject;

struct Sizes {
    std::uint32_t send_wr = 16;
    std::uint32_t receive_wr = 16;
    int cqe = 64;
    std::uint32_t max_inline = 64;
    std::uint32_t sge = 1;
    std::uint8_t depth = 16;  // reads and flushes at once
    bool separate_cqs = false;
};

// One end: its own protection domain, completion queue(s), buffer.
struct End {
    rdma_event_channel *events = nullptr;
    rdma_cm_id *id = nullptr;
    ibv_pd *pd = nullptr;
    ibv_comp_channel *channel = nullptr;
    ibv_cq *cq = nullptr;
    ibv_cq *receive_cq = nullptr;  // the same as cq unless Sizes::separate_cqs
    std::vector<std::byte> memory;
    ibv_mr *mr = nullptr;

    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const { return reinterpret_cast<std::uintptr_t>(memory.data()) + offset; }
};

// Two ends. Every function asserts (cmocka) that what it does succeeds.
class Ends {
public:
    static constexpr std::size_t memory_bytes = 1 << 20;

    // Listens, and resolves the client's id up to connect.
    explicit Ends(const Sizes &sizes = {});
    ~Ends();
    Ends(const Ends &) = delete;
    Ends &operator=(const Ends &) = delete;

    void connect(const std::string &client_data = {}, const std::string &server_data = {});
    // The parts of connect().
    void request(const std::string &client_data);
    void take_request();
    void accept(const std::string &server_data);

    End client;
    End server;
    std::string client_data_seen;
    std::string server_data_seen;

private:
    void create_objects(End &end);
    void register_memory(End &end);
    void destroy(End &end);

    Sizes sizes_;
    rdma_event_channel *listen_events_ = nullptr;
    rdma_cm_id *listener_ = nullptr;
};

// The event, which must be of this type; its private data. Waits for it.
std::string expect_event(rdma_event_channel *events, rdma_cm_event_type type, rdma_cm_id **id = nullptr, int *status = nullptr);

// One send request.
struct Request {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    std::uint64_t wr_id = 1;
    std::vector<ibv_sge> sges;
    unsigned flags = IBV_SEND_SIGNALED;
    std::uint64_t remote_address = 0;
    std::uint32_t rkey = 0;
    std::uint32_t immediate = 0;
};
[[nodiscard]] int post(const End &end, const std::vector<Request> &requests);
[[nodiscard]] int post_receive(const End &end, std::uint64_t wr_id, const std::vector<ibv_sge> &sges);
[[nodiscard]] ibv_sge sge(const End &end, std::size_t offset, std::size_t length);

// The next completion, polled for; asserts that it comes within 20 s.
[[nodiscard]] ibv_wc next_completion(ibv_cq *cq);
void expect_completion(ibv_cq *cq, std::uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS);

// Request builders: `from` writes to, reads from, flushes the other end's memory.
Request write_request(const End &from, const End &to, std::size_t offset, std::size_t length, std::uint64_t wr_id = 1);
Request read_request(const End &from, const End &to, std::size_t offset, std::size_t length, std::uint64_t wr_id = 1);
Request flush_request(const End &to, std::size_t offset, std::size_t length, std::uint32_t level, std::uint64_t wr_id = 1);
Request send_request(const End &from, std::size_t offset, std::size_t length, std::uint64_t wr_id = 1);

}  // namespace conformance
