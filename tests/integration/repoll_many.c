/* SPDX-License-Identifier: BSD-3-Clause */
/* Adds IDLE idle streams to a repoll, with both ends in this process, and one more stream that echoes. Fails
 * unless each costs two descriptors, no thread and at most so much memory, and all of it is given back.
 *   repoll_many IDLE ECHOES [small]      small: queues of 16, buffers of 4 KiB */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#define RUNNING_ON_VALGRIND 0
#endif

/* A tool adds bytes of its own to each piece of memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_IS_OURS false
#else
#define MEMORY_IS_OURS (RUNNING_ON_VALGRIND == 0)
#endif

#include <rpma/rsocket.h>

/* The device and the shard have these, however many streams there are. */
enum { DESCRIPTORS_ASIDE = 64, BYTES_ASIDE = 768 * 1024 };
/* One end of a stream may have these: memory that it has touched, not memory that it may touch. */
enum { MOST_BYTES = 64 * 1024, MOST_BYTES_SMALL = 32 * 1024 };
/* Through memory it has a page of the rings too. Over TCP the kernel has such memory, and it does not count.
 */
enum { RING_BYTES = 4 * 1024 };

static void must(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "repoll_many: %s (errno: %s)\n", what, strerror(errno));
        exit(1);
    }
}

static long entries_of(const char *path) {
    DIR *const folder = opendir(path);
    long count = 0;
    must(folder != NULL, path);
    while (readdir(folder) != NULL) {
        ++count;
    }
    closedir(folder);
    return count;
}

/* Counts memory once that two ends in this process have mapped. A program's and a library's pages do not
   count: how many of those are this process's depends on the other processes that have mapped them. */
static long own_bytes(void) {
    FILE *const file = fopen("/proc/self/smaps_rollup", "r");
    char line[128];
    long anonymous = -1, shared = -1;
    must(file != NULL, "/proc/self/smaps_rollup");
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "Pss_Anon: %ld kB", &anonymous);
        (void)sscanf(line, "Pss_Shmem: %ld kB", &shared);
    }
    fclose(file);
    must(anonymous >= 0 && shared >= 0, "/proc/self/smaps_rollup has no Pss_Anon or Pss_Shmem");
    return (anonymous + shared) * 1024;
}

static void make_small(int fd) {
    const int places = 16, bytes = 4096;
    must(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &places, sizeof(places)) == 0 &&
             rsetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &places, sizeof(places)) == 0 &&
             rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0 &&
             rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0,
         "rsetsockopt");
}

/* ends[0] has connected, ends[1] has accepted. */
static void connect_ends(int ends[2], int listener, const struct sockaddr_in *address, bool small) {
    ends[0] = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    must(ends[0] >= 0, "rsocket");
    if (small) {
        make_small(ends[0]);
    }
    must(rconnect(ends[0], (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EINPROGRESS,
         "rconnect");
    ends[1] = raccept(listener, NULL, NULL);
    must(ends[1] >= 0, "raccept");
    struct pollfd both[] = {{.fd = ends[0], .events = POLLOUT}, {.fd = ends[1], .events = POLLIN}};
    while (both[0].revents == 0) {
        must(rpoll(both, 2, 30000) > 0, "rpoll");
    }
    must(both[0].revents == POLLOUT && rfcntl(ends[0], F_SETFL, 0) == 0, "connecting");
}

static void receive(int fd, char *bytes, size_t size) {
    must(rrecv(fd, bytes, size, MSG_WAITALL) == (ssize_t)size, "rrecv");
}

static void echo(int repoll, const int ends[2]) {
    static unsigned char number;
    char bytes[64], answer[64];
    struct epoll_event event;
    memset(bytes, ++number, sizeof(bytes));
    must(rsend(ends[0], bytes, sizeof(bytes), 0) == sizeof(bytes), "rsend");
    must(repoll_wait(repoll, &event, 1, 30000) == 1 && event.data.fd == ends[1], "repoll_wait");
    receive(ends[1], answer, sizeof(answer));
    must(rsend(ends[1], answer, sizeof(answer), 0) == sizeof(answer), "rsend");
    receive(ends[0], answer, sizeof(answer));
    must(memcmp(bytes, answer, sizeof(bytes)) == 0, "other bytes came back");
}

/* repoll_many.sh runs callgrind, which counts the instructions of all threads meanwhile. */
static void echo_counted(int repoll, const int ends[2], long echoes) {
    CALLGRIND_START_INSTRUMENTATION;
    for (long i = 0; i < echoes; ++i) {
        echo(repoll, ends);
    }
    CALLGRIND_STOP_INSTRUMENTATION;
}

static long allowed_by_open_files(long wanted) {
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    const long most = ((long)limit.rlim_max - DESCRIPTORS_ASIDE) / 2 - 2;
    if (wanted > most) {
        printf("SCALED DOWN: the limit of open files (%ld) allows %ld streams\n", (long)limit.rlim_max, most);
    }
    return wanted < most ? wanted : most;
}

static void watch(int repoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    must(repoll_ctl(repoll, EPOLL_CTL_ADD, fd, &event) == 0, "repoll_ctl");
}

int main(int argc, char **argv) {
    const bool small = argc == 4 && strcmp(argv[3], "small") == 0;
    const long wanted = argc >= 3 ? strtol(argv[1], NULL, 10) : 0;
    const long echoes = argc >= 3 ? strtol(argv[2], NULL, 10) : 0;
    if (wanted <= 0 || echoes <= 0 || argc > 4 || (argc == 4 && !small)) {
        fprintf(stderr, "usage: repoll_many IDLE ECHOES [small]\n");
        return 2;
    }
    const long idle = allowed_by_open_files(wanted);
    int(*ends)[2] = calloc((size_t)idle, sizeof(*ends));
    must(ends != NULL, "calloc");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    if (small) {
        make_small(listener);
    }
    must(listener >= 0 && rbind(listener, (struct sockaddr *)&address, length) == 0 &&
             rlisten(listener, 8) == 0 && rgetsockname(listener, (struct sockaddr *)&address, &length) == 0,
         "listening");
    const int repoll = repoll_create(EPOLL_CLOEXEC);
    must(repoll >= 0, "repoll_create");
    int busy[2];
    connect_ends(busy, listener, &address, small);
    watch(repoll, busy[1]);
    echo(repoll, busy); /* the objects of the first use exist now */

    const long descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task"),
               before = own_bytes();
    for (long i = 0; i < idle; ++i) {
        connect_ends(ends[i], listener, &address, small);
        watch(repoll, ends[i][1]);
    }
    echo(repoll, busy); /* the first wait checks each stream that was added */
    echo_counted(repoll, busy, echoes);
    const long more = entries_of("/proc/self/fd") - descriptors, bytes = own_bytes() - before;
    printf("%ld idle streams%s: %ld descriptors, %ld more threads, %ld bytes an end\n", idle,
           small ? " with queues of 16 and buffers of 4 KiB" : "", more,
           entries_of("/proc/self/task") - threads, bytes / (2 * idle));
    must(more >= 2 * idle && more <= 2 * idle + DESCRIPTORS_ASIDE, "not two descriptors a stream");
    must(entries_of("/proc/self/task") == threads, "threads for streams");
    must(!MEMORY_IS_OURS ||
             bytes <= BYTES_ASIDE + 2 * idle * ((small ? MOST_BYTES_SMALL : MOST_BYTES) + RING_BYTES),
         "too much memory for an idle stream");
    for (long i = 0; i < idle; ++i) {
        must(rclose(ends[i][0]) == 0 && rclose(ends[i][1]) == 0, "rclose");
    }
    must(rclose(busy[0]) == 0 && rclose(busy[1]) == 0 && rclose(listener) == 0 && rclose(repoll) == 0,
         "rclose");
    free(ends);
    return 0;
}
