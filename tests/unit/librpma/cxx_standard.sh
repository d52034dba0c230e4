#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma.hpp below C++23 is one error, which says what it needs.
#   cxx_standard.sh COMPILER INCLUDE-FOLDER
set -eu
for standard in 17 20; do
    if said=$(echo '#include <rpma.hpp>' | "$1" -std=c++$standard -I"$2" -fsyntax-only -x c++ - 2>&1); then
        echo "C++$standard takes rpma.hpp" && exit 1
    fi
    [ "$(grep -c 'error:' <<<"$said")" = 1 ] && grep -q 'error:.*needs C++23' <<<"$said" || { echo "$said" && exit 1; }
done
