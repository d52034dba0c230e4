// SPDX-License-Identifier: BSD-3-Clause
// base/sha256: tests the digests of FIPS 180-4's examples, and those of RFC 4231 with a key.
#include "base/sha256.hpp"

#include <string>
#include <string_view>

#include "check.hpp"

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text});
}

std::string text_of(const base::Digest &digest) {
    std::string text;
    for (const std::byte byte : digest) {
        constexpr const char *digits = "0123456789abcdef";
        text += digits[std::to_integer<unsigned>(byte >> 4)];
        text += digits[std::to_integer<unsigned>(byte & std::byte{15})];
    }
    return text;
}

void a_digest_is_that_of_the_standard(void **) {
    const auto check = [](std::string_view bytes, const char *digest) {
        assert_string_equal(text_of(base::sha256(bytes_of(bytes))).c_str(), digest);
    };
    check("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    // Its length has no room in the first block.
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check(std::string(1000000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

void a_key_may_have_any_length(void **) {
    const auto check = [](std::string_view key, std::string_view bytes, const char *digest) {
        assert_string_equal(text_of(base::hmac_sha256(bytes_of(key), bytes_of(bytes))).c_str(), digest);
    };
    check(std::string(20, '\x0b'), "Hi There",
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    check("Jefe", "what do ya want for nothing?",
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    check(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_digest_is_that_of_the_standard),
        cmocka_unit_test(a_key_may_have_any_length),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
