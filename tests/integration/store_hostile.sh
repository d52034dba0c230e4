#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Clients of a store that behave badly reach no other name's memory, nothing that was committed, and no more room than
# there is. The server and its contents stay as they were.
. "$(dirname "$0")/server.bash"

head -c 1M /dev/urandom >content
head -c 1M /dev/urandom >other
start_store store --keep 2 --push-lease 3
push content
push other "$address/other"

unharmed() {
    kill -0 "$server" || die "the server ended"
    pulled content
    pulled other "$address/other"
    push content
    [ -z "$(find store ! -type d ! -name '[0-9]*' ! -name .measured)" ] || die "something else is there: $(find store)"
}

for crime in bad_key out_of_bounds write_as_puller others_key others_key_as_pusher bad_request bad_room \
    wrong_checksum no_commit trickle; do
    case $crime in # these print words
        trickle) bounded "$peer" $crime 127.0.0.1 "$port" >/dev/null || die "$crime" ;;
        *) bounded "$peer" $crime 127.0.0.1 "$port" || die "$crime" ;;
    esac
    unharmed
done
bounded "$rpma" status "$address" >stdout 2>stderr || die "the server takes no push any more"

# A pusher that writes into what it has committed.
head -c 1000 /dev/zero | tr '\0' a >thousand
bounded "$peer" write_after_commit 127.0.0.1 "$port" || die "write_after_commit"
pulled thousand
push content

# Many names at once, and a pull of a content that goes while it is read.
mkfifo reader
bounded "$rpma" pull "$address" - <>reader >reader 2>/dev/null &
puller=$!
exec {slow}<reader
pushes=()
for name in $(seq 12); do
    bounded "$rpma" push other "$address/n$name" >/dev/null 2>stderr.$name &
    pushes+=($!)
done
for pid in "${pushes[@]}"; do
    wait "$pid" || die "a push of one name among many: $(cat stderr.*)"
done
push other
push other
push other
[ "$(ls store/default | wc -l)" -eq 2 ] || die "the content that is read was kept: $(ls store/default)"
cmp <(head -c 1M <&"$slow") content || die "a content changed while it was read"
wait $puller || die "the pull of a content that goes"
exec {slow}<&-
stop_server
