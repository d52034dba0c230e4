#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests standard input and output in the place of files, what a pull must not destroy, and the exit codes of a push.
. "$(dirname "$0")/server.bash"

head -c 3M /dev/urandom >content
start_server store --keep 1 --max-bytes 7M
(head -c 2M content && cat content content) >larger
refused_with 6 'standard input: has more than 7340032 bytes' "$rpma" push - "$address" <larger
grep -q 'nothing was committed' stderr || die "expected no commit"
refused_with 6 'larger: has 8388608 bytes (the server takes at most 7340032)' "$rpma" push larger "$address"

# Streams may have any length for which there is room; the pipe is slower than the transfer.
for size in 0 1 1048576 1048577 3145728; do
    head -c $size content | bounded "$rpma" push - "$address" --allow-empty >stdout 2>stderr || die "push - of $size bytes"
    grep -q "^bytes *$size$" stdout || die "the summary of $size bytes"
    bounded "$rpma" pull "$address" - 2>stderr | cmp - <(head -c $size content) || die "pull - of $size bytes"
    grep -q "^bytes *$size$" stderr || die "expected the summary on standard error"
done
pulled content

# A log that standard output is appended to keeps what it has.
for path in /dev/stdout /dev/fd/1 /proc/self/fd/1 -; do
    echo kept >log
    inode=$(stat -c %i log)
    bounded "$rpma" pull "$address" $path >>log 2>stderr || die "pull $path"
    [ "$(stat -c %i log)" = "$inode" ] || die "pull $path replaced what standard output was"
    cmp log <(echo kept && cat content) || die "pull $path destroyed the log"
done
ln -s /dev/stdout link
bounded "$rpma" pull "$address" link 2>stderr | cmp - content || die "a link to /dev/stdout"
[ -L link ] || die "the link was replaced"

# A pull that is killed, whatever the signal, leaves nothing behind. It has the file open when the server, which
# is stopped, does not answer.
mkdir empty
kill -STOP "$server"
for signal in HUP TERM KILL; do
    "$rpma" pull "$address" empty/file 2>stderr &
    puller=$!
    helpers+=($puller)
    for ((i = 0; i < 2000; i++)); do
        [ -z "$(find "/proc/$puller/fd" -lname "$work/empty/*" 2>/dev/null)" ] || break
        sleep 0.005
    done
    [ $i -lt 2000 ] || die "the pull does not begin its file"
    kill -$signal $puller
    wait $puller 2>/dev/null || true
    [ -z "$(ls -A empty)" ] || die "SIG$signal leaves $(ls -A empty)"
done

# The server does not answer: the pull ends soon after its time is over.
before=$(date +%s%N)
refused_with 7 'no answer for 1 seconds' "$rpma" pull "$address" got --timeout 1
[ $((($(date +%s%N) - before) / 1000000)) -lt 2500 ] || die "--timeout 1 took $((($(date +%s%N) - before) / 1000000)) ms"
kill -CONT "$server"
pulled content

# The exit codes are in the JSON output too.
json() { # json CODE OUTCOME COMMAND...
    refused_with "$1" '' "${@:3}" --json
    grep -q "^{\"error\":\".*\",\"outcome\":\"$2\",\"exit\":$1[,}]" stdout || die "expected $2 in JSON: $(cat stdout)"
}
json 2 usage "$rpma" push content "$address" --wiat 1
json 1 failed "$rpma" push absent "$address"
json 6 refused "$rpma" push larger "$address"
json 7 unreachable "$rpma" push content no-such-host.invalid
grep -q 'no-such-host.invalid: unknown host' stderr || die "expected the host"
refused_with 2 'fe80::1: needs its interface, such as fe80::1%' "$rpma" push content '[fe80::1]'
mkfifo held
"$peer" hold 127.0.0.1 "$port" >held &
holder=$!
helpers+=($holder)
read -t 60 -r line <held || die "hold"
json 5 busy "$rpma" push content "$address" --wait 0
grep -Eq 'another push is under way, from 127.0.0.1 for [0-9]+ seconds' stderr || die "expected who pushes, since when"
before=$(date +%s%N)
json 5 busy "$rpma" push content "$address" --wait 0.5
[ $((($(date +%s%N) - before) / 1000000)) -ge 500 ] || die "--wait 0.5 did not wait"
"$rpma" push content "$address" --wait 60 >stdout 2>stderr &
waiter=$!
helpers+=($waiter)
kill -KILL $holder
wait $waiter || die "a push that waits for another is refused"
grep -q '^durable *yes (' stdout || die "expected what makes it durable"
stop_server
json 7 unreachable "$rpma" pull "$address" got
