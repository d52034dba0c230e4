#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Shows that utils/check-includes.sh passes a tree that keeps the table and names each line that breaks it.
set -eu
check=$(realpath "$(dirname "$0")/../../utils/check-includes.sh")
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

put() {  # put FILE LINE: makes FILE with that line as its third
    mkdir -p "$tree/$(dirname "$1")"
    printf '// one\n// two\n%s\n' "$2" >"$tree/$1"
}

expect_good() {  # expect_good FILE LINE
    put "$1" "$2"
    if ! output=$("$check" "$tree"); then
        printf 'refused but allowed: %s in %s\n%s\n' "$2" "$1" "$output"
        failures=$((failures + 1))
    fi
}

expect_bad() {  # expect_bad FILE LINE: the check must name the file and the line's number
    put "$1" "$2"
    if output=$("$check" "$tree"); then
        printf 'not noticed: %s in %s\n' "$2" "$1"
        failures=$((failures + 1))
    elif ! grep -q "^$1:3: " <<<"$output"; then
        printf 'noticed, but not where: %s in %s\n%s\n' "$2" "$1" "$output"
        failures=$((failures + 1))
    fi
    rm "$tree/$1"
}

mkdir -p "$tree/include/rpma"
touch "$tree/include/librpma.h" "$tree/include/softrdma.h" "$tree/include/rpma/rsocket.h"

expect_good src/base/log.hpp '#include <cstdio>'
expect_good src/soft/connected/qp.cpp '#include "soft/wire/ddp.hpp"'
expect_good src/soft/memory/memory.cpp '#include "persist/memory.hpp"'
expect_good src/soft/cm/id.cpp '#include "softrdma.h"'
expect_good src/soft/wire/ddp.cpp '#include "base/cursor.hpp"'
expect_good src/verbs/provider.hpp '#include <rdma/rdma_cma.h>'
expect_good src/librpma/conn.cpp '#include "verbs/provider.hpp"'
expect_good src/cli/transfer/push.cpp '#include <librpma.h>'
expect_good src/cli/store/store.cpp '#include "cli/protocol/protocol.hpp"'
expect_good src/stream/credits.cpp '#include "librpma.h"'
expect_good examples/01-connection/client.c '#include <librpma.h>'
expect_good examples/09-flush-to-persistent-gpspm/client.c '#include "flush.pb-c.h"'

expect_bad src/base/ring.hpp '#include "persist/memory.hpp"'
expect_bad src/base/clock.hpp '#include <infiniband/verbs.h>'
expect_bad src/soft/wire/mpa.cpp '#include "soft/connected/queue_pair.hpp"'
expect_bad src/soft/link/link.cpp '#include "soft/wire/mpa.hpp"'
expect_bad src/soft/wire/mpa.cpp '#include "persist/memory.hpp"'
expect_bad src/soft/wire/mpa.cpp '#include <sys/socket.h>'
expect_bad src/soft/wire/mpa.cpp '#include "base/clock.hpp"'
expect_bad src/soft/wire/mpa.cpp '  #  include <chrono>'
expect_bad src/soft/queues/shared_receive.cpp '#include "librpma.h"'
expect_bad src/soft/queues/shared_receive.cpp '#include "verbs/provider.hpp"'
expect_bad src/verbs/soft.cpp '#include "soft/connected/queue_pair.hpp"'
expect_bad src/soft/queues/shared_receive.cpp '#include "soft/connected/queue_pair.hpp"'
expect_bad src/soft/memory/memory.cpp '#include "soft/queues/completion_queue.hpp"'
expect_bad src/soft/connected/qp.cpp '#include "soft/cm/cm.hpp"'
expect_bad src/soft/connected/qp.cpp '#include "soft/datagram/queue_pair.hpp"'
expect_bad src/librpma/mr.cpp '#include "soft/memory/memory.hpp"'
expect_bad src/librpma/mr.cpp '#include "softrdma.h"'
expect_bad src/librpma/mr.cpp '#include <infiniband/verbs.h>'
expect_bad src/cli/serve/serve.cpp '#include "librpma/conn.hpp"'
expect_bad src/cli/serve/serve.cpp '#include "../persist/memory.hpp"'
expect_bad src/cli/serve/serve.cpp '#include "store.hpp"'
expect_bad src/cli/arguments.cpp '#include "cli/protocol/protocol.hpp"'
expect_bad src/cli/store/store.cpp '#include "cli/serve/server.hpp"'
expect_bad src/stream/message.cpp '#include "verbs/provider.hpp"'
expect_bad examples/01-connection/server.c '#include "common.h"'
expect_bad examples/01-connection/server.c '#include "base/log.hpp"'

put src/surprise/room.cpp '#include <vector>'
if "$check" "$tree" >/dev/null; then
    echo 'not noticed: a room that is not in the table'
    failures=$((failures + 1))
fi

[ "$failures" = 0 ] && echo 'check-includes notices every violation it is shown'
exit "$((failures > 0))"
