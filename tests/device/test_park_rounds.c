// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parking at random: rounds of park, unpark, allocate and release on six streams, compared with a model that
// knows every byte; faults at every call of the machine; and threads.
#define T_THREADS
#include "device/park.h"

static const char* const tide_host[] = { "host tide", NULL };
static const char* const tide_emulated[] = { "host tide", "dry tide", NULL };

enum { STREAMS = 6, POOLS = 3, BLOCKS_MOST = 48 };
static const char* const tags[POOLS] = { "weights/actor", "weights/critic", "kv" };

typedef struct world {
  tide_machine* m;
  tide_device_cache* d;
  t_rng rng;
  tide_stream streams[STREAMS];
  tide_pool pools[POOLS];
  known blocks[BLOCKS_MOST];
  size_t pool_of[BLOCKS_MOST];
  size_t count;
} world;

static world world_new(tide_machine* m, tide_device_cache* d, uint64_t number) {
  world w = { .m = m, .d = d, .rng = t_rng_new(number) };
  for (size_t i = 1; i < STREAMS; ++i) w.streams[i] = side_new(m);
  for (size_t i = 0; i < POOLS; ++i) w.pools[i] = tagged(d, tags[i]);
  return w;
}

static size_t random_bytes(t_rng* rng) {
  switch (t_rng_below(rng, 4)) {
    case 0: return 512 * (1 + t_rng_below(rng, 16));
    case 1: return 4096 * (1 + t_rng_below(rng, 100));
    case 2: return MIB + 4096 * t_rng_below(rng, 512);
    default: return 2 * MIB * (1 + t_rng_below(rng, 3));
  }
}

static void world_take(world* w) {
  if (w->count == BLOCKS_MOST) return;
  const size_t pool = t_rng_below(&w->rng, POOLS);
  const tide_stream stream = w->streams[t_rng_below(&w->rng, STREAMS)];
  const size_t bytes = random_bytes(&w->rng);
  w->pool_of[w->count] = pool;
  w->blocks[w->count++] = known_new(w->m, w->d, w->pools[pool], stream, bytes, t_rng_next(&w->rng));
}

static void world_give(world* w) {
  if (w->count == 0) return;
  const size_t i = t_rng_below(&w->rng, w->count);
  if (t_rng_below(&w->rng, 3) == 0)
    announce(w->d, w->blocks[i].block, w->streams[t_rng_below(&w->rng, STREAMS)]);
  give(w->d, w->blocks[i].block);
  w->blocks[i] = w->blocks[--w->count];
  w->pool_of[i] = w->pool_of[w->count];
}

static bool pool_is_parked(const world* w, size_t pool) {
  return stats_under(w->d, tags[pool]).parked_pool_count != 0;
}

// Parks a tag. Discarded contents are written anew when they are back.
static void world_park(world* w) {
  static const char* const wholes[] = { "weights", "kv", "weights/actor", NULL };
  const char* const tag = wholes[t_rng_below(&w->rng, 4)];
  const uint64_t how = t_rng_below(&w->rng, 5);
  tide_park_options options = park_how(how < 3    ? backups[how]
                                       : how == 3 ? TIDE_BACKUP_NONE
                                                  : TIDE_BACKUP_PINNED);
  bool was_parked[POOLS];
  for (size_t i = 0; i < POOLS; ++i) was_parked[i] = pool_is_parked(w, i);
  if (w->count > 0) {  // work in flight
    const size_t i = t_rng_below(&w->rng, w->count);
    if (!was_parked[w->pool_of[i]]) known_write(w->m, &w->blocks[i], t_rng_next(&w->rng));
  }
  T_OK(tide_device_park(w->d, tag, &options, NULL));
  for (size_t i = 0; i < w->count && options.backup == TIDE_BACKUP_NONE; ++i) {
    const size_t pool = w->pool_of[i];
    if (!was_parked[pool] && pool_is_parked(w, pool)) w->blocks[i].is_lost = true;
  }
}

// Unparks a tag, and uses the contents at once.
static void world_unpark(world* w) {
  static const char* const wholes[] = { "weights", "kv", "weights/critic", NULL };
  const char* const tag = wholes[t_rng_below(&w->rng, 4)];
  (void)(t_rng_below(&w->rng, 2) != 0 ? unpark_keeping(w->d, tag) : unpark(w->d, tag));
  for (size_t i = 0; i < w->count; ++i) {
    if (pool_is_parked(w, w->pool_of[i])) continue;
    if (w->blocks[i].is_lost) known_write(w->m, &w->blocks[i], t_rng_next(&w->rng));
    if (t_rng_below(&w->rng, 3) == 0) known_expect(w->m, &w->blocks[i]);
  }
}

static void world_end(world* w) {
  (void)unpark(w->d, NULL);
  all_expect(w->m, w->blocks, w->count);
  all_give(w->d, w->blocks, w->count);
  w->count = 0;
  device_expect_valid(w->d);
}

DEVICE_TEST_OVER(test_park__random_rounds_keep_every_byte, tide_emulated) {
  const size_t rounds = t_scaled_alone(400);
  world w = world_new(m, d, 24);
  for (size_t i = 0; i < rounds; ++i) {
    switch (t_rng_below(&w.rng, 8)) {
      case 0: world_park(&w); break;
      case 1: world_unpark(&w); break;
      case 2:
      case 3:
      case 4: world_give(&w); break;
      default: world_take(&w); break;
    }
    if (i % 16 == 0) device_expect_valid(d);
    if (i % 64 == 0) trim(d);
  }
  world_end(&w);
}

// ---------------------------------------------------------------------------------------------------
// Faults

static void fault_set(tide_machine* m, uint64_t skip, tide_status status, uint64_t count) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.status = (uint32_t)status;
  fault.skip = skip;
  fault.count = count;
  T_OK(tide_machine_fault_add(m, &fault));
}

static uint64_t failures(const tide_machine* m) { return tide_machine_call_stats(m, TIDE_CALL_ANY).failures; }

// Each round starts threads, which the thread sanitizer makes slow.
enum { FAULT_BLOCKS = 6 };

// Two pools with blocks on three streams, one of them partly idle.
typedef struct stage {
  tide_pool pools[2];
  known blocks[FAULT_BLOCKS];
} stage;

static stage stage_new(tide_machine* m, tide_device_cache* d) {
  stage s = { .pools = { tagged(d, "weights/a"), tagged(d, "weights/b") } };
  const tide_stream streams[3] = { NULL, side_new(m), side_new(m) };
  for (size_t i = 0; i < FAULT_BLOCKS; ++i) {
    s.blocks[i] =
        known_new(m, d, s.pools[i % 2], streams[i % 3], i < 2 ? 16384 : (i % 3 + 1) * MIB + 8192, i + 1);
    give(d, take_tagged(d, s.pools[i % 2], streams[i % 3], 3 * MIB));
  }
  return s;
}

// After a failed call everything is as it was, or the pools stay parked with their contents.
static void stage_expect(tide_machine* m, tide_device_cache* d, stage* s, bool is_discarded) {
  device_expect_valid(d);
  const tide_tag_stats stats = stats_under(d, "weights");
  T_CHECK(stats.parked_pool_count == 0 || stats.parked_pool_count == 2);
  if (stats.parked_pool_count != 0) (void)unpark(d, "weights");
  for (size_t i = 0; i < FAULT_BLOCKS && is_discarded; ++i) known_write(m, &s->blocks[i], i + 77);
  all_expect(m, s->blocks, FAULT_BLOCKS);
  device_expect_valid(d);
}

static void stage_end(tide_device_cache* d, const stage* s) {
  all_give(d, s->blocks, FAULT_BLOCKS);
  for (size_t i = 0; i < 2; ++i) T_OK(tide_device_pool_drop(d, s->pools[i]));
  trim(d);
}

// How the calls of a round fail: one of them, or all from one on until the end of the call.
static void faults_in_park(tide_machine* m, tide_device_cache* d, tide_backup backup, uint64_t count) {
  stage s = stage_new(m, d);
  const tide_park_options options = park_how(backup);
  bool has_failed = true;
  for (uint64_t skip = t_sample_first(); has_failed; skip += t_sample_step()) {
    T_LT(skip, 10000);
    const uint64_t before = failures(m);
    fault_set(m, skip, TIDE_ERR_MACHINE, count);
    const tide_status status = tide_device_park(d, "weights", &options, NULL);
    has_failed = failures(m) != before;
    tide_machine_fault_clear(m);
    if (!has_failed) T_STATUS(status, TIDE_OK);
    stage_expect(m, d, &s, backup == TIDE_BACKUP_NONE);
  }
  stage_end(d, &s);
}

static void faults_in_unpark(tide_machine* m, tide_device_cache* d, tide_backup backup, uint64_t count) {
  stage s = stage_new(m, d);
  const tide_park_options options = park_how(backup);
  bool has_failed = true;
  for (uint64_t skip = t_sample_first(); has_failed; skip += t_sample_step()) {
    T_LT(skip, 10000);
    T_OK(tide_device_park(d, "weights", &options, NULL));
    const uint64_t before = failures(m);
    fault_set(m, skip, skip % 3 == 2 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE, count);
    const tide_status status = tide_device_unpark(d, "weights", NULL, NULL);
    has_failed = failures(m) != before;
    tide_machine_fault_clear(m);
    if (!has_failed) T_STATUS(status, TIDE_OK);
    if (status != TIDE_OK) T_EQ(stats_under(d, "weights").parked_pool_count, 2);
    stage_expect(m, d, &s, backup == TIDE_BACKUP_NONE);
  }
  stage_end(d, &s);
}

DEVICE_TEST_OVER(test_park__a_fault_at_any_call_of_park_loses_nothing, tide_host) {
  for (int backup = TIDE_BACKUP_NONE; backup <= TIDE_BACKUP_FILE; ++backup) {
    faults_in_park(m, d, (tide_backup)backup, 1);
  }
}

DEVICE_TEST_OVER(test_park__a_fault_at_any_call_of_unpark_loses_nothing, tide_host) {
  for (int backup = TIDE_BACKUP_NONE; backup <= TIDE_BACKUP_FILE; ++backup) {
    faults_in_unpark(m, d, (tide_backup)backup, 1);
  }
}

// From one call on, none works any more: nothing can be undone, and still nothing is lost.
DEVICE_TEST_OVER(test_park__a_machine_that_fails_for_good_in_park_loses_nothing, tide_host) {
  for (int backup = TIDE_BACKUP_NONE; backup <= TIDE_BACKUP_FILE; ++backup) {
    faults_in_park(m, d, (tide_backup)backup, UINT64_MAX);
  }
}

DEVICE_TEST_OVER(test_park__a_machine_that_fails_for_good_in_unpark_loses_nothing, tide_host) {
  for (int backup = TIDE_BACKUP_NONE; backup <= TIDE_BACKUP_FILE; ++backup) {
    faults_in_unpark(m, d, (tide_backup)backup, UINT64_MAX);
  }
}

// Requests that unpark meet the same faults.
DEVICE_TEST_OVER(test_park__a_fault_in_a_request_that_unparks_loses_nothing, tide_host) {
  stage s = stage_new(m, d);
  bool has_failed = true;
  for (uint64_t skip = t_sample_first(); has_failed; skip += t_sample_step()) {
    tide_block block = { NULL, 0 };
    T_LT(skip, 10000);
    (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
    const uint64_t before = failures(m);
    region_open(d, s.pools[0]);
    fault_set(m, skip, TIDE_ERR_MACHINE, 1);
    const tide_status status = tide_device_alloc(d, NULL, 3 * MIB, &block);
    has_failed = failures(m) != before;
    tide_machine_fault_clear(m);
    region_close(d, s.pools[0]);
    if (!has_failed) T_STATUS(status, TIDE_OK);
    if (status == TIDE_OK) give(d, block);
    device_expect_valid(d);
    (void)unpark(d, "weights");
    all_expect(m, s.blocks, FAULT_BLOCKS);
  }
  stage_end(d, &s);
}

// Memory for records runs out at every allocation in turn.
DEVICE_TEST_OVER(test_park__without_memory_for_records_nothing_is_lost, tide_host) {
  (void)d;
  for (int call = 0; call < 2; ++call) {
    counting_heap records;
    counting_heap_init(&records, SIZE_MAX, true);
    tide_device_cache* const own = device_new(m, 0, &records.heap);
    stage s = stage_new(m, own);
    bool is_done = false;
    for (size_t allowed = t_sample_first(); !is_done; allowed += t_sample_step()) {
      T_LT(allowed, 10000);
      if (call == 1) (void)park(own, "weights", TIDE_BACKUP_PAGEABLE);
      atomic_store(&records.has_failed, false);
      atomic_store(&records.fail_at, atomic_load(&records.allocs) + allowed);
      const tide_status status = call == 0 ? tide_device_park(own, "weights", NULL, NULL)
                                           : tide_device_unpark(own, "weights", NULL, NULL);
      is_done = !atomic_load(&records.has_failed);
      atomic_store(&records.fail_at, SIZE_MAX);
      if (is_done || status == TIDE_OK) T_STATUS(status, TIDE_OK);
      else T_STATUS(status, TIDE_ERR_NO_MEMORY);
      stage_expect(m, own, &s, false);
    }
    all_give(own, s.blocks, FAULT_BLOCKS);
    tide_device_free(own);
    T_EQ(atomic_load(&records.outstanding), 0);
  }
}

// ---------------------------------------------------------------------------------------------------
// Threads

typedef struct crowd {
  tide_machine* m;
  tide_device_cache* d;
  tide_pool pools[2];  // the first is parked again and again
  atomic_int next;
  atomic_bool is_over;
  atomic_size_t served;
} crowd;

// Allocates and releases in a pool by a stream scope, or in the default pool.
static void* crowd_work(void* user) {
  crowd* const c = user;
  const int number = atomic_fetch_add(&c->next, 1);
  const tide_stream stream = side_new(c->m);
  t_rng rng = t_rng_new(100 + (uint64_t)number);
  const tide_pool pool = c->pools[number % 2];
  known kept[4];
  size_t count = 0;
  while (!atomic_load(&c->is_over) || atomic_load(&c->served) < 200) {
    if (count == 4 || (count > 0 && t_rng_below(&rng, 2) == 0)) {
      give(c->d, kept[--count].block);
      continue;
    }
    known k = { .bytes = 4096 * (1 + t_rng_below(&rng, 300)), .stream = stream };
    tide_pool used = number < 4 ? pool : TIDE_POOL_DEFAULT;
    tide_scope scope = TIDE_SCOPE_INIT;
    scope.is_region = true;
    // One scope at a time on a pool: the others use the default pool meanwhile.
    if (used != TIDE_POOL_DEFAULT && tide_device_pool_begin(c->d, used, &scope) != TIDE_OK) {
      used = TIDE_POOL_DEFAULT;
    }
    k.block = take(c->d, stream, k.bytes);
    if (used != TIDE_POOL_DEFAULT) T_OK(tide_device_pool_end(c->d, used));
    kept[count++] = k;
    (void)atomic_fetch_add(&c->served, 1);
  }
  while (count > 0) give(c->d, kept[--count].block);
  return NULL;
}

static void* crowd_park(void* user) {
  crowd* const c = user;
  const size_t rounds = t_scaled_alone(40);
  for (size_t i = 0; i < rounds; ++i) {
    const tide_park_options options = park_how(backups[i % BACKUPS]);
    tide_status status = tide_device_park(c->d, "busy", &options, NULL);
    if (status != TIDE_OK) T_STATUS(status, TIDE_ERR_STATE);  // its scope is open
    status = tide_device_unpark(c->d, "busy", NULL, NULL);
    T_STATUS(status, TIDE_OK);
  }
  atomic_store(&c->is_over, true);
  return NULL;
}

DEVICE_TEST_OVER(test_park__threads_allocate_while_a_pool_is_parked, tide_host) {
  crowd c = { .m = m, .d = d };
  pthread_t threads[7];
  c.pools[0] = tagged(d, "busy");
  c.pools[1] = tagged(d, "other");
  known k = known_new(m, d, c.pools[0], NULL, 3 * MIB, 5);
  for (size_t i = 0; i < 6; ++i) t_thread_start(&threads[i], crowd_work, &c);
  t_thread_start(&threads[6], crowd_park, &c);
  for (size_t i = 0; i < 7; ++i) t_thread_join(threads[i]);
  known_expect(m, &k);
  give(d, k.block);
}
