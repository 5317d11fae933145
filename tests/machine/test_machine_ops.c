// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tide_machine_new(): tables of functions from outside the library. The machine here counts what reaches it
// and answers what the test tells it.
#include "machine/counting_heap.h"
#include "tidemark/machine_ops.h"

typedef struct fake {
  tide_status answer;     // of raw_alloc
  bool explains;          // raw_alloc sets the error record
  bool is_in_callback;    // what is_in_callback says
  int calls;              // that reached raw_alloc, raw_release or stream_free
  int freed;              // calls of free
  int charged;            // calls of charge
  uint64_t delayed_ns;    // sum of delays
  tide_call last_charge;  // the call that was charged last
} fake;

static void fake_free(void* self) { ((fake*)self)->freed++; }
static void fake_delay(void* self, uint64_t ns) { ((fake*)self)->delayed_ns += ns; }
static bool fake_is_in_callback(const void* self) { return ((const fake*)self)->is_in_callback; }

static void fake_charge(void* self, tide_call call) {
  fake* const f = self;
  f->charged++;
  f->last_charge = call;
}

static tide_status fake_device_info(void* self, int device, tide_device_info* out) {
  (void)self;
  out->total_bytes = 1000 + (uint64_t)device;
  (void)snprintf(out->name, sizeof out->name, "fake %d", device);
  return TIDE_OK;
}

static tide_status fake_raw_alloc(void* self, int device, size_t bytes, void** out) {
  fake* const f = self;
  f->calls++;
  T_CHECK(*out == NULL && bytes != 0 && device >= 0 && device < 2);
  if (f->answer != TIDE_OK && f->explains) {
    return TIDE_ERROR_SET(f->answer, 42, "fake: %zu bytes on device %d", bytes, device);
  }
  if (f->answer == TIDE_OK) *out = self;
  return f->answer;
}

static tide_status fake_raw_release(void* self, int device, void* address) {
  (void)device;
  T_PTR_EQ(address, self);
  ((fake*)self)->calls++;
  return TIDE_OK;
}

static tide_status fake_stream_free(void* self, int device, tide_stream stream) {
  (void)device;
  T_CHECK(stream != NULL);
  ((fake*)self)->calls++;
  return TIDE_OK;
}

static const tide_machine_ops fake_ops = {
  .size = sizeof(tide_machine_ops),
  .version = TIDE_MACHINE_OPS_VERSION,
  .name = "fake",
  .free = fake_free,
  .delay = fake_delay,
  .is_in_callback = fake_is_in_callback,
  .charge = fake_charge,
  .device_info = fake_device_info,
  .raw_alloc = fake_raw_alloc,
  .raw_release = fake_raw_release,
  .stream_free = fake_stream_free,
};

static tide_machine* machine_of(const tide_machine_ops* ops, fake* self) {
  tide_machine* m = NULL;
  T_OK(tide_machine_new(ops, self, 2, NULL, &m));
  T_CHECK(m != NULL);
  return m;
}

// A test on a fresh machine `m` whose state is `f`.
#define FAKE_TEST(function)                                \
  static void function(tide_machine* m, fake* f);          \
  static void function##_run(void) {                       \
    fake state = { 0 };                                    \
    tide_machine* const m = machine_of(&fake_ops, &state); \
    function(m, &state);                                   \
    tide_machine_free(m);                                  \
    T_EQ(state.freed, 1);                                  \
  }                                                        \
  T_REGISTER(function, function##_run, NULL)               \
  static void function(tide_machine* m, fake* f)

// ---------------------------------------------------------------------------------------------------
// Making

T_TEST(test_machine_new__owns_the_state_and_the_record) {
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, false);
  fake f = { 0 };
  tide_machine* m = NULL;

  T_OK(tide_machine_new(&fake_ops, &f, 2, &records.heap, &m));
  T_STR_EQ(tide_machine_name(m), "fake");
  T_EQ(tide_machine_device_count(m), 2);
  T_EQ(f.freed, 0);
  tide_machine_free(m);

  T_EQ(f.freed, 1);
  T_EQ(atomic_load(&records.outstanding), 0);
}

T_TEST(test_machine_new__leaves_the_state_to_the_caller_when_it_fails) {
  counting_heap records;
  counting_heap_init(&records, 0, true);
  fake f = { 0 };
  tide_machine* m = (tide_machine*)(uintptr_t)1;

  T_STATUS(tide_machine_new(&fake_ops, &f, 2, &records.heap, &m), TIDE_ERR_NO_MEMORY);

  T_PTR_EQ(m, NULL);
  T_EQ(f.freed, 0);
}

static void expect_refused(const tide_machine_ops* ops, int device_count, tide_status want) {
  fake f = { 0 };
  tide_machine* m = (tide_machine*)(uintptr_t)1;
  T_STATUS(tide_machine_new(ops, &f, device_count, NULL, &m), want);
  T_PTR_EQ(m, NULL);
  T_STR_HAS(tide_last_error()->text, "machine_new");
}

T_TEST(test_machine_new__refuses_what_is_no_table) {
  tide_machine_ops bad[6];
  for (size_t i = 0; i < 6; ++i) bad[i] = fake_ops;
  bad[0].version = TIDE_MACHINE_OPS_VERSION + 1;
  bad[1].flags = 8;
  bad[2].name = NULL;
  bad[3].free = NULL;
  bad[4].device_info = NULL;
  bad[5].size = (uint32_t)offsetof(tide_machine_ops, device_info);

  for (size_t i = 0; i < 6; ++i)
    expect_refused(&bad[i], 1, i == 0 ? TIDE_ERR_UNSUPPORTED : TIDE_ERR_ARGUMENT);
  expect_refused(NULL, 1, TIDE_ERR_ARGUMENT);
  expect_refused(&fake_ops, 0, TIDE_ERR_ARGUMENT);
  expect_refused(&fake_ops, TIDE_DEVICE_MAX + 1, TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_new(&fake_ops, NULL, 1, NULL, NULL), TIDE_ERR_ARGUMENT);
}

T_TEST(test_machine_new__copies_the_table) {
  fake f = { 0 };
  tide_machine_ops ops = fake_ops;
  tide_machine* const m = machine_of(&ops, &f);
  void* address = NULL;

  memset(&ops, 0xee, sizeof ops);
  T_OK(tide_machine_raw_alloc(m, 0, 8, &address));

  T_PTR_EQ(address, &f);
  tide_machine_free(m);
}

// The table of an older header is shorter, that of a newer one longer.
T_TEST(test_machine_new__takes_a_shorter_and_a_longer_table) {
  struct {
    tide_machine_ops ops;
    void (*unknown[4])(void);
  } tables[2] = { { fake_ops, { NULL } }, { fake_ops, { NULL } } };
  tables[0].ops.size = (uint32_t)offsetof(tide_machine_ops, raw_release);
  tables[1].ops.size = sizeof tables[1];
  for (size_t i = 0; i < 2; ++i) {
    fake f = { 0 };
    tide_machine* const m = machine_of(&tables[i].ops, &f);
    void* address = NULL;

    T_OK(tide_machine_raw_alloc(m, 0, 8, &address));
    T_PTR_EQ(address, &f);
    T_STATUS(tide_machine_raw_release(m, 0, address), i == 0 ? TIDE_ERR_UNSUPPORTED : TIDE_OK);

    tide_machine_free(m);
  }
}

// ---------------------------------------------------------------------------------------------------
// What absent functions mean

FAKE_TEST(test_absent_function__is_unsupported_and_named) {
  (void)f;
  tide_event event = NULL;

  T_STATUS(tide_machine_event_new(m, 0, &event), TIDE_ERR_UNSUPPORTED);

  T_STR_HAS(tide_last_error()->text, "event_new");
  T_STR_HAS(tide_last_error()->text, "fake");
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_EVENT_NEW).failures, 1);
}

FAKE_TEST(test_absent_function__of_captures_means_that_there_is_none) {
  (void)f;
  tide_capture_state state = TIDE_CAPTURE_ACTIVE;
  tide_capture_mode mode = TIDE_CAPTURE_RELAXED;
  bool is_captured = true;
  uint64_t number = 1;

  T_OK(tide_machine_capture_info(m, 0, NULL, &state, &number));
  T_EQ(state, TIDE_CAPTURE_NONE);
  T_EQ(number, 0);
  T_OK(tide_machine_stream_info(m, 0, NULL, &is_captured, &number));
  T_CHECK(!is_captured);
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_RELAXED, &mode));
  T_EQ(mode, TIDE_CAPTURE_GLOBAL);
  T_STATUS(tide_machine_capture_begin(m, 0, NULL, TIDE_CAPTURE_GLOBAL), TIDE_ERR_UNSUPPORTED);
}

FAKE_TEST(test_absent_function__clock_is_that_of_the_system) {
  (void)f;
  uint64_t first = 0;
  uint64_t second = 0;

  const uint64_t before = t_now_ns();
  T_OK(tide_machine_clock(m, &first));
  T_OK(tide_machine_clock(m, &second));

  T_LE(before, first);
  T_LE(first, second);
  T_LE(second, t_now_ns());
}

FAKE_TEST(test_absent_function__peers_are_not_possible) {
  (void)f;
  bool is_possible = true;

  T_OK(tide_machine_peer_query(m, 0, 1, &is_possible));

  T_CHECK(!is_possible);
  T_STATUS(tide_machine_peer_enable(m, 0, 1), TIDE_ERR_UNSUPPORTED);
}

// ---------------------------------------------------------------------------------------------------
// What the door does for every machine

FAKE_TEST(test_door__keeps_bad_input_from_the_table) {
  void* address = NULL;

  T_STATUS(tide_machine_raw_alloc(m, 0, 0, &address), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_raw_alloc(m, 0, 8, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_raw_alloc(m, 2, 8, &address), TIDE_ERR_DEVICE);
  T_STATUS(tide_machine_raw_alloc(m, -1, 8, &address), TIDE_ERR_DEVICE);
  T_STATUS(tide_machine_raw_release(m, 0, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_stream_free(m, 0, TIDE_STREAM_LEGACY), TIDE_ERR_ARGUMENT);

  T_EQ(f->calls, 0);
}

FAKE_TEST(test_door__injects_faults_and_delays) {
  tide_fault fault = TIDE_FAULT_INIT;
  void* address = NULL;
  fault.call = TIDE_CALL_RAW_ALLOC;
  fault.latency_ns = 12345;
  T_OK(tide_machine_fault_add(m, &fault));

  T_STATUS(tide_machine_raw_alloc(m, 0, 8, &address), TIDE_ERR_NO_MEMORY);
  T_EQ(f->calls, 0);
  T_EQ(f->delayed_ns, 12345);
  T_OK(tide_machine_raw_alloc(m, 0, 8, &address));

  T_EQ(f->calls, 1);
}

FAKE_TEST(test_door__counts_and_charges) {
  void* address = NULL;

  T_OK(tide_machine_raw_alloc(m, 0, 8, &address));
  f->answer = TIDE_ERR_LIMIT;
  T_STATUS(tide_machine_raw_alloc(m, 0, 8, &address), TIDE_ERR_LIMIT);

  T_EQ(tide_machine_call_stats(m, TIDE_CALL_RAW_ALLOC).calls, 2);
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_RAW_ALLOC).failures, 1);
  T_EQ(f->charged, 1);
  T_EQ(f->last_charge, TIDE_CALL_RAW_ALLOC);
}

FAKE_TEST(test_door__passes_on_the_text_of_a_failure) {
  void* address = NULL;
  f->answer = TIDE_ERR_MACHINE;
  f->explains = true;

  T_STATUS(tide_machine_raw_alloc(m, 1, 77, &address), TIDE_ERR_MACHINE);

  T_STR_EQ(tide_last_error()->text, "fake: 77 bytes on device 1");
  T_EQ(tide_last_error()->native, 42);
  T_EQ(tide_last_error()->status, TIDE_ERR_MACHINE);
  T_STR_HAS(tide_last_error()->file, "test_machine_ops.c");
}

FAKE_TEST(test_door__writes_a_text_for_a_failure_without_one) {
  void* address = NULL;
  f->answer = TIDE_ERR_LIMIT;

  T_STATUS(tide_machine_raw_alloc(m, 0, 8, &address), TIDE_ERR_LIMIT);

  T_EQ(tide_last_error()->status, TIDE_ERR_LIMIT);
  T_STR_HAS(tide_last_error()->text, "raw_alloc");
  T_STR_HAS(tide_last_error()->text, "fake");
}

FAKE_TEST(test_door__refuses_calls_of_a_callback) {
  void* address = NULL;
  f->is_in_callback = true;

  T_STATUS(tide_machine_raw_alloc(m, 0, 8, &address), TIDE_ERR_STATE);

  T_EQ(f->calls, 0);
}

FAKE_TEST(test_door__calls_nothing_in_a_child) {
  int status = 0;

  const pid_t child = fork();
  if (child == 0) {
    void* address = NULL;
    T_STATUS(tide_machine_raw_alloc(m, 0, 8, &address), TIDE_ERR_STATE);
    tide_machine_free(m);
    T_EQ(f->calls + f->freed, 0);
    _exit(0);
  }
  T_EQ(waitpid(child, &status, 0), child);

  T_EQ(status, 0);
}

T_TEST(test_flags__say_what_the_processor_can_read) {
  const uint32_t flags[3] = { 0, TIDE_MACHINE_HOST_READABLE, TIDE_MACHINE_NO_MEMORY };
  for (size_t i = 0; i < 3; ++i) {
    fake f = { 0 };
    tide_machine_ops ops = fake_ops;
    ops.flags = flags[i];
    tide_machine* const m = machine_of(&ops, &f);
    tide_device_info info = TIDE_DEVICE_INFO_INIT;

    T_OK(tide_machine_device_info(m, 1, &info));

    T_EQ(info.total_bytes, 1001);
    T_EQ(info.is_host_readable, i == 1);
    T_EQ(tide_machine_memory(m, 0).is_host, i == 1);
    T_EQ(tide_machine_pinned_memory(m, 0).is_host, i != 2);
    tide_machine_free(m);
  }
}

// ---------------------------------------------------------------------------------------------------
// Errors from outside

T_TEST(test_error_set__fills_the_record_and_returns_the_status) {
  T_STATUS(tide_error_set(TIDE_ERR_LIMIT, -3, "somewhere", 12, "%d of %s", 5, "them"), TIDE_ERR_LIMIT);

  T_EQ(tide_last_error()->status, TIDE_ERR_LIMIT);
  T_CHECK(tide_last_error()->native == -3);
  T_STR_EQ(tide_last_error()->file, "somewhere");
  T_EQ(tide_last_error()->line, 12);
  T_STR_EQ(tide_last_error()->text, "5 of them");
}

T_TEST(test_error_set__cuts_a_text_that_is_too_long) {
  char text[4000];
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';

  T_STATUS(TIDE_ERROR_SET(TIDE_ERR_MACHINE, 0, "%s", text), TIDE_ERR_MACHINE);

  T_EQ(strlen(tide_last_error()->text), sizeof tide_last_error()->text - 1);
}
