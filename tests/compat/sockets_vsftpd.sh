#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_vsftpd.sh RPMA: vsftpd with Debian's configuration, whose processes confine themselves (seccomp(2)), and which passes
# descriptors between them, sends and gets files of curl, passive and active, and many on one connection.
vsftpd=$(command -v vsftpd || echo /usr/sbin/vsftpd)
. "$(dirname "$0")/sockets.bash" "$1" "$vsftpd" curl

[ "$(id -u)" -eq 0 ] || { echo "vsftpd starts as root only"; exit 77; }
mkdir -p root/files root/into empty
chmod 755 . root root/files empty
chown ftp root/into
for i in $(seq 40); do head -c "$((i * 1000))" /dev/urandom >"root/files/$i"; done
head -c 8M /dev/urandom >root/files/large
# The configuration, but for the port, for users without a password, and for a folder that vsftpd's service makes.
grep -v -e '^listen' -e '^anonymous_enable' -e '^secure_chroot_dir' /etc/vsftpd.conf >vsftpd.conf
cat >>vsftpd.conf <<END
listen=YES
listen_address=127.0.0.1
listen_port=$port
background=NO
secure_chroot_dir=$work/empty
anonymous_enable=YES
anon_root=$work/root
anon_upload_enable=YES
anon_umask=022
write_enable=YES
END
serve server "$vsftpd" "$work/vsftpd.conf"
url=ftp://127.0.0.1:$port
carry curl -sS --max-time 30 "$url/files/large" -o large >get.out 2>&1 || die "a large file does not come"
cmp large root/files/large || die "a large file changed"
carry curl -sS --max-time 30 "$url/files/[1-40]" -o 'got#1' >many.out 2>&1 || die "forty files do not come"
for i in $(seq 40); do cmp "got$i" "root/files/$i" || die "file $i changed"; done
carry curl -sS --max-time 30 -T large "$url/into/sent" >put.out 2>&1 || die "a file cannot be sent"
cmp large root/into/sent || die "a file that was sent changed"
carry curl -sS --max-time 30 --ftp-port - "$url/files/large" -o active >active.out 2>&1 || die "a server cannot connect"
cmp active root/files/large || die "a file changed over the server's connection"
curl -sS --max-time 30 "$url/files/large" -o plain >tcp.out 2>&1 || die "a file does not come over TCP"
cmp plain root/files/large || die "a file changed over TCP"
carried get.out many.out put.out active.out
