// SPDX-License-Identifier: BSD-3-Clause
// cli/commands: the subcommands. Each add_ function declares one, with its options and its help. Parsing a
// command line that names the subcommand stores its function in `chosen`.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "cli/failure.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): it is CLI11's
class App;
class Option;
}  // namespace CLI

namespace cli {

using Command = std::function<Outcome<>()>;

// Describes the address in the help of a client's commands.
inline constexpr const char *where_served = "Where rpma serve listens; the default port is 7204";

// Adds --psk FILE and --x509 FILE to a command that makes connections: they use TLS with the keys of that
// file, or with the certificates that it names, as with RPMA_TLS, over which the options prevail.
std::array<CLI::Option *, 2> add_tls(CLI::App &command);

void add_devices(CLI::App &app, Command &chosen);
void add_serve(CLI::App &app, Command &chosen);
// The program is that of --run, which stands behind the option.
void add_push(CLI::App &app, Command &chosen, std::vector<std::string> program);
void add_pull(CLI::App &app, Command &chosen);
void add_list(CLI::App &app, Command &chosen);
void add_rollback(CLI::App &app, Command &chosen);
void add_status(CLI::App &app, Command &chosen);
void add_check(CLI::App &app, Command &chosen);
void add_sockets(CLI::App &app, Command &chosen);
void add_perf(CLI::App &app, Command &chosen);
void add_keygen(CLI::App &app, Command &chosen);
// It describes the commands that the app has when it is run.
void add_completion(CLI::App &app, Command &chosen);
// Arguments after the program's name belong to the program, and stay in the subcommand's remaining().
void add_run(CLI::App &app, Command &chosen);

}  // namespace cli
