// SPDX-License-Identifier: BSD-3-Clause
// interop: one end of a connection, over any provider. Nothing here waits for longer than `patience`. A call
// that fails throws Failed, which ends the case.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "verbs/owned.hpp"
#include "verbs/post.hpp"

namespace interop {

inline constexpr std::chrono::seconds patience{60};
inline constexpr std::size_t data_bytes = std::size_t{4} << 20;
inline constexpr std::size_t durable_bytes = std::size_t{1} << 20;
inline constexpr std::uint32_t queue_entries = 64;
inline constexpr std::uint32_t inline_bytes = 64;
inline constexpr std::uint8_t default_depth = 16;

class Failed : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// Throws Failed unless it holds.
void require(bool holds, const std::string &what);

// Each end puts this into its private data, filled up to `private_bytes` with a pattern that the other end
// checks.
struct Hello {
    static constexpr std::uint32_t right_magic = 0x1e57ab1e;
    std::uint32_t magic = right_magic;
    std::uint32_t number = 0;  // the number of the case
    std::uint64_t data_address = 0;
    std::uint64_t durable_address = 0;
    std::uint32_t data_rkey = 0;
    std::uint32_t durable_rkey = 0;
};
static_assert(sizeof(Hello) == 32);
inline constexpr std::size_t most_private_bytes = 196;
[[nodiscard]] std::vector<std::byte> encoded(const Hello &hello, std::size_t private_bytes);
[[nodiscard]] Hello decoded(std::span<const std::byte> private_data);

// The ends send each other notes: one end asks for the next step, and the other answers that it went well.
struct Note {
    enum class Kind : std::uint32_t { Ok, Check, Fill, Take, Give, Put, Get, Durable, Bye };
    Kind kind = Kind::Ok;
    std::uint32_t seed = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};
static_assert(sizeof(Note) == 24);

struct CmEvent {
    rdma_cm_event_type type;
    int status;
    std::vector<std::byte> private_data;
    rdma_cm_id *id;
};
// Waits for the next event of any type.
[[nodiscard]] CmEvent next_event(const verbs::Provider &provider, rdma_event_channel *events,
                                 std::chrono::seconds wait = patience);

// A file of durable_bytes that is mapped shared, until the destructor unmaps it.
class MappedFile {
public:
    explicit MappedFile(const char *path);
    ~MappedFile();
    MappedFile(const MappedFile &) = delete;
    MappedFile &operator=(const MappedFile &) = delete;
    [[nodiscard]] std::byte *bytes() const { return bytes_; }
    // Returns how many KiB of it are in the page cache only, as /proc/self/smaps has it.
    [[nodiscard]] std::size_t dirty_kib() const;

private:
    std::byte *bytes_;
};

class End {
public:
    // Makes the client. It has resolved the address, and can connect.
    End(const verbs::Provider &provider, const char *address, const char *port);
    // Makes the server of a request that has arrived. Its durable memory is the file, or part of the data
    // without one.
    End(const verbs::Provider &provider, rdma_cm_id *requested, const char *file);

    // ---- connection ----
    // The client calls it. Returns 0 or an errno value.
    [[nodiscard]] int connect(std::uint32_t number, std::size_t private_bytes = sizeof(Hello));
    // The client calls it. Waits until it is connected, and learns where the memory of the server is.
    void join();
    // The server calls it.
    void accept(const Hello &client, std::size_t private_bytes, std::uint8_t depth);
    void reject(const char *private_data);
    void disconnect();
    [[nodiscard]] CmEvent event() { return next_event(provider_, events_.get()); }
    CmEvent expect(rdma_cm_event_type type);

    // ---- notes: at most one under way in each direction ----
    // Posts the receive of the next note, unless it is there: tell() does it too. Receives posted before it
    // are filled before it.
    void prepare_to_hear();
    void tell(const Note &note);
    [[nodiscard]] Note hear();
    // Sends a note, and waits for the answer Ok.
    void ask(const Note &note);

    // ---- operations on the peer's data, each waited for unless it is only posted ----
    void post_write(std::size_t from, std::size_t to, std::size_t length, unsigned flags = IBV_SEND_SIGNALED);
    void post_read(std::size_t from, std::size_t to, std::size_t length, unsigned flags = IBV_SEND_SIGNALED);
    // Posts a write without a completion, which `rkey` may not allow, and a read after it. One call posts
    // both, because after the write alone the connection may have ended already.
    void post_write_and_read(std::size_t to, std::uint32_t rkey, std::size_t length);
    void write(std::size_t from, std::size_t to, std::size_t length);
    void read(std::size_t from, std::size_t to, std::size_t length);
    void send(std::size_t from, std::size_t length, unsigned flags = 0);
    // Flushes as librpma does it: with a native flush if the peer has one, otherwise with a read of 8 bytes.
    void write_durably(std::size_t from, std::size_t to, std::size_t length);
    void post_receive(std::size_t to, std::size_t length);
    // Each returns the next completion of its queue, which must be a success.
    ibv_wc sent() { return successful(completion(send_cq_.get())); }
    ibv_wc received() { return successful(completion(receive_cq_.get())); }
    // Does the same, but only solicited receives wake it.
    ibv_wc received_solicited() { return successful(completion(receive_cq_.get(), 1)); }
    // Returns the status of the next completion of the queue.
    [[nodiscard]] ibv_wc_status sent_status() { return completion(send_cq_.get()).status; }
    [[nodiscard]] ibv_wc_status received_status() { return completion(receive_cq_.get()).status; }

    [[nodiscard]] ibv_sge part(std::size_t offset, std::size_t length) const;
    [[nodiscard]] std::span<std::byte> data(std::size_t offset, std::size_t length);
    [[nodiscard]] std::span<std::byte> durable(std::size_t offset, std::size_t length);
    [[nodiscard]] const MappedFile *file() const { return file_.get(); }
    [[nodiscard]] const verbs::Provider &provider() const { return provider_; }
    [[nodiscard]] ibv_qp *qp() const { return id_->qp; }
    [[nodiscard]] bool is_kernel() const { return std::string_view{provider_.name} == "kernel"; }
    [[nodiscard]] bool native_flush() const {
        // The queue pairs here are created without operations of their own.
        return !provider_.capabilities.posts_native_alone &&
               (provider_.native.of_queue_pair(id_->qp) & verbs::native_flush) != 0;
    }

    Hello peer;                 // the other end's memory
    const std::string address;  // the server's address, as the client got it

private:
    void create_objects(const char *file);
    [[nodiscard]] Hello hello() const;
    [[nodiscard]] ibv_wc completion(ibv_cq *cq, int solicited_only = 0);
    [[nodiscard]] static ibv_wc successful(const ibv_wc &completion);
    void wait_channel();

    // The members are in the order of their creation, and are destroyed from the last to the first.
    const verbs::Provider &provider_;
    verbs::EventChannel events_;
    verbs::Id id_;
    verbs::ProtectionDomain pd_;
    verbs::CompletionChannel channel_;
    verbs::CompletionQueue send_cq_;
    verbs::CompletionQueue receive_cq_;
    std::vector<std::byte> memory_;
    std::unique_ptr<MappedFile> file_;
    verbs::MemoryRegion region_;
    verbs::MemoryRegion file_region_;
    verbs::QueuePair qp_;

    bool note_receive_posted_ = false;
    std::uint32_t number_ = 0;
};

}  // namespace interop
