// SPDX-License-Identifier: BSD-3-Clause
// carry/waits: poll(2) and epoll(7) where a socket may have bytes in its ring, of which the kernel does not
// know. A wait without such a socket is the kernel's one call. Otherwise a wait looks at the rings for a
// short time, asks the peers for doorbells, and sleeps in the kernel's own call, which a doorbell ends.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

#include <atomic>
#include <span>

namespace carry {

class Socket;

// Returns whether any socket of this process, or of the one that forked it, had a link.
extern std::atomic<bool> has_link;
[[nodiscard]] inline bool any_link() {
    return has_link.load(std::memory_order_relaxed);
}
// Returns whether a wait for these descriptors concerns a ring.
[[nodiscard]] bool concern_a_ring(std::span<const pollfd> entries);
// Waits as ppoll(2). timeout: nullptr stands for no end; mask: nullptr for the thread's own.
[[nodiscard]] int wait_for(std::span<pollfd> entries, const timespec *timeout, const sigset_t *mask);

// The process's epoll sets, as far as TCP sockets are in them. Any number of threads may call.
namespace epolls {
// Returns whether the descriptor is a set with a TCP socket. Takes no lock.
[[nodiscard]] bool is_set(int fd);
// Returns whether closed() has anything to do for a descriptor. Takes no lock.
[[nodiscard]] bool concerns(int fd, const Socket *socket, bool has_more_numbers);
// Works as epoll_ctl(2).
[[nodiscard]] int control(int epoll, int operation, int fd, epoll_event *event);
// Returns whether the descriptor is a set with a socket that has a link. Another set's wait is the kernel's.
[[nodiscard]] bool has_linked(int epoll);
// Returns whether a socket of the set has had a link. Then settle() turns the kernel's events into the
// program's, and returns how many are left.
[[nodiscard]] bool has_names(int epoll);
[[nodiscard]] int settle(int epoll, std::span<epoll_event> events);
// Works as epoll_pwait2(2).
[[nodiscard]] int wait(int epoll, std::span<epoll_event> events, const timespec *timeout,
                       const sigset_t *mask);
// Another wait than epoll_wait(2) is about to look at the kernel's set.
void tell_kernel(int epoll);
// Returns whether a member has bytes in its ring for the program, or room for some.
[[nodiscard]] bool is_ready(int epoll);
// Do for the members what they do for a Socket.
[[nodiscard]] bool begin_sleep(int epoll);
void end_sleep(int epoll);
// `number` is another number of the set now.
void duplicated(int epoll, int number);
// The descriptor is about to be closed, whether it is a set or a member.
void closed(int fd, bool has_more_numbers);
// The process is about to execute a program, which may have the sets that this process has alone: the kernel
// tells it of the members as this program would be told. after_failed_exec() is for one that could not.
void before_exec();
void after_failed_exec();
// All descriptors between these numbers are closed; the sockets have been closed one by one.
void closed_between(unsigned first, unsigned last);
// The link of a socket begins or ends, and changes its name in the kernel's sets, which arms it there.
// Returns whether the kernel would tell the program nothing twice.
[[nodiscard]] bool may_rename(Socket &socket, int fd);
// The socket is about to change its state, of which the kernel tells as of new bytes (EPOLLET).
void shuts_down(Socket &socket);
// The socket has a link now.
void linked(Socket &socket);
// It has none any more.
void unlinked(Socket &socket);
// The kernel's sets tell of the socket as if it were new. Returns false when another thread uses the sets.
[[nodiscard]] bool tell_again(const Socket &socket);
}  // namespace epolls

}  // namespace carry
