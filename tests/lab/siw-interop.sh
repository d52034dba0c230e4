#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run as root inside the kernel lab's guest: every case of test_interop between the soft device and the kernel's
# soft-iWARP, in the four pairs of server and client, with CRC32C asked for by the soft device and not.
#   siw-interop.sh BUILD-FOLDER [ADDRESS]      ADDRESS (default $SIW_IP) is the one that siw serves
# Prints a table, then what each failure says. Ends with 0 when all is well.
set -u
build=$1 address=${2:-${SIW_IP:?no address that siw serves}}
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
mounted=
# shellcheck disable=SC2317
finish() {
    [ -z "$mounted" ] || umount "$work/store"
    rm -rf "$work"
}
trap finish EXIT

# Something a file can be durable on: the guest's own root is in memory.
mkdir "$work/store"
if truncate -s 64M "$work/store.image" && mkfs.ext4 -q "$work/store.image" && modprobe loop &&
    mount -o loop "$work/store.image" "$work/store"; then
    mounted=yes
else
    echo 'no file system to be durable on: the flush case writes to plain memory' >&2
fi

# column SERVER CLIENT CRC: runs one pair; its verdicts go to a file named after the column.
columns=()
column() {
    local name="$2->$1" file=
    [ "$3" = 1 ] && name+=/crc
    # Only the soft device takes a file of the page cache.
    [ "$1" = soft ] && [ -n "$mounted" ] && file=$work/store/durable
    columns+=("$name")
    SOFTRDMA_CRC=$3 timeout 300 "$here/interop-pair.sh" "$build/tests/test_interop" "${1/siw/kernel}" "${2/siw/kernel}" \
        "$address" ${file:+"$file"} >"$work/$(printf %02d ${#columns[@]})" 2>"$work/log-${#columns[@]}"
}
for crc in 0 1; do
    column siw soft $crc
    column soft siw $crc
    column soft soft $crc
done
# The kernel's device does not look at SOFTRDMA_CRC.
column siw siw 0

awk -v names="client->server ${columns[*]}" '
    BEGIN { split(names, name, " ") }
    FNR == 1 { ++file }
    { cell[$1, file] = $2; if (!($1 in seen)) { seen[$1]; order[++count] = $1 } }
    $2 != "ok" { failures = failures "\n" name[file + 1] ": " $0; failed = 1 }
    function width(i) { return i == 1 ? 22 : length(name[i]) + 2 }
    END {
        for (i = 1; i in name; i++) printf "%-*s", width(i), name[i]
        for (row = 1; row <= count; row++) {
            printf "\n%-22s", order[row]
            for (i = 2; i in name; i++) {
                text = (order[row], i - 1) in cell ? cell[order[row], i - 1] : "-"
                failed = failed || text != "ok"
                printf "%-*s", width(i), text
            }
        }
        print "\n" failures
        exit failed || count == 0
    }' "$work"/[0-9]*
code=$?
[ $code = 0 ] || tail -n 20 "$work"/log-*
exit $code
