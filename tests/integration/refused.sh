#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Bad input gives one clear line and a failure, and harms nothing else.
. "$(dirname "$0")/server.bash"

head -c 3M /dev/urandom >content
head -c 17M /dev/zero >larger
start_server store --keep 1 --max-bytes 16M

# The command line.
refused_with 2 'expected a command' "$rpma"
refused_with 2 'launch: unknown command (see rpma --help)' "$rpma" launch
refused_with 2 'psh: unknown command, did you mean push? (see rpma --help)' "$rpma" psh content
refused_with 2 'puhs: unknown command, did you mean push? (see rpma --help)' "$rpma" puhs content
refused_with 2 'FILE is required (see rpma push --help)' "$rpma" push
refused_with 2 '--store is required (see rpma serve --help)' "$rpma" serve
refused_with 2 '--pool: a pool file is not served any more: serve it with the rpma that made it, pull its content with that one too, and push the file' "$rpma" serve --pool pool --size 1G
refused_with 2 'expected a number from 0.1 to 3600 (see rpma push --help)' "$rpma" push content "$address" --timeout 0
refused_with 2 'PROGRAM is required (see rpma run --help)' "$rpma" run
refused_with 2 '--bogus: unknown option (see rpma run --help)' "$rpma" run --bogus true
refused_with 2 '--socket: unknown option, did you mean --sockets? (see rpma run --help)' "$rpma" run --socket true
refused_with 127 'cannot run --bogus: ' "$rpma" run -- --bogus
refused_with 2 '--json: an argument too many, because it stands behind -- (see rpma push --help)' "$rpma" push -- content "$address" --json
refused_with 2 'launch: unknown command (see rpma --help)' "$rpma" help launch
refused_with 2 '--faster: unknown option (see rpma push --help)' "$rpma" push content "$address" --faster
refused_with 2 '--timout: unknown option, did you mean --timeout?' "$rpma" push content "$address" --timout 3
refused_with 2 '--kepe: unknown option, did you mean --keep?' "$rpma" serve --store other --kepe 1
refused_with 2 'third: unknown argument' "$rpma" list "$address" third
refused '--timeout: nan: expected a number from 0.1 to 3600' "$rpma" push content "$address" --timeout nan
refused '--time: nan: expected' "$rpma" perf "$address" --time nan
refused '--count: 0: expected a whole number from 1 to ' "$rpma" perf "$address" --count 0
refused_with 2 '--keep: 0: expected a whole number from 1 to 1000000' "$rpma" serve --store other --keep 0
for bad in -1 18446744073709551616 0x10 1e3 x; do
    for option in --epoch --if-sequence --quorum; do
        refused_with 2 "$option: $bad: expected a whole number from " "$rpma" push content "$address" "$option" "$bad"
    done
done
refused_with 2 '--quorum 10: expected 1 to 1 of 1 servers' "$rpma" push content "$address" --quorum 010
# An empty value would be a variable of a script that is not set.
for option in --if-sequence --epoch --quorum --min-size --rate --wait --psk; do
    refused_with 2 "$option: " "$rpma" push content "$address" "$option" ''
done
for option in --follow --max-bytes --max-names --scrub-rate --metrics --listen --allow --store; do
    refused_with 2 "$option: " "$rpma" serve --store other "$option" ''
done
for url in http://127.0.0.1:7204 rpma://host tcp://[::1]:7204; do
    refused_with 2 "$url: expected ADDRESS or ADDRESS:PORT, such as 127.0.0.1:7204 or [::1]:7204, and no URL" "$rpma" push content "$url"
done
for bad in 127.0.0.1: 127.0.0.1:0 127.0.0.1:65536 127.0.0.1:x ::1:7204; do
    refused_with 2 "$bad" "$rpma" push content "$bad"
    refused_with 2 "$bad" "$rpma" pull "$bad" got
    refused_with 2 "$bad" "$rpma" serve --store other --listen "$bad"
done
for bad in 0 -1 1.5M 1X; do
    refused_with 2 "--max-bytes $bad: expected a size in bytes" "$rpma" serve --store other --max-bytes="$bad"
    refused_with 2 "--min-size $bad: expected a size in bytes" "$rpma" push content "$address" --min-size="$bad"
done

# An empty store.
refused_with 6 'nothing was pushed yet under the name default (rpma list)' "$rpma" pull "$address" got
[ ! -e got ] || die "pull left a file"
push content

# push
refused '-absent: cannot open: No such file' "$rpma" push -- -absent "$address"
refused 'absent: cannot open: No such file' "$rpma" push absent "$address"
refused 'expected a regular file' "$rpma" push . "$address"
mkfifo fifo
refused 'fifo: expected a regular file' "$rpma" push fifo "$address"
refused 'larger: has 17825792 bytes' "$rpma" push larger "$address"
grep -q 'takes at most 16777216' stderr || die "expected the largest content"

# pull
refused 'No such file' "$rpma" pull "$address" absent/got
refused 'expected a regular file' "$rpma" pull "$address" /dev/null
refused 'expected a regular file' "$rpma" pull "$address" .

# serve
refused 'already served' "$rpma" serve --store store --listen "127.0.0.1:$((port % 12000 + 20000))"
refused "cannot listen on $address" "$rpma" serve --store other --listen "$address"
refused '198.51.100.1: expected an address of this machine' "$rpma" serve --store other --listen 198.51.100.1:7204
refused 'No such file' "$rpma" serve --store absent/store
refused 'absent.invalid: ' "$rpma" serve --store other --listen absent.invalid:7204
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked
    chmod 500 locked
    refused 'Permission denied' "$rpma" serve --store locked/store
fi
[ ! -e other ] || die "a server that did not start left its store behind"

if [ "$(cat /proc/sys/net/ipv4/ip_unprivileged_port_start)" -gt 80 ]; then
    without=()
    [ "$(id -u)" -ne 0 ] || without=(setpriv --bounding-set=-net_bind_service --inh-caps=-net_bind_service)
    refused 'expected a free port, and the right to use one below 1024' "${without[@]}" "$rpma" serve --store other --listen 127.0.0.1:80
fi
[ ! -e other ] || die "a server that did not start left its store behind"

# `rpma help` is --help.
for command in '' push run; do
    bounded "$rpma" help $command >stdout 2>stderr || die "help $command"
    # shellcheck disable=SC2086
    bounded "$rpma" $command --help | cmp - stdout || die "help $command is not $command --help"
done

# The device.
if [ ! -d /sys/class/infiniband ] || [ -z "$(ls /sys/class/infiniband)" ]; then
    RPMA_DEVICE=kernel refused 'RPMA_DEVICE' "$rpma" serve --store other
    RPMA_DEVICE=kernel refused 'RPMA_DEVICE' "$rpma" push content "$address"
    RPMA_DEVICE=kernel refused 'RPMA_DEVICE' "$rpma" pull "$address" got
fi
# wrong_settings TEXT: the line begins with what is wrong, and the command was not understood.
wrong_settings() {
    refused_with 2 "rpma: $1" "$rpma" push content "$address"
    refused_with 2 "rpma: $1" "$rpma" serve --store other --listen 0.0.0.0
}
RPMA_DEVICE=hardware wrong_settings 'RPMA_DEVICE is "hardware", expected auto, kernel or soft'
RPMA_DEVICE=hardware refused_with 2 'RPMA_DEVICE is "hardware", expected auto, kernel or soft' "$rpma" devices
SOFTRDMA_MPTCP=yes wrong_settings 'SOFTRDMA_MPTCP is "yes", expected on, off or auto'
SOFTRDMA_CRC=yes wrong_settings 'SOFTRDMA_CRC is "yes", expected 0 or 1'
for wrong in yes 0 65 -1 2x; do
    SOFTRDMA_ENGINES=$wrong wrong_settings "SOFTRDMA_ENGINES is \"$wrong\", expected a number from 1 to 64"
done
SOFTRDMA_SHM=yes wrong_settings 'SOFTRDMA_SHM is "yes", expected on, rings or off'
RPMA_TLS=bogus wrong_settings 'RPMA_TLS is "bogus", expected psk:FILE or x509:FILE'
RPMA_TLS=psk:/absent wrong_settings 'TLS: /absent: No such file or directory'
echo nonsense >wrong_keys
chmod 600 wrong_keys
RPMA_TLS=psk:$PWD/wrong_keys wrong_settings "TLS: $PWD/wrong_keys, line 1: expected IDENTITY:KEY"
chmod 644 wrong_keys
RPMA_TLS=psk:$PWD/wrong_keys wrong_settings "TLS: others than its owner may use $PWD/wrong_keys"
SOFTRDMA_FAULTS=drop=x bounded "$rpma" devices >stdout 2>stderr || die "devices"
grep -q 'SOFTRDMA_FAULTS has "drop=x", expected' stderr || die "devices does not say why none can be opened"

# The output cannot be written: rpma fails. It prints no error when the reader closes the pipe.
for command in "push content $address" "pull $address got" 'devices' --help --version 'push --help' 'help push'; do
    code=0
    # shellcheck disable=SC2086
    bounded "$rpma" $command >/dev/full 2>stderr || code=$?
    [ $code -eq 1 ] || die "$command ended with $code, its output lost"
    grep -q 'standard output: cannot write: No space left' stderr || die "expected why: $command"
    # shellcheck disable=SC2086
    bounded "$rpma" $command 2>stderr | true
    [ ! -s stderr ] || die "complains of a reader that went away: $command"
done
pulled content

# A source changes all the time while it is read.
head -c 12M larger >moving
(while echo >>moving && truncate -s 12M moving; do :; done) 2>/dev/null &
changer=$!
helpers+=($changer)
refused 'moving: ' "$rpma" push moving "$address"
grep -q 'nothing was committed' stderr || die "expected no commit"
kill $changer
wait $changer 2>/dev/null || true

# After all that, the server and the content are as before.
pulled content
kill -0 "$server" || die "the server ended"

# A server does not answer at first, and then does.
kill -STOP "$server"
refused 'no answer for 1 seconds' "$rpma" push content "$address" --timeout 1
refused 'no answer for 1 seconds' "$rpma" pull "$address" got --timeout 1
kill -CONT "$server"
push content
pulled content

stop_server

# No server listens any more.
echo kept >got
refused "$address: refused: no server of a store is there" "$rpma" push content "$address"
refused "$address: refused: no server of a store is there" "$rpma" pull "$address" got
[ "$(cat got)" = kept ] || die "a failed pull touched the file"
