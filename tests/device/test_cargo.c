// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sending memory away and fetching it: contents, order, faults, and every kind of store.
#define T_THREADS
#include "device/cargo.h"

static const char* const yard_names[] = { "host pinned", "host pageable", "host file",
                                          "host none",   "dry pinned",    "dry pageable",
                                          "dry file",    "dry none",      NULL };
static const char* const yard_stores[] = { "host pinned", "host pageable", "host file", NULL };

static const char* variant_machine(void) { return strncmp(t_variant(), "dry", 3) == 0 ? "dry" : "host"; }

static tide_backup variant_backup(void) {
  if (strstr(t_variant(), "pinned") != NULL) return TIDE_BACKUP_PINNED;
  if (strstr(t_variant(), "pageable") != NULL) return TIDE_BACKUP_PAGEABLE;
  return strstr(t_variant(), "file") != NULL ? TIDE_BACKUP_FILE : TIDE_BACKUP_NONE;
}

// Small parts, so that a small store has many.
static void store_make(yard* y, tide_backup kind) {
  if (kind == TIDE_BACKUP_NONE) return;
  T_OK(tide__store_new(y->d, kind, NULL, y->store_bytes, &y->cargo.store));
  T_LE(y->store_bytes, tide__store_bytes(y->cargo.store));
  y->cargo.store->piece_bytes = 2 * MIB;
  y->cargo.store->slot_bytes = 64 * KIB;
  y->cargo.store->slot_count = 3;
}

static void expect_send(yard* y) {
  tide__cargo_count count;
  const size_t before = free_bytes(y->m, 0);
  T_OK(tide__cargo_send(y->d, &y->cargo, &count));
  T_EQ(count.physical_bytes, yard_parcel_bytes(y));
  T_EQ(count.copied_bytes, y->cargo.store != NULL ? y->store_bytes : 0);
  T_EQ(free_bytes(y->m, 0), before + yard_parcel_bytes(y));
}

// Fetches and waits; the wait itself may be hit by a fault.
static tide_status fetch(yard* y, tide__cargo_count* count) {
  tide_event done = NULL;
  TIDE_TRY(tide__cargo_fetch(y->d, &y->cargo, count, &done));
  if (done == NULL || tide_machine_event_synchronize(y->m, done) == TIDE_OK) return TIDE_OK;
  tide_machine_fault_clear(y->m);
  return tide_machine_event_synchronize(y->m, done);
}

static void expect_fetch(yard* y) {
  tide__cargo_count count;
  const size_t before = free_bytes(y->m, 0);
  T_OK(fetch(y, &count));
  T_EQ(count.physical_bytes, yard_parcel_bytes(y));
  T_EQ(count.copied_bytes, y->cargo.store != NULL ? y->store_bytes : 0);
  T_EQ(free_bytes(y->m, 0), before - yard_parcel_bytes(y));
  T_EQ(yard_away(y), 0);
  if (y->cargo.store != NULL) yard_expect_contents(y);
}

// Other memory takes the place of what is away, and is written.
static void take_and_fill(yard* y, uint64_t bytes) {
  void* other = NULL;
  T_OK(tide_machine_raw_alloc(y->m, 0, bytes, &other));
  T_OK(tide_machine_fill(y->m, 0, NULL, other, 0xee, bytes));
  T_OK(tide_machine_device_synchronize(y->m, 0));
  T_OK(tide_machine_raw_release(y->m, 0, other));
}

// ---------------------------------------------------------------------------------------------------
// Contents

T_TEST_OVER(test_cargo__comes_back_as_it_was, yard_names) {
  const size_t rounds = t_scaled_alone(4);
  for (uint64_t round = 0; round < rounds; round++) {
    t_rng rng = t_rng_new(round);
    yard y;
    yard_open(&y, variant_machine(), 32 * MIB, 32 * MIB);
    yard_lay_out(&y, &rng);
    store_make(&y, variant_backup());
    y.cargo.group_bytes = y.unit * (1 + t_rng_below(&rng, 20));
    for (int turn = 0; turn < 3; turn++) {
      expect_send(&y);
      T_EQ(yard_away(&y), y.cargo.parcel_count);
      take_and_fill(&y, 16 * MIB);
      expect_fetch(&y);
      yard_write(&y, &rng);
    }
    yard_close(&y);
  }
}

T_TEST_OVER(test_cargo__joins_adjacent_parcels, yard_names) {
  t_rng rng = t_rng_new(1);
  yard y;
  yard_open(&y, variant_machine(), 64 * MIB, 64 * MIB);
  for (uint64_t i = 0; i < 40; i++) yard_add_parcel(&y, i * y.unit + (i < 20 ? 0 : y.unit), y.unit);
  for (uint64_t i = 0; i < 19; i++) yard_add_content(&y, i * y.unit + 512, y.unit);
  yard_write(&y, &rng);
  store_make(&y, variant_backup());
  y.cargo.handle_bytes = 8 * y.unit;
  expect_send(&y);
  expect_fetch(&y);
  for (uint64_t i = 0; i < 40; i++) {
    const uint64_t units[20] = { 8, 8, 4 };
    T_EQ(y.parcels[i].bytes, units[i % 20] * y.unit);
  }
  expect_send(&y);
  expect_fetch(&y);
  yard_close(&y);
}

// Whatever parcels a range had, it gets the same ones. Those that are larger than a handle stay as they are.
T_TEST_OVER(test_cargo__cuts_parcels_anew, yard_names) {
  t_rng rng = t_rng_new(3);
  yard y;
  yard_open(&y, variant_machine(), 128 * MIB, 128 * MIB);
  const uint64_t units[] = { 3, 1, 4, 1, 2, 3, 9, 2, 3 };
  const uint64_t cut[] = { 4, 4, 4, 2, 0, 0, 9, 4, 1 };
  uint64_t at = 0;
  for (size_t i = 0; i < sizeof units / sizeof units[0]; at += units[i++] * y.unit) {
    yard_add_parcel(&y, at, units[i] * y.unit);
  }
  for (uint64_t i = 0; i < 27; i++) yard_add_content(&y, i * y.unit + 512, y.unit / 2);
  yard_write(&y, &rng);
  store_make(&y, variant_backup());
  y.cargo.handle_bytes = 4 * y.unit;
  for (int turn = 0; turn < 2; turn++) {
    expect_send(&y);
    expect_fetch(&y);
    at = y.address;
    for (size_t i = 0; i < y.cargo.parcel_count; at += cut[i++] * y.unit) {
      T_EQ(y.parcels[i].bytes, cut[i] * y.unit);
      if (cut[i] > 0) T_EQ(y.parcels[i].address, at);
    }
  }
  yard_close(&y);
}

// Two reservations may lie side by side: on dry, addresses follow each other.
T_TEST(test_cargo__joins_nothing_across_reservations) {
  yard y;
  void* next = NULL;
  tide__cargo_count count;
  yard_open(&y, "dry", 32 * MIB, 4 * MIB);
  T_OK(tide_machine_address_reserve(y.m, 0, 4 * MIB, 0, NULL, &next));
  T_EQ(tide__address(next), y.address + y.bytes);
  for (uint64_t i = 0; i < 4; i++) yard_add_parcel(&y, y.bytes - 2 * y.unit + i * y.unit, y.unit);
  y.parcels[0].is_first = y.parcels[2].is_first = true;
  yard_add_content(&y, y.bytes - y.unit, y.unit);
  yard_add_content(&y, y.bytes, y.unit);
  store_make(&y, TIDE_BACKUP_PINNED);
  y.cargo.handle_bytes = 8 * y.unit;
  expect_send(&y);
  T_OK(fetch(&y, &count));
  T_EQ(y.parcels[0].bytes, 2 * y.unit);
  T_EQ(y.parcels[2].bytes, 2 * y.unit);
  expect_send(&y);
  T_OK(tide_machine_address_release(y.m, next, 4 * MIB));
  yard_close(&y);
}

// What was released while it was away is not copied back.
T_TEST_OVER(test_cargo__leaves_contents_behind, yard_stores) {
  t_rng rng = t_rng_new(2);
  yard y;
  yard_open(&y, variant_machine(), 32 * MIB, 32 * MIB);
  yard_lay_out(&y, &rng);
  store_make(&y, variant_backup());
  expect_send(&y);
  uint64_t left = 0;
  size_t kept = 0;
  for (size_t i = 0; i < y.cargo.content_count; i++) {
    if (i % 3 == 1) left += y.contents[i].bytes;
    else y.contents[kept++] = y.contents[i];
  }
  y.cargo.content_count = kept;
  tide__cargo_count count;
  T_OK(fetch(&y, &count));
  T_EQ(count.copied_bytes, y.store_bytes - left);
  yard_expect_contents(&y);
  yard_close(&y);
}

// Only the parcels that are away come back, with what is in them.
T_TEST_OVER(test_cargo__fetches_a_part, yard_stores) {
  t_rng rng = t_rng_new(3);
  yard y;
  yard_open(&y, variant_machine(), 8 * MIB, 8 * MIB);
  for (uint64_t i = 0; i < 8; i++) yard_add_parcel(&y, i * 2 * y.unit, 2 * y.unit);
  yard_add_content(&y, 100, 16 * y.unit - 200);
  yard_write(&y, &rng);
  store_make(&y, variant_backup());
  expect_send(&y);
  tide__cargo part = y.cargo;
  tide__cargo_count count;
  tide_event done = NULL;
  part.parcels += 2;
  part.parcel_count = 3;
  T_OK(tide__cargo_fetch(y.d, &part, &count, &done));
  if (done != NULL) T_OK(tide_machine_event_synchronize(y.m, done));
  T_EQ(count.physical_bytes, 6 * y.unit);
  T_EQ(count.copied_bytes, 6 * y.unit);
  T_EQ(yard_away(&y), 5);
  T_OK(fetch(&y, &count));
  T_EQ(count.copied_bytes, 10 * y.unit - 200);
  yard_expect_contents(&y);
  yard_close(&y);
}

// ---------------------------------------------------------------------------------------------------
// Order

// Work that is queued before is in the backup; and a stream sees the contents when it waits for the event.
T_TEST_OVER(test_cargo__goes_behind_queued_work, yard_stores) {
  yard y;
  tide_stream streams[2] = { NULL };
  tide_event done = NULL;
  tide__cargo_count count;
  yard_open(&y, variant_machine(), 16 * MIB, 16 * MIB);
  for (uint64_t i = 0; i < 16; i++) yard_add_parcel(&y, i * 2 * y.unit, 2 * y.unit);
  yard_add_content(&y, 0, 32 * y.unit);
  store_make(&y, variant_backup());
  for (uint32_t i = 0; i < 2; i++) {
    T_OK(tide_machine_stream_new(y.m, 0, i * TIDE_STREAM_NON_BLOCKING, 0, &streams[i]));
    uint8_t* const half = (uint8_t*)tide__pointer(y.address) + i * 16 * y.unit;
    for (int k = 0; k < 3; k++) T_OK(tide_machine_call(y.m, 0, streams[i], call_slow, NULL));
    T_OK(tide_machine_fill(y.m, 0, streams[i], half, (uint8_t)(0x31 + i), 16 * y.unit));
    memset(y.truth + i * 16 * y.unit, (int)(0x31 + i), 16 * y.unit);
  }
  T_OK(tide__cargo_send(y.d, &y.cargo, &count));
  T_OK(tide__cargo_fetch(y.d, &y.cargo, &count, &done));
  if (done != NULL) T_OK(tide_machine_stream_wait(y.m, 0, streams[0], done));
  uint8_t* const copy = malloc(32 * y.unit);
  T_OK(tide_machine_copy(y.m, 0, streams[0], copy, tide__pointer(y.address), 32 * y.unit));
  T_OK(tide_machine_stream_synchronize(y.m, 0, streams[0]));
  T_EQ(memcmp(copy, y.truth, 32 * y.unit), 0);
  free(copy);
  for (int i = 0; i < 2; i++) T_OK(tide_machine_stream_free(y.m, 0, streams[i]));
  yard_close(&y);
}

// On a machine whose clock is virtual, copies take the time of the bus, and calls are hidden behind them.
T_TEST(test_cargo__takes_the_time_of_the_bus_on_dry) {
  yard y;
  uint64_t times[3] = { 0 };
  yard_open(&y, "dry", 16 * GIB, 8 * GIB);
  for (uint64_t i = 0; i < YARD_PARCELS; i++) yard_add_parcel(&y, i * 128 * MIB, 128 * MIB);
  for (uint64_t i = 0; i < YARD_PARCELS; i++) yard_add_content(&y, i * 128 * MIB, 128 * MIB);
  store_make(&y, TIDE_BACKUP_PINNED);
  y.cargo.store->piece_bytes = 32 * MIB;
  expect_send(&y);
  expect_fetch(&y);
  T_OK(tide_machine_clock(y.m, &times[0]));
  expect_send(&y);
  T_OK(tide_machine_clock(y.m, &times[1]));
  expect_fetch(&y);
  T_OK(tide_machine_clock(y.m, &times[2]));
  const uint64_t bus_ns = (uint64_t)8 * 1000000000 / 50;
  for (int i = 0; i < 2; i++) {
    T_LE(bus_ns, times[i + 1] - times[i] + 1000);
    T_LE(times[i + 1] - times[i], bus_ns + bus_ns / 10);
  }
  yard_close(&y);
}

// ---------------------------------------------------------------------------------------------------
// Stores

T_TEST_OVER(test_cargo__uses_a_prepared_store, yard_stores) {
  t_rng rng = t_rng_new(4);
  yard y;
  yard_open(&y, variant_machine(), 32 * MIB, 32 * MIB);
  yard_lay_out(&y, &rng);
  store_make(&y, variant_backup());
  T_OK(tide__store_prepare(y.cargo.store));
  tide__store_free(y.cargo.store);
  store_make(&y, variant_backup());
  T_OK(tide__store_prepare(y.cargo.store));
  T_OK(tide__store_prepare(y.cargo.store));
  expect_send(&y);
  T_EQ(tide__store_kind(y.cargo.store), variant_backup());
  expect_fetch(&y);
  yard_close(&y);
}

T_TEST_OVER(test_cargo__reads_what_is_away, yard_stores) {
  t_rng rng = t_rng_new(5);
  yard y;
  uint8_t bytes[512];
  yard_open(&y, variant_machine(), 32 * MIB, 32 * MIB);
  yard_lay_out(&y, &rng);
  store_make(&y, variant_backup());
  expect_send(&y);
  for (size_t i = 0; i < y.cargo.content_count; i++) {
    const uint8_t* const truth = y.truth + (y.contents[i].address - y.address);
    T_OK(tide__store_read(y.cargo.store, y.contents[i].offset, sizeof bytes, bytes));
    T_EQ(memcmp(bytes, truth, sizeof bytes), 0);
    const void* const data = tide__store_data(y.cargo.store, y.contents[i].offset);
    T_EQ(data == NULL, variant_backup() == TIDE_BACKUP_FILE);
    if (data != NULL) T_EQ(memcmp(data, truth, y.contents[i].bytes), 0);
  }
  expect_fetch(&y);
  yard_close(&y);
}

// Memory that cannot be locked, from the first piece on or from a later one.
T_TEST(test_cargo__works_without_locked_memory) {
  for (uint64_t skip = 0; skip < 4; skip++) {
    t_rng rng = t_rng_new(6);
    yard y;
    tide_fault fault = TIDE_FAULT_INIT;
    yard_open(&y, "host", 32 * MIB, 32 * MIB);
    yard_lay_out(&y, &rng);
    fault.call = TIDE_CALL_PINNED_REGISTER;
    fault.skip = skip;
    fault.count = UINT64_MAX;
    T_OK(tide_machine_fault_add(y.m, &fault));
    store_make(&y, TIDE_BACKUP_PINNED);
    for (int turn = 0; turn < 2; turn++) {
      expect_send(&y);
      T_EQ(tide__store_kind(y.cargo.store), TIDE_BACKUP_PAGEABLE);
      expect_fetch(&y);
      yard_write(&y, &rng);
    }
    tide_machine_fault_clear(y.m);
    yard_close(&y);
  }
}

T_TEST_OVER(test_cargo__works_with_a_small_lock_limit, yard_stores) {
  t_rng rng = t_rng_new(7);
  yard y;
  const struct rlimit limit = { 64 * KIB, 64 * KIB };
  T_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
  yard_open(&y, variant_machine(), 32 * MIB, 32 * MIB);
  yard_lay_out(&y, &rng);
  store_make(&y, variant_backup());
  expect_send(&y);
  expect_fetch(&y);
  yard_close(&y);
}

// A disk that is full is an error before anything is freed.
T_TEST(test_cargo__refuses_a_full_disk) {
  t_rng rng = t_rng_new(8);
  yard y;
  tide__cargo_count count;
  const struct rlimit limit = { 64 * KIB, 64 * KIB };
  struct rlimit before;
  yard_open(&y, "host", 32 * MIB, 32 * MIB);
  yard_lay_out(&y, &rng);
  T_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  T_CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
  const struct rlimit low = { limit.rlim_cur, before.rlim_max };
  T_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  store_make(&y, TIDE_BACKUP_FILE);
  T_STATUS(tide__cargo_send(y.d, &y.cargo, &count), TIDE_ERR_NO_MEMORY);
  T_EQ(yard_away(&y), 0);
  yard_expect_contents(&y);
  T_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  expect_send(&y);
  expect_fetch(&y);
  tide__store_free(y.cargo.store);
  T_OK(tide__store_new(y.d, TIDE_BACKUP_FILE, "/nowhere", y.store_bytes, &y.cargo.store));
  T_STATUS(tide__cargo_send(y.d, &y.cargo, &count), TIDE_ERR_NO_MEMORY);
  T_STR_HAS(tide_last_error()->text, "/nowhere");
  yard_expect_contents(&y);
  yard_close(&y);
}

// A file that became too short: exactly the contents that it lacks are lost.
T_TEST(test_cargo__tells_what_is_lost) {
  t_rng rng = t_rng_new(9);
  yard y;
  tide__cargo_count count;
  yard_open(&y, "host", 32 * MIB, 32 * MIB);
  yard_lay_out(&y, &rng);
  store_make(&y, TIDE_BACKUP_FILE);
  expect_send(&y);
  const uint64_t rest = y.store_bytes / 3 * 2;
  T_EQ(ftruncate(y.cargo.store->file, (off_t)rest), 0);
  T_OK(fetch(&y, &count));
  T_LT(count.copied_bytes, y.store_bytes);
  size_t lost = 0;
  for (size_t i = 0; i < y.cargo.content_count; i++) {
    T_EQ(y.contents[i].is_lost, y.contents[i].offset + y.contents[i].bytes > rest);
    lost += y.contents[i].is_lost;
  }
  T_LT(0, lost);
  T_LT(lost, y.cargo.content_count);
  yard_expect_contents(&y);
  yard_close(&y);
}

// ---------------------------------------------------------------------------------------------------
// Faults

// Everything is there again, with its contents; memory that is away is fetched.
static void expect_recovered(yard* y) {
  tide__cargo_count count;
  if (yard_away(y) > 0) T_OK(fetch(y, &count));
  T_EQ(yard_away(y), 0);
  if (y->cargo.store != NULL) yard_expect_contents(y);
}

T_TEST_OVER(test_cargo__waits_for_memory_to_come_back, yard_stores) {
  t_rng rng = t_rng_new(10);
  yard y;
  void* other = NULL;
  tide__cargo_count count;
  yard_open(&y, variant_machine(), 32 * MIB, 32 * MIB);
  yard_lay_out(&y, &rng);
  store_make(&y, variant_backup());
  y.cargo.group_bytes = 4 * y.unit;
  expect_send(&y);
  T_OK(tide_machine_raw_alloc(y.m, 0, 24 * MIB, &other));
  const size_t before = free_bytes(y.m, 0);
  T_LT(before, yard_parcel_bytes(&y));
  T_STATUS(fetch(&y, &count), TIDE_ERR_NO_MEMORY);
  T_EQ(yard_away(&y), y.cargo.parcel_count);
  T_EQ(free_bytes(y.m, 0), before);
  T_OK(tide_machine_raw_release(y.m, 0, other));
  expect_fetch(&y);
  yard_close(&y);
}

static void faulty_yard(yard* y, t_rng* rng) {
  yard_open(y, variant_machine(), 32 * MIB, 32 * MIB);
  for (uint64_t i = 0; i < 36; i++) yard_add_parcel(y, (i + i / 10) * y->unit, y->unit);
  for (uint64_t i = 0; i < 20; i++) {
    yard_add_content(y, (i + i / 10) * y->unit + 4096, y->unit - (i % 10 == 9 ? 4096 : 0));
  }
  yard_write(y, rng);
  store_make(y, variant_backup());
  y->cargo.group_bytes = 8 * y->unit;
}

static void fault_from(yard* y, uint64_t skip, uint64_t count, tide_status status) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = TIDE_CALL_ANY;
  fault.skip = skip;
  fault.count = count;
  fault.status = status;
  T_OK(tide_machine_fault_add(y->m, &fault));
}

// Sends and fetches with a fault at one call after the other, until there is none left to hit.
static void faults_everywhere(uint64_t count, tide_status status) {
  t_rng rng = t_rng_new(11);
  yard y;
  bool is_hit = true;
  faulty_yard(&y, &rng);
  for (uint64_t skip = t_sample_first(); is_hit; skip += t_sample_step()) {
    tide__cargo_count moved;
    const uint64_t before = tide_machine_call_stats(y.m, TIDE_CALL_ANY).failures;
    tide__store_free(y.cargo.store);
    y.cargo.store = NULL;
    store_make(&y, variant_backup());
    fault_from(&y, skip, count, status);
    tide_status result = tide__cargo_send(y.d, &y.cargo, &moved);
    if (result == TIDE_OK) T_EQ(yard_away(&y), y.cargo.parcel_count);
    if (result != TIDE_OK) T_EQ(tide_last_error()->status, result);
    if (result == TIDE_OK) {
      result = fetch(&y, &moved);
      T_EQ(yard_away(&y), result == TIDE_OK ? 0 : y.cargo.parcel_count);
    }
    is_hit = tide_machine_call_stats(y.m, TIDE_CALL_ANY).failures != before;
    tide_machine_fault_clear(y.m);
    expect_recovered(&y);
    T_OK(tide_machine_device_synchronize(y.m, 0));  // copies of a call that could not wait for them
    yard_write(&y, &rng);
  }
  yard_close(&y);
}

T_TEST_OVER(test_cargo__survives_a_fault_at_any_call, yard_names) { faults_everywhere(1, TIDE_ERR_MACHINE); }
T_TEST_OVER(test_cargo__survives_no_memory_at_any_call, yard_names) {
  faults_everywhere(2, TIDE_ERR_NO_MEMORY);
}
T_TEST_OVER(test_cargo__survives_a_machine_that_fails_from_a_call_on, yard_names) {
  faults_everywhere(UINT64_MAX, TIDE_ERR_MACHINE);
}

T_TEST_OVER(test_cargo__survives_a_heap_without_memory, yard_names) {
  t_rng rng = t_rng_new(12);
  yard y;
  bool is_hit = true;
  faulty_yard(&y, &rng);
  for (size_t skip = t_sample_first(); is_hit; skip += t_sample_step()) {
    tide__cargo_count moved;
    tide__store_free(y.cargo.store);
    y.cargo.store = NULL;
    store_make(&y, variant_backup());
    y.records.is_exhausted = skip % 2 == 1;
    atomic_store(&y.records.has_failed, false);
    atomic_store(&y.records.fail_at, atomic_load(&y.records.allocs) + skip / 2);
    tide_status result = tide__cargo_send(y.d, &y.cargo, &moved);
    if (result == TIDE_OK) result = fetch(&y, &moved);
    is_hit = atomic_load(&y.records.has_failed);
    if (result != TIDE_OK) T_EQ(result, TIDE_ERR_NO_MEMORY);
    atomic_store(&y.records.fail_at, SIZE_MAX);
    expect_recovered(&y);
    yard_write(&y, &rng);
  }
  yard_close(&y);
}
