// SPDX-License-Identifier: BSD-3-Clause
// conformance: tests memory: memory that can be durable, and memory that vanishes under a registration, which
// costs the connection and not the process.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/fd.hpp"
#include "suite.hpp"

namespace conformance {

namespace {

constexpr std::size_t map_bytes = 4 << 20;

// The memory is mapped: it is of a file in the current folder, which goes with
// the object, or it is anonymous.
class Mapped {
public:
    enum class Kind { File, PrivateFile, DeletedFile, Anonymous, MemoryFile };

    explicit Mapped(Kind kind) {
        if (kind == Kind::MemoryFile) {
            file_.reset(memfd_create("conformance", MFD_CLOEXEC));
        } else if (kind != Kind::Anonymous) {
            file_.reset(mkostemp(name_.data(), O_CLOEXEC));
            assert_true(static_cast<bool>(file_));
        }
        if (kind != Kind::Anonymous) {
            assert_int_equal(ftruncate(file_.get(), map_bytes), 0);
        }
        const int sharing = kind == Kind::PrivateFile || kind == Kind::Anonymous ? MAP_PRIVATE : MAP_SHARED;
        const int anonymous = kind == Kind::Anonymous ? MAP_ANONYMOUS : 0;
        address_ = mmap(nullptr, map_bytes, PROT_READ | PROT_WRITE, sharing | anonymous, file_.get(), 0);
        assert_ptr_not_equal(address_, MAP_FAILED);
        if (kind == Kind::DeletedFile) {
            (void)unlink(name_.c_str());
        }
    }
    ~Mapped() {
        unmap();
        (void)unlink(name_.c_str());
    }
    Mapped(const Mapped &) = delete;
    Mapped &operator=(const Mapped &) = delete;

    void unmap() {
        if (address_ != MAP_FAILED) {
            (void)munmap(std::exchange(address_, MAP_FAILED), map_bytes);
        }
    }
    void truncate() { assert_int_equal(ftruncate(file_.get(), 0), 0); }
    [[nodiscard]] void *address() const { return address_; }
    [[nodiscard]] int file() const { return file_.get(); }

private:
    std::string name_ = "conformance-XXXXXX";
    base::Fd file_;
    void *address_ = MAP_FAILED;
};

const auto flush_access = [] {
    return full_access | verbs::flush_access(provider(), verbs::Flush::Persistent);
};

// Returns the request, aimed at a region of the server's.
Request at(Request request, const ibv_mr &region, std::size_t offset = 0) {
    request.remote_address = reinterpret_cast<std::uintptr_t>(region.addr) + offset;
    request.rkey = region.rkey;
    return request;
}

void a_persistent_flush_reaches_the_file(void **) {
    Ends &ends = connected();
    if (!ends.client.native(verbs::native_flush)) {
        skip();
    }
    Mapped &pool = make<Mapped>(Mapped::Kind::File);
    ibv_mr *const region = ends.server.register_memory(pool.address(), map_bytes, flush_access());
    if (region == nullptr && errno == EOPNOTSUPP) {
        skip();  // built on a file system that is not durable
    }
    assert_non_null(region);
    std::vector<char> content(1 << 20);
    unsigned seed = 0;
    for (const std::size_t size : {8UL, 4096UL, 100'000UL, 1UL << 20}) {
        fill(ends.client, 0, size, ++seed);
        const std::size_t offset = 4096 * seed + 8 * seed;
        assert_int_equal(
            post(ends.client,
                 {at(write_request(ends.client, ends.server, 0, size, 1), *region, offset),
                  at(flush_request(ends.server, 0, size, SOFTRDMA_FLUSH_PERSISTENT, 2), *region, offset)}),
            0);
        expect_completion(ends.client.cq, 1);
        expect_completion(ends.client.cq, 2);
        assert_int_equal(pread(pool.file(), content.data(), size, static_cast<off_t>(offset)), size);
        assert_memory_equal(content.data(), ends.client.memory.data(), size);
    }
    // Several requests are posted at once, with an atomic write between them, as a commit does.
    fill(ends.client, 0, 8, 77);
    assert_int_equal(
        post(ends.client, {at(flush_request(ends.server, 0, 4096, SOFTRDMA_FLUSH_PERSISTENT, 1), *region),
                           at(fenced(atomic_write_request(ends.client, ends.server, 0, 2)), *region),
                           at(flush_request(ends.server, 0, 8, SOFTRDMA_FLUSH_PERSISTENT, 3), *region),
                           at(flush_request(ends.server, 0, 0, SOFTRDMA_FLUSH_PERSISTENT, 4), *region)}),
        0);
    for (std::uint64_t wr_id = 1; wr_id <= 4; ++wr_id) {
        expect_completion(ends.client.cq, wr_id);
    }
    assert_int_equal(pread(pool.file(), content.data(), 8, 0), 8);
    assert_memory_equal(content.data(), ends.client.memory.data(), 8);
}

void memory_that_cannot_be_durable_is_refused(void **) {
    if (!subject.is_soft) {
        skip();
    }
    Ends &ends = connected();
    for (const auto kind : {Mapped::Kind::Anonymous, Mapped::Kind::MemoryFile, Mapped::Kind::PrivateFile,
                            Mapped::Kind::DeletedFile}) {
        Mapped &memory = make<Mapped>(kind);
        errno = 0;
        assert_null(ends.server.register_memory(memory.address(), map_bytes, flush_access()));
        assert_int_equal(errno, EOPNOTSUPP);
        assert_non_null(ends.server.register_memory(
            memory.address(), map_bytes,
            full_access | verbs::flush_access(provider(), verbs::Flush::Visibility)));
    }
}

void memory_that_is_not_there_is_refused(void **) {
    Ends &ends = connected();
    const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    Mapped &memory = make<Mapped>(Mapped::Kind::Anonymous);
    auto *const begin = static_cast<std::byte *>(memory.address());
    assert_int_equal(munmap(begin + page_bytes, page_bytes), 0);
    assert_non_null(ends.server.register_memory(begin, page_bytes, full_access));
    assert_non_null(ends.server.register_memory(begin + page_bytes - 1, 1, full_access));
    for (const std::size_t offset : {page_bytes - 1, page_bytes, page_bytes * 2 - 1}) {
        errno = 0;
        assert_null(ends.server.register_memory(begin + offset, 2, full_access));
        assert_int_equal(errno, EFAULT);
    }
    // The region would reach past the end of all addresses.
    assert_null(ends.server.register_memory(begin, SIZE_MAX, full_access));
}

// A Vanishing is a region of a file, whose memory is then taken away.
struct Vanishing {
    explicit Vanishing(bool unmap_it) : memory{Mapped::Kind::File}, unmaps{unmap_it} {}
    bool connect() {
        ends.connect();
        region = ends.server.register_memory(memory.address(), map_bytes, flush_access());
        if (region == nullptr) {  // the file system is not durable
            region = ends.server.register_memory(
                memory.address(), map_bytes,
                full_access | verbs::flush_access(provider(), verbs::Flush::Visibility));
            assert_non_null(region);
            return false;
        }
        return true;
    }
    void vanish() {
        if (unmaps) {
            memory.unmap();
        } else {
            memory.truncate();
        }
    }

    Mapped memory;
    bool unmaps;
    Ends ends;
    ibv_mr *region = nullptr;
};

// The request fails, or ends the connection. This process goes on, and the device goes on for others.
void expect_costs_the_connection(Request (*make_request)(const Ends &), bool needs_durable = false) {
    if (!subject.is_soft) {
        skip();  // elsewhere the pages are pinned
    }
    for (const bool unmaps : {false, true}) {
        Vanishing &vanishing = make<Vanishing>(unmaps);
        if (!vanishing.connect() && needs_durable) {
            skip();
        }
        Ends &ends = vanishing.ends;
        Request before = at(write_request(ends.client, ends.server, 0, 64, 1), *vanishing.region);
        assert_int_equal(post(ends.client, {before, settling_request(ends.client, ends.server, 2)}), 0);
        expect_completion(ends.client.cq, 1);
        expect_completion(ends.client.cq, 2);
        vanishing.vanish();
        Request request = at(make_request(ends), *vanishing.region);
        request.wr_id = 3;
        assert_int_equal(post(ends.client, {request, settling_request(ends.client, ends.server, 4)}), 0);
        const ibv_wc first = next_completion(ends.client.cq);
        assert_int_equal(first.wr_id, 3);
        const ibv_wc second = next_completion(ends.client.cq);
        assert_int_equal(second.wr_id, 4);
        assert_int_not_equal(second.status, IBV_WC_SUCCESS);
        assert_int_not_equal(second.status, IBV_WC_RETRY_EXC_ERR);  // the peer has said why
        ends.expect_disconnected();
    }
    Ends &others = connected();
    settle(others.client, others.server);
}

void a_small_write_to_vanished_memory(void **) {
    expect_costs_the_connection(
        [](const Ends &ends) { return write_request(ends.client, ends.server, 0, 64); });
}
void an_eight_byte_write_to_vanished_memory(void **) {
    expect_costs_the_connection(
        [](const Ends &ends) { return write_request(ends.client, ends.server, 0, 8); });
}
void a_large_write_to_vanished_memory(void **) {
    expect_costs_the_connection(
        [](const Ends &ends) { return write_request(ends.client, ends.server, 0, 1 << 20); });
}
void a_read_of_vanished_memory(void **) {
    expect_costs_the_connection(
        [](const Ends &ends) { return read_request(ends.client, ends.server, 0, 100'000); });
}
void an_atomic_write_to_vanished_memory(void **) {
    expect_costs_the_connection(
        [](const Ends &ends) { return atomic_write_request(ends.client, ends.server, 0); });
}
void a_persistent_flush_of_vanished_memory(void **) {
    expect_costs_the_connection(
        [](const Ends &ends) { return flush_request(ends.server, 0, 8192, SOFTRDMA_FLUSH_PERSISTENT); },
        true);
}

// The memory that vanishes is the initiator's own, or a receive's.
void local_memory_that_vanished(void **) {
    if (!subject.is_soft) {
        skip();
    }
    enum class Use { Source, Sink, Receive };
    for (const Use use : {Use::Source, Use::Sink, Use::Receive}) {
        for (const std::size_t size : {std::size_t{64}, std::size_t{1} << 20}) {
            Mapped &memory = make<Mapped>(Mapped::Kind::Anonymous);
            Ends &ends = connected();
            End &owner = use == Use::Receive ? ends.server : ends.client;
            ibv_mr *const region = owner.register_memory(memory.address(), map_bytes, full_access);
            const ibv_sge gone{.addr = reinterpret_cast<std::uintptr_t>(region->addr),
                               .length = static_cast<std::uint32_t>(size),
                               .lkey = region->lkey};
            memory.unmap();
            Request request = use == Use::Source ? write_request(ends.client, ends.server, 0, size)
                              : use == Use::Sink ? read_request(ends.client, ends.server, 0, size)
                                                 : send_request(ends.client, 0, size);
            if (use == Use::Receive) {
                assert_int_equal(post_receive(ends.server, 9, {gone}), 0);
            } else {
                request.sges = {gone};
            }
            assert_int_equal(post(ends.client, {request}), 0);
            if (use == Use::Receive) {
                const ibv_wc received = next_completion(ends.server.cq);
                assert_int_not_equal(received.status, IBV_WC_SUCCESS);
            } else {
                assert_int_not_equal(next_completion(ends.client.cq).status, IBV_WC_SUCCESS);
            }
            ends.expect_disconnected();
        }
    }
}

constexpr CMUnitTest tests[] = {
    cmocka_unit_test(a_persistent_flush_reaches_the_file),
    cmocka_unit_test(memory_that_cannot_be_durable_is_refused),
    cmocka_unit_test(memory_that_is_not_there_is_refused),
    cmocka_unit_test(a_small_write_to_vanished_memory),
    cmocka_unit_test(an_eight_byte_write_to_vanished_memory),
    cmocka_unit_test(a_large_write_to_vanished_memory),
    cmocka_unit_test(a_read_of_vanished_memory),
    cmocka_unit_test(an_atomic_write_to_vanished_memory),
    cmocka_unit_test(a_persistent_flush_of_vanished_memory),
    cmocka_unit_test(local_memory_that_vanished),
};

}  // namespace

std::span<const CMUnitTest> memory_tests() {
    return tests;
}

}  // namespace conformance
