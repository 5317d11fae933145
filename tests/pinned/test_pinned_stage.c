// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Copies between ordinary host memory and a device that are complete when the call returns.
#define T_THREADS
#include "pinned/pinneds.h"

#define PIECE (4 * MIB)

static uint8_t* host_new(size_t bytes) {
  uint8_t* const memory = malloc(bytes + 1);
  T_CHECK(memory != NULL);
  return memory;
}

// Each stretch of 997 bytes has another value than its neighbours.
enum { STRETCH = 997 };

static size_t stretch_bytes(size_t at, size_t bytes) { return bytes - at < STRETCH ? bytes - at : STRETCH; }

static uint8_t stretch_value(size_t at, uint8_t seed) { return (uint8_t)(seed + at / STRETCH * 7 + 1); }

static void host_write(uint8_t* memory, size_t bytes, uint8_t seed) {
  for (size_t at = 0; at < bytes; at += STRETCH) {
    memset(memory + at, stretch_value(at, seed), stretch_bytes(at, bytes));
  }
}

static void host_expect(tide_machine* m, const uint8_t* memory, size_t bytes, uint8_t seed) {
  uint8_t wanted[STRETCH];
  for (size_t at = 0; at < bytes && machine_has_memory(m); at += STRETCH) {
    memset(wanted, stretch_value(at, seed), sizeof wanted);
    if (memcmp(memory + at, wanted, stretch_bytes(at, bytes)) != 0) T_FAIL("from byte %zu of %zu", at, bytes);
  }
}

static void upload(tide_pinned_cache* p, tide_stream stream, void* to, const void* from, size_t bytes) {
  T_OK(tide_pinned_upload(p, 0, stream, to, from, bytes));
}

static void download(tide_pinned_cache* p, tide_stream stream, void* to, const void* from, size_t bytes) {
  T_OK(tide_pinned_download(p, 0, stream, to, from, bytes));
}

static void expect_nothing_handed_out(tide_pinned_cache* p) {
  T_EQ(current(p, active_requests), 0);
  T_EQ(current(p, waiting), 0);
}

// ---------------------------------------------------------------------------------------------------
// Sizes

PINNED_TEST(test_pinned_stage__any_size_goes_there_and_back) {
  static const size_t sizes[] = { 1, 511, 4096, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 17 };
  const size_t most = 3 * PIECE + 17;
  uint8_t* const source = host_new(most);
  uint8_t* const copy = host_new(most);
  void* const there = raw_new(m, 0, most);
  const tide_stream stream = side_new(m);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const uint8_t seed = (uint8_t)(i * 31);
    host_write(source, sizes[i], seed);
    memset(copy, 0xee, most + 1);

    upload(p, stream, there, source, sizes[i]);
    memset(source, 0, sizes[i]);  // the copy is done
    download(p, stream, copy, there, sizes[i]);

    host_expect(m, copy, sizes[i], seed);
    T_EQ(copy[sizes[i]], 0xee);
    expect_nothing_handed_out(p);
  }
  T_OK(tide_machine_raw_release(m, 0, there));
  free(source);
  free(copy);
}

PINNED_TEST(test_pinned_stage__nothing_is_copied_of_nothing) {
  (void)m;
  uint8_t byte = 7;
  upload(p, NULL, &byte, &byte, 0);
  download(p, NULL, &byte, &byte, 0);
  T_EQ(current(p, segments), 0);
}

// A block of 0 bytes has a NULL address.
PINNED_TEST(test_pinned_stage__an_empty_block_is_copied) {
  (void)m;
  uint8_t byte = 7;
  tide_block empty = { &byte, 1 };
  T_OK(tide_pinned_alloc(p, 0, &empty));
  T_PTR_EQ(empty.address, NULL);

  upload(p, NULL, NULL, &byte, 0);
  upload(p, NULL, NULL, empty.address, 0);
  download(p, NULL, &byte, NULL, 0);
  download(p, NULL, empty.address, NULL, 0);
  T_OK(tide_pinned_copy(p, empty, 0, NULL, NULL, empty.address, 0));
  T_OK(tide_pinned_record(p, empty, 0, NULL));
  T_OK(tide_pinned_release(p, empty));
  T_EQ(byte, 7);
}

PINNED_TEST(test_pinned_stage__two_blocks_serve_all_pieces) {
  const size_t bytes = 8 * PIECE;
  uint8_t* const source = host_new(bytes);
  void* const there = raw_new(m, 0, bytes);
  memset(source, 1, bytes);

  upload(p, NULL, there, source, bytes);
  download(p, NULL, source, there, bytes);

  T_EQ(counter(p, num_host_alloc), 2);
  T_EQ(current(p, allocated_bytes), (int64_t)(2 * PIECE));
  T_OK(tide_machine_raw_release(m, 0, there));
  free(source);
}

// ---------------------------------------------------------------------------------------------------
// Order

PINNED_TEST(test_pinned_stage__comes_after_the_work_of_its_stream_and_before_later_work) {
  const size_t bytes = PIECE + 100;
  uint8_t* const copy = host_new(bytes);
  void* const there = raw_new(m, 0, bytes);
  const tide_stream stream = side_new(m);
  if (!is_dry(m)) T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
  T_OK(tide_machine_fill(m, 0, stream, there, 0x11, bytes));

  download(p, stream, copy, there, bytes);
  if (machine_has_memory(m)) t_check_filled(__FILE__, __LINE__, copy, 0x11, bytes);

  if (!is_dry(m)) T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
  memset(copy, 0x22, bytes);
  upload(p, stream, there, copy, bytes);
  T_OK(tide_machine_fill(m, 0, stream, there, 0x33, 50));
  download(p, stream, copy, there, bytes);
  if (machine_has_memory(m)) t_check_filled(__FILE__, __LINE__, copy, 0x33, 50);
  if (machine_has_memory(m)) t_check_filled(__FILE__, __LINE__, copy + 50, 0x22, bytes - 50);
  stream_finish(m, 0, stream);
  T_OK(tide_machine_raw_release(m, 0, there));
  free(copy);
}

PINNED_TEST(test_pinned_stage__waits_for_no_other_stream) {
  const tide_stream held = side_new(m);
  const tide_stream stream = side_new(m);
  uint8_t* const copy = host_new(PIECE + 1);
  void* const there = raw_new(m, 0, PIECE + 1);
  gate g;
  memset(copy, 5, PIECE + 1);
  hold_up(&g, m, held);

  upload(p, stream, there, copy, PIECE + 1);
  download(p, stream, copy, there, PIECE + 1);

  let_go(&g);
  T_OK(tide_machine_raw_release(m, 0, there));
  free(copy);
}

typedef struct mover {
  tide_machine* m;
  tide_pinned_cache* p;
  uint8_t seed;
} mover;

static void* move_there_and_back(void* user) {
  const mover* const v = user;
  const size_t bytes = PIECE + 12345;
  uint8_t* const memory = host_new(bytes);
  void* const there = raw_new(v->m, 0, bytes);
  const tide_stream stream = side_new(v->m);
  for (uint8_t i = 0; i < 5; ++i) {
    host_write(memory, bytes, (uint8_t)(v->seed + i));
    upload(v->p, stream, there, memory, bytes);
    memset(memory, 0, bytes);
    download(v->p, stream, memory, there, bytes);
    host_expect(v->m, memory, bytes, (uint8_t)(v->seed + i));
  }
  T_OK(tide_machine_raw_release(v->m, 0, there));
  free(memory);
  return NULL;
}

PINNED_TEST_OVER(test_pinned_stage__several_threads_copy_at_once, machine_emulated) {
  pthread_t threads[4];
  mover movers[4];
  for (size_t i = 0; i < 4; ++i) {
    movers[i] = (mover){ m, p, (uint8_t)(i * 60) };
    t_thread_start(&threads[i], move_there_and_back, &movers[i]);
  }
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);
  expect_nothing_handed_out(p);
}

// ---------------------------------------------------------------------------------------------------
// What goes wrong

PINNED_TEST(test_pinned_stage__refuses_what_it_cannot_do) {
  uint8_t byte = 7;
  void* const there = raw_new(m, 0, 512);
  T_STATUS(tide_pinned_upload(NULL, 0, NULL, there, &byte, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_upload(p, 0, NULL, NULL, &byte, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_upload(p, 0, NULL, there, NULL, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_download(NULL, 0, NULL, &byte, there, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_download(p, 0, NULL, NULL, there, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_download(p, 0, NULL, &byte, NULL, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_pinned_upload(p, -1, NULL, there, &byte, 1), TIDE_ERR_DEVICE);
  T_STATUS(tide_pinned_download(p, 1000, NULL, &byte, there, 1), TIDE_ERR_DEVICE);
  T_STATUS(tide_pinned_upload(p, 0, NULL, there, &byte, SIZE_MAX), TIDE_ERR_ARGUMENT);
  expect_nothing_handed_out(p);
  T_OK(tide_machine_raw_release(m, 0, there));
}

PINNED_TEST_OVER(test_pinned_stage__a_captured_stream_is_refused, machine_emulated) {
  uint8_t byte = 7;
  void* const there = raw_new(m, 0, 512);
  const tide_stream stream = side_new(m);
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_RELAXED));

  T_STATUS(tide_pinned_upload(p, 0, stream, there, &byte, 1), TIDE_ERR_CAPTURE);
  T_STATUS(tide_pinned_download(p, 0, stream, &byte, there, 1), TIDE_ERR_CAPTURE);
  upload(p, stream, there, &byte, 0);  // which waits for nothing

  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  T_OK(tide_machine_launch_free(m, graph));
  upload(p, stream, there, &byte, 1);
  T_OK(tide_machine_raw_release(m, 0, there));
}

// Each call of a copy fails once: the copy reports it and keeps nothing, and the next copy is complete.
static void expect_fault_is_survived(tide_machine* m, tide_pinned_cache* p, tide_call call, uint64_t skip,
                                     bool is_upload) {
  const size_t bytes = 2 * PIECE + 1;
  uint8_t* const memory = host_new(bytes);
  void* const there = raw_new(m, 0, bytes);
  const tide_stream stream = side_new(m);
  tide_fault fault = TIDE_FAULT_INIT;
  host_write(memory, bytes, 9);
  fault.call = call;
  fault.status = TIDE_ERR_MACHINE;
  fault.skip = skip;
  fault.count = 1;
  T_OK(tide_machine_fault_add(m, &fault));

  const tide_status status = is_upload ? tide_pinned_upload(p, 0, stream, there, memory, bytes)
                                       : tide_pinned_download(p, 0, stream, memory, there, bytes);
  if (status != TIDE_OK) T_EQ(tide_last_error()->status, status);
  tide_machine_fault_clear(m);
  stream_finish(m, 0, stream);
  poll_all(p);
  expect_nothing_handed_out(p);
  host_write(memory, bytes, 9);
  upload(p, stream, there, memory, bytes);
  memset(memory, 0, bytes);
  download(p, stream, memory, there, bytes);
  host_expect(m, memory, bytes, 9);
  pinned_expect_valid(p);
  T_OK(tide_machine_raw_release(m, 0, there));
  free(memory);
}

PINNED_TEST_OVER(test_pinned_stage__a_call_that_fails_leaves_nothing_behind, machine_emulated) {
  static const tide_call calls[] = { TIDE_CALL_COPY,         TIDE_CALL_EVENT_NEW,
                                     TIDE_CALL_EVENT_RECORD, TIDE_CALL_EVENT_SYNCHRONIZE,
                                     TIDE_CALL_PINNED_ALLOC, TIDE_CALL_PINNED_REGISTER };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    for (uint64_t skip = 0; skip < 3; ++skip) {
      expect_fault_is_survived(m, p, calls[i], skip, true);
      expect_fault_is_survived(m, p, calls[i], skip, false);
      empty(p);
    }
  }
}

PINNED_TEST_OVER(test_pinned_stage__one_block_will_do, machine_emulated) {
  const size_t bytes = 3 * PIECE + 5;
  uint8_t* const memory = host_new(bytes);
  void* const there = raw_new(m, 0, bytes);
  host_write(memory, bytes, 4);
  give(p, take(p, PIECE));  // cached
  break_pinning(m);

  upload(p, NULL, there, memory, bytes);
  memset(memory, 0, bytes);
  download(p, NULL, memory, there, bytes);

  tide_machine_fault_clear(m);
  host_expect(m, memory, bytes, 4);
  empty(p);
  break_pinning(m);
  T_STATUS(tide_pinned_upload(p, 0, NULL, there, memory, bytes), TIDE_ERR_NO_MEMORY);
  tide_machine_fault_clear(m);
  T_OK(tide_machine_raw_release(m, 0, there));
  free(memory);
}
