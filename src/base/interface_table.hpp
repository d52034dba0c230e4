// SPDX-License-Identifier: BSD-3-Clause
// base/interface_table: a file of lines INTERFACE WORD. A line gives the local addresses of an interface a
// word: the RDMA device that serves them, or its kind. # begins a comment.
#pragma once

#include <sys/socket.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace base {

class InterfaceTable {
public:
    // Parses the lines of a text. A line of another form, or a second line for an interface, is logged with
    // the source's name and the line's number, and ignored.
    [[nodiscard]] static InterfaceTable parse(std::string_view text, const char *source);
    // Reads a file. The table is empty when the file does not exist, and when it cannot be read, which is
    // logged.
    [[nodiscard]] static InterfaceTable read(const char *path);

    [[nodiscard]] bool empty() const { return words_.empty(); }
    // Returns the word of the interface that has the address; nothing when the table has no such line.
    [[nodiscard]] std::optional<std::string> word_of(const sockaddr &local) const;

    // Returns whether a device of the kind, "soft" or "kernel", may serve a local address. It may when the
    // table has no word for the address, or has that kind or the device's name. name is nullptr for any
    // device of the kind.
    [[nodiscard]] bool admits(const sockaddr &local, std::string_view kind, const char *name) const;

private:
    std::map<std::string, std::string, std::less<>> words_;
};

}  // namespace base
