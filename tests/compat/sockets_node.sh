#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_node.sh RPMA: an HTTP server and 20 clients in one process of Node, over rsockets.
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
