#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_ssh.sh RPMA: ssh and sshd under `rpma run --sockets` work over TCP: preload_config leaves them alone.
sshd=$(command -v sshd || echo /usr/sbin/sshd)
. "$(dirname "$0")/sockets.bash" "$1" "$sshd" ssh ssh-keygen
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd

ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f user
cat >config <<END
Port $port
ListenAddress 127.0.0.1
HostKey $work/host
AuthorizedKeysFile $work/user.pub
PidFile none
StrictModes no
UsePAM no
END
serve server "$sshd" -D -e -f "$work/config"
said=$(carry ssh -F none -p "$port" -i user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes \
    127.0.0.1 'echo said by the shell' 2>ssh.out) || die "ssh failed"
[ "$said" = 'said by the shell' ] || die "ssh said '$said'"
grep -q 'rpma run --sockets: ssh.*: 0 connections over memory, 0 over a device, 0 over TCP;' ssh.out || die "ssh is carried: $(cat ssh.out)"
