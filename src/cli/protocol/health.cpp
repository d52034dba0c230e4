// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/health: encodes, and decodes with checks.
#include "cli/protocol/health.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace cli {

namespace {

using nlohmann::json;

// Takes members out of an object. It is false from the first one that is missing, or of another type.
class Members {
public:
    explicit Members(const json &object) : object_{object}, good_{object.is_object()} {}

    explicit operator bool() const { return good_; }

    Members &take(const char *name, std::string &text) {
        if (const json *const found = find(name, json::value_t::string)) {
            text = found->get<std::string>();
        }
        return *this;
    }
    Members &take(const char *name, std::uint64_t &number) {
        if (const json *const found = find(name, json::value_t::number_unsigned)) {
            number = found->get<std::uint64_t>();
        }
        return *this;
    }
    // Calls `take_object` with the members of an object, which returns whether they are good.
    template <typename TakeObject>
    Members &take_in(const char *name, TakeObject take_object) {
        if (const json *const found = find(name, json::value_t::object)) {
            good_ = take_object(Members{*found});
        }
        return *this;
    }
    Members &take(const char *name, bool &value) {
        if (const json *const found = find(name, json::value_t::boolean)) {
            value = found->get<bool>();
        }
        return *this;
    }
    // Returns whether there is such a member, which servers of some versions do not send.
    [[nodiscard]] bool has(const char *name) const { return good_ && object_.contains(name); }
    // Calls `take_one` for each element, which returns whether it is good.
    template <typename TakeOne>
    Members &take_all(const char *name, TakeOne take_one) {
        if (const json *const found = find(name, json::value_t::array)) {
            good_ = std::ranges::all_of(*found, take_one);
        }
        return *this;
    }

private:
    const json *find(const char *name, json::value_t type) {
        const auto found = good_ ? object_.find(name) : object_.end();
        good_ = good_ && found != object_.end() && found->type() == type;
        return good_ ? &*found : nullptr;
    }

    const json &object_;
    bool good_;
};

}  // namespace

std::string Reason::sentence() const {
    if (sequence == 0) {
        return name.empty() ? text : fmt::format("{}: {}", name, text);
    }
    return fmt::format("{}: content {} {}", name, sequence, text);
}

namespace {

nlohmann::ordered_json encode_push(const Pushing &push) {
    return {{"name", push.name}, {"host", push.host}, {"identity", push.identity}, {"seconds", push.seconds}};
}

Members &take_push(Members &members, Pushing &push) {
    return members.take("name", push.name)
        .take("host", push.host)
        .take("identity", push.identity)
        .take("seconds", push.seconds);
}

}  // namespace

std::string encode_health(const Health &health) {
    nlohmann::ordered_json object;
    object["version"] = health.version;
    object["uptime_seconds"] = health.uptime_seconds;
    object["store"] = health.store;
    object["memory"] = health.memory;
    object["durable"] = health.durable;
    object["names"] = health.names;
    object["contents"] = health.contents;
    object["faulty"] = health.faulty;
    object["bytes"] = health.bytes;
    object["capacity"] = health.capacity;
    // Older clients expect a number.
    object["free_bytes"] = health.free_bytes.value_or(0);
    object["room_known"] = health.free_bytes.has_value();
    object["clients"] = health.clients;
    object["pushes"] = json::array();
    for (const Pushing &push : health.pushes) {
        object["pushes"].push_back(encode_push(push));
    }
    object["commits"] = json::array();
    for (const Committing &commit : health.commits) {
        auto one = encode_push(commit.push);
        one["left"] = commit.left;
        object["commits"].push_back(std::move(one));
    }
    object["last"] = encode_list({health.last});
    if (health.follows) {
        const Following &follows = *health.follows;
        object["follows"] = {{"leader", follows.leader},
                             {"contents", follows.contents},
                             {"bytes", follows.bytes},
                             {"told", follows.seconds.has_value()},
                             {"seconds", follows.seconds.value_or(0)},
                             {"hops", follows.hops}};
    }
    object["reasons"] = json::array();
    for (const Reason &reason : health.reasons) {
        object["reasons"].push_back({{"kind", reason.kind},
                                     {"name", reason.name},
                                     {"sequence", reason.sequence},
                                     {"text", reason.text}});
    }
    return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Outcome<Health> decode_health(std::string_view text) {
    // A peer may nest as deep as it likes, and each level needs memory.
    constexpr int deepest = 4;
    const auto is_known = [](int depth, json::parse_event_t /*event*/, const json & /*value*/) {
        return depth < deepest;
    };
    const json object = json::parse(text, is_known, false);
    Health health;
    std::string last;
    std::uint64_t free_bytes = 0;
    bool room_known = true;
    const auto take_one_push = [&](const json &one) {
        Members members{one};
        return static_cast<bool>(take_push(members, health.pushes.emplace_back()));
    };
    const auto take_commit = [&](const json &one) {
        Members members{one};
        Committing &commit = health.commits.emplace_back();
        return static_cast<bool>(take_push(members, commit.push).take("left", commit.left));
    };
    const auto take_reason = [&](const json &one) {
        Reason reason;
        const bool good{Members{one}
                            .take("kind", reason.kind)
                            .take("name", reason.name)
                            .take("sequence", reason.sequence)
                            .take("text", reason.text)};
        health.reasons.push_back(std::move(reason));
        return good;
    };
    Members members{object};
    members.take("version", health.version)
        .take("uptime_seconds", health.uptime_seconds)
        .take("memory", health.memory)
        .take("durable", health.durable)
        .take("names", health.names)
        .take("contents", health.contents)
        .take("bytes", health.bytes)
        .take("capacity", health.capacity)
        .take("free_bytes", free_bytes)
        .take("clients", health.clients)
        .take_all("pushes", take_one_push)
        .take("last", last)
        .take_all("reasons", take_reason);
    if (members.has("store")) {
        members.take("store", health.store);
    }
    if (members.has("faulty")) {
        members.take("faulty", health.faulty);
    }
    if (members.has("commits")) {
        members.take_all("commits", take_commit);
    }
    if (members.has("follows")) {
        Following &follows = health.follows.emplace();
        bool told = false;
        std::uint64_t seconds = 0;
        members.take_in("follows", [&](Members one) {
            if (one.has("hops")) {
                one.take("hops", follows.hops);
            }
            return static_cast<bool>(one.take("leader", follows.leader)
                                         .take("contents", follows.contents)
                                         .take("bytes", follows.bytes)
                                         .take("told", told)
                                         .take("seconds", seconds));
        });
        if (told) {
            follows.seconds = seconds;
        }
    }
    if (members.has("room_known")) {
        members.take("room_known", room_known);
    }
    if (room_known) {
        health.free_bytes = free_bytes;
    }
    const auto commits = members ? decode_list(last) : failed("{}", "");
    if (!commits || commits->size() != 1) {
        return failed("sent a status that this rpma does not know");
    }
    health.last = commits->front();
    return health;
}

}  // namespace cli
