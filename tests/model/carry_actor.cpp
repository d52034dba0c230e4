// SPDX-License-Identifier: BSD-3-Clause
#include "carry_actor.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace model {

namespace {

using Bytes = std::vector<unsigned char>;

std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

unsigned char byte_at(std::uint64_t key, std::uint64_t place) {
    return static_cast<unsigned char>(mixed(key + place / 8) >> (place % 8 * 8));
}

Bytes bytes_of(std::uint64_t key, std::uint64_t place, std::uint64_t count) {
    Bytes bytes(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        bytes[i] = byte_at(key, place + i);
    }
    return bytes;
}

bool are_right(const unsigned char *bytes, std::uint64_t key, std::uint64_t place, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        if (bytes[i] != byte_at(key, place + i)) {
            (void)std::fprintf(stderr, "[%d] byte %lu of %lu from place %lu on is wrong\n", getpid(), i,
                               count, place);
            return false;
        }
    }
    return true;
}

Outcome outcome(std::int64_t value) {
    return {.value = value, .error = value < 0 ? errno : 0};
}

int socket_in(int fd) {
    int bytes = 0;
    return ioctl(fd, FIONREAD, &bytes) == 0 ? bytes : -1;
}

// Another process has sent these bytes. The kernel may need a moment to bring them.
bool settle(int fd, std::uint64_t bytes, std::uint32_t events = 0) {
    for (std::uint64_t tries = 0; tries < 200'000'000; ++tries) {
        const auto here = static_cast<std::uint64_t>(std::max(socket_in(fd), 0));
        pollfd one{.fd = fd, .events = static_cast<short>(events), .revents = 0};
        if (here > bytes) {
            (void)std::fprintf(stderr, "[%d] %lu bytes are readable, not %lu\n", getpid(), here, bytes);
            return false;
        }
        if (here == bytes &&
            (events == 0 || (poll(&one, 1, 0) > 0 && (one.revents & static_cast<int>(events)) != 0))) {
            return true;
        }
        (void)sched_yield();
    }
    return false;
}

// The program has shut the socket down. Returns whether the peer's kernel has acknowledged that.
bool is_acknowledged(int fd) {
    for (std::uint64_t tries = 0; tries < 200'000'000; ++tries) {
        tcp_info info{};
        socklen_t length = sizeof(info);
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
            return false;
        }
        if (info.tcpi_state == TCP_FIN_WAIT2 || info.tcpi_state == TCP_CLOSE) {
            return true;
        }
        (void)sched_yield();
    }
    return false;
}

// Cuts bytes into three parts.
std::array<iovec, 3> parts_of(unsigned char *bytes, std::size_t count) {
    const std::size_t first = count / 3;
    const std::size_t second = count / 2 - first;
    return {{{.iov_base = bytes, .iov_len = first},
             {.iov_base = bytes + first, .iov_len = second},
             {.iov_base = bytes + first + second, .iov_len = count - first - second}}};
}

ssize_t send_file(int fd, const Bytes &bytes) {
    const int file = memfd_create("carry", MFD_CLOEXEC);
    off_t place = 0;
    const bool is_whole = write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    const ssize_t sent = is_whole ? sendfile(fd, file, &place, bytes.size()) : -1;
    (void)close(file);
    return sent;
}

ssize_t send_spliced(int fd, const Bytes &bytes) {
    int ends[2];
    const std::size_t count = std::min<std::size_t>(bytes.size(), 4096);
    if (pipe2(ends, O_CLOEXEC) != 0 || write(ends[1], bytes.data(), count) != static_cast<ssize_t>(count)) {
        return -1;
    }
    ssize_t sent = splice(ends[0], nullptr, fd, nullptr, count, 0);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return sent < 0 || count == bytes.size() ? sent
                                             : sent + write(fd, bytes.data() + count, bytes.size() - count);
}

// A call that does not wait may have to be made again, also where the kernel's buffer has room: a device that
// has lost the peer, or is late, does not say yet where its bytes end.
ssize_t send_without_wait(int fd, const Bytes &bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t more = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_DONTWAIT);
        if (more < 0 && errno != EAGAIN) {
            return more;
        }
        pollfd one{.fd = fd, .events = POLLOUT, .revents = 0};
        (void)poll(&one, 1, -1);
        done += more > 0 ? static_cast<std::size_t>(more) : 0;
    }
    return static_cast<ssize_t>(done);
}

ssize_t send_by(int fd, std::uint32_t kind, Bytes &bytes) {
    auto parts = parts_of(bytes.data(), bytes.size());
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    switch (kind % 9) {
        case 0:
            return ::send(fd, bytes.data(), bytes.size(), 0);
        case 1:
            return write(fd, bytes.data(), bytes.size());
        case 2:
            return writev(fd, parts.data(), 3);
        case 3:
            return sendmsg(fd, &message, MSG_NOSIGNAL);
        case 4:
            return send_file(fd, bytes);
        case 5:
            return send_spliced(fd, bytes);
        case 6:
            return send_without_wait(fd, bytes);
        case 7: {  // two messages that TCP may send as one
            const ssize_t first = ::send(fd, bytes.data(), bytes.size() / 2, MSG_MORE);
            return first < 0 ? first
                             : first + ::send(fd, bytes.data() + first,
                                              bytes.size() - static_cast<std::size_t>(first), 0);
        }
        default: {
            mmsghdr one{};
            one.msg_hdr = message;
            return sendmmsg(fd, &one, 1, 0) == 1 ? static_cast<ssize_t>(one.msg_len) : -1;
        }
    }
}

ssize_t receive_by(int fd, std::uint32_t kind, Bytes &bytes, int flags) {
    auto parts = parts_of(bytes.data(), bytes.size());
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    if ((flags & ~MSG_DONTWAIT) == 0 && kind % 2 == 0) {
        return kind % 4 == 0 ? read(fd, bytes.data(), bytes.size()) : readv(fd, parts.data(), 3);
    }
    switch (kind % 3) {
        case 0:
            return recv(fd, bytes.data(), bytes.size(), flags);
        case 1:
            return recvfrom(fd, bytes.data(), bytes.size(), flags, nullptr, nullptr);
        default:
            return recvmsg(fd, &message, flags);
    }
}

// Receives all, by calls that wait. Returns false at an end, an error or a wrong byte.
bool receive_all(int fd, std::uint64_t key, std::uint64_t place, std::uint64_t count) {
    Bytes bytes(std::min<std::uint64_t>(std::max<std::uint64_t>(count, 1), 100'000));
    for (std::uint64_t done = 0; done < count;) {
        const auto most = std::min<std::uint64_t>(bytes.size(), count - done);
        const ssize_t more = recv(fd, bytes.data(), most, 0);
        if (more <= 0 || !are_right(bytes.data(), key, place + done, static_cast<std::uint64_t>(more))) {
            return false;
        }
        done += static_cast<std::uint64_t>(more);
    }
    return true;
}

// Each call sends another number of bytes.
std::uint64_t piece(std::uint64_t place, std::uint64_t left) {
    constexpr std::uint64_t sizes[] = {1, 7, 100, 1500, 4096, 9000, 65536, 300'000};
    return std::min(left, sizes[mixed(place) % std::size(sizes)]);
}

bool send_all(int fd, const Command &command) {
    for (std::uint64_t done = 0; done < command.count;) {
        Bytes bytes = bytes_of(command.out_key, command.out_place + done,
                               piece(command.out_place + done, command.count - done));
        const ssize_t more =
            send_by(fd, static_cast<std::uint32_t>(mixed(done + command.out_place) % 4), bytes);
        if (more <= 0) {
            return false;
        }
        done += static_cast<std::uint64_t>(more);
    }
    return true;
}

// Sleeps until the socket is ready for `events`, by one of the calls that wait.
bool wait_until(int fd, short events, std::uint32_t kind, int epoll) {
    pollfd one{.fd = fd, .events = events, .revents = 0};
    if (kind % 3 == 0) {
        return poll(&one, 1, -1) == 1;
    }
    if (kind % 3 == 1) {
        fd_set readable;
        fd_set writable;
        FD_ZERO(&readable);
        FD_ZERO(&writable);
        if ((events & POLLIN) != 0) {
            FD_SET(fd, &readable);
        }
        if ((events & POLLOUT) != 0) {
            FD_SET(fd, &writable);
        }
        return select(fd + 1, &readable, &writable, nullptr, nullptr) > 0;
    }
    epoll_event event{.events = static_cast<std::uint32_t>(events), .data = {.u64 = 1}};
    event.events |= kind % 2 == 0 ? EPOLLONESHOT : EPOLLET;
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) != 0 &&
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        return false;
    }
    return epoll_wait(epoll, &event, 1, -1) == 1 && event.data.u64 == 1;
}

// Sends and receives without blocking.
bool talk_ready(int fd, const Command &command) {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    Bytes room(70'000);
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    bool is_right = true;
    for (std::uint32_t turn = command.kind; is_right && (sent < command.count || received < command.count_in);
         ++turn) {
        bool moved = false;
        if (sent < command.count) {
            Bytes bytes = bytes_of(command.out_key, command.out_place + sent,
                                   piece(command.out_place + sent, command.count - sent));
            const ssize_t more = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
            is_right = more > 0 || errno == EAGAIN;
            sent += static_cast<std::uint64_t>(std::max<ssize_t>(more, 0));
            moved = more > 0;
        }
        if (received < command.count_in) {
            const std::uint64_t most =
                std::min<std::uint64_t>(std::min<std::uint64_t>(room.size(), 1 + mixed(received) % 70'000),
                                        command.count_in - received);
            const ssize_t more = recv(fd, room.data(), most, MSG_DONTWAIT);
            is_right = is_right && (more > 0 || (more < 0 && errno == EAGAIN)) &&
                       (more < 0 || are_right(room.data(), command.in_key, command.in_place + received,
                                              static_cast<std::uint64_t>(more)));
            received += static_cast<std::uint64_t>(std::max<ssize_t>(more, 0));
            moved = moved || more > 0;
        }
        if (is_right && !moved && (sent < command.count || received < command.count_in)) {
            const int events =
                (sent < command.count ? POLLOUT : 0) | (received < command.count_in ? POLLIN : 0);
            // A process that was stopped finds some of these calls interrupted.
            is_right = wait_until(fd, static_cast<short>(events), turn, epoll) || errno == EINTR;
        }
    }
    (void)close(epoll);
    return is_right;
}

}  // namespace

int read_standard_input(std::uint64_t key, std::uint64_t place, std::uint64_t count) {
    return receive_all(STDIN_FILENO, key, place, count) ? 0 : 1;
}

Outcome Actor::act(const Command &command) {
    switch (command.call) {
        case Call::Listen:
        case Call::Connect:
        case Call::Accept:
            return begin(command);
        case Call::Send:
            return send(command);
        case Call::Receive:
            return receive(command);
        case Call::Nothing:
            return nothing(command);
        case Call::Wait:
            return wait(command);
        case Call::Settle:
            return outcome(settle(fd(command), command.settled, command.mask) ? 0 : 1);
        case Call::Acknowledges: {
            constexpr int now = 1;
            return outcome(setsockopt(fd(command), IPPROTO_TCP, TCP_QUICKACK, &now, sizeof(now)));
        }
        case Call::Acknowledged:
            return outcome(is_acknowledged(fd(command)) ? 0 : 1);
        case Call::Talk:
            return talk(command);
        case Call::Shut:
            return outcome(shutdown(fd(command), SHUT_WR));
        case Call::Reset: {
            constexpr linger at_once{.l_onoff = 1, .l_linger = 0};
            (void)setsockopt(fd(command), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
            [[fallthrough]];
        }
        case Call::Close: {
            const int closed = fd(command);
            fds_.erase(command.slot);
            return outcome(close(closed));
        }
        case Call::Urgent: {
            constexpr char urgent = '!';
            return outcome(::send(fd(command), &urgent, 1, MSG_OOB));
        }
        case Call::TakeUrgent: {
            pollfd one{.fd = fd(command), .events = POLLPRI, .revents = 0};
            char urgent = 0;
            const int ready = poll(&one, 1, -1);
            const ssize_t taken = recv(fd(command), &urgent, 1, MSG_OOB);
            return outcome(ready == 1 && taken == 1 ? urgent : -1);
        }
        case Call::Drain:
            return drain(command);
        case Call::Watch:
        case Call::Unwatch:
            return watch(command);
        case Call::Options:
            return options(command);
        case Call::Duplicate:
            return outcome(moves(command.slot));
        case Call::ChildUses:
        case Call::ChildCloses:
        case Call::Executes:
            return child(command);
        case Call::Passes:
        case Call::Takes:
            return passes(command);
        case Call::Interrupted:
            return interrupted(command);
        case Call::Ends:
            break;
    }
    return {};
}

// Gives the socket another number. An epoll set keeps a member under the number that it had, so the numbers
// have to be the same with the library, which has descriptors of its own: each slot has two.
int Actor::moves(std::uint32_t slot) {
    constexpr int first = 300;
    const int before = fds_.at(slot);
    const int own = first + static_cast<int>(slot) * 2;
    const int number = fcntl(before, F_DUPFD, before == own ? own + 1 : own);
    fds_[slot] = number;
    return number < 0 ? -1 : close(before);
}

Outcome Actor::begin(const Command &command) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(command.count));
    auto *const place = reinterpret_cast<sockaddr *>(&address);
    socklen_t length = sizeof(address);
    constexpr int on = 1;
    int made = -1;
    switch (command.call) {
        case Call::Listen:
            listener_ = socket(AF_INET, SOCK_STREAM, 0);
            return outcome(bind(listener_, place, length) == 0 && listen(listener_, 16) == 0 &&
                                   getsockname(listener_, place, &length) == 0
                               ? ntohs(address.sin_port)
                               : -1);
        case Call::Connect:
            made = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(made, place, length) != 0) {
                return outcome(-1);
            }
            break;
        default:
            made = accept(listener_, nullptr, nullptr);
    }
    fds_[command.slot] = made;
    return outcome(made < 0 ? -1 : setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
}

Outcome Actor::send(const Command &command) const {
    Bytes bytes = bytes_of(command.out_key, command.out_place, command.count);
    return outcome(send_by(fd(command), command.kind, bytes));
}

// The kinds: all at once; as many as are there; a look first; a wait first; as they come.
Outcome Actor::receive(const Command &command) const {
    Bytes bytes(command.count);
    int flags = MSG_WAITALL;
    Outcome found;
    switch (command.kind % 5) {
        case 0:
            break;
        case 1:
            found.is_wrong = settle(fd(command), command.settled) ? 0 : 1;
            flags = MSG_DONTWAIT;
            break;
        case 2: {
            found.is_wrong = settle(fd(command), command.settled) ? 0 : 1;
            Bytes seen(command.count);
            const ssize_t looked = receive_by(fd(command), command.kind / 5, seen, MSG_PEEK | MSG_DONTWAIT);
            if (looked < 0) {
                return outcome(looked);
            }
            if (!are_right(seen.data(), command.in_key, command.in_place,
                           static_cast<std::uint64_t>(looked))) {
                found.is_wrong = 1;
            }
            flags = MSG_DONTWAIT;
            break;
        }
        case 3: {
            pollfd one{.fd = fd(command), .events = POLLIN, .revents = 0};
            if (poll(&one, 1, -1) != 1) {
                return outcome(-1);
            }
            flags = MSG_DONTWAIT;
            break;
        }
        default:
            flags = 0;
    }
    std::uint64_t done = 0;
    // Where bytes were still under way, or the call may return some of them, it is repeated.
    do {
        Bytes more(command.count - done);
        const ssize_t received = receive_by(fd(command), command.kind / 5, more, flags);
        if (received <= 0) {
            if (received < 0 && errno == EAGAIN && command.kind % 5 == 3 && done != 0) {
                continue;
            }
            return outcome(received);
        }
        if (!are_right(more.data(), command.in_key, command.in_place + done,
                       static_cast<std::uint64_t>(received))) {
            found.is_wrong = 1;
        }
        done += static_cast<std::uint64_t>(received);
    } while (command.kind % 5 >= 3 && done < command.count);
    found.value = static_cast<std::int64_t>(done);
    return found;
}

Outcome Actor::nothing(const Command &command) const {
    char byte = 0;
    pollfd one{.fd = fd(command), .events = POLLIN, .revents = 0};
    switch (command.kind % 4) {
        case 0:
            return outcome(recv(fd(command), &byte, 1, MSG_DONTWAIT));
        case 1:
            return outcome(recv(fd(command), &byte, 1, MSG_DONTWAIT | MSG_PEEK));
        case 2:
            return outcome(poll(&one, 1, 0));
        default:
            return outcome(poll(&one, 1, 1));
    }
}

Outcome Actor::wait(const Command &command) {
    Outcome found;
    if (!settle(fd(command), command.settled)) {
        found.is_wrong = 1;
    }
    pollfd one{.fd = fd(command), .events = static_cast<short>(command.mask), .revents = 0};
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(fd(command), &readable);
    timeval time{.tv_sec = 0, .tv_usec = 0};
    epoll_event events[64];
    int count = 0;
    switch (command.kind % 3) {
        case 0:
            found.value = poll(&one, 1, 0) * 1'000'000 + one.revents;
            break;
        case 1:
            found.value = select(fd(command) + 1, &readable, nullptr, nullptr, &time) * 1'000'000 +
                          FD_ISSET(fd(command), &readable);
            break;
        default:
            // The events of the slot only: others may have become ready in another order.
            count = epoll_ >= 0 ? epoll_wait(epoll_, events, 64, 0) : 0;
            for (int i = 0; i < count; ++i) {
                if (events[i].data.u64 == command.slot) {
                    found.value |= events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
                }
            }
    }
    return found;
}

Outcome Actor::talk(const Command &command) {
    if (command.kind % 2 == 0) {
        return outcome(talk_ready(fd(command), command) ? 0 : 1);
    }
    const int one = fd(command);
    bool has_sent = false;
    std::thread sender{[&] { has_sent = send_all(one, command); }};
    const bool has_received = receive_all(one, command.in_key, command.in_place, command.count_in);
    sender.join();
    return outcome(has_sent && has_received ? 0 : 1);
}

// Tells how many bytes came before the end, and the errors of the calls behind it.
Outcome Actor::drain(const Command &command) const {
    Outcome found;
    unsigned char bytes[5000];
    for (;;) {
        const ssize_t more = recv(fd(command), bytes, sizeof(bytes), 0);
        if (more <= 0) {
            found.error = more < 0 ? errno : 0;
            break;
        }
        if (!are_right(bytes, command.in_key, command.in_place + static_cast<std::uint64_t>(found.value),
                       static_cast<std::uint64_t>(more))) {
            found.is_wrong = 1;
        }
        found.value += more;
    }
    pollfd one{.fd = fd(command), .events = POLLIN | POLLRDHUP, .revents = 0};
    (void)poll(&one, 1, 0);
    const ssize_t again = recv(fd(command), bytes, sizeof(bytes), MSG_DONTWAIT);
    const int error = again < 0 ? errno : 0;
    found.error = command.is_last ? 0 : found.error * 1'000'000 + one.revents * 1000 + error;
    return found;
}

Outcome Actor::watch(const Command &command) {
    if (epoll_ < 0) {
        epoll_ = epoll_create1(EPOLL_CLOEXEC);
    }
    epoll_event event{.events = command.mask, .data = {.u64 = command.slot}};
    if (command.call == Call::Unwatch) {
        return outcome(epoll_ctl(epoll_, EPOLL_CTL_DEL, fd(command), nullptr));
    }
    const int changed = epoll_ctl(epoll_, EPOLL_CTL_MOD, fd(command), &event);
    return outcome(changed == 0 ? 0 : epoll_ctl(epoll_, EPOLL_CTL_ADD, fd(command), &event));
}

Outcome Actor::options(const Command &command) const {
    constexpr int levels[][2] = {
        {IPPROTO_TCP, TCP_NODELAY}, {SOL_SOCKET, SO_KEEPALIVE}, {IPPROTO_TCP, TCP_CORK}};
    const auto *const option = levels[command.kind % 3];
    Outcome found;
    for (int value = 0; value < 4; ++value) {
        const int wanted = option[1] == TCP_CORK && option[0] == IPPROTO_TCP ? 1 - value % 2 : value % 2;
        int known = -1;
        socklen_t length = sizeof(known);
        (void)setsockopt(fd(command), option[0], option[1], &wanted, sizeof(wanted));
        (void)getsockopt(fd(command), option[0], option[1], &known, &length);
        found.value = found.value * 10 + known;
    }
    int blocks = static_cast<int>(command.kind / 3 % 2);
    (void)ioctl(fd(command), FIONBIO, &blocks);
    char byte = 0;
    if (blocks != 0 && command.settled == 0) {
        found.value = found.value * 10 + recv(fd(command), &byte, 1, MSG_PEEK);
        found.error = errno;
    }
    blocks = 0;
    (void)ioctl(fd(command), FIONBIO, &blocks);
    return found;
}

Outcome Actor::child(const Command &command) {
    (void)std::fflush(stdout);
    if (command.call == Call::Executes && !settle(fd(command), command.settled)) {
        return {.value = -1, .error = 0, .is_wrong = 1};
    }
    const pid_t made = fork();
    if (made != 0) {
        int status = 0;
        const pid_t ended = waitpid(made, &status, 0);
        return outcome(ended == made ? status : -1);
    }
    if (command.call == Call::ChildCloses) {
        for (const auto &[slot, number] : fds_) {
            (void)close(number);
        }
    } else if (command.call == Call::ChildUses) {
        const Outcome found = command.kind % 2 == 0 ? send(command) : receive(command);
        _exit(found.is_wrong == 0 && found.value == static_cast<std::int64_t>(command.count) ? 0 : 1);
    } else {
        const std::string key = std::to_string(command.in_key);
        const std::string place = std::to_string(command.in_place);
        const std::string count = std::to_string(command.count);
        (void)dup2(fd(command), STDIN_FILENO);
        (void)execl("/proc/self/exe", "carry", "--input", key.c_str(), place.c_str(), count.c_str(), nullptr);
        _exit(2);
    }
    _exit(0);
}

namespace {

// For the handler.
int interrupted_fd = -1;
Bytes interrupted_bytes;
ssize_t interrupted_sent = 0;

void send_in_handler(int) {
    const int error = errno;
    interrupted_sent =
        ::send(interrupted_fd, interrupted_bytes.data(), interrupted_bytes.size(), MSG_NOSIGNAL);
    errno = error;
}

}  // namespace

// The thread receives, with nothing there; the handler interrupts it, and sends on the same socket.
Outcome Actor::interrupted(const Command &command) const {
    interrupted_fd = fd(command);
    interrupted_bytes = bytes_of(command.out_key, command.out_place, command.count);
    interrupted_sent = 0;
    struct sigaction action{};
    action.sa_handler = send_in_handler;
    (void)sigaction(SIGALRM, &action, nullptr);
    constexpr itimerval soon{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 300}};
    (void)setitimer(ITIMER_REAL, &soon, nullptr);
    char byte = 0;
    ssize_t received = 0;
    do {  // the signal may come before the call
        received = recv(fd(command), &byte, 1, MSG_DONTWAIT);
        if (interrupted_sent == 0) {
            timeval little{.tv_sec = 0, .tv_usec = 2000};
            (void)setsockopt(fd(command), SOL_SOCKET, SO_RCVTIMEO, &little, sizeof(little));
            received = recv(fd(command), &byte, 1, 0);
            little.tv_usec = 0;
            (void)setsockopt(fd(command), SOL_SOCKET, SO_RCVTIMEO, &little, sizeof(little));
        }
    } while (interrupted_sent == 0);
    return {.value = received < 0 ? interrupted_sent : -2, .error = 0, .is_wrong = 0};
}

Outcome Actor::passes(const Command &command) {
    union {
        cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control{};
    char byte = 0;
    iovec part{.iov_base = &byte, .iov_len = 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.room;
    message.msg_controllen = sizeof(control.room);
    if (command.call == Call::Takes) {
        const ssize_t taken = recvmsg(static_cast<int>(command.count), &message, MSG_CMSG_CLOEXEC);
        int number = -1;
        if (const cmsghdr *const head = CMSG_FIRSTHDR(&message); head != nullptr) {
            std::memcpy(&number, CMSG_DATA(head), sizeof(number));
        }
        fds_[command.slot] = number;
        return outcome(taken == 1 && number >= 0 ? moves(command.slot) : -1);
    }
    const int number = fd(command);
    if (!settle(number, 0)) {
        return {.value = -1, .error = 0, .is_wrong = 1};
    }
    control.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    std::memcpy(CMSG_DATA(&control.head), &number, sizeof(number));
    const ssize_t sent = sendmsg(passing_, &message, 0);
    fds_.erase(command.slot);
    return outcome(close(number) == 0 && sent == 1 ? 0 : -1);
}

}  // namespace model
