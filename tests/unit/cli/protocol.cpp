// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol: both messages survive the way, and whatever else arrives is refused with a reason.
#include "cli/protocol.hpp"

#include <vector>

#include "bytes.hpp"

namespace {

cli::Offer some_offer() {
    cli::Offer offer{
        .durability = cli::Durability::PageCache, .capacity = 1 << 20, .peer_configuration = std::byte{1}};
    for (std::size_t i = 0; i < offer.memory_region.size(); ++i) {
        offer.memory_region[i] = static_cast<std::byte>(i + 1);
    }
    return offer;
}

void hello_survives(void **) {
    for (const cli::Mode mode : {cli::Mode::Push, cli::Mode::Pull}) {
        const auto bytes = cli::encode_hello({cli::protocol_version, mode});
        assert_true(cli::decode_hello(bytes).value().mode == mode);
        std::vector<std::byte> padded(bytes.begin(), bytes.end());
        padded.resize(56);
        assert_true(cli::decode_hello(padded).value().mode == mode);
    }
    // Another version is for the server to answer, whatever its mode.
    assert_int_equal(cli::decode_hello(cli::encode_hello({9, cli::Mode{77}})).value().version, 9);
}

void bad_hello_is_refused(void **) {
    const auto good = cli::encode_hello({cli::protocol_version, cli::Mode::Push});
    for (std::size_t size = 0; size < good.size(); ++size) {
        assert_fails(cli::decode_hello(std::span{good}.first(size)), "no rpma client");
    }
    for (std::size_t bit = 0; bit < 32; ++bit) {
        auto bad = good;
        flip(bad, bit);
        assert_fails(cli::decode_hello(bad), "no rpma client");
    }
    assert_fails(cli::decode_hello(cli::encode_hello({cli::protocol_version, cli::Mode{0}})), "mode 0");
    assert_fails(cli::decode_hello(cli::encode_hello({cli::protocol_version, cli::Mode{3}})), "mode 3");
}

void offer_survives(void **) {
    const cli::Offer offer = some_offer();
    const auto decoded = cli::decode_offer(cli::encode_offer(offer)).value();
    assert_true(decoded.status == cli::Status::Ok);
    assert_true(decoded.durability == cli::Durability::PageCache);
    assert_int_equal(decoded.capacity, 1 << 20);
    assert_true(decoded.peer_configuration == std::byte{1});
    assert_memory_equal(decoded.memory_region.data(), offer.memory_region.data(), offer.memory_region.size());
    assert_true(cli::decode_offer(cli::encode_offer({.status = cli::Status::Busy})).value().status ==
                cli::Status::Busy);
}

void bad_offer_is_refused(void **) {
    const auto good = cli::encode_offer(some_offer());
    for (std::size_t size = 0; size < good.size(); ++size) {
        assert_fails(cli::decode_offer(std::span{good}.first(size)), "no rpma server");
    }
    for (std::size_t bit = 0; bit < 32; ++bit) {
        auto bad = good;
        flip(bad, bit);
        assert_fails(cli::decode_offer(bad), "no rpma server");
    }
    auto newer = good;
    newer[4] = std::byte{2};
    assert_fails(cli::decode_offer(newer), "version 2");
    const auto refuse = [](auto change) {
        cli::Offer offer = some_offer();
        change(offer);
        assert_fails(cli::decode_offer(cli::encode_offer(offer)), "does not know");
    };
    refuse([](cli::Offer &offer) { offer.status = cli::Status{4}; });
    refuse([](cli::Offer &offer) { offer.durability = cli::Durability{3}; });
    refuse([](cli::Offer &offer) { offer.capacity = 0; });
    refuse([](cli::Offer &offer) { offer.capacity = std::uint64_t{1} << 63; });
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(hello_survives),
        cmocka_unit_test(bad_hello_is_refused),
        cmocka_unit_test(offer_survives),
        cmocka_unit_test(bad_offer_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
