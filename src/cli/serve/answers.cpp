// SPDX-License-Identifier: BSD-3-Clause
#include "cli/serve/answers.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "cli/log.hpp"
#include "cli/store/storage.hpp"

namespace cli {

namespace {

constexpr std::size_t answers_offset = most_requests * sizeof(RequestBytes);
constexpr std::size_t last_answer_offset = answers_offset + most_requests * sizeof(AnswerBytes);

}  // namespace

Outcome<Request> request_of(const Messages &messages, const ibv_wc &message) {
    return decode_request(messages.bytes.subspan(message.wr_id * sizeof(RequestBytes), message.byte_len));
}

Outcome<> reply(rpma_conn *connection, const Messages &messages, std::uint64_t place, const Answer &answer) {
    const AnswerBytes bytes = encode_answer(answer);
    const std::size_t offset = answers_offset + place * bytes.size();
    std::ranges::copy(bytes, messages.bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    auto *context = reinterpret_cast<void *>(static_cast<std::uintptr_t>(place));
    TRY(checked(
        rpma_recv(connection, messages.region, place * sizeof(RequestBytes), sizeof(RequestBytes), context),
        "cannot be heard"));
    return checked(
        rpma_send(connection, messages.region, offset, bytes.size(), RPMA_F_COMPLETION_ALWAYS, nullptr),
        "cannot be answered");
}

void say_end(rpma_conn *connection, const Messages &messages, Ending ending, std::chrono::seconds patience) {
    const AnswerBytes bytes = encode_answer(
        {Verdict::Ended, static_cast<int>(ending), static_cast<std::uint64_t>(patience.count())});
    std::ranges::copy(bytes, messages.bytes.begin() + static_cast<std::ptrdiff_t>(last_answer_offset));
    (void)rpma_send(connection, messages.region, last_answer_offset, bytes.size(), RPMA_F_COMPLETION_ON_ERROR,
                    nullptr);
}

Outcome<LocalRegion> grant(rpma_conn *connection, const DevicePeer &device, const Memory &text,
                           Answer &answer) {
    constexpr int usage = RPMA_MR_USAGE_READ_SRC;
    rpma_mr_local *region = nullptr;
    const int result = rpma_conn_mr_reg(connection, text.bytes.data(), text.bytes.size(), usage, &region);
    LocalRegion registered{region, Deregistration{text.owner}};
    if (result == RPMA_E_NOSUPP) {
        registered = TRY(register_memory(device, text.bytes, usage));
        registered.get_deleter().memory = text.owner;
    } else {
        TRY(checked(result, "cannot get {} bytes of memory", text.bytes.size()));
    }
    TRY(checked(rpma_mr_get_descriptor(registered.get(), answer.memory_region.data()), "memory region"));
    return registered;
}

PullAnswers::~PullAnswers() {
    stop_.stop();
    if (thread_.joinable()) {
        thread_.join();
    }
}

Outcome<> PullAnswers::start(rpma_conn *connection) {
    int fd = -1;
    connection_ = connection;
    active_ = Clock::now();
    TRY(checked(rpma_conn_get_cq(connection, &completions_), "completion queue"));
    TRY(checked(rpma_cq_get_fd(completions_, &fd), "completion queue"));
    if (!stop_ || fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        return failed("completion queue: {}", errno_text(errno));
    }
    thread_ = TRY(start_thread([this] { run(); }));
    return {};
}

PullAnswers::Clock::time_point PullAnswers::active() const {
    return looks_ ? Clock::now() : active_.load();
}

std::string PullAnswers::fault() const {
    const base::Lock lock{mutex_};
    return fault_;
}

Outcome<> PullAnswers::serve(const ibv_wc &message) {
    const Request request = TRY(request_of(messages_, message));
    active_ = Clock::now();
    switch (request.ask) {
        case Ask::Alive:
            return reply(connection_, messages_, message.wr_id, {});
        case Ask::Look:
            return std::exchange(has_looked_, true) ? failed("{}", no_look_here) : give_look(message.wr_id);
        case Ask::Store:
        case Ask::Commit:
        case Ask::Reserve:
        case Ask::Rollback:
        case Ask::Tag:
            break;
    }
    return failed("{}", no_store_here);
}

Outcome<> PullAnswers::give_look(std::uint64_t place) {
    Storage::Job job;
    looks_ = true;
    Storage::give_text(job, look_());
    looks_ = false;
    active_ = Clock::now();
    if (job.answer.verdict == Verdict::Done) {
        text_ = job.memory;
        text_region_ = TRY(grant(connection_, device_, text_, job.answer));
    }
    return reply(connection_, messages_, place, job.answer);
}

void PullAnswers::run() {
    int fd = -1;
    (void)rpma_cq_get_fd(completions_, &fd);
    std::array<ibv_wc, most_requests> taken;
    while (!stop_.is_stopped()) {
        int count = 0;
        const int result = rpma_cq_get_wc(completions_, static_cast<int>(taken.size()), taken.data(), &count);
        for (const ibv_wc &completion : std::span{taken}.first(static_cast<std::size_t>(count))) {
            if (completion.status != IBV_WC_SUCCESS) {
                return;  // the server has the event of the connection's end
            }
            const auto served = completion.opcode == IBV_WC_RECV ? serve(completion) : Outcome<>{};
            if (!served) {
                {
                    const base::Lock lock{mutex_};
                    fault_ = served.error().text;
                }
                say_end(connection_, messages_, Ending::NotServed, {});
                (void)rpma_conn_disconnect(connection_);
                return;
            }
        }
        if (result != 0) {
            if (result != RPMA_E_NO_COMPLETION || !stop_.wait(fd, POLLIN)) {
                return;
            }
            (void)rpma_cq_wait(completions_);  // may be spurious
        }
    }
}

}  // namespace cli
