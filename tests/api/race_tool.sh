#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program that uses librpma from many threads, under one of Valgrind's race detectors: any report is a failure.
#   race_tool.sh helgrind|drd PROGRAM SUPPRESSIONS
set -eu
tool=$1 program=$2 suppressions=$3
command -v valgrind >/dev/null || { echo 'valgrind is not installed (utils/install-dependencies.sh valgrind)'; exit 77; }
exec valgrind --quiet --tool="$tool" --error-exitcode=99 --num-callers=30 --suppressions="$suppressions" "$program"
