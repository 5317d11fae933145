// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Observers while several threads work: numbers put entries in order, segments are reported in order, and
// observers may use the allocator.
#define T_THREADS
#include <sched.h>

#include "device/devices.h"

enum { TELLERS = 4 };

static bool is_about_segments(const tide_trace_entry* entry) {
  return entry->action >= TIDE_ACTION_SEGMENT_ALLOC && entry->action <= TIDE_ACTION_SEGMENT_UNMAP;
}

// ---------------------------------------------------------------------------------------------------
// Numbers

typedef struct numbered {
  uint64_t number;
  tide_trace_entry entry;
} numbered;

// What all threads were told, in the order they were told.
typedef struct logbook {
  pthread_mutex_t lock;
  numbered* items;
  size_t count;
  size_t room;
} logbook;

static void logbook_add(void* user, const tide_trace_entry* entry, uint64_t number) {
  logbook* const log = user;
  pthread_mutex_lock(&log->lock);
  T_LT(log->count, log->room);
  log->items[log->count++] = (numbered){ number, *entry };
  pthread_mutex_unlock(&log->lock);
}

static logbook logbook_new(size_t room) {
  logbook log = { .items = calloc(room, sizeof(numbered)), .room = room };
  T_CHECK(log.items != NULL);
  T_EQ(pthread_mutex_init(&log.lock, NULL), 0);
  return log;
}

static void logbook_fini(logbook* log) {
  (void)pthread_mutex_destroy(&log->lock);
  free(log->items);
}

static int by_number(const void* a, const void* b) {
  const uint64_t x = ((const numbered*)a)->number;
  const uint64_t y = ((const numbered*)b)->number;
  return (x > y) - (x < y);
}

static int by_address(const void* a, const void* b) {
  const numbered* const x = a;
  const numbered* const y = b;
  if (x->entry.address != y->entry.address) return x->entry.address < y->entry.address ? -1 : 1;
  return by_number(a, b);
}

// No number is missing, and every address is handed out, released, completed, and handed out again.
static void expect_lives_in_order(logbook* log) {
  static const uint8_t after[] = { [TIDE_ACTION_ALLOC] = TIDE_ACTION_FREE_COMPLETED,
                                   [TIDE_ACTION_FREE_REQUESTED] = TIDE_ACTION_ALLOC,
                                   [TIDE_ACTION_FREE_COMPLETED] = TIDE_ACTION_FREE_REQUESTED };
  qsort(log->items, log->count, sizeof *log->items, by_number);
  for (size_t i = 0; i < log->count; ++i) T_EQ(log->items[i].number, i);
  qsort(log->items, log->count, sizeof *log->items, by_address);
  uint64_t address = 0;
  uint8_t before = TIDE_ACTION_FREE_COMPLETED;
  for (size_t i = 0; i < log->count; ++i) {
    const tide_trace_entry* const e = &log->items[i].entry;
    if (e->action > TIDE_ACTION_FREE_COMPLETED) continue;
    if (e->address != address) before = TIDE_ACTION_FREE_COMPLETED;
    T_EQ(before, after[e->action]);
    address = e->address;
    before = e->action;
  }
}

enum { TURNS = 2000 };

static void* take_and_give(void* user) {
  for (size_t i = 0; i < TURNS; ++i) give(user, take(user, NULL, 1000 + i % 3 * 600 * KIB));
  return NULL;
}

// Two threads that hand a block to each other tell of it in any order: the numbers put it right.
DEVICE_TEST_OVER(test_observers__numbers_put_the_entries_of_threads_in_order, device_emulated) {
  logbook log = logbook_new((size_t)TELLERS * TURNS * 16);
  const tide_observer observer = observe_entries(d, logbook_add, &log);

  run_threads(TELLERS, take_and_give, d);
  T_OK(tide_device_detach(d, observer));

  T_LE((size_t)TELLERS * TURNS * 3, log.count);
  expect_lives_in_order(&log);
  logbook_fini(&log);
}

static void count_entry(void* user, const tide_trace_entry* entry) {
  (void)entry;
  ++*(size_t*)user;
}

DEVICE_TEST(test_observers__numbers_go_on_whoever_is_attached) {
  logbook log = logbook_new(100);
  size_t heard = 0;
  tide_observer observers[2] = { 0, 0 };
  T_OK(tide_device_observe_trace(d, count_entry, &heard, &observers[0]));
  give(d, take(d, NULL, 1000));
  const size_t before = heard;

  T_OK(tide_device_observe_entries(d, logbook_add, &log, &observers[1]));
  T_NE(observers[0], observers[1]);
  give(d, take(d, NULL, 1000));
  T_OK(tide_device_detach(d, observers[0]));
  give(d, take(d, NULL, 1000));
  T_OK(tide_device_detach(d, observers[1]));
  give(d, take(d, NULL, 1000));

  T_EQ(before, 4);
  T_EQ(heard, before + 3);
  T_EQ(log.count, 6);
  for (size_t i = 0; i < log.count; ++i) T_EQ(log.items[i].number, before + i);
  T_STATUS(tide_device_detach(d, observers[1]), TIDE_ERR_HANDLE);
  logbook_fini(&log);
}

// ---------------------------------------------------------------------------------------------------
// Segments

// The first thread that comes with a segment waits in the observer that hears first.
typedef struct overtaking {
  tide_device_cache* d;
  tide_stream stream;
  atomic_int entered;
  atomic_int is_open;
  atomic_int told;  // to the observer that hears last
  uint64_t first_address;
  uint64_t told_addresses[2];
} overtaking;

static void hold_the_first(void* user, const tide_trace_entry* entry) {
  overtaking* const o = user;
  if (!is_about_segments(entry) || atomic_fetch_add(&o->entered, 1) != 0) return;
  o->first_address = entry->address;
  while (!atomic_load(&o->is_open)) sched_yield();
}

static void note_segment(void* user, const tide_trace_entry* entry) {
  overtaking* const o = user;
  if (is_about_segments(entry)) o->told_addresses[atomic_fetch_add(&o->told, 1)] = entry->address;
}

static void* grow_once(void* user) {
  overtaking* const o = user;
  (void)take(o->d, NULL, 12 * MIB);
  return NULL;
}

static void* grow_after(void* user) {
  overtaking* const o = user;
  (void)take(o->d, o->stream, 12 * MIB);
  return NULL;
}

// The thread that made the second segment told of it while the first was still being told.
DEVICE_TEST_OVER(test_observers__segments_are_told_in_order, device_emulated) {
  overtaking o = { .d = d, .stream = side_new(m) };
  pthread_t threads[2];
  tide_observer observers[2] = { 0, 0 };
  T_OK(tide_device_observe_trace(d, hold_the_first, &o, &observers[0]));
  T_OK(tide_device_observe_trace(d, note_segment, &o, &observers[1]));

  t_thread_start(&threads[0], grow_once, &o);
  while (atomic_load(&o.entered) == 0) sched_yield();
  t_thread_start(&threads[1], grow_after, &o);
  while (current(d, reserved_bytes) < (int64_t)(24 * MIB)) sched_yield();
  for (int i = 0; i < 2000 && atomic_load(&o.told) == 0; ++i) sched_yield();
  atomic_store(&o.is_open, 1);
  for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);

  T_EQ(atomic_load(&o.told), 2);
  T_EQ(o.told_addresses[0], o.first_address);
  T_NE(o.told_addresses[1], o.first_address);
}

// What is mapped at every moment, in units of 1 MiB, as the observer hears of it.
typedef struct atlas {
  pthread_mutex_t lock;
  uint64_t base;
  uint8_t mapped[1 << 16];
  uint64_t last_number;
  size_t heard;
} atlas;

static void atlas_hear(void* user, const tide_trace_entry* entry, uint64_t number) {
  atlas* const a = user;
  if (!is_about_segments(entry)) return;
  const bool is_more = entry->action == TIDE_ACTION_SEGMENT_ALLOC || entry->action == TIDE_ACTION_SEGMENT_MAP;
  pthread_mutex_lock(&a->lock);
  if (a->heard++ > 0) T_LT(a->last_number, number);
  a->last_number = number;
  for (uint64_t at = entry->address / MIB; at < (entry->address + entry->bytes) / MIB; ++at) {
    uint8_t* const place = &a->mapped[at % (1 << 16)];
    T_EQ(*place, !is_more);
    *place = is_more;
  }
  pthread_mutex_unlock(&a->lock);
}

static void* grow_and_trim(void* user) {
  for (size_t i = 0; i < 200; ++i) {
    give(user, take(user, NULL, (10 + i % 5 * 4) * MIB));
    trim(user);
  }
  return NULL;
}

DEVICE_TEST_OVER(test_observers__segments_of_threads_come_and_go_in_order, device_emulated) {
  static atlas a = { .lock = PTHREAD_MUTEX_INITIALIZER };
  observe_entries(d, atlas_hear, &a);

  run_threads(TELLERS, grow_and_trim, d);
  trim(d);

  T_LT(0, a.heard);
  for (size_t i = 0; i < sizeof a.mapped; ++i) T_EQ(a.mapped[i], 0);
}

// ---------------------------------------------------------------------------------------------------
// Observers that use the allocator

typedef struct reactor {
  tide_device_cache* d;
  atomic_int reactions;
} reactor;

static _Thread_local bool is_inside;
static _Thread_local int heard_inside;

// Makes segments of its own while it hears of one, and hears of those before its call returns.
static void grow_when_told(void* user, const tide_trace_entry* entry) {
  reactor* const r = user;
  if (is_inside) ++heard_inside;
  if (is_inside || !is_about_segments(entry)) return;
  is_inside = true;
  heard_inside = 0;
  const tide_block block = take(r->d, NULL, 30 * MIB);
  give(r->d, block);
  trim(r->d);
  T_LE(3, heard_inside);
  is_inside = false;
  atomic_fetch_add(&r->reactions, 1);
}

static void* grow_little(void* user) {
  for (size_t i = 0; i < 50; ++i) {
    give(user, take(user, NULL, 12 * MIB));
    trim(user);
  }
  return NULL;
}

DEVICE_TEST_OVER(test_observers__of_several_threads_may_make_segments, device_emulated) {
  reactor r = { .d = d };
  observe_trace(d, grow_when_told, &r);

  run_threads(TELLERS, grow_little, d);

  T_LT(0, atomic_load(&r.reactions));
  T_EQ(current(d, allocation), 0);
}

// Two allocators whose observers use the other one.
typedef struct crossing {
  tide_device_cache* d;
  tide_device_cache* other;
} crossing;

static void grow_the_other(void* user, const tide_trace_entry* entry) {
  crossing* const c = user;
  if (is_inside || !is_about_segments(entry)) return;
  is_inside = true;
  give(c->other, take(c->other, NULL, 30 * MIB));
  trim(c->other);
  is_inside = false;
}

DEVICE_TEST_OVER(test_observers__of_two_allocators_may_use_each_other, device_emulated) {
  tide_device_cache* const e = device_new(m, 0, NULL);
  crossing crossings[2] = { { d, e }, { e, d } };
  pthread_t threads[TELLERS];
  tide_observer observers[2] = { 0, 0 };
  for (size_t i = 0; i < 2; ++i) {
    T_OK(tide_device_observe_trace(crossings[i].d, grow_the_other, &crossings[i], &observers[i]));
  }

  for (size_t i = 0; i < TELLERS; ++i) t_thread_start(&threads[i], grow_little, crossings[i % 2].d);
  for (size_t i = 0; i < TELLERS; ++i) t_thread_join(threads[i]);

  T_EQ(current(d, allocation), 0);
  T_EQ(current(e, allocation), 0);
  tide_device_free(e);
}

// A callback that waits for a thread, which waits until a segment is told that this thread has still to tell.
typedef struct waiter {
  tide_device_cache* d;
  tide_stream side;
  atomic_int is_called;
  atomic_int is_done;
} waiter;

static bool wait_for_other(void* user, tide_device_cache* device) {
  waiter* const w = user;
  (void)device;
  if (atomic_fetch_add(&w->is_called, 1) != 0) return false;
  while (!atomic_load(&w->is_done)) sched_yield();
  return false;
}

static void* grow_for_waiter(void* user) {
  waiter* const w = user;
  while (!atomic_load(&w->is_called)) sched_yield();
  (void)take(w->d, w->side, 16 * MIB);
  atomic_store(&w->is_done, 1);
  return NULL;
}

static void ignore_entry(void* user, const tide_trace_entry* entry) {
  (void)user;
  (void)entry;
}

DEVICE_TEST_OVER(test_observers__a_callback_finds_everything_told, device_emulated) {
  waiter w = { .d = d, .side = side_new(m) };
  const tide_stream third = side_new(m);
  pthread_t thread;
  tide_observer observers[2] = { 0, 0 };
  // A stitched block that waits: its end tells of segments, and the next request finds that it is over.
  tide_block parts[4];
  for (size_t i = 0; i < 4; ++i) parts[i] = take(d, NULL, 4 * MIB);
  for (size_t i = 0; i < 4; i += 2) give(d, parts[i]);
  const tide_block stitched = take(d, NULL, 8 * MIB);
  give_announced(d, stitched, third);
  stream_finish(m, 0, third);
  T_OK(tide_device_observe_trace(d, ignore_entry, NULL, &observers[0]));
  T_OK(tide_device_observe_reclaim(d, wait_for_other, &w, &observers[1]));

  t_thread_start(&thread, grow_for_waiter, &w);
  (void)take(d, NULL, 64 * MIB);
  t_thread_join(thread);

  T_EQ(atomic_load(&w.is_done), 1);
}

// ---------------------------------------------------------------------------------------------------
// Detaching

// The data of an observer, which its owner frees when the observer is detached.
typedef struct lodger {
  atomic_int is_inside;
  atomic_int is_open;
  atomic_int is_gone;
} lodger;

typedef struct eviction {
  tide_device_cache* d;
  lodger* data;
  tide_observer observer;
  atomic_int is_detaching;
  atomic_int is_detached;
} eviction;

static void stay_inside(void* user, const tide_trace_entry* entry) {
  lodger* const data = user;
  (void)entry;
  atomic_store(&data->is_inside, 1);
  while (!atomic_load(&data->is_open)) sched_yield();
  T_EQ(atomic_load(&data->is_gone), 0);
}

static void* take_one(void* user) {
  (void)take(((eviction*)user)->d, NULL, 1000);
  return NULL;
}

static void* detach_and_free(void* user) {
  eviction* const e = user;
  atomic_store(&e->is_detaching, 1);
  T_OK(tide_device_detach(e->d, e->observer));
  atomic_store(&e->is_detached, 1);
  atomic_store(&e->data->is_gone, 1);
  free(e->data);
  return NULL;
}

// A thread was still inside the observer when detaching it returned, and its data was gone.
DEVICE_TEST_OVER(test_observers__detaching_waits_until_nobody_is_inside, device_emulated) {
  eviction e = { .d = d, .data = calloc(1, sizeof *e.data) };
  pthread_t threads[2];
  T_CHECK(e.data != NULL);
  lodger* const data = e.data;
  T_OK(tide_device_observe_trace(d, stay_inside, data, &e.observer));

  t_thread_start(&threads[0], take_one, &e);
  T_WAIT(atomic_load(&data->is_inside));
  t_thread_start(&threads[1], detach_and_free, &e);
  T_WAIT(atomic_load(&e.is_detaching));
  for (int i = 0; i < 2000 && !atomic_load(&e.is_detached); ++i) sched_yield();
  T_EQ(atomic_load(&e.is_detached), 0);
  atomic_store(&data->is_open, 1);
  for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);

  T_EQ(atomic_load(&e.is_detached), 1);
}

typedef struct leaver {
  tide_device_cache* d;
  tide_observer observer;
  size_t heard;
} leaver;

static void leave(void* user, const tide_trace_entry* entry) {
  leaver* const l = user;
  (void)entry;
  l->heard++;
  T_OK(tide_device_detach(l->d, l->observer));
}

DEVICE_TEST(test_observers__one_may_detach_itself) {
  leaver l = { .d = d };
  T_OK(tide_device_observe_trace(d, leave, &l, &l.observer));

  give(d, take(d, NULL, 1000));

  T_EQ(l.heard, 1);
}
