#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_rsync.sh RPMA: rsync's daemon, which forks for each client, sends and gets folders; its client forks too.
. "$(dirname "$0")/sockets.bash" "$1" rsync

mkdir from into
for i in $(seq 200); do head -c "$((i * 37))" /dev/urandom >"from/$i"; done
head -c 8M /dev/urandom >from/large
# The daemon of root would change its user, and that of another cannot.
identity=$([ "$(id -u)" -ne 0 ] || printf 'uid = 0\ngid = 0')
cat >rsyncd.conf <<END
use chroot = no
$identity
[from]
path = $work/from
[into]
path = $work/into
read only = no
END
serve server rsync --daemon --no-detach --address=127.0.0.1 --port="$port" --config=rsyncd.conf
url=rsync://127.0.0.1:$port
carry rsync -a "$url/from/" got/ >get.out 2>&1 || die "rsync cannot get a folder"
diff -r from got || die "a file changed"
carry rsync -a from/ "$url/into/" >put.out 2>&1 || die "rsync cannot send a folder"
diff -r from into || die "a file that was sent changed"
# rsync sends the changes as differences.
for copy in got into; do printf changed | dd of="$copy/large" bs=1 seek=4000000 conv=notrunc status=none; done
carry rsync -a --checksum --no-whole-file "$url/from/" got/ >again.out 2>&1 || die "rsync cannot get differences"
rsync -a --checksum --no-whole-file from/ "$url/into/" >tcp.out 2>&1 || die "rsync cannot send differences over TCP"
diff -r from got || die "a file changed with the differences"
diff -r from into || die "a file that was sent changed with the differences"
carried get.out put.out again.out
