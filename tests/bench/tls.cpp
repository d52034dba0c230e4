// SPDX-License-Identifier: BSD-3-Clause
// bench_tls bandwidth BLOCK BYTES | round-trip ROUNDS BYTES | handshakes COUNT: prints for scripts what
// OpenSSL alone reaches over the same loopback, in bytes a second, seconds, and handshakes a second of both
// ends. It uses TLS 1.3 with a key that both ends have, X25519 and AES-128-GCM, as the soft device does.
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "../loopback.hpp"
#include "../shared_key.hpp"
#include "bench.hpp"

namespace {

using bench::area_bytes;

SSL_CTX *context() {
    SSL_CTX *const one = test::context_of_one_key();
    if (one == nullptr) {
        bench::die("OpenSSL");
    }
    return one;
}

// A connection whose handshake is done. Its socket blocks.
class Stream {
public:
    Stream(int socket, bool serves) : socket_{socket}, ssl_{SSL_new(context())} {
        const int on = 1;
        (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (ssl_ == nullptr || SSL_set_fd(ssl_, socket) != 1 ||
            (serves ? SSL_accept(ssl_) : SSL_connect(ssl_)) != 1) {
            bench::die("the handshake");
        }
    }
    ~Stream() {
        (void)SSL_shutdown(ssl_);
        SSL_free(ssl_);
        close(socket_);
    }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    void send(const char *from, std::size_t size) {
        std::size_t written = 0;
        if (SSL_write_ex(ssl_, from, size, &written) != 1 || written != size) {
            bench::die("SSL_write");
        }
    }
    // Returns how many bytes came; 0 at the end.
    std::size_t receive(char *to, std::size_t size) {
        std::size_t got = 0;
        return SSL_read_ex(ssl_, to, size, &got) == 1 ? got : 0;
    }
    bool receive_all(char *to, std::size_t size) {
        for (std::size_t done = 0; done < size;) {
            const std::size_t got = receive(to + done, size - done);
            if (got == 0) {
                return false;
            }
            done += got;
        }
        return true;
    }
    // Looks until the bytes are there, without sleeping.
    bool receive_spinning(char *to, std::size_t size) {
        for (std::size_t done = 0; done < size;) {
            char byte = 0;
            while (SSL_pending(ssl_) == 0 && recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
                   errno == EAGAIN) {
            }
            const std::size_t got = receive(to + done, size - done);
            if (got == 0) {
                return false;
            }
            done += got;
        }
        return true;
    }

private:
    int socket_;
    SSL *ssl_;
};

int listening(std::uint16_t &port) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = test::loopback(0);
    socklen_t size = sizeof(address);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), size) != 0 || listen(listener, 16) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr *>(&address), &size) != 0) {
        bench::die("listen");
    }
    port = ntohs(address.sin_port);
    return listener;
}

int connected(std::uint16_t port) {
    const int made = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = test::loopback(port);
    if (connect(made, reinterpret_cast<const sockaddr *>(&address), sizeof(address)) != 0) {
        bench::die("connect");
    }
    return made;
}

// Serves `count` connections in another process, one after the other.
template <class Serve>
bench::PeerProcess peer(std::size_t count, const Serve &serve) {
    return bench::PeerProcess{[=](const auto &tell) {
        std::uint16_t port = 0;
        const int listener = listening(port);
        tell(port);
        for (std::size_t number = 0; number < count; ++number) {
            Stream stream{accept(listener, nullptr, nullptr), true};
            serve(stream);
        }
    }};
}

double bandwidth(std::size_t block, std::size_t total) {
    const auto other = peer(1, [=](Stream &stream) {
        std::vector<char> area(area_bytes);
        for (std::size_t received = 0; received < total;) {
            const std::size_t offset = received % area_bytes;
            const std::size_t got =
                stream.receive(area.data() + offset, std::min(block, area_bytes - offset));
            if (got == 0) {
                _exit(EXIT_FAILURE);
            }
            received += got;
        }
        stream.send("d", 1);
    });
    Stream stream{connected(other.port()), false};
    const std::vector<char> area(area_bytes, 'x');
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t sent = 0; sent < total;) {
        const std::size_t offset = sent % area_bytes;
        const std::size_t bytes = std::min({block, total - sent, area_bytes - offset});
        stream.send(area.data() + offset, bytes);
        sent += bytes;
    }
    char answer = 0;
    if (!stream.receive_all(&answer, 1)) {
        bench::die("the answer");
    }
    return static_cast<double>(total) / bench::seconds_since(start);
}

double round_trip(std::size_t rounds, std::size_t size) {
    const auto other = peer(1, [=](Stream &stream) {
        std::vector<char> bytes(size);
        while (stream.receive_spinning(bytes.data(), size)) {
            stream.send(bytes.data(), size);
        }
    });
    Stream stream{connected(other.port()), false};
    std::vector<char> bytes(size);
    std::chrono::steady_clock::time_point start;
    for (std::size_t round = 0; round < rounds + rounds / 10; ++round) {
        if (round == rounds / 10) {
            start = std::chrono::steady_clock::now();  // warm
        }
        stream.send(bytes.data(), size);
        if (!stream.receive_spinning(bytes.data(), size)) {
            bench::die("round trip");
        }
    }
    return bench::seconds_since(start) / static_cast<double>(rounds);
}

double handshakes(std::size_t count) {
    const auto other = peer(count, [](Stream &) {});
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t number = 0; number < count; ++number) {
        const Stream stream{connected(other.port()), false};
    }
    return static_cast<double>(count) / bench::seconds_since(start);
}

}  // namespace

int main(int argc, char **argv) {
    const std::span arguments{argv, static_cast<std::size_t>(argc)};
    const std::string_view what = argc > 2 ? arguments[1] : "";
    if (what == "bandwidth" && argc == 4) {
        fmt::print("{}\n", bandwidth(bench::number(arguments[2]), bench::number(arguments[3])));
    } else if (what == "round-trip" && argc == 4) {
        fmt::print("{}\n", round_trip(bench::number(arguments[2]), bench::number(arguments[3])));
    } else if (what == "handshakes" && argc == 3) {
        fmt::print("{}\n", handshakes(bench::number(arguments[2])));
    } else {
        fmt::print(stderr,
                   "usage: bench_tls bandwidth BLOCK BYTES | round-trip ROUNDS BYTES | handshakes COUNT\n");
        return 2;
    }
    return 0;
}
