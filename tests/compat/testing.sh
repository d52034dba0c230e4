#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# testing.sh SOURCE FOLDER: the commands of doc/TESTING_WITHOUT_HARDWARE.md are those of the files that it offers, and
# run, with the `rpma` of FOLDER, without any privilege.
set -eu
source=$1 folder=$2
page=$source/doc/TESTING_WITHOUT_HARDWARE.md
files=$source/examples/testing
for program in rping ibv_rc_pingpong ucx_perftest; do
    command -v $program >/dev/null || {
        echo "$program is not installed (group compat of utils/install-dependencies.sh)"
        exit 77
    }
done

shown() {  # shown FIRST_LINE: the lines of the page's block that begins with it
    awk -v first="    $1" '$0 == first { inside = 1 } inside && !/^    / { exit } inside { print substr($0, 5) }' "$page"
}
diff <(shown '#!/bin/sh') "$files/three-programs.sh" || { echo "$page and three-programs.sh differ"; exit 1; }
build=$(shown 'utils/install-dependencies.sh build')
[ "$(wc -l <<<"$build")" -ge 3 ] || { echo "$page has no commands that build"; exit 1; }
# The image has packages in the place of the last two.
for file in github-actions.yml gitlab-ci.yml Dockerfile; do
    while read -r command; do
        [[ $file == Dockerfile && $command =~ ^(cmake --install|ldconfig) ]] || grep -qF "$command" "$files/$file" || {
            echo "$file has no '$command', as $page has"
            exit 1
        }
    done <<<"$build"
    grep -q three-programs.sh "$files/$file" || { echo "$file does not run three-programs.sh"; exit 1; }
done

without=(setpriv --no-new-privs --inh-caps=-all --bounding-set=-all)
[ "$(id -u)" != 0 ] || "${without[@]}" true 2>/dev/null || without=()  # the root of a user namespace
PATH=$folder:$PATH timeout 50 "${without[@]}" "$files/three-programs.sh"
