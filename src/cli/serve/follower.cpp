// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/follower: asks a leader, pulls what is new, and commits it.
#include "cli/serve/follower.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "base/log.hpp"
#include "cli/serve/metrics.hpp"
#include "cli/thread.hpp"
#include "cli/transfer/changes.hpp"
#include "cli/transfer/session.hpp"
#include "cli/transfer/transfer.hpp"

namespace cli {

namespace {

constexpr double leader_timeout_seconds = 30;  // without an answer of the leader
// The leader looks at a file of each content when it is asked, so a look that takes long is repeated seldom.
constexpr auto shortest_pause = std::chrono::seconds{1};
constexpr auto longest_pause = std::chrono::seconds{60};
constexpr int part_of_time = 10;
// A chain of followers has fewer servers, or is a loop.
constexpr std::uint64_t most_hops = 8;
// A leader that lies must not take all memory, so it may tell so much: the faults of its contents, and a
// list in which each name that this store may have takes so much, some thirty contents.
constexpr std::uint64_t longest_health = std::uint64_t{4} << 20;
constexpr std::uint64_t list_of_name = std::uint64_t{8} << 10;
constexpr std::uint64_t list_of_none = std::uint64_t{1} << 20;

double duration_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Follower::Follower(Store &store, Address leader, std::uint64_t keep, std::uint64_t max_names,
                   Clock::duration patience)
    : store_{store},
      leader_{std::move(leader)},
      leader_name_{leader_.text()},
      keep_{keep},
      longest_list_{std::min(std::min(max_names, longest_text / list_of_name) * list_of_name + list_of_none,
                             longest_text)},
      patience_{patience},
      following_{.leader = leader_name_} {}

Follower::~Follower() {
    stop();
}

void Follower::stop() {
    {
        const base::Lock lock{mutex_};
        stopping_.store(true, std::memory_order_relaxed);
    }
    wake_.notify_all();
    if (thread_.joinable()) {
        end_waits();
        thread_.join();
    }
}

Outcome<> Follower::start(Metrics &metrics, Committed committed) {
    metrics_ = &metrics;
    committed_ = std::move(committed);
    thread_ = TRY(start_thread([this] { run(); }));
    return {};
}

Following Follower::following() const {
    const base::Lock lock{mutex_};
    Following following = following_;
    if (told_) {
        following.seconds = static_cast<std::uint64_t>(
            std::chrono::floor<std::chrono::seconds>(Clock::now() - *told_).count());
    }
    return following;
}

void Follower::tell(Health &health) const {
    health.follows = following();
    const base::Lock lock{mutex_};
    health.reasons.insert(health.reasons.end(), reasons_.begin(), reasons_.end());
    if (storage_error_ != 0) {
        health.reasons.push_back({"storage",
                                  {},
                                  0,
                                  fmt::format("failed: {}; nothing is taken from {} until the server is "
                                              "started again",
                                              errno_text(storage_error_), leader_name_)});
    }
    if (in_storage_ && Clock::now() - in_storage_->since >= patience_) {
        const auto seconds =
            std::chrono::floor<std::chrono::seconds>(Clock::now() - in_storage_->since).count();
        health.reasons.push_back({"slow", in_storage_->name, 0,
                                  fmt::format("storage has not done what a content of {} needs, for {} "
                                              "seconds",
                                              leader_name_, seconds)});
    }
}

template <typename Call>
auto Follower::in_storage(const std::string &name, Call call) {
    {
        const base::Lock lock{mutex_};
        in_storage_ = {name, Clock::now()};
    }
    auto result = call();
    const base::Lock lock{mutex_};
    in_storage_.reset();
    return result;
}

void Follower::run() {
    while (!stops()) {
        took_ = {};
        if (const auto looked = look(); !looked && !stops()) {
            add_reason({}, 0, looked.error().text);
        }
        end_round();
        const auto pause = std::clamp<Clock::duration>(took_ * part_of_time, shortest_pause, longest_pause);
        const auto next = Clock::now() + pause;
        const base::Lock lock{mutex_};
        while (!stops() && Clock::now() < next) {
            (void)wake_.wait_until(mutex_, next);
        }
    }
}

bool Follower::storage_has_failed() const {
    const base::Lock lock{mutex_};
    return storage_error_ != 0;
}

void Follower::add_reason(const std::string &name, std::uint64_t sequence, const std::string &text) {
    found_.push_back({"behind", name, sequence, text});
}

// Shows what this round has found, and logs what the round before it had not.
void Follower::end_round() {
    std::set<std::string> sentences;
    for (const Reason &reason : found_) {
        const auto [sentence, is_first] = sentences.insert(reason.sentence());
        if (is_first && !logged_.contains(*sentence)) {
            BASE_LOG_PEER(Warning, "%s does not follow %s: %s", store_.text().c_str(), leader_name_.c_str(),
                          sentence->c_str());
        }
    }
    if (sentences.empty() && !logged_.empty()) {
        BASE_LOG_PEER(Warning, "%s follows %s again", store_.text().c_str(), leader_name_.c_str());
    }
    logged_ = std::move(sentences);
    {
        const base::Lock lock{mutex_};
        reasons_.swap(found_);
    }
    found_.clear();
}

// Takes what the leader has, and this store has not.
Outcome<> Follower::look() {
    if (storage_has_failed()) {
        return {};
    }
    TransferOptions options;
    options.address = leader_name_;
    options.timeout_seconds = leader_timeout_seconds;
    options.longest_list = longest_list_;
    const auto told = Clock::now();
    auto list = TRY(ask_for_list({leader_, {}}, options));
    // Asked after the list, so the list is not that of another store which came meanwhile.
    TRY(know_leader());
    took_ = Clock::now() - told;
    std::map<std::string, std::vector<Listed>> names;
    for (Listed &content : list) {
        if (!is_name(content.name) || content.sequence == 0 || content.sequence > largest_sequence ||
            encode_note(content.note).size() > longest_note) {
            return failed("{}: lists what no store has", leader_name_);
        }
        names[content.name].push_back(std::move(content));
    }
    if (names.empty()) {
        Health own;
        store_.tell_known(own);
        if (own.contents != 0) {
            add_reason({}, 0,
                       fmt::format("{}: has no content, and this store has {}: the leader was emptied",
                                   leader_name_, own.contents));
        }
    }
    std::vector<Listed> wanted;
    Following lacks{.leader = leader_name_, .hops = hops_};
    for (auto &[name, theirs] : names) {
        std::ranges::sort(theirs, {}, &Listed::sequence);
        for (Listed &content : missing(theirs)) {
            ++lacks.contents;
            lacks.bytes += content.note.length;
            wanted.push_back(std::move(content));
        }
    }
    {
        const base::Lock lock{mutex_};
        following_ = lacks;
        told_ = told;
    }
    return fetch_all(wanted);
}

// Ends early when storage has failed, or the leader is away. When a content cannot be taken now, the later
// ones of its name wait for it: the store takes no content that is older than its newest. One that is damaged
// at the leader, or that this store may never have, is left out. One that the leader has removed since it
// told of it is no fault: the next round asks again.
Outcome<> Follower::fetch_all(std::span<const Listed> wanted) {
    std::string waiting;
    for (const Listed &content : wanted) {
        if (content.name == waiting) {
            continue;
        }
        if (!content.fault.empty()) {
            add_reason(content.name, content.sequence,
                       fmt::format("cannot be pulled: there it {}", content.fault));
            continue;
        }
        if (content.note.length > store_.capacity()) {
            add_reason(content.name, content.sequence,
                       fmt::format("has {} bytes, and one here may have {} (--max-bytes)",
                                   content.note.length, store_.capacity()));
            continue;
        }
        auto fetched = fetch(content, Part::Changes);
        if (differs_ && !is_whole_ && !stops()) {
            fetched = fetch(content, Part::Whole);  // a block of either side is damaged
        }
        if (stops() || storage_has_failed()) {
            return {};
        }
        if (fetched) {
            continue;
        }
        if (fetched.error().exit == Exit::Unreachable) {
            return fetched;
        }
        if (is_pruned(content)) {
            continue;
        }
        add_reason(content.name, content.sequence, fetched.error().text);
        if (!differs_) {
            waiting = content.name;
        }
    }
    return {};
}

// Returns whether the leader has the content no more, and has others of the name.
bool Follower::is_pruned(const Listed &content) const {
    TransferOptions options;
    options.address = leader_name_;
    options.timeout_seconds = leader_timeout_seconds;
    options.longest_list = longest_list_;
    const auto list = ask_for_list({leader_, content.name}, options);
    return list && !list->empty() &&
           std::ranges::find(*list, content.sequence, &Listed::sequence) == list->end();
}

// Fails when the leader has another store than the one that was followed before. Where the leader has removed
// what this store has, nothing else tells these stores apart.
Outcome<> Follower::know_leader() {
    const Health health = TRY(ask_for_health(leader_, leader_name_, leader_timeout_seconds, longest_health));
    hops_ = health.follows ? std::min(health.follows->hops, most_hops) + 1 : 1;
    if (hops_ > most_hops) {
        {
            const base::Lock lock{mutex_};
            following_.hops = hops_;
        }
        return failed(
            "{}: follows this server, or the chain of servers that follow one another is longer than {}",
            leader_name_, most_hops);
    }
    const std::string &store = health.store;
    const std::string known = TRY(store_.leader());
    if (store == known) {
        return {};
    }
    if (!is_identity(store)) {
        return failed(
            "{}: does not tell the identity of its store, which was followed before it; remove {} "
            "to follow it",
            leader_name_, store_.leader_file());
    }
    if (known.empty()) {
        return store_.follow(store);
    }
    return failed("{}: has another store than the one that was followed; remove {} to follow it",
                  leader_name_, store_.leader_file());
}

// Returns the contents of a name that the store would keep and has not, from the oldest to the newest. They
// have to be later ones of the same history. The newest one comes again when it is damaged here.
std::vector<Listed> Follower::missing(std::span<const Listed> theirs) {
    const std::string &name = theirs.front().name;
    const Listed own = store_.newest(name);
    const auto same = std::ranges::find(theirs, own.sequence, &Listed::sequence);
    const bool differs =
        same != theirs.end() && own.fault.empty() && same->fault.empty() && !are_same(own.note, same->note);
    if (differs || theirs.back().sequence < own.sequence) {
        add_reason(name, own.sequence,
                   differs ? "is another one there: the leader has a store of another history"
                           : fmt::format("is here, and the leader's newest content is {}: it has an older "
                                         "store, or another one",
                                         theirs.back().sequence));
        return {};
    }
    const bool again = theirs.back().sequence == own.sequence && store_.is_newest_damaged(name);
    const auto first = again ? theirs.end() - 1 : std::ranges::find_if(theirs, [&](const Listed &content) {
        return content.sequence > own.sequence;
    });
    const auto count = static_cast<std::uint64_t>(theirs.end() - first);
    const auto skipped = static_cast<std::ptrdiff_t>(count - std::min(count, keep_));
    return {first + skipped, theirs.end()};
}

// Fails with Exit::Unreachable when the leader is away.
Outcome<> Follower::fetch(const Listed &content, Part part) {
    differs_ = false;
    const auto upload =
        TRY(in_storage(content.name, [&] { return store_.replica(content.name, content.sequence); }));
    const auto session = TRY(Session::open(
        leader_,
        {.version = protocol_version, .mode = Mode::Pull, .sequence = content.sequence, .name = content.name},
        leader_timeout_seconds));
    if (const auto filled = fill(*upload, content, *session, part); !filled) {
        return failed("{}", filled.error().text);  // the next pull finds out whether the leader is away
    }
    const Content committed = store_.committed(*upload);
    upload->retire();
    {
        const base::Lock lock{mutex_};
        --following_.contents;
        following_.bytes -= content.note.length;
    }
    committed_(content.name, committed);
    return {};
}

// Pulls the bytes of a content, those of blocks that differ when both sides know the checksums of blocks, and
// commits it.
Outcome<> Follower::fill(StoreUpload &upload, const Listed &content, Session &session, Part part) {
    const Note &note = content.note;
    const Offer &offer = session.offer();
    if (offer.sequence != content.sequence || offer.length != note.length ||
        offer.checksum != note.checksum) {
        return failed("is another one than was listed");
    }
    std::vector<Session::Range> ranges{{0, note.length}};
    if (const auto there = TRY(blocks_of(session, note.length, note.checksum))) {
        const auto here =
            decode_blocks(in_storage(content.name, [&] { return upload.begin_as_newest(note.length); }));
        if (here && here->block_size == there->block_size && part == Part::Changes) {
            ranges = differing(*there, *here);
        }
    }
    is_whole_ = ranges.size() == 1 && ranges.front().length == note.length;
    TRY(stored(in_storage(content.name, [&] { return upload.reserve(note.length); })));
    std::uint64_t end = 0;
    // Has the store take the bytes before the offset from its newest content, so many at once that the leader
    // hears of this pull meanwhile.
    const auto pass_to = [&](std::uint64_t offset) -> Outcome<> {
        constexpr std::uint64_t most = std::uint64_t{64} << 20;
        while (end < offset) {
            end = std::min(offset, end + most);
            TRY(stored(in_storage(content.name, [&] { return upload.store(end, {}, {}); })));
            TRY(session.keep_alive());
        }
        return stops() ? failed("the server stops") : Outcome<>{};
    };
    const auto take = [&](std::span<const std::byte> bytes, std::uint64_t offset) -> Outcome<> {
        TRY(pass_to(offset));
        const auto begin = Clock::now();
        TRY(stored(in_storage(content.name, [&] { return upload.store(offset, bytes, {}); })));
        metrics_->stored(bytes.size(), duration_since(begin));
        end = offset + bytes.size();
        return {};
    };
    TRY(session.read_ranges(ranges, take));
    TRY(pass_to(note.length));
    session.close();
    const auto begin = Clock::now();
    TRY(stored(in_storage(content.name, [&] { return upload.commit_as(note); })));
    metrics_->committed(note.length, duration_since(begin));
    return {};
}

// Returns why the store has not done what it was asked for.
Outcome<> Follower::stored(const Answer &answer) {
    if (Store::is_fatal(answer)) {
        {
            const base::Lock lock{mutex_};
            storage_error_ = answer.error;
        }
        BASE_LOG(Error,
                 "%s: cannot make it durable: %s; nothing is taken from %s until the server is started again",
                 store_.text().c_str(), errno_text(answer.error), leader_name_.c_str());
        metrics_->storage_failed();
    }
    switch (answer.verdict) {
        case Verdict::Done:
            return {};
        case Verdict::NoRoom:
            return failed("has no room here: {}",
                          answer.error == 0 ? "--max-bytes" : errno_text(answer.error));
        case Verdict::Different:
            differs_ = true;
            return failed("came with other bytes, or would build on a content that is damaged here");
        case Verdict::NotDurable:
        case Verdict::Unknown:
        case Verdict::Ended:
        case Verdict::Newer:
            break;
    }
    return failed("cannot be made durable here: {}", errno_text(answer.error));
}

}  // namespace cli
