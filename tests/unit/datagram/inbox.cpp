// SPDX-License-Identifier: BSD-3-Clause
// datagram/inbox: messages come out as they came in, oldest first, however often the inbox passes its end.
#include "datagram/inbox.hpp"

#include "../base/check.hpp"

namespace {

using namespace datagram;

void oldest_first(void **) {
    Inbox inbox{3};
    assert_true(inbox.empty());
    std::uint16_t added = 0;
    std::uint16_t dropped = 0;
    for (int round = 0; round < 5; ++round) {
        while (!inbox.full()) {
            const std::array<std::byte, 2> content{std::byte(added), std::byte{7}};
            inbox.add({.port = added}, std::span{content}.first(added % 3U));
            ++added;
        }
        assert_int_equal(added - dropped, 3);
        for (int i = 0; i < 2; ++i, ++dropped) {
            const Message &oldest = inbox.front();
            assert_int_equal(oldest.from.port, dropped);
            assert_int_equal(oldest.content().size(), dropped % 3);
            assert_true(oldest.content().empty() || oldest.content()[0] == std::byte(dropped));
            inbox.drop_front();
        }
        assert_false(inbox.empty());
    }
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(oldest_first)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
