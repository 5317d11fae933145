// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What our machines refuse. Each time the status is the one of the contract, the error text names the call,
// and the free memory of the devices does not change.
#define T_THREADS
#include <limits.h>

#include "machine/trip.h"

typedef struct balance {
  size_t free_bytes[2];
} balance;

static balance balance_of(tide_machine* m) {
  const int last = tide_machine_device_count(m) - 1;
  const balance b = { { free_bytes(m, 0), free_bytes(m, last) } };
  return b;
}

static void check_refused(const char* file, int line, tide_machine* m, const char* call, tide_status want,
                          tide_status got, balance before) {
  if (got != want) {
    t_fail(file, line, "%s is %s, not %s (%s)", call, tide_status_name(got), tide_status_name(want),
           tide_last_error()->text);
  }
  const tide_error error = *tide_last_error();
  if (error.status != want) t_fail(file, line, "%s: last error is %s", call, tide_status_name(error.status));
  t_check_contains(file, line, error.text, call);
  const size_t length = strlen(error.text);
  if (error.text[length - 1] == '\n') t_fail(file, line, "%s: the text ends in a newline", call);
  const balance after = balance_of(m);
  if (is_cuda(m)) return;
  if (memcmp(&before, &after, sizeof before) != 0)
    t_fail(file, line, "%s changed the memory of a device", call);
}

#define REFUSED(call, want, ...)                                                                     \
  do {                                                                                               \
    const balance before_ = balance_of(m);                                                           \
    check_refused(__FILE__, __LINE__, m, #call, want, tide_machine_##call(m, __VA_ARGS__), before_); \
  } while (0)

// ---------------------------------------------------------------------------------------------------
// NULL

T_TEST(test_badinput__no_machine) {
  for (int call = 0; call < TIDE_CALL_COUNT; ++call) {
    trip t;
    trip_init(&t, NULL, NULL);

    const tide_status status = trip_steps[call](&t);

    if (status != TIDE_ERR_ARGUMENT)
      T_FAIL("%s is %s", tide_call_name((tide_call)call), tide_status_name(status));
    T_STR_HAS(tide_last_error()->text, tide_call_name((tide_call)call));
  }
}

T_TEST(test_badinput__no_machine_to_the_other_calls) {
  const tide_fault fault = TIDE_FAULT_INIT;

  T_STATUS(tide_machine_fault_add(NULL, &fault), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_dry_advance(NULL, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_dry_work(NULL, 0, NULL, 1), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_dry_hold(NULL, 0, NULL, true), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_dry_finish(NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_dry_dictate(NULL, 0, TIDE_CALL_RAW_ALLOC, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_new_host(NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_new_dry(NULL, NULL), TIDE_ERR_ARGUMENT);
}

MACHINE_TEST(test_badinput__nowhere_to_put_a_result) {
  size_t bytes = 0;
  bool is_captured = false;
  uint64_t id = 0;
  tide_capture_state state = TIDE_CAPTURE_NONE;
  REFUSED(device_info, TIDE_ERR_ARGUMENT, 0, NULL);
  REFUSED(memory_info, TIDE_ERR_ARGUMENT, 0, NULL, &bytes);
  REFUSED(memory_info, TIDE_ERR_ARGUMENT, 0, &bytes, NULL);
  REFUSED(clock, TIDE_ERR_ARGUMENT, NULL);
  REFUSED(raw_alloc, TIDE_ERR_ARGUMENT, 0, 4096, NULL);
  REFUSED(pinned_alloc, TIDE_ERR_ARGUMENT, 4096, NULL);
  REFUSED(address_reserve, TIDE_ERR_ARGUMENT, 0, granularity(m), 0, NULL, NULL);
  REFUSED(physical_new, TIDE_ERR_ARGUMENT, 0, granularity(m), 0, NULL);
  REFUSED(pointer_info, TIDE_ERR_ARGUMENT, &bytes, NULL);
  REFUSED(stream_new, TIDE_ERR_ARGUMENT, 0, 0, 0, NULL);
  REFUSED(stream_info, TIDE_ERR_ARGUMENT, 0, NULL, NULL, &id);
  REFUSED(stream_info, TIDE_ERR_ARGUMENT, 0, NULL, &is_captured, NULL);
  REFUSED(stream_query, TIDE_ERR_ARGUMENT, 0, NULL, NULL);
  REFUSED(event_new, TIDE_ERR_ARGUMENT, 0, NULL);
  REFUSED(event_query, TIDE_ERR_ARGUMENT, event_new(m, 0), NULL);
  REFUSED(capture_exchange, TIDE_ERR_ARGUMENT, TIDE_CAPTURE_RELAXED, NULL);
  REFUSED(capture_end, TIDE_ERR_ARGUMENT, 0, stream_new(m, 0, 0), NULL);
  REFUSED(capture_info, TIDE_ERR_ARGUMENT, 0, NULL, NULL, &id);
  REFUSED(capture_info, TIDE_ERR_ARGUMENT, 0, NULL, &state, NULL);
  REFUSED(capture_terminals, TIDE_ERR_ARGUMENT, 0, stream_new(m, 0, 0), NULL, 0, NULL);
  REFUSED(peer_query, TIDE_ERR_ARGUMENT, 0, 0, NULL);
}

EMULATED_TEST(test_badinput__nowhere_to_put_a_result_of_sharing) {
  uint8_t* const raw = raw_new(m, 0, 4096);
  const tide_physical physical = physical_new(m, 0, granularity(m));
  const tide_raw_share raw_share = { { 0 } };
  const tide_physical_share share = { 0, 0, granularity(m) };
  void* memory = NULL;
  tide_physical imported = NULL;
  REFUSED(raw_export, TIDE_ERR_ARGUMENT, 0, raw, NULL);
  REFUSED(raw_import, TIDE_ERR_ARGUMENT, 0, &raw_share, NULL);
  REFUSED(raw_import, TIDE_ERR_ARGUMENT, 0, NULL, &memory);
  REFUSED(physical_export, TIDE_ERR_ARGUMENT, physical, NULL);
  REFUSED(physical_import, TIDE_ERR_ARGUMENT, 0, &share, NULL);
  REFUSED(physical_import, TIDE_ERR_ARGUMENT, 0, NULL, &imported);
}

MACHINE_TEST(test_badinput__no_place_for_nodes_and_no_function_to_call) {
  const tide_stream stream = stream_new(m, 0, 0);
  size_t count = 5;
  REFUSED(call, TIDE_ERR_ARGUMENT, 0, NULL, NULL, NULL);
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_RELAXED));

  REFUSED(capture_terminals, TIDE_ERR_ARGUMENT, 0, stream, NULL, 4, &count);

  T_EQ(count, 0);
}

// Addresses that are NULL, and sizes of 0.
MACHINE_TEST(test_badinput__no_address_or_no_size) {
  uint8_t* const raw = raw_new(m, 0, 4096);
  void* memory = NULL;
  tide_physical physical = NULL;
  REFUSED(copy, TIDE_ERR_ARGUMENT, 0, NULL, NULL, raw, 16);
  REFUSED(copy, TIDE_ERR_ARGUMENT, 0, NULL, raw, NULL, 16);
  REFUSED(fill, TIDE_ERR_ARGUMENT, 0, NULL, NULL, 1, 16);
  REFUSED(raw_alloc, TIDE_ERR_ARGUMENT, 0, 0, &memory);
  REFUSED(raw_release, TIDE_ERR_ARGUMENT, 0, NULL);
  REFUSED(pinned_alloc, TIDE_ERR_ARGUMENT, 0, &memory);
  REFUSED(pinned_release, TIDE_ERR_ARGUMENT, NULL);
  REFUSED(pinned_register, TIDE_ERR_ARGUMENT, NULL, 4096);
  REFUSED(pinned_register, TIDE_ERR_ARGUMENT, &memory, 0);
  REFUSED(pinned_unregister, TIDE_ERR_ARGUMENT, NULL);
  REFUSED(address_reserve, TIDE_ERR_ARGUMENT, 0, 0, 0, NULL, &memory);
  REFUSED(physical_new, TIDE_ERR_ARGUMENT, 0, 0, 0, &physical);
}

EMULATED_TEST(test_badinput__no_address_or_no_size_of_virtual_memory) {
  const size_t unit = granularity(m);
  const tide_physical physical = physical_new(m, 0, unit);
  uint8_t* const range = reserve(m, 0, unit);
  map_new(m, 0, range, unit);
  REFUSED(address_release, TIDE_ERR_ARGUMENT, NULL, unit);
  REFUSED(address_release, TIDE_ERR_ARGUMENT, range, 0);
  REFUSED(map, TIDE_ERR_ARGUMENT, NULL, physical);
  REFUSED(unmap, TIDE_ERR_ARGUMENT, NULL, unit);
  REFUSED(unmap, TIDE_ERR_ARGUMENT, range, 0);
  REFUSED(set_access, TIDE_ERR_ARGUMENT, NULL, unit, 0, TIDE_ACCESS_READ);
  REFUSED(set_access, TIDE_ERR_ARGUMENT, range, 0, 0, TIDE_ACCESS_READ);
  REFUSED(set_access, TIDE_ERR_ARGUMENT, range, unit, 0, (tide_access)2);
  REFUSED(set_access, TIDE_ERR_ARGUMENT, range, unit, 0, (tide_access)4);
}

// ---------------------------------------------------------------------------------------------------
// Devices

#define DEVICE_CALLS(X)                                      \
  X(device_info, device, &out.info)                          \
  X(memory_info, device, &out.bytes, &out.total)             \
  X(raw_alloc, device, 4096, &out.memory)                    \
  X(raw_release, device, p.raw)                              \
  X(address_reserve, device, p.unit, 0, NULL, &out.memory)   \
  X(physical_new, device, p.unit, 0, &out.physical)          \
  X(set_access, p.range, p.unit, device, TIDE_ACCESS_READ)   \
  X(stream_new, device, 0, 0, &out.stream)                   \
  X(stream_free, device, p.known)                            \
  X(stream_info, device, p.known, &out.is_true, &out.id)     \
  X(stream_query, device, p.known, &out.is_true)             \
  X(stream_synchronize, device, p.known)                     \
  X(stream_wait, device, p.known, p.mark)                    \
  X(device_synchronize, device)                              \
  X(event_new, device, &out.event)                           \
  X(event_record, device, p.mark, p.known)                   \
  X(event_record_all, device, p.mark)                        \
  X(copy, device, p.known, p.raw, p.raw + 64, 64)            \
  X(fill, device, p.known, p.raw, 1, 64)                     \
  X(call, device, p.known, call_slow, NULL)                  \
  X(capture_begin, device, p.known, TIDE_CAPTURE_GLOBAL)     \
  X(capture_end, device, p.known, &out.graph)                \
  X(capture_info, device, p.known, &out.state, &out.id)      \
  X(capture_terminals, device, p.known, NULL, 0, &out.bytes) \
  X(launch, device, p.launch, p.known)                       \
  X(peer_query, device, 0, &out.is_true)                     \
  X(peer_query, 0, device, &out.is_true)                     \
  X(peer_enable, device, 0)                                  \
  X(peer_enable, 0, device)                                  \
  X(peer_disable, device, 0)                                 \
  X(peer_disable, 0, device)                                 \
  X(raw_export, device, p.raw, &out.raw_share)               \
  X(raw_import, device, &out.raw_share, &out.memory)         \
  X(physical_import, device, &out.share, &out.physical)

// Objects for the arguments of refused calls.
typedef struct places {
  tide_stream known;
  tide_event mark;
  tide_launch launch;
  uint8_t* raw;
  uint8_t* range;
  size_t unit;
} places;

static places places_new(tide_machine* m) {
  places p = { .unit = granularity(m), .known = stream_new(m, 0, 0), .mark = event_new(m, 0) };
  p.raw = raw_new(m, 0, 4096);
  p.range = reserve(m, 0, p.unit);
  map_new(m, 0, p.range, p.unit);
  T_OK(tide_machine_capture_begin(m, 0, p.known, TIDE_CAPTURE_RELAXED));
  T_OK(tide_machine_capture_end(m, 0, p.known, &p.launch));
  return p;
}

// Where refused calls would put their results.
static struct {
  tide_device_info info;
  tide_raw_share raw_share;
  tide_physical_share share;
  tide_capture_state state;
  size_t bytes;
  size_t total;
  uint64_t id;
  bool is_true;
  void* memory;
  tide_physical physical;
  tide_stream stream;
  tide_event event;
  tide_launch graph;
} out = { .info = TIDE_DEVICE_INFO_INIT, .share = { 0, 0, 2 * MIB } };

MACHINE_TEST(test_badinput__no_such_device) {
  const int devices[] = { -1, tide_machine_device_count(m), TIDE_DEVICE_MAX, INT_MAX, INT_MIN };
  const places p = places_new(m);
  for (size_t i = 0; i < sizeof devices / sizeof *devices; ++i) {
    const int device = devices[i];
#define REFUSE_DEVICE(call, ...) REFUSED(call, TIDE_ERR_DEVICE, __VA_ARGS__);
    DEVICE_CALLS(REFUSE_DEVICE)
#undef REFUSE_DEVICE
  }
}

EMULATED_TEST(test_badinput__raw_memory_of_another_device) {
  uint8_t* const raw = raw_new(m, 1, 4096);
  tide_raw_share share;

  const tide_status released = tide_machine_raw_release(m, 0, raw);
  const tide_status exported = tide_machine_raw_export(m, 0, raw, &share);

  T_CHECK(released == TIDE_ERR_DEVICE || released == TIDE_ERR_ARGUMENT);
  T_CHECK(exported != TIDE_OK);
  T_OK(tide_machine_raw_release(m, 1, raw));
}

// ---------------------------------------------------------------------------------------------------
// Sizes

// A size that no machine has is refused as a bad argument or as out of memory.
static void expect_too_much(tide_machine* m, const char* call, tide_status status, balance before) {
  const tide_status want = status == TIDE_ERR_ARGUMENT ? TIDE_ERR_ARGUMENT : TIDE_ERR_NO_MEMORY;
  check_refused(__FILE__, __LINE__, m, call, want, status, before);
}

MACHINE_TEST(test_badinput__sizes_near_the_end_of_numbers) {
  const size_t unit = granularity(m);
  const balance before = balance_of(m);
  for (size_t less = 0; less < 70; ++less) {
    const size_t bytes = less < 64 ? SIZE_MAX - less * 64 : SIZE_MAX - (less - 63) * unit + 1;
    void* memory = &memory;
    tide_physical physical = (tide_physical)(uintptr_t)1;
    expect_too_much(m, "raw_alloc", tide_machine_raw_alloc(m, 0, bytes, &memory), before);
    T_PTR_EQ(memory, NULL);
    expect_too_much(m, "pinned_alloc", tide_machine_pinned_alloc(m, bytes, &memory), before);
    expect_too_much(m, "address_reserve", tide_machine_address_reserve(m, 0, bytes, 0, NULL, &memory),
                    before);
    expect_too_much(m, "physical_new", tide_machine_physical_new(m, 0, bytes, 0, &physical), before);
    T_PTR_EQ(physical, NULL);
  }
}

EMULATED_TEST(test_badinput__ranges_that_wrap_around) {
  const size_t unit = granularity(m);
  uint8_t* const raw = raw_new(m, 0, 4096);
  uint8_t* const range = reserve(m, 0, unit);
  uint8_t local[64];
  memset(local, 0, sizeof local);
  map_new(m, 0, range, unit);
  REFUSED(copy, TIDE_ERR_ARGUMENT, 0, NULL, raw, raw + 64, SIZE_MAX);
  REFUSED(copy, TIDE_ERR_ARGUMENT, 0, NULL, raw, local, SIZE_MAX - 10);
  REFUSED(copy, TIDE_ERR_ARGUMENT, 0, NULL, local, raw, SIZE_MAX / 2);
  REFUSED(fill, TIDE_ERR_ARGUMENT, 0, NULL, raw, 1, SIZE_MAX);
  REFUSED(pinned_register, TIDE_ERR_ARGUMENT, local, SIZE_MAX);
  REFUSED(address_release, TIDE_ERR_ARGUMENT, range, SIZE_MAX - unit + 1);
  REFUSED(unmap, TIDE_ERR_ARGUMENT, range, SIZE_MAX - unit + 1);
  REFUSED(set_access, TIDE_ERR_ARGUMENT, range, SIZE_MAX - unit + 1, 0, TIDE_ACCESS_READ);
  REFUSED(unmap, TIDE_ERR_ARGUMENT, (uint8_t*)(UINTPTR_MAX - unit + 1), 2 * unit);
}

EMULATED_TEST(test_badinput__odd_reservations) {
  const size_t unit = granularity(m);
  void* memory = NULL;
  REFUSED(address_reserve, TIDE_ERR_ARGUMENT, 0, unit + 1, 0, NULL, &memory);
  REFUSED(address_reserve, TIDE_ERR_ARGUMENT, 0, unit / 2, 0, NULL, &memory);
  REFUSED(address_reserve, TIDE_ERR_ARGUMENT, 0, unit, 3, NULL, &memory);
  REFUSED(address_reserve, TIDE_ERR_ARGUMENT, 0, unit, unit + unit / 2, NULL, &memory);

  const balance before = balance_of(m);
  expect_too_much(m, "address_reserve",
                  tide_machine_address_reserve(m, 0, unit, (size_t)1 << 63, NULL, &memory), before);
}

EMULATED_TEST(test_badinput__hints_that_can_not_be) {
  const size_t unit = granularity(m);
  const uintptr_t hints[] = { 1, unit / 2, UINTPTR_MAX, UINTPTR_MAX - unit + 1 };
  if (is_host(m) && T_HAS_THREAD_SANITIZER) t_skip("the thread sanitizer takes such a hint for address 0");
  for (size_t i = 0; i < sizeof hints / sizeof *hints; ++i) {
    void* memory = NULL;

    const tide_status status = tide_machine_address_reserve(m, 0, 2 * unit, 0, (void*)hints[i], &memory);

    T_CHECK(status == TIDE_OK || status == TIDE_ERR_ARGUMENT);
    T_EQ((uintptr_t)memory % unit, 0);
    if (status == TIDE_OK) T_OK(tide_machine_address_release(m, memory, 2 * unit));
  }
}

// ---------------------------------------------------------------------------------------------------
// Values

MACHINE_TEST(test_badinput__unknown_flags_and_modes) {
  const size_t unit = granularity(m);
  tide_stream stream = NULL;
  tide_physical physical = NULL;
  tide_capture_mode mode = TIDE_CAPTURE_GLOBAL;
  REFUSED(stream_new, TIDE_ERR_ARGUMENT, 0, 0x80u, 0, &stream);
  REFUSED(physical_new, TIDE_ERR_ARGUMENT, 0, unit, 0x80u, &physical);
  REFUSED(capture_exchange, TIDE_ERR_ARGUMENT, (tide_capture_mode)3, &mode);
  REFUSED(capture_begin, TIDE_ERR_ARGUMENT, 0, stream_new(m, 0, 0), (tide_capture_mode)3);
}

MACHINE_TEST(test_badinput__structs_without_their_size) {
  tide_device_info device = TIDE_DEVICE_INFO_INIT;
  tide_pointer_info pointer = TIDE_POINTER_INFO_INIT;
  device.size = 0;
  pointer.size = 0;
  REFUSED(device_info, TIDE_ERR_ARGUMENT, 0, &device);
  REFUSED(pointer_info, TIDE_ERR_ARGUMENT, &device, &pointer);
}

// ---------------------------------------------------------------------------------------------------
// Handles

#define STREAM_CALLS(X)                             \
  X(stream_free, 0, bad)                            \
  X(stream_info, 0, bad, &out.is_true, &out.id)     \
  X(stream_query, 0, bad, &out.is_true)             \
  X(stream_synchronize, 0, bad)                     \
  X(stream_wait, 0, bad, p.mark)                    \
  X(event_record, 0, p.mark, bad)                   \
  X(copy, 0, bad, p.raw, p.raw + 64, 64)            \
  X(fill, 0, bad, p.raw, 1, 64)                     \
  X(call, 0, bad, call_slow, NULL)                  \
  X(capture_begin, 0, bad, TIDE_CAPTURE_GLOBAL)     \
  X(capture_end, 0, bad, &out.graph)                \
  X(capture_info, 0, bad, &out.state, &out.id)      \
  X(capture_terminals, 0, bad, NULL, 0, &out.bytes) \
  X(launch, 0, p.launch, bad)

static void refuse_stream(tide_machine* m, const places* good, tide_stream bad, tide_status status) {
  const places p = *good;
#define REFUSE_STREAM(call, ...) REFUSED(call, status, __VA_ARGS__);
  STREAM_CALLS(REFUSE_STREAM)
#undef REFUSE_STREAM
}

MACHINE_TEST(test_badinput__stream_of_another_device) {
  need_two_devices(m);
  const places p = places_new(m);
  const tide_stream other = stream_new(m, 1, 0);

  refuse_stream(m, &p, other, TIDE_ERR_DEVICE);

  T_OK(tide_machine_stream_free(m, 1, other));
}

static void refuse_event(tide_machine* m, tide_event bad) {
  bool is_done = false;
  REFUSED(event_free, TIDE_ERR_HANDLE, bad);
  REFUSED(event_record, TIDE_ERR_HANDLE, 0, bad, NULL);
  REFUSED(event_record_all, TIDE_ERR_HANDLE, 0, bad);
  REFUSED(event_query, TIDE_ERR_HANDLE, bad, &is_done);
  REFUSED(event_synchronize, TIDE_ERR_HANDLE, bad);
  REFUSED(stream_wait, TIDE_ERR_HANDLE, 0, NULL, bad);
}

static void refuse_physical(tide_machine* m, tide_physical bad) {
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  tide_physical_share share;
  REFUSED(physical_free, TIDE_ERR_HANDLE, bad);
  REFUSED(map, TIDE_ERR_HANDLE, range, bad);
  if (is_host(m)) REFUSED(physical_export, TIDE_ERR_HANDLE, bad, &share);
  T_OK(tide_machine_address_release(m, range, unit));
}

static void refuse_launch(tide_machine* m, tide_launch bad) {
  REFUSED(launch, TIDE_ERR_HANDLE, 0, bad, NULL);
  REFUSED(launch_free, TIDE_ERR_HANDLE, bad);
}

static void refuse_node(tide_machine* m, tide_node bad) {
  size_t count = 0;
  REFUSED(node_dependencies, TIDE_ERR_HANDLE, bad, NULL, 0, &count);
}

EMULATED_TEST(test_badinput__handles_that_were_never_given_out) {
  const places p = places_new(m);
  const uintptr_t values[] = {
    3, 8, 0xdeadbeef, (uintptr_t)&values, UINTPTR_MAX, UINTPTR_MAX - 7, (uintptr_t)1 << 40
  };
  for (size_t i = 0; i < sizeof values / sizeof *values; ++i) {
    refuse_stream(m, &p, (tide_stream)values[i], TIDE_ERR_HANDLE);
    refuse_event(m, (tide_event)values[i]);
    refuse_physical(m, (tide_physical)values[i]);
    refuse_launch(m, (tide_launch)values[i]);
    refuse_node(m, (tide_node)values[i]);
  }
}

EMULATED_TEST(test_badinput__no_handle) {
  bool is_done = false;
  size_t count = 0;
  const size_t unit = granularity(m);
  uint8_t* const range = reserve(m, 0, unit);
  REFUSED(event_record, TIDE_ERR_ARGUMENT, 0, NULL, NULL);
  REFUSED(event_record_all, TIDE_ERR_ARGUMENT, 0, NULL);
  REFUSED(event_query, TIDE_ERR_ARGUMENT, NULL, &is_done);
  REFUSED(event_synchronize, TIDE_ERR_ARGUMENT, NULL);
  REFUSED(stream_wait, TIDE_ERR_ARGUMENT, 0, NULL, NULL);
  REFUSED(map, TIDE_ERR_ARGUMENT, range, NULL);
  REFUSED(launch, TIDE_ERR_ARGUMENT, 0, NULL, NULL);
  REFUSED(node_dependencies, TIDE_ERR_ARGUMENT, NULL, NULL, 0, &count);
}

EMULATED_TEST(test_badinput__stale_handle_also_when_its_place_is_used_again) {
  const places p = places_new(m);
  const tide_event event = event_new(m, 0);
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_physical physical = physical_new(m, 0, p.unit);
  T_OK(tide_machine_event_free(m, event));
  T_OK(tide_machine_stream_free(m, 0, stream));
  T_OK(tide_machine_physical_free(m, physical));
  T_OK(tide_machine_launch_free(m, p.launch));
  refuse_physical(m, physical);
  refuse_launch(m, p.launch);

  for (int i = 0; i < 300; ++i) {
    refuse_event(m, event);
    const tide_event next_event = event_new(m, 0);
    const tide_stream next_stream = stream_new(m, 0, 0);
    T_CHECK(next_event != event);
    T_CHECK(next_stream != stream);
    T_OK(tide_machine_event_free(m, next_event));
    T_OK(tide_machine_stream_free(m, 0, next_stream));
  }

  const places again = places_new(m);
  refuse_stream(m, &again, stream, TIDE_ERR_HANDLE);
}

EMULATED_TEST(test_badinput__handle_of_another_kind) {
  const places p = places_new(m);
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  const tide_physical physical = physical_new(m, 0, p.unit);

  refuse_stream(m, &p, (tide_stream)(uintptr_t)event, TIDE_ERR_HANDLE);
  refuse_stream(m, &p, (tide_stream)(uintptr_t)physical, TIDE_ERR_HANDLE);
  refuse_event(m, (tide_event)(uintptr_t)stream);
  refuse_physical(m, (tide_physical)(uintptr_t)event);
  refuse_launch(m, (tide_launch)(uintptr_t)stream);
  refuse_node(m, (tide_node)(uintptr_t)physical);
}

EMULATED_TEST(test_badinput__handle_of_another_machine) {
  const places p = places_new(m);
  tide_machine* const other = machine_open(t_variant(), NULL);
  for (int i = 0; i < 5; ++i) (void)event_new(other, 0);
  for (int i = 0; i < 5; ++i) (void)stream_new(other, 0, 0);
  const tide_stream stream = stream_new(other, 0, 0);
  const tide_event event = event_new(other, 0);

  refuse_stream(m, &p, stream, TIDE_ERR_HANDLE);
  refuse_event(m, event);

  tide_machine_free(other);
}

// ---------------------------------------------------------------------------------------------------
// The last error

T_TEST(test_last_error__is_kept_for_each_thread_until_the_next) {
  tide_machine* const m = machine_open("dry", NULL);
  void* memory = NULL;
  T_STATUS(tide_machine_raw_alloc(m, 0, 0, &memory), TIDE_ERR_ARGUMENT);
  const tide_error first = *tide_last_error();

  T_OK(tide_machine_raw_alloc(m, 0, 4096, &memory));
  T_STR_EQ(tide_last_error()->text, first.text);
  T_STATUS(tide_machine_raw_alloc(m, 9, 4096, &memory), TIDE_ERR_DEVICE);

  T_EQ(tide_last_error()->status, TIDE_ERR_DEVICE);
  T_CHECK(tide_last_error()->file != NULL && tide_last_error()->line > 0);
  tide_machine_free(m);
}

static void* thread_has_no_error(void* user) {
  (void)user;
  T_EQ(tide_last_error()->status, TIDE_OK);
  return NULL;
}

T_TEST(test_last_error__is_another_on_each_thread) {
  pthread_t thread;
  T_STATUS(tide_dry_advance(NULL, 1), TIDE_ERR_ARGUMENT);

  t_thread_start(&thread, thread_has_no_error, NULL);
  t_thread_join(thread);

  T_EQ(tide_last_error()->status, TIDE_ERR_ARGUMENT);
}
