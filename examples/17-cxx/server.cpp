// SPDX-License-Identifier: BSD-3-Clause
//
// 17-cxx, server: offers memory to a client, in C++. It does nothing while the client writes and flushes.
//
//     server ADDR PORT
//
#include <cstdio>
#include <rpma.hpp>
#include <vector>

namespace {

// Any step may fail. The first failure prints its reason and ends the run; owners destroy the objects.
rpma::expected<void> serve(const char *address, const char *port) {
    std::vector<int> numbers(1024);

    auto peer = rpma::peer::at(address);
    if (!peer) {
        return std::unexpected{peer.error()};
    }
    auto region =
        peer->reg(std::as_writable_bytes(std::span{numbers}),
                  RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
    if (!region) {
        return std::unexpected{region.error()};
    }
    auto endpoint = peer->listen(address, port);
    if (!endpoint) {
        return std::unexpected{endpoint.error()};
    }
    std::printf("listening on %s, port %s\n", address, port);
    std::fflush(stdout);

    auto request = endpoint->next();
    if (!request) {
        return std::unexpected{request.error()};
    }
    // The answer carries the descriptor of our memory, which the client needs.
    auto connection = std::move(*request).connect(region->descriptor());
    if (!connection) {
        return std::unexpected{connection.error()};
    }
    rpma_conn_event event = RPMA_CONN_UNDEFINED;
    while (event != RPMA_CONN_CLOSED) {
        const auto next = connection->next_event();
        if (!next) {
            return std::unexpected{next.error()};
        }
        event = *next;
        std::printf("%s\n", rpma_utils_conn_event_2str(event));
    }
    std::printf("the last number is %d\n", numbers.back());
    return connection->disconnect();
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s ADDR PORT\n", argv[0]);
        return 1;
    }
    // Lets the library print its warnings and errors on standard error too.
    (void)rpma_log_set_threshold(RPMA_LOG_THRESHOLD_AUX, RPMA_LOG_LEVEL_WARNING);
    const auto result = serve(argv[1], argv[2]);
    if (!result) {
        std::fprintf(stderr, "server: %s\n", result.error().text());
    }
    return result ? 0 : 1;
}
