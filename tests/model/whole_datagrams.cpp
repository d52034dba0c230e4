// SPDX-License-Identifier: BSD-3-Clause
// model/short_transfers: streams transfer less than they could, and datagrams are whole.
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <vector>

#include "base/fd.hpp"
#include "short_transfers.hpp"

// This comes last, because it asserts.
#include "../unit/base/fixture.hpp"

namespace {

constexpr std::size_t size = 1000;
constexpr int transfers = 1000;

// Returns how many of the transfers, each of a message of its own, were of fewer bytes.
int shortened(int type) {
    std::array<int, 2> ends{};
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()), 0);
    const base::Fd here{ends[0]};
    const base::Fd there{ends[1]};
    std::vector<std::byte> bytes(size);
    int count = 0;
    for (int i = 0; i < transfers; ++i) {
        const ssize_t sent = send(here.get(), bytes.data(), size, MSG_DONTWAIT);
        assert_in_range(sent, 1, size);
        const ssize_t received = recv(there.get(), bytes.data(), size, MSG_DONTWAIT);
        assert_in_range(received, 1, sent);
        count += static_cast<std::size_t>(received) != size ? 1 : 0;
        while (recv(there.get(), bytes.data(), size, MSG_DONTWAIT) > 0) {
        }
    }
    return count;
}

void only_streams_are_cut(void **) {
    test::split_transfers(11);
    assert_in_range(shortened(SOCK_STREAM), transfers / 10, transfers);
    assert_int_equal(shortened(SOCK_DGRAM), 0);
    assert_int_equal(shortened(SOCK_SEQPACKET), 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(only_streams_are_cut)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
