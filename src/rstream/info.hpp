// SPDX-License-Identifier: BSD-3-Clause
// rstream/info: what fi_getinfo gives: an info for each pair of addresses and device on which a stream may
// be.
#pragma once

#include <sys/socket.h>

#include <optional>

#include "rstream/fids.hpp"
#include "stream/device.hpp"

namespace rstream {

inline constexpr const char *provider_name = "rstream";
inline constexpr const char *fabric_name = "rstream";
inline constexpr std::uint16_t usual_messages = 384;
inline constexpr std::uint32_t usual_buffer_bytes = 32768;
// How many parts the bytes of a call may have.
inline constexpr std::size_t most_parts = 1024;

// Works as fi_getinfo(3), for this provider.
[[nodiscard]] int get_info(std::uint32_t version, const char *node, const char *service, std::uint64_t flags,
                           const fi_info *hints, fi_info **info);

// Returns an address of libfabric; nothing when it is none of IPv4 or IPv6, or too short.
[[nodiscard]] std::optional<sockaddr_storage> address_of(const void *bytes, std::size_t size);
// Sets an address of an info. Throws std::bad_alloc.
void set_address(void *&place, std::size_t &size, const sockaddr_storage &address);
// Sets the name of an info's device. Throws std::bad_alloc.
void set_device(fi_info &info, const char *name);
// Gives an address to a program, as fi_getname(3) does.
[[nodiscard]] int give_address(const sockaddr_storage &address, void *place, std::size_t *size);

// Returns the device that serves a local address: the one with that name, where it is not empty, or the
// kernel's before the soft one.
[[nodiscard]] base::Result<const stream::Device *> device_at(const sockaddr_storage &local,
                                                             std::string_view name);

}  // namespace rstream
