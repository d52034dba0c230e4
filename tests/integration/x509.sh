#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# --x509 FILE has a command use certificates of a CA. When something is wrong with one of them, both sides say so, and
# nothing reaches the store.
. "$(dirname "$0")/server.bash"

certificates=$(dirname "$peer")/test_certificates
"$certificates" . store writer=client reader=client || die "certificates"
head -c 1M /dev/urandom >content
head -c 1M /dev/urandom >other

# The name in a certificate says what its host may do.
start_server served --x509 store --allow push=writer,pull=reader
bounded "$rpma" push --x509 writer content "$address" >stdout 2>stderr || die "push with the writer's certificate"
bounded "$rpma" pull --x509 reader "$address" got >stdout 2>stderr || die "pull with the reader's certificate"
cmp got content || die "another content"
bounded "$rpma" check --x509 reader "$address" >stdout 2>stderr || die "check"
grep -q '^verdict *rpma serve, of version 4, over TLS' stdout || die "check: $(cat stdout)"
refused_with 6 'refused: the identity reader may not push (--allow)' "$rpma" push --x509 reader other "$address"
logged 'refused a client from 127.0.0.1 (reader): the identity reader may not push (--allow)'
stop_server
refused_with 2 'excludes' "$rpma" check --x509 reader --psk reader "$address"
refused_with 2 'expected a file of certificates' "$rpma" status --x509 '' "$address"

# says TEXT CLIENT SERVER_TEXT: a client with this certificate is refused with the text, and the server says its own.
says() {
    refused_with 7 "$1" "$rpma" push --x509 "$2" other "$address"
    logged "$3"
}

# The server refuses these clients.
"$certificates" . old=expired new=early alone=self far=foreign wrong=server nameless=nameless listed=client || die "certificates"
echo 'client listed' >>store
start_server served --x509 store
says "the server refuses the certificate $PWD/old.pem: it expired on " old 'the certificate of the client old expired on '
says "the server refuses the certificate $PWD/new.pem: it is not valid before " new 'the certificate of the client new is not valid before '
says "$PWD/alone.pem: it is not issued by a CA that is trusted there" alone "the certificate of the client alone is self-signed, and not issued by the CA of $PWD/store"
says "$PWD/far.pem: it is not issued by a CA that is trusted there" far "the certificate of the client far is not issued by the CA of $PWD/store"
says "$PWD/wrong.pem: it is not for this side; expected the extendedKeyUsage clientAuth" wrong 'the certificate of the client wrong is not for clients (expected the extendedKeyUsage clientAuth)'
says "$PWD/writer.pem: it has not the name or the address that is expected there; its name is writer" writer 'the client writer is not let in (expected a line "client writer" in '
"$rpma" keygen writer key || die "keygen"
refused_with 7 'the server uses a certificate, and not the key of identity writer' "$rpma" push --psk key other "$address"
refused_with 7 'refused' "$rpma" push other "$address"
logged 'the client does not speak TLS'
refused 'expected a name of DNS in the certificate' "$rpma" push --x509 nameless other "$address"
bounded "$rpma" pull --x509 listed "$address" got >stdout 2>stderr || die "pull by a client that is listed"
cmp got content || die "a refused push changed the content"
stop_server

# The client refuses these servers. The server reads its files again for each of them.
"$certificates" . server=server || die "certificates"
cp server present
start_server served --x509 present
bounded "$rpma" status --x509 writer "$address" >stdout 2>stderr || die "status"
# becomes KIND TEXT SERVER_TEXT
becomes() {
    "$certificates" . "server=$1" || die "a certificate that is $1"
    refused_with 7 "$2" "$rpma" push --x509 writer other "$address"
    logged "$3"
}
mine=$PWD/server.pem
becomes expired 'the certificate of the server server expired on ' "the client refuses the certificate $mine: it expired on "
becomes early 'the certificate of the server server is not valid before ' "the client refuses the certificate $mine: it is not valid before "
becomes self "the certificate of the server server is self-signed, and not issued by the CA of $PWD/writer" "$mine: it is not issued by a CA that is trusted there"
becomes foreign "the certificate of the server server is not issued by the CA of $PWD/writer" "$mine: it is not issued by a CA that is trusted there"
becomes client 'the certificate of the server server is not for servers' "$mine: it is not for this side; expected the extendedKeyUsage serverAuth"
becomes elsewhere 'the certificate of the server server does not have its address' "$mine: it has not the name or the address that is expected there; its name is server"
# A name that the client lists is in place of the address.
cp writer named
echo 'server server' >>named
bounded "$rpma" pull --x509 named "$address" got >stdout 2>stderr || die "pull from the server of that name"
cmp got content || die "a refused push changed the content"
echo 'server another' >>writer
refused_with 7 'the server is server, which is not wanted (expected a line "server server" in ' "$rpma" status --x509 writer "$address"
stop_server

# Nobody serves with files that do not fit, or that others may use.
cp reader.key server.key
refused_with 2 "server.key: expected the private key of $mine" "$rpma" serve --store served --x509 present
refused_with 2 "server.key: expected the private key of $mine" "$rpma" status --x509 present 127.0.0.1:1
refused_with 2 "server.key: expected the private key of $mine" "$rpma" check --x509 present
bounded "$rpma" check --x509 writer >stdout 2>stderr || die "check of files"
chmod 640 server.key
refused 'others than its owner may use' "$rpma" serve --store served --x509 present
refused 'absent: No such file or directory' "$rpma" serve --store served --x509 absent
echo 'colour red' >>present
refused 'line 4: expected ca FILE, certificate FILE' "$rpma" serve --store served --x509 present
