#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Storage fails once during a push: on its bytes, on its file, or on the name that it gets. The pusher is told what
# happened, nobody sees what is not durable, and a device that has failed takes no push until the server is started again.
# A full one takes the next. The first argument is an rpma with storage that fails on purpose (failing_storage.cpp).
agent=$(realpath "$(dirname "$0")/../../src/cli/serve/rpma-serve.ocf")
. "$(dirname "$0")/server.bash"
export RPMA_TEST_FAILURE=$work/failure RPMA_TEST_NO_FILE=$work/no_file RPMA_TEST_NO_REGION=$work/no_region RPMA_TEST_SLOW=$work/slow

# monitor: Pacemaker's agent looks at the server of the folder `store`.
monitor() {
    echo "$server" >rpma-serve-default.pid
    HA_RSCTMP=$work OCF_RESKEY_rpma=$rpma OCF_RESKEY_store=$work/store OCF_RESKEY_listen=$address \
        bounded "$agent" monitor >stdout 2>stderr
}

head -c 300000 /dev/urandom >first
head -c 200000 /dev/urandom >second
after=([1]='nothing was committed' [2]='nothing was committed' [3]='the server has the old content or the new')
for run in 1 2 3 '3 --resume'; do
    read -ra options <<<"$run"
    call=${options[0]}
    options=("${options[@]:1}")
    rm -rf store
    start_server "$work/store"
    push first
    monitor || die "the monitor of good storage"
    echo "$call 5" >failure
    refused 'the server could not make the' "$rpma" push second "${options[@]}" "$address"
    grep -qF "durable: Input/output error; ${after[call]}" stderr || die "failure at $call: expected ${after[call]}"
    [ ! -e failure ] || die "storage was not asked $call times"
    grep -qF 'cannot make it durable: Input/output error; no push is taken until' server.err || die "the server does not say it"
    # The kernel reports the error only once.
    refused_with 6 'Input/output error; it takes no push until it is started again' "$rpma" push second "$address"
    refused_with 6 'it takes no push until it is started again' "$rpma" push second "$address/other"
    refused_with 6 'failed: Input/output error' "$rpma" status "$address"
    code=0
    monitor || code=$?
    [ $code -eq 1 ] || die "the monitor of storage that failed ended with $code, expected 1"
    grep -q 'ocf-exit-reason:.*failed: Input/output error' stderr || die "expected the reason"
    pulled first
    [ "$(grep -c '^committed' server.out)" -eq 1 ] || die "a commit was announced: $(cat server.out)"
    stop_server
    [ ! -e store/default/.partial ] || die "the file of a commit is left as that of a push"
    bounded "$rpma" check --store store >stdout 2>stderr || die "a content is not good"
    start_server store
    if [ "$call" -lt 3 ]; then pulled first; else pulled first second; fi
    push second
    pulled second
    # A full disk ends this push alone.
    echo '3 28' >failure # two portions come first
    refused 'No space left on device; nothing was committed' "$rpma" push first "$address"
    bounded "$rpma" status "$address" >stdout 2>stderr || die "a full disk is taken for a broken one"
    push first
    pulled first
    stop_server
done

# A content has its name, and there is no room, quota or memory to make that durable: it was not committed, and the next push
# of the name, which has the same sequence, is.
start_server store
push first
for error in 28 122 12; do
    echo "3 $error" >failure # the bytes and the file come first
    refused '; nothing was committed' "$rpma" push second "$address"
    [ ! -e failure ] || die "storage was not asked"
    pulled first
    push second
    pulled second
    push first
done
bounded "$rpma" status "$address" >stdout 2>stderr || die "storage is well"
stop_server
bounded "$rpma" check --store store >stdout 2>stderr || die "a content is not good"

# The file system does not tell how much room there is: that is not none.
export RPMA_TEST_NO_ROOM=$work/no_room
start_server store --metrics METRICS
unset RPMA_TEST_NO_ROOM
touch no_room
refused_with 6 'the file system does not tell how much room there is: Input/output error' "$rpma" status "$address"
grep -q '^room *unknown$' stdout || die "the status: $(cat stdout)"
scraped
! grep -q '^rpma_free_bytes ' metrics || die "a metric of no room: $(cat metrics)"
rm no_room
bounded "$rpma" status "$address" >stdout 2>stderr || die "the room is known again"
scraped
grep -q '^rpma_free_bytes [1-9]' metrics || die "no metric of the room: $(cat metrics)"
stop_server

# The file system takes no change any more: monitors learn it before a push does.
export RPMA_TEST_READ_ONLY=$work/read_only
start_server store --metrics METRICS
unset RPMA_TEST_READ_ONLY
touch read_only
refused_with 6 "cannot have another file: Read-only file system" "$rpma" status "$address"
scraped
grep -qxF 'rpma_faults{kind="store"} 1' metrics || die "no metric of it: $(grep faults metrics)"
rm read_only
bounded "$rpma" status "$address" >stdout 2>stderr || die "the file system can be written again: $(cat stderr)"
stop_server

# The kernel reports lost bytes once, so a commit after a failure would succeed, of bytes that are nowhere.
start_server store
for error in 5 28; do
    echo "1 $error" >failure
    bounded "$peer" commit_after_failure 127.0.0.1 "$port" || die "bytes that are not durable were committed"
    pulled first
    stop_server
    start_server store
done

# A disk is slow for one name, whose pusher waits or is gone: nobody else waits for it, and no pull does.
for pusher_is in waiting gone; do
    mkfifo slow
    "$rpma" push second "$address/slow" >pusher.out 2>pusher.err &
    pusher=$!
    helpers+=($pusher)
    exec {disk}>slow
    rm slow
    push first "$address/other"
    pulled first "$address/other"
    pulled first
    if [ $pusher_is = waiting ]; then
        exec {disk}>&-
        wait $pusher || die "the push of a slow disk: $(cat pusher.err)"
        pulled second "$address/slow"
    else
        kill -KILL $pusher
        wait $pusher 2>/dev/null || true
        push first "$address/slow"
        exec {disk}>&-
        pulled first "$address/slow"
    fi
done

# A client that measures flushes writes, and leaves without a flush: nobody waits until its bytes are stored.
mkfifo slow
exec {disk}<>slow
bounded "$peer" measure_and_leave 127.0.0.1 "$port" || die "measure_and_leave"
bounded "$rpma" status "$address" --timeout 20 >stdout 2>stderr || die "the server waits for the disk"
pulled first
rm slow
exec {disk}>&-
push second
pulled second

# The server has no memory for a pusher's region, also for one that commits although it was refused; or it has no file.
touch no_region
refused_with 6 'cannot register 16777216 bytes' "$rpma" push first "$address"
[ ! -e no_region ] || die "no region was asked for"
touch no_region
bounded "$peer" refused_commit 127.0.0.1 "$port" || die "refused_commit"
touch no_file
refused_with 3 'Too many open files; nothing was committed' "$rpma" push first "$address"
[ ! -e no_file ] || die "no file was asked for"
pulled second
push first
pulled first
stop_server

# The bytes that a push has left cannot be read: they go, and storage has not failed. The folder of a name, which was made for what is
# left, is made durable before its first content.
export RPMA_TEST_NO_READ=$work/no_read
start_server cut
unset RPMA_TEST_NO_READ
for name in unread folder; do
    mkfifo slow
    "$rpma" push --resume second "$address/$name" >pusher.out 2>pusher.err &
    pusher=$!
    helpers+=($pusher)
    exec {disk}>slow
    rm slow
    kill -KILL $pusher
    wait $pusher 2>/dev/null || true
    exec {disk}>&-
    until [ -s cut/$name/.partial.blocks ]; do :; done
done
touch no_read
refused_with 3 'the server cannot build on what it has' "$rpma" push --resume second "$address/unread"
[ ! -e no_read ] || die "nothing was read"
bounded "$rpma" push --resume second "$address/unread" >stdout 2>stderr || die "a push after one that could not be read"
pulled second "$address/unread"
echo '3 5' >failure # the bytes and the file come first
refused 'Input/output error; nothing was committed' "$rpma" push second "$address/folder"
[ ! -e failure ] || die "storage was not asked"
stop_server

# A file system that shares blocks has the new file have all bytes of the newest content at once. They are verified before the
# commit, so no content has what is damaged below good checksums, or what cannot be read.
export RPMA_TEST_CLONES=$work/clones RPMA_TEST_NO_READ=$work/no_read
start_server clones
unset RPMA_TEST_CLONES RPMA_TEST_NO_READ
touch clones
head -c 200000 /dev/urandom >file
bounded "$rpma" push file "$address" --incremental >stdout 2>stderr || die "push --incremental"
sequence=1
for damage in 'printf XXXX | dd of="clones/default/$sequence" bs=1 seek=70000 conv=notrunc status=none' 'touch no_read'; do
    head -c 10 /dev/urandom | dd of=file conv=notrunc status=none
    eval "$damage"
    refused_with 3 'the server cannot build on what it has' "$rpma" push file "$address" --incremental
    refused_with 6 "content $sequence is damaged: its block at 65536" "$rpma" status "$address"
    for sent in 200000 65536; do # what is known to be damaged is no base
        head -c 10 /dev/urandom | dd of=file conv=notrunc status=none
        bounded "$rpma" push file "$address" --incremental --json >stdout 2>stderr || die "push --incremental"
        grep -q "\"sent\":$sent," stdout || die "expected $sent bytes: $(cat stdout)"
        sequence=$((sequence + 1))
        pulled file
    done
    bounded "$rpma" status "$address" >stdout 2>stderr || die "the newest content is good"
done
# A read that is interrupted is done again. One for which there is no memory ends the push, and says nothing of the content.
head -c 10 /dev/urandom | dd of=file conv=notrunc status=none
echo 4 >no_read
bounded "$rpma" push file "$address" --incremental --json >stdout 2>stderr || die "push --incremental after EINTR: $(cat stderr)"
[ ! -e no_read ] || die "nothing was read"
grep -q '"sent":65536,' stdout || die "expected 65536 bytes: $(cat stdout)"
pulled file
cp file other
head -c 10 /dev/urandom | dd of=other conv=notrunc status=none
echo 12 >no_read
! bounded "$rpma" push other "$address" --incremental >stdout 2>stderr || die "a push that could not read"
[ ! -e no_read ] || die "nothing was read"
bounded "$rpma" status "$address" >stdout 2>stderr || die "the newest content is good: $(cat stderr)"
pulled file
stop_server

# A server that was killed may have left names that are not on storage. The next one tells nobody of a content whose name it
# cannot make durable, and does not start when that is so of a folder. Where the file system makes all names durable with one
# call, it waits for that call, and not for each name.
start_server left
push first
push first "$address/second"
push first "$address/third"
stop_server
export RPMA_TEST_FILE_SYSTEM=0x6969 # NFS, which leaves that call undone
echo '1 5' >failure
start_server left
[ ! -e failure ] || die "no name was made durable"
refused_with 6 'content 1 cannot be made durable: Input/output error' "$rpma" pull "$address" got
stop_server
echo '4 5' >failure
refused_with 1 'store left: cannot be made durable: Input/output error' "$rpma" serve --store left --listen "127.0.0.1:$port"
export RPMA_TEST_FILE_SYSTEM=0xEF53 # ext4
echo '2 5' >failure
refused_with 1 'store left: cannot be made durable: Input/output error' "$rpma" serve --store left --listen "127.0.0.1:$port"
echo '3 5' >failure
start_server left
[ -e failure ] || die "names are made durable one by one"
stop_server
echo '1 5' >failure
start_server left # the one call failed: each name is made durable
[ ! -e failure ] || die "names are not made durable at once"
pulled first
stop_server
unset RPMA_TEST_FILE_SYSTEM

# Storage does not open the files of one name: a list waits for it, a pull is told so, a push that is cut off ends, and nobody
# else waits. A status tells what is known.
start_server store
push first "$address/slow"
push first "$address/hurt"
python3 -c 'import os; os.removexattr("store/hurt/1", "user.rpma")'
mkfifo slow_name
export RPMA_TEST_SLOW_NAME=$work/slow_name
stop_server
rm slow_name # it opens each name at its start
start_server store --metrics METRICS
mkfifo source
"$rpma" push - "$address/slow" <source >stdout 2>stderr &
pusher=$!
helpers+=($pusher)
exec {input}>source
rm source
until grep -q '^pushes *slow from 127.0.0.1' stdout; do
    bounded "$rpma" status "$address" >stdout 2>stderr || true
done
mkfifo slow_name
"$rpma" list "$address" >listed 2>stderr &
lister=$!
helpers+=($lister)
exec {disk}>slow_name
"$rpma" pull "$address/slow" slow_got >slow.out 2>slow.err &
puller=$!
helpers+=($puller)
kill -KILL $pusher
wait $pusher 2>/dev/null || true
exec {input}>&-
until grep -q 'a push from 127.0.0.1 ended without a commit: .*; slow still has content [0-9]*$' server.err; do :; done
refused_with 6 'hurt: content 1 ' "$rpma" status "$address"
grep -q '^holds *4 names' stdout && grep -q '^room *unknown$' stdout || die "the status: $(cat stdout)"
push second "$address/other"
pulled second "$address/other"
bounded "$rpma" list "$address/other" >stdout 2>stderr || die "a list of another name"
refused_with 6 'hurt: content 1 ' "$rpma" status --json "$address"
for told in '"free_bytes":null' '"kind":"damaged"' '"kind":"slow"' 'storage has not told for 5 seconds which contents are good'; do
    grep -qF "$told" stdout || die "expected $told: $(cat stdout)"
done
kill -0 $lister || die "the list did not wait: $(cat listed)"
for again in 1 2; do
    scraped
    for told in 'rpma_names 4' 'rpma_pushes_total 1' 'rpma_faults{kind="slow"} 1' 'rpma_faults{kind="damaged"} 1'; do
        grep -qxF "$told" metrics || die "scrape $again does not tell $told: $(cat metrics)"
    done
done
code=0
wait $puller || code=$?
# On a slow machine the answer may come too late for it.
case $code in
6) grep -q 'storage has not opened it for 5 seconds$' slow.err ;;
*) [ $code -eq 7 ] && grep -q 'no answer' slow.err ;;
esac || die "the pull of the slow name ended with $code: $(cat slow.err)"
grep -q 'refused a client from 127.0.0.1: storage has not opened it for' server.err || die "the server does not say it"
rm slow_name
exec {disk}>&-
wait $lister || die "the list"
grep -q '^slow *1 ' listed || die "expected the slow name: $(cat listed)"
stop_server

# A signal ends a server that reads its store still.
mkfifo slow_name
"$rpma" serve --store store --listen "$address" >server.out 2>server.err &
server=$!
exec {disk}>slow_name
kill -TERM "$server"
rm slow_name
exec {disk}>&-
code=0
wait "$server" || code=$?
server=
[ $code -eq 0 ] && [ ! -s server.out ] || die "a server that was ended at its start ended with $code: $(cat server.out)"

# Storage does not make the file in which clients measure: nobody else waits for that.
export RPMA_TEST_SLOW_ALLOCATION=$work/slow_allocation
start_server store
unset RPMA_TEST_SLOW_ALLOCATION
mkfifo slow_allocation
measurers=()
for client in 1 2 3; do # as many as the threads that one address may have of storage
    "$peer" measure_and_leave 127.0.0.1 "$port" >stdout 2>measured$client.err &
    measurers+=($!)
done
helpers+=("${measurers[@]}")
exec {disk}>slow_allocation
for again in 1 2 3 4 5; do # by then all of them are there
    pulled first "$address/slow"
done
rm slow_allocation
exec {disk}>&-
for client in 1 2 3; do
    wait "${measurers[client - 1]}" || [ -s measured$client.err ] || die "measure_and_leave" # its time may have ended
done
stop_server

# The pages of one content do not come: only those who pull it wait, nobody waits for the end of their connections, and the
# next one gets the right bytes when storage answers. userfaultfd(2) is for those who may trace processes.
if python3 -c 'import ctypes; exit(ctypes.CDLL(None).syscall(323, 0o2000000) < 0)'; then
    export RPMA_TEST_SLOW_PAGES=$work/slow_pages
    start_server store --idle-limit 3
    mkfifo slow_pages
    exec {disk}<>slow_pages
    "$rpma" pull "$address/slow" got >pull.out 2>pull.err &
    puller=$!
    helpers+=($puller)
    until grep -q 'it did nothing for 3 seconds' server.err; do :; done
    bounded "$rpma" status "$address" --timeout 60 >stdout 2>stderr || [ $? -eq 6 ] || die "status"
    push second "$address/other"
    bounded "$rpma" list "$address/other" >stdout 2>stderr || die "list"
    kill -KILL $puller
    wait $puller 2>/dev/null || true
    rm slow_pages
    exec {disk}>&-
    pulled second "$address/other"
    pulled first "$address/slow"
    stop_server
    unset RPMA_TEST_SLOW_PAGES
fi

# The end of the memory of a large push, whose client is gone, is slow: nobody else waits for it.
mkfifo slow slow_end
export RPMA_TEST_SLOW_END=$work/slow_end
start_server store
unset RPMA_TEST_SLOW_END
head -c 5000000 /dev/zero >large
"$rpma" push large "$address/large" >stdout 2>stderr &
pusher=$!
helpers+=($pusher)
exec {disk}>slow
kill -KILL $pusher
wait $pusher 2>/dev/null || true
until grep -q 'ended without a commit' server.err; do :; done
rm slow
exec {disk}>&-
exec {ending}>slow_end
push second "$address/other"
pulled second "$address/other"
rm slow_end
exec {ending}>&-
stop_server

# The folder of a name cannot be read when the server starts: the tags of its contents are not forgotten.
rm -f slow slow_end
rm -rf store
start_server store
bounded "$rpma" push --epoch 5 first "$address/fenced" >stdout 2>stderr || die "push of an epoch"
stop_server
export RPMA_TEST_NO_FOLDER=$work/no_folder
touch no_folder
start_server store
unset RPMA_TEST_NO_FOLDER
[ ! -e no_folder ] || die "the folder was read"
refused_with 6 'cannot open it as a folder: Too many open files, so its tag is unknown' "$rpma" push --epoch 4 second "$address/fenced"
refused_with 6 'fenced: cannot open it as a folder' "$rpma" pull "$address/fenced" got
refused_with 6 'fenced: cannot open it as a folder' "$rpma" status "$address"
push first "$address/other"
stop_server
start_server store
refused_with 6 'a server has a content of epoch 5, which fences epoch 4' "$rpma" push --epoch 4 second "$address/fenced"
pulled first "$address/fenced"
stop_server

# A client leaves while its commit is under way: no other push of the name has its sequence.
export RPMA_TEST_SLOW_SYNC=$work/slow_sync
rm -rf store
start_server "$work/store" --push-lease 3 --metrics METRICS
unset RPMA_TEST_SLOW_SYNC
mkfifo slow_sync
"$rpma" push first "$address" >stdout 2>stderr &
pusher=$!
helpers+=($pusher)
exec {disk}>slow_sync # the commit has begun
kill -KILL $pusher
wait $pusher 2>/dev/null || true
while ! grep -q 'the commit of a push from 127.0.0.1 has been under way for [0-9]* seconds, and its client has left' stderr; do
    ! bounded "$rpma" push --wait 0 second "$address" >stdout 2>stderr || die "two pushes have one sequence"
done
# Monitors get their answers meanwhile, which name the commit. After the lease it is a reason.
until grep -q 'default: storage has not done what a push from 127.0.0.1 asked for, for [0-9]* seconds' stderr; do
    bounded "$rpma" status "$address" >stdout 2>stderr || true
    grep -q '^commits *default from 127.0.0.1 for [0-9]* seconds (its client has left)$' stdout || die "status: $(cat stdout)"
done
refused_with 6 'storage has not done what a push' "$rpma" status --json "$address"
grep -q '"commits":\[{"host":"127.0.0.1","identity":null,"left":true,"name":"default","seconds":[0-9]*}\]' stdout || die "JSON: $(cat stdout)"
bounded "$rpma" list "$address" >stdout 2>stderr || die "list"
# Pacemaker starts no server again amid a commit.
monitor || die "the monitor of slow storage: $(cat stderr)"
scraped
grep -q '^rpma_oldest_commit_seconds [1-9]' metrics || die "no metric of the commit"
grep -qxF 'rpma_faults{kind="slow"} 1' metrics || die "the metrics do not tell of slow storage: $(grep faults metrics)"
rm slow_sync
exec {disk}>&-
until bounded "$rpma" status "$address" >stdout 2>stderr; do :; done # the commit ends
stop_server
start_server store
push second
pulled second
bounded "$rpma" list "$address" >stdout 2>stderr || die "list"
[ "$(grep -c ^default stdout)" -eq 2 ] || die "expected both contents: $(cat stdout)"
stop_server

# Storage makes no files for pushes, and their clients leave. What needs no storage is released meanwhile: their windows, and
# contents that others have pulled. The rest has as many places as clients that are connected: 4 of each address here.
printf '#!/bin/sh\nulimit -n 256\nexec "%s" "$@"\n' "$rpma" >few
chmod +x few
export RPMA_TEST_SLOW_FILE=$work/slow_file RPMA_TEST_SLOW_END=$work/slow_end
program=$rpma
rpma=$work/few
start_server "$work/store"
rpma=$program
unset RPMA_TEST_SLOW_FILE RPMA_TEST_SLOW_END
mkfifo slow_file slow_end
exec {disk}<>slow_file
pushers=()
for name in a b c d; do
    "$rpma" push --timeout 300 second "$address/$name" >stdout.$name 2>stderr.$name &
    pushers+=($!)
    helpers+=($!)
done
# Three threads of storage are for one address.
until [ "$(find "/proc/$server/fd" -lname "*/slow_file" 2>/dev/null | wc -l)" -eq 3 ]; do :; done
until grep -q '^clients *4$' stdout; do
    bounded "$rpma" status "$address" >stdout 2>stderr || true
done
kill -KILL "${pushers[@]}"
wait "${pushers[@]}" 2>/dev/null || true
until [ "$(grep -c 'ended without a commit' server.err)" -eq 4 ]; do :; done
bounded sh -c ': >slow_end' || die "the window of a push whose client has left stays"
exec {ending}<>slow_end
rm slow_end
exec {ending}>&-
pulled second
while grep -q "/store/default/" "/proc/$server/maps"; do :; done
refused_with 6 'storage has not released what 4 clients from 127.0.0.1 had that left, no more are taken from there' "$rpma" push first "$address/e"
rm slow_file
exec {disk}>&-
until bounded "$rpma" push first "$address/e" >stdout 2>stderr; do
    grep -q 'storage has not released' stderr || die "a push on storage that is well again"
done
pulled first "$address/e"
stop_server

# Storage makes no file for a push: nobody else waits for that, and after the lease the status says so. The push has its lease
# still, because it is not the client that is idle.
# hanging_push FILE [OPTION...]: a server of `store`, with these options, has no file yet for the push of FILE (pusher).
hanging_push() {
    export RPMA_TEST_SLOW_FILE=$work/slow_file
    start_server store "${@:2}"
    unset RPMA_TEST_SLOW_FILE
    mkfifo slow_file
    "$rpma" push --timeout 300 "$1" "$address" >pusher.out 2>pusher.err &
    pusher=$!
    helpers+=($pusher)
    exec {disk}>slow_file
}
hanging_push first --push-lease 3
pulled second
: >stderr
until grep -Eq 'default: storage has not done what a push from 127.0.0.1 asked for, for ([5-9]|[1-9][0-9]+) seconds' stderr; do
    bounded "$rpma" status "$address" >stdout 2>stderr || true
done
rm slow_file
exec {disk}>&-
wait $pusher || die "a push that has waited for storage: $(cat pusher.err)"
until bounded "$rpma" status "$address" >stdout 2>stderr; do :; done # the storage is well again
stop_server
start_server store
push first
pulled first
stop_server

# A server whose storage does not answer ends all the same, and loses nothing.
hanging_push second
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
[ $code -eq 1 ] || die "a server whose storage hangs ended with $code"
grep -q 'storage has not answered for 10 seconds: the server ends without it' server.err || die "expected the reason"
rm slow_file
exec {disk}>&-
wait $pusher && die "a push that nobody committed" || true
start_server store
pulled first
stop_server
