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

// The other end of one connection: it is looked for, or has a mirror.
struct Peer {
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

    Peer(std::uint32_t where, const carry::FourTuple &which, const carry::BeginningOf &bytes)
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
struct LocalEnd {
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
        Peer &peer = *known->second;
        const Lengths lacks = peer.lacks;
        const bool has_come = lacks != Lengths{} && peer.beginning.has(lacks);
        const bool is_late = peer.state < Peer::State::Resolves && peer.asked_again_at != 0 &&
                             base::Clock::now().time_since_epoch().count() > peer.asked_again_at;
        if (has_come) {
            peer.lacks = Lengths{};
        }
        if (is_late) {
            peer.asked_again_at = 0;
            peer.is_asked_again = true;
        }
        if (has_come || is_late) {
            wake();
        }
    }
    Copy *found(std::uint32_t place) {
        const std::lock_guard lock{mutex_};
        const auto peer = looked_for_.find(place);
        return peer != looked_for_.end() && peer->second->state == Peer::State::Found
                   ? peer->second->copy.get()
                   : nullptr;
    }
    Copy *take(std::uint32_t place) {
        const std::lock_guard lock{mutex_};
        const auto peer = looked_for_.find(place);
        if (peer == looked_for_.end() || peer->second->state != Peer::State::Found) {
            return nullptr;
        }
        Copy *const copy = peer->second->copy.get();
        peer->second->state = Peer::State::Taken;
        looked_for_.erase(peer);
        return copy;
    }
    void decline(std::uint32_t place) {
        const std::lock_guard lock{mutex_};
        if (const auto peer = looked_for_.find(place); peer != looked_for_.end()) {
            peer->second->is_declined = true;
            wake();
        }
    }
    void forget(std::uint32_t place) {
        const std::lock_guard lock{mutex_};
        if (const auto peer = looked_for_.find(place); peer != looked_for_.end()) {
            peer->second->is_forgotten = true;
            looked_for_.erase(peer);
            wake();
        }
    }
    void retire(const carry::Mirror &mirror) {
        const std::lock_guard lock{mutex_};
        for (Peer &peer : all_) {
            if (peer.copy.get() == &mirror) {
                peer.is_forgotten = true;
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
                for (const Peer &peer : all_) {
                    const bool may_push = peer.state >= Peer::State::Found && peer.copy != nullptr;
                    is_quiet = is_quiet && (!may_push || peer.copy->is_quiet());
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
        if (!spares_.begin_to_listen(events_)) {
            BASE_LOG(Info, "no TCP port is left to replace a device that has lost the peer");
        }
        if (!finding_.take_port(events_)) {
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
                    serve(*static_cast<Peer *>(events[i].data.ptr));
                } else {
                    others = true;
                }
            }
            if (others) {
                has_more_ = finding_.serve([this](const Finding::Heard &heard) { return hear(heard); });
                for (LocalEnd &here : here_) {
                    while (accept_request(here)) {
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
        std::vector<Peer *> all;
        {
            const std::lock_guard lock{mutex_};
            for (Peer &peer : all_) {
                all.push_back(&peer);
            }
        }
        waits_ = false;
        for (Peer *const peer : all) {
            advance(*peer);
            if (peer->state == Peer::State::Over) {
                unwatch(*peer);
                std::list<Peer> over;  // ends without the lock
                const std::lock_guard lock{mutex_};
                if (const auto known = looked_for_.find(peer->place);
                    known != looked_for_.end() && known->second == peer) {
                    looked_for_.erase(known);
                }
                const auto place = std::ranges::find(all_, peer, [](const Peer &other) { return &other; });
                over.splice(over.begin(), all_, place);
            }
        }
    }

    void advance(Peer &peer) {
        using State = Peer::State;
        switch (peer.state.load()) {
            case State::Begins:
            case State::Asks:
            case State::Listens:
            case State::Rests:
                if (peer.is_forgotten) {
                    peer.state = State::Over;
                } else if (peer.is_declined) {
                    break;
                } else if (peer.state == State::Begins || peer.is_asked_again.exchange(false)) {
                    begin(peer);
                } else if (peer.heard && peer.lacks.load() == Lengths{}) {
                    go_on_with(peer);
                }
                break;
            case State::Resolves:
            case State::Connects:
                if (peer.is_forgotten) {
                    peer.state = State::Over;
                } else if (peer.is_declined || peer.copy->has_lost_device()) {
                    rest(peer);
                }
                break;
            case State::Found:
            case State::Taken:
                if (peer.is_forgotten) {
                    enter(peer, State::Retires, waits_for_quiet);
                    waits_ = true;
                } else {
                    withdraw(peer);
                    serve_lost_device(peer);
                    serve_spare(peer);
                    serve_lost(peer);
                    waits_ = peer.copy->catch_up() || waits_;
                    peer.owes_answer = peer.copy->settle_late() || peer.owes_answer;
                    answer(peer);
                    waits_ = peer.copy->awaits_turn() || peer.owes_answer || waits_;
                }
                break;
            case State::Retires:
                serve_lost_device(peer);
                serve_spare(peer);
                if (peer.copy->is_cut_off()) {  // as long as the agents may meet
                    enter(peer, State::Retires, waits_for_quiet);
                }
                if (peer.copy->is_quiet() || base::Clock::now() > peer.until) {
                    if (peer.copy->conn() != nullptr) {
                        (void)rpma_conn_disconnect(peer.copy->conn());
                    }
                    enter(peer, State::Disconnects, waits_for_quiet);
                }
                waits_ = true;
                break;
            case State::Disconnects:
                if (peer.copy->has_lost_device() || base::Clock::now() > peer.until) {
                    peer.state = State::Over;
                }
                waits_ = true;
                break;
            case State::Over:
                break;
        }
    }

    void enter(Peer &peer, Peer::State state, milliseconds time) {
        const std::lock_guard lock{mutex_};
        peer.state = state;
        peer.until = base::Clock::now() + time;
    }

    void answer(Peer &peer) const {
        if (peer.owes_answer && peer.state == Peer::State::Taken) {
            peer.owes_answer = !answers_.told(peer.place, *peer.copy);
        }
    }

    // The device has lost the peer. Where a thread of the program has the link, its agent and this one meet
    // by TCP.
    void serve_lost_device(Peer &peer) {
        if (!peer.copy->has_lost_device() || peer.copy->is_lost() || peer.copy->has_spare()) {
            return;
        }
        if (peer.copy->conn() != nullptr) {
            leave_device(peer);
        }
        {
            // A program that takes the link after this puts nothing into it.
            const std::lock_guard lock{mutex_};
            const bool is_used = peer.state == Peer::State::Taken || peer.state == Peer::State::Retires;
            if (!is_used || peer.copy->link().closed[1 - peer.connection.side] != 0) {
                peer.copy->lose();
                return;
            }
        }
        switch (peer.attempt.advance(events_, peer.connection, peer.name, peer.copy->peers_spare())) {
            case Attempt::Result::Goes:
                go_on(peer, peer.attempt.take());
                break;
            case Attempt::Result::Fails:
                peer.copy->lose();
                break;
            case Attempt::Result::Later:
                break;
        }
        waits_ = true;
    }

    void leave_device(Peer &peer) {
        unwatch(peer);
        (void)rpma_conn_disconnect(peer.copy->conn());
        peer.copy->leave_device();
    }

    // A forked child may have the descriptors for longer.
    void unwatch(const Peer &peer) const {
        int fd = -1;
        const auto forget = [&](int result) {
            if (result == 0) {
                (void)epoll_ctl(events_, EPOLL_CTL_DEL, fd, nullptr);
            }
        };
        if (peer.request != nullptr) {
            forget(rpma_conn_req_get_fd(peer.request.get(), &fd));
        }
        if (peer.copy != nullptr && peer.copy->conn() != nullptr) {
            forget(rpma_conn_get_event_fd(peer.copy->conn(), &fd));
        }
        if (peer.copy != nullptr && peer.copy->receive_queue() != nullptr) {
            forget(rpma_cq_get_fd(peer.copy->receive_queue(), &fd));
        }
    }

    void serve_spare(Peer &peer) {
        if (peer.copy->has_spare() && peer.copy->hear()) {
            peer.owes_answer = true;
            peer.copy->push();
        }
    }

    void go_on(Peer &peer, Watched fd) {
        BASE_LOG(Info, "the RDMA device has lost a peer; its connection goes back to TCP");
        peer.copy->go_on(std::move(fd));
        peer.owes_answer = true;
    }

    // The agent of a peer has come. Who does not know the key is nobody's peer.
    void greeted(const Greeting &greeting, Watched fd) {
        Peer *const peer = peer_of(greeting);
        const bool comes_itself =
            peer != nullptr && peer->connection.side == 1 && peer->attempt.is_under_way();
        const Reply reply = peer == nullptr || peer->copy->has_spare() ? Reply::Refused
                            : comes_itself                             ? Reply::Comes
                                                                       : Reply::Taken;
        if (send(fd.get(), &reply, sizeof(reply), MSG_NOSIGNAL) != sizeof(reply) || reply != Reply::Taken) {
            return;
        }
        if (peer->copy->conn() != nullptr) {
            leave_device(*peer);
        }
        peer->attempt.end();
        go_on(*peer, std::move(fd));
    }

    // A link that the program has not taken has no bytes, and gets none from here on.
    [[nodiscard]] Peer *peer_of(const Greeting &greeting) {
        const std::lock_guard lock{mutex_};
        const auto peer = std::ranges::find_if(all_, [&](const Peer &other) {
            return greeting.mark == carry::Link::mark && greeting.name == other.name &&
                   other.copy != nullptr && greeting.side == 1 - other.connection.side &&
                   greeting.key == other.copy->own_spare().key;
        });
        if (peer == all_.end() || peer->copy->is_lost()) {
            return nullptr;
        }
        if (peer->state != Peer::State::Taken && peer->state != Peer::State::Retires) {
            peer->copy->lose();
            return nullptr;
        }
        return &*peer;
    }

    void serve_lost(Peer &peer) {
        if (!peer.copy->is_lost() || peer.lost_is_settled || peer.state != Peer::State::Taken) {
            return;
        }
        if (peer.until == base::Clock::time_point{}) {
            peer.until = base::Clock::now() + waits_for_end;
        }
        peer.lost_is_settled = answers_.lost(peer.place, *peer.copy, base::Clock::now() > peer.until);
        waits_ = waits_ || !peer.lost_is_settled;
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

    bool watch(int fd, Peer *peer) const {
        epoll_event event{.events = EPOLLIN, .data = {.ptr = peer}};
        return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0 &&
               epoll_ctl(events_, EPOLL_CTL_ADD, fd, &event) == 0;
    }

    // ---- how an end is found ----

    LocalEnd *local_end_at(const carry::FourTuple::End &end) {
        const auto known = std::ranges::find_if(here_, [&](const LocalEnd &here) {
            return IN6_ARE_ADDR_EQUAL(&here.end.address, &end.address) != 0 && here.end.scope == end.scope;
        });
        if (known != here_.end()) {
            return &*known;
        }
        rpma_peer *const peer = peer_at(text_of(end.address));
        return peer != nullptr ? &here_.emplace_back(LocalEnd{.end = end, .peer = peer, .endpoint = {}})
                               : nullptr;
    }
    [[nodiscard]] bool begin_to_listen(LocalEnd &here) const {
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
    static void wait_to_ask(Peer &peer) {
        peer.asked_again_at = (base::Clock::now() + peer.asks_next).time_since_epoch().count();
        peer.asks_next = std::min<std::chrono::nanoseconds>(2 * peer.asks_next, asks_after_at_most);
    }

    // Side 1 asks; side 0 listens, and calls, in case that side 1 has asked before. An end that has to do it
    // again takes the port again: the process that has it may be stopped.
    void begin(Peer &peer) {
        const carry::FourTuple &connection = peer.connection;
        const bool is_first = peer.state == Peer::State::Begins;
        LocalEnd *const here = local_end_at(connection.ends[connection.side]);
        peer.heard.reset();
        peer.lacks = Lengths{};
        peer.answers = 0;
        if (here == nullptr || (connection.side == 0 && !begin_to_listen(*here))) {
            rest(peer);
            return;
        }
        if (!is_first) {
            (void)finding_.take_port(events_);
        }
        wait_to_ask(peer);
        peer.state = connection.side == 0 ? Peer::State::Listens : Peer::State::Asks;
        if (connection.side == 1) {
            ask(peer);
        } else {
            finding_.send(connection, Finding::well_known, {.name = peer.name, .kind = Word::Calls});
        }
    }
    void ask(Peer &peer) {
        peer.heard.reset();
        peer.lacks = Lengths{};
        peer.asks = random_number();
        peer.own = peer.beginning.lengths();
        finding_.send(peer.connection, Finding::well_known,
                      {.name = peer.name, .asks = peer.asks, .lengths = peer.own, .kind = Word::Asks});
    }

    // The device does not connect, or there is none. The other end may ask meanwhile.
    void rest(Peer &peer) {
        unwatch(peer);
        std::unique_ptr<Copy> copy;  // ends without the lock
        Request request;
        {
            const std::lock_guard lock{mutex_};
            peer.state = Peer::State::Rests;
            copy = std::move(peer.copy);
            request = std::move(peer.request);
        }
        peer.heard.reset();
        peer.lacks = Lengths{};
        wait_to_ask(peer);
    }

    // Returns whether the connection is this process's.
    bool hear(const Finding::Heard &heard) {
        const Word &word = heard.word;
        Peer *const peer = peer_named(word);
        if (peer == nullptr) {
            return false;
        }
        if (!heard.is_from(peer->connection.ends[1 - peer->connection.side].address)) {
            return true;
        }
        if (word.kind == Word::Calls && peer->state == Peer::State::Asks) {
            go_on_when_seen(*peer, word);
        } else if (word.kind == Word::Asks && peer->state == Peer::State::Listens) {
            peer->asker = heard.port;
            go_on_when_seen(*peer, word);
        } else if (word.kind == Word::Answers && peer->state == Peer::State::Asks && is_right(*peer, word)) {
            peer->answers = word.answers;
            go_on_when_seen(*peer, word);
        }
        return true;
    }
    // A process may have both ends.
    [[nodiscard]] Peer *peer_named(const Word &word) {
        const std::uint32_t side = word.kind == Word::Asks ? 0 : 1;
        const std::lock_guard lock{mutex_};
        const auto peer = std::ranges::find_if(all_, [&](const Peer &other) {
            return other.name == word.name && other.connection.side == side && !other.is_forgotten &&
                   !other.is_declined && other.state < Peer::State::Retires;
        });
        return peer != all_.end() ? &*peer : nullptr;
    }
    [[nodiscard]] static bool is_right(const Peer &peer, const Word &word) {
        const Facts facts{.name = peer.name,
                          .asks = peer.asks,
                          .answers = word.answers,
                          .port = word.port,
                          .speaker = Facts::Answers,
                          .proven = peer.own};
        return peer.own != Lengths{} && word.asks == peer.asks &&
               word.proof == proof_of(peer.beginning, facts);
    }
    // Returns the proof in a hello: of what the asked end has named in its answer. The asked end proves it to
    // the key in the asker's hello, because the asker may have asked more than once.
    [[nodiscard]] static std::uint64_t hello_of(const Peer &peer, Facts::Speaker speaker, std::uint64_t key,
                                                std::uint16_t port, const Lengths &proven) {
        return short_proof_of(peer.beginning, {.name = peer.name,
                                               .asks = key,
                                               .answers = peer.answers,
                                               .port = port,
                                               .speaker = speaker,
                                               .proven = proven});
    }
    // Goes on when this end has seen the bytes that the peer has.
    void go_on_when_seen(Peer &peer, const Word &word) {
        peer.heard = word;
        peer.lacks = word.lengths;
        if (peer.beginning.has(word.lengths)) {
            peer.lacks = Lengths{};
            go_on_with(peer);
        }
    }
    void go_on_with(Peer &peer) {
        if (peer.connection.side == 0) {
            answer_ask(peer);
        } else if (peer.heard->kind == Word::Calls) {
            ask(peer);
        } else {
            connect(peer);
        }
    }
    // All its answers name the same bytes, and the same random number: the asker takes any of them.
    // An asker that could have a part proven would find out one byte after another.
    void answer_ask(Peer &peer) {
        const LocalEnd &here = *local_end_at(peer.connection.ends[0]);
        const Lengths all = peer.beginning.lengths();
        if (all == Lengths{}) {
            peer.heard.reset();
            return;  // everybody knows nothing
        }
        if (all != peer.heard->lengths) {
            finding_.send(peer.connection, peer.asker,
                          {.name = peer.name, .lengths = all, .kind = Word::Calls});
            peer.heard.reset();
            return;
        }
        if (peer.answers == 0) {
            peer.answers = random_number();
            peer.own = peer.beginning.lengths();
            peer.hello = hello_of(peer, Facts::Asker, 0, here.port, peer.own);
        }
        const Facts facts{.name = peer.name,
                          .asks = peer.heard->asks,
                          .answers = peer.answers,
                          .port = here.port,
                          .speaker = Facts::Answers,
                          .proven = peer.heard->lengths};
        finding_.send(peer.connection, peer.asker,
                      {.name = peer.name,
                       .asks = facts.asks,
                       .answers = peer.answers,
                       .lengths = peer.own,
                       .port = here.port,
                       .kind = Word::Answers,
                       .proof = proof_of(peer.beginning, facts)});
        peer.heard.reset();
    }
    // Returns whether the device takes the copy.
    [[nodiscard]] bool makes_copy(Peer &peer, const LocalEnd &here, const Copy::Proofs &proofs,
                                  const SparePort &spare) {
        auto made = std::make_unique<Copy>(peer.place, peer.connection, proofs, bell_);
        made->announces(spare);
        const bool enters = made->enter(here.peer);
        const std::lock_guard lock{mutex_};
        peer.copy = std::move(made);
        return enters;
    }
    void connect(Peer &peer) {
        const Word word = *std::exchange(peer.heard, std::nullopt);
        const LocalEnd &here = *local_end_at(peer.connection.ends[1]);
        const Configuration cfg = configuration();
        const SparePort spare = spares_.announce();
        const Copy::Proofs proofs{.own = hello_of(peer, Facts::Asker, 0, word.port, word.lengths),
                                  .peers = hello_of(peer, Facts::Asked, spare.key, word.port, word.lengths)};
        rpma_conn_req *request = nullptr;
        int fd = -1;
        if (!makes_copy(peer, here, proofs, spare) ||
            rpma_conn_req_begin(here.peer, text_of(peer.connection.ends[0].address).c_str(),
                                std::to_string(word.port).c_str(), cfg.get(), &request) != 0) {
            rest(peer);
            return;
        }
        peer.request.reset(request);
        peer.state = Peer::State::Resolves;
        if (rpma_conn_req_get_fd(request, &fd) != 0 || !watch(fd, &peer)) {
            rest(peer);
            return;
        }
        resolve(peer);
    }
    void resolve(Peer &peer) {
        const int result = rpma_conn_req_proceed(peer.request.get());
        if (result == RPMA_E_AGAIN) {
            return;
        }
        if (result == 0) {
            unwatch(peer);
            peer.state = Peer::State::Connects;
        }
        if (result != 0 || !peer.copy->connect(std::move(peer.request)) || !watch_conn(peer)) {
            rest(peer);
        }
    }

    // Takes one request. Returns whether there was any.
    bool accept_request(LocalEnd &here) {
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
        Peer *const peer = peer_greeted_by(hello, address_of(from));
        if (peer == nullptr) {
            BASE_LOG(Info, "a request that does not prove to be for a connection here is refused");
            return true;
        }
        const Configuration cfg = configuration();
        const Copy::Proofs proofs{.own = hello_of(*peer, Facts::Asked, hello.key, here.port, peer->own),
                                  .peers = peer->hello};
        const bool is_made = makes_copy(*peer, here, proofs, spares_.announce());
        peer->state = Peer::State::Connects;
        if (!is_made || !peer->copy->take_hello(data) ||
            rpma_conn_req_prepare(raw, here.peer, cfg.get()) != 0 ||
            !peer->copy->connect(std::move(request)) || !watch_conn(*peer)) {
            rest(*peer);
        }
        return true;
    }
    [[nodiscard]] Peer *peer_greeted_by(const Hello &hello, const in6_addr &address) {
        const std::lock_guard lock{mutex_};
        const auto peer = std::ranges::find_if(all_, [&](const Peer &other) {
            return other.state == Peer::State::Listens && other.answers != 0 && other.hello == hello.proof &&
                   !other.is_forgotten && !other.is_declined &&
                   IN6_ARE_ADDR_EQUAL(&other.connection.ends[1].address, &address) != 0;
        });
        return peer != all_.end() ? &*peer : nullptr;
    }

    [[nodiscard]] bool watch_conn(Peer &peer) const {
        int of_events = -1;
        int of_messages = -1;
        return rpma_conn_get_event_fd(peer.copy->conn(), &of_events) == 0 &&
               rpma_cq_get_fd(peer.copy->receive_queue(), &of_messages) == 0 && watch(of_events, &peer) &&
               watch(of_messages, &peer);
    }

    void serve(Peer &peer) {
        if (peer.state == Peer::State::Resolves) {
            resolve(peer);
            return;
        }
        if (peer.copy == nullptr) {
            return;
        }
        if (peer.copy->conn() != nullptr) {
            rpma_conn_event event = RPMA_CONN_UNDEFINED;
            while (rpma_conn_next_event(peer.copy->conn(), &event) == 0) {
                if (event != RPMA_CONN_ESTABLISHED || !take_established(peer)) {
                    peer.copy->lose_device();
                }
            }
            while (rpma_cq_wait(peer.copy->receive_queue()) == 0) {
            }
        }
        if (peer.copy->hear()) {
            peer.owes_answer = true;
            if (!peer.is_forgotten) {
                withdraw(peer);
                answer(peer);
            }
            peer.copy->push();
        }
    }

    // The program does not want the link, or the peer's does not. A program that has not taken it puts
    // nothing into it when it takes it after this.
    void withdraw(Peer &peer) {
        const std::lock_guard lock{mutex_};
        carry::Link &link = peer.copy->link();
        const std::uint32_t side = peer.connection.side;
        const bool is_wanted =
            !peer.is_declined && link.directions[side].refuses == 0 && link.leaves[1 - side] == 0;
        if (peer.state == Peer::State::Found && !is_wanted && !peer.copy->is_lost()) {
            link.leaves[side] = 1;
            peer.copy->push_and_tell();
            peer.copy->lose();
        }
    }

    bool take_established(Peer &peer) {
        rpma_conn_private_data data{};
        const bool asks = peer.connection.side == 1;
        if (asks &&
            (rpma_conn_get_private_data(peer.copy->conn(), &data) != 0 || !peer.copy->take_hello(data))) {
            return false;
        }
        if (!peer.copy->begin()) {
            return false;
        }
        enter(peer, Peer::State::Found, {});
        peer.until = {};
        answers_.found(peer.place);
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
    std::list<LocalEnd> here_;
    std::mutex mutex_;
    std::list<Peer> all_;
    std::map<std::uint32_t, Peer *> looked_for_;
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
    [[nodiscard]] bool share_no_more() override { return Copy::share_no_more(); }

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
