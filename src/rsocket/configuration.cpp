// SPDX-License-Identifier: BSD-3-Clause
// rsocket/configuration: what the files of the system's administrator say, read once a process.
#include "rsocket/configuration.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "base/log.hpp"

namespace rsockets {

namespace {

constexpr std::string_view blanks = " \t\r\n";

// The number in a file of one; the default when there is no such file, or no such number in it.
std::uint32_t number_in(const char *name, std::uint32_t least, std::uint32_t most, std::uint32_t otherwise) {
    const std::string path = std::string{RSOCKET_CONFIGURATION} + "/" + name;
    const base::Fd file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (!file) {
        if (errno != ENOENT) {
            BASE_LOG(Warning, "%s cannot be read: %s", path.c_str(), std::strerror(errno));
        }
        return otherwise;
    }
    std::array<char, 64> bytes{};
    const ssize_t size = read(file.get(), bytes.data(), bytes.size());
    std::string_view text{bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
    text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
    text = text.substr(0, text.find_last_not_of(blanks) + 1);
    std::uint32_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size() ||
        number < least || number > most) {
        BASE_LOG(Warning, "%s has \"%.*s\" (expected a number from %u to %u): %u is used", path.c_str(),
                 static_cast<int>(text.size()), text.data(), least, most, otherwise);
        return otherwise;
    }
    return number;
}

Configuration read_files() {
    constexpr std::uint32_t most_messages = 0xfffe;
    constexpr std::uint32_t most_bytes = 1U << 30;
    Configuration read;
    stream::Settings &settings = read.settings;
    read.polling_time = std::chrono::microseconds{number_in("polling_time", 0, 1000000, 10)};
    settings.sends =
        static_cast<std::uint16_t>(number_in("sqsize_default", 1, most_messages, settings.sends));
    settings.receives =
        static_cast<std::uint16_t>(number_in("rqsize_default", 1, most_messages, settings.receives));
    settings.inline_bytes = number_in("inline_default", 0, UINT16_MAX, settings.inline_bytes);
    settings.receive_bytes = number_in("mem_default", 0, most_bytes, settings.receive_bytes);
    settings.send_bytes = number_in("wmem_default", 0, most_bytes, settings.send_bytes);
    return read;
}

}  // namespace

const Configuration &configuration() {
    static const Configuration read = read_files();
    return read;
}

}  // namespace rsockets
