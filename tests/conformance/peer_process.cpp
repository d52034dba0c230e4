// SPDX-License-Identifier: BSD-3-Clause
#include "peer_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "suite.hpp"

extern char **environ;

namespace conformance {

namespace {

constexpr Sizes peer_sizes{.send_wr = 64, .receive_wr = 512, .cqe = 1024, .memory_bytes = 16 << 20};

// A Peer has everything that the other process has.
struct Peer {
    End end{peer_sizes};
    Listener *listener = nullptr;
    RemoteRegion region;

    std::string obey(std::istringstream &words, const std::string &command);
};

std::string ok_if(bool right) {
    return right ? "ok" : "failed";
}

std::string connect(Peer &peer, std::uint16_t port) {
    peer.end.resolve(port);
    peer.end.request(RemoteRegion::of(peer.end).text());
    peer.region = RemoteRegion::from(expect_event(peer.end.events, RDMA_CM_EVENT_ESTABLISHED).data);
    return "ok";
}

std::string accept(Peer &peer) {
    const CmEvent request = peer.listener->take_request();
    peer.end.take(request.id);
    peer.end.accept(RemoteRegion::of(peer.end).text());
    expect_event(peer.end.events, RDMA_CM_EVENT_ESTABLISHED);
    return "ok";
}

std::string write_all(Peer &peer, std::size_t count, std::size_t bytes, unsigned seed) {
    for (std::size_t i = 0; i < count; ++i) {
        fill(peer.end, i * bytes, bytes, seed + static_cast<unsigned>(i));
        if (post(peer.end, {aimed(write_request(peer.end, peer.end, i * bytes, bytes, i), peer.region,
                                  i * bytes)}) != 0) {
            return "refused";
        }
    }
    for (std::size_t i = 0; i < count; ++i) {
        expect_completion(peer.end.cq, i);
    }
    return "ok";
}

// Waits as programs do: it asks for an event, looks once more, and sleeps. An event may be of a completion
// that was seen already.
bool wait_for_completion(const End &end) {
    while (true) {
        ibv_wc completion{};
        ibv_cq *cq = nullptr;
        void *context = nullptr;
        if (ibv_req_notify_cq(end.cq, 0) != 0) {
            return false;
        }
        if (ibv_poll_cq(end.cq, 1, &completion) == 1) {
            return completion.status == IBV_WC_SUCCESS;
        }
        if (provider().completion.get_cq_event(end.channel, &cq, &context) != 0) {
            return false;
        }
        provider().completion.ack_cq_events(cq, 1);
    }
}

std::string Peer::obey(std::istringstream &words, const std::string &command) {
    std::size_t first = 0;
    std::size_t bytes = 0;
    unsigned seed = 0;
    words >> first >> bytes >> seed;
    if (command == "listen") {
        listener = new Listener;  // for as long as the process
        return std::to_string(listener->port);
    }
    if (command == "accept") {
        return accept(*this);
    }
    if (command == "connect") {
        return connect(*this, static_cast<std::uint16_t>(first));
    }
    if (command == "write") {
        return write_all(*this, first, bytes, seed);
    }
    if (command == "holds") {
        // ThreadSanitizer does not see that the other process's question comes behind the device's work. It
        // sees that these calls wait for the device's thread.
        ibv_wc completion{};
        (void)ibv_req_notify_cq(end.cq, 0);
        (void)ibv_poll_cq(end.cq, 1, &completion);
        return holds(end, first, bytes, seed) ? "yes" : "no";
    }
    if (command == "poll") {
        ibv_wc completion{};
        int polled = 0;
        for (std::size_t i = 0; i < first && polled >= 0; ++i) {
            polled = ibv_poll_cq(end.cq, 1, &completion);
        }
        return ok_if(polled >= 0);
    }
    if (command == "wait") {
        return ok_if(wait_for_completion(end));
    }
    if (command == "receive") {
        bool right = true;
        for (std::size_t i = 0; i < first; ++i) {
            right = right && post_receive(end, i, {sge(end, 0, 64)}) == 0;
        }
        return ok_if(right);
    }
    if (command == "closed") {
        expect_event(end.events, RDMA_CM_EVENT_DISCONNECTED);
        return "ok";
    }
    return "not understood";
}

}  // namespace

int run_as_peer() {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when it is stopped, and watches nothing
    watch();
    auto peer = std::make_unique<Peer>();
    std::array<char, 256> line;
    while (std::fgets(line.data(), line.size(), stdin) != nullptr) {
        std::istringstream words{line.data()};
        std::string command;
        words >> command;
        if (command == "exit") {
            std::exit(0);
        }
        if (command == "leave") {
            if (provider().cm.disconnect(peer->end.id) != 0) {
                return 1;
            }
            break;
        }
        std::printf("%s\n", peer->obey(words, command).c_str());
        std::fflush(stdout);
    }
    peer->end.destroy();
    delete peer->listener;
    return 0;
}

RemoteRegion RemoteRegion::of(const End &end) {
    return {.address = end.address(), .length = end.memory.size(), .rkey = end.mr->rkey};
}

RemoteRegion RemoteRegion::from(const std::string &private_data) {
    RemoteRegion region;
    std::istringstream{private_data} >> region.address >> region.length >> region.rkey;
    assert_int_not_equal(region.rkey, 0);
    return region;
}

// Ends the text with a blank behind the last number, because there may be zeros behind the data.
std::string RemoteRegion::text() const {
    return std::to_string(address) + " " + std::to_string(length) + " " + std::to_string(rkey) + " ";
}

Request aimed(Request request, const RemoteRegion &region, std::size_t offset) {
    request.remote_address = region.address + offset;
    request.rkey = region.rkey;
    return request;
}

PeerProcess::PeerProcess() {
    int to[2];
    int from[2];
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    const base::Fd child_input{to[0]};
    const base::Fd child_output{from[1]};
    commands_.reset(to[1]);
    answers_ = fdopen(from[0], "r");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, child_input.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, child_output.get(), STDOUT_FILENO);
    std::string words[] = {subject.program, "peer", subject.provider_name, subject.address};
    char *arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    const int error = posix_spawn(&pid_, subject.program.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    assert_int_equal(error, 0);
}

PeerProcess::~PeerProcess() {
    kill();
    if (answers_ != nullptr) {
        std::fclose(answers_);
    }
}

void PeerProcess::tell(const std::string &command) {
    const std::string line = command + "\n";
    assert_int_equal(write(commands_.get(), line.data(), line.size()), line.size());
}

std::string PeerProcess::ask(const std::string &command) {
    tell(command);
    return answer();
}

std::string PeerProcess::answer() {
    pollfd ready{.fd = fileno(answers_), .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&ready, 1, patience_ms), 1);
    std::array<char, 256> line{};
    assert_non_null(std::fgets(line.data(), line.size(), answers_));
    line[std::strcspn(line.data(), "\n")] = '\0';
    return line.data();
}

void PeerProcess::expect_ok(const std::string &command) {
    assert_string_equal(ask(command).c_str(), "ok");
}

void PeerProcess::stop() {
    assert_int_equal(::kill(pid_, SIGSTOP), 0);
    int status = 0;
    assert_int_equal(waitpid(pid_, &status, WUNTRACED), pid_);
    assert_true(WIFSTOPPED(status));
}

void PeerProcess::go_on() {
    assert_int_equal(::kill(pid_, SIGCONT), 0);
}

void PeerProcess::kill() {
    if (pid_ > 0) {
        (void)::kill(pid_, SIGKILL);
        (void)waitpid(std::exchange(pid_, -1), nullptr, 0);
    }
}

void PeerProcess::expect_good_end() {
    int status = 0;
    const pid_t pid = std::exchange(pid_, -1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

void RemoteEnds::connect() {
    const auto port = static_cast<std::uint16_t>(std::stoi(peer.ask("listen")));
    client.resolve(port);
    client.request();
    peer.tell("accept");
    // The peer answers when the client's first message is there. The device sends that message, or, on
    // InfiniBand, the program that fetches this event.
    region = RemoteRegion::from(expect_event(client.events, RDMA_CM_EVENT_ESTABLISHED).data);
    assert_string_equal(peer.answer().c_str(), "ok");
}

}  // namespace conformance
