// SPDX-License-Identifier: BSD-3-Clause
// soft/cm/rejection: the MPA reply that rejects a request.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.hpp"
#include "soft/ground/tcp.hpp"
#include "soft/link/link.hpp"
#include "soft/wire/mpa.hpp"

namespace soft {

// The reason of a rejection. Only a soft device is told that descriptors are the reason.
enum class Reason { Unsaid, NoDescriptors };

[[nodiscard]] base::Result<void> send_rejection(Link &link, const wire::MpaFrame &request, Reason reason,
                                                std::span<const std::byte> private_data);
// Sends the answer, and lets the peer read it before the link ends.
[[nodiscard]] base::Result<void> refuse(std::unique_ptr<Link> link, const tcp::Address &peer,
                                        const wire::MpaFrame &request, Reason reason,
                                        std::span<const std::byte> private_data);

}  // namespace soft
