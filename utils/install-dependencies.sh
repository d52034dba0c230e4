#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs the Debian 12 packages that this project needs and that are not installed yet:
#     utils/install-dependencies.sh [GROUP...]
# Groups: build (default), manual, package, test, compat, format, lint, clang, valgrind, lab, soak. doc/DEPENDENCIES.md says
# what each package is for. When everything is installed it only checks, which takes well under a second. On another
# system it installs nothing, prints which tools and libraries are missing, and continues when none is.
set -eu

declare -A packages_of=(
    [build]='g++ cmake ninja-build pkg-config libibverbs-dev librdmacm-dev libpmem2-dev libisal-dev libssl-dev nettle-dev
             libfmt-dev libcli11-dev nlohmann-json3-dev prometheus-cpp-dev'
    [manual]='pandoc python3 man-db'
    [package]='dpkg-dev file libfabric-dev'
    [test]='libcmocka-dev libfabric-dev iproute2 procps python3 prometheus protobuf-c-compiler libprotobuf-c-dev'
    [compat]='librpma0 librpma-dev etcd-server etcd-client rdmacm-utils ibverbs-utils perftest qperf fio libfabric-bin ucx-utils openmpi-bin libopenmpi-dev
              python3-pyverbs qemu-system-x86 curl git haproxy iperf3 lftp libmemcached-tools libpython3.11-testsuite memcached
              nginx-light nodejs openssh-client openssh-server openssl postgresql-15 redis-server redis-tools rsync siege sockperf varnish
              vsftpd wrk'
    [format]='clang-format-19'
    [lint]='clang-format-19 clang-tidy-19 clang-19 shellcheck python3'
    [clang]='clang-19 libclang-rt-19-dev llvm-19'
    [valgrind]='valgrind libc6-dbg'
    [lab]='qemu-system-x86 nbdkit busybox-static cpio kmod xz-utils e2fsprogs xfsprogs btrfs-progs dmsetup ndctl iproute2 gcc-12 make libelf1
           rdma-core ibverbs-providers'
    [soak]='lintian systemd-container debootstrap corosync pacemaker pacemaker-cli-utils'
)

say() { printf 'install-dependencies: %s\n' "$*"; }

# On a system other than Debian 12 the package names may differ, so this checks the tools and libraries of the build.
check_tools() {
    local missing=() tools=(c++ cmake ninja pkg-config) libraries=(libibverbs librdmacm libpmem2 libisal libssl nettle fmt prometheus-cpp-core)
    local group tool library
    for group in "$@"; do
        case $group in
            manual) tools+=(pandoc python3 man) ;;
            package) tools+=(dpkg-deb dpkg-shlibdeps file) ;;
            test) libraries+=(cmocka libfabric libprotobuf-c) tools+=(protoc-c python3 promtool) ;;
            format) tools+=(clang-format-19) ;;
            lint) tools+=(clang-format-19 clang-tidy-19 clang++-19 shellcheck python3) ;;
            clang) tools+=(clang-19 clang++-19 llvm-symbolizer-19) ;;
            valgrind) tools+=(valgrind) ;;
            lab) tools+=(qemu-system-x86_64 nbdkit busybox cpio depmod xz mkfs.ext4 dmsetup ndctl rdma gcc-12 make apt-get) ;;
        esac
    done
    for tool in "${tools[@]}"; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    for library in "${libraries[@]}"; do
        pkg-config --exists "$library" 2>/dev/null || missing+=("$library (development files)")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    say "missing: $(printf '%s, ' "${missing[@]}" | sed 's/, $//')" >&2
    say 'install these (cmake 3.25, g++ 12 or newer) by your own means; doc/DEPENDENCIES.md lists everything' >&2
    return 1
}

# Prints the packages of its arguments that are not installed.
not_installed() {
    local installed package
    installed=" $(dpkg-query -W -f '${db:Status-Status}=${Package} ' "$@" 2>/dev/null || true)"
    for package in "$@"; do
        [[ $installed == *" installed=$package "* ]] || printf '%s\n' "$package"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        say "neither root nor sudo; run this as root and come back: $*" >&2
        return 1
    fi
}

# The tests start servers by themselves. Debian would also start the packages' servers now and at each boot. A script of
# this name prevents that (invoke-rc.d(8)), and so does disabling them.
refuses_services=/usr/sbin/policy-rc.d
declare -A service_of=([haproxy]=haproxy [memcached]=memcached [nginx-light]=nginx [openssh-server]=ssh
                       [postgresql-15]=postgresql [redis-server]=redis-server [prometheus]=prometheus
                       [etcd-server]=etcd)

without_services() { # without_services COMMAND PACKAGE...
    local package status=0 ours=''
    if [ ! -e "$refuses_services" ]; then
        ours=yes
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$refuses_services" >/dev/null
        as_root chmod 755 "$refuses_services"
    fi
    "$@" || status=$?
    [ -z "$ours" ] || as_root rm -f "$refuses_services"
    [ -d /run/systemd/system ] || return $status
    for package in "${@:2}"; do
        [ -z "${service_of[$package]:-}" ] || as_root systemctl disable "${service_of[$package]}" || true
    done
    return $status
}

apt_install() {
    as_root apt-get -qq -o DPkg::Lock::Timeout=300 update &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
            install --no-install-recommends "$@"
}

install() {
    local missing
    mapfile -t missing < <(not_installed "$@")
    [ ${#missing[@]} -eq 0 ] && return 0
    say "installing with apt-get: ${missing[*]}"
    local log
    log=$(mktemp)
    if ! without_services apt_install "${missing[@]}" </dev/null >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        say 'apt-get failed; what it said is above' >&2
        return 1
    fi
    rm -f "$log"
}

[ $# -gt 0 ] || set -- build
packages=()
for group in "$@"; do
    if [ -z "${packages_of[$group]:-}" ]; then
        say "no group $group; groups: ${!packages_of[*]}" >&2
        exit 2
    fi
    read -r -d '' -a members <<<"${packages_of[$group]}" || true
    packages+=("${members[@]}")
done

system=unknown
# shellcheck source=/dev/null
[ -r /etc/os-release ] && system=$(. /etc/os-release && printf '%s %s' "${ID:-unknown}" "${VERSION_ID:-}")
if [ "$system" = 'debian 12' ]; then
    install "${packages[@]}"
    say "groups $*: all installed"
else
    say "this system is '$system', not 'debian 12': nothing is installed, looking for what is there"
    check_tools "$@"
    say "groups $*: everything needed is there"
fi
