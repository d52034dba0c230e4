#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `pacemaker.sh RPMA AGENT`: a real Pacemaker, on a cluster of one node of corosync's in namespaces of its own, starts a server by
# the agent, starts it again when it was killed, with what was pushed, and stops it.
set -eu
skip() {
    echo "SKIPPED, nothing was tested: $*"
    exit 77
}
if [ "${3:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || skip 'run it as root'
    for tool in corosync pacemakerd crm_mon crm_resource crm_attribute cibadmin; do
        command -v $tool >/dev/null || skip "$tool is not installed (corosync, pacemaker, pacemaker-cli-utils)"
    done
    exec timeout --kill-after=5 250 unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc \
        "$(realpath "$0")" "$(realpath "$1")" "$(realpath "$2")" inside
fi
rpma=$1
agent=$2
export RPMA_DEVICE=soft
die() {
    echo "FAILED (line ${BASH_LINENO[0]}): $*" >&2
    tail -n 20 /run/cluster.out /run/pacemaker.log 2>/dev/null | sed 's/^/    /' >&2
    exit 1
}
work=$(mktemp -d "$PWD/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
hostname node
ip link set lo up
for folder in /run /dev/shm /etc/corosync /var/lib/corosync /var/lib/pacemaker /var/log/pacemaker /usr/lib/ocf/resource.d; do
    mount -t tmpfs none $folder
done
mkdir -p /run/lock /usr/lib/ocf/resource.d/rpma /var/lib/pacemaker/{cib,pengine,cores,blackbox}
chown -R hacluster:haclient /var/lib/pacemaker /var/log/pacemaker
cp "$agent" /usr/lib/ocf/resource.d/rpma/serve
cat >/etc/corosync/corosync.conf <<'END'
totem {
    version: 2
    cluster_name: one
    transport: udpu
    token: 10000
}
quorum {
    provider: corosync_votequorum
}
nodelist {
    node {
        ring0_addr: 127.0.0.1
        name: node
        nodeid: 1
    }
}
logging {
    to_syslog: no
}
END
# becomes WORDS: the cluster tells them.
becomes() {
    local try
    for try in $(seq 600); do
        crm_mon --one-shot --inactive >mon 2>&1 || true
        if grep -q "$1" mon; then return; fi
        sleep 0.1
    done
    die "expected $1: $(cat mon)"
}
corosync -f >/run/cluster.out 2>&1 &
PCMK_logfile=/run/pacemaker.log pacemakerd >>/run/cluster.out 2>&1 &
becomes 'Online: \[ node \]'
crm_attribute --name stonith-enabled --update false
cibadmin --scope resources --create --xml-text "<primitive class='ocf' provider='rpma' type='serve' id='store'>
    <instance_attributes id='a'><nvpair id='a1' name='store' value='$work/store'/><nvpair id='a2' name='rpma' value='$rpma'/></instance_attributes>
    <operations><op id='m' name='monitor' interval='1s' timeout='40s'/><op id='s' name='start' interval='0' timeout='120s'/></operations></primitive>"
becomes 'store.*Started node'
head -c 100000 /dev/urandom >content
"$rpma" push content 127.0.0.1 >/dev/null || die push
killed=$(cat /run/resource-agents/rpma-serve-store.pid)
kill -KILL "$killed"
until "$rpma" pull 127.0.0.1 got >/dev/null 2>&1; do kill -0 %1 %2 || die 'the cluster has ended'; done
cmp content got || die 'another content'
[ "$(cat /run/resource-agents/rpma-serve-store.pid)" != "$killed" ] || die 'it was not killed'
becomes "store.*on node returned 'not running'"
crm_resource --resource store --meta --set-parameter target-role --parameter-value Stopped >/dev/null
becomes 'store.*Stopped (disabled)'
code=0
"$rpma" status 127.0.0.1 >/dev/null 2>&1 || code=$?
[ $code -eq 7 ] || die "the server is there after stop: $code"
! grep -F 'error output' /run/pacemaker.log || die 'the agent has errors of the shell'
