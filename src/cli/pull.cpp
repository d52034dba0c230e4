// SPDX-License-Identifier: BSD-3-Clause
// cli/pull: `rpma pull` reads the committed content of a pool, also while pushes are under way: it reads
// without any lock, and when the checksum says that a push overwrote what was being read, it asks again what
// is committed now.
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "cli/staged_file.hpp"
#include "cli/transfer.hpp"

namespace cli {

namespace {

// Each failed attempt takes at least one whole push that ended meanwhile, and another that began.
constexpr unsigned most_attempts = 20;

struct Pulled {
    std::unique_ptr<Session> session;
    Content content;
    unsigned attempts;
};

// The new file gets the rights of the one it replaces; only a regular file is replaced.
Outcome<StagedFile> open_destination(const std::string &path) {
    struct stat status{};
    const bool exists = stat(path.c_str(), &status) == 0;
    if (exists && !S_ISREG(status.st_mode)) {
        return failed("{}: expected a regular file or none", path);
    }
    StagedFile file = TRY(StagedFile::create(path, 0666));
    if (exists && fchmod(file.fd(), status.st_mode & 0777) != 0) {
        return failed("{}: cannot set its rights: {}", path, errno_text(errno));
    }
    return file;
}

Outcome<> write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset, const std::string &path) {
    while (!bytes.empty()) {
        const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (written < 0 && errno != EINTR) {
            return failed("{}: cannot write: {}", path, errno_text(errno));
        }
        const std::size_t progress = written > 0 ? static_cast<std::size_t>(written) : 0;
        bytes = bytes.subspan(progress);
        offset += progress;
    }
    return {};
}

// Reads the content's bytes into the file; returns the checksum of what was read.
Outcome<std::uint32_t> receive_content(Session &session, const Content &content, int fd,
                                       const TransferOptions &options) {
    std::array<Session::Operation, Session::depth> reads{};  // the last into each chunk
    Progress progress{content.length, !options.json};
    Crc32c checksum;
    std::uint64_t posted = 0;
    for (std::uint64_t received = 0; received < content.length;) {
        while (posted < content.length && posted - received < Session::depth * Session::chunk_size) {
            const auto bytes = session.chunk(posted, content.length);
            reads.at(posted / Session::chunk_size % Session::depth) = TRY(session.read(bytes, posted));
            posted += bytes.size();
        }
        const auto bytes = session.chunk(received, content.length);
        TRY(session.wait_for(reads.at(received / Session::chunk_size % Session::depth)));
        TRY(write_all(fd, bytes, received, options.file));
        checksum.update(bytes);
        received += bytes.size();
        TRY(session.keep_alive());
        progress.update(received);
    }
    return checksum.value();
}

// One content, whole. A slot is overwritten only after a later commit, so what is wrong twice under the same
// sequence is damaged.
Outcome<Pulled> receive(const Address &address, int fd, const TransferOptions &options) {
    std::uint64_t last_wrong = 0;
    for (unsigned attempt = 1; attempt <= most_attempts; ++attempt) {
        auto session = TRY(Session::open(address, Mode::Pull, options.timeout_seconds));
        const Offer &offer = session->offer();
        if (offer.sequence == 0) {
            return failed("{}: the pool is empty: nothing was pushed yet", options.address);
        }
        const Content content{offer.sequence, 0, offer.length, offer.checksum};
        if (TRY(receive_content(*session, content, fd, options)) == content.checksum) {
            return Pulled{std::move(session), content, attempt};
        }
        session->close();
        if (content.sequence == last_wrong) {
            return failed("{}: content {} in the pool is damaged: its checksum is wrong; {} was not written",
                          options.address, content.sequence, options.file);
        }
        last_wrong = content.sequence;
    }
    return failed("{}: pushes overwrote what was being read {} times; {} was not written", options.address,
                  most_attempts, options.file);
}

Outcome<> pull(const TransferOptions &options) {
    const Address address = TRY(parse_address(options.address));
    StagedFile file = TRY(open_destination(options.file));
    end_waits_on_signals();
    const auto begin = Session::Clock::now();
    const Pulled pulled = TRY(receive(address, file.fd(), options));
    pulled.session->close();
    if (ftruncate(file.fd(), static_cast<off_t>(pulled.content.length)) != 0) {
        return failed("{}: cannot write: {}", options.file, errno_text(errno));
    }
    TRY(file.publish(StagedFile::Existing::Replace));
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
    CLI::App *command =
        add_transfer(app, chosen, "pull", "Read back what was pushed last, and verify it", options, pull);
    command->add_option("ADDRESS[:PORT]", options->address, where_served)->required();
    command
        ->add_option("FILE", options->file, "The file to write; replaced only by a whole, verified content")
        ->required();
}

}  // namespace cli
