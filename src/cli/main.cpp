// SPDX-License-Identifier: BSD-3-Clause
// cli/main: the `rpma` command.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/checksum.hpp"
#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "cli/report.hpp"

namespace {

using cli::Exit;
using cli::Failure;

using Words = std::vector<std::string_view>;

// Finds the command. No option before it has a value.
Words::const_iterator find_command(const Words &words) {
    return std::ranges::find_if(words, [](auto word) { return !word.starts_with('-'); });
}

Words::const_iterator find_run(const Words &words) {
    const auto command = find_command(words);
    return command != words.end() && *command == "run" ? command : words.end();
}

// Finds the -- that stands before the program of `run`, perhaps behind options of run. The program's name may
// begin with a dash then.
Words::const_iterator find_program_mark(const CLI::App &app, const Words &words) {
    auto word = find_run(words);
    if (word == words.end()) {
        return word;
    }
    const CLI::App *const run = app.get_subcommand("run");
    for (++word; word != words.end() && word->starts_with('-') && *word != "--"; ++word) {
        const CLI::Option *const option = run->get_option_no_throw(std::string{*word});
        if (option != nullptr && option->get_items_expected_max() > 0 && word + 1 != words.end()) {
            ++word;  // its value
        }
    }
    return word != words.end() && *word == "--" ? word : words.end();
}

// Finds the program of `push --run`.
Words::const_iterator find_pushed_program(const Words &words) {
    const auto command = find_command(words);
    const auto option = command != words.end() && *command == "push"
                            ? std::find(command, std::ranges::find(words, "--"), "--run")
                            : words.end();
    return option != words.end() && *option == "--run" ? option + 1 : words.end();
}

// Returns the words without the program of `push --run`. Its output stands for standard input.
Words without_program(const Words &words, Words::const_iterator program) {
    Words rest{words.begin(), program};
    if (!rest.empty() && rest.back() == "--run") {
        rest.insert(rest.begin() + (find_command(words) - words.begin()) + 1, "-");
    }
    return rest;
}

// This looks at the words, because the answer is in JSON also when the command line is not valid.
bool wants_json(const Words &words) {
    const auto end = std::min(std::ranges::find(words, "--"), find_pushed_program(words));
    return find_run(words) == words.end() && std::find(words.begin(), end, "--json") != end;
}

// Marks the arguments of push and pull that are in brackets.
void mark_brackets(const CLI::App &app, std::vector<std::string> &words) {
    const auto command =
        std::ranges::find_if(words, [](const std::string &word) { return !word.starts_with('-'); });
    if (command == words.end() || (*command != "push" && *command != "pull")) {
        return;
    }
    const CLI::App *const chosen = app.get_subcommand(*command);
    bool are_options = true;
    for (auto word = command + 1; word != words.end(); ++word) {
        const CLI::Option *const option = are_options ? chosen->get_option_no_throw(*word) : nullptr;
        if (are_options && *word == "--") {
            are_options = false;
        } else if (word->starts_with("--") && option != nullptr && option->get_items_expected_max() > 0) {
            word += word + 1 != words.end() ? 1 : 0;  // its value
        } else if (word->starts_with('[') && word->ends_with(']')) {
            *word += cli::bracket_mark;
        }
    }
}

// Returns the words in the order in which CLI11 takes them, from the last to the first. CLI11 would take a --
// of `run` for the end of all commands. `help COMMAND` is another form of `COMMAND --help`.
std::vector<std::string> words_to_parse(const CLI::App &app, const Words &words) {
    std::vector<std::string> parsed{words.begin(), words.end()};
    const auto command = parsed.begin() + (find_command(words) - words.begin());
    if (const auto mark = find_program_mark(app, words); mark != words.end()) {
        parsed.erase(parsed.begin() + (mark - words.begin()));
    } else if (command != parsed.end() && *command == "help") {
        parsed.erase(command);
        parsed.emplace_back("--help");
    }
    mark_brackets(app, parsed);
    std::ranges::reverse(parsed);
    return parsed;
}

Exit complain(const Failure &failure, bool json) {
    std::fputs(fmt::format("rpma: {}\n", failure.text).c_str(), stderr);
    if (json) {
        cli::Summary summary;
        summary.add_json("error", failure.text);
        summary.add_json("outcome", cli::exit_text(failure.exit));
        summary.add_json("exit", static_cast<int>(failure.exit));
        if (failure.exit == Exit::Unknown) {
            summary.add_json("sequence", failure.sequence);
            summary.add_json("checksum", cli::checksum_text(failure.checksum));
        }
        summary.print(true);
    }
    return failure.exit;
}

std::string suggest(const std::string &word, const std::vector<std::string> &candidates) {
    const std::string nearest = cli::nearest(word, candidates);
    return nearest.empty() ? std::string{} : fmt::format(", did you mean {}?", nearest);
}

// Returns the words of a message that name the help to read.
std::string help_of(const CLI::App &app) {
    const auto chosen = app.get_subcommands();
    return fmt::format("(see rpma{} --help)", chosen.empty() ? "" : " " + chosen.front()->get_name());
}

// Returns the failure for a word that no option and no argument took.
Failure unknown_word(const CLI::App &app, const std::string &word) {
    std::vector<std::string> known;
    const auto chosen = app.get_subcommands();
    if (chosen.empty()) {
        for (const CLI::App *command : app.get_subcommands({})) {
            known.push_back(command->get_name());
        }
    }
    for (const CLI::App *command : {&app, chosen.empty() ? &app : chosen.front()}) {
        for (const CLI::Option *option : command->get_options()) {
            for (const std::string &name : option->get_lnames()) {
                known.push_back("--" + name);
            }
        }
    }
    if (std::ranges::find(known, word) != known.end()) {
        return {fmt::format("{}: an argument too many, because it stands behind -- {}", word, help_of(app)),
                Exit::Usage};
    }
    const char *const kind = word.starts_with('-') ? "option" : (chosen.empty() ? "command" : "argument");
    return {fmt::format("{}: unknown {}{} {}", word, kind, suggest(word, known), help_of(app)), Exit::Usage};
}

// An empty value is what a script makes of a variable that is not set. CLI11 would take most options with one
// for options that were not given, so that a push would go without its --if-sequence. An empty label is none.
void refuse_empty_values(CLI::App &app) {
    const auto check = [](const std::string &value) {
        return std::string{value.empty() ? "is empty (expected a value)" : ""};
    };
    for (CLI::App *command : app.get_subcommands({})) {
        for (CLI::Option *option : command->get_options()) {
            if (option->nonpositional() && option->get_items_expected_max() > 0 &&
                !option->check_lname("label")) {
                option->check(check);
            }
        }
    }
}

// Returns the words that no option took. The words of a program that is run are its own.
std::vector<std::string> unknown_words(const CLI::App &app, const Words &given) {
    const bool runs = app.got_subcommand("run");
    auto words = app.remaining(!runs);
    std::erase(words, "--");  // the words after it were taken, also when they begin with a dash
    if (runs && find_program_mark(app, given) == given.end()) {
        const auto program = app.get_subcommand("run")->remaining();
        if (!program.empty() && program.front().starts_with('-')) {
            words.push_back(program.front());
        }
    }
    return words;
}

cli::Outcome<> parse(CLI::App &app, const Words &given, const cli::Command &chosen) {
    try {
        app.parse(words_to_parse(app, given));
    } catch (const CLI::Success &) {  // --help
        const auto words = unknown_words(app, given);
        if (words.empty() || !app.get_subcommands().empty()) {
            throw;
        }
        return std::unexpected{unknown_word(app, words.front())};
    } catch (const CLI::ParseError &error) {
        // The reason may be an option whose name is wrong.
        const auto words = unknown_words(app, given);
        const auto option =
            std::ranges::find_if(words, [](const auto &word) { return word.starts_with('-'); });
        return option != words.end() ? std::unexpected{unknown_word(app, *option)}
                                     : cli::failed(Exit::Usage, "{} {}", error.what(), help_of(app));
    }
    const auto words = unknown_words(app, given);
    if (!words.empty()) {
        return std::unexpected{unknown_word(app, words.front())};
    }
    return chosen ? cli::Outcome<>{} : cli::failed(Exit::Usage, "expected a command (see rpma --help)");
}

// Returns the exit code of a command that was done, and whose output may be lost.
Exit said() {
    const int unprinted = cli::print_failure();
    if (unprinted == EPIPE) {
        return Exit::Failed;  // the reader closed the output and needs no message
    }
    return unprinted == 0
               ? Exit::Done
               : complain({fmt::format("standard output: cannot write: {}; everything else was done",
                                       cli::errno_text(unprinted))},
                          false);
}

Exit run(const Words &words, bool json) {
    CLI::App app{"Remote persistent memory over RDMA, with or without RDMA hardware.", "rpma"};
    cli::Command chosen;
    bool verbose = false;
    app.set_version_flag("--version", "rpma " RPMA_VERSION, "Print the version and exit");
    app.add_flag("--verbose", verbose, "Print librpma's log to standard error");
    app.footer(
        "RPMA_DEVICE=auto|kernel|soft chooses the kind of device; auto takes the kernel's where there is "
        "one.");
    app.require_subcommand(0, 1);
    app.allow_extras();
    app.fallthrough();
    cli::add_devices(app, chosen);
    cli::add_serve(app, chosen);
    const auto program = find_pushed_program(words);
    cli::add_push(app, chosen, {program, words.end()});
    cli::add_pull(app, chosen);
    cli::add_list(app, chosen);
    cli::add_rollback(app, chosen);
    cli::add_status(app, chosen);
    cli::add_check(app, chosen);
    cli::add_sockets(app, chosen);
    cli::add_perf(app, chosen);
    cli::add_keygen(app, chosen);
    cli::add_run(app, chosen);
    cli::add_completion(app, chosen);
    refuse_empty_values(app);
    try {
        if (const auto parsed = parse(app, without_program(words, program), chosen); !parsed) {
            return complain(parsed.error(), json);
        }
    } catch (const CLI::Success &wanted) {
        std::ostringstream text;
        (void)app.exit(wanted, text, text);
        cli::print(isatty(STDOUT_FILENO) == 1
                       ? cli::wrapped(text.str(), cli::columns_of_terminal(STDOUT_FILENO))
                       : text.str());
        return said();
    }
    cli::take_log(verbose);
    if (const auto done = chosen(); !done) {
        return complain(done.error(), json);
    }
    // A server's output is not its work, so a failed print does not matter.
    return app.got_subcommand("serve") ? Exit::Done : said();
}

}  // namespace

// A descriptor of standard input, output or error that is closed would be that of the next file, and what is
// printed would go into it. It is opened for reading, so that writing to it fails as before.
static void hold_standard_descriptors() {
    for (int fd = 0; fd <= 2; ++fd) {
        if (fcntl(fd, F_GETFD) == -1) {
            (void)open("/dev/null", O_RDONLY);  // takes the lowest number that is free
        }
    }
}

int main(int argc, char **argv) {
    hold_standard_descriptors();
    // A reader that closes our output must not end a server.
    std::signal(SIGPIPE, SIG_IGN);
    // A file that may not grow so large is a failure of one transfer (EFBIG), and must not end a server
    // either.
    std::signal(SIGXFSZ, SIG_IGN);
    const Words words{argv + std::min(argc, 1), argv + argc};
    const bool json = wants_json(words);
    Exit exit = Exit::Failed;
    try {
        exit = run(words, json);
    } catch (const std::exception &error) {
        exit = complain({error.what()}, json);
    }
    if (exit != Exit::Done) {
        // This skips the two seconds that the soft device would wait for the rest of a connection that
        // failed.
        std::fflush(nullptr);
        std::_Exit(static_cast<int>(exit));
    }
    return 0;
}
