// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Races of the pinned-host cache on real threads and streams: late streams still read and write released
// memory, while other threads allocate, release, announce, trim and empty. A wrong order shows as wrong
// bytes; the thread sanitizer finds the rest.
#define T_THREADS
#include "pinned/pinneds.h"

#define CREW 4
#define BYTES (32 * KIB)

typedef struct crew {
  tide_machine* m;
  tide_pinned_cache* p;
  atomic_size_t next;  // who comes gets a number
  atomic_bool is_over;
  size_t rounds;
  pthread_barrier_t start;
  pthread_t threads[CREW];
  size_t count;
} crew;

static void crew_start(crew* c, tide_machine* m, tide_pinned_cache* p, size_t count,
                       void* (*function)(void*)) {
  c->m = m;
  c->p = p;
  c->count = count;
  atomic_store(&c->next, 0);
  atomic_store(&c->is_over, false);
  T_EQ(pthread_barrier_init(&c->start, NULL, (unsigned)count), 0);
  for (size_t i = 0; i < count; ++i) t_thread_start(&c->threads[i], function, c);
}

static void crew_join(crew* c) {
  for (size_t i = 0; i < c->count; ++i) t_thread_join(c->threads[i]);
  T_EQ(pthread_barrier_destroy(&c->start), 0);
}

static void crew_end(crew* c) {
  atomic_store(&c->is_over, true);
  crew_join(c);
}

static size_t scaled_for_sanitizer(size_t count) { return t_scaled(T_HAS_SANITIZER ? count / 4 : count); }

// ---------------------------------------------------------------------------------------------------
// A late stream

PINNED_TEST(test_pinned_races__a_source_that_is_released_is_still_read) {
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, BYTES);
  tide_block others[8];
  gate g;
  hold_up(&g, m, stream);
  const tide_block block = take(p, BYTES);
  paint(m, block, 0x11, BYTES);
  T_OK(tide_pinned_copy(p, block, 0, stream, device, block.address, BYTES));

  give(p, block);
  for (size_t i = 0; i < 8; ++i) {
    others[i] = take(p, BYTES);
    paint(m, others[i], 0x22, BYTES);
  }
  for (size_t i = 0; i < 8; ++i) give(p, others[i]);
  empty(p);

  let_go(&g);
  expect_filled(m, 0, device, 0x11, BYTES);
}

PINNED_TEST(test_pinned_races__a_destination_that_is_released_is_still_written) {
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, BYTES);
  tide_block others[8];
  gate g;
  device_fill(m, 0, device, 0x33, BYTES);
  hold_up(&g, m, stream);
  const tide_block block = take(p, BYTES);
  T_OK(tide_pinned_copy(p, block, 0, stream, block.address, device, BYTES));

  give(p, block);
  for (size_t i = 0; i < 8; ++i) {
    others[i] = take(p, BYTES);
    paint(m, others[i], (uint8_t)i, BYTES);
  }
  let_go(&g);

  for (size_t i = 0; i < 8; ++i) expect_painted(m, others[i].address, (uint8_t)i, BYTES);
}

// Small blocks share a chunk with memory that is in use: the same must hold for each of them.
PINNED_TEST(test_pinned_races__small_sources_that_are_released_are_still_read) {
  enum { COUNT = 100 };
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, COUNT * 512);
  gate g;
  hold_up(&g, m, stream);
  for (size_t i = 0; i < COUNT; ++i) {
    const tide_block block = take(p, 512);
    paint(m, block, (uint8_t)i, 512);
    T_OK(tide_pinned_copy(p, block, 0, stream, device + i * 512, block.address, 512));
    give(p, block);
  }
  for (size_t i = 0; i < COUNT; ++i) paint(m, take(p, 512), 0xee, 512);

  let_go(&g);

  for (size_t i = 0; i < COUNT; ++i) expect_filled(m, 0, device + i * 512, (uint8_t)i, 512);
}

// ---------------------------------------------------------------------------------------------------
// Release against reuse: all threads copy out of blocks that they release at once, on streams that lag

static void job_lag(void* user) {
  (void)user;
  t_sleep_us(20);
}

static void* copy_and_release(void* user) {
  crew* const c = user;
  const size_t self = atomic_fetch_add(&c->next, 1);
  const tide_stream streams[2] = { side_new(c->m), side_new(c->m) };
  uint8_t* const device = raw_new(c->m, 0, 16 * BYTES);
  t_rng rng = t_rng_new(20 + self);
  (void)pthread_barrier_wait(&c->start);
  for (size_t round = 0; round < c->rounds; ++round) {
    for (size_t i = 0; i < 16; ++i) {
      const tide_stream stream = streams[i % 2];
      const size_t bytes = t_rng_below(&rng, 2) == 0 ? BYTES : 2048;
      const tide_block block = take(c->p, bytes);
      memset(block.address, (int)(self * 16 + i + round) & 0xff, bytes);
      T_OK(tide_machine_call(c->m, 0, stream, job_lag, NULL));
      T_OK(tide_pinned_copy(c->p, block, 0, stream, device + i * BYTES, block.address, bytes));
      give(c->p, block);
    }
    for (size_t k = 0; k < 2; ++k) stream_finish(c->m, 0, streams[k]);
    for (size_t i = 0; i < 16; ++i) T_FILLED(device + i * BYTES, (self * 16 + i + round) & 0xff, 2048);
  }
  return NULL;
}

static void release_against_reuse(tide_machine* m, tide_pinned_cache* p) {
  crew c = { .rounds = scaled_for_sanitizer(60) };
  crew_start(&c, m, p, CREW, copy_and_release);
  crew_join(&c);

  poll_all(p);
  T_EQ(current(p, active_requests), 0);
}

PINNED_TEST_OVER(test_pinned_races__release_against_reuse, machine_host) { release_against_reuse(m, p); }

PINNED_TEST_WITH(test_pinned_races__release_against_reuse_with_a_helper, machine_host, with_helper) {
  release_against_reuse(m, p);
}

// One thread allocates a block and another releases it, so that memory moves between threads.
typedef struct board {
  crew c;
  pthread_mutex_t lock;  // guards the places
  tide_block places[64];
} board;

static void* swap_blocks(void* user) {
  board* const b = user;
  tide_pinned_cache* const p = b->c.p;
  const size_t self = atomic_fetch_add(&b->c.next, 1);
  t_rng rng = t_rng_new(40 + self);
  for (size_t i = 0; i < b->c.rounds; ++i) {
    tide_block block = take(p, 4096);
    memset(block.address, (int)((uintptr_t)block.address >> 12) & 0xff, 4096);
    T_EQ(pthread_mutex_lock(&b->lock), 0);
    tide_block* const place = &b->places[t_rng_below(&rng, 64)];
    const tide_block other = *place;
    *place = block;
    T_EQ(pthread_mutex_unlock(&b->lock), 0);
    if (other.address == NULL) continue;
    T_FILLED(other.address, ((uintptr_t)other.address >> 12) & 0xff, 4096);
    give(p, other);
  }
  return NULL;
}

PINNED_TEST_OVER(test_pinned_races__blocks_wander_between_threads, machine_host) {
  static board b;
  b.c.rounds = scaled_for_sanitizer(8000);
  T_EQ(pthread_mutex_init(&b.lock, NULL), 0);
  crew_start(&b.c, m, p, CREW, swap_blocks);
  crew_join(&b.c);

  for (size_t i = 0; i < 64; ++i) give(p, b.places[i]);
  T_EQ(current(p, active_requests), 0);
  T_LE(current(p, reserved_bytes), 8 * MIB);  // it does not pile up where nobody takes
  empty(p);
  expect_nothing_left(p);
}

typedef struct pipe_line {
  crew c;
  pthread_mutex_t lock;
  tide_block items[32];
  size_t count;
} pipe_line;

static void* produce_or_consume(void* user) {
  pipe_line* const l = user;
  const bool is_producer = atomic_fetch_add(&l->c.next, 1) == 0;
  for (size_t done = 0; done < l->c.rounds;) {
    tide_block block = is_producer ? take(l->c.p, BYTES) : block_none;
    bool is_moved = false;
    while (!is_moved) {
      T_EQ(pthread_mutex_lock(&l->lock), 0);
      is_moved = is_producer ? l->count < 32 : l->count > 0;
      if (is_moved && is_producer) l->items[l->count++] = block;
      else if (is_moved) block = l->items[--l->count];
      T_EQ(pthread_mutex_unlock(&l->lock), 0);
      if (!is_moved) t_sleep_us(1);
    }
    if (!is_producer) give(l->c.p, block);
    ++done;
  }
  return NULL;
}

// One thread only allocates, the other only releases: the first must get the memory again.
PINNED_TEST_OVER(test_pinned_races__what_another_thread_gave_is_taken_again, machine_emulated) {
  static pipe_line l;
  l.c.rounds = scaled_for_sanitizer(4000);
  T_EQ(pthread_mutex_init(&l.lock, NULL), 0);
  crew_start(&l.c, m, p, 2, produce_or_consume);
  crew_join(&l.c);

  T_LE(stats_of(p).allocations.peak, 256);
}

static void* take_give_and_leave(void* user) {
  tide_pinned_cache* const p = user;
  tide_block blocks[8];
  for (size_t i = 0; i < 8; ++i) blocks[i] = take(p, BYTES);
  for (size_t i = 0; i < 8; ++i) give(p, blocks[i]);
  return NULL;
}

PINNED_TEST_OVER(test_pinned_races__what_a_thread_that_ended_had_is_not_lost, machine_emulated) {
  (void)m;
  for (size_t i = 0; i < 50; ++i) {
    pthread_t thread;
    t_thread_start(&thread, take_give_and_leave, p);
    t_thread_join(thread);
  }

  T_LE(current(p, allocations), 16);
  for (size_t i = 0; i < 8; ++i) (void)take(p, BYTES);
  T_LE(current(p, allocations), 16);
}

// ---------------------------------------------------------------------------------------------------
// Record against release

typedef struct duel {
  crew c;
  tide_stream stream;
  tide_block block;
  tide_status recorded;
} duel;

static void* duel_run(void* user) {
  duel* const d = user;
  const bool is_releaser = atomic_fetch_add(&d->c.next, 1) == 0;
  (void)pthread_barrier_wait(&d->c.start);
  if (is_releaser) give(d->c.p, d->block);
  else d->recorded = tide_pinned_record(d->c.p, d->block, 0, d->stream);
  return NULL;
}

// One thread releases a block while another announces a stream that is held up. Either the announcement came
// first, and then the block waits; or it is refused, and then the block is free.
PINNED_TEST_OVER(test_pinned_races__record_against_release, machine_host) {
  size_t times[2] = { 0, 0 };
  duel d = { .stream = side_new(m) };
  for (size_t i = 0; i < scaled_for_sanitizer(400); ++i) {
    const size_t bytes = i % 2 == 0 ? BYTES : 512;
    gate g;
    d.block = take(p, bytes);
    hold_up(&g, m, d.stream);
    crew_start(&d.c, m, p, 2, duel_run);
    crew_join(&d.c);

    poll_all(p);
    T_EQ(current(p, waiting), d.recorded == TIDE_OK);
    if (d.recorded != TIDE_OK) T_STATUS(d.recorded, TIDE_ERR_STATE);
    times[d.recorded == TIDE_OK]++;

    let_go(&g);
    poll_all(p);
    T_EQ(current(p, waiting), 0);
  }
  T_LT(0, times[0] + times[1]);
}

static void* release_both(void* user) {
  duel* const d = user;
  (void)pthread_barrier_wait(&d->c.start);
  const tide_status status = tide_pinned_release(d->c.p, d->block);
  if (status == TIDE_OK) atomic_fetch_add(&d->c.next, 1);
  else T_STATUS(status, TIDE_ERR_STATE);
  return NULL;
}

PINNED_TEST_OVER(test_pinned_races__of_two_releases_one_is_right, machine_host) {
  duel d = { .stream = side_new(m) };
  for (size_t i = 0; i < scaled_for_sanitizer(400); ++i) {
    d.block = take(p, i % 2 == 0 ? BYTES : 512);
    if (i % 3 == 0) announce(p, d.block, d.stream);
    crew_start(&d.c, m, p, CREW, release_both);
    crew_join(&d.c);
    T_EQ(atomic_load(&d.c.next), 1);
  }
  stream_finish(m, 0, d.stream);
  poll_all(p);
  T_EQ(current(p, active_requests), 0);
}

// Several threads announce streams of their own on one block, which each of them reads late.
typedef struct readers {
  crew c;
  tide_block block;
  tide_stream streams[CREW];
  uint8_t* devices[CREW];
  bool is_always_now;
} readers;

static void* read_late(void* user) {
  readers* const r = user;
  const size_t self = atomic_fetch_add(&r->c.next, 1);
  (void)pthread_barrier_wait(&r->c.start);
  T_OK(tide_machine_call(r->c.m, 0, r->streams[self], job_lag, NULL));
  T_OK(tide_machine_copy(r->c.m, 0, r->streams[self], r->devices[self], r->block.address, BYTES));
  if (self % 2 == 0 && !r->is_always_now) T_OK(tide_pinned_record(r->c.p, r->block, 0, r->streams[self]));
  else T_OK(tide_pinned_record_now(r->c.p, r->block, 0, r->streams[self]));
  return NULL;
}

static void read_round(readers* r, tide_machine* m, tide_pinned_cache* p, uint8_t value) {
  r->block = take(p, BYTES);
  memset(r->block.address, value, BYTES);
  crew_start(&r->c, m, p, CREW, read_late);
  crew_join(&r->c);
  give(p, r->block);

  const tide_block next = take(p, BYTES);
  memset(next.address, 0xee, BYTES);
  give(p, next);

  for (size_t i = 0; i < CREW; ++i) stream_finish(m, 0, r->streams[i]);
  for (size_t i = 0; i < CREW; ++i) T_FILLED(r->devices[i], value, BYTES);
}

PINNED_TEST_OVER(test_pinned_races__several_threads_announce_one_block, machine_host) {
  readers r = { .is_always_now = false };
  for (size_t i = 0; i < CREW; ++i) {
    r.streams[i] = side_new(m);
    r.devices[i] = raw_new(m, 0, BYTES);
  }
  for (size_t i = 0; i < scaled_for_sanitizer(200); ++i) read_round(&r, m, p, (uint8_t)(i % 200));
}

// All threads record events on one stream: no read may be forgotten.
PINNED_TEST_OVER(test_pinned_races__several_threads_record_one_stream_at_once, machine_host) {
  readers r = { .is_always_now = true };
  const tide_stream stream = side_new(m);
  for (size_t i = 0; i < CREW; ++i) {
    r.streams[i] = stream;
    r.devices[i] = raw_new(m, 0, BYTES);
  }
  for (size_t i = 0; i < scaled_for_sanitizer(200); ++i) read_round(&r, m, p, (uint8_t)(i % 200));
}

// ---------------------------------------------------------------------------------------------------
// Emptying against everything

static void* take_and_compare(void* user) {
  crew* const c = user;
  const size_t self = atomic_fetch_add(&c->next, 1);
  const tide_stream stream = side_new(c->m);
  t_rng rng = t_rng_new(60 + self);
  tide_block held[8] = { { NULL, 0 } };
  size_t sizes[8] = { 0 };
  for (size_t i = 0; i < c->rounds; ++i) {
    const size_t n = t_rng_below(&rng, 8);
    if (held[n].address != NULL) {
      T_FILLED(held[n].address, (uint8_t)(self * 8 + n), sizes[n]);
      if (i % 4 == 0) announce(c->p, held[n], stream);
      give(c->p, held[n]);
    }
    sizes[n] = 1 + t_rng_below(&rng, i % 8 == 0 ? 200 * KIB : 6 * KIB);
    held[n] = take(c->p, sizes[n]);
    memset(held[n].address, (int)(self * 8 + n), sizes[n]);
  }
  for (size_t n = 0; n < 8; ++n) give(c->p, held[n]);
  return NULL;
}

static void empty_against(tide_machine* m, tide_pinned_cache* p) {
  crew c = { .rounds = scaled_for_sanitizer(3000) };
  crew_start(&c, m, p, CREW, take_and_compare);
  for (size_t i = 0; i < scaled_for_sanitizer(300); ++i) {
    if (i % 3 == 0) trim(p, 256 * KIB);
    else if (i % 3 == 1) empty(p);
    else poll_all(p);
    t_sleep_us(100);
  }
  crew_join(&c);

  // The helper may hold some blocks for a moment.
  T_OK(tide_machine_device_synchronize(m, 0));
  for (int i = 0; i < 100000 && current(p, reserved_bytes) > 0; ++i) {
    empty(p);
    t_sleep_us(1000);
  }
  expect_nothing_left(p);
}

PINNED_TEST_OVER(test_pinned_races__empty_against_allocate, machine_host) { empty_against(m, p); }

PINNED_TEST_WITH(test_pinned_races__empty_against_allocate_of_registered_pages, machine_host, with_register) {
  empty_against(m, p);
}

static void with_everything(tide_pinned_options* options) {
  options->has_helper = true;
  options->reserve_bytes = 1 * MIB;
  options->max_cached_bytes = 512 * KIB;
  options->idle_ns = 100000;
  options->max_block_bytes = 150 * KIB;
}

PINNED_TEST_WITH(test_pinned_races__empty_against_allocate_with_all_options, machine_host, with_everything) {
  empty_against(m, p);
}

// Statistics, visits and the history are used while others work.
static void* look_on(void* user) {
  crew* const c = user;
  static const tide_history_options on = TIDE_HISTORY_OPTIONS_INIT;
  for (size_t i = 0; i < c->rounds; ++i) {
    tide_history_options history = on;
    history.max_entries = 1 + i % 100;
    history.is_on = i % 4 != 0;
    const tide_pinned_stats stats = stats_of(c->p);
    T_LE(0, stats.allocations.current);
    if (i % 8 == 0) T_OK(tide_pinned_history(c->p, &history));
    if (i % 16 == 0) tide_pinned_reset_peaks(c->p);
    if (i % 16 == 8) tide_pinned_reset_accumulated(c->p);
  }
  return NULL;
}

static bool pass_segment(void* user, const tide_segment_info* segment) {
  (void)segment;
  ++*(size_t*)user;
  return true;
}

static bool pass_block(void* user, const tide_block_info* block) {
  T_LE(block->state, TIDE_BLOCK_PENDING);
  ++*(size_t*)user;
  return true;
}

PINNED_TEST_OVER(test_pinned_races__looking_on_disturbs_nobody, machine_host) {
  crew workers = { .rounds = scaled_for_sanitizer(2000) };
  crew lookers = { .rounds = scaled_for_sanitizer(2000) };
  size_t count = 0;
  const tide_device_visitor visitor = { pass_segment, pass_block, &count };
  crew_start(&workers, m, p, 3, take_and_compare);
  crew_start(&lookers, m, p, 1, look_on);
  for (size_t i = 0; i < scaled_for_sanitizer(100); ++i) T_OK(tide_pinned_visit(p, &visitor));
  crew_join(&workers);
  crew_end(&lookers);

  T_OK(tide_machine_device_synchronize(m, 0));
  poll_all(p);
  T_EQ(current(p, active_requests), 0);
}
