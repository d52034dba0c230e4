#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures how long a push takes over the loopback's TCP, by turns with what else makes the same bytes durable: a push of a
# new file beside dd with conv=fsync, and a push of the file with 1 % of its blocks changed beside a whole one and beside
# `rsync --inplace --fsync` to a daemon; then a pull of what has changed beside a whole one and beside rsync from there.
# rsync compares with --ignore-times: it would take a file that changed within the same second for the same.
# Each FOLDER is on a file system of its own; the file that is pushed is in WORK.
# Beside them are the floors of a push that compares: reading the file once, and its SHA-256, each with one thread. Prints a
# table in Markdown for each folder; a figure is the median of the rounds.
#   push.sh [--quick] BUILD WORK FOLDER...
set -u
export SOFTRDMA_SHM=off RPMA_DEVICE=soft
rounds=3 mebibytes=1024
if [ "${1:-}" = --quick ]; then
    rounds=1 mebibytes=16
    shift
fi
build=$(realpath "$1")
rpma=$build/bin/rpma
source=$(mktemp -d -p "$(realpath "$2")")
shift 2
command -v rsync >/dev/null || { echo 'rsync is not installed'; exit 77; }
. "$(dirname "$(realpath "$0")")/two_ends.bash"
longest=3600
daemon=
target=
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null
    finish
    rm -rf "$source" ${target:+"$target"}
}
trap clean_up EXIT

# seconds COMMAND...: prints how long it takes, with nothing else on its way to storage.
seconds() {
    local begin
    sync
    begin=$(date +%s%N)
    "$@" >"$work/client" 2>&1 || die "'$*' failed"
    awk -v begin="$begin" -v end="$(date +%s%N)" 'BEGIN { print (end - begin) / 1e9 }'
}

# change: new bytes in 1 % of the file's blocks of 64 KiB.
change() {
    python3 - "$source/file" <<'PYTHON' || die 'no change'
import os, random, sys
block = 65536
with open(sys.argv[1], 'r+b') as file:
    blocks = os.fstat(file.fileno()).st_size // block
    for one in random.sample(range(blocks), max(blocks // 100, 1)):
        file.seek(one * block)
        file.write(os.urandom(block))
PYTHON
}

changed_bytes=$((mebibytes * 16 / 100 > 0 ? mebibytes * 16 / 100 * 65536 : 65536))
head -c "${mebibytes}M" /dev/urandom >"$source/file" || die 'no room for the file'
for folder in "$@"; do
    target=$(mktemp -d -p "$(realpath "$folder")")
    port=$(free_port)
    begin_server "$port" "$rpma" serve --store "$target/store" --listen "127.0.0.1:$port" --keep 1
    rpma_server=$server
    rsync_port=$(free_port)
    mkdir "$target/there"
    printf 'use chroot = no\nport = %s\naddress = 127.0.0.1\n[there]\npath = %s\nread only = no\n' \
        "$rsync_port" "$target/there" >"$work/rsyncd.conf"
    # Only root's daemon becomes another user, who does not reach the folder; others may not name a user.
    [ "$(id -u)" -ne 0 ] || printf 'uid = 0\ngid = 0\n' >>"$work/rsyncd.conf"
    begin_server "$rsync_port" rsync --daemon --no-detach --config="$work/rsyncd.conf"
    daemon=$server server=$rpma_server
    mirror() { rsync --inplace --fsync --no-whole-file --ignore-times "$source/file" "rsync://127.0.0.1:$rsync_port/there/"; }
    mirror >"$work/client" 2>&1 || die 'rsync failed'
    for _ in $(seq $rounds); do
        copied=$(seconds dd if="$source/file" of="$target/copy" bs=1M conv=fsync)
        rm "$target/copy"
        whole=$(seconds "$rpma" push "$source/file" "127.0.0.1:$port")
        "$rpma" push --incremental "$source/file" "127.0.0.1:$port" >"$work/client" 2>&1 || die 'no checksums of blocks'
        change
        changed=$(seconds "$rpma" push --incremental "$source/file" "127.0.0.1:$port")
        grep -qE "^sent +$changed_bytes bytes" "$work/client" ||
            die 'more or less was sent than has changed'
        mirrored=$(seconds mirror)
        pulled=$(seconds "$rpma" pull "127.0.0.1:$port" "$target/copy")
        cp "$target/copy" "$target/mirrored"
        change
        "$rpma" push --incremental "$source/file" "127.0.0.1:$port" >"$work/client" 2>&1 || die 'no second change'
        mirror >"$work/client" 2>&1 || die 'rsync failed'
        pulled_back=$(seconds "$rpma" pull --incremental "127.0.0.1:$port" "$target/copy")
        grep -qE "^received +$changed_bytes bytes" "$work/client" || die 'more or less was received than has changed'
        mirrored_back=$(seconds rsync --inplace --fsync --no-whole-file --ignore-times "rsync://127.0.0.1:$rsync_port/there/file" "$target/mirrored")
        cmp "$source/file" "$target/copy" && cmp "$source/file" "$target/mirrored" || die 'a copy has other bytes'
        rm "$target/copy" "$target/mirrored"
        read_once=$(seconds dd if="$source/file" of=/dev/null bs=1M)
        hashed=$(seconds openssl dgst -sha256 "$source/file")
        echo "$copied $whole $changed $mirrored $pulled $read_once $hashed $pulled_back $mirrored_back" >>"$work/rounds"
    done
    kill "$rpma_server" "$daemon"
    wait "$rpma_server" "$daemon"
    server='' daemon=''
    rm -rf "$target"
    of() { awk "{ print $1 }" "$work/rounds" | median | awk '{ printf "%.3g", $1 }'; } # of EXPRESSION
    printf '\n| %s MiB, store on %s | seconds | ratio | at least, most |\n|---|---|---|---|\n' "$mebibytes" "$(stat -f -c %T "$folder")"
    printf '| dd with conv=fsync | %s | | |\n' "$(of '$1')"
    printf '| a push of a new file; dd beside it | %s | %s | 0.95 |\n' "$(of '$2')" "$(of '$1 / $2')"
    printf '| a push with 1 %% of the blocks changed; a whole one beside it | %s | %s | 20 |\n' "$(of '$3')" "$(of '$2 / $3')"
    printf '| `rsync --inplace --fsync` of the same; the push beside it | %s | %s | 2.5 |\n' "$(of '$4')" "$(of '$3 / $4')"
    printf '| reading the file once, and its SHA-256, one thread; the push beside this | %s, %s | %s | |\n' "$(of '$6')" \
        "$(of '$7')" "$(of '$3 / $7')"
    printf '| a pull to a new file; dd beside it | %s | %s | |\n' "$(of '$5')" "$(of '$1 / $5')"
    printf '| a pull to a file of which 1 %% of the blocks differ; a whole one beside it | %s | %s | |\n' "$(of '$8')" "$(of '$5 / $8')"
    printf '| `rsync --inplace --fsync` of the same from there; the pull beside it | %s | %s | 2.5 |\n' "$(of '$9')" "$(of '$8 / $9')"
    rm "$work/rounds"
done
