// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/follower: keeps a store as that of another server, its leader (rpma serve --follow): a thread
// asks the leader what it has, pulls the contents that are new, and commits them under their sequences.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/condition.hpp"
#include "base/mutex.hpp"
#include "cli/arguments.hpp"
#include "cli/protocol/health.hpp"
#include "cli/store/store.hpp"

namespace cli {

class Metrics;
class Session;

class Follower {
public:
    using Clock = std::chrono::steady_clock;

    // The store outlives it, keeps so many contents of each name, and has so many names at most. A call of
    // storage that takes longer than `patience` is told.
    Follower(Store &store, Address leader, std::uint64_t keep, std::uint64_t max_names,
             Clock::duration patience);
    Follower(const Follower &) = delete;
    Follower &operator=(const Follower &) = delete;
    ~Follower();

    // Starts the thread, which calls `committed` for each commit.
    using Committed = std::function<void(const std::string &name, const Content &content)>;
    [[nodiscard]] Outcome<> start(Metrics &metrics, Committed committed);
    // Ends what is under way, within about a second; storage may take longer. The thread uses nothing after
    // it.
    void stop();

    // Any thread may call the others.
    [[nodiscard]] const std::string &leader() const { return leader_name_; }
    // Fills in what it lacks, and why.
    void tell(Health &health) const;

private:
    enum class Part { Changes, Whole };

    void run();
    [[nodiscard]] Following following() const;
    [[nodiscard]] Outcome<> look();
    [[nodiscard]] Outcome<> know_leader();
    [[nodiscard]] std::vector<Listed> missing(std::span<const Listed> theirs);
    [[nodiscard]] Outcome<> fetch_all(std::span<const Listed> wanted);
    [[nodiscard]] Outcome<> fetch(const Listed &content, Part part);
    [[nodiscard]] Outcome<> fill(StoreUpload &upload, const Listed &content, Session &session, Part part);
    [[nodiscard]] bool is_pruned(const Listed &content) const;
    // Returns what the call of storage returns, which is told while it takes long.
    template <typename Call>
    auto in_storage(const std::string &name, Call call);
    [[nodiscard]] Outcome<> stored(const Answer &answer);
    [[nodiscard]] bool storage_has_failed() const;
    void add_reason(const std::string &name, std::uint64_t sequence, const std::string &text);
    void end_round();
    [[nodiscard]] bool stops() const { return stopping_.load(std::memory_order_relaxed); }

    Store &store_;
    Address leader_;
    std::string leader_name_;
    std::uint64_t keep_;
    std::uint64_t longest_list_;  // in bytes
    Clock::duration patience_;
    Metrics *metrics_ = nullptr;  // since start(), as the next
    Committed committed_;
    bool differs_ = false;          // the last content that was pulled has not the bytes of its checksum
    bool is_whole_ = false;         // none of these bytes is of the store's newest content
    std::vector<Reason> found_;     // in this round
    std::uint64_t hops_ = 0;        // to the server that follows none
    std::set<std::string> logged_;  // what the last round has found, as sentences
    Clock::duration took_{};        // for the list of the leader, in this round
    std::atomic<bool> stopping_{false};
    mutable base::Mutex mutex_;
    base::Condition wake_;
    Following following_ GUARDED_BY(mutex_);
    std::optional<Clock::time_point> told_ GUARDED_BY(mutex_);  // when the leader did
    std::vector<Reason> reasons_ GUARDED_BY(mutex_);            // of the last round
    int storage_error_ GUARDED_BY(mutex_) = 0;                  // nothing is taken after it
    struct InStorage {
        std::string name;
        Clock::time_point since;
    };
    std::optional<InStorage> in_storage_ GUARDED_BY(mutex_);  // the call that is under way
    std::thread thread_;
};

}  // namespace cli
