// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/list: `rpma list` prints the contents of a store, and `rpma rollback` makes one of them the
// newest.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "cli/transfer/transfer.hpp"

namespace cli {

namespace {

struct RollbackOptions : TransferOptions {
    std::uint64_t sequence = 0;  // 0 is the content before the newest
};

Outcome<> list(const TransferOptions &options) {
    const Where where = TRY(parse_where(options.address));
    end_waits_on_signals();
    std::vector<Facts> rows;
    for (const Listed &content : TRY(ask_for_list(where, options))) {
        rows.push_back(facts_of(content));
    }
    if (options.json) {
        Summary summary;
        summary.add_json("contents", json_of(rows));
        summary.print(true);
    } else {
        print(rows.empty() ? "no contents\n" : table_of(rows));
    }
    return {};
}

// Returns the last good content that was pushed before the newest one, which may be an earlier one again.
Outcome<Listed> find_earlier(std::span<const Listed> contents, const std::string &address) {
    if (contents.empty()) {
        return failed(Exit::Refused, "{}: has no content", address);
    }
    const Note &newest = contents.back().note;
    const auto is_newest = [&](const Listed &content) {
        return !newest.time.empty() && are_same(content.note, newest);  // one without a note has no time
    };
    auto pushed = std::ranges::find_if(contents, is_newest);
    pushed = pushed != contents.end() ? pushed : std::prev(pushed);
    const std::span earlier{contents.begin(), pushed};
    const auto good =
        std::ranges::find_if(earlier.rbegin(), earlier.rend(), &std::string::empty, &Listed::fault);
    if (good == earlier.rend()) {
        return failed(Exit::Refused, "{}: has no {}content before content {}", address,
                      earlier.empty() ? "" : "good ", pushed->sequence);
    }
    return *good;
}

// Finds the content that shall be the newest.
Outcome<Listed> find_wanted(std::span<const Listed> contents, const RollbackOptions &options) {
    if (options.sequence == 0) {
        return find_earlier(contents, options.address);
    }
    const auto found = std::ranges::find(contents, options.sequence, &Listed::sequence);
    if (found == contents.end()) {
        return failed(Exit::Refused, "{}: has no content {} (rpma list)", options.address, options.sequence);
    }
    if (!found->fault.empty()) {
        return failed(Exit::NotCommitted, "{}: content {} {}; nothing was committed", options.address,
                      found->sequence, found->fault);
    }
    return *found;
}

Outcome<> rollback(const RollbackOptions &options) {
    Where where = TRY(parse_where(options.address));
    where.name = name_of(where);
    end_waits_on_signals();
    const auto contents = TRY(ask_for_list(where, options));
    const Listed wanted = TRY(find_wanted(contents, options));
    if (std::ranges::any_of(contents, [](const Listed &content) { return bool{content.note.tag}; })) {
        return failed(Exit::Refused,
                      "{}: {} is kept on several servers, where no content is committed again (expected rpma "
                      "pull --sequence {} from this one, and a push of that to all of them)",
                      options.address, where.name, wanted.sequence);
    }
    const auto session = TRY(open_push(where, options));
    if (session->offer().sequence != contents.back().sequence + 1) {
        return failed(Exit::Refused, "{}: another content was committed meanwhile; nothing was changed",
                      options.address);
    }
    const auto unknown = [&](const std::string &text) {
        return std::unexpected{
            Failure{fmt::format("{}; the newest content is {}, as before, or content {}, which is {} again",
                                text, contents.back().sequence, session->offer().sequence, wanted.sequence),
                    Exit::Unknown, session->offer().sequence, wanted.note.checksum}};
    };
    const auto answered = session->roll_back(wanted.sequence);
    if (!answered) {
        return unknown(answered.error().text);
    }
    const Answer &answer = *answered;
    session->close();
    if (answer.verdict == Verdict::Unknown) {
        return unknown(fmt::format("{}: the server could not make the rollback durable: {}", options.address,
                                   errno_text(answer.error)));
    }
    if (answer.verdict != Verdict::Done) {
        return failed(Exit::NotCommitted, "{}: content {} was not committed again: {}", options.address,
                      wanted.sequence,
                      answer.verdict == Verdict::Different ? "it is damaged" : errno_text(answer.error));
    }
    Summary summary;
    summary.add_json("command", "rollback");
    summary.add("address", options.address);
    summary.add("from", wanted.sequence, std::to_string(wanted.sequence));
    summary.add("bytes", wanted.note.length, std::to_string(wanted.note.length));
    summary.add("checksum", checksum_text(wanted.note.checksum));
    summary.add("sequence", answer.sequence, std::to_string(answer.sequence));
    summary.print(options.json);
    return {};
}

}  // namespace

Outcome<std::vector<Listed>> ask_for_list(const Where &where, const TransferOptions &options) {
    const auto session = TRY(
        Session::open(where.address, {.version = protocol_version, .mode = Mode::List, .name = where.name},
                      options.timeout_seconds));
    const std::string text = TRY(session->look(options.longest_list));
    session->close();
    auto list = decode_list(text);
    if (!list) {
        return failed("{}: {}", options.address, list.error().text);
    }
    return list;
}

Facts facts_of(const Listed &content) {
    const Note &note = content.note;
    const std::string from =
        note.identity.empty() ? note.host : fmt::format("{} ({})", note.host, note.identity);
    const std::string tag = note.tag ? tag_text(note.tag) : "";
    return {{"name", "NAME", content.name, shown(content.name)},
            {"sequence", "SEQUENCE", content.sequence, std::to_string(content.sequence)},
            {"time", "TIME", note.time, shown(note.time)},
            {"bytes", "BYTES", note.length, std::to_string(note.length)},
            {"checksum", "CHECKSUM", checksum_text(note.checksum), checksum_text(note.checksum)},
            {"host", "FROM", note.host, shown(from)},
            {"identity", "", or_null(note.identity), ""},
            {"label", "LABEL", note.label, shown(note.label)},
            {"tag", "", or_null(tag), tag},
            {"fault", "", content.fault, content.fault.empty() ? "" : "FAULT: " + shown(content.fault)}};
}

void add_list(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<TransferOptions>();
    CLI::App *command =
        add_transfer(app, chosen, "list", "List the contents of a served store", options, list);
    command->add_option("ADDRESS[:PORT][/NAME]", options->address, where_served)->required();
}

void add_rollback(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<RollbackOptions>();
    CLI::App *command = add_transfer(
        app, chosen, "rollback", "Make an earlier content of a served store the newest", options, rollback);
    command->add_option("ADDRESS[:PORT][/NAME]", options->address, where_served)->required();
    command
        ->add_option("--sequence", options->sequence,
                     "The content; without it the one before the newest (rpma list)")
        ->type_name("NUMBER")
        ->transform(CLI::Validator{whole_number_between(1), ""});
    add_wait(*command, *options);
}

}  // namespace cli
