// SPDX-License-Identifier: BSD-3-Clause
// This target runs the whole device against a hostile peer on TCP. The first byte chooses what the peer does:
//   0  The peer sends the rest raw, from the first byte of the connection on.
//   1  The peer sends a valid start-up, then the rest as the stream.
//   2  The peer sends a valid start-up, then FPDUs that are nearly right (frame_builder.hpp), among what the
//      program does.
//   3  The device has asked for the connection. The peer sends a reply that is valid, or any other bytes, and
//      then goes on as in 2.
// The second byte chooses the start-up, the third chooses what the program does with it, and then the pieces
// follow. After each input the target requires three things: the device has closed the connection, no byte
// that was not opened to the peer has changed, and the listener takes the next one. With TLS a connection
// more costs as much as most inputs, so there the listener is asked after the first input and some others.
#include <array>
#include <vector>

#include "choices.hpp"
#include "frame_builder.hpp"
#include "hostile_peer.hpp"
#include "soft/wire/mpa.hpp"

namespace {

using namespace soft::wire;
using fuzz::Choices;
using fuzz::FuzzDevice;
using fuzz::HostilePeer;
using fuzz::require;

// These are bits of the third byte.
constexpr unsigned resets = 16;
constexpr unsigned raw_reply = 32;

constexpr int most_steps = 64;
constexpr std::size_t most_pending_bytes = 256 * 1024;

std::vector<std::byte> encoded(const MpaFrame &frame) {
    std::array<std::byte, mpa_max_frame_bytes> room;
    const std::size_t size = encode_mpa_frame(frame, room);
    return {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(size)};
}

MpaFrame startup(std::uint8_t choice) {
    const bool old = (choice & 1) != 0;
    return {.revision = static_cast<std::uint8_t>(old ? 1 : 2),
            .crc = (choice & 2) != 0,
            .soft_operations = (choice & 4) != 0,
            .enhanced = !old,
            .peer_to_peer = (choice & 8) != 0,
            .rtr_write = (choice & 16) != 0,
            .ird = FuzzDevice::depth,
            .ord = FuzzDevice::depth};
}

// Sends pieces of the input unchanged. Each piece is a length and then that many bytes.
void send_raw(HostilePeer &peer, Choices &choices) {
    while (choices.left()) {
        const std::size_t size = choices.byte();
        peer.send(choices.bytes(size == 0 ? 4096 : size));
    }
}

// Does one of the things that a program does between the pieces.
void act(FuzzDevice &device, Choices &choices) {
    const unsigned kind = choices.byte();
    switch (kind % 4) {
        case 0:
            device.post_receive(choices.word());
            break;
        case 1:
            device.post(kind / 4, choices.word());
            break;
        case 2:
            device.register_spare_again();
            break;
        default:
            device.disconnect();
            break;
    }
}

void send_frames(HostilePeer &peer, FuzzDevice &device, Choices &choices, bool crc) {
    fuzz::FrameBuilder builder{choices, device, crc};
    std::vector<std::byte> pending;
    for (int step = 0; step < most_steps && choices.left() && pending.size() < most_pending_bytes; ++step) {
        const unsigned choice = choices.byte();
        switch (choice % 16) {
            case 10:
                act(device, choices);
                break;
            case 11:
                for (unsigned again = choice / 16; again != 0; --again) {
                    pending.insert(pending.end(), builder.last().begin(), builder.last().end());
                }
                break;
            case 12: {
                const auto garbage = choices.bytes(choice / 16);
                pending.insert(pending.end(), garbage.begin(), garbage.end());
                break;
            }
            case 13: {  // sends the first bytes now, the rest later
                const std::size_t cut = std::min<std::size_t>(choices.byte(), pending.size());
                peer.send(std::span{pending}.first(cut));
                pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(cut));
                break;
            }
            case 14:
            case 15:
                peer.send(pending);
                pending.clear();
                break;
            default: {
                // The highest choices select the kinds after the tenth.
                const auto frame = builder.build(choice % 16 + (choice >= 160 ? 10 : 0));
                pending.insert(pending.end(), frame.begin(), frame.end());
                break;
            }
        }
    }
    peer.send(pending);
}

// Requires that the device still accepts a connection.
void check_listener(FuzzDevice &device) {
    HostilePeer peer{device, {.reject = true}};
    peer.send(encoded({}));
    peer.await_answer();
    peer.finish();
    const auto reply = decode_mpa_frame(peer.received(), MpaRole::Reply);
    require(reply && reply->reject, "the listener answers the next connection");
    device.close();
}

// Closes the side of the peer, or resets the connection.
void end(HostilePeer &peer, std::uint8_t program) {
    if ((program & resets) == 0) {
        peer.finish();
    } else {
        peer.reset();
    }
    FuzzDevice::instance().close();
}

// Returns whether to ask the listener after this input. The next input asks it too, unless its mode is 3.
bool is_listener_due() {
    constexpr unsigned inputs_with_tls = 8;
    static const unsigned inputs = FuzzDevice::uses_tls() ? inputs_with_tls : 1;
    static unsigned count = 0;
    return count++ % inputs == 0;
}

// Has the peer ask the device for the connection.
void ask(FuzzDevice &device, unsigned mode, Choices &choices) {
    const MpaFrame request = startup(choices.byte());
    const std::uint8_t program = choices.byte();
    HostilePeer peer{device, {.reject = (program & 15) == 15, .receives = (program & 15) % 8U}};
    if (mode == 0) {
        send_raw(peer, choices);
    } else {
        peer.send(encoded(request));
        peer.await_answer();
        require(device.answered(), "a valid start-up is answered");
        if (mode == 1) {
            send_raw(peer, choices);
        } else {
            send_frames(peer, device, choices, request.crc);
        }
    }
    end(peer, program);
}

// Has the device ask the peer for the connection.
void answer(FuzzDevice &device, Choices &choices) {
    MpaFrame reply = startup(choices.byte());
    const std::uint8_t program = choices.byte();
    HostilePeer peer{device, (program & 15) % 8U};
    if ((program & raw_reply) != 0) {
        peer.send(choices.bytes(choices.byte()));
    } else {
        reply.role = MpaRole::Reply;
        peer.send(encoded(reply));
    }
    send_frames(peer, device, choices, reply.crc);
    end(peer, program);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    FuzzDevice &device = FuzzDevice::instance();
    Choices choices{std::as_bytes(std::span{data, size})};
    const unsigned mode = choices.byte() % 4;
    if (mode == 3) {
        answer(device, choices);
    } else {
        ask(device, mode, choices);
    }
    device.check_memory();
    if (is_listener_due()) {
        check_listener(device);
    }
    return 0;
}
