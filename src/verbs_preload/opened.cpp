// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/opened: libsoftrdma-verbs-opened.so has no functions. A program that opens libibverbs or
// librdmacm with dlopen(3) gets its handle (dlopen.cpp). A handle finds the names of a library and of those
// that it needs, in their order: libsoftrdma-verbs.so first, and then the two real ones.
