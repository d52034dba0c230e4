#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A server whose newest content is damaged takes no push while one would overwrite the other content, which is good: the
# push, the status and the server say why, and what to do. What is said of a pool after a push that did not end is true.
. "$(dirname "$0")/server.bash"

head -c 1M /dev/urandom >first
head -c 1M /dev/urandom >second
size=$((3 << 20))

# abandoned TEXT: a push begins and does not commit, and the server says what the pool has.
abandoned() {
    bounded "$peer" no_commit 127.0.0.1 "$port" || die "no_commit"
    bounded "$rpma" status "$address" >stdout 2>stderr || true
    grep -q "a push from 127.0.0.1\\( (.*)\\)\\? ended without a commit: .*; $1\$" server.err || die "expected: $1"
}
# damage SLOT: a byte of that slot's content changes.
damage() { printf '\0\377' | dd of=pool bs=1 seek=$((16384 + $1 * size + 5000)) conv=notrunc status=none; }

start_server pool 3M
abandoned 'the pool still has no content'
push first
abandoned 'the pool still has content 1'
push second
stop_server

# The other content is good.
damage 1
start_server pool 3M
grep -q '^holds *content 2, .*, DAMAGED$' server.out || die "the start does not say it: $(cat server.out)"
grep -qF 'content 2 is damaged: storage has another checksum' server.err || die "the server does not say it"
grep -qF 'rpma check --pool ./pool --use-other-slot commits' server.err || die "the server does not say what to do"
why='content 2 is damaged, and a push would overwrite content 1, which is good: stop the server, and commit that content with rpma check --pool FILE --use-other-slot'
refused_with 6 "$address: refused: $why" "$rpma" push first "$address"
refused_with 6 "$address: refused: $why" "$rpma" perf "$address" --op flush --time 1
refused_with 6 'content 2 is damaged; rpma check --use-other-slot commits content 1' "$rpma" status "$address"
grep -q '^storage *content 2 is damaged; ' stdout || die "the status does not say it: $(cat stdout)"
refused 'is damaged: its checksum is wrong' "$rpma" pull "$address" got
stop_server
refused 'which --use-other-slot commits' "$rpma" check --pool pool

# Somebody has chosen.
bounded "$rpma" check --pool pool --use-other-slot >stdout 2>stderr || die "check"
start_server pool 3M
bounded "$rpma" status "$address" >stdout 2>stderr || die "the status after the choice"
pulled first
push second
pulled second
stop_server

# No content is good, so a push overwrites none.
damage 0
damage 1
start_server pool 3M
refused_with 6 'content 2 is damaged; a push replaces it' "$rpma" status "$address" --json
grep -q '"storage":"content 2 is damaged; a push replaces it"' stdout || die "the status does not say it: $(cat stdout)"
abandoned 'the pool still has content 2, which is damaged'
push first
bounded "$rpma" status "$address" >stdout 2>stderr || die "the status after a push"
pulled first
stop_server

# There was no content before the damaged one.
rm pool
start_server pool 3M
push first
stop_server
damage 0
start_server pool 3M
push second
pulled second

# A pool that is deleted or truncated while it is served is no longer one that a push could go to.
truncate -s 8192 pool
refused_with 6 'the pool is truncated: it has 8192 bytes' "$rpma" status "$address"
rm pool
refused_with 6 'the pool was deleted' "$rpma" status "$address" --json
grep -q '"storage":"the pool was deleted' stdout || die "the status does not say it: $(cat stdout)"
stop_server
