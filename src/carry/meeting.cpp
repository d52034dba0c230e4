// SPDX-License-Identifier: BSD-3-Clause
// carry/meeting: the table of a user's connections, and the making of a link.
#include "carry/meeting.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/address.hpp"
#include "base/file_limit.hpp"
#include "base/fork.hpp"
#include "base/interpose.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "base/own_user.hpp"
#include "carry/handlers.hpp"
#include "carry/high_number.hpp"
#include "carry/links.hpp"
#include "carry/mirror.hpp"
#include "carry/records.hpp"
#include "carry/section.hpp"
#include "carry/shake.hpp"
#include "carry/socket.hpp"
#include "carry/sockets.hpp"
#include "carry/waits.hpp"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

namespace carry {

// One end's name for its connection. The name's end is written last, and a reader that sees parts of two
// names finds a link with another name in it.
struct Meeting::Slot {
    std::atomic<std::uint64_t> name;  // of the connection and the side; 0: free
    // The other end puts the place of its link here: process and descriptor. The end that cannot map it
    // refuses it.
    std::atomic<std::uint64_t> place;
    static constexpr std::uint64_t refused = ~std::uint64_t{0};

    void free_from(std::uint64_t own) { (void)name.compare_exchange_strong(own, 0); }
};

struct Meeting::Table {
    static constexpr std::size_t slots_count = 8192;
    static constexpr std::size_t slots_of_name = 8;  // next to each other
    Slot slots[slots_count];

    [[nodiscard]] Slot *find(std::uint64_t name) { return first(name, name); }
    // Returns a slot that has this name now, perhaps instead of the name of an end that is gone: also of one
    // whose connection had the same addresses. Where no slot is free the next one is taken each time, so that
    // two ends that want the same slot do not take it from each other for ever.
    [[nodiscard]] Slot &put(std::uint64_t name) {
        static std::atomic<std::size_t> next{0};
        Slot *slot = first(name, name);
        slot = slot != nullptr ? slot : first(name, 0);
        slot = slot != nullptr ? slot : &slots[index(name, next.fetch_add(1, std::memory_order_relaxed))];
        slot->name.store(0);
        slot->place.store(0);
        slot->name.store(name);
        return *slot;
    }

private:
    [[nodiscard]] static std::size_t index(std::uint64_t name, std::size_t number) {
        return ((name >> 1) + number % slots_of_name) % slots_count;  // both sides of a connection look here
    }
    [[nodiscard]] Slot *first(std::uint64_t name, std::uint64_t wanted) {
        for (std::size_t i = 0; i < slots_of_name; ++i) {
            if (Slot &slot = slots[index(name, i)]; slot.name.load() == wanted) {
                return &slot;
            }
        }
        return nullptr;
    }
};

namespace {

// An end that knows of the other one looks at each use, this often; then it looks as one that does not.
constexpr std::uint32_t looks_in_row = 1024;
// So often the kernel may have counted other bytes than this library, before the connection stays in TCP.
constexpr std::uint32_t most_mismatches = 8;

std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

// The side is the lowest bit, so both names of a connection differ there only.
std::uint64_t name_of(const FourTuple &connection, std::uint32_t side) {
    std::array<std::uint64_t, sizeof(connection.ends) / 8 + 1> words;
    std::memcpy(words.data(), connection.ends, sizeof(connection.ends));
    words.back() = connection.space;
    std::uint64_t hash = 1;
    for (const std::uint64_t word : words) {
        hash = mixed(hash ^ word);
    }
    return ((hash | 2) & ~std::uint64_t{1}) | side;
}

std::optional<FourTuple::End> end_at(const sockaddr_storage &address) {
    FourTuple::End end;
    end.port = base::port_of(address);
    if (address.ss_family == AF_INET6) {
        const auto &six = reinterpret_cast<const sockaddr_in6 &>(address);
        end.address = six.sin6_addr;
        end.scope = six.sin6_scope_id;
        return end;
    }
    const auto &four = reinterpret_cast<const sockaddr_in &>(address);
    end.address.s6_addr[10] = end.address.s6_addr[11] = 0xff;
    std::memcpy(&end.address.s6_addr[12], &four.sin_addr, sizeof(four.sin_addr));
    return address.ss_family == AF_INET ? std::optional{end} : std::nullopt;
}

std::optional<FourTuple::End> end_of(int fd, base::End which) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    auto *const place = reinterpret_cast<sockaddr *>(&address);
    const int result = which == base::End::Local ? LIBC(getsockname)(fd, place, &length)
                                                 : LIBC(getpeername)(fd, place, &length);
    return result == 0 ? end_at(address) : std::nullopt;
}

std::optional<FourTuple> connection_of(int fd) {
    const auto own = end_of(fd, base::End::Local);
    const auto peers = end_of(fd, base::End::Peer);
    FourTuple connection;
    socklen_t length = sizeof(connection.space);
    if (!own || !peers ||
        LIBC(getsockopt)(fd, SOL_SOCKET, SO_NETNS_COOKIE, &connection.space, &length) != 0) {
        return std::nullopt;
    }
    // A process of another namespace has another number here, by which its link is not found.
    connection.space ^= mixed(sockets.space_of_processes());
    const int order = std::memcmp(&*own, &*peers, sizeof(FourTuple::End));
    connection.side = order < 0 ? 0 : 1;
    connection.ends[connection.side] = *own;
    connection.ends[1 - connection.side] = *peers;
    return order != 0 ? std::optional{connection} : std::nullopt;
}

bool are_same(const FourTuple::End &one, const FourTuple::End &other) {
    return std::memcmp(&one, &other, sizeof(one)) == 0;
}

// Returns whether the addresses may be those of two connections. A proxy that is transparent, or in two
// routing domains, has both ends of these addresses, and is between them. The kernel sends a connection to
// another address than its client has asked for (NAT), which another client may have asked for.
bool has_foreign_addresses(int fd, const FourTuple &connection) {
    const auto is_set = [fd](int level, int option) {
        int value = 0;
        socklen_t length = sizeof(value);
        return LIBC(getsockopt)(fd, level, option, &value, &length) == 0 && value != 0;
    };
    const auto is_other = [fd, &connection](int level) {
        constexpr int original_destination = 80;  // SO_ORIGINAL_DST, and that of IPv6
        sockaddr_storage asked{};
        socklen_t length = sizeof(asked);
        const bool is_known = LIBC(getsockopt)(fd, level, original_destination, &asked, &length) == 0;
        const auto end = is_known ? end_at(asked) : std::nullopt;
        return end && !are_same(*end, connection.ends[0]) && !are_same(*end, connection.ends[1]);
    };
    return is_set(IPPROTO_IP, IP_TRANSPARENT) || is_set(IPPROTO_IPV6, IPV6_TRANSPARENT) ||
           is_set(SOL_SOCKET, SO_BINDTOIFINDEX) || is_other(IPPROTO_IP) || is_other(IPPROTO_IPV6);
}

bool is_same(const FourTuple &one, const FourTuple &other) {
    return std::memcmp(one.ends, other.ends, sizeof(one.ends)) == 0 && one.space == other.space;
}

// A file that is no memfd has no seals, and may be cut short.
bool is_sealed(int fd) {
    const int seals = LIBC(fcntl)(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

constexpr const char *link_name = "rpma-carry";

// Links that were offered, and that nobody has joined yet, have a descriptor each. The program has the most
// part of its descriptors for itself.
constinit std::atomic<std::uint64_t> offers{0};
bool may_offer() {
    rlimit limit{};
    constexpr std::uint64_t part_of_descriptors = 8;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && offers < limit.rlim_cur / part_of_descriptors;
}

// Where the kernel promises no more memory than it has, a page that it cannot give later would be a SIGBUS.
bool has_its_memory(int file) {
    static const bool is_strict = [] {
        char mode = 0;
        const int setting = LIBC(open)("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
        const bool is_read = setting >= 0 && LIBC(read)(setting, &mode, 1) == 1;
        if (setting >= 0) {
            (void)LIBC(close)(setting);
        }
        return is_read && mode == '2';
    }();
    return !is_strict || posix_fallocate(file, 0, sizeof(Link)) == 0;
}

using DescriptorPath = std::array<char, 64>;
DescriptorPath path_of(int fd) {
    DescriptorPath path;
    (void)std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
    return path;
}

// Returns whether the file has the name of a link, which another file may have too.
bool is_link(int fd) {
    constexpr std::string_view before = "/memfd:";
    std::array<char, 64> target{};
    const ssize_t length = readlink(path_of(fd).data(), target.data(), target.size());
    const std::string_view found{target.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
    return found.starts_with(before) && found.substr(before.size()).starts_with(link_name);
}

// Opens a link of another process. Its number may be that of anything meanwhile, and only to open a FIFO or a
// device does something to it, so the name is looked at first.
int open_link(std::uint64_t place) {
    char path[64];
    (void)std::snprintf(path, sizeof(path), "/proc/%u/fd/%u", static_cast<unsigned>(place >> 32),
                        static_cast<unsigned>(place));
    const int untouched = LIBC(open)(path, O_PATH | O_CLOEXEC);
    if (untouched < 0) {
        return -1;
    }
    const int file =
        is_link(untouched) ? LIBC(open)(path_of(untouched).data(), O_RDWR | O_CLOEXEC | O_NONBLOCK) : -1;
    (void)LIBC(close)(untouched);
    return file;
}

constexpr const char *shared_folder = "/dev/shm";
constexpr const char *no_table = "its user has no table in /dev/shm";

// The path of a folder. Its name has the user, and a number, which the first folder does not have.
struct FolderPath {
    std::array<char, 64> text{};

    FolderPath(uid_t user, unsigned number) {
        (void)std::snprintf(text.data(), text.size(),
                            number == 0 ? "%s/rpma-carry-%u" : "%s/rpma-carry-%u-%u", shared_folder, user,
                            number);
    }
};

// Opens a folder that this user alone reaches. Another one is EPERM.
int open_own(const FolderPath &path) {
    struct stat status{};
    if (lstat(path.text.data(), &status) != 0) {
        return -1;
    }
    constexpr mode_t of_others = 077;
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & of_others) != 0) {
        errno = EPERM;
        return -1;
    }
    const int folder = LIBC(open)(path.text.data(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0 && (fstat(folder, &status) != 0 || !base::is_own_file(folder, status))) {
        (void)LIBC(close)(folder);
        errno = EPERM;
        return -1;
    }
    return folder;
}

// So many names are looked at. Another user may make any number of them, and each process would look at all.
constexpr unsigned most_names = 4096;

// Opens the folder of the user's table. Another user may have given any name to a folder before, so the owner
// tells whose it is. Processes of one user agree: the first folder that is theirs counts, and a new one gets
// the first name that is free.
int open_folder(uid_t user) {
    for (unsigned number = 0; number < most_names; ++number) {
        if (const int own = open_own({user, number}); own >= 0) {
            return own;
        }
    }
    int made = -1;
    for (unsigned number = 0; made < 0 && number < most_names; ++number) {
        const FolderPath path{user, number};
        const bool is_new = mkdir(path.text.data(), S_IRWXU) == 0;
        if (!is_new && errno != EEXIST) {
            return -1;
        }
        made = open_own(path);
        if (made < 0 && is_new) {
            (void)rmdir(path.text.data());  // the thread makes files of another user (setfsuid(2))
            return -1;
        }
        if (made < 0 && errno != EPERM) {
            return -1;
        }
    }
    return made;
}

// Returns the memory of the user's table; nullptr where it cannot be had.
void *table_of(uid_t user, std::size_t bytes) {
    const int folder = open_folder(user);
    const int file =
        folder >= 0 ? LIBC(openat)(folder, "table", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    // The pages are there from here on: a full file system cannot end a process that uses them.
    int error =
        file >= 0 && base::may_make_file(bytes) ? posix_fallocate(file, 0, static_cast<off_t>(bytes)) : errno;
    void *const table =
        error == 0 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    error = error == 0 && table == MAP_FAILED ? errno : error;
    for (const int fd : {folder, file}) {
        if (fd >= 0) {
            (void)LIBC(close)(fd);
        }
    }
    if (error != 0) {
        BASE_LOG(Info, "connections stay in TCP: user %u cannot have a table in %s: %s", user, shared_folder,
                 std::strerror(error));
        return nullptr;
    }
    return table;
}

// Held while a thread maps a link, and during a fork: a child has the links that its parent's Sockets have.
constinit base::LastingMutex mapping;

// It takes the first lock of these rooms. A handler that runs while a thread forks would wait for them.
const base::ForkHook whole_links_after_forks{base::ForkLevel::CarryLinks,
                                             {.before =
                                                  [] {
                                                      handlers::hold();
                                                      mapping.take();
                                                  },
                                              .after_in_parent =
                                                  [] {
                                                      mapping.leave();
                                                      handlers::let_run();
                                                  },
                                              .after_in_child =
                                                  [] {
                                                      mapping.leave();
                                                      handlers::let_run_in_child();
                                                  }}};

}  // namespace

// The table of the user that this process is now.
struct Meeting::Tables {
    static inline std::optional<uid_t> user GUARDED_BY(mapping);
    static inline Table *table GUARDED_BY(mapping) = nullptr;

    [[nodiscard]] static Table *own() REQUIRES(mapping) {
        const uid_t now = geteuid();
        if (now != user) {
            leave();
            user = now;
            table = static_cast<Table *>(table_of(now, sizeof(Table)));
        }
        return table;
    }
    static void leave() REQUIRES(mapping) {
        if (table != nullptr) {
            (void)munmap(std::exchange(table, nullptr), sizeof(Table));
        }
        user.reset();
    }
};

std::uint64_t Meeting::first_look() {
    static const std::uint64_t uses = [] {
        std::uint64_t wanted = default_first_look;
        if (const char *const text = secure_getenv("RPMA_CARRY_AFTER"); text != nullptr) {
            const std::string_view digits{text};
            (void)std::from_chars(digits.data(), digits.data() + digits.size(), wanted);
        }
        return wanted;
    }();
    return uses;
}

void Meeting::used(Socket &socket, int fd, std::uint64_t bytes) {
    constexpr std::uint64_t bytes_of_use = 4096;
    // Two threads may count one use.
    const std::uint64_t uses = socket.uses_.load(std::memory_order_relaxed) + 1 + bytes / bytes_of_use;
    socket.uses_.store(uses, std::memory_order_relaxed);
    if (uses >= socket.look_at_.load(std::memory_order_relaxed)) {
        meet(socket, fd);
    }
}

void Meeting::look_soon(Socket &socket) {
    socket.look_at_ = 0;
}

// A handler may have interrupted malloc(3), which a meeting needs: the next use meets.
void Meeting::meet(Socket &socket, int fd) {
    if (handlers::may_run()) {
        return;
    }
    const int error = errno;
    if (const TrySection section{socket.locks().meeting}; section && socket.meeting_state_ != Linked) {
        const base::Lock lock{mapping};
        const std::uint64_t uses = socket.uses_;
        const bool may_meet = !socket.stays() && socket.processes_ == 1;
        Table *const table = may_meet ? Tables::own() : nullptr;
        if (may_meet && table == nullptr) {
            records::add(socket, fd);
            socket.stay(no_table);
        }
        const bool looks_again = table != nullptr && look(socket, fd, *table);
        if (socket.stays()) {
            socket.decline();
        }
        // The other end looks as often. While it is known to be there, each use looks.
        const std::uint64_t next = looks_again ? 1 : std::max<std::uint64_t>(uses, default_first_look);
        socket.look_at_ = socket.meeting_state_ == Linked || socket.stays() ? UINT64_MAX : uses + next;
        // The agent may have found the other end since that look.
        if (socket.is_far_ && socket.meeting_state_ == Waiting &&
            mirrors::device()->found(sockets.place_of(socket)) != nullptr) {
            look_soon(socket);
        }
    }
    errno = error;
}

// Returns whether the next use should look again.
bool Meeting::look(Socket &socket, int fd, Table &table) {
    const std::uint32_t side = socket.side_;
    switch (socket.meeting_state_) {
        case None: {
            const auto connection = connection_of(fd);
            if (!connection) {
                socket.stay("its addresses are not known");
                return false;
            }
            if (has_foreign_addresses(fd, *connection)) {
                socket.stay("another connection may have its addresses");
                return false;
            }
            records::add(socket, fd);
            socket.connection_ = *connection;
            socket.side_ = connection->side;
            MirrorDevice *const device = mirrors::device_for(*connection);
            socket.is_far_ = device != nullptr;
            if (socket.is_far_) {
                device->look_for(sockets.place_of(socket), *connection, *mirrors::beginning_of(socket));
                socket.meeting_state_ = Waiting;
                return true;
            }
            if (Slot *const other = table.find(name_of(*connection, 1 - connection->side));
                other != nullptr) {
                socket.slot_ = other - table.slots;
                return offer(socket, *other);
            }
            socket.slot_ = &table.put(name_of(*connection, connection->side)) - table.slots;
            socket.meeting_state_ = Waiting;
            return true;
        }
        case Waiting: {
            if (socket.is_far_) {
                return find_mirror(socket, fd);
            }
            Slot &own = table.slots[socket.slot_];
            const std::uint64_t name = name_of(socket.connection_, side);
            if (own.name != name) {
                socket.meeting_state_ = None;
                return false;
            }
            if (own.place != 0) {
                return join(socket, fd, own);
            }
            // Both ends may have come first. Then the end of side 0 makes the link.
            Slot *const other = side == 0 ? table.find(name_of(socket.connection_, 1)) : nullptr;
            if (other != nullptr) {
                own.free_from(name);
                socket.slot_ = other - table.slots;
                return offer(socket, *other);
            }
            return ++socket.looks_ % looks_in_row != 0;
        }
        case Offering:
            if (const Mirror *const mirror =
                    socket.is_far_ ? mirrors::device()->found(sockets.place_of(socket)) : nullptr;
                mirror != nullptr && mirror->is_lost()) {
                give_up(socket);
                return false;
            }
            if (is_refused(socket, table)) {
                socket.stay("its other end cannot map a link");
                give_up(socket);
                return false;
            }
            return settle(socket, fd, *socket.offered_) || ++socket.looks_ % looks_in_row != 0;
        default:
            return false;
    }
}

// The device looks in the background.
bool Meeting::find_mirror(Socket &socket, int fd) {
    const std::uint32_t place = sockets.place_of(socket);
    if (Mirror *const mirror = mirrors::device()->found(place); mirror != nullptr) {
        socket.offered_ = &mirror->link();
        socket.meeting_state_ = Offering;
        return settle(socket, fd, mirror->link());
    }
    mirrors::device()->look_for(place, socket.connection_, *mirrors::beginning_of(socket));
    return ++socket.looks_ % looks_in_row != 0;
}

bool Meeting::offer(Socket &socket, Slot &other) {
    constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (!may_offer()) {
        return false;
    }
    const int file = high_number(LIBC(memfd_create)(link_name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    struct stat made{};
    Link *const link = file >= 0 && base::may_make_file(sizeof(Link)) && ftruncate(file, sizeof(Link)) == 0 &&
                               has_its_memory(file) && LIBC(fcntl)(file, F_ADD_SEALS, seals) == 0 &&
                               fstat(file, &made) == 0
                           ? links::map(file)
                           : nullptr;
    if (link == nullptr) {
        socket.stay(errno == EMFILE || errno == ENFILE ? "no descriptor is left for a link"
                    : errno == EFBIG                   ? "the limit of the size of files is below a link's"
                                                       : "no memory is left for a link");
        if (file >= 0) {
            (void)LIBC(close)(file);
        }
        return false;
    }
    link->marked = Link::mark;
    link->connection = socket.connection_;
    link->maker = socket.side_;
    socket.offered_ = link;
    socket.offered_fd_ = file;
    socket.offered_file_ = made.st_ino;
    socket.offered_device_ = made.st_dev;
    offers.fetch_add(1);
    socket.meeting_state_ = Offering;
    std::uint64_t free = 0;
    const std::uint64_t place =
        std::uint64_t{static_cast<unsigned>(getpid())} << 32 | static_cast<unsigned>(file);
    if (!other.place.compare_exchange_strong(free, place)) {
        give_up(socket);
        return false;
    }
    return true;
}

bool Meeting::is_refused(const Socket &socket, Table &table) {
    if (socket.is_far_ || socket.offered_fd_ < 0) {
        return false;
    }
    Slot &others = table.slots[socket.slot_];
    const std::uint64_t name = name_of(socket.connection_, 1 - socket.side_);
    const bool is_refused = others.name == name && others.place == Slot::refused;
    if (is_refused) {
        others.free_from(name);
    }
    return is_refused;
}

// Maps the link that the other end has made.
bool Meeting::join(Socket &socket, int fd, Slot &own) {
    const int file = open_link(own.place);
    struct stat status{};
    Link *link = nullptr;
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
        base::is_own_file(file, status) && status.st_size == sizeof(Link) && is_sealed(file)) {
        link = links::map(file);
    }
    if (file >= 0) {
        (void)LIBC(close)(file);
    }
    if (link != nullptr && (link->marked != Link::mark || link->maker != 1 - socket.side_ ||
                            !is_same(link->connection, socket.connection_))) {
        links::unmap(link);
        link = nullptr;
    }
    if (link == nullptr) {
        own.place = Slot::refused;
        socket.meeting_state_ = None;
        socket.stay("the link of its other end cannot be mapped");
        return false;
    }
    own.free_from(name_of(socket.connection_, socket.side_));
    socket.offered_ = link;
    socket.meeting_state_ = Offering;
    return settle(socket, fd, *link);
}

// Takes the link, when the calls that do not know of it have ended. Returns false when that takes longer.
bool Meeting::settle(Socket &socket, int fd, Link &link) {
    const bool made_it = link.maker == socket.side_;
    std::uint32_t expected = made_it ? Link::Joined : Link::Offered;
    if (link.state.load() != expected) {
        return false;
    }
    if (!socket.is_linked()) {
        // Another connection may have the addresses of one that was reset, and have offered the link.
        if (!Socket::has_connection(fd)) {
            socket.stay("its connection has ended");
            give_up(socket);
            return false;
        }
        if (!socket.kernel_agrees(fd)) {
            if (!socket.locks().sending.any() && !socket.is_received_by_kernel() &&
                ++socket.mismatches_ > most_mismatches) {
                socket.stay("bytes passed this library by");
                give_up(socket);
            }
            return false;
        }
        if (socket.locks().inside != 1 || !epolls::may_rename(socket, fd)) {
            return false;  // another thread still has the link before, or it is not the time
        }
        socket.send_without_delay(fd);
        socket.take_link(link);
        epolls::linked(socket);
    }
    if (socket.is_received_by_kernel()) {
        return false;
    }
    if (link.state.compare_exchange_strong(expected, made_it ? Link::Open : Link::Joined)) {
        socket.push();
        socket.meeting_state_ = Linked;
        close_offer(socket);
    }
    return true;
}

// The program may have closed the number unseen, or have put another file there. After chroot(2) there may be
// no /proc to tell the name of the file.
bool Meeting::has_file_of_offer(const Socket &socket) {
    struct stat status{};
    return fstat(socket.offered_fd_, &status) == 0 && status.st_ino == socket.offered_file_ &&
           status.st_dev == socket.offered_device_ && is_sealed(socket.offered_fd_);
}

void Meeting::close_offer(Socket &socket) {
    if (socket.offered_fd_ < 0) {
        return;
    }
    std::uint64_t count = offers;
    while (count != 0 && !offers.compare_exchange_weak(count, count - 1)) {
    }
    if (has_file_of_offer(socket)) {
        (void)LIBC(close)(socket.offered_fd_);
    }
    socket.offered_fd_ = -1;
}

// The next link has to wait longer each time.
void Meeting::left(Socket &socket) {
    constexpr std::uint32_t most = 8;
    const std::uint64_t uses = Shake::is_on() ? 1 : 4096;
    socket.meeting_state_ = None;
    socket.look_at_ = socket.uses_ + (uses << std::min(socket.left_++, most));
}

void Meeting::forget(Socket &socket) {
    if (socket.meeting_state_ == None) {
        return;  // and there is no file of a link
    }
    const Held held{mapping};
    give_up(socket);
}

void Meeting::forget_for_good(Socket &socket) {
    const Held held{mapping};
    if (socket.is_linked()) {
        close_offer(socket);
    } else {
        give_up(socket);
    }
}

void Meeting::before_fork(Socket &socket) {
    mapping.assert_held();
    if (socket.meeting_state_ == Offering && !socket.is_linked()) {
        give_up(socket);
    }
}

void Meeting::begin_as_child(const Socket &socket) {
    offers = 0;
    if (socket.offered_fd_ >= 0 && has_file_of_offer(socket)) {
        (void)LIBC(close)(socket.offered_fd_);
    }
}

void Meeting::leave_user() {
    const Held held{mapping};
    Tables::leave();
    for (const links::Mapped &one : links::all) {
        const Link *const link = one.link;
        if (link == nullptr) {
            continue;
        }
        bool is_used = false;
        sockets.for_all([&](int, const Socket &socket) {
            is_used = is_used || socket.mapped_link() == link || socket.offered_ == link;
        });
        if (!is_used) {
            links::unmap(link);
        }
    }
}

void Meeting::look_no_more(Socket &socket) {
    if (socket.is_far_ && socket.meeting_state_ != None && !socket.is_linked()) {
        const Held held{mapping};
        if (!socket.is_linked()) {
            give_up(socket);
        }
    }
}

void Meeting::give_up(Socket &socket) {
    mapping.assert_held();
    if (socket.is_far_) {
        if ((socket.meeting_state_ == Waiting || socket.meeting_state_ == Offering) && !socket.is_linked()) {
            mirrors::device()->forget(sockets.place_of(socket));
        }
    } else if (socket.meeting_state_ == Waiting) {
        if (Table *const table = Tables::own(); table != nullptr) {
            table->slots[socket.slot_].free_from(name_of(socket.connection_, socket.side_));
        }
    } else if (socket.meeting_state_ == Offering && !socket.is_linked()) {
        links::unmap(std::exchange(socket.offered_, nullptr));
    }
    close_offer(socket);
    socket.meeting_state_ = None;
}

}  // namespace carry
