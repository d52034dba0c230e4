// SPDX-License-Identifier: BSD-3-Clause
// verbs/rdma_core: the kernel's RDMA devices, through libibverbs and librdmacm.
#include "verbs/extended.hpp"
#include "verbs/provider.hpp"
#include "verbs/siw.hpp"

namespace verbs {

namespace {

// ibv_reg_mr is also a macro, which chooses another call for optional access flags; none are used here.
ibv_mr *register_memory(ibv_pd *pd, void *address, size_t length, int access) {
    return (ibv_reg_mr)(pd, address, length, access);
}

// In verbs.h these calls are macros and inlines, which compare the versions of header and library.
int query_port(ibv_context *context, std::uint8_t port_num, ibv_port_attr *attributes) {
    return ibv_query_port(context, port_num, attributes);
}

int kernel_query_gid(ibv_context *context, std::uint32_t port_num, std::uint32_t index,
                     ibv_gid_entry *entry) {
    return ibv_query_gid_ex(context, port_num, index, entry, 0);
}

unsigned device_operations(const ibv_device_attr_ex &attributes) {
    return extended::device_operations(attributes, extended::library_has_flush());
}

// Returns NULL for a queue pair that was created without operations of its own.
ibv_qp_ex *extended_of(const ibv_qp *qp) {
    return ibv_qp_to_qp_ex(const_cast<ibv_qp *>(qp));
}

unsigned native_operations(const ibv_qp *qp) {
    return extended::queue_pair_operations(extended_of(qp), extended::library_has_flush());
}

int post_native(ibv_qp *qp, const ibv_send_wr &request) {
    return extended::post(extended_of(qp), request);
}

}  // namespace

const Provider rdma_core = {
    .name = "kernel",
    .capabilities = {.pins_memory = true,
                     .checks_durability = false,
                     .keeps_order = false,
                     .posts_native_alone = true,
                     .registers_for_qp = false,
                     .speaks_tcp = false,
                     .waits_unarmed = false,
                     .ends_when_sent = false,
                     .tells_end_error = false,
                     .tells_link = false,
                     .authenticates = false,
                     .most_inline_size = 0},
    .device = {.query_device_ex = ibv_query_device_ex,
               .query_port = query_port,
               .query_gid = kernel_query_gid},
    .domain = {.alloc_pd = ibv_alloc_pd,
               .dealloc_pd = ibv_dealloc_pd,
               .reg_mr = register_memory,
               .dereg_mr = ibv_dereg_mr,
               .advise_mr = ibv_advise_mr,
               .create_srq = ibv_create_srq,
               .destroy_srq = ibv_destroy_srq,
               .create_ah = ibv_create_ah,
               .destroy_ah = ibv_destroy_ah},
    .completion = {.create_comp_channel = ibv_create_comp_channel,
                   .destroy_comp_channel = ibv_destroy_comp_channel,
                   .create_cq = siw::create_cq,
                   .resize_cq = ibv_resize_cq,
                   .destroy_cq = ibv_destroy_cq,
                   .get_cq_event = ibv_get_cq_event,
                   .ack_cq_events = ibv_ack_cq_events},
    .cm = {.getaddrinfo = rdma_getaddrinfo,
           .freeaddrinfo = rdma_freeaddrinfo,
           .create_event_channel = rdma_create_event_channel,
           .destroy_event_channel = rdma_destroy_event_channel,
           .get_cm_event = rdma_get_cm_event,
           .ack_cm_event = rdma_ack_cm_event,
           .event_str = rdma_event_str,
           .create_id = rdma_create_id,
           .destroy_id = rdma_destroy_id,
           .migrate_id = rdma_migrate_id,
           .bind_addr = rdma_bind_addr,
           .listen = rdma_listen,
           .set_option = rdma_set_option,
           .resolve_addr = rdma_resolve_addr,
           .resolve_route = rdma_resolve_route,
           .create_qp_ex = rdma_create_qp_ex,
           .destroy_qp = rdma_destroy_qp,
           .connect = rdma_connect,
           .accept = rdma_accept,
           .reject = rdma_reject,
           .disconnect = rdma_disconnect},
    .native = {.of_device = device_operations,
               .creation_flags = extended::send_operations,
               .of_queue_pair = native_operations,
               .post = post_native},
    .beyond = {},
};

}  // namespace verbs
