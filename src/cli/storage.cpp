// SPDX-License-Identifier: BSD-3-Clause
// cli/storage: the queue of jobs, and the threads that take from it.
#include "cli/storage.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cli/tcp_answers.hpp"

namespace cli {

namespace {

Answer answer(Storage::Job &job) {
    const Request &request = job.request;
    switch (request.ask) {
        case Ask::Grow:
            return job.upload->grow(request.length, job.memory);
        case Ask::Store:
            return job.upload->store(request.offset, request.length);
        case Ask::Rollback:
            return job.upload->roll_back(request.offset);
        case Ask::Commit:
        case Ask::Alive:  // is no job
            break;
    }
    // Nobody changes the content after it is verified.
    bool is_final = true;
    for (LocalRegion &region : job.regions) {
        is_final = deregister(std::move(region)) && is_final;
    }
    return is_final ? job.upload->commit(request, job.who) : Answer{Verdict::Different};
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
}

Outcome<> Storage::start() {
    done_event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!done_event_) {
        return failed("eventfd: {}", errno_text(errno));
    }
    while (threads_.size() < most_threads) {
        threads_.push_back(TRY(start_thread([this] { run(); })));
    }
    return {};
}

void Storage::submit(Job job) {
    {
        const base::Lock lock{mutex_};
        jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
}

std::vector<Storage::Job> Storage::take_done() {
    eventfd_t ignored = 0;
    (void)eventfd_read(done_event_.get(), &ignored);
    const base::Lock lock{mutex_};
    return std::exchange(done_, {});
}

// Returns the oldest job of a client of which no job is under way, of the origin that has fewest under way.
std::deque<Storage::Job>::iterator Storage::next() {
    auto best = jobs_.end();
    std::ptrdiff_t fewest = most_threads - 1;
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
        if (std::ranges::find(under_way_, job->client, &UnderWay::client) != under_way_.end()) {
            continue;
        }
        const auto of_origin = std::ranges::count(under_way_, job->origin, &UnderWay::origin);
        if (of_origin < fewest) {
            fewest = of_origin;
            best = job;
        }
    }
    return best;
}

void Storage::run() {
    const base::Lock lock{mutex_};
    while (true) {
        auto found = next();
        while (!stopping_ && found == jobs_.end()) {
            wake_.wait(mutex_);
            found = next();
        }
        if (stopping_) {
            return;
        }
        Job job = std::move(*found);
        jobs_.erase(found);
        under_way_.push_back({.client = job.client, .origin = job.origin});
        {
            const base::Unlock unlocked{mutex_};
            job.answer = answer(job);
        }
        std::erase_if(under_way_, [&](const UnderWay &one) { return one.client == job.client; });
        const bool ends = job.request.ask == Ask::Commit;
        done_.push_back(std::move(job));
        (void)eventfd_write(done_event_.get(), 1);
        wake_.notify_one();  // the client's next job may wait
        if (ends) {
            const base::Unlock unlocked{mutex_};
            deregister_again();  // may wait for a peer, so the server's thread does not do it
        }
    }
}

}  // namespace cli
