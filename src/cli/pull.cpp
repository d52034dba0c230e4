// SPDX-License-Identifier: BSD-3-Clause
// cli/pull: `rpma pull` reads the committed content of a pool, also while pushes are under way. It reads
// without a lock. When the checksum shows that a push has overwritten the content meanwhile, it asks again
// for the committed content.
#include "cli/destination.hpp"
#include "cli/transfer.hpp"

namespace cli {

namespace {

// During each failed attempt at least one push ended, and another began.
constexpr unsigned most_attempts = 20;

struct PullOptions : TransferOptions {
    std::uint64_t sequence = 0;  // 0 is the newest content
};

struct Pulled {
    std::unique_ptr<Session> session;
    Content content;
    unsigned attempts;
};

// Reads the content's bytes into the destination, and returns their checksum.
Outcome<std::uint32_t> receive_content(Session &session, const Content &content, Destination &destination,
                                       const TransferOptions &options) {
    Progress progress{content.length, !options.json};
    const auto waiting = [&session]() -> Outcome<> {
        TRY(session.keep_alive());
        return interrupted() ? failed("interrupted") : session.wait_for_all();
    };
    return session.read_all(content.length, [&](std::span<const std::byte> bytes, std::uint64_t offset) {
        progress.update(offset);
        return destination.write(bytes, offset, waiting);
    });
}

// Receives one whole content. A slot is overwritten only after a later commit, so a content with a wrong
// checksum twice under the same sequence is damaged.
Outcome<Pulled> receive(const Where &where, Destination &destination, const PullOptions &options) {
    std::uint64_t last_wrong = 0;
    for (unsigned attempt = 1; attempt <= most_attempts; ++attempt) {
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
        const Content content{offer.sequence, 0, offer.length, offer.checksum};
        if (TRY(receive_content(*session, content, destination, options)) == content.checksum) {
            return Pulled{std::move(session), content, attempt};
        }
        session->close();
        if (destination.is_stream()) {
            return failed(
                "{}: content {} was overwritten by a push while it was read, or is damaged: the bytes that "
                "were "
                "written to {} are wrong",
                options.address, content.sequence, options.file);
        }
        if (content.sequence == last_wrong) {
            return failed("{}: content {} is damaged: its checksum is wrong; {} was not written",
                          options.address, content.sequence, options.file);
        }
        last_wrong = content.sequence;
    }
    return failed("{}: pushes overwrote the content {} times while it was read; {} was not written",
                  options.address, most_attempts, options.file);
}

Outcome<> pull(const PullOptions &options) {
    const Where where = TRY(parse_where(options.address));
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
    summary.add("attempts", pulled.attempts, std::to_string(pulled.attempts));
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
}

}  // namespace cli
