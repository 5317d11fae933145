// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Former bugs in what users see of the device allocator: statistics, observers, other devices and other
// processes. See test_regressions.c for the others.
#define T_THREADS
#include "device/devices.h"

// ---------------------------------------------------------------------------------------------------
// Peaks

static bool release_once(void* user, tide_device_cache* device) {
  tide_block* const held = user;
  const bool is_held = held->address != NULL;
  give(device, *held);
  held->address = NULL;
  return is_held;
}

// From one block on another stream to none, and up to three; returns what the peak says.
static int64_t peak_of_three(tide_device_cache* d, tide_stream side) {
  const tide_block y = take(d, NULL, 20 * MIB);
  limit_to(d, TIDE_NO_LIMIT);
  const tide_block z = take(d, side, 512);
  const tide_block x = take(d, side, 512);
  give(d, z);
  give(d, x);
  give(d, y);
  return stats_of(d).allocation[TIDE_STAT_ALL].peak;
}

DEVICE_TEST(test_device__peaks_are_exact_after_a_callback_released_on_another_stream) {
  const tide_stream side = side_new(m);
  tide_block held = take(d, side, 512);
  observe_reclaim(d, release_once, &held);
  tide_device_reset_peaks(d);

  T_EQ(peak_of_three(d, side), 3);
}

DEVICE_TEST(test_device__peaks_are_exact_after_a_request_waited_on_another_stream) {
  const tide_stream side = side_new(m);
  const tide_stream other = side_new(m);
  const tide_block block = take(d, side, 20 * MIB);
  announce(d, block, other);
  work_slowly(m, other);
  give(d, block);
  limit_to(d, 20 * MIB);  // so that the request must wait
  tide_device_reset_peaks(d);

  T_EQ(peak_of_three(d, side), 3);
  if (!is_tide()) T_EQ(counter(d, num_alloc_retries), 1);
  else if (is_dry(m)) T_LE(1, counter(d, num_sync_all_streams));  // on others the work may be done before
}

// ---------------------------------------------------------------------------------------------------
// Observers

typedef struct listener {
  size_t count;
  tide_trace_entry first;
} listener;

static void listen(void* user, const tide_trace_entry* entry) {
  listener* const l = user;
  if (l->count++ == 0) l->first = *entry;
}

typedef struct quitter {
  tide_observer observer;
} quitter;

static bool detach_observer(void* user, tide_device_cache* device) {
  T_OK(tide_device_detach(device, ((quitter*)user)->observer));
  return false;
}

// A request notes the end of a wait, and a callback detaches the only observer before it was told.
static void leave_an_entry_untold(tide_machine* m, tide_device_cache* d) {
  const tide_stream side = side_new(m);
  static listener nobody;
  static quitter q;
  const tide_block block = take(d, NULL, 7777);
  give_announced(d, block, side);
  stream_finish(m, 0, side);
  T_OK(tide_device_observe_trace(d, listen, &nobody, &q.observer));
  const tide_observer callback = observe_reclaim(d, detach_observer, &q);
  (void)take(d, NULL, 12 * MIB);
  T_OK(tide_device_detach(d, callback));
}

static void expect_next_entries_are_new(tide_device_cache* d) {
  listener l = { 0, { 0 } };
  const tide_observer observer = observe_trace(d, listen, &l);
  (void)take(d, NULL, 30 * MIB);
  T_OK(tide_device_detach(d, observer));
  T_EQ(l.first.action, growth_action());
  T_EQ(l.first.bytes, 30 * MIB);
  if (is_tide()) T_LE(2, l.count);  // it may also tell of a stitch
  else T_EQ(l.count, 2);
}

DEVICE_TEST(test_device__entries_of_a_detached_observer_are_not_told_to_the_next) {
  leave_an_entry_untold(m, d);

  expect_next_entries_are_new(d);
}

// A heap that gives the same addresses again when it is emptied.
typedef struct arena {
  tide_heap heap;
  size_t used;
  uint8_t* memory;
} arena;

#define ARENA_BYTES (32 * MIB)

static void* arena_alloc(void* user, size_t bytes, size_t alignment) {
  arena* const a = user;
  const size_t at = (a->used + alignment - 1) / alignment * alignment;
  if (at + bytes > ARENA_BYTES) return NULL;
  a->used = at + bytes;
  return a->memory + at;
}

static void arena_release(void* user, void* address, size_t bytes) { (void)user, (void)address, (void)bytes; }

DEVICE_TEST(test_device__entries_are_not_told_to_an_observer_of_another_allocator) {
  arena a = { { arena_alloc, arena_release, &a }, 0, NULL };
  T_EQ(posix_memalign((void**)&a.memory, 4 * KIB, ARENA_BYTES), 0);
  tide_device_cache* const old = device_new(m, 0, &a.heap);
  leave_an_entry_untold(m, old);
  tide_device_free(old);
  a.used = 0;

  tide_device_cache* const young = device_new(m, 0, &a.heap);
  T_PTR_EQ(young, old);
  expect_next_entries_are_new(young);

  tide_device_free(young);
  free(a.memory);
}

static void expect_own_record(void* user, const tide_oom* oom) {
  T_EQ(tide_device_last_oom()->requested_bytes, oom->requested_bytes);
  *(bool*)user = true;
}

DEVICE_TEST(test_device__an_oom_observer_finds_this_oom_as_the_last) {
  bool is_told = false;
  limit_to(d, 20 * MIB);
  observe_oom(d, expect_own_record, &is_told);

  expect_oom(d, NULL, 40 * MIB);

  T_CHECK(is_told);
}

// ---------------------------------------------------------------------------------------------------
// Imports

#define PARTS_MAX 16

DEVICE_TEST(test_device__imports_get_peers_that_come_later) {
  need_two_devices(m);
  if (!device_info(m, 0).has_physical_sharing) t_skip("no physical sharing");
  expand(m, d);
  tide_device_cache* const other = device_new(m, 0, NULL);
  const tide_stream far = stream_new(m, 1, TIDE_STREAM_NON_BLOCKING);
  const tide_block block = take(d, NULL, 12 * MIB);
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[PARTS_MAX];
  void* address = NULL;
  T_OK(tide_device_share(d, block.address, &share, parts, PARTS_MAX));
  T_OK(tide_device_import(other, &share, parts, &address));
  for (size_t i = 0; i < share.part_count; ++i) (void)close(parts[i].descriptor);
  T_STATUS(tide_machine_fill(m, 1, far, address, 3, 512), TIDE_ERR_ACCESS);

  T_OK(tide_device_enable_peer(other, 1));

  T_OK(tide_machine_fill(m, 1, far, address, 3, 512));
  stream_finish(m, 1, far);
  expect_filled(m, 0, bytes_of(block), 3, 512);
  T_OK(tide_device_unimport(other, address));
  tide_device_free(other);
}

// Another process that shares two segments and then waits for its end.
typedef struct sharer {
  pid_t child;
  int end;  // closed to end it
  tide_share shares[2];
} sharer;

static void share_two(int to, int until) {
  char end = 0;
  tide_share shares[2] = { TIDE_SHARE_INIT, TIDE_SHARE_INIT };
  tide_machine* const m = machine_open("host", NULL);
  tide_device_cache* const d = device_new(m, 0, NULL);
  for (size_t i = 0; i < 2; ++i) {
    T_OK(tide_device_share(d, take(d, NULL, (30 + 10 * i) * MIB).address, &shares[i], NULL, 0));
  }
  T_EQ(write(to, shares, sizeof shares), sizeof shares);
  T_EQ(read(until, &end, 1), 0);
  tide_device_free(d);
  tide_machine_free(m);
  _exit(0);
}

static sharer sharer_new(void) {
  sharer s;
  int ends[2][2];
  T_EQ(pipe(ends[0]) | pipe(ends[1]), 0);
  s.child = fork();
  if (s.child == 0) (void)close(ends[1][1]);
  if (s.child == 0) share_two(ends[0][1], ends[1][0]);
  T_EQ(read(ends[0][0], s.shares, sizeof s.shares), sizeof s.shares);
  s.end = ends[1][1];
  return s;
}

static void sharer_end(const sharer* s) {
  int status = 0;
  (void)close(s->end);
  T_EQ(waitpid(s->child, &status, 0), s->child);
  T_EQ(status, 0);
}

static void expect_unimport_knows(tide_device_cache* d, void* high, void* low) {
  T_STATUS(tide_device_unimport(d, (uint8_t*)high + 100 * MIB), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_unimport(d, (uint8_t*)low - MIB), TIDE_ERR_HANDLE);
  T_OK(tide_device_unimport(d, high));
  T_STATUS(tide_device_unimport(d, high), TIDE_ERR_HANDLE);
  T_OK(tide_device_unimport(d, low));
  T_STATUS(tide_device_unimport(d, low), TIDE_ERR_HANDLE);
}

T_TEST(test_device__closing_a_wrong_import_or_twice_closes_no_other) {
  void* at[2] = { NULL, NULL };
  const sharer s = sharer_new();
  tide_machine* const m = machine_open("host", NULL);
  tide_device_cache* const d = device_new(m, 0, NULL);
  for (size_t i = 0; i < 2; ++i) T_OK(tide_device_import(d, &s.shares[i], NULL, &at[i]));

  const bool is_rising = (uintptr_t)at[0] < (uintptr_t)at[1];
  expect_unimport_knows(d, at[is_rising], at[!is_rising]);

  sharer_end(&s);
  tide_device_free(d);
  tide_machine_free(m);
}

// Damages a share that another process made; none of it gives a pointer, and what is open stays as it was.
T_TEST(test_device__a_damaged_share_gives_no_pointer_and_closes_no_other) {
  void* good = NULL;
  void* bad = NULL;
  const sharer s = sharer_new();
  tide_machine* const m = machine_open("host", NULL);
  tide_device_cache* const d = device_new(m, 0, NULL);
  const struct {
    uint64_t offset;
    uint64_t bytes;
  } wrong[] = { { (uint64_t)1 << 40, (uint64_t)1 << 46 },
                { 0, UINT64_MAX },
                { UINT64_MAX, 2 },
                { 0, 0 },
                { s.shares[0].offset, 1 * GIB } };

  T_OK(tide_device_import(d, &s.shares[1], NULL, &good));
  for (size_t i = 0; i < 2 * sizeof wrong / sizeof wrong[0]; ++i) {
    tide_share damaged = s.shares[i % 2];  // one is open already
    damaged.offset = wrong[i / 2].offset;
    damaged.bytes = wrong[i / 2].bytes;
    T_STATUS(tide_device_import(d, &damaged, NULL, &bad), TIDE_ERR_ARGUMENT);
    T_PTR_EQ(bad, NULL);
  }

  // What cannot be closed at once is closed in the end.
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = TIDE_CALL_RAW_UNIMPORT;
  T_OK(tide_machine_fault_add(m, &fault));
  tide_share damaged = s.shares[0];
  damaged.offset = 1 * GIB;
  T_STATUS(tide_device_import(d, &damaged, NULL, &bad), TIDE_ERR_ARGUMENT);
  tide_machine_fault_clear(m);
  T_OK(tide_device_import(d, &s.shares[0], NULL, &bad));
  T_OK(tide_device_unimport(d, bad));

  T_EQ(tide_machine_call_stats(m, TIDE_CALL_RAW_IMPORT).calls + 1,
       1 + tide_machine_call_stats(m, TIDE_CALL_RAW_UNIMPORT).calls);
  T_OK(tide_device_unimport(d, good));
  T_STATUS(tide_device_unimport(d, good), TIDE_ERR_HANDLE);
  sharer_end(&s);
  tide_device_free(d);
  tide_machine_free(m);
}
