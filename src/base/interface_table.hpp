// SPDX-License-Identifier: BSD-3-Clause
// base/interface_table: a file of lines INTERFACE WORD, which gives the local addresses of an interface a
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
    // A line of another form is logged with the source's name and the line's number, and left out. So is a
    // second line for the same interface.
    [[nodiscard]] static InterfaceTable parse(std::string_view text, const char *source);
    // Reads a file. One that is not there has no lines; one that cannot be read is logged, and has none.
    [[nodiscard]] static InterfaceTable read(const char *path);

    [[nodiscard]] bool empty() const { return words_.empty(); }
    // Returns the word of the interface that has the address; nothing where the table has no such line.
    [[nodiscard]] std::optional<std::string> word_of(const sockaddr &local) const;

    // Whether a device of the kind, "soft" or "kernel", may serve a local address: the table has no word for
    // it, or that kind, or the device's name. name is nullptr for any device of the kind.
    [[nodiscard]] bool admits(const sockaddr &local, std::string_view kind, const char *name) const;

private:
    std::map<std::string, std::string, std::less<>> words_;
};

}  // namespace base
