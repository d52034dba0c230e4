#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run in the kernel lab's guest: blocks of the disk below the store of an rpma server fail (device mapper's error target)
# while a content is pushed: those that are free, which the content gets; those of the file system's journal; and these
# from a random moment of the push on; in turn. That push must fail. A copy of the disk's bytes at that moment then stands
# for a power cut: a server on the copy must have the content that was acknowledged last, or the content whose push said
# that its result is unknown. After that the disk works again, the server is started again, and the test continues.
#   storage-errors.sh BUILD-FOLDER     RPMA_CUTS: how many (default 8); RPMA_SEED: repeats a run's choices
set -u
rpma=$(realpath "$1")/bin/rpma
cuts=${RPMA_CUTS:-8}
seed=${RPMA_SEED:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$((seed % 32768))
export RPMA_DEVICE=soft DM_DISABLE_UDEV=1 PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d) server='' copy_server=''
clean_up() {
    local pid
    for pid in $server $copy_server; do
        kill -KILL "$pid" && wait "$pid"
    done
    umount "$work/cut" "$work/store"
    dmsetup remove --force rpma_store
    [ -z "${loop:-}" ] || losetup -d "$loop"
    rm -rf "$work"
} 2>/dev/null
trap clean_up EXIT
die() {
    echo "FAILED in cut ${cut:-0} of seed $seed: $*"
    tail -n 5 "$work"/*.err
    dmesg | tail -n 5
    exit 1
}
cd "$work" || exit 1
modprobe -a loop dm-mod || { echo 'SKIPPED: no loop or dm-mod module'; exit 77; }

truncate -s 48M disk && loop=$(losetup -f --show disk) || die "no loop device"
sectors=$(blockdev --getsz "$loop")
# table [FIRST-LAST...]: these blocks of 4096 bytes fail from now on.
table() {
    printf '%s\n' "$@" | sort -n | {
        at=0
        while IFS=- read -r first last; do
            [ -n "$first" ] || continue
            [ $((first * 8)) -le $at ] || echo "$at $((first * 8 - at)) linear $loop $at"
            at=$(((${last:-$first} + 1) * 8))
            echo "$((first * 8)) $((at - first * 8)) error"
        done
        [ $at -ge "$sectors" ] || echo "$at $((sectors - at)) linear $loop $at"
    }
}
fail_blocks() {
    table "$@" >table
    dmsetup load rpma_store table && dmsetup suspend --nolockfs rpma_store && dmsetup resume rpma_store || die "dmsetup"
}
dmsetup create --addnodeoncreate rpma_store --table "0 $sectors linear $loop 0" || die "dmsetup create"
store_device=/dev/mapper/rpma_store
mkfs.ext4 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$store_device" || die "mkfs"
mkdir store cut
mount "$store_device" store || die "mount"

# serve NAME STORE PORT: starts a server; returns when it listens, or prints why it does not.
serve() {
    local try
    "$rpma" serve --store "$2" --keep 2 --listen "127.0.0.1:$3" >"$1.out" 2>"$1.err" &
    started=$!
    for try in $(seq 600); do
        grep -q '^listening' "$1.out" && return 0
        kill -0 $started 2>/dev/null || break
        sleep 0.1
    done
    return 1
}
end() { kill "$1" && wait "$1"; }
# holds PORT FILE...: a pull gives one of these files; sets found to it.
holds() {
    local file
    "$rpma" pull "127.0.0.1:$1" got >pull.out 2>pull.err || return 1
    for file in "${@:2}"; do
        cmp -s got "$file" && found=$file && return 0
    done
    return 1
}
journal_blocks() { for page in $(seq 0 1023); do echo "bmap <8> $page"; done | debugfs -f - "$store_device" 2>/dev/null | grep -o '^[0-9]*'; }
free_blocks() { dumpe2fs "$store_device" 2>/dev/null | sed -n 's/^  Free blocks: *//p' | tr -d ' ' | tr ',' '\n' | grep .; }

serve server store/contents 7204 && server=$started || die "no server"
head -c 700000 /dev/urandom >old
"$rpma" push old 127.0.0.1:7204 >push.out 2>push.err || die "the first push"
kinds=(content journal late)
unknown=0
for ((cut = 1; cut <= cuts; cut++)); do
    kind=${kinds[(seed + cut) % 3]}
    size=$((RANDOM * 30 + 1))
    head -c $size /dev/urandom >new
    # The first sync after a failure reports it.
    sync -f store 2>sync.err || sync -f store || die "sync"
    if [ $kind = content ]; then blocks=$(free_blocks); else blocks=$(journal_blocks); fi
    [ -n "$blocks" ] || die "no block of $kind"
    # shellcheck disable=SC2086
    [ $kind = late ] || fail_blocks $blocks
    may=(old)
    "$rpma" push new 127.0.0.1:7204 >push.out 2>push.err &
    push=$!
    if [ $kind = late ]; then
        sleep "0.$(printf '%03d' $((RANDOM * 100 / 32768)))"
        # shellcheck disable=SC2086
        fail_blocks $blocks
    fi
    if wait $push; then
        [ $kind = late ] || die "a push was acknowledged whose $kind storage does not have"
        cp new old
        may=(new)
    fi
    # A store into a mapped file also fails when the file system's journal failed. That ends the connection. A file system
    # that has noticed it takes no new file, and the push is refused.
    grep 'could not make the\|nothing was committed\|refused' push.err >reason || [ "${may[*]}" = new ] ||
        die "push does not say why: $(cat push.err)"
    if grep -q 'the old content or the new' push.err; then
        may=(old new)
        unknown=$((unknown + 1))
    fi
    # The disk may work again or not. When it lost bytes, the server must take no push over the stored content.
    [ $((RANDOM % 2)) -eq 0 ] || fail_blocks
    if "$rpma" push old 127.0.0.1:7204 >push.out 2>push.err && grep -q 'cannot make it durable' server.err; then
        die "a push was taken after storage failed"
    fi
    # Clients do not see content that is not durable. ext4 shuts itself down when its journal fails, and opens no file then.
    holds 7204 old || { [ $kind != content ] && grep -q 'cannot be opened: Input/output error' pull.err; } ||
        die "pulls do not go on after storage failed: $(cat pull.err)"
    cp --sparse=always disk power_cut
    mount -o loop power_cut cut || die "the disk cannot be mounted after the cut"
    serve copy cut/contents 7205 && copy_server=$started || die "no server after the cut"
    holds 7205 "${may[@]}" || die "LOST: $kind failed; none of ${may[*]}: $(cat pull.err)"
    after_cut=$found
    "$rpma" push new 127.0.0.1:7205 >push.out 2>push.err || die "no push after the cut: $(cat push.err)"
    end $copy_server
    copy_server=''
    umount cut
    rm power_cut
    # The machine continues: the disk works again, and the file system and the server are started again.
    end $server
    server=''
    fail_blocks
    # A file system whose journal failed is read-only until it is mounted again. One without a failure keeps its page
    # cache, which may have bytes that storage does not have.
    if [ $kind != content ]; then
        umount store && mount "$store_device" store || die "the disk cannot be mounted again"
    fi
    serve server store/contents 7204 && server=$started || die "no server after the failure"
    holds 7204 "${may[@]}" || die "LOST: $kind failed; after the restart none of ${may[*]}: $(cat pull.err)"
    [ "$found" = "$after_cut" ] || die "LOST: $kind failed; the restart gives $found, the power cut $after_cut"
    cp "$found" kept && mv kept old
    echo "cut $cut: $kind failed; $(cat reason)"
done
echo "seed $seed: $cuts cuts, $unknown with an unknown outcome; nothing acknowledged was lost"
