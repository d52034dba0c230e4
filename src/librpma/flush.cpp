// SPDX-License-Identifier: BSD-3-Clause
// librpma/flush: makes earlier writes durable or visible, natively if both ends support that, otherwise by a
// read after write. On one connection a read is not answered before the earlier writes are placed (RFC 5040,
// 5.5).
#include "librpma/flush_buffer.hpp"

#include <bit>
#include <limits>

#include "librpma/request.hpp"

namespace librpma {

int FlushBuffer::make() {
    const base::Lock lock{mutex_};
    if (made_.load(std::memory_order_relaxed)) {
        return 0;
    }
    auto page = Pages::create(flush_read_size);
    if (!page) {
        return page.error();
    }
    auto memory = peer_.register_memory(page->address(), flush_read_size, RPMA_MR_USAGE_READ_DST);
    if (!memory) {
        return memory.error();
    }
    page_ = std::move(*page);
    region_ = std::move(memory->region);
    made_.store(true, std::memory_order_release);
    return 0;
}

Result<ibv_sge> FlushBuffer::part(std::uint32_t length) {
    // Acquire makes the whole buffer visible to a thread that finds it made.
    if (!made_.load(std::memory_order_acquire)) {
        if (const int result = make(); result != 0) {
            return Failure{result};
        }
    }
    return ibv_sge{
        .addr = std::bit_cast<std::uintptr_t>(page_.address()), .length = length, .lkey = region_->lkey};
}

int FlushBuffer::close() {
    FirstError error;
    error.add(region_.reset(), "ibv_dereg_mr");
    error.add_code(page_.close());
    return error.code();
}

namespace {

int check_flush(const rpma_conn &conn, const rpma_mr_remote &dst, bool persistent) {
    if (persistent && !conn.direct_write_to_pmem()) {
        BASE_LOG(Error,
                 "flush to persistence: the peer did not declare direct write to persistent memory "
                 "(rpma_conn_apply_remote_peer_cfg)");
        return RPMA_E_NOSUPP;
    }
    const int needed = persistent ? RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT : RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    if ((dst.usage() & needed) == 0) {
        BASE_LOG(Error, "flush to %s: the remote region was registered without RPMA_MR_USAGE_FLUSH_TYPE_%s%s",
                 persistent ? "persistence" : "visibility", persistent ? "PERSISTENT" : "VISIBILITY",
                 persistent ? ", or its memory cannot be durable (the peer's log says why)" : "");
        return RPMA_E_NOSUPP;
    }
    return 0;
}

// When the read would pass the end of the region, though the range to flush does not, it begins earlier. It
// does not matter which bytes it reads.
int read_after_write(Request &request, const rpma_conn &conn, const rpma_mr_remote &remote,
                     std::size_t offset, std::size_t len, unsigned send_flags, std::uint64_t wr_id) {
    std::uint32_t length = flush_read_size;
    const std::uint64_t size = remote.size();
    if (is_within(offset, len, size) && size - offset < flush_read_size) {
        length = static_cast<std::uint32_t>(std::min<std::uint64_t>(size, flush_read_size));
        offset = size - length;
    }
    const auto part = conn.flush_buffer().part(length);
    if (!part) {
        return part.error();
    }
    request.part = *part;
    request.wr = verbs::request_of(IBV_WR_RDMA_READ, &request.part, remote.at(offset), send_flags, wr_id);
    return 0;
}

}  // namespace

int prepare_flush(Request &request, const rpma_conn *conn, const rpma_mr_remote *remote, std::size_t offset,
                  std::size_t len, int type, int flags, const void *op_context) {
    if (conn == nullptr || remote == nullptr || flags == 0 ||
        (type != RPMA_FLUSH_TYPE_PERSISTENT && type != RPMA_FLUSH_TYPE_VISIBILITY)) {
        return invalid_call("rpma_flush", "conn or dst is NULL, flags is 0, or type is unknown");
    }
    if (conn->checks_bounds() && !is_within(offset, len, remote->size())) {
        return invalid_call("rpma_flush", "%zu bytes from %zu on: the remote region has %zu", len, offset,
                            static_cast<std::size_t>(remote->size()));
    }
    const bool persistent = type == RPMA_FLUSH_TYPE_PERSISTENT;
    if (const int result = check_flush(*conn, *remote, persistent); result != 0) {
        return result;
    }
    // A range that is too long for a native flush is not divided, because a read after write flushes all of
    // it.
    request.is_native =
        conn->has_native(verbs::native_flush, *remote) && len <= std::numeric_limits<std::uint32_t>::max();
    if (!request.is_native) {
        return read_after_write(request, *conn, *remote, offset, len, send_flags(flags), wr_id(op_context));
    }
    const auto flush = persistent ? verbs::Flush::Persistent : verbs::Flush::Visibility;
    request.part = {.addr = 0, .length = static_cast<std::uint32_t>(len), .lkey = 0};
    request.wr =
        verbs::flush_request(&request.part, remote->at(offset), flush, send_flags(flags), wr_id(op_context));
    return 0;
}

}  // namespace librpma
