// SPDX-License-Identifier: BSD-3-Clause
#include "cli/serve/page.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "cli/thread.hpp"

namespace cli {

namespace {

// A request has a line and headers of at most so many bytes.
constexpr std::size_t longest_request = std::size_t{16} << 10;
// After there was no descriptor for a connection, the next try comes so much later.
constexpr auto rest = std::chrono::milliseconds{100};

std::string answer_of(std::string_view status, std::string_view type, std::string_view text, bool has_text) {
    return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                       status, type, text.size(), has_text ? text : "");
}

std::string refusal(std::string_view status) {
    return answer_of(status, "text/plain; charset=utf-8", fmt::format("{}\n", status), true);
}

// Takes a word off the line, and the space behind it.
std::string_view take_word(std::string_view &line) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    return word;
}

bool is_whole(std::string_view request) {
    return request.contains("\r\n\r\n") || request.contains("\n\n");
}

}  // namespace

Page::Page(base::Fd listener, Form form)
    : listener_{std::move(listener)}, form_{std::move(form)}, stop_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {}

Outcome<std::unique_ptr<Page>> Page::start(base::Fd listener, Form form) {
    std::unique_ptr<Page> page{new Page{std::move(listener), std::move(form)}};
    if (!page->stop_) {
        return failed("eventfd: {}", errno_text(errno));
    }
    page->thread_ = TRY(start_thread([raw = page.get()] { raw->run(); }));
    return page;
}

Page::~Page() {
    (void)eventfd_write(stop_.get(), 1);
    if (thread_.joinable()) {
        thread_.join();
    }
}

void Page::run() {
    while (wait()) {
        std::string text;  // of this turn
        for (Reader &reader : readers_) {
            if (reader.answer.empty() && is_whole(reader.request)) {
                reader.answer = answer_to(reader.request, text);
            }
            if (reader.sends()) {
                send(reader);
            }
        }
        const auto now = Clock::now();
        std::erase_if(readers_,
                      [now](const Reader &reader) { return reader.is_over || now >= reader.until; });
        if (now >= accepts_from_) {
            accept_readers();
        }
    }
}

bool Page::wait() {
    const bool accepts = Clock::now() >= accepts_from_;
    std::vector<pollfd> waiting{{stop_.get(), POLLIN, 0}, {accepts ? listener_.get() : -1, POLLIN, 0}};
    auto until = accepts ? Clock::time_point::max() : accepts_from_;
    for (const Reader &reader : readers_) {
        waiting.push_back({reader.socket.get(), reader.sends() ? short{POLLOUT} : short{POLLIN}, 0});
        until = std::min(until, reader.until);
    }
    if (poll(waiting.data(), waiting.size(), base::poll_timeout(until)) < 0) {
        return errno == EINTR;
    }
    for (std::size_t place = 0; place < readers_.size(); ++place) {
        if (waiting[place + 2].revents != 0 && !readers_[place].sends()) {
            receive(readers_[place]);
        }
    }
    return waiting[0].revents == 0;
}

void Page::accept_readers() {
    for (std::size_t accepted = 0; accepted < form_.most; ++accepted) {
        sockaddr_storage address{};
        socklen_t size = sizeof(address);
        base::Fd socket{accept4(listener_.get(), reinterpret_cast<sockaddr *>(&address), &size,
                                SOCK_CLOEXEC | SOCK_NONBLOCK)};
        if (!socket && (errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        if (!socket) {
            accepts_from_ = errno == EAGAIN ? accepts_from_ : Clock::now() + rest;
            return;
        }
        if (readers_.size() >= form_.most) {
            make_room();
        }
        readers_.push_back({.socket = std::move(socket),
                            .origin = base::origin_of(address),
                            .until = Clock::now() + form_.patience});
    }
}

void Page::make_room() {
    base::Shares shares;
    for (const Reader &reader : readers_) {
        shares.add(reader.origin);
    }
    const auto has_most = [&, most = shares.most()](const Reader &reader) {
        return shares.of(reader.origin) == most;
    };
    readers_.erase(std::ranges::find_if(readers_, has_most));
}

// Takes some of the request; or, when it has its answer, what comes until the peer closes the connection: an
// end before that could take the answer away from the peer.
void Page::receive(Reader &reader) {
    std::array<char, 4096> bytes;
    const ssize_t got = recv(reader.socket.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) {
        reader.is_over = got == 0 || (errno != EAGAIN && errno != EINTR);
        return;
    }
    if (!reader.answer.empty()) {
        return;
    }
    reader.request.append(bytes.data(), static_cast<std::size_t>(got));
    if (!is_whole(reader.request) && reader.request.size() >= longest_request) {
        reader.answer = refusal("431 Request Header Fields Too Large");
    }
}

std::string Page::answer_to(const std::string &request, std::string &text) const {
    std::string_view line{request};
    line = line.substr(0, line.find_first_of("\r\n"));
    const std::string_view method = take_word(line);
    const std::string_view target = take_word(line);
    if (!line.starts_with("HTTP/1.")) {
        return refusal("400 Bad Request");
    }
    if (target.substr(0, target.find('?')) != form_.path) {
        return refusal("404 Not Found");
    }
    if (method != "GET" && method != "HEAD") {
        return refusal("405 Method Not Allowed");
    }
    if (text.empty()) {
        text = form_.text();
    }
    return answer_of("200 OK", form_.type, text, method == "GET");
}

void Page::send(Reader &reader) {
    const std::string_view left = std::string_view{reader.answer}.substr(reader.sent);
    const ssize_t sent = ::send(reader.socket.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0) {
        reader.is_over = errno != EAGAIN && errno != EINTR;
        return;
    }
    reader.sent += static_cast<std::size_t>(sent);
    if (!reader.sends()) {
        (void)shutdown(reader.socket.get(), SHUT_WR);
    }
}

}  // namespace cli
