#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_node.sh RPMA: an HTTP server and 20 clients in one process of Node, over rsockets; then two workers of a cluster,
# which get their connections from the process that accepts (round robin), or its listening socket.
. "$(dirname "$0")/sockets.bash" "$1" node

cat >both.js <<'END'
const http = require('http');
const text = 'over rsockets '.repeat(10000);
const server = http.createServer((request, response) => response.end(text));
const agent = new http.Agent({ keepAlive: true, maxSockets: 10 });
let left = 20;
function check(response) {
    let got = '';
    response.setEncoding('utf8');
    response.on('data', part => got += part);
    response.on('end', () => {
        if (got !== text) throw new Error('something else came');
        if (--left === 0) { agent.destroy(); server.close(); }
    });
}
server.listen(0, '127.0.0.1', () => {
    for (let i = 0; i < 20; i++) http.get({ port: server.address().port, host: '127.0.0.1', agent }, check);
});
END
carry node both.js >both.out 2>&1 || die "node failed"
carried both.out

cat >cluster.js <<'END'
const cluster = require('cluster');
const http = require('http');
const text = 'over rsockets '.repeat(10000);
if (cluster.isPrimary) {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 10 });
    let workers = 2, left = 40;
    function check(response) {
        let got = '';
        response.setEncoding('utf8');
        response.on('data', part => got += part);
        response.on('end', () => {
            if (got !== text) throw new Error('something else came');
            if (--left !== 0) return;
            console.log('all came');
            // The connections stay open until the test has seen them.
            process.stdin.on('end', () => { agent.destroy(); cluster.disconnect(); }).resume();
        });
    }
    cluster.on('listening', (worker, address) => {
        if (--workers !== 0) return;
        for (let i = 0; i < left; i++) http.get({ port: address.port, host: '127.0.0.1', agent }, check);
    });
    for (let i = 0; i < 2; i++) cluster.fork();
} else {
    const server = http.createServer((request, response) => response.end(text));
    server.keepAliveTimeout = 60000;
    server.listen(Number(process.argv[2]), '127.0.0.1');
}
END
mkfifo hold
for policy in rr none; do
    exec 3<>hold
    NODE_CLUSTER_SCHED_POLICY=$policy "${over_rsockets[@]}" node cluster.js "$port" <hold 3>&- >$policy.out 2>&1 &
    cluster=$!
    background+=("$cluster")
    listed node
    exec 3>&-
    wait "$cluster" || die "the cluster failed ($policy)"
    grep -q 'all came' $policy.out || die "not everything came ($policy)"
    carried $policy.out
    [ "$(grep -c ': [1-9][0-9]* connections over rsockets' $policy.out)" -ge 2 ] || die "no worker carried anything ($policy)"
done
