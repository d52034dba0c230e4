// SPDX-License-Identifier: BSD-3-Clause
// cli/store/storage: the threads in which a server stores and commits, looks at many files, and frees large
// memory, so that the server's own thread never waits for a disk.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/condition.hpp"
#include "base/fd.hpp"
#include "base/origin.hpp"
#include "cli/peer.hpp"
#include "cli/protocol/protocol.hpp"
#include "cli/store/upload.hpp"

namespace cli {

// One thread calls it. What it does for a job beside the work takes no longer when many jobs wait.
class Storage {
public:
    // Each kind has threads of its own, so that none waits for another: what a push asks for, with all that
    // changes the store; the opening of one content for a client, and its end, which only read; a look at the
    // files of many names; and the end of memory that is of no file, which waits for no storage.
    enum class Kind : std::uint8_t { Push, Open, Look, Memory };
    // A job that finds no room, and no release to wait for, is Wanted: the caller may make room, and has it
    // try for the last time.
    enum class Room : std::uint8_t { Unasked, Wanted, LastTry };
    // A client has asked for room, to store, or to commit; or there is something to open or to look at for
    // it; or it is gone.
    struct Job {
        std::uint64_t client = 0;  // this and the next are the caller's
        std::uint64_t place = 0;
        base::Origin origin{};
        Request request;
        Who who;
        std::shared_ptr<Upload> upload;
        std::shared_ptr<const DevicePeer> device;  // of the regions
        std::vector<LocalRegion> regions;          // of a release: giving them up may wait for the peer
        std::span<const std::byte> first;          // of a Store: the bytes
        std::span<const std::byte> rest;           // and those behind them
        std::function<std::string()> look;         // of a Look: makes the text
        std::function<void()> open;                // opens what a client wants before it is accepted
        Answer answer;                             // set when the job is done
        Memory memory;                             // of a Look that is done; the window of a Store
        double seconds = 0;                        // how long storage took
        bool releases = false;                     // it gives up what it has
        bool leaves = false;                       // submit_release() has made it
        Room room = Room::Unasked;
        std::optional<std::string> after;  // it waits for earlier releases of this name; empty: of all
        Kind kind = Kind::Push;
        std::uint64_t number = 0;  // of its submission
    };

    Storage() = default;
    Storage(const Storage &) = delete;
    Storage &operator=(const Storage &) = delete;
    // Waits for the jobs that are under way, and drops the others.
    ~Storage();

    [[nodiscard]] Outcome<> start();
    // Returns a descriptor that is readable from the end of a job until it is taken.
    [[nodiscard]] int fd() const { return done_event_.get(); }
    // Adds a job. The jobs of a client that are of one kind are done in the order of these calls. The origins
    // with jobs of a kind have their turns, and one thread of each kind is left to others, however many jobs
    // an origin has.
    void submit(Job job);
    // Adds the release of what a client that is gone had. A job that is submitted later, and finds no room,
    // waits for it and tries again; so it does for another job that `releases`.
    void submit_release(Job job);
    // Returns how many clients are gone of which submit_release() has an upload that is not released.
    struct Leaving {
        std::size_t of_origin;
        std::size_t all;
    };
    [[nodiscard]] Leaving leaving(base::Origin origin) const;
    // Drops what there is to open or to look at for a client of this origin, if that has not begun.
    void cancel(std::uint64_t client, base::Origin origin);
    // Returns the jobs that are done, without releases, and those of which room is Wanted. Of those that are
    // done, only a commit and a rollback have their upload still.
    [[nodiscard]] std::vector<Job> take_done();
    // Has a job of which room is Wanted try again, before the next job of its client, after the releases that
    // have been submitted.
    void try_again(Job job);
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
    static constexpr std::size_t kinds = 4;
    static constexpr std::size_t threads_of_kind = 4;

    // The jobs that an origin has of one kind.
    struct Share {
        std::deque<Job> ready;  // at most one of each client
        std::size_t under_way = 0;
        std::size_t leaving = 0;
        std::uint64_t turn = 0;  // 0 while none of its jobs may begin
    };
    struct Queue {
        std::map<base::Origin, Share> shares;
        std::map<std::uint64_t, base::Origin> turns;  // of the origins of which a job may begin
        // The later jobs of each client that has one which is ready, held or under way.
        std::map<std::uint64_t, std::deque<Job>> later;
        std::size_t leaving = 0;
        base::Condition wake;
    };

    [[nodiscard]] Queue &queue_of(Kind kind) REQUIRES(mutex_) {
        return queues_.at(static_cast<std::size_t>(kind));
    }
    [[nodiscard]] bool is_release_before(const Job &job, const std::string &name) const REQUIRES(mutex_);
    void add(Job job) REQUIRES(mutex_);
    void make_ready(Job job) REQUIRES(mutex_);
    void arrange(Queue &queue, base::Origin origin) REQUIRES(mutex_);
    void go_on(Queue &queue, std::uint64_t client) REQUIRES(mutex_);
    void run(Kind kind);
    [[nodiscard]] Job take(Queue &queue) REQUIRES(mutex_);
    void finish(Queue &queue, Job job, bool tries_again) REQUIRES(mutex_);
    void tell(Job job) REQUIRES(mutex_);
    void end_release(std::uint64_t number, const std::string &name) REQUIRES(mutex_);

    base::Fd done_event_;
    mutable base::Mutex mutex_;
    std::array<Queue, kinds> queues_ GUARDED_BY(mutex_);
    // The releases that are not done, as the name of the contents and the number of the job, and each a
    // second time with an empty name.
    std::set<std::pair<std::string, std::uint64_t>> releases_ GUARDED_BY(mutex_);
    std::deque<Job> held_ GUARDED_BY(mutex_);                      // they wait for releases
    std::map<std::uint64_t, Begun> under_way_ GUARDED_BY(mutex_);  // those with an upload, by number
    std::vector<Job> done_ GUARDED_BY(mutex_);
    std::uint64_t last_number_ GUARDED_BY(mutex_) = 0;  // of a job or a turn
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::vector<std::thread> threads_;
};

}  // namespace cli
