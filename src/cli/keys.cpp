// SPDX-License-Identifier: BSD-3-Clause
// cli/keys: the keys of TLS: `rpma keygen` makes one, and --psk FILE has a command use those of a file, or
// --x509 FILE certificates. The soft device reads the file, whose form softrdma(7) describes.
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/files.hpp"
#include "cli/report.hpp"

namespace cli {

namespace {

constexpr std::size_t key_bytes = 32;
constexpr std::size_t most_identity_bytes = 64;

struct KeyOptions {
    std::string identity;
    std::string file;  // empty: standard output
};

// A line of a file of keys. It overwrites its bytes when it ends.
class KeyLine {
public:
    KeyLine() = default;
    KeyLine(const KeyLine &) = delete;
    KeyLine &operator=(const KeyLine &) = delete;
    ~KeyLine() {
        explicit_bzero(key_.data(), key_.size());
        explicit_bzero(text_.data(), text_.size());
    }

    // Makes a key of the kernel's random bytes.
    [[nodiscard]] Outcome<> make(std::string_view identity) {
        for (std::span<unsigned char> left{key_}; !left.empty();) {
            const ssize_t got = getrandom(left.data(), left.size(), 0);
            if (got < 0 && errno != EINTR) {
                return failed("cannot get random bytes: {}", errno_text(errno));
            }
            left = left.subspan(got > 0 ? static_cast<std::size_t>(got) : 0);
        }
        constexpr std::string_view digits = "0123456789abcdef";
        text_.reserve(identity.size() + 2 * key_.size() + 2);  // no other copy of it stays behind
        text_.append(identity).append(":");
        for (const unsigned byte : key_) {
            text_ += digits[byte >> 4];
            text_ += digits[byte & 0xF];
        }
        text_ += '\n';
        return {};
    }

    [[nodiscard]] std::string_view text() const { return text_; }

private:
    std::array<unsigned char, key_bytes> key_{};
    std::string text_;
};

// The option --allow of rpma serve parts identities with commas, and a line of the file an identity from its
// key with a colon.
bool is_identity(std::string_view text) {
    return !text.empty() && text.size() <= most_identity_bytes && std::ranges::all_of(text, [](char one) {
        return one > ' ' && one <= '~' && !std::string_view{":#,"}.contains(one);
    });
}

// Writes a file that only its owner may read, and that was not there before.
Outcome<> write_file(const std::string &file, std::string_view text) {
    const base::Fd fd{open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR)};
    if (!fd) {
        return errno == EEXIST ? failed("{}: exists already (expected the name of a new file)", file)
                               : failed("{}: cannot make it: {}", file, errno_text(errno));
    }
    int error = fchmod(fd.get(), S_IRUSR | S_IWUSR) == 0 ? 0 : errno;
    error = error != 0 ? error : write_all(fd.get(), std::as_bytes(std::span{text}), 0);
    error = error != 0 || fsync(fd.get()) == 0 ? error : errno;
    if (error != 0) {
        (void)unlink(file.c_str());
        return failed("{}: cannot write it: {}", file, errno_text(error));
    }
    return {};
}

Outcome<> keygen(const KeyOptions &options) {
    if (!is_identity(options.identity)) {
        return failed(Exit::Usage,
                      "{}: expected an identity of 1 to {} printable characters without spaces, commas, "
                      "colons and #",
                      printable(std::as_bytes(std::span{options.identity}), ""), most_identity_bytes);
    }
    KeyLine line;
    TRY(line.make(options.identity));
    if (!options.file.empty()) {
        return write_file(options.file, line.text());
    }
    print(line.text());
    return {};
}

}  // namespace

std::array<CLI::Option *, 2> add_tls(CLI::App &command) {
    // The device reads the variable when it opens, which no command does before the whole line is parsed.
    const auto add = [&command](const std::string &name, const char *what, const char *meaning) {
        const auto use = [name](const std::string &file) {
            const auto path = std::filesystem::absolute(file);
            setenv("RPMA_TLS", fmt::format("{}:{}", name, path.string()).c_str(), 1);
        };
        return command.add_option_function<std::string>("--" + name, use, meaning)
            ->type_name("FILE")
            ->check([what](const std::string &file) {
                return file.empty() ? fmt::format("expected a file of {}", what) : std::string{};
            });
    };
    CLI::Option *const keys =
        add("psk", "keys", "Connect over TLS 1.3 alone, with the keys of this file (RPMA_TLS=psk:FILE)");
    CLI::Option *const certificates =
        add("x509", "certificates",
            "Connect over TLS 1.3 alone, with the certificates that this file names (RPMA_TLS=x509:FILE)");
    return {keys, certificates->excludes(keys)};
}

void add_keygen(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<KeyOptions>();
    CLI::App *command = app.add_subcommand("keygen", "Make a key, with which hosts know each other (--psk)");
    command->add_option("IDENTITY", options->identity, "The name of the host that will use the key")
        ->required();
    command->add_option("FILE", options->file,
                        "The file to write, which must not exist yet; without it the key goes to standard "
                        "output");
    command->callback([options, &chosen] { chosen = [options] { return keygen(*options); }; });
}

}  // namespace cli
