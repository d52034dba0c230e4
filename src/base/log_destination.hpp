// SPDX-License-Identifier: BSD-3-Clause
// base/log_destination: the meaning of RPMA_LOG: where log lines go when the program has no log function.
#pragma once

namespace base {

struct LogDestination {
    enum class Kind { Default, None, Syslog, Descriptor };
    Kind kind = Kind::Default;
    int level;    // the threshold
    int fd = -1;  // for Descriptor: standard error, or a file that is opened for appending and stays open
};

// Reads the variable's value, null when it is not set. The threshold is `level` unless the value names one.
// When the value is not valid, or a file cannot be opened, it counts as not set, and `reports` says whether
// that is told on standard error.
[[nodiscard]] LogDestination log_destination(const char *value, int level, bool reports);

}  // namespace base
