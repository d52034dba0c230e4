#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `other_user.sh RPMA FOLDER USER`: lets another user run the rpma command of a build that this user may not reach, as
# nobody but root reaches one below /root. It copies the command and its libraries to FOLDER/bin and FOLDER/lib, and
# prints the words that a command begins with that USER runs, a word a line:
#     mapfile -t as < <(other_user.sh "$rpma" "$work/own" postgres) && "${as[@]}" "$work/own/bin/rpma" devices
# Only root can run it. FOLDER must be below a folder that every user reaches.
set -eu
umask 022
build=$(dirname "$(dirname "$(realpath "$1")")")
folder=$2
user=$3
mkdir -p "$folder/bin" "$folder/lib"
cp --remove-destination "$build/bin/rpma" "$folder/bin"
cp -a --remove-destination "$build"/lib/lib{rpma,softrdma,rsocket}.so* "$build/lib/softrdma" "$folder/lib"

# The command in the build names the build's folder of libraries, and ld.so asks this variable first.
as=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups env "LD_LIBRARY_PATH=$folder/lib")
"${as[@]}" "$folder/bin/rpma" --version >/dev/null || {
    echo "$user cannot run $folder/bin/rpma (expected a folder that every user reaches; TMPDIR chooses it)" >&2
    exit 1
}
printf '%s\n' "${as[@]}"
