// SPDX-License-Identifier: BSD-3-Clause
// verbs/soft: the soft device, through libsoftrdma.
#include "verbs/provider.hpp"

namespace verbs {

namespace {

unsigned all_operations(const ibv_device_attr_ex &) {
    return native_flush | native_atomic_write | native_immediate;
}

int soft_query_gid(ibv_context *context, std::uint32_t port_num, std::uint32_t index, ibv_gid_entry *entry) {
    return softrdma_ibv_query_gid_ex(context, port_num, index, entry, 0);
}

// The soft device's queue pairs have all operations that their peers have.
std::uint64_t no_send_operations(unsigned) {
    return 0;
}

}  // namespace

const Provider soft = {
    .name = "soft",
    .capabilities = {.pins_memory = false,
                     .checks_durability = true,
                     .keeps_order = true,
                     .posts_native_alone = false,
                     .registers_for_qp = true,
                     .speaks_tcp = true,
                     .waits_unarmed = true,
                     .ends_when_sent = true,
                     .tells_end_error = true,
                     .tells_link = true,
                     .authenticates = true,
                     .most_inline_size = SOFTRDMA_MAX_INLINE_SIZE},
    .device = {.query_device_ex = softrdma_ibv_query_device_ex,
               .query_port = softrdma_ibv_query_port,
               .query_gid = soft_query_gid},
    .domain = {.alloc_pd = softrdma_ibv_alloc_pd,
               .dealloc_pd = softrdma_ibv_dealloc_pd,
               .reg_mr = softrdma_ibv_reg_mr,
               .dereg_mr = softrdma_ibv_dereg_mr,
               .advise_mr = softrdma_ibv_advise_mr,
               .create_srq = softrdma_ibv_create_srq,
               .destroy_srq = softrdma_ibv_destroy_srq,
               .create_ah = softrdma_ibv_create_ah,
               .destroy_ah = softrdma_ibv_destroy_ah},
    .completion = {.create_comp_channel = softrdma_ibv_create_comp_channel,
                   .destroy_comp_channel = softrdma_ibv_destroy_comp_channel,
                   .create_cq = softrdma_ibv_create_cq,
                   .resize_cq = softrdma_ibv_resize_cq,
                   .destroy_cq = softrdma_ibv_destroy_cq,
                   .get_cq_event = softrdma_ibv_get_cq_event,
                   .ack_cq_events = softrdma_ibv_ack_cq_events},
    .cm = {.getaddrinfo = softrdma_rdma_getaddrinfo,
           .freeaddrinfo = softrdma_rdma_freeaddrinfo,
           .create_event_channel = softrdma_rdma_create_event_channel,
           .destroy_event_channel = softrdma_rdma_destroy_event_channel,
           .get_cm_event = softrdma_rdma_get_cm_event,
           .ack_cm_event = softrdma_rdma_ack_cm_event,
           .event_str = softrdma_rdma_event_str,
           .create_id = softrdma_rdma_create_id,
           .destroy_id = softrdma_rdma_destroy_id,
           .migrate_id = softrdma_rdma_migrate_id,
           .bind_addr = softrdma_rdma_bind_addr,
           .listen = softrdma_rdma_listen,
           .set_option = softrdma_rdma_set_option,
           .resolve_addr = softrdma_rdma_resolve_addr,
           .resolve_route = softrdma_rdma_resolve_route,
           .create_qp_ex = softrdma_rdma_create_qp_ex,
           .destroy_qp = softrdma_rdma_destroy_qp,
           .connect = softrdma_rdma_connect,
           .accept = softrdma_rdma_accept,
           .reject = softrdma_rdma_reject,
           .disconnect = softrdma_rdma_disconnect},
    .native = {.of_device = all_operations,
               .creation_flags = no_send_operations,
               .of_queue_pair = softrdma_peer_operations,
               .post = nullptr},
    .beyond = {.reg_mr_for_qp = softrdma_reg_mr_for_qp,
               .adopt = softrdma_adopt_fd,
               .cq_wait_begin = softrdma_cq_wait_begin,
               .cq_wait_end = softrdma_cq_wait_end,
               .events_wait_begin = softrdma_events_wait_begin,
               .events_wait_end = softrdma_events_wait_end,
               .disconnect_when_sent = softrdma_disconnect_when_sent,
               .end_error = softrdma_end_error,
               .link = softrdma_link,
               .paths = softrdma_paths,
               .set_tls = softrdma_set_tls,
               .identity = softrdma_identity,
               .peers_are_known = softrdma_peers_are_known},
};

void set_soft_log(base::LogSink sink, int threshold) {
    softrdma_set_log(sink, threshold);
}

}  // namespace verbs
