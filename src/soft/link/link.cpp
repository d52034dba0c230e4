// SPDX-License-Identifier: BSD-3-Clause
#include "soft/link/link.hpp"

#include <array>
#include <cerrno>

namespace soft {

base::Result<void> Link::send_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const iovec rest{.iov_base = const_cast<std::byte *>(bytes.data()), .iov_len = bytes.size()};
        const Sent sent = send({&rest, 1});
        if (sent.bytes == 0) {
            return base::failure(sent.error != 0 ? sent.error : ENOBUFS);
        }
        bytes = bytes.subspan(sent.bytes);
    }
    return {};
}

bool Link::discard() {
    constexpr int rounds = 64;  // then other links have their turn
    std::array<std::byte, std::size_t{16} * 1024> waste;
    const iovec piece{.iov_base = waste.data(), .iov_len = waste.size()};
    for (int round = 0; round < rounds; ++round) {
        switch (receive({&piece, 1}).state) {
            case Received::State::More:
                break;
            case Received::State::Drained:
                return false;
            case Received::State::Ended:
            case Received::State::Failed:
                return true;
        }
    }
    return false;
}

}  // namespace soft
