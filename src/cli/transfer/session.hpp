// SPDX-License-Identifier: BSD-3-Clause
// cli/transfer/session: a client's connection to a server, the one-sided operations on the content that the
// server offers, and the requests by message.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "cli/histogram.hpp"
#include "cli/mapping.hpp"
#include "cli/transfer/client_connection.hpp"

namespace cli {

// One thread uses it. It waits for operations in order; posting one waits for a free place in the send queue.
// Every wait ends when nothing happens for the timeout, and at SIGINT and SIGTERM (see end_waits_on_signals).
class Session {
public:
    using Clock = ClientConnection::Clock;
    using Operation = std::uint64_t;  // counts the operations of a session, from 1

    // Local memory for operations: `depth` chunks.
    static constexpr std::size_t chunk_size = std::size_t{1} << 20;
    static constexpr std::size_t depth = 16;
    static_assert(depth * chunk_size == window_size, "each place in the window has one in local memory");

    // Connects. When the offer's status is Busy, the offer has the reason and nothing else.
    [[nodiscard]] static Outcome<std::unique_ptr<Session>> open(const Address &address, const Hello &hello,
                                                                double timeout_seconds);
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;
    ~Session() { close(); }

    [[nodiscard]] const std::string &device() const { return device_.name; }
    [[nodiscard]] const Offer &offer() const { return offer_; }
    // Has the server make room for a content of this length. No operation is under way afterwards. A failure
    // with Exit::Refused says that there is no room.
    [[nodiscard]] Outcome<> reserve(std::uint64_t length);

    // Returns local memory, at most a chunk, for the next bytes of a push. Waits until the server has stored
    // what was there.
    [[nodiscard]] Outcome<std::span<std::byte>> next_chunk();
    // Writes the first bytes of that memory into the server's window, and has the server store them at this
    // offset of the content.
    [[nodiscard]] Outcome<> store(std::uint64_t offset, std::span<const std::byte> local);

    // Reads parts of the content and gives their bytes to `take` in order, with their offset. The server
    // learns meanwhile that the client is active.
    struct Range {
        std::uint64_t offset;
        std::uint64_t length;
    };
    using Take = std::function<Outcome<>(std::span<const std::byte>, std::uint64_t)>;
    [[nodiscard]] Outcome<> read_ranges(std::span<const Range> ranges, const Take &take);
    // Does so with the content from its beginning, and returns the checksum of the bytes.
    [[nodiscard]] Outcome<std::uint32_t> read_all(std::uint64_t length, const Take &take);
    // Tells the server that the client is active, unless a message said so recently. A push that stores too
    // little is ended all the same.
    [[nodiscard]] Outcome<> keep_alive();

    [[nodiscard]] Outcome<> wait_for_all() { return wait_for(posted_); }

    // Has the server give the content this tag, and waits for its answer. A push does it before anything
    // else.
    [[nodiscard]] Outcome<Answer> give_tag(const Tag &tag, std::uint64_t length, std::uint32_t checksum);

    // Has the server commit the written content, and waits for its answer, which is the server's decision.
    // After a failure it is unknown whether the server commits.
    [[nodiscard]] Outcome<Answer> commit(std::uint64_t length, std::uint32_t checksum,
                                         const std::string &label);

    // Has the server commit an earlier content again, and waits for its answer.
    [[nodiscard]] Outcome<Answer> roll_back(std::uint64_t sequence);

    // Has the server make a text (Ask::Look), and reads it. A push does it before anything else; its content
    // has this length, and the offset may be look_to_resume. So does a pull. Fails when the text is longer
    // than `longest`.
    [[nodiscard]] Outcome<std::string> look(std::uint64_t longest, std::uint64_t length = 0,
                                            std::uint64_t offset = 0);

    // Returns how long the server took to store the portions, until its answers came.
    [[nodiscard]] const Histogram &store_times() const { return store_times_; }

    // Closes the connection.
    void close() { server_.close(); }

private:
    Session(const Address &address, double timeout_seconds) : server_{address, timeout_seconds} {}
    [[nodiscard]] Outcome<> allocate();
    [[nodiscard]] Outcome<> take_offer(Mode mode);
    [[nodiscard]] std::size_t local_offset(std::span<const std::byte> local) const;
    [[nodiscard]] Outcome<> wait_for_place();
    // These move bytes between `offset` of the server's region and local memory in chunks, which must not
    // change meanwhile.
    [[nodiscard]] Outcome<Operation> read(std::span<std::byte> local, std::uint64_t offset);
    [[nodiscard]] Outcome<Operation> write(std::uint64_t offset, std::span<const std::byte> local);
    // Waits until this operation, and all before it, have completed.
    [[nodiscard]] Outcome<> wait_for(Operation operation);
    [[nodiscard]] Outcome<Operation> ask(const Request &request);
    [[nodiscard]] Outcome<Operation> posted(int result, const char *what);
    [[nodiscard]] Outcome<bool> reap();
    void complete(Operation operation);
    [[nodiscard]] Outcome<> listen_for_answer(std::size_t place);
    [[nodiscard]] Outcome<> take_answer(std::size_t place);

    // The requests are after the chunks, then the answers. One more answer than requests says why the server
    // ends the connection.
    static constexpr std::size_t most_answers = most_requests + 1;
    static constexpr std::size_t requests_offset = depth * chunk_size;
    static constexpr std::size_t answers_offset = requests_offset + most_requests * sizeof(RequestBytes);

    DevicePeer device_;
    Mapping memory_;
    LocalRegion local_;
    ClientConnection server_;
    rpma_cq *completions_ = nullptr;  // the connection's
    Offer offer_;
    std::uint64_t put_ = 0;                  // bytes of a push that went into the window
    std::array<Operation, depth> stores_{};  // the last from each chunk

    Operation posted_ = 0;
    Operation completed_ = 0;  // with all before it
    // There is room for a write of each chunk, and for the requests between them.
    static constexpr std::uint32_t queue_size = 2 * depth;
    std::bitset<queue_size> done_;  // completed before their turn, modulo queue_size
    struct Asked {
        Operation operation;
        Ask ask;
        Clock::time_point since;
    };
    std::deque<Asked> asked_;  // requests without an answer
    std::uint64_t asked_count_ = 0;
    Clock::time_point last_asked_ = Clock::now();
    Answer answer_;  // the last answer
    Histogram store_times_;
};

}  // namespace cli
