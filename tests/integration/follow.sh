#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `rpma serve --follow`: a server that keeps what another one has. It takes new contents under their sequences, also after either
# was killed or stopped, sends only blocks that differ, keeps what it has when its leader is gone, damaged or another, and takes
# no push.
. "$(dirname "$0")/server.bash"

# The leader keeps its port. A follower that is started again does too.
start_server leader --keep 4
leader=$server leader_port=$port leader_address=$address
follow() { # follow STORE [OPTION...]: sets server, port and address
    start_server "$1" --follow "$leader_address" --metrics METRICS "${@:2}"
}
lead() { # starts the leader again
    : >leader.out
    "$rpma" serve --store leader --listen "$leader_address" --keep 4 >>leader.out 2>leader.err &
    leader=$!
    helpers+=($leader)
    until grep -q '^listening' leader.out; do kill -0 $leader || die "the leader: $(cat leader.err)"; done
}
end_leader() { # end_leader SIGNAL
    kill "-$1" $leader
    wait $leader 2>/dev/null || true
}
to_leader() { bounded "$rpma" push "$1" "$leader_address/$2" "${@:3}" >stdout 2>stderr || die "push $*"; }
# listed ADDRESS: what a list has beside faults
listed() { bounded "$rpma" list "$1" --json | python3 -c '
import json, sys
for one in json.load(sys.stdin)["contents"]:
    print(one["name"], one["sequence"], one["time"], one["bytes"], one["checksum"], one["host"], one["label"], one["tag"])'; }
# is_current: the follower has all that its leader lists
is_current() { listed "$leader_address" >theirs && listed "$address" >ours && cmp -s theirs ours; }

# A follower takes the newest contents of each name, as many as it keeps, with their notes, and then those that come.
for i in 1 2 3 4; do
    head -c 300000 /dev/urandom >first
    to_leader first first --label "the $i" --incremental
done
: >nothing
to_leader nothing other
follow follower --keep 4
until is_current; do :; done
pulled first "$address/first"
cp server.out follower.out
grep -q "^committed *first: content 4, 300000 bytes, .*, from 127.0.0.1" server.out || die "no commit is told: $(cat server.out)"
bounded "$rpma" status "$address" >stdout 2>stderr || die "the status of one that has all"
grep -q "^follows *$leader_address: has all that it keeps, as of [0-9]* seconds ago" stdout || die "status: $(cat stdout)"
bounded "$rpma" status "$address" --json >stdout 2>stderr || die "status --json"
grep -q '"follows":{"behind_bytes":0,"behind_contents":0,"leader":"'"$leader_address"'","seconds":[0-9]*}' stdout || die "JSON: $(cat stdout)"
[ "$(metric rpma_behind_contents)" = 0 ] && [ "$(metric rpma_behind_bytes)" = 0 ] || die "metrics"
[ "$(metric rpma_leader_seconds)" -lt 100 ] || die "metrics"
ls -A follower/first >stdout
for file in 1 2 3 4 .4.blocks; do grep -qxF $file stdout || die "expected $file: $(cat stdout)"; done

# It takes nothing from anybody else, and is no server of a register.
refused_with 6 "this server follows $leader_address" "$rpma" push first "$address/first"
refused_with 6 'this server follows' "$rpma" rollback "$address/first"
refused_with 6 'this server follows' "$rpma" push --quorum 1 first "$address/first"

# Blocks that differ travel, and those alone.
before=$(metric rpma_stored_bytes_total)
printf 'changed' | dd of=first bs=1 seek=70000 conv=notrunc status=none
to_leader first first --incremental
until is_current; do :; done
pulled first "$address/first"
after=$(metric rpma_stored_bytes_total)
[ $((after - before)) -eq 65536 ] || die "$((after - before)) bytes came, expected 65536"
bounded "$rpma" rollback "$leader_address/other" >stdout 2>stderr && die "a rollback to no content"
to_leader first other
bounded "$rpma" rollback "$leader_address/other" >stdout 2>stderr || die "rollback"
until is_current; do :; done
pulled first "$address/first"
pulled nothing "$address/other"
[ ! -e follower/first/1 ] || die "it keeps more than --keep"

# A content that is damaged here comes again under its sequence, once that is found. A file without a note is not replaced.
newest=$(listed "$address/first" | tail -n 1 | cut -d ' ' -f 2)
truncate -s 5 "follower/first/$newest"
status_says "first: content $newest has 5 bytes (expected 300000)" || die "a content that was cut off: $(cat stdout)"
until bounded "$rpma" status "$address" >stdout 2>stderr; do :; done
pulled first "$address/first"
rm "follower/first/$newest"
status_says "first: content $newest was deleted" || die "a content that was deleted: $(cat stdout)"
until bounded "$rpma" status "$address" >stdout 2>stderr; do :; done
pulled first "$address/first"
stop_server
printf damaged | dd of="follower/first/$newest" bs=1 seek=100 conv=notrunc status=none
follow follower --keep 4
until bounded "$rpma" pull "$address/first" got >stdout 2>stderr; do :; done
cmp got first || die "a content that was damaged"
is_current || die "the follower has other contents: $(cat ours)"
bounded "$rpma" check --store follower >stdout || die "check: $(cat stdout)"
stop_server
python3 -c 'import os, sys; os.removexattr(sys.argv[1], "user.rpma")' "follower/first/$newest"
follow follower --keep 4
until status_says "first: content $newest has no note that can be read"; do :; done
cmp "follower/first/$newest" first || die "a file without a note"
stop_server
rm "follower/first/$newest"
follow follower --keep 4
until is_current; do :; done
pulled first "$address/first"

# A name that has tags.
to_leader first tagged --quorum 1
until is_current; do :; done
refused_with 6 'this server follows' "$rpma" pull "$address/tagged" "$leader_address/tagged" got

# The leader is killed: what there is is served, and the status says that nothing new comes. It is back: all is taken.
end_leader KILL
until status_says "refused: no server of a store is there"; do :; done
[ "$(wc -l <stderr)" -eq 1 ] || die "status: $(cat stderr)"
pulled first "$address/first"
lead
head -c 200000 /dev/urandom >second
to_leader second new
until is_current; do :; done
pulled second "$address/new"
until bounded "$rpma" status "$address" >stdout 2>stderr; do :; done

# The follower is killed.
kill -KILL "$server"
wait "$server" 2>/dev/null || true
server=
head -c 8000000 /dev/urandom >large
to_leader large large
to_leader second new
follow follower --keep 4
until is_current; do :; done
pulled large "$address/large"

# One that keeps fewer takes the newest.
stop_server
follow fewer --keep 1
until status_says 'has all that it keeps'; do :; done
pulled first "$address/first"
[ "$(find fewer/first -name '[0-9]*' | wc -l)" -eq 1 ] || die "it keeps more than one"
stop_server

# The newest content of the leader is damaged: the follower keeps the one before, and says why. A name of the leader goes:
# the follower keeps it. An older store of the leader is not followed.
end_leader TERM
cp -a leader older
lead
to_leader second first
follow follower --keep 4
until is_current; do :; done
stop_server
to_leader first first
sequence=$(listed "$leader_address/first" | tail -n 1 | cut -d ' ' -f 2)
end_leader TERM
printf damaged | dd of="leader/first/$sequence" bs=1 seek=100 conv=notrunc status=none
rm -r leader/new
lead
until ! bounded "$rpma" status "$leader_address" >stdout 2>stderr; do :; done # it has found the damage
follow follower --keep 4
until status_says "first: content $sequence cannot be pulled: there it is damaged"; do :; done
pulled second "$address/first"
pulled second "$address/new"
status_says "$leader_address: lacks 1 contents, 300000 bytes, as of" || die "status: $(cat stdout)"
[ "$(metric rpma_behind_contents)" = 1 ] && [ "$(metric rpma_behind_bytes)" = 300000 ] && [ "$(metric rpma_behind_faults)" = 1 ] ||
    die "metrics"
to_leader second first # the damaged one is left out
until [ "$(bounded "$rpma" list "$address/first" --json | grep -o '"sequence":[0-9]*' | tail -n 1)" = "\"sequence\":$((sequence + 1))" ]; do :; done
end_leader TERM
rm -r leader
mv older leader
lead
until status_says "first: content $((sequence + 1)) is here, and the leader's newest content is"; do :; done
pulled second "$address/first"
for i in 1 2 3; do to_leader large first; done
until status_says "first: content $((sequence + 1)) is another one there"; do :; done
pulled second "$address/first"
to_leader large another
until bounded "$rpma" pull "$address/another" got >stdout 2>stderr; do :; done
cmp got large || die "another name is not followed"

# A block of the follower's own content is damaged: it is not built on.
to_leader first blocks --incremental
until bounded "$rpma" pull "$address/blocks" got >stdout 2>stderr; do :; done
printf damaged | dd of=follower/blocks/1 bs=1 seek=150000 conv=notrunc status=none
printf 'changed again' | dd of=first bs=1 seek=1000 conv=notrunc status=none
to_leader first blocks --incremental
until bounded "$rpma" pull "$address/blocks" got --sequence 2 >stdout 2>stderr; do :; done
cmp got first || die "a damaged block is in the next content"

# Another store comes in the place of the leader's, and its sequences are past the follower's. Nothing is taken of it, and nothing
# removed for it, until somebody says so.
cp follower/.leader before
[ "$(cat before)" = "$(cat leader/.identity)" ] || die "it follows $(cat before)"
ls follower/first >first.before
end_leader TERM
mv leader old_leader
lead
for i in $(seq $((sequence + 6))); do to_leader second first; done
to_leader large fresh
until status_says "$leader_address: has another store than the one that was followed; remove"; do :; done
ls follower/first | cmp -s - first.before || die "it has $(ls follower/first), and had $(cat first.before)"
[ ! -e follower/fresh ] || die "it takes from another store"
pulled second "$address/first"
rm follower/.leader
until bounded "$rpma" pull "$address/fresh" got >stdout 2>stderr; do :; done
cmp got large || die "it does not follow the other store"
cmp -s follower/.leader leader/.identity || die "it follows $(cat follower/.leader)"

# No room. A content that can never have room is left out, and the next of its name comes.
stop_server
follow small --max-bytes 1M
until status_says 'fresh: content 1 has 8000000 bytes, and one here may have 1048576 (--max-bytes)'; do :; done
to_leader second fresh
until bounded "$rpma" pull "$address/fresh" got >stdout 2>stderr; do :; done
cmp got second || die "the content after one that is too large"
for name in a b c d; do to_leader first $name; done
until status_says 'content 1 has no room here: --max-bytes'; do :; done
stop_server

# A leader tells more than a follower with so few names has memory for: nothing is taken. One with more names takes it.
end_leader TERM
python3 -c 'import json, os
os.mkdir("leader/many")
note = {"bytes": 0, "checksum": "crc32c:00000000", "time": "", "host": "h" * 1900, "identity": "", "label": ""}
for sequence in range(1, 1101):
    path = "leader/many/%d" % sequence
    open(path, "w").close()
    os.setxattr(path, "user.rpma", json.dumps(note).encode())'
lead
follow short --max-names 100
until status_says "$leader_address: has 2"; do :; done # and more digits
status_says 'bytes to tell (expected at most 1867776)' || die "status: $(cat stdout)"
[ -z "$(ls short)" ] || die "it has taken $(ls short)"
stop_server
follow short --max-names 200
until bounded "$rpma" pull "$address/many" got >stdout 2>stderr; do :; done
stop_server

# All names of the leader are gone: the follower says so, and keeps what it has.
end_leader TERM
rm -r leader/*
lead
follow follower --keep 4
until status_says "$leader_address: has no content, and this store has"; do :; done
pulled second "$address/new"
stop_server
grep -qF 'the leader was emptied' server.err || die "the server does not say it"

# No leader at the start: a line of the log says so once, and not with each attempt. One says that it is back.
end_leader TERM
RPMA_LOG=file:$work/all.log:warning follow follower --keep 4
pulled second "$address/new"
until status_says 'refused: no server of a store is there'; do :; done
until [ "$(grep -c 'no connection with' all.log)" -ge 4 ]; do :; done
[ "$(grep -c 'no connection with' server.err)" -le 2 ] || die "one line for each attempt"
lead
to_leader second again
until bounded "$rpma" pull "$address/again" got >stdout 2>stderr; do :; done
until grep -qF "follows $leader_address again" server.err; do :; done
stop_server
end_leader TERM

# Two that follow one another have nobody who takes pushes.
start_server one
one=$address
stop_server
follow_one=$leader_address leader_address=$one
follow two
leader_address=$follow_one
"$rpma" serve --store one --listen "$one" --follow "$address" >one.out 2>one.err &
helpers+=($!)
until status_says "$one: follows this server, or the chain of servers that follow one another is longer than 8"; do :; done
stop_server
refused_with 2 'no:such:address: an IPv6 address is written in brackets' "$rpma" serve --store none --follow no:such:address
[ ! -e none ] || die "a store was made"
