# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The scripts that run inside the kernel lab's guest source this file. It makes a working folder, $work, and below it
# $store on a file system that can be durable; the guest's own root is in memory and cannot.
work=$(mktemp -d)
store=$work/store
background=()
clean_up() {
    local pid
    for pid in "${background[@]}"; do
        kill "$pid" 2>/dev/null && wait "$pid"
    done
    mountpoint -q "$store" && umount "$store"
    rm -rf "$work"
}
trap clean_up EXIT

mkdir "$store"
modprobe loop
truncate -s 512M "$work/store.image" && mkfs.ext4 -q "$work/store.image" && mount -o loop "$work/store.image" "$store" ||
    exit 1
