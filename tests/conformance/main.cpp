// SPDX-License-Identifier: BSD-3-Clause
// conformance PROVIDER ADDRESS: the verbs suite over one device. Exit code 77 when there is no such device.
#include <cstdio>
#include <cstring>
#include <vector>

#include "suite.hpp"

namespace {

constexpr int skipped = 77;

bool has_device(const verbs::Provider &provider, const char *address) {
    rdma_event_channel *const events = provider.create_event_channel();
    if (events == nullptr) {
        return false;
    }
    rdma_cm_id *id = nullptr;
    bool found = false;
    if (provider.create_id(events, &id, nullptr, RDMA_PS_TCP) == 0) {
        rdma_addrinfo hints{};
        hints.ai_flags = RAI_PASSIVE;
        hints.ai_port_space = RDMA_PS_TCP;
        rdma_addrinfo *here = nullptr;
        if (provider.getaddrinfo(address, "0", &hints, &here) == 0) {
            found = provider.bind_addr(id, here->ai_src_addr) == 0 && id->verbs != nullptr;
            provider.freeaddrinfo(here);
        }
        (void)provider.destroy_id(id);
    }
    provider.destroy_event_channel(events);
    return found;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s soft|kernel ADDRESS\n", argv[0]);
        return 2;
    }
    conformance::subject.is_soft = std::strcmp(argv[1], "soft") == 0;
    conformance::subject.provider = conformance::subject.is_soft ? &verbs::soft : &verbs::rdma_core;
    conformance::subject.address = argv[2];
    if (!has_device(*conformance::subject.provider, argv[2])) {
        std::fprintf(stderr, "SKIPPED: no %s device serves %s\n", argv[1], argv[2]);
        return skipped;
    }
    std::vector<CMUnitTest> tests;
    for (const auto group : {conformance::operation_tests(), conformance::connection_tests()}) {
        tests.insert(tests.end(), group.begin(), group.end());
    }
    return _cmocka_run_group_tests("conformance", tests.data(), tests.size(), nullptr, nullptr);
}
