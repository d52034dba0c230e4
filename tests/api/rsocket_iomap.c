/* SPDX-License-Identifier: BSD-3-Clause */
/* rsocket_iomap: tests riomap, riounmap and riowrite, between two rsockets of this process. */
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "../forks.h"
#include "log_capture.h"
#include "test.h"

/* This comes last, because it asserts. */
#include "rsockets.h"

enum { SLOTS = 4, SIZE = 4096 };

static void set_slots(int fd, int slots) {
    assert_int_equal(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &slots, sizeof(slots)), 0);
}

static int slots_of(int fd) {
    int slots = -1;
    socklen_t size = sizeof(slots);
    assert_int_equal(rgetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &slots, &size), 0);
    return slots;
}

/* Both ends may map SLOTS times. */
static int make_ends(void **state) {
    static int fds[2];
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    set_slots(listener, SLOTS);
    fds[0] = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    set_slots(fds[0], SLOTS);
    connect_rsocket(fds, listener, port);
    assert_int_equal(slots_of(fds[1]), SLOTS);
    assert_int_equal(rclose(listener), 0);
    *state = fds;
    return 0;
}

static int close_ends(void **state) {
    const int *const fds = *state;
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(rclose(fds[i]), 0);
    }
    return 0;
}

/* Makes sure that the other end knows the mappings, and has the written bytes in its memory. This thread is
 * also the other end, and may have to give credits first. */
static void tell(int from, int to) {
    char byte = 0;
    struct pollfd both[2] = {{.fd = from, .events = POLLOUT}, {.fd = to, .events = POLLIN}};
    while (rsend(from, "x", 1, MSG_DONTWAIT) != 1) {
        assert_int_equal(errno, EAGAIN);
        assert_true(rpoll(both, 2, 30000) > 0);
    }
    assert_int_equal(rrecv(to, &byte, 1, 0), 1);
}

static void a_mapping_each_way_at_once(void **state) {
    const int *const fds = *state;
    enum { BIG = 1 << 20 };
    unsigned char *memory[2];
    unsigned char *const bytes = malloc(BIG);
    for (int i = 0; i < 2; ++i) {
        memory[i] = calloc(1, BIG);
        assert_int_equal(riomap(fds[i], memory[i], BIG, PROT_WRITE, 0, 1000 * i), 1000 * i);
    }
    for (int i = 0; i < 2; ++i) {
        tell(fds[i], fds[1 - i]);
    }
    for (size_t k = 0; k < BIG; ++k) {
        bytes[k] = (unsigned char)(k * 7 + (k >> 8));
    }
    /* The bytes are more than the queues and buffers hold. The sides write by turns, and none waits. */
    size_t written[2] = {0, 0};
    while (written[0] < BIG || written[1] < BIG) {
        for (int i = 0; i < 2; ++i) {
            const off_t to = 1000 * (1 - i) + (off_t)written[i];
            const size_t put = written[i] == BIG
                                   ? 0
                                   : riowrite(fds[i], bytes + written[i], BIG - written[i], to, MSG_DONTWAIT);
            assert_true(put != (size_t)-1 || errno == EAGAIN);
            written[i] += put != (size_t)-1 ? put : 0;
        }
    }
    for (int i = 0; i < 2; ++i) {
        tell(fds[i], fds[1 - i]);
        assert_memory_equal(memory[1 - i], bytes, BIG);
    }
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(riounmap(fds[i], memory[i], BIG), 0);
        assert_fails(riounmap(fds[i], memory[i], BIG), EINVAL);
        free(memory[i]);
    }
    free(bytes);
}

/* librdmacm loses a credit at each mapping. */
static void mappings_without_end(void **state) {
    const int *const fds = *state;
    enum { TIMES = 100000 };
    static unsigned memory[2][SIZE / sizeof(unsigned)];
    /* Under Valgrind there are fewer mappings, but still many times the credits. */
    const unsigned times = getenv("RPMA_VALGRIND") == NULL ? TIMES : TIMES / 20;
    for (unsigned time = 0; time < times; ++time) {
        for (int i = 0; i < 2; ++i) {
            assert_int_equal(riomap(fds[i], memory[i], SIZE, PROT_WRITE, 0, time), time);
        }
        if (time % 1000 == 0) {
            for (int i = 0; i < 2; ++i) {
                tell(fds[i], fds[1 - i]);
            }
            for (int i = 0; i < 2; ++i) {
                assert_int_equal(riowrite(fds[1 - i], &time, sizeof(time), time, 0), sizeof(time));
                tell(fds[1 - i], fds[i]);
                assert_int_equal(memory[i][0], time);
            }
        }
        for (int i = 0; i < 2; ++i) {
            assert_int_equal(riounmap(fds[i], memory[i], SIZE), 0);
        }
    }
}

static void where_mappings_begin_and_end(void **state) {
    const int *const fds = *state;
    static char memory[3][SIZE];
    static char bytes[3 * SIZE];
    memset(bytes, 'b', sizeof(bytes));
    memset(memory, 0, sizeof(memory));
    assert_fails((ssize_t)riowrite(fds[1], bytes, 1, 0, 0), ENXIO);
    assert_int_equal(riomap(fds[0], memory[0], SIZE, PROT_WRITE, 0, SIZE), SIZE);
    assert_int_equal(riomap(fds[0], memory[2], SIZE, PROT_WRITE, 0, 2L * SIZE), 2 * SIZE);
    assert_int_equal(riomap(fds[0], memory[1], SIZE, PROT_WRITE, 0, 4L * SIZE), 4 * SIZE);
    tell(fds[0], fds[1]);
    assert_fails((ssize_t)riowrite(fds[1], bytes, 2, SIZE - 1, 0), ENXIO);
    assert_fails((ssize_t)riowrite(fds[1], bytes, 1, 3L * SIZE, 0), ENXIO);
    assert_fails((ssize_t)riowrite(fds[1], bytes, 1, -1, 0), EINVAL);
    assert_fails((ssize_t)riowrite(fds[1], bytes, 1, SIZE, MSG_OOB), EOPNOTSUPP);
    assert_int_equal(riowrite(fds[1], bytes, 0, 0, 0), 0);
    /* The write goes across the end of the first mapping into the second, and ends there. */
    assert_int_equal(riowrite(fds[1], bytes, sizeof(bytes), 2L * SIZE - 10, 0), SIZE + 10);
    tell(fds[1], fds[0]);
    assert_int_equal(memory[0][SIZE - 11], 0);
    assert_memory_equal(memory[0] + SIZE - 10, bytes, 10);
    assert_memory_equal(memory[2], bytes, SIZE);
    assert_int_equal(memory[1][0], 0);
}

static void what_cannot_be_mapped(void **state) {
    const int *const fds = *state;
    static char memory[SIZE];
    assert_fails(riomap(fds[0], memory, SIZE, PROT_READ, 0, 0), EINVAL);
    assert_fails(riomap(fds[0], memory, SIZE, PROT_READ | PROT_WRITE, 0, 0), EINVAL);
    assert_fails(riomap(fds[0], NULL, SIZE, PROT_WRITE, 0, 0), EINVAL);
    assert_fails(riomap(fds[0], memory, 0, PROT_WRITE, 0, 0), EINVAL);
    assert_fails(riomap(fds[0], memory, (size_t)UINT32_MAX + 1, PROT_WRITE, 0, 0), EINVAL);
    assert_fails(riomap(fds[0], memory, SIZE, PROT_WRITE, 0, -2), EINVAL);
    assert_fails(riomap(fds[0], memory, SIZE, PROT_WRITE, 0, INT64_MAX - SIZE + 1), EINVAL);
    void *const gone = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(munmap(gone, SIZE), 0);
    assert_fails(riomap(fds[0], gone, SIZE, PROT_WRITE, 0, 0), EFAULT);
    void *const fixed = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_fails(riomap(fds[0], fixed, SIZE, PROT_WRITE, 0, 0), EFAULT);
    assert_int_equal(riomap(fds[0], fixed, SIZE, PROT_NONE, 0, 0), 0); /* the peer does not write there */
    assert_int_equal(riounmap(fds[0], fixed, SIZE), 0);
    assert_int_equal(munmap(fixed, SIZE), 0);
    assert_int_equal(riomap(fds[0], memory, SIZE, PROT_WRITE, 0, INT64_MAX - SIZE), INT64_MAX - SIZE);
    for (int i = 1; i < SLOTS; ++i) {
        assert_int_equal(riomap(fds[0], memory, SIZE, PROT_WRITE, 0, -1), (off_t)(intptr_t)memory);
    }
    assert_fails(riomap(fds[0], memory, SIZE, PROT_WRITE, 0, 0), ENOMEM);
    /* This mapping takes no place at the peer. */
    assert_int_equal(riomap(fds[0], memory, 100, PROT_NONE, 0, 7), 7);
    assert_int_equal(riounmap(fds[0], memory, 100), 0);
    for (int i = 0; i < SLOTS; ++i) {
        assert_int_equal(riounmap(fds[0], memory, SIZE), 0);
    }
    assert_fails(riounmap(fds[0], memory, SIZE), EINVAL);
    assert_fails(riounmap(fds[0], memory, 100), EINVAL);
}

static void one_mapping_over_another(void **state) {
    const int *const fds = *state;
    static char memory[2][SIZE];
    static char bytes[SIZE];
    memset(bytes, 'b', SIZE);
    memset(memory, 0, sizeof(memory));
    assert_int_equal(riomap(fds[0], memory[0], SIZE, PROT_WRITE, 0, 0), 0);
    assert_int_equal(riomap(fds[0], memory[0], SIZE, PROT_WRITE, 0, 0), 0);
    assert_int_equal(riomap(fds[0], memory[1], 100, PROT_WRITE, 0, 50), 50);
    tell(fds[0], fds[1]);
    assert_int_equal(riowrite(fds[1], bytes, SIZE, 0, 0), SIZE);
    tell(fds[1], fds[0]);
    assert_memory_equal(memory[0], bytes, 50);
    assert_int_equal(memory[0][50], 0);
    assert_int_equal(memory[0][149], 0);
    assert_memory_equal(memory[0] + 150, bytes, SIZE - 150);
    assert_memory_equal(memory[1], bytes, 100);
    /* The memory that was mapped twice is unmapped once. */
    assert_int_equal(riounmap(fds[0], memory[0], SIZE), 0);
    tell(fds[0], fds[1]);
    memset(bytes, 'c', SIZE);
    assert_int_equal(riowrite(fds[1], bytes, 10, 0, 0), 10);
    tell(fds[1], fds[0]);
    assert_memory_equal(memory[0], bytes, 10);
    assert_int_equal(riounmap(fds[0], memory[0], SIZE), 0);
    tell(fds[0], fds[1]);
    assert_fails((ssize_t)riowrite(fds[1], bytes, 10, 0, 0), ENXIO);
    assert_int_equal(riowrite(fds[1], bytes, 100, 50, 0), 100);
}

/* A program that does not read stops sends to it, but no direct writes. */
static void a_full_stream_stops_no_write(void **state) {
    const int *const fds = *state;
    static char memory[SIZE];
    static char bytes[SIZE];
    memset(bytes, 'b', SIZE);
    assert_int_equal(riomap(fds[0], memory, SIZE, PROT_WRITE, 0, 0), 0);
    tell(fds[0], fds[1]);
    size_t sent = 0;
    struct pollfd entry = {.fd = fds[1], .events = POLLOUT};
    while (sent < (64 << 20) && rpoll(&entry, 1, 0) == 1) {
        const ssize_t put = rsend(fds[1], bytes, 1 + sent % 2 * (SIZE - 1), MSG_DONTWAIT);
        assert_true(put > 0);
        sent += (size_t)put;
    }
    assert_fails(rsend(fds[1], bytes, SIZE, MSG_DONTWAIT), EAGAIN);
    for (int i = 0; i < 1000; ++i) {
        bytes[0] = (char)i;
        assert_int_equal(riowrite(fds[1], bytes, SIZE, 0, 0), SIZE);
    }
    while (sent > 0) {
        const ssize_t got = rrecv(fds[0], bytes + 1, SIZE - 1, 0);
        assert_true(got > 0);
        sent -= (size_t)got;
    }
    tell(fds[1], fds[0]);
    assert_int_equal(memory[0], bytes[0]);
}

/* A program of librdmacm maps memory right after it accepted, also when its calls do not block. */
static void what_was_accepted_maps_at_once(void **state) {
    (void)state;
    static char memory[SIZE];
    uint16_t port = 0;
    int fds[2];
    const int listener = listening_rsocket(&port);
    const struct sockaddr_in address = loopback_at(port);
    for (int blocks = 0; blocks < 2; ++blocks) {
        fds[0] = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        set_slots(fds[0], 1);
        assert_fails(rconnect(fds[0], (const struct sockaddr *)&address, sizeof(address)), EINPROGRESS);
        await_connection(fds[0], listener);
        fds[1] = raccept(listener, NULL, NULL);
        assert_int_equal(rfcntl(fds[1], F_SETFL, blocks ? 0 : O_NONBLOCK), 0);
        assert_int_equal(riomap(fds[1], memory, SIZE, PROT_WRITE, 0, 0), 0);
        assert_int_equal(rclose(fds[0]), 0);
        assert_int_equal(rclose(fds[1]), 0);
    }
    assert_int_equal(rclose(listener), 0);
}

/* A message that is sent after a write is not received before it. */
static void a_message_comes_after_what_was_written_before(void **state) {
    const int *const fds = *state;
    static unsigned memory[SIZE];
    static unsigned bytes[SIZE];
    assert_int_equal(riomap(fds[0], memory, sizeof(memory), PROT_WRITE, 0, 0), 0);
    tell(fds[0], fds[1]);
    for (unsigned round = 1; round <= 500; ++round) {
        for (size_t i = 0; i < SIZE; ++i) {
            bytes[i] = round;
        }
        assert_int_equal(riowrite(fds[1], bytes, sizeof(bytes), 0, 0), sizeof(bytes));
        bytes[0] = 0; /* the bytes are the program's again */
        tell(fds[1], fds[0]);
        assert_int_equal(memory[0], round);
        assert_int_equal(memory[SIZE - 1], round);
    }
}

/* The peer may know of the end of the mapping or not. No byte comes into the memory any more. */
static void a_mapping_ends_while_the_peer_writes(void **state) {
    const int *const fds = *state;
    static unsigned memory[SIZE];
    assert_int_equal(riomap(fds[0], memory, sizeof(memory), PROT_WRITE, 0, 0), 0);
    tell(fds[0], fds[1]);
    unsigned value = 1;
    assert_int_equal(riowrite(fds[1], &value, sizeof(value), 0, 0), sizeof(value));
    tell(fds[1], fds[0]);
    for (value = 2; value < 100; ++value) {
        assert_int_equal(riowrite(fds[1], &value, sizeof(value), 0, MSG_DONTWAIT), sizeof(value));
    }
    assert_int_equal(riounmap(fds[0], memory, sizeof(memory)), 0);
    const unsigned last = *(volatile unsigned *)memory;
    for (; value < 200; ++value) {
        if (riowrite(fds[1], &value, sizeof(value), 0, 0) != sizeof(value)) {
            assert_true(errno == ENXIO || errno == ECONNRESET || errno == EPIPE);
            break;
        }
    }
    struct pollfd entry = {.fd = fds[0], .events = POLLIN};
    assert_true(rpoll(&entry, 1, 50) >= 0);
    assert_int_equal(*(volatile unsigned *)memory, last);
}

/* More bytes are on their way than the device has placed when the mapping ends. Neither program broke a rule,
 * so both learn of a reset. */
static void a_mapping_ends_before_what_was_written_comes(void **state) {
    enum { BYTES = 1 << 20, WRITES = 64 };
    const int *const fds = *state;
    static char memory[BYTES], bytes[BYTES];
    assert_int_equal(riomap(fds[0], memory, BYTES, PROT_WRITE, 0, 0), 0);
    tell(fds[0], fds[1]);
    for (int i = 0; i < WRITES && riowrite(fds[1], bytes, BYTES, 0, MSG_DONTWAIT) > 0; ++i) {
    }
    assert_int_equal(riounmap(fds[0], memory, BYTES), 0);
    size_t written = BYTES;
    for (int i = 0; i < WRITES && written != SIZE_MAX; ++i) {
        written = riowrite(fds[1], bytes, BYTES, 0, 0);
    }
    assert_int_equal(written, SIZE_MAX);
    if (errno != ENXIO) { /* the peer did not know of the end yet */
        assert_true(errno == ECONNRESET || errno == EPIPE);
        assert_fails(rrecv(fds[0], bytes, 1, 0), ECONNRESET);
    }
}

/* The log names the memory, so that its owner finds the mapping that it forgot. */
static void memory_that_is_gone_before_its_mapping_ends(void **state) {
    const int *const fds = *state;
    enum { OFFSET = 100 };
    char text[100], byte = 0;
    if (getenv("RPMA_VALGRIND") != NULL) {
        skip(); /* memcheck reports the write, which the device survives */
    }
    void *const memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(riomap(fds[0], memory, SIZE, PROT_WRITE, 0, 0), 0);
    tell(fds[0], fds[1]);
    snprintf(text, sizeof(text), "at offset %d of the %d bytes at %p", OFFSET, SIZE, memory);
    capture_log(RPMA_LOG_LEVEL_ERROR);
    assert_int_equal(munmap(memory, SIZE), 0);
    assert_int_equal(riowrite(fds[1], "x", 1, OFFSET, 0), 1);
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(rrecv(fds[i], &byte, 1, 0), -1);
    }
    assert_true(logged(text, "the connection ends", NULL));
}

/* Connects, and writes 1, 2, 3 and so on into what the other end maps,
 * until that fails. Returns the error. */
static void *write_until_it_fails(void *port) {
    const struct sockaddr_in address = loopback_at(*(const uint16_t *)port);
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0), slots = SLOTS;
    unsigned value = 1;
    char byte = 0;
    if (rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &slots, sizeof(slots)) != 0 ||
        rconnect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        rrecv(fd, &byte, 1, 0) != 1) {
        value = 0;
    }
    errno = 0;
    while (value != 0 && riowrite(fd, &value, sizeof(value), 0, 0) == sizeof(value)) {
        ++value;
    }
    const int error = errno;
    (void)rclose(fd);
    return (void *)(intptr_t)error;
}

/* Waits until the peer has written this much. The device's thread places what the peer writes, so this thread
 * makes no call of rsockets. It sleeps, because Valgrind runs one thread at a time. */
static void await_value(const volatile unsigned *memory, unsigned least) {
    const struct timespec moment = {.tv_nsec = 1000000};
    const double deadline = seconds() + 20;
    while (*memory < least && seconds() < deadline) {
        nanosleep(&moment, NULL);
    }
    assert_true(*memory >= least);
}

/* The device's thread places what the peer writes, and the peer is told of a reset and of nothing else. */
static void a_reset_while_the_peer_writes(void **state) {
    enum { ROUNDS = 20, ENOUGH = 100 };
    (void)state;
    uint16_t port = 0;
    /* The test looks at the pages through a mapping of its own. No call orders its looks with what the device
     * places, and in one mapping ThreadSanitizer would take that for a race of two threads. */
    const int file = memfd_create("placed", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, SIZE), 0);
    void *const placed = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    volatile unsigned *const seen = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(placed != MAP_FAILED && (const volatile void *)seen != MAP_FAILED);
    assert_int_equal(close(file), 0);
    const int listener = listening_rsocket(&port);
    const struct linger at_once = {.l_onoff = 1};
    set_slots(listener, SLOTS);
    for (int round = 0; round < ROUNDS; ++round) {
        pthread_t peer;
        void *error = NULL;
        assert_int_equal(pthread_create(&peer, NULL, write_until_it_fails, &port), 0);
        const int fd = raccept(listener, NULL, NULL);
        assert_true(fd >= 0);
        assert_int_equal(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
        *seen = 0;
        assert_int_equal(riomap(fd, placed, SIZE, PROT_WRITE, 0, 0), 0);
        assert_int_equal(rsend(fd, "x", 1, 0), 1);
        await_value(seen, ENOUGH);
        assert_int_equal(rclose(fd), 0);
        assert_int_equal(pthread_join(peer, &error), 0);
        assert_true((intptr_t)error == ECONNRESET || (intptr_t)error == EPIPE);
    }
    assert_int_equal(munmap(placed, SIZE), 0);
    assert_int_equal(munmap((void *)seen, SIZE), 0);
    assert_int_equal(rclose(listener), 0);
}

/* The first writes come through the device, which is this process's. Later ones come from the peer's process
 * itself, as soon as it knows that it may. */
enum { PAGES = 1000 };

/* Connects to the port that comes through the pipe. Writes into one page after the other of what the other
 * end maps, when that asks for it. */
static _Noreturn void write_into_pages(int port_from) {
    uint16_t port = 0;
    char byte = 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(port_from, &port, sizeof(port)) != sizeof(port)) {
        _exit(1);
    }
    const struct sockaddr_in address = loopback_at(port);
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0), slots = SLOTS;
    if (rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &slots, sizeof(slots)) != 0 ||
        rconnect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        _exit(1);
    }
    for (off_t page = 0; rrecv(fd, &byte, 1, 0) == 1; ++page) {
        if (riowrite(fd, "b", 1, page * SIZE, 0) != 1 || rsend(fd, "x", 1, MSG_NOSIGNAL) != 1) {
            break;
        }
    }
    _exit(0);
}

struct asking {
    int fd;
    int over; /* for writing, when all was asked for, or the rsocket has ended */
};

static void *ask_for_writes(void *asking) {
    const struct asking *const one = asking;
    char byte = 0;
    for (int page = 0; page < PAGES; ++page) {
        if (rsend(one->fd, "x", 1, MSG_NOSIGNAL) != 1 || rrecv(one->fd, &byte, 1, 0) != 1) {
            break;
        }
        (void)rrecv(one->fd, &byte, 1, MSG_DONTWAIT); /* nothing; now the peer sees that all was received */
    }
    return (void *)(intptr_t)write(one->over, "x", 1);
}

/* The peer's process is inside the kernel, which waits for a page of this process's memory. userfaultfd(2)
 * keeps it back until the test brings it. */
static void rclose_fails_while_the_peer_writes(void **state) {
    (void)state;
    skip_where(CHILDREN_MAKE_NO_THREADS);
    if (getenv("RPMA_VALGRIND") != NULL) {
        skip(); /* no process writes into the memory of another one */
    }
    const int watcher = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_THREAD_ID};
    if (watcher < 0 || ioctl(watcher, UFFDIO_API, &api) != 0) {
        skip(); /* this user may not */
    }
    int port_through[2], over_through[2];
    assert_int_equal(pipe(port_through), 0);
    assert_int_equal(pipe(over_through), 0);
    const pid_t peer = fork();
    if (peer == 0) {
        write_into_pages(port_through[0]);
    }
    enum { BYTES = PAGES * SIZE };
    void *const memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    struct uffdio_register watched = {.range = {.start = (uintptr_t)memory, .len = BYTES},
                                      .mode = UFFDIO_REGISTER_MODE_MISSING};
    assert_int_equal(ioctl(watcher, UFFDIO_REGISTER, &watched), 0);
    uint16_t port = 0;
    const int listener = listening_rsocket(&port);
    set_slots(listener, SLOTS);
    assert_int_equal(write(port_through[1], &port, sizeof(port)), sizeof(port));
    struct asking asking = {.fd = raccept(listener, NULL, NULL), .over = over_through[1]};
    assert_true(asking.fd >= 0);
    assert_int_equal(riomap(asking.fd, memory, BYTES, PROT_WRITE, 0, 0), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask_for_writes, &asking), 0);
    struct pollfd either[2] = {{.fd = watcher, .events = POLLIN}, {.fd = over_through[0], .events = POLLIN}};
    struct uffdio_zeropage page = {.range = {.len = SIZE}};
    bool is_of_peer = false;
    while (!is_of_peer && poll(either, 2, 30000) > 0 && either[1].revents == 0) {
        struct uffd_msg waits;
        assert_int_equal(read(watcher, &waits, sizeof(waits)), sizeof(waits));
        page.range.start = waits.arg.pagefault.address / SIZE * SIZE;
        is_of_peer = waits.arg.pagefault.feat.ptid == (uint32_t)peer;
        if (!is_of_peer) {
            assert_int_equal(ioctl(watcher, UFFDIO_ZEROPAGE, &page), 0);
        }
    }
    if (is_of_peer) {
        assert_fails(rclose(asking.fd), EBUSY);
        assert_true(rfcntl(asking.fd, F_GETFL) >= 0);
        assert_int_equal(ioctl(watcher, UFFDIO_ZEROPAGE, &page), 0);
        assert_int_equal(waitpid(peer, NULL, 0), peer);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(rclose(asking.fd), 0);
    assert_fails(rclose(asking.fd), EBADF);
    assert_int_equal(rclose(listener), 0);
    assert_int_equal(munmap(memory, BYTES), 0);
    assert_int_equal(close(watcher), 0);
    for (int i = 0; i < 2; ++i) {
        assert_int_equal(close(port_through[i]), 0);
        assert_int_equal(close(over_through[i]), 0);
    }
    if (!is_of_peer) {
        assert_int_equal(waitpid(peer, NULL, 0), peer);
        skip(); /* no process may write into the memory of another one here */
    }
}

static void before_and_after_the_stream(void **state) {
    (void)state;
    static char memory[SIZE];
    int fds[2];
    uint16_t port = 0;
    const int none = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_fails(riomap(none, memory, SIZE, PROT_WRITE, 0, 0), ENOTCONN);
    assert_fails(riounmap(none, memory, SIZE), EINVAL);
    assert_fails((ssize_t)riowrite(none, memory, SIZE, 0, 0), ENOTCONN);
    assert_int_equal(slots_of(none), 0);
    const int few[] = {1, 128, 255, 256, 700, 100000};
    const int had[] = {1, 128, 128, 256, 512, 32512};
    for (size_t i = 0; i < sizeof(few) / sizeof(few[0]); ++i) {
        set_slots(none, few[i]);
        assert_int_equal(slots_of(none), had[i]);
    }
    const int negative = -1;
    assert_fails(rsetsockopt(none, SOL_RDMA, RDMA_IOMAPSIZE, &negative, sizeof(negative)), EINVAL);
    assert_int_equal(rclose(none), 0);
    assert_fails(riomap(none, memory, SIZE, PROT_WRITE, 0, 0), EBADF);
    assert_fails(riounmap(none, memory, SIZE), EBADF);
    assert_fails((ssize_t)riowrite(none, memory, SIZE, 0, 0), EBADF);
    const int listener = listening_rsocket(&port);
    assert_fails(riomap(listener, memory, SIZE, PROT_WRITE, 0, 0), ENOTCONN);
    connect_ends(fds, listener, port);
    assert_fails(rsetsockopt(fds[0], SOL_RDMA, RDMA_IOMAPSIZE, few, sizeof(few[0])), EINVAL);
    assert_fails(riomap(fds[0], memory, SIZE, PROT_WRITE, 0, 0), ENOMEM); /* the peer wants none */
    assert_int_equal(rshutdown(fds[0], SHUT_WR), 0);
    assert_fails(riomap(fds[0], memory, SIZE, PROT_WRITE, 0, 0), EPIPE);
    assert_fails((ssize_t)riowrite(fds[0], memory, SIZE, 0, 0), EPIPE);
    assert_int_equal(rclose(fds[0]), 0);
    assert_int_equal(rclose(fds[1]), 0);
    assert_int_equal(rclose(listener), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rclose_fails_while_the_peer_writes), /* the first one, before there are threads */
        cmocka_unit_test(before_and_after_the_stream),
        cmocka_unit_test(a_reset_while_the_peer_writes),
        cmocka_unit_test(what_was_accepted_maps_at_once),
        cmocka_unit_test_setup_teardown(a_mapping_each_way_at_once, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(mappings_without_end, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(where_mappings_begin_and_end, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(what_cannot_be_mapped, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(one_mapping_over_another, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(a_full_stream_stops_no_write, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(a_message_comes_after_what_was_written_before, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(a_mapping_ends_while_the_peer_writes, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(a_mapping_ends_before_what_was_written_comes, make_ends, close_ends),
        cmocka_unit_test_setup_teardown(memory_that_is_gone_before_its_mapping_ends, make_ends, close_ends),
    };
    return cmocka_run_group_tests_name("rsocket_iomap", tests, NULL, NULL);
}
