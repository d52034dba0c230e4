#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `rpma push --incremental` sends only the blocks that differ from the newest content, and what is committed are the bytes
# of the file all the same, whatever happened to the checksums beside that content. `rpma pull --incremental` receives only
# those that differ from the file that is there, and that file becomes the content or stays.
. "$(dirname "$0")/server.bash"
store=${RPMA_STORE_FOLDER:-.}/store

head -c 5M /dev/urandom >file
start_server store --keep 2

# pushed SENT: a push of the file sends so many bytes, and the store has its bytes.
sequence=0
pushed() {
    sequence=$((sequence + 1))
    bounded "$rpma" push file "$address" --incremental --json >stdout 2>stderr || die "push --incremental"
    grep -q "\"sequence\":${sequence}[,}]" stdout || die "expected sequence $sequence: $(cat stdout)"
    grep -q "\"sent\":$1," stdout || die "expected $1 bytes: $(cat stdout)"
    cmp file "$store/default/$sequence" || die "content $sequence is not the file"
    bounded "$rpma" list "$address" >stdout || die "list" # after it, what the commit leaves is there
}
change() { head -c "$2" /dev/urandom | dd of=file bs=64K seek="$1" iflag=fullblock conv=notrunc status=none; } # change BLOCK BYTES

pushed 5242880
pushed 0
change 3 16 # one byte would be the same in one of 256 runs
pushed 65536
change 0 65536
change 10 70000
change 79 65536
pushed 262144
# Longer, also within the last block; shorter; nothing; and from nothing.
head -c 1000 /dev/urandom >>file
pushed 1000
head -c 100K /dev/urandom >>file
pushed 103400
truncate -s 3000000 file
pushed 50880
truncate -s 0 file
pushed 0
head -c 200000 /dev/urandom >file
pushed 200000
pulled file
[ "$(find "$store/default" -type f -printf '%f ' | tr ' ' '\n' | LC_ALL=C sort | tr '\n' ' ')" = ".8.blocks .9.blocks 8 9 " ] ||
    die "something else is there: $(ls -A "$store/default")"
bounded "$rpma" check --store "$store" >stdout || die "a content is damaged: $(cat stdout)"

# The checksums are of no use: all bytes are sent, and new ones are made.
for damage in 'rm "$at"' 'truncate -s 100 "$at"' 'echo more >>"$at"' 'printf X | dd of="$at" bs=1 seek=30 conv=notrunc status=none' \
    'rm "$at"; mkdir "$at"' 'rm "$at"; mkfifo "$at"' 'rm "$at"; ln -s /etc/passwd "$at"' 'cp "$store/other" "$at"'; do
    cp "$store/default/.$sequence.blocks" "$store/other"
    change 1 10
    pushed 65536
    at=$store/default/.$sequence.blocks
    eval "$damage"
    pushed 200000
done
rm "$store/other"
# A push of all bytes leaves none, and a rollback those of the content.
push file
sequence=$((sequence + 1))
pushed 200000
change 1 10
pushed 65536
bounded "$rpma" rollback "$address" >stdout || die "rollback"
sequence=$((sequence + 1))
cp "$store/default/$sequence" file
pushed 0

# A block of the newest content is damaged, amid it or at its end: nothing is committed that has it. The server knows of it from
# then on, so that the next push sends all bytes.
for at in 150000 190000; do
    printf XXXX | dd of="$store/default/$sequence" bs=1 seek=$at conv=notrunc status=none
    change 0 10
    refused_with 3 'the server cannot build on what it has' "$rpma" push file "$address" --incremental
    grep -q 'nothing was committed' stderr || die "expected no commit"
    refused_with 6 "content $sequence is damaged: its block at" "$rpma" status "$address"
    pushed 200000
done

# Two pushes at once on one name: one waits for the other, and each is whole.
for i in 1 2 3 4; do
    bounded "$rpma" push file "$address" --incremental --wait 60 >/dev/null 2>"stderr.$i" &
    helpers+=($!)
    pushes[i]=$!
done
for i in 1 2 3 4; do
    wait "${pushes[i]}" || die "push $i: $(cat "stderr.$i")"
done
sequence=$((sequence + 4))
pulled file

# received BYTES [OPTION...]: a pull to `copy` receives so many bytes, and that is a new file with the content.
received() {
    local bytes=$1 before
    shift
    before=$(stat -L -c %i copy 2>/dev/null || true)
    bounded "$rpma" pull "$address" copy --incremental --json "$@" >stdout 2>stderr || die "pull --incremental"
    grep -q "\"received\":${bytes}[,}]" stdout || die "expected $bytes bytes: $(cat stdout)"
    cmp file copy || die "the copy is not the content"
    [ "$(stat -L -c %i copy)" != "$before" ] || die "the old file was written"
}
received 200000
chmod 640 copy
ln copy before
received 0
cp --remove-destination file copy
printf 'XXXX' | dd of=copy bs=1 seek=70000 conv=notrunc status=none
chmod 604 copy
ln -f copy before
received 65536
[ "$(stat -c %a copy)" = 604 ] || die "the rights of the old file are lost"
[ "$(cmp -l before file | wc -l)" -gt 0 ] || die "the old file was written"
head -c 100000 /dev/urandom >>copy
received 0
truncate -s 150000 copy
received 68928
truncate -s 0 copy
received 200000
mv copy elsewhere
ln -s elsewhere copy
printf 'XXXX' | dd of=copy bs=1 conv=notrunc status=none
received 65536 --rate 10M
[ -L copy ] || die "the link was replaced"
rm copy
mv elsewhere copy
# Without checksums, or a file that can be read, all bytes come.
mv "$store/default/.$sequence.blocks" blocks
received 200000
mv blocks "$store/default/.$sequence.blocks"
received 0
# A block of the content is damaged: the file stays as it is.
printf 'XXXX' | dd of=copy bs=1 seek=70000 conv=notrunc status=none
cp copy before
printf 'YYYY' | dd of="$store/default/$sequence" bs=1 seek=70001 conv=notrunc status=none
refused_with 1 'copy was not written' "$rpma" pull "$address" copy --incremental
cmp copy before || die "a damaged content was written"
dd if=file of="$store/default/$sequence" bs=4 skip=17500 seek=17500 count=2 conv=notrunc status=none
received 65536
refused_with 2 '--incremental: expected a file' "$rpma" pull "$address" - --incremental
refused_with 2 '--incremental: expected a file' "$rpma" pull "$address" /dev/stdout --incremental
rm copy before

# The next start removes the files that a crash leaves of a content that is gone.
stop_server
touch "$store/default/.1.blocks" "$store/default/.mine"
start_server store --keep 2
[ ! -e "$store/default/.1.blocks" ] || die "the checksums of no content stay"
[ -e "$store/default/.mine" ] || die "somebody else's file is gone"

# A client that claims what is not so commits nothing.
bounded "$peer" bad_blocks 127.0.0.1 "$port" || die "bad_blocks"
pulled file
bounded "$rpma" check --store "$store" >stdout || die "a content is damaged: $(cat stdout)"
refused_with 2 '--incremental: expected a file' "$rpma" push - "$address" --incremental
stop_server
