// SPDX-License-Identifier: BSD-3-Clause
// test_interop server PROVIDER ADDRESS PORT [FILE]
// test_interop client PROVIDER ADDRESS PORT [CASE...]
//
// Two processes, each over the kernel's devices or the soft one, run a list of cases together, or the named
// ones; each prints the result of each case at its end. The server first prints the port that it listens on
// (PORT 0: a free one), and ends when the client has finished the list. With FILE it puts the writes that are
// to be durable there.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cases.hpp"
#include "verbs/address.hpp"

namespace {

using interop::Case;
using interop::End;

constexpr std::uint32_t no_more_cases = ~std::uint32_t{0};

const verbs::Provider *provider_named(const char *name) {
    if (std::strcmp(name, "soft") == 0) {
        return &verbs::soft;
    }
    return std::strcmp(name, "kernel") == 0 ? &verbs::rdma_core : nullptr;
}

// Runs one end of one case and prints the result. Returns true when it succeeded.
template <typename Run>
bool report(const char *role, const char *name, Run run) {
    std::string failure;
    try {
        run();
    } catch (const std::exception &reason) {
        failure = reason.what();
    }
    std::printf("%s %s %s%s\n", role, name, failure.empty() ? "ok" : "FAIL ", failure.c_str());
    std::fflush(stdout);
    return failure.empty();
}

// siw binds TCP to a port that rdma_cm took from a range of its own. When another socket has that port
// already, for instance one in TIME_WAIT, rdma_connect fails and the program tries again.
std::unique_ptr<End> connected(const verbs::Provider &provider, const char *address, const char *port,
                               std::uint32_t number, std::size_t private_bytes) {
    constexpr int tries = 20;
    int error = EADDRINUSE;
    for (int i = 0; i < tries && error == EADDRINUSE; ++i) {
        auto end = std::make_unique<End>(provider, address, port);
        error = end->connect(number, private_bytes);
        if (error == 0) {
            return end;
        }
    }
    throw std::runtime_error{std::string{"rdma_connect: "} + std::strerror(error)};
}

bool client(const verbs::Provider &provider, const char *address, const char *port,
            std::span<char *> wanted) {
    bool good = true;
    std::uint32_t number = 0;
    for (const Case &which : interop::cases()) {
        const std::uint32_t own_number = number++;
        if (!wanted.empty() && std::ranges::find(wanted, std::string_view{which.name}) == wanted.end()) {
            continue;
        }
        good = report("client", which.name,
                      [&] {
                          const auto end =
                              connected(provider, address, port, own_number, which.private_bytes);
                          which.client(*end, which);
                      }) &&
               good;
    }
    const auto last = connected(provider, address, port, no_more_cases, sizeof(interop::Hello));
    last->expect(RDMA_CM_EVENT_REJECTED);
    return good;
}

bool server(const verbs::Provider &provider, const char *address, const char *port, const char *file) {
    const verbs::EventChannel events{provider, provider.cm.create_event_channel()};
    interop::require(bool{events}, "no event channel");
    rdma_cm_id *raw = nullptr;
    interop::require(provider.cm.create_id(events.get(), &raw, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    const verbs::Id listener{provider, raw};
    const auto here = verbs::look_up(provider, address, port, verbs::Side::Local);
    interop::require(here.has_value(), "no such address");
    if (provider.cm.bind_addr(raw, (*here)->ai_src_addr) != 0 || provider.cm.listen(raw, 8) != 0) {
        throw interop::Failed{std::string{"cannot listen: "} + verbs::error_text(errno)};
    }
    std::printf("listening %u\n", ntohs(raw->route.addr.src_sin.sin_port));
    std::fflush(stdout);

    bool good = true;
    while (true) {
        const interop::CmEvent asked = interop::next_event(provider, events.get(), 4 * interop::patience);
        if (asked.type != RDMA_CM_EVENT_CONNECT_REQUEST) {
            continue;
        }
        const interop::Hello hello = interop::decoded(asked.private_data);
        if (hello.number == no_more_cases) {
            End{provider, asked.id, nullptr}.reject("");
            return good;
        }
        interop::require(hello.number < interop::cases().size(), "no such case");
        const Case &which = interop::cases()[hello.number];
        good = report("server", which.name,
                      [&] {
                          End end{provider, asked.id, file};
                          interop::require(asked.private_data.size() == which.private_bytes,
                                           "private data of another length");
                          which.server(end, which, hello);
                      }) &&
               good;
    }
}

}  // namespace

int main(int argc, char **argv) {
    const bool serves = argc >= 2 && std::strcmp(argv[1], "server") == 0;
    const bool asks = argc >= 2 && std::strcmp(argv[1], "client") == 0;
    const verbs::Provider *const provider = argc >= 3 ? provider_named(argv[2]) : nullptr;
    if (provider == nullptr || !(asks ? argc >= 5 : serves && (argc == 5 || argc == 6))) {
        std::fprintf(stderr,
                     "usage: %s server kernel|soft ADDRESS PORT [FILE]\n       %s client kernel|soft ADDRESS "
                     "PORT [CASE...]\n",
                     argv[0], argv[0]);
        return 2;
    }
    try {
        const bool good = serves ? server(*provider, argv[3], argv[4], argc == 6 ? argv[5] : nullptr)
                                 : client(*provider, argv[3], argv[4],
                                          std::span{argv, static_cast<std::size_t>(argc)}.subspan(5));
        return good ? 0 : 1;
    } catch (const std::exception &reason) {
        std::fprintf(stderr, "%s: %s\n", argv[1], reason.what());
        return 1;
    }
}
