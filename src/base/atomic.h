// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Short names for atomic operations. `relaxed` is for counters and hints, `acquire` and `release` publish
// earlier writes, and `seq` is for two sides that each write one variable and read the other.
#ifndef TIDEMARK_SRC_BASE_ATOMIC_H
#define TIDEMARK_SRC_BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint64_t tide__atomic_u64;
typedef _Atomic uint32_t tide__atomic_u32;
typedef _Atomic uint8_t tide__atomic_u8;

#define tide__load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define tide__load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define tide__load_seq(p) atomic_load_explicit((p), memory_order_seq_cst)
#define tide__store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define tide__store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define tide__store_seq(p, v) atomic_store_explicit((p), (v), memory_order_seq_cst)
#define tide__add_relaxed(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define tide__add_release(p, v) atomic_fetch_add_explicit((p), (v), memory_order_release)
#define tide__add_seq(p, v) atomic_fetch_add_explicit((p), (v), memory_order_seq_cst)
#define tide__sub_seq(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_seq_cst)

// Sets or clears bits of a word that other threads change as well.
static inline void tide__bits_set(tide__atomic_u32* word, uint32_t bits, bool is_set) {
  if (is_set) (void)atomic_fetch_or(word, bits);
  else (void)atomic_fetch_and(word, ~bits);
}

// The thread sanitizer does not see ordering by a barrier of another thread, or by an address dependency. In
// its builds such loads acquire and such stores release.
#if defined(__has_feature)
#define TIDE__HAS_FEATURE(name) __has_feature(name)
#else
#define TIDE__HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || TIDE__HAS_FEATURE(thread_sanitizer)
#define tide__load_ordered tide__load_acquire
#define tide__store_ordered tide__store_release
#define tide__add_ordered(p, v) atomic_fetch_add_explicit((p), (v), memory_order_acquire)
#else
#define tide__load_ordered tide__load_relaxed
#define tide__store_ordered tide__store_relaxed
#define tide__add_ordered tide__add_relaxed
#endif

// A hint for the processor, inside a spin loop.
static inline void tide__cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
