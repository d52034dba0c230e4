// SPDX-License-Identifier: BSD-3-Clause
// many CONNECTIONS: as many connections in one process, with processes of their own at the other ends, one
// polled completion queue and one event channel for all. Fails unless each works in both directions, costs
// one descriptor, no thread, and at most 16 KiB of this process's memory, and all of it is given back; prints
// the connection rate and what an operation costs at one connection and at all. More than the limit of open
// files allows are scaled down, and it says so.
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <vector>

#include "verbs/provider.hpp"

namespace {

constexpr const verbs::Provider &device = verbs::soft;

constexpr std::size_t peers = 4;
constexpr std::size_t connecting_at_once = 128;  // a peer's
constexpr std::uint32_t queue_depth = 16;
constexpr std::size_t most_bytes_a_connection = std::size_t{16} * 1024;
constexpr std::size_t descriptors_aside = 64;
constexpr std::uint64_t mark = 0x5ca1'ab1e'0000'0000;

[[noreturn]] void die(const char *what) {
    std::fprintf(stderr, "many: %s (errno: %s)\n", what, std::strerror(errno));
    std::_Exit(EXIT_FAILURE);
}

void expect(bool right, const char *what) {
    if (!right) {
        die(what);
    }
}

// Where the other side writes to: the private data of a connection.
struct Slot {
    std::uint64_t address;
    std::uint32_t rkey;
    std::uint32_t index;
};

// One side of many connections. Slot i of its memory is written by the other side of connection i.
struct Side {
    explicit Side(std::size_t most) : slots(most), inbox(most) {
        expect(events != nullptr, "event channel");
        connections.reserve(most);
    }

    void create_objects(ibv_context *verbs) {
        pd = device.alloc_pd(verbs);
        channel = device.create_comp_channel(verbs);
        cq = device.create_cq(verbs, static_cast<int>(3 * slots.size() + 3 * queue_depth), nullptr, channel,
                              0);
        constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        slots_mr = device.reg_mr(pd, slots.data(), slots.size() * sizeof(slots[0]), access);
        inbox_mr = device.reg_mr(pd, inbox.data(), inbox.size() * sizeof(inbox[0]), access);
        expect(slots_mr != nullptr && inbox_mr != nullptr && cq != nullptr, "objects");
    }

    // Receives one message of 8 bytes into inbox[index].
    void create_queue_pair(rdma_cm_id *id, std::size_t index) {
        if (pd == nullptr) {
            create_objects(id->verbs);
        }
        ibv_qp_init_attr_ex attributes{};
        attributes.send_cq = attributes.recv_cq = cq;
        attributes.cap = {.max_send_wr = queue_depth,
                          .max_recv_wr = queue_depth,
                          .max_send_sge = 1,
                          .max_recv_sge = 1,
                          .max_inline_data = 8};
        attributes.qp_type = IBV_QPT_RC;
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
        attributes.pd = pd;
        expect(device.create_qp_ex(id, &attributes) == 0, "queue pair");
        ibv_sge into{.addr = reinterpret_cast<std::uintptr_t>(&inbox[index]),
                     .length = sizeof(inbox[index]),
                     .lkey = inbox_mr->lkey};
        ibv_recv_wr receive{};
        ibv_recv_wr *bad = nullptr;
        receive.wr_id = index;
        receive.sg_list = &into;
        receive.num_sge = 1;
        expect(ibv_post_recv(id->qp, &receive, &bad) == 0, "posting a receive");
        id->context = reinterpret_cast<void *>(index);  // NOLINT(performance-no-int-to-ptr)
    }

    // What the other side is told. Depth one is enough.
    rdma_conn_param parameters(std::size_t index, Slot &slot) const {
        slot = {.address = reinterpret_cast<std::uintptr_t>(&slots[index]),
                .rkey = slots_mr->rkey,
                .index = static_cast<std::uint32_t>(index)};
        rdma_conn_param given{};
        given.private_data = &slot;
        given.private_data_len = sizeof(slot);
        given.responder_resources = given.initiator_depth = queue_depth;
        return given;
    }

    void post(std::size_t index, ibv_wr_opcode opcode, unsigned flags, std::uint64_t *local) {
        ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(local),
                    .length = sizeof(*local),
                    .lkey = inbox_mr->lkey};
        ibv_send_wr request{};
        ibv_send_wr *bad = nullptr;
        request.opcode = opcode;
        request.send_flags = flags;
        request.sg_list = &sge;
        request.num_sge = 1;
        request.wr.rdma.remote_addr = there[index].address;
        request.wr.rdma.rkey = there[index].rkey;
        expect(ibv_post_send(connections[index]->qp, &request, &bad) == 0, "posting a request");
    }

    // Tells the other side which connection this is, twice: by a write and by a message.
    void greet(std::size_t index) {
        std::uint64_t word = mark + there[index].index;
        post(index, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, &word);
        post(index, IBV_WR_SEND, IBV_SEND_INLINE | IBV_SEND_SIGNALED, &word);
    }

    // Polls in a loop, or sleeps in between, until as many completions of either kind are seen.
    void take(std::size_t sends, std::size_t receives, bool sleeps) {
        std::array<ibv_wc, 32> completions;
        bool asked = false;
        while (sends != 0 || receives != 0) {
            const int count = ibv_poll_cq(cq, completions.size(), completions.data());
            for (int i = 0; i < count; ++i) {
                const ibv_wc &one = completions[static_cast<std::size_t>(i)];
                expect(one.status == IBV_WC_SUCCESS, ibv_wc_status_str(one.status));
                std::size_t &kind = (one.opcode & IBV_WC_RECV) != 0 ? receives : sends;
                expect(kind-- != 0, "a completion more than was asked for");
            }
            if (count != 0 || !sleeps) {
                continue;
            }
            if (!asked) {
                asked = ibv_req_notify_cq(cq, 0) == 0;
                continue;
            }
            ibv_cq *of = nullptr;
            void *context = nullptr;
            expect(device.get_cq_event(channel, &of, &context) == 0, "waiting for a completion");
            device.ack_cq_events(of, 1);
            asked = false;
        }
    }

    void expect_greeted() const {
        for (std::size_t i = 0; i < connections.size(); ++i) {
            expect(slots[i] == mark + i, "a write went elsewhere");
            expect(inbox[i] == mark + i, "a message went elsewhere");
        }
    }

    void destroy() {
        for (rdma_cm_id *const id : connections) {
            device.destroy_qp(id);
            (void)device.destroy_id(id);
        }
        connections.clear();
        (void)device.dereg_mr(slots_mr);
        (void)device.dereg_mr(inbox_mr);
        expect(device.destroy_cq(cq) == 0, "destroying the completion queue");
        (void)device.destroy_comp_channel(channel);
        expect(device.dealloc_pd(pd) == 0, "destroying the protection domain");
        device.destroy_event_channel(events);
    }

    rdma_event_channel *events = device.create_event_channel();
    ibv_pd *pd = nullptr;
    ibv_comp_channel *channel = nullptr;
    ibv_cq *cq = nullptr;
    ibv_mr *slots_mr = nullptr;
    ibv_mr *inbox_mr = nullptr;
    std::vector<std::uint64_t> slots;
    std::vector<std::uint64_t> inbox;
    std::vector<rdma_cm_id *> connections;
    std::vector<Slot> there = std::vector<Slot>(slots.size());
};

// The next event of the connection manager, acknowledged.
rdma_cm_event next_event(const Side &side, Slot *told = nullptr) {
    rdma_cm_event *event = nullptr;
    expect(device.get_cm_event(side.events, &event) == 0, "waiting for an event");
    const rdma_cm_event seen = *event;
    if (told != nullptr && seen.param.conn.private_data != nullptr) {
        std::memcpy(told, seen.param.conn.private_data, sizeof(*told));
    }
    (void)device.ack_cm_event(event);
    return seen;
}

void expect_event(const Side &side, rdma_cm_event_type type) {
    const rdma_cm_event seen = next_event(side);
    if (seen.event != type) {
        std::fprintf(stderr, "%s with status %d instead of %s: ", device.event_str(seen.event), seen.status,
                     device.event_str(type));
        die("connection manager");
    }
}

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
    expect(device.create_id(side.events, &id, nullptr, RDMA_PS_TCP) == 0 &&
               device.resolve_addr(id, reinterpret_cast<sockaddr *>(&from), reinterpret_cast<sockaddr *>(&to),
                                   1000) == 0,
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
                expect(device.resolve_route(seen.id, 1000) == 0, "resolving a route");
            } else if (seen.event == RDMA_CM_EVENT_ROUTE_RESOLVED) {
                expect(device.connect(seen.id, &parameters) == 0, "connecting");
            } else {
                expect(seen.event == RDMA_CM_EVENT_ESTABLISHED, device.event_str(seen.event));
                side.there[index] = told;
                ++established;
                --under_way;
                break;
            }
        }
    }
}

// Greets, is greeted, serves what is asked of its memory meanwhile, and leaves when the other side does.
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

// ---- the process that is looked at ----

std::size_t entries(const char *folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{folder}, {}));
}

// What malloc has given out; a sanitizer's tells nothing.
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
            expect(device.accept(seen.id, &parameters) == 0, "accepting");
        } else {
            expect(seen.event == RDMA_CM_EVENT_ESTABLISHED, device.event_str(seen.event));
            ++established;
        }
    }
}

// ---- what an operation costs ----

// Seconds from begin to end of one, without the waiting: for the post, and the poll that finds the
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

// The other side has done what came before, and sleeps again: else the cost of waking it is what is measured.
void settle(Side &side, std::size_t index) {
    side.post(index, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &side.inbox[index]);
    side.take(1, 0, false);
}

double median(std::vector<double> &values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

// The median of 9 pairs: as many operations on one connection as, one each, on all in turn.
void print_cost(Side &side, ibv_wr_opcode opcode, const char *name) {
    const std::size_t all = side.connections.size();
    std::vector<double> on_one(all);
    std::vector<double> in_turn(all);
    std::vector<double> ratios(9);
    for (std::size_t sample = 0; sample < ratios.size(); ++sample) {
        for (std::size_t i = 0; i < all; ++i) {
            on_one[i] = seconds_of(side, sample % all, opcode);
            settle(side, sample % all);
        }
        for (std::size_t i = 0; i < all; ++i) {
            in_turn[i] = seconds_of(side, i, opcode);
            settle(side, i);
        }
        ratios[sample] = median(in_turn) / median(on_one);
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
    expect(now.descriptors - before.descriptors == count, "not one descriptor a connection");
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

void run(const std::array<int, 2> &ports, std::size_t count) {
    Side side{count};
    rdma_cm_id *listener = nullptr;
    sockaddr_in anywhere{};
    anywhere.sin_family = AF_INET;
    expect(device.create_id(side.events, &listener, nullptr, RDMA_PS_TCP) == 0 &&
               device.bind_addr(listener, reinterpret_cast<sockaddr *>(&anywhere)) == 0 &&
               device.listen(listener, static_cast<int>(peers * connecting_at_once)) == 0,
           "listening");
    const std::uint16_t port = ntohs(listener->route.addr.src_sin.sin_port);
    // The objects that are there once are made before the look.
    int devices_found = 0;
    ibv_device **const list = softrdma_ibv_get_device_list(&devices_found);
    for (int i = 0; i < devices_found; ++i) {
        if (std::strcmp(softrdma_ibv_get_device_name(list[i]), "soft_lo") == 0) {
            side.create_objects(softrdma_ibv_open_device(list[i]));
        }
    }
    softrdma_ibv_free_device_list(list);
    expect(side.pd != nullptr, "finding the loopback's device");
    const Footprint before;
    for (std::size_t i = 0; i < peers; ++i) {
        expect(write(ports[1], &port, sizeof(port)) == sizeof(port), "telling the port");
    }
    const auto start = std::chrono::steady_clock::now();
    const double cpu_start = cpu_seconds();
    accept_all(side, count);
    const double seconds = seconds_since(start);
    std::printf("%.0f connections a second (%.0f us of processor each here)\n",
                static_cast<double>(count) / seconds,
                1e6 * (cpu_seconds() - cpu_start) / static_cast<double>(count));
    side.take(0, count, true);
    side.expect_greeted();
    print_cost(side, IBV_WR_RDMA_WRITE, "write");
    print_cost(side, IBV_WR_RDMA_READ, "read");
    expect_small(before, count);
    for (std::size_t i = 0; i < count; ++i) {
        side.greet(i);
    }
    side.take(count, 0, true);
    const auto ending = std::chrono::steady_clock::now();
    for (rdma_cm_id *const id : side.connections) {
        expect(device.disconnect(id) == 0, "disconnecting");
    }
    for (std::size_t i = 0; i < count; ++i) {
        expect_event(side, RDMA_CM_EVENT_DISCONNECTED);
    }
    (void)device.destroy_id(listener);
    side.destroy();
    std::printf("%.0f ends a second\n", static_cast<double>(count) / seconds_since(ending));
}

}  // namespace

int main(int argc, char **argv) {
    const std::size_t wanted = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
    if (wanted < peers) {
        std::fprintf(stderr, "usage: %s CONNECTIONS (%zu or more)\n", argv[0], peers);
        return 2;
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const std::size_t each = allowed_by_open_files(wanted) / peers;
    std::array<int, 2> ports{};
    expect(pipe(ports.data()) == 0, "pipe");
    std::array<pid_t, peers> pids{};
    for (std::size_t i = 0; i < peers; ++i) {
        pids[i] = fork();
        expect(pids[i] >= 0, "fork");
        if (pids[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(ports[1]);
            std::uint16_t port = 0;
            expect(read(ports[0], &port, sizeof(port)) == sizeof(port), "reading the port");
            run_peer(i, each, port);
            return 0;
        }
    }
    run(ports, each * peers);
    for (const pid_t pid : pids) {
        int status = 0;
        expect(waitpid(pid, &status, 0) == pid && status == 0, "a peer failed");
    }
    return 0;
}
