// SPDX-License-Identifier: BSD-3-Clause
// librpma/api: includes the public header with its functions visible outside the library, and has the code
// that all functions share.
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

// The functions of the header are visible outside the library. The headers that it includes have been
// included before.
#pragma GCC visibility push(default)
#include <librpma.h>
#pragma GCC visibility pop

namespace librpma {

using verbs::error_text;

// A value, or an RPMA_E_ code whose reason has been logged.
template <typename T>
using Result = std::expected<T, int>;
using Failure = std::unexpected<int>;

// Returns RPMA_E_INVAL for an argument that the header does not allow, and logs an ERROR with the public
// function and the argument. It is not inline, so that calls that succeed do not pay for it.
[[gnu::cold, gnu::noinline]] int invalid(const char *what, const char *function = __builtin_FUNCTION());
// Does the same with printf's format.
[[gnu::cold, gnu::noinline, gnu::format(printf, 2, 3)]] int invalid_call(const char *function,
                                                                         const char *format, ...);

// Returns a new object, or null when there is no memory.
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

// Every "delete" function calls this. The object's close(), if it has one, gives the return value.
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

// The errors of several steps, which are all done even when one fails. The first error is reported.
class FirstError {
public:
    // `number` is an errno value, 0 when the step succeeded.
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
