#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# openmpi.sh RPMA: runs openmpi.c with two ranks and with six in Debian's Open MPI, unmodified, over libfabric's verbs
# provider and the soft device. Messages can take no other transport than the one named here. MPI_Put and MPI_Get are
# sent as messages: Open MPI's component for RDMA (btl ofi) takes libfabric's tcp provider, and never `verbs;ofi_rxm`.
# libfabric ignores loopback interfaces, so off_loopback.sh runs this test.
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
over_verbs=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm' --mca osc pt2pt --mca btl self)
for ranks in 2 6; do
    timeout 25 "$rpma" run mpirun --oversubscribe -n $ranks "${over_verbs[@]}" --mca mtl_base_verbose 1 "$work/program" \
        >"$work/out" 2>&1 || {
        status=$?
        cat "$work/out"
        echo "mpirun -n $ranks ended with $status"
        exit 1
    }
    grep "^$ranks ranks have what they had to get" "$work/out"
    [ "$(grep -c 'mtl:ofi:provider: soft_veth0$' "$work/out")" -eq $ranks ] || {
        cat "$work/out"
        echo "not each of the $ranks ranks uses soft_veth0"
        exit 1
    }
done
