// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Other code uses the same machine: it captures streams at any time, without a scope, and makes the machine
// refuse to wait. Also children of fork().
#define T_THREADS
#include <sys/wait.h>
#include <unistd.h>

#include "device/devices.h"
#include "tidemark/pinned.h"

#define BYTES (6 * MIB)

static void others_begin(tide_machine* m, tide_stream stream, tide_capture_mode mode) {
  T_OK(tide_machine_capture_begin(m, 0, stream, mode));
}

// The capture is whole: nothing that the allocator did has broken it.
static void others_end(tide_machine* m, tide_stream stream) {
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  T_OK(tide_machine_launch_free(m, graph));
}

// ---------------------------------------------------------------------------------------------------
// Blocks that are released while other code captures a stream they were announced to

// A block of the legacy stream that `side` uses, released while other code captures that.
static tide_block release_in_capture(tide_machine* m, tide_device_cache* d, tide_stream own,
                                     tide_stream side) {
  const tide_block block = take(d, own, BYTES);
  announce(d, block, side);
  others_begin(m, side, TIDE_CAPTURE_RELAXED);
  give(d, block);
  const int64_t before = current(d, active);
  T_OK(tide_device_poll(d));
  T_EQ(current(d, active), before);  // the work before the capture may still run
  return block;
}

DEVICE_TEST(test_device__a_block_released_in_a_capture_of_others_is_free_when_that_is_over) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  const tide_block block = release_in_capture(m, d, own, side);

  others_end(m, side);
  stream_finish(m, 0, side);
  expect_polled(d, 0);

  T_PTR_EQ(take(d, own, BYTES).address, block.address);
}

DEVICE_TEST(test_device__memory_of_a_capture_of_others_comes_back_under_pressure) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  limit_to(d, 24 * MIB);
  (void)release_in_capture(m, d, own, side);
  others_end(m, side);

  give(d, take(d, own, 24 * MIB));
  expect_trimmed(d, 0);
}

DEVICE_TEST(test_device__a_block_released_in_a_capture_of_others_waits_for_the_work_before_it) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  gate g;
  const tide_block block = take(d, own, BYTES);
  hold_up(&g, m, side);
  announce(d, block, side);
  others_begin(m, side, TIDE_CAPTURE_RELAXED);
  give(d, block);
  others_end(m, side);

  expect_polled(d, 1);
  let_go(&g);

  expect_polled(d, 0);
}

// Not with the policy tide on cuda: virtual memory is given back after a wait for the device, which no
// capture allows.
static const char* const trimmers[] = { "host", "dry", "cuda", "host tide", "dry tide", NULL };

DEVICE_TEST_OVER(test_device__trim_gives_back_what_no_capture_of_others_has, trimmers) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  const tide_stream third = side_new(m);
  const tide_block other = take(d, own, 30 * MIB);
  announce(d, other, third);
  (void)release_in_capture(m, d, own, side);
  work_slowly(m, third);
  give(d, other);

  trim(d);

  T_EQ(current(d, active), 1);
  T_LE(current(d, reserved_bytes), 20 * MIB);  // the segment of the block that waits
  others_end(m, side);
  expect_trimmed(d, 0);
}

DEVICE_TEST(test_device__an_invalid_capture_of_others_holds_a_block_until_it_is_ended) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  bool is_idle = false;
  tide_launch graph = NULL;
  const tide_block block = take(d, own, BYTES);
  announce(d, block, side);
  others_begin(m, side, TIDE_CAPTURE_RELAXED);
  T_STATUS(tide_machine_stream_query(m, 0, side, &is_idle), TIDE_ERR_CAPTURE);  // which breaks it
  give(d, block);

  expect_polled(d, 1);
  T_STATUS(tide_machine_capture_end(m, 0, side, &graph), TIDE_ERR_CAPTURE);
  stream_finish(m, 0, side);

  expect_polled(d, 0);
}

DEVICE_TEST(test_device__looking_for_work_that_is_done_breaks_no_capture_of_others) {
  const tide_stream own = side_new(m);
  const tide_stream side = side_new(m);
  const tide_stream captured = side_new(m);
  const tide_block block = take(d, own, BYTES);
  const tide_block idle = take(d, own, BYTES);
  give_announced(d, block, side);
  give(d, idle);
  stream_finish(m, 0, side);

  others_begin(m, captured, TIDE_CAPTURE_GLOBAL);
  expect_polled(d, 0);
  (void)take(d, own, BYTES);

  others_end(m, captured);
}

// ---------------------------------------------------------------------------------------------------
// The end of an allocator while work runs

// Work that writes all of a block when it is let go.
typedef struct late_job {
  atomic_bool is_let_go;
  atomic_bool is_done;
  uint8_t* address;
} late_job;

static void late_write(void* user) {
  late_job* const job = user;
  for (int i = 0; i < 300000 && !atomic_load(&job->is_let_go); ++i) t_sleep_us(100);
  for (size_t i = 0; i < BYTES; i += 512) job->address[i] = 7;
  atomic_store(&job->is_done, true);
}

static bool is_known(tide_machine* m, const void* address) {
  tide_pointer_info info = TIDE_POINTER_INFO_INIT;
  T_OK(tide_machine_pointer_info(m, address, &info));
  return info.kind == TIDE_MEMORY_RAW || info.kind == TIDE_MEMORY_MAPPED;
}

MACHINE_TEST_OVER(test_device__freed_in_a_capture_of_others_takes_nothing_from_work_that_runs, device_host) {
  counting_heap records;
  late_job job = { .is_let_go = false };
  const tide_stream side = side_new(m);
  const tide_stream captured = side_new(m);
  counting_heap_init(&records, SIZE_MAX, false);
  tide_device_cache* const d = device_new(m, 0, &records.heap);
  const tide_block block = take(d, side, BYTES);
  job.address = block.address;
  T_OK(tide_machine_call(m, 0, side, late_write, &job));
  others_begin(m, captured, TIDE_CAPTURE_RELAXED);
  give(d, block);

  tide_device_free(d);

  T_CHECK(strstr(tide_last_error()->text, "device_free") != NULL);
  T_EQ(atomic_load(&records.outstanding), 0);
  T_CHECK(is_known(m, job.address));
  atomic_store(&job.is_let_go, true);
  stream_finish(m, 0, side);
  T_CHECK(atomic_load(&job.is_done));
}

MACHINE_TEST_OVER(test_device__freed_in_a_capture_of_another_device_gives_all_back, device_emulated) {
  const size_t before = free_bytes(m, 0);
  const tide_stream captured = stream_new(m, 1, TIDE_STREAM_NON_BLOCKING);
  tide_device_cache* const d = device_new(m, 0, NULL);
  (void)take(d, NULL, BYTES);
  T_OK(tide_machine_capture_begin(m, 1, captured, TIDE_CAPTURE_GLOBAL));

  tide_device_free(d);

  T_EQ(free_bytes(m, 0), before);
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_end(m, 1, captured, &graph));
}

static size_t free_after_refusals(tide_machine* m, uint64_t count) {
  tide_fault fault = TIDE_FAULT_INIT;
  tide_device_cache* const d = device_new(m, 0, NULL);
  const tide_block block = take(d, NULL, BYTES);
  fault.call = TIDE_CALL_DEVICE_SYNCHRONIZE;
  fault.status = TIDE_ERR_MACHINE;
  fault.count = count;
  T_OK(tide_machine_fault_add(m, &fault));
  tide_device_free(d);
  tide_machine_fault_clear(m);
  T_EQ(is_known(m, block.address), count != 1);
  return free_bytes(m, 0);
}

MACHINE_TEST_OVER(test_device__freed_where_the_machine_does_not_wait_leaves_the_memory, device_emulated) {
  const size_t before = free_bytes(m, 0);

  T_EQ(free_after_refusals(m, 1), before);  // it is asked twice
  T_LE(free_after_refusals(m, UINT64_MAX), before - BYTES);
}

// An upstream of segments that tells what was given back to it.
typedef struct upstream {
  tide_machine* m;
  int released;
  int closed;
} upstream;

static void* upstream_alloc(void* user, size_t bytes, int device, tide_stream stream) {
  void* address = NULL;
  (void)stream;
  T_OK(tide_machine_raw_alloc(((upstream*)user)->m, device, bytes, &address));
  return address;
}

static void upstream_release(void* user, void* address, size_t bytes, int device, tide_stream stream) {
  upstream* const u = user;
  (void)bytes;
  (void)stream;
  u->released++;
  T_OK(tide_machine_raw_release(u->m, device, address));
}

static void upstream_closed(void* user) { ((upstream*)user)->closed++; }

MACHINE_TEST_OVER(test_device__freed_where_the_machine_does_not_wait_calls_no_pool, device_emulated) {
  upstream u = { m, 0, 0 };
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  const tide_stream captured = side_new(m);
  options.segment_alloc = upstream_alloc;
  options.segment_release = upstream_release;
  options.closed = upstream_closed;
  options.user = &u;
  tide_device_cache* const d = device_new(m, 0, NULL);
  (void)take_in(d, pool_new(d, &options), NULL, BYTES);
  others_begin(m, captured, TIDE_CAPTURE_RELAXED);

  tide_device_free(d);

  T_EQ(u.released, 0);
  T_EQ(u.closed, 0);
}

static void late_note(void* user) {
  t_sleep_us(20000);
  atomic_store((atomic_bool*)user, true);
}

MACHINE_TEST_OVER(test_device__freed_waits_for_work_that_was_announced_on_other_devices, device_host) {
  atomic_bool is_done = false;
  tide_device_cache* const d = device_new(m, 0, NULL);
  const tide_stream other = stream_new(m, 1, 0);
  const tide_block block = take(d, NULL, BYTES);
  T_OK(tide_device_record_on(d, block, 1, other));
  T_OK(tide_machine_call(m, 1, other, late_note, &is_done));

  tide_device_free(d);

  T_CHECK(atomic_load(&is_done));
}

// ---------------------------------------------------------------------------------------------------
// Memory that can neither be noted nor given back

// A request meets a heap that fails from its n-th piece on, and a machine that takes nothing back. Returns
// whether the request failed; nothing is lost then: the next trim gives back what it had got.
static bool request_without_records(tide_machine* m, size_t n, bool is_cached, size_t bytes) {
  counting_heap records;
  tide_fault fault = TIDE_FAULT_INIT;
  tide_block block = block_none;
  const size_t before = free_bytes(m, 0);
  counting_heap_init(&records, SIZE_MAX, true);
  tide_device_cache* const d = device_new(m, 0, &records.heap);
  tide_device_set_caching(d, is_cached);
  fault.call = TIDE_CALL_RAW_RELEASE;
  fault.status = TIDE_ERR_MACHINE;
  fault.count = UINT64_MAX;
  T_OK(tide_machine_fault_add(m, &fault));
  atomic_store(&records.fail_at, atomic_load(&records.allocs) + n);

  const tide_status status = tide_device_alloc(d, NULL, bytes, &block);

  tide_machine_fault_clear(m);
  atomic_store(&records.fail_at, SIZE_MAX);
  T_CHECK(status == TIDE_OK || status == TIDE_ERR_NO_MEMORY);
  if (status == TIDE_OK) give(d, block);
  trim(d);
  T_EQ(free_bytes(m, 0), before);
  device_expect_valid(d);
  tide_device_free(d);
  T_EQ(atomic_load(&records.outstanding), 0);
  return status != TIDE_OK;
}

MACHINE_TEST_OVER(test_device__memory_is_not_lost_when_its_record_and_its_release_fail, device_emulated) {
  for (int i = 0; i < 4; ++i) {
    size_t n = 0;
    while (request_without_records(m, n, i % 2 == 0, i < 2 ? 700 : 12 * MIB)) ++n;
    T_LT(0, n);
  }
}

// ---------------------------------------------------------------------------------------------------
// Children of fork()

// What a child has of its parent.
typedef struct inherited {
  tide_machine* m;
  tide_device_cache* d;
  tide_pinned_cache* p;
  tide_stream stream;
  tide_block block;
  tide_block pinned;
} inherited;

#define REFUSED(call) ((call) == TIDE_ERR_STATE)

static bool machine_is_refused(const inherited* h) {
  void* memory = NULL;
  tide_event event = NULL;
  return REFUSED(tide_machine_fill(h->m, 0, h->stream, h->block.address, 1, 512)) &&
         REFUSED(tide_machine_stream_synchronize(h->m, 0, h->stream)) &&
         REFUSED(tide_machine_device_synchronize(h->m, 0)) &&
         REFUSED(tide_machine_raw_alloc(h->m, 0, 512, &memory)) &&
         REFUSED(tide_machine_event_new(h->m, 0, &event));
}

static bool device_is_refused(const inherited* h) {
  tide_block block;
  tide_pool pool = 0;
  tide_share share = TIDE_SHARE_INIT;
  tide_checkpoint* checkpoint = NULL;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  return REFUSED(tide_device_alloc(h->d, h->stream, 512, &block)) &&
         REFUSED(tide_device_alloc(h->d, h->stream, 30 * MIB, &block)) &&
         REFUSED(tide_device_alloc_at(h->d, h->stream, 512, h->block.address, &block)) &&
         REFUSED(tide_device_record(h->d, h->block, h->stream)) && REFUSED(tide_device_poll(h->d)) &&
         REFUSED(tide_device_trim(h->d, 0)) && REFUSED(tide_device_reserve(h->d, NULL, 512)) &&
         REFUSED(tide_device_pool_new(h->d, NULL, &pool)) &&
         REFUSED(tide_device_checkpoint(h->d, 1, &checkpoint)) &&
         REFUSED(tide_device_share(h->d, h->block.address, &share, NULL, 0)) &&
         REFUSED(tide_device_get_stats(h->d, &stats)) && tide_device_release(h->d, h->block) == TIDE_OK;
}

static bool pinned_is_refused(const inherited* h) {
  tide_block block;
  return REFUSED(tide_pinned_alloc(h->p, 512, &block)) && REFUSED(tide_pinned_poll(h->p)) &&
         REFUSED(tide_pinned_trim(h->p, 0)) && REFUSED(tide_pinned_empty(h->p)) &&
         tide_pinned_release(h->p, h->pinned) == TIDE_OK;
}

// Sanitizers have locks of their own that a child may find held, and let it start no threads.
static bool own_machine_works(void) {
  tide_machine* m = NULL;
  void* memory = NULL;
  if (T_HAS_SANITIZER) return true;
  const bool is_right = machine_new("host", NULL, &m) == TIDE_OK &&
                        tide_machine_raw_alloc(m, 0, 512, &memory) == TIDE_OK &&
                        tide_machine_fill(m, 0, NULL, memory, 3, 512) == TIDE_OK &&
                        tide_machine_stream_synchronize(m, 0, NULL) == TIDE_OK && *(uint8_t*)memory == 3;
  tide_machine_free(m);
  return is_right;
}

// The number of the first that is not as it should be. What hangs is ended by the alarm.
static int child_run(const inherited* h) {
  (void)alarm(20);
  if (!machine_is_refused(h)) return 1;
  if (!device_is_refused(h)) return 2;
  if (!pinned_is_refused(h)) return 3;
  tide_pinned_free(h->p, NULL);
  tide_device_free(h->d);
  tide_machine_free(h->m);
  return own_machine_works() ? 0 : 4;
}

static void expect_child_refused(const inherited* h) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) _exit(child_run(h));
  T_LT(0, child);
  T_EQ(waitpid(child, &status, 0), child);
  T_EQ(status, 0);
}

static inherited inherited_new(tide_machine* m, bool has_helper) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  inherited h = { .m = m, .d = device_new(m, 0, NULL), .stream = side_new(m) };
  tide_offer offer;
  uint64_t offset = 0;
  options.has_helper = has_helper;
  T_OK(tide_pinned_new(m, &options, &h.p));
  give(h.d, take(h.d, h.stream, 700));
  h.block = take(h.d, h.stream, 700);
  T_OK(tide_pinned_alloc(h.p, 700, &h.pinned));
  T_ANY(tide_device_offer(h.d, h.block.address, &offer, &offset));  // which may start a thread
  return h;
}

static void inherited_end(inherited* h) {
  give(h->d, h->block);
  T_OK(tide_pinned_release(h->p, h->pinned));
  tide_pinned_free(h->p, NULL);
  tide_device_free(h->d);
}

MACHINE_TEST_OVER(test_device__a_forked_child_is_refused_at_once, device_emulated) {
  inherited h = inherited_new(m, true);
  paint(m, h.stream, h.block, 5, 700);
  stream_finish(m, 0, h.stream);

  expect_child_refused(&h);

  expect_filled(m, 0, bytes_of(h.block), 5, 700);
  inherited_end(&h);
}

typedef struct bustle {
  inherited h;
  atomic_bool is_over;
} bustle;

// Keeps all locks busy.
static void* bustle_run(void* user) {
  bustle* const b = user;
  const inherited* const h = &b->h;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  for (size_t i = 0; !atomic_load(&b->is_over); ++i) {
    tide_block pinned = block_none;
    const tide_block block = take(h->d, h->stream, i % 8 == 0 ? 12 * MIB : 1000);
    announce(h->d, block, TIDE_STREAM_LEGACY);
    T_OK(tide_machine_fill(h->m, 0, h->stream, block.address, 1, 1000));
    give(h->d, block);
    T_OK(tide_pinned_alloc(h->p, 5000, &pinned));
    T_OK(tide_pinned_record(h->p, pinned, 0, h->stream));
    T_OK(tide_pinned_release(h->p, pinned));
    if (i % 4 == 0) T_OK(tide_device_get_stats(h->d, &stats));
    if (i % 16 == 0) T_OK(tide_device_trim(h->d, 0));
    if (i % 16 == 8) T_OK(tide_pinned_empty(h->p));
  }
  return NULL;
}

MACHINE_TEST_OVER(test_device__a_child_forked_in_the_middle_of_other_calls_is_refused_at_once, device_host) {
  enum { THREADS = 3 };
  static bustle b;
  pthread_t threads[THREADS];
  b.h = inherited_new(m, false);
  for (size_t i = 0; i < THREADS; ++i) t_thread_start(&threads[i], bustle_run, &b);

  for (size_t i = 0; i < t_scaled(T_HAS_SANITIZER ? 20 : 60); ++i) expect_child_refused(&b.h);

  atomic_store(&b.is_over, true);
  for (size_t i = 0; i < THREADS; ++i) t_thread_join(threads[i]);
  inherited_end(&b.h);
}
