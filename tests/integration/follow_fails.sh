#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Storage of a server that follows another one (rpma serve --follow) fails. A device that has failed takes nothing more, and what
# could not be taken for lack of room comes before what was committed after it. The first argument is an rpma with storage that
# fails on purpose (failing_storage.cpp).
. "$(dirname "$0")/server.bash"

to_leader() { bounded "$rpma" push "$1" "$leader_address/$2" >stdout 2>stderr || die "push $*"; }
lead() { # starts the leader again, at its address
    : >leader.out
    "$rpma" serve --store leader --listen "$leader_address" --keep $keep >>leader.out 2>leader.err &
    leader=$!
    helpers+=($leader)
    until grep -q '^listening' leader.out; do kill -0 $leader || die "the leader: $(cat leader.err)"; done
}
end_leader() {
    kill -TERM $leader
    wait $leader 2>/dev/null || true
}
# sequences NAME: those of the follower
sequences() { find "follower/$1" -name '[0-9]*' -printf '%f\n' 2>/dev/null | sort -n | tr '\n' ' '; }

keep=4
start_server leader --keep $keep
leader=$server leader_address=$address
head -c 300000 /dev/urandom >first
head -c 200000 /dev/urandom >second
for name in a b c; do
    to_leader first $name
    to_leader second $name
    to_leader first $name
done

# come_with FAILURE: a new follower, whose storage fails so, is there before its leader.
come_with() {
    end_leader
    rm -rf follower
    RPMA_TEST_FAILURE=$work/failure start_server follower --follow "$leader_address" --keep 4
    until status_says 'no server of a store is there'; do :; done
    echo "$1" >failure
    lead
}

# The device fails amid the first content: on its bytes, its file, or its name. Nothing comes after it, of this name or another.
# The first four calls make the file with the leader's identity.
for failure in '5 5' '6 5' '7 5' '8 5' '9 5' '10 5'; do
    come_with "$failure"
    until status_says '; nothing is taken from'; do :; done
    [ ! -e failure ] || die "storage did not fail: $failure"
    grep -qF 'cannot make it durable: ' server.err || die "the server does not say it"
    stop_server
    ! grep '^committed' server.out || die "it commits after a failure: $failure"
done

# A full disk is no device that failed, for the bytes or when the folder is synced. The content that had no room comes in the next
# round, and those of its name wait for it.
for failure in '5 28' '10 28'; do
    come_with "$failure"
    until status_says 'has all that it keeps'; do :; done
    [ ! -e failure ] || die "storage did not fail: $failure"
    grep -Eq 'a: content 1 (has no room|cannot be made durable) here: No space left on device' server.err || die "the server does not say it"
    stop_server
    for name in a b c; do
        [ "$(sequences $name)" = '1 2 3 ' ] || die "$name has $(sequences $name)"
    done
done

# The follower is killed amid a content, of which it has written some parts. Nothing of it is left, and it comes after the next start.
# Each opening of the FIFO lets one write through.
head -c 2000000 /dev/urandom >large
to_leader large large
mkfifo slow
RPMA_TEST_SLOW=$work/slow start_server follower --follow "$leader_address" --keep 4
for _ in 1 2 3; do : >slow; done
kill -KILL "$server"
wait "$server" 2>/dev/null || true
server=
rm slow
[ "$(sequences large)" = '' ] || die "it has $(sequences large)"
bounded "$rpma" check --store follower >stdout 2>stderr || die "a content is not good: $(cat stdout)"
start_server follower --follow "$leader_address" --keep 4
until status_says 'has all that it keeps'; do :; done
pulled large "$address/large"
stop_server

# Storage hangs: the status says so.
to_leader large large
mkfifo slow
RPMA_TEST_SLOW=$work/slow start_server follower --follow "$leader_address" --keep 4 --push-lease 3 --metrics METRICS
exec {disk}>slow
rm slow
until status_says 'large: storage has not done what a content of'; do :; done
[ "$(metric rpma_behind_faults)" = 1 ] || die "the metrics do not tell it"
exec {disk}>&-
until status_says 'has all that it keeps'; do :; done
bounded "$rpma" status "$address" >stdout 2>stderr || die "storage goes on"
stop_server

# The leader removes a content that it has told of. That is no fault: the next one comes.
end_leader
rm -r follower
RPMA_TEST_SLOW=$work/slow start_server follower --follow "$leader_address" --keep 1
until status_says 'no server of a store is there'; do :; done
mkfifo slow
keep=1
lead
exec {disk}>slow # it has the leader's list, and writes
rm slow
to_leader large c
until [ ! -e leader/c/3 ]; do :; done
exec {disk}>&-
until status_says 'has all that it keeps'; do :; done
! grep 'does not follow.*: content' server.err || die "what the leader has removed is a fault"
[ "$(sequences c)" = '4 ' ] || die "c has $(sequences c)"
stop_server
