#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# doc/SOFT_DEVICE.md and the tests agree: every test and file of the device that it names is there, and it names every rfc... test.
set -euo pipefail
cd "$(dirname "$0")/../../.."

document=doc/SOFT_DEVICE.md
known=$(grep -rhoE '\b(fixture_test|cmocka_unit_test[a-z_]*)\([a-z0-9_]+' tests/unit tests/conformance | sed 's/.*(//')
known+=$'\n'$(find tests/unit/soft -name '*.cpp' | sed 's/.*\//soft_/; s/\.cpp$//')
# The files that do it stand beside the tests.
known+=$'\n'$(find src/soft -name '*.cpp' | sed 's/.*\///; s/\.cpp$//')
known+=$'\n'$(grep -oE 'rpma_fuzzer\([a-z_]+' tests/fuzz/CMakeLists.txt | sed 's/rpma_fuzzer(/fuzz_/')

missing=0
# shellcheck disable=SC2016
while read -r name; do
    if ! grep -qxF "$name" <<<"$known"; then
        echo "$document names $name: there is no such test or file"
        missing=1
    fi
done < <(sed -n '/^## Safety/,$p' $document | grep -oE '`[a-z0-9]+_[a-z0-9_]*[a-z0-9]`' | tr -d '`' |
    grep -vE '^(ibv|rdma|rpma)_|^test_soft_(hostile|tls_hostile)$' | sort -u)
while read -r name; do
    if ! grep -qF "\`$name\`" $document; then
        echo "$document does not name $name"
        missing=1
    fi
done < <(grep -E '^rfc[0-9]' <<<"$known")
exit $missing
