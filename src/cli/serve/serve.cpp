// SPDX-License-Identifier: BSD-3-Clause
// cli/serve/serve: `rpma serve` opens or creates a store, describes it, and serves it until a signal ends it.
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/condition.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "base/tls.hpp"
#include "cli/checksum.hpp"
#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "cli/report.hpp"
#include "cli/serve/follower.hpp"
#include "cli/serve/listen_addresses.hpp"
#include "cli/serve/server.hpp"
#include "cli/store/store.hpp"
#include "cli/thread.hpp"

namespace cli {

namespace {

struct ServeOptions {
    std::string store;
    std::uint64_t keep = 3;
    std::string max_bytes;
    std::string scrub_rate;
    std::string metrics;  // where they are served; empty without
    std::string follow;   // the leader; empty without
    std::uint64_t max_names = StoreOptions{}.max_names;
    std::vector<std::string> listen{"127.0.0.1:7204"};
    std::vector<std::string> allow;
    std::uint32_t push_lease = 30;  // seconds
    std::uint32_t idle_limit = 60;
    bool allow_volatile = false;
    bool json = false;
};

// Returns a file descriptor for SIGINT and SIGTERM, and with keys for SIGHUP, which without keys ends the
// process. It is called before other threads start, so that they inherit the blocked signals.
Outcome<base::Fd> open_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (base::required_tls() != nullptr) {
        sigaddset(&signals, SIGHUP);
    }
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    base::Fd fd{signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)};
    if (!fd) {
        return failed("signalfd: {}", errno_text(errno));
    }
    return fd;
}

// Returns whether one of these signals has come that ends the server.
bool is_ended() {
    sigset_t pending{};
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1);
}

Outcome<> check_durable(const ServeOptions &options, const Store &store, const Server &server) {
    if (server.durability() != Durability::None || options.allow_volatile) {
        return {};
    }
    return failed(
        Exit::Usage,
        "{}: is not durable here (expected a file on storage, or --volatile to serve it all the same){}",
        store.text(), server.why_volatile());
}

struct Place {
    Address address;
    DevicePeer device;
    std::string device_name;  // also when the server has the device
    bool of_wildcard;         // and of no other word
};

// Adds what the server serves to the summary of its start.
void describe(const ServeOptions &options, const Store &store, Summary &summary) {
    summary.add("store", options.store, options.store + (store.created() ? " (created)" : ""));
    summary.add_json("created", store.created());
    summary.add_text("holds", fmt::format("{} {}, {} bytes", store.names(),
                                          store.names() == 1 ? "name" : "names", store.used()));
    summary.add_json("names", store.names());
    summary.add_json("bytes", store.used());
    summary.add("keep", options.keep, fmt::format("{} of each name", options.keep));
    if (!options.max_bytes.empty()) {
        summary.add("capacity", store.capacity(), fmt::format("{} bytes", store.capacity()));
    }
}

void print_start(const ServeOptions &options, const std::vector<Place> &places, const Server &server,
                 Summary &summary) {
    const bool durable = server.durability() != Durability::None;
    std::string listening;
    std::string devices;
    for (const Place &place : places) {
        listening += (listening.empty() ? "" : ", ") + place.address.text();
        if (!devices.contains(place.device_name)) {
            devices += (devices.empty() ? "" : ", ") + place.device_name;
        }
    }
    summary.add("memory", durability_text(server.durability()));
    summary.add("durable", durable, yes_when_durable(durable));
    summary.add("device", devices);
    if (!options.follow.empty()) {
        summary.add("follows", options.follow);
    }
    if (!options.metrics.empty()) {
        summary.add("metrics", fmt::format("http://{}/metrics", options.metrics));
    }
    summary.add("listening", listening);
    summary.print(options.json);
}

// The log has printed the text of an event already, unless it is a commit.
void print_event(const ServeOptions &options, const ServerEvent &event) {
    constexpr std::array names = {"committed", "refused", "aborted", "dropped", "storage failed"};
    const bool is_commit = event.content.has_value();
    if (!is_commit && !options.json) {
        return;
    }
    Summary summary;
    summary.add_json("event", names.at(static_cast<std::size_t>(event.kind)));
    summary.add_json("time", time_text());
    summary.add_json("host", event.who.host);
    summary.add_json("identity", or_null(event.who.identity));
    if (is_commit) {
        summary.add_json("name", event.name);
        summary.add_json("sequence", event.content->sequence);
        summary.add_json("bytes", event.content->length);
        summary.add_json("checksum", checksum_text(event.content->checksum));
        summary.add_text("committed",
                         fmt::format("{}: content {}, {} bytes, {}, from {}, {}", event.name,
                                     event.content->sequence, event.content->length,
                                     checksum_text(event.content->checksum), event.who.text(), time_text()));
    } else {
        if (event.reason != nullptr) {
            summary.add_json("reason", event.reason);
        }
        summary.add_json("text", event.text);
    }
    summary.print(options.json);
}

// Has threads of their own write what the server prints and logs, so that it goes on when a reader has
// stopped.
class Writers {
public:
    Writers() = default;
    Writers(const Writers &) = delete;
    Writers &operator=(const Writers &) = delete;
    ~Writers() { end(); }
    void end() {
        constexpr auto longest = std::chrono::seconds{2};
        const auto deadline = base::Clock::now() + longest;
        for (Outlet *const outlet : begun_) {
            outlet->end(deadline);
        }
    }
    [[nodiscard]] Outcome<> begin(bool json) {
        for (Outlet *const outlet : log_outlets()) {
            TRY(outlet->begin(lost_log_lines));
            begun_.push_back(outlet);
        }
        TRY(print_outlet().begin([json](std::uint64_t lines) {
            Summary summary;
            summary.add_json("event", "lost");
            summary.add_json("time", time_text());
            summary.add_json("lines", lines);
            summary.add_text("lost",
                             fmt::format("{} lines: their reader had stopped, {}", lines, time_text()));
            return summary.text(json);
        }));
        begun_.push_back(&print_outlet());
        return {};
    }

private:
    std::vector<Outlet *> begun_;
};

// Bounds the end of the server, which waits for what storage has begun. When storage does not answer, the
// process ends as in a crash, which loses nothing that was committed.
class LongestEnd {
public:
    explicit LongestEnd(Writers &writers) : writers_{writers} {}
    LongestEnd(const LongestEnd &) = delete;
    LongestEnd &operator=(const LongestEnd &) = delete;
    ~LongestEnd() {
        if (thread_.joinable()) {
            {
                const base::Lock lock{mutex_};
                is_over_ = true;
                changed_.notify_all();
            }
            thread_.join();
        }
    }
    // The time begins.
    void begin() {
        if (auto thread = start_thread([this] { run(); })) {
            thread_ = *std::move(thread);
        }
    }

private:
    void run() {
        constexpr auto longest = std::chrono::seconds{10};
        const auto deadline = base::Clock::now() + longest;
        const base::Lock lock{mutex_};
        while (!is_over_ && changed_.wait_until(mutex_, deadline)) {
        }
        if (!is_over_) {
            BASE_LOG(Error, "storage has not answered for %lld seconds: the server ends without it",
                     static_cast<long long>(longest.count()));
            writers_.end();
            std::_Exit(EXIT_FAILURE);
        }
    }

    Writers &writers_;
    base::Mutex mutex_;
    base::Condition changed_;
    bool is_over_ GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

// Finds the addresses to listen at. A wildcard stands for those of its addresses that a device serves. An
// address that several words stand for counts once. `wildcards` gets these words.
Outcome<std::vector<Place>> open_places(const ServeOptions &options, std::vector<Address> &wildcards) {
    std::vector<Place> places;
    for (const std::string &text : options.listen) {
        const Address given = TRY(parse_address(text));
        const auto wanted = TRY(listen_addresses(given));
        if (wanted.any) {
            wildcards.push_back(given);
        }
        std::string reason;
        for (const Address &address : wanted.addresses) {
            const auto is_same = [&](const Place &one) { return one.address.text() == address.text(); };
            if (const auto known = std::ranges::find_if(places, is_same); known != places.end()) {
                known->of_wildcard = known->of_wildcard && wanted.any;
                continue;
            }
            auto device = open_peer(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
            if (device) {
                const std::string name = device->name;
                places.push_back({address, *std::move(device), name, wanted.any});
            } else if (!wanted.any || device.error().exit == Exit::Usage) {
                return std::unexpected{device.error()};
            } else {
                reason = device.error().text;
            }
        }
        if (places.empty()) {
            return failed("{}: no address of this machine can be used: {}", text, reason);
        }
    }
    return places;
}

// Returns limits with as many clients as this process may have descriptors for. Each kind of peer has a
// share, so that no kind takes the descriptors of the others: the device's start-ups have a quarter of all.
ServerLimits limits_of(const ServeOptions &options) {
    constexpr rlim_t own = 64;
    constexpr rlim_t of_client = 11;  // 3 of them for the files of one that has left
    constexpr rlim_t of_refused = 6;
    ServerLimits limits{.push_lease = std::chrono::seconds{options.push_lease},
                        .idle = std::chrono::seconds{options.idle_limit},
                        .permissions = {}};
    rlimit descriptors{};
    if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
        descriptors.rlim_cur = descriptors.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &descriptors);
        const rlim_t shared = descriptors.rlim_max - descriptors.rlim_max / 4;
        const rlim_t room = std::max(shared, own + 4 * of_client) - own;
        limits.refused = std::min<rlim_t>(limits.refused, room / 4 / of_refused);
        limits.clients = std::min<rlim_t>(limits.clients, (room - limits.refused * of_refused) / of_client);
        limits.clients_per_origin = std::max<std::size_t>(limits.clients / 2, 1);
    }
    return limits;
}

// Tells a service manager, if one has started this process, that the server listens (sd_notify(3)). A manager
// that it does not reach ends it, so this process goes on.
void tell_ready() {
    constexpr std::string_view text = "READY=1";
    const char *const name = secure_getenv("NOTIFY_SOCKET");
    if (name == nullptr) {
        return;
    }
    sockaddr_un manager{};
    manager.sun_family = AF_UNIX;
    const std::string_view path = name;
    if (path.empty() || path.size() >= sizeof(manager.sun_path) || (path[0] != '/' && path[0] != '@')) {
        BASE_LOG(Warning, "NOTIFY_SOCKET is \"%s\", expected the path of a Unix socket", name);
        return;
    }
    path.copy(manager.sun_path, path.size());
    if (path[0] == '@') {
        manager.sun_path[0] = '\0';  // it is in the abstract namespace
    }
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    const base::Fd socket{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    if (!socket || sendto(socket.get(), text.data(), text.size(), MSG_NOSIGNAL,
                          reinterpret_cast<const sockaddr *>(&manager), length) < 0) {
        BASE_LOG(Warning, "NOTIFY_SOCKET %s: cannot tell the service manager that the server listens: %s",
                 name, errno_text(errno));
    }
}

// Prepares everything before the first client.
Outcome<> start(const ServeOptions &options, std::vector<Place> &places, Store &store, Server &server,
                Metrics &metrics) {
    for (Place &place : places) {
        TRY(server.listen(place.address, std::move(place.device)));
        TRY(check_durable(options, store, server));
    }
    if (!options.metrics.empty()) {
        TRY(metrics.listen(options.metrics));
    }
    return store.start_check();
}

// A kernel device pins no page of a file, and would not make it durable.
bool needs_copy(const std::vector<Place> &places) {
    return !std::ranges::all_of(places, [](const Place &place) { return place.device.is_soft; });
}

// Warns when everybody on the Internet may push and pull. Returns whether it does.
bool warn_of_public_address(const Address &address) {
    if (!is_public(address.host) || base::required_tls() != nullptr) {
        return false;
    }
    BASE_LOG(Warning,
             "%s is an address of the public Internet, and there are no keys: everybody who reaches it may "
             "push and pull (expected --psk FILE or --x509 FILE)",
             address.text().c_str());
    return true;
}

// Has a server listen at the present addresses of this machine, where a wildcard stands for them. The
// server's thread uses it.
class PresentAddresses {
public:
    PresentAddresses(std::vector<Address> wildcards, const std::vector<Place> &places, const Store &store,
                     Server &server)
        : wildcards_{std::move(wildcards)}, store_{store}, server_{server} {
        for (const Place &place : places) {
            if (!place.of_wildcard) {
                named_.insert(place.address.text());
            }
            warned_ = warned_ || warn_of_public_address(place.address);
        }
    }

    // Sees to it from now on, when there is a wildcard. An address may have come since the start.
    Outcome<> follow() {
        if (!wildcards_.empty()) {
            server_.follow_addresses(TRY(address_changes()), [this] { update(); });
            update();
        }
        return {};
    }

private:
    void update() {
        std::map<std::string, Address> present;
        for (const Address &wildcard : wildcards_) {
            const auto found = listen_addresses(wildcard);
            if (!found) {
                BASE_LOG(Info, "the server listens where it did: %s", found.error().text.c_str());
                return;
            }
            for (const Address &address : found->addresses) {
                present.emplace(address.text(), address);
            }
        }
        server_.stop_listening(
            [&](const Address &one) { return named_.contains(one.text()) || present.contains(one.text()); });
        std::erase_if(refused_, [&](const std::string &one) { return !present.contains(one); });
        for (const auto &[text, address] : present) {
            const auto listening = server_.listens(address) ? Outcome<>{} : listen(address);
            if (!listening && refused_.insert(text).second) {
                BASE_LOG(Warning, "%s came to this machine, and the server does not listen there: %s",
                         text.c_str(), listening.error().text.c_str());
            }
        }
    }

    // An address without a device is none of the server's, as at its start.
    Outcome<> listen(const Address &address) {
        auto device = open_peer(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
        if (!device) {
            BASE_LOG(Info, "%s: %s", address.text().c_str(), device.error().text.c_str());
            return {};
        }
        if (!device->is_soft && !store_.is_copied() && !store_.is_dax()) {
            return failed("it is on the RDMA device {}, for which the server has to start again",
                          device->name);
        }
        TRY(server_.listen(address, *std::move(device)));
        BASE_LOG(Warning, "%s came to this machine: the server listens there too", address.text().c_str());
        warned_ = warned_ || warn_of_public_address(address);
        return {};
    }

    const std::vector<Address> wildcards_;
    const Store &store_;
    Server &server_;
    std::set<std::string> named_;
    std::set<std::string> refused_;  // that the log has named
    bool warned_ = false;
};

// Returns what the clients may do. Without TLS no client has an identity, so nobody could do anything.
Outcome<Permissions> permissions_of(const ServeOptions &options) {
    if (!options.allow.empty() && base::required_tls() == nullptr) {
        return failed(
            Exit::Usage,
            "--allow: expected --psk FILE or --x509 FILE too: a client without TLS has no identity");
    }
    return Permissions::parse(options.allow);
}

Outcome<> serve(const ServeOptions &options) {
    ServerLimits limits = limits_of(options);
    limits.permissions = TRY(permissions_of(options));
    std::optional<Address> leader;
    if (!options.follow.empty()) {
        leader = TRY(parse_address(options.follow));
    }
    const base::Fd signals = TRY(open_signals());
    Writers writers;
    TRY(writers.begin(options.json));
    LongestEnd longest_end{writers};
    std::vector<Address> wildcards;
    auto places = TRY(open_places(options, wildcards));
    StoreOptions wanted{.keep = options.keep,
                        .max_bytes = 0,
                        .max_names = options.max_names,
                        .scrub_rate = 0,
                        .ends = is_ended};
    if (!options.max_bytes.empty()) {
        wanted.max_bytes = TRY(parse_size_of("--max-bytes", options.max_bytes));
    }
    if (!options.scrub_rate.empty()) {
        wanted.scrub_rate = TRY(parse_size_of("--scrub-rate", options.scrub_rate));
    }
    auto opened = Store::open(options.store, wanted);
    if (!opened && is_ended()) {
        return {};
    }
    const auto store = TRY(std::move(opened));
    if (needs_copy(places) && !store->is_dax() && store->is_on_storage()) {
        store->serve_copies();
    }
    base::Mutex printing;  // the follower has a thread of its own
    const auto print = [&options, &printing](const ServerEvent &event) {
        const base::Lock lock{printing};
        print_event(options, event);
    };
    const auto follower = leader ? std::make_unique<Follower>(*store, *leader, options.keep,
                                                              options.max_names, limits.push_lease)
                                 : nullptr;
    Metrics metrics{*store, limits.push_lease};
    Server server{*store, std::move(limits), metrics, print};
    if (follower) {
        metrics.follow(*follower);
        server.follow(*follower);
    }
    if (const auto started = start(options, places, *store, server, metrics); !started) {
        store->discard_created();
        return started;
    }
    Summary summary;
    summary.add_json("event", "listening");
    describe(options, *store, summary);
    print_start(options, places, server, summary);
    print_warnings();
    PresentAddresses addresses{std::move(wildcards), places, *store, server};
    TRY(addresses.follow());
    tell_ready();
    if (follower) {
        const Who from{leader->host, {}};
        TRY(follower->start(metrics, [&, from](const std::string &name, const Content &content) {
            print({ServerEvent::Kind::Committed, from, {}, nullptr, name, content});
        }));
    }
    const auto served = server.run(signals.get());
    longest_end.begin();
    if (follower) {
        follower->stop();
    }
    return served;
}

}  // namespace

void add_serve(CLI::App &app, Command &chosen) {
    auto options = std::make_shared<ServeOptions>();
    CLI::App *command = app.add_subcommand("serve", "Create or open a store, and serve it to push and pull");
    command->footer(
        "Without --psk or --x509 there is no authentication and no encryption: any program that reaches the "
        "address can read and replace the content. --psk lets in those alone that have a key (rpma keygen), "
        "--x509 those that have a certificate.\n"
        "A store keeps contents as plain files, by their names. A crash at any moment leaves the old content "
        "or the new one.\n"
        "SIZE takes K, M, G or T, in powers of 1024. Ctrl-C ends the server.\n");
    command->add_option("--store", options->store, "The store, a folder; created when it does not exist")
        ->type_name("DIR")
        ->required();
    command->add_option("--keep", options->keep, "How many contents of each name stay")
        ->type_name("NUMBER")
        ->transform(CLI::Validator{whole_number_between(1, 1'000'000), "1 to 1000000"})
        ->capture_default_str();
    command
        ->add_option("--max-bytes", options->max_bytes,
                     "How large all contents may be together, with pushes that are under way")
        ->type_name("SIZE");
    command
        ->add_option("--max-names", options->max_names,
                     "How many names the store takes; those that it has already stay")
        ->type_name("NUMBER")
        ->transform(CLI::Validator{whole_number_between(1, 1'000'000), "1 to 1000000"})
        ->capture_default_str();
    command
        ->add_option("--scrub-rate", options->scrub_rate,
                     "Read the contents again and again, so many bytes each second, and verify them")
        ->type_name("SIZE");
    command
        ->add_option("--follow", options->follow,
                     "Keep what this server has, its leader, and take contents from it alone")
        ->type_name("ADDRESS[:PORT]");
    const auto refuse = [](const std::vector<std::string> &) {
        throw CLI::ValidationError("--pool",
                                   "a pool file is not served any more: serve it with the rpma that made it, "
                                   "pull its content with that one too, and push the file that you get to a "
                                   "server of --store DIR");
    };
    command->add_option_function<std::vector<std::string>>("--pool,--size", refuse)->group("");
    command
        ->add_option(
            "--listen", options->listen,
            "Where to listen: HOST[:PORT] or [IPV6][:PORT], may be given several times; 0.0.0.0 and [::] "
            "stand for each address that this machine has, or gets")
        ->type_name("ADDRESS")
        ->take_all()
        ->allow_extra_args(false)  // otherwise brackets would be CLI11's form of a list
        ->capture_default_str();
    command
        ->add_option("--push-lease", options->push_lease,
                     "End a push that makes no progress for this many seconds")
        ->type_name("SECONDS")
        ->transform(CLI::Validator{whole_number_between(3, 86400), "3 to 86400"})
        ->capture_default_str();
    command->add_option("--idle-limit", options->idle_limit, "End a pull that is idle for this many seconds")
        ->type_name("SECONDS")
        ->transform(CLI::Validator{whole_number_between(3, 86400), "3 to 86400"})
        ->capture_default_str();
    add_tls(*command);
    command
        ->add_option("--allow", options->allow,
                     "What clients may do: push=IDENTITY or pull=IDENTITY of a key or a certificate, several "
                     "with commas or again; without it each may do both")
        ->type_name("LIST")
        ->delimiter(',')
        ->take_all()
        ->allow_extra_args(false);
    command
        ->add_option(
            "--metrics", options->metrics,
            "Serve metrics for Prometheus over HTTP at this address; whoever reaches it can read them")
        ->type_name("ADDRESS:PORT");
    command->add_flag("--volatile", options->allow_volatile, "Serve also when nothing can be durable");
    command->add_flag("--json", options->json, "Print events as JSON, one on each line");
    command->callback([options, &chosen] { chosen = [options] { return serve(*options); }; });
}

}  // namespace cli
