#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma serve in a network namespace of its own: an address in brackets alone, addresses that overlap, and a network of
# IPv6 whose hosts count as one.
. "$(dirname "$0")/../namespaces.bash"
within_namespaces --net -- "$@"
. "$(dirname "$0")/server.bash"
ip link set lo up
[ -e /proc/net/if_inet6 ] && ip -6 address add fd77::1/64 dev lo nodad && ip -6 address add fd77::2/64 dev lo nodad ||
    { echo 'SKIPPED, nothing was tested: no IPv6 here'; exit 77; }

head -c 1M /dev/urandom >content
listen_on='[fd77::1]'
start_server store --listen '[::1]' --listen '[::]' --listen 0.0.0.0 --listen 127.0.0.1:7204 --listen "[fd77::2]"
listening=$(sed -n 's/^listening *//p' server.out)
for one in '[::1]:7204' '[fd77::1]:7204' '[fd77::2]:7204' 127.0.0.1:7204 "$address"; do
    [ "$(tr ',' '\n' <<<"$listening" | grep -cF " $one")" -le 1 ] || die "it listens twice at $one: $listening"
    bounded "$rpma" status "$one" >stdout 2>stderr || die "it does not listen at $one: $listening"
done
! grep -q 'public Internet' server.err || die "a warning of no public address"
push content

# An address comes to the machine, goes, and comes again. A pull that was under way goes on.
given=$address
address=10.77.0.1:7204
for turn in 1 2; do
    ip address add 10.77.0.1/32 dev lo
    for try in $(seq 1000); do
        ! bounded "$rpma" status "$address" >stdout 2>stderr || break
    done
    [ "$try" -lt 1000 ] || die "it does not listen at an address that came: $(cat stderr)"
    pulled content
    if [ "$turn" = 1 ]; then
        bounded "$rpma" pull "$address" slow --rate 512K >stdout 2>stderr &
        slow=$!
        helpers+=($slow)
        for try in $(seq 1000); do
            [ "$(ss -Htn state established "src $address" | wc -l)" -eq 0 ] || break
        done
    fi
    ip address del 10.77.0.1/32 dev lo
    for try in $(seq 1000); do
        ss -Hltn "src $address" | grep -q . || break
    done
    [ "$try" -lt 1000 ] || die "it listens at an address that went"
done
[ "$(grep -c '10.77.0.1:7204 came to this machine' server.err)" = 2 ] && [ "$(grep -c '10.77.0.1:7204 left this' server.err)" = 2 ] ||
    die "the log does not say which addresses came and left"
refused_with 7 '192.0.2.77: this machine has no way there: Network is unreachable' "$rpma" status 192.0.2.77
ip address add 10.77.0.1/32 dev lo
wait $slow && cmp slow content || die "a pull at an address that went and came: $(cat stderr)"
address=$given
bounded "$rpma" status "$address" >stdout || die "it does not listen any more at $address"

# Most of a host's addresses are in one network of 64 bits.
mkfifo said
"$peer" crowd fd77::1 "$port" >said &
helpers+=($!)
read -t 120 -r line <said || die "crowd"
refused 'clients from fd77::2 and its network of 64 bits are connected, no more are taken from there' "$rpma" pull '[fd77::2]' got
address=127.0.0.1:7204
pulled content
stop_server

# Few descriptors: a host that has its clients, and is answered on many more connections, leaves some to the others.
printf '#!/bin/sh\nulimit -n 256\nexec "%s" "$@"\n' "$rpma" >few
chmod +x few
whole=$rpma
rpma=$PWD/few
start_server store --listen '[::1]:7204'
rpma=$whole
for kind in crowd status_crowd; do
    "$peer" $kind fd77::1 "$port" >said &
    helpers+=($!)
    read -t 120 -r line <said || die "$kind"
done
address='[::1]:7204'
push content
pulled content
stop_server

# One address of the public Internet, without keys and with them.
ip address add 11.0.0.1/32 dev lo
listen_on=11.0.0.1
start_server store
logged '11.0.0.1'
[ "$(grep -c 'is an address of the public Internet, and there are no keys' server.err)" = 1 ] || die "expected one warning"
stop_server
make_keys one
start_server store --psk keys
stop_server
! grep -q 'public Internet' server.err || die "a warning though there are keys"
