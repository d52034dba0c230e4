#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# sockets_passed_by.sh RPMA CC: programs whose calls libcarry-preload.so does not see get the file over TCP from a
# server under `rpma run --sockets`. The rpma command says so before it becomes the program, or --stats says so.
compiler=$2
. "$(dirname "$0")/sockets.bash" "$1" python3 "$compiler"

cat >client.c <<'C'
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef RAW
#define socket(...) (int)syscall(SYS_socket, __VA_ARGS__)
#define connect(...) (int)syscall(SYS_connect, __VA_ARGS__)
#endif
#ifdef GO /* what Go's linker writes, and readelf -n prints */
__asm__(".pushsection .note.go.buildid,\"a\",@note\n.int 4, 4, 4\n.asciz \"Go\"\n.byte 0\n.int 7\n.popsection");
#endif
int main(int count, char **words) {
    const char *const request = "GET /file HTTP/1.0\r\n\r\n";
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((unsigned short)atoi(words[count - 1])); /* a script comes before it */
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 || write(fd, request, strlen(request)) < 0) {
        return 1;
    }
    char bytes[4096];
    ssize_t size;
    while ((size = read(fd, bytes, sizeof(bytes))) > 0) {
        if (write(1, bytes, (size_t)size) != size) {
            return 1;
        }
    }
    return size == 0 ? 0 : 1;
}
C
echo 'what the server has' >file
serve server python3 -u -m http.server -b 127.0.0.1 "$port"

# asks NAME TEXT OPTION...: the client that is compiled with the options gets the file, and the messages have the text.
asks() {
    local status=0
    "$compiler" -o "$1" client.c "${@:3}" 2>"$1.out" || return 77
    carry "./$1" "$port" >"$1.got" 2>"$1.out" || status=$?
    [ $status -eq 0 ] || die "$1 ended with $status"
    grep -q 'what the server has' "$1.got" || die "$1 got something else"
    grep -q "$2" "$1.out" || die "$1: the reason is not shown"
}
asks seen ': [01] connections over memory, 0 over a device, [01] over TCP.*; [1-9]'
asks raw ': 0 connections over memory, 0 over a device, 0 over TCP; 0 bytes' -DRAW
asks go '^rpma run --sockets: ./go is written in Go, ' -DGO
asks static '^rpma run --sockets: ./static is linked statically: ' -static || echo 'no static program can be made here'
printf '#!%s/static\n' "$work" >script
chmod 755 script
if [ -x static ]; then
    carry ./script "$port" >script.got 2>script.out || die "a script ended with $?"
    grep -q "^rpma run --sockets: $work/static is linked statically: " script.out || die "a script's interpreter is not shown"
fi
carry true 2>&1 | grep -q ': true.*: 0 connections over memory, 0 over a device, 0 over TCP; 0 bytes' || die "a program without connections"
