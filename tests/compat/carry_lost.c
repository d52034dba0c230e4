/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * carry_lost.c: TCP connections whose bytes go over an RDMA device that loses the peer, where the agents of
 * the two ends cannot meet. The reader gets each byte that was sent, or an error. It runs with
 * libcarry-preload.so, RPMA_CARRY_DEVICE=soft and RPMA_CARRY_AFTER=1.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "socket_pairs.h"

enum { hangs_after_s = 60, most_bytes = 600000 };

/* The library sets the kernel's option where a connection has a link, and hides that from the program. */
static bool has_link(int fd) {
    int value = 0;
    socklen_t size = sizeof(value);
    assert_int_equal(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
    return value != 0;
}

/* Only the port of the agent is one of all addresses. */
static bool is_agents_port(int fd) {
    struct sockaddr_in6 name = {.sin6_family = AF_UNSPEC};
    socklen_t size = sizeof(name);
    int listens = 0;
    socklen_t length = sizeof(listens);
    return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0 &&
           syscall(SYS_getsockname, fd, &name, &size) == 0 &&
           (name.sin6_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&name.sin6_addr)
                                         : ((struct sockaddr_in *)&name)->sin_addr.s_addr == INADDR_ANY);
}

/* The program's own socket pairs have names in the Unix domain. */
static bool is_connected_by_tcp(int fd) {
    struct sockaddr_in6 name = {.sin6_family = AF_UNSPEC};
    socklen_t size = sizeof(name);
    return syscall(SYS_getpeername, fd, &name, &size) == 0 &&
           (name.sin6_family == AF_INET || name.sin6_family == AF_INET6);
}

/* The library's descriptors are the kernel's. Calls visit(one of them, its argument) for each of the process.
 */
static void for_all_descriptors(void (*visit)(int fd, void *argument), void *argument) {
    DIR *const folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        visit((int)strtol(entry->d_name, NULL, 10), argument);
    }
    assert_int_equal(closedir(folder), 0);
}

static bool is_silent; /* the port of the agent takes who comes, and says nothing; else it refuses */

static void take_port(int fd, void *found) {
    if (!is_agents_port(fd)) {
        return;
    }
    *(bool *)found = true;
    struct sockaddr_storage name;
    socklen_t size = sizeof(name);
    assert_int_equal(syscall(SYS_getsockname, fd, &name, &size), 0);
    const int another = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(another >= 0);
    assert_int_equal(syscall(SYS_dup3, another, fd, O_CLOEXEC), fd);
    assert_int_equal(close(another), 0);
    if (is_silent) {
        const int silent = socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(silent, (struct sockaddr *)&name, size), 0);
        assert_int_equal(listen(silent, 8), 0);
    }
}

struct ends {
    int count;
    const int *all;
};

/* From here on the device sends and receives nothing. */
static void cut(int fd, void *argument) {
    const struct ends *const own = argument;
    bool is_own = !is_connected_by_tcp(fd);
    for (int i = 0; i < own->count; ++i) {
        is_own = is_own || own->all[i] == fd;
    }
    if (!is_own) {
        (void)syscall(SYS_shutdown, fd, SHUT_RDWR);
    }
}

static void cut_device(const int *all, int count) {
    struct ends own = {.count = count, .all = all};
    for_all_descriptors(cut, &own);
}

static char byte_at(size_t place) {
    return (char)(place * 2654435761U >> 16);
}

struct talk {
    int ends[2];
    size_t sent; /* from ends[0] to ends[1] */
    size_t received;
};

/* Returns what send(2) returns. */
static ssize_t send_some(struct talk *talk, size_t bytes, int flags) {
    char some[4096];
    assert_true(bytes <= sizeof(some));
    for (size_t i = 0; i < bytes; ++i) {
        some[i] = byte_at(talk->sent + i);
    }
    const ssize_t sent = send(talk->ends[0], some, bytes, flags | MSG_NOSIGNAL);
    talk->sent += sent > 0 ? (size_t)sent : 0;
    return sent;
}

/* Returns what recv(2) returns. */
static ssize_t receive_some(struct talk *talk, size_t bytes) {
    char some[4096];
    const ssize_t received = recv(talk->ends[1], some, bytes < sizeof(some) ? bytes : sizeof(some), 0);
    for (ssize_t i = 0; i < received; ++i) {
        assert_int_equal(some[i], byte_at(talk->received + (size_t)i));
    }
    talk->received += received > 0 ? (size_t)received : 0;
    return received;
}

static void exchange(struct talk *talk) {
    char back = 0;
    assert_int_equal(send_some(talk, 1, 0), 1);
    assert_int_equal(receive_some(talk, 1), 1);
    assert_int_equal(send(talk->ends[1], "", 1, 0), 1);
    assert_int_equal(recv(talk->ends[0], &back, 1, 0), 1);
}

/* Both ends send through the device when it returns: each opens the link in one of its next calls. */
static void go_over(struct talk *talk) {
    enum { calls = 20 };
    static bool is_taken = false;
    while (!is_taken || !has_link(talk->ends[0]) || !has_link(talk->ends[1])) {
        if (!is_taken) {
            for_all_descriptors(take_port, &is_taken);
        }
        exchange(talk);
    }
    for (int i = 0; i < calls; ++i) {
        exchange(talk);
    }
}

static void send_more_than_the_ring_takes(struct talk *talk) {
    while (talk->sent < most_bytes && send_some(talk, 4096, MSG_DONTWAIT) > 0) {
    }
    assert_int_equal(close(talk->ends[0]), 0);
}

static void send_through_tcp(struct talk *talk) {
    (void)send_some(talk, 1, MSG_DONTROUTE); /* which the ring does not carry */
    assert_int_equal(close(talk->ends[0]), 0);
}

static void shut_down(struct talk *talk) {
    (void)shutdown(talk->ends[0], SHUT_WR); /* the other direction is open */
}

static void close_it(struct talk *talk) {
    assert_int_equal(close(talk->ends[0]), 0);
}

/* Each ending sends bytes, or the end, behind bytes that the reader cannot get. */
static void lost_bytes_are_an_error(void **state) {
    void (*const ending)(struct talk *) = *(void (**)(struct talk *))*state;
    struct talk talk = {.sent = 0};
    (void)alarm(hangs_after_s);
    make_pair(talk.ends);
    go_over(&talk);
    cut_device(talk.ends, 2);
    for (int i = 0; i < 20; ++i) {
        (void)send_some(&talk, 1000, MSG_DONTWAIT);
    }
    ending(&talk);
    ssize_t last = 0;
    do {
        last = receive_some(&talk, SIZE_MAX);
    } while (last > 0);
    assert_int_equal(last, -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(close(talk.ends[1]), 0);
    (void)alarm(0);
}

/* The ends show by their first bytes that they have the connection, also by those that calls move whose bytes
   the library does not get. */
static void a_connection_begins_with_bytes_of_the_kernels(void **state) {
    (void)state;
    char some[1000];
    int in_pipe[2];
    struct talk talk = {.sent = 0};
    (void)alarm(hangs_after_s);
    make_pair(talk.ends);
    for (size_t i = 0; i < sizeof(some); ++i) {
        some[i] = byte_at(i);
    }
    const int file = memfd_create("carry_lost", MFD_CLOEXEC);
    assert_int_equal(write(file, some, sizeof(some)), sizeof(some));
    off_t from = 0;
    assert_int_equal(sendfile(talk.ends[0], file, &from, sizeof(some)), sizeof(some));
    talk.sent = sizeof(some);
    while (talk.received != talk.sent) {
        assert_true(receive_some(&talk, SIZE_MAX) > 0);
    }
    assert_int_equal(pipe(in_pipe), 0);
    assert_int_equal(write(in_pipe[1], some, sizeof(some)), sizeof(some));
    assert_int_equal(splice(in_pipe[0], NULL, talk.ends[1], NULL, sizeof(some), 0), sizeof(some));
    await(talk.ends[0], POLLIN);
    assert_int_equal(splice(talk.ends[0], NULL, in_pipe[1], NULL, sizeof(some), 0), sizeof(some));
    assert_int_equal(read(in_pipe[0], some, sizeof(some)), sizeof(some));
    for (size_t i = 0; i < sizeof(some); ++i) {
        assert_int_equal(some[i], byte_at(i));
    }
    go_over(&talk);
    close_pair(talk.ends);
    close_pair(in_pipe);
    assert_int_equal(close(file), 0);
    (void)alarm(0);
}

/* One end has taken the link, and the other one has not, when it returns. Returns which one has. The other
   one may have a byte to read. */
static int go_halfway(const int ends[2], bool *has_byte) {
    for (int sender = 0;; sender = 1 - sender) {
        char byte = 0;
        assert_int_equal(send(ends[sender], "!", 1, 0), 1);
        *has_byte = has_link(ends[sender]);
        if (*has_byte) {
            return sender;
        }
        assert_int_equal(recv(ends[1 - sender], &byte, 1, 0), 1);
        if (has_link(ends[1 - sender])) {
            return 1 - sender;
        }
    }
}

/* An end that waits for the other one to open the link gets what TCP shows of one that never does. */
static void a_link_that_is_left_untaken_keeps_no_end_back(void **state) {
    (void)state;
    int ends[2];
    bool has_byte = false;
    char byte = 0;
    (void)alarm(hangs_after_s);
    make_pair(ends);
    const int taker = go_halfway(ends, &has_byte);
    assert_int_equal(shutdown(ends[1 - taker], SHUT_WR), 0);
    assert_int_equal(recv(ends[taker], &byte, 1, 0), 0);
    assert_int_equal(send(ends[taker], "!", 1, 0), 1);
    for (int i = has_byte ? 0 : 1; i < 2; ++i) {
        assert_int_equal(recv(ends[1 - taker], &byte, 1, 0), 1);
    }
    close_pair(ends);
    (void)alarm(0);
}

/* The other end opens the link, and sends, when this one has been passed on. */
static void a_socket_is_passed_before_its_link_is_open(void **state) {
    (void)state;
    enum { messages = 200 };
    int ends[2];
    int passing[2];
    bool has_byte = false;
    char byte = 0;
    (void)alarm(hangs_after_s);
    make_pair(ends);
    const int taker = go_halfway(ends, &has_byte);
    const int other = ends[1 - taker];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, passing), 0);
    send_descriptor(passing[0], ends[taker]);
    assert_int_equal(close(ends[taker]), 0);
    const int passed = receive_descriptor(passing[1]);
    assert_int_equal(has_byte ? recv(other, &byte, 1, 0) : 1, 1);
    for (int i = 0; i < messages; ++i) {
        byte = byte_at((size_t)i);
        assert_int_equal(send(other, &byte, 1, 0), 1);
        byte = 0;
        assert_int_equal(recv(passed, &byte, 1, 0), 1);
        assert_int_equal(byte, byte_at((size_t)i));
        assert_int_equal(send(passed, &byte, 1, 0), 1);
        assert_int_equal(recv(other, &byte, 1, 0), 1);
    }
    assert_int_equal(shutdown(passed, SHUT_WR), 0);
    assert_int_equal(recv(other, &byte, 1, 0), 0);
    assert_int_equal(close(passed), 0);
    assert_int_equal(close(other), 0);
    close_pair(passing);
    (void)alarm(0);
}

/* A process that closes its number of a socket which a message has does not say how the connection ends. */
static void a_reset_of_a_passed_socket_is_one(void **state) {
    (void)state;
    struct talk talk = {.sent = 0};
    int passing[2];
    (void)alarm(hangs_after_s);
    make_pair(talk.ends);
    go_over(&talk);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, passing), 0);
    send_descriptor(passing[0], talk.ends[0]);
    assert_int_equal(close(talk.ends[0]), 0);
    const int passed = receive_descriptor(passing[1]);
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(passed, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
    assert_int_equal(close(passed), 0);
    assert_int_equal(receive_some(&talk, 1), -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(close(talk.ends[1]), 0);
    close_pair(passing);
    (void)alarm(0);
}

static void passed_by_message(struct talk *talk) {
    int passing[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, passing), 0);
    send_descriptor(passing[0], talk->ends[1]);
    assert_int_equal(close(talk->ends[1]), 0);
    talk->ends[1] = receive_descriptor(passing[1]);
    assert_int_equal(receive_some(talk, SIZE_MAX), -1);
    assert_int_equal(errno, ECONNRESET);
    close_pair(passing);
}

/* The program has the socket only because nobody has closed it. */
static void closed_while_a_program_has_it(struct talk *talk) {
    int in[2];
    pid_t child = -1;
    char *const words[] = {"cat", NULL};
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO), 0);
    assert_int_equal(posix_spawnp(&child, words[0], &actions, NULL, words, environ), 0);
    assert_int_equal(posix_spawn_file_actions_destroy(&actions), 0);
    assert_int_equal(receive_some(talk, 1), 1); /* this process has the others still */
    assert_int_equal(close(talk->ends[1]), 0);
    talk->ends[1] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char byte = 0;
    assert_int_equal(recv(talk->ends[0], &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    close_pair(in);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Another program reads the kernel's socket, which does not have the bytes of the ring. */
static void unread_bytes_are_an_error_for_the_next_reader(void **state) {
    void (*const ending)(struct talk *) = *(void (**)(struct talk *))*state;
    struct talk talk = {.sent = 0};
    (void)alarm(hangs_after_s);
    make_pair(talk.ends);
    go_over(&talk);
    assert_int_equal(send_some(&talk, 1000, 0), 1000);
    await(talk.ends[1], POLLIN);
    ending(&talk);
    assert_true(send_some(&talk, 1, 0) < 0);
    close_pair(talk.ends);
    (void)alarm(0);
}

/* Sends a byte that the ring does not carry. */
static ssize_t send_past_the_ring(struct talk *talk) {
    return send_some(talk, 1, MSG_DONTROUTE);
}

/* The next bytes begin a turn in the ring. */
static void be_about_to_begin_a_turn(struct talk *talk) {
    enum { sends_in_tcp = 16 }; /* until the ring is tried again */
    assert_int_equal(send_past_the_ring(talk), 1);
    assert_int_equal(receive_some(talk, 1), 1);
    for (int i = 0; i < sends_in_tcp; ++i) {
        exchange(talk);
    }
}

/* Returns a set that tells once of what happens to the socket, which does not wait from here on. */
static int watched(int fd, uint32_t events) {
    const int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = events | EPOLLET};
    assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    (void)epoll_wait(set, &event, 1, 0);
    return set;
}

/* The agents look for each other for some time. A call that does not wait says so, and the set tells when
   they have given up. Then both ends have an error. */
static void no_call_waits_for_the_agents(void **state) {
    (void)state;
    is_silent = true;
    (void)alarm(hangs_after_s);
    struct talk sending = {.sent = 0};
    make_pair(sending.ends);
    go_over(&sending);
    struct talk ending = {.sent = 0};
    make_pair(ending.ends);
    go_over(&ending);
    struct talk urgent = {.sent = 0};
    make_pair(urgent.ends);
    go_over(&urgent);
    be_about_to_begin_a_turn(&sending);
    be_about_to_begin_a_turn(&urgent);
    const int all[] = {sending.ends[0], sending.ends[1], ending.ends[0],
                       ending.ends[1],  urgent.ends[0],  urgent.ends[1]};
    cut_device(all, 6);
    /* The peer cannot know that these bytes are not in TCP, so none may follow there. */
    assert_int_equal(send_some(&sending, 100, 0), 100);
    const int set = watched(sending.ends[0], EPOLLOUT);
    assert_int_equal(send_past_the_ring(&sending), -1);
    assert_int_equal(errno, EAGAIN);
    /* The end cannot say that there are bytes before it. */
    assert_int_equal(send_some(&ending, 100, 0), 100);
    assert_int_equal(send_some(&urgent, 100, 0), 100);
    const int set_of_urgent = watched(urgent.ends[0], EPOLLOUT);
    assert_int_equal(send(urgent.ends[0], "!", 1, MSG_OOB | MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EAGAIN);
    const int set_of_reader = watched(ending.ends[1], EPOLLIN);
    assert_int_equal(close(ending.ends[0]), 0);
    assert_int_equal(receive_some(&ending, 100), -1);
    assert_int_equal(errno, EAGAIN);

    struct epoll_event event;
    ssize_t last = -1;
    for (errno = EAGAIN; last < 0 && errno == EAGAIN; last = send_past_the_ring(&sending)) {
        assert_int_equal(epoll_wait(set, &event, 1, -1), 1);
    }
    assert_int_equal(last, -1);
    assert_int_equal(errno, ECONNRESET);
    for (errno = EAGAIN; last < 0 && errno == EAGAIN;
         last = send(urgent.ends[0], "!", 1, MSG_OOB | MSG_NOSIGNAL)) {
        assert_int_equal(epoll_wait(set_of_urgent, &event, 1, -1), 1);
    }
    assert_int_equal(last, -1);
    assert_int_equal(errno, ECONNRESET);
    for (errno = EAGAIN; last < 0 && errno == EAGAIN; last = receive_some(&ending, 100)) {
        assert_int_equal(epoll_wait(set_of_reader, &event, 1, -1), 1);
    }
    assert_int_equal(last, -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(receive_some(&sending, 100), -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(close(set), 0);
    assert_int_equal(close(set_of_reader), 0);
    assert_int_equal(close(set_of_urgent), 0);
    (void)alarm(0);
}

enum { last_bytes = 5000 };

/* Answers whether it has a link, until it is told to take what is left. Returns an exit status. */
static int answer_and_drain(int fd) {
    char some[last_bytes];
    size_t got = 0;
    ssize_t more = 0;
    for (some[0] = 0; some[0] != 'Q';) {
        if (recv(fd, some, 1, 0) != 1 || send(fd, has_link(fd) ? "1" : "0", 1, 0) != 1) {
            return 2;
        }
    }
    do {
        more = recv(fd, some, sizeof(some), 0);
        got += more > 0 ? (size_t)more : 0;
    } while (more > 0);
    return more == 0 && got == last_bytes ? 0 : 3;
}

/* Both ends send through the device when it returns, and the peer drains. */
static void go_over_with(int fd) {
    char said = 0;
    for (int uses = 0; uses < 50; uses += said == '1' && has_link(fd) ? 1 : 0) {
        assert_int_equal(send(fd, "?", 1, 0), 1);
        assert_int_equal(recv(fd, &said, 1, 0), 1);
    }
    assert_int_equal(send(fd, "Q", 1, 0), 1);
    assert_int_equal(recv(fd, &said, 1, 0), 1);
}

/* A process of its own has the second end from here on, and this one the first. */
static pid_t fork_peer(const int ends[2]) {
    const pid_t peer = fork();
    if (peer == 0) {
        assert_int_equal(close(ends[0]), 0);
        _exit(answer_and_drain(ends[1]));
    }
    assert_int_equal(close(ends[1]), 0);
    go_over_with(ends[0]);
    return peer;
}

static void expect_all_arrived(pid_t peer) {
    int status = 0;
    assert_int_equal(waitpid(peer, &status, 0), peer);
    assert_int_equal(status, 0);
    (void)alarm(0);
}

static void count_devices_connections(int fd, void *argument) {
    struct ends *const all = argument;
    bool is_own = !is_connected_by_tcp(fd);
    for (int i = 0; i < 2; ++i) {
        is_own = is_own || all->all[i] == fd;
    }
    all->count += is_own ? 0 : 1;
}

/* Both ends have met in one process. Then each process has one of them. */
static void ends_meet_again_after_a_fork(void **state) {
    (void)state;
    int ends[2];
    (void)alarm(hangs_after_s);
    make_pair(ends);
    struct ends both = {.count = 0, .all = ends};
    while (both.count < 2) {
        both.count = 0;
        for_all_descriptors(count_devices_connections, &both);
    }
    const pid_t peer = fork_peer(ends);
    const char some[last_bytes] = {0};
    assert_int_equal(send(ends[0], some, sizeof(some), 0), sizeof(some));
    assert_int_equal(close(ends[0]), 0);
    expect_all_arrived(peer);
}

/* A peer that is stopped meets this end's agent later than a second. */
static void bytes_before_a_close_arrive_when_the_agents_meet(void **state) {
    (void)state;
    static const char some[last_bytes];
    const struct timespec longer_than_without_a_loss = {.tv_sec = 1, .tv_nsec = 500000000};
    int ends[2];
    (void)alarm(hangs_after_s);
    make_pair(ends);
    const pid_t peer = fork_peer(ends);
    int status = 0;
    assert_int_equal(kill(peer, SIGSTOP), 0);
    assert_int_equal(waitpid(peer, &status, WUNTRACED), peer);
    cut_device(ends, 1);
    assert_int_equal(send(ends[0], some, sizeof(some), 0), sizeof(some));
    assert_int_equal(close(ends[0]), 0);
    (void)nanosleep(&longer_than_without_a_loss, NULL);
    assert_int_equal(kill(peer, SIGCONT), 0);
    expect_all_arrived(peer);
}

/* ---- who does not have the connection ---- */

/* A word of the agents (src/carry_device/finding.hpp). */
enum { calls = 1, asks, answers, port_of_agents = 20481 };
struct word {
    uint64_t mark, name, asks, answers;
    uint16_t lengths[2];
    uint16_t port;
    uint8_t kind, is_passed_on;
    uint8_t proof[32];
};

static uint64_t mixed(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
}

/* The name of the connection between 127.0.0.1, which is side 0, and 127.0.0.2. */
static uint64_t name_of(const struct sockaddr_in *ends) {
    uint64_t words[6];
    unsigned char bytes[sizeof(words)] = {0};
    uint64_t name = 1;
    for (size_t i = 0; i < 2; ++i) {
        unsigned char *const end = bytes + i * sizeof(bytes) / 2;
        const uint32_t port = ntohs(ends[i].sin_port);
        end[10] = end[11] = 0xff;
        memcpy(end + 12, &ends[i].sin_addr, 4);
        memcpy(end + 20, &port, sizeof(port));
    }
    memcpy(words, bytes, sizeof(words));
    for (size_t i = 0; i < 6; ++i) {
        name = mixed(name ^ words[i]);
    }
    return name;
}

/* Returns what kind of word says how many of the first bytes the asked end has; it proves none but all. */
static int kind_of_answer(int asker, const struct sockaddr_in *agents, uint64_t name, const uint16_t *lengths,
                          struct word *answer) {
    const struct word question = {.mark = 0x72706d612d637236U,
                                  .name = name,
                                  .asks = 7,
                                  .lengths = {lengths[0], lengths[1]},
                                  .kind = asks};
    for (int i = 0; i < 100; ++i) {
        struct pollfd one = {.fd = asker, .events = POLLIN};
        assert_int_equal(
            sendto(asker, &question, sizeof(question), 0, (const struct sockaddr *)agents, sizeof(*agents)),
            sizeof(question));
        if (poll(&one, 1, 200) == 1) {
            assert_int_equal(recv(asker, answer, sizeof(*answer), 0), sizeof(*answer));
            return answer->kind;
        }
    }
    return 0;
}

/* The other end's calls are not the library's, so it looks for nobody. */
static void a_stranger_learns_no_part_of_the_first_bytes(void **state) {
    (void)state;
    struct sockaddr_in ends[2];
    struct sockaddr_in agents = {.sin_family = AF_INET, .sin_port = htons(port_of_agents)};
    socklen_t size = sizeof(ends[0]);
    char byte = 's';
    const int listener = listening(&ends[0]);
    agents.sin_addr = ends[0].sin_addr;
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    const int asker = socket(AF_INET, SOCK_DGRAM, 0);
    ends[1] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    assert_int_equal(bind(asker, (struct sockaddr *)&ends[1], size), 0);
    assert_int_equal(bind(client, (struct sockaddr *)&ends[1], size), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&ends[0], size), 0);
    assert_int_equal(getsockname(client, (struct sockaddr *)&ends[1], &size), 0);
    const int server = accept(listener, NULL, NULL);
    for (int i = 0; i < 20; ++i) {
        assert_int_equal(send(server, &byte, 1, 0), 1);
        assert_int_equal(syscall(SYS_recvfrom, client, &byte, 1, 0, NULL, NULL), 1);
        assert_int_equal(syscall(SYS_sendto, client, &byte, 1, 0, NULL, 0), 1);
        assert_int_equal(recv(server, &byte, 1, 0), 1);
    }
    const uint16_t parts[][2] = {{0, 0}, {1, 0}, {19, 20}, {20, 19}};
    struct word answer = {.mark = 0};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
        assert_int_equal(kind_of_answer(asker, &agents, name_of(ends), parts[i], &answer), calls);
        assert_int_equal(answer.lengths[0], 20);
        assert_int_equal(answer.lengths[1], 20);
    }
    assert_int_equal(kind_of_answer(asker, &agents, name_of(ends), (const uint16_t[]){20, 20}, &answer),
                     answers);
    assert_int_equal(close(listener), 0);
    assert_int_equal(close(server), 0);
    assert_int_equal(close(client), 0);
    assert_int_equal(close(asker), 0);
}

/* Memory without a file that a process shares with its children. */
enum { most_areas = 256 };
struct areas {
    int count;
    unsigned long files[most_areas]; /* the kernel's numbers: one each */
};

static void learn_areas(struct areas *areas) {
    FILE *const maps = fopen("/proc/self/maps", "re");
    char line[512];
    areas->count = 0;
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL && areas->count < most_areas) {
        if (strstr(line, " rw-s ") != NULL && strstr(line, "/dev/zero") != NULL) {
            areas->count += sscanf(line, "%*s %*s %*s %*s %lu", &areas->files[areas->count]) == 1 ? 1 : 0;
        }
    }
    assert_true(maps != NULL && fclose(maps) == 0);
}

static int count_common(const struct areas *one, const struct areas *other) {
    int count = 0;
    for (int i = 0; i < one->count; ++i) {
        for (int j = 0; j < other->count; ++j) {
            count += one->files[i] == other->files[j] ? 1 : 0;
        }
    }
    return count;
}

/* Those are the Sockets, the first bytes of their connections, and the links over the device. */
static void a_worker_of_another_user_shares_no_memory(void **state) {
    (void)state;
    enum { nobody = 65534, is_another_user = 100 };
    if (geteuid() != 0) {
        skip();
    }
    struct talk talk = {.sent = 0};
    struct areas servers;
    struct areas workers;
    int status = -1;
    (void)alarm(hangs_after_s);
    make_pair(talk.ends);
    go_over(&talk);
    learn_areas(&servers);
    assert_true(servers.count >= 3);
    const pid_t worker = fork();
    if (worker == 0) {
        const int users = setuid(nobody) == 0 ? is_another_user : 0; /* a container may have no such user */
        learn_areas(&workers);
        _exit(users + count_common(&servers, &workers));
    }
    assert_int_equal(waitpid(worker, &status, 0), worker);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) >= is_another_user) {
        assert_int_equal(WEXITSTATUS(status), is_another_user);
    }
    exchange(&talk);
    close_pair(talk.ends);
    (void)alarm(0);
}

int main(int count, char **words) {
    if (count == 2 && strcmp(words[1], "processes") == 0) {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test(ends_meet_again_after_a_fork),
            cmocka_unit_test(bytes_before_a_close_arrive_when_the_agents_meet),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
    if (count == 2) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(no_call_waits_for_the_agents)};
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
    static void (*endings[])(struct talk *) = {send_more_than_the_ring_takes, send_through_tcp, shut_down,
                                               close_it};
    static void (*readers[])(struct talk *) = {passed_by_message, closed_while_a_program_has_it};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_begins_with_bytes_of_the_kernels),
        cmocka_unit_test(a_link_that_is_left_untaken_keeps_no_end_back),
        cmocka_unit_test(a_socket_is_passed_before_its_link_is_open),
        cmocka_unit_test(a_reset_of_a_passed_socket_is_one),
        cmocka_unit_test(a_stranger_learns_no_part_of_the_first_bytes),
        cmocka_unit_test(a_worker_of_another_user_shares_no_memory),
        cmocka_unit_test_prestate(lost_bytes_are_an_error, &endings[0]),
        cmocka_unit_test_prestate(lost_bytes_are_an_error, &endings[1]),
        cmocka_unit_test_prestate(lost_bytes_are_an_error, &endings[2]),
        cmocka_unit_test_prestate(lost_bytes_are_an_error, &endings[3]),
        cmocka_unit_test_prestate(unread_bytes_are_an_error_for_the_next_reader, &readers[0]),
        cmocka_unit_test_prestate(unread_bytes_are_an_error_for_the_next_reader, &readers[1]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
