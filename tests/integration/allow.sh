#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma serve --allow says what the client with each key may do. A client that asks for more is told so, and so is the
# server.
. "$(dirname "$0")/server.bash"

make_keys writer reader other
head -c 1M /dev/urandom >content
head -c 1M /dev/urandom >another
start_server store --psk keys --allow push=writer,pull=reader --allow pull=other,push=other

# asks_in_vain KEY VERB COMMAND...: it is refused, and the server's log says so.
asks_in_vain() {
    local key=$1 verb=$2
    shift 2
    refused_with 6 "refused: the identity $key may not $verb (--allow)" "$rpma" "$@" --psk "$key"
    logged "refused a client from 127.0.0.1 ($key): the identity $key may not $verb (--allow)"
}

bounded "$rpma" push --psk writer content "$address" >stdout 2>stderr || die "push by the writer"
bounded "$rpma" pull --psk reader "$address" got >stdout 2>stderr || die "pull by the reader"
cmp got content || die "the reader got another content"
asks_in_vain reader push push another "$address"
asks_in_vain writer pull pull "$address" not
[ ! -e not ] || die "a refused pull left a file"
asks_in_vain reader measure perf "$address" --count 1 --op write
asks_in_vain reader measure perf "$address" --count 1 --op flush
bounded "$rpma" perf --psk writer "$address" --count 1 --op flush --size 8 --depth 1 >stdout 2>stderr || die "perf by the writer"
for name in writer reader other; do
    bounded "$rpma" status --psk $name "$address" >stdout 2>stderr || die "status by $name"
    grep -q '^holds *1 name, 1048576 bytes' stdout || die "a refused push changed the content: $(cat stdout)"
done
bounded "$rpma" pull --psk other "$address" got >stdout 2>stderr || die "pull by one that may do both"
cmp got content || die "a refused push changed the content"
bounded "$rpma" push --psk other another "$address" >stdout 2>stderr || die "push by one that may do both"
for command in list status; do
    bounded "$rpma" $command --psk reader --json "$address" >stdout 2>stderr || die "$command --json"
    grep -Eq '"identity": ?"other"' stdout || die "$command --json does not say who pushed: $(cat stdout)"
done
stop_server

# A program that reads the events learns who did what, and when.
start_server store --psk keys --allow push=writer,pull=reader --json
bounded "$rpma" push --psk writer content "$address" >stdout 2>stderr || die "push by the writer"
asks_in_vain reader push push another "$address"
RPMA_TLS=psk:$PWD/writer bounded "$peer" no_commit 127.0.0.1 "$port" || die "no_commit"
bounded "$rpma" status --psk reader "$address" >stdout 2>stderr || die "status"
stop_server
# event NAME IDENTITY TEXT
event() {
    grep -Eq "^\\{\"event\":\"$1\",\"time\":\"20[0-9-]+T[0-9:]+Z\",\"host\":\"127.0.0.1\",\"identity\":\"$2\",.*$3" server.out ||
        die "no event $1: $(cat server.out)"
}
event committed writer '"sequence":3,"bytes":1048576,"checksum":"crc32c:'
event refused reader '"text":"refused a client from 127.0.0.1 .reader.: the identity reader may not push'
event aborted writer '"text":"a push from 127.0.0.1 .writer. ended without a commit: '

# Without the option each key lets its host do everything. The option without a word would let nobody do anything.
start_server store --psk keys
bounded "$rpma" push --psk reader content "$address" >stdout 2>stderr || die "push without --allow"
stop_server
refused_with 2 '--allow: expected --psk FILE or --x509 FILE too' "$rpma" serve --store served --allow push=writer
refused_with 2 '--allow: is empty (expected a value)' "$rpma" serve --store served --psk keys --allow ''
refused_with 2 '--allow [push=writer]: expected push=IDENTITY' "$rpma" serve --store served --psk keys --allow '[push=writer]'
for bad in push pull= =writer read=writer; do
    refused_with 2 'expected push=IDENTITY or pull=IDENTITY' "$rpma" serve --store served --psk keys --allow "push=writer,$bad"
done
