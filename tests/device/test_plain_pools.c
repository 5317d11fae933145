// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Plain pools: private pools and graphs on raw memory of the machine, although the rest of the allocator uses
// virtual memory. The truth about what memory is: tide_machine_pointer_info(), and the calls that the machine
// counts. test_pools.c, test_checkpoint.c, test_graphs.c and test_snapshot.c also run with plain pools.
#define T_THREADS
#include "device/devices.h"

static const char* const plain_names[] = { "host tide", "dry tide", "cuda tide", NULL };
static const char* const plain_emulated[] = { "host tide", "dry tide", NULL };
static const char* const plain_host[] = { "host tide", NULL };

static uint32_t kind_at(tide_machine* m, const void* address) {
  tide_pointer_info info = TIDE_POINTER_INFO_INIT;
  T_OK(tide_machine_pointer_info(m, address, &info));
  return info.kind;
}

static tide_pool plain_new(tide_device_cache* d) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.is_plain = true;
  return pool_new(d, &options);
}

// ---------------------------------------------------------------------------------------------------
// What memory it is

DEVICE_TEST_OVER(test_plain__only_the_pool_is_raw, plain_names) {
  const size_t sizes[] = { 512, 700 * KIB, 3 * MIB, 12 * MIB };
  const tide_pool plain = plain_new(d);
  const tide_pool other = pool_new(d, NULL);
  for (size_t i = 0; i < 4; i++) {
    const tide_block raw = take_in(d, plain, NULL, sizes[i]);
    const tide_block mapped = take_in(d, other, NULL, sizes[i]);
    const tide_block own = take(d, NULL, sizes[i]);
    T_EQ(kind_at(m, raw.address), TIDE_MEMORY_RAW);
    T_EQ(kind_at(m, mapped.address), TIDE_MEMORY_MAPPED);
    T_EQ(kind_at(m, own.address), TIDE_MEMORY_MAPPED);
    give(d, raw);
    give(d, mapped);
    give(d, own);
  }
  const seen s = look_at_pool(d, plain);
  for (size_t i = 0; i < s.segment_count; i++) T_CHECK(!s.segments[i].is_expandable);
  T_STR_EQ(tide_device_name(d), "tide");
}

// Inside the pool, segments have the sizes of the policy torch: 2 MiB, 20 MiB, or the request in steps.
DEVICE_TEST_OVER(test_plain__segments_are_those_of_torch, plain_names) {
  const struct {
    size_t bytes;
    size_t segment;
  } rows[] = { { 512, 2 * MIB }, { MIB, 2 * MIB }, { MIB + 1, 20 * MIB }, { 11 * MIB, 12 * MIB } };
  for (size_t i = 0; i < 4; i++) {
    const tide_pool pool = plain_new(d);
    const uint64_t before = calls(m, TIDE_CALL_RAW_ALLOC);
    const uint64_t maps = calls(m, TIDE_CALL_MAP);
    const tide_block block = take_in(d, pool, NULL, rows[i].bytes);
    T_EQ(pool_reserved(d, pool), rows[i].segment);
    T_EQ(calls(m, TIDE_CALL_RAW_ALLOC), before + 1);
    T_EQ(calls(m, TIDE_CALL_MAP), maps);
    give(d, block);
    T_OK(tide_device_pool_drop(d, pool));
    expect_trimmed(d, 0);
  }
}

// The option of the device is for all pools that are made while it is on, and for graphs.
DEVICE_TEST_OVER(test_plain__the_option_is_for_new_pools, plain_names) {
  const tide_pool before = pool_new(d, NULL);
  configure(d, "plain_pools:True");
  const tide_pool during = pool_new(d, NULL);
  configure(d, "plain_pools:False");
  const tide_pool after = pool_new(d, NULL);
  const tide_block blocks[3] = { take_in(d, before, NULL, 3 * MIB), take_in(d, during, NULL, 3 * MIB),
                                 take_in(d, after, NULL, 3 * MIB) };
  T_EQ(kind_at(m, blocks[0].address), TIDE_MEMORY_MAPPED);
  T_EQ(kind_at(m, blocks[1].address), TIDE_MEMORY_RAW);
  T_EQ(kind_at(m, blocks[2].address), TIDE_MEMORY_MAPPED);
  for (size_t i = 0; i < 3; i++) give(d, blocks[i]);
}

TORCH_TEST(test_plain__pools_have_no_expandable_segments) {
  expand(m, d);
  const tide_pool pool = plain_new(d);
  const tide_block raw = take_in(d, pool, NULL, 3 * MIB);
  const tide_block own = take(d, NULL, 3 * MIB);
  T_EQ(kind_at(m, raw.address), TIDE_MEMORY_RAW);
  T_EQ(kind_at(m, own.address), TIDE_MEMORY_MAPPED);
  T_CHECK(!look_at_pool(d, pool).segments[0].is_expandable);
  give(d, raw);
  give(d, own);
}

// ---------------------------------------------------------------------------------------------------
// Sharing

// Raw memory is shared whole, by the machine's own name for it; what the offset says is where the block is.
DEVICE_TEST_OVER(test_plain__memory_is_shared_as_raw_memory, plain_names) {
  if (!device_info(m, 0).has_raw_sharing) t_skip("no raw sharing");
  const tide_pool pool = plain_new(d);
  const tide_block first = take_in(d, pool, NULL, 3 * MIB);
  const tide_block second = take_in(d, pool, NULL, 3 * MIB);
  tide_share share = TIDE_SHARE_INIT;
  tide_raw_share raw;
  void* base = NULL;
  size_t bytes = 0;

  T_OK(tide_device_share(d, second.address, &share, NULL, 0));

  T_EQ(share.part_count, 0);
  T_EQ(share.bytes, 3 * MIB);
  T_OK(tide_device_base(d, second.address, &base, &bytes));
  T_EQ(bytes, 20 * MIB);
  T_PTR_EQ(base, first.address);
  T_EQ(share.offset, (uint64_t)((char*)second.address - (char*)base));
  T_OK(tide_machine_raw_export(m, 0, base, &raw));  // what cudaIpcGetMemHandle() is
  give(d, first);
  give(d, second);
}

DEVICE_TEST_OVER(test_plain__virtual_memory_is_not_shared_as_raw_memory, plain_host) {
  const tide_block block = take(d, NULL, 3 * MIB);
  tide_raw_share raw;
  T_STATUS(tide_machine_raw_export(m, 0, block.address, &raw), TIDE_ERR_ARGUMENT);
  give(d, block);
}

// ---------------------------------------------------------------------------------------------------
// Lending and running out

DEVICE_TEST_OVER(test_plain__lends_on_out_of_memory, plain_emulated) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.is_plain = options.use_on_oom = true;
  const tide_pool pool = pool_new(d, &options);
  give(d, take_in(d, pool, NULL, 24 * MIB));
  limit_to(d, 26 * MIB);
  const tide_block lent = take(d, NULL, 20 * MIB);
  T_EQ(kind_at(m, lent.address), TIDE_MEMORY_RAW);
  T_EQ(current(d, reserved_bytes), 24 * MIB);
  device_expect_valid(d);
  give(d, lent);
}

// A pool counts below the limit as all memory does, and what is idle elsewhere goes back for it.
DEVICE_TEST_OVER(test_plain__takes_what_is_idle_in_the_default_pool, plain_emulated) {
  const tide_pool pool = plain_new(d);
  limit_to(d, 40 * MIB);
  give(d, take(d, NULL, 30 * MIB));
  T_EQ(kind_at(m, take_in(d, pool, NULL, MIB / 2).address), TIDE_MEMORY_RAW);
  scope_open(d, pool);
  expect_oom(d, NULL, 39 * MIB);  // inside a scope nothing is given back
  scope_close(d, pool);
  trim(d);
  const tide_block block = take_in(d, pool, NULL, 36 * MIB);
  T_EQ(current(d, reserved_bytes), 38 * MIB);
  give(d, block);
}

// ---------------------------------------------------------------------------------------------------
// Graphs

// A graph whose memory is plain runs again and again while the default pool stitches around it.
DEVICE_TEST_OVER(test_plain__a_graph_keeps_its_memory, plain_names) {
  configure(d, "plain_pools:True");
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_pool pool = pool_new(d, NULL);
  capture_open(m, d, stream, pool);
  const tide_block result = take(d, stream, 3 * MIB);
  const tide_block scratch = take(d, stream, 5 * MIB);
  paint(m, stream, scratch, 1, 5 * MIB);
  paint(m, stream, result, 6, 3 * MIB);
  give(d, scratch);
  const tide_launch graph = capture_close(m, d, stream, pool);
  T_EQ(kind_at(m, result.address), TIDE_MEMORY_RAW);
  for (uint8_t round = 0; round < 4; round++) {
    const tide_block around = take(d, NULL, (7 + round) * MIB);
    paint(m, NULL, around, 9, (7 + round) * MIB);
    T_OK(tide_machine_launch(m, 0, graph, stream));
    T_OK(tide_machine_device_synchronize(m, 0));
    expect_filled(m, 0, bytes_of(result), 6, 3 * MIB);
    expect_filled(m, 0, bytes_of(around), 9, (7 + round) * MIB);
    give(d, around);
    trim(d);
  }
  T_OK(tide_machine_launch_free(m, graph));
  T_OK(tide_device_pool_drop(d, pool));
  give(d, result);
  expect_trimmed(d, 0);
}

// ---------------------------------------------------------------------------------------------------
// Faults

// A request that may meet a fault, and works when it is made again.
static tide_block take_again(tide_device_cache* d, size_t bytes) {
  tide_block block = { NULL, 0 };
  return tide_device_alloc(d, NULL, bytes, &block) == TIDE_OK ? block : take(d, NULL, bytes);
}

// A pool comes and goes, beside a block of the default pool.
static void pool_come_and_go(tide_machine* m, tide_device_cache* d, uint8_t value) {
  const tide_pool pool = pool_new(d, NULL);
  scope_open(d, pool);
  const tide_block block = take_again(d, (size_t)(value + 1) * 700 * KIB);
  scope_close(d, pool);
  const tide_block own = take_again(d, 3 * MIB);
  T_EQ(kind_at(m, block.address), TIDE_MEMORY_RAW);
  paint(m, NULL, block, value, 700 * KIB);
  paint(m, NULL, own, (uint8_t)(value + 9), 3 * MIB);
  if (tide_machine_device_synchronize(m, 0) != TIDE_OK) T_OK(tide_machine_device_synchronize(m, 0));
  if (!is_dry(m)) T_FILLED(block.address, value, 700 * KIB);
  if (!is_dry(m)) T_FILLED(own.address, (uint8_t)(value + 9), 3 * MIB);
  give(d, block);
  give(d, own);
  T_OK(tide_device_pool_drop(d, pool));
  T_ANY(tide_device_trim(d, 0));
  device_expect_valid(d);
}

static void play_with_fault(tide_call call, uint64_t skip, tide_status status) {
  tide_machine* const m = machine_open(machine_variant(), NULL);
  const size_t before = free_bytes(m, 0);
  tide_device_cache* const d = device_with(m, "policy:tide,plain_pools:on");
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = call;
  fault.skip = skip;
  fault.status = (uint32_t)status;
  T_OK(tide_machine_fault_add(m, &fault));
  for (uint8_t i = 0; i < 4; i++) pool_come_and_go(m, d, i);
  tide_machine_fault_clear(m);
  expect_trimmed(d, 0);
  T_EQ(free_bytes(m, 0), before);
  tide_device_free(d);
  T_EQ(free_bytes(m, 0), before);
  tide_machine_free(m);
}

// One call of any kind fails while pools come and go.
T_TEST_OVER(test_plain__any_call_may_fail, plain_emulated) {
  static const tide_call kinds[] = { TIDE_CALL_RAW_ALLOC,
                                     TIDE_CALL_RAW_RELEASE,
                                     TIDE_CALL_DEVICE_SYNCHRONIZE,
                                     TIDE_CALL_STREAM_SYNCHRONIZE,
                                     TIDE_CALL_PHYSICAL_NEW,
                                     TIDE_CALL_MAP,
                                     TIDE_CALL_UNMAP,
                                     TIDE_CALL_CAPTURE_EXCHANGE };
  for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
    for (uint64_t n = 0; n < 6; n++) {
      play_with_fault(kinds[k], n, n % 2 == 0 ? TIDE_ERR_MACHINE : TIDE_ERR_NO_MEMORY);
    }
  }
}
