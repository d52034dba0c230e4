#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a person does wrong with an example: `mistakes.sh EXAMPLES MISTAKE`. The program has to end by itself with an error
# and say what is wrong.
set -u
examples=$1 mistake=$2
here=$(dirname "$(realpath "$0")")
launch=$here/../launch.sh
# shellcheck source=ports.sh
. "$here/ports.sh"

# expect_failure WORD COMMAND...: the command ends with 1, and its standard error has the word.
expect_failure() {
    local word=$1 errors code
    shift
    errors=$("$launch" "$@" 2>&1 >/dev/null)
    code=$?
    printf '%s\n' "$errors"
    if [ $code != 1 ]; then
        echo "exit code $code (expected: 1)"
        exit 1
    fi
    if [[ $errors != *"$word"* ]]; then
        echo "nothing about '$word' in what it said"
        exit 1
    fi
}

case $mistake in
    nobody-listens)
        expect_failure 'rejected' "$examples/01-connection/client" 127.0.0.1 "$(free_port)"
        ;;
    tmpfs)
        [ "$(stat --file-system --format %T /dev/shm 2>/dev/null)" = tmpfs ] || { echo 'skipped: /dev/shm is not tmpfs'; exit 77; }
        file=$(mktemp /dev/shm/rpma-example.XXXXXX)
        trap 'rm -f "$file"' EXIT
        expect_failure 'tmpfs' "$examples/05-flush-to-persistent/server" 127.0.0.1 "$(free_port)" "$file"
        ;;
    *)
        echo "no mistake $mistake" >&2
        exit 2
        ;;
esac
