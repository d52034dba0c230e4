#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# preload_symbols.sh LIBRARY SOFT_DEVICE.md: the preload has every name that libibverbs and librdmacm export, under the same version
# node, unless the table below says why the real library may keep it. It has no name that they do not have. The names are
# those of the libraries that are installed, and those of rdma_core_names, whose version is newer. A name that neither has
# fails here, once it is installed, until a developer has checked what it needs. The document's table of calls has each of
# these names, and those that only the installed headers have, and no others.
set -eu
ours=$1
document=$2
known=$(dirname "$0")/rdma_core_names
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Names that the real libraries keep, and why they never get an object of ours.
cat >"$work/theirs" <<'END'
ibv_cmd_.*                        for drivers: the kernel's commands of a context that a driver made
verbs_.*                          for drivers
_?_?(verbs_log|verbs_init_and_alloc_context|ioctl_final_num_attrs)  for drivers
execute_ioctl                     for drivers
ibv_read_ibdev_sysfs_file         for drivers
ibv_(event_type|node_type|port_state|wc_status)_str  text for a number
ibv_rate_to_(mbps|mult)           a number for a number
(mbps|mult)_to_ibv_rate           a number for a number
ibv_copy_.*_(from|to)_kern        one plain struct into another
ibv_(read_sysfs_file|get_sysfs_path)  files below /sys: soft devices have none
ibv_(do|dont)fork_range           a range of memory
ibv_free_buf                      a buffer, which only ibv_alloc_buf makes
ibv_(fork_init|is_fork_initialized)  the process: memory of soft devices may be forked, and needs nothing
r(accept|bind|close|connect|fcntl|getpeername|getsockname|getsockopt|iomap|iounmap|iowrite|listen|poll|read|readv|recv|recvfrom|recvmsg|select|send|sendmsg|sendto|setsockopt|shutdown|write|writev)  the descriptor of an rsocket, which none gets without rsocket
END

# A private node has the number of a version, and a name of it is ours without a node.
exported() {  # exported LIBRARY: NAME@@NODE, NAME@NODE or NAME, one a line
    nm --dynamic --defined-only --with-symbol-versions "$1" | awk '$2 != "A" { print $3 }' |
        sed 's/@@IBVERBS_PRIVATE_.*//' | LC_ALL=C sort
}
installed() {
    /sbin/ldconfig -p | awk -v name="$1" '$1 == name { print $NF; exit }'
}

grep -v '^#' "$known" >"$work/real"
for name in libibverbs.so.1 librdmacm.so.1; do
    library=$(installed $name)
    [ -n "$library" ] || { echo "$name is not installed"; exit 77; }
    # With one @ it is the interface of 2006: it has a device list of its own, in which no device of ours is.
    exported "$library" | grep -v '[^@]@[^@]' >>"$work/real"
done
LC_ALL=C sort -u -o "$work/real" "$work/real"
# verbs_preload/dlopen and files stand in front of libc's.
nm --dynamic --defined-only "$(installed libc.so.6)" | awk '{ sub(/@.*/, "", $3); print $3 }' >"$work/libc"
exported "$ours" | grep -vxFf "$work/libc" >"$work/ours"

pattern=$(awk '{ printf "%s%s", (NR > 1 ? "|" : ""), $1 }' "$work/theirs")
LC_ALL=C comm -23 "$work/real" "$work/ours" | grep -vE "^($pattern)(@@|$)" >"$work/missing" || true
LC_ALL=C comm -13 "$work/real" "$work/ours" >"$work/surplus"
status=0
if [ -s "$work/missing" ]; then
    echo 'these would reach the real library with objects of ours:'
    cat "$work/missing"
    status=1
fi
if [ -s "$work/surplus" ]; then
    echo 'neither library has these:'
    cat "$work/surplus"
    status=1
fi
# The table has no name that the preload covers or that the libraries no longer have.
while read -r entry _; do
    LC_ALL=C comm -23 "$work/real" "$work/ours" | grep -qE "^($entry)(@@|$)" || {
        echo "no name is left for '$entry' in the table of exceptions"
        status=1
    }
done <"$work/theirs"

# The names that are not for drivers: those of the libraries, and of the inlines and macros in their headers.
drivers=$(awk '/for drivers/ { printf "%s%s", (n++ ? "|" : ""), $1 }' "$work/theirs")
headers=$(printf '#include <rdma/rdma_cma.h>\n#include <rdma/rdma_verbs.h>\n' | cc -E -x c - |
    sed -n 's/^# [0-9]* "\([^"]*\(infiniband\/verbs\|rdma_cma\|rdma_verbs\)\.h\)".*/\1/p' | sort -u)
{
    sed 's/@.*//' "$work/real" | grep -vxE "$drivers|ibv_query_gid_type"
    # shellcheck disable=SC2086  # several files
    grep -hoE '\b(ibv|rdma)_[a-z0-9_]+\(' $headers | tr -d '('
} | LC_ALL=C sort -u >"$work/calls"
# shellcheck disable=SC2016  # the marks around names
sed -n '/^## The calls of libibverbs and librdmacm/,/^## TLS/p' "$document" | grep '^|' | grep -oE '`[a-z_0-9]+`' | tr -d '`' |
    LC_ALL=C sort -u >"$work/table"
if ! diff "$work/calls" "$work/table"; then
    echo "'<' is missing in the table of calls of $document, '>' is no call"
    status=1
fi
[ $status -eq 0 ] && echo "$(wc -l <"$work/ours") of $(wc -l <"$work/real") names are ours, the others take nothing of ours"
exit $status
