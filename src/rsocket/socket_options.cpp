// SPDX-License-Identifier: BSD-3-Clause
#include "rsocket/socket_options.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rsocket/option_value.hpp"
#include "stream/wire.hpp"

#include <rpma/rsocket.h>

namespace rsockets {

namespace {

constexpr int most_bytes = 1 << 30;

}  // namespace

void KeptOptions::keep(int level, int name, const void *value, socklen_t length) {
    const auto *const bytes = static_cast<const std::byte *>(value);
    auto changed = options_ != nullptr ? *options_ : std::vector<Option>{};
    std::erase_if(changed, [&](const Option &known) { return known.level == level && known.name == name; });
    changed.push_back({.level = level, .name = name, .value = {bytes, bytes + length}});
    options_ = std::make_shared<const std::vector<Option>>(std::move(changed));
}

void KeptOptions::apply(int fd) const {
    if (options_ == nullptr) {
        return;
    }
    for (const Option &option : *options_) {
        (void)setsockopt(fd, option.level, option.name, option.value.data(),
                         static_cast<socklen_t>(option.value.size()));
    }
}

bool SocketOptions::is_of_stream(int name) {
    switch (name) {
        case SO_RCVTIMEO:
        case SO_SNDTIMEO:
        case SO_LINGER:
        case SO_RCVBUF:
        case SO_SNDBUF:
        case SO_RCVLOWAT:
            return true;
        default:
            return false;
    }
}

base::Result<void> SocketOptions::set_of_stream(int name, const void *value, socklen_t length) {
    if (name == SO_RCVTIMEO || name == SO_SNDTIMEO) {
        const auto timeout = timeout_of(value, length);
        if (!timeout) {
            return std::unexpected{timeout.error()};
        }
        (name == SO_RCVTIMEO ? receive_timeout_ : send_timeout_) = *timeout;
    } else if (name == SO_LINGER) {
        const auto wanted = value_of<linger>(value, length);
        if (!wanted) {
            return base::failure(EINVAL);
        }
        lingering_ = *wanted;
    } else {
        const auto number = value_of<int>(value, length);
        if (!number) {
            return base::failure(EINVAL);
        }
        if (name == SO_RCVBUF) {
            settings_.receive_bytes = doubled_bytes(*number);
        } else if (name == SO_SNDBUF) {
            settings_.send_bytes = doubled_bytes(*number);
        } else {
            receive_low_water_ = static_cast<std::size_t>(std::clamp(*number, 1, most_bytes));
        }
    }
    return {};
}

base::Result<void> SocketOptions::set_of_rdma(int name, const void *value, socklen_t length) {
    const auto number = value_of<int>(value, length);
    if (!number || *number < 0) {
        return base::failure(EINVAL);
    }
    const auto messages = static_cast<std::uint16_t>(std::clamp(*number, 1, int{stream::most_messages}));
    switch (name) {
        case RDMA_SQSIZE:
            settings_.sends = messages;
            return {};
        case RDMA_RQSIZE:
            settings_.receives = messages;
            return {};
        case RDMA_INLINE:
            settings_.inline_bytes = static_cast<std::uint32_t>(std::min(*number, 0xffff));
            return {};
        case RDMA_IOMAPSIZE:
            settings_.slots = stream::from_scale(stream::to_scale(static_cast<std::uint32_t>(*number)));
            return {};
        default:
            return base::failure(ENOPROTOOPT);
    }
}

}  // namespace rsockets
