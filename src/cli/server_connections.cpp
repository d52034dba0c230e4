// SPDX-License-Identifier: BSD-3-Clause
// cli/server: serves the clients' requests, and ends their connections.

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "cli/log.hpp"
#include "cli/server.hpp"

namespace cli {

namespace {

// The time for a client that was accepted and sends nothing, and for one that was refused.
constexpr auto establish_timeout = std::chrono::seconds{10};
constexpr auto refused_timeout = std::chrono::seconds{2};
constexpr std::size_t answers_offset = most_requests * sizeof(RequestBytes);  // in a client's memory

}  // namespace

void Server::take_event(int fd) {
    const auto found = clients_.find(fd);
    if (found == clients_.end()) {
        return;
    }
    Client &client = found->second;
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    const int result = rpma_conn_next_event(client.connection.get(), &event);
    if (result == RPMA_E_NO_EVENT) {
        return;
    }
    if (result == 0 && event == RPMA_CONN_ESTABLISHED) {
        const bool is_new = !std::exchange(client.established, true);
        client.active = Clock::now();
        const auto started = is_new && client.perf.messages != nullptr
                                 ? client.perf.messages->start(client.connection.get())
                                 : Outcome<>{};
        if (started) {
            return;
        }
        BASE_LOG_PEER(Warning, "dropped a client: %s", started.error().text.c_str());
    }
    drop(fd);
}

void Server::take_messages(int fd) {
    const auto found = clients_.find(fd);
    if (found == clients_.end()) {
        return;
    }
    Client &client = found->second;
    rpma_cq *completions = nullptr;
    (void)rpma_conn_get_cq(client.connection.get(), &completions);
    (void)rpma_cq_wait(completions);  // may wake up without an event
    std::array<ibv_wc, 8> taken;
    int count = 0;
    while (rpma_cq_get_wc(completions, static_cast<int>(taken.size()), taken.data(), &count) == 0) {
        for (const ibv_wc &completion : std::span{taken}.first(static_cast<std::size_t>(count))) {
            if (completion.status != IBV_WC_SUCCESS) {
                return drop(fd);
            }
            if (completion.opcode != IBV_WC_RECV) {
                continue;
            }
            if (const auto served = serve(client, completion); !served) {
                BASE_LOG_PEER(Warning, "dropped a client from %s: it %s", client.host.c_str(),
                              served.error().text.c_str());
                return drop(fd);
            }
        }
    }
}

// A push is active when it makes progress, and its content is no longer than the slot. A push that only sends
// messages loses its place.
void Server::come_further(Client &client, std::uint64_t &bytes, std::uint64_t now) const {
    if (client.mode != Mode::Push || (now > bytes && now <= pool_.layout().capacity)) {
        bytes = now;
        client.active = Clock::now();
    }
}

Outcome<> Server::serve(Client &client, const ibv_wc &message) {
    const Request request = TRY(decode_request(
        client.memory.bytes().subspan(message.wr_id * sizeof(RequestBytes), message.byte_len)));
    if (request.ask == Ask::Alive) {
        come_further(client, client.got, request.length);
        return reply(client, message.wr_id, {});
    }
    const std::uint64_t room = pool_.layout().capacity;
    if (client.mode != Mode::Push || !client.admitted) {
        return failed("asks to store (expected that of a push that was admitted)");
    }
    if (client.committing) {
        return failed(
            "asks for more after its commit (expected one commit on a connection, and nothing after it)");
    }
    if (request.offset > room || request.length > room - request.offset) {
        return failed("asks to store {} bytes at {} (expected {} bytes at most in all)", request.length,
                      request.offset, room);
    }
    come_further(client, client.asked, request.offset + request.length);
    Storage::Job job{client.number, message.wr_id, request, client.content};
    if (request.ask == Ask::Commit) {
        client.committing = true;
        client.pushed.reset();  // nobody changes the content after it is verified
        job.content.length = request.length;
        job.content.checksum = request.checksum;
    }
    storage_.submit(job);
    ++jobs_;
    return {};
}

// The receive is posted again before its answer is sent, because a client that has the answer may send the
// next request. The answer's completion only frees its place in the send queue.
Outcome<> Server::reply(const Client &client, std::uint64_t place, const Answer &answer) const {
    const AnswerBytes bytes = encode_answer(answer);
    const std::size_t offset = answers_offset + place * bytes.size();
    std::ranges::copy(bytes, client.memory.bytes().begin() + static_cast<std::ptrdiff_t>(offset));
    rpma_conn *connection = client.connection.get();
    auto *context = reinterpret_cast<void *>(static_cast<std::uintptr_t>(place));
    TRY(checked(rpma_recv(connection, client.messages.get(), place * sizeof(RequestBytes),
                          sizeof(RequestBytes), context),
                "cannot be heard"));
    return checked(
        rpma_send(connection, client.messages.get(), offset, bytes.size(), RPMA_F_COMPLETION_ALWAYS, nullptr),
        "cannot be answered");
}

void Server::finish_jobs() {
    for (const Storage::Job &job : storage_.take_done()) {
        --jobs_;
        finish(job);
    }
}

void Server::finish(const Storage::Job &job) {
    const bool committed = job.request.ask == Ask::Commit && job.answer.verdict == Verdict::Done;
    if (job.answer.error != 0 && storage_error_ == 0) {
        storage_error_ = job.answer.error;
        BASE_LOG(Error,
                 "pool %s: cannot make it durable: %s; no push is taken until the server is started again, "
                 "pulls are",
                 pool_.path().c_str(), errno_text(storage_error_));
    }
    if (committed) {
        committed_ = job.content;
    }
    const auto found = clients_.find(pusher_);
    if (found != clients_.end() && found->second.number == job.client) {
        Client &client = found->second;
        come_further(client, client.stored, job.request.offset + job.request.length);
        client.answered = job.request.ask == Ask::Commit;
        if (const auto told = reply(client, job.place, job.answer); !told) {
            BASE_LOG_PEER(Warning, "dropped a client: it %s", told.error().text.c_str());
            drop(pusher_);
        } else if (client.answered) {
            client.active = Clock::now();
            pusher_ = -1;  // it has no region to write to, so another push may begin
        }
    }
    if (committed) {
        committed_callback_(job.content);
    } else if (job.answer.verdict == Verdict::Different) {
        BASE_LOG_PEER(
            Warning,
            "a push did not commit: the bytes that arrived have another checksum than those that were sent");
    }
}

// Until its queue pair is gone, bytes of a dead pusher may still be placed. Only after that another push may
// begin.
void Server::drop(int fd) {
    const auto found = clients_.find(fd);
    const Client &client = found->second;
    if (client.established) {
        (void)rpma_conn_disconnect(client.connection.get());
    }
    if (fd == pusher_) {
        pusher_ = -1;
        if (!client.committing) {
            BASE_LOG_PEER(Warning, "a push ended without a commit: the pool still has the old content");
        }
    }
    clients_.erase(found);
}

// A file that cannot be read ends no connection: an administrator may be about to write it.
void Server::end_unknown() {
    std::vector<int> asked;
    std::vector<const rpma_conn *> connections;
    for (const auto &[fd, client] : clients_) {
        if (!client.identity.empty()) {
            asked.push_back(fd);
            connections.push_back(client.connection.get());
        }
    }
    const auto known = std::make_unique<bool[]>(asked.size());
    if (!asked.empty() &&
        rpma_conn_check_identities(connections.data(), connections.size(), known.get()) != 0) {
        BASE_LOG_PEER(Error,
                      "SIGHUP: the files of TLS cannot be used, as the log says: every connection stays");
        return;
    }
    std::size_t ended = 0;
    for (std::size_t place = 0; place < asked.size(); ++place) {
        if (known[place]) {
            continue;
        }
        const int fd = asked[place];
        const Client &client = clients_.at(fd);
        ended += client.admitted ? 1 : 0;
        BASE_LOG(Warning, "dropped a client from %s: the identity %s is not let in any more",
                 client.host.c_str(), client.identity.c_str());
        drop(fd);
    }
    const auto stay = std::ranges::count_if(clients_, [](const auto &one) { return one.second.admitted; });
    BASE_LOG(Warning, "SIGHUP: ended %zu connections, %td stay", ended, stay);
}

// Returns how long a client may be silent.
Server::Clock::duration Server::patience(const Client &client) const {
    if (!client.established) {
        return establish_timeout;
    }
    if (!client.admitted) {
        return refused_timeout;
    }
    switch (client.mode) {
        case Mode::Push:
            return limits_.push_lease;
        case Mode::Pull:
            return limits_.idle;
        case Mode::Measure:
        case Mode::MeasureDurable:
        case Mode::Status:
            break;
    }
    return 10 * limits_.idle;
}

// A push that waits for the server's storage is active. A client that measures also uses the TCP baseline.
Server::Clock::time_point Server::last_active(const Client &client) const {
    if (client.stored < client.asked || (client.committing && !client.answered)) {
        return Clock::now();
    }
    return client.perf.baseline ? std::max(client.active, client.perf.baseline->active()) : client.active;
}

// Returns for how many milliseconds no client is late; -1 means for ever.
int Server::drop_late() {
    const auto now = Clock::now();
    auto next = Clock::duration::max();
    std::vector<int> late;
    for (const auto &[fd, client] : clients_) {
        const auto left = patience(client) - (now - last_active(client));
        if (left < Clock::duration::zero()) {
            late.push_back(fd);
        } else {
            next = std::min(next, left);
        }
    }
    for (const int fd : late) {
        const Client &client = clients_.at(fd);
        if (client.admitted) {
            BASE_LOG_PEER(
                Warning, "dropped a client from %s that %s for %lld seconds", client.host.c_str(),
                client.established ? "did nothing" : "did not finish connecting",
                static_cast<long long>(std::chrono::floor<std::chrono::seconds>(patience(client)).count()));
        }
        drop(fd);
    }
    return clients_.empty() ? -1
                            : static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next).count());
}

}  // namespace cli
