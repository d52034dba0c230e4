// SPDX-License-Identifier: BSD-3-Clause
// cli/perf/perf_server: memory is allocated for the first client that measures, and released with the last.
#include "cli/perf/perf_server.hpp"

#include <fcntl.h>
#include <poll.h>

#include <array>
#include <chrono>

#include "cli/log.hpp"

namespace cli {

namespace {

// The soft device's engine looks for the same time before it sleeps.
constexpr auto answer_spins = std::chrono::microseconds{30};
constexpr int measured_usage =
    RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;

}  // namespace

MessageAnswers::~MessageAnswers() {
    stop_.stop();
    if (thread_.joinable()) {
        thread_.join();
    }
}

// Messages overlap when there is no room for all, because their content does not matter.
std::size_t MessageAnswers::offset(std::uint64_t message) const {
    return message % (area_.size / hello_.message_bytes) * hello_.message_bytes;
}

Outcome<> MessageAnswers::prepare(rpma_conn_req *request) const {
    if (!stop_) {
        return failed("eventfd: {}", errno_text(errno));
    }
    for (std::uintptr_t message = 0; message < hello_.messages; ++message) {
        TRY(checked(rpma_conn_req_recv(request, area_.region.get(), offset(message), hello_.message_bytes,
                                       reinterpret_cast<void *>(message)),
                    "cannot post a receive of {} bytes", hello_.message_bytes));
    }
    return {};
}

Outcome<> MessageAnswers::start(rpma_conn *connection) {
    int fd = -1;
    connection_ = connection;
    TRY(checked(rpma_conn_get_cq(connection, &completions_), "completion queue"));
    TRY(checked(rpma_cq_get_fd(completions_, &fd), "completion queue"));
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        return failed("completion queue: {}", errno_text(errno));
    }
    thread_ = TRY(start_thread([this] { run(); }));
    return {};
}

// The receive is posted again before its answer is sent, because a client that has the answer may send the
// next message.
bool MessageAnswers::serve(const ibv_wc &completion) const {
    if (completion.status != IBV_WC_SUCCESS) {
        return false;
    }
    if (completion.opcode != IBV_WC_RECV) {
        return true;
    }
    auto *context = reinterpret_cast<void *>(static_cast<std::uintptr_t>(completion.wr_id));
    return rpma_recv(connection_, area_.region.get(), offset(completion.wr_id), hello_.message_bytes,
                     context) == 0 &&
           rpma_send(connection_, nullptr, 0, 0, RPMA_F_COMPLETION_ALWAYS, nullptr) == 0;
}

void MessageAnswers::run() {
    int fd = -1;
    (void)rpma_cq_get_fd(completions_, &fd);
    auto active = std::chrono::steady_clock::now();
    std::array<ibv_wc, 16> completions;
    while (!stop_.is_stopped()) {
        int count = 0;
        const int result =
            rpma_cq_get_wc(completions_, static_cast<int>(completions.size()), completions.data(), &count);
        for (const ibv_wc &completion : std::span{completions}.first(static_cast<std::size_t>(count))) {
            if (!serve(completion)) {
                (void)rpma_conn_disconnect(connection_);
                return;
            }
        }
        const auto now = std::chrono::steady_clock::now();
        if (result == 0) {
            active = now;
        } else if (result != RPMA_E_NO_COMPLETION) {
            return;
        } else if (now - active > answer_spins) {
            if (!stop_.wait(fd, POLLIN)) {
                return;
            }
            (void)rpma_cq_wait(completions_);  // may be spurious
        }
    }
}

Outcome<std::shared_ptr<PerfArea>> PerfServer::scratch() {
    auto area = scratch_.lock();
    if (area == nullptr) {
        Mapping memory{largest_message, MAP_PRIVATE | MAP_ANONYMOUS, -1};
        if (!memory) {
            return failed("cannot allocate {} bytes: {}", largest_message, errno_text(errno));
        }
        LocalRegion region =
            TRY(register_memory(device_, memory.bytes(), measured_usage | RPMA_MR_USAGE_RECV));
        area = std::make_shared<PerfArea>(std::move(memory), largest_message, std::move(region));
        scratch_ = area;
    }
    return area;
}

Outcome<std::shared_ptr<PerfArea>> PerfServer::measured(bool durable) {
    auto area = measured_.lock();
    if (area == nullptr) {
        const auto memory = TRY(store_.measured());
        const int wanted = durable ? measured_usage | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT : measured_usage;
        area = std::make_shared<PerfArea>(Mapping{}, memory.size(),
                                          TRY(register_memory(device_, memory, wanted)));
        measured_ = area;
    }
    return area;
}

Outcome<PerfClient> PerfServer::admit(const Hello &hello, rpma_conn_req *request,
                                      std::shared_ptr<PerfArea> &area, Offer &offer) {
    PerfClient client;
    if (hello.messages > most_messages || hello.message_bytes > largest_message ||
        (hello.messages > 0 && (hello.message_bytes == 0 || hello.mode != Mode::Measure))) {
        offer = {.status = Status::Limit,
                 .reason = fmt::format("the server does not take {} messages of {} bytes at once",
                                       hello.messages, hello.message_bytes)};
        return client;
    }
    area = TRY(hello.mode == Mode::Measure ? scratch() : measured(offer.durability != Durability::None));
    offer.capacity = area->size;
    TRY(checked(rpma_mr_get_descriptor(area->region.get(), offer.memory_region.data()), "memory region"));
    sockaddr_storage local{};
    sockaddr_storage remote{};
    TRY(checked(rpma_conn_req_get_local_addr(request, &local), "local address"));
    TRY(checked(rpma_conn_req_get_peer_addr(request, &remote), "the client's address"));
    client.baseline = TRY(TcpAnswers::listen(local, remote));
    offer.tcp_port = client.baseline->port();
    if (hello.messages > 0) {
        client.messages = std::make_unique<MessageAnswers>(*area, hello);
        TRY(client.messages->prepare(request));
    }
    return client;
}

}  // namespace cli
