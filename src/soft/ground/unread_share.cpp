// SPDX-License-Identifier: BSD-3-Clause
#include "soft/ground/unread_share.hpp"

#include <algorithm>
#include <utility>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "soft/ground/limits.hpp"

namespace soft {

namespace {

constexpr std::size_t part = 16;

constinit base::LastingMutex lock_of_given;  // no other lock is taken with it

const base::HeldWhileForking<lock_of_given> given_survives_forks{base::ForkLevel::SoftGround};

struct Given {
    std::size_t bytes = 0;
    base::Shares shares;
};
Given &given() REQUIRES(lock_of_given) {
    static auto &all = *new Given;  // never destroyed, because connections may end while the process ends
    return all;
}

std::size_t left(std::size_t most, std::size_t used) {
    return most - std::min(most, used);
}

}  // namespace

UnreadShare::UnreadShare(base::Origin origin) : origin_{origin} {
    const base::Lock lock{lock_of_given};
    Given &all = given();
    const std::size_t most = std::min(left(limits::in_force().unread_bytes_of_process, all.bytes),
                                      left(limits::in_force().unread_bytes_of_origin, all.shares.of(origin)));
    const std::size_t bytes = std::clamp(most / part, limits::least_unread_bytes, limits::most_unread_bytes);
    all.shares.add(origin, bytes);
    all.bytes += bytes;
    bytes_ = bytes;
}

UnreadShare::~UnreadShare() {
    if (bytes_ != 0) {
        const base::Lock lock{lock_of_given};
        given().shares.remove(origin_, bytes_);
        given().bytes -= bytes_;
    }
}

UnreadShare::UnreadShare(UnreadShare &&other) noexcept
    : origin_{other.origin_}, bytes_{std::exchange(other.bytes_, 0)} {}

UnreadShare &UnreadShare::operator=(UnreadShare &&other) noexcept {
    const UnreadShare before{std::move(*this)};  // gives its part back when it is destroyed
    origin_ = other.origin_;
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
}

}  // namespace soft
