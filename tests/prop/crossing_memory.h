// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What threads of prop_crossing.c do with blocks, rooms and other pools, and with tags. A function do_x() is
// a call, or some that belong together.
#ifndef TIDEMARK_TESTS_CROSSING_MEMORY_H
#define TIDEMARK_TESTS_CROSSING_MEMORY_H

#include "prop/crossing.h"

#define LIMIT_UNIT ((uint64_t)2 << 20)

static uint64_t below(worker* w, uint64_t limit) { return t_rng_below(&w->rng, limit); }

static bool chance(worker* w, uint64_t of) { return t_rng_below(&w->rng, of) == 0; }

static member* any_member(worker* w) {
  return w->hearing != NULL ? w->hearing : &w->s->members[below(w, w->s->p.caches)];
}

// The thread's own stream, or a shared one.
static uint8_t any_stream(worker* w) {
  const uint64_t which = below(w, 2 + SHARED);
  return (uint8_t)(which < 2 ? w->number : CREW + which - 2);
}

static tide_stream stream_of(worker* w, uint8_t stream) { return w->s->streams[stream]; }

static const char* any_tag(worker* w) { return tags[below(w, TAGS)]; }

static size_t any_bytes(worker* w) {
  switch (below(w, 6)) {
    case 0: return 512 * (1 + below(w, 16));
    case 1: return 4 * KIB * (1 + below(w, 100));
    case 2: return MIB + 4 * KIB * below(w, 512);
    case 3: return LIMIT_UNIT * (1 + below(w, 3));
    default: return 8 * (64 + below(w, 8192));
  }
}

static item* any_item(worker* w) { return &w->places[below(w, PLACES)]; }

// ---------------------------------------------------------------------------------------------------
// Blocks

static void do_release(worker* w) {
  item* const it = any_item(w);
  if (it->member == NULL) return;
  if (!chance(w, 4)) item_touch(w, it, it->stream);
  item_give(w, it);
}

// After a request that failed.
static void give_some(worker* w) {
  for (size_t i = 0; i < PLACES / 4; ++i) do_release(w);
}

#define ALLOC_MASK (MAY(TIDE_ERR_STATE) | MAY(TIDE_ERR_CAPTURE))

// A request into a place, in whichever pool.
static bool block_take(worker* w, member* m, room* in, item* it) {
  item new = { .member = m, .room = in, .stream = any_stream(w) };
  const size_t bytes = any_bytes(w);
  tide_block block = { NULL, 0 };
  if (!ASKED(w->s, tide_device_alloc(m->d, stream_of(w, new.stream), bytes, &block), ALLOC_MASK))
    return false;
  item_name(w->s, &new, block, bytes);
  *it = new;
  return true;
}

static void do_alloc(worker* w) {
  item* const it = any_item(w);
  if (it->member != NULL) return;
  if (!block_take(w, any_member(w), NULL, it)) give_some(w);
  else if (!chance(w, 8)) item_touch(w, it, it->stream);
}

static room* any_room(worker* w, member* m) { return atomic_load(&m->rooms[below(w, ROOMS)]); }

static bool scope_open(worker* w, member* m, tide_pool pool) {
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.is_region = !chance(w, 32);
  const unsigned mask = MAY(TIDE_ERR_STATE) | MAY(TIDE_ERR_HANDLE) | MAY(TIDE_ERR_LIMIT);
  return ASKED(w->s, tide_device_pool_begin(m->d, pool, &scope), mask);
}

static bool room_take(worker* w, member* m, room* in, item* it) {
  if (!scope_open(w, m, in->pool)) return false;
  const bool is_taken = block_take(w, m, in, it);
  T_OK(tide_device_pool_end(m->d, in->pool));
  return is_taken;
}

static bool room_is_fixed(const room* in) { return strncmp(tags[atomic_load(&in->tag)], "fixed", 5) == 0; }

// Blocks whose contents never change are written before they can be parked.
static void room_take_fixed(worker* w, member* m, room* in, item* it) {
  const tide_stream stream = stream_of(w, w->number);
  T_EQ(pthread_rwlock_rdlock(&m->touch), 0);
  const char* const tag = tags[atomic_load(&in->tag)];
  if (ASKED(w->s, tide_device_use(m->d, tag, stream), USE_MASK)) {
    if (room_take(w, m, in, it)) block_write(w, it);
    T_OK(tide_device_done(m->d, tag, stream));
  }
  T_EQ(pthread_rwlock_unlock(&m->touch), 0);
}

static void do_room_alloc(worker* w) {
  member* const m = any_member(w);
  room* const in = any_room(w, m);
  item* const it = any_item(w);
  if (in == NULL || it->member != NULL) return;
  if (room_is_fixed(in)) room_take_fixed(w, m, in, it);
  else if (room_take(w, m, in, it) && !chance(w, 4)) item_touch(w, it, it->stream);
}

static void do_touch(worker* w) {
  item* const it = any_item(w);
  if (it->member != NULL) item_touch(w, it, any_stream(w));
}

// Swaps a block with one of the board, so that threads release what others allocated.
static void do_swap(worker* w) {
  item* const place = &w->s->board[below(w, BOARD)];
  item* const it = any_item(w);
  T_EQ(pthread_mutex_lock(&w->s->lock), 0);
  const item other = *place;
  *place = *it;
  *it = other;
  T_EQ(pthread_mutex_unlock(&w->s->lock), 0);
}

// The queue of a stream may not grow for ever.
static void do_wait(worker* w) {
  const tide_stream stream = stream_of(w, any_stream(w));
  INSIST(w->s, tide_machine_stream_synchronize(w->s->m, 0, stream));
}

static void job_spin(void* user) {
  for (volatile uintptr_t i = (uintptr_t)user; i > 0; --i) continue;
}

static void do_delay(worker* w) {
  const tide_stream stream = stream_of(w, any_stream(w));
  void* const turns = (void*)(uintptr_t)below(w, 40000);
  INSIST(w->s, tide_machine_call(w->s->m, 0, stream, job_spin, turns));
}

static void do_reserve(worker* w) {
  member* const m = any_member(w);
  const uint64_t bytes = LIMIT_UNIT * (1 + below(w, 12));
  (void)ASKED(w->s, tide_device_reserve(m->d, stream_of(w, any_stream(w)), bytes), MAY(TIDE_ERR_CAPTURE));
}

// A stream that comes and goes, with a block that outlives it or not.
static void do_stream(worker* w) {
  world* const s = w->s;
  member* const m = any_member(w);
  const bool is_external = chance(w, 2);
  tide_stream stream = NULL;
  tide_block block = { NULL, 0 };
  INSIST(s, tide_machine_stream_new(s->m, 0, TIDE_STREAM_NON_BLOCKING, 0, &stream));
  const size_t bytes = any_bytes(w);
  const tide_status status = is_external ? tide_device_alloc_external(m->d, stream, bytes, &block)
                                         : tide_device_alloc(m->d, stream, bytes, &block);
  if (expect_one_of(s, "a request on a new stream", status, ALLOC_MASK)) {
    const content c = { block.address, bytes, 1 + atomic_fetch_add(&s->tags, 1) };
    INSIST(s, work_write(s->m, stream, c));
    INSIST(s, work_read(s->m, stream, c));
    const bool is_closed = !is_external && chance(w, 2);
    if (is_closed) INSIST(s, tide_device_close_stream(m->d, stream));
    if (is_closed || is_external) INSIST(s, tide_machine_stream_free(s->m, 0, stream));
    T_OK(tide_device_release(m->d, block));
    if (is_closed || is_external) return;
  }
  INSIST(s, tide_machine_stream_free(s->m, 0, stream));
}

// A thread that ends with full magazines.
static void* errand_run(void* user) {
  worker* const w = user;
  tide_block blocks[24];
  size_t count = 0;
  member* const m = any_member(w);
  const tide_stream stream = stream_of(w, w->number);
  for (size_t i = 0; i < 24; ++i) {
    tide_block block = { NULL, 0 };
    if (ASKED(w->s, tide_device_alloc(m->d, stream, 512 + below(w, 4096), &block), ALLOC_MASK))
      blocks[count++] = block;
  }
  while (count > 0) T_OK(tide_device_release(m->d, blocks[--count]));
  return NULL;
}

static void do_errand(worker* w) {
  pthread_t thread;
  t_thread_start(&thread, errand_run, w);
  t_thread_join(thread);
}

// ---------------------------------------------------------------------------------------------------
// Rooms, and pools without a tag

static void do_room_new(worker* w) {
  static const uint32_t backups[] = { TIDE_BACKUP_PINNED, TIDE_BACKUP_PINNED, TIDE_BACKUP_PAGEABLE,
                                      TIDE_BACKUP_FILE, TIDE_BACKUP_NONE };
  member* const m = any_member(w);
  _Atomic(room*)* const place = &m->rooms[below(w, ROOMS)];
  const size_t tag = below(w, TAGS);
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  tide_pool pool = 0;
  if (atomic_load(place) != NULL) return;
  options.tag = tags[tag];
  options.backup = backups[below(w, 5)];
  options.use_on_oom = chance(w, 8);
  options.no_split = chance(w, 24);
  options.is_plain = chance(w, 24);
  if (!ASKED(w->s, tide_device_pool_new(m->d, &options, &pool), 0)) return;
  room* const new = calloc(1, sizeof *new);
  T_CHECK(new != NULL);
  new->pool = pool;
  atomic_store(&new->tag, tag);
  new->next = atomic_load(&m->all_rooms);
  while (!atomic_compare_exchange_weak(&m->all_rooms, &new->next, new)) continue;
  room* none = NULL;
  (void)atomic_compare_exchange_strong(place, &none, new);  // or nobody finds it until the run ends
}

// Its blocks live on. While a scope is open in it, it stays; another thread may have ended it.
static void do_room_end(worker* w) {
  member* const m = any_member(w);
  _Atomic(room*)* const place = &m->rooms[below(w, ROOMS)];
  room* in = atomic_load(place);
  if (in == NULL) return;
  const unsigned mask = MAY(TIDE_ERR_STATE) | MAY(TIDE_ERR_HANDLE);
  if (!ASKED(w->s, tide_device_pool_drop(m->d, in->pool), mask)) return;
  (void)atomic_compare_exchange_strong(place, &in, NULL);
}

static void do_room_change(worker* w) {
  member* const m = any_member(w);
  room* const in = any_room(w, m);
  const unsigned mask = MAY(TIDE_ERR_STATE) | MAY(TIDE_ERR_HANDLE);
  if (in == NULL) return;
  if (!chance(w, 3)) {
    const tide_backup backup = (tide_backup)below(w, TIDE_BACKUP_FILE + 1);
    (void)ASKED(w->s, tide_device_pool_set_backup(m->d, in->pool, backup), mask);
    return;
  }
  const size_t tag = below(w, TAGS - 2);  // not "fixed": blocks of others may not be written
  T_EQ(pthread_rwlock_wrlock(&m->touch), 0);
  if (!room_is_fixed(in) && ASKED(w->s, tide_device_pool_set_tag(m->d, in->pool, tags[tag]), mask))
    atomic_store(&in->tag, tag);
  T_EQ(pthread_rwlock_unlock(&m->touch), 0);
}

static void do_room_trim(worker* w) {
  member* const m = any_member(w);
  room* const in = any_room(w, m);
  const unsigned mask = MAY(TIDE_ERR_HANDLE) | MAY(TIDE_ERR_CAPTURE);
  if (in != NULL) (void)ASKED(w->s, tide_device_trim_pool(m->d, in->pool), mask);
}

static bool filter_own(void* user, tide_stream stream) {
  const worker* const w = user;
  return self == w && stream != NULL;
}

static void pool_close(worker* w) {
  if (w->pool == 0) return;
  T_OK(tide_device_pool_end(w->pool_member->d, w->pool));
  INSIST(w->s, tide_device_pool_drop(w->pool_member->d, w->pool));
  w->pool = 0;
}

// The scope stays open for some steps. No room is opened for requests of other threads.
static void do_pool(worker* w) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  tide_scope scope = TIDE_SCOPE_INIT;
  if (w->pool != 0) return;
  w->pool_member = any_member(w);
  options.use_on_oom = chance(w, 3);
  options.no_split = chance(w, 8);
  options.is_plain = chance(w, 8);
  scope.kind = (uint32_t)below(w, TIDE_SCOPE_FILTER + 1);
  scope.stream = stream_of(w, any_stream(w));
  scope.filter = filter_own;
  scope.user = w;
  scope.is_region = !chance(w, 4);
  if (!ASKED(w->s, tide_device_pool_new(w->pool_member->d, &options, &w->pool), 0)) return;
  w->pool_until = w->steps + 1 + below(w, scope.is_region ? 24 : 6);
  if (ASKED(w->s, tide_device_pool_begin(w->pool_member->d, w->pool, &scope), MAY(TIDE_ERR_LIMIT))) return;
  INSIST(w->s, tide_device_pool_drop(w->pool_member->d, w->pool));
  w->pool = 0;
}

// A capture that allocates; its graph is thrown away.
static void do_capture(worker* w) {
  world* const s = w->s;
  member* const m = any_member(w);
  tide_scope scope = TIDE_SCOPE_INIT;
  tide_pool pool = 0;
  tide_block block = { NULL, 0 };
  tide_launch graph = NULL;
  if (w->pool != 0 || !ASKED(s, tide_device_pool_new(m->d, NULL, &pool), 0)) return;
  INSIST(s, tide_machine_capture_begin(s->m, 0, w->capturing, TIDE_CAPTURE_THREAD_LOCAL));
  scope.kind = TIDE_SCOPE_CAPTURE;
  scope.stream = w->capturing;
  const bool is_open = ASKED(s, tide_device_pool_begin(m->d, pool, &scope), MAY(TIDE_ERR_LIMIT));
  if (is_open) (void)ASKED(s, tide_device_alloc(m->d, w->capturing, any_bytes(w), &block), ALLOC_MASK);
  if (chance(w, 2)) {
    T_OK(tide_device_release(m->d, block));
    block = (tide_block){ NULL, 0 };
  }
  size_t times = 0;
  tide_status status = tide_machine_capture_end(s->m, 0, w->capturing, &graph);
  for (; is_fault(status); status = tide_machine_capture_end(s->m, 0, w->capturing, &graph))
    pardon(s, "capture_end", status, ++times);
  if (is_open) T_OK(tide_device_pool_end(m->d, pool));
  if (status == TIDE_OK) INSIST(s, tide_machine_launch_free(s->m, graph));
  else T_STATUS(status, TIDE_ERR_CAPTURE);
  T_OK(tide_device_release(m->d, block));
  INSIST(s, tide_device_pool_drop(m->d, pool));
}

// ---------------------------------------------------------------------------------------------------
// Parking and uses

#define PARK_MASK (USE_MASK | MAY(TIDE_ERR_HANDLE))

static bool is_under(const char* tag, const char* above) {
  const size_t length = strlen(above);
  return strncmp(tag, above, length) == 0 && (tag[length] == '\0' || tag[length] == '/');
}

// The contents of the rooms of a tag may be gone.
static void losses_note(member* m, const char* tag) {
  for (room* in = atomic_load(&m->all_rooms); in != NULL; in = in->next) {
    if (tag == NULL || is_under(tags[atomic_load(&in->tag)], tag)) atomic_fetch_add(&in->losses, 1);
  }
}

// With the lock held for writing. Pools choose their backup themselves, or none of them is discarded.
static void tag_park(worker* w, member* m, const char* tag) {
  tide_park_options options = TIDE_PARK_OPTIONS_INIT;
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  options.backup = (uint32_t)below(w, TIDE_BACKUP_OF_POOL + 1);
  options.unparks_on_request = !chance(w, 8);
  if (chance(w, 4)) options.backup = TIDE_BACKUP_PINNED;
  const bool is_discarding = options.backup == TIDE_BACKUP_NONE || options.backup == TIDE_BACKUP_OF_POOL;
  (void)ASKED(w->s, tide_device_park(m->d, tag, &options, &result), PARK_MASK);
  if (is_discarding) losses_note(m, tag);
}

static const char* any_tag_or_all(worker* w) { return chance(w, 12) ? NULL : any_tag(w); }

static void do_park(worker* w) {
  member* const m = any_member(w);
  const char* const tag = any_tag_or_all(w);
  T_EQ(pthread_rwlock_wrlock(&m->touch), 0);
  tag_park(w, m, tag);
  T_EQ(pthread_rwlock_unlock(&m->touch), 0);
}

static void hear_lost(void* user, uint64_t address, uint64_t bytes) {
  (void)user;
  T_FAIL("%" PRIu64 " bytes at %#" PRIx64 " are lost", bytes, address);
}

static void tag_unpark(worker* w, member* m, const char* tag) {
  const tide_stream streams[2] = { stream_of(w, any_stream(w)), stream_of(w, any_stream(w)) };
  tide_unpark_options options = TIDE_UNPARK_OPTIONS_INIT;
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  options.waits = chance(w, 4);
  options.keeps_backup = chance(w, 2);
  options.streams = streams;
  options.stream_count = below(w, 3);
  options.lost = hear_lost;
  (void)ASKED(w->s, tide_device_unpark(m->d, tag, &options, &result), PARK_MASK);
}

static void do_unpark(worker* w) { tag_unpark(w, any_member(w), any_tag_or_all(w)); }

// A use without a touch, which parking does not wait for.
static void do_use(worker* w) {
  member* const m = any_member(w);
  const char* const tag = any_tag(w);
  const tide_stream stream = stream_of(w, any_stream(w));
  const uint64_t times = 1 + below(w, 3);
  for (uint64_t i = 0; i < times; ++i) {
    if (!ASKED(w->s, tide_device_use(m->d, tag, stream), USE_MASK)) continue;
    if (chance(w, 2)) do_touch(w);
    T_OK(tide_device_done(m->d, tag, stream));
  }
}

static void do_backup(worker* w) {
  member* const m = any_member(w);
  const char* const tag = any_tag_or_all(w);
  tide_park_options options = TIDE_PARK_OPTIONS_INIT;
  options.backup = 1 + (uint32_t)below(w, TIDE_BACKUP_OF_POOL);
  const unsigned mask = MAY(TIDE_ERR_HANDLE) | MAY(TIDE_ERR_UNSUPPORTED);
  if (chance(w, 2)) (void)ASKED(w->s, tide_device_prepare_backup(m->d, tag, &options), mask);
  else (void)ASKED(w->s, tide_device_trim_backups(m->d, tag), mask | MAY(TIDE_ERR_CAPTURE));
}

static void do_read(worker* w) {
  uint8_t bytes[512];
  const void* data = NULL;
  const item* const it = any_item(w);
  const unsigned mask = MAY(TIDE_ERR_HANDLE) | MAY(TIDE_ERR_STATE);
  if (it->member == NULL || it->room == NULL) return;
  (void)ASKED(w->s, tide_device_read_parked(it->member->d, it->block.address, 512, bytes, &data), mask);
}

#endif
