// SPDX-License-Identifier: BSD-3-Clause
#include "base/own_user.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "base/fd.hpp"

namespace base {

namespace {

// Of Linux 6.5; a descriptor of the process that SO_PEERCRED names.
constexpr int so_peerpidfd = 77;

// Returns whether each user of the machine has a number in this process's user namespace. The lines of the
// map are "INSIDE OUTSIDE COUNT".
bool has_all_users() {
    constexpr std::uint64_t all = UINT32_MAX;  // the last number is none
    std::ifstream map{"/proc/self/uid_map"};
    std::uint64_t inside = 0;
    std::uint64_t outside = 0;
    std::uint64_t count = 0;
    std::uint64_t sum = 0;
    while (map >> inside >> outside >> count) {
        sum += count;
    }
    return sum == all;
}

// Returns the number of all users that have none.
uid_t number_of_others() {
    constexpr uid_t usual = 65534;
    std::ifstream file{"/proc/sys/kernel/overflowuid"};
    uid_t number = 0;
    return file >> number ? number : usual;
}

bool is_in_own_namespace(const std::string &process, const char *kind) {
    const std::string file = std::string{"/ns/"} + kind;
    struct stat own{};
    struct stat other{};
    return stat(("/proc/self" + file).c_str(), &own) == 0 &&
           stat(("/proc/" + process + file).c_str(), &other) == 0 && own.st_dev == other.st_dev &&
           own.st_ino == other.st_ino;
}

// Returns whether the process that the socket is connected to still runs. So nobody else has its number.
bool peer_runs(int socket) {
    int number = -1;
    socklen_t size = sizeof(number);
    if (getsockopt(socket, SOL_SOCKET, so_peerpidfd, &number, &size) != 0) {
        return false;
    }
    const Fd peer{number};
    pollfd ended{.fd = peer.get(), .events = POLLIN, .revents = 0};
    return poll(&ended, 1, 0) == 0;
}

}  // namespace

bool is_own_user(uid_t user) {
    return user == geteuid() && (user != number_of_others() || has_all_users());
}

std::optional<ino_t> namespace_of_shared_number() {
    struct stat own{};
    if (is_own_user(geteuid()) || stat("/proc/self/ns/user", &own) != 0) {
        return std::nullopt;
    }
    return own.st_ino;
}

bool is_own_peer(int socket, pid_t peer, uid_t user) {
    const std::string process = std::to_string(peer);
    return is_own_user(user) || (user == geteuid() && is_in_own_namespace(process, "user") &&
                                 is_in_own_namespace(process, "pid") && peer_runs(socket));
}

// The kernel lets the owner alone, whatever the number of the user, leave the time of access unchanged.
bool is_own_file(int file, const struct stat &status) {
    if (is_own_user(status.st_uid)) {
        return true;
    }
    const int flags = fcntl(file, F_GETFL);
    return status.st_uid == geteuid() && fcntl(file, F_SETFL, flags | O_NOATIME) == 0;
}

}  // namespace base
