#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `running_it.sh RPMA PAGE`: the commands of doc/RUNNING_IT.md work as they stand there, one after the other. They run in a
# network of their own, because they use the default port.
. "$(dirname "$0")/../namespaces.bash"
within_namespaces --net --pid --fork --kill-child --mount-proc -- "$@"
page=$(realpath "$2")
. "$(dirname "$0")/server.bash"
for program in curl rsync; do
    command -v $program >/dev/null || { echo "SKIPPED, nothing was tested: no $program"; exit 77; }
done
ip link set lo up
# The commands of systemd are comments on the page.
sed -n 's/^    //p' "$page" >commands
[ "$(grep -c . commands)" -ge 40 ] || die "the page has few commands"
mkdir bin folder
ln -s "$rpma" bin/rpma
cd folder || exit
PATH=$work/bin:$PATH timeout --kill-after=5 240 bash -euo pipefail -x ../commands >../output 2>&1 ||
    { cat ../output server.log; die "a command of the page fails"; }
