// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include "tls_links.hpp"

#include <openssl/ssl.h>

#include <utility>

#include "soft/tls/openssl.hpp"

#include "../../shared_key.hpp"

namespace test {

namespace {

using soft::TlsSession;

std::unique_ptr<TlsSession> session_over(soft::Link &link, bool client, std::uint64_t most_records) {
    assert_non_null(soft::OpenSsl::find());
    assert_non_null(context_of_one_key());
    std::unique_ptr<SSL, soft::SslFree> ssl{SSL_new(context_of_one_key())};
    assert_non_null(ssl.get());
    if (client) {
        SSL_set_connect_state(ssl.get());
    } else {
        SSL_set_accept_state(ssl.get());
    }
    return std::make_unique<TlsSession>(std::move(ssl), link, most_records);
}

}  // namespace

Links tls_over(Links links, std::uint64_t most_records) {
    auto here = session_over(*links.here, true, most_records);
    auto there = session_over(*links.there, false, most_records);
    auto client = TlsSession::Shake::Waits;
    auto server = TlsSession::Shake::Waits;
    while (client != TlsSession::Shake::Done || server != TlsSession::Shake::Done) {
        client = here->shake();
        server = there->shake();
        assert_true(client != TlsSession::Shake::Failed && server != TlsSession::Shake::Failed);
    }
    return {.here = std::make_unique<soft::TlsLink>(std::move(links.here), std::move(here)),
            .there = std::make_unique<soft::TlsLink>(std::move(links.there), std::move(there))};
}

Links tls_links() {
    return tls_over(tcp_links());
}

}  // namespace test
