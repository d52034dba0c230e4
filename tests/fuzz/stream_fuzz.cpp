// SPDX-License-Identifier: BSD-3-Clause
// This target gives the stream what a peer sends: private data, message words, and what it writes into our
// list. No input can do more than stop the stream: the stream reads in its own buffer only, sends only to
// windows that are memory and are as long as the first, and sends within the peer's credits.
#include <algorithm>
#include <array>
#include <cstring>

#include "choices.hpp"
#include "stream/allowance.hpp"
#include "stream/iomaps.hpp"
#include "stream/receive_ring.hpp"
#include "stream/window_list.hpp"

namespace {

using namespace stream;
using fuzz::Choices;
using fuzz::require;

constexpr std::uint32_t half = 1000;
constexpr std::uint16_t credits = 16;
constexpr std::uint32_t slots = 3;

// The target uses this when the private data is no Hello.
constexpr Hello usual{.credits = 20,
                      .slots = slots,
                      .list = {.address = 0x10000, .key = 1, .length = windows},
                      .data = {.address = 0x20000, .key = 1, .length = 0x012345}};

Hello hello_of(std::span<const std::byte> bytes) {
    const auto hello = decode_hello(bytes);
    if (!hello) {
        return usual;
    }
    require(bytes.size() >= hello_bytes, "private data has all its bytes");
    require(decode_hello(encode(*hello)) == *hello, "accepted private data encodes to what it means");
    require(hello->credits != 0 && hello->data.length != 0 && hello->list.length >= windows,
            "accepted private data has a list and a buffer");
    return *hello;
}

class Session {
public:
    explicit Session(const Hello &hello)
        : hello_{hello}, allowance_{hello.credits, hello.data}, granted_{hello.data.length} {}

    // Returns false when the stream ends because the peer broke the protocol.
    bool step(Choices &input) {
        switch (input.byte() % 8) {
            case 0:
            case 1:
                return take_word(decode_word(input.stag()));
            case 2:
                return take_word({.op = input.byte(), .value = input.word()});
            case 3:
                write(input);
                return true;
            case 4:
                consume(input.word());
                return true;
            case 5:
                update();
                return true;
            case 6:
                send(input.word());
                return true;
            default:
                find(input.word());
                return true;
        }
    }

private:
    bool take_word(Word word) {
        switch (static_cast<Op>(word.op)) {
            case Op::Data:
                return arrived(word.value);
            case Op::Window:
                return allowance_.extend(static_cast<std::uint16_t>(word.value)) && take_windows();
            case Op::Slot:
                return word.value < slots && ring_.arrived_empty() && take_slot(word.value);
            case Op::Control:
                return word.value <= static_cast<std::uint32_t>(Control::Shutdown);
        }
        return false;
    }
    bool arrived(std::uint32_t bytes) {
        const std::size_t before = ring_.readable();
        if (!ring_.arrived(bytes)) {
            return false;
        }
        require(ring_.readable() == before + bytes && ring_.readable() <= std::size_t{2} * half,
                "no more bytes than the buffer has");
        return true;
    }
    bool take_windows() {
        KeyedMemory window;
        while (true) {
            const auto found = granted_.take(list_.data(), window);
            if (found != WindowList::Taken::Window) {
                return found == WindowList::Taken::None;
            }
            require(window.length == hello_.data.length, "a window is as long as the first");
            if (!allowance_.open(window)) {
                return false;
            }
        }
    }
    bool take_slot(std::uint32_t index) {
        Slot slot;
        const std::byte *const entry = list_.data() + windows * window_bytes + index * slot_bytes;
        std::memcpy(&slot.offset, entry, sizeof(slot.offset));
        std::memcpy(&slot.memory, entry + sizeof(slot.offset), sizeof(slot.memory));
        return maps_.set(index, slot);
    }
    // Has the peer write at any place in the list.
    void write(Choices &input) {
        const std::size_t at = input.byte() % list_.size();
        const auto bytes = input.bytes(std::min<std::size_t>(input.byte() % 32, list_.size() - at));
        std::ranges::copy(bytes, list_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    void consume(std::size_t most) {
        const std::size_t bytes = std::min(most, ring_.readable());
        std::size_t seen = 0;
        while (seen < bytes) {
            const Part part = ring_.front(seen);
            require(part.size != 0 && part.offset + part.size <= std::size_t{2} * half,
                    "what is read lies in the buffer");
            seen += part.size;
        }
        ring_.consume(bytes);
    }
    void update() {
        for (int updates = 0; ring_.owes_update(); ++updates) {
            const auto update = ring_.update();
            require(!update.window || update.window->offset + update.window->size <= std::size_t{2} * half,
                    "a window that is given lies in the buffer");
            require(updates < 3, "there is an end of what is owed");
        }
    }
    void send(std::uint32_t most) {
        const std::uint32_t bytes = std::min(most, allowance_.room());
        require(allowance_.room() <= hello_.data.length, "no more room than a window has");
        if (bytes == 0) {
            return;
        }
        require(allowance_.has_credit(), "room only with a credit");
        const KeyedMemory to = allowance_.take(bytes);
        require(to.length == bytes && is_memory(to.address, bytes), "what is sent goes to memory");
    }
    void find(std::uint64_t offset) {
        const auto found = maps_.find(offset);
        require(!found || (found->length != 0 && is_memory(found->address, found->length)),
                "what is placed goes to memory");
    }

    const Hello hello_;
    ReceiveRing ring_{half, credits};
    Allowance allowance_;
    WindowList granted_;
    PeerMaps maps_{slots};
    alignas(8) std::array<std::byte, windows * window_bytes + slots * slot_bytes> list_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    Choices input{std::as_bytes(std::span{data, size})};
    Session session{hello_of(input.bytes(hello_bytes))};
    while (input.left() && session.step(input)) {
    }
    return 0;
}
