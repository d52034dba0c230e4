// SPDX-License-Identifier: BSD-3-Clause
// librpma/log_destination: the meaning of RPMA_LOG: where log lines go when the program has no log function.
#pragma once

namespace librpma {

struct LogDestination {
    enum class Kind { Default, None, Syslog, Descriptor };
    Kind kind = Kind::Default;
    int level;    // the threshold
    int fd = -1;  // for Descriptor: standard error, or a file that is opened for appending and stays open
};

// Reads the variable's value, null when it is not set. The threshold is `level` unless the value names one.
// When the value is not valid, or a file cannot be opened, it is reported on standard error and counts as not
// set.
[[nodiscard]] LogDestination log_destination(const char *value, int level);

}  // namespace librpma
