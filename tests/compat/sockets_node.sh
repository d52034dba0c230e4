#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_node.sh RPMA: an HTTP server and 20 clients run in one process of Node, carried; then two workers of a
# cluster get their connections from the process that accepts (round robin), or get its listening socket.
. "$(dirname "$0")/sockets.bash" "$1" node

cat >client.js <<'END'
// ask(port, times, end): has the text of a server so often, over ten connections at most, and calls end(agent) then.
const http = require('http');
const text = 'some carried bytes '.repeat(10000);
exports.text = text;
exports.ask = (port, times, end) => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 10 });
    let left = times;
    function check(response) {
        let got = '';
        response.setEncoding('utf8');
        response.on('data', part => got += part);
        response.on('end', () => {
            if (got !== text) throw new Error('something else came');
            if (--left === 0) end(agent);
        });
    }
    for (let i = 0; i < times; i++) http.get({ port, host: '127.0.0.1', agent }, check);
};
END
cat >both.js <<'END'
const { text, ask } = require('./client.js');
const server = require('http').createServer((request, response) => response.end(text));
server.listen(0, '127.0.0.1', () => ask(server.address().port, 20, agent => { agent.destroy(); server.close(); }));
END
carry node both.js >both.out 2>&1 || die "node failed"
carried both.out

cat >cluster.js <<'END'
const cluster = require('cluster');
const { text, ask } = require('./client.js');
if (cluster.isPrimary) {
    let workers = 2;
    cluster.on('listening', (worker, address) => {
        if (--workers !== 0) return;
        ask(address.port, 40, agent => {
            console.log('all came');
            // The connections stay open until the test has seen them.
            process.stdin.on('end', () => { agent.destroy(); cluster.disconnect(); }).resume();
        });
    });
    for (let i = 0; i < 2; i++) cluster.fork();
} else {
    const server = require('http').createServer((request, response) => response.end(text));
    server.keepAliveTimeout = 60000;
    server.listen(Number(process.argv[2]), '127.0.0.1');
}
END
mkfifo hold
for policy in rr none; do
    exec 3<>hold
    NODE_CLUSTER_SCHED_POLICY=$policy "${carried_by[@]}" node cluster.js "$port" <hold 3>&- >$policy.out 2>&1 &
    cluster=$!
    background+=("$cluster")
    exec 3>&-
    wait "$cluster" || die "the cluster failed ($policy)"
    grep -q 'all came' $policy.out || die "not everything came ($policy)"
    carried $policy.out
done
