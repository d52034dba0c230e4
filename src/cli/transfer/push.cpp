// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/push: `rpma push` replicates a file into a store. It writes the content into a new file of the
// server, which makes it durable meanwhile. Then the server commits it.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "cli/transfer/changes.hpp"
#include "cli/transfer/push.hpp"
#include "cli/transfer/several.hpp"

namespace cli {

namespace {

std::unexpected<Failure> too_large(const Source &source, const Session &session) {
    const std::uint64_t capacity = session.offer().capacity;
    return failed(Exit::Refused, "{}: has {} bytes (the server takes at most {})", source.name(),
                  source.size() ? std::to_string(*source.size()) : fmt::format("more than {}", capacity),
                  capacity);
}

std::string check_label(const std::string &text) {
    const bool is_shown = std::ranges::none_of(text, [](char c) { return c >= 0 && c < ' '; });
    return text.size() <= longest_label && is_shown
               ? std::string{}
               : fmt::format("expected at most {} bytes, without a line's end", longest_label);
}

// Has the server store the content. At the end `content` has its length and checksum.
Outcome<> send_content(Session &session, Source &source, Content &content, Rate &rate, bool show_progress) {
    Progress progress{source.size().value_or(0), show_progress};
    Crc32c checksum;
    std::uint64_t sent = 0;
    std::span<std::byte> chunk;
    std::size_t done = 0;  // of the chunk
    // Has the chunk's bytes up to `end` stored.
    const auto store = [&](std::size_t end) -> Outcome<> {
        const auto bytes = chunk.first(end).subspan(done);
        if (bytes.size() > session.offer().capacity - sent) {
            TRY(session.wait_for_all());  // the server may have no room for what it has
            return too_large(source, session);
        }
        if (!bytes.empty()) {
            checksum.update(bytes);
            TRY(session.store(sent, bytes));
            sent += bytes.size();
            done = end;
        }
        return {};
    };
    // The push stores what a slow source has given meanwhile, because the server ends a push that stores
    // nothing.
    const auto waiting = [&](std::size_t got) -> Outcome<> {
        TRY(store(got));
        TRY(session.keep_alive());
        return interrupted() ? failed("interrupted") : session.wait_for_all();
    };
    for (bool ended = false; !ended;) {
        chunk = TRY(session.next_chunk());
        chunk = chunk.first(rate.piece(chunk.size()));
        done = 0;
        const std::size_t got = TRY(source.read(chunk, waiting));
        ended = got < chunk.size();
        TRY(store(got));
        TRY(session.keep_alive());
        TRY(rate.wait(session, got));
        progress.update(sent);
    }
    content.length = sent;
    content.checksum = checksum.value();
    return session.wait_for_all();
}

// Returns why the content must not be committed; empty when it may.
Outcome<> check_size(const Source &source, std::uint64_t length, const PushOptions &options) {
    if (!options.min_size.empty() && length < TRY(parse_size_of("--min-size", options.min_size))) {
        return failed("{}: has {} bytes (expected at least {}: --min-size)", source.name(), length,
                      options.min_size);
    }
    if (length == 0 && !source.size() && !options.allow_empty) {
        return failed("{}: has no bytes (expected --allow-empty when that is meant)", source.name());
    }
    return {};
}

// Returns the checksums of the blocks of the newest content, or of what an earlier push has left, and has the
// new content begin as that; nothing when all bytes have to be sent.
Outcome<std::optional<Blocks>> blocks_there(Session &session, std::uint64_t length, bool resume) {
    const std::string text = TRY(session.look(longest_blocks, length, resume ? look_to_resume : 0));
    if (text.empty()) {
        return std::nullopt;
    }
    auto blocks = decode_blocks(text);
    if (!blocks) {
        return failed("the server's {}", blocks.error().text);
    }
    return *std::move(blocks);
}

// Sets the number of bytes that were sent.
Outcome<Content> send(Session &session, Source &source, const PushOptions &options, std::uint64_t &sent) {
    Content content{session.offer().sequence, 0, 0};
    Rate rate = TRY(Rate::of(options));
    if (source.size()) {
        TRY(check_size(source, *source.size(), options));
    }
    std::optional<Blocks> there;
    if (options.incremental || options.resume) {
        there = TRY(blocks_there(session, *source.size(), options.resume));
    }
    if (source.size()) {
        TRY(session.reserve(*source.size()));
    }
    if (there) {
        const auto wait = [&](std::uint64_t bytes) { return rate.wait(session, bytes); };
        sent = TRY(send_changes(session, source, *there, content, wait, !options.json));
    } else {
        TRY(send_content(session, source, content, rate, !options.json));
        sent = content.length;
    }
    TRY(source.check_unchanged(content.length));
    const auto waiting = [&session](std::size_t) -> Outcome<> {
        TRY(session.keep_alive());
        return interrupted() ? failed("interrupted") : Outcome<>{};
    };
    TRY(source.finish(waiting));
    TRY(check_size(source, content.length, options));
    return content;
}

// Has the server commit the content; only this changes what the store has.
Outcome<> commit(Session &session, const Content &content, const PushOptions &options) {
    const auto unknown = [&](const std::string &text) {
        return std::unexpected{
            Failure{fmt::format("{}; the server has the old content or the new, which is content {}, {}",
                                text, content.sequence, checksum_text(content.checksum)),
                    Exit::Unknown, content.sequence, content.checksum}};
    };
    const auto answer = session.commit(content.length, content.checksum, options.label);
    if (!answer) {
        return unknown(answer.error().text);
    }
    switch (answer->verdict) {
        case Verdict::Done:
            return {};
        case Verdict::Different:
            return failed(Exit::NotCommitted,
                          "{}: the bytes that arrived there have another checksum than those that were sent; "
                          "nothing was committed",
                          options.address);
        case Verdict::NotDurable:
            return failed(Exit::NotCommitted,
                          "{}: the server could not make the data durable: {}; nothing was committed",
                          options.address, errno_text(answer->error));
        case Verdict::Unknown:
        case Verdict::Newer:  // is no answer to a commit
        case Verdict::Ended:  // a session takes this and the next as failures
        case Verdict::NoRoom:
            break;
    }
    return unknown(fmt::format("{}: the server could not make the commit durable: {}", options.address,
                               errno_text(answer->error)));
}

// Returns whether the data is durable, and by what means, as text.
std::string durable_text(Durability durability) {
    switch (durability) {
        case Durability::PageCache:
            return "yes (written to storage by fsync)";
        case Durability::Dax:
            return "yes (in persistent memory)";
        case Durability::None:
            break;
    }
    return "NO: the server's store is volatile";
}

void print_summary(const TransferOptions &options, const Session &session, const Content &content,
                   std::uint64_t sent, double seconds, double commit_seconds) {
    const bool durable = session.offer().durability != Durability::None;
    const std::string memory = durability_text(session.offer().durability);
    const Histogram &times = session.store_times();
    const double p50 = static_cast<double>(times.percentile(0.5)) / 1e9;
    const double p99 = static_cast<double>(times.percentile(0.99)) / 1e9;
    const std::uint64_t portions = times.count();
    Summary summary;
    summary.add_json("command", "push");
    add_to_summary(summary, options, session, content, seconds);
    summary.add("sent", sent, fmt::format("{} bytes", sent));
    summary.add_json("portions", portions);
    summary.add_json("portion_p50_seconds", p50);
    summary.add_json("portion_p99_seconds", p99);
    summary.add_text("portions", portions == 0
                                     ? "none"
                                     : fmt::format("p50 {}, p99 {} ({} of 1 MiB or less)",
                                                   format_seconds(p50), format_seconds(p99), portions));
    summary.add_json("commit_seconds", commit_seconds);
    summary.add_text("commit", format_seconds(commit_seconds));
    summary.add_json("memory", memory);
    summary.add("durable", durable, durable_text(session.offer().durability));
    summary.print(options.json);
}

// Refuses a server whose newest content is another than the one that is expected. No other push commits
// while this one is under way.
Outcome<> check_sequence(const Session &session, const PushOptions &options) {
    const std::uint64_t newest = session.offer().sequence - 1;
    if (options.if_sequence && *options.if_sequence != newest) {
        return failed(Exit::Refused, "{}: the newest content is {} (expected {}: --if-sequence)",
                      options.address, newest, *options.if_sequence);
    }
    return {};
}

// Pushes the content of the order, and returns its sequence; nothing when the server needs no bytes, which
// `reply` tells then.
Outcome<std::uint64_t> push_content(const Where &server, Source &source, const Order &order,
                                    const PushOptions &options, Reply &reply) {
    const auto session = TRY(open_push(server, options, HasTag::Yes));
    if (order.length > session->offer().capacity) {
        return too_large(source, *session);
    }
    const Answer answer = TRY(session->give_tag(order.tag, order.length, order.checksum));
    if (answer.verdict == Verdict::Newer && answer.error == EEXIST && order.again) {
        return failed("{}: could not give the content that it says it has (rpma check finds damage)",
                      options.address);
    }
    if (answer.verdict == Verdict::Newer) {
        session->close();
        reply.state = Reply::State::Newer;
        reply.tag.epoch = answer.sequence;
        return 0;
    }
    if (answer.verdict != Verdict::Done) {
        return failed(Exit::Refused, "{}: has another content of the tag {}", options.address,
                      tag_text(order.tag));
    }
    std::uint64_t sent = 0;
    const Content content = TRY(send(*session, source, options, sent));
    if (content.length != order.length || content.checksum != order.checksum) {
        return failed("{}: changed while it was read (expected it to stay the same)", source.name());
    }
    TRY(commit(*session, content, options));
    session->close();
    reply.state = Reply::State::Committed;
    return content.sequence;
}

Outcome<> push(const PushOptions &options) {
    if (options.is_for_several()) {
        return push_to_several(options);
    }
    const Where where = TRY(parse_where(options.address));
    if (!options.min_size.empty()) {
        TRY(parse_size_of("--min-size", options.min_size));
    }
    TRY(Rate::of(options));
    Source source = TRY(options.program.empty() ? Source::open(options.file) : Source::run(options.program));
    end_waits_on_signals();
    const auto session = TRY(open_push(where, options));
    TRY(check_sequence(*session, options));
    if (source.size() && *source.size() > session->offer().capacity) {
        return too_large(source, *session);
    }
    const auto begin = Session::Clock::now();
    std::uint64_t bytes_sent = 0;
    const auto content = send(*session, source, options, bytes_sent);
    if (!content) {
        const Exit exit = content.error().exit == Exit::Refused ? Exit::Refused : Exit::NotCommitted;
        return failed(exit, "{}; nothing was committed", content.error().text);
    }
    const auto sent = Session::Clock::now();
    TRY(commit(*session, *content, options));
    const auto end = Session::Clock::now();
    const std::chrono::duration<double> took = end - begin;
    const std::chrono::duration<double> commit_took = end - sent;
    session->close();
    print_summary(options, *session, *content, bytes_sent, took.count(), commit_took.count());
    return {};
}

}  // namespace

Outcome<Rate> Rate::of(const TransferOptions &options) {
    constexpr std::uint64_t least = std::uint64_t{64} << 10;  // a push has to store so much within its lease
    const std::uint64_t rate = options.rate.empty() ? 0 : TRY(parse_size_of("--rate", options.rate));
    if (!options.rate.empty() && rate < least) {
        return failed(Exit::Usage, "--rate {}: expected at least 64K", options.rate);
    }
    return Rate{rate};
}

Outcome<> Rate::wait(Session &session, std::uint64_t bytes) {
    constexpr auto look = std::chrono::milliseconds{50};
    const auto then = pace_.take(bytes);
    while (Pace::Clock::now() < then) {
        if (interrupted()) {
            return failed("interrupted");
        }
        std::this_thread::sleep_for(std::min<Pace::Clock::duration>(look, then - Pace::Clock::now()));
        TRY(session.keep_alive());
    }
    return {};
}

Reply push_tagged(const Where &server, Source &source, const Order &order, const PushOptions &options) {
    PushOptions own = options;
    own.address = server.address.text();
    own.label = order.label;
    own.json = true;  // several processes share the terminal
    Reply reply{.state = Reply::State::Failed, .tag = order.tag, .reason = {}};
    const auto sequence = push_content(server, source, order, own, reply);
    if (!sequence) {
        return failed_reply(sequence.error());
    }
    reply.sequence = *sequence;
    return reply;
}

Outcome<std::unique_ptr<Session>> open_push(const Where &where, const TransferOptions &options,
                                            HasTag has_tag) {
    constexpr auto busy_interval = std::chrono::milliseconds{50};
    const Hello hello{.version = protocol_version, .mode = Mode::Push, .name = name_of(where)};
    const auto deadline = Session::Clock::now() + std::chrono::duration_cast<Session::Clock::duration>(
                                                      std::chrono::duration<double>{options.wait_seconds});
    while (true) {
        auto session = TRY(Session::open(where.address, hello, options.timeout_seconds));
        if (session->offer().status == Status::Ok) {
            if (has_tag == HasTag::No && session->offer().tag) {
                return failed(Exit::Refused,
                              "{}: {} is kept on several servers (expected a push to all of them, or "
                              "--quorum 1 when this is the only one)",
                              options.address, hello.name);
            }
            return session;
        }
        if (interrupted() || Session::Clock::now() > deadline) {
            return failed(Exit::Busy, "{}: {} (expected one push at a time)", options.address,
                          session->offer().reason);
        }
        std::this_thread::sleep_for(busy_interval);
    }
}

void add_push(CLI::App &app, Command &chosen, std::vector<std::string> program) {
    auto options = std::make_shared<PushOptions>();
    CLI::App *command =
        add_transfer(app, chosen, "push", "Replicate a file into a served store, durably", options, push);
    command->add_option("FILE", options->file, "The file; - is standard input; none with --run")->required();
    command
        ->add_option("ADDRESS[:PORT][/NAME]", options->addresses,
                     fmt::format("{}; of several servers all, each time", where_served))
        ->required();
    command
        ->add_option("--quorum", options->quorum,
                     "Commit on so many servers, at least a majority, which is the default")
        ->type_name("NUMBER")
        ->transform(CLI::Validator{whole_number_between(1), ""});
    command
        ->add_option(
            "--epoch", options->epoch,
            "Push only when no server of a majority has a content of a higher epoch, and fence lower "
            "ones")
        ->type_name("NUMBER")
        ->transform(CLI::Validator{whole_number_between(0), ""});
    add_wait(*command, *options);
    add_rate(*command, *options);
    command
        ->add_option("--label", options->label,
                     "A text of at most 64 bytes that rpma list shows beside the content")
        ->type_name("TEXT")
        ->check(check_label);
    command
        ->add_option("--if-sequence", options->if_sequence,
                     "Push only when the newest content has this sequence; 0 stands for no content")
        ->type_name("NUMBER")
        ->transform(CLI::Validator{whole_number_between(0), ""});
    command->add_option("--min-size", options->min_size, "Commit only a content of at least this many bytes")
        ->type_name("SIZE");
    command->add_flag("--allow-empty", options->allow_empty,
                      "Commit also when standard input, or the program, gave no bytes");
    command->add_flag("--incremental", options->incremental,
                      "Send only the blocks of the file that differ from the newest content");
    command
        ->add_flag("--resume", options->resume,
                   "Go on where a push with this option was cut off, and leave the next one what has come")
        ->excludes("--incremental");
    command->add_flag(
        "--run", options->runs,
        "The words behind this option are a program, whose output is committed if it ends with 0");
    options->program = std::move(program);
    command->parse_complete_callback([options] {
        if (options->runs && options->program.empty()) {
            throw CLI::RequiredError("A program behind --run");
        }
        options->file = without_mark(options->file);
        std::ranges::transform(options->addresses, options->addresses.begin(), without_mark);
        check_addresses(options->addresses);
        options->address = options->addresses.front();
        const bool several = options->is_for_several();
        if (several && (options->runs || options->file == "-")) {
            throw CLI::ValidationError(options->runs ? "--run" : "-",
                                       options->runs
                                           ? "expected one ADDRESS, and no FILE"
                                           : "expected a file, which several servers can be sent at once");
        }
        if (several && options->if_sequence) {
            throw CLI::ValidationError("--if-sequence",
                                       "expected one server: each of several has its own sequences");
        }
        if ((options->incremental || options->resume) && (options->runs || options->file == "-")) {
            throw CLI::ValidationError(options->resume ? "--resume" : "--incremental",
                                       "expected a file, whose blocks can be compared first");
        }
    });
}

}  // namespace cli
