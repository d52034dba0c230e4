// SPDX-License-Identifier: BSD-3-Clause
// soft/api/verbs: softrdma_ibv_X, the C functions of devices. Here failures become errno values.
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/log.hpp"
#include "base/shared_value.hpp"
#include "soft/api/device_memory.hpp"
#include "soft/api/made.hpp"
#include "soft/device/device.hpp"
#include "soft/queues/completion_queue.hpp"
#include "softrdma.h"

namespace {

using soft::Device;
using soft::error_of;
using soft::made;

// Queue pairs of each type do this with such memory, and those of RC do more.
constexpr std::uint32_t on_demand =
    IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SRQ_RECV;

const Device &device_of(const ibv_context &context) {
    return *static_cast<const Device *>(context.device);
}

std::vector<ibv_gid_entry> gid_table(const ibv_context &context) {
    std::vector<ibv_gid_entry> table;
    for (const soft::GidRow &row : soft::gids_of(device_of(context))) {
        table.push_back({.gid = row.gid,
                         .gid_index = static_cast<std::uint32_t>(table.size()),
                         .port_num = 1,
                         .gid_type = static_cast<std::uint32_t>(row.type),
                         .ndev_ifindex = if_nametoindex(device_of(context).interface.c_str())});
    }
    return table;
}

constexpr __be16 default_partition = 0xffff;  // the same in either byte order

}  // namespace

// ---- devices ----

ibv_device **softrdma_ibv_get_device_list(int *num_devices) {
    return made([&] {
        const auto all = soft::devices();
        auto **const list = new ibv_device *[all.size() + 1] {};
        std::ranges::copy(all, list);
        if (num_devices != nullptr) {
            *num_devices = static_cast<int>(all.size());
        }
        return list;
    });
}

void softrdma_ibv_free_device_list(ibv_device **list) {
    delete[] list;
}

const char *softrdma_ibv_get_device_name(ibv_device *device) {
    return device->name;
}

__be64 softrdma_ibv_get_device_guid(ibv_device *device) {
    return soft::guid_of(*static_cast<Device *>(device));
}

ibv_context *softrdma_ibv_open_device(ibv_device *device) {
    return made([&] { return soft::value_of(soft::open_context(*static_cast<Device *>(device))); });
}

int softrdma_ibv_close_device(ibv_context *context) {
    soft::close_context(*context);
    return 0;
}

int softrdma_ibv_query_device(ibv_context *context, ibv_device_attr *attributes) {
    soft::query(device_of(*context), *attributes);
    return 0;
}

int softrdma_ibv_query_device_ex(ibv_context *context, const ibv_query_device_ex_input *,
                                 ibv_device_attr_ex *attributes) {
    *attributes = {};
    soft::query(device_of(*context), attributes->orig_attr);
    attributes->phys_port_cnt_ex = attributes->orig_attr.phys_port_cnt;
    attributes->max_dm_size = soft::max_device_memory_bytes;
    // Time stamps are in nanoseconds.
    attributes->completion_timestamp_mask = UINT64_MAX;
    attributes->hca_core_clock = soft::clock_kilohertz;
    // No memory is pinned, so any region is on demand, also the whole address space (implicit).
    attributes->odp_caps = {
        .general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
        .per_transport_caps = {
            .rc_odp_caps = on_demand | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC,
            .uc_odp_caps = on_demand,
            .ud_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV}};
    attributes->xrc_odp_caps = attributes->odp_caps.per_transport_caps.rc_odp_caps;
    return 0;
}

int softrdma_ibv_query_port(ibv_context *context, uint8_t port_num, ibv_port_attr *port_attr) {
    if (port_num != 1) {
        return EINVAL;
    }
    return error_of([&] {
        soft::query(device_of(*context), *port_attr);
        return 0;
    });
}

int softrdma_ibv_query_gid(ibv_context *context, uint8_t port_num, int index, ibv_gid *gid) {
    ibv_gid_entry entry;
    if (const int error =
            softrdma_ibv_query_gid_ex(context, port_num, static_cast<std::uint32_t>(index), &entry, 0);
        error != 0) {
        errno = error;
        return -1;
    }
    *gid = entry.gid;
    return 0;
}

int softrdma_ibv_query_gid_ex(ibv_context *context, uint32_t port_num, uint32_t gid_index,
                              ibv_gid_entry *entry, uint32_t flags) {
    if (port_num != 1 || flags != 0) {
        return EINVAL;
    }
    return error_of([&] {
        const auto table = gid_table(*context);
        if (gid_index >= table.size()) {
            return EINVAL;
        }
        *entry = table[gid_index];
        return 0;
    });
}

ssize_t softrdma_ibv_query_gid_table(ibv_context *context, ibv_gid_entry *entries, size_t max_entries,
                                     uint32_t flags) {
    std::size_t found = 0;
    const int error = error_of([&] {
        const auto table = gid_table(*context);
        if (flags != 0 || table.size() > max_entries) {
            return EINVAL;
        }
        std::ranges::copy(table, entries);
        found = table.size();
        return 0;
    });
    return error != 0 ? -error : static_cast<ssize_t>(found);
}

int softrdma_ibv_query_pkey(ibv_context *, uint8_t port_num, int index, __be16 *pkey) {
    if (port_num != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = default_partition;
    return 0;
}

int softrdma_ibv_get_pkey_index(ibv_context *, uint8_t port_num, __be16 pkey) {
    if (port_num != 1 || pkey != default_partition) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

// This sets base's log, of which this library has its own copy.
void softrdma_set_log(softrdma_log_function log_function, int threshold) {
    base::set_log_sink(log_function);
    base::set_shared(base::log_threshold, threshold);
}
