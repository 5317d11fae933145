// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Ranges under stress: a fault at every call of the machine and at every allocation of records, random
// commits and requests beside a model of every unit, and threads.
#define T_THREADS
#include "device/devices.h"

#define UNIT ((uint64_t)2 << 20)

static uint8_t* at(const tide_range* range, uint64_t offset) {
  return (uint8_t*)tide_range_address(range) + offset;
}

// ---------------------------------------------------------------------------------------------------
// Faults

// A range with memory in the middle and at the end, and idle memory of two streams.
typedef struct scene {
  tide_machine* m;
  tide_device_cache* d;
  tide_stream side;
  tide_range* range;
} scene;

static scene scene_new(tide_machine* m, tide_device_cache* d) {
  scene s = { m, d, side_new(m), NULL };
  need_virtual(m);
  T_OK(tide_device_range_new(d, 64 * MIB, &s.range));
  give(d, take(d, NULL, 3 * UNIT));
  give(d, take(d, s.side, 2 * UNIT));
  T_OK(tide_device_range_commit(d, s.range, s.side, 10 * UNIT, 2 * UNIT));
  T_OK(tide_device_range_commit(d, s.range, s.side, 16 * UNIT, UNIT));
  give(d, take(d, NULL, 3 * UNIT));
  T_OK(tide_machine_fill(m, 0, s.side, at(s.range, 10 * UNIT), 9, 2 * UNIT));
  return s;
}

static tide_status scene_commit(scene* s) {
  return tide_device_range_commit(s->d, s->range, s->side, 6 * UNIT, 13 * UNIT);
}

// The same on a stream that has no records yet.
static tide_status scene_commit_anew(scene* s) {
  return tide_device_range_commit(s->d, s->range, TIDE_STREAM_LEGACY, 6 * UNIT, 13 * UNIT);
}

static tide_status scene_decommit(scene* s) {
  return tide_device_range_decommit(s->d, s->range, 9 * UNIT, 4 * UNIT);
}

static tide_status scene_free(scene* s) {
  const tide_status status = tide_device_range_free(s->d, s->range);
  if (status == TIDE_OK) s->range = NULL;
  return status;
}

static tide_status scene_make(scene* s) {
  tide_range* other = NULL;
  const tide_status status = tide_device_range_new(s->d, 16 * MIB, &other);
  if (status != TIDE_OK) T_PTR_EQ(other, NULL);
  if (status == TIDE_OK && tide_device_range_free(s->d, other) != TIDE_OK) {
    T_OK(tide_device_range_free(s->d, other));  // the fault has passed
  }
  return status;
}

// The current values of the statistics, and what the range has.
typedef struct state {
  int64_t values[4];
  uint64_t committed;
} state;

static state state_of(const scene* s) {
  const tide_device_stats stats = stats_of(s->d);
  return (state){ { stats.reserved_bytes[0].current, stats.allocated_bytes[0].current,
                    stats.allocation[0].current, stats.active_bytes[0].current },
                  tide_range_committed(s->range) };
}

// After an error the range has what it had. Errors of the machine change nothing else; a lack of memory may
// have sent idle memory back.
static void expect_unchanged(const scene* s, const state* before, tide_status status) {
  const state now = state_of(s);
  T_EQ(now.committed, before->committed);
  for (int i = status == TIDE_ERR_NO_MEMORY ? 1 : 0; i < 4; ++i) T_EQ(now.values[i], before->values[i]);
  device_expect_valid(s->d);
  T_OK(tide_machine_device_synchronize(s->m, 0));
  expect_filled(s->m, 0, at(s->range, 10 * UNIT), 9, 2 * UNIT);
}

typedef tide_status (*scene_step)(scene* s);

// Makes `count` calls fail from a call on, for each call that the step makes. Afterwards the step succeeds.
static void expect_survives(tide_machine* m, scene_step step, tide_status fault_status, uint64_t count) {
  bool is_hit = true;
  for (uint64_t skip = 0; is_hit; ++skip) {
    tide_device_cache* const d = device_new(m, 0, NULL);
    const size_t free_before = free_bytes(m, 0);
    scene s = scene_new(m, d);
    const state before = state_of(&s);
    tide_fault fault = TIDE_FAULT_INIT;
    fault.status = (uint32_t)fault_status;
    fault.skip = skip;
    fault.count = count;
    const uint64_t failures = tide_machine_call_stats(m, TIDE_CALL_ANY).failures;
    T_OK(tide_machine_fault_add(m, &fault));
    const tide_status status = step(&s);
    tide_machine_fault_clear(m);
    is_hit = tide_machine_call_stats(m, TIDE_CALL_ANY).failures > failures;
    if (status != TIDE_OK) {
      T_CHECK(is_hit);
      expect_unchanged(&s, &before, status);
      T_OK(step(&s));
    }
    device_expect_valid(d);
    tide_device_free(d);
    T_OK(tide_machine_stream_free(m, 0, s.side));
    T_EQ(free_bytes(m, 0), free_before);
    T_LT(skip, 1000);
  }
}

#define FAULT_TEST(name, step, status, count)                      \
  DEVICE_TEST_OVER(test_range__survives_##name, device_emulated) { \
    (void)d;                                                       \
    expect_survives(m, step, status, count);                       \
  }

FAULT_TEST(a_fault_of_a_commit, scene_commit, TIDE_ERR_MACHINE, 1)
FAULT_TEST(faults_of_a_commit, scene_commit, TIDE_ERR_MACHINE, UINT64_MAX)
FAULT_TEST(a_lack_of_memory_in_a_commit, scene_commit, TIDE_ERR_NO_MEMORY, 1)
FAULT_TEST(lacks_of_memory_in_a_commit, scene_commit, TIDE_ERR_NO_MEMORY, UINT64_MAX)
FAULT_TEST(a_fault_of_a_decommit, scene_decommit, TIDE_ERR_MACHINE, 1)
FAULT_TEST(faults_of_a_decommit, scene_decommit, TIDE_ERR_MACHINE, UINT64_MAX)
FAULT_TEST(a_fault_of_a_beginning, scene_make, TIDE_ERR_MACHINE, 1)

// The end of a range has several steps. After an error it exists, and can be ended again.
DEVICE_TEST_OVER(test_range__survives_faults_of_its_end, device_emulated) {
  bool is_hit = true;
  for (uint64_t skip = 0; is_hit; ++skip) {
    scene s = scene_new(m, d);
    tide_fault fault = TIDE_FAULT_INIT;
    fault.status = TIDE_ERR_MACHINE;
    fault.skip = skip;
    T_OK(tide_machine_fault_add(m, &fault));
    const tide_status status = scene_free(&s);
    tide_machine_fault_clear(m);
    is_hit = status != TIDE_OK;
    device_expect_valid(d);
    if (is_hit) T_OK(scene_free(&s));
    T_EQ(current(d, allocated_bytes), 0);
    device_expect_valid(d);
  }
}

// No memory for records, at each allocation that a step makes.
static void expect_survives_heap(tide_machine* m, scene_step step) {
  bool has_failed = true;
  for (size_t skip = 0; has_failed; ++skip) {
    counting_heap records;
    counting_heap_init(&records, SIZE_MAX, false);
    tide_device_cache* const d = device_new(m, 0, &records.heap);
    scene s = scene_new(m, d);
    const state before = state_of(&s);
    atomic_store(&records.fail_at, atomic_load(&records.allocs) + skip);
    const tide_status status = step(&s);
    has_failed = atomic_load(&records.has_failed);
    if (status != TIDE_OK) {
      T_CHECK(has_failed);
      expect_unchanged(&s, &before, status);
      T_OK(step(&s));
    }
    device_expect_valid(d);
    tide_device_free(d);
    T_OK(tide_machine_stream_free(m, 0, s.side));
    T_EQ(atomic_load(&records.outstanding), 0);
  }
}

DEVICE_TEST_OVER(test_range__survives_a_heap_that_fails, device_emulated) {
  (void)d;
  expect_survives_heap(m, scene_commit);
  expect_survives_heap(m, scene_commit_anew);
  expect_survives_heap(m, scene_decommit);
  expect_survives_heap(m, scene_make);
}

// ---------------------------------------------------------------------------------------------------
// Random programs

enum { RANGES = 3, UNITS = 24, BLOCKS = 24 };

// Each committed unit and each block has a value in all of its bytes.
typedef struct world {
  tide_machine* m;
  tide_device_cache* d;
  tide_range* ranges[RANGES];
  uint8_t values[RANGES][UNITS];  // 0: no memory
  tide_block blocks[BLOCKS];
  uint64_t bytes[BLOCKS];
  uint8_t block_values[BLOCKS];
  tide_stream streams[3];
  uint8_t next;
  t_rng rng;
} world;

static uint8_t world_value(world* w) { return w->next = (uint8_t)(w->next % 250 + 1); }

// Everything that was queued on a stream is done, so that any stream may go on.
static void world_commit(world* w) {
  const size_t i = t_rng_below(&w->rng, RANGES);
  const uint64_t from = t_rng_below(&w->rng, UNITS);
  const uint64_t count = 1 + t_rng_below(&w->rng, UNITS - from);
  const tide_stream stream = w->streams[t_rng_below(&w->rng, 3)];
  const uint64_t before = tide_range_committed(w->ranges[i]);
  const tide_status status = tide_device_range_commit(w->d, w->ranges[i], stream, from * UNIT, count * UNIT);
  if (status != TIDE_OK) {
    T_STATUS(status, TIDE_ERR_NO_MEMORY);
    T_EQ(tide_range_committed(w->ranges[i]), before);
    return;
  }
  for (uint64_t u = from; u < from + count; ++u) {
    if (w->values[i][u] != 0) continue;
    w->values[i][u] = world_value(w);
    T_OK(tide_machine_fill(w->m, 0, stream, at(w->ranges[i], u * UNIT), w->values[i][u], UNIT));
  }
  stream_finish(w->m, 0, stream);
}

// The blocks of a range: one for each handle.
static void parts_find(const world* w, size_t i, tide_block_info parts[UNITS], size_t* out_count) {
  static seen s;
  const tide_device_visitor visitor = { seen_segment, seen_block, &s };
  const uint64_t base = (uint64_t)(uintptr_t)at(w->ranges[i], 0);
  memset(&s, 0, sizeof s);
  T_OK(tide_device_visit(w->d, &visitor));
  *out_count = 0;
  for (size_t b = 0; b < s.block_count; ++b) {
    if (s.blocks[b].address - base >= UNITS * UNIT) continue;
    T_EQ(s.blocks[b].state, TIDE_BLOCK_ALLOCATED);
    T_LT(*out_count, UNITS);
    parts[*out_count] = s.blocks[b];
    parts[(*out_count)++].address -= base;
  }
}

// Those that lie wholly in the part lose their memory.
static void world_decommit(world* w) {
  const size_t i = t_rng_below(&w->rng, RANGES);
  const uint64_t from = t_rng_below(&w->rng, UNITS);
  const uint64_t count = 1 + t_rng_below(&w->rng, UNITS - from);
  tide_block_info parts[UNITS];
  size_t part_count = 0;
  parts_find(w, i, parts, &part_count);
  T_OK(tide_device_range_decommit(w->d, w->ranges[i], from * UNIT, count * UNIT));
  for (size_t p = 0; p < part_count; ++p) {
    if (parts[p].address < from * UNIT || parts[p].address + parts[p].bytes > (from + count) * UNIT) continue;
    memset(&w->values[i][parts[p].address / UNIT], 0, parts[p].bytes / UNIT);
  }
}

static void world_take(world* w, size_t b) {
  const tide_stream stream = w->streams[t_rng_below(&w->rng, 3)];
  w->bytes[b] = 512 + t_rng_below(&w->rng, t_rng_below(&w->rng, 2) ? 12 * MIB : 400 * KIB);
  if (tide_device_alloc(w->d, stream, w->bytes[b], &w->blocks[b]) != TIDE_OK) return;
  w->block_values[b] = world_value(w);
  paint(w->m, stream, w->blocks[b], w->block_values[b], w->bytes[b]);
  stream_finish(w->m, 0, stream);
}

static void world_give(world* w, size_t b) {
  expect_filled(w->m, 0, w->blocks[b].address, w->block_values[b], w->bytes[b]);
  give(w->d, w->blocks[b]);
  w->blocks[b] = block_none;
}

static void world_check(const world* w) {
  device_expect_valid(w->d);
  for (size_t i = 0; i < RANGES; ++i) {
    tide_block_info parts[UNITS];
    size_t part_count = 0;
    uint64_t units = 0;
    uint64_t shown = 0;
    for (uint64_t u = 0; u < UNITS; ++u) {
      if (w->values[i][u] == 0) continue;
      units++;
      expect_filled(w->m, 0, at(w->ranges[i], u * UNIT), w->values[i][u], UNIT);
    }
    parts_find(w, i, parts, &part_count);
    for (size_t p = 0; p < part_count; ++p) shown += parts[p].bytes;
    T_EQ(tide_range_committed(w->ranges[i]), units * UNIT);
    T_EQ(shown, units * UNIT);
  }
}

static void world_step(world* w) {
  const size_t b = t_rng_below(&w->rng, BLOCKS);
  switch (t_rng_below(&w->rng, 8)) {
    case 0:
    case 1: world_commit(w); break;
    case 2: world_decommit(w); break;
    case 3:
      if (t_rng_below(&w->rng, 8) == 0) trim(w->d);
      break;
    default:
      if (w->blocks[b].address != NULL) world_give(w, b);
      else world_take(w, b);
      break;
  }
}

DEVICE_TEST_OVER(test_range__random_programs_keep_every_byte, device_emulated) {
  static world w;
  need_virtual(m);
  w = (world){ .m = m, .d = d, .rng = t_rng_new(24) };
  for (size_t i = 0; i < 3; ++i) w.streams[i] = i == 0 ? NULL : side_new(m);
  for (size_t i = 0; i < RANGES; ++i) T_OK(tide_device_range_new(d, UNITS * UNIT, &w.ranges[i]));
  limit_to(d, 120 * MIB);
  for (size_t k = 0; k < t_scaled_alone(160); ++k) {
    world_step(&w);
    if (k % 16 == 0) world_check(&w);
  }
  for (size_t b = 0; b < BLOCKS; ++b) {
    if (w.blocks[b].address != NULL) world_give(&w, b);
  }
  world_check(&w);
  for (size_t i = 0; i < RANGES; ++i) T_OK(tide_device_range_free(d, w.ranges[i]));
  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
}

// What fits in what a decommit returned needs no new memory: on the same stream where it is one stretch, and
// on every stream without slack.
DEVICE_TEST_OVER(test_range__decommitted_memory_serves_before_new, device_tide_emulated) {
  t_rng rng = t_rng_new(25);
  const tide_stream streams[] = { NULL, side_new(m), side_new(m) };
  tide_range* range = NULL;
  configure(d, "tide_slack:0,tide_wait_slack:0");
  T_OK(tide_device_range_new(d, 128 * MIB, &range));
  for (size_t k = 0; k < t_scaled(60); ++k) {
    const uint64_t units = 1 + t_rng_below(&rng, 40);
    for (uint64_t u = 0; u < units;) {
      const uint64_t step = 1 + t_rng_below(&rng, units - u);
      T_OK(tide_device_range_commit(d, range, streams[t_rng_below(&rng, 3)], u * UNIT, step * UNIT));
      u += step;
    }
    T_OK(tide_device_range_decommit(d, range, 0, units * UNIT));
    T_EQ(tide_range_committed(range), 0);
    const uint64_t before = calls(m, TIDE_CALL_PHYSICAL_NEW);
    const size_t bytes = MIB + t_rng_below(&rng, units * UNIT - MIB);
    const tide_block block = take(d, streams[t_rng_below(&rng, 3)], bytes);
    T_EQ(calls(m, TIDE_CALL_PHYSICAL_NEW), before);
    give(d, block);
    T_OK(tide_machine_device_synchronize(m, 0));
    if (t_rng_below(&rng, 4) == 0) trim(d);
  }
}

// ---------------------------------------------------------------------------------------------------
// Threads

enum { THREADS = 4 };

typedef struct crowd {
  tide_machine* m;
  tide_device_cache* d;
  tide_range* shared;
  atomic_int next;
} crowd;

static void crowd_use_range(crowd* c, tide_range* range, tide_stream stream, uint8_t value, t_rng* rng) {
  const uint64_t units = 1 + t_rng_below(rng, 6);
  if (tide_device_range_commit(c->d, range, stream, 0, units * UNIT) != TIDE_OK) return;
  T_OK(tide_machine_fill(c->m, 0, stream, at(range, 0), value, units * UNIT));
  stream_finish(c->m, 0, stream);
  if (is_host(c->m)) T_FILLED(at(range, (units - 1) * UNIT), value, UNIT);
  if (t_rng_below(rng, 2) == 0) T_OK(tide_device_range_decommit(c->d, range, 0, 8 * UNIT));
}

// Each thread has a part of the shared range, and a range of its own.
static void* crowd_run(void* user) {
  crowd* const c = user;
  const int index = atomic_fetch_add(&c->next, 1);
  const tide_stream stream = side_new(c->m);
  t_rng rng = t_rng_new(100 + (uint64_t)index);
  tide_range* own = NULL;
  T_OK(tide_device_range_new(c->d, 8 * UNIT, &own));
  for (size_t k = 0; k < t_scaled(60); ++k) {
    const uint64_t part = (uint64_t)index * 4 * UNIT;
    tide_block block = block_none;
    crowd_use_range(c, own, stream, (uint8_t)(index + 1), &rng);
    if (tide_device_range_commit(c->d, c->shared, stream, part, 2 * UNIT) == TIDE_OK) {
      T_OK(tide_machine_fill(c->m, 0, stream, at(c->shared, part), (uint8_t)(index + 9), 2 * UNIT));
    }
    if (tide_device_alloc(c->d, stream, 512 + t_rng_below(&rng, 6 * MIB), &block) == TIDE_OK) {
      paint(c->m, stream, block, 77, 512);
      give(c->d, block);
    }
    T_OK(tide_device_range_decommit(c->d, c->shared, part, 4 * UNIT));
    if (t_rng_below(&rng, 10) == 0) T_OK(tide_device_trim(c->d, 0));
  }
  T_OK(tide_device_range_free(c->d, own));
  return NULL;
}

// A decommit that waits for long work.
typedef struct waiting {
  tide_device_cache* d;
  tide_range* range;
  atomic_bool is_done;
} waiting;

static void* waiting_run(void* user) {
  waiting* const w = user;
  T_OK(tide_device_range_decommit(w->d, w->range, 0, 8 * UNIT));
  atomic_store(&w->is_done, true);
  return NULL;
}

// Meanwhile other threads grow, commit and give back.
DEVICE_TEST_OVER(test_range__a_decommit_that_waits_stops_nobody, device_host) {
  const tide_stream side = side_new(m);
  waiting w = { .d = d };
  tide_range* other = NULL;
  pthread_t thread;
  gate g;
  T_OK(tide_device_range_new(d, 8 * UNIT, &w.range));
  T_OK(tide_device_range_new(d, 8 * UNIT, &other));
  T_OK(tide_device_range_commit(d, w.range, side, 0, 8 * UNIT));
  hold_up(&g, m, side);
  t_thread_start(&thread, waiting_run, &w);
  for (int i = 0; i < 60; ++i) {
    give(d, take(d, NULL, (size_t)(i % 20 + 1) * UNIT));
    T_OK(tide_device_range_commit(d, other, NULL, 0, (uint64_t)(i % 8 + 1) * UNIT));
  }
  T_CHECK(!atomic_load(&w.is_done));
  T_EQ(tide_range_committed(w.range), 8 * UNIT);
  let_go(&g);
  t_thread_join(thread);
  T_EQ(tide_range_committed(w.range), 0);
}

DEVICE_TEST_OVER(test_range__threads_share_an_allocator, device_emulated) {
  crowd c = { .m = m, .d = d };
  need_virtual(m);
  T_OK(tide_device_range_new(d, THREADS * 4 * UNIT, &c.shared));
  limit_to(d, 160 * MIB);
  run_threads(THREADS, crowd_run, &c);
  T_EQ(tide_range_committed(c.shared), 0);
  T_EQ(current(d, allocated_bytes), 0);
}
