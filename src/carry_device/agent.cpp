// SPDX-License-Identifier: BSD-3-Clause
// carry_device/agent: the thread that finds the other ends of connections, and that acts for the process's
// mirrors between two calls of its program. The program's threads ask it by a list, and wake it by an
// eventfd.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/address.hpp"
#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "carry_device/copy.hpp"
#include "carry_device/finding.hpp"
#include "carry_device/names.hpp"
#include "carry_device/proof.hpp"
#include "carry_device/spares.hpp"

namespace carry_device {

namespace {

using Endpoint = std::unique_ptr<rpma_ep, Ends<rpma_ep_shutdown>>;
using std::chrono::milliseconds;

// A peer whose connection is lost has usually ended; TCP says so in this time, or the connection is reset.
constexpr milliseconds waits_for_end{500};
// The device sends what was pushed before a mirror ends, or the process, in this time, unless the peer is
// stopped.
constexpr milliseconds waits_for_quiet{1000};

// An end that is not found is asked for again when the program uses the connection after this time, and then
// after twice as long each time.
constexpr std::chrono::seconds asks_after{1};
constexpr std::chrono::seconds asks_after_at_most{64};

// One connection whose other end is looked for, or that has a mirror.
struct One {
    enum class State {
        Begins,
        Asks,     // side 1
        Listens,  // side 0
        Rests,    // until it is asked for again
        Resolves,
        Connects,
        Found,
        Taken,
        Retires,
        Disconnects,
        Over
    };

    One(std::uint32_t where, const carry::FourTuple &which, const carry::BeginningOf &bytes)
        : place{where}, connection{which}, beginning{bytes, which.side}, name{name_of(which)} {}

    const std::uint32_t place;
    const carry::FourTuple connection;
    const Beginning beginning;
    const std::uint64_t name;
    std::atomic<State> state = State::Begins;  // the agent's, but for Taken
    std::atomic<bool> is_forgotten = false;
    std::atomic<bool> is_declined = false;
    // The program's threads say this, from the time on when the agent wants to know it.
    std::atomic<bool> is_asked_again = false;
    std::atomic<std::int64_t> asked_again_at = 0;
    std::atomic<Lengths> lacks;  // what the peer wants to be proven, and has not come yet; none: 0

    // Before there is a copy.
    std::chrono::nanoseconds asks_next = asks_after;
    std::uint64_t asks = 0;  // the random numbers
    std::uint64_t answers = 0;
    Lengths own;                // that the peer proves
    std::optional<Word> heard;  // what the peer has said
    std::uint16_t asker = 0;    // its port
    std::uint64_t hello = 0;    // the proof in its hello
    Request request;

    std::unique_ptr<Copy> copy;  // from Connects on
    bool owes_answer = false;    // to a message
    bool lost_is_settled = false;
    base::Clock::time_point until;  // of the state
    Attempt attempt;                // when the device has lost the peer
};

// An address of this host, and what its device has there.
struct Here {
    carry::FourTuple::End end;
    rpma_peer *peer;
    Endpoint endpoint;
    std::uint16_t port = 0;  // of that
};

std::uint64_t random_number() {
    std::uint64_t number = 0;
    return getrandom(&number, sizeof(number), 0) == sizeof(number) ? number : 0;
}

std::string text_of(const in6_addr &address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
        (void)inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof(text));
    } else {
        (void)inet_ntop(AF_INET6, &address, text, sizeof(text));
    }
    return text;
}

class Agent {
public:
    Agent(rpma_device_kind kind, const carry::Answers &answers)
        : kind_{kind}, answers_{answers}, finding_{answers.is_peer} {}

    [[nodiscard]] bool begin() {
        events_ = epoll_create1(EPOLL_CLOEXEC);
        bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
        if (events_ < 0 || bell_ < 0 || epoll_ctl(events_, EPOLL_CTL_ADD, bell_, &event) != 0) {
            return false;
        }
        sigset_t all;
        (void)sigfillset(&all);
        return base::start_thread<&Agent::run>(*this, all) == 0;
    }

    void look_for(std::uint32_t place, const carry::FourTuple &connection,
                  const carry::BeginningOf &beginning) {
        const std::lock_guard lock{mutex_};
        const auto known = looked_for_.find(place);
        if (known == looked_for_.end()) {
            looked_for_[place] = &all_.emplace_back(place, connection, beginning);
            wake();
            return;
        }
        One &one = *known->second;
        const Lengths lacks = one.lacks;
        const bool has_come = lacks != Lengths{} && one.beginning.has(lacks);
        const bool is_late = one.state < One::State::Resolves && one.asked_again_at != 0 &&
                             base::Clock::now().time_since_epoch().count() > one.asked_again_at;
        if (has_come) {
            one.lacks = Lengths{};
        }
        if (is_late) {
            one.asked_again_at = 0;
            one.is_asked_again = true;
        }
        if (has_come || is_late) {
            wake();
        }
    }
    Copy *found(std::uint32_t place) {
        const std::lock_guard lock{mutex_};
        const auto one = looked_for_.find(place);
        return one != looked_for_.end() && one->second->state == One::State::Found ? one->second->copy.get()
                                                                                   : nullptr;
    }
    Copy *take(std::uint32_t place) {
        const std::lock_guard lock{mutex_};
        const auto one = looked_for_.find(place);
        if (one == looked_for_.end() || one->second->state != One::State::Found) {
            return nullptr;
        }
        Copy *const copy = one->second->copy.get();
        one->second->state = One::State::Taken;
        looked_for_.erase(one);
        return copy;
    }
    void decline(std::uint32_t place) {
        const std::lock_guard lock{mutex_};
        if (const auto one = looked_for_.find(place); one != looked_for_.end()) {
            one->second->is_declined = true;
            wake();
        }
    }
    void forget(std::uint32_t place) {
        const std::lock_guard lock{mutex_};
        if (const auto one = looked_for_.find(place); one != looked_for_.end()) {
            one->second->is_forgotten = true;
            looked_for_.erase(one);
            wake();
        }
    }
    void retire(const carry::Mirror &mirror) {
        const std::lock_guard lock{mutex_};
        for (One &one : all_) {
            if (one.copy.get() == &mirror) {
                one.is_forgotten = true;
            }
        }
        wake();
    }
    void close_in_child() {
        spares_.close_in_child();
        finding_.close_in_child();
    }
    void drain(base::Clock::time_point until) {
        while (base::Clock::now() < until) {
            {
                const std::lock_guard lock{mutex_};
                bool is_quiet = true;
                for (const One &one : all_) {
                    const bool may_push = one.state >= One::State::Found && one.copy != nullptr;
                    is_quiet = is_quiet && (!may_push || one.copy->is_quiet());
                }
                if (is_quiet) {
                    return;
                }
            }
            (void)sched_yield();
        }
    }

private:
    void wake() const {
        const std::uint64_t one = 1;
        (void)!write(bell_, &one, sizeof(one));
    }

    void run() {
        if (!spares_.listens(events_)) {
            BASE_LOG(Info, "no TCP port is left to replace a device that has lost the peer");
        }
        if (!finding_.takes_port(events_)) {
            BASE_LOG(Info,
                     "UDP port %u is another program's: other hosts do not find this process's connections",
                     unsigned{Finding::well_known});
        }
        for (;;) {
            epoll_event events[64];
            const int count = epoll_wait(events_, events, 64, has_more_ ? 0 : waits_ ? 1 : -1);
            std::uint64_t rung = 0;
            (void)!read(bell_, &rung, sizeof(rung));
            bool others = std::exchange(has_more_, false);
            for (int i = 0; i < count; ++i) {
                if (events[i].data.ptr != nullptr) {
                    serve(*static_cast<One *>(events[i].data.ptr));
                } else {
                    others = true;
                }
            }
            if (others) {
                has_more_ = finding_.serve([this](const Finding::Heard &heard) { return hears(heard); });
                for (Here &here : here_) {
                    while (accepts(here)) {
                    }
                }
            }
            has_more_ = spares_.serve([this](const Greeting &greeting, Watched fd) {
                greeted(greeting, std::move(fd));
            }) || has_more_;
            look_at_all();
        }
    }

    // The list changes in this thread only, but for what others add.
    void look_at_all() {
        std::vector<One *> all;
        {
            const std::lock_guard lock{mutex_};
            for (One &one : all_) {
                all.push_back(&one);
            }
        }
        waits_ = false;
        for (One *const one : all) {
            advance(*one);
            if (one->state == One::State::Over) {
                unwatch(*one);
                std::list<One> over;  // ends without the lock
                const std::lock_guard lock{mutex_};
                if (const auto known = looked_for_.find(one->place);
                    known != looked_for_.end() && known->second == one) {
                    looked_for_.erase(known);
                }
                const auto place = std::ranges::find(all_, one, [](const One &other) { return &other; });
                over.splice(over.begin(), all_, place);
            }
        }
    }

    void advance(One &one) {
        using State = One::State;
        switch (one.state.load()) {
            case State::Begins:
            case State::Asks:
            case State::Listens:
            case State::Rests:
                if (one.is_forgotten) {
                    one.state = State::Over;
                } else if (one.is_declined) {
                    break;
                } else if (one.state == State::Begins || one.is_asked_again.exchange(false)) {
                    begins(one);
                } else if (one.heard && one.lacks.load() == Lengths{}) {
                    goes_on_with(one);
                }
                break;
            case State::Resolves:
            case State::Connects:
                if (one.is_forgotten) {
                    one.state = State::Over;
                } else if (one.is_declined || one.copy->has_lost_device()) {
                    rests(one);
                }
                break;
            case State::Found:
            case State::Taken:
                if (one.is_forgotten) {
                    enter(one, State::Retires, waits_for_quiet);
                    waits_ = true;
                } else {
                    withdraws(one);
                    serve_lost_device(one);
                    serve_spare(one);
                    serve_lost(one);
                    waits_ = one.copy->catches_up() || waits_;
                    one.owes_answer = one.copy->settles_late() || one.owes_answer;
                    answer(one);
                    waits_ = one.copy->awaits_turn() || one.owes_answer || waits_;
                }
                break;
            case State::Retires:
                serve_lost_device(one);
                serve_spare(one);
                if (one.copy->is_cut_off()) {  // as long as the agents may meet
                    enter(one, State::Retires, waits_for_quiet);
                }
                if (one.copy->is_quiet() || base::Clock::now() > one.until) {
                    if (one.copy->conn() != nullptr) {
                        (void)rpma_conn_disconnect(one.copy->conn());
                    }
                    enter(one, State::Disconnects, waits_for_quiet);
                }
                waits_ = true;
                break;
            case State::Disconnects:
                if (one.copy->has_lost_device() || base::Clock::now() > one.until) {
                    one.state = State::Over;
                }
                waits_ = true;
                break;
            case State::Over:
                break;
        }
    }

    void enter(One &one, One::State state, milliseconds time) {
        const std::lock_guard lock{mutex_};
        one.state = state;
        one.until = base::Clock::now() + time;
    }

    void answer(One &one) const {
        if (one.owes_answer && one.state == One::State::Taken) {
            one.owes_answer = !answers_.told(one.place, *one.copy);
        }
    }

    // The device has lost the peer. Where a thread of the program has the link, its agent and this one meet
    // by TCP.
    void serve_lost_device(One &one) {
        if (!one.copy->has_lost_device() || one.copy->is_lost() || one.copy->has_spare()) {
            return;
        }
        if (one.copy->conn() != nullptr) {
            leave_device(one);
        }
        {
            // A program that takes the link after this puts nothing into it.
            const std::lock_guard lock{mutex_};
            const bool is_used = one.state == One::State::Taken || one.state == One::State::Retires;
            if (!is_used || one.copy->link().closed[1 - one.connection.side] != 0) {
                one.copy->loses();
                return;
            }
        }
        switch (one.attempt.advance(events_, one.connection, one.name, one.copy->peers_spare())) {
            case Attempt::Result::Goes:
                go_on(one, one.attempt.take());
                break;
            case Attempt::Result::Fails:
                one.copy->loses();
                break;
            case Attempt::Result::Later:
                break;
        }
        waits_ = true;
    }

    void leave_device(One &one) {
        unwatch(one);
        (void)rpma_conn_disconnect(one.copy->conn());
        one.copy->leaves_device();
    }

    // A forked child may have the descriptors for longer.
    void unwatch(const One &one) const {
        int fd = -1;
        const auto forget = [&](int result) {
            if (result == 0) {
                (void)epoll_ctl(events_, EPOLL_CTL_DEL, fd, nullptr);
            }
        };
        if (one.request != nullptr) {
            forget(rpma_conn_req_get_fd(one.request.get(), &fd));
        }
        if (one.copy != nullptr && one.copy->conn() != nullptr) {
            forget(rpma_conn_get_event_fd(one.copy->conn(), &fd));
        }
        if (one.copy != nullptr && one.copy->receive_queue() != nullptr) {
            forget(rpma_cq_get_fd(one.copy->receive_queue(), &fd));
        }
    }

    void serve_spare(One &one) {
        if (one.copy->has_spare() && one.copy->hears()) {
            one.owes_answer = true;
            one.copy->push();
        }
    }

    void go_on(One &one, Watched fd) {
        BASE_LOG(Info, "the RDMA device has lost a peer; its connection goes back to TCP");
        one.copy->goes_on(std::move(fd));
        one.owes_answer = true;
    }

    // The agent of a peer has come. Who does not know the key is nobody's peer.
    void greeted(const Greeting &greeting, Watched fd) {
        One *const one = one_of(greeting);
        const bool comes_itself = one != nullptr && one->connection.side == 1 && one->attempt.is_under_way();
        const Reply reply = one == nullptr || one->copy->has_spare() ? Reply::Refused
                            : comes_itself                           ? Reply::Comes
                                                                     : Reply::Taken;
        if (send(fd.get(), &reply, sizeof(reply), MSG_NOSIGNAL) != sizeof(reply) || reply != Reply::Taken) {
            return;
        }
        if (one->copy->conn() != nullptr) {
            leave_device(*one);
        }
        one->attempt.end();
        go_on(*one, std::move(fd));
    }

    // A link that the program has not taken has no bytes, and gets none from here on.
    [[nodiscard]] One *one_of(const Greeting &greeting) {
        const std::lock_guard lock{mutex_};
        const auto one = std::ranges::find_if(all_, [&](const One &other) {
            return greeting.mark == carry::Link::mark && greeting.name == other.name &&
                   other.copy != nullptr && greeting.side == 1 - other.connection.side &&
                   greeting.key == other.copy->own_spare().key;
        });
        if (one == all_.end() || one->copy->is_lost()) {
            return nullptr;
        }
        if (one->state != One::State::Taken && one->state != One::State::Retires) {
            one->copy->loses();
            return nullptr;
        }
        return &*one;
    }

    void serve_lost(One &one) {
        if (!one.copy->is_lost() || one.lost_is_settled || one.state != One::State::Taken) {
            return;
        }
        if (one.until == base::Clock::time_point{}) {
            one.until = base::Clock::now() + waits_for_end;
        }
        one.lost_is_settled = answers_.lost(one.place, *one.copy, base::Clock::now() > one.until);
        waits_ = waits_ || !one.lost_is_settled;
    }

    rpma_peer *peer_at(const std::string &address) {
        ibv_context *context = nullptr;
        if (rpma_utils_get_local_ibv_context(address.c_str(), kind_, &context) != 0) {
            return nullptr;
        }
        rpma_peer *&peer = peers_[context];
        if (peer == nullptr) {
            (void)rpma_peer_new(context, &peer);
        }
        return peer;
    }

    static Configuration configuration() {
        rpma_conn_cfg *cfg = nullptr;
        constexpr std::uint32_t words_at_once = 64;
        if (rpma_conn_cfg_new(&cfg) == 0) {
            (void)rpma_conn_cfg_set_sq_size(cfg, Copy::sends);
            (void)rpma_conn_cfg_set_cq_size(cfg, Copy::sends);
            (void)rpma_conn_cfg_set_rq_size(cfg, Copy::receives);
            (void)rpma_conn_cfg_set_rcq_size(cfg, Copy::receives);
            (void)rpma_conn_cfg_set_inline_size(cfg, words_at_once);
        }
        return Configuration{cfg};
    }

    bool watch(int fd, One *one) const {
        epoll_event event{.events = EPOLLIN, .data = {.ptr = one}};
        return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0 &&
               epoll_ctl(events_, EPOLL_CTL_ADD, fd, &event) == 0;
    }

    // ---- how an end is found ----

    Here *here_at(const carry::FourTuple::End &end) {
        const auto known = std::ranges::find_if(here_, [&](const Here &here) {
            return IN6_ARE_ADDR_EQUAL(&here.end.address, &end.address) != 0 && here.end.scope == end.scope;
        });
        if (known != here_.end()) {
            return &*known;
        }
        rpma_peer *const peer = peer_at(text_of(end.address));
        return peer != nullptr ? &here_.emplace_back(Here{.end = end, .peer = peer, .endpoint = {}})
                               : nullptr;
    }
    [[nodiscard]] bool listens(Here &here) const {
        if (here.endpoint != nullptr) {
            return true;
        }
        rpma_ep *endpoint = nullptr;
        sockaddr_storage own{};
        int fd = -1;
        if (rpma_ep_listen(here.peer, text_of(here.end.address).c_str(), "0", &endpoint) != 0) {
            return false;
        }
        here.endpoint.reset(endpoint);
        if (rpma_ep_get_local_addr(endpoint, &own) != 0 || rpma_ep_get_fd(endpoint, &fd) != 0 ||
            !watch(fd, nullptr)) {
            here.endpoint.reset();
            return false;
        }
        here.port = base::port_of(own);
        return true;
    }

    // The program may use the connection for long without an answer.
    static void waits_to_ask(One &one) {
        one.asked_again_at = (base::Clock::now() + one.asks_next).time_since_epoch().count();
        one.asks_next = std::min<std::chrono::nanoseconds>(2 * one.asks_next, asks_after_at_most);
    }

    // Side 1 asks; side 0 listens, and calls, in case that side 1 has asked before. An end that has to do it
    // again takes the port again: the process that has it may be stopped.
    void begins(One &one) {
        const carry::FourTuple &connection = one.connection;
        const bool is_first = one.state == One::State::Begins;
        Here *const here = here_at(connection.ends[connection.side]);
        one.heard.reset();
        one.lacks = Lengths{};
        one.answers = 0;
        if (here == nullptr || (connection.side == 0 && !listens(*here))) {
            rests(one);
            return;
        }
        if (!is_first) {
            (void)finding_.takes_port(events_);
        }
        waits_to_ask(one);
        one.state = connection.side == 0 ? One::State::Listens : One::State::Asks;
        if (connection.side == 1) {
            ask(one);
        } else {
            finding_.send(connection, Finding::well_known, {.name = one.name, .kind = Word::Calls});
        }
    }
    void ask(One &one) {
        one.heard.reset();
        one.lacks = Lengths{};
        one.asks = random_number();
        one.own = one.beginning.lengths();
        finding_.send(one.connection, Finding::well_known,
                      {.name = one.name, .asks = one.asks, .lengths = one.own, .kind = Word::Asks});
    }

    // The device does not connect, or there is none. The other end may ask meanwhile.
    void rests(One &one) {
        unwatch(one);
        std::unique_ptr<Copy> copy;  // ends without the lock
        Request request;
        {
            const std::lock_guard lock{mutex_};
            one.state = One::State::Rests;
            copy = std::move(one.copy);
            request = std::move(one.request);
        }
        one.heard.reset();
        one.lacks = Lengths{};
        waits_to_ask(one);
    }

    // Returns whether the connection is this process's.
    bool hears(const Finding::Heard &heard) {
        const Word &word = heard.word;
        One *const one = one_named(word);
        if (one == nullptr) {
            return false;
        }
        if (!heard.is_from(one->connection.ends[1 - one->connection.side].address)) {
            return true;
        }
        if (word.kind == Word::Calls && one->state == One::State::Asks) {
            goes_on_when_seen(*one, word);
        } else if (word.kind == Word::Asks && one->state == One::State::Listens) {
            one->asker = heard.port;
            goes_on_when_seen(*one, word);
        } else if (word.kind == Word::Answers && one->state == One::State::Asks && is_right(*one, word)) {
            one->answers = word.answers;
            goes_on_when_seen(*one, word);
        }
        return true;
    }
    // A process may have both ends.
    [[nodiscard]] One *one_named(const Word &word) {
        const std::uint32_t side = word.kind == Word::Asks ? 0 : 1;
        const std::lock_guard lock{mutex_};
        const auto one = std::ranges::find_if(all_, [&](const One &other) {
            return other.name == word.name && other.connection.side == side && !other.is_forgotten &&
                   !other.is_declined && other.state < One::State::Retires;
        });
        return one != all_.end() ? &*one : nullptr;
    }
    [[nodiscard]] static bool is_right(const One &one, const Word &word) {
        const Facts facts{.name = one.name,
                          .asks = one.asks,
                          .answers = word.answers,
                          .port = word.port,
                          .speaker = Facts::Answers,
                          .proven = one.own};
        return one.own != Lengths{} && word.asks == one.asks && word.proof == proof_of(one.beginning, facts);
    }
    // Returns the proof in a hello: of what the asked end has named in its answer. The asked end proves it to
    // the key in the asker's hello, because the asker may have asked more than once.
    [[nodiscard]] static std::uint64_t hello_of(const One &one, Facts::Speaker speaker, std::uint64_t key,
                                                std::uint16_t port, const Lengths &proven) {
        return short_proof_of(one.beginning, {.name = one.name,
                                              .asks = key,
                                              .answers = one.answers,
                                              .port = port,
                                              .speaker = speaker,
                                              .proven = proven});
    }
    // Goes on when this end has seen the bytes that the peer has.
    void goes_on_when_seen(One &one, const Word &word) {
        one.heard = word;
        one.lacks = word.lengths;
        if (one.beginning.has(word.lengths)) {
            one.lacks = Lengths{};
            goes_on_with(one);
        }
    }
    void goes_on_with(One &one) {
        if (one.connection.side == 0) {
            answers(one);
        } else if (one.heard->kind == Word::Calls) {
            ask(one);
        } else {
            connects(one);
        }
    }
    // All its answers name the same bytes, and the same random number: the asker takes any of them.
    // An asker that could have a part proven would find out one byte after another.
    void answers(One &one) {
        const Here &here = *here_at(one.connection.ends[0]);
        const Lengths all = one.beginning.lengths();
        if (all == Lengths{}) {
            one.heard.reset();
            return;  // everybody knows nothing
        }
        if (all != one.heard->lengths) {
            finding_.send(one.connection, one.asker, {.name = one.name, .lengths = all, .kind = Word::Calls});
            one.heard.reset();
            return;
        }
        if (one.answers == 0) {
            one.answers = random_number();
            one.own = one.beginning.lengths();
            one.hello = hello_of(one, Facts::Asker, 0, here.port, one.own);
        }
        const Facts facts{.name = one.name,
                          .asks = one.heard->asks,
                          .answers = one.answers,
                          .port = here.port,
                          .speaker = Facts::Answers,
                          .proven = one.heard->lengths};
        finding_.send(one.connection, one.asker,
                      {.name = one.name,
                       .asks = facts.asks,
                       .answers = one.answers,
                       .lengths = one.own,
                       .port = here.port,
                       .kind = Word::Answers,
                       .proof = proof_of(one.beginning, facts)});
        one.heard.reset();
    }
    // Returns whether the device takes the copy.
    [[nodiscard]] bool makes_copy(One &one, const Here &here, const Copy::Proofs &proofs,
                                  const SparePort &spare) {
        auto made = std::make_unique<Copy>(one.place, one.connection, proofs, bell_);
        made->announces(spare);
        const bool enters = made->enters(here.peer);
        const std::lock_guard lock{mutex_};
        one.copy = std::move(made);
        return enters;
    }
    void connects(One &one) {
        const Word word = *std::exchange(one.heard, std::nullopt);
        const Here &here = *here_at(one.connection.ends[1]);
        const Configuration cfg = configuration();
        const SparePort spare = spares_.announce();
        const Copy::Proofs proofs{.own = hello_of(one, Facts::Asker, 0, word.port, word.lengths),
                                  .peers = hello_of(one, Facts::Asked, spare.key, word.port, word.lengths)};
        rpma_conn_req *request = nullptr;
        int fd = -1;
        if (!makes_copy(one, here, proofs, spare) ||
            rpma_conn_req_begin(here.peer, text_of(one.connection.ends[0].address).c_str(),
                                std::to_string(word.port).c_str(), cfg.get(), &request) != 0) {
            rests(one);
            return;
        }
        one.request.reset(request);
        one.state = One::State::Resolves;
        if (rpma_conn_req_get_fd(request, &fd) != 0 || !watch(fd, &one)) {
            rests(one);
            return;
        }
        resolves(one);
    }
    void resolves(One &one) {
        const int result = rpma_conn_req_proceed(one.request.get());
        if (result == RPMA_E_AGAIN) {
            return;
        }
        if (result == 0) {
            unwatch(one);
            one.state = One::State::Connects;
        }
        if (result != 0 || !one.copy->connects(std::move(one.request)) || !watch_conn(one)) {
            rests(one);
        }
    }

    // Takes one request. Returns whether there was any.
    bool accepts(Here &here) {
        rpma_conn_req *raw = nullptr;
        if (here.endpoint == nullptr || rpma_ep_next_bare_req(here.endpoint.get(), &raw) != 0) {
            return false;
        }
        Request request{raw};
        rpma_conn_private_data data{};
        sockaddr_storage from{};
        Hello hello;
        if (rpma_conn_req_get_peer_addr(raw, &from) != 0 || rpma_conn_req_get_private_data(raw, &data) != 0 ||
            data.ptr == nullptr || data.len < sizeof(hello)) {
            return true;
        }
        std::memcpy(&hello, data.ptr, sizeof(hello));
        One *const one = one_greeted_by(hello, address_of(from));
        if (one == nullptr) {
            BASE_LOG(Info, "a request that does not prove to be for a connection here is refused");
            return true;
        }
        const Configuration cfg = configuration();
        const Copy::Proofs proofs{.own = hello_of(*one, Facts::Asked, hello.key, here.port, one->own),
                                  .peers = one->hello};
        const bool is_made = makes_copy(*one, here, proofs, spares_.announce());
        one->state = One::State::Connects;
        if (!is_made || !one->copy->takes_hello(data) ||
            rpma_conn_req_prepare(raw, here.peer, cfg.get()) != 0 ||
            !one->copy->connects(std::move(request)) || !watch_conn(*one)) {
            rests(*one);
        }
        return true;
    }
    [[nodiscard]] One *one_greeted_by(const Hello &hello, const in6_addr &address) {
        const std::lock_guard lock{mutex_};
        const auto one = std::ranges::find_if(all_, [&](const One &other) {
            return other.state == One::State::Listens && other.answers != 0 && other.hello == hello.proof &&
                   !other.is_forgotten && !other.is_declined &&
                   IN6_ARE_ADDR_EQUAL(&other.connection.ends[1].address, &address) != 0;
        });
        return one != all_.end() ? &*one : nullptr;
    }

    [[nodiscard]] bool watch_conn(One &one) const {
        int of_events = -1;
        int of_messages = -1;
        return rpma_conn_get_event_fd(one.copy->conn(), &of_events) == 0 &&
               rpma_cq_get_fd(one.copy->receive_queue(), &of_messages) == 0 && watch(of_events, &one) &&
               watch(of_messages, &one);
    }

    void serve(One &one) {
        if (one.state == One::State::Resolves) {
            resolves(one);
            return;
        }
        if (one.copy == nullptr) {
            return;
        }
        if (one.copy->conn() != nullptr) {
            rpma_conn_event event = RPMA_CONN_UNDEFINED;
            while (rpma_conn_next_event(one.copy->conn(), &event) == 0) {
                if (event != RPMA_CONN_ESTABLISHED || !established(one)) {
                    one.copy->loses_device();
                }
            }
            while (rpma_cq_wait(one.copy->receive_queue()) == 0) {
            }
        }
        if (one.copy->hears()) {
            one.owes_answer = true;
            if (!one.is_forgotten) {
                withdraws(one);
                answer(one);
            }
            one.copy->push();
        }
    }

    // The program does not want the link, or the peer's does not. A program that has not taken it puts
    // nothing into it when it takes it after this.
    void withdraws(One &one) {
        const std::lock_guard lock{mutex_};
        carry::Link &link = one.copy->link();
        const std::uint32_t side = one.connection.side;
        const bool is_wanted =
            !one.is_declined && link.directions[side].refuses == 0 && link.leaves[1 - side] == 0;
        if (one.state == One::State::Found && !is_wanted && !one.copy->is_lost()) {
            link.leaves[side] = 1;
            one.copy->push_and_tell();
            one.copy->loses();
        }
    }

    bool established(One &one) {
        rpma_conn_private_data data{};
        const bool asks = one.connection.side == 1;
        if (asks &&
            (rpma_conn_get_private_data(one.copy->conn(), &data) != 0 || !one.copy->takes_hello(data))) {
            return false;
        }
        if (!one.copy->begins()) {
            return false;
        }
        enter(one, One::State::Found, {});
        one.until = {};
        answers_.found(one.place);
        return true;
    }

    const rpma_device_kind kind_;
    const carry::Answers &answers_;
    int events_ = -1;
    int bell_ = -1;
    bool waits_ = false;
    bool has_more_ = false;
    std::map<ibv_context *, rpma_peer *> peers_;
    Spares spares_;
    Finding finding_;
    std::list<Here> here_;
    std::mutex mutex_;
    std::list<One> all_;
    std::map<std::uint32_t, One *> looked_for_;
};

// A forked child makes an agent of its own; its parent's objects stay as they are.
class Device final : public carry::MirrorDevice {
public:
    Device(rpma_device_kind kind, const carry::Answers &answers) : kind_{kind}, answers_{answers} {}

    void look_for(std::uint32_t place, const carry::FourTuple &connection,
                  const carry::BeginningOf &beginning) override {
        if (agent_ == nullptr) {
            auto made = std::make_unique<Agent>(kind_, answers_);
            if (!made->begin()) {
                BASE_LOG(Error,
                         "connections stay in TCP: there is no thread, or no descriptor, for the device");
                return;
            }
            agent_ = made.release();
        }
        agent_->look_for(place, connection, beginning);
    }
    [[nodiscard]] carry::Mirror *found(std::uint32_t place) override {
        return agent_ != nullptr ? agent_->found(place) : nullptr;
    }
    [[nodiscard]] carry::Mirror *take(std::uint32_t place) override {
        return agent_ != nullptr ? agent_->take(place) : nullptr;
    }
    void decline(std::uint32_t place) override {
        if (agent_ != nullptr) {
            agent_->decline(place);
        }
    }
    void forget(std::uint32_t place) override {
        if (agent_ != nullptr) {
            agent_->forget(place);
        }
    }
    void retire(carry::Mirror &mirror) override {
        if (agent_ != nullptr) {
            agent_->retire(mirror);
        }
    }
    void drain(base::Clock::time_point until) override {
        if (agent_ != nullptr) {
            agent_->drain(until);
        }
    }
    void forget_all_in_child() override {
        if (agent_ != nullptr) {
            agent_->close_in_child();
        }
        agent_ = nullptr;
    }

private:
    const rpma_device_kind kind_;
    const carry::Answers &answers_;
    Agent *agent_ = nullptr;
};

}  // namespace

}  // namespace carry_device

// Returns the device of that name: soft or kernel. Nothing deletes it.
extern "C" [[gnu::visibility("default")]] carry::MirrorDevice *rpma_carry_device(
    const char *name, const carry::Answers *answers) {
    const bool is_soft = std::strcmp(name, "soft") == 0;
    if (!is_soft && std::strcmp(name, "kernel") != 0) {
        BASE_LOG(Error,
                 "the device for carried connections is \"%s\" (expected soft or kernel): they stay in TCP",
                 name);
        return nullptr;
    }
    return new carry_device::Device{is_soft ? RPMA_DEVICE_SOFT : RPMA_DEVICE_KERNEL, *answers};
}
