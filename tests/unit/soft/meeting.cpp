// SPDX-License-Identifier: BSD-3-Clause
// soft/meeting: tests that two devices of one host meet, that no other process comes between them, and that a
// false greeting makes no link.
#include "soft/cm/meeting.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "../../child.hpp"
#include "../../loopback.hpp"
#include "base/parts.hpp"
#include "soft/link/memory_link.hpp"
#include "soft/link/tcp_link.hpp"

// This comes last, because it asserts.
#include "../base/check.hpp"

namespace {

using soft::Meeting;
using soft::MemoryLink;
using soft::SharedRings;

constexpr uid_t another_user = 65534;

soft::tcp::Address at(const sockaddr_in &address) {
    soft::tcp::Address any{};
    std::memcpy(&any, &address, sizeof(address));
    return any;
}

// The addresses of a connection of this test alone, which has the responder's port.
struct Connection {
    Connection() {
        sockaddr_in address = test::loopback(0);
        socklen_t size = sizeof(address);
        port.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        assert_int_equal(bind(port.get(), reinterpret_cast<sockaddr *>(&address), size), 0);
        assert_int_equal(getsockname(port.get(), reinterpret_cast<sockaddr *>(&address), &size), 0);
        responder = at(address);
        group = soft::Group::create().value();
    }

    [[nodiscard]] std::unique_ptr<Meeting> offer() const {
        auto meeting = Meeting::begin(initiator, responder);
        return meeting && meeting->offer(secret, *group) ? std::move(meeting) : nullptr;
    }
    [[nodiscard]] std::optional<SharedRings> meet() const {
        return soft::meet(responder, initiator, secret, *group);
    }

    base::Fd port;
    soft::tcp::Address initiator = at(test::loopback(1));
    soft::tcp::Address responder{};
    soft::SecretFor secret;
    std::shared_ptr<soft::Group> group;
};

// The name of the meeting, as any process can know it.
struct Name {
    explicit Name(const Connection &connection, const std::string &begin = "softrdma3") {
        address.sun_family = AF_UNIX;
        const std::string text =
            begin + " " +
            (connection.secret ? std::string{"000102030405060708090a0b0c0d0e0f"}
                               : std::string{soft::tcp::text_of(connection.initiator).c_str()} + " " +
                                     soft::tcp::text_of(connection.responder).c_str());
        text.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
        length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    }
    [[nodiscard]] const sockaddr *any() const { return reinterpret_cast<const sockaddr *>(&address); }

    sockaddr_un address{};
    socklen_t length = 0;
};

base::Fd unix_socket() {
    base::Fd made{socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    assert_true(static_cast<bool>(made));
    return made;
}

base::Fd come(const Name &name) {
    base::Fd made = unix_socket();
    assert_int_equal(connect(made.get(), name.any(), name.length), 0);
    return made;
}

std::size_t descriptors() {
    const std::filesystem::directory_iterator all{"/proc/self/fd"};
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

void two_ends_meet(void **) {
    const Connection connection;
    const auto offered = connection.offer();
    assert_non_null(offered.get());
    const auto maker = connection.meet();
    assert_true(maker.has_value());
    const auto guest = offered->join();
    assert_true(guest.has_value());
    assert_int_equal(maker->ring_bytes(), guest->ring_bytes());
    maker->outgoing().written = 1;
    guest->outgoing().written = 2;
    assert_int_equal(guest->incoming().written, 1);
    assert_int_equal(maker->incoming().written, 2);
    assert_int_equal(maker->file(), -1);
}

void a_peer_without_a_name_is_not_met(void **) {
    const Connection connection;
    assert_false(connection.meet().has_value());
    const auto offered = connection.offer();
    const auto joined = offered->join();
    assert_false(joined.has_value());
    assert_int_equal(joined.error().number, ECONNRESET);
}

// An address of a network for documents is no host's.
void another_host_is_not_met(void **) {
    Connection connection;
    sockaddr_in elsewhere = test::loopback(1);
    assert_int_equal(inet_pton(AF_INET, "192.0.2.1", &elsewhere.sin_addr), 1);
    connection.responder = at(elsewhere);
    assert_null(connection.offer().get());
    assert_false(connection.meet().has_value());
}

void a_name_in_use_is_not_offered(void **) {
    const Connection connection;
    const auto first = connection.offer();
    assert_non_null(first.get());
    assert_null(connection.offer().get());
}

// Runs in a process of another user, which tells that it is ready, and stays until the object ends.
class Stranger {
public:
    explicit Stranger(const std::function<bool()> &act) {
        int ready[2];
        assert_int_equal(pipe(ready), 0);
        assert_int_equal(pipe(stay_), 0);
        pid_ = test::fork_child();
        assert_true(pid_ >= 0);
        if (pid_ == 0) {
            close(stay_[1]);
            char byte = 0;
            const bool done = seteuid(another_user) == 0 && act();
            (void)!write(ready[1], done ? "y" : "n", 1);
            (void)!read(stay_[0], &byte, 1);
            _exit(0);
        }
        char byte = 0;
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_int_equal(byte, 'y');
        close(ready[0]);
    }
    Stranger(const Stranger &) = delete;
    Stranger &operator=(const Stranger &) = delete;
    ~Stranger() {
        close(stay_[1]);
        close(stay_[0]);
        (void)waitpid(pid_, nullptr, 0);
    }

private:
    pid_t pid_ = -1;
    int stay_[2] = {-1, -1};
};

void needs_root() {
    if (geteuid() != 0) {
        print_message("SKIPPED: only root can become another user\n");
        skip();
    }
}

// A stranger's connection is before the peer's, and brings nothing.
void another_user_does_not_join(void **) {
    needs_root();
    const Connection connection;
    const auto offered = connection.offer();
    std::vector<base::Fd> sockets;
    const Stranger stranger{[&] {
        sockets.push_back(come(Name{connection}));
        return true;
    }};
    const auto maker = connection.meet();
    assert_true(maker.has_value());
    assert_true(offered->join().has_value());
}

// As many strangers as the name takes keep the peer out, and the connection stays on TCP.
void a_crowd_of_another_user_keeps_the_peer_out(void **) {
    needs_root();
    const Connection connection;
    const auto offered = connection.offer();
    std::vector<base::Fd> sockets;
    const Stranger stranger{[&] {
        const Name name{connection};
        for (;;) {
            base::Fd one{socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0)};
            if (connect(one.get(), name.any(), name.length) != 0) {
                return errno == EAGAIN && !sockets.empty();
            }
            sockets.push_back(std::move(one));
        }
    }};
    assert_false(connection.meet().has_value());
    const auto joined = offered->join();
    assert_false(joined.has_value());
    assert_int_equal(joined.error().number, ECONNRESET);
}

void another_user_who_took_the_name_is_not_met(void **) {
    needs_root();
    const Connection connection;
    base::Fd taken;
    const Stranger stranger{[&] {
        const Name name{connection};
        taken = unix_socket();
        return bind(taken.get(), name.any(), name.length) == 0 && listen(taken.get(), 1) == 0;
    }};
    assert_null(connection.offer().get());
    assert_false(connection.meet().has_value());
}

constexpr std::string_view right_text = "softrdma rings 3";

void greet(int socket, std::string_view text, std::vector<int> files) {
    iovec piece{.iov_base = const_cast<char *>(text.data()), .iov_len = text.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(4 * sizeof(int))> room{};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (!files.empty()) {
        message.msg_control = room.data();
        message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
        cmsghdr *const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
        std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
    }
    assert_int_equal(sendmsg(socket, &message, MSG_NOSIGNAL), text.size());
}

// Returns whether the kernel tells which process is at the other end of a Unix socket, and not only its
// number (Linux 6.5).
bool tells_peers_process() {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const base::Fd here{pair[0]};
    const base::Fd there{pair[1]};
    int process = -1;
    socklen_t size = sizeof(process);
    constexpr int so_peerpidfd = 77;
    const bool tells = getsockopt(here.get(), SOL_SOCKET, so_peerpidfd, &process, &size) == 0;
    const base::Fd closed{process};
    return tells;
}

// A process whose user is nobody in a user namespace, where no user from outside has a number: the kernel
// calls all of them nobody too. It goes on where the parent has called go_on().
class NobodyInNamespace {
public:
    // act(wait) runs in the process, and returns whether all is well. wait() gives the parent its turn.
    explicit NobodyInNamespace(const std::function<bool(const std::function<void()> &wait)> &act) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, turns_), 0);
        pid_ = test::fork_child();
        assert_true(pid_ >= 0);
        if (pid_ == 0) {
            const auto wait = [this] {
                tell(1);
                hear(1);
            };
            const bool is_alone = unshare(CLONE_NEWUSER) == 0;
            wait();
            _exit(is_alone && setresuid(nobody, nobody, nobody) == 0 && act(wait) ? 0 : 1);
        }
        hear(0);
        map("uid_map");
    }
    NobodyInNamespace(const NobodyInNamespace &) = delete;
    NobodyInNamespace &operator=(const NobodyInNamespace &) = delete;
    ~NobodyInNamespace() {
        close(turns_[0]);
        close(turns_[1]);
    }

    // The names of its meetings begin with this.
    [[nodiscard]] std::string begin_of_names() const {
        struct stat status{};
        assert_int_equal(stat(("/proc/" + std::to_string(pid_) + "/ns/user").c_str(), &status), 0);
        return "s" + std::to_string(status.st_ino);
    }

    void go_on() { tell(0); }
    void have_turn() {
        go_on();
        hear(0);
    }
    void expect_well() {
        go_on();
        int status = -1;
        assert_int_equal(waitpid(pid_, &status, 0), pid_);
        assert_int_equal(status, 0);
    }

    static constexpr uid_t nobody = 65534;
    static constexpr uid_t nobody_outside = 100000 + nobody;

private:
    void map(const char *file) const {
        const std::string path = "/proc/" + std::to_string(pid_) + "/" + file;
        const base::Fd opened{open(path.c_str(), O_WRONLY | O_CLOEXEC)};
        constexpr std::string_view all = "0 100000 65536";
        assert_int_equal(write(opened.get(), all.data(), all.size()), all.size());
    }
    void tell(int side) const { assert_int_equal(write(turns_[side], "t", 1), 1); }
    void hear(int side) const {
        char turn = 0;
        assert_int_equal(read(turns_[side], &turn, 1), 1);
    }

    pid_t pid_ = -1;
    int turns_[2] = {-1, -1};
};

// Skips where the kernel makes no user namespaces, as in a chroot.
void needs_user_namespaces() {
    needs_root();
    const pid_t pid = test::fork_child();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0) {
        skip();
    }
}

// Runs `act` as a user from outside all other namespaces.
void as_outsider(const std::function<void()> &act, uid_t outsider = 1000) {
    assert_int_equal(seteuid(outsider), 0);
    act();
    assert_int_equal(seteuid(0), 0);
}

void a_user_without_a_number_does_not_join(void **) {
    needs_user_namespaces();
    const Connection connection;
    NobodyInNamespace victim{[&](const auto &wait) {
        const auto offered = connection.offer();
        wait();
        auto maker = connection.meet();
        const auto joined = offered->join();
        if (!maker || !joined) {
            return !maker && !joined && !tells_peers_process();
        }
        maker->outgoing().written = 1;
        return joined->incoming().written == 1;
    }};
    victim.have_turn();
    const auto own = SharedRings::make();
    const Name name{connection, victim.begin_of_names()};
    base::Fd outsider;
    as_outsider([&] {
        outsider = come(name);
        greet(outsider.get(), right_text, {own->file()});
    });
    victim.expect_well();
}

void a_user_without_a_number_is_not_met(void **) {
    needs_user_namespaces();
    const Connection connection;
    NobodyInNamespace victim{[&](const auto &) { return !connection.meet().has_value(); }};
    const Name name{connection, victim.begin_of_names()};
    base::Fd taken;
    as_outsider([&] {
        taken = unix_socket();
        assert_int_equal(bind(taken.get(), name.any(), name.length), 0);
        assert_int_equal(listen(taken.get(), 1), 0);
    });
    victim.expect_well();
}

// It would refuse everybody from outside, and its own user there cannot know that.
void a_user_without_a_number_stays_on_tcp_with_the_outside(void **) {
    needs_user_namespaces();
    const Connection connection;
    NobodyInNamespace initiator{[&](const auto &wait) {
        const auto offered = connection.offer();
        wait();
        return offered != nullptr;
    }};
    initiator.have_turn();
    as_outsider([&] { assert_false(connection.meet().has_value()); }, NobodyInNamespace::nobody_outside);
    initiator.expect_well();
}

// ---- false greetings, from a process of the same user ----

// Returns the descriptor that came with a greeting.
base::Fd received_file(int socket) {
    std::array<char, 64> text{};
    iovec piece{.iov_base = text.data(), .iov_len = text.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> room{};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    assert_true(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) > 0);
    int file = -1;
    std::memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(file));
    return base::Fd{file};
}

base::Fd memory_of(off_t bytes, int seals) {
    base::Fd made{memfd_create("false", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    assert_true(static_cast<bool>(made));
    assert_int_equal(ftruncate(made.get(), bytes), 0);
    assert_int_equal(fcntl(made.get(), F_ADD_SEALS, seals), 0);
    return made;
}

void false_greetings_make_no_link(void **) {
    constexpr int all_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const auto right = SharedRings::make();
    assert_true(right.has_value());
    struct stat size;
    assert_int_equal(fstat(right->file(), &size), 0);
    const base::Fd unsealed = memory_of(size.st_size, F_SEAL_GROW);
    const base::Fd short_one = memory_of(size.st_size - 1, all_seals);
    const base::Fd long_one = memory_of(size.st_size + 4096, all_seals);
    const base::Fd empty = memory_of(0, all_seals);
    const base::Fd device{open("/dev/zero", O_RDWR | O_CLOEXEC)};
    const int good = right->file();
    struct Greeting {
        std::string_view text;
        std::vector<int> files;
    };
    const Greeting greetings[] = {
        {"softrdma rings 2", {good}},
        {right_text.substr(1), {good}},
        {"softrdma rings 3 and more", {good}},
        {right_text, {}},
        {right_text, {good, good}},
        {right_text, {good, good, good, good}},
        {right_text, {unsealed.get()}},
        {right_text, {short_one.get()}},
        {right_text, {long_one.get()}},
        {right_text, {empty.get()}},
        {right_text, {device.get()}},
    };
    for (const Greeting &greeting : greetings) {
        const Connection connection;
        (void)connection.offer();  // the group opens a descriptor, and keeps it
        const std::size_t before = descriptors();
        {
            const auto offered = connection.offer();
            const base::Fd peer = come(Name{connection});
            greet(peer.get(), greeting.text, greeting.files);
            const auto joined = offered->join();
            assert_false(joined.has_value());
            assert_true(joined.error().number == EPROTO || joined.error().number == EMFILE);
        }
        assert_int_equal(descriptors(), before);
    }
    {
        const Connection connection;
        const auto offered = connection.offer();
        const base::Fd peer = come(Name{connection});
        greet(peer.get(), right_text, {good});
        assert_true(
            offered->join().has_value());  // each other greeting differs from a right one by one thing
    }
}

// ---- with TLS ----

// The bytes 0, 1, 2 ... of a secret, of which the name tells the first third.
constexpr soft::TlsLink::Secret secret_of_test = [] {
    soft::TlsLink::Secret secret{};
    for (std::size_t i = 0; i < secret.size(); ++i) {
        secret[i] = static_cast<std::byte>(i);
    }
    return secret;
}();

struct SecureConnection : Connection {
    SecureConnection() {
        secret = [&asked = contexts](std::string_view context) {
            asked.emplace_back(context);
            return std::optional{secret_of_test};
        };
    }
    SecureConnection(const SecureConnection &) = delete;
    SecureConnection &operator=(const SecureConnection &) = delete;
    ~SecureConnection() = default;

    mutable std::vector<std::string> contexts;
};

// The bytes that the guest has sent, as the maker sees them.
soft::Link::Received receive_one(MemoryLink &maker) {
    std::byte byte{};
    const iovec room{.iov_base = &byte, .iov_len = 1};
    return maker.receive({&room, 1});
}

soft::Link::Sent send_one(MemoryLink &guest) {
    constexpr std::byte byte{7};
    const iovec piece = base::part_of(&byte, 1);
    return guest.send({&piece, 1});
}

// A link of the rings. Its TCP connection lasts as long as the other end of the pair.
struct LinkOf {
    LinkOf(SharedRings rings, bool was_secure) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        link = std::make_unique<MemoryLink>(std::move(rings),
                                            std::make_unique<soft::TcpLink>(base::Fd{pair[0]}), was_secure);
        peer.reset(pair[1]);
    }
    std::unique_ptr<MemoryLink> link;
    base::Fd peer;
};

void two_ends_with_a_secret_meet(void **) {
    const SecureConnection connection;
    const auto offered = connection.offer();
    assert_non_null(offered.get());
    auto made = connection.meet();
    assert_true(made.has_value());
    assert_false(made->has_right_password());
    auto joined = offered->join();
    assert_true(joined.has_value());
    assert_true(made->has_right_password());
    const LinkOf maker{std::move(*made), true};
    const LinkOf guest{std::move(*joined), true};
    assert_int_equal(send_one(*guest.link).bytes, 1);
    assert_int_equal(receive_one(*maker.link).bytes, 1);
    // Both ends asked for the secret of the same connection in the same network namespace.
    assert_int_equal(connection.contexts.size(), 2);
    assert_string_equal(connection.contexts[0].c_str(), connection.contexts[1].c_str());
}

void tls_without_a_secret_does_not_meet(void **) {
    Connection connection;
    connection.secret = [](std::string_view) { return std::nullopt; };
    assert_null(connection.offer().get());
    connection.secret = {};
    const auto offered = connection.offer();
    assert_non_null(offered.get());
    connection.secret = [](std::string_view) { return std::nullopt; };
    assert_false(connection.meet().has_value());
}

// A process between two connections of TLS has the secret of neither, and the ends of a connection that goes
// through another process see other addresses.
void two_connections_do_not_meet(void **) {
    const SecureConnection connection;
    Connection another;
    another.responder = connection.responder;
    another.secret = [](std::string_view) {
        auto secret = secret_of_test;
        secret.front() = std::byte{0xff};
        return std::optional{secret};
    };
    const auto offered = connection.offer();
    assert_non_null(offered.get());
    assert_false(another.meet().has_value());
    const SecureConnection elsewhere;
    assert_false(elsewhere.offer() != nullptr);  // the name is taken
    assert_string_not_equal(connection.contexts[0].c_str(), elsewhere.contexts[0].c_str());
}

// Two network namespaces have the same names, and a process that is in both could be between the two ends.
void two_namespaces_have_two_secrets(void **) {
    needs_root();
    const SecureConnection connection;
    assert_non_null(connection.offer().get());
    int told[2];
    assert_int_equal(pipe(told), 0);
    const pid_t child = test::fork_child();
    assert_true(child >= 0);
    if (child == 0) {
        if (unshare(CLONE_NEWNET) == 0) {
            const std::size_t before = connection.contexts.size();
            (void)connection.meet();
            const std::string &context = connection.contexts.at(before);
            (void)!write(told[1], context.data(), context.size());
        }
        _exit(0);
    }
    close(told[1]);
    std::array<char, 256> text{};
    const ssize_t bytes = read(told[0], text.data(), text.size() - 1);
    close(told[0]);
    (void)waitpid(child, nullptr, 0);
    assert_true(bytes > 0);
    assert_string_not_equal(text.data(), connection.contexts[0].c_str());
}

// The name can be seen from the offer on, and another process of the user comes before the peer. It does not
// have the second third of the secret.
void a_process_that_saw_the_name_is_passed_over(void **) {
    const auto right = SharedRings::make();
    assert_true(right.has_value());
    std::string false_text{right_text};
    false_text.append(16, '\0');
    std::string shorter{right_text};
    for (std::size_t i = 16; i < 31; ++i) {
        shorter += static_cast<char>(i);
    }
    const std::string_view texts[] = {"", right_text, false_text, shorter};
    for (const std::string_view text : texts) {
        const SecureConnection connection;
        const auto offered = connection.offer();
        assert_non_null(offered.get());
        const base::Fd stranger = come(Name{connection});
        if (!text.empty()) {
            greet(stranger.get(), text, {right->file()});
        }
        const auto maker = connection.meet();
        assert_true(maker.has_value());
        const auto joined = offered->join();
        assert_true(joined.has_value());
        maker->outgoing().written = 7;
        assert_int_equal(joined->incoming().written, 7);
    }
}

// A process of the user takes the name when the initiator is gone, so it gets the memory. It has no password,
// so nothing that it writes is taken: neither bytes nor their end.
void a_process_in_place_of_the_initiator_is_not_heard(void **) {
    for (const bool sends : {true, false}) {
        const SecureConnection connection;
        auto offered = connection.offer();
        assert_non_null(offered.get());
        offered.reset();
        const Name name{connection};
        const base::Fd taken = unix_socket();
        assert_int_equal(bind(taken.get(), name.any(), name.length), 0);
        assert_int_equal(listen(taken.get(), 1), 0);
        auto made = connection.meet();
        assert_true(made.has_value());
        const base::Fd come_here{accept(taken.get(), nullptr, nullptr)};
        auto joined = SharedRings::join(received_file(come_here.get()));
        assert_true(joined.has_value());
        const LinkOf maker{std::move(*made), true};
        {
            const LinkOf thief{std::move(*joined), false};
            if (sends) {
                assert_int_equal(send_one(*thief.link).bytes, 1);
            } else {
                assert_true(thief.link->finish());
            }
            const auto got = receive_one(*maker.link);
            assert_int_equal(got.bytes, 0);
            assert_int_equal(got.state, soft::Link::Received::State::Failed);
            assert_int_equal(got.error, EPROTO);
        }
    }
}

// After TLS the end of TCP, which anybody on the way can make, is no end of the peer's bytes.
void an_end_without_the_peers_word_is_a_failure(void **) {
    for (const bool was_secure : {true, false}) {
        const Connection connection;
        const auto offered = connection.offer();
        auto made = connection.meet();
        auto joined = offered->join();
        assert_true(made.has_value() && joined.has_value());
        LinkOf maker{std::move(*made), was_secure};
        const LinkOf guest{std::move(*joined), was_secure};
        assert_int_equal(send_one(*guest.link).bytes, 1);
        maker.peer.reset();
        assert_true(maker.link->ready().ended);
        assert_int_equal(receive_one(*maker.link).bytes, 1);
        const auto got = receive_one(*maker.link);
        assert_int_equal(got.bytes, 0);
        assert_int_equal(
            got.state, was_secure ? soft::Link::Received::State::Failed : soft::Link::Received::State::Ended);
        assert_int_equal(got.error, was_secure ? ECONNRESET : 0);
    }
}

// join() does not wait: the reply that says so comes after the greeting.
void silence_makes_no_link(void **) {
    const Connection connection;
    const auto offered = connection.offer();
    const base::Fd silent = come(Name{connection});
    assert_false(offered->join().has_value());
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(two_ends_meet),
        cmocka_unit_test(a_peer_without_a_name_is_not_met),
        cmocka_unit_test(another_host_is_not_met),
        cmocka_unit_test(a_name_in_use_is_not_offered),
        cmocka_unit_test(another_user_does_not_join),
        cmocka_unit_test(a_crowd_of_another_user_keeps_the_peer_out),
        cmocka_unit_test(another_user_who_took_the_name_is_not_met),
        cmocka_unit_test(a_user_without_a_number_does_not_join),
        cmocka_unit_test(a_user_without_a_number_is_not_met),
        cmocka_unit_test(a_user_without_a_number_stays_on_tcp_with_the_outside),
        cmocka_unit_test(false_greetings_make_no_link),
        cmocka_unit_test(silence_makes_no_link),
        cmocka_unit_test(two_ends_with_a_secret_meet),
        cmocka_unit_test(tls_without_a_secret_does_not_meet),
        cmocka_unit_test(two_connections_do_not_meet),
        cmocka_unit_test(two_namespaces_have_two_secrets),
        cmocka_unit_test(a_process_that_saw_the_name_is_passed_over),
        cmocka_unit_test(a_process_in_place_of_the_initiator_is_not_heard),
        cmocka_unit_test(an_end_without_the_peers_word_is_a_failure),
    };
    return cmocka_run_group_tests_name("soft_meeting", tests, nullptr, nullptr);
}
