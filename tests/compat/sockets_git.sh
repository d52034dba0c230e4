#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_git.sh RPMA: git's daemon, which starts a program for each client with the connection as standard input and
# output, has a repository cloned and gets a push; the client gives its connection to programs as well.
. "$(dirname "$0")/sockets.bash" "$1" git

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
commit() { git -C "$1" -c user.name=a -c user.email=a@example.com commit -qm "$2"; }
git init -q -b main source
for i in $(seq 100); do head -c 20000 /dev/urandom >"source/$i"; done
git -C source add .
commit source first
git clone -q --bare source served.git
serve server git daemon --reuseaddr --listen=127.0.0.1 --port="$port" --base-path="$work" --export-all --enable=receive-pack
url=git://127.0.0.1:$port/served.git
carry git clone -q "$url" copy >clone.out 2>&1 || die "git cannot clone"
diff -r -x .git source copy || die "a file changed"
head -c 2M /dev/urandom >copy/more
git -C copy add more
commit copy second
carry git -C copy push -q origin main >push.out 2>&1 || die "git cannot push"
git clone -q "$url" plain >tcp.out 2>&1 || die "git cannot clone over TCP"
cmp copy/more plain/more || die "what was pushed changed"
carried clone.out push.out
