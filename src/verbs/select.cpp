// SPDX-License-Identifier: BSD-3-Clause
// verbs/select: finds the provider that serves an address, and the provider of a context.
#include "verbs/select.hpp"

#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/log.hpp"
#include "base/tls.hpp"

namespace verbs {

namespace {

constexpr const char *variable = "RPMA_DEVICE";
constexpr int resolve_timeout_ms = 1000;

// This check comes before librdmacm is called, because without a device librdmacm fails in many ways, some of
// them on standard error.
bool kernel_has_devices() {
    DIR *const devices = ::opendir("/sys/class/infiniband");
    if (devices == nullptr) {
        return false;
    }
    bool any = false;
    while (const dirent *entry = ::readdir(devices)) {
        any = any || entry->d_name[0] != '.';
    }
    ::closedir(devices);
    return any && ::access("/dev/infiniband/rdma_cm", R_OK | W_OK) == 0;
}

// It says why no context serves an address. The text is that of base/error_text.
struct Unserved {
    int number;
    const char *text;
};
std::unexpected<Unserved> unserved(int number) {
    return std::unexpected{Unserved{number, error_text(number)}};
}

// Returns whether a device may serve the address, but this process lacks the descriptors or memory to find
// out.
bool is_unknown(const Unserved &reason) {
    return reason.number == EMFILE || reason.number == ENFILE || reason.number == ENOMEM;
}

// Returns the context that serves the address.
std::expected<ibv_context *, Unserved> resolve(const Provider &provider, const char *address, Side side) {
    const auto info = look_up(provider, address, nullptr, side);
    if (!info) {
        return std::unexpected{Unserved{ENODEV, info.error()}};
    }
    rdma_cm_id *raw = nullptr;
    if (provider.cm.create_id(nullptr, &raw, nullptr, RDMA_PS_TCP) != 0) {
        return unserved(errno);
    }
    const Id id{provider, raw};
    const rdma_addrinfo &found = **info;
    const int result = side == Side::Local ? provider.cm.bind_addr(raw, found.ai_src_addr)
                                           : provider.cm.resolve_addr(raw, found.ai_src_addr,
                                                                      found.ai_dst_addr, resolve_timeout_ms);
    if (result != 0) {
        return unserved(errno);
    }
    return raw->verbs;
}

// Writes the numeric address of an interface that is up. Returns false when it has none, and for link-local
// addresses, which have no meaning without their interface.
bool numeric_address(const ifaddrs &entry, char (&text)[NI_MAXHOST]) {
    if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) {
        return false;
    }
    const int family = entry.ifa_addr->sa_family;
    return (family == AF_INET || family == AF_INET6) &&
           getnameinfo(entry.ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6), text,
                       sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 &&
           !std::string_view{text}.starts_with("fe80:");
}

// This machine's addresses with a device of the provider, as "ADDRESS (DEVICE), ...", as many as fit into a
// log line. It binds to each address, because only that tells the device.
struct ServedAddresses {
    char text[512];

    explicit ServedAddresses(const Provider &provider) {
        std::snprintf(text, sizeof(text), "none");
        ifaddrs *list = nullptr;
        if (getifaddrs(&list) != 0) {
            return;
        }
        std::size_t used = 0;
        for (const ifaddrs *entry = list; entry != nullptr && used < sizeof(text); entry = entry->ifa_next) {
            char address[NI_MAXHOST];
            if (!numeric_address(*entry, address)) {
                continue;
            }
            const auto context = resolve(provider, address, Side::Local);
            if (context && *context != nullptr) {
                used += static_cast<std::size_t>(std::snprintf(text + used, sizeof(text) - used, "%s%s (%s)",
                                                               used == 0 ? "" : ", ", address,
                                                               (*context)->device->name));
            }
        }
        freeifaddrs(list);
    }
};

void log_unserved(const Provider &provider, const char *address, Side side, const char *reason) {
    BASE_LOG(Error, "no RDMA device serves %s, %s: %s. Addresses of this machine with a %s device: %s",
             address, side == Side::Local ? "as an address of this machine" : "as an address to reach",
             reason, provider.name, ServedAddresses{provider}.text);
}

void log_chosen(const Provider &provider, const char *address, const ibv_context *context) {
    BASE_LOG(Notice, "%s is served by the %s device %s", address, provider.name,
             context != nullptr ? context->device->name : "(any)");
}

base::Result<ibv_context *> find_kernel_context(const char *address, Side side) {
    if (!kernel_has_devices()) {
        BASE_LOG(Error,
                 "%s=kernel, but this machine has no RDMA device in the kernel (/sys/class/infiniband, "
                 "/dev/infiniband/rdma_cm): %s=soft serves %s without one",
                 variable, variable, address);
        return base::failure(ENODEV);
    }
    const auto context = resolve(rdma_core, address, side);
    if (!context) {
        log_unserved(rdma_core, address, side, context.error().text);
        BASE_LOG(Error, "%s=kernel leaves no other choice; auto and soft take the device in user space",
                 variable);
        return base::failure(ENODEV);
    }
    log_chosen(rdma_core, address, *context);
    return *context;
}

base::Result<ibv_context *> find_soft_context(const char *address, Side side, Choice choice) {
    const auto context = resolve(soft, address, side);
    if (!context) {
        log_unserved(soft, address, side, context.error().text);
        if (choice == Choice::Soft && kernel_has_devices()) {
            BASE_LOG(Error, "%s=soft leaves the kernel's devices out; auto and kernel ask them", variable);
        }
        return base::failure(context.error().number);
    }
    log_chosen(soft, address, *context);
    return *context;
}

}  // namespace

base::Result<Choice> parse_choice(const char *value) {
    if (value == nullptr) {
        return Choice::Automatic;
    }
    const std::string_view word{value};
    if (word == "auto") {
        return Choice::Automatic;
    }
    if (word == "kernel") {
        return Choice::Kernel;
    }
    if (word == "soft") {
        return Choice::Soft;
    }
    BASE_LOG(Error, "the environment variable %s is \"%s\"; it must be auto, kernel or soft", variable,
             value);
    return base::failure(EINVAL);
}

namespace {

// Returns what RPMA_DEVICE chooses. The kernel's devices have no TLS, so they are left out when RPMA_TLS asks
// for it.
base::Result<Choice> choice_of_environment() {
    const auto choice = parse_choice(secure_getenv(variable));
    if (!choice || base::required_tls() == nullptr) {
        return choice;
    }
    if (*choice == Choice::Kernel) {
        BASE_LOG(Error, "RPMA_TLS asks for TLS, which the kernel's devices of %s=kernel do not have",
                 variable);
        return base::failure(EPROTONOSUPPORT);
    }
    return Choice::Soft;
}

}  // namespace

base::Result<ibv_context *> find_context(const char *address, Side side) {
    const auto choice = choice_of_environment();
    if (!choice) {
        return std::unexpected{choice.error()};
    }
    if (*choice == Choice::Kernel) {
        return find_kernel_context(address, side);
    }
    if (*choice == Choice::Automatic && kernel_has_devices()) {
        const auto context = resolve(rdma_core, address, side);
        // A wildcard address is bound to no device: the kernel's devices would serve only some of the
        // machine's addresses.
        if (context && *context != nullptr) {
            log_chosen(rdma_core, address, *context);
            return *context;
        }
    }
    return find_soft_context(address, side, *choice);
}

base::Result<ibv_context *> find_local_context(const char *address, DeviceKind kind) {
    const auto choice = choice_of_environment();
    if (!choice) {
        return std::unexpected{choice.error()};
    }
    const bool left_out = *choice == (kind == DeviceKind::Kernel ? Choice::Soft : Choice::Kernel);
    if (left_out || (kind == DeviceKind::Kernel && !kernel_has_devices())) {
        return nullptr;
    }
    const Provider &provider = kind == DeviceKind::Kernel ? rdma_core : soft;
    const auto context = resolve(provider, address, Side::Local);
    if (!context && is_unknown(context.error())) {
        log_unserved(provider, address, Side::Local, context.error().text);
        return base::failure(context.error().number);
    }
    if (!context || *context == nullptr) {
        return nullptr;
    }
    log_chosen(provider, address, *context);
    return *context;
}

const Provider &provider_of(const ibv_context *context) {
    return softrdma_owns(context) ? soft : rdma_core;
}

}  // namespace verbs
