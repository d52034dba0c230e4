// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/protocol: each message survives the way, and whatever else arrives is refused with a reason.
#include "cli/protocol/protocol.hpp"

#include <vector>

#include "bytes.hpp"

namespace {

cli::Offer some_offer() {
    cli::Offer offer{.durability = cli::Durability::PageCache,
                     .capacity = 1 << 20,
                     .peer_configuration = std::byte{1},
                     .tcp_port = 40'000,
                     .sequence = 0x1'0000'0001,
                     .length = 1 << 20,
                     .checksum = 0xfedc'ba98,
                     .tag = {1, 0x2'0000'0000, 3},
                     .instance = 0x4'0000'0000};
    for (std::size_t i = 0; i < offer.memory_region.size(); ++i) {
        offer.memory_region[i] = static_cast<std::byte>(i + 1);
    }
    return offer;
}

void hello_survives(void **) {
    for (const cli::Mode mode :
         {cli::Mode::Push, cli::Mode::Pull, cli::Mode::Measure, cli::Mode::MeasureDurable}) {
        const auto bytes =
            cli::encode_hello({cli::protocol_version, mode, 16, 4096, 0x1'0000'0007, "a-name"});
        const cli::Hello hello = cli::decode_hello(bytes).value();
        const bool pulls = mode == cli::Mode::Pull;
        assert_true(hello.mode == mode && hello.version == cli::protocol_version);
        assert_int_equal(hello.messages, pulls ? 0 : 16);
        assert_int_equal(hello.message_bytes, pulls ? 0 : 4096);
        assert_int_equal(hello.sequence, pulls ? 0x1'0000'0007 : 0);
        assert_string_equal(hello.name.c_str(), "a-name");
        std::vector<std::byte> padded(bytes.begin(), bytes.end());
        padded.resize(64);
        assert_true(cli::decode_hello(padded).value().mode == mode);
    }
    // The server answers another version, whatever its mode. The first version had half of the message.
    assert_int_equal(cli::decode_hello(cli::encode_hello({9, cli::Mode{77}})).value().version, 9);
    const auto first = cli::encode_hello({1, cli::Mode::Push});
    assert_int_equal(cli::decode_hello(std::span{first}.first(8)).value().version, 1);
}

void bad_hello_is_refused(void **) {
    const auto good =
        cli::encode_hello({.version = cli::protocol_version, .mode = cli::Mode::Push, .name = "n"});
    for (std::size_t size = 0; size < good.size(); ++size) {
        assert_fails(cli::decode_hello(std::span{good}.first(size)), "no rpma client");
    }
    for (std::size_t bit = 0; bit < 32; ++bit) {
        auto bad = good;
        flip(bad, bit);
        assert_fails(cli::decode_hello(bad), "no rpma client");
    }
    assert_fails(cli::decode_hello(cli::encode_hello({cli::protocol_version, cli::Mode{0}})), "mode 0");
    assert_fails(cli::decode_hello(cli::encode_hello({cli::protocol_version, cli::Mode{8}})), "mode 8");
    auto behind = good;
    behind.back() = std::byte{'x'};
    assert_fails(cli::decode_hello(behind), "bytes behind the end of a text");
}

// A name is that of a folder, so nothing else than a plain name comes out of a hello.
void only_a_name_is_a_name(void **) {
    const std::string longest(40, 'n');
    for (const std::string &name : {std::string{"default"}, std::string{"A.b_c-9"}, longest}) {
        assert_true(cli::is_name(name));
        const cli::Hello hello{.version = cli::protocol_version, .mode = cli::Mode::Push, .name = name};
        assert_string_equal(cli::decode_hello(cli::encode_hello(hello))->name.c_str(), name.c_str());
    }
    for (const std::string &name :
         {std::string{}, std::string{"."}, std::string{".."}, std::string{".hidden"}, std::string{"a/b"},
          std::string{"/"}, std::string{"a b"}, std::string{"\xc3\xa4"}, longest + "n"}) {
        assert_false(cli::is_name(name));
    }
    for (const std::string &name : {std::string{}, std::string{".."}, std::string{"a/b"}}) {
        for (const cli::Mode mode : {cli::Mode::Push, cli::Mode::Pull}) {
            const cli::Hello hello{.version = cli::protocol_version, .mode = mode, .name = name};
            assert_fails(cli::decode_hello(cli::encode_hello(hello)), "a name that is none");
        }
    }
    const cli::Hello all{.version = cli::protocol_version, .mode = cli::Mode::List};
    assert_true(cli::decode_hello(cli::encode_hello(all)).has_value());
}

void offer_survives(void **) {
    const cli::Offer offer = some_offer();
    const auto decoded = cli::decode_offer(cli::encode_offer(offer)).value();
    assert_true(decoded.tag == offer.tag && decoded.instance == offer.instance);
    assert_true(decoded.status == cli::Status::Ok);
    assert_true(decoded.durability == cli::Durability::PageCache);
    assert_int_equal(decoded.capacity, 1 << 20);
    assert_true(decoded.peer_configuration == std::byte{1});
    assert_memory_equal(decoded.memory_region.data(), offer.memory_region.data(), offer.memory_region.size());
    assert_int_equal(decoded.tcp_port, 40'000);
    assert_int_equal(decoded.sequence, 0x1'0000'0001);
    assert_int_equal(decoded.length, 1 << 20);
    assert_int_equal(decoded.checksum, 0xfedc'ba98);
    cli::Offer forgot = offer;
    forgot.status = cli::Status::Forgot;
    assert_true(cli::decode_offer(cli::encode_offer(forgot))->tag == offer.tag);
}

// A refusal tells why a client is not served, for a terminal. Text that does not fit is cut off, and bytes
// that are no text are not shown.
void refusal_says_why(void **) {
    const auto said = [](const std::string &reason) {
        const auto bytes = cli::encode_offer({.status = cli::Status::Busy, .reason = reason});
        const auto offer = cli::decode_offer(bytes).value();
        assert_true(offer.status == cli::Status::Busy);
        return offer.reason;
    };
    assert_string_equal(said("another push").c_str(), "another push");
    assert_string_equal(said("").c_str(), "");
    assert_string_equal(said("\033[2Ja\tb\377").c_str(), "?[2Ja?b?");
    const std::string longest(188, 'x');
    assert_string_equal(said(longest + "y").c_str(), longest.c_str());
}

void request_survives(void **) {
    for (const cli::Ask ask :
         {cli::Ask::Store, cli::Ask::Commit, cli::Ask::Alive, cli::Ask::Reserve, cli::Ask::Rollback}) {
        const auto bytes = cli::encode_request({ask, 1 << 20, 0xffff'ffff'ff, 0xfedc'ba98, "a label"});
        const auto decoded = cli::decode_request(bytes).value();
        assert_true(decoded.ask == ask && decoded.offset == 1 << 20 && decoded.length == 0xffff'ffff'ff);
        assert_int_equal(decoded.checksum, 0xfedc'ba98);
        assert_string_equal(decoded.label.c_str(), "a label");
        assert_fails(cli::decode_request(std::span{bytes}.first(23)), "a message of 23 bytes");
    }
    assert_fails(cli::decode_request({}), "a message of 0 bytes");
    for (const auto ask : {cli::Ask{0}, cli::Ask{8}}) {
        assert_fails(cli::decode_request(cli::encode_request({ask})), "asks for");
    }
}

void answer_survives(void **) {
    cli::RegionBytes region{};
    region.back() = std::byte{7};
    const auto bytes = cli::encode_answer({cli::Verdict::NotDurable, 28, 0x1'0000'0001, 0xfedc'ba98, region});
    const auto decoded = cli::decode_answer(bytes).value();
    assert_true(decoded.verdict == cli::Verdict::NotDurable);
    assert_int_equal(decoded.error, 28);
    assert_int_equal(decoded.sequence, 0x1'0000'0001);
    assert_int_equal(decoded.checksum, 0xfedc'ba98);
    assert_true(decoded.memory_region == region);
    assert_fails(cli::decode_answer(std::span{bytes}.first(15)), "15 bytes");
    assert_fails(cli::decode_answer(cli::AnswerBytes{}), "say 0");
    assert_fails(cli::decode_answer(cli::encode_answer({cli::Verdict{8}})), "say 8");
    assert_fails(cli::decode_answer(cli::encode_answer({cli::Verdict::Done, 4096})), "error 4096");
}

void ending_has_a_text(void **) {
    const auto said = [](int ending) {
        const auto bytes = cli::encode_answer({cli::Verdict::Ended, ending, 30});
        return cli::ending_text(cli::decode_answer(bytes).value());
    };
    assert_non_null(std::strstr(said(1).c_str(), "no progress for 30 seconds"));
    assert_non_null(std::strstr(said(2).c_str(), "not let in any more"));
    assert_non_null(std::strstr(said(3).c_str(), "is being stopped"));
    assert_non_null(std::strstr(said(4).c_str(), "does not do"));
    assert_non_null(std::strstr(said(5).c_str(), "full within 30 seconds"));
    assert_non_null(std::strstr(said(99).c_str(), "does not know (99)"));
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
    newer[4] = std::byte{5};
    assert_fails(cli::decode_offer(newer), "version 5");
    // A server of an older version says this to the client.
    for (const std::uint16_t version : {std::uint16_t{1}, std::uint16_t{2}, std::uint16_t{3}}) {
        const auto older = cli::encode_offer({.version = version, .status = cli::Status::Version});
        assert_fails(cli::decode_offer(std::span{older}.first(38)), "of rpma's protocol (expected 4)");
    }
    const auto refuse = [](auto change, std::string_view text) {
        cli::Offer offer = some_offer();
        change(offer);
        assert_fails(cli::decode_offer(cli::encode_offer(offer)), text);
    };
    refuse([](cli::Offer &offer) { offer.status = cli::Status{7}; }, "does not know");
    refuse([](cli::Offer &offer) { offer.durability = cli::Durability{3}; }, "does not know");
    refuse([](cli::Offer &offer) { offer.capacity = 0; }, "impossible");
    refuse([](cli::Offer &offer) { offer.capacity = std::uint64_t{1} << 63; }, "impossible");
    refuse([](cli::Offer &offer) { offer.length = cli::largest_capacity + 1; }, "impossible");
    refuse([](cli::Offer &offer) { offer.tag.number = cli::largest_number + 1; }, "impossible tag");
    refuse([](cli::Offer &offer) { offer.tag = {1, 0, 0}; }, "impossible tag");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(hello_survives),        cmocka_unit_test(bad_hello_is_refused),
        cmocka_unit_test(offer_survives),        cmocka_unit_test(refusal_says_why),
        cmocka_unit_test(request_survives),      cmocka_unit_test(answer_survives),
        cmocka_unit_test(bad_offer_is_refused),  cmocka_unit_test(ending_has_a_text),
        cmocka_unit_test(only_a_name_is_a_name),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
