// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Handles that come back as larger ones: what they contain, and what becomes of them later.
#define T_THREADS
#include "device/park.h"

enum { BLOCKS = 24 };

// Blocks that were allocated one after another, each in new memory.
static size_t blocks_make(tide_machine* m, tide_device_cache* d, tide_pool pool, known* blocks) {
  const uint64_t before = calls(m, TIDE_CALL_PHYSICAL_NEW);
  for (size_t i = 0; i < BLOCKS; ++i) blocks[i] = known_new(m, d, pool, NULL, (2 + i % 3) * MIB, i + 1);
  return (size_t)(calls(m, TIDE_CALL_PHYSICAL_NEW) - before);
}

DEVICE_TEST_OVER(test_park__adjacent_handles_come_back_as_one, device_tide_emulated) {
  known blocks[BLOCKS];
  const tide_pool pool = tagged(d, "weights");
  const size_t handles = blocks_make(m, d, pool, blocks);
  const uint64_t reserved = pool_reserved(d, pool);
  T_LT(4, handles);
  for (int turn = 0; turn < 3; ++turn) {
    (void)park(d, "weights", turn == 2 ? TIDE_BACKUP_NONE : TIDE_BACKUP_PINNED);
    const uint64_t before = calls(m, TIDE_CALL_PHYSICAL_NEW);
    (void)unpark(d, "weights");
    T_EQ(calls(m, TIDE_CALL_PHYSICAL_NEW) - before, 1);
    T_EQ(pool_reserved(d, pool), reserved);
    device_expect_valid(d);
    if (turn < 2) all_expect(m, blocks, BLOCKS);
  }
  all_give(d, blocks, BLOCKS);
  T_OK(tide_device_pool_drop(d, pool));
}

// An idle part of a handle serves requests; the handle goes back when all of it is idle.
DEVICE_TEST_OVER(test_park__joined_handles_are_used_and_given_back, device_tide_emulated) {
  known blocks[BLOCKS];
  const tide_pool pool = tagged(d, "weights");
  (void)blocks_make(m, d, pool, blocks);
  (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
  (void)unpark(d, "weights");
  const uint64_t reserved = pool_reserved(d, pool);
  for (size_t i = 0; i < BLOCKS; i += 2) give(d, blocks[i].block);
  for (size_t i = 0; i < BLOCKS; i += 2) blocks[i] = known_new(m, d, pool, NULL, blocks[i].bytes, 99 + i);
  T_EQ(pool_reserved(d, pool), reserved);
  all_expect(m, blocks, BLOCKS);
  for (size_t i = 0; i < BLOCKS; i += 2) give(d, blocks[i].block);
  (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
  (void)unpark(d, "weights");
  for (size_t i = 1; i < BLOCKS; i += 2) known_expect(m, &blocks[i]);
  for (size_t i = 1; i < BLOCKS; i += 2) give(d, blocks[i].block);
  T_OK(tide_device_pool_drop(d, pool));
  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
}

// No memory to come back: nothing is joined, and the next attempt finds everything.
DEVICE_TEST_OVER(test_park__a_failed_return_leaves_handles_as_they_were, device_tide_emulated) {
  known blocks[BLOCKS];
  const tide_pool pool = tagged(d, "weights");
  (void)blocks_make(m, d, pool, blocks);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  for (uint64_t skip = 0; skip < 4; ++skip) {
    static const tide_call kinds[] = { TIDE_CALL_PHYSICAL_NEW, TIDE_CALL_MAP, TIDE_CALL_SET_ACCESS,
                                       TIDE_CALL_COPY };
    tide_fault fault = fault_of(kinds[skip], TIDE_ERR_MACHINE);
    fault_put(m, &fault);
    T_STATUS(tide_device_unpark(d, "weights", NULL, NULL), TIDE_ERR_MACHINE);
    tide_machine_fault_clear(m);
    device_expect_valid(d);
  }
  (void)unpark(d, "weights");
  all_expect(m, blocks, BLOCKS);
  all_give(d, blocks, BLOCKS);
  T_OK(tide_device_pool_drop(d, pool));
}

// ---------------------------------------------------------------------------------------------------
// Undoing without a heap

enum { POOLS = 40 };

static tide_device_cache* parked_new(tide_machine* m, counting_heap* records) {
  counting_heap_init(records, SIZE_MAX, true);
  tide_device_cache* const d = device_new(m, 0, &records->heap);
  for (size_t i = 0; i < POOLS; ++i) (void)known_new(m, d, tagged(d, "weights"), NULL, 2 * MIB, i + 1);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  return d;
}

static const char* const dry_tide[] = { "dry tide", NULL };

// Twice, everything that came is to go again, and the machine takes none of it. The second time there is no
// memory for records. All of it goes with the allocator, which had lost what it could not list.
DEVICE_TEST_OVER(test_park__what_cannot_be_undone_is_not_lost, dry_tide) {
  const size_t before = free_bytes(m, 0);
  (void)d;
  for (size_t skip = t_sample_first(); skip < 2 * POOLS; skip += t_sample_step()) {
    counting_heap records;
    tide_device_cache* const own = parked_new(m, &records);
    tide_fault copies = fault_of(TIDE_CALL_COPY, TIDE_ERR_MACHINE);
    copies.skip = POOLS - 2;
    fault_put(m, &copies);
    break_calls(m, TIDE_CALL_PHYSICAL_FREE, TIDE_ERR_MACHINE, UINT64_MAX);
    T_STATUS(tide_device_unpark(own, "weights", NULL, NULL), TIDE_ERR_MACHINE);
    tide_machine_fault_clear(m);
    fault_put(m, &copies);
    break_calls(m, TIDE_CALL_PHYSICAL_FREE, TIDE_ERR_MACHINE, UINT64_MAX);
    atomic_store(&records.fail_at, atomic_load(&records.allocs) + skip);
    T_ANY(tide_device_unpark(own, "weights", NULL, NULL));
    tide_machine_fault_clear(m);
    tide_device_free(own);
    T_EQ(atomic_load(&records.outstanding), 0);
    T_EQ(free_bytes(m, 0), before);
  }
}
