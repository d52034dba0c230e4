// SPDX-License-Identifier: BSD-3-Clause
// A message of a datagram rsocket has an envelope and a label in front of it. This target
// decodes any bytes as each of the two. Bytes that are accepted are complete, and encode
// to bytes that are accepted as the same.
#include <algorithm>
#include <vector>

#include "choices.hpp"
#include "datagram/wire.hpp"

namespace {

using namespace datagram;
using fuzz::require;

template <typename T, typename Decode>
void require_same_again(const T &header, std::size_t bytes, std::size_t had, Decode decode) {
    require(bytes <= had, "a header that was accepted is there as a whole");
    std::vector<std::byte> again(bytes);
    encode(header, again);
    require(decode(again) == header, "an accepted header encodes to itself");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const auto input = std::as_bytes(std::span{data, size});
    const auto envelope = decode_envelope(input);
    const auto label = decode_label(input);
    require(!envelope || !label, "bytes are of one kind");
    if (envelope) {
        require(envelope->qp_num < 1U << 24, "a number has 24 bits");
        require(names(*envelope, envelope->ip), "an address is that of itself");
        require_same_again(*envelope, envelope_bytes(envelope->ip), size, decode_envelope);
    }
    if (label) {
        require(label->port != 0 && label->scope == 0, "a label has a port, and no interface of its sender");
        require_same_again(*label, label_bytes(label->ip), size, decode_label);
    }
    return 0;
}
