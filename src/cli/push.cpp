// SPDX-License-Identifier: BSD-3-Clause
// cli/push: `rpma push` replicates a file into a pool: it writes the content into the slot that is not in
// use, has the server make it durable meanwhile, and then has the server commit it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "base/fd.hpp"
#include "cli/transfer.hpp"

namespace cli {

namespace {

// Often enough that storage is busy all the time, seldom enough that a flush is small beside it.
constexpr std::uint64_t flush_interval = Session::depth * Session::chunk_size;
// A push that was killed is gone within moments: worth waiting for.
constexpr auto busy_patience = std::chrono::seconds{2};
constexpr auto busy_interval = std::chrono::milliseconds{50};

// A file that is read once from its beginning to its end, and must not change meanwhile. By plain reads: a
// mapping would end the process when the file is truncated under it.
class Source {
public:
    // Without blocking, in case it is a FIFO, which is refused right after.
    static Outcome<Source> open(const std::string &path) {
        Source source;
        source.path_ = path;
        source.fd_.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        if (!source.fd_ || fstat(source.fd_.get(), &source.status_) != 0) {
            return failed("{}: cannot open: {}", path, errno_text(errno));
        }
        if (!S_ISREG(source.status_.st_mode)) {
            return failed("{}: expected a regular file", path);
        }
        return source;
    }

    [[nodiscard]] std::uint64_t size() const { return static_cast<std::uint64_t>(status_.st_size); }

    // The next bytes, all of them.
    [[nodiscard]] Outcome<> read(std::span<std::byte> bytes) const {
        while (!bytes.empty()) {
            const ssize_t got = ::read(fd_.get(), bytes.data(), bytes.size());
            if (got < 0 && errno != EINTR) {
                return failed("{}: cannot read: {}", path_, errno_text(errno));
            }
            if (got == 0) {
                return failed("{}: became shorter while it was read (expected {} bytes)", path_, size());
            }
            bytes = bytes.subspan(got > 0 ? static_cast<std::size_t>(got) : 0);
        }
        return {};
    }

    // Fails when size or times are not those of open.
    [[nodiscard]] Outcome<> check_unchanged() const {
        const auto same = [](const timespec &left, const timespec &right) {
            return left.tv_sec == right.tv_sec && left.tv_nsec == right.tv_nsec;
        };
        struct stat now{};
        if (fstat(fd_.get(), &now) != 0 || now.st_size != status_.st_size ||
            !same(now.st_mtim, status_.st_mtim) || !same(now.st_ctim, status_.st_ctim)) {
            return failed("{}: changed while it was read (expected it to stay the same)", path_);
        }
        return {};
    }

private:
    std::string path_;
    base::Fd fd_;
    struct stat status_{};
};

Outcome<std::unique_ptr<Session>> open_session(const TransferOptions &options) {
    const Address address = TRY(parse_address(options.address));
    const auto deadline = Session::Clock::now() + busy_patience;
    while (true) {
        auto session = TRY(Session::open(address, Mode::Push, options.timeout_seconds));
        if (session->offer().status == Status::Ok) {
            return session;
        }
        if (Session::Clock::now() > deadline) {
            return failed("{}: {} (expected one push at a time)", options.address, session->offer().reason);
        }
        std::this_thread::sleep_for(busy_interval);
    }
}

// Writes the content and has it stored. All of it is, with its length and checksum in `content`, at the end.
Outcome<> send_content(Session &session, const Source &source, Content &content, bool show_progress) {
    const std::uint64_t length = source.size();
    std::array<Session::Operation, Session::depth> writes{};  // the last from each chunk
    Progress progress{length, show_progress};
    Crc32c checksum;
    std::uint64_t flushed = 0;
    for (std::uint64_t sent = 0; sent < length;) {
        const auto bytes = session.chunk(sent, length);
        auto &write = writes.at(sent / Session::chunk_size % Session::depth);
        TRY(session.wait_for(write));
        TRY(source.read(bytes));
        checksum.update(bytes);
        write = TRY(session.write(sent, bytes));
        sent += bytes.size();
        if (sent - flushed >= flush_interval || sent == length) {
            TRY(session.flush(flushed, sent - flushed));
            flushed = sent;
        }
        TRY(session.keep_alive());
        progress.update(sent);
    }
    content.length = length;
    content.checksum = checksum.value();
    return session.wait_for_all();
}

Outcome<Content> send(Session &session, const Source &source, const TransferOptions &options) {
    Content content{session.offer().sequence, 0, 0, 0};
    TRY(send_content(session, source, content, !options.json));
    TRY(source.check_unchanged());
    return content;
}

// The one moment that changes what the pool holds.
Outcome<> commit(Session &session, const Content &content, const TransferOptions &options) {
    const auto answer = session.commit(content.length, content.checksum);
    if (!answer) {
        return failed("{}; the pool holds the old content or the new, rpma pull tells which",
                      answer.error().text);
    }
    switch (answer->verdict) {
        case Verdict::Done:
            return {};
        case Verdict::Different:
            return failed(
                "{}: what arrived there has another checksum than what was sent; nothing was committed",
                options.address);
        case Verdict::NotDurable:
            return failed("{}: the server could not make the data durable: {}; nothing was committed",
                          options.address, errno_text(answer->error));
        case Verdict::Unknown:
            break;
    }
    return failed(
        "{}: the server could not make the commit durable: {}; the pool holds the old content or the new, as "
        "its "
        "server says when it is started again",
        options.address, errno_text(answer->error));
}

void print_summary(const TransferOptions &options, const Session &session, const Content &content,
                   double seconds) {
    const bool durable = session.offer().durability != Durability::None;
    const std::string memory = durability_text(session.offer().durability);
    const double p50 = percentile(session.flush_seconds(), 0.5);
    const double p99 = percentile(session.flush_seconds(), 0.99);
    const std::size_t flushes = session.flush_seconds().size();
    Summary summary;
    summary.add_json("command", "push");
    add_to_summary(summary, options, session, content, seconds);
    summary.add_json("flushes", flushes);
    summary.add_json("flush_p50_seconds", p50);
    summary.add_json("flush_p99_seconds", p99);
    summary.add_text("flush", fmt::format("p50 {}, p99 {} ({} flushes, one every {})", format_seconds(p50),
                                          format_seconds(p99), flushes, format_size(flush_interval)));
    summary.add_json("memory", memory);
    summary.add("durable", durable, durable ? "yes, " + memory : "NO: the server's pool is volatile");
    summary.print(options.json);
}

Outcome<> push(const TransferOptions &options) {
    const Source source = TRY(Source::open(options.file));
    end_waits_on_signals();
    const auto session = TRY(open_session(options));
    if (source.size() > session->offer().capacity) {
        return failed("{}: has {} bytes (the pool at {} takes at most {})", options.file, source.size(),
                      options.address, session->offer().capacity);
    }
    const auto begin = Session::Clock::now();
    const auto content = send(*session, source, options);
    if (!content) {
        return failed("{}; nothing was committed", content.error().text);
    }
    TRY(commit(*session, *content, options));
    const std::chrono::duration<double> took = Session::Clock::now() - begin;
    session->close();
    print_summary(options, *session, *content, took.count());
    return {};
}

}  // namespace

void add_push(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<TransferOptions>();
    CLI::App *command =
        add_transfer(app, chosen, "push", "Replicate a file into a served pool, durably", options, push);
    command->add_option("FILE", options->file, "The file")->required();
    command->add_option("ADDRESS[:PORT]", options->address, where_served)->required();
}

}  // namespace cli
