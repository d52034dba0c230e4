// SPDX-License-Identifier: BSD-3-Clause
// cli/check: `rpma check --pool` reads a pool that no server has open, and says whether each of its slots is
// good; `rpma check --store` does so with the contents of a store, also while it is served. check_peer has
// `rpma check HOST:PORT`.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "cli/arguments.hpp"
#include "cli/check_peer.hpp"
#include "cli/checksum.hpp"
#include "cli/commands.hpp"
#include "cli/page_cache.hpp"
#include "cli/pool.hpp"
#include "cli/pool_format.hpp"
#include "cli/store.hpp"
#include "cli/transfer.hpp"

namespace cli {

namespace {

struct CheckOptions {
    std::string store;
    std::string pool;
    bool use_other_slot = false;
    bool json = false;
};

// A slot with the content that its header names. `wrong` names the fault of the content, and is empty without
// one.
struct Slot {
    Content content{};
    bool is_empty = false;  // nothing was ever written there
    // NOLINTNEXTLINE(readability-redundant-member-init): g++ wants one where a slot is made without
    std::string wrong{};

    [[nodiscard]] bool is_good() const { return wrong.empty(); }
    [[nodiscard]] std::string text() const {
        return is_good() ? fmt::format("content {}, {} bytes, {}: good", content.sequence, content.length,
                                       checksum_text(content.checksum))
                         : wrong;
    }
};

struct Report {
    Layout layout{};
    std::array<Slot, 2> slots{};
    bool is_empty = false;          // nothing was committed yet
    std::optional<unsigned> named;  // the slot that the commit word names
    std::string wrong;              // the fault of the committed content
};

Outcome<> read_all(int fd, std::span<std::byte> bytes, std::uint64_t offset) {
    while (!bytes.empty()) {
        const ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return failed("cannot read {} bytes at {}: {}", bytes.size(), offset,
                          got < 0 ? errno_text(errno) : "the file ends there");
        }
        const std::size_t progress = got > 0 ? static_cast<std::size_t>(got) : 0;
        bytes = bytes.subspan(progress);
        offset += progress;
    }
    return {};
}

// Opens the pool, and keeps servers from opening it meanwhile. A pool that cannot be written is only read.
Outcome<base::Fd> open_pool(const std::string &path, bool writes) {
    base::Fd fd{open(path.c_str(), O_RDWR | O_CLOEXEC)};
    if (!fd && writes && errno != ENOENT) {
        return failed("pool {}: cannot open it to write, as --use-other-slot does: {}", path,
                      errno_text(errno));
    }
    if (!fd && (errno == EACCES || errno == EPERM || errno == EROFS)) {
        fd.reset(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    }
    if (!fd) {
        return failed("pool {}: cannot open: {}", path, errno_text(errno));
    }
    if (const auto locked = lock_pool(fd.get(), path, writes ? LOCK_EX : LOCK_SH); !locked) {
        return std::unexpected{locked.error()};
    }
    struct statfs where{};
    if (fstatfs(fd.get(), &where) == 0 && where.f_type != TMPFS_MAGIC && where.f_type != RAMFS_MAGIC) {
        TRY(forget_cached(fd.get(), path));
    }
    return fd;
}

Outcome<Layout> read_layout(int fd) {
    Superblock superblock{};
    struct stat status{};
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return failed("expected a regular file");
    }
    const ssize_t got = pread(fd, superblock.data(), superblock.size(), 0);
    const Layout layout =
        TRY(decode_superblock(std::span{superblock}.first(got > 0 ? static_cast<std::size_t>(got) : 0)));
    if (std::cmp_not_equal(status.st_size, layout.file_size())) {
        return failed("has {} bytes (expected {})", status.st_size, layout.file_size());
    }
    return layout;
}

Slot check_slot(int fd, std::span<const std::byte> control, unsigned slot, const Layout &layout) {
    const auto header = control.subspan(Layout::header(slot), sizeof(SlotHeader));
    if (std::ranges::all_of(header, [](std::byte byte) { return byte == std::byte{0}; })) {
        return {.is_empty = true, .wrong = "empty"};
    }
    const auto content = slot_content(control, slot, layout);
    if (!content) {
        return {.wrong = content.error().text};
    }
    Crc32c checksum;
    std::vector<std::byte> piece(std::size_t{1} << 20);
    for (std::uint64_t done = 0; done < content->length;) {
        const auto bytes = std::span{piece}.first(
            static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), content->length - done)));
        if (const auto got = read_all(fd, bytes, layout.content(slot) + done); !got) {
            return {.content = *content,
                    .wrong = fmt::format("content {}: {}", content->sequence, got.error().text)};
        }
        checksum.update(bytes);
        done += bytes.size();
    }
    if (checksum.value() != content->checksum) {
        return {.content = *content,
                .wrong = fmt::format("content {}, {} bytes, is damaged: its checksum is {} (expected {})",
                                     content->sequence, content->length, checksum_text(checksum.value()),
                                     checksum_text(content->checksum))};
    }
    return {.content = *content};
}

Outcome<Report> examine(int fd) {
    Report report;
    report.layout = TRY(read_layout(fd));
    std::array<std::byte, Layout::control_size> control;
    TRY(read_all(fd, control, 0));
    const auto committed = committed_content(control, report.layout);
    report.is_empty = committed && !committed->has_value();
    for (unsigned slot = 0; slot < report.slots.size(); ++slot) {
        report.slots.at(slot) = check_slot(fd, control, slot, report.layout);
    }
    const auto word = std::span{control}.subspan(Layout::commit_word, 1);
    if (!report.is_empty) {
        report.named = static_cast<unsigned>(word[0] & std::byte{1});
        Slot &named = report.slots.at(*report.named);
        if (!committed) {
            named.is_empty = false;
            named.wrong = committed.error().text;
        }
        report.wrong = named.wrong;
    }
    return report;
}

Outcome<> use_slot(int fd, const Content &content) {
    const CommitWord word = content.word();
    if (pwrite(fd, word.data(), word.size(), Layout::commit_word) != ssize_t{sizeof(word)} ||
        fsync(fd) != 0) {
        return failed("cannot write: {}", errno_text(errno));
    }
    return {};
}

void print_report(const CheckOptions &options, const Report &report, const std::string &verdict, bool good) {
    Summary summary;
    summary.add_json("command", "check");
    summary.add("pool", options.pool);
    summary.add("capacity", report.layout.capacity,
                fmt::format("two contents of {} bytes", report.layout.capacity));
    nlohmann::json slots = nlohmann::json::array();
    for (unsigned number = 0; number < report.slots.size(); ++number) {
        const Slot &slot = report.slots.at(number);
        const bool named = report.named == number;
        slots.push_back({{"committed", named},
                         {"empty", slot.is_empty},
                         {"good", slot.is_good()},
                         {"sequence", slot.content.sequence},
                         {"bytes", slot.content.length},
                         {"checksum", checksum_text(slot.content.checksum)}});
        summary.add_text(number == 0 ? "slot 0" : "slot 1", slot.text() + (named ? " (committed)" : ""));
    }
    summary.add_json("slots", slots);
    summary.add_json("good", good);
    summary.add("verdict", verdict);
    summary.print(options.json);
}

Outcome<> check(const CheckOptions &options) {
    const base::Fd fd = TRY(open_pool(options.pool, options.use_other_slot));
    auto examined = examine(fd.get());
    if (!examined) {
        return failed("pool {}: {}", options.pool, examined.error().text);
    }
    if (examined->is_empty || examined->wrong.empty()) {
        print_report(options, *examined, examined->is_empty ? "good: nothing was committed yet" : "good",
                     true);
        return {};
    }
    const unsigned other = 1 - *examined->named;
    const Slot &slot = examined->slots.at(other);
    if (!slot.is_good()) {
        print_report(options, *examined, "damaged: no slot has a good content", false);
        return failed("pool {}: is damaged: {}; the other slot has no good content either", options.pool,
                      examined->wrong);
    }
    if (!options.use_other_slot) {
        print_report(options, *examined, "damaged", false);
        return failed("pool {}: is damaged: {}; slot {} has content {}, which --use-other-slot commits",
                      options.pool, examined->wrong, other, slot.content.sequence);
    }
    if (const auto used = use_slot(fd.get(), slot.content); !used) {
        return failed("pool {}: {}", options.pool, used.error().text);
    }
    examined->named = other;
    print_report(options, *examined, fmt::format("repaired: content {} is committed", slot.content.sequence),
                 true);
    return {};
}

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
    if (const auto checked = check_contents(folder.get(), found, [] { return !interrupted(); }); !checked) {
        return failed("store {}: {}", options.store, checked.error().text);
    }
    if (interrupted()) {
        return failed("interrupted");
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
        "Tell which protocol a server speaks, or verify a store, or a pool file that no server has open");
    command->footer(
        "It changes a pool only with --use-other-slot, and only when the committed content is damaged and "
        "the other one is good.\n");
    CLI::Option *const address = command->add_option("HOST:PORT", peer->address, "The server");
    CLI::Option *const pool =
        command->add_option("--pool", options->pool, "The pool file")->type_name("FILE")->excludes(address);
    CLI::Option *const store = command->add_option("--store", options->store, "The store, a folder")
                                   ->type_name("DIR")
                                   ->excludes(address)
                                   ->excludes(pool);
    command
        ->add_option("--timeout", peer->timeout_seconds, "Give up after this many seconds without an answer")
        ->check(number_between(0.1, 3600), "0.1 to 3600")
        ->capture_default_str()
        ->excludes(pool)
        ->excludes(store);
    command
        ->add_flag("--at-once", peer->at_once,
                   "Ask for RDMA before the server can speak; a server of plain TCP gets bytes that it does "
                   "not understand")
        ->excludes(pool)
        ->excludes(store);
    command
        ->add_flag("--use-other-slot", options->use_other_slot,
                   "Commit the other content when the committed one is damaged")
        ->needs(pool);
    for (CLI::Option *const option : add_tls(*command)) {
        option->excludes(pool);
        option->excludes(store);
    }
    command->add_flag("--json", options->json, "Print JSON");
    command->callback([options, peer, &chosen] {
        if (options->pool.empty() && options->store.empty() && peer->address.empty()) {
            throw CLI::RequiredError("HOST:PORT, --store or --pool");
        }
        peer->json = options->json;
        chosen = [options, peer] {
            return !options->store.empty() ? check_store(*options)
                   : options->pool.empty() ? check_peer(*peer)
                                           : check(*options);
        };
    });
}

}  // namespace cli
