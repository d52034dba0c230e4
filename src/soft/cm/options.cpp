// SPDX-License-Identifier: BSD-3-Clause
// soft/cm: the options of an id (rdma_set_option), with the sizes and the states of Linux's rdma_cm.
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/log.hpp"
#include "soft/cm/cm.hpp"

namespace soft {

namespace {

// Returns the value that an option points to, or nothing when the size is wrong.
template <typename T>
std::optional<T> read(const void *value, std::size_t size) {
    if (value == nullptr || size != sizeof(T)) {
        return std::nullopt;
    }
    T read{};
    std::memcpy(&read, value, sizeof(read));
    return read;
}

}  // namespace

base::Result<void> CmId::set_option(int level, int name, const void *value, std::size_t size) {
    if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH) {
        BASE_LOG(Error, "RDMA_OPTION_IB_PATH: this device has no InfiniBand paths, the kernel routes");
        return base::failure(EOPNOTSUPP);
    }
    if (level != RDMA_OPTION_ID) {
        return base::failure(ENOSYS);
    }
    const auto number = read<std::uint8_t>(value, size);
    const auto flag = read<int>(value, size);
    const State state = state_.load();
    switch (name) {
        case RDMA_OPTION_ID_TOS:
            if (!number) {
                return base::failure(EINVAL);
            }
            options_.service_type = number;
            if (const int socket = connection_socket(); socket >= 0) {
                tcp::set_service_type(socket, *number);
            }
            return {};
        case RDMA_OPTION_ID_REUSEADDR:
            if (!flag || state != State::Idle) {
                return base::failure(EINVAL);
            }
            options_.reuse_address = *flag != 0;
            return {};
        case RDMA_OPTION_ID_AFONLY:
            if (!flag || state != State::Idle) {
                return base::failure(EINVAL);
            }
            options_.v6_only = *flag != 0;
            return {};
        case RDMA_OPTION_ID_ACK_TIMEOUT:
            if (!number) {
                return base::failure(EINVAL);
            }
            ack_timeout_ = *number;
            return {};
        default:
            return base::failure(ENOSYS);
    }
}

base::Result<void> CmId::set_tls(const char *text) {
    if (ps != RDMA_PS_TCP) {
        return base::failure(EOPNOTSUPP);
    }
    auto wanted = tls_of_new_ids();
    if (text != nullptr) {
        auto asked = base::TlsAsked::parse(text);
        if (!asked) {
            BASE_LOG(
                Error,
                "the TLS of an id is \"%s\", expected psk:FILE or x509:FILE, with the whole path of FILE",
                text);
            return base::failure(EINVAL);
        }
        wanted = std::make_shared<const base::TlsAsked>(std::move(*asked));
    }
    if (has_begun()) {
        return *wanted == *tls_ ? base::Result<void>{} : base::failure(EINVAL);
    }
    tls_ = std::move(wanted);
    return {};
}

}  // namespace soft
