// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Devices whose virtual memory does not work: the policy `tide` and expandable segments fall back to raw
// memory, and say why. Faults stand for the driver. The truth about contents is what the test wrote, and
// about memory what the machine has free.
#define T_THREADS
#include "device/devices.h"
#include "tidemark/machine_ops.h"

#define BLOCKS 12

static const tide_call virtual_calls[] = {
  TIDE_CALL_ADDRESS_RESERVE, TIDE_CALL_PHYSICAL_NEW,   TIDE_CALL_MAP, TIDE_CALL_SET_ACCESS, TIDE_CALL_UNMAP,
  TIDE_CALL_PHYSICAL_FREE,   TIDE_CALL_ADDRESS_RELEASE
};
#define VIRTUAL_CALLS (sizeof virtual_calls / sizeof virtual_calls[0])

static const char* const fallback_names[] = { "host", "dry", NULL };

static void fault_at(tide_machine* m, tide_call call, uint64_t skip, uint64_t count, tide_status status) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = call;
  fault.skip = skip;
  fault.count = count;
  fault.status = (uint32_t)status;
  T_OK(tide_machine_fault_add(m, &fault));
}

static tide_device_options in_force(tide_device_cache* d) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_get_options(d, &options);
  return options;
}

static bool has_reason(const tide_device_cache* d, const char* part) {
  return strstr(tide_device_fallback_reason(d), part) != NULL;
}

// What an allocator that fell back shows.
static void expect_fallen(tide_device_cache* d, tide_call call) {
  T_STR_EQ(tide_device_name(d), "torch");
  T_EQ(in_force(d).policy, TIDE_POLICY_TORCH);
  T_CHECK(in_force(d).fixes);
  T_CHECK(!in_force(d).expandable_segments);
  T_EQ(tide_device_physical_flags(d), 0);
  T_CHECK(has_reason(d, "the policy torch with fixes replaces tide"));
  T_CHECK(has_reason(d, "device 0"));
  if (!has_reason(d, tide_call_name(call)))
    T_FAIL("no %s: %s", tide_call_name(call), tide_device_fallback_reason(d));
}

static void expect_not_fallen(tide_device_cache* d) {
  T_STR_EQ(tide_device_name(d), "tide");
  T_EQ(in_force(d).policy, TIDE_POLICY_TIDE);
  T_STR_EQ(tide_device_fallback_reason(d), "");
}

// A request that may meet a failure behind the start, which is its own, and works when it is made again.
static tide_block take_again(tide_device_cache* d, tide_stream stream, size_t bytes, bool may_fail) {
  tide_block block = { NULL, 0 };
  const tide_status status = tide_device_alloc(d, stream, bytes, &block);
  if (status == TIDE_OK) return block;
  if (!may_fail) T_OK(status);
  return take(d, stream, bytes);
}

// Both ends of a block, because touching all pages takes most of the time.
static size_t end_bytes(size_t bytes) { return bytes < 64 * KIB ? bytes : 64 * KIB; }

static void paint_ends(tide_machine* m, tide_stream stream, tide_block block, uint8_t value, size_t bytes) {
  const size_t end = end_bytes(bytes);
  T_OK(tide_machine_fill(m, 0, stream, block.address, value, end));
  T_OK(tide_machine_fill(m, 0, stream, (char*)block.address + bytes - end, value, end));
}

static void expect_ends(tide_block block, uint8_t value, size_t bytes) {
  const size_t end = end_bytes(bytes);
  T_FILLED(block.address, value, end);
  T_FILLED((char*)block.address + bytes - end, value, end);
}

// The first requests of a program: all sizes, two streams, contents kept until the end.
static void first_requests_or(tide_machine* m, tide_device_cache* d, bool may_fail) {
  static const size_t sizes[BLOCKS] = { 512,      100,      MIB,     600 * KIB, 3 * MIB, 20 * MIB,
                                        40 * KIB, 11 * MIB, 4 * KIB, 2 * MIB,   7 * MIB, 900 * KIB };
  const tide_stream other = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  tide_block blocks[BLOCKS];
  for (size_t round = 0; round < 2; round++) {
    for (size_t i = 0; i < BLOCKS; i++) {
      const tide_stream stream = i % 3 == 2 ? other : NULL;
      blocks[i] = take_again(d, stream, sizes[i], may_fail);
      paint_ends(m, stream, blocks[i], (uint8_t)(i + 7 * round + 1), sizes[i]);
      device_expect_valid(d);
    }
    T_OK(tide_machine_device_synchronize(m, 0));
    for (size_t i = 0; i < BLOCKS && !is_dry(m); i++) {
      expect_ends(blocks[i], (uint8_t)(i + 7 * round + 1), sizes[i]);
    }
    T_EQ(current(d, allocation), BLOCKS);
    for (size_t i = 0; i < BLOCKS; i++) give(d, blocks[i]);
  }
  T_EQ(current(d, allocation), 0);
  device_expect_valid(d);
}

static void first_requests(tide_machine* m, tide_device_cache* d) { first_requests_or(m, d, false); }

// A program on a new machine with one fault, from the making of its allocator to its end. Returns whether the
// allocator fell back.
typedef struct start {
  const char* options;
  tide_call call;
  uint64_t skip;
  uint64_t count;
  tide_status status;
} start;

// How many calls of a kind the probe makes.
static uint64_t probed_calls(tide_call call) {
  const bool is_once = call == TIDE_CALL_ADDRESS_RESERVE || call == TIDE_CALL_ADDRESS_RELEASE;
  return is_once ? 1 : strcmp(machine_variant(), "host") == 0 ? 4 : 3;  // dry offers no descriptors
}

static bool start_play(const start* s) {
  counting_heap records;
  tide_machine* const m = machine_open(machine_variant(), NULL);
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_cache* d = NULL;
  const size_t before = free_bytes(m, 0);
  counting_heap_init(&records, SIZE_MAX, false);
  T_OK(tide_device_options_parse(s->options, &options));
  options.heap = &records.heap;
  fault_at(m, s->call, s->skip, s->count, s->status);

  T_OK(tide_device_new(m, 0, &options, &d));
  first_requests_or(m, d, s->skip > probed_calls(s->call));
  const bool is_fallen = tide_device_fallback_reason(d)[0] != '\0';
  if (is_fallen && options.policy == TIDE_POLICY_TIDE) expect_fallen(d, s->call);
  tide_machine_fault_clear(m);
  expect_trimmed(d, 0);
  tide_device_free(d);

  const bool is_kept = s->count > 1 && (s->call == TIDE_CALL_UNMAP || s->call == TIDE_CALL_PHYSICAL_FREE);
  T_EQ(atomic_load(&records.outstanding), 0);
  T_LE(before - free_bytes(m, 0), is_kept ? granularity(m) : 0);
  tide_machine_free(m);
  return is_fallen;
}

// ---------------------------------------------------------------------------------------------------
// Faults in every call

T_TEST_OVER(test_fallback__any_call_may_fail_once, fallback_names) {
  for (size_t i = 0; i < VIRTUAL_CALLS; i++) {
    for (uint64_t n = t_sample_first(); n < 12; n += t_sample_step()) {
      start s = { "policy:tide", virtual_calls[i], n, 1, TIDE_ERR_MACHINE };
      const bool is_fallen = start_play(&s);
      if (n == 0) T_CHECK(is_fallen);
      s.status = TIDE_ERR_NO_MEMORY;
      (void)start_play(&s);
    }
  }
}

// The first use of virtual memory fails although the probe succeeded.
T_TEST_OVER(test_fallback__any_call_may_fail_for_ever, fallback_names) {
  for (size_t i = 0; i < VIRTUAL_CALLS; i++) {
    const bool is_undo = virtual_calls[i] == TIDE_CALL_UNMAP || virtual_calls[i] == TIDE_CALL_PHYSICAL_FREE ||
                         virtual_calls[i] == TIDE_CALL_ADDRESS_RELEASE;
    for (uint64_t n = 0; n <= probed_calls(virtual_calls[i]); n++) {
      const bool is_probed = n < probed_calls(virtual_calls[i]);
      if (!is_probed && is_undo) continue;  // the program gives back later, when it can
      const start s = { "policy:tide", virtual_calls[i], n, UINT64_MAX, TIDE_ERR_MACHINE };
      const bool is_fallen = start_play(&s);
      // A flag that does not work is left out; then the next use of virtual memory fails.
      T_CHECK(is_fallen);
    }
  }
}

T_TEST_OVER(test_fallback__expandable_segments_fall_back_too, fallback_names) {
  for (size_t i = 0; i < VIRTUAL_CALLS; i++) {
    for (uint64_t n = t_sample_first(); n < 8; n += t_sample_step()) {
      const start s = { "expandable_segments:True", virtual_calls[i], n, 1, TIDE_ERR_MACHINE };
      const bool is_fallen = start_play(&s);
      if (n == 0) T_CHECK(is_fallen);
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// What is said, and what is not lost

EMULATED_TEST(test_fallback__says_which_call_and_which_error) {
  fault_at(m, TIDE_CALL_SET_ACCESS, 0, UINT64_MAX, TIDE_ERR_MACHINE);
  tide_device_cache* const d = device_with(m, "policy:tide");
  expect_fallen(d, TIDE_CALL_SET_ACCESS);
  T_STR_EQ(tide_device_fallback_reason(d),
           "the policy torch with fixes replaces tide: virtual memory does not work on device 0: set_access: "
           "failed by an injected fault");
  tide_device_free(d);
}

EMULATED_TEST(test_fallback__of_expandable_segments_keeps_the_rest) {
  fault_at(m, TIDE_CALL_MAP, 0, UINT64_MAX, TIDE_ERR_MACHINE);
  tide_device_cache* const d = device_with(m, "expandable_segments:True,max_split_size_mb:64");
  T_CHECK(has_reason(d, "expandable segments are off") && has_reason(d, "map: "));
  T_CHECK(!in_force(d).expandable_segments);
  T_CHECK(!in_force(d).fixes);
  T_EQ(in_force(d).max_split_bytes, 64 * MIB);
  give(d, take(d, NULL, 3 * MIB));
  T_EQ(count_segments(d), 1);
  tide_device_free(d);
}

EMULATED_TEST(test_fallback__can_be_forbidden) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_cache* d = NULL;
  fault_at(m, TIDE_CALL_SET_ACCESS, 0, UINT64_MAX, TIDE_ERR_MACHINE);
  T_OK(tide_device_options_parse("policy:tide,virtual_fallback:False", &options));
  T_STATUS(tide_device_new(m, 0, &options, &d), TIDE_ERR_UNSUPPORTED);
  T_CHECK(strstr(tide_last_error()->text, "set_access") != NULL);
  T_OK(tide_device_options_parse("policy:torch,expandable_segments:True", &options));
  T_STATUS(tide_device_new(m, 0, &options, &d), TIDE_ERR_UNSUPPORTED);
  T_PTR_EQ(d, NULL);
}

// Without it, a failure behind the probe is an error of the request, and the allocator stays usable.
EMULATED_TEST(test_fallback__behind_the_probe_can_be_forbidden) {
  tide_device_cache* const d = device_with(m, "policy:tide,virtual_fallback:off");
  fault_at(m, TIDE_CALL_SET_ACCESS, 0, 1, TIDE_ERR_MACHINE);
  T_STATUS(try_take(d, NULL, 3 * MIB), TIDE_ERR_MACHINE);
  expect_not_fallen(d);
  first_requests(m, d);
  tide_device_free(d);
}

EMULATED_TEST(test_fallback__configuring_changes_neither_policy_nor_reason) {
  fault_at(m, TIDE_CALL_MAP, 0, UINT64_MAX, TIDE_ERR_MACHINE);
  tide_device_cache* const d = device_with(m, "policy:tide");
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  T_OK(tide_device_options_parse("policy:tide,expandable_segments:True,max_split_size_mb:32", &options));
  T_OK(tide_device_configure(d, &options));
  expect_fallen(d, TIDE_CALL_MAP);
  T_EQ(in_force(d).max_split_bytes, 32 * MIB);
  first_requests(m, d);
  tide_device_free(d);
}

// The addresses that the policy tide had reserved for its first request were taken for an expandable segment.
EMULATED_TEST(test_fallback__expandable_segments_come_later) {
  tide_device_cache* const d = device_with(m, "policy:tide");
  fault_at(m, TIDE_CALL_MAP, 0, 1, TIDE_ERR_MACHINE);
  give(d, take(d, NULL, 3 * MIB));
  tide_machine_fault_clear(m);
  T_STR_EQ(tide_device_name(d), "torch");
  configure(d, "expandable_segments:True");
  T_CHECK(in_force(d).expandable_segments);
  const tide_block block = take(d, NULL, 30 * MIB);
  device_expect_valid(d);
  give(d, block);
  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
  tide_device_free(d);
}

// An option that is turned on later is probed then, and turning it off takes the reason away.
EMULATED_TEST(test_fallback__configuring_probes) {
  tide_device_cache* const d = device_with(m, "");
  fault_at(m, TIDE_CALL_MAP, 0, UINT64_MAX, TIDE_ERR_MACHINE);
  configure(d, "expandable_segments:True");
  T_CHECK(!in_force(d).expandable_segments);
  T_CHECK(has_reason(d, "map: "));
  configure(d, "expandable_segments:False");
  T_STR_EQ(tide_device_fallback_reason(d), "");
  give(d, take(d, NULL, 3 * MIB));
  tide_device_free(d);
}

// A request that is served leaves no error behind.
EMULATED_TEST(test_fallback__behind_the_probe_leaves_no_error) {
  tide_device_cache* const d = device_with(m, "policy:tide");
  T_STATUS(tide_device_release_address(d, (void*)(uintptr_t)512), TIDE_ERR_HANDLE);
  fault_at(m, TIDE_CALL_MAP, 0, 1, TIDE_ERR_MACHINE);
  give(d, take(d, NULL, 3 * MIB));
  T_EQ(tide_last_error()->status, TIDE_ERR_HANDLE);
  expect_fallen(d, TIDE_CALL_MAP);
  tide_device_free(d);
}

// Once virtual memory was mapped, a failure is an error of the request that meets it.
EMULATED_TEST(test_fallback__is_only_for_the_start) {
  tide_device_cache* const d = device_with(m, "policy:tide");
  const tide_block block = take(d, NULL, 3 * MIB);
  fault_at(m, TIDE_CALL_SET_ACCESS, 0, 1, TIDE_ERR_MACHINE);
  T_STATUS(try_take(d, NULL, 30 * MIB), TIDE_ERR_MACHINE);
  expect_not_fallen(d);
  give(d, take(d, NULL, 30 * MIB));
  give(d, block);
  expect_trimmed(d, 0);
  T_STATUS(try_take(d, NULL, TIDE_NO_LIMIT / 4), TIDE_ERR_ARGUMENT);
  tide_device_free(d);
}

// A device without memory is no device without virtual memory.
EMULATED_TEST(test_fallback__a_full_device_does_not_fall_back) {
  void* all = NULL;
  T_OK(tide_machine_raw_alloc(m, 0, free_bytes(m, 0), &all));
  fault_at(m, TIDE_CALL_LAUNCH, 1000, 1, TIDE_ERR_MACHINE);  // none, but a probe is made
  tide_device_cache* const d = device_with(m, "policy:tide");
  expect_oom(d, NULL, 3 * MIB);
  expect_not_fallen(d);
  T_OK(tide_machine_raw_release(m, 0, all));
  first_requests(m, d);
  expect_not_fallen(d);
  tide_device_free(d);
}

MACHINE_TEST(test_fallback__has_no_reason_where_virtual_memory_works) {
  need_virtual(m);
  tide_device_cache* const d = device_with(m, "policy:tide");
  tide_probe probe = TIDE_PROBE_INIT;
  T_OK(tide_machine_probe(m, 0, TIDE_FEATURE_VIRTUAL_MEMORY, &probe));
  if (probe.works) expect_not_fallen(d);
  else expect_fallen(d, TIDE_CALL_COUNT);
  give(d, take(d, NULL, 3 * MIB));
  T_STR_EQ(tide_device_fallback_reason(NULL), "");
  T_EQ(tide_device_physical_flags(NULL), 0);
  tide_device_free(d);
}

// The statistics of the allocator do not know the probe.
EMULATED_TEST(test_fallback__the_probe_is_not_counted) {
  fault_at(m, TIDE_CALL_LAUNCH, 1000, 1, TIDE_ERR_MACHINE);
  const uint64_t calls_before = tide_machine_call_stats(m, TIDE_CALL_ANY).calls;
  tide_device_cache* const d = device_with(m, "policy:tide");
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_ANY).calls, calls_before + 1);  // device_info
  T_EQ(counter(d, num_device_alloc), 0);
  T_EQ(counter(d, num_device_free), 0);
  T_EQ(current(d, reserved_bytes), 0);
  tide_device_free(d);
}

// Many threads meet the first failure at once: each gets its memory.
typedef struct crowd {
  tide_device_cache* d;
  tide_machine* m;
  atomic_int number;
} crowd;

static void* crowd_run(void* user) {
  crowd* const c = user;
  const uint8_t value = (uint8_t)(1 + atomic_fetch_add(&c->number, 1));
  tide_block blocks[4];
  for (size_t i = 0; i < 4; i++) {
    const size_t bytes = (size_t)300 * KIB << (2 * (i % 2));
    blocks[i] = take(c->d, NULL, bytes);
    T_OK(tide_machine_fill(c->m, 0, NULL, blocks[i].address, value, bytes));
    T_OK(tide_machine_stream_synchronize(c->m, 0, NULL));
    if (!is_dry(c->m)) T_FILLED(blocks[i].address, value, bytes);
  }
  for (size_t i = 0; i < 4; i++) give(c->d, blocks[i]);
  return NULL;
}

EMULATED_TEST(test_fallback__of_many_threads_at_once) {
  for (uint64_t n = 0; n < 6; n++) {
    tide_device_cache* const d = device_with(m, "policy:tide");
    tide_machine_fault_clear(m);
    fault_at(m, TIDE_CALL_SET_ACCESS, 0, n < 3 ? n + 1 : UINT64_MAX, TIDE_ERR_MACHINE);
    crowd c = { .d = d, .m = m };
    run_threads(8, crowd_run, &c);
    device_expect_valid(d);
    tide_machine_fault_clear(m);
    expect_trimmed(d, 0);
    tide_device_free(d);
  }
}

// ---------------------------------------------------------------------------------------------------
// Flags of physical memory

MACHINE_TEST(test_physical_flags__are_those_that_work_and_are_allowed) {
  need_virtual(m);
  uint32_t working = 0;
  for (uint32_t i = 1; i < TIDE_FEATURE_COUNT; i++) {
    tide_probe probe = TIDE_PROBE_INIT;
    T_OK(tide_machine_probe(m, 0, (tide_feature)i, &probe));
    working |= (uint32_t)probe.works << (i - 1);
  }
  const struct {
    const char* text;
    uint32_t flags;
  } rows[] = {
    { "policy:tide", working },
    { "policy:tide,rdma_handles:False", working & ~TIDE_PHYSICAL_RDMA },
    { "policy:tide,fabric_handles:off", working & ~TIDE_PHYSICAL_FABRIC },
    { "expandable_segments:True,rdma_handles:off,fabric_handles:off", working & TIDE_PHYSICAL_SHAREABLE },
    { "expandable_segments:True", working },
    { "", 0 },
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    tide_device_cache* const d = device_with(m, rows[i].text);
    T_EQ(tide_device_physical_flags(d), rows[i].flags);
    const tide_block block = take(d, NULL, 5 * MIB);
    paint(m, NULL, block, 9, 5 * MIB);
    T_OK(tide_machine_device_synchronize(m, 0));
    give(d, block);
    tide_device_free(d);
  }
}

EMULATED_TEST(test_physical_flags__leave_out_what_a_probe_refuses) {
  const bool is_host = !is_dry(m);
  fault_at(m, TIDE_CALL_PHYSICAL_NEW, is_host ? 2 : 1, 1, TIDE_ERR_STATE);  // the round of RDMA
  tide_device_cache* const d = device_with(m, "policy:tide");
  const uint32_t rest = TIDE_PHYSICAL_FABRIC | (is_host ? TIDE_PHYSICAL_SHAREABLE : 0);
  T_EQ(tide_device_physical_flags(d), rest);
  expect_not_fallen(d);
  first_requests(m, d);
  tide_device_free(d);
}

// Memory that was made while file descriptors did not work is not shared.
HOST_TEST(test_physical_flags__without_descriptors_nothing_is_shared) {
  fault_at(m, TIDE_CALL_PHYSICAL_NEW, 1, 1, TIDE_ERR_STATE);
  tide_device_cache* const d = device_with(m, "policy:tide");
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[8];
  T_EQ(tide_device_physical_flags(d), TIDE_PHYSICAL_RDMA | TIDE_PHYSICAL_FABRIC);
  const tide_block block = take(d, NULL, 3 * MIB);
  T_STATUS(tide_device_share(d, block.address, &share, parts, 8), TIDE_ERR_UNSUPPORTED);
  tide_device_free(d);
}
