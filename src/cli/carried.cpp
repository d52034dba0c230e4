// SPDX-License-Identifier: BSD-3-Clause
#include "cli/carried.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/address.hpp"
#include "base/network.hpp"
#include "registry/known_listener.hpp"

namespace cli {

namespace {

namespace fs = std::filesystem;

bool has_kernel_device() {
    std::error_code error;
    const fs::directory_iterator devices{"/sys/class/infiniband", error};
    return !error && devices != fs::directory_iterator{};
}

struct Process {
    std::string name;  // with its number
    uid_t user;
    bool is_carried;  // has the library
};

bool has_line_with(const fs::path &file, std::string_view text) {
    std::ifstream lines{file};
    std::string line;
    while (std::getline(lines, line)) {
        if (line.find(text) != std::string::npos) {
            return true;
        }
    }
    return false;
}

bool has_socket(const fs::path &process, std::uint32_t inode) {
    const std::string wanted = fmt::format("socket:[{}]", inode);
    std::error_code error;
    fs::directory_iterator one{process / "fd", error};
    for (; !error && one != fs::directory_iterator{}; one.increment(error)) {
        std::error_code unread;  // the process has closed it meanwhile
        if (fs::read_symlink(*one, unread).native() == wanted) {
            return true;
        }
    }
    return false;
}

// Returns the processes with the socket, as far as this user may look at them.
std::vector<Process> processes_with(std::uint32_t inode) {
    std::vector<Process> all;
    std::error_code error;
    fs::directory_iterator one{"/proc", error};
    for (; !error && one != fs::directory_iterator{}; one.increment(error)) {
        const fs::path &folder = one->path();
        const std::string number = folder.filename().native();
        struct stat status{};
        if (!std::ranges::all_of(number, [](char digit) { return digit >= '0' && digit <= '9'; }) ||
            !has_socket(folder, inode) || stat(folder.c_str(), &status) != 0) {
            continue;
        }
        std::string name;
        std::getline(std::ifstream{folder / "comm"}, name);
        all.push_back({.name = fmt::format("{}[{}]", name, number),
                       .user = status.st_uid,
                       .is_carried = has_line_with(folder / "maps", "/libcarry-preload.so")});
    }
    return all;
}

}  // namespace

std::string device_for_hosts(const std::string &device) {
    if (device.empty() || device == "auto") {
        return has_kernel_device() ? "kernel" : "";
    }
    return device != "memory" ? device : "";
}

std::string carried_to(const sockaddr_storage &server) {
    const auto listener = registry::listener_here(server);
    if (!listener) {
        constexpr const char *place = "the server is on another host, or in another network namespace";
        const auto networks = base::networks_of_file(RSOCKET_CONFIGURATION "/peers");
        const bool is_peer = std::ranges::any_of(
            networks, [&](const base::Network &one) { return one.has(base::without_mapping(server)); });
        if (!is_peer || device_for_hosts("").empty()) {
            return fmt::format("in TCP: {}, {}", place,
                               is_peer ? "and the kernel here has no RDMA device"
                                       : "of which " RSOCKET_CONFIGURATION "/peers says nothing");
        }
        return fmt::format(
            "over the kernel's RDMA device, once it has been used for some time, where the server runs under "
            "rpma "
            "run --sockets: {}",
            place);
    }
    const std::vector<Process> all = processes_with(listener->inode);
    const auto is_own = [](const Process &one) { return one.user == geteuid(); };
    const auto carried =
        std::ranges::find_if(all, [&](const Process &one) { return is_own(one) && one.is_carried; });
    if (carried != all.end()) {
        return fmt::format(
            "over memory, once it has been used for some time: {} runs under rpma run "
            "--sockets",
            carried->name);
    }
    if (all.empty()) {
        return fmt::format("in TCP: user {} has the server, and this one cannot look at its process",
                           listener->user);
    }
    const Process &first = all.front();
    return is_own(first)
               ? fmt::format("in TCP: {} does not run under rpma run --sockets", first.name)
               : fmt::format("in TCP: {} is a process of user {}, and not of user {}, as the client's",
                             first.name, first.user, geteuid());
}

}  // namespace cli
