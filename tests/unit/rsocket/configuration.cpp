// SPDX-License-Identifier: BSD-3-Clause
// rsocket/configuration: tests what files and variables say, and what becomes of values that say nothing.
#include "rsocket/configuration.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../../folder.hpp"
#include "../base/check.hpp"
#include "../base/warnings.hpp"

namespace {

using rsockets::Configuration;
using test::warned_of;
using test::warnings;

int begin(void **) {
    test::keep_warnings();
    return folder::make();
}

int end(void **) {
    for (const char *const name : {"RS_SQ_SIZE", "RS_RQ_SIZE", "RS_INLINE", "RDMAV_FORK_SAFE"}) {
        unsetenv(name);
    }
    test::end_warnings();
    return folder::remove();
}

Configuration read() {
    return rsockets::read_configuration(folder::path);
}

// An Item has a file, a number in it that is taken and one that is not, and the
// place where the number is found.
struct Item {
    const char *name;
    const char *variable;
    const char *good;
    const char *bad;
    const char *range;
    std::uint64_t (*value)(const Configuration &);
};

const Item items[] = {
    {"polling_time", nullptr, " 250\n", "1000001", "from 0 to 1000000",
     [](const Configuration &read) { return static_cast<std::uint64_t>(read.polling_time.count()); }},
    {"sqsize_default", "RS_SQ_SIZE", "65534", "65535", "from 1 to 65534",
     [](const Configuration &read) { return std::uint64_t{read.settings.sends}; }},
    {"rqsize_default", "RS_RQ_SIZE", "100", "0", "from 1 to 65534",
     [](const Configuration &read) { return std::uint64_t{read.settings.receives}; }},
    {"inline_default", "RS_INLINE", "0", "many", "from 0 to 65535",
     [](const Configuration &read) { return std::uint64_t{read.settings.inline_bytes}; }},
    {"iomap_size", nullptr, "512", "65536", "from 0 to 65535",
     [](const Configuration &read) { return std::uint64_t{read.settings.slots}; }},
    {"mem_default", nullptr, "1048576", "1048576 bytes", "from 0 to 1073741824",
     [](const Configuration &read) { return std::uint64_t{read.settings.receive_bytes}; }},
    {"wmem_default", nullptr, "\t4096 \r\n", "-1", "from 0 to 1073741824",
     [](const Configuration &read) { return std::uint64_t{read.settings.send_bytes}; }},
};

void nothing_said_is_the_default(void **) {
    const Configuration defaults;
    const Configuration got = read();
    for (const Item &item : items) {
        assert_int_equal(item.value(got), item.value(defaults));
    }
    assert_true(warnings.empty());
}

void a_file_has_one_number(void **) {
    for (const Item &item : items) {
        folder::write(folder::path / item.name, item.good);
        assert_int_equal(item.value(read()), std::stoull(item.good));
        assert_true(warnings.empty());
    }
}

void a_value_that_is_none_is_named_and_not_used(void **) {
    const Configuration defaults;
    for (const Item &item : items) {
        for (const char *const bad : {item.bad, ""}) {
            folder::write(folder::path / item.name, bad);
            warnings.clear();
            assert_int_equal(item.value(read()), item.value(defaults));
            assert_true(warned_of(item.name, item.range));
        }
        std::filesystem::remove(folder::path / item.name);
    }
    std::filesystem::create_directory(folder::path / "mem_default");
    warnings.clear();
    assert_int_equal(read().settings.receive_bytes, defaults.settings.receive_bytes);
    assert_true(warned_of("mem_default", "cannot be read"));
}

void interfaces_have_devices(void **) {
    folder::write(folder::path / "devices", "eth7 soft\nlo\n");
    assert_false(read().devices.empty());
    assert_true(warned_of("devices:2: \"lo\" is left out", "expected an interface and a device"));
}

void a_variable_has_the_last_word(void **) {
    for (const Item &item : items) {
        if (item.variable == nullptr) {
            continue;
        }
        folder::write(folder::path / item.name, "17");
        setenv(item.variable, item.good, 1);
        assert_int_equal(item.value(read()), std::stoull(item.good));
        assert_true(warnings.empty());
        setenv(item.variable, item.bad, 1);
        assert_int_equal(item.value(read()), 17);
        assert_true(warned_of(item.variable, item.range));
        warnings.clear();
        unsetenv(item.variable);
    }
}

void support_of_fork_is_a_number(void **) {
    assert_false(read().fork_safe);
    setenv("RDMAV_FORK_SAFE", "1", 1);
    assert_true(read().fork_safe);
    setenv("RDMAV_FORK_SAFE", "0", 1);
    assert_false(read().fork_safe);
    assert_true(warnings.empty());
    setenv("RDMAV_FORK_SAFE", "yes", 1);
    assert_false(read().fork_safe);
    assert_true(warned_of("RDMAV_FORK_SAFE", "expected a number"));
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_said_is_the_default, begin, end),
        cmocka_unit_test_setup_teardown(a_file_has_one_number, begin, end),
        cmocka_unit_test_setup_teardown(a_value_that_is_none_is_named_and_not_used, begin, end),
        cmocka_unit_test_setup_teardown(interfaces_have_devices, begin, end),
        cmocka_unit_test_setup_teardown(a_variable_has_the_last_word, begin, end),
        cmocka_unit_test_setup_teardown(support_of_fork_is_a_number, begin, end),
    };
    return cmocka_run_group_tests_name("rsocket_configuration", tests, nullptr, nullptr);
}
