// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "honest.hpp"

namespace test {

using namespace soft::wire;

rdma_cm_id *Honest::connect(Device &device, const MpaFrame &request) {
    peer_.connect(device.port());
    wire_.emplace(peer_.socket(), Wire::Side::Client);
    send(encoded(request));
    rdma_cm_id *const id = device.take_request();
    device.accept(id);
    const auto has_reply = [this] {
        take();
        const auto tail =
            in_.size() < mpa_header_bytes
                ? std::nullopt
                : std::optional{
                      mpa_tail_bytes(std::span{in_}.first<mpa_header_bytes>(), MpaRole::Reply).value()};
        return tail && in_.size() == mpa_header_bytes + *tail;
    };
    device.work_until(has_reply);
    in_.clear();
    send(ready_to_receive(request.crc));
    (void)device.wait_for(RDMA_CM_EVENT_ESTABLISHED, id);
    return id;
}

void Honest::send(std::span<const std::byte> bytes) {
    const Clock deadline;
    while (!bytes.empty()) {
        bytes = bytes.subspan(wire_->give(bytes));
        assert_false(deadline.passed());
    }
}

void Honest::take() {
    assert_false(wire_->take(in_).has_value());
}

std::optional<Fpdu> Honest::take_fpdu() {
    take();
    const auto segment = decode_header(in_);
    assert_true(segment.has_value());
    if (!*segment || in_.size() < fpdu_bytes(**segment)) {
        return std::nullopt;
    }
    const auto end = in_.begin() + static_cast<std::ptrdiff_t>(fpdu_bytes(**segment));
    Fpdu one = taken_apart(Bytes(in_.begin(), end));
    in_.erase(in_.begin(), end);
    return one;
}

}  // namespace test
