// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Everything at once: threads that allocate, park, use, set budgets, join and leave a ledger, grow ranges,
// attach observers that call back, and end, on several caches of one machine, while calls of the machine and
// allocations of records fail. Blocks have contents (see work.h) that are compared before they are released,
// when they were parked, and by other streams.
//
// It is made of many short runs, each in a process of its own that is watched (watch.h), with a seed of its
// own: the first has that of the test, the next ones those behind it. A run draws what it consists of and how
// often each call is made; some are left out. All threads of a run stop from time to time, when all
// invariants of the caches must hold. At its end nothing may be left: no memory, address, event, stream,
// record, descriptor or thread, and no member of the ledger.
//
//   TIDE_TEST_SCALE          makes the test longer: 1 is a second and a half
//   TIDE_CROSSING_REPEATS    how often each seed is run; threads differ from one time to the next
#define T_THREADS
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
    if (room_take(w, m, in, it)) block_write(w->s, it);
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

// ---------------------------------------------------------------------------------------------------
// Limits and ledgers

static uint64_t any_limit(worker* w) {
  return chance(w, 3) ? TIDE_NO_LIMIT : LIMIT_UNIT * below(w, w->s->p.capacity / LIMIT_UNIT / 2);
}

static void do_budget(worker* w) {
  member* const m = any_member(w);
  const char* const tag = any_tag(w);
  tide_budget budget = TIDE_BUDGET_INIT;
  budget.limit = any_limit(w);
  budget.soft_limit = any_limit(w);
  budget.guarantee = chance(w, 3) ? LIMIT_UNIT * below(w, 5) : 0;
  if (budget.guarantee > budget.limit) budget.guarantee = budget.limit;
  budget.yields = !chance(w, 4);
  budget.is_constant = is_under(tag, "fixed") && chance(w, 2);
  budget.priority = (int32_t)below(w, 3);
  (void)ASKED(w->s, tide_device_budget_set(m->d, tag, chance(w, 4) ? NULL : &budget), 0);
}

static void do_limit(worker* w) {
  member* const m = any_member(w);
  const uint64_t capacity = w->s->p.capacity;
  const uint64_t limit = capacity / 4 + below(w, capacity);
  T_OK(tide_device_set_limit(m->d, chance(w, 3) ? TIDE_NO_LIMIT : limit));
}

static void do_join(worker* w) {
  member* const m = any_member(w);
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  options.ledger = ledger_path();
  options.guarantee_bytes = chance(w, 2) ? 0 : LIMIT_UNIT * below(w, 6);
  options.wait_ns = below(w, 3) * UINT64_C(1500000);
  options.priority = (int32_t)below(w, 3);
  (void)ASKED(w->s, tide_device_join(m->d, &options), MAY(TIDE_ERR_STATE) | MAY(TIDE_ERR_LIMIT));
}

static void do_leave(worker* w) { tide_device_leave(any_member(w)->d); }

// Somebody else in the ledger, who asks for memory.
static void do_neighbour(worker* w) {
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  tide_quota* quota = NULL;
  options.ledger = ledger_path();
  options.wait_ns = below(w, 3) * UINT64_C(1000000);
  options.priority = (int32_t)below(w, 3);
  if (!ASKED(w->s, tide_quota_join(&options, &quota), MAY(TIDE_ERR_LIMIT))) return;
  const uint64_t bytes = LIMIT_UNIT * (1 + below(w, w->s->p.ledger_bytes / LIMIT_UNIT));
  (void)ASKED(w->s, tide_quota_take(quota, bytes), MAY(TIDE_ERR_LIMIT));
  tide_quota_leave(quota);
}

static void do_total(worker* w) {
  const uint64_t total = w->s->p.ledger_bytes;
  const uint64_t bytes = chance(w, 2) ? total : total / 2 + below(w, total / 2);
  (void)ASKED(w->s, tide_quota_set_total(ledger_path(), bytes), MAY(TIDE_ERR_LIMIT));
}

static void do_options(worker* w) {
  static const char* const texts[] = { "tide_idle_handles:0",
                                       "tide_idle_handles:4,tide_slack:0.1",
                                       "tide_slack:0,tide_wait_slack:0",
                                       "tide_least_handle_mb:2,tide_most_handle_mb:2",
                                       "tide_least_handle_mb:4,tide_most_handle_mb:16",
                                       "tide_most_handle_mb:128",
                                       "tide_ahead:True",
                                       "tide_ahead:False",
                                       "tide_stitch_share:0.05",
                                       "tide_floor_mb:8",
                                       "captures_by_stream:True",
                                       "plain_pools:True",
                                       "expandable_segments:True",
                                       "fixes:True",
                                       "garbage_collection_threshold:0.5",
                                       "max_split_size_mb:20" };
  member* const m = any_member(w);
  tide_device_options options = device_defaults();
  T_OK(tide_device_options_parse(texts[below(w, sizeof texts / sizeof texts[0])], &options));
  if (chance(w, 3)) options = device_defaults();
  (void)ASKED(w->s, tide_device_configure(m->d, &options), 0);
}

// ---------------------------------------------------------------------------------------------------
// Ranges

static void unit_touch(worker* w, size_t i) {
  if (w->units[i].address != NULL) INSIST(w->s, work_read(w->s->m, w->unit_streams[i], w->units[i]));
}

// Units are committed one by one, so that they go one by one.
static void unit_commit(worker* w, size_t i) {
  const uint64_t unit = tide_range_unit(w->range);
  const tide_stream stream = stream_of(w, any_stream(w));
  if (w->units[i].address != NULL) return;
  if (!ASKED(w->s, tide_device_range_commit(w->range_member->d, w->range, stream, i * unit, unit),
             ALLOC_MASK))
    return;
  uint8_t* const address = (uint8_t*)tide_range_address(w->range) + i * unit;
  w->units[i] = (content){ address, unit, 1 + atomic_fetch_add(&w->s->tags, 1) };
  w->unit_streams[i] = stream;
  INSIST(w->s, work_write(w->s->m, stream, w->units[i]));
}

// After an error a part may be gone. What is left is committed again later, by any stream.
static void units_forget(worker* w, size_t first, size_t count) {
  memset(&w->units[first], 0, count * sizeof w->units[0]);
}

static void units_wait(worker* w) {
  for (size_t i = 0; i < RANGE_UNITS; ++i)
    INSIST(w->s, tide_machine_stream_synchronize(w->s->m, 0, w->unit_streams[i]));
}

static void range_end(worker* w) {
  for (size_t i = 0; i < RANGE_UNITS; ++i) unit_touch(w, i);
  units_forget(w, 0, RANGE_UNITS);
  if (ASKED(w->s, tide_device_range_free(w->range_member->d, w->range), MAY(TIDE_ERR_CAPTURE)))
    w->range = NULL;
  else units_wait(w);
}

static void units_decommit(worker* w) {
  const uint64_t unit = tide_range_unit(w->range);
  const size_t first = below(w, RANGE_UNITS);
  const size_t count = 1 + below(w, RANGE_UNITS - first);
  for (size_t i = first; i < first + count; ++i) unit_touch(w, i);
  tide_device_cache* const d = w->range_member->d;
  units_forget(w, first, count);
  if (!ASKED(w->s, tide_device_range_decommit(d, w->range, first * unit, count * unit),
             MAY(TIDE_ERR_CAPTURE)))
    units_wait(w);
}

static void do_range(worker* w) {
  if (w->range == NULL) {
    w->range_member = any_member(w);
    const uint64_t bytes = RANGE_UNITS * 4 * LIMIT_UNIT;
    (void)ASKED(w->s, tide_device_range_new(w->range_member->d, bytes, &w->range), MAY(TIDE_ERR_UNSUPPORTED));
    return;
  }
  const uint64_t what = below(w, 8);
  if (what < 5) unit_commit(w, below(w, RANGE_UNITS));
  else if (what < 7) units_decommit(w);
  else range_end(w);
}

// The range that all threads use.
static void do_span(worker* w) {
  member* const m = any_member(w);
  if (m->span == NULL) return;
  const uint64_t unit = tide_range_unit(m->span);
  const uint64_t first = below(w, SPAN_UNITS);
  const uint64_t bytes = (1 + below(w, SPAN_UNITS - first)) * unit;
  const tide_stream stream = stream_of(w, any_stream(w));
  if (chance(w, 2)) {
    (void)ASKED(w->s, tide_device_range_commit(m->d, m->span, stream, first * unit, bytes), ALLOC_MASK);
  } else {
    (void)ASKED(w->s, tide_device_range_decommit(m->d, m->span, first * unit, bytes), MAY(TIDE_ERR_CAPTURE));
  }
}

// ---------------------------------------------------------------------------------------------------
// Looking

static void do_trim(worker* w) {
  const uint64_t keep = chance(w, 2) ? 0 : below(w, w->s->p.capacity / 4);
  (void)ASKED(w->s, tide_device_trim(any_member(w)->d, keep), MAY(TIDE_ERR_CAPTURE));
}

static void do_poll(worker* w) {
  (void)ASKED(w->s, tide_device_poll(any_member(w)->d), MAY(TIDE_ERR_CAPTURE));
}

static void do_snapshot(worker* w) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  (void)ASKED(w->s, tide_device_snapshot(any_member(w)->d, NULL, trace), 0);
  tide_trace_free(trace);
}

static void do_stats(worker* w) {
  member* const m = any_member(w);
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  tide_tag_stats tag = TIDE_TAG_STATS_INIT;
  tide_budget_stats budget = TIDE_BUDGET_STATS_INIT;
  T_OK(tide_device_get_stats(m->d, &stats));
  T_LE(0, stats.reserved_bytes[0].current);
  T_LE((uint64_t)stats.reserved_bytes[0].current, w->s->p.capacity);
  (void)ASKED(w->s, tide_device_tag_stats(m->d, any_tag_or_all(w), &tag), MAY(TIDE_ERR_HANDLE));
  (void)ASKED(w->s, tide_device_budget_stats(m->d, any_tag(w), &budget), 0);
  if (chance(w, 4)) tide_device_reset_peaks(m->d);
}

static size_t frames_make(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  const size_t count = capacity < 3 ? capacity : 3;
  for (size_t i = 0; i < count; ++i) frames[i] = 0x1000 + (self != NULL ? self->steps % 16 : 0) + i;
  return count;
}

static void do_history(worker* w) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.is_on = !chance(w, 3);
  options.clears = chance(w, 4);
  options.max_entries = 1 + below(w, 300);
  options.level = (uint8_t)below(w, TIDE_HISTORY_ALL + 1);
  if (options.level != TIDE_HISTORY_NEVER) options.gather = frames_make;
  (void)ASKED(w->s, tide_device_history(any_member(w)->d, &options), 0);
}

static bool see_entries(void* user, const tide_trace_entry* entries, size_t count) {
  size_t* const sum = user;
  for (size_t i = 0; i < count; ++i) *sum += entries[i].bytes;
  return true;
}

static bool see_segment(void* user, const tide_segment_info* segment) {
  size_t* const sum = user;
  *sum += segment->bytes;
  return true;
}

static bool see_block(void* user, const tide_block_info* block) {
  size_t* const sum = user;
  *sum += block->bytes;
  return true;
}

static bool see_tag(void* user, const char* tag) {
  size_t* const sum = user;
  *sum += strlen(tag);
  return true;
}

static void see_stack(void* user, uint32_t stack) {
  size_t* const sum = user;
  *sum += stack;
}

static void do_visit(worker* w) {
  tide_device_cache* const d = any_member(w)->d;
  size_t sum = 0;
  const tide_device_visitor visitor = { see_segment, chance(w, 2) ? see_block : NULL, &sum };
  switch (below(w, 5)) {
    case 0: (void)ASKED(w->s, tide_device_history_visit(d, see_entries, &sum), 0); break;
    case 1: (void)ASKED(w->s, tide_device_visit_tags(d, see_tag, &sum), 0); break;
    case 2: (void)ASKED(w->s, tide_device_visit_stacks(d, see_stack, &sum), 0); break;
    case 3: (void)ASKED(w->s, tide_device_annotate(d, "crossing"), 0); break;
    default: (void)ASKED(w->s, tide_device_visit(d, &visitor), 0); break;
  }
}

// ---------------------------------------------------------------------------------------------------
// Observers

static void spin(uint64_t turns) {
  for (volatile uint64_t i = turns; i > 0; --i) continue;
}

// Calls of an observer. It takes no lock that a call may need, and waits for no thread.
static void callback_call(worker* w, member* m, uint64_t what) {
  const tide_stream stream = stream_of(w, w->number);
  tide_block block = { NULL, 0 };
  switch (what) {
    case 0: do_stats(w); break;
    case 1: do_poll(w); break;
    case 2: do_trim(w); break;
    case 3: do_unpark(w); break;
    case 4: do_visit(w); break;
    case 5: do_limit(w); break;
    case 6: do_budget(w); break;
    case 7: do_span(w); break;
    case 8:
      if (pthread_rwlock_trywrlock(&m->touch) != 0) break;
      tag_park(w, m, any_tag(w));
      T_EQ(pthread_rwlock_unlock(&m->touch), 0);
      break;
    case 9:
      if (!ASKED(w->s, tide_device_use(m->d, tags[w->steps % TAGS], stream), USE_MASK)) break;
      T_OK(tide_device_done(m->d, tags[w->steps % TAGS], stream));
      break;
    default:
      (void)ASKED(w->s, tide_device_alloc(m->d, stream, any_bytes(w), &block), ALLOC_MASK);
      T_OK(tide_device_release(m->d, block));
      break;
  }
}

// Nothing, or slow, or a call of this cache: two that call each other could wait for each other. Threads of
// the library only take their time.
static void listener_hear(listener* l, const char* callback) {
  const unsigned number = atomic_fetch_add(&l->calls, 1);
  if (atomic_load(&l->s->is_ending)) return;
  if (number % 8 == 3) spin(2000 * (number % 5));
  if (number % 8 == 5) (void)sched_yield();
  worker* const w = self;
  if (w == NULL || w->hearing != NULL || number % 16 != 0) return;
  const char* const before = watch_enter(callback);
  w->hearing = l->member;
  callback_call(w, l->member, below(w, 14));
  w->hearing = NULL;
  watch_leave(before);
}

static void hear_trace(void* user, const tide_trace_entry* entry) {
  (void)entry;
  listener_hear(user, "trace");
}

static void hear_entry(void* user, const tide_trace_entry* entry, uint64_t number) {
  (void)entry, (void)number;
  listener_hear(user, "entries");
}

static void hear_oom(void* user, const tide_oom* oom) {
  (void)oom;
  listener_hear(user, "oom");
}

// Releases a block of the thread that asks, if it has one there.
static bool callback_release(const member* m) {
  worker* const w = self;
  for (size_t i = 0; w != NULL && i < PLACES; ++i) {
    if (w->places[i].member != m || &w->places[i] == w->held) continue;
    item_give(w, &w->places[i]);
    return true;
  }
  return false;
}

static bool hear_reclaim(void* user, tide_device_cache* device) {
  listener* const l = user;
  (void)device;
  listener_hear(l, "reclaim");
  return atomic_load(&l->calls) % 4 == 1 && callback_release(l->member);
}

static void hear_pressure(void* user, tide_device_cache* device, const tide_pressure* pressure) {
  listener* const l = user;
  (void)device, (void)pressure;
  listener_hear(l, "pressure");
  if (atomic_load(&l->calls) % 2 == 1) (void)callback_release(l->member);
}

static void do_observe(worker* w) {
  member* const m = any_member(w);
  listener* const l = &m->listeners[below(w, LISTENERS)];
  tide_observer observer = atomic_exchange(&l->observer, 0);
  tide_status status = TIDE_OK;
  if (observer != 0) {
    T_OK(tide_device_detach(m->d, observer));
    return;
  }
  switch (below(w, 6)) {
    case 0: status = tide_device_observe_oom(m->d, hear_oom, l, &observer); break;
    case 1: status = tide_device_observe_entries(m->d, hear_entry, l, &observer); break;
    case 2: status = tide_device_observe_reclaim(m->d, hear_reclaim, l, &observer); break;
    case 3: status = tide_device_observe_pressure(m->d, hear_pressure, l, &observer); break;
    default: status = tide_device_observe_trace(m->d, hear_trace, l, &observer); break;
  }
  if (!expect_one_of(w->s, "device_observe", status, MAY(TIDE_ERR_LIMIT))) return;
  observer = atomic_exchange(&l->observer, observer);
  if (observer != 0) T_OK(tide_device_detach(m->d, observer));
}

// ---------------------------------------------------------------------------------------------------
// Faults

// Calls fail, or take long.
static void do_fault(worker* w) {
  const uint64_t bits = t_rng_next(&w->rng);
  const op o = { 0, (uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint32_t)(bits >> 32) };
  faults f = { .m = w->s->m };
  if (!w->s->p.has_faults) return;
  faults_draw(&f, &o);
  if (chance(w, 3)) f.fault.status = TIDE_OK, f.fault.latency_ns = below(w, 300000), f.fault.count = 8;
  tide_machine_fault_clear(w->s->m);
  T_ANY(tide_machine_fault_add(w->s->m, &f.fault));  // others add theirs
}

static void do_heap(worker* w) {
  world* const s = w->s;
  counting_heap* const heap = chance(w, 8) ? &s->machine_records : &s->records;
  if (!s->p.has_heap_faults) return;
  const bool is_set = atomic_load(&heap->fail_at) != SIZE_MAX && s->p.is_exhausted;
  atomic_store(&heap->fail_at, is_set ? SIZE_MAX : atomic_load(&heap->allocs) + below(w, 40));
}

static void do_relief(worker* w) { world_relieve(w->s); }

// ---------------------------------------------------------------------------------------------------
// Threads

#define VERBS(X)                                                                                           \
  X(alloc, 160)                                                                                            \
  X(room_alloc, 160)                                                                                       \
  X(release, 240)                                                                                          \
  X(touch, 60) X(swap, 40) X(wait, 20) X(delay, 20) X(stream, 6) X(errand, 4) X(room_new, 24)              \
      X(room_end, 12) X(room_change, 6) X(room_trim, 8) X(pool, 6) X(capture, 3) X(park, 24) X(unpark, 30) \
          X(use, 40) X(backup, 6) X(read, 6) X(budget, 12) X(limit, 6) X(join, 12) X(leave, 8)             \
              X(neighbour, 4) X(total, 2) X(options, 4) X(range, 24) X(span, 12) X(trim, 6) X(poll, 6)     \
                  X(snapshot, 2) X(stats, 6) X(history, 4) X(visit, 6) X(observe, 16) X(fault, 10)         \
                      X(heap, 10) X(relief, 6)

typedef struct verb {
  const char* name;
  void (*run)(worker* w);
  uint32_t weight;
} verb;

#define VERB_ROW(name, weight) { #name, do_##name, weight },
static const verb verbs[] = { VERBS(VERB_ROW) };
enum { VERB_COUNT = sizeof verbs / sizeof verbs[0] };

// How often each call is made in this run.
static uint32_t weights[VERB_COUNT];
static uint32_t weight_sum;

// Some are left out, others are made more often.
static void weights_draw(t_rng* rng) {
  weight_sum = 0;
  for (size_t i = 0; i < VERB_COUNT; ++i) {
    static const uint32_t factors[] = { 0, 1, 1, 1, 1, 2, 2, 4 };
    const uint32_t factor = i < 3 ? 1 + (uint32_t)t_rng_below(rng, 2) : factors[t_rng_below(rng, 8)];
    weights[i] = verbs[i].weight * factor;
    weight_sum += weights[i];
  }
}

static void worker_step(worker* w) {
  uint64_t at = below(w, weight_sum);
  size_t i = 0;
  while (at >= weights[i]) at -= weights[i++];
  watch_step(verbs[i].name);
  w->steps++;
  if (w->pool != 0 && w->steps > w->pool_until) pool_close(w);
  verbs[i].run(w);
}

static void* worker_run(void* user) {
  worker* const w = user;
  self = w;
  watch_begin(w->number);
  const uint64_t end = w->steps + w->s->p.steps;
  while (w->steps < end) worker_step(w);
  watch_step("end");
  pool_close(w);
  watch_end();
  return NULL;
}

// ---------------------------------------------------------------------------------------------------
// Runs

static plan plan_draw(t_rng* rng) {
  plan p = { .threads = 8 + t_rng_below(rng, 9), .caches = 1 + t_rng_below(rng, CACHES), .phases = 2 };
  p.steps = 20 + t_rng_below(rng, 100);
  p.capacity = (64 + 32 * t_rng_below(rng, 5)) * MIB;
  p.ledger_bytes = p.capacity / 4 * (1 + t_rng_below(rng, 4));
  p.has_faults = t_rng_below(rng, 2) == 0;
  p.has_heap_faults = t_rng_below(rng, 2) == 0;
  p.is_exhausted = t_rng_below(rng, 2) == 0;
  p.is_untidy = t_rng_below(rng, 3) == 0;
  p.has_rest = t_rng_below(rng, 3) == 0;
  return p;
}

static void member_open(world* s, size_t i) {
  member* const m = &s->members[i];
  tide_device_options options = device_defaults();
  options.heap = &s->records.heap;
  if (s->p.has_rest && i + 1 == s->p.caches) options.policy = TIDE_POLICY_TORCH;
  T_OK(tide_device_new(s->m, 0, &options, &m->d));
  T_EQ(pthread_rwlock_init(&m->touch, NULL), 0);
  T_OK(tide_device_range_new(m->d, SPAN_UNITS * LIMIT_UNIT, &m->span));
  for (size_t k = 0; k < LISTENERS; ++k) m->listeners[k] = (listener){ .s = s, .member = m };
}

// Makes the machine probe itself before calls fail: what it cannot take back from a probe stays with it.
static void machine_probe(tide_machine* m) {
  tide_fault none = TIDE_FAULT_INIT;
  tide_probe probe = TIDE_PROBE_INIT;
  none.call = TIDE_CALL_PEER_QUERY;
  none.status = TIDE_OK;
  T_OK(tide_machine_fault_add(m, &none));
  T_OK(tide_machine_probe(m, 0, TIDE_FEATURE_VIRTUAL_MEMORY, &probe));
  T_CHECK(probe.works && probe.call_count > 0);
  tide_machine_fault_clear(m);
}

static void world_open(world* s, uint64_t seed) {
  t_rng rng = t_rng_of(seed, 0);
  tide_host_options host = TIDE_HOST_OPTIONS_INIT;
  s->p = plan_draw(&rng);
  weights_draw(&rng);
  counting_heap_init(&s->records, SIZE_MAX, s->p.is_exhausted);
  counting_heap_init(&s->machine_records, SIZE_MAX, false);
  host.capacity = s->p.capacity;
  host.heap = &s->machine_records.heap;
  T_OK(tide_machine_new_host(&host, &s->m));
  machine_probe(s->m);
  T_OK(tide_quota_make(ledger_path(), s->p.ledger_bytes));
  T_EQ(pthread_mutex_init(&s->lock, NULL), 0);
  for (size_t i = 0; i + 1 < STREAMS; ++i) s->streams[i] = stream_new(s->m, 0, TIDE_STREAM_NON_BLOCKING);
  for (size_t i = 0; i < s->p.threads; ++i) {
    s->workers[i] = (worker){ .s = s, .number = (uint8_t)i, .rng = t_rng_of(seed, 1 + i) };
    s->workers[i].ordering = event_new(s->m, 0);
    s->workers[i].capturing = stream_new(s->m, 0, TIDE_STREAM_NON_BLOCKING);
  }
  for (size_t i = 0; i < s->p.caches; ++i) member_open(s, i);
}

// What members hold is what they have reserved. A cache that is no member has more. The threads that answer
// asks of others may still be at work.
static bool ledger_is_right(world* s) {
  const ledger_view view = ledger_look(ledger_path());
  uint64_t reserved = 0;
  for (size_t i = 0; i < s->p.caches; ++i) {
    tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
    T_OK(tide_device_get_stats(s->members[i].d, &stats));
    reserved += (uint64_t)stats.reserved_bytes[0].current;
  }
  return view.count == s->p.caches ? view.ledger.held_bytes == reserved : view.ledger.held_bytes <= reserved;
}

// All threads have stopped.
static void world_check(world* s) {
  T_OK(tide_machine_device_synchronize(s->m, 0));
  T_WAIT(ledger_is_right(s));
  if (atomic_load(&is_content_wrong)) T_FAIL("a block has other bytes than were written");
  for (size_t i = 0; i < s->p.caches; ++i) {
    const int broken = tide_device_check(s->members[i].d);
    if (broken != 0) T_FAIL("cache %zu: invariant %d: %s", i, broken, tide_last_error()->text);
  }
}

static void world_phase(world* s) {
  pthread_t threads[CREW];
  for (size_t i = 0; i < s->p.threads; ++i) t_thread_start(&threads[i], worker_run, &s->workers[i]);
  for (size_t i = 0; i < s->p.threads; ++i) t_thread_join(threads[i]);
  world_relieve(s);
  world_check(s);
}

// Every place where a block may be.
static item* place_at(world* s, size_t i) {
  return i < BOARD ? &s->board[i] : &s->workers[(i - BOARD) / PLACES].places[(i - BOARD) % PLACES];
}

static bool show_segment(void* user, const tide_segment_info* segment) {
  (void)user;
  (void)fprintf(stderr, "segment %#" PRIx64 ", %" PRIu64 " bytes, pool %u \"%s\", stream %p%s%s\n",
                segment->address, segment->bytes, segment->pool, segment->tag, (void*)segment->stream,
                segment->is_expandable ? ", expandable" : "", segment->is_parked ? ", parked" : "");
  return true;
}

static bool show_block(void* user, const tide_block_info* block) {
  (void)user;
  (void)fprintf(stderr, "  block %#" PRIx64 ", %" PRIu64 " bytes, state %u\n", block->address, block->bytes,
                block->state);
  return true;
}

// Nothing is reserved, or it is shown.
static void expect_nothing_reserved(member* m) {
  const tide_device_visitor visitor = { show_segment, show_block, NULL };
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  T_OK(tide_device_get_stats(m->d, &stats));
  T_EQ(stats.allocation[0].current, 0);
  if (stats.reserved_bytes[0].current != 0) T_OK(tide_device_visit(m->d, &visitor));
  T_EQ(stats.reserved_bytes[0].current, 0);
}

static void member_tidy(member* m) {
  tide_device_options options = device_defaults();
  for (size_t k = 0; k < LISTENERS; ++k) {
    const tide_observer observer = atomic_exchange(&m->listeners[k].observer, 0);
    if (observer != 0) T_OK(tide_device_detach(m->d, observer));
  }
  for (room* in = atomic_load(&m->all_rooms); in != NULL; in = in->next)
    T_ANY(tide_device_pool_drop(m->d, in->pool));
  T_OK(tide_device_range_free(m->d, m->span));
  T_OK(tide_device_configure(m->d, &options));
  T_OK(tide_device_trim(m->d, 0));
  if (tide_device_check(m->d) != 0) T_FAIL("at the end: %s", tide_last_error()->text);
  expect_nothing_reserved(m);
}

// Gives everything back that threads have, comparing it for the last time.
static void world_tidy(world* s) {
  worker* const w = &s->workers[0];
  self = w;
  for (size_t i = 0; i < BOARD + s->p.threads * PLACES; ++i) {
    item* const it = place_at(s, i);
    if (it->member == NULL) continue;
    item_touch(w, it, it->stream);
    item_give(w, it);
  }
  for (size_t i = 0; i < s->p.threads; ++i) {
    if (s->workers[i].range != NULL) range_end(&s->workers[i]);
    T_CHECK(s->workers[i].range == NULL);
  }
  for (size_t i = 0; i < s->p.caches; ++i) member_tidy(&s->members[i]);
}

static void member_close(member* m) {
  for (room* in = atomic_load(&m->all_rooms); in != NULL;) {
    room* const next = in->next;
    free(in);
    in = next;
  }
  tide_device_free(m->d);
  T_EQ(pthread_rwlock_destroy(&m->touch), 0);
}

static void ledger_expect_empty(void) {
  const ledger_view view = ledger_look(ledger_path());
  T_EQ(view.ledger.member_count, 0);
  T_EQ(view.ledger.held_bytes, 0);
  ledger_end();
}

// What was made and not ended, by the machine's own counts.
static uint64_t left(const world* s, tide_call make, tide_call end) {
  const tide_call_stats made = tide_machine_call_stats(s->m, make);
  const tide_call_stats ended = tide_machine_call_stats(s->m, end);
  return (made.calls - made.failures) - (ended.calls - ended.failures);
}

static void machine_close(world* s) {
  for (size_t i = 0; i < s->p.threads; ++i) {
    T_OK(tide_machine_event_free(s->m, s->workers[i].ordering));
    T_OK(tide_machine_stream_free(s->m, 0, s->workers[i].capturing));
  }
  for (size_t i = 0; i + 1 < STREAMS; ++i) T_OK(tide_machine_stream_free(s->m, 0, s->streams[i]));
  T_EQ(s->p.capacity - free_bytes(s->m, 0), 0);
  T_EQ(left(s, TIDE_CALL_RAW_ALLOC, TIDE_CALL_RAW_RELEASE), 0);
  T_EQ(left(s, TIDE_CALL_PINNED_ALLOC, TIDE_CALL_PINNED_RELEASE), 0);
  T_EQ(left(s, TIDE_CALL_PINNED_REGISTER, TIDE_CALL_PINNED_UNREGISTER), 0);
  T_EQ(left(s, TIDE_CALL_ADDRESS_RESERVE, TIDE_CALL_ADDRESS_RELEASE), 0);
  T_EQ(left(s, TIDE_CALL_PHYSICAL_NEW, TIDE_CALL_PHYSICAL_FREE), 0);
  T_EQ(left(s, TIDE_CALL_EVENT_NEW, TIDE_CALL_EVENT_FREE), 0);
  T_EQ(left(s, TIDE_CALL_STREAM_NEW, TIDE_CALL_STREAM_FREE), 0);
  tide_machine_free(s->m);
}

static void play(uint64_t seed) {
  static world s;
  const size_t descriptors = t_count_descriptors();
  const size_t threads = t_count_threads();
  world_open(&s, seed);
  for (size_t i = 0; i < s.p.phases; ++i) world_phase(&s);
  watch_begin(CREW);
  watch_step("the end");
  if (!s.p.is_untidy) world_tidy(&s);
  atomic_store(&s.is_ending, true);
  for (size_t i = 0; i < s.p.caches; ++i) member_close(&s.members[i]);
  if (atomic_load(&is_content_wrong)) T_FAIL("a block has other bytes than were written");
  ledger_expect_empty();
  machine_close(&s);
  if (T_HAS_ADDRESS_SANITIZER && atomic_load(&s.records.outstanding) != 0)
    exit(1);  // the leak checker shows it
  T_EQ(atomic_load(&s.records.outstanding), 0);
  T_EQ(atomic_load(&s.machine_records.outstanding), 0);
  T_EQ(t_count_descriptors(), descriptors);
  T_WAIT(t_count_threads() <= threads + T_HAS_THREAD_SANITIZER);
}

static const char* const variants[] = { "host", "host tide", NULL };

T_TEST_OVER(prop_crossing__everything_at_once, variants) {
  const size_t repeats = (size_t)t_env_number("TIDE_CROSSING_REPEATS", 1);
  const size_t runs = t_scaled(50);
  watch_open();
  for (size_t i = 0; i < runs; ++i) {
    for (size_t k = 0; k < repeats; ++k) watch_run(play, t_seed() + i);
  }
}
