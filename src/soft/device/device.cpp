// SPDX-License-Identifier: BSD-3-Clause
#include "soft/device/device.hpp"

#include <endian.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/address.hpp"
#include "base/fork.hpp"
#include "base/multipath.hpp"
#include "base/mutex.hpp"
#include "soft/ground/environment.hpp"
#include "soft/ground/faults.hpp"
#include "soft/ground/interfaces.hpp"
#include "soft/ground/limits.hpp"
#include "soft/tls/tls_certificates.hpp"
#include "soft/tls/tls_keys.hpp"

namespace soft {

namespace {

constexpr char name_prefix[] = "soft_";
constexpr std::uint32_t vendor_id = 0x02736f;  // locally administered: it belongs to no maker

constinit base::LastingMutex registry_lock;

const base::HeldWhileForking<registry_lock> registry_survives_forks{base::ForkLevel::SoftDevice};

std::vector<std::unique_ptr<Device>> &registry() REQUIRES(registry_lock) {
    static auto &all = *new std::vector<std::unique_ptr<Device>>;  // never destroyed: contexts stay valid
                                                                   // while the process ends
    return all;
}

bool is_roce() {
    return roce_of_environment().value_or(false);
}

// Returns a number of this boot of this machine, FNV-1a of the kernel's text; 0 when the kernel has none.
std::uint64_t number_of_boot() {
    std::ifstream file{"/proc/sys/kernel/random/boot_id"};
    std::string text;
    if (!std::getline(file, text)) {
        return 0;
    }
    std::uint64_t number = 0xcbf29ce484222325;
    for (const char character : text) {
        number = (number ^ static_cast<unsigned char>(character)) * 0x100000001b3;
    }
    return number;
}

// All of 127.0.0.0/8 belongs to the loopback interface.
bool is_loopback(const sockaddr &address) {
    return address.sa_family == AF_INET &&
           ntohl(reinterpret_cast<const sockaddr_in &>(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool serves(const LocalAddress &local, const sockaddr &address) {
    return base::same_host(reinterpret_cast<const sockaddr &>(local.address), address) ||
           (is_loopback(address) && local.is_loopback);
}

Device *device_named(const std::string &interface) {
    const base::Lock lock{registry_lock};
    const auto known =
        std::ranges::find_if(registry(), [&](const auto &device) { return device->interface == interface; });
    if (known != registry().end()) {
        return known->get();
    }
    auto device = std::make_unique<Device>();
    device->node_type = is_roce() ? IBV_NODE_CA : IBV_NODE_RNIC;
    device->transport_type = is_roce() ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP;
    const std::string name = name_prefix + interface;
    name.copy(device->name, sizeof(device->name) - 1);
    name.copy(device->dev_name, sizeof(device->dev_name) - 1);
    ("/sys/class/infiniband/" + name).copy(device->ibdev_path, sizeof(device->ibdev_path) - 1);
    device->interface = interface;
    registry().push_back(std::move(device));
    return registry().back().get();
}

// Returns verbs.h's mark of a context that has the extended members (its own macro casts between pointer and
// integer).
void *extended_abi() {
    return reinterpret_cast<void *>(UINTPTR_MAX);  // NOLINT(performance-no-int-to-ptr)
}

// Makes new events for a child process. The old ones are the parent's, and their lock may be held.
base::Result<void> renew_events(Context &context) {
    auto readable = base::Readable::create();
    if (!readable) {
        return std::unexpected{readable.error()};
    }
    context.of_parents.push_back(
        std::exchange(context.async_events, std::make_unique<AsyncEvents>(std::move(*readable))));
    context.context.async_fd = context.async_events->fd();
    return {};
}

}  // namespace

Context &Context::of(const ibv_context &context) {
    auto *const bytes = reinterpret_cast<std::byte *>(const_cast<ibv_context *>(&context));
    return *static_cast<Context *>(
        reinterpret_cast<verbs_context *>(bytes - offsetof(verbs_context, context)));
}

Context::~Context() {
    pthread_mutex_destroy(&context.mutex);
}

AsyncEvents &async_events_of(const ibv_context &context) {
    return *Context::of(context).async_events;
}

ibv_pd &default_domain_of(const ibv_context &context) {
    return Context::of(context).domain;
}

ibv_gid gid_of(const sockaddr &address) {
    ibv_gid gid{};
    if (address.sa_family == AF_INET6) {
        std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6 &>(address).sin6_addr, sizeof(gid.raw));
    } else {
        gid.raw[10] = gid.raw[11] = 0xff;
        std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in &>(address).sin_addr, sizeof(in_addr));
    }
    return gid;
}

std::vector<GidRow> gids_of(const Device &device) {
    std::vector<GidRow> rows;
    for (const tcp::Address &address : addresses_of(device)) {
        const ibv_gid gid = gid_of(reinterpret_cast<const sockaddr &>(address));
        if (is_roce()) {
            rows.push_back({.gid = gid, .type = IBV_GID_TYPE_ROCE_V1});
            rows.push_back({.gid = gid, .type = IBV_GID_TYPE_ROCE_V2});
        } else {
            rows.push_back({.gid = gid, .type = IBV_GID_TYPE_IB});
        }
    }
    return rows;
}

namespace {

// Returns the addresses as far as the kernel tells them.
std::shared_ptr<const LocalAddresses> known_addresses() {
    auto all = local_addresses();
    return all ? *std::move(all) : std::make_shared<const LocalAddresses>();
}

}  // namespace

std::vector<Device *> devices() {
    std::vector<Device *> all;
    const auto known = known_addresses();
    for (const LocalAddress &local : *known) {
        Device *const device = device_named(local.interface);
        if (std::ranges::find(all, device) == all.end()) {
            all.push_back(device);
        }
    }
    return all;
}

base::Result<Device *> device_of(const sockaddr &address) {
    const auto all = local_addresses();
    if (!all) {
        return std::unexpected{all.error()};
    }
    const auto local =
        std::ranges::find_if(**all, [&](const LocalAddress &one) { return serves(one, address); });
    return local != (*all)->end() ? device_named(local->interface) : nullptr;
}

bool has_address(const Device &device, const sockaddr &address) {
    const auto all = known_addresses();
    return std::ranges::any_of(*all, [&](const LocalAddress &one) {
        return one.interface == device.interface && serves(one, address);
    });
}

std::vector<tcp::Address> addresses_of(const Device &device) {
    std::vector<tcp::Address> all;
    const auto known = known_addresses();
    for (const LocalAddress &local : *known) {
        if (local.interface == device.interface) {
            all.push_back(local.address);
        }
    }
    return all;
}

namespace {

// Checks the files that RPMA_TLS names, so that a program learns at its beginning that no connection would be
// made. Connections read them again.
base::Result<void> check_tls_files() {
    const base::TlsAsked &asked = *tls_of_environment();
    if (asked.how == base::TlsAsked::How::Keys) {
        if (const auto keys = TlsKeys::read(asked.file.c_str()); !keys) {
            return std::unexpected{keys.error()};
        }
    } else if (asked.how == base::TlsAsked::How::Certificates) {
        const auto certificates = TlsCertificates::read(asked.file.c_str());
        return certificates ? certificates->check_files() : std::unexpected{certificates.error()};
    }
    return {};
}

}  // namespace

base::Result<void> check_variables() {
    const bool valid = Faults::understood() && crc_of_environment() && engines_of_environment() &&
                       within_host_of_environment() && roce_of_environment() && tls_of_environment() &&
                       base::multipath_of_environment();
    return valid ? base::Result<void>{} : base::failure(EINVAL);
}

namespace {

base::Result<std::unique_ptr<Context>> new_context(Device &device) {
    if (const auto valid = check_variables(); !valid) {
        return std::unexpected{valid.error()};
    }
    if (const auto checked = check_tls_files(); !checked) {
        return std::unexpected{checked.error()};
    }
    auto made = std::make_unique<Context>();
    ibv_context &context = made->context;
    pthread_mutex_init(&context.mutex, nullptr);
    if (auto renewed = renew_events(*made); !renewed) {
        return std::unexpected{renewed.error()};
    }
    made->sz = sizeof(verbs_context);
    made->device = &device;
    context.device = &device;
    context.abi_compat = extended_abi();
    context.cmd_fd = -1;
    context.num_comp_vectors = 1;
    add_calls(*made);
    made->domain.context = &context;
    made->domain.users = 1;  // the device itself: no caller deallocates it
    return made;
}

}  // namespace

base::Result<ibv_context *> context_of(Device &device) {
    const base::Lock lock{registry_lock};
    if (!device.context) {
        auto made = new_context(device);
        if (!made) {
            return std::unexpected{made.error()};
        }
        device.context = *std::move(made);
    } else if (device.context->async_events->inherited()) {
        if (auto renewed = renew_events(*device.context); !renewed) {
            return std::unexpected{renewed.error()};
        }
    }
    return &device.context->context;
}

base::Result<ibv_context *> open_context(Device &device) {
    auto made = new_context(device);
    if (!made) {
        return std::unexpected{made.error()};
    }
    const base::Lock lock{registry_lock};
    device.opened.push_back(*std::move(made));
    return &device.opened.back()->context;
}

void close_context(ibv_context &context) {
    const Context &whole = Context::of(context);
    const base::Lock lock{registry_lock};
    if (whole.uses.load(std::memory_order_acquire) == 0 && !whole.async_events->inherited()) {
        std::erase_if(whole.device->opened, [&](const auto &one) { return one.get() == &whole; });
    }
}

__be64 guid_of(const Device &device) {
    const std::uint64_t index = if_nametoindex(device.interface.c_str());
    static const std::uint64_t boot = is_roce() ? number_of_boot() : 0;
    return htobe64(boot ^ index);
}

void query(const Device &device, ibv_device_attr &attributes) {
    attributes = {};
    attributes.node_guid = attributes.sys_image_guid = guid_of(device);
    std::strncpy(attributes.fw_ver, "softrdma 1", sizeof(attributes.fw_ver) - 1);
    attributes.max_mr_size = UINT64_MAX;
    attributes.page_size_cap = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    attributes.vendor_id = vendor_id;
    attributes.vendor_part_id = 1;
    attributes.max_qp = limits::max_qp;
    attributes.max_qp_wr = limits::max_qp_wr;
    attributes.max_sge = limits::max_sge;
    attributes.max_sge_rd = limits::max_sge_rd;
    attributes.max_cq = limits::max_cq;
    attributes.max_cqe = limits::max_cqe;
    attributes.max_srq = limits::max_srq;
    attributes.max_srq_wr = limits::max_srq_wr;
    attributes.max_srq_sge = limits::max_sge;
    attributes.max_mr = limits::max_mr;
    attributes.max_mw = limits::max_mr;  // regions and windows together
    attributes.device_cap_flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC;
    attributes.max_pd = limits::max_pd;
    attributes.max_ah = limits::max_ah;
    attributes.max_mcast_grp = limits::max_groups;
    attributes.max_mcast_qp_attach = limits::max_qp;
    attributes.max_total_mcast_qp_attach = limits::max_groups * static_cast<int>(limits::max_groups_of_qp);
    attributes.max_qp_rd_atom = limits::max_rd_atomic;
    attributes.max_qp_init_rd_atom = limits::max_rd_atomic;
    attributes.max_res_rd_atom = limits::max_rd_atomic * limits::max_qp;
    attributes.atomic_cap = IBV_ATOMIC_GLOB;  // the processor executes them
    attributes.phys_port_cnt = 1;
    attributes.max_pkeys = 1;
}

void query(const Device &device, ibv_port_attr &attributes) {
    attributes = {};
    attributes.state = IBV_PORT_ACTIVE;
    attributes.max_mtu = IBV_MTU_4096;
    attributes.active_mtu = IBV_MTU_4096;
    attributes.gid_tbl_len = static_cast<int>(gids_of(device).size());
    attributes.max_msg_sz = limits::max_message_bytes;
    attributes.pkey_tbl_len = 1;
    attributes.active_width = 2;  // 4X
    attributes.active_speed = 4;  // 10 Gb/s: a number for tools, not a measurement
    attributes.phys_state = 5;    // link up
    attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
    attributes.flags = is_roce() ? std::uint8_t{IBV_QPF_GRH_REQUIRED} : std::uint8_t{0};
}

}  // namespace soft
