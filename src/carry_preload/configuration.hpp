// SPDX-License-Identifier: BSD-3-Clause
// carry_preload/configuration: which sockets of which programs are carried (preload_config).
#pragma once

#include <string_view>
#include <vector>

namespace carry_preload {

// A line of preload_config has the form `program domain type protocol`. -1 stands for any.
struct Rule {
    int domain = -1;
    int type = -1;
    int protocol = -1;
};

// The rules where there is no file: all streams are carried, but not those of programs whose connections two
// processes use in turn.
inline constexpr std::string_view default_rules = R"(
*    *    stream *
ssh  none
sshd none
)";

// Returns the rules that the text has for a program. The lines that name the program count, or, when there
// is none, the lines for all programs (*). A line that is not understood is logged under the name of its
// source, and left out.
[[nodiscard]] std::vector<Rule> rules_of(std::string_view text, std::string_view program, const char *source);

[[nodiscard]] bool admits(const std::vector<Rule> &rules, int domain, int type, int protocol);

// Returns whether sockets of these arguments of socket(2) are carried in this process.
[[nodiscard]] bool carries(int domain, int type, int protocol);

}  // namespace carry_preload
