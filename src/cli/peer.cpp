// SPDX-License-Identifier: BSD-3-Clause
// cli/peer: finds the device of an address, and makes a librpma peer on it.
#include "cli/peer.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <softrdma.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string_view>

#include "base/mutex.hpp"
#include "cli/log.hpp"

namespace cli {

namespace {

// Refuses a name that cannot be looked up, or a link-local address that may be on any interface.
Outcome<> check_host(const std::string &host) {
    addrinfo *found = nullptr;
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    const int result = getaddrinfo(host.c_str(), nullptr, &wanted, &found);
    if (result != 0) {
        return failed(Exit::Unreachable, "{}: unknown host ({})", host, gai_strerror(result));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{found, freeaddrinfo};
    if (found->ai_family != AF_INET6) {
        return {};
    }
    const auto *address = reinterpret_cast<const sockaddr_in6 *>(found->ai_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr) && address->sin6_scope_id == 0) {
        return failed(Exit::Usage, "{}: needs its interface, such as {}%eth0", host, host);
    }
    return {};
}

constinit base::LastingMutex regions_mutex;
// The regions to which a peer may still write, and their memory.
struct StillWritten {
    rpma_mr_local *region = nullptr;
    std::shared_ptr<const void> memory;
};
std::deque<StillWritten> still_written GUARDED_BY(regions_mutex);

// Returns whether a device was not opened because this process lacks something, or may not do something, and
// not because of the address.
bool is_of_process(int error) {
    constexpr std::array lacks{EMFILE, ENFILE, ENOMEM, EAGAIN, EPERM, ENOSYS};
    return std::ranges::find(lacks, error) != lacks.end();
}

}  // namespace

Outcome<> check_device_choice() {
    const char *const chosen = secure_getenv("RPMA_DEVICE");
    const std::string_view choice = chosen != nullptr ? chosen : "auto";
    if (choice != "auto" && choice != "kernel" && choice != "soft") {
        return failed(Exit::Usage, "RPMA_DEVICE is \"{}\", expected auto, kernel or soft", choice);
    }
    return {};
}

Outcome<> check_settings() {
    TRY(check_device_choice());
    return softrdma_check_settings() == 0
               ? Outcome<>{}
               : failed(Exit::Usage, "{}", reason_of(RPMA_E_PROVIDER).substr(sizeof(": ") - 1));
}

void Deregistration::operator()(rpma_mr_local *region) {
    if (rpma_mr_dereg(&region) != 0 && region != nullptr) {
        const base::Lock lock{regions_mutex};
        still_written.push_back({region, std::move(memory)});
    }
}

void deregister_again() {
    StillWritten oldest;
    {
        const base::Lock lock{regions_mutex};
        if (still_written.empty()) {
            return;
        }
        oldest = std::move(still_written.front());
        still_written.pop_front();
    }
    Deregistration{std::move(oldest.memory)}(oldest.region);
}

Outcome<DevicePeer> open_peer(const Address &address, rpma_util_ibv_context_type type) {
    const char *expected = type == RPMA_UTIL_IBV_CONTEXT_LOCAL ? "of this machine, served by" : "reached by";
    TRY(check_host(address.host));
    clear_log();
    ibv_context *context = nullptr;
    const int result = rpma_utils_get_ibv_context(address.host.c_str(), type, &context);
    if (const int error = errno; result != 0) {
        if (is_of_process(error)) {
            return failed("this process cannot use an RDMA device{}", reason_of(result));
        }
        TRY(check_settings());
        if (error == ENETUNREACH || error == EHOSTUNREACH) {
            return failed(Exit::Unreachable, "{}: this machine has no way there: {}", address.host,
                          errno_text(error));
        }
    }
    if (result != 0 || context == nullptr) {  // a wildcard address has no single device
        return failed(type == RPMA_UTIL_IBV_CONTEXT_REMOTE ? Exit::Unreachable : Exit::Failed,
                      "{}: expected an address {} an RDMA device (rpma devices){}", address.host, expected,
                      result != 0 ? reason_of(result) : "");
    }
    DevicePeer device;
    device.is_soft = softrdma_owns(context);
    device.name =
        device.is_soft ? softrdma_ibv_get_device_name(context->device) : ibv_get_device_name(context->device);
    if (device.is_soft) {  // a connection would fail for that, as for many other reasons
        TRY(check_settings());
    }
    rpma_peer *peer = nullptr;
    TRY(checked(rpma_peer_new(context, &peer), "{}: cannot use device {}", address.host, device.name));
    device.peer.reset(peer);
    return device;
}

Outcome<LocalRegion> register_memory(const DevicePeer &device, std::span<std::byte> memory, int usage) {
    rpma_mr_local *local = nullptr;
    TRY(checked(rpma_mr_reg(device.peer.get(), memory.data(), memory.size(), usage, &local),
                "cannot register {} bytes with {}", memory.size(), device.name));
    return LocalRegion{local};
}

}  // namespace cli
