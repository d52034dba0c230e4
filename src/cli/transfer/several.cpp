// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/several: the register of Attiya, Bar-Noy and Dolev for several writers, on tags.
#include "cli/transfer/several.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "cli/random_number.hpp"

namespace cli {

namespace {

// A healthy server answers a connection within it, also when one of TCP's first packets is lost.
constexpr auto grace = std::chrono::milliseconds{1500};

// The servers of a command, and the name that they keep.
struct Group {
    std::vector<Where> servers;
    std::string name;

    [[nodiscard]] std::size_t size() const { return servers.size(); }
    [[nodiscard]] std::size_t majority() const { return size() / 2 + 1; }
};

Outcome<Group> group_of(const std::vector<std::string> &addresses) {
    Group group;
    std::set<std::string> seen;
    for (const std::string &address : addresses) {
        Where where = TRY(parse_where(address));
        where.name = name_of(where);
        if (!group.name.empty() && where.name != group.name) {
            return failed(Exit::Usage,
                          "{}: the name is {}, and that of the servers before is {} (expected one name)",
                          address, where.name, group.name);
        }
        if (!seen.insert(where.address.text()).second) {
            return failed(Exit::Usage, "{}: is there twice (expected different servers)", address);
        }
        group.name = where.name;
        group.servers.push_back(std::move(where));
    }
    return group;
}

// Counts the servers in one of these states. Two addresses of one server count once.
std::size_t count(const Replicas &replicas, std::initializer_list<Reply::State> states) {
    std::set<std::uint64_t> instances;
    for (const Reply &reply : replicas.replies()) {
        if (std::ranges::find(states, reply.state) != states.end()) {
            instances.insert(reply.instance);
        }
    }
    return instances.size();
}

// Returns why this address does not count, if it does not.
std::string reason_of(const Group &group, const Replicas &replicas, std::size_t server) {
    const auto &replies = replicas.replies();
    const auto first =
        std::ranges::find(replies, replies[server].instance, &Reply::instance) - replies.begin();
    if (!replies[server].reason.empty() || replies[server].instance == 0 || std::cmp_equal(first, server)) {
        return replies[server].reason;
    }
    return fmt::format("{}: leads to the same server as {} (expected different servers)",
                       group.servers[server].address.text(),
                       group.servers[static_cast<std::size_t>(first)].address.text());
}

// Returns a table of what each server has, or why not.
std::vector<Facts> rows_of(const Group &group, const Replicas &replicas) {
    std::vector<Facts> rows;
    for (std::size_t i = 0; i < group.size(); ++i) {
        const Reply &reply = replicas.replies()[i];
        const char *result = "no answer";
        switch (reply.state) {
            case Reply::State::Silent:
                break;
            case Reply::State::Present:
                result = "unchanged";
                break;
            case Reply::State::Forgot:
                result = "lost its tag";
                break;
            case Reply::State::Committed:
                result = "committed";
                break;
            case Reply::State::Newer:
                result = "has it, or a newer one";
                break;
            case Reply::State::Failed:
                result = "failed";
                break;
            case Reply::State::Unknown:
                result = "unknown";
                break;
        }
        const bool committed = reply.state == Reply::State::Committed;
        rows.push_back(
            {{"address", "SERVER", group.servers[i].address.text(), group.servers[i].address.text()},
             {"result", "RESULT", result, result},
             {"sequence", "SEQUENCE", committed ? nlohmann::json(reply.sequence) : nlohmann::json{},
              committed ? std::to_string(reply.sequence) : ""},
             {"reason", "REASON", reason_of(group, replicas, i), shown(reason_of(group, replicas, i))}});
    }
    return rows;
}

// Returns the reasons of all servers that have one.
std::string reasons_of(const Group &group, const Replicas &replicas) {
    std::string text;
    for (std::size_t i = 0; i < group.size(); ++i) {
        if (const std::string reason = reason_of(group, replicas, i); !reason.empty()) {
            text += (text.empty() ? ": " : "; ") + reason;
        }
    }
    return text;
}

// Returns the first of these exit codes that a server is the reason for, and the last one when none is.
Exit exit_of(const Replicas &replicas, std::initializer_list<Exit> exits) {
    const auto is_a_reason = [&](Exit exit) {
        return std::ranges::find(replicas.replies(), exit, &Reply::exit) != replicas.replies().end();
    };
    const auto *const found = std::ranges::find_if(exits, is_a_reason);
    return found != exits.end() ? *found : *std::prev(exits.end());
}

// Returns the exit code for too few answers.
Exit exit_of(const Replicas &replicas) {
    return exit_of(replicas, {Exit::Unreachable, Exit::Refused, Exit::Busy, Exit::Failed});
}

// Prints what each server has, for people; JSON has it in the summary, or in the error's text.
void print_rows(const Group &group, const Replicas &replicas, const TransferOptions &options) {
    if (!options.json) {
        print(table_of(rows_of(group, replicas)));
    }
}

// Waits until as many servers as are needed have told their newest tag. For a push it is enough too that each
// server has told it, or that it has lost it: no server gives a newer content then.
enum class For : bool { Pull, Push };
Outcome<> wait_for_tags(const Group &group, Replicas &replicas, std::size_t needed, For what,
                        const TransferOptions &options) {
    const auto present = [&] { return count(replicas, {Reply::State::Present}); };
    TRY(replicas.wait([&] { return present() >= needed; }));
    const auto answered = std::ranges::count(replicas.replies(), Reply::State::Present, &Reply::state);
    if (present() < needed && std::cmp_greater_equal(answered, needed)) {
        return failed(Exit::Usage, "{}: two of the addresses lead to one server (expected different servers)",
                      group.name);
    }
    const auto forgot = std::ranges::count(replicas.replies(), Reply::State::Forgot, &Reply::state);
    const bool have_all_told = std::cmp_equal(answered + forgot, group.size());
    if (present() < needed && !(what == For::Push && have_all_told)) {
        print_rows(group, replicas, options);
        return failed(exit_of(replicas), "{}: {} of {} servers answer (expected {}){}", group.name, present(),
                      group.size(), needed, reasons_of(group, replicas));
    }
    return {};
}

// Returns the newest tag that the servers in one of these states have told.
Tag newest_of(const Replicas &replicas, std::initializer_list<Reply::State> states) {
    Tag newest;
    for (const Reply &reply : replicas.replies()) {
        const bool counts = std::ranges::find(states, reply.state) != states.end();
        newest = counts ? std::max(newest, reply.tag) : newest;
    }
    return newest;
}

// Waits until as many servers as are needed have the content of the order, or a newer one, and each that has
// told its tag has decided. One that has told nothing by then has so long to do it, and to commit.
Outcome<> wait_for_commits(Replicas &replicas, std::size_t needed, Session::Clock::duration patience) {
    std::optional<Session::Clock::time_point> since;
    return replicas.wait([&] {
        if (count(replicas, {Reply::State::Committed, Reply::State::Newer}) < needed ||
            replicas.is_writing()) {
            return false;
        }
        const auto now = Session::Clock::now();
        since = since.value_or(now);
        return now - *since >= patience || std::ranges::find(replicas.replies(), Reply::State::Silent,
                                                             &Reply::state) == replicas.replies().end();
    });
}

// Reads the source once, for its length and checksum: every server gets these bytes, or none.
Outcome<Order> order_of(const Source &source) {
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(Session::chunk_size);
    Order order;
    Crc32c checksum;
    while (order.length < *source.size()) {
        const std::span bytes{memory.get(),
                              std::min<std::uint64_t>(Session::chunk_size, *source.size() - order.length)};
        TRY(source.read_at(bytes, order.length));
        checksum.update(bytes);
        order.length += bytes.size();
        if (interrupted()) {
            return failed("interrupted");
        }
    }
    TRY(source.check_unchanged(order.length));
    order.checksum = checksum.value();
    return order;
}

// `received` is the number of bytes of a pull.
void print_summary(const char *command, const TransferOptions &options, const Group &group,
                   const Replicas &replicas, const Order &order, std::size_t have, double seconds,
                   std::optional<std::uint64_t> received = {}) {
    const double rate = static_cast<double>(order.length) / seconds;
    Summary summary;
    summary.add_json("command", command);
    summary.add("file", options.file);
    summary.add("name", group.name);
    summary.add("bytes", order.length, std::to_string(order.length));
    summary.add_json("seconds", seconds);
    summary.add_json("bytes_per_second", rate);
    summary.add_text("throughput", format_size(rate) + "/s in " + format_seconds(seconds));
    summary.add("checksum", checksum_text(order.checksum));
    summary.add("tag", tag_text(order.tag));
    if (received) {
        summary.add("received", *received, fmt::format("{} bytes", *received));
    }
    summary.add("committed", have, fmt::format("on {} of {} servers", have, group.size()));
    summary.add_json("servers", json_of(rows_of(group, replicas)));
    summary.print(options.json);
    print_rows(group, replicas, options);
}

// Returns a failure unless enough servers have the content.
Outcome<> check_push(const Group &group, const Replicas &replicas, const Order &order, std::size_t quorum,
                     const TransferOptions &options) {
    const std::size_t have = count(replicas, {Reply::State::Committed, Reply::State::Newer});
    if (have >= quorum) {
        return {};
    }
    const bool may_come =
        count(replicas, {Reply::State::Committed, Reply::State::Unknown, Reply::State::Silent}) > 0;
    print_rows(group, replicas, options);
    const std::string text = fmt::format("{}: committed on {} of {} servers (expected {})", group.name, have,
                                         group.size(), quorum);
    if (may_come) {
        return std::unexpected{Failure{
            fmt::format(
                "{}; a later pull finds the old content, or the new one, which has the tag {} and {}{}", text,
                tag_text(order.tag), checksum_text(order.checksum), reasons_of(group, replicas)),
            Exit::Unknown, 0, order.checksum}};
    }
    return failed(exit_of(replicas, {Exit::Refused, Exit::Busy, Exit::NotCommitted}),
                  "{}; nothing was committed{}", text, reasons_of(group, replicas));
}

}  // namespace

Outcome<> push_to_several(const PushOptions &options) {
    const Group group = TRY(group_of(options.addresses));
    const std::uint64_t quorum = options.quorum.value_or(group.majority());
    if (quorum < group.majority() || quorum > group.size()) {
        return failed(Exit::Usage,
                      "--quorum {}: expected {} to {} of {} servers: two pushes, or a push and a pull, meet "
                      "on a server "
                      "only when each has a majority",
                      quorum, group.majority(), group.size(), group.size());
    }
    if (!options.min_size.empty()) {
        TRY(parse_size_of("--min-size", options.min_size));
    }
    TRY(Rate::of(options));
    Source source = TRY(Source::open(options.file));
    end_waits_on_signals();
    const auto begin = Session::Clock::now();
    Order order = TRY(order_of(source));
    order.label = options.label;
    const auto write = [&](const Where &server, const Order &ordered) {
        return push_tagged(server, source, ordered, options);
    };
    Replicas replicas = TRY(Replicas::ask(group.servers, options.timeout_seconds, write));
    if (const auto told = wait_for_tags(group, replicas, quorum, For::Push, options); !told) {
        return failed(told.error().exit, "{}; nothing was committed", told.error().text);
    }
    const Tag newest = newest_of(replicas, {Reply::State::Present, Reply::State::Forgot});
    const std::uint64_t epoch = options.epoch.value_or(0);
    if (newest.epoch > epoch) {
        return failed(Exit::Refused,
                      "{}: a server has a content of epoch {}, which fences epoch {} (--epoch)", group.name,
                      newest.epoch, epoch);
    }
    if (newest.number >= largest_number) {
        return failed(Exit::Refused, "{}: a server has the tag {}, after which there is none", group.name,
                      tag_text(newest));
    }
    order.tag = {epoch, newest.number + 1, random_number()};
    replicas.order(order);
    if (const auto waited = wait_for_commits(replicas, quorum, grace); !waited) {
        return std::unexpected{Failure{
            fmt::format("{}: {}; a later pull finds the old content, or the new one, which has the tag {}",
                        group.name, waited.error().text, tag_text(order.tag)),
            Exit::Unknown, 0, order.checksum}};
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
        const Reply &reply = replicas.replies()[i];
        if (reply.state == Reply::State::Newer && reply.tag.epoch > epoch) {
            replicas.exclude(i, {fmt::format("{}: has a content of epoch {}, which fences epoch {} (--epoch)",
                                             group.servers[i].address.text(), reply.tag.epoch, epoch),
                                 Exit::Refused});
        }
    }
    TRY(check_push(group, replicas, order, quorum, options));
    const std::chrono::duration<double> took = Session::Clock::now() - begin;
    const std::size_t have = count(replicas, {Reply::State::Committed, Reply::State::Newer});
    print_summary("push", options, group, replicas, order, have, took.count());
    if (have < group.size()) {  // for those who keep only standard error
        std::fputs(fmt::format("rpma: {}: committed on {} of {} servers{}\n", group.name, have, group.size(),
                               reasons_of(group, replicas))
                       .c_str(),
                   stderr);
    }
    return {};
}

namespace {

// The content that was pulled, and the server that gave it.
struct PulledNewest {
    Order order;
    std::size_t server = 0;
    std::uint64_t received = 0;
};

// Returns the label of a content, which its server tells beside it; empty when it is gone meanwhile.
std::string label_of(const Where &server, const Tag &tag, const TransferOptions &options) {
    const auto contents = ask_for_list(server, options);
    if (!contents) {
        return {};
    }
    const auto found = std::ranges::find(*contents, tag, [](const Listed &one) { return one.note.tag; });
    return found != contents->end() ? found->note.label.substr(0, longest_label) : "";
}

// Pulls the newest content from a server that told its tag.
Outcome<PulledNewest> pull_from(const Group &group, std::size_t server, const Tag &newest,
                                Destination &destination, const PullOptions &options) {
    PullOptions own = options;
    own.address = group.servers[server].address.text();
    const auto pulled = TRY(receive(group.servers[server], destination, own));
    const Tag tag = pulled.session->offer().tag;
    pulled.session->close();
    if (tag < newest) {
        return failed("{}: has an older content than it said", own.address);
    }
    TRY(destination.cut(pulled.content.length));  // another server may have given more before it failed
    return PulledNewest{{tag, pulled.content.length, pulled.content.checksum, {}}, server, pulled.received};
}

// Pulls the newest content of a majority. The tag of a server that cannot give it counts nevertheless, as
// long as another one has that tag too. When none of them can, they are left out, and another majority is
// needed. The servers that could not give their content have to commit it again.
Outcome<PulledNewest> pull_newest(const Group &group, Replicas &replicas, Destination &destination,
                                  const PullOptions &options) {
    std::map<std::size_t, Failure> failures;  // of servers
    const auto exclude_failed = [&] {
        for (const auto &[server, why] : std::exchange(failures, {})) {
            replicas.exclude(server, why);
        }
    };
    while (true) {
        TRY(wait_for_tags(group, replicas, group.majority(), For::Pull, options));
        const Tag newest = newest_of(replicas, {Reply::State::Present});
        if (!newest) {
            return failed(Exit::Refused, "{}: nothing was pushed to these servers yet", group.name);
        }
        std::size_t server = 0;
        const auto can_give = [&](const Reply &reply) {
            return reply.state == Reply::State::Present && reply.tag == newest && !failures.contains(server);
        };
        while (server < group.size() && !can_give(replicas.replies()[server])) {
            ++server;
        }
        if (server == group.size()) {
            exclude_failed();
            continue;
        }
        auto pulled = pull_from(group, server, newest, destination, options);
        if (interrupted()) {
            return failed("interrupted");
        }
        if (pulled) {
            exclude_failed();
            return pulled;
        }
        failures.emplace(server, pulled.error());
    }
}

}  // namespace

Outcome<> pull_from_several(const PullOptions &options) {
    const Group group = TRY(group_of(options.addresses));
    TRY(Rate::of(options));
    Destination destination = TRY(Destination::open(options.file));
    if (destination.file() < 0) {
        return failed(Exit::Usage, "{}: expected a file, from which a content can be written back",
                      options.file);
    }
    end_waits_on_signals();
    const auto begin = Session::Clock::now();
    PushOptions writing;
    static_cast<TransferOptions &>(writing) = static_cast<const TransferOptions &>(options);
    const auto write = [&](const Where &server, const Order &ordered) -> Reply {
        auto source = Source::of(destination.file(), options.file);
        return source ? push_tagged(server, *source, ordered, writing) : failed_reply(source.error());
    };
    Replicas replicas = TRY(Replicas::ask(group.servers, options.timeout_seconds, write));
    auto [order, server, received] = TRY(pull_newest(group, replicas, destination, options));
    const auto lacks_it = [&](const Reply &reply) {
        return reply.state == Reply::State::Present && reply.tag < order.tag;
    };
    const bool writes_back = std::ranges::any_of(replicas.replies(), lacks_it) ||
                             count(replicas, {Reply::State::Present}) < group.size();
    if (writes_back) {
        order.label = label_of(group.servers[server], order.tag, options);
    }
    replicas.order(order);
    TRY(wait_for_commits(replicas, group.majority(), {}));
    const std::size_t have = count(replicas, {Reply::State::Committed, Reply::State::Newer});
    if (have < group.majority()) {
        print_rows(group, replicas, options);
        return failed(
            exit_of(replicas),
            "{}: the content of the tag {} is on {} of {} servers, and could not be written back to a "
            "majority; {} was not written{}",
            group.name, tag_text(order.tag), have, group.size(), options.file, reasons_of(group, replicas));
    }
    TRY(destination.publish(order.length));
    const std::chrono::duration<double> took = Session::Clock::now() - begin;
    print_summary("pull", options, group, replicas, order, have, took.count(), received);
    return {};
}

}  // namespace cli
