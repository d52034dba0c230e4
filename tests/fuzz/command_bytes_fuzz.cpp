// SPDX-License-Identifier: BSD-3-Clause
// This target decodes the bytes that the rpma command takes from peers and files: the client's hello and
// requests, the server's offer, answers, list and status, the note of a content in a store, and the names of
// files there. The first byte chooses the kind. Accepted values are within their bounds.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "choices.hpp"
#include "cli/protocol/health.hpp"
#include "cli/protocol/note.hpp"
#include "cli/protocol/protocol.hpp"

namespace {

using fuzz::require;

void check_hello(std::span<const std::byte> input) {
    const auto hello = cli::decode_hello(input);
    if (hello && hello->version == cli::protocol_version) {
        const auto again = cli::encode_hello(*hello);
        require(std::memcmp(again.data(), input.data(), 7) == 0, "accepted bytes encode to themselves");
        require(std::memcmp(again.data() + 8, input.data() + 8, again.size() - 8) == 0,
                "accepted numbers and names encode to themselves");
        require(hello->name.empty() || cli::is_name(hello->name), "a name of a folder");
    }
}

void check_offer(std::span<const std::byte> input) {
    const auto offer = cli::decode_offer(input);
    if (offer) {
        const auto again = cli::encode_offer(*offer);
        const bool has_fields = offer->status == cli::Status::Ok || offer->status == cli::Status::Forgot;
        const std::size_t size = has_fields ? 92 : 8;  // decoding may change a reason
        require(std::memcmp(again.data(), input.data(), size) == 0, "accepted bytes encode to themselves");
        require(offer->capacity <= cli::largest_capacity && offer->length <= cli::largest_capacity,
                "a content within bounds");
        require(std::ranges::all_of(offer->reason, [](char c) { return c >= ' ' && c <= '~'; }),
                "a reason that a terminal can show");
    }
}

void check_request(std::span<const std::byte> input) {
    const auto request = cli::decode_request(input);
    if (request) {
        const auto again = cli::encode_request(*request);
        require(std::ranges::equal(again, input), "accepted bytes encode to themselves");
    }
}

void check_answer(std::span<const std::byte> input) {
    const auto answer = cli::decode_answer(input);
    if (answer) {
        const auto again = cli::encode_answer(*answer);
        require(std::memcmp(again.data(), input.data(), 41) == 0, "accepted bytes encode to themselves");
    }
}

void check_note(std::span<const std::byte> input) {
    const auto note = cli::decode_note({reinterpret_cast<const char *>(input.data()), input.size()});
    if (note) {
        const auto again = cli::decode_note(cli::encode_note(*note));
        require(!again || (again->length == note->length && again->checksum == note->checksum),
                "an accepted note survives");
    }
}

void check_list(std::span<const std::byte> input) {
    const auto list = cli::decode_list({reinterpret_cast<const char *>(input.data()), input.size()});
    if (list) {
        require(cli::decode_list(cli::encode_list(*list))->size() == list->size(),
                "an accepted list survives");
    }
}

void check_health(std::span<const std::byte> input) {
    const auto health = cli::decode_health({reinterpret_cast<const char *>(input.data()), input.size()});
    if (health) {
        require(cli::decode_health(cli::encode_health(*health)).has_value(), "an accepted status survives");
    }
}

// A file's name is that of a content, or of none.
void check_name(std::span<const std::byte> input) {
    const std::string_view name{reinterpret_cast<const char *>(input.data()), input.size()};
    const std::uint64_t sequence = cli::sequence_of(name);
    require(sequence == 0 || std::to_string(sequence) == name, "a number has one name");
    require(!cli::is_name(name) || (name.front() != '.' && name.find('/') == std::string_view::npos),
            "a name stays in its folder");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const auto input = std::as_bytes(std::span{data, size});
    if (input.empty()) {
        return 0;
    }
    constexpr std::array checks{check_hello, check_offer, check_request, check_answer,
                                check_note,  check_list,  check_name,    check_health};
    checks[data[0] % checks.size()](input.subspan(1));
    return 0;
}
