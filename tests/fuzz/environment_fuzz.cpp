// SPDX-License-Identifier: BSD-3-Clause
// This target sets the environment variables that the libraries read: RPMA_DEVICE (first byte even) through
// librpma's look-up of a device, SOFTRDMA_CRC (odd), SOFTRDMA_FAULTS (odd and bit 1 set). The value is the
// rest up to a zero byte, because setenv(3) takes no more.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "choices.hpp"
#include "librpma/api.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/faults.hpp"

namespace {

using fuzz::require;

void discard(rpma_log_level, const char *, int, const char *, const char *, ...) {}

void look_up_device(const std::string &value) {
    static char place;
    auto *const untouched = reinterpret_cast<ibv_context *>(&place);
    ibv_context *context = untouched;
    setenv("RPMA_DEVICE", value.c_str(), 1);
    const int result = rpma_utils_get_ibv_context("127.0.0.1", RPMA_UTIL_IBV_CONTEXT_LOCAL, &context);
    if (value == "auto" || value == "soft") {
        require(result == 0 && context != untouched && context != nullptr, "the loopback has a device");
    } else if (value != "kernel") {
        require(result == RPMA_E_PROVIDER && context == untouched, "another word is refused");
    }
}

void parse_faults(const std::string &value) {
    const auto faults = soft::Faults::parse(value);
    if (!faults) {
        require(faults.error().find(", expected ") != std::string::npos, "an error says what was expected");
        return;
    }
    constexpr auto tear = soft::Faults::Kind::Tear;
    const std::uint64_t amount = faults->at(tear, 1, 2);
    require(amount == soft::Faults::none || amount <= UINT32_MAX, "an amount is one that may be given");
    require(amount == faults->at(tear, 1, 2), "asked twice, it is the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static const bool quiet = rpma_log_set_function(discard) == 0;
    require(quiet, "the log is formatted and dropped");
    if (size == 0) {
        return 0;
    }
    const std::string_view rest{reinterpret_cast<const char *>(data) + 1, size - 1};
    const std::string value{rest.substr(0, rest.find('\0'))};
    if ((data[0] & 1) == 0) {
        look_up_device(value);
    } else if ((data[0] & 2) != 0) {
        parse_faults(value);
    } else {
        const auto asked = soft::is_asked_for("SOFTRDMA_CRC", value.c_str());
        require(asked.has_value() == (value.empty() || value == "0" || value == "1"),
                "another word is refused");
        require(asked.value_or(false) == (value == "1"), "only 1 asks for it");
        const auto engines = soft::engines_asked_for(value.c_str());
        require(!engines || (*engines >= 1 && *engines <= soft::most_engines), "there are 1 to 64 engines");
        require(engines ? value.find_first_not_of("0123456789") == std::string::npos : !value.empty(),
                "another word is refused, and no value is not");
        const auto within_host = soft::within_host_asked_for(value.c_str());
        require(
            within_host.has_value() == (value.empty() || value == "on" || value == "rings" || value == "off"),
            "another word is refused");
        using soft::WithinHost;
        require(!within_host || (*within_host == WithinHost::Tcp) == (value == "off"),
                "only off asks for TCP");
        require(!within_host || (*within_host == WithinHost::Direct) == (value.empty() || value == "on"),
                "on, and no value, ask for direct access, and nothing else does");
        const auto tls = soft::tls_asked_for(value.c_str());
        require(
            tls.has_value() == (value.empty() || value.starts_with("psk:/") || value.starts_with("x509:/")),
            "another word is refused");
        require(!tls || (tls->how == base::TlsAsked::How::Not) == value.empty(),
                "only an empty value asks for no TLS");
        require(!tls || value.ends_with(tls->file), "the file is the end of the value");
    }
    return 0;
}
