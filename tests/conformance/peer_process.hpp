// SPDX-License-Identifier: BSD-3-Clause
// conformance/peer_process: a test runs one end of a connection in another process, which is this program
// with "peer" as its first argument. The process obeys one command a line on its standard input and answers
// each command with a line. In between it sleeps in read(), outside of the library.
//
//   listen                     listens; answers with the port
//   accept                     takes the next request with memory for everything; answers when established
//   connect PORT               connects; answers when established
//   poll COUNT                 polls its completion queue so often
//   wait                       blocks in the library until a completion is there
//   receive COUNT              posts so many receives of 64 bytes
//   write COUNT BYTES SEED     writes a pattern so often, side by side; answers when all are done
//   holds OFFSET BYTES SEED    answers "yes" when its memory has that pattern, or "no"
//   closed                     waits for the DISCONNECTED event
//   leave                      disconnects, destroys everything, returns from main; no answer
//   exit                       exit(), with everything as it is; no answer
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/fd.hpp"
#include "requests.hpp"

namespace conformance {

// Describes the memory of the other process. The description travels as private data.
struct RemoteRegion {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint32_t rkey = 0;

    static RemoteRegion of(const End &end);
    static RemoteRegion from(const std::string &private_data);
    [[nodiscard]] std::string text() const;
};
// Returns the request, aimed at this offset of the region.
Request aimed(Request request, const RemoteRegion &region, std::size_t offset);

class PeerProcess {
public:
    PeerProcess();
    // Ends the process, if it still runs.
    ~PeerProcess();
    PeerProcess(const PeerProcess &) = delete;
    PeerProcess &operator=(const PeerProcess &) = delete;

    void tell(const std::string &command);
    std::string answer();
    // Sends the command, and returns the answer.
    std::string ask(const std::string &command);
    void expect_ok(const std::string &command);
    // Stops the process, and waits until none of it runs.
    void stop();
    void go_on();
    void kill();
    // Waits for the end of the process, and asserts that its exit code is 0.
    void expect_good_end();

private:
    pid_t pid_ = -1;
    base::Fd commands_;
    FILE *answers_ = nullptr;
};

// The client is in this process, and its server in another one.
struct RemoteEnds {
    explicit RemoteEnds(const Sizes &sizes = {}) : client{sizes} {}
    void connect();

    PeerProcess peer;
    End client;
    RemoteRegion region;  // the server's memory
};

// The other process runs this instead of the suite. Returns its exit code.
int run_as_peer();

}  // namespace conformance
