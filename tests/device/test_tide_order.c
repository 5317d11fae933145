// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `tide` lets idle memory of one stream serve another, which must not write before the queued work
// of the first is done. These tests hold streams up, so that work is late, and the data show whether anybody
// wrote too early. The streams of the host machine really run; on dry only their order can be checked.
// Sanitizers cannot see a race through two mappings of one page, so the tests with threads compare data too.
#define T_THREADS
#include "device/devices.h"

// ---------------------------------------------------------------------------------------------------
// Tests

static const char* const tide_host[] = { "host tide", NULL };
static const char* const tide_dry[] = { "dry tide", NULL };

#define ORDER_TEST(function) DEVICE_TEST_OVER(function, device_tide)

// ---------------------------------------------------------------------------------------------------
// Late work

#define HOLES 4
#define HOLE_BYTES (4 * MIB)
#define ALL_BYTES (HOLES * HOLE_BYTES)

// A stream that the allocator knows: from the second one on, releases leave marks.
static tide_stream known_new(tide_machine* m, tide_device_cache* d) {
  const tide_stream stream = side_new(m);
  give(d, take(d, stream, 512));
  return stream;
}

static uint64_t waits(tide_device_cache* d) { return (uint64_t)stats_of(d).num_stream_waits; }

static uint64_t records(const tide_machine* m) {
  return tide_machine_call_stats(m, TIDE_CALL_EVENT_RECORD).calls;
}

// Blocks of a stream, every other one idle.
typedef struct comb {
  tide_stream stream;
  tide_block gaps[HOLES];
  tide_block teeth[HOLES];
} comb;

static comb comb_new(tide_machine* m, tide_device_cache* d, tide_stream stream) {
  comb c = { .stream = stream };
  for (size_t i = 0; i < HOLES; ++i) {
    c.gaps[i] = take(d, stream, HOLE_BYTES);
    c.teeth[i] = take(d, stream, HOLE_BYTES);
    paint(m, stream, c.teeth[i], (uint8_t)(i + 1), HOLE_BYTES);
  }
  return c;
}

// Paints the holes, on their own stream, and makes them idle at once.
static void comb_release(tide_machine* m, tide_device_cache* d, const comb* c, uint8_t value) {
  for (size_t i = 0; i < HOLES; ++i) paint(m, c->stream, c->gaps[i], value, HOLE_BYTES);
  for (size_t i = 0; i < HOLES; ++i) give(d, c->gaps[i]);
}

static void comb_expect(tide_machine* m, const comb* c) {
  stream_finish(m, 0, c->stream);
  for (size_t i = 0; i < HOLES; ++i) {
    expect_filled(m, 0, bytes_of(c->teeth[i]), (uint8_t)(i + 1), HOLE_BYTES);
  }
}

// A stream has new work, which may not be done before the gate of another is open.
static void expect_waits(tide_machine* m, tide_stream stream, gate* g) {
  t_sleep_us(is_dry(m) ? 0 : 2000);
  T_CHECK(!stream_is_idle(m, 0, stream));
  let_go(g);
  stream_finish(m, 0, stream);
}

// Paints a block on a stream, which may not happen before the gate of another is open.
static void expect_painted_late(tide_machine* m, tide_stream stream, tide_block block, size_t bytes,
                                gate* g) {
  paint(m, stream, block, 222, bytes);
  expect_waits(m, stream, g);
  expect_filled(m, 0, bytes_of(block), 222, bytes);
}

// Memory of stream `a` that stream `b` had last. The work of `b` on it is late.
typedef struct loan {
  tide_stream a;
  tide_stream b;
  comb c;
  gate g;
} loan;

static void loan_between(loan* l, tide_machine* m, tide_device_cache* d, tide_stream a, tide_stream b) {
  l->a = a;
  l->b = b;
  l->c = comb_new(m, d, a);
  comb_release(m, d, &l->c, 1);
  const tide_block borrowed = take(d, b, ALL_BYTES);
  stream_finish(m, 0, a);
  hold_up(&l->g, m, b);
  paint(m, b, borrowed, 111, ALL_BYTES);
  give(d, borrowed);
}

static void loan_begin(loan* l, tide_machine* m, tide_device_cache* d) {
  const tide_stream a = known_new(m, d);
  loan_between(l, m, d, a, known_new(m, d));
}

ORDER_TEST(test_tide__stitched_memory_waits_for_the_stream_it_comes_from) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  comb c = comb_new(m, d, a);
  gate g;
  hold_up(&g, m, a);
  comb_release(m, d, &c, 111);
  const int64_t reserved = current(d, reserved_bytes);

  const tide_block first = take(d, b, ALL_BYTES);
  T_EQ(waits(d), 1);
  expect_painted_late(m, b, first, ALL_BYTES, &g);
  comb_expect(m, &c);
  give(d, first);
  for (size_t i = 0; i < HOLES; ++i) c.gaps[i] = take(d, a, HOLE_BYTES);
  hold_up(&g, m, a);
  comb_release(m, d, &c, 111);
  const tide_block again = take(d, b, ALL_BYTES);  // of the same view

  T_PTR_EQ(again.address, first.address);
  T_EQ(current(d, reserved_bytes), reserved);
  expect_painted_late(m, b, again, ALL_BYTES, &g);
}

ORDER_TEST(test_tide__memory_on_its_way_home_waits_for_who_had_it) {
  loan l;
  loan_begin(&l, m, d);

  const tide_block home = take(d, l.a, HOLE_BYTES);

  T_PTR_EQ(home.address, l.c.gaps[0].address);
  expect_painted_late(m, l.a, home, HOLE_BYTES, &l.g);
  comb_expect(m, &l.c);
}

// A request that another thread makes.
typedef struct errand {
  tide_device_cache* d;
  tide_stream stream;
  size_t bytes;
} errand;

static void* errand_run(void* user) {
  const errand* const e = user;
  (void)take(e->d, e->stream, e->bytes);
  return NULL;
}

// Takes 1 MiB on a stream and paints it, while a request of another thread is about to let that stream wait
// for `late`, which must be done before.
static void expect_patience(tide_machine* m, tide_device_cache* d, tide_stream stream, size_t other_bytes,
                            gate* late) {
  errand other = { d, stream, other_bytes };
  pthread_t thread;
  slow_down(m, TIDE_CALL_STREAM_WAIT, TIDE_OK, 1, 100);
  const uint64_t before = records(m);
  t_thread_start(&thread, errand_run, &other);
  for (int i = 0; i < 1000 && records(m) == before; ++i) t_sleep_us(1000);

  const tide_block block = take(d, stream, MIB);
  paint(m, stream, block, 222, MIB);

  expect_waits(m, stream, late);
  t_thread_join(thread);
  T_OK(tide_machine_device_synchronize(m, 0));
  expect_filled(m, 0, bytes_of(block), 222, MIB);
}

DEVICE_TEST_OVER(test_tide__a_thread_waits_for_another_that_lets_their_stream_wait, tide_host) {
  loan l;
  loan_begin(&l, m, d);
  expect_patience(m, d, l.a, MIB, &l.g);
  comb_expect(m, &l.c);
}

// The same where the other thread stitches: its view ends in the middle of a handle.
DEVICE_TEST_OVER(test_tide__a_thread_waits_for_another_that_stitches, tide_host) {
  loan l;
  loan_begin(&l, m, d);
  expect_patience(m, d, l.a, ALL_BYTES - MIB, &l.g);
  comb_expect(m, &l.c);
}

ORDER_TEST(test_tide__memory_that_goes_from_hand_to_hand_keeps_its_order) {
  const tide_stream streams[4] = { known_new(m, d), known_new(m, d), known_new(m, d), known_new(m, d) };
  const comb c = comb_new(m, d, streams[0]);
  gate g;
  hold_up(&g, m, streams[0]);
  comb_release(m, d, &c, 100);
  tide_block block = block_none;

  for (size_t i = 1; i < 4; ++i) {
    block = take(d, streams[i], ALL_BYTES);
    paint(m, streams[i], block, (uint8_t)(100 + i), ALL_BYTES);
    if (i < 3) give(d, block);
  }

  expect_waits(m, streams[3], &g);
  expect_filled(m, 0, bytes_of(block), 103, ALL_BYTES);
  comb_expect(m, &c);
}

// Two streams have parts of one handle, and both are late: who takes the handle waits for both.
ORDER_TEST(test_tide__a_handle_waits_for_all_streams_that_had_a_part) {
  const tide_stream a = known_new(m, d);
  const tide_stream late[2] = { known_new(m, d), known_new(m, d) };
  const comb c = comb_new(m, d, a);
  gate gates[2];
  for (size_t i = 0; i < HOLES; ++i) give(d, c.gaps[i]);
  const size_t bytes[2] = { MIB, 2 * MIB + 512 * KIB };  // the second begins where the first ends
  const tide_block parts[2] = { take(d, late[0], bytes[0]), take(d, late[1], bytes[1]) };
  T_EQ(stats_of(d).reserved_bytes[TIDE_STAT_LARGE].current, (int64_t)(2 * ALL_BYTES));
  for (size_t i = 0; i < 2; ++i) {
    stream_finish(m, 0, late[i]);
    hold_up(&gates[i], m, late[i]);
    paint(m, late[i], parts[i], 111, bytes[i]);
    give(d, parts[i]);
  }

  tide_block homes[HOLES];
  for (size_t i = 0; i < HOLES; ++i) {
    homes[i] = take(d, a, HOLE_BYTES);
    paint(m, a, homes[i], 222, HOLE_BYTES);
  }

  let_go(&gates[0]);  // as they were closed: on cuda one thread of the driver waits at all gates
  expect_waits(m, a, &gates[1]);
  for (size_t i = 0; i < HOLES; ++i) expect_filled(m, 0, bytes_of(homes[i]), 222, HOLE_BYTES);
  comb_expect(m, &c);
}

ORDER_TEST(test_tide__a_live_neighbour_in_the_same_handle_goes_on) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  tide_block blocks[8];
  for (size_t i = 0; i < 8; ++i) blocks[i] = take(d, a, 3 * MIB);
  for (size_t i = 0; i < 8; i += 2) give(d, blocks[i]);
  const tide_block borrowed = take(d, b, 8 * MIB);
  gate g;
  hold_up(&g, m, a);

  for (size_t i = 1; i < 8; i += 2) paint(m, a, blocks[i], (uint8_t)i, 3 * MIB);  // late, beside b's work
  paint(m, b, borrowed, 222, 8 * MIB);
  stream_finish(m, 0, b);
  let_go(&g);

  expect_filled(m, 0, bytes_of(borrowed), 222, 8 * MIB);
  for (size_t i = 1; i < 8; i += 2) expect_filled(m, 0, bytes_of(blocks[i]), (uint8_t)i, 3 * MIB);
}

ORDER_TEST(test_tide__own_memory_needs_no_event_and_nothing_is_waited_for_twice) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  const comb c = comb_new(m, d, a);
  gate g;
  hold_up(&g, m, a);
  comb_release(m, d, &c, 111);
  const uint64_t before = records(m);

  const tide_block block = take(d, a, ALL_BYTES);
  paint(m, a, block, 222, ALL_BYTES);
  T_EQ(records(m), before);
  let_go(&g);
  expect_filled(m, 0, bytes_of(block), 222, ALL_BYTES);
  give(d, block);
  give(d, take(d, b, ALL_BYTES));
  const uint64_t waited = waits(d);
  for (int i = 0; i < 5; ++i) give(d, take(d, b, ALL_BYTES));

  T_EQ(waits(d), waited);
}

// ---------------------------------------------------------------------------------------------------
// Announced work

// Stream `b` borrows memory of `a`, which is announced to a third stream. One of the two is late.
static void loan_announced(loan* l, tide_machine* m, tide_device_cache* d, bool is_third_late) {
  l->a = known_new(m, d);
  l->b = known_new(m, d);
  const tide_stream third = known_new(m, d);
  const tide_stream late = is_third_late ? third : l->b;
  l->c = comb_new(m, d, l->a);
  comb_release(m, d, &l->c, 1);
  const tide_block borrowed = take(d, l->b, ALL_BYTES);
  stream_finish(m, 0, l->b);
  hold_up(&l->g, m, late);
  paint(m, late, borrowed, 111, ALL_BYTES);
  give_announced(d, borrowed, third);
  if (!is_third_late) stream_finish(m, 0, third);
  T_OK(tide_device_poll(d));
}

ORDER_TEST(test_tide__announced_memory_stays_out_until_the_work_is_done) {
  loan l;
  tide_block blocks[HOLES];
  loan_announced(&l, m, d, true);

  for (size_t i = 0; i < HOLES; ++i) {
    blocks[i] = take(d, i % 2 == 0 ? l.a : l.b, HOLE_BYTES);
    paint(m, i % 2 == 0 ? l.a : l.b, blocks[i], 222, HOLE_BYTES);
  }
  stream_finish(m, 0, l.a);
  stream_finish(m, 0, l.b);
  T_EQ(current(d, active_bytes), (int64_t)(3 * ALL_BYTES));
  let_go(&l.g);

  for (size_t i = 0; i < HOLES; ++i) expect_filled(m, 0, bytes_of(blocks[i]), 222, HOLE_BYTES);
  T_OK(tide_device_poll(d));
  T_EQ(current(d, active_bytes), (int64_t)(2 * ALL_BYTES));
  T_PTR_EQ(take(d, l.a, HOLE_BYTES).address, l.c.gaps[0].address);
  comb_expect(m, &l.c);
}

ORDER_TEST(test_tide__announced_memory_waits_for_its_own_stream_too) {
  loan l;
  loan_announced(&l, m, d, false);

  const tide_block home = take(d, l.a, HOLE_BYTES);

  T_PTR_EQ(home.address, l.c.gaps[0].address);
  expect_painted_late(m, l.a, home, HOLE_BYTES, &l.g);
}

// ---------------------------------------------------------------------------------------------------
// Many streams, streams that are gone, the default streams

#define MANY 66

// A stream takes what is idle on another, which is late.
static void expect_order(tide_machine* m, tide_device_cache* d, tide_stream from, tide_stream to) {
  const comb c = comb_new(m, d, from);
  gate g;
  hold_up(&g, m, from);
  comb_release(m, d, &c, 111);

  const tide_block block = take(d, to, ALL_BYTES);

  expect_painted_late(m, to, block, ALL_BYTES, &g);
  give(d, block);
  for (size_t i = 0; i < HOLES; ++i) give(d, c.teeth[i]);
  trim(d);
}

ORDER_TEST(test_tide__more_streams_than_bits_keep_their_order) {
  tide_stream streams[MANY];
  loan l;
  for (size_t i = 0; i < MANY; ++i) {
    streams[i] = known_new(m, d);
    (void)take(d, streams[i], 512);
  }

  expect_order(m, d, streams[0], streams[64]);
  expect_order(m, d, streams[64], streams[0]);
  expect_order(m, d, streams[65], streams[1]);
  expect_order(m, d, streams[2], streams[65]);

  loan_between(&l, m, d, streams[1], streams[65]);
  expect_painted_late(m, l.a, take(d, l.a, HOLE_BYTES), HOLE_BYTES, &l.g);
}

ORDER_TEST(test_tide__memory_of_a_stream_that_is_gone_is_used_in_order) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  const comb c = comb_new(m, d, a);
  for (int i = 0; i < 50; ++i) work_slowly(m, a);
  comb_release(m, d, &c, 111);
  T_OK(tide_machine_stream_free(m, 0, a));

  const tide_block block = take(d, b, ALL_BYTES);
  paint(m, b, block, 222, ALL_BYTES);
  T_OK(tide_machine_device_synchronize(m, 0));

  expect_filled(m, 0, bytes_of(block), 222, ALL_BYTES);
}

ORDER_TEST(test_tide__the_default_stream_lends_and_borrows_in_order) {
  const tide_stream side = known_new(m, d);
  give(d, take(d, NULL, 512));

  expect_order(m, d, side, NULL);
  expect_order(m, d, NULL, side);
}

// The stream of each thread is another one, which only that thread can wait for.
ORDER_TEST(test_tide__the_stream_of_a_thread_neither_lends_nor_borrows) {
  const tide_stream side = known_new(m, d);
  const comb own = comb_new(m, d, TIDE_STREAM_PER_THREAD);
  comb_release(m, d, &own, 111);
  const int64_t reserved = current(d, reserved_bytes);
  const uint64_t before = waits(d);

  const tide_block lent = take(d, side, ALL_BYTES);
  T_EQ(current(d, reserved_bytes), reserved + (int64_t)ALL_BYTES);
  give(d, lent);
  const tide_block borrowed = take(d, TIDE_STREAM_PER_THREAD, ALL_BYTES + HOLE_BYTES);
  T_EQ(current(d, reserved_bytes), reserved + (int64_t)(ALL_BYTES + HOLE_BYTES));

  T_EQ(waits(d), before);
  give(d, borrowed);
  comb_expect(m, &own);
}

// Waiting for a stream that is captured would draw the waiting one into the capture.
static void expect_capture_apart(tide_machine* m, tide_device_cache* d, tide_stream captured,
                                 tide_stream other) {
  tide_capture_state state = TIDE_CAPTURE_ACTIVE;
  tide_launch graph = NULL;
  uint64_t id = 0;
  T_OK(tide_machine_capture_begin(m, 0, captured, TIDE_CAPTURE_RELAXED));

  const tide_block block = take(d, other, ALL_BYTES);
  T_OK(tide_machine_capture_info(m, 0, other, &state, &id));
  T_EQ(state, TIDE_CAPTURE_NONE);
  paint(m, other, block, 222, ALL_BYTES);
  stream_finish(m, 0, other);
  expect_filled(m, 0, bytes_of(block), 222, ALL_BYTES);

  T_OK(tide_machine_capture_end(m, 0, captured, &graph));
  T_OK(tide_machine_launch_free(m, graph));
  give(d, block);
}

static void expect_nobody_drawn(tide_machine* m, tide_device_cache* d, bool has_scope) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  const tide_pool pool = pool_new(d, NULL);
  const tide_scope scope = { sizeof scope, TIDE_SCOPE_STREAM, a, NULL, NULL, false };
  const comb c = comb_new(m, d, a);
  comb_release(m, d, &c, 111);
  stream_finish(m, 0, a);
  if (has_scope) T_OK(tide_device_pool_begin(d, pool, &scope));

  expect_capture_apart(m, d, a, b);

  if (has_scope) T_OK(tide_device_pool_end(d, pool));
}

ORDER_TEST(test_tide__memory_of_a_stream_that_is_captured_draws_nobody_into_the_capture) {
  expect_nobody_drawn(m, d, false);
}

ORDER_TEST(test_tide__a_scope_on_another_stream_draws_nobody_into_the_capture) {
  configure(d, "captures_by_stream:True");
  expect_nobody_drawn(m, d, true);
}

// ---------------------------------------------------------------------------------------------------
// Giving back

ORDER_TEST(test_tide__a_trim_waits_for_work_on_borrowed_memory) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  for (int i = 0; i < 4; ++i) {
    const comb c = comb_new(m, d, a);
    comb_release(m, d, &c, 1);
    const tide_block borrowed = take(d, b, ALL_BYTES);
    for (int k = 0; k < 20; ++k) work_slowly(m, i % 2 == 0 ? a : b);
    paint(m, b, borrowed, 111, ALL_BYTES);
    give(d, borrowed);
    for (size_t k = 0; k < HOLES; ++k) give(d, c.teeth[k]);

    trim(d);

    T_EQ(current(d, reserved_bytes), 0);
    stream_finish(m, 0, a);
    stream_finish(m, 0, b);  // which would tell of work that came too late
  }
}

ORDER_TEST(test_tide__a_trim_leaves_late_work_on_live_blocks_alone) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  const comb c = comb_new(m, d, a);
  comb_release(m, d, &c, 1);
  const tide_block borrowed = take(d, b, 9 * MIB);
  for (int k = 0; k < 20; ++k) work_slowly(m, b);
  paint(m, b, borrowed, 222, 9 * MIB);

  trim(d);

  stream_finish(m, 0, b);
  expect_filled(m, 0, bytes_of(borrowed), 222, 9 * MIB);
  comb_expect(m, &c);
}

// ---------------------------------------------------------------------------------------------------
// Threads under pressure

#define THREADS 4
#define BLOCKS 12

// A block whose every page has its tag, as work on streams sees it.
typedef struct tagged {
  tide_block block;
  size_t bytes;
  uint64_t tag;
} tagged;

typedef struct tag_job {
  uint8_t* address;
  size_t bytes;
  uint64_t tag;
} tag_job;

static atomic_uint_least64_t wrong_tags;

// Pages are marked at places that no other page of the same remainder has, so that shifts show as well.
static size_t tag_place(size_t page) { return page + page / 4096 % 512 * 8; }

static void job_write(void* user) {
  tag_job* const job = user;
  for (size_t page = 0; page + 4096 <= job->bytes; page += 4096) {
    memcpy(job->address + tag_place(page), &job->tag, sizeof job->tag);
  }
  free(job);
}

static void job_check(void* user) {
  tag_job* const job = user;
  for (size_t page = 0; page + 4096 <= job->bytes; page += 4096) {
    if (memcmp(job->address + tag_place(page), &job->tag, sizeof job->tag) != 0) {
      atomic_fetch_add(&wrong_tags, 1);
    }
  }
  free(job);
}

static void queue_job(tide_machine* m, tide_stream stream, const tagged* t, tide_call_fn function) {
  tag_job* const job = malloc(sizeof *job);
  T_CHECK(job != NULL);
  *job = (tag_job){ t->block.address, t->bytes, t->tag };
  T_OK(tide_machine_call(m, 0, stream, function, job));
}

typedef struct worker {
  tide_machine* m;
  tide_device_cache* d;
  tide_stream stream;
  tide_stream other;  // that of the next worker
  tide_event event;   // of this worker
  uint64_t number;
  size_t steps;
  uint64_t tags;
  size_t served;
  pthread_t thread;
  tagged blocks[BLOCKS];
} worker;

static void worker_take(worker* w, tagged* t, size_t bytes) {
  const tide_status status = tide_device_alloc(w->d, w->stream, bytes, &t->block);
  if (status == TIDE_ERR_NO_MEMORY) return;
  T_OK(status);
  t->bytes = bytes;
  t->tag = w->number << 56 | ++w->tags;
  w->served++;
  queue_job(w->m, w->stream, t, job_write);
}

// Looks at a block a last time, sometimes on another stream, and gives it back.
static void worker_give(worker* w, tagged* t, bool is_announced) {
  if (is_announced) {
    T_OK(tide_machine_event_record(w->m, 0, w->event, w->stream));
    T_OK(tide_machine_stream_wait(w->m, 0, w->other, w->event));
    queue_job(w->m, w->other, t, job_check);
    announce(w->d, t->block, w->other);
  } else {
    queue_job(w->m, w->stream, t, job_check);
  }
  if (t->tag % 2 == 0) give(w->d, t->block);
  else T_OK(tide_device_release_address(w->d, t->block.address));
  t->block = block_none;
}

static void* worker_run(void* user) {
  worker* const w = user;
  t_rng rng = t_rng_new(w->number);
  for (size_t i = 0; i < w->steps; ++i) {
    tagged* const t = &w->blocks[t_rng_below(&rng, BLOCKS)];
    const uint64_t dice = t_rng_below(&rng, 64);
    if (t->block.address != NULL) worker_give(w, t, dice < 8);
    else
      worker_take(w, t, dice < 16 ? 4096 + t_rng_below(&rng, 512 * KIB) : MIB + t_rng_below(&rng, 7 * MIB));
    if (dice == 63 && w->number == 1) T_OK(tide_device_trim(w->d, 0));
    if (dice == 62) stream_finish(w->m, 0, w->stream);
  }
  for (size_t i = 0; i < BLOCKS; ++i) {
    if (w->blocks[i].block.address != NULL) worker_give(w, &w->blocks[i], false);
  }
  return NULL;
}

// Workers with streams of their own, or all with the same.
static void expect_right_tags(tide_machine* m, tide_device_cache* d, size_t count, bool is_one_stream) {
  worker workers[THREADS];
  const tide_stream common = known_new(m, d);
  memset(workers, 0, sizeof workers);
  atomic_store(&wrong_tags, 0);
  for (size_t i = 0; i < count; ++i) {
    workers[i] = (worker){ .m = m, .d = d, .number = i + 1, .event = event_new(m, 0) };
    workers[i].steps = t_scaled(T_HAS_SANITIZER ? 200 : 500);
    workers[i].stream = is_one_stream ? common : known_new(m, d);
  }
  for (size_t i = 0; i < count; ++i) workers[i].other = workers[(i + 1) % count].stream;
  for (size_t i = 0; i < count; ++i) t_thread_start(&workers[i].thread, worker_run, &workers[i]);
  size_t served = 0;
  for (size_t i = 0; i < count; ++i) {
    t_thread_join(workers[i].thread);
    served += workers[i].served;
  }
  T_OK(tide_machine_device_synchronize(m, 0));
  T_EQ(atomic_load(&wrong_tags), 0);
  T_CHECK(served > 0);
  expect_polled(d, 0);
  device_expect_valid(d);
}

DEVICE_TEST_OVER(test_tide__two_threads_under_pressure_find_their_data, tide_host) {
  limit_to(d, 56 * MIB);
  expect_right_tags(m, d, 2, false);
}

DEVICE_TEST_OVER(test_tide__four_threads_with_and_without_a_limit_find_their_data, tide_host) {
  expect_right_tags(m, d, THREADS, false);
  limit_to(d, 112 * MIB);
  expect_right_tags(m, d, THREADS, false);
}

DEVICE_TEST_OVER(test_tide__four_threads_on_one_stream_find_their_data, tide_host) {
  limit_to(d, 112 * MIB);
  expect_right_tags(m, d, THREADS, true);
}

// ---------------------------------------------------------------------------------------------------
// The last use, and no later

// A stream is done with its memory, and then waits for what another will do. Who takes the memory must not
// wait for that.
ORDER_TEST(test_tide__only_the_last_use_is_waited_for) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  const comb c = comb_new(m, d, a);
  gate g;
  comb_release(m, d, &c, 111);
  hold_up(&g, m, a);
  const int64_t reserved = current(d, reserved_bytes);

  const tide_block block = take(d, b, ALL_BYTES);
  paint(m, b, block, 222, ALL_BYTES);
  stream_finish(m, 0, b);  // for ever, if b waits for a

  T_EQ(current(d, reserved_bytes), reserved);
  let_go(&g);
  expect_filled(m, 0, bytes_of(block), 222, ALL_BYTES);
  comb_expect(m, &c);
}

// What was released while the pool had one stream has no mark: it stays, until a later one has passed.
ORDER_TEST(test_tide__memory_without_a_mark_is_never_waited_for) {
  const tide_stream a = side_new(m);
  const tide_stream b = side_new(m);
  const comb c = comb_new(m, d, a);
  gate g;
  comb_release(m, d, &c, 111);
  hold_up(&g, m, a);
  const int64_t reserved = current(d, reserved_bytes);

  const tide_block first = take(d, b, ALL_BYTES);
  paint(m, b, first, 222, ALL_BYTES);
  stream_finish(m, 0, b);
  T_EQ(current(d, reserved_bytes), reserved + (int64_t)ALL_BYTES);
  give(d, c.teeth[0]);  // this one leaves a mark, behind the gate
  const tide_block second = take(d, b, ALL_BYTES);
  paint(m, b, second, 223, ALL_BYTES);
  stream_finish(m, 0, b);
  T_EQ(current(d, reserved_bytes), reserved + (int64_t)(2 * ALL_BYTES));
  let_go(&g);
  const tide_block third = take(d, b, ALL_BYTES);

  T_EQ(current(d, reserved_bytes), reserved + (int64_t)(2 * ALL_BYTES));
  T_EQ(waits(d), 0);
  give(d, third);
  expect_filled(m, 0, bytes_of(first), 222, ALL_BYTES);
  expect_filled(m, 0, bytes_of(second), 223, ALL_BYTES);
}

// The default stream is never gone, so that it gets its mark as soon as another one asks.
ORDER_TEST(test_tide__the_default_stream_gets_its_mark_later) {
  const tide_stream b = side_new(m);
  const comb c = comb_new(m, d, NULL);
  comb_release(m, d, &c, 111);
  stream_finish(m, 0, NULL);

  const tide_block first = take(d, b, MIB);  // asks for the mark, which may not have passed yet
  stream_finish(m, 0, NULL);
  const int64_t reserved = current(d, reserved_bytes);
  const tide_block second = take(d, b, ALL_BYTES - HOLE_BYTES);

  T_EQ(current(d, reserved_bytes), reserved);
  give(d, first);
  give(d, second);
}

// Memory whose last use is over goes first, even that of other streams.
ORDER_TEST(test_tide__memory_that_needs_no_wait_is_taken_first) {
  const tide_stream late = known_new(m, d);
  const tide_stream early = known_new(m, d);
  const tide_stream taker = known_new(m, d);
  const comb first = comb_new(m, d, late);
  const comb second = comb_new(m, d, early);
  gate g;
  hold_up(&g, m, late);
  comb_release(m, d, &first, 1);
  comb_release(m, d, &second, 2);
  stream_finish(m, 0, early);
  const int64_t reserved = current(d, reserved_bytes);

  const tide_block block = take(d, taker, ALL_BYTES);
  paint(m, taker, block, 222, ALL_BYTES);
  stream_finish(m, 0, taker);

  T_EQ(current(d, reserved_bytes), reserved);
  T_EQ(waits(d), 0);
  let_go(&g);
  expect_filled(m, 0, bytes_of(block), 222, ALL_BYTES);
}

// ---------------------------------------------------------------------------------------------------
// Waits that are avoided

// Half of the peak, 16 of 32 MiB, may be reserved before a stream waits.
static void set_wait_slack(tide_device_cache* d) { configure(d, "tide_wait_slack:0.5"); }

// A stream that has no work of another to wait for is done while that is held up.
static void expect_done(tide_machine* m, tide_stream stream, tide_block block, size_t bytes) {
  paint(m, stream, block, 222, bytes);
  stream_finish(m, 0, stream);  // for ever, if it waits
  expect_filled(m, 0, bytes_of(block), 222, bytes);
}

ORDER_TEST(test_tide__a_stream_gets_new_memory_rather_than_wait) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  const comb c = comb_new(m, d, a);
  gate g;
  set_wait_slack(d);
  hold_up(&g, m, a);
  comb_release(m, d, &c, 111);
  const int64_t reserved = current(d, reserved_bytes);

  const tide_block block = take(d, b, ALL_BYTES);
  expect_done(m, b, block, ALL_BYTES);

  T_EQ(waits(d), 0);
  T_EQ(stats_of(d).num_waits_avoided, 1);
  T_EQ(stats_of(d).stream_wait_bytes, 0);
  T_EQ(current(d, reserved_bytes), reserved + (int64_t)ALL_BYTES);
  let_go(&g);
  comb_expect(m, &c);
}

ORDER_TEST(test_tide__a_stream_waits_when_the_second_slack_is_used_up) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  const comb c = comb_new(m, d, a);
  gate g;
  configure(d, "tide_wait_slack:0.25");  // 8 MiB, and the request is for 16
  hold_up(&g, m, a);
  comb_release(m, d, &c, 111);
  const int64_t reserved = current(d, reserved_bytes);

  const tide_block block = take(d, b, ALL_BYTES);

  T_EQ(waits(d), 1);
  T_EQ(stats_of(d).num_waits_avoided, 0);
  T_EQ(stats_of(d).stream_wait_bytes, (int64_t)ALL_BYTES);
  T_EQ(current(d, reserved_bytes), reserved);
  expect_painted_late(m, b, block, ALL_BYTES, &g);
}

// The same for memory that returns home.
ORDER_TEST(test_tide__a_home_grows_rather_than_wait) {
  loan l;
  loan_begin(&l, m, d);
  set_wait_slack(d);
  const uint64_t before = waits(d);

  const tide_block block = take(d, l.a, HOLE_BYTES);
  expect_done(m, l.a, block, HOLE_BYTES);

  T_CHECK(block.address != l.c.gaps[0].address);
  T_EQ(waits(d), before);
  let_go(&l.g);
  comb_expect(m, &l.c);
}

// Work that is done costs no memory.
ORDER_TEST(test_tide__idle_memory_is_used_before_new_memory_if_its_work_is_done) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  const comb c = comb_new(m, d, a);
  set_wait_slack(d);
  comb_release(m, d, &c, 111);
  stream_finish(m, 0, a);
  const int64_t reserved = current(d, reserved_bytes);

  const tide_block block = take(d, b, ALL_BYTES);

  T_EQ(current(d, reserved_bytes), reserved);
  T_EQ(stats_of(d).num_waits_avoided, 0);
  give(d, block);
}

// A limit, or a machine without memory: then a wait is better than a failure.
ORDER_TEST(test_tide__a_stream_waits_where_no_new_memory_can_be_had) {
  for (int round = 0; round < 2; ++round) {
    const tide_stream a = known_new(m, d);
    const tide_stream b = known_new(m, d);
    const comb c = comb_new(m, d, a);
    const uint64_t before = waits(d);
    gate g;
    set_wait_slack(d);
    hold_up(&g, m, a);
    comb_release(m, d, &c, 111);
    if (round == 0) limit_to(d, (uint64_t)current(d, reserved_bytes));
    else break_calls(m, TIDE_CALL_PHYSICAL_NEW, TIDE_ERR_NO_MEMORY, UINT64_MAX);

    const tide_block block = take(d, b, ALL_BYTES);

    T_LT(before, waits(d));
    T_EQ(stats_of(d).num_waits_avoided, 0);
    expect_painted_late(m, b, block, ALL_BYTES, &g);
    limit_to(d, TIDE_NO_LIMIT);
    tide_machine_fault_clear(m);
    give(d, block);
    for (size_t i = 0; i < HOLES; ++i) give(d, c.teeth[i]);
    trim(d);
  }
}

DEVICE_TEST_OVER(test_tide__the_time_that_the_host_waits_is_counted, tide_dry) {
  const tide_stream a = known_new(m, d);
  const tide_block block = take(d, NULL, 8 * MIB);
  limit_to(d, (uint64_t)current(d, reserved_bytes));
  T_OK(tide_dry_work(m, 0, a, 5000000));
  give_announced(d, block, a);
  T_EQ(stats_of(d).host_wait_ns, 0);

  give(d, take(d, NULL, 8 * MIB));

  T_LE(4000000, stats_of(d).host_wait_ns);
  T_LE(stats_of(d).host_wait_ns, 6000000);
}

// ---------------------------------------------------------------------------------------------------
// Streams that die

static uint64_t refused_calls(const tide_machine* m) {
  return tide_machine_call_stats(m, TIDE_CALL_ANY).failures;
}

// A call on a stream that is gone fails; with cuda it crashes.
ORDER_TEST(test_tide__no_call_is_made_on_a_stream_that_is_gone) {
  const tide_stream keeper = known_new(m, d);
  for (int i = 0; i < 100; ++i) {
    const tide_stream passing = side_new(m);
    const tide_block block = take(d, passing, (size_t)(4 + i % 25) * MIB);
    paint(m, passing, block, (uint8_t)i, MIB);
    give(d, block);
    T_OK(tide_machine_stream_free(m, 0, passing));

    const tide_block own = take(d, keeper, (size_t)(4 + i * 7 % 40) * MIB);
    paint(m, keeper, own, (uint8_t)i, MIB);
    give(d, own);
  }

  T_EQ(refused_calls(m), 0);
  T_LE(current(d, reserved_bytes), (int64_t)(400 * MIB));  // and the memory of the dead is used
}

ORDER_TEST(test_tide__a_stream_is_closed_before_its_blocks_are_released) {
  const tide_stream keeper = known_new(m, d);
  const tide_stream passing = known_new(m, d);
  const tide_block small = take(d, passing, 4 * KIB);
  const tide_block large = take(d, passing, 32 * MIB);
  T_OK(tide_device_close_stream(d, passing));
  T_OK(tide_machine_stream_free(m, 0, passing));

  give(d, large);
  give(d, small);
  const tide_block block = take(d, keeper, 16 * MIB);
  T_OK(tide_device_close_stream(d, passing));  // again, and one that nobody knows: no error
  give(d, block);
  trim(d);

  T_EQ(refused_calls(m), 0);
  T_EQ(current(d, reserved_bytes), 0);
}

// Closes a stream whose work is late, before or after its blocks are released, and asks for memory by its
// handle.
static void expect_no_memory_of_the_old_one(tide_machine* m, tide_device_cache* d, bool closes_first) {
  const tide_stream a = known_new(m, d);
  (void)known_new(m, d);
  const tide_block large = take(d, a, 32 * MIB);
  const tide_block small = take(d, a, 4 * KIB);
  gate g;
  hold_up(&g, m, a);
  if (closes_first) T_OK(tide_device_close_stream(d, a));
  give(d, small);
  give(d, large);
  if (!closes_first) T_OK(tide_device_close_stream(d, a));

  const tide_block large_then = take(d, a, 32 * MIB);
  const tide_block small_then = take(d, a, 4 * KIB);

  T_CHECK(large_then.address != large.address);
  T_CHECK(small_then.address != small.address);
  let_go(&g);
  give(d, large_then);
  give(d, small_then);
}

// A new stream often gets the handle of one that is gone, and must wait for what the old one still does. Nor
// may the thread that releases a block after the close find its lane again by the old handle.
ORDER_TEST(test_tide__a_new_stream_with_an_old_handle_gets_no_memory_of_the_old_one) {
  expect_no_memory_of_the_old_one(m, d, false);
  expect_no_memory_of_the_old_one(m, d, true);
}

static uint64_t questions(const tide_machine* m) {
  return tide_machine_call_stats(m, TIDE_CALL_EVENT_QUERY).calls;
}

// Releases blocks of the default stream, each behind work of a millisecond. Returns how many marks it made.
static uint64_t release_behind_work(tide_machine* m, tide_device_cache* d, size_t count) {
  const uint64_t before = records(m);
  for (size_t i = 0; i < count; ++i) {
    work_slowly(m, NULL);
    give(d, take(d, NULL, HOLE_BYTES));
  }
  return records(m) - before;
}

// A stream has at most 1024 marks that have not passed. To see whether the first of them has, one question is
// enough, and few to find the last one of many.
DEVICE_TEST_OVER(test_tide__few_questions_find_the_marks_that_have_passed, tide_dry) {
  (void)known_new(m, d);
  T_EQ(release_behind_work(m, d, 1024), 1024);

  const uint64_t before = questions(m);
  T_EQ(release_behind_work(m, d, 100), 0);
  const uint64_t full = questions(m);
  T_OK(tide_dry_advance(m, (uint64_t)700 * 1000000));
  T_EQ(release_behind_work(m, d, 600), 600);

  T_LE(full - before, 100);
  T_LE(questions(m) - full, 24);
}

// Each request is larger than all holes, so that it looks for memory of other streams. It rarely needs to
// know which marks of its own stream have passed.
DEVICE_TEST_OVER(test_tide__a_request_asks_little_about_its_own_stream, tide_dry) {
  const tide_stream a = known_new(m, d);
  (void)known_new(m, d);
  const tide_block kept = take(d, a, 128 * MIB);  // so that no view is retired
  const uint64_t asked = questions(m);
  const uint64_t marked = records(m);

  for (size_t i = 1; i <= 64; ++i) give(d, take(d, a, i * MIB));

  T_EQ(records(m) - marked, 64);
  T_LE(questions(m) - asked, 16);
  give(d, kept);
}

// Other code captures a stream in the strictest mode, while memory moves between two others.
ORDER_TEST(test_tide__marks_do_not_break_captures_of_others) {
  const tide_stream a = known_new(m, d);
  const tide_stream b = known_new(m, d);
  const tide_stream captured = side_new(m);
  tide_launch launch = NULL;
  T_OK(tide_machine_capture_begin(m, 0, captured, TIDE_CAPTURE_GLOBAL));

  for (size_t i = 0; i < 200; ++i) {
    const tide_stream stream = i % 2 == 0 ? a : b;
    give(d, take(d, stream, 600 * KIB + i % 7 * KIB));
  }

  T_OK(tide_machine_capture_end(m, 0, captured, &launch));
  T_OK(tide_machine_launch_free(m, launch));
}

ORDER_TEST(test_tide__the_default_streams_cannot_be_closed) {
  T_STATUS(tide_device_close_stream(d, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_close_stream(d, TIDE_STREAM_LEGACY), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_close_stream(d, TIDE_STREAM_PER_THREAD), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_close_stream(NULL, side_new(m)), TIDE_ERR_ARGUMENT);
}
