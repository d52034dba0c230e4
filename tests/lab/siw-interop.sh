#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Run as root inside the kernel lab's guest: runs every case of test_interop between the soft device and the kernel's
# soft-iWARP, in both roles; the soft device requests CRC32C, and then does not. The host runs soft with soft.
#   siw-interop.sh BUILD-FOLDER [ADDRESS]      ADDRESS (default $SIW_IP) is the one that siw serves
# It prints a table, then the output of each failure. It ends with 0 when all are ok.
set -u
build=$1 address=${2:-${SIW_IP:?no address that siw serves}}
here=$(dirname "$(realpath "$0")")
# shellcheck source=store.bash
. "$here/store.bash"

# column SERVER CLIENT CRC: runs one pair; its verdicts go to a file with the column's number.
columns=()
column() {
    local name="$2->$1" file=
    [ "$3" = 1 ] && name+=/crc
    # Only the soft device takes a file of the page cache.
    [ "$1" = soft ] && file=$store/durable
    columns+=("$name")
    echo "running $name" >&2
    SOFTRDMA_CRC=$3 timeout 900 "$here/interop-pair.sh" "$build/tests/test_interop" "${1/siw/kernel}" \
        "${2/siw/kernel}" "$address" ${file:+"$file"} >"$work/${#columns[@]}" 2>"$work/log-${#columns[@]}"
}
for crc in 0 1; do
    column siw soft $crc
    column soft siw $crc
done

awk -v names="${columns[*]}" '
    BEGIN { columns = split(names, name, " "); failed = 0 }
    FNR == 1 { file = FILENAME; sub(/.*\//, "", file) }
    { cell[$1, file] = $2; if (!($1 in seen)) { seen[$1]; order[++count] = $1 } }
    $2 != "ok" { failures = failures "\n" name[file] ": " $0 }
    END {
        printf "%-22s", "client->server"
        for (i = 1; i <= columns; i++) printf "%-*s", length(name[i]) + 2, name[i]
        for (row = 1; row <= count; row++) {
            printf "\n%-22s", order[row]
            for (i = 1; i <= columns; i++) {
                text = (order[row], i) in cell ? cell[order[row], i] : "-"
                if (text != "ok") failed = 1
                printf "%-*s", length(name[i]) + 2, text
            }
        }
        print "\n" failures
        exit failed || count == 0
    }' "$work"/[0-9]*
code=$?
[ $code = 0 ] || tail -n 20 "$work"/log-*
exit $code
