// SPDX-License-Identifier: BSD-3-Clause
// cli/store/storage: the threads in which a server stores and commits, looks at many files, and frees large
// memory, so that the server's own thread never waits for a disk.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/condition.hpp"
#include "base/fd.hpp"
#include "base/origin.hpp"
#include "cli/peer.hpp"
#include "cli/protocol/protocol.hpp"
#include "cli/store/upload.hpp"

namespace cli {

// One thread calls it.
class Storage {
public:
    // Each kind has threads of its own, so that none waits for the other: what a push asks for, with all that
    // changes the store; the opening of one content for a client; and a look at the files of many names.
    enum class Kind : std::uint8_t { Push, Open, Look };
    // A client has asked for room, to store, or to commit; or there is something to open or to look at for
    // it; or it is gone.
    struct Job {
        std::uint64_t client;  // this and the next are the caller's
        std::uint64_t place;
        base::Origin origin;
        Request request;
        Who who;
        std::shared_ptr<Upload> upload;
        std::shared_ptr<const DevicePeer> device;  // of the regions
        // NOLINTBEGIN(readability-redundant-member-init): g++ wants them where a job is made without
        std::vector<LocalRegion> regions{};   // of a release: giving them up may wait for the peer
        std::span<const std::byte> first{};   // of a Store: the bytes
        std::span<const std::byte> rest{};    // and those behind them
        std::function<std::string()> look{};  // of a Look: makes the text
        std::function<void()> open{};         // of Kind::Open
        Answer answer{};                      // set when the job is done
        Memory memory{};                      // of a Look that is done; the window of a Store
        double seconds = 0;                   // how long storage took
        bool releases = false;                // what submit_release() has made
        // For earlier releases: a job that has found no room, and a look that tells how much there is.
        bool waits = false;
        Kind kind = Kind::Push;
        std::uint64_t number = 0;  // of its submission
        // NOLINTEND(readability-redundant-member-init)
    };

    Storage() = default;
    Storage(const Storage &) = delete;
    Storage &operator=(const Storage &) = delete;
    // Waits for the jobs that are under way, and drops the others.
    ~Storage();

    [[nodiscard]] Outcome<> start();
    // Returns a descriptor that is readable from the end of a job until it is taken.
    [[nodiscard]] int fd() const { return done_event_.get(); }
    // Adds a job. Jobs of a client are done in the order of these calls, and those of several at once. One
    // thread of each kind is left to other origins, however many jobs an origin has.
    void submit(Job job);
    // Frees what a client that is gone had, or removes what its commit has made superfluous, after its other
    // jobs. A job that is submitted later, and finds no room, waits for it and tries again.
    void submit_release(Job job);
    // Drops what there is to open or to look at for a client, if that has not begun.
    void cancel(std::uint64_t client);
    [[nodiscard]] std::vector<Job> take_done();
    // Gives a job a text as what its look has made.
    static void give_text(Job &job, std::string_view text);

    using Clock = std::chrono::steady_clock;
    // A job of a push that is under way.
    struct Begun {
        std::string name;  // of the contents
        Who who;
        Clock::time_point since;
    };
    // Returns the one that has been under way longest.
    [[nodiscard]] std::optional<Begun> oldest() const;

private:
    static constexpr std::size_t threads_of_kind = 4;

    void run(Kind kind);
    [[nodiscard]] std::deque<Job>::iterator next(Kind kind) REQUIRES(mutex_);
    [[nodiscard]] std::uint64_t first_release() const REQUIRES(mutex_);
    [[nodiscard]] std::uint64_t first_release_that_can_begin() const REQUIRES(mutex_);

    base::Fd done_event_;
    mutable base::Mutex mutex_;
    base::Condition wake_;
    std::deque<Job> jobs_ GUARDED_BY(mutex_);
    struct UnderWay {
        std::uint64_t client;
        base::Origin origin;
        std::uint64_t number;
        bool releases;
        Kind kind;
        std::optional<Begun> begun;  // of a push
    };
    std::vector<UnderWay> under_way_ GUARDED_BY(mutex_);
    std::vector<Job> done_ GUARDED_BY(mutex_);
    std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::vector<std::thread> threads_;
};

}  // namespace cli
