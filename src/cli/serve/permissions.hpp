// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/permissions: what a server lets the clients with each key do (rpma serve --allow). Any client may
// ask for the server's status.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/failure.hpp"
#include "cli/protocol/protocol.hpp"

namespace cli {

class Permissions {
public:
    // Takes words such as push=IDENTITY and pull=IDENTITY. Without a word every client may do everything.
    [[nodiscard]] static Outcome<Permissions> parse(const std::vector<std::string> &words) {
        Permissions permissions;
        for (const std::string &word : words) {
            const std::size_t end = std::min(word.find('='), word.size());
            const std::string_view what = std::string_view{word}.substr(0, end);
            if ((what != "push" && what != "pull") || end + 1 >= word.size()) {
                return failed(Exit::Usage, "--allow {}: expected push=IDENTITY or pull=IDENTITY", word);
            }
            permissions.allowed_.emplace_back(what == "push" ? Mode::Push : Mode::Pull, word.substr(end + 1));
        }
        return permissions;
    }

    // Returns the reason why a client with this identity may not do this; empty when it may. An empty
    // identity is that of a client that has not authenticated itself.
    [[nodiscard]] std::string why_not(Mode mode, std::string_view identity) const {
        if (allowed_.empty() || mode == Mode::Status) {
            return {};
        }
        // A client that measures takes the server's memory, or the slot that a push would write.
        // A client that pushes or pulls may learn the newest tag.
        const bool reads = mode == Mode::Pull || mode == Mode::List || mode == Mode::Tag;
        const Mode needed = reads ? Mode::Pull : Mode::Push;
        const auto allows = [&](const auto &one) {
            return (one.first == needed || mode == Mode::Tag) && one.second == identity;
        };
        if (!identity.empty() && std::ranges::any_of(allowed_, allows)) {
            return {};
        }
        const char *const what = reads ? "pull" : mode == Mode::Push ? "push" : "measure";
        return identity.empty() ? fmt::format("a client without an identity may not {} (--allow)", what)
                                : fmt::format("the identity {} may not {} (--allow)", identity, what);
    }

private:
    std::vector<std::pair<Mode, std::string>> allowed_;  // Mode::Push or Mode::Pull, and an identity
};

}  // namespace cli
