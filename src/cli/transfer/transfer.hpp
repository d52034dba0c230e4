// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/transfer: the code that push and pull share.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/checksum.hpp"
#include "cli/commands.hpp"
#include "cli/pace.hpp"
#include "cli/protocol/health.hpp"
#include "cli/protocol/note.hpp"
#include "cli/report.hpp"
#include "cli/transfer/session.hpp"

namespace cli {

inline constexpr std::uint64_t longest_text = std::uint64_t{1}
                                              << 30;  // a list of a million contents has less

struct TransferOptions {
    std::string file;
    std::string address;
    double timeout_seconds = 30;
    std::string rate;         // bytes for each second; empty without a limit
    double wait_seconds = 2;  // the server notices a killed push within moments
    bool json = false;
    std::uint64_t longest_list = longest_text;  // in bytes
};

// Adds a subcommand that ends in `run`. The caller adds its positional arguments, in its own order.
template <typename Options>
CLI::App *add_transfer(CLI::App &app, Command &chosen, const char *name, const char *description,
                       const std::shared_ptr<Options> &options, Outcome<> (*run)(const Options &)) {
    CLI::App *command = app.add_subcommand(name, description);
    command
        ->add_option("--timeout", options->timeout_seconds,
                     "Give up after this many seconds without an answer")
        ->check(number_between(0.1, 3600), "0.1 to 3600")
        ->capture_default_str();
    add_tls(*command);
    command->add_flag("--json", options->json, "Print the summary as JSON");
    command->callback([options, run, &chosen] { chosen = [options, run] { return run(*options); }; });
    return command;
}

// Adds --rate to a command that moves a content.
inline void add_rate(CLI::App &command, TransferOptions &options) {
    command.add_option("--rate", options.rate, "Move at most so many bytes each second, 64K or more")
        ->type_name("SIZE");
}

// Keeps a transfer to the rate that the options say.
class Rate {
public:
    [[nodiscard]] static Outcome<Rate> of(const TransferOptions &options);

    // Returns how many of the bytes to move at once.
    [[nodiscard]] std::size_t piece(std::size_t bytes) const {
        return pace_.rate() == 0 ? bytes : std::min<std::uint64_t>(bytes, pace_.rate() / 4);
    }
    // Counts bytes that have moved, and waits until the next may. The server learns that the client is
    // active.
    [[nodiscard]] Outcome<> wait(Session &session, std::uint64_t bytes);

private:
    explicit Rate(std::uint64_t rate) : pace_{rate} {}
    Pace pace_;
};

// Adds --wait to a command that pushes.
inline void add_wait(CLI::App &command, TransferOptions &options) {
    command.add_option("--wait", options.wait_seconds, "Wait this many seconds for another push to end")
        ->check(number_between(0, 86400), "0 to 86400")
        ->capture_default_str();
}

// Opens a session that pushes, and waits for another push of that name to end, as long as the options say.
// One that gives its content no tag is refused where the name has tags.
enum class HasTag : bool { No, Yes };
[[nodiscard]] Outcome<std::unique_ptr<Session>> open_push(const Where &where, const TransferOptions &options,
                                                          HasTag has_tag = HasTag::No);
// Returns the contents of a name, or of all, from the oldest to the newest of each.
[[nodiscard]] Outcome<std::vector<Listed>> ask_for_list(const Where &where, const TransferOptions &options);

// Returns what a server tells of itself. `text` is the address, for people.
[[nodiscard]] Outcome<Health> ask_for_health(const Address &address, const std::string &text,
                                             double timeout_seconds, std::uint64_t longest = longest_text);

// Refuses an option among the addresses, which is one behind --.
inline void check_addresses(const std::vector<std::string> &addresses) {
    for (const std::string &address : addresses) {
        if (address.starts_with('-')) {
            throw CLI::ValidationError(address, "an argument too many, because it stands behind --");
        }
    }
}

// Returns the row of a content, for a table.
[[nodiscard]] Facts facts_of(const Listed &content);

// Returns the name of a content that a client pushes or pulls.
[[nodiscard]] inline std::string name_of(const Where &where) {
    return where.name.empty() ? std::string{default_name} : where.name;
}

// Adds the beginning of both summaries; `seconds` is the time that the transfer took.
inline void add_to_summary(Summary &summary, const TransferOptions &options, const Session &session,
                           const Content &content, double seconds) {
    const double rate = static_cast<double>(content.length) / seconds;
    summary.add("file", options.file);
    summary.add("address", options.address);
    summary.add("device", session.device());
    summary.add("bytes", content.length, std::to_string(content.length));
    summary.add_json("seconds", seconds);
    summary.add_json("bytes_per_second", rate);
    summary.add_text("throughput", format_size(rate) + "/s in " + format_seconds(seconds));
    summary.add("checksum", checksum_text(content.checksum));
    summary.add("sequence", content.sequence, std::to_string(content.sequence));
}

}  // namespace cli
