// SPDX-License-Identifier: BSD-3-Clause
// base/thread_safety: annotations that say which lock a declaration needs. clang's thread safety analysis
// checks them; other compilers ignore them.
#pragma once

#ifdef __clang__
#define RPMA_THREAD_SAFETY(...) __attribute__((__VA_ARGS__))
#else
#define RPMA_THREAD_SAFETY(...)
#endif

// For a class: its objects are locks, or its objects hold a lock until they are destroyed.
#define CAPABILITY(name) RPMA_THREAD_SAFETY(capability(name))
#define SCOPED_CAPABILITY RPMA_THREAD_SAFETY(scoped_lockable)

// For a variable: it is used, or the object that it points to is used, with the lock held.
#define GUARDED_BY(...) RPMA_THREAD_SAFETY(guarded_by(__VA_ARGS__))
#define PT_GUARDED_BY(...) RPMA_THREAD_SAFETY(pt_guarded_by(__VA_ARGS__))

// For a function: its caller holds the locks, or does not hold them.
#define REQUIRES(...) RPMA_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) RPMA_THREAD_SAFETY(requires_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) RPMA_THREAD_SAFETY(locks_excluded(__VA_ARGS__))

// For a function: it takes the locks, releases them, or takes them when it returns the first argument.
#define ACQUIRE(...) RPMA_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) RPMA_THREAD_SAFETY(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) RPMA_THREAD_SAFETY(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) RPMA_THREAD_SAFETY(release_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) RPMA_THREAD_SAFETY(try_acquire_capability(__VA_ARGS__))

// For a function: the lock is held when it returns, or it returns a reference to the lock.
#define ASSERT_CAPABILITY(...) RPMA_THREAD_SAFETY(assert_capability(__VA_ARGS__))
#define ASSERT_SHARED_CAPABILITY(...) RPMA_THREAD_SAFETY(assert_shared_capability(__VA_ARGS__))
#define RETURN_CAPABILITY(...) RPMA_THREAD_SAFETY(lock_returned(__VA_ARGS__))
