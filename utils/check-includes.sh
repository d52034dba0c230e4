#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks who includes whom: `utils/check-includes.sh [TREE]` reads src/ and examples/ of the tree (default: this one)
# and ends with 1 when a file includes what the table below does not give its room. The table is the design's; change
# it there first. doc/ARCHITECTURE.md shows what each room knows.
set -eu
tree=$(realpath "${1:-"$(dirname "$0")/.."}")

# room: other rooms, and headers of include/ and rdma-core (rdma), that it may include. Every room of src/ may include
# base and itself as well.
table='
base:
persist:
soft/wire:
soft/link:     persist
soft/tls:      soft/link persist
soft/ground:    softrdma.h rdma
soft/progress:  soft/ground soft/link persist
soft/memory:    soft/ground soft/wire persist softrdma.h rdma
soft/device:    soft/ground soft/tls soft/memory rdma
soft/queues:    soft/ground soft/wire soft/memory soft/progress soft/device softrdma.h rdma
soft/transport: soft/ground soft/link soft/wire soft/memory soft/progress soft/queues persist softrdma.h rdma
soft/connected: soft/ground soft/link soft/wire soft/memory soft/progress soft/device soft/queues soft/transport persist softrdma.h rdma
soft/datagram:  soft/ground soft/wire soft/memory soft/progress soft/device soft/queues persist softrdma.h rdma
soft/cm:        soft/ground soft/link soft/tls soft/wire soft/memory soft/progress soft/device soft/queues soft/transport soft/connected soft/datagram softrdma.h rdma
soft/api:       soft/ground soft/tls soft/wire soft/memory soft/progress soft/device soft/queues soft/connected soft/datagram soft/cm persist softrdma.h rdma
registry:
verbs:          softrdma.h rdma
verbs_preload:  registry softrdma.h rdma
librpma:        verbs librpma.h
datagram:       verbs
stream:         registry librpma.h
rsocket:        stream datagram registry rpma/rsocket.h
rstream:        stream librpma.h rdma
carry:          registry
carry_preload:  carry
carry_device:   carry librpma.h
cli:            registry librpma.h softrdma.h
cli/protocol:   cli
cli/store:      cli cli/protocol librpma.h
cli/transfer:   cli cli/protocol librpma.h
cli/perf:       cli cli/protocol cli/store cli/transfer librpma.h
cli/serve:      cli cli/protocol cli/store cli/transfer cli/perf stream librpma.h softrdma.h
cli/peers:      cli cli/protocol cli/store cli/transfer registry soft/wire stream librpma.h softrdma.h
cli/run:        cli
examples:       librpma.h softrdma.h rpma.hpp rpma/rsocket.h rdma
'
# soft/wire is pure: no I/O, no clock, no threads.
impure='^(sys/|netinet/|arpa/|unistd[.]h|fcntl[.]h|poll[.]h|time[.]h|stdio[.]h|chrono|ctime|cstdio|iostream|fstream|filesystem|thread|mutex|atomic|base/(clock|fd|log)[.]hpp)'

cd "$tree"
[ -d src ] || { echo "check-includes: $tree has no src/" >&2; exit 2; }
folders=(src)
[ -d examples ] && folders+=(examples)
mapfile -t files < <(find "${folders[@]}" -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' \) | LC_ALL=C sort)
[ ${#files[@]} -gt 0 ] || { echo "check-includes: $tree has no source" >&2; exit 2; }
headers=$(find include -type f 2>/dev/null | sed 's,^include/,,')

awk -v table="$table" -v impure="$impure" -v headers="$headers" '
    BEGIN {
        lines = split(table, line, "\n")
        for (i = 1; i <= lines; i++) {
            if (split(line[i], part, ":") < 2) continue
            room = part[1]
            known[room] = 1
            if (room != "examples") allowed[room, room] = allowed[room, "base"] = 1
            words = split(part[2], word, " ")
            may[room] = part[2]
            sub(/^ +/, "", may[room])
            for (j = 1; j <= words; j++) allowed[room, word[j]] = 1
        }
        count = split(headers, line, "\n")
        for (i = 1; i <= count; i++) installed[line[i]] = 1
    }

    # The room of a path below src/: the longest known prefix, or else its first folder.
    function room_of(path,    part) {
        split(path, part, "/")
        return (part[1] "/" part[2] in known) ? part[1] "/" part[2] : part[1]
    }

    function complain(why) {
        printf "%s:%d: room %s includes %s: %s\n", FILENAME, FNR, room, name, why
        bad++
    }

    FNR == 1 {
        path = FILENAME
        if (path ~ /^examples\//) room = "examples"
        else { sub(/^src\//, "", path); room = room_of(path) }
        folder = FILENAME
        sub(/\/[^\/]*$/, "", folder)
        if (!(room in known)) {
            printf "%s: room %s is not in the table of utils/check-includes.sh\n", FILENAME, room
            bad++
        }
    }

    /^[ \t]*#[ \t]*include[ \t]*["<]/ {
        checked++
        quoted = ($0 ~ /include[ \t]*"/)
        name = $0
        sub(/^[^"<]*["<]/, "", name)
        sub(/[">].*$/, "", name)
        if (name ~ /(^|\/)\.\.\//) { complain("a path that leaves its folder; name it from src/"); next }
        if (room == "soft/wire" && name ~ impure) { complain("the codecs are pure: no I/O, no clock, no threads"); next }

        first = name
        if (!sub(/\/.*$/, "", first)) first = ""
        if (name in installed) what = name
        else if (first == "infiniband" || first == "rdma") what = "rdma"
        else if (room_of(name) in known) what = room_of(name)
        else if (quoted) {
            if (room == "examples" && name ~ /\.pb-c\.h$/) next  # made by protoc-c of the .proto beside it
            if (room == "examples") complain("an example is one file that can be copied")
            else complain("not a header of this tree; name it from src/, as \"" room "/...\"")
            next
        }
        else next
        if (!((room, what) in allowed)) {
            complain("it may include " (room == "examples" ? "" : "base, itself, ") (may[room] == "" ? "nothing else" : may[room]))
        }
    }

    END {
        if (bad) { printf "check-includes: %d includes break the table of rooms\n", bad; exit 1 }
        printf "check-includes: %d includes in %d files keep to the table of rooms\n", checked, ARGC - 1
    }
' "${files[@]}"
