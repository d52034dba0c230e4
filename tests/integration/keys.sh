#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# rpma keygen makes keys, and --psk FILE has a command use them.
. "$(dirname "$0")/server.bash"

# A key is a line in a new file that only its owner may read, whatever the umask is.
umask 0
"$rpma" keygen host-a a >stdout 2>stderr || die "keygen"
[ ! -s stdout ] || die "keygen printed: $(cat stdout)"
[ "$(stat -c %a a)" = 600 ] || die "the mode is $(stat -c %a a)"
[ "$(wc -l <a)" -eq 1 ] && grep -qxE 'host-a:[0-9a-f]{64}' a || die "not a key: $(cat a)"
umask 0777
"$rpma" keygen host-b b || die "keygen with another umask"
umask 022
[ "$(stat -c %a b)" = 600 ] || die "the mode is $(stat -c %a b)"
"$rpma" keygen host-a >again || die "keygen to standard output"
grep -qxE 'host-a:[0-9a-f]{64}' again || die "not a key: $(cat again)"
! cmp -s a again || die "the same key twice"

# It never writes into a file that exists, nor through a link.
cp -p a kept
refused 'a: exists already' "$rpma" keygen host-a a
cmp a kept || die "the file changed"
ln -s absent link
refused 'link: exists already' "$rpma" keygen host-a link
[ ! -e absent ] || die "keygen wrote through a link"
refused 'absent/a: cannot make it: No such file' "$rpma" keygen host-a absent/a
refused_with 2 'IDENTITY is required' "$rpma" keygen
long=$(printf 'x%.0s' $(seq 64))
"$rpma" keygen "$long" long || die "an identity of 64 characters"
for bad in '' 'two words' a:b a,b 'a#b' $'a\nb' "${long}x"; do
    refused_with 2 'expected an identity of 1 to 64 printable characters' "$rpma" keygen "$bad" bad
done
[ ! -e bad ] || die "a file for a bad identity"
refused_with 1 'cannot write: No space left on device' bash -c '"$1" keygen host-a >/dev/full' bash "$rpma"

# The server knows three keys, and each client has one.
cat a b long >keys
chmod 600 keys
head -c 1M /dev/urandom >content
head -c 1M /dev/urandom >other
start_server store --psk keys
bounded "$rpma" push --psk a content "$address" >stdout 2>stderr || die "push with the key a"
bounded "$rpma" pull --psk long "$address" got >stdout 2>stderr || die "pull with the longest identity"
cmp got content || die "another content"
bounded "$rpma" perf --psk b "$address" --count 1 --op write --size 8 --depth 1 >stdout 2>stderr || die "perf with the key b"
bounded "$rpma" check --psk a "$address" >stdout 2>stderr || die "check"
grep -q '^verdict *rpma serve, of version 4, over TLS' stdout || die "check: $(cat stdout)"
refused_with 2 'excludes' "$rpma" check --psk a --store store

# The option prevails over the variable, and a name is that of a file in the present folder.
(cd / && RPMA_TLS=psk:/absent bounded "$rpma" status --psk "${work#/}/b" "$address") >stdout 2>stderr || die "status from another folder"
grep -q '^holds *1 name, 1048576 bytes' stdout || die "status: $(cat stdout)"
refused_with 2 'expected a file of keys' "$rpma" status --psk '' "$address"

# A client without a key, with another key, or with a file that others may read, is told so, and so is the server.
chmod 600 again
refused_with 7 'refused: the server speaks TLS, and this command has no keys (expected --psk FILE or --x509 FILE)' "$rpma" push other "$address"
refused_with 7 'the server speaks TLS' "$rpma" status "$address"
logged 'the client does not speak TLS'
refused_with 7 "the key of identity host-a is not the server's" "$rpma" push --psk again other "$address"
logged "the key of identity host-a is not the client's"
refused_with 7 "the key of identity host-a is not the server's" "$rpma" check --psk again "$address"
chmod 644 again
refused_with 2 'rpma: TLS: others than its owner may use' "$rpma" push --psk again other "$address"
refused_with 2 "rpma: TLS: $PWD/absent: No such file or directory" "$rpma" push --psk absent other "$address"

# rpma devices shows which configuration asks for TLS, and why no device opens with it.
chmod 600 again
bounded "$rpma" devices >stdout 2>stderr || die "devices"
grep -qE '^soft_lo +soft +iWARP +active .* no +127\.0\.0\.1' stdout || die "devices: $(cat stdout)"
bounded "$rpma" devices --json | grep -q '"tls":null' || die "devices --json"
RPMA_TLS=psk:$PWD/again bounded "$rpma" devices >stdout 2>stderr || die "devices with keys"
grep -qF "psk:$PWD/again" stdout && grep -q '^soft_lo .* active ' stdout || die "devices with keys: $(cat stdout)"
RPMA_TLS=psk:$PWD/again bounded "$rpma" devices --json | grep -qF "\"tls\":\"psk:$PWD/again\"" || die "devices --json with keys"
for case in 'absent:No such file or directory' 'server.err:others than its owner may use' 'content:expected IDENTITY:KEY' 'empty:has no key'; do
    file=${case%%:*}
    : >empty
    chmod 600 empty content
    RPMA_TLS=psk:$PWD/$file bounded "$rpma" devices >stdout 2>stderr || die "devices with $file"
    grep -q '^soft_lo .* cannot open: ' stdout || die "devices with $file: $(cat stdout)"
    grep -qF "$PWD/$file" stderr && grep -qF -- "${case#*:}" stderr || die "devices does not say what is wrong with $file: $(cat stderr)"
done
RPMA_TLS=psk:again bounded "$rpma" devices >stdout 2>stderr || die "devices with a part of a path"
grep -q 'RPMA_TLS is "psk:again", expected psk:FILE or x509:FILE, with the whole path' stderr || die "devices: $(cat stderr)"

# An identity that is taken out of the server's file cannot connect any more.
cat b long >keys
refused_with 7 'the server does not know the key identity host-a' "$rpma" push --psk a other "$address"
bounded "$rpma" pull --psk b "$address" got >stdout 2>stderr || die "pull with a key that stays"
cmp got content || die "the content changed"
stop_server
refused 'absent: No such file or directory' "$rpma" serve --store served --psk absent
