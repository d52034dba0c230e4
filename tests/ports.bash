# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced, by scripts that begin servers of TCP.
listening() { [ -n "$(ss -Hltn "sport = :$1")" ]; }
free_port() { # free_port: one below what the kernel gives out by itself
    local port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    while listening $port; do port=$((port + 1)); done
    echo $port
}
