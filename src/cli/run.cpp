// SPDX-License-Identifier: BSD-3-Clause
// cli/run: `rpma run PROGRAM` starts a verbs program on the soft device, by LD_PRELOAD.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands.hpp"

namespace cli {

namespace {

namespace fs = std::filesystem;

// From the folder above that of this command: where it is built, and where it is installed.
constexpr std::array library_places{"lib/softrdma/libsoftrdma-verbs.so",
                                    RPMA_INSTALL_LIBDIR "/softrdma/libsoftrdma-verbs.so"};

// Empty when it is in none of them.
fs::path library() {
    std::error_code error;
    const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
    for (const char *const place : library_places) {
        if (fs::exists(prefix / place, error)) {
            return prefix / place;
        }
    }
    return {};
}

Outcome<> run(const std::vector<std::string> &words) {
    const fs::path preload = library();
    if (preload.empty()) {
        return failed("libsoftrdma-verbs.so is not where it was installed, below {}", RPMA_INSTALL_LIBDIR);
    }
    // ld.so(8) takes both for the end of a name, and runs the program without the library.
    if (preload.string().find_first_of(" :") != std::string::npos) {
        return failed("{} cannot be preloaded (expected a path without spaces and colons)", preload.string());
    }
    const char *const others = std::getenv("LD_PRELOAD");
    const std::string all = preload.string() + (others != nullptr ? fmt::format(":{}", others) : "");
    std::vector<char *> arguments;
    arguments.reserve(words.size() + 1);
    for (const std::string &word : words) {
        arguments.push_back(const_cast<char *>(word.c_str()));  // execvp does not write to them
    }
    arguments.push_back(nullptr);
    setenv("LD_PRELOAD", all.c_str(), 1);
    std::signal(SIGPIPE, SIG_DFL);  // main() ignores it
    execvp(arguments[0], arguments.data());
    return failed(errno == ENOENT ? Exit::NotFound : Exit::NotExecutable, "cannot run {}: {}", words[0],
                  errno_text(errno));  // as a shell
}

}  // namespace

void add_run(CLI::App &app, Command &chosen) {
    CLI::App *const command =
        app.add_subcommand("run", "Run a verbs program on the soft device, with no RDMA device");
    command->footer("rpma run PROGRAM [ARGUMENT...]: what follows the program's name is the program's.");
    command->prefix_command();
    command->fallthrough(false);
    command->callback([command, &chosen] {
        if (command->remaining().empty()) {
            throw CLI::RequiredError("PROGRAM");
        }
        chosen = [words = command->remaining()] { return run(words); };
    });
}

}  // namespace cli
