// SPDX-License-Identifier: BSD-3-Clause
// cli/completion: `rpma completion SHELL` prints what has a shell complete the words of this command, made
// from the commands and options themselves.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "cli/report.hpp"

namespace cli {

namespace {

enum class Value { None, File, Folder, Other };

struct Word {
    std::string option;  // with its dashes
    std::string text;    // what it does, for people
    Value value;
};

struct Described {
    std::string name;
    std::string text;
    std::vector<Word> options;
};

Value value_of(const CLI::Option &option) {
    const std::string type = option.get_type_name();
    if (option.get_items_expected_max() == 0) {
        return Value::None;
    }
    return type == "FILE" ? Value::File : type == "DIR" ? Value::Folder : Value::Other;
}

std::vector<Word> options_of(const CLI::App &command) {
    std::vector<Word> words;
    for (const CLI::Option *option : command.get_options()) {
        for (const std::string &name :
             option->get_group().empty() ? std::vector<std::string>{} : option->get_lnames()) {
            words.push_back({"--" + name, option->get_description(), value_of(*option)});
        }
    }
    return words;
}

std::vector<Described> commands_of(const CLI::App &app) {
    std::vector<Described> commands;
    for (const CLI::App *command : app.get_subcommands({})) {
        commands.push_back({command->get_name(), command->get_description(), options_of(*command)});
    }
    return commands;
}

std::string joined(const std::vector<std::string> &words, std::string_view between) {
    std::string text;
    for (const std::string &word : words) {
        text += (text.empty() ? std::string_view{} : between);
        text += word;
    }
    return text;
}

std::vector<std::string> names_of(const std::vector<Described> &commands) {
    std::vector<std::string> names;
    std::ranges::transform(commands, std::back_inserter(names), &Described::name);
    return names;
}

std::vector<std::string> names_of(const std::vector<Word> &words) {
    std::vector<std::string> names;
    std::ranges::transform(words, std::back_inserter(names), &Word::option);
    return names;
}

// Returns text without the characters that a shell, or its form of a description, gives a meaning.
std::string plain(std::string text) {
    std::erase_if(text, [](char c) { return std::string_view{"'\"\\[]:`$"}.contains(c); });
    return text;
}

std::string bash_of(const CLI::App &app) {
    const auto commands = commands_of(app);
    std::string values;
    std::string words;
    for (const Described &command : commands) {
        for (const Word &word : command.options) {
            if (word.value != Value::None) {
                const char *const what = word.value == Value::File     ? "compgen -f"
                                         : word.value == Value::Folder ? "compgen -d"
                                                                       : "true";
                values += fmt::format("    {}/{}) mapfile -t COMPREPLY < <({} -- \"$word\"); return ;;\n",
                                      command.name, word.option, what);
            }
        }
        words += fmt::format("    {}) words='{}' ;;\n", command.name, joined(names_of(command.options), " "));
    }
    return fmt::format(R"(# SPDX-License-Identifier: BSD-3-Clause
# bash completion for rpma. `rpma completion bash` printed it.
_rpma() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command='' words i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
        {0}) command=${{COMP_WORDS[i]}}; break ;;
        esac
    done
    case $command/${{COMP_WORDS[COMP_CWORD - 1]}} in
{1}    esac
    case $command in
    '') words='{2} {3}' ;;
{4}    esac
    if [[ -z $command || $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}}
complete -o filenames -F _rpma rpma
)",
                       joined(names_of(commands), " | "), values, joined(names_of(commands), " "),
                       joined(names_of(options_of(app)), " "), words);
}

std::string zsh_of(const CLI::App &app) {
    const auto specification = [](const Word &word) {
        const char *const value = word.value == Value::None     ? ""
                                  : word.value == Value::File   ? ":file:_files"
                                  : word.value == Value::Folder ? ":folder:_files -/"
                                                                : ":value: ";
        return fmt::format("'{}[{}]{}'", word.option, plain(word.text), value);
    };
    std::string commands;
    std::string cases;
    for (const Described &command : commands_of(app)) {
        commands += fmt::format("        '{}:{}'\n", command.name, plain(command.text));
        cases += fmt::format("    {})\n        _arguments", command.name);
        for (const Word &word : command.options) {
            cases += " \\\n            " + specification(word);
        }
        cases += " \\\n            '*:file:_files'\n        ;;\n";
    }
    std::string own;
    for (const Word &word : options_of(app)) {
        own += " \\\n        " + specification(word);
    }
    return fmt::format(R"(#compdef rpma
# SPDX-License-Identifier: BSD-3-Clause
# zsh completion for rpma. `rpma completion zsh` printed it.
_rpma() {{
    local curcontext=$curcontext state line
    local -a commands
    commands=(
{0}    )
    _arguments -C{1} \
        '1: :->command' '*:: :->words'
    case $state in
    command) _describe command commands; return ;;
    esac
    case $line[1] in
{2}    esac
}}
_rpma "$@"
)",
                       commands, own, cases);
}

std::string fish_of(const CLI::App &app) {
    std::string text =
        "# SPDX-License-Identifier: BSD-3-Clause\n"
        "# fish completion for rpma. `rpma completion fish` printed it.\n";
    const auto add = [&text](const Word &word, const std::string &condition) {
        const char *const value = word.value == Value::None    ? ""
                                  : word.value == Value::Other ? " -x"
                                                               : " -r -F";
        text += fmt::format("complete -c rpma -n '{}' -l {}{} -d '{}'\n", condition, word.option.substr(2),
                            value, plain(word.text));
    };
    for (const Word &word : options_of(app)) {
        add(word, "__fish_use_subcommand");
    }
    for (const Described &command : commands_of(app)) {
        text += fmt::format("complete -c rpma -f -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                            plain(command.text));
        for (const Word &word : command.options) {
            add(word, "__fish_seen_subcommand_from " + command.name);
        }
    }
    return text;
}

}  // namespace

void add_completion(CLI::App &app, Command &chosen) {
    auto shell = std::make_shared<std::string>();
    CLI::App *const command =
        app.add_subcommand("completion", "Print what has a shell complete the words of rpma");
    command->add_option("SHELL", *shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    command->callback([&app, &chosen, shell] {
        chosen = [&app, shell]() -> Outcome<> {
            print(*shell == "bash" ? bash_of(app) : *shell == "zsh" ? zsh_of(app) : fish_of(app));
            return {};
        };
    });
}

}  // namespace cli
