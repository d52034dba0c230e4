#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# off_loopback.sh COMMAND...: runs COMMAND in network and mount namespaces of its own, where 192.0.2.1 is an address of
# a veth pair and `localhost` is its name. It is for programs that ignore loopback interfaces. The namespaces end with
# COMMAND.
set -eu
. "$(dirname "$0")/../namespaces.bash"
within_namespaces --net --mount -- "$@"
ip link add veth0 type veth peer name veth1 || { echo 'SKIPPED, nothing was tested: this kernel makes no veth pair'; exit 77; }
ip address add 192.0.2.1/24 dev veth0
for interface in lo veth0 veth1; do ip link set "$interface" up; done
# The mount keeps the file, which needs no name.
hosts=$(mktemp)
echo '192.0.2.1 localhost' >"$hosts"
mount --bind "$hosts" /etc/hosts
rm "$hosts"
exec "$@"
