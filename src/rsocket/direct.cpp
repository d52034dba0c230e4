// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: direct placement, into memory that the peer's program or our program has mapped.
#include <sys/mman.h>

#include <cerrno>
#include <limits>

#include "rsocket/socket.hpp"
#include "rsocket/wait.hpp"

namespace rsockets {

namespace {

constexpr off_t most_offset = std::numeric_limits<off_t>::max();

// Says how long riomap waits for the peer where calls do not block. A program may map right after it has
// accepted: with librdmacm the peer is there by then.
constexpr milliseconds handshake_timeout{1000};

}  // namespace

Result<off_t> Socket::map(void *begin, std::size_t bytes, int protection, off_t offset) {
    const bool for_peer = protection == PROT_WRITE;
    const off_t place = offset == -1 ? static_cast<off_t>(reinterpret_cast<std::uintptr_t>(begin)) : offset;
    if ((!for_peer && protection != PROT_NONE) || begin == nullptr || bytes == 0 ||
        (for_peer && bytes > UINT32_MAX) || place < 0 ||
        bytes > static_cast<std::size_t>(most_offset - place)) {
        return base::failure(EINVAL);
    }
    const base::Lock lock{carrier_.mutex()};
    const milliseconds most = carrier_.blocks() ? carrier_.options().send_timeout() : handshake_timeout;
    const auto mapped = Wait{carrier_, true, Wait::deadline_of(most)}.until([&]() -> Result<void> {
        carrier_.assert_looks();
        if (carrier_.state() != State::Streaming) {
            return base::failure(carrier_.why_no_stream());
        }
        return carrier_.stream()->map(begin, bytes, for_peer, static_cast<std::uint64_t>(place));
    });
    return mapped ? Result<off_t>{place} : std::unexpected{mapped.error()};
}

Result<void> Socket::unmap(const void *begin, std::size_t bytes) {
    const base::Lock lock{carrier_.mutex()};
    carrier_.serve();
    const StreamLock in_stream{carrier_.stream()};
    if (!in_stream) {
        return base::failure(EINVAL);
    }
    return carrier_.stream()->unmap(begin, bytes);
}

Result<std::size_t> Socket::write_at(const void *from, std::size_t bytes, off_t offset, int flags) {
    if ((flags & send_flags_refused) != 0) {
        return base::failure(EOPNOTSUPP);
    }
    if (offset < 0) {
        return base::failure(EINVAL);
    }
    const base::Lock lock{carrier_.mutex()};
    const bool blocks = carrier_.blocks() && (flags & MSG_DONTWAIT) == 0;
    Wait wait{carrier_, blocks, Wait::deadline_of(carrier_.options().send_timeout())};
    carrier_.serve();  // takes the news of the peer's mappings
    auto *const begin = static_cast<std::byte *>(const_cast<void *>(from));  // sent bytes are not written to
    std::size_t written = 0;
    while (true) {
        const auto put = wait.until([&]() -> Result<std::size_t> {
            carrier_.assert_looks();
            if (carrier_.state() != State::Streaming) {
                return base::failure(carrier_.why_no_stream());
            }
            return carrier_.stream()->write_at({.iov_base = begin + written, .iov_len = bytes - written},
                                               static_cast<std::uint64_t>(offset) + written);
        });
        if (!put) {
            return written != 0 ? Result<std::size_t>{written} : put;
        }
        written += *put;
        if (written == bytes) {
            return written;
        }
    }
}

}  // namespace rsockets
