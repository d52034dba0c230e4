// SPDX-License-Identifier: BSD-3-Clause
// This target reads what a peer says about its memory and itself: both descriptors, and the private data of a
// connection request or answer that carries them. The memory region comes first and the peer configuration
// follows, as in the examples and in fio.
#include <cstdint>
#include <cstring>
#include <span>

#include "choices.hpp"
#include "librpma/api.hpp"
#include "librpma/private_data.hpp"

namespace {

using fuzz::require;
using Bytes = std::span<const std::uint8_t>;

constexpr std::size_t mr_descriptor_size = 21;
constexpr std::size_t usage_place = 20;

std::uint64_t little_endian(Bytes bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) {
        value = value << 8 | bytes[i];
    }
    return value;
}

// Returns the place to which only a successful call may write.
template <typename T>
T *untouched() {
    static char place;
    return reinterpret_cast<T *>(&place);
}

void read_region(Bytes bytes) {
    auto *mr = untouched<rpma_mr_remote>();
    const int result = rpma_mr_remote_from_descriptor(bytes.data(), bytes.size(), &mr);
    if (bytes.size() < mr_descriptor_size || bytes[usage_place] == 0) {
        require(result == RPMA_E_INVAL && mr == untouched<rpma_mr_remote>(),
                "too few bytes, or no use: refused");
        return;
    }
    require(result == 0, "what has the bytes and a use is taken");
    std::size_t size = 0;
    int flush_type = -1;
    require(rpma_mr_remote_get_size(mr, &size) == 0 && size == little_endian(bytes.subspan(8, 8)),
            "the size is the descriptor's");
    require(rpma_mr_remote_get_flush_type(mr, &flush_type) == 0 && flush_type == (bytes[usage_place] & 0x30),
            "the flush type is the descriptor's usage");
    require(rpma_mr_remote_delete(&mr) == 0 && mr == nullptr, "it can be deleted");
}

void read_peer(Bytes bytes) {
    auto *pcfg = untouched<rpma_peer_cfg>();
    const int result = rpma_peer_cfg_from_descriptor(bytes.data(), bytes.size(), &pcfg);
    if (bytes.empty()) {
        require(result == RPMA_E_INVAL && pcfg == untouched<rpma_peer_cfg>(), "nothing is refused");
        return;
    }
    require(result == 0, "a byte is taken");
    bool supported = false;
    std::uint8_t sent = 0xee;
    require(rpma_peer_cfg_get_direct_write_to_pmem(pcfg, &supported) == 0 && supported == (bytes[0] != 0),
            "any byte but 0 is support");
    require(rpma_peer_cfg_get_descriptor(pcfg, &sent) == 0 && sent == (supported ? 1 : 0),
            "which is sent as 1");
    require(rpma_peer_cfg_delete(&pcfg) == 0 && pcfg == nullptr, "it can be deleted");
}

// Reads the private data as a program does that gets it with an event.
void receive(Bytes bytes) {
    rdma_conn_param parameters{};
    parameters.private_data = bytes.empty() ? nullptr : bytes.data();
    parameters.private_data_len = static_cast<std::uint8_t>(bytes.size());
    const auto data = librpma::PrivateData::copy(parameters);
    require(data.has_value(), "there is memory");
    const rpma_conn_private_data view = data->view();
    require(view.len == parameters.private_data_len && (view.len == 0) == (view.ptr == nullptr),
            "all bytes, or none at no place");
    const Bytes copy{static_cast<const std::uint8_t *>(view.ptr), view.len};
    require(view.len == 0 || std::memcmp(copy.data(), bytes.data(), view.len) == 0,
            "the bytes are the peer's");
    read_region(copy);
    read_peer(copy.subspan(std::min<std::size_t>(copy.size(), mr_descriptor_size)));
}

// Drops the lines of the log.
void discard(rpma_log_level, const char *, int, const char *, const char *, ...) {}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static const bool quiet = [] {
        return rpma_log_set_function(discard) == 0 &&
               rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_DEBUG) == 0;
    }();
    require(quiet, "the log is formatted and dropped");
    const Bytes input{data, size};
    read_region(input);
    read_peer(input);
    receive(input.first(std::min<std::size_t>(size, UINT8_MAX)));
    return 0;
}
