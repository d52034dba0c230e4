// SPDX-License-Identifier: BSD-3-Clause
// carry/socket: what this library knows of one TCP socket of the program's: how many bytes have passed, and
// the link, if there is one. The descriptor is the kernel's socket from socket(2) to close(2). Until there is
// a link, the kernel does everything, and the library counts.
//
//      program ── send ──► Out ──┬── TCP ─────────────────────┬──► In ── recv ──► the other program
//                                └── ring (carry/link.hpp) ───┘
//
// It lies in memory that the process shares with its forked children (carry/sockets), as they share the
// kernel's socket: two processes that use one connection use one Socket. Any number of threads may call.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/clock.hpp"
#include "carry/first_bytes.hpp"
#include "carry/link.hpp"
#include "carry/own_calls.hpp"
#include "carry/section.hpp"

namespace carry {

using Parts = std::span<const iovec>;

// The calls of the kernel in one direction for the Sockets of a place. A thread may be in such a call, or may
// be killed there, when the place is another Socket's already. The others do not count that call.
class KernelCalls {
public:
    // Returns for which Socket of the place the call is.
    [[nodiscard]] std::uint32_t begin() { return static_cast<std::uint32_t>(calls_.fetch_add(1) >> 32); }
    // Returns whether that Socket has not ended.
    [[nodiscard]] bool is_for(std::uint32_t socket) const { return calls_.load() >> 32 == socket; }
    void end(std::uint32_t socket) {
        std::uint64_t now = calls_.load();
        while (now >> 32 == socket && !calls_.compare_exchange_weak(now, now - 1)) {
        }
        std::uint64_t late = late_.load(std::memory_order_relaxed);
        while (late >> 32 == socket && late >= now && !late_.compare_exchange_weak(late, now - 1)) {
        }
    }
    // The Socket ends.
    void renew() { calls_ = ((calls_ >> 32) + 1) << 32; }
    [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(calls_.load()); }
    [[nodiscard]] bool any() const { return count() != 0; }
    // A wait has found that the present calls take long. Those that begin later count until they end.
    void note_late() { late_ = calls_.load(); }
    [[nodiscard]] bool any_but_late() const {
        const std::uint64_t now = calls_;
        const std::uint64_t late = late_;
        return any() && (now >> 32 != late >> 32 || now > late);
    }

private:
    std::atomic<std::uint64_t> calls_;  // number of the Socket << 32 | calls
    std::atomic<std::uint64_t> late_;   // the same at note_late(), and no more than there have been since
};

// The locks of a place, which one Socket after another has. To make locks for each would take as long as all
// else that a short connection needs of this library.
struct alignas(64) Locks {
    std::uint32_t sockets;  // that have been there
    // The threads that use the Socket here, also one that is late; with `ended` from end() on, until the
    // place is given back.
    std::atomic<std::uint32_t> inside;
    static constexpr std::uint32_t ended = 1U << 31;
    KernelCalls sending;
    KernelCalls receiving;  // only those that began without a link
    SharedLock out;
    SharedLock in;
    SharedLock meeting;
    SharedLock moving;

    void begin() {
        sending.renew();
        receiving.renew();
        out.begin();
        in.begin();
        meeting.begin();
        moving.begin();
    }
};

class Socket {
public:
    // How the connection was made. The kernel counts the SYN of connect(2) as a byte that was acknowledged.
    enum class Role : std::uint32_t { Connects, Accepted };

    // The socket is new; one process has it. The locks of its place stay as they are.
    void begin(Role role, bool blocks, bool is_smc);

    // ---- moving bytes ----
    // Work as sendmsg(2) and recvmsg(2) without a name and control data. by_kernel() makes the program's own
    // call of libc. Another thread may have closed the number since the caller found this Socket there, and
    // the place may be another Socket's. Then the call is one of what has the number now.
    template <typename Call>
    ssize_t send(int fd, Parts parts, int flags, Call by_kernel) {
        if ((flags & MSG_OOB) != 0 && !begin_urgent(flags)) {
            return -1;
        }
        if (!is_linked()) {
            const std::uint32_t call = locks().sending.begin();
            if (!is_linked() && has_number(fd)) {
                const ssize_t bytes = by_kernel();
                sent_unlinked(call, fd, parts, bytes);
                return bytes;
            }
            locks().sending.end(call);
        } else if (const Inside inside{*this}; has_number(fd)) {
            if (const ssize_t bytes = send_linked(fd, parts, flags); bytes != not_begun) {
                return bytes;
            }
        }
        Socket *const other = now_at(fd);
        return other != nullptr ? other->send(fd, parts, flags, by_kernel) : by_kernel();
    }
    template <typename Call>
    ssize_t receive(int fd, Parts parts, int flags, Call by_kernel) {
        if (!is_linked()) {
            const std::uint32_t call = locks().receiving.begin();
            if (!is_linked() && has_number(fd)) {
                ++handlers::of_thread.receives;
                const ssize_t bytes = by_kernel();
                --handlers::of_thread.receives;
                received_unlinked(call, fd, parts, bytes, flags);
                return bytes;
            }
            locks().receiving.end(call);
        } else if (const Inside inside{*this}; has_number(fd)) {
            if (const ssize_t bytes = receive_linked(fd, parts, flags); bytes != not_begun) {
                if (!makes_own_calls.load(std::memory_order_relaxed)) [[unlikely]] {
                    stay_in_tcp(fd);
                }
                return bytes;
            }
        }
        Socket *const other = now_at(fd);
        return other != nullptr ? other->receive(fd, parts, flags, by_kernel) : by_kernel();
    }
    // Makes a call that only the kernel can make, and that sends bytes: sendfile(2), splice(2). by_kernel()
    // returns how many. look(where to) copies the first of the bytes that it will send, as far as it knows
    // them, and returns how many these are; it is called only for a connection's first bytes.
    template <typename Call, typename Look>
    ssize_t send_by_kernel(int fd, Call by_kernel, Look look) {
        const std::uint32_t call = locks().sending.begin();
        if (!has_number(fd)) {
            locks().sending.end(call);
            Socket *const other = now_at(fd);
            return other != nullptr ? other->send_by_kernel(fd, by_kernel, look) : by_kernel();
        }
        if (!begin_kernels_send()) {
            locks().sending.end(call);
            return -1;
        }
        std::array<std::byte, FirstBytes::most> first;
        const std::size_t known = keeps_first(out_.count) ? look(std::span{first}) : 0;
        const ssize_t bytes = by_kernel();
        end_kernels_send(call, bytes, std::span{first}.first(known));
        return bytes;
    }
    // Makes a call of the kernel that receives, such as splice(2). Returns false, and calls nothing, when
    // there is a link, or the number is not this Socket's any more.
    template <typename Call>
    [[nodiscard]] bool receive_by_kernel(int fd, ssize_t &bytes, Call by_kernel) {
        const std::uint32_t call = locks().receiving.begin();
        if (is_linked() || !has_number(fd)) {
            locks().receiving.end(call);
            return false;
        }
        std::array<std::byte, FirstBytes::most> first;
        const std::size_t known = keeps_first(in_.count) ? peek_in_tcp(fd, first) : 0;
        ++handlers::of_thread.receives;
        bytes = by_kernel();
        --handlers::of_thread.receives;
        const iovec part{.iov_base = first.data(), .iov_len = known};
        received_unlinked(call, fd, Parts{&part, 1}, bytes, 0);
        return true;
    }

    // Calls use() while no other thread does so: what it receives is moved in the order in which it came. A
    // call of the kernel's that began without a link comes first, unless it takes long.
    template <typename Use>
    auto alone(Use use) {
        const Section section{locks().moving};
        await_kernels_receives();
        return use();
    }

    // ---- waiting ----
    [[nodiscard]] bool is_linked() const { return has_link_.load(std::memory_order_acquire); }
    // Returns whether the ring may have bytes for the program. Takes no lock.
    [[nodiscard]] bool has_bytes() const;
    // Returns whether it has some for certain, without asking the kernel. Takes no lock.
    [[nodiscard]] bool has_ring_bytes() const;
    // Returns whether the next bytes that the program sends go into the ring, without a wait. Takes no lock.
    [[nodiscard]] bool has_room() const;
    // The thread is about to sleep in the kernel until the socket is readable. Returns false when there is
    // something to read already. Until end_sleep() the peer rings for what it puts into the ring.
    [[nodiscard]] bool begin_sleep(int fd);
    void end_sleep();
    // Returns whether a byte is in TCP that the copy of the link does not explain yet. It may be the only
    // doorbell for what comes, and has ended a sleep already.
    [[nodiscard]] bool has_unexplained(int fd);
    // Returns whether the program can read, or finds the end. A doorbell alone is taken away.
    [[nodiscard]] bool is_readable(int fd);
    // Returns how many bytes have come through the ring, so that a caller sees whether more came.
    [[nodiscard]] std::uint64_t arrived() const;
    // Returns when the peer put the bytes into the ring that are there, in nanoseconds of base::Clock.
    [[nodiscard]] std::int64_t filled_at() const;
    // Returns whether bytes of another turn may be in TCP, beside those of the ring.
    [[nodiscard]] bool is_partly_in_tcp() const;
    // The kernel tells of an error once, and a call of this library's may have taken it. The program is told
    // then as the kernel would: POLLERR until a call fails with it, or asks for it (SO_ERROR).
    [[nodiscard]] bool keeps_error() const { return kept_error_.load(std::memory_order_relaxed) != 0; }
    // Returns what SO_ERROR is, where the kernel's is this.
    [[nodiscard]] int take_error(int kernels);
    // Returns the events of poll(2) for the program, where the kernel's are these. A peer that ends with a
    // doorbell in its socket, and has read all else, resets the connection for that alone: it ends for the
    // program as if it had not.
    [[nodiscard]] short events_of(short found) const;
    // Returns a number that changes when bytes for the program, or the end of them, come through TCP.
    [[nodiscard]] std::uint64_t arrived_by_tcp(int fd);

    // ---- the rest ----
    // Returns a number that no other Socket in the same place has had.
    [[nodiscard]] std::uint32_t number() const { return locks().sockets; }
    [[nodiscard]] bool is_smc() const { return is_smc_; }
    [[nodiscard]] bool blocks() const { return blocks_.load(std::memory_order_relaxed); }
    void set_blocks(bool blocks) { blocks_.store(blocks, std::memory_order_relaxed); }
    // TCP_NODELAY and TCP_CORK would hold doorbells back. With a link the kernel's socket does not delay, and
    // these are the values that the program has set.
    // Returns nullptr for any other option, and without a link.
    [[nodiscard]] std::atomic<int> *delay(int option);
    // Bytes in the ring that the program has not read, and those that the peer's has not.
    [[nodiscard]] std::size_t unread() const;
    [[nodiscard]] std::size_t unsent() const;
    // Bytes that the program can read now.
    [[nodiscard]] int readable_bytes(int fd);
    // From here on all that is sent goes through TCP.
    void send_in_tcp_for_good(const char *why);
    // The program is about to shut down the direction, or may do it unseen.
    void before_shutdown();
    // The connection stays in TCP for good. Where the ring has bytes, the program reads those first. `why` is
    // a string constant.
    void stay(const char *why);
    // Returns whether the kernel's socket has all that is to be read, and will; then a program that does not
    // use this library may have it. It does when the ring is empty, and the socket stays (stay()).
    [[nodiscard]] bool is_kernels(int fd);
    // The kernel's socket is read past this library from here on. Where the ring has bytes that are not read,
    // the connection is reset.
    void give_away(int fd);

    // The program disconnects the socket (connect(2) with AF_UNSPEC), which is new for the kernel then.
    void before_disconnect();
    void was_disconnected();
    // It stays in TCP, and the kernel's socket has all (is_kernels()): it has no link from here on.
    void unlink();
    // It stays in TCP for good, and has no link from here on unless the ring has bytes.
    void stay_in_tcp(int fd);
    // An option of the kernel's socket does what the ring does not. A socket that is accepted inherits it
    // from its listener.
    void stay_for_option();
    [[nodiscard]] bool stays_for_option() const { return stays_for_option_; }

    // A message has a descriptor of it (SCM_RIGHTS) from here on, or a program that was executed.
    void pass_on() { is_passed_on_ = true; }
    [[nodiscard]] bool is_passed_on() const { return is_passed_on_; }

    // ---- a link between two hosts (carry/mirror) ----
    // The peer has sent a message: it sleeps, or leaves the link. The agent's thread calls. Returns false
    // when another thread is sending, which may wait for the agent.
    [[nodiscard]] bool answer(int fd);
    // The device has lost the peer. Returns false while TCP may still say whether the peer has ended; with
    // is_last the connection is reset where bytes may be lost.
    [[nodiscard]] bool lost_mirror(int fd, bool is_last);
    // The agent has news. Where a call that does not wait has returned before that, the program's epoll sets
    // tell of the socket again. Returns false when another thread uses the sets.
    [[nodiscard]] bool tells_news();
    // Sends through TCP from here on, and asks the peer to. Where the peer does not have the present turn at
    // this time, the turn does not end.
    void ask_back(base::Clock::time_point until);
    // Returns whether the peer does, and this end's copy has all that came before.
    [[nodiscard]] bool is_back() const;

    // ---- who has it ----
    void one_more_process() { processes_.fetch_add(1); }
    [[nodiscard]] bool is_of_one_process() const { return processes_ == 1; }
    [[nodiscard]] bool is_of_no_process() const { return processes_ == 0; }
    // The process is about to get a copy of it, and the others keep it. Where not all that is to be read is
    // in TCP, both have the link from here on, and the first that receives reads the rest.
    void before_copy();
    // This is the copy.
    void is_alone_now();
    // Returns whether this process alone reads from it.
    [[nodiscard]] bool is_read_here() const { return is_of_one_process() && is_reader(); }
    // Returns the link that each process with the Socket has mapped; nullptr without one.
    [[nodiscard]] Link *mapped_link() const;
    // This process has closed its last descriptor of it. Returns whether no process has one any more.
    [[nodiscard]] bool one_process_less();
    // Called before the last descriptor of the last process is closed. A doorbell that is not read would make
    // an orderly end a reset.
    void before_end(int fd);
    // Takes away the doorbells that have come, if the program has read what they were for.
    void drop_doorbells(int fd);
    // Closes a descriptor by calling by_kernel(). A thread that is in a call of the socket neither sends nor
    // receives meanwhile, unless it is in the kernel, and finds afterwards that the number is not its
    // socket's any more. With SO_LINGER the call may sleep.
    template <typename Close>
    int close(Close by_kernel) {
        if (locks().inside == 0) {
            return by_kernel();
        }
        const Section out{locks().out};
        const Section in{locks().in};
        return by_kernel();
    }
    // Until end_use() the place is not another Socket's.
    void begin_use() const {
        locks().inside.fetch_add(1);
        ++handlers::of_thread.inside;
    }
    void end_use() const {
        --handlers::of_thread.inside;
        if (locks().inside.fetch_sub(1) == (Locks::ended | 1)) {
            end_late();
        }
    }
    // All descriptors are closed. Returns whether no thread uses it any more; otherwise the last one that
    // does gives its place back (carry/sockets).
    [[nodiscard]] bool end();

    struct Counts {
        std::uint64_t by_memory = 0;  // bytes
        std::uint64_t by_device = 0;
        std::uint64_t by_tcp = 0;
    };
    [[nodiscard]] Counts received() const;
    [[nodiscard]] Counts sent() const;
    [[nodiscard]] std::uint32_t turns_back() const { return out_.turn / 2; }
    // Returns why it stays in TCP, or came back there; nullptr where that is not known, or the end of the
    // connection was the reason.
    [[nodiscard]] const char *why_in_tcp() const;

    std::atomic<std::uint32_t> next_free;  // of carry/sockets

private:
    friend class Meeting;
    friend class Sockets;
    [[nodiscard]] Counts counts(std::uint64_t all, std::uint64_t by_link) const;
    void send_without_delay(int fd);
    // While one lives, the link stays mapped, also when another thread closes the descriptor.
    class Inside {
    public:
        explicit Inside(const Socket &socket) : socket_{socket} { socket_.begin_use(); }
        ~Inside() noexcept(false) { socket_.end_use(); }
        Inside(const Inside &) = delete;
        Inside &operator=(const Inside &) = delete;

    private:
        const Socket &socket_;
    };
    // Holds the lock of In. No other thread closes the number meanwhile, which descriptor() has chosen.
    class InSection {
    public:
        InSection(Socket &socket, int &fd) : section_{socket.locks().in} {
            fd = socket.descriptor(fd);
            socket.recover_in(fd);
        }

    private:
        const Section section_;
    };
    // Holds the lock of Out. The thread has begun so many calls of the kernel's.
    class OutSection {
    public:
        explicit OutSection(Socket &socket, std::uint32_t own_calls = 0) : section_{socket.locks().out} {
            socket.recover_out(own_calls);
        }

    private:
        const Section section_;
    };
    using Count = std::atomic<std::uint64_t>;
    // Says why a call that receives has nothing: the end, or an error.
    struct Nothing {
        bool is_final = false;
        ssize_t result = 0;
        int error = 0;
    };
    struct Out {
        Count count;  // of the program's bytes
        Count put;    // those of them that went through the ring
        std::uint64_t origin;
        std::uint64_t doorbells;
        std::uint32_t turn;
        std::uint32_t sends_to_wait;     // before the ring is tried again
        std::int64_t checked_at;         // when the kernel was asked whether the peer is there
        std::atomic<bool> stays_in_tcp;  // as long as there is this link
        int rung;                        // grows with each message that needed a doorbell
        std::uint32_t rung_for;          // the sleep of the receiver that the last doorbell was for
        bool rings_once;                 // a receiver may have gone to sleep before there was a link
        // Whether bytes are being put, and the counts before that: the process may be killed meanwhile.
        std::atomic<bool> moves;
        std::uint64_t count_before;
        std::uint64_t put_before;
    };
    struct In {
        Count count;
        Count taken;
        Count dropped;  // doorbells
        std::uint32_t turn;
        // The bytes that had come when the peer was last told of a sleep (a link between two hosts).
        std::atomic<std::uint64_t> armed_put;
        std::atomic<std::uint64_t> armed_doorbells;
        std::atomic<bool> is_armed;
        std::uint64_t
            unexplained;  // what had been read when a byte was found first that the copy does not explain
        std::int64_t unexplained_at;  // when that was (base::Clock); 0: never
        // As in Out, of bytes that are being taken out of the ring.
        std::atomic<bool> moves;
        std::uint64_t count_before;
        std::uint64_t taken_before;
    };

    static constexpr std::uint32_t of_the_others = 1;
    static constexpr std::uint32_t of_no_reader = UINT32_MAX - 1;
    // Returns whether no other copy reads what the ring has.
    [[nodiscard]] bool is_reader() const { return copy_ == 0 || from_peer().reader == copy_; }
    [[nodiscard]] bool becomes_reader();
    // Returns whether this copy may look at what the ring has: none has begun to read, or this one.
    [[nodiscard]] bool may_look() const {
        return is_reader() || (copy_ != of_no_reader && from_peer().reader == 0);
    }
    // Returns whether another copy has read what the ring had: the rest is in TCP.
    [[nodiscard]] bool is_past_ring() const {
        return copy_ != 0 && from_peer().reader == Direction::all_is_read;
    }
    // Once the peer puts nothing more into the ring, and the ring is empty, refuses doorbells: a peer that
    // has put the last bytes may be about to ring for them, and who reads TCP's bytes would read that.
    // Returns false while the ring has bytes.
    [[nodiscard]] bool refuses_doorbells();
    // Does the same, and returns whether no doorbell is left either: all that is to be read is in TCP.
    [[nodiscard]] bool finishes_ring();
    // Lets the other copies go on, in TCP, when this one has read what the ring had.
    void note_what_is_read() {
        if (copy_ != 0) [[unlikely]] {
            let_copies_go_on();
        }
    }
    void let_copies_go_on();

    [[nodiscard]] inline Locks &locks() const;
    [[nodiscard]] inline bool has_number(int fd) const;
    [[nodiscard]] static inline Socket *now_at(int fd);
    [[nodiscard]] Link *link() const { return link_.load(std::memory_order_acquire); }
    [[nodiscard]] Direction &to_peer() const { return link()->directions[side_]; }
    [[nodiscard]] Direction &from_peer() const { return link()->directions[1 - side_]; }
    [[nodiscard]] static bool is_in_ring(std::uint32_t turn) { return turn % 2 != 0; }
    // Returns whether the link is a copy of the peer's, on another host.
    [[nodiscard]] bool is_mirrored() const { return is_mirrored_.load(std::memory_order_relaxed); }
    // Writes to the peer's copy what this end has changed.
    void push() const;
    void push_and_tell() const;
    [[nodiscard]] bool is_mirror_lost() const;
    [[nodiscard]] bool settles_turn() const;
    [[nodiscard]] bool has_settled_turn() const;
    [[nodiscard]] bool is_armed() const;
    void arm();
    [[nodiscard]] bool waits_for_copy(const Nothing &nothing) const;
    [[nodiscard]] bool waits_for_back() const;
    [[nodiscard]] bool waits_for_answer() const;
    void say_how_it_closes(int fd);
    [[nodiscard]] bool closed_unread(int fd);
    [[nodiscard]] bool closed_with_doorbell() const;
    [[nodiscard]] std::uint64_t explained(std::uint64_t in_tcp) const;
    void await_kernels_receives() const;
    // Returns whether another thread, or another process, may be in a receive that began without a link.
    [[nodiscard]] bool is_received_by_kernel() const;
    void unmap(Link *link) const;
    [[nodiscard]] Link *drop_link();
    [[nodiscard]] bool is_unused() const;
    void end_late() const;
    [[nodiscard]] int descriptor(int fd) const;
    [[nodiscard]] bool has_lost_peer() const;
    [[nodiscard]] bool may_lack_bytes() const;
    void lose_bytes();
    void reset();
    void give_up(int fd);
    static void disconnect(int fd);
    [[nodiscard]] bool is_cut_off() const;
    // The word of an end, or what explains a byte, is on its way for so long at most: the device loses a peer
    // that does not answer. Bytes that the peer sent past the library are never explained.
    static constexpr std::chrono::seconds waits_for_word{30};
    [[nodiscard]] bool is_unexplained_for_long();
    [[nodiscard]] bool tries_to_leave_ring();

    [[nodiscard]] bool stays() const { return why_in_tcp_ != nullptr; }
    void will_stay(const char *why);
    void decline() const;
    // Writes the counts where other programs see them.
    void publish() const;
    void sent_unlinked(std::uint32_t call, int fd, Parts parts, ssize_t bytes);
    void received_unlinked(std::uint32_t call, int fd, Parts parts, ssize_t bytes, int flags);
    // The next two return this when the program has closed all numbers before they have looked at anything.
    static constexpr ssize_t not_begun = -2;
    [[nodiscard]] ssize_t send_linked(int fd, Parts parts, int flags);
    [[nodiscard]] ssize_t receive_linked(int fd, Parts parts, int flags);
    [[nodiscard]] bool begin_urgent(int flags);
    [[nodiscard]] bool begin_kernels_send();
    void end_kernels_send(std::uint32_t call, ssize_t bytes, std::span<std::byte> first = {});
    // Returns whether the bytes behind this count are such as an end proves by that it has the connection.
    [[nodiscard]] bool keeps_first(std::uint64_t count) const;
    // Returns how many it has copied.
    [[nodiscard]] static std::size_t peek_in_tcp(int fd, std::span<std::byte> room);
    // Returns false when the kernel's connection has ended by a reset, or both ends.
    [[nodiscard]] static bool has_connection(int fd);
    // Return whether the kernel has counted as many bytes.
    [[nodiscard]] bool kernel_agrees_to_sent(int fd) const;
    [[nodiscard]] bool kernel_agrees(int fd) const;
    // Return how many bytes the kernel's socket has got from programs, and given to them, as this library
    // counts; of the first the SYN of connect(2) is one.
    [[nodiscard]] std::uint64_t given_to_kernel() const {
        return out_.count - out_.put + out_.doorbells + (role_ == Role::Connects ? 1 : 0);
    }
    [[nodiscard]] std::uint64_t taken_from_kernel() const { return in_.count - in_.taken + in_.dropped; }
    // Return by how much the kernel counts more than this library; nullopt where that is not known.
    [[nodiscard]] std::optional<std::int64_t> uncounted_in(int fd) const;
    [[nodiscard]] std::optional<std::int64_t> uncounted_out(int fd, std::uint32_t own_calls) const;
    // The thread has the lock. When a process was killed that had it, what it has not counted is counted.
    void recover_in(int fd) {
        if (fd >= 0 && locks().in.has_lost_owner()) [[unlikely]] {
            count_in(fd);
        }
    }
    void recover_out(std::uint32_t own_calls) {
        if (locks().out.has_lost_owner()) [[unlikely]] {
            count_out(own_calls);
        }
    }
    void count_in(int fd);
    void count_out(std::uint32_t own_calls);
    void keep(int error);
    [[nodiscard]] int take_error_of_receive();
    [[nodiscard]] bool fails_with_kept_error();
    [[nodiscard]] bool comes_soon() const;
    [[nodiscard]] static Nothing sleep(int fd, int flags);
    [[nodiscard]] static Nothing sleep_on(int fd, std::int64_t began);
    [[nodiscard]] static short events_now(int fd, short events);
    [[nodiscard]] ssize_t end_of(int fd, const Nothing &nothing);
    [[nodiscard]] ssize_t end_of_closed(const Nothing &nothing) const;
    [[nodiscard]] ssize_t end_of_error(int error);
    int told_of(int error);

    // With the lock of Out.
    void enter_ring(int fd);
    void leave_ring();
    void begin_turn();
    [[nodiscard]] bool peer_is_there(int fd);
    [[nodiscard]] bool resets(int fd);
    [[nodiscard]] bool ended_by_doorbell() const;
    [[nodiscard]] bool is_reset_by_doorbell() const;
    [[nodiscard]] std::size_t put(int fd, Parts parts, std::size_t bytes);
    [[nodiscard]] bool has_any_room() const;
    [[nodiscard]] std::size_t put_once(Parts parts, std::size_t skip, std::size_t bytes);
    [[nodiscard]] bool has_sleeper();
    void ring_doorbell(int fd);
    void send_doorbell(int fd);
    void send_counted_doorbell(int fd);
    void wake_before_leaving();
    void leave(const char *why);
    void take_link(Link &link);
    void leave_with_peer(int fd);

    // With the lock of In.
    void advance();
    [[nodiscard]] std::uint32_t peers_turn() const;
    [[nodiscard]] std::uint64_t in_memory() const;
    [[nodiscard]] std::uint64_t peers_doorbells() const;
    [[nodiscard]] std::uint64_t left_of(std::uint32_t turn) const;
    [[nodiscard]] std::uint64_t in_ring(std::uint32_t turn) const;
    [[nodiscard]] std::uint64_t unread_in_tcp(int fd) const;
    [[nodiscard]] bool drop_all_doorbells(int fd);
    [[nodiscard]] bool drops_doorbells_in_time(int fd);
    void say_reset();
    void cut(int fd);
    [[nodiscard]] bool may_drop_doorbells();
    [[nodiscard]] std::size_t take(int fd, Parts parts, std::size_t skip, int flags);
    [[nodiscard]] std::size_t peek(int fd, Parts parts, int flags);
    [[nodiscard]] std::size_t take_from_tcp(int fd, Parts parts, std::size_t skip, int flags,
                                            std::uint32_t turn);
    [[nodiscard]] std::size_t take_unexplained(int fd, Parts parts, std::size_t skip, int flags,
                                               Nothing &nothing);
    void copy_from_ring(Parts parts, std::size_t skip, std::uint64_t bytes, int flags) const;

    // A call without a link uses these and Locks, which share few lines of the processor's cache: a program
    // that has slept finds none of them there.
    std::atomic<bool> has_link_;
    std::atomic<bool> is_mirrored_;
    bool is_smc_;
    std::atomic<bool> blocks_;
    std::atomic<std::uint64_t> uses_;     // of carry/meeting
    std::atomic<std::uint64_t> look_at_;  // the use after which the other end is looked for again
    std::atomic<Link *> link_;            // also when it is left, until the next one
    Out out_;
    In in_;
    Link *ended_;  // the link when end() was called
    std::uint32_t side_;
    Role role_;
    std::atomic<const char *> why_in_tcp_;  // why it stays in TCP for good; nullptr: it need not
    std::atomic<const char *> why_back_;    // why it left its last link
    std::atomic<bool> may_end_;             // before_shutdown() was called
    std::atomic<bool> is_passed_on_;        // pass_on() was called
    std::atomic<bool> stays_for_option_;    // stay_for_option() was called
    std::atomic<bool> was_reset_;           // as far as the program knows
    std::atomic<bool> lacks_bytes_;         // this end has reset the connection for it
    std::atomic<bool> wants_news_;          // a call that does not wait could not wait for the agent
    std::atomic<int> kept_error_;           // of the kernel's, of which the program does not know
    std::atomic<int> no_delay_;
    std::atomic<int> cork_;
    std::atomic<std::uint32_t> processes_;
    std::atomic<std::uint32_t> copy_;  // which one it is (Direction::reader); 0: there was never another
    // The meeting (carry/meeting).
    std::atomic<std::uint32_t> meeting_state_;
    std::uint32_t looks_;
    std::uint32_t mismatches_;
    std::uint32_t left_;  // links that did not pay
    std::ptrdiff_t slot_;
    Link *offered_;
    bool is_far_;  // what is looked for, or offered, is a mirror
    int offered_fd_;
    std::uint64_t offered_file_;  // its inode, and the device of that
    std::uint64_t offered_device_;
    FourTuple connection_;
};

// A thread that is late with a socket that was closed may use the locks while the next one begins there, so
// they are apart from what begin() writes.
struct Place {
    Socket socket;
    Locks locks;
};

inline Locks &Socket::locks() const {
    return const_cast<Place *>(reinterpret_cast<const Place *>(this))->locks;
}

}  // namespace carry
