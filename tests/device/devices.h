// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the tests of the device allocator's behaviour share.
//
//   DEVICE_TEST(test_device__merges) { ... tide_machine* m ... tide_device_cache* d ... }
//   TORCH_TEST(test_device__splits_as_torch_does) { ... }
//
// A DEVICE_TEST runs on host, dry and cuda, and with both policies. With DEVICE_HAS_PLAIN defined, it also
// runs with the policy tide and plain pools. A TORCH_TEST is about where torch puts
// blocks and how it sizes segments, or about options that only torch heeds.
//
// A test gets a fresh machine `m` (see machines.h) and a fresh allocator `d` on its device 0 with the default
// options of the policy. It may leave everything to tide_device_free(). After the test all invariants of the
// allocator hold; after freeing it no byte of its heap is left and the device has the memory it had.
//
// take() and give() are requests and releases, current() and counter() ask the statistics.
#ifndef TIDEMARK_TESTS_DEVICES_H
#define TIDEMARK_TESTS_DEVICES_H

#include "machine/caches.h"
#include "tidemark/device.h"

// ---------------------------------------------------------------------------------------------------
// Running a test

static const char* const device_names[] = { "host",
                                            "dry",
                                            "cuda",
                                            "host tide",
                                            "dry tide",
                                            "cuda tide",
#ifdef DEVICE_HAS_PLAIN  // a file about private pools also runs with plain ones
                                            "host tide plain",
                                            "dry tide plain",
                                            "cuda tide plain",
#endif
                                            NULL };
static const char* const device_emulated[] = { "host", "dry", "host tide", "dry tide", NULL };
static const char* const device_host[] = { "host", "host tide", NULL };
static const char* const device_tide[] = { "host tide", "dry tide", "cuda tide", NULL };
static const char* const device_tide_emulated[] = { "host tide", "dry tide", NULL };

typedef void (*device_body)(tide_machine* m, tide_device_cache* d);

static device_body device_body_now;

// Does the variant of the test name the policy tide?
static inline bool is_tide(void) { return strstr(t_variant(), " tide") != NULL; }

// Does it name plain pools, which are raw memory also with the policy tide?
static inline bool has_plain_pools(void) { return strstr(t_variant(), " plain") != NULL; }

// The default options of the policy that the test runs with; but no memory is to lie idle, so that programs
// as small as tests stitch.
static inline tide_device_options device_defaults(void) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = is_tide() ? TIDE_POLICY_TIDE : TIDE_POLICY_TORCH;
  options.tide_idle_handles = 0;
  options.plain_pools = has_plain_pools();
  options.tide_stitch_share = 1;  // how fast the computer is decides nothing
  return options;
}

// How memory is taken from the machine and given back, for the history and for faults.
static inline uint8_t growth_action(void) {
  return is_tide() ? TIDE_ACTION_SEGMENT_MAP : TIDE_ACTION_SEGMENT_ALLOC;
}
static inline uint8_t shrink_action(void) {
  return is_tide() ? TIDE_ACTION_SEGMENT_UNMAP : TIDE_ACTION_SEGMENT_FREE;
}
static inline uint8_t pool_shrink_action(void) {
  return has_plain_pools() ? TIDE_ACTION_SEGMENT_FREE : shrink_action();
}
static inline tide_call growth_call(void) { return is_tide() ? TIDE_CALL_PHYSICAL_NEW : TIDE_CALL_RAW_ALLOC; }
static inline tide_call shrink_call(void) { return is_tide() ? TIDE_CALL_UNMAP : TIDE_CALL_RAW_RELEASE; }

static inline tide_device_cache* device_new(tide_machine* m, int index, const tide_heap* heap) {
  tide_device_options options = device_defaults();
  tide_device_cache* d = NULL;
  options.heap = heap;
  T_OK(tide_device_new(m, index, &options, &d));
  T_CHECK(d != NULL);
  return d;
}

static inline void device_expect_valid(tide_device_cache* d) {
  const int broken = tide_device_check(d);
  if (broken != 0) T_FAIL("invariant %d: %s", broken, tide_last_error()->text);
}

// Detaches the observers that a test left behind, whose data is gone: freeing the allocator would call them.
// The numbers of observers rise from 1.
static inline void device_detach_all(tide_device_cache* d) {
  for (tide_observer observer = 1; observer <= 128; ++observer) (void)tide_device_detach(d, observer);
}

static inline void device_run_on(tide_machine* m) {
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, false);
  window_prepare(m, 0);
  const size_t before = free_bytes(m, 0);
  tide_device_cache* const d = device_new(m, 0, &records.heap);

  device_body_now(m, d);
  device_detach_all(d);
  device_expect_valid(d);
  tide_device_free(d);

  T_EQ(atomic_load(&records.outstanding), 0);
  if (!is_cuda(m)) T_EQ(free_bytes(m, 0), before);  // others use a real device as well
}

static inline void device_run(device_body body) {
  device_body_now = body;
  machine_run(device_run_on);
}

#define DEVICE_TEST_OVER(function, names)                      \
  static void function(tide_machine* m, tide_device_cache* d); \
  static void function##_run(void) { device_run(function); }   \
  T_REGISTER(function, function##_run, names)                  \
  static void function(__attribute__((unused)) tide_machine* m, __attribute__((unused)) tide_device_cache* d)
#define DEVICE_TEST(function) DEVICE_TEST_OVER(function, device_names)
#define TORCH_TEST(function) DEVICE_TEST_OVER(function, machine_names)

// The machine's time, in ns.
static inline uint64_t clock_of(tide_machine* m) {
  uint64_t ns = 0;
  T_OK(tide_machine_clock(m, &ns));
  return ns;
}

// A dry machine whose devices have so many bytes.
static inline tide_machine* dry_of(uint64_t capacity) {
  tide_dry_options options = TIDE_DRY_OPTIONS_INIT;
  tide_machine* m = NULL;
  options.capacity = capacity;
  T_OK(tide_machine_new_dry(&options, &m));
  return m;
}

// Another allocator on device 0: the defaults of the library with what a text says.
static inline tide_device_cache* device_with(tide_machine* m, const char* text) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_cache* d = NULL;
  T_OK(tide_device_options_parse(text, &options));
  T_OK(tide_device_new(m, 0, &options, &d));
  return d;
}

// Calls of the machine that succeeded, and the ranges of addresses that are reserved now.
static inline uint64_t calls(const tide_machine* m, tide_call call) {
  const tide_call_stats stats = tide_machine_call_stats(m, call);
  return stats.calls - stats.failures;
}
static inline uint64_t reservations(const tide_machine* m) {
  return calls(m, TIDE_CALL_ADDRESS_RESERVE) - calls(m, TIDE_CALL_ADDRESS_RELEASE);
}

#define RUN_THREADS_MAX 16

// Runs a function on several threads at once, and waits for them.
static inline void run_threads(size_t count, void* (*function)(void*), void* user) {
  pthread_t threads[RUN_THREADS_MAX];
  T_LE(count, RUN_THREADS_MAX);
  for (size_t i = 0; i < count; ++i) t_thread_start(&threads[i], function, user);
  for (size_t i = 0; i < count; ++i) t_thread_join(threads[i]);
}

// ---------------------------------------------------------------------------------------------------
// Memory

static inline tide_block take(tide_device_cache* d, tide_stream stream, size_t bytes) {
  tide_block block = { NULL, 0 };
  T_OK(tide_device_alloc(d, stream, bytes, &block));
  T_CHECK(block.address != NULL);
  T_EQ((uintptr_t)block.address % 512, 0);
  return block;
}

static inline void give(tide_device_cache* d, tide_block block) { T_OK(tide_device_release(d, block)); }

static inline tide_status try_take(tide_device_cache* d, tide_stream stream, size_t bytes) {
  tide_block block = { NULL, 0 };
  return tide_device_alloc(d, stream, bytes, &block);
}

static inline void expect_oom(tide_device_cache* d, tide_stream stream, size_t bytes) {
  tide_block block = { (void*)1, 1 };
  T_STATUS(tide_device_alloc(d, stream, bytes, &block), TIDE_ERR_NO_MEMORY);
  T_PTR_EQ(block.address, NULL);
}

static inline void announce(tide_device_cache* d, tide_block block, tide_stream stream) {
  T_OK(tide_device_record(d, block, stream));
}

static inline void trim(tide_device_cache* d) { T_OK(tide_device_trim(d, 0)); }

// Announces a block to a stream and releases it.
static inline void give_announced(tide_device_cache* d, tide_block block, tide_stream stream) {
  announce(d, block, stream);
  give(d, block);
}

static inline void limit_to(tide_device_cache* d, uint64_t bytes) { T_OK(tide_device_set_limit(d, bytes)); }

// Writes on a stream, without waiting.
static inline void paint(tide_machine* m, tide_stream stream, tide_block block, uint8_t value, size_t bytes) {
  T_OK(tide_machine_fill(m, 0, stream, block.address, value, bytes));
}

// ---------------------------------------------------------------------------------------------------
// Streams

// Queues work that takes a moment.
static inline void work_slowly(tide_machine* m, tide_stream stream) {
  if (is_dry(m)) T_OK(tide_dry_work(m, 0, stream, 1000000));
  else T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
}

// New memory takes long enough for other threads to go on.
static inline void slow_calls(tide_machine* m) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = TIDE_CALL_PHYSICAL_NEW;
  fault.status = TIDE_OK;
  fault.count = UINT64_MAX;
  fault.latency_ns = 200000;
  T_OK(tide_machine_fault_add(m, &fault));
}

// ---------------------------------------------------------------------------------------------------
// Options

// The defaults with what a text says, in force from now on.
static inline void configure(tide_device_cache* d, const char* text) {
  tide_device_options options = device_defaults();
  T_OK(tide_device_options_parse(text, &options));
  T_OK(tide_device_configure(d, &options));
}

static inline void need_virtual(tide_machine* m) { (void)granularity(m); }

static inline void expand(tide_machine* m, tide_device_cache* d) {
  need_virtual(m);
  configure(d, "expandable_segments:True");
}

// ---------------------------------------------------------------------------------------------------
// Statistics

static inline tide_device_stats stats_of(tide_device_cache* d) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  T_OK(tide_device_get_stats(d, &stats));
  return stats;
}

#define current(d, stat) (stats_of(d).stat[TIDE_STAT_ALL].current)
#define counter(d, name) (stats_of(d).name)

// Polls, after which so many blocks are handed out or wait.
#define expect_polled(d, active_blocks)      \
  do {                                       \
    T_OK(tide_device_poll(d));               \
    T_EQ(current(d, active), active_blocks); \
  } while (0)

// Trims, after which so much is reserved.
#define expect_trimmed(d, bytes)             \
  do {                                       \
    trim(d);                                 \
    T_EQ(current(d, reserved_bytes), bytes); \
  } while (0)

// ---------------------------------------------------------------------------------------------------
// Pools

static inline tide_pool pool_new(tide_device_cache* d, const tide_pool_options* options) {
  tide_pool pool = 0;
  T_OK(tide_device_pool_new(d, options, &pool));
  T_NE(pool, TIDE_POOL_DEFAULT);
  return pool;
}

static inline uint32_t pool_users(tide_device_cache* d, tide_pool pool) {
  uint32_t users = 0;
  T_OK(tide_device_pool_users(d, pool, &users));
  return users;
}

static inline uint64_t pool_reserved(tide_device_cache* d, tide_pool pool) {
  uint64_t bytes = 0;
  T_OK(tide_device_pool_reserved(d, pool, &bytes));
  return bytes;
}

// Opens a scope as a capture does, whose graph is a user of the pool from then on.
static inline tide_status pool_begin_kept(tide_device_cache* d, tide_pool pool, const tide_scope* scope) {
  tide_status status = tide_device_pool_retain(d, pool);
  if (status != TIDE_OK) return status;
  status = tide_device_pool_begin(d, pool, scope);
  if (status != TIDE_OK) tide_device_pool_drop(d, pool);
  return status;
}

// Sends the requests of this thread to a pool.
static inline void scope_open(tide_device_cache* d, tide_pool pool) {
  const tide_scope scope = TIDE_SCOPE_INIT;
  T_OK(pool_begin_kept(d, pool, &scope));
}

// Ends it, and gives up the user that came with it.
static inline void scope_close(tide_device_cache* d, tide_pool pool) {
  T_OK(tide_device_pool_end(d, pool));
  T_OK(tide_device_pool_drop(d, pool));
}

static inline tide_block take_in(tide_device_cache* d, tide_pool pool, tide_stream stream, size_t bytes) {
  scope_open(d, pool);
  const tide_block block = take(d, stream, bytes);
  scope_close(d, pool);
  return block;
}

// Opens a scope that asks a filter.
static inline void filter_open(tide_device_cache* d, tide_pool pool,
                               bool (*filter)(void* user, tide_stream stream), void* user) {
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.kind = TIDE_SCOPE_FILTER;
  scope.filter = filter;
  scope.user = user;
  T_OK(pool_begin_kept(d, pool, &scope));
}

// Captures a stream, with a scope for its requests.
static inline void capture_open_as(tide_machine* m, tide_device_cache* d, tide_stream stream, tide_pool pool,
                                   tide_capture_mode mode) {
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.kind = TIDE_SCOPE_CAPTURE;
  scope.stream = stream;
  T_OK(tide_machine_capture_begin(m, 0, stream, mode));
  T_OK(pool_begin_kept(d, pool, &scope));
}

static inline void capture_open(tide_machine* m, tide_device_cache* d, tide_stream stream, tide_pool pool) {
  capture_open_as(m, d, stream, pool, TIDE_CAPTURE_THREAD_LOCAL);
}

static inline tide_launch capture_close(tide_machine* m, tide_device_cache* d, tide_stream stream,
                                        tide_pool pool) {
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  scope_close(d, pool);
  return graph;
}

// ---------------------------------------------------------------------------------------------------
// Looking inside

static inline seen look(tide_device_cache* d) {
  seen s = { .segment_count = 0 };
  const tide_device_visitor visitor = { seen_segment, seen_block, &s };
  T_OK(tide_device_visit(d, &visitor));
  return s;
}

static inline seen look_at_pool(tide_device_cache* d, tide_pool pool) {
  seen s = { .segment_count = 0 };
  const tide_device_visitor visitor = { seen_segment, seen_block, &s };
  T_OK(tide_device_visit_pool(d, pool, &visitor));
  return s;
}

// The segment around an address; NULL if there is none.
static inline const tide_segment_info* seen_around(const seen* s, const void* address) {
  for (size_t i = 0; i < s->segment_count; ++i) {
    const uint64_t offset = (uint64_t)(uintptr_t)address - s->segments[i].address;
    if (offset < s->segments[i].bytes) return &s->segments[i];
  }
  return NULL;
}

static inline size_t count_all_blocks(tide_device_cache* d) { return look(d).block_count; }

static inline size_t count_idle_blocks(tide_device_cache* d) {
  const seen s = look(d);
  size_t count = 0;
  for (size_t i = 0; i < s.block_count; ++i) count += s.blocks[i].state == TIDE_BLOCK_INACTIVE;
  return count;
}

static inline size_t count_segments(tide_device_cache* d) { return look(d).segment_count; }

static inline size_t segment_bytes_around(tide_device_cache* d, tide_block block) {
  const seen s = look(d);
  const tide_segment_info* const segment = seen_around(&s, block.address);
  T_CHECK(segment != NULL);
  return (size_t)segment->bytes;
}

// ---------------------------------------------------------------------------------------------------
// Observers

#define DEVICE_OBSERVE(kind, type)                                                              \
  static inline tide_observer observe_##kind(tide_device_cache* d, type function, void* user) { \
    tide_observer observer = 0;                                                                 \
    T_OK(tide_device_observe_##kind(d, function, user, &observer));                             \
    return observer;                                                                            \
  }
DEVICE_OBSERVE(oom, tide_oom_fn)
DEVICE_OBSERVE(trace, tide_trace_fn)
DEVICE_OBSERVE(entries, tide_entry_fn)
DEVICE_OBSERVE(reclaim, tide_reclaim_fn)
#undef DEVICE_OBSERVE

// ---------------------------------------------------------------------------------------------------
// History

#define STORY_ENTRIES 512

typedef struct story {
  size_t count;
  tide_trace_entry entries[STORY_ENTRIES];
} story;

static inline bool story_add(void* user, const tide_trace_entry* entries, size_t count) {
  story* const s = user;
  T_LE(s->count + count, STORY_ENTRIES);
  memcpy(&s->entries[s->count], entries, count * sizeof *entries);
  s->count += count;
  return true;
}

static inline story read_story(tide_device_cache* d) {
  story s = { .count = 0 };
  T_OK(tide_device_history_visit(d, story_add, &s));
  return s;
}

static inline size_t story_times(const story* s, tide_action action) {
  size_t times = 0;
  for (size_t i = 0; i < s->count; ++i) times += s->entries[i].action == action;
  return times;
}

// The newest entry of an action, which must be there.
static inline const tide_trace_entry* story_last(const story* s, tide_action action) {
  for (size_t i = s->count; i-- > 0;) {
    if (s->entries[i].action == action) return &s->entries[i];
  }
  T_FAIL("the history has no %s", tide_action_name(action));
}

static inline void history_on(tide_device_cache* d) {
  const tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  T_OK(tide_device_history(d, &options));
}

#endif
