// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/pull: `rpma pull` reads a content of a store, which never changes, and verifies it.
#include "cli/transfer/pull.hpp"

#include <algorithm>
#include <iterator>

#include "cli/transfer/changes.hpp"
#include "cli/transfer/several.hpp"

namespace cli {

namespace {

// Reads parts of a content into the destination, and gives `check` their bytes.
Outcome<> receive_ranges(Session &session, std::span<const Session::Range> ranges, std::uint64_t length,
                         Destination &destination, const PullOptions &options, const Session::Take &check) {
    Progress progress{length, !options.json};
    const auto waiting = [&session]() -> Outcome<> {
        TRY(session.keep_alive());
        return interrupted() ? failed("interrupted") : session.wait_for_all();
    };
    Rate rate = TRY(Rate::of(options));
    const auto take = [&](std::span<const std::byte> bytes, std::uint64_t offset) -> Outcome<> {
        progress.update(offset);
        TRY(check(bytes, offset));
        TRY(destination.write(bytes, offset, waiting));
        return rate.wait(session, bytes.size());
    };
    return session.read_ranges(ranges, take);
}

// Receives the content, and returns whether its bytes are those of its checksum.
Outcome<bool> receive_content(Session &session, const Content &content, Destination &destination,
                              const PullOptions &options) {
    Crc32c found;
    const auto add = [&found](std::span<const std::byte> bytes, std::uint64_t) -> Outcome<> {
        found.update(bytes);
        return {};
    };
    const Session::Range whole{0, content.length};
    TRY(receive_ranges(session, {&whole, 1}, content.length, destination, options, add));
    return found.value() == content.checksum;
}

// Does so with the blocks in which the content differs from the old file; those that stay have the checksums
// of the content's blocks. `received` gets the number of bytes.
Outcome<bool> receive_changes(Session &session, const Source &old, const Blocks &blocks,
                              Destination &destination, const PullOptions &options, std::uint64_t &received) {
    const auto ranges = TRY(take_same(session, destination, old, blocks, !options.json));
    received = 0;
    for (const Session::Range &range : ranges) {
        received += range.length;
    }
    bool is_good = true;
    // A range begins with a block, and is read in pieces of whole blocks but for its end.
    const auto check = [&](std::span<const std::byte> bytes, std::uint64_t offset) -> Outcome<> {
        for (std::size_t block = offset / blocks.block_size; !bytes.empty(); ++block) {
            const std::size_t size = blocks.size_of(block);
            is_good = is_good && crc32c(bytes.first(size)) == blocks.sums[block].checksum;
            bytes = bytes.subspan(size);
        }
        return {};
    };
    TRY(receive_ranges(session, ranges, blocks.length, destination, options, check));
    return is_good;
}

Outcome<> pull(const PullOptions &options) {
    if (options.addresses.size() > 1) {
        return pull_from_several(options);
    }
    const Where where = TRY(parse_where(options.address));
    TRY(Rate::of(options));
    Destination destination = TRY(Destination::open(options.file));
    if (options.incremental && destination.is_stream()) {
        return failed(Exit::Usage, "--incremental: expected a file, whose blocks can be compared first");
    }
    if (destination.is_standard_output()) {
        print_to_standard_error();
    }
    end_waits_on_signals();
    const auto begin = Session::Clock::now();
    const Pulled pulled = TRY(receive(where, destination, options));
    pulled.session->close();
    TRY(destination.publish(pulled.content.length));
    const std::chrono::duration<double> took = Session::Clock::now() - begin;
    Summary summary;
    summary.add_json("command", "pull");
    add_to_summary(summary, options, *pulled.session, pulled.content, took.count());
    summary.add("received", pulled.received, fmt::format("{} bytes", pulled.received));
    summary.print(options.json);
    return {};
}

}  // namespace

Outcome<Pulled> receive(const Where &where, Destination &destination, const PullOptions &options) {
    // To clone a file may take long, for which a server does not wait.
    const auto old = options.incremental ? destination.begin_as_old() : std::nullopt;
    auto session = TRY(Session::open(where.address,
                                     {.version = protocol_version,
                                      .mode = Mode::Pull,
                                      .sequence = options.sequence,
                                      .name = name_of(where)},
                                     options.timeout_seconds));
    const Offer &offer = session->offer();
    if (offer.sequence == 0) {
        return failed(Exit::Refused, "{}: nothing was pushed yet under the name {} (rpma list)",
                      options.address, name_of(where));
    }
    const Content content{offer.sequence, offer.length, offer.checksum};
    std::uint64_t received = content.length;
    const auto blocks = old ? TRY(blocks_of(*session, content.length, content.checksum)) : std::nullopt;
    if (!TRY(blocks ? receive_changes(*session, *old, *blocks, destination, options, received)
                    : receive_content(*session, content, destination, options))) {
        return failed(
            "{}: content {} is damaged: its checksum is wrong; {}", options.address, content.sequence,
            destination.is_stream() ? fmt::format("the bytes that were written to {} are wrong", options.file)
                                    : fmt::format("{} was not written", options.file));
    }
    return Pulled{std::move(session), content, received};
}

void add_pull(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<PullOptions>();
    CLI::App *command =
        add_transfer(app, chosen, "pull", "Read a content that was pushed, and verify it", options, pull);
    // CLI11 gives it all words, also the last, which is the file.
    const auto take_words = [options, command](const std::vector<std::string> &words) {
        std::ranges::transform(words, std::back_inserter(options->addresses), without_mark);
        if (words.size() > 1) {
            command->get_option("FILE")->add_result(options->addresses.back());
            options->addresses.pop_back();
        }
    };
    command
        ->add_option_function<std::vector<std::string>>(
            "ADDRESS[:PORT][/NAME]", take_words,
            fmt::format("{}; of several servers all, each time", where_served))
        ->required();
    command
        ->add_option("FILE", options->file,
                     "The file to write, replaced only by a whole, verified content; - is standard output")
        ->required();
    command
        ->add_option("--sequence", options->sequence,
                     "The content of a store to read; without it the newest (rpma list)")
        ->type_name("NUMBER")
        ->transform(CLI::Validator{whole_number_between(1), ""});
    command->add_flag("--incremental", options->incremental,
                      "Receive only the blocks of the content that differ from the file");
    add_rate(*command, *options);
    add_wait(*command, *options);
    command->parse_complete_callback([options] {
        check_addresses(options->addresses);
        options->address = options->addresses.front();
        if (options->addresses.size() > 1 && options->sequence != 0) {
            throw CLI::ValidationError("--sequence",
                                       "expected one server: each of several has its own sequences");
        }
        if (options->addresses.size() > 1 && options->file == "-") {
            throw CLI::ValidationError("-", "expected a file, from which a content can be written back");
        }
    });
}

}  // namespace cli
