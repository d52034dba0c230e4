// SPDX-License-Identifier: BSD-3-Clause
/*
 * rpma.hpp -- librpma from C++23: owners, spans and std::expected over librpma.h. It has no logic of its own:
 * a function here is the C function of its name, whose comment (or man page) tells what it does, its errors,
 * whether it blocks, and which threads may call it. Nothing throws.
 *
 * A program moves owners and does not copy them. An owner's destructor ends what it owns. A peer outlives
 * everything that was made from it; a shared receive queue, completion queue or event queue outlives the
 * connections that use it.
 *
 * A part of a region (local_part, remote_part) stands for a region, an offset and a length:
 *
 *     const auto region = peer.reg(std::as_writable_bytes(std::span{numbers}), RPMA_MR_USAGE_WRITE_SRC);
 *     connection.write(remote.part(0, 64), region->part(0, 64));
 */
#ifndef RPMA_HPP
#define RPMA_HPP 1

#if __cplusplus <= 202002L
#error "rpma.hpp needs C++23 (-std=c++23); librpma.h does not"
#else

#include <librpma.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rpma {

// Holds one of librpma's RPMA_E_ codes. The log tells what it was about.
class error {
public:
    constexpr explicit error(int code) : code_{code} {}
    [[nodiscard]] constexpr int code() const { return code_; }
    // Returns a static string.
    [[nodiscard]] const char *text() const { return rpma_err_2str(code_); }
    friend constexpr bool operator==(error, error) = default;
    // Compares with RPMA_E_ codes.
    friend constexpr bool operator==(error left, int code) { return left.code_ == code; }

private:
    int code_;
};

template <typename T>
using expected = std::expected<T, error>;

// ---------------------------------------------------------------- owners and results ----

namespace detail {

inline expected<void> result_of(int code) {
    if (code != 0) {
        return std::unexpected{error{code}};
    }
    return {};
}

// Calls a "new" or "get" function, which writes its value to its last argument.
template <typename T, typename Function, typename... Arguments>
expected<T> value_of(Function function, Arguments... arguments) {
    T value{};
    if (const int code = function(arguments..., &value); code != 0) {
        return std::unexpected{error{code}};
    }
    return value;
}

// Owns what a "new" function made; Delete is its "delete" function.
template <typename T, auto Delete>
class owner {
public:
    owner() = default;
    // Takes over what a C function made.
    explicit owner(T *object) : object_{object} {}
    owner(owner &&other) noexcept : object_{std::exchange(other.object_, nullptr)} {}
    owner &operator=(owner &&other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    ~owner() { (void)Delete(&object_); }

    // Returns the object for a C function; it stays the owner's.
    [[nodiscard]] T *get() const { return object_; }
    [[nodiscard]] T *release() { return std::exchange(object_, nullptr); }
    explicit operator bool() const { return object_ != nullptr; }
    // Ends the object now, and says how that went.
    expected<void> reset() { return result_of(Delete(&object_)); }

protected:
    T *object_ = nullptr;
};

// Makes an owner with a "new" function.
template <typename Owner, typename T, typename Function, typename... Arguments>
expected<Owner> made(Function function, Arguments... arguments) {
    T *object = nullptr;
    if (const int code = function(arguments..., &object); code != 0) {
        return std::unexpected{error{code}};
    }
    return Owner{object};
}

}  // namespace detail

// ---------------------------------------------------------------- memory ----

// A part of a region of this process, in bytes. It does not own the region.
struct local_part {
    rpma_mr_local *region = nullptr;
    std::size_t offset = 0;
    std::size_t length = 0;
};

// A part of a peer's region, in bytes. It does not own the region.
struct remote_part {
    rpma_mr_remote *region = nullptr;
    std::size_t offset = 0;
    std::size_t length = 0;
};

// rpma_mr_dereg fails while a peer on this host, which was stopped in an access, may still store into the
// memory. reset() tells that, and may be called again. The destructor cannot tell it: the region then stays,
// with its memory if it is the region's own (peer::alloc). So a program that reuses memory of its own calls
// reset() first.
class local_region : public detail::owner<rpma_mr_local, rpma_mr_dereg> {
public:
    using owner::owner;

    [[nodiscard]] local_part part(std::size_t offset, std::size_t length) const {
        return {object_, offset, length};
    }
    [[nodiscard]] local_part all() const { return {object_, 0, bytes().size()}; }
    // The registered memory: the caller's, or the region's own (peer::alloc).
    [[nodiscard]] std::span<std::byte> bytes() const {
        void *start = nullptr;
        std::size_t size = 0;
        (void)rpma_mr_get_ptr(object_, &start);
        (void)rpma_mr_get_size(object_, &size);
        return {static_cast<std::byte *>(start), size};
    }
    // A peer names the region by this key, together with an address.
    [[nodiscard]] std::uint32_t key() const {
        std::uint32_t key = 0;
        (void)rpma_mr_get_key(object_, &key);
        return key;
    }
    // The peer makes a remote_region of these bytes.
    [[nodiscard]] std::array<std::byte, 21> descriptor() const {
        std::array<std::byte, 21> bytes{};
        (void)rpma_mr_get_descriptor(object_, bytes.data());
        return bytes;
    }
};

class remote_region : public detail::owner<rpma_mr_remote, rpma_mr_remote_delete> {
public:
    using owner::owner;

    [[nodiscard]] static expected<remote_region> from(std::span<const std::byte> descriptor) {
        return detail::made<remote_region, rpma_mr_remote>(rpma_mr_remote_from_descriptor, descriptor.data(),
                                                           descriptor.size());
    }
    [[nodiscard]] std::size_t size() const {
        std::size_t bytes = 0;
        (void)rpma_mr_remote_get_size(object_, &bytes);
        return bytes;
    }
    // Returns a set of RPMA_MR_USAGE_FLUSH_TYPE_ bits.
    [[nodiscard]] int flush_types() const {
        int types = 0;
        (void)rpma_mr_remote_get_flush_type(object_, &types);
        return types;
    }
    [[nodiscard]] remote_part part(std::size_t offset, std::size_t length) const {
        return {object_, offset, length};
    }
    [[nodiscard]] remote_part all() const { return {object_, 0, size()}; }
};

// ---------------------------------------------------------------- configurations ----

class peer_configuration : public detail::owner<rpma_peer_cfg, rpma_peer_cfg_delete> {
public:
    using owner::owner;

    [[nodiscard]] static expected<peer_configuration> make() {
        return detail::made<peer_configuration, rpma_peer_cfg>(rpma_peer_cfg_new);
    }
    [[nodiscard]] static expected<peer_configuration> from(std::span<const std::byte> descriptor) {
        return detail::made<peer_configuration, rpma_peer_cfg>(rpma_peer_cfg_from_descriptor,
                                                               descriptor.data(), descriptor.size());
    }
    expected<void> set_direct_write_to_pmem(bool supported) {
        return detail::result_of(rpma_peer_cfg_set_direct_write_to_pmem(object_, supported));
    }
    [[nodiscard]] std::array<std::byte, 1> descriptor() const {
        std::array<std::byte, 1> bytes{};
        (void)rpma_peer_cfg_get_descriptor(object_, bytes.data());
        return bytes;
    }
};

// Setters return the configuration, so that a program can chain them. After a value that was not valid, each
// use of the configuration fails as the setter did.
class connection_configuration : public detail::owner<rpma_conn_cfg, rpma_conn_cfg_delete> {
public:
    using owner::owner;

    [[nodiscard]] static expected<connection_configuration> make() {
        return detail::made<connection_configuration, rpma_conn_cfg>(rpma_conn_cfg_new);
    }
    connection_configuration &timeout(std::chrono::milliseconds timeout) {
        // A timeout that does not fit into C's int is not valid.
        const bool fits = std::in_range<int>(timeout.count());
        return note(rpma_conn_cfg_set_timeout(object_, fits ? static_cast<int>(timeout.count()) : -1));
    }
    connection_configuration &cq_size(std::uint32_t completions) {
        return note(rpma_conn_cfg_set_cq_size(object_, completions));
    }
    connection_configuration &rcq_size(std::uint32_t completions) {
        return note(rpma_conn_cfg_set_rcq_size(object_, completions));
    }
    connection_configuration &sq_size(std::uint32_t requests) {
        return note(rpma_conn_cfg_set_sq_size(object_, requests));
    }
    connection_configuration &rq_size(std::uint32_t requests) {
        return note(rpma_conn_cfg_set_rq_size(object_, requests));
    }
    connection_configuration &inline_size(std::uint32_t bytes) {
        return note(rpma_conn_cfg_set_inline_size(object_, bytes));
    }
    connection_configuration &shared_channel(bool shared) {
        return note(rpma_conn_cfg_set_compl_channel(object_, shared));
    }
    connection_configuration &bounds_check(bool check) {
        return note(rpma_conn_cfg_set_bounds_check(object_, check));
    }
    connection_configuration &shared_receive_queue(rpma_srq *queue) {
        return note(rpma_conn_cfg_set_srq(object_, queue));
    }
    connection_configuration &completions(rpma_cq *queue) {
        return note(rpma_conn_cfg_set_cq(object_, queue));
    }
    connection_configuration &receive_completions(rpma_cq *queue) {
        return note(rpma_conn_cfg_set_rcq(object_, queue));
    }
    connection_configuration &events(rpma_events *events) {
        return note(rpma_conn_cfg_set_events(object_, events));
    }
    // psk:FILE or x509:FILE, with the whole path of FILE.
    connection_configuration &tls(const char *text) { return note(rpma_conn_cfg_set_tls(object_, text)); }
    // Returns the first failure of a setter.
    [[nodiscard]] expected<void> ok() const { return detail::result_of(first_failure_); }

    // In these two functions the configuration may be nullptr.
    [[nodiscard]] static expected<void> check(const connection_configuration *configuration) {
        return configuration != nullptr ? configuration->ok() : expected<void>{};
    }
    [[nodiscard]] static const rpma_conn_cfg *get_of(const connection_configuration *configuration) {
        return configuration != nullptr ? configuration->get() : nullptr;
    }

private:
    connection_configuration &note(int code) {
        first_failure_ = first_failure_ != 0 ? first_failure_ : code;
        return *this;
    }
    int first_failure_ = 0;
};

// ---------------------------------------------------------------- completions ----

// A completion queue that belongs to a connection or shared receive queue.
class completions {
public:
    completions() = default;
    explicit completions(rpma_cq *queue) : queue_{queue} {}

    [[nodiscard]] rpma_cq *get() const { return queue_; }
    [[nodiscard]] expected<int> fd() const { return detail::value_of<int>(rpma_cq_get_fd, queue_); }
    expected<void> wait() { return detail::result_of(rpma_cq_wait(queue_)); }
    expected<void> rearm(bool solicited_only = false) {
        return detail::result_of(rpma_cq_rearm(queue_, solicited_only));
    }
    // Returns the descriptor to sleep on, until wait_end(). Only a queue that was made with RPMA_CQ_UNARMED
    // has one. It stays the queue's.
    expected<int> wait_begin() { return detail::value_of<int>(rpma_cq_wait_begin, queue_); }
    expected<void> wait_end() { return detail::result_of(rpma_cq_wait_end(queue_)); }
    // Collects the completions that are there, as many as there is room for. Returns the beginning of `room`,
    // which is empty when there is none.
    expected<std::span<ibv_wc>> poll(std::span<ibv_wc> room) {
        int count = 0;
        const int code = rpma_cq_get_wc(queue_, static_cast<int>(room.size()), room.data(), &count);
        if (code != 0 && code != RPMA_E_NO_COMPLETION) {
            return std::unexpected{error{code}};
        }
        return room.first(static_cast<std::size_t>(count));
    }
    // Returns the next completion; blocks until there is one. One thread at a time calls it.
    expected<ibv_wc> next() {
        ibv_wc completion;
        while (true) {
            const int code = rpma_cq_get_wc(queue_, 1, &completion, nullptr);
            if (code == 0) {
                return completion;
            }
            if (code != RPMA_E_NO_COMPLETION) {
                return std::unexpected{error{code}};
            }
            if (const int waited = rpma_cq_wait(queue_); waited != 0 && waited != RPMA_E_NO_COMPLETION) {
                return std::unexpected{error{waited}};
            }
        }
    }

private:
    rpma_cq *queue_ = nullptr;
};

// A completion queue that many connections use.
class completion_queue : public detail::owner<rpma_cq, rpma_cq_delete> {
public:
    using owner::owner;
    [[nodiscard]] completions view() const { return completions{object_}; }
    // Makes room for so many completions.
    expected<void> resize(std::uint32_t size) { return detail::result_of(rpma_cq_resize(object_, size)); }
};

class shared_receive_queue : public detail::owner<rpma_srq, rpma_srq_delete> {
public:
    using owner::owner;

    expected<void> receive(local_part into, const void *context) {
        return detail::result_of(rpma_srq_recv(object_, into.region, into.offset, into.length, context));
    }
    // The result has no queue when the size of that was 0.
    [[nodiscard]] expected<completions> receive_completions() const {
        const auto queue = detail::value_of<rpma_cq *>(rpma_srq_get_rcq, object_);
        if (!queue) {
            return std::unexpected{queue.error()};
        }
        return completions{*queue};
    }
};

// ---------------------------------------------------------------- connections ----

class connection : public detail::owner<rpma_conn, rpma_conn_delete> {
public:
    using owner::owner;

    // Operations: flags are RPMA_F_COMPLETION_ALWAYS or _ON_ERROR; context comes back in ibv_wc.wr_id.
    expected<void> read(local_part to, remote_part from, const void *context = nullptr,
                        int flags = RPMA_F_COMPLETION_ALWAYS) {
        return detail::result_of(
            rpma_read(object_, to.region, to.offset, from.region, from.offset, to.length, flags, context));
    }
    expected<void> write(remote_part to, local_part from, const void *context = nullptr,
                         int flags = RPMA_F_COMPLETION_ALWAYS) {
        return detail::result_of(
            rpma_write(object_, to.region, to.offset, from.region, from.offset, from.length, flags, context));
    }
    expected<void> write_with_imm(remote_part to, local_part from, std::uint32_t imm,
                                  const void *context = nullptr, int flags = RPMA_F_COMPLETION_ALWAYS) {
        return detail::result_of(rpma_write_with_imm(object_, to.region, to.offset, from.region, from.offset,
                                                     from.length, flags, imm, context));
    }
    expected<void> atomic_write(remote_part to, std::span<const std::byte, 8> word,
                                const void *context = nullptr, int flags = RPMA_F_COMPLETION_ALWAYS) {
        return detail::result_of(rpma_atomic_write(
            object_, to.region, to.offset, reinterpret_cast<const char *>(word.data()), flags, context));
    }
    expected<void> flush(remote_part range, rpma_flush_type type, const void *context = nullptr,
                         int flags = RPMA_F_COMPLETION_ALWAYS) {
        return detail::result_of(
            rpma_flush(object_, range.region, range.offset, range.length, type, flags, context));
    }
    expected<void> send(local_part from, const void *context = nullptr,
                        int flags = RPMA_F_COMPLETION_ALWAYS) {
        return detail::result_of(rpma_send(object_, from.region, from.offset, from.length, flags, context));
    }
    expected<void> send_with_imm(local_part from, std::uint32_t imm, const void *context = nullptr,
                                 int flags = RPMA_F_COMPLETION_ALWAYS) {
        return detail::result_of(
            rpma_send_with_imm(object_, from.region, from.offset, from.length, flags, imm, context));
    }
    expected<void> receive(local_part into, const void *context = nullptr) {
        return detail::result_of(rpma_recv(object_, into.region, into.offset, into.length, context));
    }
    // These two post all or, on failure, those before the one that was refused; *posted becomes how many.
    expected<void> receive_many(std::span<const rpma_recv_op> receives, std::size_t *posted = nullptr) {
        return detail::result_of(rpma_recv_many(object_, receives.data(), receives.size(), posted));
    }
    expected<void> post(std::span<const rpma_op> operations, std::size_t *posted = nullptr) {
        return detail::result_of(rpma_post(object_, operations.data(), operations.size(), posted));
    }

    [[nodiscard]] completions queue() const {
        rpma_cq *queue = nullptr;
        (void)rpma_conn_get_cq(object_, &queue);
        return completions{queue};
    }
    // The queue of receives; the result has no queue when they complete in queue().
    [[nodiscard]] completions receive_queue() const {
        rpma_cq *queue = nullptr;
        (void)rpma_conn_get_rcq(object_, &queue);
        return completions{queue};
    }

    [[nodiscard]] expected<int> event_fd() const {
        return detail::value_of<int>(rpma_conn_get_event_fd, object_);
    }
    expected<rpma_conn_event> next_event() {
        return detail::value_of<rpma_conn_event>(rpma_conn_next_event, object_);
    }
    // Returns the bytes that came with the peer's request, or with its answer. They are valid as long as the
    // connection.
    [[nodiscard]] std::span<const std::byte> private_data() const {
        rpma_conn_private_data data{};
        (void)rpma_conn_get_private_data(object_, &data);
        return {static_cast<const std::byte *>(data.ptr), data.len};
    }
    expected<void> apply(const peer_configuration &of_the_peer) {
        return detail::result_of(rpma_conn_apply_remote_peer_cfg(object_, of_the_peer.get()));
    }
    [[nodiscard]] std::uint32_t qp_num() const {
        std::uint32_t number = 0;
        (void)rpma_conn_get_qp_num(object_, &number);
        return number;
    }
    // Returns the way that the bytes take: device, tcp, memory or tls.
    [[nodiscard]] expected<std::string_view> link() const {
        const char *name = "";
        if (const int code = rpma_conn_get_link(object_, &name); code != 0) {
            return std::unexpected{error{code}};
        }
        return std::string_view{name};
    }
    // Returns how many paths the connection has; none when it is not one of MPTCP.
    [[nodiscard]] expected<std::optional<unsigned>> paths() const {
        int count = -1;
        if (const int code = rpma_conn_get_paths(object_, &count); code != 0) {
            return std::unexpected{error{code}};
        }
        return count >= 0 ? std::optional{static_cast<unsigned>(count)} : std::nullopt;
    }
    // Returns the identity with which both ends have authenticated each other; none without TLS.
    // The text is valid as long as the connection.
    [[nodiscard]] expected<std::optional<std::string_view>> identity() const {
        const char *text = nullptr;
        if (const int code = rpma_conn_get_identity(object_, &text); code != 0) {
            return std::unexpected{error{code}};
        }
        return text != nullptr ? std::optional<std::string_view>{text} : std::nullopt;
    }
    expected<void> disconnect() { return detail::result_of(rpma_conn_disconnect(object_)); }
};

class connection_request : public detail::owner<rpma_conn_req, rpma_conn_req_delete> {
public:
    using owner::owner;

    [[nodiscard]] std::span<const std::byte> private_data() const {
        rpma_conn_private_data data{};
        (void)rpma_conn_req_get_private_data(object_, &data);
        return {static_cast<const std::byte *>(data.ptr), data.len};
    }
    // Returns the identity of the key with which the peer has authenticated itself; none when it has not. The
    // text is valid as long as the request and the connection that it becomes.
    [[nodiscard]] std::optional<std::string_view> identity() const {
        const char *text = nullptr;
        (void)rpma_conn_req_get_identity(object_, &text);
        return text != nullptr ? std::optional<std::string_view>{text} : std::nullopt;
    }
    expected<void> receive(local_part into, const void *context = nullptr) {
        return detail::result_of(rpma_conn_req_recv(object_, into.region, into.offset, into.length, context));
    }
    // Sends the request, or accepts it, with at most 255 bytes. It uses the request up, also when it fails.
    expected<connection> connect(std::span<const std::byte> private_data = {}) && {
        if (private_data.size() > UINT8_MAX) {
            return std::unexpected{error{RPMA_E_INVAL}};
        }
        const rpma_conn_private_data data{const_cast<std::byte *>(private_data.data()),
                                          static_cast<std::uint8_t>(private_data.size())};
        return detail::made<connection, rpma_conn>(rpma_conn_req_connect, &object_,
                                                   private_data.empty() ? nullptr : &data);
    }
};

// ---------------------------------------------------------------- peers and endpoints ----

class endpoint : public detail::owner<rpma_ep, rpma_ep_shutdown> {
public:
    using owner::owner;

    [[nodiscard]] expected<int> fd() const { return detail::value_of<int>(rpma_ep_get_fd, object_); }
    // Blocks until there is a request, unless fd() is non-blocking. nullptr as configuration stands for the
    // defaults.
    expected<connection_request> next(const connection_configuration *configuration = nullptr) {
        if (const auto ok = connection_configuration::check(configuration); !ok) {
            return std::unexpected{ok.error()};
        }
        return detail::made<connection_request, rpma_conn_req>(
            rpma_ep_next_conn_req, object_, connection_configuration::get_of(configuration));
    }
};

class peer : public detail::owner<rpma_peer, rpma_peer_delete> {
public:
    using owner::owner;

    // Make a peer on the device that serves an address of this machine, or that leads to one of another. Both
    // block for the name look-up.
    [[nodiscard]] static expected<peer> at(const std::string &local_address) {
        return on(local_address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
    }
    [[nodiscard]] static expected<peer> towards(const std::string &remote_address) {
        return on(remote_address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
    }

    // usage is a set of RPMA_MR_USAGE_ bits. The memory stays the caller's, and outlives the region.
    [[nodiscard]] expected<local_region> reg(std::span<std::byte> memory, int usage) const {
        return detail::made<local_region, rpma_mr_local>(
            rpma_mr_reg, object_, static_cast<void *>(memory.data()), memory.size(), usage);
    }
    // Allocates memory, in bytes, that goes with the region.
    [[nodiscard]] expected<local_region> alloc(std::size_t size, int usage) const {
        return detail::made<local_region, rpma_mr_local>(rpma_mr_alloc, object_, size, usage);
    }
    [[nodiscard]] expected<endpoint> listen(const std::string &address, const std::string &port) const {
        return detail::made<endpoint, rpma_ep>(rpma_ep_listen, object_, address.c_str(), port.c_str());
    }
    // nullptr as configuration stands for the defaults. Blocks as rpma_conn_req_new does.
    [[nodiscard]] expected<connection_request> request(
        const std::string &address, const std::string &port,
        const connection_configuration *configuration = nullptr) const {
        if (const auto ok = connection_configuration::check(configuration); !ok) {
            return std::unexpected{ok.error()};
        }
        return detail::made<connection_request, rpma_conn_req>(
            rpma_conn_req_new, object_, address.c_str(), port.c_str(),
            connection_configuration::get_of(configuration));
    }
    // flags is 0, RPMA_CQ_POLLED or RPMA_CQ_UNARMED.
    [[nodiscard]] expected<completion_queue> make_completion_queue(std::uint32_t size, int flags = 0) const {
        return detail::made<completion_queue, rpma_cq>(rpma_cq_new, object_, size, flags);
    }
    [[nodiscard]] expected<shared_receive_queue> make_shared_receive_queue(
        std::uint32_t receives, std::uint32_t completions = 0) const {
        rpma_srq_cfg *configuration = nullptr;
        if (const int code = rpma_srq_cfg_new(&configuration); code != 0) {
            return std::unexpected{error{code}};
        }
        (void)rpma_srq_cfg_set_rq_size(configuration, receives);
        (void)rpma_srq_cfg_set_rcq_size(configuration, completions);
        auto queue = detail::made<shared_receive_queue, rpma_srq>(rpma_srq_new, object_, configuration);
        (void)rpma_srq_cfg_delete(&configuration);
        return queue;
    }

private:
    static expected<peer> on(const std::string &address, rpma_util_ibv_context_type type) {
        const auto context =
            detail::value_of<ibv_context *>(rpma_utils_get_ibv_context, address.c_str(), type);
        if (!context) {
            return std::unexpected{context.error()};
        }
        return detail::made<peer, rpma_peer>(rpma_peer_new, *context);
    }
};

}  // namespace rpma

#endif  // C++23
#endif
