# SPDX-License-Identifier: BSD-3-Clause
# sockets.bash RPMA PROGRAM...: what tests of programs over `rpma run --sockets` have in common. Sourced: each runs in
# a folder of its own, with a free port in $port, and is skipped where one of the programs is not installed.
set -eu
tests=$(realpath "${BASH_SOURCE[0]%/*}/..")
. "$tests/ports.bash"
rpma=$1
shift
for program in "$@"; do
    command -v "$program" >/dev/null || {
        echo "$program is not installed (group compat of utils/install-dependencies.sh)"
        exit 77
    }
done
# A server that root starts may become another user, who does not reach every TMPDIR.
[ "$(id -u)" -ne 0 ] || export TMPDIR=/tmp
work=$(mktemp -d)
cd "$work"
background=()

finish() {
    local status=$? process
    for process in "${background[@]}"; do kill "$process" 2>/dev/null || true; done
    wait
    [ $status -eq 0 ] || [ $status -eq 77 ] || tail -n 30 -- "$work"/*.out >&2 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
die() {
    echo "$1" >&2
    exit 1
}

port=$(free_port) address=127.0.0.1 # of the server

# carry COMMAND...: runs it with its connections carried, for 50 seconds at most. "${carried_by[@]}" COMMAND... & is one process.
carried_by=(timeout 50 "$rpma" run --sockets --stats --device memory)
carry() { "${carried_by[@]}" "$@"; }

# nginx_config ADDRESS SENDFILE: writes nginx.conf, by which nginx is one process that gives the files of www at $port; it
# uses sendfile, or not (on, off).
nginx_config() {
    cat >nginx.conf <<END
daemon off;
master_process off;
pid $work/nginx.pid;
error_log $work/nginx.log;
events { worker_connections 64; }
http {
    access_log off;
    sendfile $2;
    client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3;
    uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
    server { listen $1:$port; root $work/www; }
}
END
}

# become USER: when root runs the test, "${carried_by[@]}" becomes USER first, and so does a command after "${as[@]}".
as=()
become() {
    [ "$(id -u)" -eq 0 ] || return 0
    local words
    chmod 755 "$work"
    words=$("$tests/other_user.sh" "$rpma" "$work/own" "$1") || die "$1 cannot run rpma"
    mapfile -t as <<<"$words"
    carried_by=("${as[@]}" "${carried_by[@]/#"$rpma"/"$work/own/bin/rpma"}")
}

# serve NAME COMMAND...: starts a server that listens at $port; its output is NAME.out, its process $server.
serve() {
    local name=$1
    shift
    "${carried_by[@]}" "$@" >"$name.out" 2>&1 </dev/null &
    server=$!
    background+=("$server")
    until listening "$port"; do
        kill -0 "$server" 2>/dev/null || die "$name ended before it listened"
        sleep 0.02
    done
}

# stop NAME SIGNAL: ends the server. timeout(1) would give it the signal twice.
stop() {
    kill "-$2" "$(pgrep -P "$server")"
    ended "$1"
}

# ended NAME: waits for the server, which ends by itself, or is told to by now.
ended() {
    local status=0
    wait "$server" || status=$?
    [ $status -eq 0 ] || die "$1 ended with $status"
}

# front_config BEHIND: prints how haproxy, with two threads, stands at $address and $port in front of the server at the port BEHIND.
# Otherwise haproxy forbids itself more threads (RLIMIT_NPROC), which only root may have then, and the soft device needs one.
front_config() {
    cat <<END
global
    nbthread 2
    insecure-fork-wanted
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 20s
listen front
    bind $address:$port
    server behind $address:$1
END
}

# carried FILE...: the processes that wrote these files say how many of their connections went over memory.
carried() {
    local file
    for file in "$@"; do
        grep -q 'rpma run --sockets: .* connections over memory, ' "$file" || die "$file: nothing is said of connections"
    done
}
