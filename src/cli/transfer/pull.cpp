// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/pull: `rpma pull` reads a content of a store, which never changes, and verifies it.
#include "cli/transfer/pull.hpp"

#include <algorithm>
#include <iterator>

#include "cli/transfer/several.hpp"

namespace cli {

namespace {

// Reads the content's bytes into the destination, and returns their checksum.
Outcome<std::uint32_t> receive_content(Session &session, const Content &content, Destination &destination,
                                       const TransferOptions &options) {
    Progress progress{content.length, !options.json};
    const auto waiting = [&session]() -> Outcome<> {
        TRY(session.keep_alive());
        return interrupted() ? failed("interrupted") : session.wait_for_all();
    };
    Rate rate = TRY(Rate::of(options));
    const auto take = [&](std::span<const std::byte> bytes, std::uint64_t offset) -> Outcome<> {
        progress.update(offset);
        TRY(destination.write(bytes, offset, waiting));
        return rate.wait(session, bytes.size());
    };
    return session.read_all(content.length, take);
}

Outcome<> pull(const PullOptions &options) {
    if (options.addresses.size() > 1) {
        return pull_from_several(options);
    }
    const Where where = TRY(parse_where(options.address));
    TRY(Rate::of(options));
    Destination destination = TRY(Destination::open(options.file));
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
    summary.print(options.json);
    return {};
}

}  // namespace

Outcome<Pulled> receive(const Where &where, Destination &destination, const PullOptions &options) {
    auto session = TRY(Session::open(where.address,
                                     {.version = protocol_version,
                                      .mode = Mode::Pull,
                                      .sequence = options.sequence,
                                      .name = name_of(where)},
                                     options.timeout_seconds));
    const Offer &offer = session->offer();
    if (offer.sequence == 0) {
        return failed("{}: nothing was pushed yet under the name {} (rpma list)", options.address,
                      name_of(where));
    }
    const Content content{offer.sequence, offer.length, offer.checksum};
    if (TRY(receive_content(*session, content, destination, options)) != content.checksum) {
        return failed(
            "{}: content {} is damaged: its checksum is wrong; {}", options.address, content.sequence,
            destination.is_stream() ? fmt::format("the bytes that were written to {} are wrong", options.file)
                                    : fmt::format("{} was not written", options.file));
    }
    return Pulled{std::move(session), content};
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
        ->check(CLI::PositiveNumber);
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
