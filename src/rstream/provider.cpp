// SPDX-License-Identifier: BSD-3-Clause
// rstream/provider: the function that libfabric calls when it has loaded the library.
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "base/at_exit.hpp"
#include "rstream/fabric.hpp"
#include "rstream/info.hpp"
#include "stream/leaving.hpp"

namespace rstream {

namespace {

// The bytes of endpoints that are closed leave before the process ends.
const base::AtExit<[] { stream::Leaving::wait_at_exit([] { return !stream::Leaving::instance().sweep(); }); }>
    at_exit;

fi_provider provider{
    .version = FI_VERSION(1, 0),
    .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
    .context = {},
    .name = provider_name,
    .getinfo = get_info,
    .fabric = Fabric::open,
    .cleanup = [] {},
};

}  // namespace

}  // namespace rstream

// A later libfabric has no endpoints of this type, and its structures may be others.
extern "C" [[gnu::visibility("default")]] fi_provider *fi_prov_ini() {
    const std::uint32_t version = fi_version();
    if (FI_MAJOR(version) != FI_MAJOR_VERSION) {
        FI_WARN(&rstream::provider, FI_LOG_CORE,
                "rstream is not loaded: it is made for libfabric %d.x with FI_EP_SOCK_STREAM, and this is "
                "%d.%d\n",
                FI_MAJOR_VERSION, FI_MAJOR(version), FI_MINOR(version));
        return nullptr;
    }
    return &rstream::provider;
}
