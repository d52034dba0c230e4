// SPDX-License-Identifier: BSD-3-Clause
// cli/run/run: `rpma run PROGRAM` starts a verbs program on the soft device, and `rpma run --sockets PROGRAM`
// starts a program whose TCP connections may go through memory, or over a device. Both use LD_PRELOAD.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "cli/carried.hpp"
#include "cli/commands.hpp"
#include "cli/run/executable.hpp"

namespace cli {

namespace {

namespace fs = std::filesystem;

struct Options {
    bool sockets = false;
    bool roce = false;
    std::string stats;  // empty for none, "true" for standard error, or a file
    std::string device;
    std::vector<std::string> words;
};

// Finds a library, built or installed, from the folder above that of this command. Returns an empty path when
// there is none.
fs::path library(std::string_view name) {
    std::error_code error;
    const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
    for (const char *const place : {"lib", RPMA_INSTALL_LIBDIR}) {
        const fs::path path = prefix / place / "softrdma" / name;
        if (fs::exists(path, error)) {
            return path;
        }
    }
    return {};
}

// Tells the library who wants its figures, and where.
Outcome<> ask_for_figures(const std::string &where) {
    if (where.empty()) {
        return {};
    }
    setenv("RSOCKET_PRELOAD_STATS", std::to_string(getpid()).c_str(), 1);
    if (where == "true") {  // CLI11 has it for a flag without a value
        unsetenv("RSOCKET_PRELOAD_STATS_FILE");
        return {};
    }
    if (const base::Fd file{open(where.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)}; !file) {
        return failed("cannot open {} for the figures of --stats: {}", where, errno_text(errno));
    }
    std::error_code error;
    setenv("RSOCKET_PRELOAD_STATS_FILE", fs::absolute(where, error).c_str(), 1);
    return {};
}

Outcome<> run(const Options &options) {
    const std::vector<std::string> &words = options.words;
    const char *const name = options.sockets ? "libcarry-preload.so" : "libsoftrdma-verbs.so";
    if (options.sockets && std::getenv("RPMA_TLS") != nullptr) {
        return failed(
            "RPMA_TLS, --psk or --x509 is set, and connections of --sockets are TCP, which that does not "
            "encrypt (expected: "
            "none of them)");
    }
    const fs::path preload = library(name);
    if (preload.empty()) {
        return failed("{} is not where it was installed, below {}", name, RPMA_INSTALL_LIBDIR);
    }
    // ld.so(8) takes each of these characters for the end of a name, and would run the program without the
    // library.
    if (preload.string().find_first_of(" :") != std::string::npos) {
        return failed("{} cannot be preloaded (expected a path without spaces and colons)", preload.string());
    }
    const char *const others = std::getenv("LD_PRELOAD");
    const std::string all = preload.string() + (others != nullptr ? fmt::format(":{}", others) : "");
    std::vector<char *> arguments;
    arguments.reserve(words.size() + 1);
    for (const std::string &word : words) {
        arguments.push_back(const_cast<char *>(word.c_str()));  // execvp does not write to the words
    }
    arguments.push_back(nullptr);
    setenv("LD_PRELOAD", all.c_str(), 1);
    if (options.roce) {
        setenv("SOFTRDMA_ROCE", "1", 1);
    }
    if (options.sockets) {
        setenv("RPMA_CARRY_PEERS", device_for_hosts(options.device).c_str(), 1);
    }
    if (auto asked = ask_for_figures(options.stats); !asked) {
        return asked;
    }
    if (const std::string why = why_not_preloaded(words[0]); !why.empty()) {
        std::fputs(fmt::format("rpma run{}: {}: {} does not see its calls, and it runs without it\n",
                               options.sockets ? " --sockets" : "", why, name)
                       .c_str(),
                   stderr);
    }
    std::signal(SIGPIPE, SIG_DFL);  // main() ignores it and the next
    std::signal(SIGXFSZ, SIG_DFL);
    execvp(arguments[0], arguments.data());
    return failed(errno == ENOENT ? Exit::NotFound : Exit::NotExecutable, "cannot run {}: {}", words[0],
                  errno_text(errno));  // the exit code of a shell
}

}  // namespace

void add_run(CLI::App &app, Command &chosen) {
    CLI::App *const command =
        app.add_subcommand("run", "Run a verbs program, or one that uses sockets, with no RDMA device");
    command->footer(
        "rpma run [OPTION...] PROGRAM [ARGUMENT...]: words after the program's name belong to the program.");
    command->prefix_command();
    command->fallthrough(false);
    const auto options = std::make_shared<Options>();
    CLI::Option *const sockets = command->add_flag(
        "--sockets", options->sockets,
        "The program uses sockets: bytes of its TCP connections may travel through memory or by RDMA");
    command
        ->add_option(
            "--device", options->device,
            "The device that carries bytes of --sockets between this host and those of "
            "/etc/rdma/rsocket/peers: "
            "kernel, soft, or memory for none: then bytes go through memory within this host only. auto, the "
            "default, is kernel where the kernel has an RDMA device, otherwise memory")
        ->type_name("KIND")
        ->check(CLI::IsMember({"auto", "soft", "kernel", "memory"}))
        ->needs(sockets);
    command
        ->add_flag("--roce", options->roce,
                   "The program sees devices of RoCE, for programs that take no iWARP device")
        ->excludes(sockets);
    add_tls(*command);
    command
        ->add_flag("--stats", options->stats,
                   "At the program's end, report which connections --sockets carried: on standard error, or "
                   "with --stats=FILE behind what the file has")
        ->needs(sockets);
    command->callback([command, options, &chosen] {
        if (command->remaining().empty()) {
            throw CLI::RequiredError("PROGRAM");
        }
        options->words = command->remaining();
        chosen = [options] { return run(*options); };
    });
}

}  // namespace cli
