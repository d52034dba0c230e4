// SPDX-License-Identifier: BSD-3-Clause
#include "verbs_preload/face.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/at_exit.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "registry/process.hpp"
#include "softrdma.h"

namespace face {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "softrdma-face.";
constexpr const char *places[] = {"/dev/shm", "/tmp"};
constexpr std::string_view classes = "/sys/class/infiniband";
constexpr std::string_view nodes = "/dev/infiniband";

struct Tree {
    pid_t process;
    std::string root;
    const Tree *inherited;  // the parent's, which is kept: another thread may read it
};

std::atomic<const Tree *> newest{nullptr};

bool is_below(std::string_view path, std::string_view folder) {
    return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

// ---- what is in it ----

// A file of sysfs has one line.
void put(const fs::path &file, const std::string &line) {
    fs::create_directories(file.parent_path());
    std::ofstream{file} << line << '\n';
}

std::string hexadecimal(std::uint64_t number, int digits) {
    std::array<char, 17> text{};
    (void)std::snprintf(text.data(), text.size(), "%0*" PRIx64, digits, number);
    return text.data();
}

std::string in_groups(const std::uint8_t *bytes, std::size_t groups) {
    std::string text;
    for (const std::uint8_t *end = bytes + 2 * groups; bytes != end; bytes += 2) {
        text += (text.empty() ? "" : ":") + hexadecimal(std::uint64_t{bytes[0]} << 8 | bytes[1], 4);
    }
    return text;
}

std::string in_groups(__be64 guid) {
    std::uint8_t bytes[sizeof(guid)];
    std::memcpy(bytes, &guid, sizeof(guid));
    return in_groups(bytes, 4);
}

void put_port(const fs::path &port, ibv_context *context) {
    ibv_port_attr attributes{};
    if (softrdma_ibv_query_port(context, 1, &attributes) != 0) {
        return;
    }
    put(port / "state", "4: ACTIVE");
    put(port / "phys_state", "5: LinkUp");
    put(port / "link_layer", "Ethernet");
    put(port / "rate", "10 Gb/sec (4X)");
    put(port / "cap_mask", "0x" + hexadecimal(attributes.port_cap_flags, 8));
    for (const char *const name : {"lid", "sm_lid", "lid_mask_count", "sm_sl"}) {
        put(port / name, "0x0");
    }
    put(port / "pkeys/0", "0xffff");
    std::vector<ibv_gid_entry> table(static_cast<std::size_t>(attributes.gid_tbl_len));
    const ssize_t rows = softrdma_ibv_query_gid_table(context, table.data(), table.size(), 0);
    for (ssize_t i = 0; i < rows; ++i) {
        const ibv_gid_entry &row = table[static_cast<std::size_t>(i)];
        const std::string number = std::to_string(i);
        char interface[IF_NAMESIZE] = {};
        put(port / "gids" / number, in_groups(row.gid.raw, 8));
        put(port / "gid_attrs/types" / number,
            row.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
        put(port / "gid_attrs/ndevs" / number,
            if_indextoname(row.ndev_ifindex, interface) != nullptr ? interface : "");
    }
}

// The device is the interface's own where that has one, a card for example, and otherwise a folder that names
// the interface.
void put_device(const fs::path &folder, ibv_context *context) {
    ibv_device_attr attributes{};
    softrdma_ibv_query_device(context, &attributes);
    const std::string name = softrdma_ibv_get_device_name(context->device);
    const std::string interface = name.substr(name.find('_') + 1);
    put(folder / "node_type", "1: CA");
    put(folder / "node_guid", in_groups(attributes.node_guid));
    put(folder / "sys_image_guid", in_groups(attributes.sys_image_guid));
    put(folder / "node_desc", name);
    put(folder / "fw_ver", attributes.fw_ver);
    put(folder / "hca_type", "softrdma");
    put_port(folder / "ports/1", context);
    std::error_code error;
    const fs::path network = fs::path{"/sys/class/net"} / interface;
    if (const fs::path card = fs::canonical(network / "device", error); !error) {
        fs::create_symlink(card, folder / "device");
        return;
    }
    put(folder / "device/numa_node", "-1");
    put(folder / "device/vendor", "0x" + hexadecimal(attributes.vendor_id, 4));
    put(folder / "device/device", "0x" + hexadecimal(attributes.vendor_part_id, 4));
    fs::create_directories(folder / "device/net");
    fs::create_symlink(network, folder / "device/net" / interface);
}

void fill(const fs::path &root) {
    fs::create_directories(root / classes.substr(1));
    fs::create_directories(root / nodes.substr(1));
    int count = 0;
    ibv_device **const list = softrdma_ibv_get_device_list(&count);
    for (int i = 0; list != nullptr && i < count; ++i) {
        ibv_context *const context = softrdma_ibv_open_device(list[i]);
        if (context == nullptr) {
            continue;
        }
        const std::string name = softrdma_ibv_get_device_name(list[i]);
        put_device(root / classes.substr(1) / name, context);
        // Programs look whether it is a character device that they may read and write; no user makes one.
        fs::create_symlink("/dev/null", root / nodes.substr(1) / name);
        softrdma_ibv_close_device(context);
    }
    if (list != nullptr) {
        softrdma_ibv_free_device_list(list);
    }
}

// ---- whose it is ----

// Removes the trees of processes that have ended: nobody has locked them. Whoever removes one has its lock.
void sweep(const fs::path &place) {
    std::error_code error;
    for (const auto &entry : fs::directory_iterator{place, error}) {
        struct stat status{};
        if (!entry.path().filename().native().starts_with(prefix) ||
            lstat(entry.path().c_str(), &status) != 0 || status.st_uid != geteuid()) {
            continue;
        }
        if (const base::Fd lock{open((entry.path() / "lock").c_str(), O_RDWR | O_CLOEXEC)}; !lock) {
            fs::remove(entry.path(), error);  // while it is empty
        } else if (registry::lock_while_mapped(lock.get())) {
            fs::remove_all(entry.path(), error);
        }
    }
}

// Makes an empty folder that is this process's until it ends. Returns an empty path when another one has
// swept it away meanwhile, or nothing can be made there.
fs::path own_folder(const fs::path &place) {
    std::string name = (place / prefix).native() + "XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
        return {};
    }
    const base::Fd lock{open((fs::path{name} / "lock").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
    struct stat status{};
    const bool is_own = lock && registry::lock_while_mapped(lock.get()) && fstat(lock.get(), &status) == 0 &&
                        status.st_nlink != 0 &&
                        mmap(nullptr, 1, PROT_NONE, MAP_SHARED, lock.get(), 0) != MAP_FAILED;
    return is_own ? fs::path{name} : fs::path{};
}

std::string made_tree() {
    for (const char *const place : places) {
        sweep(place);
        for (int i = 0; i < 3; ++i) {
            const fs::path root = own_folder(place);
            if (!root.empty()) {
                fill(root);
                return root;
            }
        }
    }
    BASE_LOG(Error, "%s, %s: no folder for the files of devices of RoCE: %s and %s take none", classes.data(),
             nodes.data(), places[0], places[1]);
    return {};
}

// Returns the root of this process's tree; empty when none could be made.
const std::string &root() {
    const Tree *known = newest.load(std::memory_order_acquire);
    if (known == nullptr || known->process != getpid()) {
        const auto *const made = new Tree{.process = getpid(), .root = made_tree(), .inherited = known};
        if (newest.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
            return made->root;
        }
        std::error_code error;  // another thread was faster
        if (!made->root.empty()) {
            fs::remove_all(made->root, error);
        }
        delete made;
    }
    return known->root;
}

void remove_own() {
    const Tree *const known = newest.load(std::memory_order_acquire);
    std::error_code error;
    if (known != nullptr && known->process == getpid() && !known->root.empty()) {
        fs::remove_all(known->root, error);
    }
}

const base::AtExit<remove_own> at_exit;

bool is_asked_for() {
    static const bool once = [] {
        const char *const value = secure_getenv("SOFTRDMA_ROCE");
        return value != nullptr && std::strcmp(value, "1") == 0;
    }();
    return once;
}

}  // namespace

Path::Path(const char *path) : path_{path} {
    replaced_[0] = '\0';
    const std::string_view text{path != nullptr ? path : ""};
    if ((!is_below(text, classes) && !is_below(text, nodes)) || !is_asked_for()) {
        return;
    }
    const int error = errno;
    try {
        const std::string &tree = root();
        if (!tree.empty() && tree.size() + text.size() < replaced_.size()) {
            *std::ranges::copy(text, std::ranges::copy(tree, replaced_.data()).out).out = '\0';
        }
    } catch (const std::exception &failure) {
        BASE_LOG(Error, "%s: %s", path, failure.what());
    }
    errno = error;
}

void take_tree_off(char *path) {
    const Tree *const known = newest.load(std::memory_order_acquire);
    if (known != nullptr && !known->root.empty() && is_below(path, known->root)) {
        std::memmove(path, path + known->root.size(), std::strlen(path) - known->root.size() + 1);
    }
}

}  // namespace face
