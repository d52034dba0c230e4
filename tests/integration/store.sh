#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A store is a folder of plain files: what is pushed under a name is a file of that name's folder, and a pull gives its
# bytes. Nothing else ever appears there.
. "$(dirname "$0")/server.bash"

head -c 40M /dev/urandom >large
head -c 4097 large >small
: >empty

start_server store
grep -q '^durable *yes$' server.out || die "expected that it says so: $(cat server.out)"
grep -q '^memory *page cache$\|^memory *DAX$' server.out || die "expected a store that is durable: $(cat server.out)"
grep -q '^holds *0 names, 0 bytes$' server.out || die "expected an empty store: $(cat server.out)"
refused 'nothing was pushed yet under the name other' "$rpma" pull "$address/other" got

# A file, standard input whose size is not known, and nothing at all.
push large
grep -q '^durable *yes' stdout || die "expected a push that is durable"
pulled large
cat large small | bounded "$rpma" push - "$address" >stdout 2>stderr || die "push from standard input"
cat large small >both
pulled both
push small "$address/other"
push empty "$address/empty"
pulled small "$address/other"
pulled empty "$address/empty"

# The files are those that were pushed, and the numbers those of the commits.
cmp store/default/1 large || die "the first content is not the file"
cmp store/default/2 both || die "the second content is not the file"
[ "$(cd store && find . -type f ! -name .measured ! -name .identity | sort | tr '\n' ' ')" = './default/1 ./default/2 ./empty/1 ./other/1 ' ] ||
    die "there is something else: $(find store)"
[ "$(grep -c '^committed' server.out)" -eq 4 ] || die "expected 4 commits: $(cat server.out)"
grep -q '^committed *other: content 1, 4097 bytes' server.out || die "no name: $(cat server.out)"

# One push at a time for each name, and any number of names.
mkfifo first
"$peer" hold 127.0.0.1 "$port" >first &
holder=$!
helpers+=($holder)
read -t 60 -r line <first || die "hold"
refused_with 5 'another push is under way' "$rpma" push small "$address" --wait 0
push small "$address/other"
kill -KILL $holder
wait $holder 2>/dev/null || true
push small
[ "$(ls store/default)" = "$(printf '1\n2\n3')" ] || die "a push that ended left something: $(ls store/default)"

# A store has what it had, after a restart and after a kill. A server that was killed amid a push leaves nothing.
mkfifo second
(cat large; cat second) | bounded "$rpma" push - "$address/cut" >/dev/null 2>&1 &
cut=$!
exec {feeding}>second
until bounded "$rpma" status "$address" | grep -q '^pushes *.* from'; do :; done
kill -KILL "$server"
wait "$server" 2>/dev/null || true
server=
exec {feeding}>&-
wait $cut && die "a push to a server that was killed reports success"
start_server store
grep -q '^holds *3 names, ' server.out || die "the store forgot: $(cat server.out)"
[ ! -e store/cut ] || die "a push that was cut off left something"
pulled small
pulled empty "$address/empty"
grep -q '^sequence *1$' stdout || die "another sequence: $(cat stdout)"

# A second server, a file, a name that is none.
refused 'is already served by another process' "$rpma" serve --store store --listen "$address"
refused 'expected a folder' "$rpma" serve --store small --listen "$address"
for name in .. .hidden a/b ''; do
    refused_with 2 'is no name' "$rpma" push small "$address/$name"
done
# A link leads out of the store, and is not followed.
ln -s "$work" store/link
refused 'Not a directory' "$rpma" push small "$address/link"
[ ! -e 1 ] || die "the push went out of the store"
# A fault of one name, or of one request, is none of the storage: pushes go on.
push small
echo text >store/file
refused 'Not a directory' "$rpma" push small "$address/file"
push small
for crime in store_nothing roll_back_to_nothing; do
    bounded "$peer" $crime 127.0.0.1 "$port" || die "$crime"
    push small
done
stop_server
[ ! -e store/.measured ] || die "a file stays behind"
