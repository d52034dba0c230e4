// SPDX-License-Identifier: BSD-3-Clause
// librpma/id_owner: the owner of an id, which an event of an rpma_events is about. An id whose events go
// there has it as its context.
#pragma once

#include <cstdint>

namespace librpma {

class IdOwner {
public:
    enum class Kind : std::uint8_t { Connection, Request, Endpoint };

    explicit IdOwner(Kind kind) : kind_{kind} {}
    [[nodiscard]] Kind kind() const { return kind_; }

private:
    Kind kind_;
};

}  // namespace librpma
