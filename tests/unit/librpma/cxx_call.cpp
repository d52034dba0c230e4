// SPDX-License-Identifier: BSD-3-Clause
// cxx_call.sh compares these functions, which post the same through rpma.hpp and through librpma.h.
#include <rpma.hpp>

extern "C" {

int write_in_cxx(rpma::connection &conn, const rpma::remote_region &dst, const rpma::local_region &src) {
    return conn.write(dst.part(8, 64), src.part(16, 64)) ? 0 : -1;
}
int write_in_c(rpma_conn **conn, rpma_mr_remote **dst, rpma_mr_local **src) {
    return rpma_write(*conn, *dst, 8, *src, 16, 64, RPMA_F_COMPLETION_ALWAYS, nullptr) == 0 ? 0 : -1;
}

int flush_in_cxx(rpma::connection &conn, const rpma::remote_region &dst) {
    return conn.flush(dst.part(8, 64), RPMA_FLUSH_TYPE_PERSISTENT) ? 0 : -1;
}
int flush_in_c(rpma_conn **conn, rpma_mr_remote **dst) {
    return rpma_flush(*conn, *dst, 8, 64, RPMA_FLUSH_TYPE_PERSISTENT, RPMA_F_COMPLETION_ALWAYS, nullptr) == 0
               ? 0
               : -1;
}

int send_in_cxx(rpma::connection &conn, const rpma::local_region &src) {
    return conn.send(src.part(0, 8), &src) ? 0 : -1;
}
int send_in_c(rpma_conn **conn, rpma_mr_local **src) {
    return rpma_send(*conn, *src, 0, 8, RPMA_F_COMPLETION_ALWAYS, src) == 0 ? 0 : -1;
}
}
