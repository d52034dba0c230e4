// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/client: what a server knows of one client, of its push, and of the port where it came.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/origin.hpp"
#include "cli/mapping.hpp"
#include "cli/peer.hpp"
#include "cli/perf/perf_server.hpp"
#include "cli/protocol/protocol.hpp"
#include "cli/serve/answers.hpp"
#include "cli/store/storage.hpp"
#include "cli/store/store.hpp"

namespace cli {

// A place where clients connect, which it outlives.
struct Port {
    Address address;
    std::shared_ptr<const DevicePeer> device;
    PerfServer perf;
    Endpoint endpoint;
    int fd = -1;
    Port(Address at, DevicePeer owned, Store &store)
        : address{std::move(at)},
          device{std::make_shared<const DevicePeer>(std::move(owned))},
          perf{store, *device} {}
};

// When a client was active. The time for which it waits for storage is none for which it is idle.
class Activity {
public:
    using Clock = std::chrono::steady_clock;

    void be_active();
    void wait_for_storage(bool waits);
    // Storage has answered a request of the client.
    void answered();
    [[nodiscard]] bool waits() const { return waits_.has_value(); }
    [[nodiscard]] Clock::time_point last() const { return active_; }
    // Returns for how long storage has held the client up that took long to answer.
    [[nodiscard]] Clock::duration held_up() const { return held_up_ + held_up_now(); }

private:
    [[nodiscard]] Clock::duration held_up_now() const;

    Clock::time_point active_;
    std::optional<Clock::time_point> waits_;  // since then, or since it was active last
    Clock::time_point answered_;
    Clock::duration held_up_{};  // before that
};

// The server keeps here what a client that pushes has asked for, and what storage has done of it.
class Push {
public:
    Push(std::unique_ptr<Upload> upload, Memory window)
        : upload_{std::move(upload)}, window_{std::move(window)} {}

    [[nodiscard]] const std::shared_ptr<Upload> &upload() const { return upload_; }
    // Takes a request of the client, for which the job is. Refuses one that does not fit those before it, or
    // is for more than `capacity` bytes in all.
    [[nodiscard]] Outcome<> take(const Request &request, std::uint64_t capacity, Storage::Job &job);
    // Storage has done the job. Returns whether that is progress.
    bool finish(const Storage::Job &job);
    // Nothing may follow: it has asked to commit, or cannot any more because another push has.
    [[nodiscard]] bool is_over() const { return is_over_; }
    [[nodiscard]] std::uint64_t stored() const { return stored_; }
    // Returns whether bytes of it wait for storage. One whose bytes were refused could have more refused
    // without end, so it does not wait for that.
    [[nodiscard]] bool is_behind() const { return stored_ < asked_ && !was_refused_; }
    // Returns how many of its bytes have room and are not stored.
    [[nodiscard]] std::uint64_t reserved() const;

    // Why it cannot commit, since storage said so.
    struct Trouble {
        const char *reason;  // in events and metrics
        std::string text;
    };
    [[nodiscard]] const std::optional<Trouble> &trouble() const { return trouble_; }

private:
    [[nodiscard]] Outcome<> take_bytes(const Request &request, Storage::Job &job);

    std::shared_ptr<Upload> upload_;
    Memory window_;
    std::uint64_t put_ = 0;      // the bytes that it said to have put into the window
    std::uint64_t asked_ = 0;    // the end of what it asked to have stored
    std::uint64_t stored_ = 0;   // the end of what was stored
    std::uint64_t counted_ = 0;  // those that were stored at its last progress
    bool has_reserved_ = false;
    bool has_tagged_ = false;
    bool was_refused_ = false;
    bool is_over_ = false;
    std::optional<Trouble> trouble_;
};

// A refused client only gets the reason. One that is told the status has no place of those that are admitted.
enum class Standing : std::uint8_t { Refused, Told, Admitted };

// The members are destroyed in the reverse order.
struct Client {
    using Clock = Activity::Clock;

    std::uint64_t number = 0;
    std::shared_ptr<Port> port;
    Mode mode{};
    std::string name;  // of the contents that it is about
    Standing standing = Standing::Refused;
    bool established = false;
    // Storage has its look, for the request in this place.
    struct Look {
        Clock::time_point since;
        std::uint64_t place;
    };
    std::optional<Look> look;
    bool has_looked = false;
    std::size_t asks = 0;  // its requests that storage has, without those to store bytes
    Who who;
    base::Origin origin{};
    // The port's. A push on a kernel's device has one of its own: nobody else's queue pair shares its
    // protection domain.
    std::shared_ptr<const DevicePeer> device;
    Clock::time_point begun;
    Activity activity;
    std::unique_ptr<Push> push;
    Mapping memory;  // requests, and answers after them
    LocalRegion messages;
    std::vector<LocalRegion> regions;  // what it may read or write
    // The memory in which it measures. While a connection that wrote there exists, the end of the region
    // waits for storage.
    std::shared_ptr<PerfArea> area;
    Connection connection;
    PerfClient perf;
    std::unique_ptr<PullAnswers> pull;

    [[nodiscard]] bool is_admitted() const { return standing == Standing::Admitted; }
    // Returns whether a call on its connection may have to wait for storage: a peer reads or writes memory of
    // a file. The server's thread makes none.
    [[nodiscard]] bool may_wait() const { return pull != nullptr || mode == Mode::MeasureDurable; }
    [[nodiscard]] Messages where() const { return {memory.bytes(), messages.get()}; }
    // Returns a job for it, and for the request in this place.
    [[nodiscard]] Storage::Job job(Request request = {}, std::uint64_t place = 0) const;
    void find_whether_it_waits() {
        activity.wait_for_storage(asks != 0 || (push != nullptr && push->is_behind()));
    }
};

}  // namespace cli
