# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the scripts here, with the paths of rpma and of test_peer as arguments: a server on a free port, checks, and
# a working folder that is removed at the end. RPMA_TEST_ADDRESS is where the server listens (default: 127.0.0.1),
# RPMA_STORE_FOLDER where its stores are, if not there.
set -eu
rpma=$1
peer=$2
case $(stat -f -c %T .) in
tmpfs | ramfs) echo "skipped: the build folder is in memory, where nothing is durable"; exit 77 ;;
esac
work=$(mktemp -d "$PWD/work.XXXXXX")
cd "$work"
server=
helpers=()

clean_up() {
    for pid in $server "${helpers[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    cd /
    rm -rf "$work"
}
trap clean_up EXIT

die() {
    echo "FAILED (line ${BASH_LINENO[0]}): $*" >&2
    for file in server.err stderr; do
        [ ! -s "$file" ] || sed "s/^/    $file: /" "$file" >&2
    done
    exit 1
}

# has_attributes FOLDER: files there can have what a store needs.
has_attributes() {
    local file code=0
    file=$(mktemp -p "$1")
    python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.rpma", b"")' "$file" 2>/dev/null || code=1
    rm "$file"
    return $code
}

# No command here takes longer than this, or it hangs.
bounded() { timeout --kill-after=5 120 "$@"; }

# make_keys IDENTITY...: a file with the key of each identity, and `keys` with all of them.
make_keys() {
    local name
    for name in "$@"; do
        "$rpma" keygen "$name" "$name" || die "keygen"
    done
    cat "$@" >keys
    chmod 600 keys
}

# start_server STORE [OPTION...]: returns when it listens; sets server (pid), port and address. Its output goes on to
# server.out and server.err. There is no port 0 in librpma's API, so ports are tried. METRICS in an option is an address with
# a port that is tried too, which is then in metrics_port.
start_server() {
    local try out line path=$1
    shift
    [[ $path = /* ]] || path=${RPMA_STORE_FOLDER:-.}/$path
    for try in $(seq 50); do
        port=$(shuf -i 20000-31999 -n 1)
        address=${listen_on:-${RPMA_TEST_ADDRESS:-127.0.0.1}}:$port
        [ "$address" != "${leader_address:-}" ] || continue # a leader that is away comes back there
        metrics_port=$(shuf -i 20000-31999 -n 1)
        rm -f server.fifo
        mkfifo server.fifo
        "$rpma" serve --store "$path" --listen "$address" "${@//METRICS/127.0.0.1:$metrics_port}" >server.fifo 2>server.err &
        server=$!
        exec {out}<server.fifo
        : >server.out
        while read -t 60 -r line <&"$out"; do
            echo "$line" >>server.out
            case $line in
            listening* | *'"listening"'*)
                cat <&"$out" >>server.out &
                helpers+=($!)
                exec {out}<&-
                return 0
                ;;
            esac
        done
        exec {out}<&-
        wait "$server" || true
        server=
        grep -q 'expected a free port' server.err || die "the server does not start"
    done
    die "no free port"
}

# stop_server [SIGNAL]: ends it, and checks that it ends cleanly.
stop_server() {
    local code=0
    kill "-${1:-TERM}" "$server"
    wait "$server" || code=$?
    server=
    [ $code -eq 0 ] || die "the server ended with $code"
}

# scraped: the server's metrics of now, of its port metrics_port, are in the file `metrics`.
scraped() {
    local http
    exec {http}<>"/dev/tcp/127.0.0.1/$metrics_port"
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&"$http"
    timeout 40 sed '1,/^\r$/d' <&"$http" >metrics || die 'no metrics'
    exec {http}>&-
}

# metric NAME: prints the value that the server's metrics of now have for it.
metric() {
    scraped
    sed -n "s/^$1 \([0-9.e+]*\).*/\1/p" metrics
}

# status_says TEXT: the status, which is then in stdout, has it.
status_says() { bounded "$rpma" status "$address" --timeout 20 >stdout 2>stderr || true; cat stderr >>stdout; grep -qF -- "$1" stdout; }

# logged TEXT: the server's log has the text, or gets it from the thread that writes it.
logged() {
    # shellcheck disable=SC2016
    timeout 60 bash -c 'until grep -qF -- "$1" server.err; do :; done' - "$1" || die "expected of the server: $1"
}

# refused TEXT COMMAND...: it fails by itself, with one line on standard error that contains the text; sets code.
refused() {
    local text=$1
    code=0
    shift
    bounded "$@" >stdout 2>stderr || code=$?
    case $code in 0 | 124 | 125 | 12[89] | 1[3-9]? | 2??) die "ended with $code, expected a failure: $*" ;; esac
    [ "$(wc -l <stderr)" -eq 1 ] || die "expected one line on standard error: $*"
    grep -qF -- "$text" stderr || die "expected \"$text\": $*"
    echo "refused: $(cat stderr)"
}

# refused_with CODE TEXT COMMAND...: as refused, with this exit code.
refused_with() {
    refused "${@:2}"
    [ $code -eq "$1" ] || die "ended with $code, expected $1: ${*:3}"
}

# push FILE [WHERE]
push() { bounded "$rpma" push "$1" "${2:-$address}" >stdout 2>stderr || die "push $1"; }

# pulled FILE... [WHERE]: a pull gives the bytes of one of these files; sets found to its name.
pulled() {
    local file where=$address
    case ${*: -1} in *:*) where=${*: -1} ;; esac
    bounded "$rpma" pull "$where" got >stdout 2>stderr || die "pull"
    for file in "$@"; do
        if cmp -s got "$file"; then
            found=$file
            return 0
        fi
    done
    die "pull gave none of: $*"
}
