#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `ocf_agent.sh RPMA PEER END AGENT`: the actions of Pacemaker's agent for `rpma serve` do what Pacemaker expects of them, also
# when they come twice, after a kill, and with wrong settings. Where it is installed, ocf-tester runs the agent too.
agent=$(realpath "$4")
. "$(dirname "$0")/server.bash"
export HA_RSCTMP=$work/run OCF_ROOT=/usr/lib/ocf OCF_RESOURCE_INSTANCE=store OCF_RESKEY_rpma=$rpma OCF_RESKEY_store=$work/store

# acts CODE ACTION [REASON]
acts() {
    local code=0
    bounded "$agent" "$2" >stdout 2>stderr || code=$?
    [ $code -eq "$1" ] || die "$2 ended with $code, expected $1"
    [ -z "${3:-}" ] || grep -qF "ocf-exit-reason:$3" stderr || die "$2: expected the reason $3"
}
started() {
    local try
    for try in $(seq 50); do
        address=127.0.0.1:$(shuf -i 20000-31999 -n 1)
        export OCF_RESKEY_listen=$address
        bounded "$agent" start >stdout 2>stderr && { server=$(cat run/rpma-serve-store.pid); return; }
        grep -q 'expected a free port' stderr || die "start"
    done
    die "no free port"
}

# killed: ends the server. Nobody may wait for it, and then it stays as a process without words.
killed() {
    local try
    kill -KILL "$server"
    for try in $(seq 600); do
        grep -qa . "/proc/$server/cmdline" 2>/dev/null || { server=; return; }
        sleep 0.1
    done
    die "the server is there after SIGKILL"
}

acts 3 promote
acts 0 meta-data
python3 -c 'import sys, xml.etree.ElementTree as tree
names = {one.get("name") for one in tree.parse("stdout").getroot().iter("parameter")}
sys.exit(names != {"store", "listen", "options", "status_options", "rpma"})' || die "its description: $(cat stdout)"
acts 0 validate-all
OCF_RESKEY_store='' acts 6 validate-all 'store: expected a folder'
OCF_RESKEY_store=store acts 6 validate-all 'store: store: expected an absolute path'
OCF_RESKEY_rpma=/nowhere acts 5 validate-all '/nowhere: no such command'
acts 7 monitor
acts 0 stop
OCF_RESKEY_options='--keep 0' acts 1 start 'rpma: --keep'

head -c 100000 /dev/urandom >content
started
acts 0 start
acts 0 monitor
push content
pulled content
truncate -s 1000 store/default/1
acts 0 monitor # the other node would have it as it is
mv store gone
rm -r gone
acts 1 monitor 'rpma: '
acts 0 stop
server=
acts 0 stop
acts 7 monitor

export OCF_RESKEY_options=--json
started
unset OCF_RESKEY_options
acts 0 monitor
acts 0 stop
server=

started
killed
acts 7 monitor
echo 4194305 >run/rpma-serve-store.pid # no process has a number so high
acts 7 monitor
[ ! -s stderr ] || die "each monitor of a server that has gone leaves a line in Pacemaker's log: $(cat stderr)"
echo $$ >run/rpma-serve-store.pid # that of another process by now
acts 7 monitor
acts 0 stop
if command -v ocf-tester >/dev/null; then
    started
    acts 0 stop
    server=
    bounded ocf-tester -n store -o "rpma=$rpma" -o "store=$work/store" -o "listen=$address" "$agent" >stdout 2>stderr ||
        die "ocf-tester: $(cat stdout)"
else
    echo 'ocf-tester is not installed: it was left out'
fi
