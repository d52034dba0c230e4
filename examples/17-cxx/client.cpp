// SPDX-License-Identifier: BSD-3-Clause
//
// 17-cxx, client: writes an array into the server's memory, flushes it, and reads it back, in C++.
//
//     client ADDR PORT
//
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <rpma.hpp>
#include <vector>

namespace {

// Returns the next completion; the completion of a failed operation is a failure.
rpma::expected<void> completed(rpma::completions queue) {
    const auto completion = queue.next();
    if (!completion) {
        return std::unexpected{completion.error()};
    }
    if (completion->status != IBV_WC_SUCCESS) {
        std::fprintf(stderr, "client: an operation failed: status %d of enum ibv_wc_status\n",
                     static_cast<int>(completion->status));
        return std::unexpected{rpma::error{RPMA_E_PROVIDER}};
    }
    return {};
}

rpma::expected<void> established(rpma::connection &connection) {
    const auto event = connection.next_event();
    if (!event) {
        return std::unexpected{event.error()};
    }
    if (*event != RPMA_CONN_ESTABLISHED) {
        std::fprintf(stderr, "client: %s\n", rpma_utils_conn_event_2str(*event));
        return std::unexpected{rpma::error{RPMA_E_PROVIDER}};
    }
    return {};
}

rpma::expected<void> replicate(const rpma::peer &peer, rpma::connection &connection) {
    std::vector<int> numbers(1024);
    std::vector<int> back(numbers.size());
    std::iota(numbers.begin(), numbers.end(), 1);

    const auto source = peer.reg(std::as_writable_bytes(std::span{numbers}), RPMA_MR_USAGE_WRITE_SRC);
    const auto sink = peer.reg(std::as_writable_bytes(std::span{back}), RPMA_MR_USAGE_READ_DST);
    const auto remote = rpma::remote_region::from(connection.private_data());
    for (const int code : {source ? 0 : source.error().code(), sink ? 0 : sink.error().code(),
                           remote ? 0 : remote.error().code()}) {
        if (code != 0) {
            return std::unexpected{rpma::error{code}};
        }
    }
    if (remote->size() < source->bytes().size()) {
        std::fprintf(stderr, "client: the server offers %zu bytes (expected: at least %zu)\n", remote->size(),
                     source->bytes().size());
        return std::unexpected{rpma::error{RPMA_E_INVAL}};
    }

    // Three operations are under way at once. The device keeps their order, so the last completion stands for
    // all.
    const auto there = remote->part(0, source->bytes().size());
    for (const auto &posted :
         {connection.write(there, source->all(), nullptr, RPMA_F_COMPLETION_ON_ERROR),
          connection.flush(there, RPMA_FLUSH_TYPE_VISIBILITY, nullptr, RPMA_F_COMPLETION_ON_ERROR),
          connection.read(sink->all(), there)}) {
        if (!posted) {
            return posted;
        }
    }
    if (const auto done = completed(connection.queue()); !done) {
        return done;
    }
    if (back != numbers) {
        std::fprintf(stderr, "client: what was read back is not what was written\n");
        return std::unexpected{rpma::error{RPMA_E_UNKNOWN}};
    }
    std::printf("%zu numbers are on the server\n", numbers.size());
    return {};
}

rpma::expected<void> run(const char *address, const char *port) {
    const auto peer = rpma::peer::towards(address);
    if (!peer) {
        return std::unexpected{peer.error()};
    }
    auto request = peer->request(address, port);
    if (!request) {
        return std::unexpected{request.error()};
    }
    auto connection = std::move(*request).connect();
    if (!connection) {
        return std::unexpected{connection.error()};
    }
    auto result = established(*connection);
    if (result) {
        result = replicate(*peer, *connection);
    }
    if (result) {
        result = connection->disconnect();
    }
    return result;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return 1;
    }
    // Lets the library print its warnings and errors on standard error too.
    (void)rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING);
    const auto result = run(argv[1], argv[2]);
    if (!result) {
        std::fprintf(stderr, "client: %s\n", result.error().text());
    }
    return result ? 0 : 1;
}
