#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A store keeps the last contents of a name: they are listed, pulled and committed again. A push can say what it expects.
. "$(dirname "$0")/server.bash"

for file in a b c d e; do
    head -c 1M /dev/urandom >$file
done
: >empty

# listed SEQUENCES [NAME]: the contents of a name are these.
listed() {
    bounded "$rpma" list "$address/${2:-default}" >stdout 2>stderr || die "list"
    [ "$(awk 'NR > 1 { printf "%s%s", sep, $2; sep = " " }' stdout)" = "$1" ] || die "expected $1: $(cat stdout)"
}

start_server store --keep 3 --max-bytes 6M
bounded "$rpma" list "$address" >stdout || die "list of nothing"
grep -qx 'no contents' stdout || die "expected none: $(cat stdout)"
refused_with 6 'has no content other' "$rpma" list "$address/other"
for file in a b c; do
    bounded "$rpma" push "$file" "$address" --label "the file $file" >stdout || die "push $file"
done
listed '1 2 3'
sum=$(bounded "$rpma" push c "$address/other" | sed -n 's/^checksum *//p')
grep -q " 1048576 *$sum *127.0.0.1 .*the file c" stdout || die "no checksum, host or label: $(cat stdout)"
bounded "$rpma" list "$address" --json >stdout || die "list --json"
[ "$(grep -o '"name":"[a-z]*"' stdout | tr '\n' ' ')" = '"name":"default" "name":"default" "name":"default" "name":"other" ' ] ||
    die "list of all: $(cat stdout)"

# The oldest goes when a new one comes.
push d
listed '2 3 4'
[ ! -e store/default/1 ] || die "content 1 stays"
bounded "$rpma" pull "$address" got --sequence 2 >stdout || die "pull of content 2"
cmp got b || die "content 2 has other bytes"
refused_with 6 'default has no content 1 (expected one of 2 to 4)' "$rpma" pull "$address" got --sequence 1

# An earlier content becomes the newest, and takes no other bytes.
bounded "$rpma" rollback "$address" --sequence 2 >stdout || die "rollback"
grep -q '^sequence *5$' stdout || die "another sequence: $(cat stdout)"
pulled b
listed '2 3 4 5' # 2 and 5 are one file, which --keep counts once
grep -q '^default *5 .* the file b$' stdout || die "another label: $(cat stdout)"
refused_with 6 'has no content before content 2' "$rpma" rollback "$address"
bounded "$rpma" rollback "$address" --sequence 4 >stdout || die "rollback to content 4"
pulled d
listed '2 3 4 5 6'
[ store/default/4 -ef store/default/6 ] || die "the rollback has copied the content"
# The night before the one that was rolled back to, and so on.
bounded "$rpma" rollback "$address" >stdout || die "rollback to the one before"
grep -q '^from *3$' stdout || die "it is another one: $(cat stdout)"
pulled c
bounded "$rpma" rollback "$address" >stdout || die "rollback to the one before that"
pulled b
refused_with 6 'has no content 1 (rpma list)' "$rpma" rollback "$address" --sequence 1
refused_with 6 'has no content before content 1' "$rpma" rollback "$address/other"
grep -q '^committed *default: content 8, 1048576 bytes' server.out || die "the server says nothing: $(cat server.out)"

# A push says which sequence it expects.
refused_with 6 'the newest content is 8 (expected 5: --if-sequence)' "$rpma" push a "$address" --if-sequence 5
refused_with 6 'the newest content is 0 (expected 3: --if-sequence)' "$rpma" push a "$address/new" --if-sequence 3
bounded "$rpma" push a "$address" --if-sequence 8 >stdout || die "push --if-sequence"
bounded "$rpma" push a "$address/new" --if-sequence 0 >stdout || die "push of the first"
refused_with 3 'has 1048576 bytes (expected at least 2M: --min-size); nothing was committed' "$rpma" push b "$address" --min-size 2M
bounded "$rpma" push b "$address" --min-size 1M >stdout || die "push --min-size"
refused_with 3 'standard input: has no bytes (expected --allow-empty' "$rpma" push - "$address" </dev/null
bounded "$rpma" push - "$address/empty" --allow-empty </dev/null >stdout || die "push --allow-empty"
push empty "$address/empty"
refused_with 2 '--label: expected at most 64 bytes' "$rpma" push a "$address" --label "$(printf '%065d' 0)"

# The output of a program counts only when the program succeeds.
bounded "$rpma" push "$address" --run cat b >stdout || die "push --run"
pulled b
refused_with 3 'sh: ended with 3 (expected 0); nothing was committed' "$rpma" push "$address" --run sh -c 'cat a; exit 3'
refused_with 3 'sh: ended by signal 9 (expected 0); nothing was committed' "$rpma" push "$address" --run sh -c 'cat a; kill -KILL $$'
refused_with 3 'true: has no bytes' "$rpma" push "$address" --json --run true
refused_with 127 'no-such-program: cannot run it: No such file' "$rpma" push "$address" --run no-such-program
refused_with 2 'A program behind --run is required' "$rpma" push "$address" --run
refused_with 2 '--run: expected one ADDRESS, and no FILE' "$rpma" push a "$address" --run cat b
pulled b

# A push that ends without its program ends it, and what that has started. A push that is killed ends the program.
mkfifo ended
for signal in TERM INT KILL; do
    # shellcheck disable=SC2016
    setsid "$rpma" push "$address" --run sh -c 'cat a; exec 9>ended; [ $0 = KILL ] || sleep 300 & exec sleep 300' $signal >stdout 2>stderr &
    pusher=$!
    helpers+=($pusher)
    exec 8<ended # the push has read most of `a`
    kill -$signal $pusher
    timeout 60 cat <&8 || die "a program outlives a push that ended by SIG$signal"
    exec 8<&-
    wait $pusher && die "the push was ended by SIG$signal, and succeeded"
done
pulled b

# The store is full, for a file and for a program without end, and has room again.
head -c 5M /dev/zero >five
refused_with 6 'the server has room for ' "$rpma" push five "$address"
refused_with 6 'the server has room for ' "$rpma" push "$address" --run cat /dev/zero
stop_server
before="$(ls store | wc -l) names, $(find store -type f ! -name .measured ! -name .identity -printf '%i %s\n' | sort -u | awk '{ bytes += $2 } END { print bytes }') bytes"
start_server store --keep 3 --max-bytes 6M
grep -q "^holds *$before$" server.out || die "expected $before: $(cat server.out)"
stop_server
start_server store --keep 1 --max-bytes 6M
push c
listed 12 # after it, what has to go is gone
[ "$(ls store/default)" = 12 ] || die "more than one stays: $(ls store/default)"
head -c 3M /dev/zero >three
push three "$address/third"
stop_server
