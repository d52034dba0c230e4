// SPDX-License-Identifier: BSD-3-Clause
// librpma/api: the public header, its functions visible outside the library, and what every one of them
// shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <expected>
#include <memory>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "verbs/address.hpp"

// The functions of the header are visible outside the library; all it includes has been included.
#pragma GCC visibility push(default)
#include <librpma.h>
#pragma GCC visibility pop

namespace librpma {

using verbs::error_text;

// A value, or an RPMA_E_ code; what it was about has been logged.
template <typename T>
using Result = std::expected<T, int>;
using Failure = std::unexpected<int>;

// The answer to an argument that the header does not allow: RPMA_E_INVAL, and an ERROR that says of which
// public function and what it found. Out of the way of the calls that succeed.
[[gnu::cold, gnu::noinline]] int invalid(const char *what, const char *function = __builtin_FUNCTION());
// The same, printf-style.
[[gnu::cold, gnu::noinline, gnu::format(printf, 2, 3)]] int invalid_call(const char *function,
                                                                         const char *format, ...);

// A new object, or null when out of memory.
template <typename T, typename... Arguments>
[[nodiscard]] std::unique_ptr<T> make(Arguments &&...arguments) {
    return std::unique_ptr<T>{new (std::nothrow) T(std::forward<Arguments>(arguments)...)};
}

// Hands a new object to the caller of a "new" function.
template <typename T>
int give(Result<std::unique_ptr<T>> made, T **object_ptr) {
    if (!made) {
        return made.error();
    }
    *object_ptr = made->release();
    return 0;
}

// Every "delete" function does this. close() of the object, if it has one, gives the return value.
template <typename T>
int destroy(T **object_ptr, const char *function = __builtin_FUNCTION()) {
    if (object_ptr == nullptr) {
        return invalid("the pointer to the object is NULL", function);
    }
    const std::unique_ptr<T> object{std::exchange(*object_ptr, nullptr)};
    if constexpr (requires { object->close(); }) {
        return object != nullptr ? object->close() : 0;
    }
    return 0;
}

// The errors of several steps that are all done, whatever becomes of one: the first is the one reported.
class FirstError {
public:
    // number: an errno value, 0 when the step succeeded.
    void add(int number, const char *step) {
        if (number != 0) {
            BASE_LOG(Error, "%s failed: %s", step, error_text(number));
            code_ = code_ != 0 ? code_ : RPMA_E_PROVIDER;
        }
    }
    void add_code(int code) { code_ = code_ != 0 ? code_ : code; }
    [[nodiscard]] int code() const { return code_; }

private:
    int code_ = 0;
};

}  // namespace librpma
