// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Observers hear of the end of memory before the machine takes it, whatever makes it go.
#define T_THREADS
#include <sched.h>

#include "device/devices.h"

static bool is_growth(const tide_trace_entry* entry) {
  return entry->action == TIDE_ACTION_SEGMENT_ALLOC || entry->action == TIDE_ACTION_SEGMENT_MAP;
}
static bool is_end(const tide_trace_entry* entry) {
  return entry->action == TIDE_ACTION_SEGMENT_FREE || entry->action == TIDE_ACTION_SEGMENT_UNMAP;
}

// Does the machine have memory at an address, of any allocator?
static bool has_memory(tide_machine* m, uint64_t address) {
  tide_pointer_info info = TIDE_POINTER_INFO_INIT;
  T_OK(tide_machine_pointer_info(m, (const void*)(uintptr_t)address, &info));
  return info.kind == TIDE_MEMORY_RAW || info.kind == TIDE_MEMORY_MAPPED;
}

// What an observer registers, as NCCL does. It uses the memory when it comes and when it goes.
typedef struct registrar {
  tide_machine* m;
  pthread_mutex_t lock;
  uint8_t registered[1 << 16];  // by MiB
  int64_t bytes;
  size_t begun;
  size_t ended;
} registrar;

static void memory_expect(registrar* r, const tide_trace_entry* entry) {
  const uint64_t last = entry->address + entry->bytes - 1;
  T_CHECK(has_memory(r->m, entry->address) && has_memory(r->m, last));
  if (strcmp(tide_machine_name(r->m), "host") != 0) return;
  *(volatile uint8_t*)(uintptr_t)entry->address = 1;
  *(volatile uint8_t*)(uintptr_t)last = 2;
}

static void registrar_hear(void* user, const tide_trace_entry* entry) {
  registrar* const r = user;
  if (!is_growth(entry) && !is_end(entry)) return;
  memory_expect(r, entry);
  pthread_mutex_lock(&r->lock);
  for (uint64_t at = entry->address / MIB; at < (entry->address + entry->bytes) / MIB; ++at) {
    uint8_t* const place = &r->registered[at % (1 << 16)];
    T_EQ(*place, is_end(entry));
    *place = is_growth(entry);
  }
  r->bytes += is_growth(entry) ? (int64_t)entry->bytes : -(int64_t)entry->bytes;
  ++*(is_growth(entry) ? &r->begun : &r->ended);
  pthread_mutex_unlock(&r->lock);
}

// An observer's data. It is static because it is large.
static registrar* registrar_new(tide_machine* m) {
  static registrar r;
  memset(&r, 0, sizeof r);
  r.m = m;
  T_EQ(pthread_mutex_init(&r.lock, NULL), 0);
  return &r;
}

// With the policy tide no views are made: what is idle at home may not be mapped there, if it was made for a
// view.
static void stitch_nothing(tide_device_cache* d) { configure(d, "tide_slack:1.0,tide_idle_handles:65536"); }

// ---------------------------------------------------------------------------------------------------
// What makes memory go

DEVICE_TEST(test_ends__a_trim_tells_before_the_memory_goes) {
  registrar* const r = registrar_new(m);
  stitch_nothing(d);
  observe_trace(d, registrar_hear, r);
  for (size_t i = 0; i < 4; ++i) give(d, take(d, NULL, (12 + i * 10) * MIB));
  give(d, take(d, NULL, 1000));

  trim(d);

  T_LE(1, r->ended);
  T_EQ(r->bytes, 0);
}

DEVICE_TEST(test_ends__expandable_segments_tell_before_the_memory_goes) {
  registrar* const r = registrar_new(m);
  expand(m, d);
  observe_trace(d, registrar_hear, r);
  const tide_block blocks[2] = { take(d, NULL, 42 * MIB), take(d, NULL, 20 * MIB) };
  give(d, blocks[0]);
  trim(d);
  const size_t ended = r->ended;
  give(d, blocks[1]);
  trim(d);

  T_LE(1, ended);
  T_LT(ended, r->ended);
  T_EQ(r->bytes, 0);
}

DEVICE_TEST(test_ends__a_request_that_finds_no_memory_tells_before_it_gives_any_back) {
  registrar* const r = registrar_new(m);
  stitch_nothing(d);
  limit_to(d, 100 * MIB);
  observe_trace(d, registrar_hear, r);
  for (size_t i = 0; i < 4; ++i) {
    const tide_pool pool = pool_new(d, NULL);
    give(d, take_in(d, pool, NULL, 20 * MIB));
    T_OK(tide_device_pool_drop(d, pool));
  }

  const tide_block block = take(d, NULL, 60 * MIB);

  T_LE(2, r->ended);
  T_EQ(r->bytes, current(d, reserved_bytes));
  give(d, block);
}

TORCH_TEST(test_ends__collection_tells_before_the_memory_goes) {
  registrar* const r = registrar_new(m);
  limit_to(d, 100 * MIB);
  configure(d, "garbage_collection_threshold:0.5");
  observe_trace(d, registrar_hear, r);
  for (size_t i = 0; i < 4; ++i) give(d, take(d, NULL, (12 + 2 * i) * MIB));

  (void)take(d, NULL, 30 * MIB);

  T_LE(1, r->ended);
  T_EQ(r->bytes, current(d, reserved_bytes));
}

// Memory that is handed out, idle, of a pool, and stitched.
DEVICE_TEST(test_ends__freeing_the_allocator_tells_before_the_memory_goes) {
  registrar* const r = registrar_new(m);
  tide_device_cache* const e = device_new(m, 0, NULL);
  stitch_nothing(e);
  observe_trace(e, registrar_hear, r);
  (void)take(e, NULL, 30 * MIB);
  (void)take(e, NULL, 1000);
  give(e, take(e, NULL, 50 * MIB));
  const tide_pool pool = pool_new(e, NULL);
  (void)take_in(e, pool, NULL, 14 * MIB);
  const size_t ended = r->ended;

  tide_device_free(e);

  T_LE(ended + 3, r->ended);
  T_EQ(r->bytes, 0);
}

// Sums only: what is lent to a view is not accessible at home.
static void sum_hear(void* user, const tide_trace_entry* entry) {
  int64_t* const bytes = user;
  if (is_growth(entry)) *bytes += (int64_t)entry->bytes;
  if (is_end(entry)) *bytes -= (int64_t)entry->bytes;
}

DEVICE_TEST_OVER(test_ends__freeing_the_allocator_tells_of_stitched_memory_once, device_tide) {
  int64_t bytes = 0;
  tide_device_cache* const e = device_new(m, 0, NULL);
  observe_trace(e, sum_hear, &bytes);
  tide_block parts[4];
  for (size_t i = 0; i < 4; ++i) parts[i] = take(e, NULL, 4 * MIB);
  for (size_t i = 0; i < 4; i += 2) give(e, parts[i]);
  (void)take(e, NULL, 8 * MIB);
  T_EQ(bytes, current(e, reserved_bytes));
  T_EQ(bytes, 16 * (int64_t)MIB);

  tide_device_free(e);

  T_EQ(bytes, 0);
}

// ---------------------------------------------------------------------------------------------------
// Threads

enum { ENDERS = 8 };

static void* grow_and_trim(void* user) {
  for (size_t i = 0; i < t_scaled(60); ++i) {
    give(user, take(user, NULL, (10 + i % 5 * 4) * MIB));
    give(user, take(user, NULL, 3000));
    T_OK(tide_device_trim(user, i % 3 == 0 ? 16 * MIB : 0));
  }
  return NULL;
}

DEVICE_TEST_OVER(test_ends__no_thread_reuses_an_address_before_its_end_is_told, device_emulated) {
  registrar* const r = registrar_new(m);
  stitch_nothing(d);
  observe_trace(d, registrar_hear, r);

  run_threads(ENDERS, grow_and_trim, d);
  trim(d);

  T_LT(0, r->ended);
  T_EQ(r->bytes, 0);
}

DEVICE_TEST_OVER(test_ends__threads_with_expandable_segments_tell_in_order, device_host) {
  registrar* const r = registrar_new(m);
  expand(m, d);
  stitch_nothing(d);
  observe_trace(d, registrar_hear, r);

  run_threads(ENDERS, grow_and_trim, d);
  trim(d);

  T_EQ(r->bytes, 0);
}

// A thread that gives memory back is in an observer, and another one needs that memory.
typedef struct relay {
  tide_device_cache* d;
  atomic_int is_inside;
  atomic_int is_asking;
} relay;

static void relay_hold(void* user, const tide_trace_entry* entry) {
  relay* const y = user;
  if (!is_end(entry) || atomic_exchange(&y->is_inside, 1) != 0) return;
  T_WAIT(atomic_load(&y->is_asking));
  for (int i = 0; i < 2000; ++i) sched_yield();
}

static void* relay_trim(void* user) {
  trim(((relay*)user)->d);
  return NULL;
}

// What the other thread was about to give back was missing, and the request failed.
DEVICE_TEST_OVER(test_ends__a_request_waits_for_memory_that_is_being_given_back, device_emulated) {
  relay y = { .d = d };
  pthread_t thread;
  stitch_nothing(d);
  limit_to(d, 96 * MIB);
  tide_block blocks[4];
  for (size_t i = 0; i < 4; ++i) blocks[i] = take(d, NULL, 20 * MIB);
  for (size_t i = 0; i < 4; ++i) give(d, blocks[i]);
  observe_trace(d, relay_hold, &y);

  t_thread_start(&thread, relay_trim, &y);
  T_WAIT(atomic_load(&y.is_inside));
  atomic_store(&y.is_asking, 1);
  const tide_block whole = take(d, NULL, 90 * MIB);
  t_thread_join(thread);

  give(d, whole);
}

// A stitched block is released by a thread that is still telling so while another one trims.
typedef struct parting {
  tide_machine* m;
  tide_device_cache* d;
  tide_block stitched;
  atomic_int is_inside;
  atomic_int is_trimming;
} parting;

static void parting_hold(void* user, const tide_trace_entry* entry) {
  parting* const p = user;
  if (entry->address != (uint64_t)(uintptr_t)p->stitched.address || !is_end(entry)) return;
  atomic_store(&p->is_inside, 1);
  T_WAIT(atomic_load(&p->is_trimming));
  for (int i = 0; i < 2000; ++i) sched_yield();
  T_CHECK(has_memory(p->m, entry->address));
}

static void* parting_give(void* user) {
  parting* const p = user;
  give(p->d, p->stitched);
  return NULL;
}

DEVICE_TEST_OVER(test_ends__a_view_stays_until_its_end_is_told, device_tide_emulated) {
  parting p = { .m = m, .d = d };
  pthread_t thread;
  tide_block parts[4];
  for (size_t i = 0; i < 4; ++i) parts[i] = take(d, NULL, 4 * MIB);
  for (size_t i = 0; i < 4; i += 2) give(d, parts[i]);
  p.stitched = take(d, NULL, 8 * MIB);
  observe_trace(d, parting_hold, &p);

  t_thread_start(&thread, parting_give, &p);
  T_WAIT(atomic_load(&p.is_inside));
  atomic_store(&p.is_trimming, 1);
  trim(d);
  t_thread_join(thread);
  trim(d);

  T_EQ(current(d, reserved_bytes), 8 * (int64_t)MIB);
  T_CHECK(!has_memory(m, (uint64_t)(uintptr_t)p.stitched.address));
}

// ---------------------------------------------------------------------------------------------------
// Refusals

typedef struct sequence {
  size_t count;
  tide_trace_entry entries[64];
} sequence;

static void sequence_add(void* user, const tide_trace_entry* entry) {
  sequence* const s = user;
  if (!is_growth(entry) && !is_end(entry)) return;
  T_LT(s->count, 64);
  s->entries[s->count++] = *entry;
}

static void refuse(tide_machine* m, tide_call call, uint64_t skip) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = call;
  fault.status = TIDE_ERR_MACHINE;
  fault.skip = skip;
  fault.count = 1;
  T_OK(tide_machine_fault_add(m, &fault));
}

// The observer hears that the memory goes, and then that it came; the history has neither.
DEVICE_TEST(test_ends__memory_that_the_machine_refuses_is_told_as_new) {
  sequence s = { 0 };
  give(d, take(d, NULL, 30 * MIB));
  const uint64_t reserved = (uint64_t)current(d, reserved_bytes);
  history_on(d);
  observe_trace(d, sequence_add, &s);
  refuse(m, shrink_call(), 0);

  T_STATUS(tide_device_trim(d, 0), TIDE_ERR_MACHINE);
  const story before = read_story(d);
  T_EQ(s.count, 2);
  T_EQ(s.entries[0].action, shrink_action());
  T_EQ(s.entries[1].action, growth_action());
  T_EQ(s.entries[0].address, s.entries[1].address);
  T_EQ(s.entries[0].bytes, s.entries[1].bytes);
  T_EQ(current(d, reserved_bytes), (int64_t)reserved);
  T_EQ(story_times(&before, shrink_action()) + story_times(&before, growth_action()), 0);

  trim(d);
  const story after = read_story(d);
  T_EQ(s.count, 3);
  T_EQ(s.entries[2].action, shrink_action());
  T_EQ(story_times(&after, shrink_action()), 1);
}

// Of two handles the machine takes one: what is left is told as new, and the history has what went.
DEVICE_TEST_OVER(test_ends__a_part_that_the_machine_refuses_is_told_as_new, device_tide) {
  sequence s = { 0 };
  configure(d, "tide_slack:1.0,tide_idle_handles:65536,tide_most_handle_mb:2");
  give(d, take(d, NULL, 6 * MIB));
  history_on(d);
  observe_trace(d, sequence_add, &s);
  refuse(m, TIDE_CALL_UNMAP, 1);

  T_STATUS(tide_device_trim(d, 0), TIDE_ERR_MACHINE);

  const story told = read_story(d);
  T_EQ(s.count, 2);
  T_EQ(s.entries[0].action, TIDE_ACTION_SEGMENT_UNMAP);
  T_EQ(s.entries[0].bytes, 6 * MIB);
  T_EQ(s.entries[1].action, TIDE_ACTION_SEGMENT_MAP);
  T_EQ(s.entries[1].address, s.entries[0].address);
  T_EQ(s.entries[1].bytes, 4 * MIB);
  T_EQ(story_times(&told, TIDE_ACTION_SEGMENT_UNMAP), 1);
  T_EQ(story_last(&told, TIDE_ACTION_SEGMENT_UNMAP)->bytes, 2 * MIB);
  T_EQ(current(d, reserved_bytes), 4 * (int64_t)MIB);
}
