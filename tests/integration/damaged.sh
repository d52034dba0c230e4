#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Files of a store that are deleted, cut off or changed behind the server are found: by status, list, check and pull. The
# contents that are good stay, and are served. What is said of them after a push that did not end is true.
. "$(dirname "$0")/server.bash"

head -c 1M /dev/urandom >first
head -c 1M /dev/urandom >second

# sick TEXT: the status, and so a monitor, tells it; good: it tells of nothing.
sick() {
    refused_with 6 "$1" "$rpma" status "$address"
    grep -q "^[a-z]* *$1" stdout || die "the status does not say it: $(cat stdout)"
}
good() { bounded "$rpma" status "$address" >stdout 2>stderr || die "status"; }
# abandoned TEXT: a push begins and does not commit, and the server says what stays.
abandoned() {
    bounded "$peer" no_commit 127.0.0.1 "$port" || die "no_commit"
    bounded "$rpma" status "$address" >stdout 2>stderr || true
    grep -q "a push from 127.0.0.1\\( (.*)\\)\\? ended without a commit: .*; $1\$" server.err || die "expected: $1"
}
checked() { bounded "$rpma" check --store store >stdout 2>stderr || die "check"; }

start_server store
checked
grep -qx 'no contents' stdout || die "a new store has a content: $(cat stdout)"
abandoned 'default still has no content'
push first
abandoned 'default still has content 1'
push second
push first "$address/other"
good
checked # also while it is served
[ "$(grep -c crc32c stdout)" -eq 3 ] || die "expected three contents: $(cat stdout)"

# Deleted, cut off, replaced by a link.
rm store/default/2
sick 'default: content 2 was deleted'
refused_with 6 'default: content 2 was deleted' "$rpma" pull "$address" got
abandoned 'default still has content 2, which was deleted'
refused_with 3 'content 2 was deleted; nothing was committed' "$rpma" rollback --sequence 2 "$address"
bounded "$rpma" list "$address" >stdout || die "list"
grep -q '^default *2 .*FAULT: was deleted$' stdout || die "the list does not say it: $(cat stdout)"
bounded "$rpma" pull "$address" got --sequence 1 >stdout || die "pull of the good content"
cmp got first || die "the good content has other bytes"
pulled first "$address/other"
bounded "$rpma" rollback "$address" >stdout || die "rollback to the good content"
good
pulled first
truncate -s 5000 store/other/1
sick 'other: content 1 has 5000 bytes (expected 1048576)'
refused_with 6 'has 5000 bytes' "$rpma" pull "$address/other" got
push second "$address/other"
good
ln -sf "$work/first" store/other/2
sick 'other: content 2 cannot be opened: Too many levels of symbolic links'
refused_with 6 'cannot be opened' "$rpma" pull "$address/other" got
mkfifo fifo
mv -f fifo store/other/2
sick 'other: content 2 is no regular file'
push second "$address/other"
good

# The folder of a name cannot be written: its pushes are refused, and the status says so. Nothing ends this script before the folder
# can be written again.
if chattr +i store/other 2>chattr.err || { chmod a-w store/other && [ ! -w store/other ]; }; then
    code=0 pushed=0
    bounded "$rpma" status "$address" >status.out 2>&1 || code=$?
    bounded "$rpma" push first "$address/other" >push.out 2>&1 || pushed=$?
    chattr -i store/other 2>chattr.err || chmod u+w store/other
    [ $code -eq 6 ] && [ $pushed -eq 3 ] || die "a folder that cannot be written: the status ended with $code, and a push with $pushed"
    grep -q 'damaged: other: takes no push: its folder cannot be written' status.out || die "the status: $(cat status.out)"
    good
fi

# A content with a fault makes room for a push before a good one does.
for content in first second first; do
    push $content "$address/kept"
done
rm store/kept/3
sick 'kept: content 3 was deleted'
push second "$address/kept"
good
[ "$(ls store/kept)" = $'1\n2\n4' ] || die "a good content went, and not the one with a fault: $(ls store/kept)"

# Cut off while a pull reads it: the pull fails, and the server goes on.
head -c 40M /dev/zero >large
push large "$address/large"
echo kept >got
mkfifo reader
"$rpma" pull "$address/large" - <>reader >reader 2>stderr &
puller=$!
helpers+=($puller)
exec {slow}<reader
head -c 1 <&"$slow" >first_byte
truncate -s 8192 store/large/1
cat <&"$slow" >/dev/null &
helpers+=($!)
exec {slow}<&-
code=0
wait $puller || code=$?
[ $code -ne 0 ] && [ "$(wc -l <stderr)" -eq 1 ] || die "a pull of a file that was cut off ended with $code"
refused_with 6 'large: content 1 has 8192 bytes' "$rpma" pull "$address/large" got
[ "$(cat got)" = kept ] || die "a failed pull touched the file"
push first "$address/large"
good

# Another byte. A pull finds it; a check does, and the server after its start.
chmod u+w store/default/3
printf '\0\377' | dd of=store/default/3 bs=1 seek=5000 conv=notrunc status=none
refused 'is damaged: its checksum is wrong' "$rpma" pull "$address" got
refused_with 1 'store store: 5 of 10 contents are not good' "$rpma" check --store store
grep -q '^default *3 .*FAULT: is damaged: it has another checksum' stdout || die "the check does not say it: $(cat stdout)"
refused_with 1 'contents are not good' "$rpma" check --store store --json
grep -q '"good":false' stdout || die "no JSON: $(cat stdout)"
stop_server
start_server store
for _ in $(seq 600); do
    bounded "$rpma" status "$address" >stdout 2>stderr || break
done
sick 'default: content 3 is damaged'
refused_with 6 'default: content 3 is damaged' "$rpma" pull "$address" got
pulled second "$address/other"
push second
good
grep -q '^faulty *[1-9][0-9]* of [0-9]* contents (rpma list)$' stdout || die "nothing of the older contents: $(cat stdout)"
pulled second

# A file without its attribute, as after a copy that does not keep it, is not taken for a content.
cp store/default/4 copy
stop_server
mv copy store/default/5
start_server store
sick 'default: content 5 has no note that can be read: No data available'
push first
[ -e store/default/6 ] || die "the sequence of a file that is there was used again: $(ls store/default)"
good

# The store itself: it was moved, another one is in its place, or it is gone.
mv store moved
sick 'store ./store is not there any more: No such file or directory'
cp -a moved store
sick 'store ./store: another folder is there now'
refused_with 6 'another folder is there now' "$rpma" push first "$address"
rm -r store
mv moved store
good
rm -r store
sick 'store ./store was deleted'
refused_with 6 'was deleted' "$rpma" push first "$address"
stop_server
