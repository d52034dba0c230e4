/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sockets_errno.c: errno after a call that succeeded is what it was before, for every name that
 * libcarry-preload.so stands in front of; and the program is told of an error that this library found first.
 * Run alone, it shows that libc keeps errno so.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../fails.h"
#include "before_doorbell.h"
#include "interposed_names.h"
#include "socket_pairs.h"

/* The compiler calls these when it does not know how much fits (_FORTIFY_SOURCE). */
ssize_t __read_chk(int fd, void *bytes, size_t size, size_t room);
ssize_t __recv_chk(int fd, void *bytes, size_t size, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *bytes, size_t size, size_t room, int flags, struct sockaddr *address,
                       socklen_t *length);
int __poll_chk(struct pollfd *entries, nfds_t count, int timeout, size_t room);
int __ppoll_chk(struct pollfd *entries, nfds_t count, const struct timespec *timeout, const sigset_t *mask,
                size_t room);
int __sigaction(int number, const struct sigaction *action, struct sigaction *before);
__sighandler_t __sysv_signal(int number, __sighandler_t handler);
__sighandler_t bsd_signal(int number, __sighandler_t handler);
int __dprintf_chk(int fd, int flag, const char *format, ...);
int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments);

/* Programs call functions that the C library advises against. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

enum { untouched = 4321 }; /* no error of libc */

/* Makes a call that succeeds and leaves errno alone. Returns what the call has returned. */
#define SUCCEEDS(call)                        \
    ({                                        \
        errno = untouched;                    \
        const __typeof__(call) made = (call); \
        const int after = errno;              \
        assert_true((intptr_t)made != -1);    \
        assert_int_equal(after, untouched);   \
        made;                                 \
    })
#define MAKES_ONE(call) assert_int_equal(close(SUCCEEDS(call)), 0)

static int ends[2];  /* connected; the second receives */
static int epoll;    /* has ends[1] */
static int file;     /* has some bytes */
static int pipes[2]; /* do not wait */
static char path[] = "/tmp/sockets_errno.XXXXXX";
static char bytes[64];
static struct iovec part = {.iov_base = bytes, .iov_len = 1};
static const struct timespec no_time;

static int set_up(void **state) {
    (void)state;
    make_pair(ends);
    epoll = epoll_create1(0);
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &(struct epoll_event){.events = EPOLLIN}), 0);
    file = mkstemp(path);
    assert_int_equal(write(file, "text", 4), 4);
    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    assert_int_equal(unlink(path), 0);
    for (const int *fd = (const int[]){ends[0], ends[1], epoll, file, pipes[0], pipes[1], -1}; *fd >= 0;
         ++fd) {
        assert_int_equal(close(*fd), 0);
    }
    return 0;
}

static void come(void) {
    assert_int_equal(write(ends[0], "!", 1), 1);
    await(ends[1], POLLIN);
}

static void take_all(void) {
    while (recv(ends[1], bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
    assert_int_equal(errno, EAGAIN);
}

/* ---- how sockets begin and end ---- */

static void call_socket(void) {
    MAKES_ONE(socket(AF_INET, SOCK_STREAM, 0));
    MAKES_ONE(socket(AF_INET, SOCK_DGRAM, 0));
    MAKES_ONE(socket(AF_UNIX, SOCK_STREAM, 0));
}

static void *connect_and_look(void *argument) {
    errno = untouched;
    void *const failed = connect_only(argument);
    return failed != NULL || errno == untouched ? failed : (void *)(intptr_t)errno;
}

static void accept_with(int (*accepts)(int listener)) {
    struct connecting one;
    const int listener = listening(&one.address);
    one.fd = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, connect_and_look, &one), 0);
    const int accepted = SUCCEEDS(accepts(listener));
    await(accepted, POLLOUT);
    void *result = NULL;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    SUCCEEDS(close(accepted));
    SUCCEEDS(close(one.fd));
    SUCCEEDS(close(listener));
}

static int accepts(int listener) {
    return accept(listener, NULL, NULL);
}

static int accepts_with_flags(int listener) {
    return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

static void call_accept(void) {
    accept_with(accepts);
}

static void call_accept4(void) {
    accept_with(accepts_with_flags);
}

static void call_connect(void) {
    struct sockaddr_in address;
    const int listener = listening(&address);
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    SUCCEEDS(connect(client, (struct sockaddr *)&address, sizeof(address)));
    assert_int_equal(close(client), 0);
    assert_int_equal(close(listener), 0);
}

static void call_shutdown(void) {
    int others[2];
    make_pair(others);
    SUCCEEDS(shutdown(others[0], SHUT_WR));
    SUCCEEDS(read(others[1], bytes, 1));
    SUCCEEDS(shutdown(others[1], SHUT_RDWR));
    close_pair(others);
}

static void call_close(void) {
    int others[2];
    make_pair(others);
    SUCCEEDS(close(others[0]));
    SUCCEEDS(close(others[1]));
    SUCCEEDS(close(socket(AF_INET, SOCK_STREAM, 0)));
    SUCCEEDS(close(dup(ends[1])));
    SUCCEEDS(close(dup(file)));
}

static void call__exit(void) {} /* these do not return */
static void call__Exit(void) {}

/* ---- names and options ---- */

static void call_getsockopt(void) {
    int value = 0;
    socklen_t size = sizeof(value);
    SUCCEEDS(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &value, &size));
    SUCCEEDS(getsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &value, &size));
}

static void call_setsockopt(void) {
    const int one = 1;
    SUCCEEDS(setsockopt(ends[0], SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)));
    SUCCEEDS(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
}

/* ---- bytes ---- */

static void call_read(void) {
    come();
    SUCCEEDS(read(ends[1], bytes, sizeof(bytes)));
}

static void call_readv(void) {
    come();
    SUCCEEDS(readv(ends[1], &part, 1));
}

static void call_preadv2(void) {
    come();
    SUCCEEDS(preadv2(ends[1], &part, 1, -1, 0));
}

static void call_preadv64v2(void) {
    come();
    SUCCEEDS(preadv64v2(ends[1], &part, 1, -1, 0));
}

static void call_recv(void) {
    come();
    SUCCEEDS(recv(ends[1], bytes, 1, MSG_PEEK));
    SUCCEEDS(recv(ends[1], bytes, 1, 0));
}

static void call_recvfrom(void) {
    struct sockaddr_in address;
    socklen_t size = sizeof(address);
    come();
    SUCCEEDS(recvfrom(ends[1], bytes, 1, 0, (struct sockaddr *)&address, &size));
}

static void call_recvmsg(void) {
    come();
    SUCCEEDS(recvmsg(ends[1], &(struct msghdr){.msg_iov = &part, .msg_iovlen = 1}, 0));
}

static void call_recvmmsg(void) {
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}};
    come();
    assert_int_equal(SUCCEEDS(recvmmsg(ends[1], messages, 2, MSG_DONTWAIT, NULL)), 1);
}

static void call___read_chk(void) {
    come();
    SUCCEEDS(__read_chk(ends[1], bytes, 1, sizeof(bytes)));
}

static void call___recv_chk(void) {
    come();
    SUCCEEDS(__recv_chk(ends[1], bytes, 1, sizeof(bytes), 0));
}

static void call___recvfrom_chk(void) {
    come();
    SUCCEEDS(__recvfrom_chk(ends[1], bytes, 1, sizeof(bytes), 0, NULL, NULL));
}

static void call_write(void) {
    SUCCEEDS(write(ends[0], bytes, 1));
}

static void call_writev(void) {
    SUCCEEDS(writev(ends[0], &part, 1));
}

static void call_pwritev2(void) {
    SUCCEEDS(pwritev2(ends[0], &part, 1, -1, 0));
}

static void call_pwritev64v2(void) {
    SUCCEEDS(pwritev64v2(ends[0], &part, 1, -1, 0));
}

static void call_send(void) {
    SUCCEEDS(send(ends[0], bytes, 1, MSG_NOSIGNAL));
}

static void call_sendto(void) {
    SUCCEEDS(sendto(ends[0], bytes, 1, 0, NULL, 0));
}

static void call_sendmsg(void) {
    SUCCEEDS(sendmsg(ends[0], &(struct msghdr){.msg_iov = &part, .msg_iovlen = 1}, 0));
}

static void call_sendmmsg(void) {
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    SUCCEEDS(sendmmsg(ends[0], &message, 1, 0));
}

static void call_sendfile(void) {
    off_t position = 0;
    assert_int_equal(SUCCEEDS(sendfile(ends[0], file, &position, 4)), 4);
}

static void call_sendfile64(void) {
    off64_t position = 0;
    assert_int_equal(SUCCEEDS(sendfile64(ends[0], file, &position, 4)), 4);
}

static void call_splice(void) {
    assert_int_equal(write(pipes[1], "!", 1), 1);
    assert_int_equal(SUCCEEDS(splice(pipes[0], NULL, ends[0], NULL, 1, 0)), 1);
    await(ends[1], POLLIN);
    assert_int_equal(SUCCEEDS(splice(ends[1], NULL, pipes[1], NULL, 1, 0)), 1);
    assert_int_equal(read(pipes[0], bytes, 1), 1);
}

/* ---- stdio ---- */

static void call_fdopen(void) {
    const int fd = dup(ends[1]);
    FILE *const stream = SUCCEEDS(fdopen(fd, "r"));
    assert_non_null(stream);
    assert_int_equal(fclose(stream), 0);
}

static void call_fclose(void) {
    FILE *const stream = fdopen(dup(ends[0]), "w");
    assert_non_null(stream);
    SUCCEEDS(fclose(stream));
}

static void call_dprintf(void) {
    SUCCEEDS(dprintf(ends[0], "%d", 1));
}

static void call___dprintf_chk(void) {
    SUCCEEDS(__dprintf_chk(ends[0], 1, "%d", 1));
}

__attribute__((format(printf, 1, 2))) static void print_with(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    SUCCEEDS(vdprintf(ends[0], format, arguments));
    va_end(arguments);
    va_start(arguments, format);
    SUCCEEDS(__vdprintf_chk(ends[0], 1, format, arguments));
    va_end(arguments);
}

static void call_vdprintf(void) {
    print_with("%d", 1);
}

static void call___vdprintf_chk(void) {
    print_with("%d", 1);
}

/* ---- waiting: with and without something that is ready ---- */

#define FINDS(call)                          \
    do {                                     \
        assert_int_equal(SUCCEEDS(call), 0); \
        come();                              \
        assert_int_equal(SUCCEEDS(call), 1); \
    } while (0)

static struct pollfd *entry(void) {
    static struct pollfd one;
    one = (struct pollfd){.fd = ends[1], .events = POLLIN};
    return &one;
}

static fd_set *set(void) {
    static fd_set one;
    FD_ZERO(&one);
    FD_SET(ends[1], &one);
    return &one;
}

static void call_poll(void) {
    FINDS(poll(entry(), 1, 0));
}

static void call_ppoll(void) {
    FINDS(ppoll(entry(), 1, &no_time, NULL));
}

static void call___poll_chk(void) {
    FINDS(__poll_chk(entry(), 1, 0, sizeof(struct pollfd)));
}

static void call___ppoll_chk(void) {
    FINDS(__ppoll_chk(entry(), 1, &no_time, NULL, sizeof(struct pollfd)));
}

static void call_select(void) {
    FINDS(select(ends[1] + 1, set(), NULL, NULL, &(struct timeval){0}));
}

static void call_pselect(void) {
    FINDS(pselect(ends[1] + 1, set(), NULL, NULL, &no_time, NULL));
}

static void call_epoll_wait(void) {
    struct epoll_event event;
    FINDS(epoll_wait(epoll, &event, 1, 0));
}

static void call_epoll_pwait(void) {
    struct epoll_event event;
    FINDS(epoll_pwait(epoll, &event, 1, 0, NULL));
}

static void call_epoll_pwait2(void) {
    struct epoll_event event;
    FINDS(epoll_pwait2(epoll, &event, 1, &no_time, NULL));
}

static void call_epoll_create(void) {
    MAKES_ONE(epoll_create(1));
}

static void call_epoll_create1(void) {
    MAKES_ONE(epoll_create1(EPOLL_CLOEXEC));
}

static void call_epoll_ctl(void) {
    struct epoll_event event = {.events = EPOLLIN};
    SUCCEEDS(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    SUCCEEDS(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event));
    SUCCEEDS(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], &event));
    SUCCEEDS(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event));
    SUCCEEDS(epoll_ctl(epoll, EPOLL_CTL_DEL, pipes[0], &event));
}

/* ---- descriptors ---- */

enum { high = 500 };

static void call_syscall(void) {
    SUCCEEDS(syscall(SYS_getpid));
    SUCCEEDS(syscall(SYS_close, dup(ends[1])));
    MAKES_ONE((int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
}

static void call_close_range(void) {
    assert_int_equal(dup2(ends[1], high), high);
    SUCCEEDS(close_range(high, high + 1, 0));
}

static void call_closefrom(void) {
    assert_int_equal(dup2(ends[1], high), high);
    errno = untouched;
    closefrom(high);
    assert_int_equal(errno, untouched);
}

static void call_dup(void) {
    MAKES_ONE(dup(ends[1]));
    MAKES_ONE(dup(file));
}

static void call_dup2(void) {
    MAKES_ONE(dup2(ends[1], high));
    MAKES_ONE(dup2(file, high));
}

static void call_dup3(void) {
    MAKES_ONE(dup3(ends[1], high, O_CLOEXEC));
    SUCCEEDS(dup3(ends[1], high, 0));
    MAKES_ONE(dup3(file, high, 0));
}

static void call_fcntl(void) {
    const int flags = SUCCEEDS(fcntl(ends[1], F_GETFL));
    SUCCEEDS(fcntl(ends[1], F_SETFL, flags | O_NONBLOCK));
    SUCCEEDS(fcntl(ends[1], F_SETFL, flags));
    MAKES_ONE(fcntl(ends[1], F_DUPFD_CLOEXEC, 0));
}

static void call_fcntl64(void) {
    SUCCEEDS(fcntl64(ends[1], F_GETFL));
}

static void call_ioctl(void) {
    int value = 0;
    SUCCEEDS(ioctl(ends[1], FIONREAD, &value));
    SUCCEEDS(ioctl(ends[1], FIONBIO, &(int){0}));
}

static void call_open(void) {
    MAKES_ONE(open(path, O_RDONLY));
}

static void call_open64(void) {
    MAKES_ONE(open64(path, O_RDONLY));
}

static void call_openat(void) {
    MAKES_ONE(openat(AT_FDCWD, path, O_RDONLY));
}

static void call_openat64(void) {
    MAKES_ONE(openat64(AT_FDCWD, path, O_RDONLY));
}

static void call_creat(void) {
    MAKES_ONE(creat("/dev/null", 0600));
}

static void call_creat64(void) {
    MAKES_ONE(creat64("/dev/null", 0600));
}

static void call_pipe(void) {
    int two[2];
    SUCCEEDS(pipe(two));
    close_pair(two);
}

static void call_pipe2(void) {
    int two[2];
    SUCCEEDS(pipe2(two, O_CLOEXEC));
    close_pair(two);
}

static void call_socketpair(void) {
    int two[2];
    SUCCEEDS(socketpair(AF_UNIX, SOCK_STREAM, 0, two));
    close_pair(two);
}

static void call_eventfd(void) {
    MAKES_ONE(eventfd(0, 0));
}

static void call_timerfd_create(void) {
    MAKES_ONE(timerfd_create(CLOCK_MONOTONIC, 0));
}

static void call_signalfd(void) {
    sigset_t none;
    sigemptyset(&none);
    MAKES_ONE(signalfd(-1, &none, 0));
}

static void call_inotify_init(void) {
    MAKES_ONE(inotify_init());
}

static void call_inotify_init1(void) {
    MAKES_ONE(inotify_init1(IN_CLOEXEC));
}

static void call_memfd_create(void) {
    MAKES_ONE(memfd_create("", 0));
}

/* ---- signals ---- */

static void on_signal(int number) {
    (void)number;
}

static void call_sigaction(void) {
    SUCCEEDS(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL));
}

static void call___sigaction(void) {
    SUCCEEDS(__sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL));
}

static void call_signal(void) {
    SUCCEEDS(signal(SIGUSR1, on_signal));
}

static void call_ssignal(void) {
    SUCCEEDS(ssignal(SIGUSR1, on_signal));
}

static void call_bsd_signal(void) {
    SUCCEEDS(bsd_signal(SIGUSR1, on_signal));
}

static void call_sysv_signal(void) {
    SUCCEEDS(sysv_signal(SIGUSR1, on_signal));
}

static void call___sysv_signal(void) {
    SUCCEEDS(__sysv_signal(SIGUSR1, on_signal));
}

static void call_sigset(void) {
    SUCCEEDS(sigset(SIGUSR1, on_signal));
}

static void call_siginterrupt(void) {
    SUCCEEDS(siginterrupt(SIGUSR1, 0));
}

/* ---- other programs ---- */

static void ends_well(pid_t process) {
    int status = -1;
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_int_equal(status, 0);
}

static char *const no_arguments[] = {(char *)"true", NULL};

static void call_posix_spawn(void) {
    pid_t process = 0;
    assert_int_equal(SUCCEEDS(posix_spawn(&process, "/bin/true", NULL, NULL, no_arguments, environ)), 0);
    ends_well(process);
}

/* libc leaves the errors of its search in PATH. */
static void call_posix_spawnp(void) {
    pid_t process = 0;
    assert_int_equal(posix_spawnp(&process, "true", NULL, NULL, no_arguments, environ), 0);
    ends_well(process);
}

static void call_posix_spawn_file_actions_adddup2(void) {
    posix_spawn_file_actions_t actions;
    int others[2];
    make_pair(others);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(SUCCEEDS(posix_spawn_file_actions_adddup2(&actions, others[0], STDIN_FILENO)), 0);
    assert_int_equal(posix_spawn_file_actions_destroy(&actions), 0);
    close_pair(others);
}

static void call_system(void) {
    assert_int_equal(SUCCEEDS(system("true")), 0);
}

static void call_popen(void) {
    errno = untouched;
    FILE *const stream = popen("true", "r");
    const int after = errno;
    assert_non_null(stream);
    assert_int_equal(after, untouched);
    assert_int_equal(pclose(stream), 0);
}

/* A child of vfork(2) has this memory, and errno. */
static void call_vfork(void) {
    errno = untouched;
    const pid_t process = vfork();
    if (process == 0) {
        _exit(0);
    }
    assert_int_equal(errno, untouched);
    assert_true(process > 0);
    ends_well(process);
}

static void make_child(pid_t (*make)(void)) {
    errno = untouched;
    const pid_t process = make();
    if (process == 0) {
        _exit(errno == untouched ? 0 : 1);
    }
    assert_int_equal(errno, untouched);
    assert_true(process > 0);
    ends_well(process);
}

static void call_fork(void) {
    make_child(fork);
}

static void call__Fork(void) {
    make_child(_Fork);
}

static void call_setuid(void) {
    SUCCEEDS(setuid(getuid()));
}

static void call_seteuid(void) {
    SUCCEEDS(seteuid(geteuid()));
}

static void call_setreuid(void) {
    SUCCEEDS(setreuid(getuid(), geteuid()));
}

static void call_setresuid(void) {
    SUCCEEDS(setresuid(getuid(), geteuid(), (uid_t)-1));
}

static int end_at_once(void *argument) {
    (void)argument;
    return 0;
}

static void call_clone(void) {
    static _Alignas(16) char stack[65536];
    ends_well(SUCCEEDS(clone(end_at_once, stack + sizeof(stack), SIGCHLD, NULL)));
}

static void call_prctl(void) {
    SUCCEEDS(prctl(PR_GET_DUMPABLE));
}

static void call_unshare(void) {
    SUCCEEDS(unshare(CLONE_FS));
}

static void call_pthread_setcanceltype(void) {
    SUCCEEDS(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL));
}

/* ---- requests that end later ---- */

#define REQUEST_OF_THE_FILE {.aio_fildes = file, .aio_buf = bytes, .aio_nbytes = 1}
#define ENDS(suffix, request)                                                       \
    do {                                                                            \
        while (aio_error##suffix(request) == EINPROGRESS) {                         \
            aio_suspend##suffix(&(const struct aiocb##suffix *){request}, 1, NULL); \
        }                                                                           \
        assert_int_equal(aio_return##suffix(request), 1);                           \
    } while (0)
#define CALLS(suffix)                                                                          \
    static void call_aio_read##suffix(void) {                                                  \
        struct aiocb##suffix request = REQUEST_OF_THE_FILE;                                    \
        SUCCEEDS(aio_read##suffix(&request));                                                  \
        ENDS(suffix, &request);                                                                \
    }                                                                                          \
    static void call_aio_write##suffix(void) {                                                 \
        struct aiocb##suffix request = REQUEST_OF_THE_FILE;                                    \
        SUCCEEDS(aio_write##suffix(&request));                                                 \
        ENDS(suffix, &request);                                                                \
    }                                                                                          \
    static void call_lio_listio##suffix(void) {                                                \
        struct aiocb##suffix request = REQUEST_OF_THE_FILE;                                    \
        request.aio_lio_opcode = LIO_READ;                                                     \
        SUCCEEDS(lio_listio##suffix(LIO_WAIT, (struct aiocb##suffix *[]){&request}, 1, NULL)); \
        ENDS(suffix, &request);                                                                \
    }
CALLS()
CALLS(64)

/* One for each name. */
static const struct {
    const char *name;
    void (*call)(void);
} table[] = {
#define X(name) {#name, call_##name},
    INTERPOSED_NAMES
#undef X
};

static void each_name_leaves_errno_alone(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        print_message("%s\n", table[i].name);
        table[i].call();
        take_all();
    }
}

/* lftp takes errno for an error of the connection. */
static void a_connection_that_came_is_no_error(void **state) {
    (void)state;
    struct sockaddr_in address;
    const int listener = listening(&address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        assert_int_equal(errno, EINPROGRESS);
    }
    const int accepted = accept(listener, NULL, NULL);
    await(accepted, POLLOUT);
    await(fd, POLLOUT);
    int error = -1;
    socklen_t size = sizeof(error);
    SUCCEEDS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size));
    assert_int_equal(error, 0);
    close_pair((int[]){fd, accepted});
    assert_int_equal(close(listener), 0);
}

static void a_call_that_fails_says_why(void **state) {
    (void)state;
    struct sockaddr_in address;
    assert_int_equal(close(listening(&address)), 0);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_fails(connect(fd, (struct sockaddr *)&address, sizeof(address)), ECONNREFUSED);
    assert_int_equal(close(fd), 0);
    assert_int_equal(errno, ECONNREFUSED); /* a usual order: close, then report */
    assert_fails(close(fd), EBADF);
    errno = 0;
    assert_null(fdopen(ends[1], ""));
    assert_int_equal(errno, EINVAL);
}

/* ---- an error that the library found first ---- */

static int torn[2]; /* connected; the second resets the connection */
static enum tear { TornAtOnce, TornBehindItsEnd, TornByTheDoorbell } how;
static bool is_rung;

static short kernels_events(int fd, short events) {
    struct pollfd one = {.fd = fd, .events = events};
    return syscall(SYS_poll, &one, 1, 0) == 1 ? one.revents : 0;
}

/* Returns when the reset has come. */
static void tear(void) {
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    char byte = 0;
    is_rung = true;
    if (how == TornByTheDoorbell) {
        assert_int_equal(recv(torn[1], &byte, 1, 0), 1);
    }
    if (how == TornBehindItsEnd || (how == TornByTheDoorbell && !in_the_memory)) {
        (void)shutdown(torn[1], SHUT_WR);
        while (kernels_events(torn[0], POLLRDHUP) == 0) {
        }
    }
    if (how == TornByTheDoorbell && !in_the_memory) {
        return;
    }
    syscall(SYS_connect, torn[1], &none, sizeof(none));
    while ((kernels_events(torn[0], 0) & POLLHUP) == 0) {
    }
}

static pid_t sleeper;

static void *sleep_until_readable(void *argument) {
    (void)argument;
    struct pollfd one = {.fd = torn[1], .events = POLLIN};
    __atomic_store_n(&sleeper, gettid(), __ATOMIC_SEQ_CST);
    (void)poll(&one, 1, wait_ms);
    return NULL;
}

static void await_sleep(void) {
    pid_t thread = 0;
    while (!is_in(thread, SYS_poll) && !is_in(thread, SYS_ppoll)) {
        thread = __atomic_load_n(&sleeper, __ATOMIC_SEQ_CST);
    }
}

/* Makes a connection whose peer resets it just before the doorbell for the byte that is sent. */
static void make_torn_pair(enum tear wanted) {
    how = wanted;
    is_rung = false;
    for (int rounds = 0; !is_rung; ++rounds) {
        assert_true(rounds < 1000);
        make_pair(torn);
        sleeper = 0;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, sleep_until_readable, NULL), 0);
        await_sleep();
        before_doorbell = in_the_memory ? tear : NULL;
        assert_int_equal(write(torn[0], "!", 1), 1);
        before_doorbell = NULL;
        if (!in_the_memory) {
            tear();
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (!is_rung) {
            close_pair(torn); /* it was awake still */
        }
    }
}

static int events_of_poll(void) {
    struct pollfd one = {.fd = torn[0], .events = POLLIN | POLLRDHUP};
    assert_int_equal(poll(&one, 1, 0), 1);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    const int set = epoll_create1(0);
    assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, torn[0], &event), 0);
    assert_int_equal(epoll_wait(set, &event, 1, 0), 1);
    assert_int_equal(event.events, one.revents);
    assert_int_equal(close(set), 0);
    struct pollfd another = {.fd = torn[0], .events = POLLOUT};
    assert_int_equal(poll(&another, 1, 0), 1);
    assert_int_equal(another.revents & POLLERR, one.revents & POLLERR);
    return one.revents;
}

static int error_option(void) {
    int error = -1;
    socklen_t size = sizeof(error);
    assert_int_equal(getsockopt(torn[0], SOL_SOCKET, SO_ERROR, &error, &size), 0);
    return error;
}

enum { over = POLLIN | POLLRDHUP | POLLHUP };

static void a_reset_is_told_once(void **state) {
    (void)state;
    make_torn_pair(TornAtOnce);
    assert_int_equal(events_of_poll(), over | POLLERR);
    assert_int_equal(events_of_poll(), over | POLLERR);
    assert_int_equal(error_option(), ECONNRESET);
    assert_int_equal(error_option(), 0);
    assert_int_equal(events_of_poll(), over);
    assert_int_equal(recv(torn[0], bytes, 1, 0), 0);
    close_pair(torn);
    make_torn_pair(TornAtOnce);
    assert_fails(send(torn[0], "!", 1, 0), ECONNRESET); /* no signal */
    assert_int_equal(events_of_poll(), over);
    assert_fails(send(torn[0], "!", 1, MSG_NOSIGNAL), EPIPE);
    assert_int_equal(recv(torn[0], bytes, 1, 0), 0);
    close_pair(torn);
    make_torn_pair(TornAtOnce);
    assert_fails(sendfile(torn[0], file, &(off_t){0}, 1), ECONNRESET);
    close_pair(torn);
    make_torn_pair(TornAtOnce);
    assert_fails(recv(torn[0], bytes, 1, 0), ECONNRESET);
    assert_int_equal(events_of_poll(), over);
    assert_int_equal(recv(torn[0], bytes, 1, 0), 0);
    close_pair(torn);
}

/* Behind the peer's end a reset is EPIPE, and only calls that send tell of it. */
static void a_reset_behind_the_end_is_told_to_who_sends(void **state) {
    (void)state;
    make_torn_pair(TornBehindItsEnd);
    assert_int_equal(events_of_poll(), over | POLLERR);
    assert_int_equal(recv(torn[0], bytes, 1, 0), 0);
    assert_int_equal(events_of_poll(), over | POLLERR);
    assert_fails(send(torn[0], "!", 1, MSG_NOSIGNAL), EPIPE);
    assert_int_equal(events_of_poll(), over);
    close_pair(torn);
    make_torn_pair(TornBehindItsEnd);
    assert_int_equal(error_option(), EPIPE);
    assert_int_equal(error_option(), 0);
    close_pair(torn);
}

/* A process that is killed with nothing unread but a doorbell resets the connection for that alone. */
static void a_reset_for_a_doorbell_is_an_end(void **state) {
    (void)state;
    make_torn_pair(TornByTheDoorbell);
    assert_int_equal(events_of_poll(), POLLIN | POLLRDHUP);
    assert_int_equal(error_option(), 0);
    assert_int_equal(recv(torn[0], bytes, 1, 0), 0);
    assert_int_equal(events_of_poll(), POLLIN | POLLRDHUP);
    close_pair(torn);
}

static int replaced;
static pthread_t receiver;
static atomic_bool is_received;

static void *receive_at_once(void *argument) {
    char found[8];
    const ssize_t got = recv(replaced, found, sizeof(found), MSG_DONTWAIT);
    const bool is_right = got == 3 && memcmp(found, "new", 3) == 0;
    is_received = true;
    (void)argument;
    return (void *)(intptr_t)(is_right ? 0 : got < 0 ? errno : EPROTO);
}

static void begin_to_receive(void) {
    enum { turns = 1000 };
    assert_int_equal(pthread_create(&receiver, NULL, receive_at_once, NULL), 0);
    for (int i = 0; !is_received && i < turns; ++i) {
        sched_yield();
    }
}

/* A thread receives at the moment at which a number becomes another connection's. It finds the bytes that
 * this one has in the ring.
 */
static void a_number_is_never_without_its_connection(void **state) {
    (void)state;
    int before[2];
    int others[2];
    make_pair(before);
    make_pair(others);
    assert_int_equal(send(others[0], "new", 3, 0), 3);
    await(others[1], POLLIN);
    replaced = before[1];
    is_received = false;
    after_dup3 = in_the_memory ? begin_to_receive : NULL;
    assert_int_equal(dup2(others[1], before[1]), before[1]);
    if (!in_the_memory) {
        begin_to_receive();
    }
    assert_null(after_dup3);
    void *error = NULL;
    assert_int_equal(pthread_join(receiver, &error), 0);
    assert_null(error);
    close_pair(others);
    close_pair(before);
}

static int passing[2];
static int passed;
static pid_t asleep;
static int messages[2];

static bool sleeps_in_poll(pid_t process) {
    char name[64];
    char text[32] = "";
    snprintf(name, sizeof(name), "/proc/%d/syscall", process);
    FILE *const status = fopen(name, "re");
    assert_non_null(status);
    const bool is_there = fgets(text, sizeof(text), status) != NULL;
    assert_int_equal(fclose(status), 0);
    char *end = text;
    const long call = strtol(text, &end, 10);
    return is_there && end != text && (call == SYS_poll || call == SYS_ppoll);
}

/* The peer has put a byte into the ring, and is about to ring. */
static void read_and_pass_on(void) {
    char found = 0;
    assert_int_equal(kill(asleep, SIGSTOP), 0);
    assert_int_equal(recv(passing[1], &found, 1, 0), 1);
    assert_int_equal(found, '!');
    send_descriptor(messages[0], passing[1]);
    passed = receive_descriptor(messages[1]);
}

/* A process that gets the connection does not get the doorbell. */
static void a_doorbell_does_not_go_with_a_connection(void **state) {
    (void)state;
    enum { rounds = 1000 };
    passed = -1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, messages), 0);
    for (int round = 0; passed < 0; ++round) {
        assert_true(round < rounds);
        make_pair(passing);
        asleep = fork();
        assert_true(asleep >= 0);
        if (asleep == 0) {
            (void)poll(&(struct pollfd){.fd = passing[1], .events = POLLIN}, 1, -1);
            _exit(0);
        }
        while (!sleeps_in_poll(asleep)) {
        }
        before_count = in_the_memory ? read_and_pass_on : NULL;
        assert_int_equal(write(passing[0], "!", 1), 1);
        before_count = NULL;
        if (!in_the_memory) {
            read_and_pass_on();
        }
        if (passed >= 0) {
            char found = 0;
            assert_int_equal(write(passing[0], "?", 1), 1);
            assert_int_equal(read(passed, &found, 1), 1);
            assert_int_equal(found, '?');
            assert_int_equal(close(passed), 0);
        }
        assert_int_equal(kill(asleep, SIGKILL), 0);
        assert_int_equal(waitpid(asleep, NULL, 0), asleep);
        close_pair(passing);
    }
    close_pair(messages);
}

/* Another thread of the parent may have a lock of malloc(3) for ever. */
static void a_child_of_a_system_call_frees_nothing(void **state) {
    (void)state;
    int parents[2];
    make_pair(parents);
    const int calls_before = memory_calls;
    const long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        syscall(SYS_exit_group, memory_calls == calls_before ? 0 : 1);
    }
    assert_true(child > 0);
    ends_well((pid_t)child);
    close_pair(parents);
}

int main(int count, char **words) {
    in_the_memory = count > 1 && strcmp(words[1], "memory") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_leaves_errno_alone),
        cmocka_unit_test(a_connection_that_came_is_no_error),
        cmocka_unit_test(a_call_that_fails_says_why),
        cmocka_unit_test(a_reset_is_told_once),
        cmocka_unit_test(a_reset_behind_the_end_is_told_to_who_sends),
        cmocka_unit_test(a_reset_for_a_doorbell_is_an_end),
        cmocka_unit_test(a_number_is_never_without_its_connection),
        cmocka_unit_test(a_doorbell_does_not_go_with_a_connection),
        cmocka_unit_test(a_child_of_a_system_call_frees_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
