// SPDX-License-Identifier: BSD-3-Clause
// cli/protocol/health: what a server tells is read again, and nothing else is taken for it.
#include "cli/protocol/health.hpp"

#include "bytes.hpp"

namespace {

cli::Health some_health() {
    cli::Health health;
    health.version = "1.4.0";
    health.uptime_seconds = 3;
    health.store = "0123456789abcdef0123456789abcdef";
    health.memory = "page cache";
    health.durable = true;
    health.names = 2;
    health.faulty = 1;
    health.free_bytes = 0x1'0000'0001;
    health.pushes = {{"a", "192.0.2.1", "writer", 7}};
    health.commits = {{{"a", "192.0.2.1", "writer", 5}, true}};
    health.last = {"b", 9, {5, 6, "2026-01-01T00:00:00Z", "192.0.2.2", "", ""}, ""};
    health.follows = {"192.0.2.9:7204", 2, 10, 4, 3};
    health.reasons = {{"truncated", "a", 2, "has 1 bytes (expected 2)"}, {"storage", "", 0, "failed"}};
    return health;
}

void a_status_survives(void **) {
    const cli::Health health = some_health();
    const std::string text = cli::encode_health(health);
    const auto read = cli::decode_health(text);
    assert_true(read.has_value());
    assert_string_equal(cli::encode_health(*read).c_str(), text.c_str());
    assert_true(read->durable && read->free_bytes == health.free_bytes && read->pushes.size() == 1);
    assert_true(read->commits.size() == 1 && read->commits[0].left && read->commits[0].push.seconds == 5);
    assert_int_equal(read->faulty, 1);
    assert_true(read->last.sequence == 9 && read->last.note.host == "192.0.2.2");
    assert_string_equal(read->store.c_str(), health.store.c_str());
    assert_true(read->follows && read->follows->contents == 2 && read->follows->seconds == 4U &&
                read->follows->hops == 3);
    assert_string_equal(read->reasons.at(0).sentence().c_str(), "a: content 2 has 1 bytes (expected 2)");
    assert_string_equal(read->reasons.at(1).sentence().c_str(), "failed");
    for (std::size_t size = 0; size < text.size(); ++size) {
        assert_fails(cli::decode_health(std::string_view{text}.substr(0, size)), "does not know");
    }
}

// A member that is missing, or of another type.
void other_text_is_no_status(void **) {
    const std::string text = cli::encode_health(some_health());
    for (const char *member : {"version", "uptime_seconds", "memory", "durable", "names", "contents", "bytes",
                               "capacity", "free_bytes", "clients", "pushes", "last", "reasons", "kind",
                               "seconds", "host", "left", "leader", "told"}) {
        std::string other = text;
        const std::size_t at = other.find(fmt::format("\"{}\":", member));
        assert_true(at != std::string::npos);
        other.at(at + 1) = '_';
        assert_fails(cli::decode_health(other), "does not know");
    }
    for (const char *other : {"", "3", "[]", "{}", R"({"version":3})"}) {
        assert_fails(cli::decode_health(other), "does not know");
    }
}

// Older servers tell of no commits and no leader, and always of the room.
void an_older_server_is_understood(void **) {
    std::string text = cli::encode_health(some_health());
    for (const char *member : {"commits", "hops", "follows", "room_known", "store", "faulty"}) {
        const std::size_t at = text.find(fmt::format("\"{}\":", member));
        assert_true(at != std::string::npos);
        text.at(at + 1) = '_';
    }
    const auto read = cli::decode_health(text);
    assert_true(read.has_value());
    assert_true(read->store.empty() && read->commits.empty() && !read->follows &&
                read->free_bytes == some_health().free_bytes);
}

void unknown_room_is_no_room_of_0(void **) {
    cli::Health health = some_health();
    health.free_bytes.reset();
    const auto read = cli::decode_health(cli::encode_health(health));
    assert_true(read.has_value());
    assert_false(read->free_bytes.has_value());
    health.free_bytes = 0;
    const auto full = cli::decode_health(cli::encode_health(health));
    assert_true(full.has_value());
    assert_true(full->free_bytes == 0U);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_status_survives), cmocka_unit_test(other_text_is_no_status),
        cmocka_unit_test(an_older_server_is_understood), cmocka_unit_test(unknown_room_is_no_room_of_0)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
