// SPDX-License-Identifier: BSD-3-Clause
// model_rstream SEED STEPS [KILLS [ADDRESS]]: random calls on pairs of libfabric's endpoints of the type
// FI_EP_SOCK_STREAM, of this process, against an oracle of bytes and events, from a seed; then so many peers
// (default: 1) that are killed. All listen at ADDRESS (default: 127.0.0.1). FI_PROVIDER_PATH says where the
// provider is.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "rstream_pair.hpp"

extern char **environ;

namespace {

using model::Dice;
using model::StreamEnd;
using model::StreamFabric;
using model::StreamPair;

constexpr std::size_t most_pairs = 6;

std::string step(Dice &dice, StreamPair &pair) {
    if (!pair.is_open()) {
        return pair.renew();
    }
    const int end = static_cast<int>(dice.below(2));
    const std::size_t choice = dice.below(10'000);
    if (choice < 4'300) {
        return pair.send(end);
    }
    if (choice < 9'000) {
        return pair.receive(end);
    }
    if (choice < 9'700) {
        return pair.peek(end);
    }
    if (choice < 9'900) {
        return pair.settle();
    }
    return choice < 9'950 ? pair.end_writing(end) : pair.close_one(end);
}

std::string run(std::uint64_t seed, std::uint64_t steps, const char *address) {
    Dice dice{seed};
    StreamFabric fabric{address};
    std::string wrong = fabric.open();
    std::vector<std::unique_ptr<StreamPair>> pairs;
    for (std::size_t i = 0; i < most_pairs; ++i) {
        pairs.push_back(std::make_unique<StreamPair>(fabric, dice));
    }
    for (std::uint64_t i = 0; i < steps && wrong.empty(); ++i) {
        wrong = step(dice, *pairs[dice.below(pairs.size())]);
        wrong += wrong.empty() ? "" : " (step " + std::to_string(i) + ")";
    }
    return wrong;
}

// The peer sends until it is killed.
int be_peer(const char *address, const char *port, const char *salt) {
    Dice dice{1};
    StreamFabric fabric{address};
    model::Bytes bytes;
    if (!fabric.open().empty()) {
        return 1;
    }
    fabric.set_port(static_cast<std::uint16_t>(std::atoi(port)));
    fid_ep *const endpoint = fabric.make_endpoint(nullptr);
    StreamEnd end{fabric, dice};
    if (endpoint == nullptr || !end.begin(endpoint).empty() ||
        fi_connect(endpoint, fabric.address(), nullptr, 0) != 0 ||
        !fabric.read_until([&] { return fabric.told(endpoint).connected == 1; }).empty()) {
        return 1;
    }
    bytes.begin(std::strtoull(salt, nullptr, 10));
    std::vector<std::byte> room(model::most_bytes);
    while (true) {
        const std::span part = std::span{room}.first(1 + dice.size());
        bytes.next(part);
        const ssize_t put = end.send(part);
        if (put > 0) {
            bytes.send(static_cast<std::size_t>(put));
        } else if (put != -FI_EAGAIN || !end.wait().empty()) {
            return 1;
        }
    }
}

// A killed peer's bytes come, as far as they have left it, then ECONNRESET, and its end is told.
std::string kill_one(const char *self, Dice &dice, const char *address) {
    StreamFabric fabric{address};
    if (!fabric.open().empty()) {
        return "no listener";
    }
    const std::uint64_t salt = dice.any();
    std::string port = std::to_string(fabric.port());
    std::string salt_text = std::to_string(salt);
    std::string name = self;
    std::string word = "peer";
    std::string where = address;
    char *const arguments[] = {name.data(), word.data(),      where.data(),
                               port.data(), salt_text.data(), nullptr};
    pid_t child = 0;
    if (posix_spawn(&child, self, nullptr, nullptr, arguments, environ) != 0) {
        return "posix_spawn";
    }
    std::string wrong = fabric.read_until([&] { return fabric.request() != nullptr; });
    if (!wrong.empty()) {
        return wrong;
    }
    StreamEnd end{fabric, dice};
    fid_ep *const endpoint = fabric.make_endpoint(fabric.request());
    fabric.forget_request();
    if (endpoint == nullptr || !end.begin(endpoint).empty() || fi_accept(endpoint, nullptr, 0) != 0) {
        return "the peer is not accepted";
    }
    wrong = fabric.read_until([&] { return fabric.told(endpoint).connected == 1; });
    model::Bytes bytes;
    bytes.begin(salt);
    bytes.send(SIZE_MAX / 2);  // it is not known how many there are
    std::vector<std::byte> room(model::most_bytes);
    const std::size_t kill_after = dice.below(3'000'000);
    bool is_killed = false;
    ssize_t got = 0;
    while (wrong.empty()) {
        if (!is_killed && bytes.received() >= kill_after) {
            is_killed = kill(child, SIGKILL) == 0 && waitpid(child, nullptr, 0) == child;
        }
        const std::span part = std::span{room}.first(1 + dice.size());
        got = end.receive(part);
        if (got == -FI_EAGAIN) {
            wrong = end.wait();
        } else if (got <= 0) {
            break;
        } else if (!bytes.are_next(part.first(static_cast<std::size_t>(got)))) {
            wrong = std::string{"wrong bytes of a peer that "} + (is_killed ? "was" : "is to be") +
                    " killed, " + std::to_string(got) + " behind " + std::to_string(bytes.received());
        } else {
            bytes.receive(static_cast<std::size_t>(got));
        }
    }
    if (wrong.empty() && (!is_killed || got != -FI_ECONNRESET)) {
        wrong = std::string{"a receive from a peer that "} + (is_killed ? "was" : "is to be") +
                " killed gives " + std::to_string(got) + " behind " + std::to_string(bytes.received()) +
                " bytes";
    }
    return wrong.empty() ? fabric.read_until([&] { return fabric.told(endpoint).ends == 1; }) : wrong;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc == 5 && argv[1] == std::string_view{"peer"}) {
        return be_peer(argv[2], argv[3], argv[4]);
    }
    if (argc < 3 || argc > 5) {
        std::fprintf(stderr, "usage: %s SEED STEPS [KILLS [ADDRESS]]\n", argv[0]);
        return 2;
    }
    const std::uint64_t seed = std::strtoull(argv[1], nullptr, 10);
    const int kills = argc > 3 ? std::atoi(argv[3]) : 1;
    const char *const address = argc > 4 ? argv[4] : "127.0.0.1";
    std::printf("seed %s, %s steps, %d kills\n", argv[1], argv[2], kills);
    std::fflush(stdout);
    std::string wrong = run(seed, std::strtoull(argv[2], nullptr, 10), address);
    Dice dice{seed + 1};
    for (int i = 0; i < kills && wrong.empty(); ++i) {
        wrong = kill_one(argv[0], dice, address);
    }
    if (!wrong.empty()) {
        std::fprintf(stderr, "%s\n", wrong.c_str());
    }
    return wrong.empty() ? 0 : 1;
}
