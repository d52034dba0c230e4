// SPDX-License-Identifier: BSD-3-Clause
// base/mutex: the mutex of an object that ends. A std::mutex begins and ends without a call, and a race
// detector takes the next one at its address for the same: it then knows an order of locks that there never
// was.
#pragma once

#include <pthread.h>

#include <mutex>

namespace base {

class Mutex : public std::mutex {
public:
    Mutex() { static_cast<void>(pthread_mutex_init(native_handle(), nullptr)); }
    // The owner's last reference may have been given up without this mutex, in a way that a race detector
    // does not see (the count of a shared_ptr). Taking the mutex shows it that each unlock came before the
    // end.
    ~Mutex() {
        if (try_lock()) {
            unlock();
        }
        static_cast<void>(pthread_mutex_destroy(native_handle()));
    }
    Mutex(const Mutex &) = delete;
    Mutex &operator=(const Mutex &) = delete;
};

}  // namespace base
