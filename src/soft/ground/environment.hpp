// SPDX-License-Identifier: BSD-3-Clause
// soft/ground/environment: the meaning of the environment variables that the device reads.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/log.hpp"
#include "base/number.hpp"
#include "base/result.hpp"
#include "base/tls.hpp"

namespace soft {

// Returns whether this value of a variable is 1; nullptr stands for one that is not set. Fails with EINVAL,
// and logs it, when the value is not valid.
[[nodiscard]] inline base::Result<bool> is_asked_for(const char *variable, const char *value) {
    const std::string_view word{value != nullptr ? value : ""};
    if (!word.empty() && word != "0" && word != "1") {
        BASE_LOG(Error, "%s is \"%s\", expected 0 or 1: no device is opened", variable, value);
        return base::failure(EINVAL);
    }
    return word == "1";
}

// Returns whether SOFTRDMA_CRC asks for CRC32C at the first call. After a failure no device opens.
[[nodiscard]] inline const base::Result<bool> &crc_of_environment() {
    static const base::Result<bool> once = is_asked_for("SOFTRDMA_CRC", secure_getenv("SOFTRDMA_CRC"));
    return once;
}

inline constexpr unsigned most_engines = 64;

// Returns how many engines a process has that may use so many processors, if SOFTRDMA_ENGINES says nothing:
// half of them, because the program, and the kernel's side of the network, need the others; and 4 at most,
// because a program that sleeps has seldom more to do, and one that has more sets the variable.
[[nodiscard]] constexpr unsigned engines_for(unsigned processors) {
    return std::clamp(processors / 2, 1U, 4U);
}

// Returns how many engines this value of SOFTRDMA_ENGINES asks for; nullptr when it is not set. Fails with
// EINVAL, and logs it, when the value is not valid.
[[nodiscard]] inline base::Result<unsigned> engines_asked_for(const char *value) {
    const std::string_view word{value != nullptr ? value : ""};
    if (word.empty()) {
        cpu_set_t may_use;  // the call fails where there are more processors than it has bits
        const bool known = sched_getaffinity(0, sizeof(may_use), &may_use) == 0;
        return engines_for(known ? static_cast<unsigned>(CPU_COUNT(&may_use)) : most_engines);
    }
    unsigned engines = 0;
    if (!base::read_number(word, engines) || engines == 0 || engines > most_engines) {
        BASE_LOG(Error, "SOFTRDMA_ENGINES is \"%s\", expected a number from 1 to %u: no device is opened",
                 value, most_engines);
        return base::failure(EINVAL);
    }
    return engines;
}

// Returns the meaning of SOFTRDMA_ENGINES at the first call. After a failure no device opens.
[[nodiscard]] inline const base::Result<unsigned> &engines_of_environment() {
    static const base::Result<unsigned> once = engines_asked_for(secure_getenv("SOFTRDMA_ENGINES"));
    return once;
}

// How connections within the host go: over TCP; through rings in memory; or through these, and the initiator
// writes and reads the target's memory itself.
enum class WithinHost : std::uint8_t { Tcp, Rings, Direct };

// Returns the meaning of this value of SOFTRDMA_SHM; nullptr when it is not set. Fails with EINVAL, and logs
// it, when the value is not valid.
[[nodiscard]] inline base::Result<WithinHost> within_host_asked_for(const char *value) {
    const std::string_view word{value != nullptr ? value : ""};
    if (word.empty() || word == "on") {
        return WithinHost::Direct;
    }
    if (word == "rings") {
        return WithinHost::Rings;
    }
    if (word == "off") {
        return WithinHost::Tcp;
    }
    BASE_LOG(Error, "SOFTRDMA_SHM is \"%s\", expected on, rings or off: no device is opened", value);
    return base::failure(EINVAL);
}

// Returns the meaning of SOFTRDMA_SHM at the first call. After a failure no device opens.
[[nodiscard]] inline const base::Result<WithinHost> &within_host_of_environment() {
    static const base::Result<WithinHost> once = within_host_asked_for(secure_getenv("SOFTRDMA_SHM"));
    return once;
}

// Returns whether SOFTRDMA_ROCE asks at the first call for devices that look like cards of RoCE to their
// program. After a failure no device opens.
[[nodiscard]] inline const base::Result<bool> &roce_of_environment() {
    static const base::Result<bool> once = is_asked_for("SOFTRDMA_ROCE", secure_getenv("SOFTRDMA_ROCE"));
    return once;
}

// Returns the meaning of this value of RPMA_TLS, nullptr when it is not set. Fails with EINVAL, and logs it,
// when the value is not valid.
[[nodiscard]] inline base::Result<base::TlsAsked> tls_asked_for(const char *value) {
    if (value == nullptr || *value == '\0') {
        return base::TlsAsked{};
    }
    auto asked = base::TlsAsked::parse(value);
    if (!asked) {
        BASE_LOG(Error,
                 "RPMA_TLS is \"%s\", expected psk:FILE or x509:FILE, with the whole path of FILE: no device "
                 "is opened",
                 value);
    }
    return asked;
}

// Returns the meaning of RPMA_TLS at the first call. After a failure no device opens. A process with raised
// privileges does not heed the variable; it opens no device either, because whoever set the variable expects
// TLS.
[[nodiscard]] inline const base::Result<base::TlsAsked> &tls_of_environment() {
    static const base::Result<base::TlsAsked> once = []() -> base::Result<base::TlsAsked> {
        const char *const value = secure_getenv("RPMA_TLS");
        if (value == nullptr && base::required_tls() != nullptr) {
            BASE_LOG(Error, "RPMA_TLS is set, and this process has raised privileges: no device is opened");
            return base::failure(EINVAL);
        }
        return tls_asked_for(value);
    }();
    return once;
}

// Returns whether connections use TLS and nothing else, unless their ids ask for other keys.
[[nodiscard]] inline bool tls_is_required() {
    const auto &asked = tls_of_environment();
    return !asked || asked->is_required();
}

// Returns what RPMA_TLS asks of an id. When its value is not valid, that is a file which nobody has. Throws
// std::bad_alloc.
[[nodiscard]] inline const base::SharedTls &tls_of_new_ids() {
    static const base::SharedTls once = std::make_shared<const base::TlsAsked>(
        tls_of_environment().value_or(base::TlsAsked{.how = base::TlsAsked::How::Keys, .file = {}}));
    return once;
}

}  // namespace soft
