// SPDX-License-Identifier: BSD-3-Clause
#include "cli/peers/roce_devices.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <softrdma.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/log.hpp"
#include "cli/report.hpp"

namespace cli {

namespace {

struct Listing {
    std::vector<Facts> devices;
    std::vector<Facts> gids;
    nlohmann::json json = nlohmann::json::array();
};

Fact text_fact(const char *name, const char *column, const std::string &text) {
    return {name, column, text, text};
}

Fact number_fact(const char *name, const char *column, int number) {
    return {name, column, number, std::to_string(number)};
}

// Returns 64 bits or a GID in groups of four digits, as sysfs has them.
std::string in_groups(const void *bytes, std::size_t size) {
    std::string text;
    const auto *const all = static_cast<const std::uint8_t *>(bytes);
    for (std::size_t i = 0; i < size; i += 2) {
        text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", all[i], all[i + 1]);
    }
    return text;
}

// Returns the address that a GID stands for.
std::string address_of(const ibv_gid &gid) {
    in6_addr address{};
    std::memcpy(&address, gid.raw, sizeof(address));
    const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&address);
    std::array<char, INET6_ADDRSTRLEN> text{};
    inet_ntop(is_ipv4 ? AF_INET : AF_INET6, is_ipv4 ? gid.raw + 12 : gid.raw, text.data(), text.size());
    return text.data();
}

Facts describe(const std::string &name, const ibv_gid_entry &row) {
    std::array<char, IF_NAMESIZE> interface{};
    (void)if_indextoname(row.ndev_ifindex, interface.data());
    return {text_fact("device", "DEVICE", name),
            number_fact("port", "PORT", static_cast<int>(row.port_num)),
            number_fact("index", "INDEX", static_cast<int>(row.gid_index)),
            text_fact("gid", "GID", in_groups(row.gid.raw, sizeof(row.gid.raw))),
            text_fact("address", "ADDRESS", address_of(row.gid)),
            text_fact("type", "TYPE", row.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "RoCE v1"),
            text_fact("interface", "INTERFACE", interface.data())};
}

Facts describe(const ibv_device &device, const ibv_device_attr &limits, const ibv_port_attr &port) {
    return {text_fact("name", "DEVICE", softrdma_ibv_get_device_name(const_cast<ibv_device *>(&device))),
            text_fact("node_guid", "NODE GUID", in_groups(&limits.node_guid, sizeof(limits.node_guid))),
            text_fact("node_type", "NODE", device.node_type == IBV_NODE_CA ? "CA" : "RNIC"),
            text_fact("transport", "TRANSPORT",
                      device.transport_type == IBV_TRANSPORT_IB ? "InfiniBand" : "iWARP"),
            text_fact("link_layer", "LINK",
                      port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand"),
            text_fact("state", "STATE", port.state == IBV_PORT_ACTIVE ? "active" : "down"),
            number_fact("mtu", "MTU", 128 << port.active_mtu),
            number_fact("lid", "LID", port.lid),
            text_fact("fw_ver", "FIRMWARE", limits.fw_ver)};
}

Outcome<> add(ibv_device &device, Listing &listing) {
    ibv_context *const context = softrdma_ibv_open_device(&device);
    if (context == nullptr) {
        return failed("cannot open {}: {}", softrdma_ibv_get_device_name(&device), errno_text(errno));
    }
    const std::unique_ptr<ibv_context, decltype(&softrdma_ibv_close_device)> owner{context,
                                                                                   softrdma_ibv_close_device};
    ibv_device_attr limits{};
    ibv_port_attr port{};
    int error = softrdma_ibv_query_device(context, &limits);
    error = error != 0 ? error : softrdma_ibv_query_port(context, 1, &port);
    std::vector<ibv_gid_entry> table(static_cast<std::size_t>(port.gid_tbl_len));
    const ssize_t found = softrdma_ibv_query_gid_table(context, table.data(), table.size(), 0);
    error = error == 0 && found < 0 ? static_cast<int>(-found) : error;
    if (error != 0) {
        return failed("cannot ask {}: {}", softrdma_ibv_get_device_name(&device), errno_text(error));
    }
    table.resize(static_cast<std::size_t>(found));
    std::vector<Facts> gids;
    gids.reserve(table.size());
    for (const ibv_gid_entry &row : table) {
        gids.push_back(describe(softrdma_ibv_get_device_name(&device), row));
    }
    listing.devices.push_back(describe(device, limits, port));
    nlohmann::json whole = json_of({listing.devices.back()})[0];
    whole["gids"] = json_of(gids);
    listing.json.push_back(std::move(whole));
    listing.gids.insert(listing.gids.end(), gids.begin(), gids.end());
    return {};
}

}  // namespace

Outcome<> list_roce_devices(bool json) {
    setenv("SOFTRDMA_ROCE", "1", 1);
    print_warnings();
    int count = 0;
    const std::unique_ptr<ibv_device *, decltype(&softrdma_ibv_free_device_list)> list{
        softrdma_ibv_get_device_list(&count), softrdma_ibv_free_device_list};
    Listing listing;
    for (int i = 0; list != nullptr && i < count; ++i) {
        TRY(add(*list.get()[i], listing));
    }
    if (listing.devices.empty()) {
        return failed("no device (is a network interface up?)");
    }
    if (json) {
        Summary summary;
        summary.add_json("devices", listing.json);
        summary.print(true);
    } else {
        print(table_of(listing.devices) + "\n" + table_of(listing.gids));
    }
    return {};
}

}  // namespace cli
