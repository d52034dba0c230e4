#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `systemd.sh RPMA`: a fresh Debian 12 with a real systemd (systemd-nspawn --boot), in which the packages below the current folder,
# which packages.sh has made, are installed, and the unit is enabled. From the namespace of another host: pushes, pulls, metrics, a
# server that is killed amid a push, keys that are rotated while a client stays, and a start again of the machine.
# RPMA_DEBIAN: a folder with such a Debian, which is not changed; without it debootstrap makes one.
set -eu
here=$(realpath "$0")
. "$(dirname "$here")/../../namespaces.bash"
skip() {
    echo "SKIPPED, nothing was tested: $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip 'only root boots a container'
for tool in systemd-nspawn debootstrap ip curl; do
    command -v $tool >/dev/null || skip "$tool is not installed (groups compat and soak of utils/install-dependencies.sh)"
done
[ -n "${RPMA_TEST_INSIDE:-}" ] || exec 9</proc/self/ns/net # packages are fetched through it
within_namespaces --net --mount -- "$@"
rpma=$1
export RPMA_DEVICE=soft
work=$(mktemp -d "$PWD/systemd.XXXXXX")
root=$work/root
container='' init=''
clean_up() {
    [ -z "$init" ] || kill -KILL "$init" || true # the container's first process, without which none of it stays
    [ -z "$container" ] || { kill -KILL "$container"; wait "$container"; } 2>/dev/null || true
    umount "$root" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
die() {
    echo "FAILED (line ${BASH_LINENO[0]}): $*"
    cat "$work/stderr" 2>/dev/null || true
    [ -z "$init" ] || inside journalctl --no-pager -u rpma-serve@store | tail -n 30 || true
    exit 1
}

mkdir "$root" "$work/upper" "$work/scratch"
if [ -z "${RPMA_DEBIAN:-}" ]; then
    RPMA_DEBIAN=$work/debian
    nsenter --net=/proc/self/fd/9 debootstrap --variant=minbase --include=systemd-sysv,dbus,iproute2 bookworm "$RPMA_DEBIAN" >"$work/debootstrap.log" 2>&1 ||
        skip "no Debian can be had: $(tail -n 1 "$work/debootstrap.log")"
fi
mount -t overlay overlay -o "lowerdir=$RPMA_DEBIAN,upperdir=$work/upper,workdir=$work/scratch" "$root"
mkdir -p "$root/var/tmp/packages"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp packages/librpma0_*.deb packages/libsoftrdma0_*.deb packages/librsocket1_*.deb packages/rpma_*.deb "$root/var/tmp/packages"

inside() { nsenter --target "$init" --mount --uts --ipc --net --pid --root --wd="/proc/$init/root" "$@"; }
boot() {
    systemd-nspawn --quiet --boot --register=no --keep-unit --network-veth --machine=rpmatest --directory="$root" \
        </dev/null >>"$work/boot.log" 2>&1 &
    container=$!
    until init=$(pgrep -P $container -x systemd) && [ -n "$init" ]; do
        kill -0 $container 2>/dev/null || die "no boot: $(tail -n 3 "$work/boot.log")"
    done
    ip address add 10.99.0.1/24 dev ve-rpmatest
    ip link set ve-rpmatest up
    until inside systemctl list-units >/dev/null 2>&1; do sleep 0.2; done # systemd answers nobody sooner
    inside ip address add 10.99.0.2/24 dev host0
    inside ip link set host0 up
    # rpma-serve waits for no network here, but for its address.
    inside systemctl is-system-running --wait >/dev/null || true
}
ip link set lo up
nsenter --net=/proc/self/fd/9 chroot "$root" bash -c 'apt-get update && apt-get install -y --no-install-recommends /var/tmp/packages/*.deb' \
    </dev/null >"$work/apt.log" 2>&1 || skip "the packages' dependencies cannot be had: $(tail -n 1 "$work/apt.log")"
boot
for identity in writer reader next; do "$rpma" keygen $identity "$work/$identity.key"; done
install -d "$root/etc/rpma"
cat "$work/writer.key" "$work/reader.key" | install -m 600 /dev/stdin "$root/etc/rpma/store.keys"
cat >"$root/etc/rpma/store.conf" <<'CONF'
LISTEN=10.99.0.2:7204
OPTIONS=--keep 3 --metrics 10.99.0.2:9204 --allow push=writer,push=next,pull=writer,pull=next,pull=reader
CONF
inside systemctl enable --now rpma-serve@store 2>"$work/stderr" || die 'the unit does not start'

store=10.99.0.2
with() { timeout 120 "$rpma" "${@:2}" --psk "$work/$1.key" 2>"$work/stderr"; } # with KEY COMMAND...
metric() { curl -s --max-time 60 http://$store:9204/metrics | sed -n "s/^$1 //p"; }
head -c 3000000 /dev/urandom >"$work/first"
head -c 30000000 /dev/urandom >"$work/large"
with writer push "$work/first" $store/data >/dev/null || die push
with reader pull $store/data "$work/got" >/dev/null || die pull
cmp "$work/first" "$work/got"
[ "$(metric rpma_pushes_total)" = 1 ] || die 'no metrics'
with reader status $store >/dev/null || die status

# The server is killed amid a push. systemd starts it again, and the push is nowhere.
before=$(metric rpma_stored_bytes_total)
with writer push "$work/large" $store/data --rate 1M >/dev/null &
push=$!
until [ "$(metric rpma_stored_bytes_total)" != "$before" ]; do kill -0 $push || die 'the push ended'; done
inside systemctl kill -s KILL --kill-whom=main rpma-serve@store 2>"$work/stderr" || die 'systemctl kill'
! wait $push || die 'a push to a server that was killed ended with 0'
until with reader status $store >/dev/null; do sleep 0.2; done
[ "$(inside systemctl show -P NRestarts rpma-serve@store)" = 1 ] || die 'it was not systemd that started it'
with reader pull $store/data "$work/got" >/dev/null || die 'pull after a kill'
cmp "$work/first" "$work/got"
[ "$(inside find /var/lib/private/rpma/store/store/data -type f -name '[0-9]*' | wc -l)" = 1 ] || die 'something of the push is left'

# The writer's key goes, and a pull with another one goes on.
with writer push "$work/large" $store/data >/dev/null || die 'push after a kill'
with reader pull $store/data "$work/got" --rate 5M >/dev/null &
pull=$!
until [ "$(metric rpma_clients)" = 1 ]; do :; done
cat "$work/next.key" "$work/reader.key" | install -m 600 /dev/stdin "$root/etc/rpma/store.keys"
inside systemctl reload rpma-serve@store 2>"$work/stderr" || die reload
# A reload of a file that cannot be used fails, and the keys of before stay.
mv "$root/etc/rpma/store.keys" "$work/store.keys"
echo nonsense >"$root/etc/rpma/store.keys"
! inside systemctl reload rpma-serve@store 2>"$work/stderr" || die 'a reload of a broken file ended with 0'
mv "$work/store.keys" "$root/etc/rpma/store.keys"
! with writer push "$work/first" $store/data >/dev/null || die 'a key that is gone lets in'
with next push "$work/first" $store/data >/dev/null || die 'the new key does not let in'
wait $pull || die 'a client whose key stays was ended'
cmp "$work/large" "$work/got"

# The machine starts again, and the unit with it.
inside systemctl poweroff 2>/dev/null || true
wait "$container" || true
container='' init=''
boot
until with reader status $store >/dev/null; do sleep 0.2; done
with reader pull $store/data "$work/got" >/dev/null || die 'pull after a start again'
cmp "$work/first" "$work/got"
echo 'a unit of systemd: all as it should be'
