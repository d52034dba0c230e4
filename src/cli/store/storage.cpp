// SPDX-License-Identifier: BSD-3-Clause
// cli/store/storage: the queue of jobs, and the threads that take from it.
#include "cli/store/storage.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "cli/checksum.hpp"
#include "cli/mapping.hpp"
#include "cli/thread.hpp"

namespace cli {

namespace {

// Deregistering may wait for the peer, and large memory and the last descriptor of a large file take time.
void release(Storage::Job &job) {
    job.regions.clear();
    job.memory = {};
    job.open = nullptr;
    if (job.upload) {
        job.upload->retire();
    }
    job.upload.reset();
    job.device.reset();
    if (job.kind == Storage::Kind::Memory) {
        deregister_again();  // those of others may be over by now
    }
}

// Gives up what the caller does not need of a job that is done: this may be the last that has it.
void give_up(Storage::Job &job) {
    job.look = nullptr;
    if (job.request.ask == Ask::Store) {
        job.memory = {};
    }
    if (!commits(job.request.ask)) {
        job.upload.reset();
    }
}

Answer answer_with_memory(Storage::Job &job) {
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
        case Ask::Alive:  // has its turn only
            return {};
        case Ask::Commit:
            break;
    }
    return job.upload->commit(request, job.who);
}

// Without memory the job of one client fails. A commit that is interrupted would leave the store in doubt, so
// that ends the server, and the next start reads what is there.
Answer answer(Storage::Job &job) {
    try {
        return answer_with_memory(job);
    } catch (const std::bad_alloc &) {
        if (job.upload && (commits(job.request.ask) || job.request.ask == Ask::Tag)) {
            throw;
        }
        return {Verdict::NotDurable, ENOMEM};
    }
}

}  // namespace

Storage::~Storage() {
    {
        const base::Lock lock{mutex_};
        stopping_ = true;
        for (Queue &queue : queues_) {
            queue.wake.notify_all();
        }
    }
    for (std::thread &thread : threads_) {
        thread.join();
    }
    const auto retire = [](const std::deque<Job> &jobs) {
        for (const Job &job : jobs) {
            if (job.upload) {
                job.upload->retire();
            }
        }
    };
    const base::Lock lock{mutex_};
    retire(held_);
    for (const Queue &queue : queues_) {
        std::ranges::for_each(queue.shares, [&](const auto &entry) { retire(entry.second.ready); });
        std::ranges::for_each(queue.later, [&](const auto &entry) { retire(entry.second); });
    }
}

Outcome<> Storage::start() {
    done_event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!done_event_) {
        return failed("eventfd: {}", errno_text(errno));
    }
    for (const Kind kind : {Kind::Push, Kind::Open, Kind::Look, Kind::Memory}) {
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
    const base::Lock lock{mutex_};
    add(std::move(job));
}

void Storage::submit_release(Job job) {
    job.releases = job.leaves = true;
    const base::Lock lock{mutex_};
    Queue &queue = queue_of(job.kind);
    ++queue.leaving;
    ++queue.shares[job.origin].leaving;
    add(std::move(job));
}

Storage::Leaving Storage::leaving(base::Origin origin) const {
    const base::Lock lock{mutex_};
    const Queue &queue = queues_.at(static_cast<std::size_t>(Kind::Push));
    const auto share = queue.shares.find(origin);
    return {share != queue.shares.end() ? share->second.leaving : 0, queue.leaving};
}

void Storage::cancel(std::uint64_t client, base::Origin origin) {
    const auto is_its = [client](const Job &job) { return job.client == client && (job.look || job.open); };
    const base::Lock lock{mutex_};
    for (Queue &queue : queues_) {
        const auto later = queue.later.find(client);
        if (later == queue.later.end()) {
            continue;
        }
        std::erase_if(later->second, is_its);
        if (std::erase_if(queue.shares[origin].ready, is_its) + std::erase_if(held_, is_its) != 0) {
            go_on(queue, client);
        }
        arrange(queue, origin);
    }
}

std::vector<Storage::Job> Storage::take_done() {
    eventfd_t ignored = 0;
    (void)eventfd_read(done_event_.get(), &ignored);
    const base::Lock lock{mutex_};
    return std::exchange(done_, {});
}

void Storage::try_again(Job job) {
    const base::Lock lock{mutex_};
    job.number = ++last_number_;
    job.room = Room::LastTry;
    job.after = "";
    make_ready(std::move(job));
}

std::optional<Storage::Begun> Storage::oldest() const {
    const base::Lock lock{mutex_};
    const auto oldest =
        std::ranges::min_element(under_way_, {}, [](const auto &entry) { return entry.second.since; });
    return oldest != under_way_.end() ? std::optional{oldest->second} : std::nullopt;
}

// Returns whether an earlier release of this name is not done; an empty name means any.
bool Storage::is_release_before(const Job &job, const std::string &name) const {
    const auto first = releases_.lower_bound({name, 0});
    return first != releases_.end() && first->first == name && first->second < job.number;
}

void Storage::add(Job job) {
    job.number = ++last_number_;
    if (job.releases) {
        releases_.emplace("", job.number);
        if (job.upload) {
            releases_.emplace(job.upload->name(), job.number);
        }
    }
    const auto [later, is_only] = queue_of(job.kind).later.try_emplace(job.client);
    if (is_only) {
        make_ready(std::move(job));
    } else {
        later->second.push_back(std::move(job));
    }
}

// Has a job begin when its origin has its turn, and the releases are done for which it waits.
void Storage::make_ready(Job job) {
    if (job.after && is_release_before(job, *job.after)) {
        held_.push_back(std::move(job));
        return;
    }
    Queue &queue = queue_of(job.kind);
    const base::Origin origin = job.origin;
    queue.shares[origin].ready.push_back(std::move(job));
    arrange(queue, origin);
}

// Gives an origin a turn when one of its jobs may begin, and forgets one that has nothing.
void Storage::arrange(Queue &queue, base::Origin origin) {
    const auto place = queue.shares.find(origin);
    Share &share = place->second;
    const bool may_begin = !share.ready.empty() && share.under_way < threads_of_kind - 1;
    if (may_begin && share.turn == 0) {
        share.turn = ++last_number_;
        queue.turns.emplace(share.turn, origin);
        queue.wake.notify_one();
    } else if (!may_begin && share.turn != 0) {
        queue.turns.erase(std::exchange(share.turn, 0));
    }
    if (share.ready.empty() && share.under_way == 0 && share.leaving == 0) {
        queue.shares.erase(place);
    }
}

// Has the next job of a client begin, because the one before it is over.
void Storage::go_on(Queue &queue, std::uint64_t client) {
    const auto later = queue.later.find(client);
    if (later->second.empty()) {
        queue.later.erase(later);
        return;
    }
    Job next = std::move(later->second.front());
    later->second.pop_front();
    make_ready(std::move(next));
}

// Takes the oldest job of the origin whose turn it is, which gets its next turn behind the others.
Storage::Job Storage::take(Queue &queue) {
    const base::Origin origin = queue.turns.begin()->second;
    Share &share = queue.shares.at(origin);
    queue.turns.erase(std::exchange(share.turn, 0));
    Job job = std::move(share.ready.front());
    share.ready.pop_front();
    ++share.under_way;
    if (job.upload) {
        under_way_.emplace(job.number, Begun{job.upload->name(), job.who, Clock::now()});
    }
    arrange(queue, origin);
    return job;
}

void Storage::tell(Job job) {
    done_.push_back(std::move(job));
    (void)eventfd_write(done_event_.get(), 1);
}

// Tells of a job that is done, unless it tries again, and has those begin that have waited for it. Those of
// its client wait on for one of which room is Wanted.
void Storage::finish(Queue &queue, Job job, bool tries_again) {
    const base::Origin origin = job.origin;
    Share &share = queue.shares.at(origin);
    --share.under_way;
    const auto begun = under_way_.extract(job.number);
    if (tries_again) {
        job.after = "";
        make_ready(std::move(job));
        return arrange(queue, origin);
    }
    if (job.room == Room::Wanted) {
        tell(std::move(job));
        return arrange(queue, origin);
    }
    go_on(queue, job.client);
    if (job.releases) {
        const std::size_t left = job.leaves ? 1 : 0;
        share.leaving -= left;
        queue.leaving -= left;
        end_release(job.number, begun ? begun.mapped().name : "");
    } else {
        tell(std::move(job));
    }
    arrange(queue, origin);
}

void Storage::end_release(std::uint64_t number, const std::string &name) {
    releases_.erase({"", number});
    releases_.erase({name, number});
    for (Job &job : std::exchange(held_, {})) {
        make_ready(std::move(job));
    }
}

void Storage::run(Kind kind) {
    const base::Lock lock{mutex_};
    Queue &queue = queue_of(kind);
    while (true) {
        while (!stopping_ && queue.turns.empty()) {
            queue.wake.wait(mutex_);
        }
        if (stopping_) {
            return;
        }
        Job job = take(queue);
        const bool may_find_room = is_release_before(job, "");
        bool tries_again = false;
        {
            const base::Unlock unlocked{mutex_};
            const auto begun = Clock::now();
            job.answer = answer(job);
            const std::chrono::duration<double> took = Clock::now() - begun;
            job.seconds = took.count();
            // An error of storage is the end of a push, also when it is that there is no room.
            const bool wants_room = job.answer.verdict == Verdict::NoRoom &&
                                    (job.answer.error == 0 || job.request.ask == Ask::Reserve);
            tries_again = wants_room && may_find_room;
            if (wants_room && !tries_again && job.room == Room::Unasked) {
                job.room = Room::Wanted;
            } else if (!tries_again) {
                give_up(job);
            }
        }
        finish(queue, std::move(job), tries_again);
    }
}

}  // namespace cli
