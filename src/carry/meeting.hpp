// SPDX-License-Identifier: BSD-3-Clause
// carry/meeting: how the two ends of a connection find each other, when both are processes of one user in one
// network namespace, and make a link. Each user has a table in /dev/shm. The end that comes first leaves the
// connection's name in it. The other end finds the name, makes the link in a memfd, and leaves there where
// that is. Nobody waits: each end looks when the program uses the socket.
//
//      first end            table                second end
//      Waiting   ─ name ──►  │
//                            │ ◄── finds it ──── makes a link: Offering
//      maps it  ◄─ place ──  │ ◄── place ───────
//      Joined ─────────────────── in the link ──► Open: it still has the connection
#pragma once

#include <atomic>
#include <cstdint>

#include "carry/link.hpp"

namespace carry {

class Socket;

class Meeting {
public:
    // Each call that moves bytes is a use, and each 4 KiB are one more. The link costs as much as some ten
    // messages through TCP. RPMA_CARRY_AFTER has another number, for tests.
    static constexpr std::uint64_t default_first_look = 16;
    [[nodiscard]] static std::uint64_t first_look();

    // The program has moved bytes. Looks for the other end when it is time. The caller is inside the Socket.
    static void used(Socket &socket, int fd, std::uint64_t bytes);
    // The device has found the other end of a socket.
    static void look_soon(Socket &socket);
    // Both ends have left their link.
    static void left(Socket &socket);
    // The socket ends, or stays in TCP.
    static void forget(Socket &socket);
    // The same, also of a socket whose ring has unread bytes: its end has no file to close.
    static void forget_for_good(Socket &socket);
    // The process has lost the rights of its user for good: unmaps that user's table, and all links but those
    // that its Sockets have.
    static void leave_user();
    // The process is about to fork, and only one of the two may find the other end on a device.
    static void look_no_more(Socket &socket);
    // The process forks, and holds the locks. Only one of the two would close the file of an offer.
    static void before_fork(Socket &socket);
    // The file of an offer that is joined already is the parent's to close.
    static void begin_as_child(const Socket &socket);

private:
    enum State : std::uint32_t { None, Waiting, Offering, Linked };
    struct Slot;
    struct Table;
    struct Tables;

    static void meet(Socket &socket, int fd);
    static bool look(Socket &socket, int fd, Table &table);
    static bool find_mirror(Socket &socket, int fd);
    static bool offer(Socket &socket, Slot &other);
    static bool is_refused(const Socket &socket, Table &table);
    static bool join(Socket &socket, int fd, Slot &own);
    static bool settle(Socket &socket, int fd, Link &link);
    static void give_up(Socket &socket);
    [[nodiscard]] static bool has_file_of_offer(const Socket &socket);
    static void close_offer(Socket &socket);
};

}  // namespace carry
