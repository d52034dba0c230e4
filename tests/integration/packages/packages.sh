#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `packages.sh SOURCE BUILD ARCHITECTURE CC CMAKE`: makes the Debian packages, unpacks them below the current folder, and
# builds programs with what is in them alone, by pkg-config and by find_package; both write and flush over 127.0.0.1.
set -eu
source=$1 build=$2 architecture=$3 cc=$4 cmake=$5
example=$source/examples/05-flush-to-persistent
rm -rf packages root by-pkg-config by-cmake prefix staged
failures=0

fail() {
    printf 'FAILED: %s\n' "$*"
    failures=$((failures + 1))
}
expect() {  # expect WHAT COMMAND...
    local what=$1 output
    shift
    output=$("$@" 2>&1) || fail "$what: $* said: $output"
}
# The value of a field of a package.
field() { dpkg-deb --field packages/"$1"_*.deb "$2"; }
expect_field() {  # expect_field PACKAGE FIELD PATTERN: the pattern is an extended regular expression
    local value
    value=$(field "$1" "$2")
    grep -qE "$3" <<<"$value" || fail "$1 has $2: '$value', expected $3"
}

"${cmake%cmake}cpack" -G DEB --config "$build/CPackConfig.cmake" -B packages >packages.log 2>&1 || { cat packages.log; exit 1; }
mkdir root
made=(librpma0 libsoftrdma0 librsocket1 librpma-dev rpma)
[ ! -e "$build/lib/libfabric/librstream-fi.so" ] || made+=(librstream-fi)
for package in "${made[@]}"; do
    dpkg-deb --extract packages/${package}_*.deb root
    expect_field $package Version '^[0-9.]+-1$'
    expect_field $package Maintainer '^[^<>]+ <[^<>@ ]+@[^<>@ ]+>$'
    grep -q "^rpma ($(field $package Version)) " <(zcat root/usr/share/doc/$package/changelog.Debian.gz) ||
        fail "$package has no changelog of its version"
done
libraries=$PWD/root/usr/lib/$architecture
version=$(field librpma0 Version)

# The packages tell apt how to upgrade Debian's own packages, which versions belong together, and which libraries dpkg
# finds.
dpkg --compare-versions "$version" gt 1.3.0-99 || fail "version $version does not replace librpma 1.3"
expect_field librpma0 Depends "libsoftrdma0 \(= $version\)"
expect_field librpma0 Depends 'libibverbs1 \(>='
expect_field librpma0 Depends 'librdmacm1 \(>='
expect_field libsoftrdma0 Depends 'libpmem2-1|libpmem2'
expect_field librpma-dev Depends "librpma0 \(= $version\).*libibverbs-dev"
expect_field rpma Depends "librpma0 \(= $version\).*libfmt"
expect_field librpma0 Description '^remote persistent memory over RDMA \(runtime\)$'
control() { dpkg-deb --ctrl-tarfile packages/"$1"_*.deb | tar -xO "./$2"; }  # control PACKAGE FILE
expect 'librpma0 says what programs depend on' grep -q '^librpma 0 librpma0 (>= ' <(control librpma0 shlibs)
for package in librpma0 libsoftrdma0 librsocket1; do
    expect "$package has ldconfig run" grep -q '^activate-noawait ldconfig$' <(control $package triggers)
done
# The unit of systemd: the package makes the folder of its settings, and tells systemd of a new version.
[ -d root/etc/rpma ] || fail 'no /etc/rpma'
for script in postinst:daemon-reload postinst:try-restart prerm:stop postrm:daemon-reload; do
    expect "a script of rpma: $script" grep -q -- " ${script#*:} " <(control rpma "${script%:*}")
done

# Libfabric finds its provider, and Debian's libfabric-dev, which has a page of the same name, may be there too.
if [ -e "$build/lib/libfabric/librstream-fi.so" ]; then
    expect_field librstream-fi Depends "libfabric1.*librpma0 \(= $version\)|librpma0 \(= $version\).*libfabric1"
    [ -e "$libraries/libfabric/librstream-fi.so" ] || fail 'no provider in the folder of libfabric'
    [ ! -e "$build/man/man7" ] || [ -e root/usr/share/man/man7/fi_rstream.7rpma.gz ] || fail 'no page fi_rstream.7rpma.gz'
fi
for file in bin/rpma include/librpma.h include/softrdma.h lib/$architecture/{librpma.so.0,libsoftrdma.so.0,librpma.so} \
    lib/$architecture/cmake/rpma/rpmaConfig.cmake lib/$architecture/pkgconfig/{librpma,softrdma}.pc \
    share/doc/{librpma0,libsoftrdma0,librsocket1,librpma-dev,rpma}/copyright share/doc/librpma-dev/examples/README.md; do
    [ -e "root/usr/$file" ] || fail "no /usr/$file"
done
if [ -e "$build/man/man1" ]; then
    for page in man1/rpma.1 man1/rpma-push.1 man3/rpma_write.3 man3/riomap.3 man7/librpma.7 man7/librsocket.7; do
        [ -e "root/usr/share/man/$page.gz" ] || fail "no page $page.gz"
    done
    # The pages of a package refer only to pages that are installed with it: its own, those of the packages that it
    # depends on, and of their libraries. References to the manual of Linux are not checked.
    dpkg-deb --fsys-tarfile packages/rpma_*.deb | tar -t >at-rpma.list
    for package in librpma0 libsoftrdma0 librsocket1; do
        dpkg-deb --fsys-tarfile packages/${package}_*.deb | tar -t | tee -a at-rpma.list
    done >at-libraries.list
    for page in root/usr/share/man/man[17]/*; do
        list=at-rpma.list
        [[ $page == *.1.gz ]] || list=at-libraries.list
        # A name stands in bold: \f[B]NAME\f[R](VOLUME), or \fBNAME\fR(VOLUME).
        names=$(zcat "$page" | sed -n '/^.SH SEE ALSO/,$p' | sed -E 's/\\f(\[[A-Z]*\]|[A-Z])//g' | grep -oE '[a-zA-Z0-9_-]+\([0-9]\)')
        [ -n "$names" ] || fail "${page##*/} refers to no page"
        for name in $names; do
            case $name in ibv_* | rdma_* | 'socket(7)' | 'tcp(7)' | 'udp(7)') continue ;; esac  # rdma-core's, and those of Linux
            grep -q "/man/man./${name%(*}\.${name: -2:1}\.gz$" $list || fail "${page##*/} refers to $name, which is not installed with it"
        done
    done
fi
expect 'the name of the library' grep -q 'SONAME.*librpma.so.0' <(objdump -p "$libraries/librpma.so.0")
# The installed files contain neither the build's folder nor any other: they find each other below any prefix.
for file in root/usr/bin/rpma "$libraries"/lib{rpma,softrdma}.so.0; do
    ! objdump -p "$file" | grep -E 'R(UN)?PATH' | grep -vE ' \$ORIGIN(/[^:]*)?$' || fail "$file names a folder"
done
! grep -rlF "$build" "$libraries"/{pkgconfig,cmake} || fail 'these name the build folder'

# Runs server and client of a folder on the unpacked libraries, and only on those.
play() {  # play FOLDER
    local program
    for program in server client; do
        LD_LIBRARY_PATH=$libraries ldd "$1/$program" | grep -qF "$libraries/librpma.so.0" ||
            fail "$1/$program does not load the librpma that was unpacked"
    done
    mkdir -p "$1/examples/${example##*/}"
    ln -sf "$PWD/$1/server" "$PWD/$1/client" "$1/examples/${example##*/}"
    LD_LIBRARY_PATH=$libraries RPMA_DEVICE=soft "$source/examples/run-all" --verbose --build "$PWD/$1" "${example##*/}"
}

# Builds as a packager with a system root does: our headers and libraries are only below root/.
mkdir by-pkg-config
export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:/usr/lib/$architecture/pkgconfig:/usr/share/pkgconfig
for role in server client; do
    # shellcheck disable=SC2046
    expect "compiling with pkg-config" "$cc" -std=c17 -Wall -Werror -o by-pkg-config/$role "$example/$role.c" \
        $(pkg-config --cflags --libs librpma)
done
[ "$(pkg-config --modversion librpma)" = "${version%-1}" ] || fail "librpma.pc has another version than the package"

expect 'configuring with find_package' "$cmake" -S "$source/tests/integration/packages/program" -B by-cmake -DEXAMPLE="$example" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$PWD/root/usr"
expect 'building with find_package' "$cmake" --build by-cmake
[ $failures = 0 ] || exit 1

# The installation is below a prefix where ld.so does not look, and ld.so would take the system's librpma: the printed
# settings are enough.
expect 'installing below a prefix' "$cmake" --install "$build" --prefix "$PWD/prefix"
said=$("$cmake" --install "$build" --prefix "$PWD/prefix" | sed -n '/To build programs with pkg-config/,$p')
unset PKG_CONFIG_LIBDIR
eval "$(sed -n 's/^ *\(export PKG_CONFIG_PATH=.*\)/\1/p' <<<"$said")"
eval "$(sed -n "s|^ *cc \.\.\. |$cc -o by-prefix $example/client.c |p" <<<"$said")" || fail "what is printed does not compile: $said"
for library in librpma libsoftrdma; do
    ldd by-prefix | grep -qF "=> $PWD/prefix/lib/$architecture/$library.so.0" || fail "by-prefix loads: $(ldd by-prefix)"
done
[ -z "$(DESTDIR=$PWD/staged "$cmake" --install "$build" --prefix /opt/rpma | grep PKG_CONFIG_PATH)" ] ||
    fail 'a staged installation says where it is not'
[ $failures = 0 ] || exit 1

code=0
play by-pkg-config || code=$?
play by-cmake || code=$?
[ $code = 0 ] || [ $code = 77 ] || fail "a program ended with $code"
LD_LIBRARY_PATH=$libraries expect 'softrdma by find_package' by-cmake/device
expect 'rpma from its package' root/usr/bin/rpma devices
RPMA_DEVICE=soft expect 'the unit from its package' "$source/tests/integration/service.py" root /usr
[ $failures = 0 ] || exit 1
exit $code
