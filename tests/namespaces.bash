# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced, by scripts that run in namespaces of their own.
# another_host: starts the process $other, which stays in a network namespace of its own, as on another host;
# "${there[@]}" COMMAND... runs there. The caller ends $other.
another_host() {
    unshare --net sleep infinity &
    other=$!
    until [ "$(readlink "/proc/$other/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
    there=(nsenter --net="/proc/$other/ns/net")
}
# link_hosts: 192.0.2.1 is here, and 192.0.2.2 there.
link_hosts() {
    ip link add veth0 type veth peer name veth1 netns "$other" ||
        { echo 'SKIPPED, nothing was tested: this kernel makes no veth pair'; exit 77; }
    ip address add 192.0.2.1/24 dev veth0
    "${there[@]}" ip address add 192.0.2.2/24 dev veth1
    local interface
    for interface in lo veth0; do ip link set "$interface" up; done
    for interface in lo veth1; do "${there[@]}" ip link set "$interface" up; done
}
# within_namespaces OPTION... -- ARGUMENT...: runs the script again, with these arguments, in those namespaces that the
# options of unshare(1) name; returns there. Where there are none, the script ends, and says that it tested nothing.
within_namespaces() {
    local options=()
    if [ -n "${RPMA_TEST_INSIDE:-}" ]; then
        unset RPMA_TEST_INSIDE
        return
    fi
    [ "$(id -u)" = 0 ] || options=(--map-root-user)
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    unshare "${options[@]}" true || { echo 'SKIPPED, nothing was tested: no namespaces here: run it as root'; exit 77; }
    RPMA_TEST_INSIDE=1 exec unshare "${options[@]}" bash "$0" "$@"
}
