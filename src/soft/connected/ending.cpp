// SPDX-License-Identifier: BSD-3-Clause
#include "soft/connected/ending.hpp"

#include <array>
#include <cerrno>
#include <cstring>

namespace soft {

namespace {

using base::LogLevel;

// The entries are in the order of EndReason. Without a text, that of the errno value is meant.
constexpr std::array endings = std::to_array<Ending>({
    {"disconnected here", LogLevel::Info, IBV_WC_WR_FLUSH_ERR, true, false, 0},
    {"it was given up before it was connected", LogLevel::Info, IBV_WC_WR_FLUSH_ERR, true, false, 0},
    {"the peer closed it inside a message", LogLevel::Warning, IBV_WC_WR_FLUSH_ERR, false, true, ECONNRESET},
    {"closed by the peer; messages that found no receive are lost", LogLevel::Warning, IBV_WC_WR_FLUSH_ERR,
     false, true, ECONNRESET},
    {"closed by the peer", LogLevel::Info, IBV_WC_WR_FLUSH_ERR, false, true, 0},
    {nullptr, LogLevel::Warning, IBV_WC_RETRY_EXC_ERR, false, true, 0},  // Link
    {nullptr, LogLevel::Warning, IBV_WC_RETRY_EXC_ERR, false, true, ETIMEDOUT},
    {nullptr, LogLevel::Warning, IBV_WC_RETRY_EXC_ERR, true, false, ECONNRESET},
    {nullptr, LogLevel::Warning, IBV_WC_RETRY_EXC_ERR, false, false, EACCES},
    {nullptr, LogLevel::Warning, IBV_WC_RETRY_EXC_ERR, false, false, EFAULT},
    {nullptr, LogLevel::Warning, IBV_WC_RETRY_EXC_ERR, false, false, ENOBUFS},
    {nullptr, LogLevel::Warning, IBV_WC_RETRY_EXC_ERR, false, false, ENOMEM},
    {"a request failed here", LogLevel::Warning, IBV_WC_WR_FLUSH_ERR, false, false, ECONNABORTED},
    {"a rule was broken", LogLevel::Warning, IBV_WC_WR_FLUSH_ERR, true, false, EPROTO},
    {"terminated by the peer", LogLevel::Warning, IBV_WC_REM_OP_ERR, true, false, EPROTO},
    {"memory of the peer cannot be made durable", LogLevel::Warning, IBV_WC_REM_OP_ERR, true, false, EPROTO},
});
static_assert(endings.size() == static_cast<std::size_t>(EndReason::NotDurable) + 1);

}  // namespace

Ending ending_of(const Broken &broken) {
    Ending ending = endings[static_cast<std::size_t>(broken.by)];
    if (broken.by == EndReason::Link) {
        ending.text = std::strerror(broken.error);
        ending.error = broken.error == EPIPE ? ECONNRESET : broken.error;
    } else if (broken.by == EndReason::Violation) {
        ending.text = broken.violation.text;
    } else if (broken.by == EndReason::Terminated) {
        ending.oldest = broken.oldest;
    } else if (ending.text == nullptr) {
        ending.text = std::strerror(ending.error);
    }
    return ending;
}

}  // namespace soft
