#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `epoch_from_etcd.sh RPMA PEER END PUSH`: etcd's lock decides who writes (examples/22-epoch-from-etcd). A writer whose
# lease has ended, while it goes on, is refused once the next one has pushed. They run in a network of their own, because
# etcd uses its default ports.
. "$(dirname "$0")/../namespaces.bash"
for program in etcd etcdctl; do
    command -v $program >/dev/null || { echo "SKIPPED, nothing was tested: no $program"; exit 77; }
done
within_namespaces --net --pid --fork --kill-child --mount-proc -- "$@"
as_writer=$(realpath "$4")
. "$(dirname "$0")/server.bash"
ip link set lo up
mkdir bin
ln -s "$rpma" bin/rpma
export PATH=$work/bin:$PATH ETCDCTL_API=3 TTL=60
[ "$(uname -m)" != aarch64 ] || export ETCD_UNSUPPORTED_ARCH=arm64 # older versions want to be told
etcd --data-dir etcd >etcd.log 2>&1 &
helpers+=($!)
for file in first second third; do
    head -c 100000 /dev/urandom >$file
done
start_server store
until etcdctl endpoint health >stdout 2>stderr; do
    kill -0 "${helpers[0]}" || die "etcd ended: $(tail -n 5 etcd.log)"
done

bounded "$as_writer" lock first "$address" >stdout 2>stderr || die "the first writer"
pulled first

# This writer has the lock, and pushes when it is told to. Its etcdctl stands still, so the short lease ends.
mkfifo go
etcdctl lock --ttl=5 lock -- bash -c 'echo "$ETCD_LOCK_REV" >epoch; read -r _ <go; rpma push second "$0" --epoch "$ETCD_LOCK_REV" 2>refused; echo $? >code' \
    "$address" >old.out 2>old.err &
old=$!
helpers+=($old)
until [ -s epoch ]; do kill -0 $old || die "the writer has no lock: $(cat old.err)"; done
# A push of the next writer waits for the lock.
kill -STOP $old
bounded "$as_writer" lock third "$address" >stdout 2>stderr || die "the next writer"
pulled third
echo >go
until [ -s code ]; do :; done
kill -CONT $old
wait $old || true
[ "$(cat code)" -eq 6 ] || die "the writer that was deposed ended with $(cat code), expected 6: $(cat refused)"
grep -q "which fences epoch $(cat epoch) " refused || die "expected the fence: $(cat refused)"
pulled third

# The lock's next holder may push.
bounded "$as_writer" lock second "$address" >stdout 2>stderr || die "the last writer"
pulled second
stop_server
