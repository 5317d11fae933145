// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sending memory away and fetching it: contents, order, faults, and every kind of store.
#include "device/cargo.h"

static const char* const yard_names[] = { "host pinned", "host pageable", "host file",
                                          "host none",   "dry pinned",    "dry pageable",
                                          "dry file",    "dry none",      NULL };

static const char* variant_machine(void) { return strncmp(t_variant(), "dry", 3) == 0 ? "dry" : "host"; }

static tide_backup variant_backup(void) {
  if (strstr(t_variant(), "pinned") != NULL) return TIDE_BACKUP_PINNED;
  if (strstr(t_variant(), "pageable") != NULL) return TIDE_BACKUP_PAGEABLE;
  return strstr(t_variant(), "file") != NULL ? TIDE_BACKUP_FILE : TIDE_BACKUP_NONE;
}

// Small sizes, so that small stores have many parts.
static void store_open(yard* y, tide_backup kind) {
  if (kind == TIDE_BACKUP_NONE) return;
  T_OK(tide__store_new(y->d, kind, NULL, y->store_bytes, &y->cargo.store));
  T_LE(y->store_bytes, tide__store_bytes(y->cargo.store));
}

static void expect_send(yard* y) {
  tide__cargo_count count;
  const size_t before = free_bytes(y->m, 0);
  T_OK(tide__cargo_send(y->d, &y->cargo, &count));
  T_EQ(count.physical_bytes, yard_parcel_bytes(y));
  T_EQ(count.copied_bytes, y->cargo.store != NULL ? y->store_bytes : 0);
  T_EQ(free_bytes(y->m, 0), before + yard_parcel_bytes(y));
}

static void expect_fetch(yard* y) {
  tide__cargo_count count;
  tide_event done = NULL;
  const size_t before = free_bytes(y->m, 0);
  T_OK(tide__cargo_fetch(y->d, &y->cargo, &count, &done));
  if (done != NULL) T_OK(tide_machine_event_synchronize(y->m, done));
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

T_TEST_OVER(test_cargo__comes_back_as_it_was, yard_names) {
  for (uint64_t round = 0; round < 6; round++) {
    t_rng rng = t_rng_new(round);
    yard y;
    yard_open(&y, variant_machine(), 32 * MIB, 32 * MIB);
    yard_lay_out(&y, &rng);
    store_open(&y, variant_backup());
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
  store_open(&y, variant_backup());
  y.cargo.handle_bytes = 8 * y.unit;
  expect_send(&y);
  expect_fetch(&y);
  for (uint64_t i = 0; i < 40; i++) {
    const uint64_t units = i % 20 == 16 ? 4 : 8;
    T_EQ(y.parcels[i].bytes, i % 20 % 8 == 0 ? units * y.unit : 0);
  }
  expect_send(&y);
  expect_fetch(&y);
  yard_close(&y);
}
