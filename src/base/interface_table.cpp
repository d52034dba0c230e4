// SPDX-License-Identifier: BSD-3-Clause
#include "base/interface_table.hpp"

#include <ifaddrs.h>

#include <memory>

#include "base/address.hpp"
#include "base/log.hpp"
#include "base/text.hpp"

namespace base {

InterfaceTable InterfaceTable::parse(std::string_view text, const char *source) {
    InterfaceTable table;
    for_lines(text, [&](Line line) {
        const auto interface = take_word(line.said);
        const auto word = take_word(line.said);
        if (interface.empty()) {
            return;
        }
        const char *reason = nullptr;
        if (word.empty() || !take_word(line.said).empty()) {
            reason = "expected an interface and a device";
        } else if (!table.words_.try_emplace(std::string{interface}, word).second) {
            reason = "the interface has a line before";
        }
        if (reason != nullptr) {
            BASE_LOG(Warning, "%s:%u: \"%.*s\" is left out (%s)", source, line.number,
                     static_cast<int>(line.whole.size()), line.whole.data(), reason);
        }
    });
    return table;
}

InterfaceTable InterfaceTable::read(const char *path) {
    const auto text = text_of_file(path);
    return text ? parse(*text, path) : InterfaceTable{};
}

bool InterfaceTable::admits(const sockaddr &local, std::string_view kind, const char *name) const {
    const auto word = word_of(local);
    if (!word || *word == kind) {
        return true;
    }
    return *word != "soft" && *word != "kernel" && (name == nullptr || *word == name);
}

// An address may have a label of its own, such as eth0:1.
std::optional<std::string> InterfaceTable::word_of(const sockaddr &local) const {
    ifaddrs *first = nullptr;
    if (empty() || getifaddrs(&first) != 0) {
        return std::nullopt;
    }
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{first, freeifaddrs};
    for (const ifaddrs *one = first; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || !same_host(*one->ifa_addr, local)) {
            continue;
        }
        const std::string_view name{one->ifa_name};
        const auto found = words_.find(name.substr(0, name.find(':')));
        return found != words_.end() ? std::optional{found->second} : std::nullopt;
    }
    return std::nullopt;
}

}  // namespace base
