// SPDX-License-Identifier: BSD-3-Clause
#include "soft/connected/ending.hpp"

#include <array>
#include <cerrno>
#include <cstring>

namespace soft {

namespace {

using base::LogLevel;

// The entries are in the order of EndReason.
constexpr std::array<Ending, 10> endings{{
    {"disconnected here", LogLevel::Info, IBV_WC_WR_FLUSH_ERR, true, 0},
    {"it was given up before it was connected", LogLevel::Info, IBV_WC_WR_FLUSH_ERR, true, 0},
    {"a request failed here", LogLevel::Warning, IBV_WC_WR_FLUSH_ERR, false, ECONNABORTED},
    {"the link is lost", LogLevel::Warning, IBV_WC_RETRY_EXC_ERR, false, ECONNRESET},
    {"a rule was broken", LogLevel::Warning, IBV_WC_WR_FLUSH_ERR, true, EPROTO},
    {"terminated by the peer", LogLevel::Warning, IBV_WC_REM_OP_ERR, true, EPROTO},
    {"memory of the peer cannot be made durable", LogLevel::Warning, IBV_WC_REM_OP_ERR, true, EPROTO},
    {"closed by the peer", LogLevel::Info, IBV_WC_WR_FLUSH_ERR, false, 0},
    {"the peer closed it inside a message", LogLevel::Warning, IBV_WC_WR_FLUSH_ERR, false, ECONNRESET},
    {"closed by the peer; messages that found no receive are lost", LogLevel::Warning, IBV_WC_WR_FLUSH_ERR,
     false, ECONNRESET},
}};

Ending of_lost_link(int error) {
    Ending ending = ending_of(EndReason::LinkLost);
    ending.text = std::strerror(error);
    ending.error = error == EPIPE ? ECONNRESET : error;
    return ending;
}

}  // namespace

Ending ending_of(EndReason reason) {
    return endings[static_cast<std::size_t>(reason)];
}

Ending ending_of(const Broken &broken, EndReason closed) {
    Ending ending = ending_of(closed);
    switch (broken.by) {
        case Broken::By::RequestFailed:
            return ending_of(EndReason::RequestFailed);
        case Broken::By::AccessLost:
            return of_lost_link(EACCES);
        case Broken::By::MemoryGone:
            return of_lost_link(EFAULT);
        case Broken::By::Overrun:
            return of_lost_link(ENOBUFS);
        case Broken::By::NoMemory:
            return of_lost_link(ENOMEM);
        case Broken::By::Silence:
            return of_lost_link(ETIMEDOUT);
        case Broken::By::Link:
            return of_lost_link(broken.error);
        case Broken::By::Cut:
            ending = of_lost_link(ECONNRESET);
            ending.drain = true;
            return ending;
        case Broken::By::Violation:
            ending = ending_of(EndReason::Violation);
            ending.text = broken.violation.text;
            return ending;
        case Broken::By::Terminate:
            ending = ending_of(EndReason::Terminated);
            ending.oldest = broken.oldest;
            return ending;
        case Broken::By::NotDurable:
            return ending_of(EndReason::NotDurable);
        case Broken::By::End:
            break;
    }
    return ending;
}

}  // namespace soft
