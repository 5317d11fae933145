// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A heap with a limit: that it counts what is in use, refuses what is too much, and passes the rest on.
#include "base/limited_heap.h"
#include "machine/counting_heap.h"

#define SLOTS 32u

static void* take(tide__limited_heap* limited, size_t bytes) {
  return limited->heap.alloc(limited->heap.user, bytes, 16);
}

static void give(tide__limited_heap* limited, void* address, size_t bytes) {
  limited->heap.release(limited->heap.user, address, bytes);
}

// The heap below counts for itself. An allocation must fail exactly if it would take that count over the
// limit.
T_TEST(test_limited_heap__refuses_exactly_what_exceeds_the_limit) {
  t_rng rng = t_rng_new(1);
  counting_heap h;
  tide__limited_heap limited;
  void* addresses[SLOTS] = { NULL };
  size_t bytes[SLOTS] = { 0 };
  uint64_t limit = 1000;
  bool has_refused = false;
  counting_heap_init(&h, SIZE_MAX, false);
  tide__limited_heap_init(&limited, &h.heap, limit);
  for (size_t i = 0; i < t_scaled(20000); i++) {
    const size_t slot = t_rng_below(&rng, SLOTS);
    const size_t before = atomic_load(&h.outstanding);
    if (addresses[slot] != NULL) {
      give(&limited, addresses[slot], bytes[slot]);
      addresses[slot] = NULL;
      T_EQ(atomic_load(&h.outstanding), before - bytes[slot]);
      continue;
    }
    bytes[slot] = 1 + t_rng_below(&rng, 200);
    addresses[slot] = take(&limited, bytes[slot]);
    T_EQ(addresses[slot] != NULL, before + bytes[slot] <= limit);
    has_refused |= addresses[slot] == NULL;
    T_EQ(tide__limited_heap_has_refused(&limited), has_refused);
    T_EQ(tide__load_relaxed(&limited.taken), atomic_load(&h.outstanding));
    if (t_rng_below(&rng, 100) == 0) limit += t_rng_below(&rng, 3);
    tide__limited_heap_raise(&limited, limit);
    tide__limited_heap_raise(&limited, limit / 2);  // has no effect
  }
  T_CHECK(has_refused);
  for (size_t i = 0; i < SLOTS; i++) {
    if (addresses[i] != NULL) give(&limited, addresses[i], bytes[i]);
  }
  T_EQ(atomic_load(&h.outstanding), 0);
}

T_TEST(test_limited_heap__counts_nothing_for_memory_that_is_not_there) {
  counting_heap h;
  tide__limited_heap limited;
  counting_heap_init(&h, 0, true);
  tide__limited_heap_init(&limited, &h.heap, 100);
  for (int i = 0; i < 10; i++) T_PTR_EQ(take(&limited, 60), NULL);
  T_EQ(tide__load_relaxed(&limited.taken), 0);
  T_CHECK(!tide__limited_heap_has_refused(&limited));
  T_PTR_EQ(take(&limited, SIZE_MAX), NULL);
  T_CHECK(tide__limited_heap_has_refused(&limited));
  T_EQ(tide__load_relaxed(&limited.taken), 0);
}

T_TEST(test_limited_heap__gives_memory_that_the_other_heap_may_release) {
  counting_heap h;
  tide__limited_heap limited;
  counting_heap_init(&h, SIZE_MAX, false);
  tide__limited_heap_init(&limited, &h.heap, UINT64_MAX);
  void* const address = take(&limited, 48);
  T_CHECK(address != NULL);
  h.heap.release(h.heap.user, address, 48);
  T_EQ(atomic_load(&h.outstanding), 0);
}
