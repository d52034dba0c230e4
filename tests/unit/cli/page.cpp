// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/page: what it answers, and that nobody who reaches it can keep others from it.
#include "cli/serve/page.hpp"

#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <string>

#include "../../loopback.hpp"
#include "bytes.hpp"

namespace {

constexpr auto for_ever = std::chrono::hours{1};
constexpr std::string_view wanted = "GET /page HTTP/1.1\r\nHost: x\r\n\r\n";

// A page at a port of its own.
struct Served {
    std::uint16_t port = 0;
    std::unique_ptr<cli::Page> page;

    explicit Served(cli::Page::Clock::duration patience, std::size_t most = 128, std::size_t bytes = 5) {
        sockaddr_in address = test::loopback(0);
        socklen_t size = sizeof(address);
        auto *const raw = reinterpret_cast<sockaddr *>(&address);
        base::Fd listener{socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
        assert_int_equal(bind(listener.get(), raw, size), 0);
        assert_int_equal(listen(listener.get(), SOMAXCONN), 0);
        assert_int_equal(getsockname(listener.get(), raw, &size), 0);
        port = ntohs(address.sin_port);
        page = cli::Page::start(std::move(listener), {.path = "/page",
                                                      .type = "text/plain",
                                                      .text = [bytes] { return std::string(bytes, 'a'); },
                                                      .patience = patience,
                                                      .most = most})
                   .value();
    }

    // Connects, and says this.
    [[nodiscard]] base::Fd connect(std::string_view text = {}) const {
        const sockaddr_in address = test::loopback(port);
        base::Fd one{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        const timeval patience{.tv_sec = 60, .tv_usec = 0};
        assert_int_equal(setsockopt(one.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
        assert_int_equal(::connect(one.get(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)),
                         0);
        say(one, text);
        return one;
    }

    static void say(const base::Fd &one, std::string_view text) {
        assert_int_equal(send(one.get(), text.data(), text.size(), MSG_NOSIGNAL), text.size());
    }
};

// Returns what came until the end of the connection.
std::string heard(const base::Fd &one) {
    std::string all;
    char bytes[4096];
    ssize_t got = 0;
    while ((got = recv(one.get(), bytes, sizeof(bytes), 0)) > 0) {
        all.append(bytes, static_cast<std::size_t>(got));
    }
    assert_true(got == 0 || errno == ECONNRESET);
    return all;
}

constexpr std::string_view answer =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\naaaaa";

void it_answers_requests(void **) {
    const Served served{for_ever};
    assert_true(heard(served.connect(wanted)) == answer);
    assert_true(heard(served.connect("GET /page?a=b HTTP/1.0\n\n")) == answer);
    assert_true(heard(served.connect("HEAD /page HTTP/1.1\r\n\r\n")) == answer.substr(0, answer.size() - 5));
    for (const auto &[request, status] :
         {std::pair<std::string, std::string>{"GET / HTTP/1.1\r\n\r\n", "404"},
          {"POST /page HTTP/1.1\r\n\r\n", "405"},
          {"GET /page\r\n\r\n", "400"},
          {"\r\n\r\n", "400"},
          {std::string(std::size_t{16} << 10, 'a'), "431"}}) {
        assert_true(heard(served.connect(request)).starts_with("HTTP/1.1 " + status));
    }
    const base::Fd slow = served.connect();
    for (const char &letter : wanted) {
        Served::say(slow, {&letter, 1});
    }
    assert_true(heard(slow) == answer);
}

void nobody_waits_for_others(void **) {
    const Served served{for_ever, 200};
    std::vector<base::Fd> others;
    for (int number = 0; number < 100; ++number) {
        others.push_back(served.connect(wanted.substr(0, wanted.size() / 2)));
    }
    assert_true(heard(served.connect(wanted)) == answer);
    for (const base::Fd &other : others) {
        Served::say(other, wanted.substr(wanted.size() / 2));
        assert_true(heard(other) == answer);
    }
}

void nobody_waits_for_those_who_do_not_read(void **) {
    constexpr std::size_t bytes = std::size_t{16} << 20;  // more than two sockets hold
    const Served served{for_ever, 200, bytes};
    const base::Fd deaf = served.connect(wanted);
    assert_true(heard(served.connect(wanted)).size() > bytes);
    assert_true(heard(deaf).size() > bytes);
}

void the_oldest_makes_room(void **) {
    const Served served{for_ever, 4};
    std::vector<base::Fd> all;
    for (int number = 0; number < 6; ++number) {
        all.push_back(served.connect());
    }
    assert_true(heard(all[0]).empty());
    assert_true(heard(all[1]).empty());
    for (std::size_t number = 2; number < all.size(); ++number) {
        Served::say(all[number], wanted);
        assert_true(heard(all[number]) == answer);
    }
}

// Each byte comes soon, and all of them never.
void a_connection_has_a_time_for_all_that_it_does(void **) {
    const Served served{std::chrono::milliseconds{200}};
    const base::Fd silent = served.connect();
    const base::Fd drips = served.connect("GET /");
    for (;;) {
        char byte = 0;
        const ssize_t got = recv(drips.get(), &byte, 1, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN) || send(drips.get(), "a", 1, MSG_NOSIGNAL) < 0) {
            break;
        }
        const timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};  // 16 KiB of header come too late
        nanosleep(&pause, nullptr);
    }
    assert_true(heard(silent).empty());
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(it_answers_requests), cmocka_unit_test(nobody_waits_for_others),
        cmocka_unit_test(nobody_waits_for_those_who_do_not_read), cmocka_unit_test(the_oldest_makes_room),
        cmocka_unit_test(a_connection_has_a_time_for_all_that_it_does)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
