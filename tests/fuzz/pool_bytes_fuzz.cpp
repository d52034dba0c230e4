// SPDX-License-Identifier: BSD-3-Clause
// This target decodes the bytes that the rpma command takes from peers and files: the client's hello and
// requests, the server's offer, answers and list, a pool's superblock and its control bytes, the note of a
// content in a store. The first byte chooses the kind. Accepted values are within their bounds.
#include <algorithm>
#include <array>
#include <cstring>

#include "choices.hpp"
#include "cli/note.hpp"
#include "cli/pool_format.hpp"
#include "cli/protocol.hpp"

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
        const std::size_t size = offer->status == cli::Status::Ok ? 60 : 8;  // decoding may change a reason
        require(std::memcmp(again.data(), input.data(), size) == 0, "accepted bytes encode to themselves");
        require(offer->capacity <= cli::largest_capacity && offer->length <= offer->capacity,
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
        require(std::memcmp(again.data(), input.data(), 37) == 0, "accepted bytes encode to themselves");
    }
}

void check_superblock(std::span<const std::byte> input) {
    const auto layout = cli::decode_superblock(input);
    if (layout) {
        require(layout->capacity != 0 && layout->capacity <= cli::largest_capacity,
                "a capacity within bounds");
        require(layout->file_size() > 2 * layout->capacity, "a file that holds two contents");
    }
}

// Checks an input that is the commit word and then the header of either slot.
void check_control(std::span<const std::byte> input) {
    constexpr cli::Layout layout{.capacity = 100'000};
    static std::array<std::byte, cli::Layout::control_size> control;
    control.fill(std::byte{});
    fuzz::Choices choices{input};
    for (const std::uint64_t at :
         {cli::Layout::commit_word, cli::Layout::header(0), cli::Layout::header(1)}) {
        const std::size_t size =
            at == cli::Layout::commit_word ? sizeof(cli::CommitWord) : sizeof(cli::SlotHeader);
        std::ranges::copy(choices.bytes(size), control.begin() + static_cast<std::ptrdiff_t>(at));
    }
    const auto content = cli::committed_content(control, layout);
    if (content && *content) {
        const cli::Content &committed = **content;
        require(committed.length <= layout.capacity && committed.slot < 2, "a content within bounds");
        const auto header = committed.header();
        require(std::memcmp(header.data(), control.data() + cli::Layout::header(committed.slot),
                            header.size()) == 0,
                "an accepted header encodes to itself");
        const auto next = cli::next_content(*content);
        require(next.slot != committed.slot && next.sequence == committed.sequence + 1,
                "the next content goes into the other slot");
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const auto input = std::as_bytes(std::span{data, size});
    if (input.empty()) {
        return 0;
    }
    constexpr std::array checks{check_hello,   check_offer,  check_superblock, check_control,
                                check_request, check_answer, check_note,       check_list};
    checks[data[0] % checks.size()](input.subspan(1));
    return 0;
}
