#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs what the tests need, builds, and passes the tests: `utils/test.sh [OPTION...]`
#
#   (none)       format, include table, and the suites of an optimised build with the default compiler
#   --lint       clang-tidy, shellcheck, sizes too       --clang        the suites built with clang-19 too
#   --asan       the suites under ASan and UBSan too    --asan-clang   the same, with clang-19
#   --tsan       the suites under TSan too              --tsan-clang   the same, with clang-19
#   --valgrind   the tests with the label memcheck too, under it: of api and examples
#   --lab        the suites in the kernel lab too: rxe, siw, an NVDIMM (doc/LAB.md); skipped, and why, where it cannot run
#   --lab-core   of those the rows that ask what no other row asks, for an emulated processor
#   --soak       what takes too long for every change too (10,000 connections, servers under load for minutes)
#   --fuzz=SECONDS   libFuzzer for so long on each fuzz target, after its corpus (clang-19)
#   --all        lint, asan, tsan, valgrind, clang and lab
#   --only       just the runs named beside it (what a job of the workflows asks for)
#
# Ends with one line `N passed, N failed, N skipped`; the exit code is 0 when nothing failed.
set -u
cd "$(dirname "$0")/.." || exit 2

basic=yes
fuzz_seconds=30
lab_rows=()
declare -A wanted=()
for option in "$@"; do
    case $option in
        --lint | --asan | --tsan | --valgrind | --clang | --lab | --soak | --asan-clang | --tsan-clang) wanted[${option#--}]=1 ;;
        --lab-core) wanted[lab]=1 lab_rows=(--label-exclude '^lab_rest$') ;;
        --fuzz=*) wanted[fuzz]=1 fuzz_seconds=${option#--fuzz=} ;;
        --all) for name in lint asan tsan valgrind clang lab; do wanted[$name]=1; done ;;
        --only) basic=no ;;
        *)
            sed -n '3,18s/^# \{0,1\}//p' "$0"
            [ "$option" = --help ] && exit 0
            printf '\nno option %s\n' "$option" >&2
            exit 2
            ;;
    esac
done
[[ $fuzz_seconds =~ ^[0-9]+$ ]] || { echo "--fuzz=SECONDS wants a number, not '$fuzz_seconds'" >&2; exit 2; }
if [ $basic = yes ]; then
    wanted[format]=1 wanted[release]=1
fi
is_wanted() { [ -n "${wanted[$1]:-}" ]; }

passed=0 failed=0 skipped=0
failures=()
left_out=()
say() { printf '\n== test.sh: %s (%d s)\n' "$*" "$SECONDS"; }
pass() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    failures+=("$1")
    say "FAILED: $1"
}
step() {  # step NAME COMMAND...: one thing that is not a ctest test
    local name=$1
    shift
    say "$name"
    if "$@"; then pass; else fail "$name"; fi
}

install_dependencies() {
    local groups=(build manual package test compat)
    is_wanted format && groups+=(format)
    is_wanted lint && groups+=(lint)
    is_wanted valgrind && groups+=(valgrind)
    is_wanted lab && groups+=(lab)
    is_wanted soak && groups+=(soak)
    local name
    for name in clang asan-clang tsan-clang fuzz; do
        is_wanted $name && groups+=(clang) && break
    done
    utils/install-dependencies.sh "${groups[@]}"
}

folder_of() { case $1 in release | lab | soak) echo build ;; release-clang) echo build-clang ;; *) echo "build-$1" ;; esac; }

build() {  # build PRESET
    local log
    log=$(folder_of "$1")/test.sh.log
    say "building: cmake --preset $1"
    mkdir -p "${log%/*}"
    if cmake --preset "$1" >"$log" 2>&1 && cmake --build --preset "$1" --parallel "$(nproc)" >>"$log" 2>&1; then
        tail -n 1 "$log"
    else
        tail -n 60 "$log"
        fail "build of $1 (all of it: $log)"
        return 1
    fi
}

# Adds the numbers of ctest's report to ours, and says which tests were skipped and what they said of it.
count_report() {  # count_report RUN REPORT
    local numbers name
    numbers=$(sed -n 's/^.*<testsuite.*//; /^[ \t]*tests="/p; /^[ \t]*failures="/p; /^[ \t]*disabled="/p; /^[ \t]*skipped="/p' "$2" |
        tr -dc '0-9\n' | tr '\n' ' ')
    local tests bad disabled skips
    read -r tests bad disabled skips <<<"$numbers"
    if [ -z "${skips:-}" ]; then
        fail "$1: ctest left no report in $2"
        return
    fi
    passed=$((passed + tests - bad - disabled - skips))
    failed=$((failed + bad))
    skipped=$((skipped + disabled + skips))
    [ "$tests" -gt 0 ] || fail "$1: there was no test to run"
    while read -r name; do failures+=("$1: $name"); done < <(
        sed -n 's/.*<testcase name="\([^"]*\)".*status="fail".*/\1/p' "$2")
    awk -v run="$1" '
        /<testcase / { skipped = 0; name = $0; sub(/.*<testcase name="/, "", name); sub(/".*/, "", name) }
        /<skipped /  { skipped = 1; printf "skipped in %s: %s\n", run, name }
        skipped && /<system-out>/ { sub(/.*<system-out>/, ""); out = 1 }
        skipped && out {
            if (/<\/system-out>/) { out = 0; sub(/<\/system-out>.*/, "") }
            if ($0 != "" && shown[name]++ < 5) print "    " $0
        }' "$2"
}

run_tests() {  # run_tests RUN PRESET [CTEST-OPTION...]
    local run=$1 preset=$2
    shift 2
    local report
    report=$PWD/$(folder_of "$preset")/test-results-$run.xml
    rm -f "$report"
    say "tests: $run"
    # Address randomisation may put a program where TSan cannot place its shadow memory.
    local fixed=()
    if [[ $run == tsan* ]] && setarch --addr-no-randomize true 2>/dev/null; then
        fixed=(setarch --addr-no-randomize)
    fi
    # Many tests wait for limits of seconds, so twice as many as there are processors keep those busy.
    "${fixed[@]}" ctest --preset "$preset" --parallel $((2 * $(nproc))) --output-junit "$report" "$@"
    count_report "$run" "$report"
}

suites() {  # suites RUN PRESET
    build "$2" && run_tests "$1" "$2"
}

under_valgrind() {
    build release && RPMA_VALGRIND=1 run_tests valgrind release --label-regex '^memcheck$'
}

# A guest has one processor, which it keeps busy, and 2 GiB. A row that fails runs up to twice more, and all runs are
# shown, because we cannot correct the kernel's devices.
in_the_lab() {
    build release && run_tests lab lab "${lab_rows[@]}" --parallel $(($(nproc) + 1)) --repeat until-pass:3
}

soak() {
    build release && run_tests soak soak --verbose
}

fuzz() {
    build fuzz || return
    run_tests fuzz fuzz --label-regex '^fuzz$'
    local program name found=no
    for program in build-fuzz/fuzz/fuzz_*; do
        [ -x "$program" ] || continue
        found=yes
        name=${program##*/fuzz_}
        # New inputs go to the first folder; a crash leaves its input in build-fuzz/crashes.
        mkdir -p "build-fuzz/found/$name" build-fuzz/crashes
        step "fuzzing $name for $fuzz_seconds s" "$program" -max_total_time="$fuzz_seconds" -print_final_stats=1 \
            -verbosity=0 -timeout=10 -artifact_prefix="build-fuzz/crashes/$name-" "build-fuzz/found/$name" \
            "tests/fuzz/corpus/$name"
    done
    [ $found = yes ] || fail 'fuzz: no target was built'
}

export CTEST_OUTPUT_ON_FAILURE=1
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}

say 'installing what is needed'
if ! install_dependencies; then
    fail 'installing what the tests need'
    printf '\n%d passed, %d failed, %d skipped\n' $passed $failed $skipped
    exit 1
fi

is_wanted format && step 'format' utils/lint.sh --format
is_wanted release && suites release release
is_wanted lint && step 'lint' utils/lint.sh --tidy --shell --facts
is_wanted asan && suites asan asan
is_wanted tsan && suites tsan tsan
is_wanted valgrind && under_valgrind
is_wanted clang && suites clang release-clang
is_wanted lab && in_the_lab
is_wanted asan-clang && suites asan-clang asan-clang
is_wanted tsan-clang && suites tsan-clang tsan-clang
is_wanted soak && soak
is_wanted fuzz && fuzz

for name in lint asan tsan valgrind clang lab asan-clang tsan-clang soak fuzz; do
    is_wanted $name || left_out+=("--$name")
done
say 'done'
[ ${#left_out[@]} -gt 0 ] && printf 'not run, because not asked for: %s\n' "${left_out[*]}"
for name in "${failures[@]}"; do
    printf 'failed: %s\n' "$name"
done
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed = 0 ]
