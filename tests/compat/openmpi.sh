#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# openmpi.sh RPMA: runs openmpi.c with two ranks and with six in Debian's Open MPI, unmodified, over libfabric's verbs
# provider and the soft device, and then over UCX and queue pairs by number. Messages can take no other transport than the
# one named here. With libfabric, MPI_Put and MPI_Get are sent as messages: Open MPI's component for RDMA (btl ofi) takes
# libfabric's tcp provider, and never `verbs;ofi_rxm`. libfabric ignores loopback interfaces, so off_loopback.sh runs this
# test.
set -eu
rpma=$1
for program in mpicc mpirun; do
    command -v $program >/dev/null || {
        echo "$program is not installed (group compat of utils/install-dependencies.sh)"
        exit 77
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mpicc -std=c17 -O2 -Wall -Wextra -Werror "${0%.sh}.c" -o "$work/program"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$work
run_program() {  # run_program RANKS OPTION_OF_RUN... -- OPTION_OF_MPIRUN...
    local ranks=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    timeout 25 "$rpma" run "${options[@]}" mpirun --oversubscribe -n "$ranks" "$@" --mca btl self "$work/program" \
        >"$work/out" 2>&1 || {
        status=$?
        cat "$work/out"
        echo "mpirun -n $ranks $* ended with $status"
        exit 1
    }
    grep "^$ranks ranks have what they had to get" "$work/out"
}

over_verbs=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm' --mca osc pt2pt)
for ranks in 2 6; do
    run_program $ranks -- "${over_verbs[@]}" --mca mtl_base_verbose 1
    [ "$(grep -c 'mtl:ofi:provider: soft_veth0$' "$work/out")" -eq $ranks ] || {
        cat "$work/out"
        echo "not each of the $ranks ranks uses soft_veth0"
        exit 1
    }
done

# UCX has no other transport and device then, or refuses.
export UCX_TLS=rc UCX_NET_DEVICES=soft_veth0:1 UCX_IB_GID_INDEX=1 UCX_WARN_UNUSED_ENV_VARS=n
over_ucx=()
for component in pml osc; do
    over_ucx+=(--mca $component ucx --mca ${component}_ucx_tls any --mca ${component}_ucx_devices any)
done
for ranks in 2 6; do
    run_program $ranks --roce -- "${over_ucx[@]}"
done
