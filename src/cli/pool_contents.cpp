// SPDX-License-Identifier: BSD-3-Clause
// cli/pool_contents: the steps of a commit into a pool, and what a pool says of itself.
#include "cli/pool_contents.hpp"

#include <cerrno>
#include <utility>

namespace cli {

namespace {

class PoolUpload final : public Upload {
public:
    PoolUpload(std::string name, const Pool &pool, Content content, std::shared_ptr<int> error)
        : Upload{std::move(name), content.sequence},
          pool_{pool},
          content_{content},
          error_{std::move(error)} {}

    [[nodiscard]] const Content &content() const { return content_; }

    [[nodiscard]] Answer grow(std::uint64_t /*length*/, Memory & /*memory*/) override {
        return {Verdict::NoRoom, EFBIG, pool_.layout().capacity};
    }

    [[nodiscard]] Answer store(std::uint64_t offset, std::uint64_t length) override {
        const int error = *error_ != 0 ? *error_ : pool_.store(content_.slot, offset, length);
        return failed(Verdict::NotDurable, error);
    }

    [[nodiscard]] Answer commit(const Request &request, const Who & /*who*/) override {
        content_.length = request.length;
        content_.checksum = request.checksum;
        if (*error_ != 0) {
            return {Verdict::NotDurable, *error_};
        }
        std::uint32_t found = 0;
        const int error = pool_.checksum(content_.slot, content_.length, found);
        if (error == ESTALE || (error == 0 && found != content_.checksum)) {
            return {Verdict::Different};
        }
        if (const int stored = error != 0 ? error : pool_.store_header(content_); stored != 0) {
            return failed(Verdict::NotDurable, stored);
        }
        return failed(Verdict::Unknown, pool_.store_word(content_));
    }

    [[nodiscard]] Answer roll_back(std::uint64_t /*sequence*/) override {
        return {Verdict::NotDurable, EOPNOTSUPP};
    }

private:
    // Returns the answer for storage's outcome.
    Answer failed(Verdict verdict, int error) {
        if (error == 0) {
            return {Verdict::Done, 0, sequence()};
        }
        *error_ = error;
        return {verdict, error};
    }

    const Pool &pool_;
    Content content_;
    std::shared_ptr<int> error_;
};

}  // namespace

void PoolContents::tell(Offer &offer) const {
    if (committed_) {
        offer.sequence = committed_->sequence;
        offer.length = committed_->length;
        offer.checksum = committed_->checksum;
    }
    if (const std::string fault = pool_.fault(); !fault.empty()) {
        offer.reason = "the pool " + fault;
    } else if (damage_.is_committed_damaged) {
        offer.reason =
            damage_.only_good == 0
                ? fmt::format("content {} is damaged; a push replaces it", committed_->sequence)
                : fmt::format("content {} is damaged; rpma check --use-other-slot commits content {}",
                              committed_->sequence, damage_.only_good);
    }
}

std::string PoolContents::why_no_push() const {
    if (const std::string fault = pool_.fault(); !fault.empty()) {
        return fmt::format("{}: {}", text(), fault);
    }
    if (damage_.only_good == 0) {
        return {};
    }
    return fmt::format(
        "content {} is damaged, and a push would overwrite content {}, which is good: stop the server, and "
        "commit "
        "that content with rpma check --pool FILE --use-other-slot",
        committed_->sequence, damage_.only_good);
}

std::string PoolContents::what_stays(const std::string & /*name*/) const {
    if (!committed_) {
        return "the pool still has no content";
    }
    return fmt::format("the pool still has content {}{}", committed_->sequence,
                       damage_.is_committed_damaged ? ", which is damaged" : "");
}

Outcome<std::unique_ptr<Upload>> PoolContents::upload(const std::string &name, Memory &memory) {
    if (name != default_name) {
        return failed("{} has one content, without names", text());
    }
    const Content next = next_content(committed_);
    memory.bytes = pool_.slot(next.slot);
    return std::make_unique<PoolUpload>(name, pool_, next, error_);
}

Content PoolContents::committed(const Upload &upload) {
    committed_ = static_cast<const PoolUpload &>(upload).content();
    damage_ = {};
    return *committed_;
}

Outcome<std::string> PoolContents::list(const std::string & /*name*/) const {
    return failed("{} has one content, without names", text());
}

Outcome<Download> PoolContents::download(const std::string &name, std::uint64_t sequence) {
    if (name != default_name) {
        return failed("{} has one content, without names", text());
    }
    if (sequence != 0 && (!committed_ || committed_->sequence != sequence)) {
        return failed("{} has no content {}", text(), sequence);
    }
    return Download{committed_.value_or(Content{}), {pool_.slot(committed_ ? committed_->slot : 0), nullptr}};
}

}  // namespace cli
