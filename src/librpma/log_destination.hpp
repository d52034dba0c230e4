// SPDX-License-Identifier: BSD-3-Clause
// librpma/log_destination: what RPMA_LOG says: where the log lines go that no function of the program takes.
#pragma once

namespace librpma {

struct LogDestination {
    enum class Kind { Default, None, Syslog, Descriptor };
    Kind kind = Kind::Default;
    int level;    // the threshold
    int fd = -1;  // of Descriptor: standard error, or a file that is opened for appending and stays open
};

// Reads the variable's value, null when it is not set. The threshold is `level` unless the value names one. A
// value that is not understood, or a file that cannot be opened, is named on standard error and counts as not
// set.
[[nodiscard]] LogDestination log_destination(const char *value, int level);

}  // namespace librpma
