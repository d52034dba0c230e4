// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/metrics: counters and histograms that the server sets, and what is read from the store at each
// request.
#include "cli/serve/metrics.hpp"

#include <netdb.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "cli/arguments.hpp"
#include "cli/log.hpp"
#include "cli/serve/follower.hpp"
#include "cli/serve/page.hpp"

namespace cli {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily gauge(const char *name, const char *help) {
    MetricFamily family;
    family.name = name;
    family.help = help;
    family.type = MetricType::Gauge;
    return family;
}

void add(MetricFamily &family, double value, std::vector<ClientMetric::Label> labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    family.metric.push_back(std::move(metric));
}

MetricFamily counter(const char *name, const char *help, std::uint64_t value) {
    MetricFamily family = gauge(name, help);
    family.type = MetricType::Counter;
    ClientMetric metric;
    metric.counter.value = static_cast<double>(value);
    family.metric.push_back(std::move(metric));
    return family;
}

MetricFamily gauge(const char *name, const char *help, std::uint64_t value) {
    MetricFamily family = gauge(name, help);
    add(family, static_cast<double>(value));
    return family;
}

using Clock = std::chrono::steady_clock;

// How long the oldest commit has been under way, at each request.
class OldestCommit final : public prometheus::Collectable {
public:
    explicit OldestCommit(std::shared_ptr<const std::atomic<Clock::rep>> since) : since_{std::move(since)} {}

    [[nodiscard]] std::vector<MetricFamily> Collect() const override {
        const Clock::rep since = since_->load(std::memory_order_relaxed);
        const std::chrono::duration<double> seconds =
            Clock::now().time_since_epoch() - Clock::duration{since};
        MetricFamily family =
            gauge("rpma_oldest_commit_seconds",
                  "How long ago the oldest commit was asked for that storage has not ended; 0 without one.");
        add(family, since != 0 ? seconds.count() : 0);
        return {std::move(family)};
    }

private:
    std::shared_ptr<const std::atomic<Clock::rep>> since_;  // 0 without one
};

// Each request reads these from the store.
class OfStore final : public prometheus::Collectable {
public:
    OfStore(const Store &store, std::chrono::seconds patience,
            std::shared_ptr<const std::atomic<Clock::rep>> since)
        : store_{store}, patience_{patience}, since_{std::move(since)} {}

    [[nodiscard]] std::vector<MetricFamily> Collect() const override {
        const Health health = tell();
        std::map<std::string, std::uint64_t> faults{{"deleted", 0}, {"truncated", 0}, {"damaged", 0},
                                                    {"store", 0},   {"room", 0},      {"slow", 0}};
        for (const Reason &reason : health.reasons) {
            ++faults[reason.kind];
        }
        // As in the status, a push for which storage works so long is a fault too.
        const Clock::rep since = since_->load(std::memory_order_relaxed);
        if (since != 0 && Clock::now().time_since_epoch() - Clock::duration{since} >= patience_) {
            ++faults["slow"];
        }
        MetricFamily family = gauge("rpma_faults", "Faults of the store and of newest contents, by kind.");
        for (const auto &[kind, count] : faults) {
            add(family, static_cast<double>(count), {{"kind", kind}});
        }
        MetricFamily room =
            gauge("rpma_free_bytes", "Bytes that the next push may have; absent when unknown.");
        if (health.free_bytes) {
            add(room, static_cast<double>(*health.free_bytes));
        }
        return {
            gauge("rpma_names", "Names in the store.", health.names),
            gauge("rpma_contents", "Contents in the store.", health.contents),
            gauge("rpma_faulty_contents", "Contents of which a fault is known, the newest ones or not.",
                  health.faulty),
            gauge("rpma_store_bytes", "Bytes of contents and of pushes that are under way.", health.bytes),
            std::move(room),
            counter("rpma_checked_bytes_total", "Bytes of contents that were read to verify them.",
                    store_.checked_bytes()),
            counter("rpma_checks_total", "How often all contents were read to verify them.", store_.checks()),
            std::move(family)};
    }

private:
    // Returns what a look at the files finds; or else, when that takes long, what is known without one. A
    // look has a thread of its own, because storage may hang, and the next one begins when it is over.
    [[nodiscard]] Health tell() const {
        constexpr std::chrono::seconds patience{5};
        const auto takes = [this](std::chrono::seconds time) {
            return look_.valid() && look_.wait_for(time) == std::future_status::timeout;
        };
        if (!takes({})) {
            // Without memory for a thread this one looks.
            look_ = std::async([&store = store_] {
                Health found;
                store.tell(found);
                return found;
            });
            if (!takes(patience)) {
                return look_.get();
            }
        }
        Health known;
        store_.tell_known(known);
        known.reasons.push_back({"slow", {}, 0, {}});
        return known;
    }

    const Store &store_;
    const std::chrono::seconds patience_;
    std::shared_ptr<const std::atomic<Clock::rep>> since_;  // when the oldest job of a push began; 0 without
    mutable std::future<Health> look_;  // the last one, until it has told; one request at a time has it made
};

// Tells at each request of the newest content of each name, so that a name whose pushes end is seen.
class OfNames final : public prometheus::Collectable {
public:
    explicit OfNames(const Store &store) : store_{store} {}

    [[nodiscard]] std::vector<MetricFamily> Collect() const override {
        MetricFamily time =
            gauge("rpma_newest_timestamp_seconds",
                  "When the newest content of the name was committed, in seconds since 1970.");
        MetricFamily sequence = gauge("rpma_newest_sequence", "The sequence of that content.");
        MetricFamily bytes = gauge("rpma_newest_bytes", "The bytes of that content.");
        for (const Listed &newest : store_.newest()) {
            const std::vector<ClientMetric::Label> label{{"name", newest.name}};
            add(sequence, static_cast<double>(newest.sequence), label);
            if (const auto seconds = seconds_of(newest.note.time)) {
                add(time, static_cast<double>(*seconds), label);
                add(bytes, static_cast<double>(newest.note.length), label);
            }
        }
        return {std::move(time), std::move(sequence), std::move(bytes)};
    }

private:
    const Store &store_;
};

// Tells at each request which contents a follower lacks.
class OfFollower final : public prometheus::Collectable {
public:
    explicit OfFollower(const Follower &follower) : follower_{follower} {}

    [[nodiscard]] std::vector<MetricFamily> Collect() const override {
        Health health;
        follower_.tell(health);
        const Following &lacks = *health.follows;
        std::vector<MetricFamily> families{
            gauge("rpma_behind_contents", "Contents that the leader has told of, and that are not here yet.",
                  lacks.contents),
            gauge("rpma_behind_bytes", "Bytes of these contents.", lacks.bytes),
            gauge("rpma_behind_faults", "Reasons why the server does not follow its leader.",
                  health.reasons.size())};
        if (lacks.seconds) {
            families.push_back(gauge("rpma_leader_seconds",
                                     "How long ago the leader told what it has. Missing before that.",
                                     *lacks.seconds));
        }
        return families;
    }

private:
    const Follower &follower_;
};

const prometheus::Histogram::BucketBoundaries seconds_of_storage{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03,
                                                                 0.1,    0.3,    1,     3,     10,   30};

// Returns a socket that listens there.
Outcome<base::Fd> listen_at(const Address &address) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo *list = nullptr;
    if (const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &wanted, &list);
        error != 0) {
        return failed(Exit::Usage, "--metrics {}: {} (expected an address of this machine)", address.text(),
                      gai_strerror(error));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{list, freeaddrinfo};
    base::Fd socket{::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    constexpr int yes = 1;
    if (!socket || setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
        return failed("--metrics {}: cannot listen: {} (expected a free port of an address of this machine)",
                      address.text(), errno_text(errno));
    }
    return socket;
}

}  // namespace

struct Metrics::Parts {
    Parts(const Store &served, std::chrono::seconds patience)
        : store{std::make_shared<OfStore>(served, patience, job_since)},
          names{std::make_shared<OfNames>(served)} {}

    // Relaxed: they publish nothing else.
    std::shared_ptr<std::atomic<Clock::rep>> job_since = std::make_shared<std::atomic<Clock::rep>>(0);
    std::shared_ptr<std::atomic<Clock::rep>> commit_since = std::make_shared<std::atomic<Clock::rep>>(0);
    std::shared_ptr<prometheus::Collectable> oldest_commit = std::make_shared<OldestCommit>(commit_since);
    std::shared_ptr<prometheus::Collectable> store;
    std::shared_ptr<prometheus::Collectable> names;
    std::shared_ptr<prometheus::Collectable> follower;  // of a server that follows
    std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
    std::unique_ptr<Page> page;  // ends first

    [[nodiscard]] std::string text() const {
        std::ostringstream text;
        for (const prometheus::Collectable *part :
             {static_cast<prometheus::Collectable *>(registry.get()), store.get(), names.get(),
              oldest_commit.get(), follower.get()}) {
            if (part != nullptr) {
                prometheus::TextSerializer{}.Serialize(text, part->Collect());
            }
        }
        return text.str();
    }

    prometheus::Counter &counter(const char *name, const char *help) const {
        return prometheus::BuildCounter().Name(name).Help(help).Register(*registry).Add({});
    }
    prometheus::Gauge &gauge(const char *name, const char *help) const {
        return prometheus::BuildGauge().Name(name).Help(help).Register(*registry).Add({});
    }
    prometheus::Histogram &histogram(const char *name, const char *help) const {
        return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry).Add({},
                                                                                          seconds_of_storage);
    }

    prometheus::Counter &pushes = counter("rpma_pushes_total", "Commits of pushes and rollbacks.");
    prometheus::Counter &push_bytes =
        counter("rpma_push_bytes_total", "Bytes of the contents of these commits.");
    prometheus::Counter &stored_bytes =
        counter("rpma_stored_bytes_total", "Bytes that pushes have had stored, also those without a commit.");
    prometheus::Counter &pulls = counter("rpma_pulls_total", "Pulls that were admitted.");
    prometheus::Counter &pull_bytes =
        counter("rpma_pull_bytes_total", "Bytes of the contents that these pulls were given.");
    prometheus::Counter &refusals = counter("rpma_refusals_total", "Clients that were refused.");
    prometheus::Counter &drops =
        counter("rpma_drops_total", "Clients other than pushes whose connection the server has ended.");
    prometheus::Family<prometheus::Counter> &aborts =
        prometheus::BuildCounter()
            .Name("rpma_push_aborts_total")
            .Help("Pushes that ended without a commit, by reason.")
            .Register(*registry);
    prometheus::Histogram &commit_seconds = histogram(
        "rpma_commit_duration_seconds", "How long storage took to make a push durable and commit it.");
    prometheus::Histogram &store_seconds =
        histogram("rpma_store_duration_seconds", "How long storage took to take a portion of a push.");
    prometheus::Gauge &clients = gauge("rpma_clients", "Clients that are connected.");
    prometheus::Gauge &under_way = gauge("rpma_pushes_under_way", "Pushes that are under way.");
    prometheus::Gauge &failed_storage =
        gauge("rpma_storage_failed", "1 when storage has failed, and no push is taken until the next start.");
};

Metrics::Metrics(const Store &store, std::chrono::seconds patience)
    : parts_{std::make_unique<Parts>(store, patience)} {
    // A rate of what never happened yet is 0, and not missing.
    for (const char *reason :
         {"client_left", "connection_lost", "no_progress", "too_slow", "checksum", "no_content", "no_room",
          "storage", "not_let_in", "not_served", "server_stops"}) {
        parts_->aborts.Add({{"reason", reason}});
    }
    prometheus::BuildGauge()
        .Name("rpma_build_info")
        .Help("The version of the server.")
        .Register(*parts_->registry)
        .Add({{"version", RPMA_VERSION}})
        .Set(1);
    parts_->gauge("rpma_start_time_seconds", "When the server began, in seconds since 1970.")
        .SetToCurrentTime();
}

Metrics::~Metrics() = default;

void Metrics::follow(const Follower &follower) {
    parts_->follower = std::make_shared<OfFollower>(follower);
}

Outcome<> Metrics::listen(const std::string &address) {
    const Address given = TRY(parse_address(address));
    if (given.text() != address) {
        return failed(Exit::Usage, "--metrics {}: expected ADDRESS:PORT, such as {}:9100", address,
                      given.host);
    }
    Page::Form form{.path = "/metrics",
                    .type = "text/plain; version=0.0.4; charset=utf-8",
                    .text = [parts = parts_.get()] { return parts->text(); }};
    base::Fd listener = TRY(listen_at(given));
    parts_->page = TRY(Page::start(std::move(listener), std::move(form)));
    return {};
}

void Metrics::committed(std::uint64_t bytes, double seconds) {
    parts_->pushes.Increment();
    parts_->push_bytes.Increment(static_cast<double>(bytes));
    parts_->commit_seconds.Observe(seconds);
}

void Metrics::stored(std::uint64_t bytes, double seconds) {
    parts_->stored_bytes.Increment(static_cast<double>(bytes));
    parts_->store_seconds.Observe(seconds);
}

void Metrics::aborted(const char *reason) {
    parts_->aborts.Add({{"reason", reason}}).Increment();
}

void Metrics::pulled(std::uint64_t bytes) {
    parts_->pulls.Increment();
    parts_->pull_bytes.Increment(static_cast<double>(bytes));
}

void Metrics::refused() {
    parts_->refusals.Increment();
}

void Metrics::dropped() {
    parts_->drops.Increment();
}

void Metrics::storage_failed() {
    parts_->failed_storage.Set(1);
}

void Metrics::committing(std::optional<Clock::time_point> since) {
    parts_->commit_since->store(since ? since->time_since_epoch().count() : 0, std::memory_order_relaxed);
}

void Metrics::storing(std::optional<Clock::time_point> since) {
    parts_->job_since->store(since ? since->time_since_epoch().count() : 0, std::memory_order_relaxed);
}

void Metrics::connected(std::size_t clients, std::size_t pushes) {
    parts_->clients.Set(static_cast<double>(clients));
    parts_->under_way.Set(static_cast<double>(pushes));
}

}  // namespace cli
