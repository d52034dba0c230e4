// SPDX-License-Identifier: BSD-3-Clause
// cli/peers/check: `rpma check --store` reads the contents of a store, also while it is served, and says
// which are good. check_peer has the other uses of `rpma check`.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/tls.hpp"
#include "cli/commands.hpp"
#include "cli/peers/check_peer.hpp"
#include "cli/store/store.hpp"
#include "cli/store/store_files.hpp"
#include "cli/transfer/transfer.hpp"

namespace cli {

namespace {

struct CheckOptions {
    std::string store;
    bool json = false;
};

// It only reads, so it may look at a store that is served, is another user's, or cannot be written.
Outcome<> check_store(const CheckOptions &options) {
    const base::Fd folder{open(options.store.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!folder) {
        return failed("store {}: cannot open: {}", options.store, errno_text(errno));
    }
    end_waits_on_signals();
    std::vector<Facts> rows;
    std::size_t bad = 0;
    const auto found = [&](const Listed &content) {
        rows.push_back(facts_of(content));
        bad += content.fault.empty() ? 0 : 1;
    };
    if (const auto checked =
            check_contents(folder.get(), found, [](std::uint64_t) { return !interrupted(); });
        !checked) {
        return failed("store {}: {}", options.store, checked.error().text);
    }
    if (interrupted()) {
        return failed("interrupted");
    }
    // A new store has its identity. A folder without contents or identity may be another one than was meant.
    if (rows.empty() && faccessat(folder.get(), identity_name, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
        return failed(
            "store {}: is none: it has no content and no file {}: {} (expected the folder of rpma serve "
            "--store, or a copy)",
            options.store, identity_name, errno_text(errno));
    }
    if (options.json) {
        Summary summary;
        summary.add_json("command", "check");
        summary.add_json("store", options.store);
        summary.add_json("contents", json_of(rows));
        summary.add_json("good", bad == 0);
        summary.print(true);
    } else {
        print(rows.empty() ? "no contents\n" : table_of(rows));
    }
    return bad == 0 ? Outcome<>{}
                    : failed("store {}: {} of {} contents are not good", options.store, bad, rows.size());
}

}  // namespace

void add_check(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<CheckOptions>();
    auto peer = std::make_shared<PeerOptions>();
    CLI::App *command = app.add_subcommand(
        "check",
        "Tell which protocol a server speaks, or verify the contents of a store, or the files of TLS");
    CLI::Option *const address = command->add_option("HOST:PORT", peer->address, "The server");
    CLI::Option *const store = command->add_option("--store", options->store, "The store, a folder")
                                   ->type_name("DIR")
                                   ->excludes(address);
    command
        ->add_option("--timeout", peer->timeout_seconds, "Give up after this many seconds without an answer")
        ->check(number_between(0.1, 3600), "0.1 to 3600")
        ->capture_default_str()
        ->excludes(store);
    command
        ->add_flag("--at-once", peer->at_once,
                   "Ask for RDMA before the server can speak; a server of plain TCP gets bytes that it does "
                   "not understand")
        ->excludes(store);
    for (CLI::Option *const option : add_tls(*command)) {
        option->excludes(store);
    }
    command->add_flag("--json", options->json, "Print JSON");
    command->callback([options, peer, &chosen] {
        peer->json = options->json;
        if (!options->store.empty()) {
            chosen = [options] { return check_store(*options); };
        } else if (!peer->address.empty()) {
            chosen = [peer] { return check_peer(*peer); };
        } else if (base::required_tls() != nullptr) {
            chosen = [options] { return check_tls(options->json); };
        } else {
            throw CLI::RequiredError("HOST:PORT, --store, --psk or --x509");
        }
    });
}

}  // namespace cli
