#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks the text of the sources: `utils/lint.sh [--format] [--tidy|--tidy-files] [--shell] [--facts]` (default: all four).
#   --format  clang-format-19 over every C and C++ file; the licence line in every file that can have one
#   --tidy    clang-tidy-19 over src/, several sources of a room at once (build-tidy/): most of its time goes into the
#             headers of others. What passed is not looked at again until a file in it, its command or .clang-tidy
#             changes. --tidy-files looks at each file alone, which finds what a file has from the one before it
#   --shell   shellcheck over every script
#   --facts   utils/facts.py: prints how large rooms, files, functions and classes of src/ are
set -eu
cd "$(dirname "$0")/.."
self=$PWD/utils/lint.sh

folders=()
for folder in src include examples tests; do
    [ -d "$folder" ] && folders+=("$folder")
done

check_format() {
    local files bad
    mapfile -t files < <(find "${folders[@]}" -type f \( -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.hpp' \))
    bad=$(clang-format-19 --dry-run -Werror "${files[@]}" 2>&1 | sed -n 's/:[0-9]*:[0-9]*: error: .*//p' | sort -u)
    [ -z "$bad" ] && return 0
    printf 'not formatted as .clang-format says; mend it with: clang-format-19 -i\n%s\n' "$bad"
    return 1
}

# JSON and Debian's changelog have no comments; inputs of fuzzers are bytes. Without git (a tarball) there is no list of files.
check_licence() {
    local bad
    bad=$(git ls-files 2>/dev/null | grep -vE '^(LICENSE|.*\.json|cmake/debian/changelog|tests/fuzz/corpus/.*)$' |
        xargs --no-run-if-empty grep -LE 'SPDX-License-Identifier: BSD-3-Clause( (-->|\*/))?$')
    [ -z "$bad" ] && return 0
    printf 'no line "SPDX-License-Identifier: BSD-3-Clause":\n%s\n' "$bad"
    return 1
}

# Loop counters may be unused, and process ids have no blanks.
check_shell() {
    grep -rlE '^#!.*\b(ba)?sh$' utils .ci cmake "${folders[@]}" | xargs shellcheck --severity=warning --exclude=SC2034,SC2206 --external-sources --source-path=SCRIPTDIR
}

# The compile command of one file of compile_commands.json, without its output.
command_of() {  # command_of FILE
    awk -v file="$PWD/$1" '
        /^ *"command": / { command = $0 }
        /^ *"file": / {
            if (index($0, "\"" file "\"")) { sub(/^ *"command": "/, "", command); sub(/",$/, "", command); print command; exit }
        }' build-tidy/compile_commands.json | sed -e 's/\\"/"/g' -e 's/\\\\/\\/g' -e 's/ -o [^ ]* -c / -c /'
}

# What the verdict on a file depends on.
fingerprint_of() {  # fingerprint_of FILE COMMAND
    local dependencies
    dependencies=$(eval "$2 -MM -MT x" | sed -e 's/^x://' -e 's/\\$//')
    {
        clang-tidy-19 --version
        printf '%s\n' "$2"
        # shellcheck disable=SC2086
        cat .clang-tidy $dependencies
    } | sha256sum | cut -d ' ' -f 1
}

# The file that includes several sources is CMake's, and so is its way of including them.
tidy_one() {  # tidy_one FILE
    local command print
    command=$(command_of "$1")
    print=$(fingerprint_of "$1" "$command")
    [ -e "build-tidy/passed/$print" ] && return 0
    printf 'clang-tidy: %s\n' "$1"
    if clang-tidy-19 --quiet --checks=-bugprone-suspicious-include -p build-tidy "$1" 2>"build-tidy/passed/$print.log"; then
        rm -f "build-tidy/passed/$print.log"
        touch "build-tidy/passed/$print"
    else
        cat "build-tidy/passed/$print.log"
        return 1
    fi
}

check_tidy() {  # check_tidy TIDY|OFF: several sources at once, or not
    cmake --preset release -B build-tidy -DRPMA_TESTS=OFF -DRPMA_UNITY="$1" >/dev/null
    mkdir -p build-tidy/passed
    local files
    mapfile -t files < <(sed -n "s,^ *\"file\": \"$PWD/\(\(build-tidy/\)\?src/.*\)\".*,\1,p" build-tidy/compile_commands.json | sort -u)
    [ ${#files[@]} -gt 0 ] || { echo 'lint: build-tidy/compile_commands.json names no file of src/' >&2; return 1; }
    printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" "$self" --tidy-one
}

case "${1:-}" in
    --tidy-one)
        tidy_one "$2"
        exit
        ;;
    '') set -- --format --tidy --shell --facts ;;
esac
bad=0
for option in "$@"; do
    case $option in
        --format)
            check_format || bad=1
            check_licence || bad=1
            ;;
        --tidy) check_tidy TIDY || bad=1 ;;
        --tidy-files) check_tidy OFF || bad=1 ;;
        --shell) check_shell || bad=1 ;;
        --facts) utils/facts.py || bad=1 ;;
        *) sed -n '3,9s/^# \{0,1\}//p' "$self"; exit 2 ;;
    esac
done
[ $bad = 0 ] && echo "lint: $* found nothing"
exit $bad
