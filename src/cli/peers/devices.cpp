// SPDX-License-Identifier: BSD-3-Clause
// cli/peers/devices: `rpma devices` lists the RDMA devices of the kernel and of the soft device's library.
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <softrdma.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/multipath.hpp"
#include "base/tls.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "cli/peer.hpp"
#include "cli/peers/roce_devices.hpp"
#include "cli/report.hpp"

namespace cli {

namespace {

namespace fs = std::filesystem;

// The control calls of one kind of device.
struct ControlCalls {
    const char *name;
    decltype(&ibv_get_device_list) get_device_list;
    decltype(&ibv_free_device_list) free_device_list;
    decltype(&ibv_get_device_name) get_device_name;
    decltype(&ibv_open_device) open_device;
    decltype(&ibv_close_device) close_device;
    decltype(&ibv_query_device) query_device;
    int (*query_port)(ibv_context *, std::uint8_t, ibv_port_attr *);
    // The network interfaces that a device stands for.
    std::set<std::string> (*interfaces_of)(const std::string &device);
    // Its bits of native operations.
    std::uint64_t (*capabilities_of)(ibv_context *);
    bool is_soft;
};

std::set<std::string> interfaces_of_kernel(const std::string &device) {
    std::set<std::string> interfaces;
    std::error_code none;
    const fs::path folder = fs::path{"/sys/class/infiniband"} / device;
    for (const auto &entry : fs::directory_iterator{folder / "ports/1/gid_attrs/ndevs", none}) {
        std::string interface;
        if (std::ifstream{entry.path()} >> interface) {
            interfaces.insert(interface);
        }
    }
    for (const auto &entry : fs::directory_iterator{folder / "device/net", none}) {
        interfaces.insert(entry.path().filename());
    }
    return interfaces;
}

// Capabilities, as the kernel numbers them; Debian 12's verbs.h has no names for these.
constexpr std::uint64_t flush_bits = std::uint64_t{3} << 38;  // global and persistent
constexpr std::uint64_t atomic_write_bit = std::uint64_t{1} << 40;

std::uint64_t capabilities_of_kernel(ibv_context *context) {
    ibv_device_attr_ex attributes{};
    return ibv_query_device_ex(context, nullptr, &attributes) == 0 ? attributes.device_cap_flags_ex : 0;
}

constexpr ControlCalls kernel{
    .name = "kernel",
    .get_device_list = ibv_get_device_list,
    .free_device_list = ibv_free_device_list,
    .get_device_name = ibv_get_device_name,
    .open_device = ibv_open_device,
    .close_device = ibv_close_device,
    .query_device = ibv_query_device,
    // ibv_query_port is a macro around the compatible call.
    .query_port = [](ibv_context *context, std::uint8_t port,
                     ibv_port_attr *attributes) { return ibv_query_port(context, port, attributes); },
    .interfaces_of = interfaces_of_kernel,
    .capabilities_of = capabilities_of_kernel,
    .is_soft = false};

std::set<std::string> interfaces_of_soft(const std::string &device) {
    return {device.substr(std::string_view{"soft_"}.size())};
}

// Between two soft devices: softrdma.h.
std::uint64_t capabilities_of_soft(ibv_context *) {
    return flush_bits | atomic_write_bit;
}

constexpr ControlCalls soft{.name = "soft",
                            .get_device_list = softrdma_ibv_get_device_list,
                            .free_device_list = softrdma_ibv_free_device_list,
                            .get_device_name = softrdma_ibv_get_device_name,
                            .open_device = softrdma_ibv_open_device,
                            .close_device = softrdma_ibv_close_device,
                            .query_device = softrdma_ibv_query_device,
                            .query_port = softrdma_ibv_query_port,
                            .interfaces_of = interfaces_of_soft,
                            .capabilities_of = capabilities_of_soft,
                            .is_soft = true};

// Link-local IPv6 addresses keep their %interface.
std::vector<std::string> addresses_of(const std::set<std::string> &interfaces) {
    std::vector<std::string> addresses;
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) {
        return addresses;
    }
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{list, freeifaddrs};
    for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
        const int family = entry->ifa_addr != nullptr ? entry->ifa_addr->sa_family : AF_UNSPEC;
        if (!interfaces.contains(entry->ifa_name) || (family != AF_INET && family != AF_INET6)) {
            continue;
        }
        std::array<char, NI_MAXHOST> text{};
        const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        if (getnameinfo(entry->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
            addresses.emplace_back(text.data());
        }
    }
    return addresses;
}

const char *transport_of(const ibv_device &device, const ibv_port_attr &port) {
    if (device.transport_type == IBV_TRANSPORT_IWARP) {
        return "iWARP";
    }
    return port.link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand";
}

// Returns by which configuration the connections of such a device use TLS; null when they do not.
nlohmann::json tls_of(const ControlCalls &calls) {
    const char *const required = base::required_tls();
    return calls.is_soft && required != nullptr ? nlohmann::json(required) : nlohmann::json();
}

std::string tls_text(const ControlCalls &calls) {
    const char *const required = base::required_tls();
    return required == nullptr ? "no" : calls.is_soft ? required : "none, so not used";
}

Facts describe(ibv_device *device, const ControlCalls &calls) {
    const std::string name = calls.get_device_name(device);
    ibv_device_attr limits{};
    ibv_port_attr port{};
    std::uint64_t capabilities = 0;
    std::string state;
    ibv_context *context = calls.open_device(device);
    if (context == nullptr) {
        state = fmt::format("cannot open: {}", errno_text(errno));
    } else {
        int error = calls.query_device(context, &limits);
        error = error != 0 ? error : calls.query_port(context, 1, &port);
        state = error != 0 ? errno_text(error) : (port.state == IBV_PORT_ACTIVE ? "active" : "down");
        capabilities = calls.capabilities_of(context);
        calls.close_device(context);
    }
    const auto number = [](const char *json_name, const char *column, auto value) {
        return Fact{json_name, column, value, std::to_string(value)};
    };
    const bool flush = (capabilities & flush_bits) == flush_bits;
    const bool atomic_write = (capabilities & atomic_write_bit) != 0;
    const bool has_multipath = calls.is_soft && base::uses_multipath();
    const auto addresses = addresses_of(calls.interfaces_of(name));
    return {{"name", "DEVICE", name, name},
            {"kind", "KIND", calls.name, calls.name},
            {"transport", "TRANSPORT", transport_of(*device, port), transport_of(*device, port)},
            {"state", "STATE", state, state},
            number("max_qp", "QP", limits.max_qp),
            number("max_qp_wr", "WR", limits.max_qp_wr),
            number("max_sge", "SGE", limits.max_sge),
            number("max_cqe", "CQE", limits.max_cqe),
            number("max_mr", "MR", limits.max_mr),
            number("max_qp_rd_atom", "READS", limits.max_qp_rd_atom),
            {"max_msg_sz", "MESSAGE", port.max_msg_sz, format_size(port.max_msg_sz)},
            // Without them librpma reads after writing, and writes 8 bytes.
            {"flush", "FLUSH", flush, flush ? "yes" : "by read"},
            {"atomic_write", "ATOMIC WRITE", atomic_write, atomic_write ? "yes" : "by write"},
            {"tls", "TLS", tls_of(calls), tls_text(calls)},
            {"mptcp", "MPTCP", has_multipath, has_multipath ? "yes" : "no"},
            {"addresses", "ADDRESSES", addresses, fmt::format("{}", fmt::join(addresses, " "))}};
}

void append_devices(const ControlCalls &calls, std::vector<Facts> &devices) {
    int count = 0;
    ibv_device **list = calls.get_device_list(&count);
    for (int i = 0; list != nullptr && i < count; ++i) {  // no list: a kernel without RDMA
        devices.push_back(describe(list[i], calls));
    }
    if (list != nullptr) {
        calls.free_device_list(list);
    }
}

Outcome<> list_devices(bool json) {
    TRY(check_device_choice());
    print_warnings();  // such as why none can be opened
    std::vector<Facts> devices;
    append_devices(kernel, devices);
    append_devices(soft, devices);
    if (json) {
        Summary summary;
        summary.add_json("devices", json_of(devices));
        summary.print(true);
    } else if (!devices.empty()) {
        print(table_of(devices));
    }
    if (devices.empty()) {
        return failed("no RDMA device (expected at least a soft one: is a network interface up?)");
    }
    return {};
}

}  // namespace

void add_devices(CLI::App &app, Command &chosen) {
    struct Options {
        bool json = false;
        bool roce = false;
    };
    auto options = std::make_shared<Options>();
    CLI::App *command = app.add_subcommand("devices", "List RDMA devices, with their addresses and limits");
    command->footer(
        "QP, WR, SGE, CQE, MR are the largest numbers of queue pairs, work requests, scatter/gather entries, "
        "completion\n"
        "queue entries and memory regions; READS is the number of reads and atomics under way at once. TLS "
        "says what "
        "RPMA_TLS asks for; devices of the kernel have no TLS, and are not used then.\n"
        "MPTCP says whether connections outlast the loss of a network (SOFTRDMA_MPTCP).\n");
    command->add_flag("--json", options->json, "Print JSON");
    command->add_flag("--roce", options->roce,
                      "List what a program under `rpma run --roce` sees: the devices, and the GIDs of each");
    command->callback([options, &chosen] {
        chosen = [options] {
            return options->roce ? list_roce_devices(options->json) : list_devices(options->json);
        };
    });
}

}  // namespace cli
