// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the tests of the pinned-host cache share.
//
//   PINNED_TEST(test_pinned__keeps_what_is_released) { ... tide_machine* m ... tide_pinned_cache* p ... }
//   PINNED_TEST_WITH(test_pinned__has_a_helper, machine_names, with_helper) { ... }
//
// A test gets a fresh machine `m` (see machines.h) and a fresh cache `p` with the default options, or with
// those that a function sets. tide_pinned_free() may take back what the test leaves. After the test all
// invariants of the cache must hold. After freeing the cache its heap must be empty, and the machine must
// have all pinned memory and all events of the cache back.
//
// take() and give() are requests and releases, current() and counter() read the statistics.
#ifndef TIDEMARK_TESTS_PINNEDS_H
#define TIDEMARK_TESTS_PINNEDS_H

#include "machine/caches.h"
#include "tidemark/pinned.h"

#define SINGLE (64 * KIB)  // bytes of a block that is pinned on its own, and a class of its own

// ---------------------------------------------------------------------------------------------------
// What the machine has handed out

// Ranges of pinned memory, registrations and events that were not given back yet.
typedef struct holdings {
  uint64_t pinned;
  uint64_t registered;
  uint64_t events;
} holdings;

static inline uint64_t calls_done(const tide_machine* m, tide_call call) {
  const tide_call_stats stats = tide_machine_call_stats(m, call);
  return stats.calls - stats.failures;
}

static inline uint64_t calls_made(const tide_machine* m, tide_call call) {
  return tide_machine_call_stats(m, call).calls;
}

static inline holdings holdings_of(const tide_machine* m) {
  const holdings h = {
    calls_done(m, TIDE_CALL_PINNED_ALLOC) - calls_done(m, TIDE_CALL_PINNED_RELEASE),
    calls_done(m, TIDE_CALL_PINNED_REGISTER) - calls_done(m, TIDE_CALL_PINNED_UNREGISTER),
    calls_done(m, TIDE_CALL_EVENT_NEW) - calls_done(m, TIDE_CALL_EVENT_FREE),
  };
  return h;
}

// Ranges taken from the machine so far, allocated or registered.
static inline uint64_t pieces_made(const tide_machine* m) {
  return calls_done(m, TIDE_CALL_PINNED_ALLOC) + calls_done(m, TIDE_CALL_PINNED_REGISTER);
}

// ---------------------------------------------------------------------------------------------------
// Running a test

typedef void (*pinned_body)(tide_machine* m, tide_pinned_cache* p);
typedef void (*pinned_setup)(tide_pinned_options* options);

static pinned_body pinned_body_now;
static pinned_setup pinned_setup_now;

static inline void pinned_expect_valid(tide_pinned_cache* p) {
  const int broken = tide_pinned_check(p);
  if (broken != 0) T_FAIL("invariant %d: %s", broken, tide_last_error()->text);
}

static inline tide_pinned_cache* pinned_open(tide_machine* m, const tide_pinned_options* options) {
  tide_pinned_cache* p = NULL;
  T_OK(tide_pinned_new(m, options, &p));
  T_CHECK(p != NULL);
  return p;
}

static inline void pinned_run_on(tide_machine* m) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, false);
  options.heap = &records.heap;
  if (pinned_setup_now != NULL) pinned_setup_now(&options);
  window_prepare(m, 0);
  const holdings before = holdings_of(m);
  tide_pinned_cache* const p = pinned_open(m, &options);

  pinned_body_now(m, p);
  const holdings events = holdings_of(m);  // those that the test made for itself are left to the machine
  tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
  pinned_expect_valid(p);
  tide_pinned_free(p, &leaks);

  const holdings after = holdings_of(m);
  T_EQ(leaks.refused_pieces, 0);
  T_EQ(leaks.refused_bytes, 0);
  T_EQ(after.pinned, before.pinned);
  T_EQ(after.registered, before.registered);
  T_LE(after.events, events.events);
  T_EQ(atomic_load(&records.outstanding), 0);
}

static inline void pinned_run(pinned_body body, pinned_setup setup) {
  pinned_body_now = body;
  pinned_setup_now = setup;
  machine_run(pinned_run_on);
}

#define PINNED_TEST_WITH(function, names, setup)                    \
  static void function(tide_machine* m, tide_pinned_cache* p);      \
  static void function##_run(void) { pinned_run(function, setup); } \
  T_REGISTER(function, function##_run, names)                       \
  static void function(tide_machine* m, tide_pinned_cache* p)
#define PINNED_TEST_OVER(function, names) PINNED_TEST_WITH(function, names, NULL)
#define PINNED_TEST(function) PINNED_TEST_OVER(function, machine_names)

// Options that several tests want.
static inline void with_powers(tide_pinned_options* options) { options->powers_of_two = true; }

static inline void with_helper(tide_pinned_options* options) { options->has_helper = true; }

static inline void with_register(tide_pinned_options* options) {
  options->uses_register = true;
  options->register_threads = 8;
}

// ---------------------------------------------------------------------------------------------------
// Requests

static inline tide_block take(tide_pinned_cache* p, size_t bytes) {
  tide_block block = block_none;
  T_OK(tide_pinned_alloc(p, bytes, &block));
  T_CHECK(block.address != NULL);
  T_EQ((uintptr_t)block.address % 512, 0);
  return block;
}

static inline void give(tide_pinned_cache* p, tide_block block) { T_OK(tide_pinned_release(p, block)); }

static inline tide_status try_take(tide_pinned_cache* p, size_t bytes) {
  tide_block block = { (void*)1, 1 };
  const tide_status status = tide_pinned_alloc(p, bytes, &block);
  if (status != TIDE_OK) T_PTR_EQ(block.address, NULL);
  if (status != TIDE_OK) T_EQ(block.handle, 0);
  return status;
}

// From now on the machine has no pinned memory.
static inline void break_pinning(tide_machine* m) {
  break_calls(m, TIDE_CALL_PINNED_ALLOC, TIDE_ERR_NO_MEMORY, UINT64_MAX);
  break_calls(m, TIDE_CALL_PINNED_REGISTER, TIDE_ERR_NO_MEMORY, UINT64_MAX);
}

static inline void expect_oom(tide_pinned_cache* p, size_t bytes) {
  T_STATUS(try_take(p, bytes), TIDE_ERR_NO_MEMORY);
}

static inline void announce(tide_pinned_cache* p, tide_block block, tide_stream stream) {
  T_OK(tide_pinned_record(p, block, 0, stream));
}

static inline void announce_now(tide_pinned_cache* p, tide_block block, tide_stream stream) {
  T_OK(tide_pinned_record_now(p, block, 0, stream));
}

static inline void poll_all(tide_pinned_cache* p) { T_OK(tide_pinned_poll(p)); }

static inline void empty(tide_pinned_cache* p) { T_OK(tide_pinned_empty(p)); }

static inline void trim(tide_pinned_cache* p, uint64_t keep_bytes) { T_OK(tide_pinned_trim(p, keep_bytes)); }

static inline bool is_same_memory(tide_block a, tide_block b) { return a.address == b.address; }

// Writes pinned memory and compares it, on machines that have memory.
static inline void paint(tide_machine* m, tide_block block, uint8_t value, size_t bytes) {
  if (machine_has_memory(m)) memset(block.address, value, bytes);
}

static inline void expect_painted_at(const char* file, int line, tide_machine* m, const void* address,
                                     uint8_t value, size_t bytes) {
  if (machine_has_memory(m)) t_check_filled(file, line, address, value, bytes);
}
#define expect_painted(m, address, value, bytes) \
  expect_painted_at(__FILE__, __LINE__, m, address, value, bytes)

// How many bytes the machine has pinned from this address on.
static inline uint64_t pinned_room(tide_machine* m, const void* address) {
  const tide_pointer_info info = pointer_info(m, address);
  T_EQ(info.kind, TIDE_MEMORY_PINNED);
  return info.bytes - (uint64_t)((uintptr_t)address - (uintptr_t)info.base);
}

// ---------------------------------------------------------------------------------------------------
// Statistics

static inline tide_pinned_stats stats_of(tide_pinned_cache* p) {
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  T_OK(tide_pinned_get_stats(p, &stats));
  return stats;
}

#define current(p, stat) (stats_of(p).stat.current)
#define counter(p, name) (stats_of(p).name)

static inline void expect_stat_at(const char* file, int line, const char* name, tide_stat got,
                                  tide_stat want) {
  if (memcmp(&got, &want, sizeof got) == 0) return;
  t_fail(file, line,
         "%s is { %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 " }, not { %" PRId64 ", %" PRId64
         ", %" PRId64 ", %" PRId64 " }",
         name, got.current, got.peak, got.allocated, got.freed, want.current, want.peak, want.allocated,
         want.freed);
}
// Current, peak, allocated, freed.
#define expect_stat(stats, name, ...) \
  expect_stat_at(__FILE__, __LINE__, #name, (stats).name, (tide_stat){ __VA_ARGS__ })

// Nothing is handed out, waits or is cached.
static inline void expect_nothing_left(tide_pinned_cache* p) {
  const tide_pinned_stats stats = stats_of(p);
#define NOTHING_LEFT(name) T_EQ(stats.name.current, 0);
  TIDE_PINNED_STAT_MAP(NOTHING_LEFT)
#undef NOTHING_LEFT
}

// ---------------------------------------------------------------------------------------------------
// Pools

static inline tide_pool pool_new(tide_pinned_cache* p) {
  tide_pool pool = 0;
  T_OK(tide_pinned_pool_new(p, &pool));
  T_NE(pool, TIDE_POOL_DEFAULT);
  return pool;
}

static inline uint32_t pool_users(tide_pinned_cache* p, tide_pool pool) {
  uint32_t users = 0;
  T_OK(tide_pinned_pool_users(p, pool, &users));
  return users;
}

// Opens a scope as a capture does: its graph becomes a user of the pool.
static inline tide_status pool_begin_kept(tide_pinned_cache* p, tide_pool pool,
                                          const tide_pinned_scope* scope) {
  tide_status status = tide_pinned_pool_retain(p, pool);
  if (status != TIDE_OK) return status;
  status = tide_pinned_pool_begin(p, pool, scope);
  if (status != TIDE_OK) tide_pinned_pool_drop(p, pool);
  return status;
}

// Sends the requests of this thread to a pool.
static inline void scope_open(tide_pinned_cache* p, tide_pool pool) { T_OK(pool_begin_kept(p, pool, NULL)); }

// Closes it, and removes that user.
static inline void scope_close(tide_pinned_cache* p, tide_pool pool) {
  T_OK(tide_pinned_pool_end(p, pool));
  T_OK(tide_pinned_pool_drop(p, pool));
}

static inline tide_block take_in(tide_pinned_cache* p, tide_pool pool, size_t bytes) {
  scope_open(p, pool);
  const tide_block block = take(p, bytes);
  scope_close(p, pool);
  return block;
}

// ---------------------------------------------------------------------------------------------------
// Looking inside

// The segments and blocks; valid until the next look.
static inline const seen* look(tide_pinned_cache* p) {
  static seen s;
  memset(&s, 0, sizeof s);
  const tide_device_visitor visitor = { seen_segment, seen_block, &s };
  T_OK(tide_pinned_visit(p, &visitor));
  return &s;
}

// The block at an address, which must be there.
static inline const tide_block_info* seen_at(const seen* s, const void* address) {
  for (size_t i = 0; i < s->block_count; ++i) {
    if (s->blocks[i].address == (uintptr_t)address) return &s->blocks[i];
  }
  T_FAIL("no block is shown at %p", address);
}

// What a pool has: bytes of its segments, and of its blocks that are handed out or wait.
static inline tide_segment_info pool_sum(tide_pinned_cache* p, tide_pool pool) {
  const seen* const s = look(p);
  tide_segment_info sum = { .pool = pool };
  for (size_t i = 0; i < s->segment_count; ++i) {
    if (s->segments[i].pool != pool) continue;
    sum.bytes += s->segments[i].bytes;
    sum.active_bytes += s->segments[i].active_bytes;
  }
  return sum;
}

static inline uint32_t state_of(tide_pinned_cache* p, tide_block block) {
  return seen_at(look(p), block.address)->state;
}

#endif
