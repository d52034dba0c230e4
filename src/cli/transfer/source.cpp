// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/source: reads the content of a push.
#include "cli/transfer/source.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/clock.hpp"
#include "cli/transfer/child.hpp"

namespace cli {

namespace {

constexpr std::chrono::milliseconds wait{1000};

// A store in a mapping of the file changes its times only if it is the first in its page since the kernel has
// begun to write that page to storage. So storage gets what was stored before the file is read, and
// check_unchanged() sees the times change by the next store.
bool stat_before_reading(int file, struct stat &status) {
    if (fstat(file, &status) != 0) {
        return false;
    }
    if (S_ISREG(status.st_mode)) {
        (void)fdatasync(file);  // a file that is not on storage has no such times
    }
    return true;
}

}  // namespace

Outcome<Source> Source::of(int file, const std::string &name) {
    Source source;
    source.name_ = name;
    source.fd_ = base::Fd::borrowed(file);
    return stat_before_reading(file, source.status_) ? Outcome<Source>{std::move(source)}
                                                     : failed("{}: cannot read: {}", name, errno_text(errno));
}

// Opens without blocking, in case the file is a FIFO, which is refused afterwards.
Outcome<Source> Source::open(const std::string &path) {
    Source source;
    source.name_ = path;
    if (path == "-") {
        source.name_ = "standard input";
        source.fd_ = base::Fd::borrowed(STDIN_FILENO);
        source.is_stream_ = true;
        return source;
    }
    source.fd_.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!source.fd_ || !stat_before_reading(source.fd_.get(), source.status_)) {
        return failed("{}: cannot open: {}", path, errno_text(errno));
    }
    if (!S_ISREG(source.status_.st_mode)) {
        return failed("{}: expected a regular file, or - for standard input", path);
    }
    return source;
}

Source::Program::~Program() {
    if (!fd) {
        return;
    }
    constexpr std::chrono::seconds patience{5};
    const auto deadline = base::Clock::now() + patience;
    send(SIGTERM);
    pollfd ended{fd.get(), POLLIN, 0};
    bool has_ended = false;
    while (!has_ended && base::Clock::now() < deadline) {
        has_ended = poll(&ended, 1, base::poll_timeout(deadline)) > 0;
    }
    if (!has_ended) {
        send(SIGKILL);
    }
    (void)waitpid(pid, nullptr, 0);
}

// Nobody has waited for it, so no other process has its number.
void Source::Program::send(int signal) const {
    (void)kill(leads ? -pid : pid, signal);
}

Outcome<Source> Source::run(const std::vector<std::string> &program) {
    Source source;
    source.name_ = program.front();
    source.is_stream_ = true;
    std::vector<char *> words;
    words.reserve(program.size() + 1);
    for (const std::string &word : program) {
        words.push_back(const_cast<char *>(word.c_str()));
    }
    words.push_back(nullptr);
    std::array<int, 2> output{};
    std::array<int, 2> failure{};
    if (pipe2(output.data(), O_CLOEXEC) != 0) {
        return failed("{}: cannot run it: {}", source.name_, errno_text(errno));
    }
    source.fd_.reset(output[0]);
    const base::Fd written{output[1]};
    if (pipe2(failure.data(), O_CLOEXEC) != 0) {
        return failed("{}: cannot run it: {}", source.name_, errno_text(errno));
    }
    const base::Fd told{failure[0]};
    base::Fd tells{failure[1]};
    // In a group of its own it could not ask its user for a password.
    const bool leads = !base::Fd{::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC)};
    const pid_t pid = fork_child(SIGTERM);
    if (pid == 0) {
        std::signal(SIGPIPE, SIG_DFL);  // main() ignores it and the next
        std::signal(SIGXFSZ, SIG_DFL);
        if ((!leads || setpgid(0, 0) == 0) && dup2(written.get(), STDOUT_FILENO) >= 0) {
            (void)execvp(words.front(), words.data());
        }
        const int error = errno;
        (void)!write(tells.get(), &error, sizeof(error));
        std::_Exit(EXIT_FAILURE);
    }
    int error = pid < 0 ? errno : 0;
    tells.reset();
    if (pid > 0 && ::read(told.get(), &error, sizeof(error)) == sizeof(error)) {
        (void)waitpid(pid, nullptr, 0);
    }
    if (error != 0) {
        return failed(error == ENOENT ? Exit::NotFound : Exit::NotExecutable, "{}: cannot run it: {}",
                      source.name_, errno_text(error));
    }
    source.program_.pid = pid;
    source.program_.leads = leads;
    source.program_.fd.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!source.program_.fd) {
        const int reason = errno;
        source.program_.send(SIGKILL);
        (void)waitpid(pid, nullptr, 0);
        return failed("{}: cannot wait for it: {}", source.name_, errno_text(reason));
    }
    return source;
}

Outcome<> Source::finish(const Waiting &waiting) {
    if (!program_.fd) {
        return {};
    }
    pollfd ended{program_.fd.get(), POLLIN, 0};
    while (poll(&ended, 1, wait.count()) <= 0) {
        TRY(waiting(0));
    }
    siginfo_t how{};
    if (waitid(P_PIDFD, static_cast<id_t>(program_.fd.get()), &how, WEXITED) != 0) {
        return failed("{}: cannot wait for it: {}", name_, errno_text(errno));
    }
    program_.fd.reset();
    if (how.si_code != CLD_EXITED || how.si_status != 0) {
        return failed("{}: ended {} {} (expected 0)", name_, how.si_code == CLD_EXITED ? "with" : "by signal",
                      how.si_status);
    }
    return {};
}

std::optional<std::uint64_t> Source::size() const {
    return is_stream_ ? std::nullopt : std::optional{static_cast<std::uint64_t>(status_.st_size)};
}

Outcome<std::size_t> Source::read(std::span<std::byte> bytes, const Waiting &waiting) {
    std::size_t done = 0;
    auto told = base::Clock::now();
    while (done < bytes.size()) {
        pollfd readable{fd_.get(), POLLIN, 0};
        if (is_stream_ && (poll(&readable, 1, wait.count()) <= 0 || base::Clock::now() - told > wait)) {
            TRY(waiting(done));
            told = base::Clock::now();
            continue;
        }
        const auto rest = bytes.subspan(done);
        const ssize_t got = is_stream_
                                ? ::read(fd_.get(), rest.data(), rest.size())
                                : pread(fd_.get(), rest.data(), rest.size(), static_cast<off_t>(position_));
        if (got < 0 && errno != EINTR && errno != EAGAIN) {
            return failed("{}: cannot read: {}", name_, errno_text(errno));
        }
        if (got == 0) {
            break;
        }
        done += got > 0 ? static_cast<std::size_t>(got) : 0;
        position_ += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    return done;
}

Outcome<> Source::read_at(std::span<std::byte> bytes, std::uint64_t offset) const {
    while (!bytes.empty()) {
        const ssize_t got = pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (got < 0 && errno != EINTR) {
            return failed("{}: cannot read: {}", name_, errno_text(errno));
        }
        if (got == 0) {
            return failed("{}: changed while it was read (expected it to stay the same)", name_);
        }
        const std::size_t done = got > 0 ? static_cast<std::size_t>(got) : 0;
        bytes = bytes.subspan(done);
        offset += done;
    }
    return {};
}

Outcome<> Source::check_unchanged(std::uint64_t length) const {
    if (is_stream_) {
        return {};
    }
    const auto same = [](const timespec &left, const timespec &right) {
        return left.tv_sec == right.tv_sec && left.tv_nsec == right.tv_nsec;
    };
    struct stat now{};
    if (fstat(fd_.get(), &now) != 0 || now.st_size != status_.st_size ||
        std::cmp_not_equal(length, status_.st_size) || !same(now.st_mtim, status_.st_mtim) ||
        !same(now.st_ctim, status_.st_ctim)) {
        return failed("{}: changed while it was read (expected it to stay the same)", name_);
    }
    return {};
}

}  // namespace cli
