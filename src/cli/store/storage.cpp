// SPDX-License-Identifier: BSD-3-Clause
// cli/store/storage: the queue of jobs, and the threads that take from it.
#include "cli/store/storage.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <utility>

#include "cli/checksum.hpp"
#include "cli/mapping.hpp"
#include "cli/perf/tcp_answers.hpp"

namespace cli {

namespace {

// Deregistering may wait for the peer, and large memory and the last descriptor of a large file take time.
void release(Storage::Job &job) {
    job.regions.clear();
    job.memory = {};
    job.look = nullptr;
    job.open = nullptr;
    if (job.upload) {
        job.upload->retire();
    }
    job.upload.reset();
    job.device.reset();
    deregister_again();  // those of others may be over by now
}

Answer answer(Storage::Job &job) {
    if (job.releases) {
        release(job);
        return {};
    }
    if (job.open) {
        job.open();
        return {};
    }
    const Request &request = job.request;
    switch (request.ask) {
        case Ask::Reserve:
            return job.upload->reserve(request.length);
        case Ask::Store:
            return job.upload->store(request.offset, job.first, job.rest);
        case Ask::Rollback:
            return job.upload->roll_back(request.offset);
        case Ask::Tag: {
            const auto tag = parse_tag(request.label);
            return tag ? job.upload->take_tag(*tag, request) : Answer{Verdict::Different};
        }
        case Ask::Look:
            Storage::give_text(job, job.look());
            return job.answer;
        case Ask::Commit:
        case Ask::Alive:  // is no job
            break;
    }
    return job.upload->commit(request, job.who);
}

}  // namespace

Storage::~Storage() {
    {
        const base::Lock lock{mutex_};
        stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread &thread : threads_) {
        thread.join();
    }
    for (const Job &job : jobs_) {
        if (job.upload) {
            job.upload->retire();
        }
    }
}

Outcome<> Storage::start() {
    done_event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!done_event_) {
        return failed("eventfd: {}", errno_text(errno));
    }
    for (const Kind kind : {Kind::Push, Kind::Open, Kind::Look}) {
        for (std::size_t started = 0; started < threads_of_kind; ++started) {
            threads_.push_back(TRY(start_thread([this, kind] { run(kind); })));
        }
    }
    return {};
}

void Storage::give_text(Job &job, std::string_view text) {
    const auto bytes = std::as_bytes(std::span{text});
    auto mapping =
        std::make_shared<Mapping>(std::max<std::size_t>(bytes.size(), 1), MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (!*mapping) {
        job.answer = {Verdict::NoRoom, ENOMEM};
        return;
    }
    std::ranges::copy(bytes, mapping->bytes().begin());
    job.memory = {mapping->bytes(), mapping};
    job.answer = {Verdict::Done, 0, bytes.size(), crc32c(bytes)};
}

void Storage::submit(Job job) {
    {
        const base::Lock lock{mutex_};
        job.number = ++last_number_;
        jobs_.push_back(std::move(job));
    }
    wake_.notify_all();  // only the threads of its kind take it
}

void Storage::submit_release(Job job) {
    job.releases = true;
    job.kind = Kind::Push;  // those that need room wait for it, so it waits for no look
    submit(std::move(job));
}

void Storage::cancel(std::uint64_t client) {
    const base::Lock lock{mutex_};
    std::erase_if(jobs_, [client](const Job &job) { return job.client == client && (job.look || job.open); });
}

std::vector<Storage::Job> Storage::take_done() {
    eventfd_t ignored = 0;
    (void)eventfd_read(done_event_.get(), &ignored);
    const base::Lock lock{mutex_};
    return std::exchange(done_, {});
}

// Returns the number of the oldest release that is not done.
std::uint64_t Storage::first_release() const {
    std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
    const auto look_at = [&first](const auto &all) {
        for (const auto &one : all) {
            first = one.releases ? std::min(first, one.number) : first;
        }
    };
    look_at(jobs_);
    look_at(under_way_);
    return first;
}

// As first_release(), without those behind a job of their client: a commit may take long, or may not end.
std::uint64_t Storage::first_release_that_can_begin() const {
    std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
    std::vector<std::uint64_t> busy;  // clients
    for (const UnderWay &one : under_way_) {
        first = one.releases ? std::min(first, one.number) : first;
        busy.push_back(one.client);
    }
    for (const Job &job : jobs_) {
        if (job.releases && std::ranges::find(busy, job.client) == busy.end()) {
            first = std::min(first, job.number);
        }
        busy.push_back(job.client);
    }
    return first;
}

std::optional<Storage::Begun> Storage::oldest() const {
    const base::Lock lock{mutex_};
    std::optional<Begun> oldest;
    for (const UnderWay &one : under_way_) {
        if (one.begun && (!oldest || one.begun->since < oldest->since)) {
            oldest = one.begun;
        }
    }
    return oldest;
}

// Returns the oldest job of a client of which no job is under way, of the origin that has fewest under way
// among those of the kind. A job that waits has the later ones of its client wait too.
std::deque<Storage::Job>::iterator Storage::next(Kind kind) {
    auto best = jobs_.end();
    std::ptrdiff_t fewest = threads_of_kind - 1;
    const std::uint64_t release = first_release();
    const std::uint64_t soon = first_release_that_can_begin();
    std::vector<std::uint64_t> waiting;  // clients
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
        if (job->waits && job->number > (job->kind == Kind::Look ? soon : release)) {
            waiting.push_back(job->client);
        }
        if (job->kind != kind) {
            continue;
        }
        if (std::ranges::find(waiting, job->client) != waiting.end() ||
            std::ranges::find(under_way_, job->client, &UnderWay::client) != under_way_.end()) {
            continue;
        }
        const auto of_origin = std::ranges::count_if(
            under_way_, [&](const UnderWay &one) { return one.origin == job->origin && one.kind == kind; });
        if (of_origin < fewest) {
            fewest = of_origin;
            best = job;
        }
    }
    return best;
}

void Storage::run(Kind kind) {
    const base::Lock lock{mutex_};
    while (true) {
        auto found = next(kind);
        while (!stopping_ && found == jobs_.end()) {
            wake_.wait(mutex_);
            found = next(kind);
        }
        if (stopping_) {
            return;
        }
        Job job = std::move(*found);
        jobs_.erase(found);
        const auto begun = Clock::now();
        under_way_.push_back({.client = job.client,
                              .origin = job.origin,
                              .number = job.number,
                              .releases = job.releases,
                              .kind = job.kind,
                              .begun = job.upload ? std::optional<Begun>{{job.upload->name(), job.who, begun}}
                                                  : std::nullopt});
        const bool frees_more = first_release() < job.number;
        {
            const base::Unlock unlocked{mutex_};
            job.answer = answer(job);
            const std::chrono::duration<double> took = Clock::now() - begun;
            job.seconds = took.count();
        }
        std::erase_if(under_way_, [&](const UnderWay &one) { return one.client == job.client; });
        // An error of storage is the end of a push, also when it is that there is no room.
        const bool may_again = job.answer.error == 0 || job.request.ask != Ask::Store;
        if (job.answer.verdict == Verdict::NoRoom && may_again && !job.waits && frees_more) {
            job.waits = true;
            jobs_.push_front(std::move(job));
        } else if (!job.releases) {
            done_.push_back(std::move(job));
            (void)eventfd_write(done_event_.get(), 1);
        }
        wake_.notify_all();  // the client's next job may wait, and those that need room
    }
}

}  // namespace cli
