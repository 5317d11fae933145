// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The world of prop_crossing.c: caches of one machine that share a ledger, the rooms in them, and what blocks
// contain while any thread may park any tag.
//
// A room is a pool with a tag. Memory in a room may be away, so whoever touches it does so in a use of its
// tag (tide_device_use()), which keeps it from giving way. Explicit parking does not care for uses: it
// excludes touches by a lock, `touch`. Work that was queued before is waited for by the parking itself.
#ifndef TIDEMARK_TESTS_CROSSING_H
#define TIDEMARK_TESTS_CROSSING_H

#include "prop/watch.h"
#include "prop/work.h"
#include "quota/ledgers.h"
#include "tidemark/budget.h"

#include <sched.h>

enum { CACHES = 3, CREW = 16, SHARED = 5, PLACES = 24, BOARD = 48, ROOMS = 8, LISTENERS = 6, TAGS = 8 };
enum { STREAMS = CREW + SHARED, RANGE_UNITS = 4, SPAN_UNITS = 12 };

// In those of "fixed", contents never change, so each block is filled in the same use in which it is made.
static const char* const tags[TAGS] = { "a", "a/x", "a/x/y", "a/z", "b", "b/x", "fixed", "fixed/x" };

// A pool with a tag. Rooms whose pool has ended are kept until the run ends, because blocks refer to them.
typedef struct room {
  tide_pool pool;
  atomic_size_t tag;            // of the table above; changes under `touch` alone
  atomic_uint_fast64_t losses;  // how often its contents were discarded
  struct room* next;
} room;

typedef struct world world;

// An observer, a callback of pressure, and so on; what it does follows from its number.
typedef struct listener {
  world* s;
  struct member* member;
  _Atomic(tide_observer) observer;  // 0: not attached
  atomic_uint calls;
} listener;

// A cache.
typedef struct member {
  tide_device_cache* d;
  pthread_rwlock_t touch;
  _Atomic(room*) rooms[ROOMS];
  _Atomic(room*) all_rooms;
  listener listeners[LISTENERS];
  tide_range* span;  // all threads commit and decommit it; without contents
} member;

typedef struct item {
  content c;  // its tag is of no other block
  tide_block block;
  member* member;  // NULL: the place is free
  room* room;      // NULL: none
  uint8_t stream;
  bool is_filled;
  uint64_t losses;  // of the room, when it was filled
} item;

typedef struct worker {
  world* s;
  uint8_t number;
  t_rng rng;
  tide_event ordering;
  tide_stream capturing;  // for captures alone
  item places[PLACES];
  // A pool without a tag, whose scope is open for some steps.
  member* pool_member;
  tide_pool pool;
  uint64_t pool_until;
  uint64_t steps;
  // A range, committed unit by unit.
  member* range_member;
  tide_range* range;
  content units[RANGE_UNITS];  // address NULL: no memory
  tide_stream unit_streams[RANGE_UNITS];
  member* hearing;   // the cache of the callback under way
  const item* held;  // callbacks do not release it
} worker;

// What a run consists of, drawn from its seed.
typedef struct plan {
  size_t threads;
  size_t caches;
  size_t phases;
  size_t steps;  // of each thread in a phase
  uint64_t capacity;
  uint64_t ledger_bytes;
  bool has_faults;
  bool has_heap_faults;
  bool is_exhausted;  // where the heap fails, it fails until it is relieved
  bool is_untidy;     // everything is left to tide_device_free()
  bool has_rest;      // the last cache has the policy torch
} plan;

struct world {
  plan p;
  tide_machine* m;
  counting_heap machine_records;
  counting_heap records;
  member members[CACHES];
  tide_stream streams[STREAMS];
  worker workers[CREW];
  pthread_mutex_t lock;  // guards the board
  item board[BOARD];
  atomic_uint_fast64_t tags;
  atomic_bool is_ending;  // observers may not call
  uint64_t end_steps;
};

static _Thread_local worker* self;

// ---------------------------------------------------------------------------------------------------
// Statuses

#define MAY(status) (1u << (status))

// Ends faults: the test itself has to go on.
static void world_relieve(world* s) {
  tide_machine_fault_clear(s->m);
  atomic_store(&s->records.fail_at, SIZE_MAX);
  atomic_store(&s->machine_records.fail_at, SIZE_MAX);
}

static bool world_fails(const world* s) { return s->p.has_faults || s->p.has_heap_faults; }

// Which statuses a call may have: success, a lack of memory, what is named, and faults.
static bool expect_one_of(const world* s, const char* call, tide_status status, unsigned mask) {
  if (status == TIDE_OK) return true;
  if (status == TIDE_ERR_NO_MEMORY || (mask & MAY(status)) != 0) return false;
  if (world_fails(s) && is_fault(status)) return false;
  T_FAIL("%s is %s (last error: %s)", call, tide_status_name(status), tide_last_error()->text);
}
#define ASKED(s, call, mask) expect_one_of((s), #call, (call), (mask))

// Calls of the test itself are made again when they meet a fault.
static void pardon(world* s, const char* call, tide_status status, size_t times) {
  if (!world_fails(s) || !is_fault(status)) t_check_status(__FILE__, __LINE__, call, status, TIDE_OK);
  if (times > 20) world_relieve(s);
  (void)sched_yield();
}
#define INSIST(s, call)                                                                                 \
  do {                                                                                                  \
    size_t times_ = 0;                                                                                  \
    for (tide_status got_ = (call); got_ != TIDE_OK; got_ = (call)) pardon((s), #call, got_, ++times_); \
  } while (0)

// ---------------------------------------------------------------------------------------------------
// Touching

static bool item_is_away(const item* it) {
  return it->room != NULL && atomic_load(&it->room->losses) != it->losses;
}

// Other streams may still read what is written over.
static void block_write(worker* w, item* it) {
  world* const s = w->s;
  const tide_stream own = s->streams[it->stream];
  for (size_t i = 0; it->is_filled && i < STREAMS; ++i)
    INSIST(s, work_follow(s->m, own, s->streams[i], w->ordering));
  INSIST(s, work_write(s->m, own, it->c));
  it->losses = it->room != NULL ? atomic_load(&it->room->losses) : 0;
  it->is_filled = true;
}

// The first touch of a block writes it, later ones read it. Other streams than its own announce themselves.
static void block_touch(worker* w, item* it, uint8_t stream) {
  world* const s = w->s;
  if (!it->is_filled || item_is_away(it)) {
    block_write(w, it);
    return;
  }
  if (stream != it->stream) {
    INSIST(s, work_follow(s->m, s->streams[stream], s->streams[it->stream], w->ordering));
    INSIST(s, tide_device_record(it->member->d, it->block, s->streams[stream]));
  }
  INSIST(s, work_read(s->m, s->streams[stream], it->c));
}

#define USE_MASK (MAY(TIDE_ERR_STATE) | MAY(TIDE_ERR_CAPTURE) | MAY(TIDE_ERR_UNSUPPORTED))

// Touches a block in a use of its tag, or does without if that cannot be had.
static void item_touch(worker* w, item* it, uint8_t stream) {
  world* const s = w->s;
  member* const m = it->member;
  w->held = it;
  T_EQ(pthread_rwlock_rdlock(&m->touch), 0);
  const char* const tag = it->room != NULL ? tags[atomic_load(&it->room->tag)] : NULL;
  if (!it->is_filled || item_is_away(it)) stream = it->stream;
  const bool is_there = tag == NULL || ASKED(s, tide_device_use(m->d, tag, s->streams[stream]), USE_MASK);
  if (is_there) block_touch(w, it, stream);
  if (is_there && tag != NULL) T_OK(tide_device_done(m->d, tag, s->streams[stream]));
  T_EQ(pthread_rwlock_unlock(&m->touch), 0);
  w->held = NULL;
}

// The place is free first, so that no callback releases the block again.
static void item_give(worker* w, item* it) {
  tide_device_cache* const d = it->member->d;
  const tide_block block = it->block;
  it->member = NULL;
  if (t_rng_below(&w->rng, 2) == 0) T_OK(tide_device_release(d, block));
  else T_OK(tide_device_release_address(d, block.address));
}

static void item_name(world* s, item* it, tide_block block, size_t bytes) {
  it->block = block;
  it->is_filled = false;
  it->c = (content){ block.address, bytes, 1 + atomic_fetch_add(&s->tags, 1) };
}

#endif
