// SPDX-License-Identifier: BSD-3-Clause
#include "soft/progress/lively.hpp"

#include <new>

namespace soft {

namespace {

// A source that has no work for so many looks leaves the list.
constexpr unsigned most_vain_looks = 1024;
// So many turns in a row may leave the descriptors for later.
constexpr unsigned most_turns_alone = 7;

// Returns whether the source has work; false when its link does not tell.
bool has_work(Source &source) {
    Link *const link = source.link_to_rest();
    return link != nullptr && link->look().value_or(false);
}

}  // namespace

bool Lively::add(Source &source) {
    if (count_ == most) {
        return false;
    }
    Link *const link = source.link_to_rest();
    if (link == nullptr || !link->look()) {
        return false;
    }
    if (sources_ == nullptr) {
        sources_.reset(new (std::nothrow) Source *[most]);
    }
    if (sources_ == nullptr) {
        return false;
    }
    source.lively_place_ = count_;
    source.vain_looks_ = 0;
    sources_[count_++] = &source;
    return true;
}

void Lively::remove(Source &source) {
    if (!has(source)) {
        return;
    }
    Source *const last = sources_[--count_];
    last->lively_place_ = source.lively_place_;
    sources_[source.lively_place_] = last;
    source.lively_place_ = Source::nowhere;
}

[[gnu::hot]] Lively::Taken Lively::take(std::span<Source *> to) {
    Taken taken;
    for (Source *const source : all()) {
        if (has_work(*source)) {
            source->vain_looks_ = 0;
            to[taken.count++] = source;
        } else if (++source->vain_looks_ >= most_vain_looks) {
            taken.quiet = source;
        }
    }
    if (taken.quiet != nullptr) {
        remove(*taken.quiet);
    }
    taken.alone = taken.count != 0 && turns_alone_ < most_turns_alone;
    turns_alone_ = taken.alone ? turns_alone_ + 1 : 0;
    return taken;
}

}  // namespace soft
