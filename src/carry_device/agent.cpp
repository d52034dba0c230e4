// SPDX-License-Identifier: BSD-3-Clause
// carry_device/agent: the thread that finds the other ends of connections, and that acts for the process's
// mirrors between two calls of its program. The program's threads ask it by a list, and wake it by an
// eventfd.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
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
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "carry_device/copy.hpp"
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

// One connection whose other end is looked for, or that has a mirror.
struct One {
    enum class State { Begins, Listens, Connects, Found, Taken, Retires, Disconnects, Over };

    One(std::uint32_t where, const carry::Connection &which, int bell)
        : place{where}, connection{which}, copy{std::make_unique<Copy>(where, which, bell)} {}

    const std::uint32_t place;
    const carry::Connection connection;
    std::unique_ptr<Copy> copy;
    Endpoint endpoint;
    std::atomic<State> state = State::Begins;  // the agent's, but for Taken
    std::atomic<bool> is_forgotten = false;
    bool owes_answer = false;  // to a message
    bool lost_is_settled = false;
    base::Clock::time_point until;  // of the state
    Attempt attempt;                // when the device has lost the peer
};

std::string text_of(const in6_addr &address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
        (void)inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof(text));
    } else {
        (void)inet_ntop(AF_INET6, &address, text, sizeof(text));
    }
    return text;
}

bool is_at(const sockaddr_storage &name, const in6_addr &address) {
    if (name.ss_family == AF_INET6) {
        return IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6 &>(name).sin6_addr, &address);
    }
    const auto &four = reinterpret_cast<const sockaddr_in &>(name).sin_addr;
    return name.ss_family == AF_INET && IN6_IS_ADDR_V4MAPPED(&address) &&
           std::memcmp(&four, &address.s6_addr[12], sizeof(four)) == 0;
}

// Both ends know it. Linux gives the ports from 32768 on to others.
std::string port_of(const Copy &copy) {
    constexpr std::uint64_t first = 20480;
    constexpr std::uint64_t end = 32768;
    return std::to_string(first + copy.name() % (end - first));
}

class Agent {
public:
    Agent(rpma_device_kind kind, const carry::Answers &answers) : kind_{kind}, answers_{answers} {}

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

    void look_for(std::uint32_t place, const carry::Connection &connection) {
        const std::lock_guard lock{mutex_};
        if (looked_for_.contains(place)) {
            return;
        }
        looked_for_[place] = &all_.emplace_back(place, connection, bell_);
        wake();
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
    void close_in_child() { spares_.close_in_child(); }
    void drain(base::Clock::time_point until) {
        while (base::Clock::now() < until) {
            {
                const std::lock_guard lock{mutex_};
                bool is_quiet = true;
                for (const One &one : all_) {
                    is_quiet = is_quiet && (one.state < One::State::Found || one.copy->is_quiet());
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
        for (;;) {
            epoll_event events[64];
            const int count = epoll_wait(events_, events, 64, waits_ ? 1 : -1);
            std::uint64_t rung = 0;
            (void)!read(bell_, &rung, sizeof(rung));
            for (int i = 0; i < count; ++i) {
                if (events[i].data.ptr != nullptr) {
                    serve(*static_cast<One *>(events[i].data.ptr));
                }
            }
            spares_.serve([this](const Greeting &greeting, Watched fd) { greeted(greeting, std::move(fd)); });
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
                unwatch_conn(*one);
                end_listening(*one);
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
                if (one.is_forgotten || !begins(one)) {
                    one.state = State::Over;
                }
                break;
            case State::Listens:
            case State::Connects:
                if (one.is_forgotten || one.copy->has_lost_device()) {
                    one.state = State::Over;
                }
                break;
            case State::Found:
            case State::Taken:
                if (one.is_forgotten) {
                    enter(one, State::Retires, waits_for_quiet);
                    waits_ = true;
                } else {
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
                if (one.copy->is_quiet() || base::Clock::now() > one.until) {
                    (void)rpma_conn_disconnect(one.copy->conn());
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
        const bool is_used = one.state == One::State::Taken || one.state == One::State::Retires;
        if (one.copy->conn() != nullptr) {
            leave_device(one);
        }
        if (!is_used || one.copy->link().closed[1 - one.connection.side] != 0) {
            one.copy->loses();
            return;
        }
        switch (one.attempt.advance(events_, one.connection, one.copy->name(), one.copy->peers_spare())) {
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
        unwatch_conn(one);
        (void)rpma_conn_disconnect(one.copy->conn());
        one.copy->leaves_device();
    }

    // A forked child may have the descriptors for longer.
    void unwatch_conn(const One &one) const {
        int fd = -1;
        if (one.copy->conn() != nullptr && rpma_conn_get_event_fd(one.copy->conn(), &fd) == 0) {
            (void)epoll_ctl(events_, EPOLL_CTL_DEL, fd, nullptr);
        }
        if (one.copy->receive_queue() != nullptr && rpma_cq_get_fd(one.copy->receive_queue(), &fd) == 0) {
            (void)epoll_ctl(events_, EPOLL_CTL_DEL, fd, nullptr);
        }
    }
    void end_listening(One &one) const {
        if (int fd = -1; one.endpoint != nullptr && rpma_ep_get_fd(one.endpoint.get(), &fd) == 0) {
            (void)epoll_ctl(events_, EPOLL_CTL_DEL, fd, nullptr);
        }
        one.endpoint.reset();
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
            return greeting.mark == carry::Link::mark && greeting.name == other.copy->name() &&
                   greeting.side == 1 - other.connection.side && greeting.key == other.copy->own_spare().key;
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

    bool watch(int fd, One &one) const {
        epoll_event event{.events = EPOLLIN, .data = {.ptr = &one}};
        return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0 &&
               epoll_ctl(events_, EPOLL_CTL_ADD, fd, &event) == 0;
    }

    bool begins(One &one) {
        const carry::Connection &connection = one.connection;
        rpma_peer *const peer = peer_at(text_of(connection.ends[connection.side].address));
        one.copy->announces(spares_.announce());
        if (peer == nullptr || !one.copy->enters(peer)) {
            return false;
        }
        const std::string port = port_of(*one.copy);
        if (connection.side == 0) {
            rpma_ep *endpoint = nullptr;
            int fd = -1;
            if (rpma_ep_listen(peer, text_of(connection.ends[0].address).c_str(), port.c_str(), &endpoint) !=
                0) {
                return false;
            }
            one.endpoint.reset(endpoint);
            one.state = One::State::Listens;
            return rpma_ep_get_fd(endpoint, &fd) == 0 && watch(fd, one);
        }
        const Configuration cfg = configuration();
        rpma_conn_req *request = nullptr;
        one.state = One::State::Connects;
        return cfg != nullptr &&
               rpma_conn_req_new(peer, text_of(connection.ends[0].address).c_str(), port.c_str(), cfg.get(),
                                 &request) == 0 &&
               one.copy->connects(Request{request}) && watch_conn(one);
    }

    [[nodiscard]] bool watch_conn(One &one) const {
        int of_events = -1;
        int of_messages = -1;
        return rpma_conn_get_event_fd(one.copy->conn(), &of_events) == 0 &&
               rpma_cq_get_fd(one.copy->receive_queue(), &of_messages) == 0 && watch(of_events, one) &&
               watch(of_messages, one);
    }

    void serve(One &one) {
        if (one.state == One::State::Listens && one.copy->conn() == nullptr) {
            if (!accepts(one)) {
                one.copy->loses_device();
            }
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
                answer(one);
            }
            one.copy->push();
        }
    }

    bool accepts(One &one) {
        const Configuration cfg = configuration();
        rpma_conn_req *raw = nullptr;
        const int result = rpma_ep_next_conn_req(one.endpoint.get(), cfg.get(), &raw);
        if (result == RPMA_E_NO_EVENT) {
            return true;
        }
        Request request{raw};
        rpma_conn_private_data data{};
        sockaddr_storage from{};
        const bool is_peers = result == 0 && rpma_conn_req_get_peer_addr(request.get(), &from) == 0 &&
                              is_at(from, one.connection.ends[1].address);
        if (!is_peers || rpma_conn_req_get_private_data(request.get(), &data) != 0 ||
            !one.copy->takes_hello(data)) {
            BASE_LOG(Info, "a request for another connection is refused");
            return true;
        }
        return one.copy->connects(std::move(request)) && watch_conn(one);
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
        end_listening(one);
        enter(one, One::State::Found, {});
        one.until = {};
        return true;
    }

    const rpma_device_kind kind_;
    const carry::Answers &answers_;
    int events_ = -1;
    int bell_ = -1;
    bool waits_ = false;
    std::map<ibv_context *, rpma_peer *> peers_;
    Spares spares_;
    std::mutex mutex_;
    std::list<One> all_;
    std::map<std::uint32_t, One *> looked_for_;
};

// A forked child makes an agent of its own; its parent's objects stay as they are.
class Device final : public carry::MirrorDevice {
public:
    Device(rpma_device_kind kind, const carry::Answers &answers) : kind_{kind}, answers_{answers} {}

    void look_for(std::uint32_t place, const carry::Connection &connection) override {
        if (agent_ == nullptr) {
            auto made = std::make_unique<Agent>(kind_, answers_);
            if (!made->begin()) {
                BASE_LOG(Error,
                         "connections stay in TCP: there is no thread, or no descriptor, for the device");
                return;
            }
            agent_ = made.release();
        }
        agent_->look_for(place, connection);
    }
    [[nodiscard]] carry::Mirror *found(std::uint32_t place) override {
        return agent_ != nullptr ? agent_->found(place) : nullptr;
    }
    [[nodiscard]] carry::Mirror *take(std::uint32_t place) override {
        return agent_ != nullptr ? agent_->take(place) : nullptr;
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
        BASE_LOG(Error, "RPMA_CARRY_DEVICE is \"%s\" (expected soft or kernel): connections stay in TCP",
                 name);
        return nullptr;
    }
    return new carry_device::Device{is_soft ? RPMA_DEVICE_SOFT : RPMA_DEVICE_KERNEL, *answers};
}
