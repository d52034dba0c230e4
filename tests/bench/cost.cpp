// SPDX-License-Identifier: BSD-3-Clause
// This measures the cost of librpma over the verbs that it calls, in instructions: cost.sh runs it under
// callgrind, which counts in measured_ functions only. bench_cost librpma|verbs|peer OPERATIONS: so many
// 8-byte writes, each with its completion, on one connection over the soft device, through librpma or posted
// to its queue pair. With `peer` they are posted too, and go to the shared memory of another process. Only
// the thread that posts and polls is counted, and not the engine's, which receives. With `burst` 128 are
// posted, and then all their completions polled; with `arrival` the thread counts that polls the target's
// queue meanwhile until they are placed.
//
// bench_cost flush OPERATIONS FOLDER prints the seconds of a write of 4 KiB and its persistent flush, for
// which the thread sleeps in rpma_cq_wait(). They go to a file in FOLDER that another process offers.
#include <dlfcn.h>
#include <fcntl.h>
#include <librpma.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "bench.hpp"
#include "librpma/conn.hpp"
#include "librpma/cq.hpp"
#include "librpma/mr_local.hpp"
#include "librpma/mr_remote.hpp"

namespace {

// Valgrind knows no restartable sequences (rseq(2)), without which the device maps no memory of another
// process. So below Valgrind each thread has an area that looks as if the C library had registered it. No
// memory is withdrawn as long as the instructions are counted.
thread_local rseq area{};

bool is_below_valgrind() {
    const char *const preloads = std::getenv("LD_PRELOAD");
    return preloads != nullptr && std::string_view{preloads}.contains("/vgpreload_");
}

template <typename Value>
Value of_library(const char *name) {
    const void *const found = dlvsym(RTLD_NEXT, name, "GLIBC_2.35");
    return found != nullptr ? *static_cast<const Value *>(found) : Value{};
}

}  // namespace

// The device finds these before those of the C library.
// NOLINTBEGIN(bugprone-reserved-identifier)
[[gnu::visibility("default")]] extern const std::ptrdiff_t __rseq_offset =
    is_below_valgrind() ? reinterpret_cast<char *>(&area) - static_cast<char *>(__builtin_thread_pointer())
                        : of_library<std::ptrdiff_t>("__rseq_offset");
[[gnu::visibility("default")]] extern const unsigned __rseq_size =
    is_below_valgrind() ? sizeof(area) : of_library<unsigned>("__rseq_size");
// NOLINTEND(bugprone-reserved-identifier)

namespace {

[[noreturn]] void die(const char *what) {
    std::fprintf(stderr, "bench_cost: %s failed\n", what);
    std::exit(1);
}

void require(int result, const char *what) {
    if (result != 0) {
        die(what);
    }
}
#define REQUIRE(call) require(call, #call)

struct Ends {
    rpma_peer *peer = nullptr;
    rpma_ep *ep = nullptr;
    rpma_conn *client = nullptr;
    rpma_conn *server = nullptr;
    rpma_mr_local *local = nullptr;
    rpma_mr_remote *remote = nullptr;
    rpma_cq *cq = nullptr;
};

constexpr std::uint32_t in_a_burst = 128;
constexpr std::size_t memory_bytes = 4096;
constexpr std::size_t descriptor_bytes = 21;
alignas(4096) char memory[memory_bytes];

void await_established(rpma_conn *conn) {
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    if (rpma_conn_next_event(conn, &event) != 0 || event != RPMA_CONN_ESTABLISHED) {
        die("connecting");
    }
}

void open_peer(Ends &ends) {
    ibv_context *context = nullptr;
    REQUIRE(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    REQUIRE(rpma_peer_new(context, &ends.peer));
}

std::uint16_t listen(Ends &ends) {
    const rpma_ep_cfg *const defaults = nullptr;
    sockaddr_storage address{};
    REQUIRE(rpma_ep_listen_cfg(ends.peer, "127.0.0.1", "0", defaults, &ends.ep));
    REQUIRE(rpma_ep_get_local_addr(ends.ep, &address));
    return ntohs(reinterpret_cast<sockaddr_in &>(address).sin_port);
}

// Begins to connect to the port, which an end in this process may still have to accept.
void begin_connect(Ends &ends, std::uint16_t number) {
    char port[6];
    rpma_conn_req *request = nullptr;
    rpma_conn_cfg *cfg = nullptr;
    std::snprintf(port, sizeof(port), "%u", unsigned{number});
    REQUIRE(rpma_conn_cfg_new(&cfg));
    REQUIRE(rpma_conn_cfg_set_sq_size(cfg, in_a_burst));
    REQUIRE(rpma_conn_cfg_set_cq_size(cfg, in_a_burst));
    REQUIRE(rpma_conn_req_new(ends.peer, "127.0.0.1", port, cfg, &request));
    REQUIRE(rpma_conn_cfg_delete(&cfg));
    REQUIRE(rpma_conn_req_connect(&request, nullptr, &ends.client));
    REQUIRE(rpma_conn_get_cq(ends.client, &ends.cq));
}

void accept(Ends &ends, const rpma_conn_private_data *data) {
    rpma_conn_req *request = nullptr;
    REQUIRE(rpma_ep_next_conn_req(ends.ep, nullptr, &request));
    REQUIRE(rpma_conn_req_connect(&request, data, &ends.server));
}

void register_memory(Ends &ends, char *begin, int usage) {
    REQUIRE(rpma_mr_reg(ends.peer, begin, memory_bytes, usage, &ends.local));
}

Ends connect() {
    Ends ends;
    open_peer(ends);
    begin_connect(ends, listen(ends));
    accept(ends, nullptr);
    await_established(ends.client);
    await_established(ends.server);
    register_memory(ends, memory, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST);
    char descriptor[descriptor_bytes];
    REQUIRE(rpma_mr_get_descriptor(ends.local, descriptor));
    REQUIRE(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &ends.remote));
    return ends;
}

void end(Ends &ends) {
    if (ends.client != nullptr) {
        REQUIRE(rpma_conn_delete(&ends.client));
    }
    if (ends.server != nullptr) {
        REQUIRE(rpma_conn_delete(&ends.server));
        REQUIRE(rpma_ep_shutdown(&ends.ep));
    }
    if (ends.remote != nullptr) {
        REQUIRE(rpma_mr_remote_delete(&ends.remote));
    }
    REQUIRE(rpma_mr_dereg(&ends.local));
    REQUIRE(rpma_peer_delete(&ends.peer));
}

// Is the other process: it offers the memory until the connection ends.
void serve(char *shared, int usage, const std::function<void(std::uint16_t)> &listening) {
    Ends ends;
    open_peer(ends);
    listening(listen(ends));
    register_memory(ends, shared, usage);
    char descriptor[descriptor_bytes];
    REQUIRE(rpma_mr_get_descriptor(ends.local, descriptor));
    const rpma_conn_private_data data{.ptr = descriptor, .len = sizeof(descriptor)};
    accept(ends, &data);
    await_established(ends.server);
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    REQUIRE(rpma_conn_next_event(ends.server, &event));
    end(ends);
}

Ends connect_to(std::uint16_t port) {
    Ends ends;
    open_peer(ends);
    begin_connect(ends, port);
    await_established(ends.client);
    register_memory(ends, memory, RPMA_MR_USAGE_WRITE_SRC);
    rpma_conn_private_data data{};
    REQUIRE(rpma_conn_get_private_data(ends.client, &data));
    REQUIRE(rpma_mr_remote_from_descriptor(data.ptr, data.len, &ends.remote));
    return ends;
}

[[gnu::always_inline]] inline void write_by_librpma(const Ends &ends) {
    ibv_wc completion;
    REQUIRE(rpma_write(ends.client, ends.remote, 64, ends.local, 0, 8, RPMA_F_COMPLETION_ALWAYS, nullptr));
    while (rpma_cq_get_wc(ends.cq, 1, &completion, nullptr) != 0) {
    }
}

// Posts as a program does that knows verbs. It may not rely on requests that are all equal.
[[gnu::always_inline]] inline void post_write(ibv_qp *qp, const ibv_sge &source,
                                              const verbs::Remote &target) {
    ibv_sge part = source;
    ibv_send_wr request;
    request.wr_id = 0;
    request.next = nullptr;
    request.sg_list = &part;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = target.address;
    request.wr.rdma.rkey = target.rkey;
    ibv_send_wr *refused = nullptr;
    REQUIRE(ibv_post_send(qp, &request, &refused));
}

// Posts writes of `last` to one place.
[[gnu::always_inline]] inline void post_burst(const Ends &ends, std::uint64_t last) {
    ibv_qp *const qp = ends.client->qp();
    const ibv_sge source = ends.local->part(0, 8);
    const verbs::Remote target = ends.remote->at(64);
    std::memcpy(memory, &last, sizeof(last));
    for (std::uint64_t i = 0; i < in_a_burst; ++i) {
        post_write(qp, source, target);
    }
}

[[gnu::always_inline]] inline void poll_burst(const Ends &ends) {
    ibv_cq *const cq = ends.cq->get();
    ibv_wc completions[16];
    for (std::uint64_t polled = 0; polled < in_a_burst;) {
        const int count = ibv_poll_cq(cq, 16, completions);
        REQUIRE(count < 0);
        polled += static_cast<std::uint64_t>(count);
    }
}

// Returns how often this process has mapped the memory with this name.
int mappings_of(const char *name) {
    std::ifstream maps{"/proc/self/maps"};
    int count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += line.find(name) != std::string::npos ? 1 : 0;
    }
    return count;
}

void write_and_flush(const Ends &ends) {
    ibv_wc completion;
    REQUIRE(rpma_write(ends.client, ends.remote, 0, ends.local, 0, memory_bytes, RPMA_F_COMPLETION_ON_ERROR,
                       nullptr));
    REQUIRE(rpma_flush(ends.client, ends.remote, 0, memory_bytes, RPMA_FLUSH_TYPE_PERSISTENT,
                       RPMA_F_COMPLETION_ALWAYS, nullptr));
    while (rpma_cq_get_wc(ends.cq, 1, &completion, nullptr) != 0) {
        REQUIRE(rpma_cq_wait(ends.cq));
    }
    REQUIRE(completion.status);
}

void allow_flush(const Ends &ends) {
    rpma_peer_cfg *server = nullptr;
    REQUIRE(rpma_peer_cfg_new(&server));
    REQUIRE(rpma_peer_cfg_set_direct_write_to_pmem(server, true));
    REQUIRE(rpma_conn_apply_remote_peer_cfg(ends.client, server));
    REQUIRE(rpma_peer_cfg_delete(&server));
}

char *shared_mapping(int file) {
    REQUIRE(file < 0);
    REQUIRE(ftruncate(file, memory_bytes));
    void *const shared = mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(shared == MAP_FAILED);
    return static_cast<char *>(shared);
}

// Writes until the device has mapped the other process's memory.
void write_until_mapped(const Ends &ends, const char *name) {
    const int before = mappings_of(name);
    for (int writes = 0; mappings_of(name) == before; ++writes) {
        if (writes == 100'000) {
            die("mapping the memory of the other process");
        }
        write_by_librpma(ends);
    }
}

}  // namespace

extern "C" {

[[gnu::noinline]] void measured_librpma(const Ends &ends, long operations) {
    for (long i = 0; i < operations; ++i) {
        write_by_librpma(ends);
    }
}

[[gnu::noinline]] void measured_verbs(const Ends &ends, long operations) {
    ibv_qp *const qp = ends.client->qp();
    ibv_cq *const cq = ends.cq->get();
    const ibv_sge source = ends.local->part(0, 8);
    const verbs::Remote target = ends.remote->at(64);
    ibv_wc completion;
    for (long i = 0; i < operations; ++i) {
        post_write(qp, source, target);
        while (ibv_poll_cq(cq, 1, &completion) == 0) {
        }
    }
}

[[gnu::noinline]] void measured_burst(const Ends &ends) {
    post_burst(ends, 1);
    poll_burst(ends);
}

[[gnu::noinline]] void measured_arrival(ibv_cq *cq, std::uint64_t last) {
    ibv_wc completion;
    std::uint64_t placed = 0;
    do {
        REQUIRE(ibv_poll_cq(cq, 1, &completion));
        std::memcpy(&placed, memory + 64, sizeof(placed));
    } while (placed != last);
}
}

namespace {

void measure_bursts(const Ends &ends, long operations) {
    for (long done = 0; done < operations; done += in_a_burst) {
        measured_burst(ends);
    }
}

// The thread spins on the target's queue before, so that the engine leaves that alone.
void measure_arrival(const Ends &ends, long operations) {
    rpma_cq *server = nullptr;
    ibv_wc completion;
    REQUIRE(rpma_conn_get_cq(ends.server, &server));
    for (std::uint64_t last = 1; operations > 0; operations -= in_a_burst) {
        for (int looks = 0; looks < 100; ++looks) {
            REQUIRE(ibv_poll_cq(server->get(), 1, &completion));
        }
        post_burst(ends, ++last);
        poll_burst(ends);
        measured_arrival(server->get(), last);
    }
}

void measure_peer(long operations) {
    const char *const name = "target_of_bench_cost";
    char *const shared = shared_mapping(memfd_create(name, MFD_CLOEXEC));
    const bench::PeerProcess peer{
        [&](const auto &listening) { serve(shared, RPMA_MR_USAGE_WRITE_DST, listening); }};
    Ends ends = connect_to(peer.port());
    write_until_mapped(ends, name);
    measured_verbs(ends, operations);
    end(ends);
}

void measure_flush(long operations, const std::string &folder) {
    constexpr long rounds_until_mapped = 32;
    std::string name = folder + "/flush-XXXXXX";
    char *const shared = shared_mapping(mkostemp(name.data(), O_CLOEXEC));
    const bench::PeerProcess peer{[&](const auto &listening) {
        serve(shared, RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, listening);
    }};
    Ends ends = connect_to(peer.port());
    allow_flush(ends);
    for (long i = 0; i < rounds_until_mapped; ++i) {
        write_and_flush(ends);
    }
    const auto begin = std::chrono::steady_clock::now();
    for (long i = 0; i < operations; ++i) {
        write_and_flush(ends);
    }
    std::printf("%.9f\n", bench::seconds_since(begin) / static_cast<double>(operations));
    end(ends);
    REQUIRE(unlink(name.c_str()));
}

}  // namespace

int main(int argc, char **argv) {
    const std::string_view way = argc >= 3 ? argv[1] : "";
    const long operations = argc >= 3 ? std::atol(argv[2]) : 0;
    const bool is_known =
        way == "librpma" || way == "verbs" || way == "peer" || way == "burst" || way == "arrival";
    if (operations <= 0 || !((is_known && argc == 3) || (way == "flush" && argc == 4))) {
        std::fprintf(stderr,
                     "usage: %s librpma|verbs|peer|burst|arrival OPERATIONS | flush OPERATIONS FOLDER\n",
                     argv[0]);
        return 2;
    }
    if (way == "peer") {
        measure_peer(operations);
        return 0;
    }
    if (way == "flush") {
        measure_flush(operations, argv[3]);
        return 0;
    }
    Ends ends = connect();
    (way == "librpma"   ? measured_librpma
     : way == "burst"   ? measure_bursts
     : way == "arrival" ? measure_arrival
                        : measured_verbs)(ends, operations);
    end(ends);
    return 0;
}
