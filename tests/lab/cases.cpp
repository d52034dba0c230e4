// SPDX-License-Identifier: BSD-3-Clause
// interop: the cases. Most clients drive a server that does what it is told (serve); the two ends take turns.
#include "cases.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/fd.hpp"

namespace interop {

namespace {

using Kind = Note::Kind;

// Operations take their bytes from the lower half of the data, and put them into the upper half.
constexpr std::size_t half = data_bytes / 2;

constexpr std::array<std::size_t, 16> small_sizes{0,  1,  2,    3,    4,    5,    8,    63,
                                                  64, 65, 1000, 4095, 4096, 4097, 8192, 65'000};
constexpr std::array<std::size_t, 7> large_sizes{65'408,  65'535,        65'536, 200'003,
                                                 1 << 20, (1 << 20) + 1, half};

// Returns a byte that differs between neighbours, between blocks of any power of two, and between seeds.
std::byte pattern(std::size_t at, std::uint32_t seed) {
    return static_cast<std::byte>((at ^ (at >> 8) * 7 ^ (at >> 16) * 13) + seed * 31);
}

void fill(std::span<std::byte> bytes, std::uint32_t seed) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = pattern(i, seed);
    }
}

void check(std::span<const std::byte> bytes, std::uint32_t seed) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] != pattern(i, seed)) {
            throw Failed{"byte " + std::to_string(i) + " of " + std::to_string(bytes.size()) + " is wrong"};
        }
    }
}

// ---- the server that does what it is told ----

void take(End &end, const Note &told) {
    end.post_receive(half, told.length);
    end.tell({});
    require(end.received().byte_len == told.length, "a message of another length");
    check(end.data(half, told.length), told.seed);
}

void put(End &end, const Note &told) {
    fill(end.data(0, told.length), told.seed);
    end.write(0, told.offset, told.length);
}

void get(End &end, const Note &told) {
    std::ranges::fill(end.data(half, told.length), std::byte{0});
    end.read(told.offset, half, told.length);
    check(end.data(half, told.length), told.seed);
}

void check_durable(End &end, const Note &told) {
    check(end.durable(told.offset, told.length), told.seed);
    if (end.file() != nullptr) {
        const std::size_t dirty = end.file()->dirty_kib();
        require(dirty == 0, std::to_string(dirty) + " KiB of the file are not on storage after the flush");
    }
}

void obey(End &end, const Note &told) {
    switch (told.kind) {
        case Kind::Check:
            return check(end.data(told.offset, told.length), told.seed);
        case Kind::Fill:
            return fill(end.data(told.offset, told.length), told.seed);
        case Kind::Take:
            return take(end, told);
        case Kind::Give:
            fill(end.data(0, told.length), told.seed);
            return end.send(0, told.length);
        case Kind::Put:
            return put(end, told);
        case Kind::Get:
            return get(end, told);
        case Kind::Durable:
            return check_durable(end, told);
        default:
            throw Failed{"a note that is not understood"};
    }
}

void serve(End &end, const Case &which, const Hello &client) {
    end.accept(client, which.private_bytes, which.server_depth);
    for (Note told = end.hear(); told.kind != Kind::Bye; told = end.hear()) {
        obey(end, told);
        end.tell({});
    }
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
}

void leave(End &end) {
    end.tell({.kind = Kind::Bye});
    end.disconnect();
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
}

// ---- connecting and parting ----

void only_connect(End &end, const Case &) {
    end.join();
    leave(end);
}

void client_disconnects(End &end, const Case &) {
    end.join();
    end.ask({.kind = Kind::Fill});
    end.post_receive(0, 1);
    end.disconnect();
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
    require(end.received_status() == IBV_WC_WR_FLUSH_ERR, "the open receive was not flushed");
}

void is_left(End &end, const Case &which, const Hello &client) {
    end.accept(client, which.private_bytes, which.server_depth);
    (void)end.hear();
    end.tell({});
    end.post_receive(0, 1);
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
    require(end.received_status() == IBV_WC_WR_FLUSH_ERR, "the open receive was not flushed");
    end.disconnect();
}

void stays_until_left(End &end, const Case &) {
    end.join();
    end.tell({.kind = Kind::Bye});
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
    require(end.received_status() == IBV_WC_WR_FLUSH_ERR, "the open receive was not flushed");
    end.disconnect();
}

void server_disconnects(End &end, const Case &which, const Hello &client) {
    end.accept(client, which.private_bytes, which.server_depth);
    (void)end.hear();
    end.disconnect();
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
}

// The client sends nothing and disconnects.
void leaves_silently(End &end, const Case &) {
    end.join();
    end.disconnect();
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
}

void is_left_silently(End &end, const Case &which, const Hello &client) {
    end.accept(client, which.private_bytes, which.server_depth);
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
}

void is_silent(End &end, const Case &) {
    end.join();
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
}

void leaves_the_silent(End &end, const Case &which, const Hello &client) {
    end.accept(client, which.private_bytes, which.server_depth);
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    end.disconnect();
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
}

// The server receives all writes that were complete before the disconnect.
void writes_and_leaves(End &end, const Case &) {
    end.join();
    fill(end.data(0, half), 5);
    end.write(0, half, half);
    end.disconnect();
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
}

void is_written_and_left(End &end, const Case &which, const Hello &client) {
    end.accept(client, which.private_bytes, which.server_depth);
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
    check(end.data(half, half), 5);
}

constexpr const char *rejection = "not today";

void is_rejected(End &end, const Case &) {
    const CmEvent event = end.expect(RDMA_CM_EVENT_REJECTED);
    require(event.status != 0, "a rejection with status 0");
    require(event.private_data.size() == std::strlen(rejection) &&
                std::memcmp(event.private_data.data(), rejection, event.private_data.size()) == 0,
            "other private data than the server rejected with");
}

void reject(End &end, const Case &, const Hello &) {
    end.reject(rejection);
}

// The client connects to a port that is bound but does not listen.
void nobody_listens(End &end, const Case &which) {
    addrinfo *found = nullptr;
    require(getaddrinfo(end.address.c_str(), "0", nullptr, &found) == 0, "no such address");
    sockaddr_storage here{};
    socklen_t length = found->ai_addrlen;
    std::memcpy(&here, found->ai_addr, length);
    freeaddrinfo(found);
    const base::Fd taken{socket(here.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    require(bind(taken.get(), reinterpret_cast<sockaddr *>(&here), length) == 0 &&
                getsockname(taken.get(), reinterpret_cast<sockaddr *>(&here), &length) == 0,
            "no free port");
    // The port is in the same place for IPv4 and IPv6.
    const auto port = std::to_string(ntohs(reinterpret_cast<sockaddr_in *>(&here)->sin_port));

    End lonely{end.provider(), end.address.c_str(), port.c_str()};
    // siw connects while rdma_connect runs, and fails there.
    const int refused_at_once = lonely.connect(0);
    if (refused_at_once != 0) {
        require(end.is_kernel() && refused_at_once == ECONNREFUSED, "rdma_connect fails");
    } else {
        const int status = lonely.expect(RDMA_CM_EVENT_REJECTED).status;
        require(status == -ECONNREFUSED, "rejected with status " + std::to_string(status));
    }
    only_connect(end, which);
}

// The kernel's initiator has no ready-to-receive message (RFC 6581), so its program has to send the first
// message, here an empty write.
void hears_first(End &end, const Case &) {
    end.join();
    if (end.is_kernel()) {
        end.write(0, 0, 0);
    }
    require(end.hear().seed == 77, "not what the server said");
    leave(end);
}

void speaks_first(End &end, const Case &which, const Hello &client) {
    end.accept(client, which.private_bytes, which.server_depth);
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    end.tell({.seed = 77});
    require(end.hear().kind == Kind::Bye, "a note that is not understood");
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
}

// ---- operations ----

void writes(End &end, const Case &which) {
    end.join();
    std::uint32_t seed = 0;
    for (const std::size_t size : which.sizes) {
        fill(end.data(0, size), ++seed);
        end.write(0, half, size);
        end.ask({.kind = Kind::Check, .seed = seed, .offset = half, .length = size});
    }
    leave(end);
}

void reads(End &end, const Case &which) {
    end.join();
    std::uint32_t seed = 0;
    for (const std::size_t size : which.sizes) {
        end.ask({.kind = Kind::Fill, .seed = ++seed, .length = size});
        end.read(0, half, size);
        check(end.data(half, size), seed);
    }
    leave(end);
}

void sends(End &end, const Case &which) {
    end.join();
    std::uint32_t seed = 0;
    for (const std::size_t size : which.sizes) {
        fill(end.data(0, size), ++seed);
        end.ask({.kind = Kind::Take, .seed = seed, .length = size});
        end.prepare_to_hear();
        end.send(0, size);
        require(end.hear().kind == Kind::Ok, "the server did not take it");
    }
    leave(end);
}

void receives(End &end, const Case &which) {
    end.join();
    std::uint32_t seed = 0;
    for (const std::size_t size : which.sizes) {
        // The device uses the note's receive first, because it is the older one.
        end.ask({.kind = Kind::Fill});
        end.post_receive(half, size);
        end.tell({.kind = Kind::Give, .seed = ++seed, .length = size});
        require(end.received().byte_len == size, "a message of another length");
        check(end.data(half, size), seed);
        require(end.hear().kind == Kind::Ok, "the server did not give it");
    }
    leave(end);
}

void server_writes(End &end, const Case &which) {
    end.join();
    std::uint32_t seed = 0;
    for (const std::size_t size : which.sizes) {
        end.ask({.kind = Kind::Put, .seed = ++seed, .offset = half, .length = size});
        check(end.data(half, size), seed);
    }
    leave(end);
}

void server_reads(End &end, const Case &which) {
    end.join();
    std::uint32_t seed = 0;
    for (const std::size_t size : which.sizes) {
        fill(end.data(0, size), ++seed);
        end.ask({.kind = Kind::Get, .seed = seed, .offset = 0, .length = size});
    }
    leave(end);
}

// Both ends write at once: neither may wait until the other reads.
void both_write(End &end, const Case &) {
    end.join();
    for (std::uint32_t round = 1; round <= 8; ++round) {
        end.tell({.kind = Kind::Put, .seed = round, .offset = half, .length = half});
        fill(end.data(0, half), round + 100);
        end.write(0, half, half);
        require(end.hear().kind == Kind::Ok, "the server did not write");
        check(end.data(half, half), round);
        end.ask({.kind = Kind::Check, .seed = round + 100, .offset = half, .length = half});
    }
    leave(end);
}

constexpr std::size_t piece = 40;
constexpr std::size_t pieces = 2000;
constexpr std::size_t signal_every = 16;

void many_small_writes(End &end, const Case &) {
    end.join();
    fill(end.data(0, pieces * piece), 9);
    std::size_t open = 0;
    for (std::size_t i = 0; i < pieces; ++i) {
        const bool last_of_group = i % signal_every == signal_every - 1 || i == pieces - 1;
        const unsigned flags = (last_of_group ? unsigned{IBV_SEND_SIGNALED} : 0U) |
                               (i % 3 == 0 ? unsigned{IBV_SEND_INLINE} : 0U);
        end.post_write(i * piece, half + i * piece, piece, flags);
        open += last_of_group ? 1 : 0;
        // One group fewer is open than the queue holds.
        if (open == queue_entries / signal_every - 1) {
            (void)end.sent();
            --open;
        }
    }
    for (; open != 0; --open) {
        (void)end.sent();
    }
    end.ask({.kind = Kind::Check, .seed = 9, .offset = half, .length = pieces * piece});
    leave(end);
}

// The client posts more reads than may be open at once.
void many_small_reads(End &end, const Case &) {
    end.join();
    end.ask({.kind = Kind::Fill, .seed = 3, .length = pieces * piece});
    std::size_t posted = 0;
    for (std::size_t done = 0; done < pieces; ++done) {
        for (; posted < pieces && posted - done < queue_entries; ++posted) {
            end.post_read(posted * piece, half + posted * piece, piece);
        }
        (void)end.sent();
    }
    check(end.data(half, pieces * piece), 3);
    leave(end);
}

void many_small_sends(End &end, const Case &) {
    end.join();
    for (std::uint32_t i = 0; i < 500; ++i) {
        end.ask({.kind = Kind::Fill, .seed = i, .length = 8});
    }
    leave(end);
}

// A read after a write sees the written bytes: read-after-write depends on it.
void read_after_write(End &end, const Case &) {
    constexpr std::size_t size = 4096;
    end.join();
    for (std::uint32_t i = 1; i <= 200; ++i) {
        fill(end.data(0, size), i);
        end.post_write(0, half, size, 0);
        end.read(half, half, size);
        check(end.data(half, size), i);
    }
    leave(end);
}

void completes_in_order(End &end, const Case &) {
    end.join();
    for (int i = 0; i < 50; ++i) {
        end.post_read(0, half, 65'536);
        end.post_write(0, half, 8);
        const ibv_wc_opcode first = end.sent().opcode;
        const ibv_wc_opcode second = end.sent().opcode;
        // A siw that initiates does not wait for the read (siw_qp_sq_proc_tx, Linux 6.12).
        require((first == IBV_WC_RDMA_READ && second == IBV_WC_RDMA_WRITE) ||
                    (end.is_kernel() && first == IBV_WC_RDMA_WRITE && second == IBV_WC_RDMA_READ),
                "a write completed before the read ahead of it");
    }
    leave(end);
}

void gathered_writes(End &end, const Case &) {
    end.join();
    fill(end.data(0, 200'000), 4);
    // No part is empty, because an empty one makes siw of Linux 6.12 use a null pointer.
    std::array<ibv_sge, 3> parts{end.part(0, 1), end.part(1, 70'000), end.part(70'001, 129'999)};
    const verbs::Remote there{.address = end.peer.data_address + half, .rkey = end.peer.data_rkey};
    auto request = verbs::request_of(IBV_WR_RDMA_WRITE, parts.data(), there, IBV_SEND_SIGNALED, 0);
    request.num_sge = static_cast<int>(parts.size());
    require(verbs::post(end.qp(), request) == 0, "ibv_post_send of a gathered write");
    (void)end.sent();
    end.ask({.kind = Kind::Check, .seed = 4, .offset = half, .length = 200'000});
    leave(end);
}

void sends_solicited(End &end, const Case &) {
    end.join();
    end.ask({.kind = Kind::Fill});
    end.prepare_to_hear();
    fill(end.data(0, 16), 1);
    end.send(0, 16);
    end.send(0, 16, IBV_SEND_SOLICITED);
    require(end.hear().kind == Kind::Ok, "the server was not woken");
    leave(end);
}

void waits_solicited(End &end, const Case &which, const Hello &client) {
    end.accept(client, which.private_bytes, which.server_depth);
    require(end.hear().kind == Kind::Fill, "a note that is not understood");
    end.post_receive(0, 16);
    end.post_receive(16, 16);
    end.tell({});
    for (int i = 0; i < 2; ++i) {
        // A siw that receives never wakes a thread that waits for solicited messages only (siw_rqe_complete,
        // Linux 6.12).
        (void)(end.is_kernel() ? end.received() : end.received_solicited());
    }
    check(end.data(16, 16), 1);
    end.tell({});
    require(end.hear().kind == Kind::Bye, "a note that is not understood");
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
}

// ---- durability ----

void flushes(End &end, const Case &) {
    constexpr std::size_t size = 16 * 1024;
    end.join();
    for (std::uint32_t i = 0; i < 32; ++i) {
        fill(end.data(0, size), i);
        const std::size_t to = i * size % durable_bytes;
        end.write_durably(0, to, size);
        end.ask({.kind = Kind::Durable, .seed = i, .offset = to, .length = size});
    }
    fill(end.data(0, durable_bytes), 50);
    end.write_durably(0, 0, durable_bytes);
    end.ask({.kind = Kind::Durable, .seed = 50, .offset = 0, .length = durable_bytes});
    leave(end);
}

// ---- what must not work: it costs the connection, and nothing else ----

void ends_badly(End &end) {
    require(end.sent_status() != IBV_WC_SUCCESS, "the read behind it was answered");
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
    require(end.received_status() == IBV_WC_WR_FLUSH_ERR, "the open receive was not flushed");
}

void writes_with_a_made_up_key(End &end, const Case &) {
    end.join();
    end.ask({.kind = Kind::Fill, .seed = 6, .length = half});
    end.prepare_to_hear();
    end.post_write_and_read(0, end.peer.data_rkey ^ 0x00100100, 4096);
    ends_badly(end);
}

void writes_past_the_end(End &end, const Case &) {
    end.join();
    end.ask({.kind = Kind::Fill, .seed = 6, .length = half});
    end.prepare_to_hear();
    end.post_write_and_read(data_bytes + (std::size_t{1} << 20), end.peer.data_rkey, 4096);
    ends_badly(end);
}

void reads_with_a_made_up_key(End &end, const Case &) {
    end.join();
    end.ask({.kind = Kind::Fill, .seed = 6, .length = half});
    end.prepare_to_hear();
    end.peer.data_rkey ^= 0x00100100;
    end.post_read(0, half, 4096);
    ends_badly(end);
}

void is_wronged(End &end, const Case &which, const Hello &client) {
    end.accept(client, which.private_bytes, which.server_depth);
    obey(end, end.hear());
    end.tell({});
    end.post_receive(half, 8);
    end.expect(RDMA_CM_EVENT_ESTABLISHED);
    end.expect(RDMA_CM_EVENT_DISCONNECTED);
    // A siw that answers a read with TERMINATE keeps its receives until the queue pair goes (Linux 6.12).
    require(end.is_kernel() || end.received_status() == IBV_WC_WR_FLUSH_ERR,
            "the open receive was not flushed");
    check(end.data(0, half), 6);
}

constexpr std::array<std::size_t, 5> put_sizes{1, 4096, 65'535, 1 << 20, half};

constexpr Case all_cases[] = {
    {"private-data", only_connect, serve, {}, most_private_bytes},
    {"reject", is_rejected, reject},
    {"nobody-listens", nobody_listens, serve},
    {"client-disconnects", client_disconnects, is_left},
    {"server-disconnects", stays_until_left, server_disconnects},
    {"silent-client-leaves", leaves_silently, is_left_silently},
    {"silent-client-is-left", is_silent, leaves_the_silent},
    {"write-and-leave", writes_and_leaves, is_written_and_left},
    {"server-speaks-first", hears_first, speaks_first},
    {"write", writes, serve, small_sizes},
    {"read", reads, serve, small_sizes},
    {"send", sends, serve, small_sizes},
    {"receive", receives, serve, small_sizes},
    {"large-write", writes, serve, large_sizes},
    {"large-read", reads, serve, large_sizes},
    {"large-send", sends, serve, large_sizes},
    {"large-receive", receives, serve, large_sizes},
    {"server-writes", server_writes, serve, put_sizes},
    {"server-reads", server_reads, serve, put_sizes},
    {"both-write-at-once", both_write, serve},
    {"many-small-writes", many_small_writes, serve},
    {"many-small-reads", many_small_reads, serve},
    {"few-reads-granted", many_small_reads, serve, {}, sizeof(Hello), 2},
    {"many-small-sends", many_small_sends, serve},
    {"read-after-write", read_after_write, serve},
    {"completes-in-order", completes_in_order, serve},
    {"gathered-write", gathered_writes, serve},
    {"solicited", sends_solicited, waits_solicited},
    {"flush", flushes, serve},
    {"made-up-key-write", writes_with_a_made_up_key, is_wronged},
    {"made-up-key-read", reads_with_a_made_up_key, is_wronged},
    {"write-past-the-end", writes_past_the_end, is_wronged},
};

}  // namespace

std::span<const Case> cases() {
    return all_cases;
}

}  // namespace interop
