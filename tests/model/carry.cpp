// SPDX-License-Identifier: BSD-3-Clause
// carry: three processes exchange bytes over TCP connections, as a seed decides, once as they are and once
// with a library preloaded. Each call's result must be the same in both runs, and each byte must be the next
// one.
//   test_model_carry SEED STEPS [LIBRARY]
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "carry_actor.hpp"

namespace {

using model::Actor;
using model::Call;
using model::Command;
using model::Outcome;

// A run in which no step ends for so long hangs.
constexpr unsigned hangs_after = 60;

struct Process {
    pid_t pid = 0;
    int commands = -1;
    int passing = -1;
    std::uint16_t port = 0;
};

struct End {
    std::size_t process = 0;
    std::uint64_t key = 0;  // of the bytes that it sends
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    bool is_shut = false;
    bool was_passed = false;
    std::uint32_t watched = 0;
};

struct Connection {
    bool is_open = false;
    End ends[2];
};

class Run {
public:
    Run(std::uint64_t seed, std::uint64_t steps) : random_{seed}, steps_{steps} {
        for (Process &one : processes_) {
            start(one);
        }
    }
    int play() {
        for (step_ = 1; step_ <= steps_; ++step_) {
            (void)alarm(hangs_after);
            step();
            if (is_wrong_) {
                (void)std::printf("wrong at step %lu\n", step_);
                break;
            }
        }
        (void)std::fflush(stdout);
        for (std::size_t i = 0; i < processes_.size(); ++i) {
            post(i, {.call = Call::Ends});
            (void)waitpid(processes_[i].pid, nullptr, 0);
        }
        return is_wrong_ ? 1 : 0;
    }

private:
    static constexpr std::size_t most_connections = 6;

    std::uint64_t below(std::uint64_t end) { return random_() % end; }

    void start(Process &process) {
        int commands[2];
        int passing[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, commands) != 0 ||
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, passing) != 0) {
            std::exit(1);
        }
        (void)std::fflush(stdout);
        process.pid = fork();
        if (process.pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)signal(SIGPIPE, SIG_IGN);
            (void)close(commands[0]);
            (void)close(passing[0]);
            Actor actor{passing[1]};
            Command command;
            while (read(commands[1], &command, sizeof(command)) == sizeof(command) &&
                   command.call != Call::Ends) {
                if (command.call == Call::Takes) {
                    command.count = static_cast<std::uint64_t>(passing[1]);
                }
                const Outcome outcome = actor.act(command);
                (void)!write(commands[1], &outcome, sizeof(outcome));
            }
            _exit(0);
        }
        (void)close(commands[1]);
        (void)close(passing[1]);
        process.commands = commands[0];
        process.passing = passing[0];
        const auto number = static_cast<std::size_t>(&process - processes_.data());
        process.port = static_cast<std::uint16_t>(ask(number, {.call = Call::Listen}).value);
    }

    void post(std::size_t process, const Command &command) {
        (void)!write(processes_[process].commands, &command, sizeof(command));
    }
    Outcome answer(std::size_t process) {
        Outcome outcome;
        if (read(processes_[process].commands, &outcome, sizeof(outcome)) != sizeof(outcome)) {
            outcome = {.value = -99, .error = 0, .is_wrong = 1};
        }
        is_wrong_ = is_wrong_ || outcome.is_wrong != 0;
        return outcome;
    }
    Outcome ask(std::size_t process, const Command &command) {
        post(process, command);
        return answer(process);
    }
    void tell(const char *what, std::size_t place, int side, const Outcome &outcome) {
        (void)std::printf("%lu %s %zu.%d: %ld error %d%s\n", step_, what, place, side, outcome.value,
                          outcome.error, outcome.is_wrong != 0 ? " WRONG" : "");
    }

    static std::uint32_t slot_of(std::size_t place, int side) {
        return static_cast<std::uint32_t>(place * 2) + static_cast<std::uint32_t>(side);
    }
    // The command for one end: from where its bytes go on, and how many are there for it.
    Command of(std::size_t place, int side, Call call, std::uint64_t count = 0) {
        const End &own = connections_[place].ends[side];
        const End &peer = connections_[place].ends[1 - side];
        return {.call = call,
                .slot = slot_of(place, side),
                .kind = static_cast<std::uint32_t>(below(1 << 20)),
                .count = count,
                .settled = peer.sent - own.received,
                .out_key = own.key,
                .out_place = own.sent,
                .in_key = peer.key,
                .in_place = own.received};
    }
    Outcome ask(std::size_t place, int side, const Command &command) {
        return ask(connections_[place].ends[side].process, command);
    }

    void open(std::size_t place) {
        Connection &one = connections_[place];
        one = {.is_open = true, .ends = {}};
        for (End &end : one.ends) {
            end.process = below(processes_.size());
            end.key = random_();
        }
        Command connects = of(place, 0, Call::Connect, processes_[one.ends[1].process].port);
        tell("connect", place, 0, ask(place, 0, connects));
        tell("accept", place, 1, ask(place, 1, of(place, 1, Call::Accept)));
    }

    std::uint64_t some_bytes(std::uint64_t most) {
        const std::uint64_t size = std::uint64_t{1} << below(17);
        return std::clamp<std::uint64_t>(below(size) + 1, 1, most);
    }

    void step() {
        const std::size_t place = below(most_connections);
        Connection &one = connections_[place];
        if (!one.is_open) {
            open(place);
            return;
        }
        const int side = static_cast<int>(below(2));
        End &own = one.ends[side];
        End &peer = one.ends[1 - side];
        const std::uint64_t there = peer.sent - own.received;
        const std::uint64_t out = own.sent - peer.received;
        const std::uint64_t kind = below(1000);
        if (kind < 400) {
            constexpr std::uint64_t most_unread = 30'000;  // the kernel takes these for certain
            if (!own.is_shut && out < most_unread) {
                sends(place, side, some_bytes(most_unread - out));
            }
        } else if (kind < 750) {
            if (there != 0) {
                receives(place, side, some_bytes(there));
            } else if (!peer.is_shut) {
                tell("nothing", place, side, ask(place, side, of(place, side, Call::Nothing)));
            }
        } else if (kind < 800) {
            waits(place, side);
        } else if (kind < 860) {
            if (there == 0 && !peer.is_shut) {
                waits_for(place, side);
            }
        } else if (kind < 890) {
            watches(place, side);
        } else if (kind < 920) {
            if (!peer.is_shut) {
                tell("options", place, side, ask(place, side, of(place, side, Call::Options)));
            }
        } else if (kind < 940) {
            tell("dup", place, side, ask(place, side, of(place, side, Call::Duplicate)));
            own.watched = 0;
        } else if (kind < 950) {
            forks(place, side);
        } else if (kind < 953) {
            talks(place);
        } else if (kind < 956) {
            hands_on(place, side);
        } else if (kind < 960) {
            if (there == 0 && !peer.is_shut && !own.is_shut && out < 30'000) {
                Command command = of(place, side, Call::Interrupted, some_bytes(1000));
                own.sent += command.count;
                tell("interrupted", place, side, ask(place, side, command));
            }
        } else if (kind < 965) {
            urgent(place, side);
        } else if (kind < 975) {
            if (!own.is_shut) {
                tell("shut", place, side, ask(place, side, of(place, side, Call::Shut)));
                own.is_shut = true;
                settle(place, 1 - side, POLLRDHUP);
                settle_shut(place, side);
            }
        } else if (kind < 995) {
            ends(place, side);
        } else if (kind == 995) {
            kills(own.process);
        } else {
            stops(place, side);
        }
    }

    void settle(std::size_t place, int side, std::uint32_t events) {
        Command command = of(place, side, Call::Settle);
        command.mask = events;
        if (ask(place, side, command).value != 0) {
            (void)std::printf("%lu no end is seen at %zu.%d\n", step_, place, side);
            is_wrong_ = true;
        }
    }

    // The kernel tells of an edge (EPOLLET) again when the acknowledgement of an end comes, which it may hold
    // back for 40 ms.
    void settle_shut(std::size_t place, int side) {
        const Command acknowledges{.call = Call::Acknowledges, .slot = slot_of(place, 1 - side)};
        const Command acknowledged{.call = Call::Acknowledged, .slot = slot_of(place, side)};
        if (ask(place, 1 - side, acknowledges).value != 0 || ask(place, side, acknowledged).value != 0) {
            (void)std::printf("%lu no acknowledgement is seen at %zu.%d\n", step_, place, side);
            is_wrong_ = true;
        }
    }

    // An epoll set tells of all its members, so the bytes for all of them have to be there: a device brings
    // them later than the kernel does within a host.
    void settle_all(std::size_t process) {
        for (std::size_t place = 0; place < most_connections; ++place) {
            for (int side = 0; connections_[place].is_open && side < 2; ++side) {
                if (connections_[place].ends[side].process == process) {
                    settle(place, side, 0);
                }
            }
        }
    }

    void sends(std::size_t place, int side, std::uint64_t count) {
        const Command command = of(place, side, Call::Send, count);
        connections_[place].ends[side].sent += count;
        tell("send", place, side, ask(place, side, command));
    }

    void receives(std::size_t place, int side, std::uint64_t count) {
        Command command = of(place, side, Call::Receive, count);
        connections_[place].ends[side].received += count;
        tell("receive", place, side, ask(place, side, command));
    }

    void waits(std::size_t place, int side) {
        if (std::getenv("RPMA_CARRY_DEVICE") != nullptr) {
            settle_all(connections_[place].ends[side].process);
        }
        Command command = of(place, side, Call::Wait);
        const bool ends = connections_[place].ends[1 - side].is_shut;
        command.mask = POLLIN | (ends ? std::uint32_t{POLLRDHUP} : 0);
        tell("wait", place, side, ask(place, side, command));
    }

    // One process waits while another one sends.
    void waits_for(std::size_t place, int side) {
        Connection &one = connections_[place];
        if (one.ends[1 - side].is_shut || one.ends[0].process == one.ends[1].process) {
            return;
        }
        const std::uint64_t count = some_bytes(20'000);
        Command receive = of(place, side, Call::Receive, count);
        constexpr std::uint32_t kinds[] = {0, 3, 4};
        receive.kind = receive.kind / 5 * 5 + kinds[below(3)];
        post(one.ends[side].process, receive);
        if (below(2) == 0) {
            (void)usleep(static_cast<useconds_t>(below(300)));  // it may sleep by now, or look
        }
        const Command send = of(place, 1 - side, Call::Send, count);
        tell("send to one that waits", place, 1 - side, ask(place, 1 - side, send));
        tell("receive", place, side, answer(one.ends[side].process));
        one.ends[1 - side].sent += count;
        one.ends[side].received += count;
    }

    void watches(std::size_t place, int side) {
        End &own = connections_[place].ends[side];
        if (own.watched != 0 && below(4) == 0) {
            own.watched = 0;
            tell("unwatch", place, side, ask(place, side, of(place, side, Call::Unwatch)));
            return;
        }
        constexpr std::uint32_t masks[] = {model_in, model_in | model_edge, model_in | model_once};
        Command command = of(place, side, Call::Watch);
        command.mask = masks[below(3)];
        own.watched = command.mask;
        tell("watch", place, side, ask(place, side, command));
    }

    void forks(std::size_t place, int side) {
        End &own = connections_[place].ends[side];
        const End &peer = connections_[place].ends[1 - side];
        if (below(3) == 0) {
            tell("child closes", place, side, ask(place, side, of(place, side, Call::ChildCloses)));
            return;
        }
        const std::uint64_t there = peer.sent - own.received;
        const bool sends = there == 0;
        if (sends && (own.is_shut || own.sent - peer.received > 30'000)) {
            return;
        }
        const std::uint64_t count = some_bytes(sends ? 1000 : there);
        Command command = of(place, side, Call::ChildUses, count);
        command.kind = command.kind / 2 * 2 + (sends ? 0 : 1);
        (sends ? own.sent : own.received) += count;
        tell(sends ? "child sends" : "child receives", place, side, ask(place, side, command));
    }

    // Both ends send and receive at once, what was there before too.
    void talks(std::size_t place) {
        Connection &one = connections_[place];
        if (one.ends[0].process == one.ends[1].process || one.ends[0].is_shut || one.ends[1].is_shut) {
            return;
        }
        std::uint64_t counts[2] = {some_bytes(1 << 16) * (below(8) + 1),
                                   some_bytes(1 << 16) * (below(8) + 1)};
        for (int side = 0; side < 2; ++side) {
            const End &peer = one.ends[1 - side];
            Command command = of(place, side, Call::Talk, counts[side]);
            command.count_in = peer.sent - one.ends[side].received + counts[1 - side];
            post(one.ends[side].process, command);
        }
        if (below(4) == 0) {
            (void)kill(processes_[one.ends[0].process].pid, SIGSTOP);
            (void)usleep(500);
            (void)kill(processes_[one.ends[0].process].pid, SIGCONT);
        }
        for (int side = 0; side < 2; ++side) {
            tell("talk", place, side, answer(one.ends[side].process));
            one.ends[side].sent += counts[side];
        }
        one.ends[0].received = one.ends[1].sent;
        one.ends[1].received = one.ends[0].sent;
    }

    // The socket becomes the standard input of a program, or another process's.
    void hands_on(std::size_t place, int side) {
        Connection &one = connections_[place];
        End &own = one.ends[side];
        End &peer = one.ends[1 - side];
        if (const std::uint64_t there = peer.sent - own.received; there != 0) {
            receives(place, side, there);
        }
        if (below(2) == 0 && !peer.is_shut) {
            tell("exec", place, side, ask(place, side, of(place, side, Call::Executes)));
            return;
        }
        const std::size_t from = own.process;
        tell("pass", place, side, ask(place, side, of(place, side, Call::Passes)));
        pass(from, own.process = below(processes_.size()));
        tell("take", place, side, ask(place, side, of(place, side, Call::Takes)));
        own.watched = 0;
        own.was_passed = true;
    }

    // The driver carries the descriptor from one to the other.
    void pass(std::size_t from, std::size_t to) {
        union {
            cmsghdr head;
            char room[CMSG_SPACE(sizeof(int))];
        } control{};
        char byte = 0;
        iovec part{.iov_base = &byte, .iov_len = 1};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.room;
        message.msg_controllen = sizeof(control.room);
        if (recvmsg(processes_[from].passing, &message, MSG_CMSG_CLOEXEC) == 1 &&
            CMSG_FIRSTHDR(&message) != nullptr) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
            (void)sendmsg(processes_[to].passing, &message, 0);
            (void)close(fd);
        }
    }

    void urgent(std::size_t place, int side) {
        Connection &one = connections_[place];
        if (one.ends[side].is_shut || one.ends[side].sent != one.ends[1 - side].received) {
            return;
        }
        tell("urgent", place, side, ask(place, side, of(place, side, Call::Urgent)));
        tell("take urgent", place, 1 - side, ask(place, 1 - side, of(place, 1 - side, Call::TakeUrgent)));
        // The kernel counts readable bytes up to the place of the urgent one only, so the receiver passes it.
        constexpr std::uint64_t bytes_behind = 10;
        sends(place, side, bytes_behind);
        Command behind = of(place, 1 - side, Call::Receive, bytes_behind);
        behind.kind = 0;
        one.ends[1 - side].received += bytes_behind;
        tell("receive", place, 1 - side, ask(place, 1 - side, behind));
    }

    void closes(std::size_t place, int side, Call call) {
        tell(call == Call::Reset ? "reset" : "close", place, side, ask(place, side, of(place, side, call)));
    }

    // One end closes, perhaps with unread bytes; the other reads to the end.
    void ends(std::size_t place, int side) {
        settle(place, 1 - side, 0);  // the kernel drops what it has not sent when it resets
        if (std::getenv("RPMA_CARRY_LOSE") != nullptr) {
            settle(place, side,
                   0);  // bytes that were lost with the device: it resets for those that are unread
        }
        closes(place, side, below(5) == 0 ? Call::Reset : Call::Close);
        settle_end(place, 1 - side);
    }

    void settle_end(std::size_t place, int side, bool is_killed = false) {
        Command command = of(place, side, Call::Drain);
        // The kernel resets for bytes that a killed process has not read. It does not know of those in a
        // ring, and the library does not act behind a FIN, nor for a process that got the socket by a
        // message.
        // Between two hosts an end without a word may be behind bytes that are lost with the device, so it is
        // an error.
        const Connection &one = connections_[place];
        command.is_last = is_killed && (one.ends[1 - side].is_shut || one.ends[side].was_passed ||
                                        std::getenv("RPMA_CARRY_DEVICE") != nullptr);
        tell("drain", place, side, ask(place, side, command));
        closes(place, side, Call::Close);
        connections_[place].is_open = false;
    }

    // A process is killed; the ends that it had are drained by the others, and another process takes its
    // place.
    void kills(std::size_t number) {
        for (std::size_t place = 0; place < most_connections; ++place) {
            for (int side = 0; connections_[place].is_open && side < 2; ++side) {
                settle(place, side, 0);
            }
        }
        (void)kill(processes_[number].pid, SIGKILL);
        (void)waitpid(processes_[number].pid, nullptr, 0);
        (void)close(processes_[number].commands);
        (void)close(processes_[number].passing);
        for (std::size_t place = 0; place < most_connections; ++place) {
            Connection &one = connections_[place];
            for (int side = 0; one.is_open && side < 2; ++side) {
                if (one.ends[side].process == number) {
                    if (one.ends[1 - side].process != number) {
                        settle_end(place, 1 - side, true);
                    }
                    one.is_open = false;
                }
            }
        }
        start(processes_[number]);
    }

    void stops(std::size_t place, int side) {
        // A stopped process stops its soft device too, which then takes no turn (RPMA_MODEL_NO_STOPS).
        const Connection &one = connections_[place];
        if (std::getenv("RPMA_MODEL_NO_STOPS") != nullptr || one.ends[side].is_shut ||
            one.ends[0].process == one.ends[1].process ||
            one.ends[side].sent - one.ends[1 - side].received > 30'000) {
            return;
        }
        const pid_t peer = processes_[one.ends[1 - side].process].pid;
        (void)kill(peer, SIGSTOP);
        sends(place, side, some_bytes(20'000));
        (void)kill(peer, SIGCONT);
    }

    static constexpr std::uint32_t model_in = EPOLLIN;
    static constexpr std::uint32_t model_edge = EPOLLET;
    static constexpr std::uint32_t model_once = EPOLLONESHOT;

    std::mt19937_64 random_;
    const std::uint64_t steps_;
    std::uint64_t step_ = 0;
    bool is_wrong_ = false;
    std::array<Process, 3> processes_;
    std::array<Connection, most_connections> connections_;
};

// A run in a process of its own, whose lines it reads.
class Lines {
public:
    Lines(char *program, char *seed, char *steps, const char *library) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            std::exit(1);
        }
        pid_ = fork();
        if (pid_ == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)dup2(ends[1], STDOUT_FILENO);
            if (library != nullptr) {
                (void)setenv("LD_PRELOAD", library, 1);
            }
            (void)execl("/proc/self/exe", program, "--run", seed, steps, nullptr);
            _exit(127);
        }
        (void)close(ends[1]);
        lines_ = fdopen(ends[0], "r");
    }
    [[nodiscard]] bool next(std::string &line) {
        char room[256];
        const bool is_there = std::fgets(room, sizeof(room), lines_) != nullptr;
        line = is_there ? room : "";
        return is_there;
    }
    [[nodiscard]] int end() {
        int status = 0;
        (void)kill(pid_, SIGTERM);
        (void)std::fclose(lines_);
        (void)waitpid(pid_, &status, 0);
        return status;
    }

private:
    pid_t pid_ = 0;
    FILE *lines_ = nullptr;
};

int compare(char **words, const char *library) {
    Lines plain{words[0], words[1], words[2], nullptr};
    Lines other{words[0], words[1], words[2], library};
    std::deque<std::string> last;
    std::string line;
    std::string others;
    std::uint64_t count = 0;
    for (;;) {
        const bool is_there = plain.next(line);
        const bool is_others = other.next(others);
        if (line != others || is_there != is_others || line.starts_with("wrong")) {
            for (const std::string &before : last) {
                (void)std::printf("  %s", before.c_str());
            }
            (void)std::printf("plain:   %sLIBRARY: %sseed %s: the runs differ after %lu lines\n",
                              is_there ? line.c_str() : "ended\n", is_others ? others.c_str() : "ended\n",
                              words[1], count);
            (void)plain.end();
            (void)other.end();
            return 1;
        }
        if (!is_there) {
            break;
        }
        ++count;
        last.push_back(line);
        if (last.size() > 40) {
            last.pop_front();
        }
    }
    (void)plain.end();
    (void)other.end();
    (void)std::printf("seed %s: %lu calls, no difference\n", words[1], count);
    return count == 0 ? 1 : 0;
}

}  // namespace

int main(int count, char **words) {
    if (count == 5 && std::strcmp(words[1], "--input") == 0) {
        return model::read_standard_input(std::strtoull(words[2], nullptr, 10),
                                          std::strtoull(words[3], nullptr, 10),
                                          std::strtoull(words[4], nullptr, 10));
    }
    if (count == 4 && std::strcmp(words[1], "--run") == 0) {
        (void)signal(SIGPIPE, SIG_IGN);
        (void)setvbuf(stdout, nullptr, _IOLBF, 0);
        return Run{std::strtoull(words[2], nullptr, 10), std::strtoull(words[3], nullptr, 10)}.play();
    }
    if (count != 3 && count != 4) {
        (void)std::fprintf(stderr, "usage: %s SEED STEPS [LIBRARY]\n", words[0]);
        return 2;
    }
    return compare(words, count == 4 ? words[3] : nullptr);
}
