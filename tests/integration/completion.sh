#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What `rpma completion` prints has a shell complete the commands, their options, and files where an option takes one.
. "$(dirname "$0")/server.bash"
mkdir folder
touch afile

# completes EXPECTED WORD...: the last word of the line is completed by these words.
completes() {
    local expected=$1
    COMP_WORDS=("${@:2}")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _rpma
    [ "${COMPREPLY[*]}" = "$expected" ] || die "${*:2}: expected \"$expected\", got \"${COMPREPLY[*]}\""
}
"$rpma" completion bash >bash || die "completion bash"
set +eu # as a shell of a person
. ./bash
completes 'push pull' rpma pu
completes 'push' rpma pus
completes '--version --verbose' rpma --ver
completes '--if-sequence --incremental' rpma push --i
completes '--sequence' rpma pull --se
completes '' rpma push --timeout ''
completes 'afile' rpma push af
completes 'folder' rpma serve --store fo
completes 'afile' rpma push --psk af
completes '--json' rpma list host --js
set -eu
complete -p rpma | grep -q -- '-F _rpma rpma$' || die "bash is not told"

# Each option that the help has is there, for each shell.
for shell in bash zsh fish; do
    "$rpma" completion $shell >script || die "completion $shell"
    if command -v $shell >/dev/null; then $shell -n script || die "$shell does not read it"; fi
    while read -r command; do
        while read -r option; do
            [ $shell != fish ] || option="-l ${option#--}"
            grep -q -- "$option\\b" script || die "$shell: no $option of $command"
        done < <("$rpma" "$command" --help | grep -o '^  .*' | grep -o -- '--[a-z][a-z0-9-]*' | sort -u)
        grep -q -- "\\b$command\\b" script || die "$shell: no $command"
    done < <("$rpma" --help | sed -n '/^Subcommands:/,$s/^  \([a-z]*\) .*/\1/p')
done
refused_with 2 'SHELL' "$rpma" completion csh
