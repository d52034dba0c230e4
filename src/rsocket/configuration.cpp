// SPDX-License-Identifier: BSD-3-Clause
// rsocket/configuration: the settings of the system's administrator and of the environment, which a process
// reads once.
#include "rsocket/configuration.hpp"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "base/number.hpp"
#include "base/text.hpp"
#include "base/tls.hpp"
#include "datagram/queue_pair.hpp"

namespace rsockets {

namespace {

constexpr std::string_view blanks = " \t\r\n";

// Returns the number that a text is, or the default when it is no number in that range. source names the file
// or the variable.
std::uint32_t number_of(std::string_view text, const char *source, std::uint32_t least, std::uint32_t most,
                        std::uint32_t otherwise) {
    text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
    text = text.substr(0, text.find_last_not_of(blanks) + 1);
    std::uint32_t number = 0;
    if (!base::read_number(text, number) || number < least || number > most) {
        BASE_LOG(Warning, "%s has \"%.*s\" (expected a number from %u to %u): %u is used", source,
                 static_cast<int>(text.size()), text.data(), least, most, otherwise);
        return otherwise;
    }
    return number;
}

// Returns the number in a file, or the default when there is no such file.
std::uint32_t number_of_file(const std::string &path, std::uint32_t least, std::uint32_t most,
                             std::uint32_t otherwise) {
    const auto text = base::text_of_file(path.c_str());
    return text ? number_of(*text, path.c_str(), least, most, otherwise) : otherwise;
}

// Returns the number in a variable of the environment, or `otherwise` when it is not set.
std::uint32_t number_of_variable(const char *name, std::uint32_t least, std::uint32_t most,
                                 std::uint32_t otherwise) {
    const char *const text = secure_getenv(name);
    return text != nullptr ? number_of(text, name, least, most, otherwise) : otherwise;
}

}  // namespace

Configuration read_configuration(const std::string &folder) {
    constexpr std::uint32_t most_bytes = 1U << 30;
    const auto number_in = [&folder](const char *name, std::uint32_t least, std::uint32_t most,
                                     std::uint32_t otherwise) {
        return number_of_file(folder + "/" + name, least, most, otherwise);
    };
    Configuration read;
    stream::Settings &settings = read.settings;
    read.polling_time = std::chrono::microseconds{number_in(
        "polling_time", 0, 1000000, static_cast<std::uint32_t>(stream::Looking::usual_time.count()))};
    settings.sends =
        static_cast<std::uint16_t>(number_in("sqsize_default", 1, stream::most_messages, settings.sends));
    settings.receives =
        static_cast<std::uint16_t>(number_in("rqsize_default", 1, stream::most_messages, settings.receives));
    settings.inline_bytes = number_in("inline_default", 0, UINT16_MAX, settings.inline_bytes);
    settings.slots = stream::from_scale(stream::to_scale(number_in("iomap_size", 0, UINT16_MAX, 0)));
    settings.receive_bytes = number_in("mem_default", 0, most_bytes, settings.receive_bytes);
    settings.send_bytes = number_in("wmem_default", 0, most_bytes, settings.send_bytes);
    settings.sends = static_cast<std::uint16_t>(
        number_of_variable("RS_SQ_SIZE", 1, stream::most_messages, settings.sends));
    settings.receives = static_cast<std::uint16_t>(
        number_of_variable("RS_RQ_SIZE", 1, stream::most_messages, settings.receives));
    settings.inline_bytes = number_of_variable("RS_INLINE", 0, UINT16_MAX, settings.inline_bytes);
    read.fork_safe = number_of_variable("RDMAV_FORK_SAFE", 0, UINT32_MAX, 0) != 0;
    read.tls = base::required_tls() != nullptr;
    read.devices = base::InterfaceTable::read((folder + "/devices").c_str());
    return read;
}

const Configuration &configuration() {
    static const Configuration read = [] {
        Configuration just_read = read_configuration(RSOCKET_CONFIGURATION);
        stream::Device::choose_by(just_read.devices);
        datagram::QueuePair::choose_by(just_read.devices);
        return just_read;
    }();
    return read;
}

}  // namespace rsockets
