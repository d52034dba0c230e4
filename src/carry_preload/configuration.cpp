// SPDX-License-Identifier: BSD-3-Clause
#include "carry_preload/configuration.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/text.hpp"

namespace carry_preload {

namespace {

constexpr int any = -1;
constexpr int none = -2;

struct Keyword {
    std::string_view text;
    int value;
};
constexpr std::array domains{Keyword{"*", any}, Keyword{"inet", AF_INET}, Keyword{"inet6", AF_INET6},
                             Keyword{"none", none}};
constexpr std::array types{Keyword{"*", any}, Keyword{"stream", SOCK_STREAM}, Keyword{"dgram", SOCK_DGRAM}};
constexpr std::array protocols{Keyword{"*", any}, Keyword{"tcp", IPPROTO_TCP}, Keyword{"udp", IPPROTO_UDP}};

bool is_same(std::string_view one, std::string_view other) {
    return std::ranges::equal(one, other,
                              [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
}

template <std::size_t count>
std::optional<int> value_of(std::string_view text, const std::array<Keyword, count> &words) {
    const auto known =
        std::ranges::find_if(words, [&](const Keyword &word) { return is_same(text, word.text); });
    return known != words.end() ? std::optional{known->value} : std::nullopt;
}

// Reads the words behind the program's name. A line ends after `none`.
std::optional<Rule> rule_of(std::string_view line) {
    const auto domain = value_of(base::take_word(line), domains);
    if (domain == none) {
        return base::take_word(line).empty() ? std::optional{Rule{.domain = none}} : std::nullopt;
    }
    const auto type = value_of(base::take_word(line), types);
    const auto protocol = value_of(base::take_word(line), protocols);
    return domain && type && protocol && base::take_word(line).empty()
               ? std::optional{Rule{.domain = *domain, .type = *type, .protocol = *protocol}}
               : std::nullopt;
}

std::vector<Rule> read_rules() {
    constexpr const char *path = RSOCKET_CONFIGURATION "/preload_config";
    const auto text = base::text_of_file(path);
    return rules_of(text ? std::string_view{*text} : default_rules, program_invocation_short_name, path);
}

// Never destroyed: other threads may be in a call when main() returns.
const std::vector<Rule> &rules() {
    static const auto &read = *new std::vector<Rule>{read_rules()};
    return read;
}

}  // namespace

std::vector<Rule> rules_of(std::string_view text, std::string_view program, const char *source) {
    std::vector<Rule> own;
    std::vector<Rule> for_all;
    base::for_lines(text, [&](base::Line line) {
        const auto name = base::take_word(line.said);
        if (name.empty()) {
            return;
        }
        const auto rule = rule_of(line.said);
        if (!rule) {
            BASE_LOG(
                Warning,
                "%s: \"%.*s\" is left out (expected: PROGRAM|* inet|inet6|* stream|dgram|* tcp|udp|*, or: "
                "PROGRAM none)",
                source, static_cast<int>(line.whole.size()), line.whole.data());
        } else if (name == program) {
            own.push_back(*rule);
        } else if (name == "*") {
            for_all.push_back(*rule);
        }
    });
    return own.empty() ? for_all : own;
}

bool admits(const std::vector<Rule> &rules, int domain, int type, int protocol) {
    constexpr int flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
    const bool is_stream = (type & ~flags) == SOCK_STREAM;
    const int usual = is_stream ? IPPROTO_TCP : IPPROTO_UDP;
    if (domain != AF_INET && domain != AF_INET6) {
        return false;
    }
    return std::ranges::any_of(rules, [&](const Rule &rule) {
        return (rule.domain == any || rule.domain == domain) &&
               (rule.type == any || rule.type == (type & ~flags)) &&
               (rule.protocol == any || rule.protocol == (protocol != 0 ? protocol : usual));
    });
}

bool carries(int domain, int type, int protocol) {
    return (domain == AF_INET || domain == AF_INET6) && admits(rules(), domain, type, protocol);
}

}  // namespace carry_preload
