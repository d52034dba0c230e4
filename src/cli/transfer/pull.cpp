// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/pull: `rpma pull` reads a content of a store, which never changes, and verifies it.
#include "cli/transfer/destination.hpp"
#include "cli/transfer/transfer.hpp"

namespace cli {

namespace {

struct PullOptions : TransferOptions {
    std::uint64_t sequence = 0;  // 0 is the newest content
};

struct Pulled {
    std::unique_ptr<Session> session;
    Content content;
};

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

// Receives one whole content.
Outcome<Pulled> receive(const Where &where, Destination &destination, const PullOptions &options) {
    auto session = TRY(Session::open(where.address,
                                     {.version = protocol_version,
                                      .mode = Mode::Pull,
                                      .sequence = options.sequence,
                                      .name = name_of(where)},
                                     options.timeout_seconds));
    const Offer &offer = session->offer();
    if (offer.sequence == 0) {
        return failed("{}: nothing was pushed yet", options.address);
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

Outcome<> pull(const PullOptions &options) {
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

void add_pull(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<PullOptions>();
    CLI::App *command =
        add_transfer(app, chosen, "pull", "Read a content that was pushed, and verify it", options, pull);
    command->add_option("ADDRESS[:PORT][/NAME]", options->address, where_served)->required();
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
}

}  // namespace cli
