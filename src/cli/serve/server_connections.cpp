// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/server: serves the clients' requests, and ends their connections.

#include <softrdma.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "cli/log.hpp"
#include "cli/serve/server.hpp"

namespace cli {

namespace {

// The time for a client that was accepted and sends nothing, and for one that was refused.
constexpr auto establish_timeout = std::chrono::seconds{10};
constexpr auto refused_timeout = std::chrono::seconds{2};
// The most time that those have to fill their room which took it from others.
constexpr std::uint64_t most_leases_with_room = std::uint64_t{1} << 20;
// A client that asks for the status waits so long for a look at the files.
constexpr auto patience_with_look = std::chrono::seconds{5};
// A client with more completions than these waits until the others have had their turn.
constexpr int polls_in_turn = 2;

// Returns whether storage works for a client that asks for this, beside what a push has stored.
bool is_counted(Ask ask) {
    return ask != Ask::Store && ask != Ask::Alive;
}

// Returns the reason of an aborted push in events and metrics.
const char *reason_of(Ending ending) {
    switch (ending) {
        case Ending::NoProgress:
            return "no_progress";
        case Ending::NotLetIn:
            return "not_let_in";
        case Ending::ServerStops:
            return "server_stops";
        case Ending::TooSlow:
            return "too_slow";
        case Ending::NotServed:
            break;
    }
    return "not_served";
}

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
    const std::string fault = client.pull ? client.pull->fault() : "";
    int error = 0;
    (void)rpma_conn_get_error(client.connection.get(), &error);
    // The host of a process that was killed resets the connection.
    const bool has_left = event == RPMA_CONN_CLOSED && (error == 0 || error == ECONNRESET);
    std::string why = !fault.empty() ? fmt::format("it {}", fault)
                      : has_left     ? "its client closed the connection"
                                     : "the connection to its client was lost";
    const char *const reason = has_left ? "client_left" : "connection_lost";
    if (result == 0 && event == RPMA_CONN_ESTABLISHED) {
        const bool is_new = !std::exchange(client.established, true);
        client.activity.be_active();
        const auto started = is_new && client.perf.messages != nullptr
                                 ? client.perf.messages->start(client.connection.get())
                             : is_new && client.pull ? client.pull->start(client.connection.get())
                                                     : Outcome<>{};
        if (started) {
            return;
        }
        why = started.error().text;
    }
    if (!fault.empty() || event == RPMA_CONN_ESTABLISHED) {
        tell(ServerEvent::Kind::Dropped, client.who,
             fmt::format("dropped a client from {}: {}", client.who.text(), why));
    }
    drop(fd, why, reason);
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
    for (int polls = 0; polls < polls_in_turn; ++polls) {
        int count = 0;
        if (rpma_cq_get_wc(completions, static_cast<int>(taken.size()), taken.data(), &count) != 0) {
            return;
        }
        for (const ibv_wc &completion : std::span{taken}.first(static_cast<std::size_t>(count))) {
            if (completion.status != IBV_WC_SUCCESS) {
                // The event that follows says how it ended. On InfiniBand an error alone ends no connection.
                (void)rpma_conn_disconnect(client.connection.get());
                return;
            }
            if (completion.opcode != IBV_WC_RECV) {
                continue;
            }
            if (const auto served = serve(client, completion); !served) {
                return end(fd, Ending::NotServed, fmt::format("it {}", served.error().text));
            }
        }
    }
    if (std::ranges::find(unread_, fd) == unread_.end()) {
        unread_.push_back(fd);
    }
}

Outcome<> Server::serve(Client &client, const ibv_wc &message) {
    const Request request = TRY(request_of(client.where(), message));
    const bool stores = client.mode == Mode::Push && client.is_admitted();
    if (request.ask == Ask::Alive && !stores) {
        client.activity.be_active();
        return reply(client.connection.get(), client.where(), message.wr_id, {});
    }
    if (request.ask == Ask::Look) {
        return look(client, message.wr_id, request);
    }
    if (!stores) {
        return failed("{}", no_store_here);
    }
    Storage::Job job = client.job(request, message.wr_id);
    TRY(client.push->take(request, store_.capacity(), job));
    client.asks += is_counted(request.ask) ? 1 : 0;
    client.find_whether_it_waits();
    if (client.push->is_over()) {
        commits_[client.name] = {client.who, Clock::now()};
    }
    storage_.submit(std::move(job));
    return {};
}

// Has storage make a list or the status, because that looks at the files of many names. Also has it read the
// checksums of blocks: for a push what the pushes of its name before it have left.
Outcome<> Server::look(Client &client, std::size_t place, const Request &request) {
    const bool lists = client.mode == Mode::List && client.is_admitted();
    const bool pushes = client.push && client.is_admitted() && !client.push->is_over();
    if ((!lists && !pushes && client.standing != Standing::Told) || std::exchange(client.has_looked, true)) {
        return failed("{}", no_look_here);
    }
    client.look = {Clock::now(), place};
    ++client.asks;
    client.find_whether_it_waits();
    Storage::Job job = client.job({.ask = Ask::Look}, place);
    job.kind = pushes ? Storage::Kind::Push : Storage::Kind::Look;
    if (pushes) {
        job.after = client.name;
        job.look = [upload = client.push->upload(), length = request.length,
                    resumes = request.offset == look_to_resume] {
            return resumes ? upload->resume(length) : upload->begin_as_newest(length);
        };
        storage_.submit(std::move(job));
        return {};
    }
    job.look = [&store = std::as_const(store_), lists, name = client.name, health = health()]() mutable {
        if (lists) {
            return store.list(name);
        }
        store.tell(health);
        return encode_health(health);
    };
    storage_.submit(std::move(job));
    return {};
}

void Server::finish_jobs() {
    for (Storage::Job &job : storage_.take_done()) {
        finish(job);
    }
}

// Counts what storage has done, and tells of a push that cannot commit any more.
void Server::tell_verdict(const Storage::Job &job) const {
    const Request &request = job.request;
    const Answer &answer = job.answer;
    if (answer.verdict == Verdict::Done && request.ask == Ask::Store) {
        return metrics_.stored(request.length, job.seconds);
    }
    if (!commits(request.ask)) {
        return;
    }
    const std::string &name = job.upload->name();
    const bool rolls_back = request.ask == Ask::Rollback;
    const std::string what = rolls_back ? fmt::format("a rollback to content {}", request.offset) : "a push";
    const auto no_commit = [&](const char *reason, const std::string &why) {
        abort(job.who, reason,
              fmt::format("{} from {} did not commit: {}; {}", what, job.who.text(), why,
                          store_.what_stays(name)));
    };
    switch (answer.verdict) {
        case Verdict::Done:
            return metrics_.committed(request.length, job.seconds);
        case Verdict::Different:
            return no_commit("checksum", rolls_back ? "it has another checksum than at its commit"
                                                    : "the bytes that arrived have another checksum than "
                                                      "those that were sent");
        case Verdict::Unknown:
            return abort(job.who, "storage",
                         fmt::format("it is unknown whether {} from {} has committed {}: {}", what,
                                     job.who.text(), name, errno_text(answer.error)));
        case Verdict::NotDurable:
        case Verdict::NoRoom:
        case Verdict::Newer:
        case Verdict::Ended:
            break;
    }
    if (rolls_back && answer.error == ENOENT) {
        return no_commit("no_content", "there is no such content");
    }
    no_commit("storage", fmt::format("it cannot be made durable: {}", errno_text(answer.error)));
}

// Returns whether a push has stored too little of what it has room for.
bool Server::fills_slowly(const Client &client) const {
    const auto had = Clock::now() - client.begun - client.activity.held_up();
    const auto leases = std::min(static_cast<std::uint64_t>(had / limits_.push_lease), leases_with_room_);
    return client.push->stored() < client.push->upload()->room() / leases_with_room_ * leases;
}

// A job has found no room. Pushes that fill theirs too slowly lose it, those with the most first, if that is
// enough for the job.
void Server::make_room(Storage::Job job) {
    const Request &request = job.request;
    const std::uint64_t wanted = request.length + (request.ask == Ask::Store ? request.offset : 0);
    std::uint64_t missing = wanted - std::min(wanted, job.answer.sequence);
    std::vector<std::pair<std::uint64_t, int>> slow;
    std::uint64_t found = 0;
    for (const auto &[name, fd] : pushers_) {
        const Client &client = clients_.at(fd);
        if (client.number != job.client && !client.push->is_over() && fills_slowly(client)) {
            slow.emplace_back(client.push->reserved(), fd);
            found += client.push->reserved();
        }
    }
    if (found >= missing) {
        std::ranges::sort(slow, std::greater{});
        for (const auto &[room, fd] : slow) {
            if (missing != 0) {
                missing -= std::min(missing, room);
                end(fd, Ending::TooSlow,
                    "it stored too little of what it has room for, and another push needs that room");
            }
        }
        leases_with_room_ = std::min(2 * leases_with_room_, most_leases_with_room);
    }
    storage_.try_again(std::move(job));
}

void Server::finish(Storage::Job &job) {
    if (job.open) {
        return finish_opening(job);
    }
    if (job.room == Storage::Room::Wanted) {
        return make_room(std::move(job));
    }
    const bool done = job.answer.verdict == Verdict::Done;
    if (storage_error_ == 0 && Store::is_fatal(job.answer)) {
        storage_error_ = job.answer.error;
        tell(ServerEvent::Kind::StorageFailed, job.who,
             fmt::format("{}: cannot make it durable: {}; no push is taken until the server is started "
                         "again, pulls are",
                         store_.text(), errno_text(storage_error_)));
    }
    const bool is_commit = commits(job.request.ask);
    const Content content = is_commit && done ? store_.committed(*job.upload) : Content{};
    if (is_commit && (job.answer.error == EEXIST || job.answer.verdict == Verdict::Unknown)) {
        store_.skip_sequence(*job.upload);
    }
    tell_verdict(job);
    const auto is_its_client = [&](const auto &entry) { return entry.second.number == job.client; };
    const auto found = std::ranges::find_if(clients_, is_its_client);
    if (found != clients_.end()) {
        answer_request(found->first, found->second, job);
    }
    if (!is_commit) {
        return;
    }
    const std::string name = job.upload->name();
    commits_.erase(name);
    Storage::Job rest;
    rest.client = job.client;
    rest.origin = job.origin;
    rest.who = job.who;
    rest.upload = std::move(job.upload);
    rest.releases = true;
    storage_.submit(std::move(rest));
    if (done) {
        leases_with_room_ = least_leases_with_room;
        last_commit_ = {name,
                        content.sequence,
                        {content.length,
                         content.checksum,
                         time_text(),
                         job.who.host,
                         job.who.identity,
                         job.request.label,
                         {}},
                        {}};
        happened_({ServerEvent::Kind::Committed, job.who, {}, nullptr, name, content});
    }
}

// Answers the client's request that storage has done.
void Server::answer_request(int fd, Client &client, Storage::Job &job) {
    const Ask ask = job.request.ask;
    if (ask == Ask::Look && !std::exchange(client.look, std::nullopt)) {
        return;  // it has an answer without it
    }
    client.activity.answered();
    client.asks -= is_counted(ask) ? 1 : 0;
    if (ask == Ask::Look && job.answer.verdict == Verdict::Done) {
        auto granted = grant(client.connection.get(), *client.device, job.memory, job.answer);
        if (!granted) {
            return end(fd, Ending::NotServed, fmt::format("it {}", granted.error().text));
        }
        client.regions.push_back(*std::move(granted));
    }
    if (client.push && client.push->finish(job)) {
        client.activity.be_active();
    }
    client.find_whether_it_waits();
    const bool is_last = commits(ask) || job.answer.verdict == Verdict::Newer;
    if (const auto told = reply(client.connection.get(), client.where(), job.place, job.answer); !told) {
        drop(fd, fmt::format("it {}", told.error().text));
    } else if (is_last) {
        client.activity.be_active();
        if (pusher_of(client.name) == fd) {
            pushers_.erase(client.name);  // it can store nothing more, so another push may begin
        }
    }
}

// Tells the client why its connection ends, as far as it listens, and drops it.
void Server::end(int fd, Ending ending, const std::string &why) {
    const Client &client = clients_.at(fd);
    const bool listens = client.established && client.is_admitted() && client.messages;
    if (listens && !client.may_wait()) {
        const Clock::duration had =
            ending == Ending::TooSlow ? limits_.push_lease * leases_with_room_ : patience(client);
        say_end(client.connection.get(), client.where(), ending,
                std::chrono::floor<std::chrono::seconds>(had));
    }
    if (client.is_admitted() && (!client.push || client.push->is_over())) {
        tell(ServerEvent::Kind::Dropped, client.who,
             fmt::format("dropped a client from {}: {}", client.who.text(), why));
    }
    drop(fd, why, reason_of(ending), listens ? std::optional{ending} : std::nullopt);
}

// The next push of the name may begin at once, because it has a file of its own, unless the commit of this
// one is under way: both would have the same sequence.
void Server::drop(int fd, const std::string &why, const char *reason, std::optional<Ending> told) {
    const auto found = clients_.find(fd);
    const Client &client = found->second;
    if (client.established && !client.may_wait()) {
        (void)rpma_conn_disconnect(client.connection.get());
    }
    if (client.push && pusher_of(client.name) == fd) {
        pushers_.erase(client.name);
        if (!client.push->is_over()) {
            const auto &trouble = client.push->trouble();
            abort(client.who, trouble ? trouble->reason : reason,
                  fmt::format("a push from {} ended without a commit: {}; {}", client.who.text(),
                              trouble ? trouble->text : why, store_.what_stays(client.name)));
        }
    }
    std::erase(unread_, fd);
    storage_.cancel(client.number, client.origin);
    if (client.may_wait()) {
        (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
        Client leaves = std::move(found->second);
        clients_.erase(found);
        return leave(std::move(leaves), told);
    }
    Client &gone = found->second;
    Storage::Job upload = gone.job();
    upload.upload = gone.push ? gone.push->upload() : nullptr;
    Storage::Job memory = gone.job();
    memory.device = gone.device;
    memory.regions = std::move(gone.regions);
    memory.kind = Storage::Kind::Memory;
    clients_.erase(found);
    if (!memory.regions.empty()) {
        storage_.submit_release(std::move(memory));
    }
    if (upload.upload) {
        storage_.submit_release(std::move(upload));
    }
}

// Ends a connection in a thread of its own, because that may wait for storage. Until then it has one of the
// places for clients that have left.
void Server::leave(Client gone, std::optional<Ending> told) {
    forget_left();
    const auto has_left = std::make_shared<std::atomic<bool>>(false);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(patience(gone));
    const base::Origin origin = gone.origin;
    auto thread =
        start_thread([client = std::make_shared<Client>(std::move(gone)), told, seconds, has_left]() mutable {
            if (told) {
                say_end(client->connection.get(), client->where(), *told, seconds);
            }
            if (client->established) {
                (void)rpma_conn_disconnect(client->connection.get());
            }
            client.reset();
            deregister_again();  // those of others may be over by now
            *has_left = true;
        });
    if (!thread) {
        BASE_LOG(Warning, "the end of a connection may have waited for storage: %s",
                 thread.error().text.c_str());
        return;
    }
    leaving_.emplace_back(origin, has_left, *std::move(thread));
}

void Server::forget_left() {
    leaving_.remove_if([](const Leaving &one) { return one.has_left->load(); });
}

// A file that cannot be used ends no connection: an administrator may be about to write it. It lets nobody in
// either, because whoever takes a key out of a file expects that it is out.
void Server::end_unknown() {
    for (auto &[number, arrival] : arrivals_) {
        arrival.may_be_out = !arrival.client.who.identity.empty();
    }
    std::vector<int> asked;
    std::vector<const rpma_conn *> connections;
    for (const auto &[fd, client] : clients_) {
        if (!client.who.identity.empty()) {
            asked.push_back(fd);
            connections.push_back(client.connection.get());
        }
    }
    const auto known = std::make_unique<bool[]>(asked.size());
    if (softrdma_check_settings() != 0 ||
        (!asked.empty() &&
         rpma_conn_check_identities(connections.data(), connections.size(), known.get()) != 0)) {
        BASE_LOG(Error,
                 "SIGHUP: the files of TLS cannot be used, as the line before says: every connection stays, "
                 "and no client "
                 "gets a new one until the files are repaired");
        return;
    }
    std::size_t ended = 0;
    for (std::size_t place = 0; place < asked.size(); ++place) {
        // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): make_unique sets it, and the call above
        if (known[place]) {
            continue;
        }
        const int fd = asked[place];
        const Client &client = clients_.at(fd);
        ended += client.is_admitted() ? 1 : 0;
        end(fd, Ending::NotLetIn, fmt::format("the identity {} is not let in any more", client.who.identity));
    }
    const auto stay =
        std::ranges::count_if(clients_, [](const auto &one) { return one.second.is_admitted(); });
    BASE_LOG(Warning, "SIGHUP: ended %zu connections, %td stay", ended, stay);
}

// Returns how long a client may be silent.
Server::Clock::duration Server::patience(const Client &client) const {
    if (!client.established) {
        return establish_timeout;
    }
    if (client.standing == Standing::Refused) {
        return refused_timeout;
    }
    switch (client.mode) {
        case Mode::Push:
            return limits_.push_lease;
        case Mode::Pull:
        case Mode::List:
        case Mode::Status:
        case Mode::Tag:
            return limits_.idle;
        case Mode::Measure:
        case Mode::MeasureDurable:
            break;
    }
    return 10 * limits_.idle;
}

// A client that measures also uses the TCP baseline.
Server::Clock::time_point Server::last_active(const Client &client) const {
    if (client.pull) {
        return std::max(client.activity.last(), client.pull->active());
    }
    return client.perf.baseline ? std::max(client.activity.last(), client.perf.baseline->active())
                                : client.activity.last();
}

// A monitor gets an answer also while storage does not give one: what is known without a look at a file.
void Server::answer_without_look(int fd) {
    Client &client = clients_.at(fd);
    storage_.cancel(client.number, client.origin);
    Health told = health();
    store_.tell_known(told);
    told.reasons.push_back(
        {"slow",
         {},
         0,
         fmt::format(
             "storage has not told for {} seconds which contents are good, and how much room there is",
             std::chrono::floor<std::chrono::seconds>(patience_with_look).count())});
    Storage::Job job = client.job({.ask = Ask::Look}, client.look->place);
    Storage::give_text(job, encode_health(told));
    answer_request(fd, client, job);
}

// Answers those that have waited long enough for a look, and returns the time until the next has.
Server::Clock::duration Server::answer_late_looks() {
    const auto now = Clock::now();
    auto next = Clock::duration::max();
    std::vector<int> late;
    for (const auto &[fd, client] : clients_) {
        if (client.standing != Standing::Told || !client.look) {
            continue;
        }
        if (const auto left = client.look->since + patience_with_look - now;
            left <= Clock::duration::zero()) {
            late.push_back(fd);
        } else {
            next = std::min(next, left);
        }
    }
    for (const int fd : late) {
        answer_without_look(fd);
    }
    return next;
}

// Returns for how many milliseconds no client is late; -1 means for ever.
int Server::drop_late() {
    auto next = std::min(answer_late_looks(), refuse_late_arrivals());
    const auto now = Clock::now();
    std::vector<int> late;
    for (const auto &[fd, client] : clients_) {
        if (client.activity.waits()) {
            continue;
        }
        const auto left = patience(client) - (now - last_active(client));
        if (left < Clock::duration::zero()) {
            late.push_back(fd);
        } else {
            next = std::min(next, left);
        }
    }
    for (const int fd : late) {
        const Client &client = clients_.at(fd);
        end(fd, Ending::NoProgress,
            fmt::format("it {} for {} seconds",
                        !client.established         ? "did not finish connecting"
                        : client.mode == Mode::Push ? "stored too little"
                                                    : "did nothing",
                        std::chrono::floor<std::chrono::seconds>(patience(client)).count()));
    }
    return next == Clock::duration::max()
               ? -1
               : static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next).count());
}

}  // namespace cli
