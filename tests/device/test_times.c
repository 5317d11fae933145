// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Times of entries: in the order of the entries they never go back, whatever happens to a thread between
// reading the clock and adding its entry.
#define T_THREADS
#include <stdatomic.h>

#include "t.h"
#include "tidemark/device.h"
#include "tidemark/machine_ops.h"

enum { MOST_ENTRIES = 1 << 16 };

// The time of each entry by its number, as an observer was told.
typedef struct heard {
  uint64_t times[MOST_ENTRIES];
  atomic_size_t count;
} heard;

static void hear(void* user, const tide_trace_entry* entry, uint64_t number) {
  heard* const h = user;
  if (number >= MOST_ENTRIES) return;
  h->times[number] = entry->time_ns;
  atomic_fetch_add(&h->count, 1);
}

static void expect_heard_in_order(const heard* h) {
  for (size_t i = 1; i < h->count && i < MOST_ENTRIES; i++) T_LE(h->times[i - 1], h->times[i]);
}

typedef struct kept {
  uint64_t last_ns;
  uint64_t last_address;
  size_t count;
} kept;

static bool look(void* user, const tide_trace_entry* entries, size_t count) {
  kept* const k = user;
  for (size_t i = 0; i < count; i++) {
    T_LE(k->last_ns, entries[i].time_ns);
    k->last_ns = entries[i].time_ns;
    k->last_address = entries[i].address;
  }
  k->count += count;
  return true;
}

static kept kept_in_order(tide_device_cache* device) {
  kept k = { 0 };
  T_OK(tide_device_history_visit(device, look, &k));
  return k;
}

static tide_device_cache* recording(tide_machine* machine, heard* h, tide_observer* out) {
  tide_device_cache* device = NULL;
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  history.max_entries = MOST_ENTRIES;
  T_OK(tide_device_new(machine, 0, NULL, &device));
  T_OK(tide_device_history(device, &history));
  T_OK(tide_device_observe_entries(device, hear, h, out));
  return device;
}

// ---------------------------------------------------------------------------------------------------
// A thread that stands still between the clock and its entry

// A machine whose clock counts the looks at it. It detains the thread that is to be late, once.
typedef struct slow {
  atomic_uint_fast64_t now;
  atomic_bool detains;
  atomic_bool is_detained;
  atomic_bool lets_go;
} slow;

static tide_status slow_clock(void* self, uint64_t* out) {
  slow* const s = self;
  *out = atomic_fetch_add(&s->now, 1000) + 1000;
  if (!atomic_exchange(&s->detains, false)) return TIDE_OK;
  atomic_store(&s->is_detained, true);
  T_WAIT(atomic_load(&s->lets_go));
  return TIDE_OK;
}

static tide_status slow_info(void* self, int device, tide_device_info* out) {
  (void)self;
  (void)device;
  out->total_bytes = 1u << 30;
  return TIDE_OK;
}

static tide_status slow_memory(void* self, int device, size_t* out_free, size_t* out_total) {
  (void)self;
  (void)device;
  *out_free = *out_total = 1u << 30;
  return TIDE_OK;
}

static tide_status slow_alloc(void* self, int device, size_t bytes, void** out) {
  (void)self;
  (void)device;
  *out = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
  return *out != NULL ? TIDE_OK : TIDE_ERR_NO_MEMORY;
}

static tide_status slow_release(void* self, int device, void* address) {
  (void)self;
  (void)device;
  free(address);
  return TIDE_OK;
}

static tide_status slow_wait(void* self, int device) {
  (void)self;
  (void)device;
  return TIDE_OK;
}

static void slow_free(void* self) { (void)self; }

static void* take_one(void* user) {
  tide_block block;
  T_OK(tide_device_alloc(user, NULL, 1000, &block));
  return NULL;
}

T_TEST(test_times__of_a_thread_that_was_detained_are_those_of_its_entries) {
  static const tide_machine_ops ops = { .size = sizeof ops,
                                        .version = TIDE_MACHINE_OPS_VERSION,
                                        .name = "slow",
                                        .free = slow_free,
                                        .device_info = slow_info,
                                        .memory_info = slow_memory,
                                        .clock = slow_clock,
                                        .raw_alloc = slow_alloc,
                                        .raw_release = slow_release,
                                        .device_synchronize = slow_wait };
  static heard h;
  static slow s;
  tide_machine* machine = NULL;
  tide_observer observer = 0;
  tide_block block;
  pthread_t late;
  T_OK(tide_machine_new(&ops, &s, 1, NULL, &machine));
  tide_device_cache* const device = recording(machine, &h, &observer);
  T_OK(tide_device_alloc(device, NULL, 1000, &block));

  // The late thread has looked at the clock, then this one releases the block that the other will get.
  atomic_store(&s.detains, true);
  t_thread_start(&late, take_one, device);
  T_WAIT(atomic_load(&s.is_detained));
  T_OK(tide_device_release(device, block));
  atomic_store(&s.lets_go, true);
  t_thread_join(late);

  const kept k = kept_in_order(device);
  T_EQ(k.count, 5);
  T_EQ(k.last_address, (uintptr_t)block.address);
  T_EQ(h.count, k.count);
  expect_heard_in_order(&h);
  T_OK(tide_device_detach(device, observer));
  tide_device_free(device);
  tide_machine_free(machine);
}

// ---------------------------------------------------------------------------------------------------
// Many threads

enum { WORKERS = 4 };

static void* take_and_give(void* user) {
  tide_block blocks[8];
  for (size_t i = 0; i < t_scaled(400); i++) {
    for (size_t k = 0; k < 8; k++) T_OK(tide_device_alloc(user, NULL, (size_t)512 << k, &blocks[k]));
    for (size_t k = 0; k < 8; k++) T_OK(tide_device_release(user, blocks[k]));
  }
  return NULL;
}

T_TEST(test_times__of_many_threads_do_not_go_back) {
  static heard h;
  const tide_host_options options = TIDE_HOST_OPTIONS_INIT;
  tide_machine* machine = NULL;
  tide_observer observer = 0;
  pthread_t threads[WORKERS];
  T_OK(tide_machine_new_host(&options, &machine));
  tide_device_cache* const device = recording(machine, &h, &observer);
  for (size_t i = 0; i < WORKERS; i++) t_thread_start(&threads[i], take_and_give, device);
  for (size_t i = 0; i < WORKERS; i++) t_thread_join(threads[i]);
  T_LE(t_scaled(400) * 24 * WORKERS, kept_in_order(device).count);
  expect_heard_in_order(&h);
  T_OK(tide_device_detach(device, observer));
  tide_device_free(device);
  tide_machine_free(machine);
}
