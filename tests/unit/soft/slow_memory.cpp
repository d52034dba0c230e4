// SPDX-License-Identifier: BSD-3-Clause
// A page of registered memory does not come, as when the storage behind a file does not answer: only the
// connection whose peer asked for it waits. userfaultfd(2) keeps the page back until the test brings it.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "base/fd.hpp"
#include "soft/wire/by_number.hpp"
#include "soft/wire/rdmap.hpp"

// These come last, because they assert.
#include "device.hpp"
#include "make_ready.hpp"

namespace {

using namespace soft::wire;
using test::Bytes;
using test::Device;
using test::fpdu;
using test::pattern;
using test::Peer;

constexpr std::size_t page = 4096;
constexpr int patience_ms = 40'000;

// A page of a file in memory, registered for everything that a peer may do.
class Missing {
public:
    explicit Missing(const Device &device)
        : file_{memfd_create("slow_memory", MFD_CLOEXEC)},
          watcher_{static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC))} {
        uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
        assert_int_equal(ioctl(watcher_.get(), UFFDIO_API, &api), 0);
        assert_int_equal(ftruncate(file_.get(), page), 0);
        void *const mapped = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
        assert_ptr_not_equal(mapped, MAP_FAILED);
        memory_ = static_cast<std::byte *>(mapped);
        uffdio_register watched{
            .range = {.start = address(), .len = page}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
        assert_int_equal(ioctl(watcher_.get(), UFFDIO_REGISTER, &watched), 0);
        region_ =
            softrdma_ibv_reg_mr(device.mr->pd, mapped, page,
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
        assert_non_null(region_);
    }
    ~Missing() {
        (void)softrdma_ibv_dereg_mr(region_);
        (void)munmap(memory_, page);
    }
    Missing(const Missing &) = delete;
    Missing &operator=(const Missing &) = delete;

    [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(memory_); }
    [[nodiscard]] std::uint32_t key() const { return region_->rkey; }

    // Returns when a thread waits for the page.
    void expect_waiter() const {
        pollfd told{.fd = watcher_.get(), .events = POLLIN, .revents = 0};
        assert_int_equal(::poll(&told, 1, patience_ms), 1);
        uffd_msg message{};
        assert_int_equal(read(watcher_.get(), &message, sizeof(message)), sizeof(message));
        assert_int_equal(message.event, UFFD_EVENT_PAGEFAULT);
    }
    void bring(Bytes bytes) const {
        uffdio_copy copy{.dst = address(),
                         .src = reinterpret_cast<std::uintptr_t>(bytes.data()),
                         .len = page,
                         .mode = 0,
                         .copy = 0};
        assert_int_equal(ioctl(watcher_.get(), UFFDIO_COPY, &copy), 0);
    }

private:
    base::Fd file_;
    base::Fd watcher_;
    std::byte *memory_ = nullptr;
    ibv_mr *region_ = nullptr;
};

// One connection of a completion queue of its own.
struct End {
    Device device;
    Peer peer;
    rdma_cm_id *id = device.establish(peer, test::from_a_soft_device);
    std::uint32_t reads = 0;

    void ask(std::uint32_t key, std::uint64_t address, std::uint32_t bytes) {
        peer.send(fpdu({.opcode = Opcode::ReadRequest, .msn = ++reads},
                       encode(ReadRequest{.sink_stag = 1,
                                          .sink_offset = 0,
                                          .size = bytes,
                                          .source_stag = key,
                                          .source_offset = address})));
    }
    void expect(const Bytes &bytes) {
        const auto answer = peer.receive_fpdu();
        assert_true(answer.segment.opcode == Opcode::ReadResponse);
        assert_true(answer.payload == bytes);
    }
    void write(std::uint32_t key, std::uint64_t address, const Bytes &bytes) {
        peer.send(fpdu({.opcode = Opcode::Write, .stag = key, .offset = address}, bytes));
    }
    // Writes 8 bytes, and reads them back, so many times.
    void write_and_read(unsigned times) {
        for (unsigned i = 0; i < times; ++i) {
            const Bytes bytes = pattern(8, i);
            write(device.mr->rkey, device.address(), bytes);
            ask(device.mr->rkey, device.address(), 8);
            expect(bytes);
        }
    }
};

void only_the_connection_waits_that_reads_it(void **) {
    End end;
    End other;
    const Missing memory{end.device};
    end.ask(memory.key(), memory.address(), page);
    memory.expect_waiter();
    other.write_and_read(1000);
    assert_true(end.peer.silent());
    memory.bring(pattern(page, 7));
    end.expect(pattern(page, 7));
    end.write_and_read(100);
    end.device.close(end.id);
}

// The device copies a short payload itself, and has the kernel put a long one there.
void only_the_connection_waits_that_writes_there(void **) {
    for (const std::size_t bytes : {std::size_t{8}, page}) {
        End end;
        End other;
        const Missing memory{end.device};
        end.write(memory.key(), memory.address() + page - bytes, pattern(bytes, 3));
        memory.expect_waiter();
        other.write_and_read(100);
        memory.bring(Bytes(page));
        end.ask(memory.key(), memory.address() + page - bytes, static_cast<std::uint32_t>(bytes));
        end.expect(pattern(bytes, 3));
        end.device.close(end.id);
    }
}

// A thread that polls for another queue does not touch the page either, however idle it is.
void a_thread_that_polls_another_queue_does_not_wait(void **) {
    End end;
    End other;
    const Missing memory{end.device};
    end.ask(memory.key(), memory.address(), page);
    other.device.work_until([&, polls = 0]() mutable { return ++polls == 10'000; });
    memory.expect_waiter();
    other.write_and_read(100);
    memory.bring(pattern(page, 7));
    end.expect(pattern(page, 7));
    end.device.close(end.id);
}

// To end the connection waits for the page, and holds nobody else.
void its_end_waits(void **) {
    End end;
    End other;
    const Missing memory{end.device};
    end.ask(memory.key(), memory.address(), page);
    memory.expect_waiter();
    std::thread closes{[&] { end.device.close(end.id); }};
    other.write_and_read(100);
    memory.bring(Bytes(page));
    closes.join();
    other.write_and_read(100);
}

const MpaFrame promising{
    .soft_operations = true, .peer_to_peer = true, .rtr_write = true, .ird = 4, .ord = 4};

// Another completion queue for the connections of a device that begin from now on.
class OtherQueue {
public:
    explicit OtherQueue(Device &device) : device_{device}, first_{device.cq} {
        device.cq = softrdma_ibv_create_cq(first_->context, 16, nullptr, nullptr, 0);
        assert_non_null(device.cq);
    }
    ~OtherQueue() {
        (void)softrdma_ibv_destroy_cq(device_.cq);
        device_.cq = first_;
    }
    OtherQueue(const OtherQueue &) = delete;
    OtherQueue &operator=(const OtherQueue &) = delete;

private:
    Device &device_;
    ibv_cq *const first_;
};

// Returns a connection that the device has accepted, and whose first FPDU has not come.
rdma_cm_id *accept_promising(Device &device, Peer &peer) {
    peer.connect(device.port());
    peer.send_frame(promising);
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    (void)peer.receive_frame(MpaRole::Reply);
    return id;
}

// One connection of a queue waits for the page, and another one of that queue has not begun. Requests from
// their address come all the same, and the listener does not wait each time.
void a_listener_does_not_wait(void **) {
    Device device;
    const Missing memory{device};
    Peer slow;
    Peer silent;
    Peer clients[8];
    const OtherQueue queue{device};
    rdma_cm_id *const waits = device.establish(slow, promising);
    rdma_cm_id *const begins = accept_promising(device, silent);
    slow.send(
        fpdu({.opcode = Opcode::Write, .stag = memory.key(), .offset = memory.address()}, pattern(8, 3)));
    memory.expect_waiter();
    for (Peer &client : clients) {
        client.connect(device.port());
        client.send_frame(promising);
        (void)device.wait_for(RDMA_CM_EVENT_CONNECT_REQUEST);
    }
    memory.bring(Bytes(page));
    silent.send(test::ready_to_receive());
    (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, begins);
    device.close(begins);
    device.close(waits);
}

// Its look at a connection takes the first FPDU, and not the write behind that.
void a_listener_places_no_payload(void **) {
    for (int round = 0; round < 20; ++round) {
        Device device;
        const Missing memory{device};
        Peer slow;
        Peer client;
        const OtherQueue queue{device};
        rdma_cm_id *const begins = accept_promising(device, slow);
        client.connect(device.port());
        device.work();  // so that the engine leaves the connections to this thread for a tick
        slow.send(
            test::joined(test::ready_to_receive(),
                         fpdu({.opcode = Opcode::Write, .stag = memory.key(), .offset = memory.address()},
                              pattern(8, 3))));
        client.send_frame(promising);
        (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, begins);
        (void)device.wait_for(RDMA_CM_EVENT_CONNECT_REQUEST);
        memory.expect_waiter();
        memory.bring(Bytes(page));
        device.close(begins);
    }
}

// A queue pair by number of a completion queue, whose peer listens where its number says.
class Numbered {
public:
    Numbered(const Device &device, ibv_cq *cq) : number{std::uint32_t{1} << 16 | peer.listen()} {
        ibv_qp_init_attr attributes{};
        attributes.send_cq = attributes.recv_cq = cq;
        attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 1;
        attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
        attributes.qp_type = IBV_QPT_RC;
        qp = softrdma_ibv_create_qp(device.mr->pd, &attributes);
        assert_non_null(qp);
    }
    ~Numbered() { (void)softrdma_ibv_destroy_qp(qp); }
    Numbered(const Numbered &) = delete;
    Numbered &operator=(const Numbered &) = delete;

    // Answers the request that the device made when the queue pair became ready.
    void answer() {
        peer.accept();
        (void)peer.receive_frame(MpaRole::Request);
        MpaFrame reply = promising;
        reply.role = MpaRole::Reply;
        peer.send_frame(reply);
    }
    void expect_first_fpdu() { assert_true(peer.receive_fpdu().segment.opcode == Opcode::Write); }

    Peer peer;
    const std::uint32_t number;
    ibv_qp *qp = nullptr;
};

// A request that names the connection that waits is refused at once. A link for another queue pair of its
// completion queue waits, and no other queue pair by number does.
void connecting_by_number_does_not_wait(void **) {
    Device device;
    const Missing memory{device};
    ibv_cq *const other = softrdma_ibv_create_cq(device.cq->context, 16, nullptr, nullptr, 0);
    assert_non_null(other);
    {
        Numbered slow{device, device.cq};
        Numbered beside{device, device.cq};
        Numbered apart{device, other};
        test::make_ready(slow.qp, slow.number);
        test::make_ready(beside.qp, beside.number);
        slow.answer();
        slow.expect_first_fpdu();
        slow.peer.send(
            fpdu({.opcode = Opcode::Write, .stag = memory.key(), .offset = memory.address()}, pattern(8, 3)));
        memory.expect_waiter();

        Peer again;
        again.connect(static_cast<std::uint16_t>(slow.qp->qp_num));
        const auto names = encode(QueuePairNames{.destination = slow.qp->qp_num, .source = slow.number});
        MpaFrame request = promising;
        request.private_data = names;
        again.send_frame(request);
        assert_true(again.receive_frame(MpaRole::Reply).mpa.reject);

        beside.answer();
        test::make_ready(apart.qp, apart.number);
        apart.answer();
        apart.expect_first_fpdu();
        assert_true(beside.peer.silent());
        memory.bring(Bytes(page));
        beside.expect_first_fpdu();
    }
    (void)softrdma_ibv_destroy_cq(other);
}

// The connection that waits stands first in line of a shared receive queue. It keeps one receive, and those
// behind it with other completion queues take theirs.
void a_shared_receive_queue_does_not_wait(void **) {
    Device device;
    const Missing memory{device};
    ibv_srq_init_attr attributes{};
    attributes.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    device.srq = softrdma_ibv_create_srq(device.mr->pd, &attributes);
    assert_non_null(device.srq);
    const auto post = [&](std::uint64_t wr_id) { device.post_shared_receive(wr_id, device.sge(0, 64)); };
    const Bytes message = fpdu({.opcode = Opcode::Send, .msn = 1}, pattern(8, 1));
    Peer slow;
    Peer other;
    rdma_cm_id *const waits = device.establish(slow, promising);
    slow.send(message);
    slow.send(
        fpdu({.opcode = Opcode::Write, .stag = memory.key(), .offset = memory.address()}, pattern(8, 3)));
    memory.expect_waiter();
    {
        const OtherQueue queue{device};
        rdma_cm_id *const behind = device.establish(other, promising);
        other.send(message);
        device.work_until_read(other);
        post(1);
        assert_false(device.has_completion());
        post(2);
        (void)device.next_completion();
        device.close(behind);
    }
    memory.bring(Bytes(page));
    (void)device.next_completion();
    device.close(waits);
    (void)softrdma_ibv_destroy_srq(device.srq);
    device.srq = nullptr;
}

}  // namespace

int main() {
    if (!base::Fd{static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC))}) {
        std::puts("skipped: userfaultfd(2) is for those who may trace processes");
        return 77;
    }
    const CMUnitTest tests[] = {
        cmocka_unit_test(only_the_connection_waits_that_reads_it),
        cmocka_unit_test(only_the_connection_waits_that_writes_there),
        cmocka_unit_test(a_thread_that_polls_another_queue_does_not_wait),
        cmocka_unit_test(its_end_waits),
        cmocka_unit_test(a_listener_does_not_wait),
        cmocka_unit_test(a_listener_places_no_payload),
        cmocka_unit_test(connecting_by_number_does_not_wait),
        cmocka_unit_test(a_shared_receive_queue_does_not_wait),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
