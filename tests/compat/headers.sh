#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# headers.sh C-COMPILER C++-COMPILER INCLUDE-FOLDER: our librpma.h declares what Debian's does. The test makes a program
# of our header and, after it, every declaration of Debian's: functions as they are, which the compiler refuses when a
# type differs; enums and structs under another name, and macros, with assertions that the values and layouts are equal.
# It does so in C++ too, where an enum and an integer are different types. Then it spoils our header in several ways,
# and each must be detected.
set -eu
c_compiler=$1
cxx_compiler=$2
include=$3
cd "$(dirname "$0")"
. ./debian.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compiler_of() { if [ "$1" = c ]; then echo "$c_compiler"; else echo "$cxx_compiler"; fi; }

# Prints the preprocessed text of Debian's header without that of the headers that it includes.
from_debian() {  # from_debian LANGUAGE [OPTION...]
    local language=$1
    shift
    "$(compiler_of "$language")" -x "$language" -E "$@" "$debian_header" |
        awk -v header="\"$debian_header\"" '/^# [0-9]+ "/ { inside = $3 == header; next } inside'
}

declarations() {  # declarations LANGUAGE
    from_debian "$1" | awk '
        /^enum [a-z_]+ \{/   { kind = "enum"; name = $2; sub(name, "debian_" name); print; next }
        /^struct [a-z_]+ \{/ { kind = "struct"; name = $2; sub(name, "debian_" name); print; next }
        kind != "" && /^}/ {
            print
            for (i = 0; i < count; ++i) {
                if (kind == "enum") {
                    printf "static_assert((int)debian_%s == (int)%s, \"%s\");\n", member[i], member[i], member[i]
                } else {
                    printf "static_assert(offsetof(struct debian_%s, %s) == offsetof(struct %s, %s), \"%s\");\n",
                        name, member[i], name, member[i], member[i]
                    for (j = 0; j < 2; ++j)
                        printf "extern __typeof__(((struct %s%s *)0)->%s) type_of_%s_%s;\n",
                            j ? "debian_" : "", name, member[i], name, member[i]
                }
            }
            printf "static_assert(sizeof(%s debian_%s) == sizeof(%s %s), \"%s\");\n", kind, name, kind, name, name
            kind = ""; count = 0; next
        }
        kind == "enum" && match($0, /[A-Z][A-Z_0-9]+/) {
            member[count++] = substr($0, RSTART, RLENGTH); sub(/[A-Z][A-Z_0-9]+/, "debian_&"); print; next
        }
        kind == "struct" && match($0, /[a-z_]+;/) { member[count++] = substr($0, RSTART, RLENGTH - 1) }
        { print }'
}

macros() {  # macros LANGUAGE
    from_debian "$1" -dD | awk '
        /^#define RPMA_/ {
            name = $2
            value = substr($0, index($0, name) + length(name) + 1)
            printf "#ifndef %s\n#error %s is not defined\n#endif\n", name, name
            printf "static_assert((%s) == (%s), \"%s\");\n", name, value, name
        }'
}

compare() {  # compare LANGUAGE INCLUDE-FOLDER
    local options=(-std=c17 -Werror)
    [ "$1" = c ] || options=(-std=c++17 -Werror)
    "$(compiler_of "$1")" -x "$1" "${options[@]}" -fsyntax-only -I"$2" "$work/compare.$1"
}

for language in c c++; do
    {
        printf '#include <assert.h>\n#include <librpma.h>\n'
        declarations $language
        macros $language
    } >"$work/compare.$language"
    # No function was lost: every function that the library exports is compared.
    for symbol in $(exported "$debian_library"); do
        grep -q "\\b${symbol%%@*}(" "$work/compare.$language" || {
            echo "the comparison has no declaration of $symbol"
            exit 1
        }
    done
    compare $language "$include"
done
echo "$(grep -c '^static_assert' "$work/compare.c") values and layouts, and every function's type, as in librpma-dev $debian_version"

spoil() {  # spoil LANGUAGE SED-EXPRESSION
    mkdir -p "$work/spoilt"
    sed "$2" "$include/librpma.h" >"$work/spoilt/librpma.h"
    if cmp -s "$include/librpma.h" "$work/spoilt/librpma.h"; then
        echo "'$2' spoils nothing"
        exit 1
    fi
    if compare "$1" "$work/spoilt" 2>/dev/null; then
        echo "'$2' is not noticed"
        exit 1
    fi
}
spoil c 's/uint32_t imm\b/uint64_t imm/'
spoil c 's/const struct rpma_mr_local \*src/struct rpma_mr_local *src/'
spoil c 's/RPMA_CONN_LOST = 2/RPMA_CONN_LOST = 7/'
spoil c 's/^#define RPMA_E_AGAIN .*/#define RPMA_E_AGAIN (-1)/'
spoil c '/^#define RPMA_MR_USAGE_SEND /d'
spoil c 's/uint8_t len;/uint16_t len;/'
spoil c++ 's/\(rpma_utils_conn_event_2str\)(enum rpma_conn_event /\1(int /'
