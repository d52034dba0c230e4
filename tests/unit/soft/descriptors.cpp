// SPDX-License-Identifier: BSD-3-Clause
// The process is out of file descriptors. The device tells the program and its peers of it.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "../../child.hpp"
#include "base/fd.hpp"

// This comes last, because it asserts.
#include "device.hpp"

namespace {

using namespace soft::wire;
using test::Ends;

constexpr rlim_t descriptors = 128;

// Takes all descriptors that the process may have, except those that a test gives back.
class AllDescriptors {
public:
    AllDescriptors() { take(); }

    void take() {
        for (base::Fd fd{dup(STDOUT_FILENO)}; fd; fd.reset(dup(STDOUT_FILENO))) {
            taken_.push_back(std::move(fd));
        }
        assert_int_equal(errno, EMFILE);
    }
    void give_back(std::size_t count) { taken_.resize(taken_.size() - count); }

private:
    std::vector<base::Fd> taken_;
};

enum class Binding { Bound, OutOfDescriptors, Wrong };

// Binds an id, which opens its device, in a process that has so many descriptors left.
Binding bind_with(std::size_t left) {
    const pid_t child = test::fork_child();
    if (child == 0) {
        rdma_cm_id *id = nullptr;
        rdma_event_channel *const events = softrdma_rdma_create_event_channel();
        assert_int_equal(softrdma_rdma_create_id(events, &id, nullptr, RDMA_PS_TCP), 0);
        auto here = test::loopback(0);
        AllDescriptors all;
        all.give_back(left);
        const int result = softrdma_rdma_bind_addr(id, reinterpret_cast<sockaddr *>(&here));
        const bool said = result != 0 && errno == EMFILE;
        _exit(static_cast<int>(result == 0 && id->verbs != nullptr ? Binding::Bound
                               : said                              ? Binding::OutOfDescriptors
                                                                   : Binding::Wrong));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return static_cast<Binding>(WEXITSTATUS(status));
}

void an_id_says_that_its_device_cannot_be_opened(void **) {
    constexpr std::size_t enough = 16;
    std::size_t left = 0;
    Binding became = bind_with(left);
    assert_int_equal(became, Binding::OutOfDescriptors);
    while (became == Binding::OutOfDescriptors && left < enough) {
        became = bind_with(++left);
    }
    assert_int_equal(became, Binding::Bound);
}

// Asserts that the device rejects one request after the other, because the listener
// gets its spare descriptor back each time.
void expect_rejections(test::Device &device, test::Peer &peer, AllDescriptors &all) {
    for (const MpaFrame &request : {test::from_a_soft_device, test::plain, test::from_a_soft_device}) {
        all.give_back(1);
        peer.connect(device.port());
        peer.send_frame(request);
        const auto reply = peer.receive_frame(MpaRole::Reply);
        assert_true(reply.mpa.reject);
        assert_int_equal(reply.mpa.soft_operations, request.soft_operations);
        assert_int_equal(reply.private_data.size(), 0);
        assert_int_equal(peer.receive_rest().size(), 0);
        peer.close();
        all.take();
    }
}

void connect(const base::Fd &socket, std::uint16_t port) {
    const auto to = test::loopback(port);
    assert_int_equal(::connect(socket.get(), reinterpret_cast<const sockaddr *>(&to), sizeof(to)), 0);
}

// This is one test, because the device closes the descriptors of an earlier test at an unknown time.
void a_peer_is_rejected_and_hears_why(Ends &ends) {
    auto &[device, peer, other] = ends;
    {
        // The test makes these sockets before the device can take their descriptors.
        const base::Fd silent{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        const base::Fd asks{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        AllDescriptors all;
        expect_rejections(device, peer, all);
        // A silent peer holds the spare descriptor for a second, and the next peer waits for it.
        connect(silent, device.port());
        connect(asks, device.port());
        const test::Bytes request = test::encoded(test::plain);
        assert_int_equal(send(asks.get(), request.data(), request.size(), MSG_NOSIGNAL), request.size());
        test::Bytes reply(request.size());
        assert_int_equal(recv(asks.get(), reply.data(), reply.size(), MSG_WAITALL), reply.size());
        assert_true(decode_mpa_frame(reply, MpaRole::Reply).value().reject);
        assert_int_equal(recv(silent.get(), reply.data(), reply.size(), 0), 0);
        assert_false(device.has_event());
    }
    (void)device.establish(other, test::plain);
}

// Has a peer that is a soft device send a request, which the program rejects with so many descriptors left
// and this private data. Returns whether the peer learns that the descriptors are too few.
bool is_told(Ends &ends, std::size_t left, std::string_view private_data) {
    ends.peer.connect(ends.device.port());
    ends.peer.send_frame(test::from_a_soft_device);
    const auto request = ends.device.wait_for(RDMA_CM_EVENT_CONNECT_REQUEST);
    {
        AllDescriptors all;
        all.give_back(left);
        assert_int_equal(softrdma_rdma_reject(request.id, private_data.data(),
                                              static_cast<std::uint8_t>(private_data.size())),
                         0);
    }
    const auto reply = ends.peer.receive_frame(MpaRole::Reply);
    assert_true(reply.mpa.reject);
    assert_int_equal(reply.private_data.size(), private_data.size());
    ends.peer.close();
    ends.device.close(request.id);
    return reply.mpa.soft_operations;
}

void a_program_without_descriptors_rejects_and_its_peer_hears_why(Ends &ends) {
    assert_true(is_told(ends, 0, {}));
    assert_true(is_told(ends, 1, {}));  // a channel takes two
    assert_false(is_told(ends, 2, {}));
    assert_false(is_told(ends, 0, "a reason"));
}

}  // namespace

int main() {
#ifdef __SANITIZE_ADDRESS__
    // Without a descriptor UBSan cannot look at memory, and takes sound objects for broken ones.
    return 77;
#endif
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 1;
    }
    limit.rlim_cur = std::min(limit.rlim_max, descriptors);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 1;
    }
    // The first test runs before this process has opened the device.
    const CMUnitTest tests[] = {cmocka_unit_test(an_id_says_that_its_device_cannot_be_opened),
                                fixture_test(a_peer_is_rejected_and_hears_why),
                                fixture_test(a_program_without_descriptors_rejects_and_its_peer_hears_why)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
