// SPDX-License-Identifier: BSD-3-Clause
// conformance PROVIDER ADDRESS [timeouts|numbers]: runs the verbs suite over one device. With `numbers` the
// ends are connected by the numbers of their queue pairs, and not by rdma_cm. The exit code is 77 when there
// is no such device. A program that is called with "peer" as its first argument is the other process of a
// test.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "differences.hpp"
#include "peer_process.hpp"
#include "suite.hpp"

namespace {

using conformance::provider;
using conformance::subject;

constexpr int skipped = 77;

// Returns the name of the subject's device, or an empty name when there is none.
std::string device_name() {
    rdma_event_channel *const events = provider().cm.create_event_channel();
    if (events == nullptr) {
        return {};
    }
    rdma_cm_id *id = nullptr;
    std::string found;
    if (provider().cm.create_id(events, &id, nullptr, RDMA_PS_TCP) == 0) {
        auto here = conformance::subject_address(0);
        if (provider().cm.bind_addr(id, reinterpret_cast<sockaddr *>(&here)) == 0 && id->verbs != nullptr) {
            found = id->verbs->device->name;
        }
        (void)provider().cm.destroy_id(id);
    }
    provider().cm.destroy_event_channel(events);
    return found;
}

std::vector<CMUnitTest> suite() {
    using namespace conformance;
    std::vector<CMUnitTest> all;
    const auto add = [&all](std::initializer_list<std::span<const CMUnitTest>> groups) {
        for (const auto group : groups) {
            all.insert(all.end(), group.begin(), group.end());
        }
    };
    add({operation_tests(),      scatter_tests(), order_tests(),   burst_tests(),        immediate_tests(),
         shared_receive_tests(), queue_tests(),   refusal_tests(), local_error_tests(),  remote_error_tests(),
         unexpected_tests(),     channel_tests(), waiting_tests(), sleeping_tests(),     process_tests(),
         fork_tests(),           memory_tests(),  atomic_tests(),  invalidation_tests(), rights_tests(),
         extended_tests(),       region_tests(),  window_tests(),  stress_tests()});
    if (subject.by_number) {
        add({by_number_tests(), xrc_tests()});
    } else {  // the connection manager
        add({connection_tests(), id_tests(), synchronous_tests(), listener_tests(), state_tests()});
    }
    return all;
}

// The list of differences of devices, and the lab's count of the tests that passed, know a test by its name.
// Returns a name that two tests have, or nullptr.
const char *name_of_two(std::vector<CMUnitTest> tests) {
    const auto name = [](const CMUnitTest &test) { return std::string_view{test.name}; };
    std::ranges::sort(tests, {}, name);
    const auto found = std::ranges::adjacent_find(tests, {}, name);
    return found != tests.end() ? found->name : nullptr;
}

}  // namespace

int main(int argc, char **argv) {
    const bool is_peer = argc == 4 && std::strcmp(argv[1], "peer") == 0;
    const bool only_timeouts = argc == 4 && std::strcmp(argv[3], "timeouts") == 0;
    subject.by_number = argc == 4 && std::strcmp(argv[3], "numbers") == 0;
    if (argc != 3 && !is_peer && !only_timeouts && !subject.by_number) {
        std::fprintf(stderr, "usage: %s soft|kernel ADDRESS [timeouts|numbers]\n", argv[0]);
        return 2;
    }
    const char *const *const device = is_peer ? argv + 2 : argv + 1;
    subject.is_soft = std::strcmp(device[0], "soft") == 0;
    subject.provider = subject.is_soft ? &verbs::soft : &verbs::rdma_core;
    subject.provider_name = device[0];
    subject.address = device[1];
    subject.program = argv[0];
    if (is_peer) {
        return conformance::run_as_peer();
    }
    const std::string name = subject.by_number ? "by number" : device_name();
    if (name.empty()) {
        std::fprintf(stderr, "SKIPPED: no %s device serves %s\n", device[0], device[1]);
        return skipped;
    }
    std::vector<CMUnitTest> tests = suite();
    if (const char *const both = name_of_two(tests)) {
        std::fprintf(stderr, "two tests are called %s: each needs a name of its own\n", both);
        return EXIT_FAILURE;
    }
    if (only_timeouts) {
        tests.assign(conformance::timeout_tests().begin(), conformance::timeout_tests().end());
    }
    for (CMUnitTest &test : tests) {
        test.setup_func = conformance::begin_test;
        test.teardown_func = conformance::end_test;
        if (const char *const reason = conformance::why_not(name, test.name)) {
            std::fprintf(stderr, "SKIPPED: %s on %s: %s\n", test.name, name.c_str(), reason);
            test.test_func = [](void **) { skip(); };
        }
    }
    // A test ended the program before. The run goes on with the tests behind it.
    if (const char *const last = std::getenv("CONFORMANCE_AFTER")) {
        const auto found = std::ranges::find(tests, std::string_view{last}, &CMUnitTest::name);
        tests.erase(tests.begin(), found != tests.end() ? found + 1 : tests.begin());
    }
    if (const char *const only = std::getenv("CONFORMANCE_ONLY")) {
        cmocka_set_test_filter(only);
    }
    if (const char *const without = std::getenv("CONFORMANCE_WITHOUT")) {
        cmocka_set_skip_filter(without);
    }
    return _cmocka_run_group_tests("conformance", tests.data(), tests.size(), nullptr, nullptr);
}
