// SPDX-License-Identifier: BSD-3-Clause
// bench_engines INITIATORS OPERATIONS BYTES DEPTH: so many processes write to one, which sleeps; each has a
// connection and a completion queue there, and DEPTH writes of BYTES open. It prints, for engines.sh:
// the operations a second of all; the nanoseconds of processor time for one operation, at the initiators
// and in the target's engines; the target's process; and the share of each engine's thread, in percent.
#include <librpma.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench.hpp"

namespace {

#define REQUIRE(call)          \
    do {                       \
        if ((call) != 0) {     \
            bench::die(#call); \
        }                      \
    } while (false)

struct Asked {
    std::size_t initiators;
    std::size_t operations;
    std::size_t bytes;
    std::uint32_t depth;
};

// All processes share it.
struct Meeting {
    std::atomic<std::uint32_t> target{0};
    std::atomic<std::size_t> ready{0};
    std::atomic<bool> begun{false};
    std::atomic<std::size_t> done{0};
    std::atomic<std::uint64_t> busy_ns{0};  // of the initiators
    std::atomic<bool> over{false};
};

template <typename Condition>
void until(Condition condition) {
    while (!condition()) {
        usleep(1000);  // it takes no processor from what is measured
    }
}

rpma_peer *open_peer() {
    ibv_context *context = nullptr;
    rpma_peer *peer = nullptr;
    REQUIRE(rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    REQUIRE(rpma_peer_new(context, &peer));
    return peer;
}

char *memory_of(std::size_t bytes) {
    auto *const memory = static_cast<char *>(std::calloc(1, bytes));
    REQUIRE(memory == nullptr);
    return memory;
}

rpma_mr_local *registered(rpma_peer *peer, std::size_t bytes, int usage) {
    rpma_mr_local *mr = nullptr;
    REQUIRE(rpma_mr_reg(peer, memory_of(bytes), bytes, usage, &mr));
    return mr;
}

void await(rpma_conn *conn, rpma_conn_event expected) {
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    REQUIRE(rpma_conn_next_event(conn, &event));
    REQUIRE(event != expected);
}

void serve(const Asked &asked, Meeting &meeting, const std::function<void(std::uint16_t)> &listening) {
    rpma_peer *const peer = open_peer();
    rpma_ep *ep = nullptr;
    REQUIRE(rpma_ep_listen(peer, "127.0.0.1", "0", &ep));
    sockaddr_storage address{};
    REQUIRE(rpma_ep_get_local_addr(ep, &address));
    meeting.target = static_cast<std::uint32_t>(getpid());
    listening(ntohs(reinterpret_cast<sockaddr_in &>(address).sin_port));
    std::vector<rpma_conn *> conns(asked.initiators);
    for (rpma_conn *&conn : conns) {
        rpma_mr_local *const mr = registered(peer, asked.bytes, RPMA_MR_USAGE_WRITE_DST);
        char descriptor[64];
        std::size_t size = 0;
        REQUIRE(rpma_mr_get_descriptor_size(mr, &size));
        REQUIRE(size > sizeof(descriptor));
        REQUIRE(rpma_mr_get_descriptor(mr, descriptor));
        const rpma_conn_private_data data{.ptr = descriptor, .len = static_cast<std::uint8_t>(size)};
        rpma_conn_req *request = nullptr;
        REQUIRE(rpma_ep_next_conn_req(ep, nullptr, &request));
        REQUIRE(rpma_conn_req_connect(&request, &data, &conn));
        await(conn, RPMA_CONN_ESTABLISHED);
    }
    for (rpma_conn *const conn : conns) {
        await(conn, RPMA_CONN_CLOSED);
    }
}

std::uint64_t own_ns() {
    timespec time{};
    REQUIRE(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time));
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

void write_all(const Asked &asked, rpma_conn *conn, rpma_mr_remote *to, rpma_mr_local *from) {
    rpma_cq *cq = nullptr;
    REQUIRE(rpma_conn_get_cq(conn, &cq));
    constexpr int at_once = 16;
    ibv_wc completions[at_once];
    std::size_t posted = 0;
    for (std::size_t completed = 0; completed < asked.operations;) {
        while (posted < asked.operations && posted - completed < asked.depth) {
            REQUIRE(rpma_write(conn, to, 0, from, 0, asked.bytes, RPMA_F_COMPLETION_ALWAYS, nullptr));
            ++posted;
        }
        int taken = 0;
        const int result = rpma_cq_get_wc(cq, at_once, completions, &taken);
        REQUIRE(result != 0 && result != RPMA_E_NO_COMPLETION);
        for (int i = 0; i < taken; ++i) {
            REQUIRE(completions[i].status);
        }
        completed += static_cast<std::size_t>(taken);
    }
}

void initiate(const Asked &asked, Meeting &meeting, std::uint16_t number) {
    rpma_peer *const peer = open_peer();
    rpma_mr_local *const from = registered(peer, asked.bytes, RPMA_MR_USAGE_WRITE_SRC);
    rpma_conn_cfg *cfg = nullptr;
    REQUIRE(rpma_conn_cfg_new(&cfg));
    REQUIRE(rpma_conn_cfg_set_sq_size(cfg, asked.depth));
    REQUIRE(rpma_conn_cfg_set_cq_size(cfg, asked.depth));
    rpma_conn_req *request = nullptr;
    rpma_conn *conn = nullptr;
    REQUIRE(rpma_conn_req_new(peer, "127.0.0.1", std::to_string(number).c_str(), cfg, &request));
    REQUIRE(rpma_conn_req_connect(&request, nullptr, &conn));
    await(conn, RPMA_CONN_ESTABLISHED);
    rpma_conn_private_data data{};
    rpma_mr_remote *to = nullptr;
    REQUIRE(rpma_conn_get_private_data(conn, &data));
    REQUIRE(rpma_mr_remote_from_descriptor(data.ptr, data.len, &to));
    ++meeting.ready;
    until([&] { return meeting.begun.load(); });
    const std::uint64_t before = own_ns();
    write_all(asked, conn, to, from);
    meeting.busy_ns += own_ns() - before;
    ++meeting.done;
    until([&] { return meeting.over.load(); });
    REQUIRE(rpma_conn_disconnect(conn));
    await(conn, RPMA_CONN_CLOSED);
}

// Returns for how long each thread of the target's engines has run.
std::map<std::string, std::uint64_t> engines_ns(std::uint32_t target) {
    std::map<std::string, std::uint64_t> busy;
    for (const auto &task :
         std::filesystem::directory_iterator{"/proc/" + std::to_string(target) + "/task"}) {
        std::string name;
        std::getline(std::ifstream{task.path() / "comm"}, name);
        if (name == "softrdma") {
            std::ifstream{task.path() / "schedstat"} >> busy[task.path().filename()];
        }
    }
    return busy;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: %s INITIATORS OPERATIONS BYTES DEPTH\n", argv[0]);
        return 2;
    }
    const Asked asked{.initiators = bench::number(argv[1]),
                      .operations = bench::number(argv[2]),
                      .bytes = bench::number(argv[3]),
                      .depth = static_cast<std::uint32_t>(bench::number(argv[4]))};
    void *const shared =
        mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared == MAP_FAILED);
    auto &meeting = *new (shared) Meeting;
    (void)alarm(300);  // a process that fails keeps the others waiting
    const bench::PeerProcess target{[&](const auto &listening) { serve(asked, meeting, listening); }};
    std::vector<pid_t> initiators;
    for (std::size_t i = 0; i < asked.initiators; ++i) {
        const pid_t child = initiators.emplace_back(fork());
        REQUIRE(child < 0);
        if (child == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            initiate(asked, meeting, target.port());
            _exit(EXIT_SUCCESS);
        }
    }
    until([&] { return meeting.ready == asked.initiators; });
    const auto before = engines_ns(meeting.target);
    const auto begin = std::chrono::steady_clock::now();
    meeting.begun = true;
    until([&] { return meeting.done == asked.initiators; });
    const double seconds = bench::seconds_since(begin);
    auto busy = engines_ns(meeting.target);
    meeting.over = true;
    std::uint64_t all = 0;
    for (auto &[thread, ns] : busy) {
        if (const auto earlier = before.find(thread); earlier != before.end()) {
            ns -= earlier->second;
        }
        all += ns;
    }
    const auto operations = static_cast<double>(asked.initiators * asked.operations);
    std::printf("%.0f %.1f %.1f %u", operations / seconds, static_cast<double>(meeting.busy_ns) / operations,
                static_cast<double>(all) / operations, meeting.target.load());
    for (const auto &[thread, ns] : busy) {
        std::printf(" %.1f", 100 * static_cast<double>(ns) / static_cast<double>(all));
    }
    std::printf("\n");
    for (const pid_t child : initiators) {
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) != child || status != 0);
    }
}
