#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma run becomes the program, and reports as a shell does when it cannot.
tests=$(realpath "$(dirname "$0")/..")
. "$(dirname "$0")/server.bash"

bounded "$rpma" run true || die "run true"
bounded "$rpma" run -- true || die "run -- true"
[ "$(bounded "$rpma" run --sockets --device soft -- echo -- -n)" = '-- -n' ] || die "a -- behind options"
[ "$(bounded "$rpma" run -- echo -- -n)" = '-- -n' ] || die "the program's arguments changed"
code=0
bounded "$rpma" run sh -c 'exit 42' || code=$?
[ $code -eq 42 ] || die "ended with $code, expected the program's 42"
[ "$(bounded "$rpma" run --psk keys sh -c 'echo "$RPMA_TLS"')" = "psk:$PWD/keys" ] || die "run --psk"
refused_with 2 'PROGRAM is required' "$rpma" run
refused_with 2 'PROGRAM is required' "$rpma" run --
refused_with 127 'cannot run absent-program: No such file' "$rpma" run absent-program
: >data
refused_with 126 'cannot run ./data: Permission denied' "$rpma" run ./data
refused_with 126 'cannot run .: ' "$rpma" run .
[ -z "$(bounded "$rpma" run true 2>&1)" ] || die "says something of a program that it reaches"

# The command has its own libraries, and the library that it preloads has its own, whatever LD_LIBRARY_PATH names.
mkdir -p others
for library in librpma.so.0 libsoftrdma.so.0 librsocket.so.1; do echo 'another library' >"others/$library"; done
for sockets in '' --sockets; do
    LD_LIBRARY_PATH=$PWD/others bounded "$rpma" run $sockets true >stdout 2>stderr || die "with other libraries: $(cat stderr)"
    [ ! -s stderr ] || die "$(cat stderr)"
done

# preloads LIBRARY OPTION...: with these options a program that uses sockets has this library.
preloads() {
    local wanted=$1
    shift
    bounded "$rpma" run "$@" sh -c 'echo "${LD_PRELOAD##*/}"' >stdout 2>stderr || die "run $*: $(cat stderr)"
    [ "$(cat stdout)" = "$wanted" ] || die "run $*: preloads $(cat stdout), expected $wanted"
}
preloads libcarry-preload.so --sockets
preloads libsoftrdma-verbs.so

# device_is KIND OPTION...: with these options a program asks hosts over a device of this kind; "" is none.
device_is() {
    local wanted=$1
    shift
    bounded "$rpma" run --sockets "$@" sh -c 'echo "$RPMA_CARRY_PEERS"' >stdout 2>stderr || die "run --sockets $*: $(cat stderr)"
    [ "$(cat stdout)" = "$wanted" ] || die "run --sockets $*: the device is '$(cat stdout)', expected '$wanted'"
}
auto=
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then auto=kernel; fi
device_is "$auto"
device_is "$auto" --device auto
device_is kernel --device kernel
device_is soft --device soft
(export RPMA_CARRY_PEERS=soft && device_is '' --device memory)
(export RPMA_TLS=psk:keys && refused_with 1 'RPMA_TLS, --psk or --x509 is set, and connections of --sockets are TCP' "$rpma" run --sockets true)

# A program with the privileges of its file's owner ignores the environment. Only root can give a file to another owner.
# The file is where another user reaches it, and a file system or a container may give no such privileges.
[ "$(id -u)" = 0 ] || exit 0
place=$(mktemp -d /tmp/rpma-run.XXXXXX)
trap 'clean_up; rm -rf "$place"' EXIT
chmod 755 "$place"
words=$("$tests/other_user.sh" "$rpma" "$place/own" nobody) || die "nobody cannot run rpma"
mapfile -t as_nobody <<<"$words"
privileged=$place/own/bin/rpma
install -m 4755 "$(command -v id)" "$place/owner"
if [ "$("${as_nobody[@]}" "$place/owner" -u)" != 0 ]; then
    echo "not tested: $place gives no program its owner's privileges"
    exit 0
fi
cp "$place/owner" "$place/others"
chown nobody "$place/others"
chmod 4755 "$place/others" "$privileged"
bounded "$rpma" run "$place/others" >stdout 2>stderr || die "run $place/others"
grep -q "^rpma run: $place/others gets privileges of its own, " stderr || die "does not say that nothing is preloaded: $(cat stderr)"
RPMA_DEVICE=hardware "${as_nobody[@]}" "$privileged" devices >stdout 2>stderr || die "believes RPMA_DEVICE: $(cat stderr)"
grep -q '^soft_lo' stdout || die "devices: $(cat stdout)"
RPMA_DEVICE=hardware SOFTRDMA_FAULTS=drop=x "${as_nobody[@]}" "$privileged" status 127.0.0.1:1 >stdout 2>stderr &&
    die "nobody serves there"
! grep -qE 'RPMA_DEVICE|SOFTRDMA' stderr || die "believes the environment: $(cat stderr)"
