// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: faults and counters.
#include "conformance/check.h"

CHECK_FILE(check_fault);

CHECK(call_name__is_that_of_the_function) {
  static const char* const names[] = {
#define CALL_NAME(upper, lower) #lower,
    TIDE_CALL_MAP(CALL_NAME)
#undef CALL_NAME
  };

  for (size_t i = 0; i < TIDE_CALL_COUNT; ++i) T_STR_EQ(tide_call_name((tide_call)i), names[i]);

  T_STR_EQ(tide_call_name(TIDE_CALL_ANY), "any");
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_RAW_ALLOC).calls, 0);
}

CHECK(fault__leaves_other_kinds_alone) {
  const tide_fault fault = fault_of(TIDE_CALL_PINNED_ALLOC, TIDE_ERR_NO_MEMORY);
  fault_put(m, &fault);

  T_OK(raw_try(m, MIB));

  void* memory = NULL;
  T_STATUS(tide_machine_pinned_alloc(m, 4096, &memory), TIDE_ERR_NO_MEMORY);
}

// The sizes of raw_alloc calls in order, and which of them one fault hits.
typedef struct fault_row {
  uint64_t skip;
  uint64_t count;
  uint64_t byte_budget;
  struct {
    size_t bytes;
    bool is_hit;
  } calls[8];  // ends with 0 bytes
} fault_row;

static const fault_row fault_rows[] = {
  { 0, 1, 0, { { 512, true }, { 512, false }, { 512, false } } },
  { 2, 3, 0, { { 512, 0 }, { 512, 0 }, { 512, 1 }, { 512, 1 }, { 512, 1 }, { 512, 0 }, { 512, 0 } } },
  { 2, UINT64_MAX, 0, { { 512, 0 }, { 512, 0 }, { 512, 1 }, { 512, 1 }, { 512, 1 }, { 512, 1 } } },
  // Only calls above the budget can be hit, and a call that was hit spends nothing of it.
  { 0, UINT64_MAX, MIB, { { MIB / 2, 0 }, { MIB / 2, 0 }, { 1, 1 }, { MIB, 1 } } },
  { 0, UINT64_MAX, MIB, { { 4 * MIB, 1 }, { MIB, 0 }, { 1, 1 } } },
  { 1, 1, MIB, { { MIB, 0 }, { 512, 0 }, { 512, 1 }, { 512, 0 } } },
};

CHECK(fault__hits_the_calls_that_its_fields_choose) {
  for (size_t i = 0; i < sizeof fault_rows / sizeof *fault_rows; ++i) {
    const fault_row* const row = &fault_rows[i];
    tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
    fault.skip = row->skip;
    fault.count = row->count;
    fault.byte_budget = row->byte_budget;
    fault_put(m, &fault);
    for (size_t k = 0; k < 8 && row->calls[k].bytes != 0; ++k) {
      const tide_status status = raw_try(m, row->calls[k].bytes);
      if (status != (row->calls[k].is_hit ? TIDE_ERR_NO_MEMORY : TIDE_OK))
        T_FAIL("row %zu, call %zu is %s", i, k, tide_status_name(status));
    }
    tide_machine_fault_clear(m);
  }
}

CHECK(fault__hits_for_ever_until_cleared) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.count = UINT64_MAX;
  fault_put(m, &fault);

  for (int i = 0; i < 100; ++i) T_STATUS(raw_try(m, 4096), TIDE_ERR_NO_MEMORY);
  tide_machine_fault_clear(m);

  T_OK(raw_try(m, 4096));
}

CHECK(fault__any_hits_the_next_call_whatever_it_is) {
  const tide_fault fault = fault_of(TIDE_CALL_ANY, TIDE_ERR_MACHINE);
  uint64_t ns = 1;
  fault_put(m, &fault);

  T_STATUS(tide_machine_clock(m, &ns), TIDE_ERR_MACHINE);

  T_EQ(ns, 0);
  T_STR_HAS(tide_last_error()->text, "clock");
  T_OK(tide_machine_clock(m, &ns));
}

CHECK(fault__any_counts_calls_of_all_kinds) {
  tide_fault fault = fault_of(TIDE_CALL_ANY, TIDE_ERR_MACHINE);
  fault.skip = 3;
  fault_put(m, &fault);

  (void)clock_ns(m);
  T_OK(raw_try(m, 4096));
  (void)device_info(m, 0);

  T_STATUS(raw_try(m, 4096), TIDE_ERR_MACHINE);
  T_OK(raw_try(m, 4096));
}

CHECK(fault__byte_budget_of_any_adds_all_kinds_up) {
  tide_fault fault = fault_of(TIDE_CALL_ANY, TIDE_ERR_NO_MEMORY);
  void* pinned = NULL;
  fault.byte_budget = MIB;
  fault_put(m, &fault);

  T_OK(raw_try(m, MIB / 2));
  T_OK(tide_machine_pinned_alloc(m, MIB / 2, &pinned));

  T_STATUS(raw_try(m, 1), TIDE_ERR_NO_MEMORY);
}

// The latency applies whether the call then fails or not.
CHECK_REAL(fault__latency_holds_a_call_up) {
  static const tide_status statuses[] = { TIDE_OK, TIDE_ERR_NO_MEMORY };
  for (size_t i = 0; i < 2; ++i) {
    tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, statuses[i]);
    fault.latency_ns = 30000000;
    fault_put(m, &fault);
    const uint64_t start = t_now_ns();

    T_STATUS(raw_try(m, 4096), statuses[i]);

    T_LE(start + 30000000, t_now_ns());
  }
}

CHECK(fault__the_first_that_hits_decides) {
  tide_fault first = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_LIMIT);
  const tide_fault second = fault_of(TIDE_CALL_ANY, TIDE_ERR_MACHINE);
  first.skip = 1;
  fault_put(m, &first);
  fault_put(m, &second);

  T_STATUS(raw_try(m, 4096), TIDE_ERR_MACHINE);
  T_STATUS(raw_try(m, 4096), TIDE_ERR_LIMIT);

  T_OK(raw_try(m, 4096));
}

CHECK(fault_add__takes_sixteen) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.count = UINT64_MAX;
  for (int i = 0; i < 16; ++i) fault_put(m, &fault);

  T_STATUS(tide_machine_fault_add(m, &fault), TIDE_ERR_LIMIT);
  tide_machine_fault_clear(m);

  T_OK(raw_try(m, 4096));
  fault_put(m, &fault);
}

CHECK(fault_add__refuses_what_makes_no_sense) {
  tide_fault no_call = fault_of((tide_call)(TIDE_CALL_ANY + 1), TIDE_ERR_MACHINE);
  tide_fault no_status = fault_of(TIDE_CALL_CLOCK, (tide_status)7);
  tide_fault no_size = fault_of(TIDE_CALL_CLOCK, TIDE_ERR_MACHINE);
  no_size.size = 0;

  T_STATUS(tide_machine_fault_add(m, &no_call), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_fault_add(m, &no_status), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_fault_add(m, &no_size), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_fault_add(m, NULL), TIDE_ERR_ARGUMENT);

  (void)clock_ns(m);
}

CHECK(fault__in_a_capture_does_not_break_it) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, 4096);
  const tide_fault fault = fault_of(TIDE_CALL_FILL, TIDE_ERR_NO_MEMORY);
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_GLOBAL));
  fault_put(m, &fault);

  T_STATUS(tide_machine_fill(m, 0, stream, raw, 1, 4096), TIDE_ERR_NO_MEMORY);
  T_OK(tide_machine_fill(m, 0, stream, raw, 1, 4096));

  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
}

CHECK(call_stats__count_calls_and_failures) {
  T_OK(raw_try(m, 4096));
  T_OK(raw_try(m, 4096));
  T_STATUS(raw_try(m, 0), TIDE_ERR_ARGUMENT);

  const tide_call_stats stats = tide_machine_call_stats(m, TIDE_CALL_RAW_ALLOC);

  T_EQ(stats.calls, 3);
  T_EQ(stats.failures, 1);
}

CHECK(call_stats__any_is_the_sum) {
  const tide_stream stream = stream_new(m, 0, 0);
  T_OK(tide_machine_fill(m, 0, stream, raw_new(m, 0, 4096), 1, 4096));
  stream_finish(m, 0, stream);
  T_STATUS(raw_try(m, 0), TIDE_ERR_ARGUMENT);
  tide_call_stats sum = { 0, 0, 0 };

  for (int call = 0; call < TIDE_CALL_COUNT; ++call) {
    const tide_call_stats stats = tide_machine_call_stats(m, (tide_call)call);
    sum.calls += stats.calls;
    sum.failures += stats.failures;
    sum.ns += stats.ns;
  }
  const tide_call_stats any = tide_machine_call_stats(m, TIDE_CALL_ANY);

  T_EQ(any.calls, sum.calls);
  T_EQ(any.failures, sum.failures);
  T_EQ(any.ns, sum.ns);
  T_EQ(any.failures, 1);
}
