// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/page: one page over HTTP/1, in a thread of its own. Whoever reaches its address may connect as
// often as they like, and send what they like and as slowly: each connection has a time for all of it, no
// connection waits for another, and of too many the oldest goes, one of the origin that has most.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.hpp"
#include "base/origin.hpp"
#include "cli/failure.hpp"

namespace cli {

class Page {
public:
    using Clock = std::chrono::steady_clock;

    struct Form {
        std::string path;  // such as /metrics
        std::string type;  // of the text, as in HTTP
        // Makes the text, in the page's thread. Those who ask at once get the same.
        std::function<std::string()> text;
        Clock::duration patience = std::chrono::seconds{10};  // with a connection, for all that it does
        std::size_t most = 128;                               // connections
    };

    // Answers at a socket that listens, until this is destroyed.
    [[nodiscard]] static Outcome<std::unique_ptr<Page>> start(base::Fd listener, Form form);
    Page(const Page &) = delete;
    Page &operator=(const Page &) = delete;
    // Waits for the text that is being made.
    ~Page();

private:
    struct Reader {
        base::Fd socket;
        base::Origin origin;
        Clock::time_point until;
        std::string request{};  // NOLINT(readability-redundant-member-init): g++ wants one where it is made
        std::string answer{};   // NOLINT(readability-redundant-member-init): as above; empty until it is made
        std::size_t sent = 0;   // bytes of the answer
        bool is_over = false;

        [[nodiscard]] bool sends() const { return sent < answer.size(); }
    };

    Page(base::Fd listener, Form form);
    void run();
    // Waits for an event or the end of somebody's time. Returns whether this goes on.
    [[nodiscard]] bool wait();
    void accept_readers();
    void make_room();
    void receive(Reader &reader);
    [[nodiscard]] std::string answer_to(const std::string &request, std::string &text) const;
    static void send(Reader &reader);

    base::Fd listener_;
    Form form_;
    base::Fd stop_;
    std::vector<Reader> readers_;     // the oldest is first
    Clock::time_point accepts_from_;  // later than now after there was no descriptor for a connection
    std::thread thread_;
};

}  // namespace cli
