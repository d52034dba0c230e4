// SPDX-License-Identifier: BSD-3-Clause
// cli/storage: the queue, and the steps of a commit.
#include "cli/storage.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "cli/peer.hpp"
#include "cli/tcp_answers.hpp"

namespace cli {

Storage::~Storage() {
    {
        const base::Lock lock{mutex_};
        stopping_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) {
        thread_.join();
    }
}

Outcome<> Storage::start() {
    done_event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!done_event_) {
        return failed("eventfd: {}", errno_text(errno));
    }
    thread_ = TRY(start_thread([this] { run(); }));
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

void Storage::run() {
    const base::Lock lock{mutex_};
    while (true) {
        while (!stopping_ && jobs_.empty()) {
            wake_.wait(mutex_);
        }
        if (stopping_) {
            return;
        }
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        {
            const base::Unlock unlocked{mutex_};
            job.region.reset();
            // Nobody changes the content of a commit after it is verified.
            job.answer = job.request.ask == Ask::Store || all_deregistered() ? answer(job)
                                                                             : Answer{Verdict::Different};
        }
        done_.push_back(std::move(job));
        (void)eventfd_write(done_event_.get(), 1);
    }
}

Answer Storage::answer(const Job &job) {
    const auto [sequence, slot, length, checksum] = job.content;
    std::uint32_t found = checksum;
    const auto failed = [this](Verdict verdict, int error) {
        error_ = error;
        return Answer{verdict, error};
    };
    if (error_ != 0) {
        return {Verdict::NotDurable, error_};
    }
    if (job.request.ask == Ask::Store) {
        const int error = pool_.store(slot, job.request.offset, job.request.length);
        return error == 0 ? Answer{} : failed(Verdict::NotDurable, error);
    }
    const int error = pool_.checksum(slot, length, found);
    if (error == ESTALE || found != checksum) {
        return {Verdict::Different};
    }
    if (const int stored = error != 0 ? error : pool_.store_header(job.content); stored != 0) {
        return failed(Verdict::NotDurable, stored);
    }
    if (const int stored = pool_.store_word(job.content); stored != 0) {
        return failed(Verdict::Unknown, stored);
    }
    return {Verdict::Done, 0, sequence};
}

}  // namespace cli
