// SPDX-License-Identifier: BSD-3-Clause
// cli/pull: `rpma pull` reads the committed content of a pool, also while pushes are under way. It reads
// without a lock. When the checksum shows that a push has overwritten the content meanwhile, it asks again
// for the committed content.
#include <array>

#include "cli/destination.hpp"
#include "cli/transfer.hpp"

namespace cli {

namespace {

// During each failed attempt at least one push ended, and another began.
constexpr unsigned most_attempts = 20;

struct Pulled {
    std::unique_ptr<Session> session;
    Content content;
    unsigned attempts;
};

// Reads the content's bytes into the destination, and returns their checksum.
Outcome<std::uint32_t> receive_content(Session &session, const Content &content, Destination &destination,
                                       const TransferOptions &options) {
    std::array<Session::Operation, Session::depth> reads{};  // the last read into each chunk
    Progress progress{content.length, !options.json};
    Crc32c checksum;
    const auto waiting = [&session]() -> Outcome<> {
        TRY(session.keep_alive());
        return interrupted() ? failed("interrupted") : session.wait_for_all();
    };
    std::uint64_t posted = 0;
    for (std::uint64_t received = 0; received < content.length;) {
        while (posted < content.length && posted - received < Session::depth * Session::chunk_size) {
            const auto bytes = session.chunk(posted, content.length);
            reads.at(posted / Session::chunk_size % Session::depth) = TRY(session.read(bytes, posted));
            posted += bytes.size();
        }
        const auto bytes = session.chunk(received, content.length);
        TRY(session.wait_for(reads.at(received / Session::chunk_size % Session::depth)));
        TRY(destination.write(bytes, received, waiting));
        checksum.update(bytes);
        received += bytes.size();
        TRY(session.keep_alive());
        progress.update(received);
    }
    return checksum.value();
}

// Receives one whole content. A slot is overwritten only after a later commit, so a content with a wrong
// checksum twice under the same sequence is damaged.
Outcome<Pulled> receive(const Address &address, Destination &destination, const TransferOptions &options) {
    std::uint64_t last_wrong = 0;
    for (unsigned attempt = 1; attempt <= most_attempts; ++attempt) {
        auto session = TRY(Session::open(address, Mode::Pull, options.timeout_seconds));
        const Offer &offer = session->offer();
        if (offer.sequence == 0) {
            return failed("{}: the pool is empty: nothing was pushed yet", options.address);
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
            return failed("{}: content {} in the pool is damaged: its checksum is wrong; {} was not written",
                          options.address, content.sequence, options.file);
        }
        last_wrong = content.sequence;
    }
    return failed("{}: pushes overwrote the content {} times while it was read; {} was not written",
                  options.address, most_attempts, options.file);
}

Outcome<> pull(const TransferOptions &options) {
    const Address address = TRY(parse_address(options.address));
    Destination destination = TRY(Destination::open(options.file));
    if (destination.is_standard_output()) {
        print_to_standard_error();
    }
    end_waits_on_signals();
    const auto begin = Session::Clock::now();
    const Pulled pulled = TRY(receive(address, destination, options));
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
    auto options = std::make_shared<TransferOptions>();
    CLI::App *command = add_transfer(app, chosen, "pull",
                                     "Read the content that was pushed last, and verify it", options, pull);
    command->add_option("ADDRESS[:PORT]", options->address, where_served)->required();
    command
        ->add_option("FILE", options->file,
                     "The file to write, replaced only by a whole, verified content; - is standard output")
        ->required();
}

}  // namespace cli
