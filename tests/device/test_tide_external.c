// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// External streams: they belong to other libraries, which destroy them without notice, also while blocks of
// them are handed out. The host and dry machines refuse calls on a stream that is gone, and the tests count
// refusals; with cuda such a call crashes. Gates hold streams up, so that the data show who wrote too early.
#define T_THREADS
#include "device/devices.h"
#include "tidemark/machine_ops.h"

#define EXTERNAL_TEST(function) DEVICE_TEST_OVER(function, device_tide)

static tide_block take_external(tide_device_cache* d, tide_stream stream, size_t bytes) {
  tide_block block = block_none;
  T_OK(tide_device_alloc_external(d, stream, bytes, &block));
  T_CHECK(block.address != NULL);
  return block;
}

static uint64_t refused_calls(const tide_machine* m) {
  return tide_machine_call_stats(m, TIDE_CALL_ANY).failures;
}

static uint64_t waits(tide_device_cache* d) { return (uint64_t)stats_of(d).num_stream_waits; }

static void destroy(tide_machine* m, tide_stream stream) { T_OK(tide_machine_stream_free(m, 0, stream)); }

// ---------------------------------------------------------------------------------------------------
// Memory that comes back

EXTERNAL_TEST(test_external__released_memory_serves_the_same_stream_at_once) {
  const tide_stream stream = side_new(m);
  (void)take(d, NULL, 2 * MIB);
  const tide_block large = take_external(d, stream, 16 * MIB);
  const tide_block small = take_external(d, stream, 4 * KIB);
  gate g;
  hold_up(&g, m, stream);
  give(d, large);
  give(d, small);

  T_PTR_EQ(take_external(d, stream, 16 * MIB).address, large.address);
  T_PTR_EQ(take_external(d, stream, 4 * KIB).address, small.address);

  let_go(&g);
}

// Others get it when its work is over, and never wait for it: the work may wait for them.
EXTERNAL_TEST(test_external__memory_serves_other_streams_when_its_work_is_done) {
  const tide_stream stream = side_new(m);
  const tide_stream other = side_new(m);
  give(d, take(d, other, MIB));
  const tide_block block = take_external(d, stream, 16 * MIB);
  gate g;
  hold_up(&g, m, stream);
  paint(m, stream, block, 111, 16 * MIB);
  give(d, block);
  const int64_t reserved = current(d, reserved_bytes);

  const tide_block first = take(d, other, 16 * MIB);
  paint(m, other, first, 222, 16 * MIB);
  stream_finish(m, 0, other);  // for ever, if it waits
  T_LE(reserved + (int64_t)(14 * MIB), current(d, reserved_bytes));
  let_go(&g);
  T_OK(tide_machine_device_synchronize(m, 0));
  destroy(m, stream);
  const int64_t grown = current(d, reserved_bytes);
  const tide_block second = take(d, other, 14 * MIB);

  T_EQ(current(d, reserved_bytes), grown);
  T_EQ(waits(d), 0);
  T_EQ(refused_calls(m), 0);
  expect_filled(m, 0, bytes_of(first), 222, 16 * MIB);
  give(d, second);
}

// What an external stream borrowed returns in order, too.
EXTERNAL_TEST(test_external__borrowed_memory_returns_when_its_work_is_done) {
  const tide_stream home = side_new(m);
  const tide_stream stream = side_new(m);
  tide_block blocks[4];
  give(d, take_external(d, stream, 512));
  for (size_t i = 0; i < 4; ++i) blocks[i] = take(d, home, 6 * MIB);
  give(d, blocks[0]);
  give(d, blocks[2]);
  stream_finish(m, 0, home);
  const tide_block borrowed = take_external(d, stream, 12 * MIB);
  gate g;
  hold_up(&g, m, stream);
  paint(m, stream, borrowed, 111, 12 * MIB);
  give(d, borrowed);
  const int64_t reserved = current(d, reserved_bytes);

  const tide_block block = take(d, home, 6 * MIB);
  paint(m, home, block, 222, 6 * MIB);
  stream_finish(m, 0, home);
  T_LT(reserved, current(d, reserved_bytes));
  let_go(&g);
  T_OK(tide_machine_device_synchronize(m, 0));

  expect_filled(m, 0, bytes_of(block), 222, 6 * MIB);
  T_EQ(waits(d), 0);
}

// A stream that takes memory of a stream with marks waits for those, as others do.
EXTERNAL_TEST(test_external__a_request_waits_for_the_marks_of_others) {
  const tide_stream home = side_new(m);
  const tide_stream stream = side_new(m);
  give(d, take(d, home, 512));
  const tide_block small = take_external(d, stream, MIB);
  const tide_block block = take(d, home, 16 * MIB);
  gate g;
  hold_up(&g, m, home);
  paint(m, home, block, 111, 16 * MIB);
  give(d, block);

  const tide_block taken = take_external(d, stream, 14 * MIB);
  paint(m, stream, taken, 222, 14 * MIB);

  T_EQ(waits(d), 1);
  T_CHECK(!stream_is_idle(m, 0, stream));
  let_go(&g);
  T_OK(tide_machine_device_synchronize(m, 0));
  expect_filled(m, 0, bytes_of(taken), 222, 14 * MIB);
  give(d, small);
}

EXTERNAL_TEST(test_external__announced_work_is_waited_for) {
  const tide_stream stream = side_new(m);
  const tide_stream user = side_new(m);
  const tide_block block = take_external(d, stream, 8 * MIB);
  gate g;
  hold_up(&g, m, user);
  announce(d, block, user);
  destroy(m, stream);
  give(d, block);

  T_EQ(current(d, active_bytes), (int64_t)(8 * MIB));
  let_go(&g);
  stream_finish(m, 0, user);
  T_OK(tide_device_poll(d));
  T_EQ(current(d, active_bytes), 0);
  T_EQ(refused_calls(m), 0);
}

// ---------------------------------------------------------------------------------------------------
// Streams that die

#define STREAMS 10000
#define HELD 4
#define EDGE (64 * KIB)

typedef struct held_block {
  tide_block block;
  tide_stream stream;  // NULL: it is gone
  size_t bytes;
  uint8_t value;
} held_block;

// Paints the ends of a block, or looks whether they are as they were painted.
static void paint_edges(tide_machine* m, tide_stream stream, const held_block* b) {
  T_OK(tide_machine_fill(m, 0, stream, b->block.address, b->value, EDGE));
  T_OK(tide_machine_fill(m, 0, stream, bytes_of(b->block) + b->bytes - EDGE, b->value, EDGE));
}

static void expect_edges(tide_machine* m, const held_block* b) {
  T_OK(tide_machine_device_synchronize(m, 0));
  expect_filled(m, 0, bytes_of(b->block), b->value, EDGE);
  expect_filled(m, 0, bytes_of(b->block) + b->bytes - EDGE, b->value, EDGE);
}

static void held_end(tide_machine* m, tide_device_cache* d, held_block* b, bool is_checked) {
  if (b->block.address == NULL) return;
  if (is_checked) expect_edges(m, b);
  give(d, b->block);
  if (b->stream != NULL) destroy(m, b->stream);
  b->block = block_none;
}

// Each step makes an external stream, which lives or dies before its block is released a few steps later, and
// uses memory on the main stream.
static void run_streams(tide_machine* m, tide_device_cache* d, size_t from, size_t to) {
  held_block held[HELD] = { { .block = block_none } };
  for (size_t i = from; i < to; ++i) {
    held_block* const b = &held[i % HELD];
    held_end(m, d, b, i % 64 < HELD);
    *b = (held_block){ .stream = side_new(m), .bytes = (4 + i * 5 % 25) * MIB, .value = (uint8_t)i };
    b->block = take_external(d, b->stream, b->bytes);
    paint_edges(m, b->stream, b);
    give(d, take_external(d, b->stream, 4 * KIB));
    if (i % 2 == 0) {
      destroy(m, b->stream);
      b->stream = NULL;
    }
    held_block own = { .bytes = (4 + i * 7 % 40) * MIB, .value = (uint8_t)(i + 100) };
    own.block = take(d, NULL, own.bytes);
    paint_edges(m, NULL, &own);
    if (i % 64 == 0) expect_edges(m, &own);
    give(d, own.block);
  }
  for (size_t i = 0; i < HELD; ++i) held_end(m, d, &held[i], true);
}

// The most that is handed out at once is 4 times 28 and 43 MiB. So the device, which has 256 MiB, would be
// full after a few of the streams if their memory stayed unused.
DEVICE_TEST_OVER(test_external__ten_thousand_streams_leave_nothing_behind, device_tide) {
  const size_t count = T_HAS_SANITIZER || is_cuda(m) || !t_is_thorough() ? STREAMS / 10 : STREAMS;
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, false);
  tide_device_cache* const own = device_new(m, 0, &records.heap);
  limit_to(own, 256 * MIB);

  run_streams(m, own, 0, count / 10);
  const size_t after_few = atomic_load(&records.outstanding);
  run_streams(m, own, count / 10, count);

  T_EQ(refused_calls(m), 0);
  T_EQ(stats_of(own).num_ooms, 0);
  T_LE(atomic_load(&records.outstanding), after_few * 2);  // nine times as many streams came and went
  device_expect_valid(own);
  if (is_dry(m)) T_LE(current(own, reserved_bytes), (int64_t)(220 * MIB));
  trim(own);
  T_EQ(current(own, reserved_bytes), 0);
  T_EQ(refused_calls(m), 0);
  tide_device_free(own);
  T_EQ(atomic_load(&records.outstanding), 0);
}

// In a private pool a stream is known by its handle, and no marks are made. Nothing is called there either.
EXTERNAL_TEST(test_external__streams_in_a_pool_may_be_gone) {
  const tide_pool pool = pool_new(d, NULL);
  for (int i = 0; i < 20; ++i) {
    const tide_stream stream = side_new(m);
    const tide_scope scope = { sizeof scope, TIDE_SCOPE_STREAM, stream, NULL, NULL, false };
    T_OK(tide_device_pool_begin(d, pool, &scope));
    const tide_block block = take_external(d, stream, 8 * MIB);
    T_OK(tide_device_pool_end(d, pool));
    destroy(m, stream);
    give(d, block);
  }

  T_OK(tide_device_pool_drop(d, pool));
  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
  T_EQ(refused_calls(m), 0);
}

// Has a block its value at both ends? Only the host can look without a window, which threads would share.
static void expect_seen(tide_machine* m, const held_block* b) {
  if (is_dry(m)) return;
  for (size_t i = 0; i < EDGE; i += 512) {
    T_EQ(bytes_of(b->block)[i], b->value);
    T_EQ(bytes_of(b->block)[b->bytes - EDGE + i], b->value);
  }
}

static atomic_uint worker_values;

// A thread with external streams.
static void* external_worker(void* user) {
  tide_device_cache* const d = user;
  tide_machine* const m = tide_device_machine(d);
  for (int i = 0; i < 40; ++i) {
    const tide_stream stream = side_new(m);
    held_block b[3];
    for (size_t k = 0; k < 3; ++k) {
      b[k] = (held_block){ .bytes = (1 + (size_t)i * 3 % 7 + k) * MIB,
                           .value = (uint8_t)atomic_fetch_add(&worker_values, 1) };
      b[k].block = take_external(d, stream, b[k].bytes);
      paint_edges(m, stream, &b[k]);
    }
    stream_finish(m, 0, stream);
    for (size_t k = 0; k < 3; ++k) {
      expect_seen(m, &b[k]);
      if (k == 1) destroy(m, stream);
      give(d, b[k].block);
    }
  }
  return NULL;
}

DEVICE_TEST_OVER(test_external__threads_find_their_data, device_tide_emulated) {
  limit_to(d, 128 * MIB);
  run_threads(4, external_worker, d);
  T_EQ(refused_calls(m), 0);
}

// ---------------------------------------------------------------------------------------------------
// Captures

// Other code captures a stream in the strictest mode, while memory moves.
EXTERNAL_TEST(test_external__marks_do_not_break_captures_of_others) {
  if (strcmp(tide_machine_name(m), "cuda") == 0)
    t_skip("the driver ends a capture that the allocator cannot see");
  const tide_stream captured = side_new(m);
  tide_launch launch = NULL;
  give(d, take(d, NULL, MIB));
  T_OK(tide_machine_capture_begin(m, 0, captured, TIDE_CAPTURE_GLOBAL));

  for (size_t i = 0; i < 20; ++i) {
    const tide_stream stream = side_new(m);
    give(d, take_external(d, stream, (1 + i % 3) * MIB));
    destroy(m, stream);
    give(d, take(d, NULL, (2 + i) * MIB));
  }

  T_OK(tide_machine_capture_end(m, 0, captured, &launch));
  T_OK(tide_machine_launch_free(m, launch));
}

// ---------------------------------------------------------------------------------------------------
// Handles that are used again

// A machine that passes all calls on, but names each stream by the same handle, as a driver may when one is
// freed before the next is made.
typedef struct mask {
  tide_machine* inner;
  tide_stream now;
} mask;

#define MASKED ((tide_stream)0x4000)

static tide_stream unmask(const mask* k, tide_stream stream) { return stream == MASKED ? k->now : stream; }

#define PASS(name, parameters, ...)                    \
  static tide_status mask_##name parameters {          \
    const mask* const k = self;                        \
    return tide_machine_##name(k->inner, __VA_ARGS__); \
  }
PASS(device_info, (void* self, int d, tide_device_info* out), d, out)
PASS(memory_info, (void* self, int d, size_t* out_free, size_t* out_total), d, out_free, out_total)
PASS(raw_alloc, (void* self, int d, size_t bytes, void** out), d, bytes, out)
PASS(raw_release, (void* self, int d, void* address), d, address)
PASS(address_reserve, (void* self, int d, size_t n, size_t a, void* hint, void** out), d, n, a, hint, out)
PASS(address_release, (void* self, void* address, size_t bytes), address, bytes)
PASS(physical_new, (void* self, int d, size_t n, uint32_t flags, tide_physical* out), d, n, flags, out)
PASS(physical_free, (void* self, tide_physical physical), physical)
PASS(map, (void* self, void* address, tide_physical physical), address, physical)
PASS(unmap, (void* self, void* address, size_t bytes), address, bytes)
PASS(set_access, (void* self, void* a, size_t n, int d, tide_access access), a, n, d, access)
PASS(stream_info, (void* self, int d, tide_stream s, bool* c, uint64_t* n), d, unmask(k, s), c, n)
PASS(stream_synchronize, (void* self, int d, tide_stream s), d, unmask(k, s))
PASS(stream_wait, (void* self, int d, tide_stream s, tide_event e), d, unmask(k, s), e)
PASS(device_synchronize, (void* self, int d), d)
PASS(event_new, (void* self, int d, tide_event* out), d, out)
PASS(event_free, (void* self, tide_event e), e)
PASS(event_record, (void* self, int d, tide_event e, tide_stream s), d, e, unmask(k, s))
PASS(event_query, (void* self, tide_event e, bool* out), e, out)
PASS(event_synchronize, (void* self, tide_event e), e)
PASS(event_record_all, (void* self, int d, tide_event e), d, e)

static void mask_free(void* self) { (void)self; }

static tide_machine* mask_new(mask* k, bool has_record_all) {
  const tide_machine_ops ops = { .size = sizeof ops,
                                 .version = TIDE_MACHINE_OPS_VERSION,
                                 .name = "mask",
                                 .free = mask_free,
                                 .device_info = mask_device_info,
                                 .memory_info = mask_memory_info,
                                 .raw_alloc = mask_raw_alloc,
                                 .raw_release = mask_raw_release,
                                 .address_reserve = mask_address_reserve,
                                 .address_release = mask_address_release,
                                 .physical_new = mask_physical_new,
                                 .physical_free = mask_physical_free,
                                 .map = mask_map,
                                 .unmap = mask_unmap,
                                 .set_access = mask_set_access,
                                 .stream_info = mask_stream_info,
                                 .stream_synchronize = mask_stream_synchronize,
                                 .stream_wait = mask_stream_wait,
                                 .device_synchronize = mask_device_synchronize,
                                 .event_new = mask_event_new,
                                 .event_free = mask_event_free,
                                 .event_record = mask_event_record,
                                 .event_query = mask_event_query,
                                 .event_synchronize = mask_event_synchronize,
                                 .event_record_all = has_record_all ? mask_event_record_all : NULL };
  tide_machine* m = NULL;
  T_OK(tide_machine_new(&ops, k, 1, NULL, &m));
  return m;
}

// The new stream must not get memory that work of the old one still uses.
EXTERNAL_TEST(test_external__a_new_stream_with_an_old_handle_gets_no_memory_of_the_old_one) {
  mask k = { m, side_new(m) };
  tide_machine* const masked = mask_new(&k, true);
  tide_device_cache* const own = device_new(masked, 0, NULL);
  const uint64_t refused = refused_calls(m);  // by the probe
  const tide_block large = take_external(own, MASKED, 8 * MIB);
  const tide_block small = take_external(own, MASKED, 4 * KIB);
  const tide_stream before = k.now;
  gate g;
  hold_up(&g, m, before);
  paint(m, before, large, 111, 8 * MIB);
  give(own, small);
  give(own, large);
  k.now = side_new(m);

  const tide_block first = take_external(own, MASKED, 8 * MIB);
  const tide_block second = take_external(own, MASKED, 4 * KIB);
  T_CHECK(first.address != large.address);
  T_CHECK(second.address != small.address);
  paint(m, k.now, first, 222, 8 * MIB);
  let_go(&g);
  T_OK(tide_machine_device_synchronize(m, 0));
  expect_filled(m, 0, bytes_of(first), 222, 8 * MIB);

  k.now = side_new(m);  // and the work of the first is over
  T_PTR_EQ(take_external(own, MASKED, 8 * MIB).address, large.address);
  T_EQ(refused_calls(m), refused);
  tide_device_free(own);
  tide_machine_free(masked);
}

// Without marks of all work, the device is waited for when memory is short.
EXTERNAL_TEST(test_external__a_machine_without_marks_of_all_work_waits_for_the_device) {
  mask k = { m, NULL };
  tide_machine* const masked = mask_new(&k, false);
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, false);
  tide_device_cache* const own = device_new(masked, 0, &records.heap);
  const uint64_t refused = refused_calls(m);  // by the probe
  size_t after_few = 0;
  limit_to(own, 96 * MIB);
  for (size_t i = 0; i < 600; ++i) {
    k.now = side_new(m);
    const tide_block block = take_external(own, MASKED, (1 + i % 5) * MIB);
    T_OK(tide_machine_fill(m, 0, k.now, block.address, 1, EDGE));
    if (i % 2 == 0) destroy(m, k.now);
    give(own, block);
    if (i % 2 == 1) destroy(m, k.now);
    give(own, take(own, NULL, (1 + i * 7 % 20) * MIB));
    if (i == 200) after_few = atomic_load(&records.outstanding);
  }

  T_LE(atomic_load(&records.outstanding), after_few * 2);
  T_EQ(refused_calls(m), refused);
  trim(own);
  T_EQ(current(own, reserved_bytes), 0);
  tide_device_free(own);
  tide_machine_free(masked);
}

// ---------------------------------------------------------------------------------------------------
// Arguments

DEVICE_TEST(test_external__arguments) {
  const tide_stream stream = side_new(m);
  tide_block block = { &block, 1 };

  T_STATUS(tide_device_alloc_external(NULL, stream, 512, &block), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_alloc_external(d, stream, 512, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_alloc_external(d, stream, (size_t)1 << 60, &block), TIDE_ERR_ARGUMENT);
  T_OK(tide_device_alloc_external(d, stream, 0, &block));
  T_CHECK(block.address == NULL);
  T_OK(tide_device_alloc_external(d, NULL, 512, &block));
  give(d, block);
  T_PTR_EQ(take(d, NULL, 512).address, block.address);  // a default stream is what it always is
  tide_device_set_caching(d, false);
  give(d, take_external(d, stream, 512));
  tide_device_set_caching(d, true);
}

DEVICE_TEST_OVER(test_external__a_stream_that_is_gone_is_refused, device_tide_emulated) {
  const tide_stream stream = side_new(m);
  tide_block block = block_none;
  destroy(m, stream);

  T_STATUS(tide_device_alloc_external(d, stream, 512, &block), TIDE_ERR_HANDLE);

  T_CHECK(block.address == NULL);
}

EXTERNAL_TEST(test_external__a_stream_can_be_closed) {
  const tide_stream stream = side_new(m);
  const tide_block block = take_external(d, stream, 8 * MIB);
  T_OK(tide_device_close_stream(d, stream));
  give(d, block);

  const tide_block again = take_external(d, stream, 8 * MIB);  // that of a new stream

  give(d, again);
  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
}

// Policy torch puts blocks where it always does.
TORCH_TEST(test_external__torch_decides_as_without) {
  const tide_stream stream = side_new(m);
  const tide_block block = take_external(d, stream, 3 * MIB);
  give(d, block);

  T_PTR_EQ(take(d, stream, 3 * MIB).address, block.address);
}
