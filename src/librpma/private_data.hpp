// SPDX-License-Identifier: BSD-3-Clause
// librpma/private_data: a copy of the bytes that came with a connection request or its answer.
#pragma once

#include <cstddef>
#include <cstring>

#include "librpma/api.hpp"

namespace librpma {

class PrivateData {
public:
    PrivateData() = default;

    // Copies the private data of an event. Fails with RPMA_E_NOMEM.
    [[nodiscard]] static Result<PrivateData> copy(const rdma_conn_param &parameters) {
        PrivateData data;
        if (parameters.private_data == nullptr || parameters.private_data_len == 0) {
            return data;
        }
        data.bytes_.reset(new (std::nothrow) std::byte[parameters.private_data_len]);
        if (data.bytes_ == nullptr) {
            return Failure{RPMA_E_NOMEM};
        }
        data.size_ = parameters.private_data_len;
        std::memcpy(data.bytes_.get(), parameters.private_data, data.size_);
        return data;
    }

    [[nodiscard]] bool empty() const { return bytes_ == nullptr; }
    // The result borrows the bytes.
    [[nodiscard]] rpma_conn_private_data view() const { return {.ptr = bytes_.get(), .len = size_}; }

private:
    std::unique_ptr<std::byte[]> bytes_;
    std::uint8_t size_ = 0;
};

}  // namespace librpma
