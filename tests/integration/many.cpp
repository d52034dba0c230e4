// SPDX-License-Identifier: BSD-3-Clause
// many CONNECTIONS [KIB]: one process has this many connections, with one polled completion queue and one
// event channel for all; the other ends are processes of their own. Fails unless each works in both
// directions, costs one descriptor, no thread, and at most KIB (16) of this process's memory, and all of it
// is given back; prints the connection rate, and what an operation costs beside what it costs in a process
// that has one connection and never had another. When the limit of open files does not allow so many, it
// takes fewer and says so.
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "many_side.hpp"

namespace {

using namespace many;

constexpr std::size_t peers = 4;
constexpr std::size_t connecting_at_once = 128;  // a peer's
std::size_t most_bytes_a_connection = std::size_t{16} * 1024;
constexpr std::size_t descriptors_aside = 64;

sockaddr_in loopback(std::size_t host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + static_cast<std::uint32_t>(host));
    address.sin_port = htons(port);
    return address;
}

// ---- the other ends ----

// Each peer has an address of its own, so that local ports suffice.
void begin_connection(Side &side, std::size_t number, std::uint16_t port) {
    rdma_cm_id *id = nullptr;
    sockaddr_in from = loopback(number + 1, 0);
    sockaddr_in to = loopback(number + 1, port);
    expect(device.cm.create_id(side.events, &id, nullptr, RDMA_PS_TCP) == 0 &&
               device.cm.resolve_addr(id, reinterpret_cast<sockaddr *>(&from),
                                      reinterpret_cast<sockaddr *>(&to), 1000) == 0,
           "resolving an address");
    side.connections.push_back(id);
    side.create_queue_pair(id, side.connections.size() - 1);
}

void connect_all(Side &side, std::size_t number, std::size_t count, std::uint16_t port) {
    std::size_t under_way = 0;
    for (std::size_t established = 0; established < count;) {
        if (side.connections.size() < count && under_way < connecting_at_once) {
            begin_connection(side, number, port);
            ++under_way;
        }
        while (under_way == connecting_at_once || side.connections.size() == count) {
            Slot told{};
            const rdma_cm_event seen = next_event(side, &told);
            const auto index = reinterpret_cast<std::size_t>(seen.id->context);
            Slot mine{};
            rdma_conn_param parameters = side.parameters(index, mine);
            if (seen.event == RDMA_CM_EVENT_ADDR_RESOLVED) {
                expect(device.cm.resolve_route(seen.id, 1000) == 0, "resolving a route");
            } else if (seen.event == RDMA_CM_EVENT_ROUTE_RESOLVED) {
                expect(device.cm.connect(seen.id, &parameters) == 0, "connecting");
            } else {
                expect(seen.event == RDMA_CM_EVENT_ESTABLISHED, device.cm.event_str(seen.event));
                side.there[index] = told;
                ++established;
                --under_way;
                break;
            }
        }
    }
}

// Greets, is greeted, serves the accesses to its memory meanwhile, and ends when the other side does.
void run_peer(std::size_t number, std::size_t count, std::uint16_t port) {
    Side side{count};
    connect_all(side, number, count, port);
    for (std::size_t i = 0; i < count; ++i) {
        side.greet(i);
    }
    side.take(count, count, true);
    side.expect_greeted();
    for (std::size_t i = 0; i < count; ++i) {
        expect_event(side, RDMA_CM_EVENT_DISCONNECTED);
    }
    side.destroy();
}

// ---- the process that is measured ----

std::size_t entries(const char *folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{folder}, {}));
}

// Returns the bytes that malloc has given out. The malloc of a sanitizer does not count them.
std::size_t bytes_in_use() {
    const struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

double cpu_seconds() {
    timespec now{};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void accept_all(Side &side, std::size_t count) {
    for (std::size_t established = 0; established < count;) {
        Slot told{};
        const rdma_cm_event seen = next_event(side, &told);
        if (seen.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            const std::size_t index = side.connections.size();
            side.connections.push_back(seen.id);
            side.there[index] = told;
            side.create_queue_pair(seen.id, index);
            Slot mine{};
            rdma_conn_param parameters = side.parameters(index, mine);
            expect(device.cm.accept(seen.id, &parameters) == 0, "accepting");
        } else {
            expect(seen.event == RDMA_CM_EVENT_ESTABLISHED, device.cm.event_str(seen.event));
            ++established;
        }
    }
}

// ---- the cost of an operation ----

// Returns the seconds that one operation takes without the wait: in the post, and in the poll that finds the
// completion.
double seconds_of(Side &side, std::size_t index, ibv_wr_opcode opcode) {
    using Clock = std::chrono::steady_clock;
    const bool reads = opcode == IBV_WR_RDMA_READ;
    std::uint64_t word = mark + side.there[index].index;
    const auto posting = Clock::now();
    side.post(index, opcode, IBV_SEND_SIGNALED | (reads ? 0U : unsigned{IBV_SEND_INLINE}),
              reads ? &side.inbox[index] : &word);
    auto polling = Clock::now();
    const auto posted = polling - posting;
    ibv_wc completion{};
    while (ibv_poll_cq(side.cq, 1, &completion) == 0) {
        polling = Clock::now();
    }
    const auto polled = Clock::now() - polling;
    expect(completion.status == IBV_WC_SUCCESS, ibv_wc_status_str(completion.status));
    expect(!reads || side.inbox[index] == word, "a read brought something else");
    return std::chrono::duration<double>(posted + polled).count();
}

// Waits until the other side has finished the work before and sleeps again: else the cost of waking it is
// measured.
void settle(Side &side, std::size_t index) {
    side.post(index, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &side.inbox[index]);
    side.take(1, 0, false);
}

double median(std::vector<double> &values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

// Returns the median seconds of so many operations, on all connections in turn.
double median_seconds(Side &side, ibv_wr_opcode opcode, std::size_t operations) {
    std::vector<double> seconds(operations);
    for (std::size_t i = 0; i < operations; ++i) {
        const std::size_t index = i % side.connections.size();
        seconds[i] = seconds_of(side, index, opcode);
        settle(side, index);
    }
    return median(seconds);
}

// The request to the process with one connection, which answers with median_seconds.
struct Measurement {
    ibv_wr_opcode opcode;
    std::size_t operations;
};
struct Single {
    pid_t pid = -1;
    int measurements = -1;
    int answers = -1;
};

double median_seconds(const Single &single, const Measurement &measurement) {
    double answer = 0;
    expect(write(single.measurements, &measurement, sizeof(measurement)) == sizeof(measurement) &&
               read(single.answers, &answer, sizeof(answer)) == sizeof(answer),
           "asking the process with one connection");
    return answer;
}

// Prints the median of 9 pairs. Here each connection does one operation; the process with one connection does
// as many. One measures while the other sleeps, so that both have the same conditions.
void print_cost(Side &side, const Single &single, ibv_wr_opcode opcode, const char *name) {
    const std::size_t all = side.connections.size();
    std::vector<double> on_one(9);
    std::vector<double> in_turn(9);
    std::vector<double> ratios(9);
    for (std::size_t sample = 0; sample < ratios.size(); ++sample) {
        on_one[sample] = median_seconds(single, {.opcode = opcode, .operations = all});
        in_turn[sample] = median_seconds(side, opcode, all);
        ratios[sample] = in_turn[sample] / on_one[sample];
    }
    std::printf("%s of 8 bytes: %.2f us on one connection, %.2f in turn on %zu: ratio %.2f\n", name,
                1e6 * median(on_one), 1e6 * median(in_turn), all, median(ratios));
}

struct Footprint {
    std::size_t descriptors = entries("/proc/self/fd");
    std::size_t threads = entries("/proc/self/task");
    std::size_t bytes = bytes_in_use();
};

void expect_small(const Footprint &before, std::size_t count) {
    const Footprint now;
    const std::size_t bytes = (now.bytes - before.bytes) / count;
    std::printf("%zu connections: %zu descriptors, %zu threads, %zu bytes a connection\n", count,
                now.descriptors - before.descriptors, now.threads, bytes);
    // Through memory their group has one more.
    const std::size_t more = now.descriptors - before.descriptors;
    expect(more == count || more == count + 1, "not one descriptor a connection");
    expect(now.threads <= before.threads, "threads for connections");
    if (now.bytes == 0) {
        std::printf("memory: this build's allocator does not tell\n");
    }
    expect(bytes <= most_bytes_a_connection, "too much memory for an idle connection");
}

std::size_t allowed_by_open_files(std::size_t wanted) {
    rlimit limit{};
    expect(getrlimit(RLIMIT_NOFILE, &limit) == 0, "reading the limit of open files");
    limit.rlim_cur = limit.rlim_max;
    expect(setrlimit(RLIMIT_NOFILE, &limit) == 0, "raising the limit of open files");
    if (wanted + descriptors_aside <= limit.rlim_max) {
        return wanted;
    }
    std::printf("SCALED DOWN: the limit of open files (%llu) allows fewer than %zu connections\n",
                static_cast<unsigned long long>(limit.rlim_max), wanted);
    return limit.rlim_max - descriptors_aside;
}

// Listens, with the objects that all connections share.
rdma_cm_id *listening(Side &side) {
    rdma_cm_id *listener = nullptr;
    sockaddr_in anywhere{};
    anywhere.sin_family = AF_INET;
    expect(device.cm.create_id(side.events, &listener, nullptr, RDMA_PS_TCP) == 0 &&
               device.cm.bind_addr(listener, reinterpret_cast<sockaddr *>(&anywhere)) == 0 &&
               device.cm.listen(listener, static_cast<int>(peers * connecting_at_once)) == 0,
           "listening");
    int devices_found = 0;
    ibv_context **const list = softrdma_rdma_get_devices(&devices_found);
    for (int i = 0; i < devices_found; ++i) {
        if (std::strcmp(softrdma_ibv_get_device_name(list[i]->device), "soft_lo") == 0) {
            side.create_objects(list[i]);
        }
    }
    softrdma_rdma_free_devices(list);
    expect(side.pd != nullptr, "finding the loopback's device");
    return listener;
}

void tell_port(const rdma_cm_id *listener, int ports, std::size_t listeners) {
    const std::uint16_t port = ntohs(listener->route.addr.src_sin.sin_port);
    for (std::size_t i = 0; i < listeners; ++i) {
        expect(write(ports, &port, sizeof(port)) == sizeof(port), "telling the port");
    }
}

// Greets all peers, which wait for that, and ends all connections; returns how many end in a second.
double end_all(Side &side, rdma_cm_id *listener) {
    const std::size_t count = side.connections.size();
    for (std::size_t i = 0; i < count; ++i) {
        side.greet(i);
    }
    side.take(count, 0, true);
    const auto ending = std::chrono::steady_clock::now();
    for (rdma_cm_id *const id : side.connections) {
        expect(device.cm.disconnect(id) == 0, "disconnecting");
    }
    for (std::size_t i = 0; i < count; ++i) {
        expect_event(side, RDMA_CM_EVENT_DISCONNECTED);
    }
    (void)device.cm.destroy_id(listener);
    side.destroy();
    return static_cast<double>(count) / seconds_since(ending);
}

void expect_success(pid_t pid) {
    int status = 0;
    expect(waitpid(pid, &status, 0) == pid && status == 0, "a process at the other end failed");
}

// Starts a process that connects so often to the port that it is told, and ends with its parent.
pid_t start_peer(std::size_t number, std::size_t count, const std::array<int, 2> &ports) {
    const pid_t pid = fork();
    expect(pid >= 0, "fork");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ports[1]);
        std::uint16_t port = 0;
        expect(read(ports[0], &port, sizeof(port)) == sizeof(port), "reading the port");
        run_peer(number, count, port);
        std::_Exit(EXIT_SUCCESS);
    }
    return pid;
}

// The process with one connection measures when it is told to, until its parent has ended.
void run_single(int measurements, int answers) {
    std::array<int, 2> ports{};
    expect(pipe(ports.data()) == 0, "pipe");
    const pid_t peer = start_peer(peers, 1, ports);
    Side side{1};
    rdma_cm_id *const listener = listening(side);
    tell_port(listener, ports[1], 1);
    accept_all(side, 1);
    side.take(0, 1, true);
    side.expect_greeted();
    Measurement wanted{};
    while (read(measurements, &wanted, sizeof(wanted)) == sizeof(wanted)) {
        const double answer = median_seconds(side, wanted.opcode, wanted.operations);
        expect(write(answers, &answer, sizeof(answer)) == sizeof(answer), "answering");
    }
    (void)end_all(side, listener);
    expect_success(peer);
}

Single start_single() {
    std::array<int, 2> measurements{};
    std::array<int, 2> answers{};
    expect(pipe(measurements.data()) == 0 && pipe(answers.data()) == 0, "pipe");
    const pid_t pid = fork();
    expect(pid >= 0, "fork");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(measurements[1]);
        close(answers[0]);
        run_single(measurements[0], answers[1]);
        std::_Exit(EXIT_SUCCESS);
    }
    close(measurements[0]);
    close(answers[1]);
    return {.pid = pid, .measurements = measurements[1], .answers = answers[0]};
}

void run(int ports, std::size_t count, const Single &single) {
    Side side{count};
    rdma_cm_id *const listener = listening(side);
    const Footprint before;
    tell_port(listener, ports, peers);
    const auto start = std::chrono::steady_clock::now();
    const double cpu_start = cpu_seconds();
    accept_all(side, count);
    const double seconds = seconds_since(start);
    std::printf("%.0f connections a second (%.0f us of processor each here)\n",
                static_cast<double>(count) / seconds,
                1e6 * (cpu_seconds() - cpu_start) / static_cast<double>(count));
    side.take(0, count, true);
    side.expect_greeted();
    print_cost(side, single, IBV_WR_RDMA_WRITE, "write");
    print_cost(side, single, IBV_WR_RDMA_READ, "read");
    expect_small(before, count);
    std::printf("%.0f ends a second\n", end_all(side, listener));
}

}  // namespace

int main(int argc, char **argv) {
    const std::size_t wanted = argc >= 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
    if (wanted < peers || argc > 3) {
        std::fprintf(stderr, "usage: %s CONNECTIONS (%zu or more) [KIB]\n", argv[0], peers);
        return 2;
    }
    if (argc == 3) {
        most_bytes_a_connection = std::strtoull(argv[2], nullptr, 10) * 1024;
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const std::size_t each = allowed_by_open_files(wanted) / peers;
    std::array<int, 2> ports{};
    expect(pipe(ports.data()) == 0, "pipe");
    std::array<pid_t, peers> pids{};
    for (std::size_t i = 0; i < peers; ++i) {
        pids[i] = start_peer(i, each, ports);
    }
    const Single single = start_single();
    run(ports[1], each * peers, single);
    close(single.measurements);
    expect_success(single.pid);
    for (const pid_t pid : pids) {
        expect_success(pid);
    }
    return 0;
}
