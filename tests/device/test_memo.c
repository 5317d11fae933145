// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memos of the last run: what the next one makes ahead, what becomes of memory that it does not need, and
// files that are not what they should be. Figures of driver time come from the clock of the dry machine.
#define T_THREADS
#include <sched.h>

#include "device/devices.h"

#define SETTINGS "policy:tide,tide_idle_handles:0,tide_stitch_share:1"
enum { BLOCKS = 24 };

static const char* memo_path(void) {
  static char path[128];
  (void)snprintf(path, sizeof path, "/tmp/tidemark-memo-%d", (int)getpid());
  return path;
}

static void write_text(const char* text, size_t length) {
  FILE* const file = fopen(memo_path(), "w");
  T_CHECK(file != NULL && fwrite(text, 1, length, file) == length && fclose(file) == 0);
}

static uint64_t ahead_of(tide_device_cache* d) { return (uint64_t)stats_of(d).ahead_bytes.current; }

static tide_machine* host_of(uint64_t capacity) {
  tide_host_options options = TIDE_HOST_OPTIONS_INIT;
  tide_machine* m = NULL;
  options.capacity = capacity;
  T_OK(tide_machine_new_host(&options, &m));
  return m;
}

// A step of a program: blocks of several sizes, half of them at once; returns the driver time that its
// requests waited for.
static uint64_t step(tide_machine* m, tide_device_cache* d, size_t mib) {
  tide_block blocks[BLOCKS];
  const uint64_t begin_ns = clock_of(m);
  const int64_t helped_ns = counter(d, ahead_ns);
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = take(d, NULL, (i % 5 + 1) * mib * MIB);
    if (i % 2 == 1) give(d, blocks[i - 1]);
  }
  for (size_t i = 1; i < BLOCKS; i += 2) give(d, blocks[i]);
  return clock_of(m) - begin_ns - (uint64_t)(counter(d, ahead_ns) - helped_ns);
}

// A run of ten steps; the times of the first and of the last.
typedef struct times {
  uint64_t first_ns;
  uint64_t last_ns;
  uint64_t peak;
} times;

static times run(const char* load, const char* save, size_t mib) {
  tide_machine* const m = dry_of((uint64_t)32 << 30);
  tide_device_cache* const d = device_with(m, SETTINGS);
  times t = { 0, 0, 0 };
  if (load != NULL) T_OK(tide_device_memo_load(d, load));
  give(d, take(d, NULL, 2 * MIB));  // before the first step
  t.first_ns = step(m, d, mib);
  for (int i = 0; i < 9; i++) t.last_ns = step(m, d, mib);
  t.peak = (uint64_t)stats_of(d).reserved_bytes[TIDE_STAT_ALL].peak;
  device_expect_valid(d);
  if (save != NULL) T_OK(tide_device_memo_save(d, save));
  tide_device_free(d);
  tide_machine_free(m);
  return t;
}

T_TEST(test_memo__the_first_step_is_as_the_tenth) {
  const times before = run(NULL, memo_path(), 32);
  T_CHECK(before.first_ns > 1000000);
  T_EQ(before.last_ns, 0);
  for (int i = 0; i < 6; i++) {  // memos of runs with memos do not grow
    const times after = run(memo_path(), memo_path(), 32);
    T_LE(after.first_ns, before.first_ns / 16);  // a view may be left to make
    if (i >= 2) T_EQ(after.first_ns, 0);         // until the memo is one of a run with the same handles
    T_EQ(after.last_ns, 0);
    T_LE(after.peak, before.peak + before.peak / 100);
  }
  (void)unlink(memo_path());
}

// The memo of a program of another size: steps cost no more than without.
T_TEST(test_memo__of_another_program_harms_nothing) {
  static const size_t sizes[] = { 2, 8, 64, 100 };
  (void)run(NULL, memo_path(), 32);
  for (size_t i = 0; i < 4; i++) {
    const times alone = run(NULL, NULL, sizes[i]);
    const times with = run(memo_path(), NULL, sizes[i]);
    T_LE(with.first_ns, alone.first_ns);
    T_LE(with.last_ns, alone.last_ns);
  }
  (void)unlink(memo_path());
}

// ---------------------------------------------------------------------------------------------------
// Views

// All handles have 2 MiB, so that the runs of a program have the same ones.
#define EQUAL "policy:tide,tide_idle_handles:0,tide_stitch_share:1,tide_slack:0,tide_most_handle_mb:2"
enum { VIEW_HANDLES = 15 };

typedef struct pattern {
  tide_block blocks[6];
  tide_block view;
} pattern;

// Six blocks of 10 MiB, of which three become idle.
static pattern pattern_begin(tide_device_cache* d, tide_stream stream) {
  pattern p = { .view = { NULL, 0 } };
  for (int i = 0; i < 6; i++) p.blocks[i] = take(d, stream, 10 * MIB);
  for (int i = 0; i < 6; i += 2) give(d, p.blocks[i]);
  return p;
}

// What only a view of all that is idle can serve.
static pattern pattern_make(tide_device_cache* d, tide_stream stream) {
  pattern p = pattern_begin(d, stream);
  p.view = take(d, stream, 30 * MIB);
  T_EQ(current(d, reserved_bytes), 60 * MIB);
  return p;
}

// Writes a memo of the program.
static void pattern_save(tide_machine* m) {
  tide_device_cache* const d = device_with(m, EQUAL);
  (void)pattern_make(d, NULL);
  T_OK(tide_device_memo_save(d, memo_path()));
  tide_device_free(d);
}

static tide_device_cache* pattern_load(tide_machine* m) {
  tide_device_cache* const d = device_with(m, EQUAL);
  T_OK(tide_device_memo_load(d, memo_path()));
  return d;
}

// The second run maps nothing for its view, and spends no time in the driver.
MACHINE_TEST_OVER(test_memo__views_are_made_ahead, machine_dry) {
  pattern_save(m);
  tide_device_cache* const d = pattern_load(m);
  for (int i = 0; i < 3; i++) {
    const pattern p = pattern_begin(d, NULL);
    device_expect_valid(d);
    const uint64_t begin_ns = clock_of(m);
    const uint64_t maps = calls(m, TIDE_CALL_MAP);
    const tide_block view = take(d, NULL, 30 * MIB);
    T_EQ(calls(m, TIDE_CALL_MAP), maps);
    T_EQ(clock_of(m), begin_ns);
    T_EQ(current(d, reserved_bytes), 60 * MIB);
    device_expect_valid(d);
    give(d, view);
    for (int k = 1; k < 6; k += 2) give(d, p.blocks[k]);
  }
  tide_device_free(d);
  (void)unlink(memo_path());
}

// What a program gets does not depend on them: other sizes make other views.
MACHINE_TEST_OVER(test_memo__views_of_another_program_serve_nobody, machine_dry) {
  pattern_save(m);
  tide_device_cache* const d = pattern_load(m);
  tide_device_cache* const alone = device_with(m, EQUAL);
  tide_device_cache* const both[] = { d, alone };
  uint64_t maps[2];
  for (int i = 0; i < 2; i++) {
    (void)pattern_begin(both[i], NULL);
    const uint64_t before = calls(m, TIDE_CALL_MAP);
    (void)take(both[i], NULL, 20 * MIB);  // a view of two holes
    maps[i] = calls(m, TIDE_CALL_MAP) - before;
    device_expect_valid(both[i]);
  }
  T_EQ(maps[0], 10);
  T_EQ(maps[1], 10);
  tide_device_free(d);
  tide_device_free(alone);
  (void)unlink(memo_path());
}

// Of views that nobody takes, nothing is mapped after a minute.
MACHINE_TEST_OVER(test_memo__views_that_nobody_takes_go_after_a_minute, machine_dry) {
  pattern_save(m);
  tide_device_cache* const d = pattern_load(m);
  (void)pattern_begin(d, NULL);
  const uint64_t before = calls(m, TIDE_CALL_UNMAP);
  T_OK(tide_dry_advance(m, (uint64_t)61 * 1000000000));
  (void)take(d, NULL, 1000);  // a small home grows
  T_EQ(calls(m, TIDE_CALL_UNMAP) - before, VIEW_HANDLES);
  device_expect_valid(d);
  const uint64_t maps = calls(m, TIDE_CALL_MAP);
  (void)take(d, NULL, 30 * MIB);
  T_EQ(calls(m, TIDE_CALL_MAP) - maps, VIEW_HANDLES);
  tide_device_free(d);
  (void)unlink(memo_path());
}

// Any call for memory or views of a memo may fail: the program gets what it gets without. The first request
// makes five handles; all other calls are the helper's.
MACHINE_TEST_OVER(test_memo__faults_of_its_calls_are_nobodys_errors, machine_dry) {
  static const struct {
    tide_call call;
    uint64_t first;
    uint64_t end;
  } every[] = { { TIDE_CALL_PHYSICAL_NEW, 5, 30 },
                { TIDE_CALL_MAP, 5, 30 + VIEW_HANDLES },
                { TIDE_CALL_SET_ACCESS, 1, 26 + VIEW_HANDLES },
                { TIDE_CALL_ADDRESS_RESERVE, 1, 2 } };
  const size_t before = free_bytes(m, 0);
  pattern_save(m);
  for (size_t i = 0; i < sizeof every / sizeof every[0]; i++) {
    for (uint64_t skip = every[i].first; skip < every[i].end; skip++) {
      tide_device_cache* const d = pattern_load(m);
      const uint64_t failures = tide_machine_call_stats(m, every[i].call).failures;
      fault_after(m, every[i].call, TIDE_ERR_MACHINE, skip);
      const pattern p = pattern_make(d, NULL);
      tide_machine_fault_clear(m);
      T_EQ(tide_machine_call_stats(m, every[i].call).failures - failures, 1);
      device_expect_valid(d);
      give(d, p.view);
      T_OK(tide_device_trim(d, 0));
      device_expect_valid(d);
      tide_device_free(d);
      T_EQ(free_bytes(m, 0), before);
    }
  }
  (void)unlink(memo_path());
}

// Views of streams and memory that this run does not have, and views of as many handles as the program's: in
// another order, with handles that are in use, or with a handle twice. The program maps its own.
MACHINE_TEST_OVER(test_memo__views_of_other_handles_serve_nobody, machine_dry) {
  static const char* const views[] = {
    "view 3\npart 0 0 10485760\n",
    "view 0\npart 3 0 10485760\n",
    "view 0\npart 0 62914560 2097152\n",
    "view 0\npart 0 0 576460752303423488\n",
    "view 0\npart 0 576460752303423488 576460752303423488\n",
    "view 0\npart 0 0 10485760\npart 0 0 10485760\npart 0 20971520 10485760\n",
    "view 0\npart 0 20971520 10485760\npart 0 0 10485760\npart 0 41943040 10485760\n",
    "view 0\npart 0 0 31457280\n",
    "view 0\npart 0 10485760 31457280\n",
    "view 0\npart 0 0 62914560\npart 0 0 62914560\n",
  };
  pattern_save(m);
  for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
    char text[512];
    const int length = snprintf(
        text, sizeof text, "tidemark memo 2\npeak 62914560\nstream 0\nhandles 30 2097152\n%send\n", views[i]);
    write_text(text, (size_t)length);
    tide_device_cache* const d = pattern_load(m);
    (void)pattern_begin(d, NULL);
    const uint64_t maps = calls(m, TIDE_CALL_MAP);
    (void)take(d, NULL, 30 * MIB);
    T_EQ(calls(m, TIDE_CALL_MAP) - maps, VIEW_HANDLES);
    device_expect_valid(d);
    tide_device_free(d);
  }
  (void)unlink(memo_path());
}

// By the thread, beside trims, memos that are loaded again, and requests; what is written stays.
HOST_TEST(test_memo__a_thread_makes_views) {
  for (size_t i = 0; i < t_scaled(12); i++) {
    pattern_save(m);
    tide_device_cache* const d = pattern_load(m);
    if (i % 3 == 0) give(d, take(d, NULL, 10 * MIB));
    if (i % 4 == 1) T_OK(tide_device_trim(d, 0));
    if (i % 4 == 2) T_OK(tide_device_memo_load(d, memo_path()));
    const pattern p = pattern_make(d, NULL);
    for (uint8_t k = 1; k < 6; k = (uint8_t)(k + 2)) paint(m, NULL, p.blocks[k], k, 10 * MIB);
    paint(m, NULL, p.view, 99, 30 * MIB);
    stream_finish(m, 0, NULL);
    for (uint8_t k = 1; k < 6; k = (uint8_t)(k + 2)) expect_filled(m, 0, bytes_of(p.blocks[k]), k, 10 * MIB);
    expect_filled(m, 0, bytes_of(p.view), 99, 30 * MIB);
    if (i % 2 == 0) give(d, p.view);
    if (i % 4 == 3) T_OK(tide_device_trim(d, 0));
    tide_device_free(d);
  }
  (void)unlink(memo_path());
}

// A private pool gets the idle handles of a view while the thread maps them, one by one and slowly.
HOST_TEST(test_memo__views_lose_handles_while_they_are_made) {
  tide_fault slow = TIDE_FAULT_INIT;
  slow.call = TIDE_CALL_MAP;
  slow.status = TIDE_OK;
  slow.count = UINT64_MAX;
  slow.latency_ns = 100000;
  pattern_save(m);
  T_OK(tide_machine_fault_add(m, &slow));
  for (size_t i = 0; i < t_scaled(6); i++) {
    tide_scope scope = TIDE_SCOPE_INIT;
    tide_pool pool = TIDE_POOL_DEFAULT;
    tide_device_cache* const d = pattern_load(m);
    T_OK(tide_device_pool_new(d, NULL, &pool));
    const pattern p = pattern_begin(d, NULL);
    scope.is_region = true;
    T_OK(tide_device_pool_begin(d, pool, &scope));
    const tide_block apart = take(d, NULL, 20 * MIB);
    T_OK(tide_device_pool_end(d, pool));
    T_EQ(current(d, reserved_bytes), 60 * MIB);
    paint(m, NULL, p.blocks[1], 1, 10 * MIB);
    paint(m, NULL, apart, 2, 20 * MIB);
    const tide_block last = take(d, NULL, 30 * MIB);
    paint(m, NULL, last, 3, 30 * MIB);
    stream_finish(m, 0, NULL);
    expect_filled(m, 0, bytes_of(p.blocks[1]), 1, 10 * MIB);
    expect_filled(m, 0, bytes_of(apart), 2, 20 * MIB);
    expect_filled(m, 0, bytes_of(last), 3, 30 * MIB);
    tide_device_free(d);
  }
  (void)unlink(memo_path());
}

// ---------------------------------------------------------------------------------------------------
// Memory

T_TEST(test_memo__what_nobody_takes_goes_back_after_a_minute) {
  (void)run(NULL, memo_path(), 32);
  tide_machine* const m = dry_of((uint64_t)32 << 30);
  tide_device_cache* const d = device_with(m, SETTINGS);
  T_OK(tide_device_memo_load(d, memo_path()));
  T_EQ(ahead_of(d), 0);
  const tide_block block = take(d, NULL, 10 * MIB);
  T_CHECK(ahead_of(d) > 100 * MIB);
  device_expect_valid(d);
  T_OK(tide_dry_advance(m, (uint64_t)59 * 1000000000));
  (void)take(d, NULL, 1000);  // a small home grows
  T_CHECK(ahead_of(d) > 100 * MIB);
  T_OK(tide_dry_advance(m, (uint64_t)2 * 1000000000));
  for (int i = 0; i < 200; i++) (void)take(d, NULL, 400 * KIB);
  T_EQ(ahead_of(d), 0);
  give(d, block);
  device_expect_valid(d);
  tide_device_free(d);
  tide_machine_free(m);
  (void)unlink(memo_path());
}

// A stream has small memory long before its first large block, as a rule.
T_TEST(test_memo__small_memory_of_a_stream_begins_it) {
  (void)run(NULL, memo_path(), 32);
  tide_machine* const m = dry_of((uint64_t)32 << 30);
  tide_device_cache* const d = device_with(m, SETTINGS);
  T_OK(tide_device_memo_load(d, memo_path()));
  (void)take(d, NULL, 1000);
  T_CHECK(ahead_of(d) > 100 * MIB);
  device_expect_valid(d);
  const uint64_t begin_ns = clock_of(m);
  (void)take(d, NULL, 100 * MIB);
  T_EQ(clock_of(m), begin_ns);
  device_expect_valid(d);
  tide_device_free(d);
  tide_machine_free(m);
  (void)unlink(memo_path());
}

// A device whose stream 0 has had memory.
static tide_device_cache* device_used(tide_machine* m) {
  tide_device_cache* const d = device_with(m, SETTINGS);
  give(d, take(d, NULL, 2 * MIB));
  T_OK(tide_device_trim(d, 0));
  T_EQ(current(d, reserved_bytes), 0);
  return d;
}

T_TEST(test_memo__of_a_known_stream_begins_when_it_is_loaded) {
  const times before = run(NULL, memo_path(), 32);
  tide_machine* const m = dry_of((uint64_t)32 << 30);
  tide_device_cache* const d = device_used(m);
  T_OK(tide_device_memo_load(d, memo_path()));
  T_CHECK(ahead_of(d) > 100 * MIB);
  T_LE(step(m, d, 32), before.first_ns / 16);  // a view may be left to make
  device_expect_valid(d);
  tide_device_free(d);
  tide_machine_free(m);
  (void)unlink(memo_path());
}

T_TEST(test_memo__of_a_closed_stream_makes_nothing) {
  (void)run(NULL, memo_path(), 32);
  tide_machine* const m = dry_of((uint64_t)32 << 30);
  tide_device_cache* const d = device_with(m, SETTINGS);
  tide_stream stream = NULL;
  T_OK(tide_machine_stream_new(m, 0, TIDE_STREAM_NON_BLOCKING, 0, &stream));
  give(d, take(d, stream, 2 * MIB));
  T_OK(tide_device_close_stream(d, stream));
  T_OK(tide_device_trim(d, 0));
  T_OK(tide_device_memo_load(d, memo_path()));
  T_EQ(ahead_of(d), 0);
  device_expect_valid(d);
  tide_device_free(d);
  T_OK(tide_machine_stream_free(m, 0, stream));
  tide_machine_free(m);
  (void)unlink(memo_path());
}

// The helper works for a stream, and the stream is closed.
HOST_TEST(test_memo__of_a_stream_ends_when_that_is_closed) {
  static const char text[] = "tidemark memo 1\npeak 838860800\nstream 0\nhandles 400 2097152\nend\n";
  slow_calls(m);
  write_text(text, sizeof text - 1);
  tide_device_cache* const d = device_with(m, SETTINGS);
  const tide_stream stream = side_new(m);
  T_OK(tide_device_memo_load(d, memo_path()));
  give(d, take(d, stream, 1000));
  T_OK(tide_device_close_stream(d, stream));
  const int64_t made = counter(d, num_ahead_handles);
  T_EQ(ahead_of(d), 0);
  for (int i = 0; i < 20000; i++) (void)sched_yield();
  T_EQ(counter(d, num_ahead_handles), made);
  T_EQ(ahead_of(d), 0);
  tide_device_free(d);
  T_OK(tide_machine_stream_free(m, 0, stream));
  (void)unlink(memo_path());
}

// Most of the addresses of the stream have memory of the memo when it asks for much at once.
T_TEST(test_memo__serves_a_large_first_request) {
  static const char text[] = "tidemark memo 1\npeak 838860800\nstream 0\nhandles 400 2097152\nend\n";
  write_text(text, sizeof text - 1);
  tide_machine* const m = dry_of((uint64_t)1 << 30);
  tide_device_cache* const d = device_with(m, SETTINGS);
  T_OK(tide_device_memo_load(d, memo_path()));
  (void)take(d, NULL, 1000);
  T_EQ(ahead_of(d), 800 * MIB);
  const uint64_t begin_ns = clock_of(m);
  (void)take(d, NULL, 500 * MIB);
  T_EQ(clock_of(m), begin_ns);
  T_EQ(ahead_of(d), 300 * MIB);
  device_expect_valid(d);
  tide_device_free(d);
  tide_machine_free(m);
  (void)unlink(memo_path());
}

// Memos have the first 1024 streams alone; a view of an earlier one may have memory of a later one.
T_TEST(test_memo__of_many_streams_can_be_loaded) {
  enum { STREAMS = 1030 };
  tide_block blocks[3];
  tide_stream streams[STREAMS];
  tide_machine* const m = dry_of((uint64_t)64 << 30);
  tide_device_cache* const d = device_with(m, SETTINGS ",tide_slack:0,tide_wait_slack:0,tide_ahead:False");
  for (int i = 0; i < STREAMS; i++) {
    streams[i] = side_new(m);
    give(d, take(d, streams[i], 1000));
  }
  (void)take(d, streams[0], 10 * MIB);
  for (int i = 0; i < 3; i++) blocks[i] = take(d, streams[STREAMS - 1], 10 * MIB);
  give(d, blocks[0]);
  give(d, blocks[2]);
  T_OK(tide_machine_device_synchronize(m, 0));
  const int64_t reserved = current(d, reserved_bytes);
  (void)take(d, streams[0], 20 * MIB);
  T_EQ(current(d, reserved_bytes), reserved);
  T_OK(tide_device_memo_save(d, memo_path()));
  T_OK(tide_device_memo_load(d, memo_path()));
  tide_device_free(d);
  tide_machine_free(m);
  (void)unlink(memo_path());
}

typedef struct saver {
  tide_device_cache* d;
  const char* path;
} saver;

static void* save_often(void* user) {
  const saver* const s = user;
  for (int i = 0; i < 50; i++) T_OK(tide_device_memo_save(s->d, s->path));
  return NULL;
}

MACHINE_TEST_OVER(test_memo__threads_save_at_once, machine_dry) {
  tide_device_cache* const d = device_with(m, SETTINGS);
  for (size_t i = 0; i < 10; i++) (void)take(d, NULL, (i + 1) * 2 * MIB);
  saver s = { d, memo_path() };
  run_threads(4, save_often, &s);
  T_OK(tide_device_memo_load(d, memo_path()));
  tide_device_free(d);
  (void)unlink(memo_path());
}

T_TEST(test_memo__is_loaded_even_if_its_memory_fails) {
  static const tide_call every[] = { TIDE_CALL_ADDRESS_RESERVE, TIDE_CALL_PHYSICAL_NEW, TIDE_CALL_MAP,
                                     TIDE_CALL_SET_ACCESS };
  tide_machine* const m = dry_of((uint64_t)32 << 30);
  const size_t before = free_bytes(m, 0);
  (void)run(NULL, memo_path(), 32);
  for (size_t i = 0; i < sizeof every / sizeof every[0]; i++) {
    tide_device_cache* const d = device_used(m);
    fault_after(m, every[i], TIDE_ERR_MACHINE, 0);
    T_OK(tide_device_memo_load(d, memo_path()));
    T_EQ(ahead_of(d), 0);
    tide_machine_fault_clear(m);
    device_expect_valid(d);
    (void)take(d, NULL, 1000);  // goes on with it
    T_CHECK(ahead_of(d) > 100 * MIB);
    (void)step(m, d, 32);
    device_expect_valid(d);
    tide_device_free(d);
    T_EQ(free_bytes(m, 0), before);
  }
  tide_machine_free(m);
  (void)unlink(memo_path());
}

// Small memory is handed out even if there are no addresses for large memory.
T_TEST(test_memo__small_memory_does_not_depend_on_it) {
  (void)run(NULL, memo_path(), 32);
  tide_machine* const m = dry_of((uint64_t)32 << 30);
  tide_device_cache* const d = device_with(m, SETTINGS);
  T_OK(tide_device_memo_load(d, memo_path()));
  fault_after(m, TIDE_CALL_ADDRESS_RESERVE, TIDE_ERR_MACHINE, 1);  // the first is that of the small home
  (void)take(d, NULL, 1000);
  T_EQ(ahead_of(d), 0);
  tide_machine_fault_clear(m);
  device_expect_valid(d);
  tide_device_free(d);
  tide_machine_free(m);
  (void)unlink(memo_path());
}

// Requests that a device without memo memory serves are served.
T_TEST(test_memo__goes_back_first_when_memory_is_short) {
  (void)run(NULL, memo_path(), 32);
  for (int way = 0; way < 2; way++) {
    tide_machine* const m = dry_of(way == 0 ? 900 * MIB : (uint64_t)32 << 30);
    tide_device_cache* const d = device_with(m, SETTINGS);
    tide_stream side = NULL;
    size_t free_bytes = 0;
    size_t total = 0;
    T_OK(tide_machine_stream_new(m, 0, TIDE_STREAM_NON_BLOCKING, 0, &side));
    if (way == 1) T_OK(tide_device_set_limit(d, 900 * MIB));
    T_OK(tide_device_memo_load(d, memo_path()));
    (void)take(d, NULL, 100 * MIB);
    T_CHECK(ahead_of(d) > 300 * MIB);
    T_OK(tide_machine_memory_info(m, 0, &free_bytes, &total));
    T_LE(total / 32, free_bytes);
    (void)take(d, side, 780 * MIB);
    T_EQ(ahead_of(d), 0);
    expect_oom(d, side, 40 * MIB);
    device_expect_valid(d);
    tide_device_free(d);
    tide_machine_free(m);
  }
  (void)unlink(memo_path());
}

// What is refused changes nothing: nothing is made ahead by it.
MACHINE_TEST_OVER(test_memo__damaged_and_hostile_files_are_refused, machine_dry) {
  static const char* const texts[] = {
    "",
    "tidemark memo 1\n",
    "tidemark memo 3\npeak 1\nend\n",
    "tidemark memo 1\npeak 100\n",
    "tidemark memo 1\npeak 100\nend",
    "tidemark memo 1\npeak 100\nend\n\n",
    "tidemark memo 1\npeak -1\nend\n",
    "tidemark memo 1\npeak 9999999999999999999999999\nend\n",
    "tidemark memo 1\npeak 1\nhandles 1 2097152\nend\n",
    "tidemark memo 1\npeak 1\nstream 0\nhandles 0 2097152\nend\n",
    "tidemark memo 1\npeak 1\nstream 0\nhandles 1 2097153\nend\n",
    "tidemark memo 1\npeak 1\nstream 0\nhandles 1 0\nend\n",
    "tidemark memo 1\npeak 1\nstream 0\nhandles 1048577 2097152\nend\n",
    "tidemark memo 1\npeak 1\nstream 1\nstream 0\nend\n",
    "tidemark memo 1\npeak 1\nstream 0\nstream 0\nend\n",
    "tidemark memo 1\npeak 1\nstream 1024\nend\n",
    "tidemark memo 1\r\npeak 1\nend\n",
    "tidemark memo 1\npeak 1\nview 0\npart 0 0 2097152\nend\n",
    "tidemark memo 2\npeak 1\nview 0\nend\n",
    "tidemark memo 2\npeak 1\npart 0 0 2097152\nend\n",
    "tidemark memo 2\npeak 1\nview 1024\npart 0 0 2097152\nend\n",
    "tidemark memo 2\npeak 1\nview 0\npart 1024 0 2097152\nend\n",
    "tidemark memo 2\npeak 1\nview 0\npart 0 1 2097152\nend\n",
    "tidemark memo 2\npeak 1\nview 0\npart 0 0 0\nend\n",
    "tidemark memo 2\npeak 1\nview 0\npart 0 0 2097153\nend\n",
    "tidemark memo 2\npeak 1\nview 0\npart 0 0 2097152 1\nend\n",
    "tidemark memo 2\npeak 1\nview 0\npart 0 0 2097152\nstream 0\nend\n",
  };
  tide_device_cache* const d = device_with(m, SETTINGS);
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    write_text(texts[i], strlen(texts[i]));
    T_STATUS(tide_device_memo_load(d, memo_path()), TIDE_ERR_FORMAT);
  }
  write_text("tidemark memo 1\npeak 1\0end\n", 27);
  T_STATUS(tide_device_memo_load(d, memo_path()), TIDE_ERR_FORMAT);
  T_OK(truncate(memo_path(), 2 << 20) == 0 ? TIDE_OK : TIDE_ERR_STATE);
  T_STATUS(tide_device_memo_load(d, memo_path()), TIDE_ERR_FORMAT);
  (void)unlink(memo_path());
  T_STATUS(tide_device_memo_load(d, memo_path()), TIDE_ERR_STATE);
  T_STATUS(tide_device_memo_load(d, "/"), TIDE_ERR_STATE);
  T_STATUS(tide_device_memo_save(d, "/nowhere/memo"), TIDE_ERR_STATE);
  T_STATUS(tide_device_memo_save(d, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_memo_load(NULL, memo_path()), TIDE_ERR_ARGUMENT);
  (void)take(d, NULL, 20 * MIB);
  T_EQ(ahead_of(d), 0);
  tide_device_free(d);
}

// A memo of all the memory that there is, with a peak to match.
MACHINE_TEST_OVER(test_memo__takes_no_more_than_the_device_has, machine_dry) {
  size_t free_bytes = 0;
  size_t total = 0;
  char text[256];
  (void)snprintf(text, sizeof text,
                 "tidemark memo 1\npeak 999999999999999999\nstream 0\nhandles 2 2097152\n"
                 "handles 1048576 1099511627776\nhandles 40 2097152\nstream 7\nend\n");
  write_text(text, strlen(text));
  tide_device_cache* const d = device_with(m, SETTINGS);
  T_OK(tide_device_memo_load(d, memo_path()));
  (void)take(d, NULL, 20 * MIB);
  T_OK(tide_machine_memory_info(m, 0, &free_bytes, &total));
  T_LE(total / 32, free_bytes);
  device_expect_valid(d);
  (void)take(d, NULL, total - 30 * MIB);
  tide_device_free(d);
  (void)unlink(memo_path());
}

MACHINE_TEST_OVER(test_memo__only_tide_has_memos, machine_dry) {
  tide_device_cache* const d = device_with(m, "policy:torch");
  T_STATUS(tide_device_memo_save(d, memo_path()), TIDE_ERR_UNSUPPORTED);
  T_STATUS(tide_device_memo_load(d, memo_path()), TIDE_ERR_UNSUPPORTED);
  tide_device_free(d);
}

// Without a helper a memo has no effect.
T_TEST(test_memo__without_a_helper_nothing_is_made) {
  (void)run(NULL, memo_path(), 32);
  tide_machine* const m = dry_of((uint64_t)32 << 30);
  tide_device_cache* const d = device_with(m, SETTINGS ",tide_ahead:False");
  T_OK(tide_device_memo_load(d, memo_path()));
  (void)take(d, NULL, 20 * MIB);
  T_EQ(ahead_of(d), 0);
  tide_device_free(d);
  tide_machine_free(m);
  (void)unlink(memo_path());
}

// The helper waits for a pause until it has a memo; then it works among requests that grow. It gets its turn
// within 2 s of them, also on a busy computer.
T_TEST(test_memo__that_is_loaded_late_waits_for_no_pause) {
  static const char text[] = "tidemark memo 1\npeak 34359738368\nstream 0\nhandles 16384 2097152\nend\n";
  tide_machine* const m = host_of((uint64_t)32 << 30);
  tide_device_cache* const d = device_with(m, SETTINGS ",tide_slack:0.25,tide_most_handle_mb:2");
  write_text(text, sizeof text - 1);
  (void)take(d, NULL, 40 * MIB);
  T_WAIT(ahead_of(d) > 0);
  slow_calls(m);
  T_OK(tide_device_memo_load(d, memo_path()));
  const int64_t before = counter(d, num_ahead_handles);
  for (size_t i = 0; i < 10000 && counter(d, num_ahead_handles) == before; i++) {
    (void)take(d, NULL, 2 * MIB);
    (void)sched_yield();
  }
  T_CHECK(counter(d, num_ahead_handles) > before);
  tide_device_free(d);
  tide_machine_free(m);
  (void)unlink(memo_path());
}

// Nothing of a memo is left to make: then the helper waits for a pause before it makes more. What it has
// begun in a pause it may end later, once for each.
T_TEST(test_memo__that_is_used_up_lets_the_helper_wait) {
  static const char text[] = "tidemark memo 1\npeak 41943040\nstream 0\nhandles 20 2097152\nend\n";
  const uint64_t pause_ns = 4000000;  // a little less than it waits
  tide_machine* const m = host_of((uint64_t)8 << 30);
  tide_device_cache* const d = device_with(m, SETTINGS ",tide_slack:0.25,tide_most_handle_mb:2");
  write_text(text, sizeof text - 1);
  T_OK(tide_device_memo_load(d, memo_path()));
  give(d, take(d, NULL, 2 * MIB));
  T_WAIT(ahead_of(d) == 38 * MIB);
  (void)take(d, NULL, 200 * MIB);
  size_t late = 0;
  size_t pauses = 1;
  uint64_t last_ns = clock_of(m);
  for (size_t i = 0; i < 1000; i++) {
    const int64_t made = counter(d, num_ahead_handles);
    (void)sched_yield();
    late += counter(d, num_ahead_handles) > made && clock_of(m) - last_ns < pause_ns;
    (void)take(d, NULL, 2 * MIB);
    const uint64_t now_ns = clock_of(m);
    pauses += now_ns - last_ns >= pause_ns;
    last_ns = now_ns;
  }
  T_LE(late, pauses);
  tide_device_free(d);
  tide_machine_free(m);
  (void)unlink(memo_path());
}

// By the thread, with a memo that is loaded again and again while it works.
HOST_TEST(test_memo__a_thread_makes_it) {
  static const char text[] = "tidemark memo 1\npeak 125829120\nstream 0\nhandles 60 2097152\nend\n";
  write_text(text, sizeof text - 1);
  for (size_t i = 0; i < t_scaled(10); i++) {
    tide_device_cache* const d = device_with(m, SETTINGS);
    T_OK(tide_device_memo_load(d, memo_path()));
    give(d, take(d, NULL, 4 * MIB));
    if (i % 2 == 0) T_OK(tide_device_memo_load(d, memo_path()));
    else
      while (ahead_of(d) < 100 * MIB) (void)sched_yield();
    (void)take(d, NULL, 60 * MIB);
    (void)take(d, NULL, 150 * MIB);
    if (i % 2 == 1) T_OK(tide_device_memo_save(d, memo_path()));
    tide_device_free(d);
    write_text(text, sizeof text - 1);
  }
  (void)unlink(memo_path());
}
