// SPDX-License-Identifier: BSD-3-Clause
// verbs_preload/newer: the functions that libibverbs and librdmacm got after version 44, with whose headers
// this builds. The device has none of them. A call with an object of ours is refused, and a call with an
// object of the real library's goes on to that. Newer headers may declare them with types of their own, so
// the declarations here are in a namespace, and asm names the symbol.
#include <dlfcn.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <type_traits>

#include "softrdma.h"
#include "verbs_preload/forward.hpp"

namespace verbs_preload::newer {

// The beginning of an ibv_dmah, an ibv_dm and an ibv_comp_cntr.
struct OfContext {
    ibv_context *context;
};

}  // namespace verbs_preload::newer

namespace {

bool is_ours(const ibv_context *context) {
    return softrdma_owns(context);
}

bool is_ours(const rdma_cm_id *) {
    return true;  // the preload has all functions that make one
}

template <typename Object>
bool is_ours(const Object *object) {
    return softrdma_owns(object->context);
}

}  // namespace

// NOLINTBEGIN(cppcoreguidelines-macro-usage): only the preprocessor makes a name of a name
#define DECLARE(result, name, ...) [[gnu::visibility("default")]] result name(__VA_ARGS__) asm(#name)
// Defines a function whose first parameter is the object.
#define REFUSE_OURS(count, name, failure)                                                           \
    SIGNATURE(name)::Result name(PARAMETERS_##count(name)) {                                        \
        void *const theirs = is_ours(p0) ? nullptr : dlsym(RTLD_NEXT, #name);                       \
        if (theirs != nullptr) {                                                                    \
            return reinterpret_cast<std::add_pointer_t<decltype(name)>>(theirs)(ARGUMENTS_##count); \
        }                                                                                           \
        verbs_preload::refuse(#name);                                                               \
        return failure;                                                                             \
    }
// NOLINTEND(cppcoreguidelines-macro-usage)

namespace verbs_preload::newer {

// ---- version 59 ----
DECLARE(void *, ibv_alloc_dmah, ibv_context *, void *);
DECLARE(int, ibv_dealloc_dmah, OfContext *);
DECLARE(ibv_mr *, ibv_reg_mr_ex, ibv_pd *, void *);
REFUSE_OURS(2, ibv_alloc_dmah, nullptr)
REFUSE_OURS(1, ibv_dealloc_dmah, EOPNOTSUPP)
REFUSE_OURS(2, ibv_reg_mr_ex, nullptr)

// ---- version 62 ----
DECLARE(int, ibv_dm_export_dmabuf_fd, OfContext *);
DECLARE(int, ibv_query_port_speed, ibv_context *, std::uint32_t, std::uint64_t *);
REFUSE_OURS(1, ibv_dm_export_dmabuf_fd, -1)
REFUSE_OURS(3, ibv_query_port_speed, EOPNOTSUPP)

// ---- version 64 ----
DECLARE(void *, ibv_alloc_buf, ibv_pd *, std::size_t, void **);
DECLARE(ibv_mr *, ibv_reg_buf_mr, ibv_pd *, void *, void *, std::size_t, int);
REFUSE_OURS(3, ibv_alloc_buf, nullptr)
REFUSE_OURS(5, ibv_reg_buf_mr, nullptr)

// ---- version 65 ----
// NOLINTNEXTLINE(readability-identifier-naming)
DECLARE(int, _ibv_query_comp_cntr_caps, ibv_context *, void *, std::size_t);
DECLARE(void *, ibv_create_comp_cntr, ibv_context *, void *);
DECLARE(int, ibv_destroy_comp_cntr, OfContext *);
DECLARE(int, ibv_inc_comp_cntr, OfContext *, std::uint64_t);
DECLARE(int, ibv_inc_err_comp_cntr, OfContext *, std::uint64_t);
DECLARE(int, ibv_qp_attach_comp_cntr, ibv_qp *, OfContext *, void *);
DECLARE(int, ibv_read_comp_cntr, OfContext *, std::uint64_t *);
DECLARE(int, ibv_read_err_comp_cntr, OfContext *, std::uint64_t *);
DECLARE(int, ibv_set_comp_cntr, OfContext *, std::uint64_t);
DECLARE(int, ibv_set_err_comp_cntr, OfContext *, std::uint64_t);
// NOLINTNEXTLINE(readability-identifier-naming)
REFUSE_OURS(3, _ibv_query_comp_cntr_caps, EOPNOTSUPP)
REFUSE_OURS(2, ibv_create_comp_cntr, nullptr)
REFUSE_OURS(1, ibv_destroy_comp_cntr, EOPNOTSUPP)
REFUSE_OURS(2, ibv_inc_comp_cntr, EOPNOTSUPP)
REFUSE_OURS(2, ibv_inc_err_comp_cntr, EOPNOTSUPP)
REFUSE_OURS(3, ibv_qp_attach_comp_cntr, EOPNOTSUPP)
REFUSE_OURS(2, ibv_read_comp_cntr, EOPNOTSUPP)
REFUSE_OURS(2, ibv_read_err_comp_cntr, EOPNOTSUPP)
REFUSE_OURS(2, ibv_set_comp_cntr, EOPNOTSUPP)
REFUSE_OURS(2, ibv_set_err_comp_cntr, EOPNOTSUPP)

// ---- librdmacm, version 57 ----
DECLARE(int, rdma_query_addrinfo, rdma_cm_id *, rdma_addrinfo **);
DECLARE(int, rdma_resolve_addrinfo, rdma_cm_id *, const char *, const char *, const rdma_addrinfo *);
DECLARE(int, rdma_write_cm_event, rdma_cm_id *, int, int, std::uint64_t);
REFUSE_OURS(2, rdma_query_addrinfo, -1)
REFUSE_OURS(4, rdma_resolve_addrinfo, -1)
REFUSE_OURS(4, rdma_write_cm_event, -1)

}  // namespace verbs_preload::newer
