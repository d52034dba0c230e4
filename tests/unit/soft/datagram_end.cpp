// SPDX-License-Identifier: BSD-3-Clause
// See the header.
#include <arpa/inet.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "datagram_end.hpp"

namespace test {

namespace {

constexpr std::chrono::seconds patience{40};
constexpr int all_states = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;

}  // namespace

ibv_gid gid_of(const char *address) {
    ibv_gid gid{};
    const std::string text =
        std::strchr(address, ':') != nullptr ? address : std::string{"::ffff:"} + address;
    assert_int_equal(inet_pton(AF_INET6, text.c_str(), gid.raw), 1);
    return gid;
}

ibv_context *loopback() {
    int count = 0;
    ibv_device **const list = softrdma_ibv_get_device_list(&count);
    assert_non_null(list);
    ibv_context *found = nullptr;
    for (int i = 0; i < count; ++i) {
        if (std::strcmp(softrdma_ibv_get_device_name(list[i]), "soft_lo") == 0) {
            found = softrdma_ibv_open_device(list[i]);
        }
    }
    softrdma_ibv_free_device_list(list);
    assert_non_null(found);
    return found;
}

DatagramEnd::DatagramEnd(ibv_qp_state state, bool ipv6) : context{loopback()}, ipv6_{ipv6} {
    create_objects();
    ibv_qp_init_attr attributes = wanted();
    qp = softrdma_ibv_create_qp(pd, &attributes);
    assert_non_null(qp);
    climb(state);
}

DatagramEnd::DatagramEnd(rdma_cm_id *id) : context{id->verbs}, id_{id} {
    create_objects();
    ibv_qp_init_attr attributes = wanted();
    assert_int_equal(softrdma_rdma_create_qp(id, pd, &attributes), 0);
    qp = id->qp;
}

void DatagramEnd::create_objects() {
    memory_ = static_cast<char *>(std::calloc(slots, slot_bytes));
    pd = softrdma_ibv_alloc_pd(context);
    channel = softrdma_ibv_create_comp_channel(context);
    assert_true(memory_ != nullptr && pd != nullptr && channel != nullptr);
    cq = softrdma_ibv_create_cq(context, 64, nullptr, channel, 0);
    mr = softrdma_ibv_reg_mr(pd, memory_, slots * slot_bytes, IBV_ACCESS_LOCAL_WRITE);
    assert_true(cq != nullptr && mr != nullptr);
    const ibv_gid wanted_gid = gid_of(ipv6_ ? "::1" : "127.0.0.1");
    ibv_gid gid{};
    for (gid_index_ = 0; softrdma_ibv_query_gid(context, 1, gid_index_, &gid) == 0; ++gid_index_) {
        if (std::memcmp(&gid, &wanted_gid, sizeof(gid)) == 0) {
            return;
        }
    }
    fail_msg("the loopback device has no such GID");
}

ibv_qp_init_attr DatagramEnd::wanted() const {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap = {
        .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 3, .max_inline_data = 64};
    attributes.qp_type = IBV_QPT_UD;
    return attributes;
}

DatagramEnd::~DatagramEnd() {
    for (ibv_ah *const handle : handles_) {
        (void)softrdma_ibv_destroy_ah(handle);
    }
    if (id_ != nullptr) {
        softrdma_rdma_destroy_qp(id_);
    } else if (qp != nullptr) {
        (void)softrdma_ibv_destroy_qp(qp);
    }
    (void)softrdma_ibv_destroy_cq(cq);
    (void)softrdma_ibv_destroy_comp_channel(channel);
    (void)softrdma_ibv_dereg_mr(mr);
    (void)softrdma_ibv_dealloc_pd(pd);
    std::free(memory_);
}

int DatagramEnd::modify(ibv_qp_state state, int more) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.qkey = qkey;
    attributes.port_num = 1;
    return softrdma_ibv_modify_qp(qp, &attributes, IBV_QP_STATE | more);
}

void DatagramEnd::climb(ibv_qp_state to) const {
    if (to >= IBV_QPS_INIT) {
        assert_int_equal(modify(IBV_QPS_INIT, all_states), 0);
    }
    if (to >= IBV_QPS_RTR) {
        assert_int_equal(modify(IBV_QPS_RTR), 0);
    }
    if (to >= IBV_QPS_RTS) {
        assert_int_equal(modify(IBV_QPS_RTS, IBV_QP_SQ_PSN), 0);
    }
}

ibv_qp_state DatagramEnd::state() const {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    assert_int_equal(softrdma_ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init), 0);
    return attributes.qp_state;
}

ibv_sge DatagramEnd::sge(std::size_t slot, std::size_t bytes) const {
    return {.addr = reinterpret_cast<std::uintptr_t>(at(slot)),
            .length = static_cast<std::uint32_t>(bytes),
            .lkey = mr->lkey};
}

void DatagramEnd::post_receive(std::uint64_t slot, std::size_t bytes) const {
    ibv_sge place = sge(slot, bytes);
    ibv_recv_wr request{.wr_id = slot, .next = nullptr, .sg_list = &place, .num_sge = 1};
    ibv_recv_wr *bad = nullptr;
    assert_int_equal(ibv_post_recv(qp, &request, &bad), 0);
}

int DatagramEnd::post_send(ibv_send_wr request) const {
    ibv_send_wr *bad = nullptr;
    return ibv_post_send(qp, &request, &bad);
}

void DatagramEnd::send(std::string_view text, ibv_ah *to, std::uint32_t qp_num, std::uint32_t with_qkey) {
    std::memcpy(at(slots - 1), text.data(), text.size());
    ibv_sge place = sge(slots - 1, text.size());
    ibv_send_wr request{};
    request.sg_list = &place;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.ud.ah = to;
    request.wr.ud.remote_qpn = qp_num;
    request.wr.ud.remote_qkey = with_qkey;
    assert_int_equal(post_send(request), 0);
    assert_int_equal(next_completion(IBV_WC_SEND).status, IBV_WC_SUCCESS);
}

void DatagramEnd::send(std::string_view text, const DatagramEnd &to, std::uint32_t with_qkey) {
    send(text, handle_to(to.gid()), to.qp->qp_num, with_qkey);
}

ibv_wc DatagramEnd::next_completion(ibv_wc_opcode opcode) {
    const auto is_it = [opcode](const ibv_wc &one) { return one.opcode == opcode; };
    auto kept = std::ranges::find_if(kept_, is_it);
    while (kept == kept_.end()) {
        kept_.push_back(next_completion());
        kept = is_it(kept_.back()) ? kept_.end() - 1 : kept_.end();
    }
    const ibv_wc completion = *kept;
    kept_.erase(kept);
    return completion;
}

ibv_wc DatagramEnd::next_completion() const {
    const auto until = std::chrono::steady_clock::now() + patience;
    ibv_wc completion{};
    int count = 0;
    while ((count = ibv_poll_cq(cq, 1, &completion)) == 0) {
        assert_true(std::chrono::steady_clock::now() < until);
    }
    assert_int_equal(count, 1);
    return completion;
}

Message DatagramEnd::next_message() {
    Message message;
    message.completion = next_completion(IBV_WC_RECV);
    assert_int_equal(message.completion.status, IBV_WC_SUCCESS);
    assert_true(message.completion.byte_len >= route_bytes);
    const char *const from = at(message.completion.wr_id);
    std::memcpy(&message.route, from, route_bytes);
    message.text.assign(from + route_bytes, message.completion.byte_len - route_bytes);
    return message;
}

void DatagramEnd::expect_nothing() const {
    assert_true(kept_.empty());
    ibv_wc completion{};
    assert_int_equal(ibv_poll_cq(cq, 1, &completion), 0);
}

ibv_gid DatagramEnd::gid() const {
    ibv_gid gid{};
    assert_int_equal(softrdma_ibv_query_gid(context, 1, gid_index_, &gid), 0);
    return gid;
}

ibv_ah_attr DatagramEnd::attributes_to(const ibv_gid &to) const {
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.dgid = to;
    attributes.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
    return attributes;
}

ibv_ah *DatagramEnd::handle_to(const ibv_gid &to) {
    ibv_ah_attr attributes = attributes_to(to);
    ibv_ah *const handle = softrdma_ibv_create_ah(pd, &attributes);
    assert_non_null(handle);
    handles_.push_back(handle);
    return handle;
}

}  // namespace test
