// SPDX-License-Identifier: BSD-3-Clause
// rsocket/any_socket: the calls of the API on an rsocket of any type. Any number of threads may call.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/address.hpp"
#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/parts.hpp"
#include "base/result.hpp"
#include "registry/book.hpp"
#include "rsocket/sleep.hpp"

namespace rsockets {

using base::Result;
using std::chrono::milliseconds;

class AnySocket {
public:
    AnySocket(const AnySocket &) = delete;
    AnySocket &operator=(const AnySocket &) = delete;
    virtual ~AnySocket() = default;

    // The descriptor is a socket of the kernel, which has the names and most of the options.
    [[nodiscard]] int fd() const { return fd_.get(); }

    [[nodiscard]] virtual Result<void> listen(int backlog) = 0;
    // flags: SOCK_NONBLOCK, SOCK_CLOEXEC.
    [[nodiscard]] virtual Result<std::shared_ptr<AnySocket>> accept(sockaddr *address, socklen_t *length,
                                                                    int flags) = 0;
    [[nodiscard]] virtual Result<void> connect(const sockaddr *address, socklen_t length) = 0;
    // Works like recvmsg(2) and sendmsg(2). There are at most IOV_MAX parts, and no control data is sent.
    [[nodiscard]] virtual Result<std::size_t> receive(msghdr &message, int flags) = 0;
    [[nodiscard]] virtual Result<std::size_t> send(const msghdr &message, int flags) = 0;
    // Works like recv(2) and send(2), which take one part and no name.
    [[nodiscard]] virtual Result<std::size_t> receive_part(void *bytes, std::size_t size, int flags) {
        const iovec part = base::part_of(bytes, size);
        msghdr message = base::message_of(&part, 1);
        return receive(message, flags);
    }
    [[nodiscard]] virtual Result<std::size_t> send_part(const void *bytes, std::size_t size, int flags) {
        const iovec part = base::part_of(bytes, size);
        return send(base::message_of(&part, 1), flags);
    }
    [[nodiscard]] virtual Result<void> shutdown(int how) = 0;
    // Is called before close(): ends the mappings that there are, and the stream. EBUSY: the peer may still
    // write into one of them, and the socket stays until a later call.
    [[nodiscard]] virtual Result<void> end_mappings() { return {}; }
    // The caller has taken it out of the table.
    virtual void close() = 0;

    // Returns the address of one end, as getsockname(2) and getpeername(2) give it.
    [[nodiscard]] virtual Result<void> name(base::End end, sockaddr *address, socklen_t *length) {
        const int result =
            end == base::End::Local ? getsockname(fd(), address, length) : getpeername(fd(), address, length);
        return result == 0 ? Result<void>{} : base::last_failure();
    }

    [[nodiscard]] virtual Result<void> set_option(int level, int name, const void *value,
                                                  socklen_t length) = 0;
    [[nodiscard]] virtual Result<void> get_option(int level, int name, void *value, socklen_t *length) = 0;
    [[nodiscard]] virtual bool blocks() = 0;
    virtual void set_blocking(bool blocks) = 0;

    // Direct placement, which streams have and datagrams do not. protection is PROT_NONE or PROT_WRITE; an
    // offset of -1 stands for the address. Returns the offset of the mapping.
    [[nodiscard]] virtual Result<off_t> map(void * /*begin*/, std::size_t /*bytes*/, int /*protection*/,
                                            off_t /*offset*/) {
        return base::failure(EOPNOTSUPP);
    }
    [[nodiscard]] virtual Result<void> unmap(const void * /*begin*/, std::size_t /*bytes*/) {
        return base::failure(EOPNOTSUPP);
    }
    [[nodiscard]] virtual Result<std::size_t> write_at(const void * /*from*/, std::size_t /*bytes*/,
                                                       off_t /*offset*/, int /*flags*/) {
        return base::failure(EOPNOTSUPP);
    }

    // A thread that waits for several sockets calls this. It takes the socket further without its shard, and
    // returns the shard of its stream, if it has one. The caller then serves that.
    [[nodiscard]] virtual std::shared_ptr<stream::Shard> advance() = 0;
    // Returns which of `events` (poll(2)) there are now.
    [[nodiscard]] virtual short readiness(short events) = 0;
    // Begins a wait for `events`. Until the wait ends, a thread that changes the socket ends the sleep; what
    // came before the wait began does not end it.
    [[nodiscard]] virtual Result<void> begin_wait(Sleep &sleep, short events) = 0;
    virtual void end_wait(const Sleep &sleep) = 0;

    // The kernel's descriptors that tell when to advance() again, beside the shard if advance() gives one,
    // and the events that they become ready for then. They become ready until end_watch(); those of a device
    // of the kernel once, and again after another call of this. The socket keeps them open until it is
    // closed.
    [[nodiscard]] virtual Result<std::vector<pollfd>> watch(short events) = 0;
    virtual void end_watch() {}
    // The threads and watchers that are told when the socket changes.
    [[nodiscard]] Waiters &waiters() { return waiters_; }

    // Closes the socket because the process ends, perhaps in the middle of a call. It does not wait, not
    // even for a lock. Returns false when the socket has not ended, because another thread has a lock.
    [[nodiscard]] virtual bool end_with_process() = 0;
    // Called in a forked child, where a thread of the parent may be about to change this rsocket, or hold
    // its locks for ever. Makes the child's own rsocket of the same descriptor. The child never uses or
    // destroys this one again.
    [[nodiscard]] virtual std::shared_ptr<AnySocket> in_child() const = 0;

    // Tells other programs what the socket is now. The caller says what the kernel's socket does not.
    void describe(registry::Description description);
    // Returns the record by which other programs see the socket. In a forked child there is none until
    // describe().
    [[nodiscard]] registry::Entry &entry() { return entry_; }

protected:
    explicit AnySocket(base::Fd fd) : fd_{std::move(fd)} {}
    [[nodiscard]] base::Fd take_fd() { return std::move(fd_); }

    Waiters waiters_;

private:
    base::Fd fd_;
    registry::Entry entry_;
};

}  // namespace rsockets
