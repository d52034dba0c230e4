// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol: both messages survive the way, and whatever else arrives is refused with a reason.
#include "cli/protocol.hpp"

#include <vector>

#include "bytes.hpp"

namespace {

cli::Offer some_offer() {
    cli::Offer offer{.durability = cli::Durability::PageCache,
                     .capacity = 1 << 20,
                     .peer_configuration = std::byte{1},
                     .tcp_port = 40'000};
    for (std::size_t i = 0; i < offer.memory_region.size(); ++i) {
        offer.memory_region[i] = static_cast<std::byte>(i + 1);
    }
    return offer;
}

void hello_survives(void **) {
    for (const cli::Mode mode :
         {cli::Mode::Push, cli::Mode::Pull, cli::Mode::Measure, cli::Mode::MeasureDurable}) {
        const auto bytes = cli::encode_hello({cli::version_of(mode), mode, 16, 4096});
        const cli::Hello hello = cli::decode_hello(bytes).value();
        assert_true(hello.mode == mode && hello.version == cli::version_of(mode));
        assert_int_equal(hello.messages, hello.version == cli::first_version ? 0 : 16);
        assert_int_equal(hello.message_bytes, hello.version == cli::first_version ? 0 : 4096);
        std::vector<std::byte> padded(bytes.begin(), bytes.end());
        padded.resize(56);
        assert_true(cli::decode_hello(padded).value().mode == mode);
    }
    // Version 1 has half of it.
    const auto first = cli::encode_hello({cli::first_version, cli::Mode::Push});
    assert_true(cli::decode_hello(std::span{first}.first(8)).value().mode == cli::Mode::Push);
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
    assert_fails(cli::decode_hello(cli::encode_hello({cli::protocol_version, cli::Mode{5}})), "mode 5");
    assert_fails(cli::decode_hello(cli::encode_hello({cli::first_version, cli::Mode::Measure})), "mode 3");
}

void offer_survives(void **) {
    const cli::Offer offer = some_offer();
    const auto decoded = cli::decode_offer(cli::encode_offer(offer)).value();
    assert_true(decoded.status == cli::Status::Ok);
    assert_true(decoded.durability == cli::Durability::PageCache);
    assert_int_equal(decoded.capacity, 1 << 20);
    assert_true(decoded.peer_configuration == std::byte{1});
    assert_memory_equal(decoded.memory_region.data(), offer.memory_region.data(), offer.memory_region.size());
    assert_int_equal(decoded.tcp_port, 40'000);
    // Version 1 has no port.
    cli::Offer first = offer;
    first.version = cli::first_version;
    const auto bytes = cli::encode_offer(first);
    assert_int_equal(cli::decode_offer(std::span{bytes}.first(38)).value().tcp_port, 0);
    assert_int_equal(cli::decode_offer(bytes).value().tcp_port, 0);
    assert_true(cli::decode_offer(cli::encode_offer({.status = cli::Status::Busy})).value().status ==
                cli::Status::Busy);
}

void store_request_survives(void **) {
    const auto bytes = cli::encode_store_request({1 << 20, 0xffff'ffff'ff});
    const auto decoded = cli::decode_store_request(bytes).value();
    assert_true(decoded.offset == 1 << 20 && decoded.length == 0xffff'ffff'ff);
    assert_fails(cli::decode_store_request(std::span{bytes}.first(15)), "a message of 15 bytes");
    assert_fails(cli::decode_store_request({}), "a message of 0 bytes");
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
    newer[4] = std::byte{3};
    assert_fails(cli::decode_offer(newer), "version 3");
    // What a server of version 1 says to one who measures.
    const auto older = cli::encode_offer({.version = cli::first_version, .status = cli::Status::Version});
    assert_fails(cli::decode_offer(std::span{older}.first(38)), "version 1 of rpma's protocol (expected 2)");
    const auto refuse = [](auto change) {
        cli::Offer offer = some_offer();
        change(offer);
        assert_fails(cli::decode_offer(cli::encode_offer(offer)), "does not know");
    };
    refuse([](cli::Offer &offer) { offer.status = cli::Status{5}; });
    refuse([](cli::Offer &offer) { offer.durability = cli::Durability{4}; });
    refuse([](cli::Offer &offer) { offer.capacity = 0; });
    refuse([](cli::Offer &offer) { offer.capacity = std::uint64_t{1} << 63; });
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(hello_survives),       cmocka_unit_test(bad_hello_is_refused),
        cmocka_unit_test(offer_survives),       cmocka_unit_test(store_request_survives),
        cmocka_unit_test(bad_offer_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
