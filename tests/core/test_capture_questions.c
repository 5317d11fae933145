// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How allocators query a machine about captures: for a stream outside of a capture, in an active one and in
// an invalid one, for a stream that is gone, and on a machine that fails. Also the mode RELAXED and its end.
#define T_THREADS
#include "core/capture.h"

#include "machine/machines.h"

static void fail_next(tide_machine* m, tide_call call, uint64_t count) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = (uint32_t)call;
  fault.status = TIDE_ERR_MACHINE;
  fault.count = count;
  T_OK(tide_machine_fault_add(m, &fault));
}

// Leaves a failure in the thread's record that no question may change.
static void note_failure(void) { T_STATUS(tide_machine_device_synchronize(NULL, 0), TIDE_ERR_ARGUMENT); }

static void expect_failure_kept(void) { T_EQ(tide_last_error()->status, TIDE_ERR_ARGUMENT); }

static void expect_answers(tide_machine* m, tide_stream stream, bool is_captured, bool is_outside) {
  bool asked = !is_captured;
  note_failure();
  T_EQ(tide__capture_has(m, 0, stream), is_captured);
  T_EQ(tide__capture_is_outside(m, 0, stream), is_outside);
  T_OK(tide__capture_ask(m, 0, stream, &asked));
  T_EQ(asked, is_captured);
  expect_failure_kept();
}

MACHINE_TEST(test_capture_questions__tell_whether_a_stream_is_captured) {
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  tide_launch launch = NULL;
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  expect_answers(m, stream, false, true);
  T_EQ(tide__capture_of(m, 0, stream), 0);
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_THREAD_LOCAL));
  expect_answers(m, stream, true, false);
  T_OK(tide_machine_capture_info(m, 0, stream, &state, &id));
  T_NE(id, 0);
  T_EQ(tide__capture_of(m, 0, stream), id);
  T_STATUS(tide_machine_stream_synchronize(m, 0, stream), TIDE_ERR_CAPTURE);  // which invalidates it
  expect_answers(m, stream, true, false);
  T_EQ(tide__capture_of(m, 0, stream), 0);
  T_STATUS(tide_machine_capture_end(m, 0, stream, &launch), TIDE_ERR_CAPTURE);
  expect_answers(m, stream, false, true);
}

EMULATED_TEST(test_capture_questions__a_stream_that_is_gone_is_in_no_capture) {
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  T_OK(tide_machine_stream_free(m, 0, stream));
  expect_answers(m, stream, false, false);
  T_EQ(tide__capture_of(m, 0, stream), 0);
}

MACHINE_TEST(test_capture_questions__without_an_answer_a_stream_counts_as_captured) {
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  bool is_captured = false;
  note_failure();
  fail_next(m, TIDE_CALL_CAPTURE_INFO, 3);
  T_CHECK(tide__capture_has(m, 0, stream));
  T_CHECK(!tide__capture_is_outside(m, 0, stream));
  T_EQ(tide__capture_of(m, 0, stream), 0);
  expect_failure_kept();
  fail_next(m, TIDE_CALL_CAPTURE_INFO, 1);
  T_STATUS(tide__capture_ask(m, 0, stream, &is_captured), TIDE_ERR_MACHINE);
  T_CHECK(is_captured);
  tide_machine_fault_clear(m);
}

// ---------------------------------------------------------------------------------------------------
// The bracket

static tide_capture_mode mode_now(tide_machine* m) {
  tide_capture_mode mode = TIDE_CAPTURE_GLOBAL;
  tide_capture_mode ignored = TIDE_CAPTURE_GLOBAL;
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_RELAXED, &mode));
  T_OK(tide_machine_capture_exchange(m, mode, &ignored));
  return mode;
}

MACHINE_TEST(test_capture_questions__a_relaxed_thread_may_call_the_machine_beside_its_capture) {
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  tide_launch launch = NULL;
  void* address = NULL;
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_GLOBAL));
  const tide__relaxed relaxed = tide__relax_or_not(m);
  T_OK(tide_machine_raw_alloc(m, 0, MIB, &address));
  T_OK(tide_machine_raw_release(m, 0, address));
  tide__relax_end(&relaxed);
  T_EQ(mode_now(m), TIDE_CAPTURE_GLOBAL);
  T_STATUS(tide_machine_raw_alloc(m, 0, MIB, &address), TIDE_ERR_CAPTURE);  // which invalidates it
  T_STATUS(tide_machine_capture_end(m, 0, stream, &launch), TIDE_ERR_CAPTURE);
}

MACHINE_TEST(test_capture_questions__brackets_nest) {
  tide__relaxed inner;
  tide_capture_mode before = TIDE_CAPTURE_GLOBAL;
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_THREAD_LOCAL, &before));
  const tide__relaxed outer = tide__relax_or_not(m);
  T_OK(tide__relax(m, &inner));
  tide__relax_end(&inner);
  T_EQ(mode_now(m), TIDE_CAPTURE_RELAXED);
  tide__relax_end(&outer);
  T_EQ(mode_now(m), TIDE_CAPTURE_THREAD_LOCAL);
  T_OK(tide_machine_capture_exchange(m, before, &before));
}

MACHINE_TEST(test_capture_questions__a_bracket_that_fails_changes_nothing) {
  tide__relaxed relaxed;
  fail_next(m, TIDE_CALL_CAPTURE_EXCHANGE, 1);
  T_STATUS(tide__relax(m, &relaxed), TIDE_ERR_MACHINE);
  tide__relax_end(&relaxed);
  T_EQ(mode_now(m), TIDE_CAPTURE_GLOBAL);
  note_failure();
  fail_next(m, TIDE_CALL_CAPTURE_EXCHANGE, 1);
  relaxed = tide__relax_or_not(m);
  expect_failure_kept();
  tide__relax_end(&relaxed);
  T_EQ(mode_now(m), TIDE_CAPTURE_GLOBAL);
}

MACHINE_TEST(test_capture_questions__the_end_of_a_bracket_is_tried_again) {
  const tide__relaxed relaxed = tide__relax_or_not(m);
  note_failure();
  fail_next(m, TIDE_CALL_CAPTURE_EXCHANGE, 2);
  tide__relax_end(&relaxed);
  expect_failure_kept();
  T_EQ(mode_now(m), TIDE_CAPTURE_GLOBAL);
}
