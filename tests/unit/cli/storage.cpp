// SPDX-License-Identifier: BSD-3-Clause
// cli/store/storage: slow storage of one origin does not hold up the jobs of another one.
#include "cli/store/storage.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <latch>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bytes.hpp"

namespace {

// Its bytes are durable when the test lets them.
class HeldUpload : public cli::Upload {
public:
    HeldUpload() : Upload{"held", 1} {}
    [[nodiscard]] cli::Answer reserve(std::uint64_t) override { return {}; }
    [[nodiscard]] cli::Answer store(std::uint64_t, std::span<const std::byte>,
                                    std::span<const std::byte>) override {
        ++begun;
        begun.notify_all();
        held.wait();
        return {};
    }
    [[nodiscard]] cli::Answer commit(const cli::Request &, const cli::Who &) override { return {}; }
    [[nodiscard]] cli::Answer roll_back(std::uint64_t) override { return {}; }

    std::latch held{1};
    std::atomic<int> begun{0};
};

cli::Storage::Job job_of(std::uint64_t client, std::uint64_t origin, std::shared_ptr<cli::Upload> upload,
                         cli::Ask ask) {
    cli::Storage::Job job;
    job.client = client;
    job.origin = base::Origin{origin};
    job.request.ask = ask;
    job.upload = std::move(upload);
    return job;
}

// Returns the jobs that are done, when one is.
std::vector<cli::Storage::Job> take_done(cli::Storage &storage) {
    pollfd done{.fd = storage.fd(), .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&done, 1, 60'000), 1);
    return storage.take_done();
}

// Returns how many there are.
std::size_t done_of(cli::Storage &storage) {
    return take_done(storage).size();
}

void an_origin_leaves_a_thread_to_others(void **) {
    constexpr int clients = 8;
    const auto held = std::make_shared<HeldUpload>();
    cli::Storage storage;
    assert_true(storage.start().has_value());
    for (std::uint64_t client = 0; client < clients; ++client) {
        storage.submit(job_of(client, 1, held, cli::Ask::Store));
    }
    while (held->begun < 3) {
        held->begun.wait(held->begun.load());
    }
    const auto other = std::make_shared<HeldUpload>();
    storage.submit(job_of(clients, 2, other, cli::Ask::Rollback));
    assert_int_equal(done_of(storage), 1);
    assert_int_equal(held->begun, 3);
    held->held.count_down();
    std::size_t done = 0;
    while (done < clients) {
        done += done_of(storage);
    }
    assert_int_equal(held->begun, clients);
}

// It has no room for the first byte at first, and notes the offsets in their order.
class FullUpload : public cli::Upload {
public:
    FullUpload() : Upload{"full", 1} {}
    [[nodiscard]] cli::Answer reserve(std::uint64_t) override { return {}; }
    [[nodiscard]] cli::Answer store(std::uint64_t offset, std::span<const std::byte>,
                                    std::span<const std::byte>) override {
        const bool has_room = calls >= refused;
        offsets.at(calls) = offset;
        ++calls;
        calls.notify_all();
        return {!has_room ? cli::Verdict::NoRoom : cli::Verdict::Done};
    }
    [[nodiscard]] cli::Answer commit(const cli::Request &, const cli::Who &) override { return {}; }
    [[nodiscard]] cli::Answer roll_back(std::uint64_t) override { return {}; }

    std::size_t refused = 1;
    std::array<std::uint64_t, 8> offsets{};
    std::atomic<std::size_t> calls{0};
};

// It is retired when the test lets it.
class SlowUpload : public HeldUpload {
public:
    void retire() override { held.wait(); }
};

void a_job_that_waits_for_room_comes_before_the_next_of_its_client(void **) {
    const auto slow = std::make_shared<SlowUpload>();
    const auto full = std::make_shared<FullUpload>();
    cli::Storage storage;
    assert_true(storage.start().has_value());
    storage.submit_release(job_of(1, 1, slow, cli::Ask::Store));
    for (std::uint64_t offset = 0; offset < 3; ++offset) {
        auto job = job_of(2, 2, full, cli::Ask::Store);
        job.request.offset = offset;
        storage.submit(std::move(job));
    }
    while (full->calls == 0) {
        full->calls.wait(0);
    }
    slow->held.count_down();
    for (std::size_t done = 0; done < 3;) {
        done += done_of(storage);
    }
    assert_int_equal(full->calls, 4);
    for (std::size_t call = 0; call < 4; ++call) {
        assert_int_equal(full->offsets.at(call), call == 0 ? 0 : call - 1);
    }
}

// The caller may make room for it, once. It comes before the next of its client also then.
void a_job_that_finds_no_room_tries_again_when_the_caller_says_so(void **) {
    for (const bool has_room : {true, false}) {
        const auto full = std::make_shared<FullUpload>();
        full->refused = has_room ? 1 : 2;
        cli::Storage storage;
        assert_true(storage.start().has_value());
        for (std::uint64_t offset = 0; offset < 2; ++offset) {
            auto job = job_of(1, 1, full, cli::Ask::Store);
            job.request.offset = offset;
            storage.submit(std::move(job));
        }
        auto wanted = take_done(storage);
        assert_int_equal(wanted.size(), 1);
        assert_true(wanted.front().room == cli::Storage::Room::Wanted);
        assert_int_equal(full->calls, 1);
        storage.try_again(std::move(wanted.front()));
        std::vector<cli::Storage::Job> done;
        while (done.size() < 2) {
            std::ranges::move(take_done(storage), std::back_inserter(done));
        }
        assert_true(done.front().room == cli::Storage::Room::LastTry);
        assert_true(done.front().answer.verdict == (has_room ? cli::Verdict::Done : cli::Verdict::NoRoom));
        assert_int_equal(full->calls, 3);
        assert_int_equal(full->offsets.at(1), 0);
        assert_int_equal(full->offsets.at(2), 1);
    }
}

// Commits that do not end hold all threads, and a release is behind one of them: a look is done, also for the
// origin of these.
void a_look_waits_for_no_push(void **) {
    const auto held = std::make_shared<HeldUpload>();
    cli::Storage storage;
    assert_true(storage.start().has_value());
    for (std::uint64_t client = 0; client < 8; ++client) {
        storage.submit(job_of(client, client % 2, held, cli::Ask::Store));
        storage.submit_release(job_of(client, client % 2, held, cli::Ask::Store));
    }
    for (int begun = held->begun; begun < 4; begun = held->begun) {
        held->begun.wait(begun);
    }
    auto job = job_of(9, 0, nullptr, cli::Ask::Look);
    job.look = [] { return std::string{"text"}; };
    job.kind = cli::Storage::Kind::Look;
    storage.submit(std::move(job));
    assert_int_equal(done_of(storage), 1);
    assert_int_equal(held->begun, 4);
    const auto oldest = storage.oldest();
    assert_true(oldest.has_value() && oldest->name == "held");
    held->held.count_down();
    for (std::size_t done = 0; done < 8;) {
        done += done_of(storage);
    }
}

// An origin has as many looks under way as it may. Its push is done, and so is the look of another origin.
// Looks that are dropped do not begin.
void a_push_waits_for_no_look(void **) {
    constexpr std::uint64_t looks = 8;
    std::atomic<int> begun{0};
    std::latch held{1};
    const auto look_of = [&](std::uint64_t client, std::uint64_t origin, std::function<std::string()> look) {
        auto job = job_of(client, origin, nullptr, cli::Ask::Look);
        job.look = std::move(look);
        job.kind = cli::Storage::Kind::Look;
        return job;
    };
    cli::Storage storage;
    assert_true(storage.start().has_value());
    for (std::uint64_t client = 0; client < looks; ++client) {
        storage.submit(look_of(client, 1, [&] {
            ++begun;
            begun.notify_all();
            held.wait();
            return std::string{"text"};
        }));
    }
    for (int now = begun; now < 3; now = begun) {
        begun.wait(now);
    }
    storage.submit(job_of(looks, 1, std::make_shared<FullUpload>(), cli::Ask::Rollback));
    assert_int_equal(done_of(storage), 1);
    storage.submit(look_of(looks + 1, 2, [] { return std::string{"text"}; }));
    assert_int_equal(done_of(storage), 1);
    storage.submit(look_of(looks + 2, 1, [&] {
        ++begun;
        return std::string{"text"};
    }));
    storage.cancel(looks + 2, base::Origin{1});
    assert_int_equal(begun, 3);
    held.count_down();
    for (std::size_t done = 0; done < looks;) {
        done += done_of(storage);
    }
    assert_int_equal(begun, static_cast<int>(looks));
}

// The checksums that a push of a name has left are there when the next one asks for them, which waits for no
// other name.
void a_look_of_a_push_waits_for_the_releases_of_its_name(void **) {
    const auto slow = std::make_shared<SlowUpload>();
    cli::Storage storage;
    assert_true(storage.start().has_value());
    storage.submit_release(job_of(1, 1, slow, cli::Ask::Store));
    for (const char *name : {"held", "other"}) {
        auto job = job_of(name == std::string_view{"held"} ? 2 : 3, 2, nullptr, cli::Ask::Look);
        job.look = [name] { return std::string{name}; };
        job.after = name;
        storage.submit(std::move(job));
    }
    pollfd done{.fd = storage.fd(), .events = POLLIN, .revents = 0};
    for (const std::uint64_t client : {std::uint64_t{3}, std::uint64_t{2}}) {
        assert_int_equal(poll(&done, 1, 60'000), 1);
        const auto jobs = storage.take_done();
        assert_int_equal(jobs.size(), 1);
        assert_int_equal(jobs.front().client, client);
        if (client == 3) {
            slow->held.count_down();
        }
    }
}

// Clients of an origin leave while its pushes hang. Memory that needs no storage is released meanwhile, and
// what needs it is counted until it is. Then 20,000 of them are released in no more time than the work takes.
void what_clients_leave_waits_for_nothing_that_it_does_not_need(void **) {
    constexpr std::uint64_t clients = 20'000;
    const base::Origin origin{1};
    const auto held = std::make_shared<HeldUpload>();
    cli::Storage storage;
    assert_true(storage.start().has_value());
    for (std::uint64_t client = 0; client < 3; ++client) {
        storage.submit(job_of(client, 1, held, cli::Ask::Store));
    }
    for (int begun = held->begun; begun < 3; begun = held->begun) {
        held->begun.wait(begun);
    }
    for (std::uint64_t client = 3; client < clients; ++client) {
        storage.submit_release(job_of(client, 1, held, cli::Ask::Store));
    }
    std::latch released{1};
    auto memory = job_of(clients, 1, nullptr, cli::Ask::Store);
    memory.memory.owner =
        std::shared_ptr<const void>{&released, [&](const void *) { released.count_down(); }};
    memory.kind = cli::Storage::Kind::Memory;
    storage.submit_release(std::move(memory));
    released.wait();
    assert_int_equal(storage.leaving(origin).of_origin, clients - 3);
    assert_int_equal(storage.leaving(base::Origin{2}).of_origin, 0);
    assert_int_equal(storage.leaving(base::Origin{2}).all, clients - 3);
    auto last = job_of(clients + 1, 2, std::make_shared<HeldUpload>(), cli::Ask::Rollback);
    last.after = "";
    storage.submit(std::move(last));
    held->held.count_down();
    for (std::size_t done = 0; done < 4;) {
        done += done_of(storage);
    }
    assert_int_equal(storage.leaving(origin).all, 0);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_look_waits_for_no_push),
        cmocka_unit_test(a_push_waits_for_no_look),
        cmocka_unit_test(a_look_of_a_push_waits_for_the_releases_of_its_name),
        cmocka_unit_test(what_clients_leave_waits_for_nothing_that_it_does_not_need),
        cmocka_unit_test(a_job_that_waits_for_room_comes_before_the_next_of_its_client),
        cmocka_unit_test(a_job_that_finds_no_room_tries_again_when_the_caller_says_so),
        cmocka_unit_test(an_origin_leaves_a_thread_to_others)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
