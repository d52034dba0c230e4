// SPDX-License-Identifier: BSD-3-Clause
// librpma/flush: tests flushes and other operations towards a peer without native operations, and
// towards a peer of which only its regions' descriptors tell them. The device is the soft one, and its
// provider is told that it is so.
#include "librpma/flush_buffer.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstring>

#include "../../loopback.hpp"
#include "librpma/conn.hpp"
#include "librpma/ep.hpp"
#include "librpma/mr_local.hpp"
#include "verbs/select.hpp"

extern "C" {
#include <cmocka.h>
}

namespace {

void assert_ok(int result) {
    assert_int_equal(result, 0);
}

verbs::Provider without_native_operations() {
    verbs::Provider provider = verbs::soft;
    provider.native.of_queue_pair = [](const ibv_qp *) { return 0u; };
    return provider;
}
const verbs::Provider plain = without_native_operations();

constexpr unsigned all_operations = verbs::native_flush | verbs::native_atomic_write;

// Returns a provider that is as the kernel's devices. It has no word from the peer, and it flushes to
// persistence only memory that is persistent.
verbs::Provider without_knowledge_of_peer() {
    verbs::Provider provider = verbs::soft;
    provider.capabilities.checks_durability = false;
    provider.native.of_queue_pair = [](const ibv_qp *) { return all_operations; };
    provider.domain.reg_mr = [](ibv_pd *pd, void *address, std::size_t length, int access) -> ibv_mr * {
        if ((access & SOFTRDMA_ACCESS_FLUSH_PERSISTENT) != 0) {
            errno = EINVAL;
            return nullptr;
        }
        return verbs::soft.domain.reg_mr(pd, address, length, access);
    };
    return provider;
}
const verbs::Provider unknowing = without_knowledge_of_peer();

int registrations = 0;
verbs::Provider that_counts_registrations() {
    verbs::Provider provider = verbs::soft;
    provider.domain.reg_mr = [](ibv_pd *pd, void *address, std::size_t length, int access) {
        ++registrations;
        return verbs::soft.domain.reg_mr(pd, address, length, access);
    };
    return provider;
}
const verbs::Provider counting = that_counts_registrations();

// An Ends has both ends of a connection in one thread. It is static, because a failed
// assertion jumps past destructors.
struct Ends {
    std::unique_ptr<rpma_peer> peer;
    rpma_ep *ep = nullptr;
    rpma_conn_req *request = nullptr;
    rpma_conn *client = nullptr;
    rpma_conn *server = nullptr;
    rpma_mr_local *region = nullptr;
    rpma_mr_remote *remote = nullptr;
    alignas(8) char memory[64] = {};
};
Ends ends;

void choose_port(char (&port)[6]) {
    sockaddr_in address = test::loopback(0);
    socklen_t size = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_ok(bind(fd, reinterpret_cast<sockaddr *>(&address), size));
    assert_ok(getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size));
    close(fd);
    std::snprintf(port, sizeof(port), "%u", unsigned{ntohs(address.sin_port)});
}

void await_established(rpma_conn *conn) {
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    assert_ok(rpma_conn_next_event(conn, &event));
    assert_int_equal(event, RPMA_CONN_ESTABLISHED);
}

int make_connection(const verbs::Provider &provider, unsigned native_operations) {
    char port[6];
    choose_port(port);
    const auto context = verbs::find_context("127.0.0.1", verbs::Side::Local);
    assert_true(context.has_value());
    ends.peer = std::make_unique<rpma_peer>(
        provider, verbs::ProtectionDomain{provider, provider.domain.alloc_pd(*context)},
        librpma::DeviceAbilities{.on_demand_paging = false, .native_operations = native_operations});
    assert_ok(rpma_ep_listen(ends.peer.get(), "127.0.0.1", port, &ends.ep));
    assert_ok(rpma_conn_req_new(ends.peer.get(), "127.0.0.1", port, nullptr, &ends.request));
    assert_ok(rpma_conn_req_connect(&ends.request, nullptr, &ends.client));
    assert_ok(rpma_ep_next_conn_req(ends.ep, nullptr, &ends.request));
    assert_ok(rpma_conn_req_connect(&ends.request, nullptr, &ends.server));
    await_established(ends.client);
    await_established(ends.server);
    return 0;
}

int make_plain_connection(void **) {
    return make_connection(plain, 0);
}
int make_unknowing_connection(void **) {
    return make_connection(unknowing, all_operations);
}

int make_soft_connection(void **) {
    registrations = 0;
    return make_connection(counting, all_operations);
}

int end_all(void **) {
    int failures = 0;
    failures += rpma_conn_delete(&ends.client) != 0;
    failures += rpma_conn_delete(&ends.server) != 0;
    failures += rpma_conn_req_delete(&ends.request) != 0;
    failures += rpma_ep_shutdown(&ends.ep) != 0;
    failures += rpma_mr_dereg(&ends.region) != 0;
    failures += rpma_mr_remote_delete(&ends.remote) != 0;
    failures += ends.peer->close() != 0;
    ends.peer.reset();
    return failures;
}

// Registers the first `size` bytes of the memory, and takes the region as a peer sees it.
void register_target(std::size_t size, int flush_type = RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY) {
    char descriptor[librpma::mr_descriptor_size];
    assert_ok(rpma_mr_dereg(&ends.region));
    assert_ok(rpma_mr_remote_delete(&ends.remote));
    assert_ok(
        rpma_mr_reg(ends.peer.get(), ends.memory, size, RPMA_MR_USAGE_WRITE_DST | flush_type, &ends.region));
    assert_ok(rpma_mr_get_descriptor(ends.region, descriptor));
    assert_ok(rpma_mr_remote_from_descriptor(descriptor, sizeof(descriptor), &ends.remote));
}

ibv_wc await_completion() {
    ibv_wc wc{};
    int result = rpma_cq_get_wc(ends.client->cq(), 1, &wc, nullptr);
    while (result == RPMA_E_NO_COMPLETION) {
        assert_ok(rpma_cq_wait(ends.client->cq()));
        result = rpma_cq_get_wc(ends.client->cq(), 1, &wc, nullptr);
    }
    assert_ok(result);
    return wc;
}

ibv_wc flush(std::size_t offset, std::size_t len) {
    assert_ok(rpma_flush(ends.client, ends.remote, offset, len, RPMA_FLUSH_TYPE_VISIBILITY,
                         RPMA_F_COMPLETION_ALWAYS, &ends));
    return await_completion();
}

void flush_is_a_read_within_the_region(void **) {
    for (const std::size_t size : {1UL, 7UL, 8UL, 9UL, 64UL}) {
        register_target(size);
        for (std::size_t offset = 0; offset <= size; ++offset) {
            const ibv_wc wc = flush(offset, size - offset);
            assert_int_equal(wc.status, IBV_WC_SUCCESS);
            assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
            assert_int_equal(wc.wr_id, reinterpret_cast<std::uintptr_t>(&ends));
        }
    }
}

ibv_wc atomic_write() {
    char source[8] = {'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H'};
    assert_ok(rpma_atomic_write(ends.client, ends.remote, 16, source, RPMA_F_COMPLETION_ALWAYS, nullptr));
    std::memset(source, 0, sizeof(source));
    return await_completion();
}

// The library does not move a range that is out of bounds into the region.
void flush_out_of_bounds_is_the_targets_error(void **) {
    register_target(16);
    assert_int_equal(flush(12, 8).status, IBV_WC_REM_ACCESS_ERR);
}

void atomic_write_is_a_write(void **) {
    register_target(64);
    assert_int_equal(atomic_write().opcode, IBV_WC_RDMA_WRITE);
    assert_int_equal(flush(16, 8).status, IBV_WC_SUCCESS);
    assert_memory_equal(ends.memory + 16, "ABCDEFGH", 8);
}

void regions_descriptor_tells_what_is_native(void **) {
    register_target(64);
    assert_int_equal(flush(0, 64).opcode, SOFTRDMA_WC_FLUSH);
    assert_int_equal(atomic_write().opcode, IBV_WC_ATOMIC_WRITE);
    int flush_type = 0;
    assert_ok(rpma_mr_remote_get_flush_type(ends.remote, &flush_type));
    assert_int_equal(flush_type, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
}

void connection_registers_nothing_for_flushes_to_come(void **) {
    assert_int_equal(registrations, 0);
    register_target(64);
    assert_int_equal(flush(0, 64).opcode, SOFTRDMA_WC_FLUSH);
    assert_int_equal(registrations, 1);
}

// The descriptor is as librpma 1.2 writes it, which runs on any device.
void region_of_which_nothing_is_told_is_flushed_by_reading(void **) {
    register_target(64);
    librpma::MrDescriptor descriptor = ends.region->descriptor();
    descriptor.takes_native = false;
    std::byte bytes[librpma::mr_descriptor_size];
    librpma::write(descriptor, bytes);
    assert_ok(rpma_mr_remote_delete(&ends.remote));
    assert_ok(rpma_mr_remote_from_descriptor(bytes, sizeof(bytes), &ends.remote));
    assert_int_equal(flush(0, 64).opcode, IBV_WC_RDMA_READ);
    assert_int_equal(atomic_write().opcode, IBV_WC_RDMA_WRITE);
}

void memory_that_is_not_persistent_is_flushed_by_reading(void **) {
    register_target(64, RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
    assert_int_equal(flush(0, 64).opcode, IBV_WC_RDMA_READ);
    assert_int_equal(atomic_write().opcode, IBV_WC_RDMA_WRITE);
}

// No usage that a peer registers is taken for native operations, not even one for every use there is. The
// exceptions among the 255 usages are those that no program would choose.
void usages_are_not_taken_for_native_operations(void **) {
    for (unsigned usage = 1; usage < 256; ++usage) {
        const librpma::MrDescriptor written{
            .address = 1, .size = 2, .rkey = 3, .usage = static_cast<std::uint8_t>(usage)};
        std::byte bytes[librpma::mr_descriptor_size];
        librpma::write(written, bytes);
        const auto read = librpma::read_mr_descriptor(bytes);
        assert_true(read.has_value());
        const bool flush_of_what_nobody_writes = (usage & 0x30) != 0 && (usage & 0xce) == 0xc6;
        assert_int_equal(read->takes_native, flush_of_what_nobody_writes);
        assert_int_equal(read->usage, flush_of_what_nobody_writes ? (usage & 0x31) | 0x08 : usage);
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(flush_is_a_read_within_the_region, make_plain_connection, end_all),
        cmocka_unit_test_setup_teardown(flush_out_of_bounds_is_the_targets_error, make_plain_connection,
                                        end_all),
        cmocka_unit_test_setup_teardown(atomic_write_is_a_write, make_plain_connection, end_all),
        cmocka_unit_test_setup_teardown(regions_descriptor_tells_what_is_native, make_unknowing_connection,
                                        end_all),
        cmocka_unit_test_setup_teardown(memory_that_is_not_persistent_is_flushed_by_reading,
                                        make_unknowing_connection, end_all),
        cmocka_unit_test_setup_teardown(region_of_which_nothing_is_told_is_flushed_by_reading,
                                        make_unknowing_connection, end_all),
        cmocka_unit_test_setup_teardown(connection_registers_nothing_for_flushes_to_come,
                                        make_soft_connection, end_all),
        cmocka_unit_test_setup_teardown(regions_descriptor_tells_what_is_native, make_soft_connection,
                                        end_all),
        cmocka_unit_test_setup_teardown(region_of_which_nothing_is_told_is_flushed_by_reading,
                                        make_soft_connection, end_all),
        cmocka_unit_test(usages_are_not_taken_for_native_operations),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
