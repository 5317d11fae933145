// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parcels and contents at random places of a reserved range, and a copy of what they must contain.
#ifndef TIDEMARK_TESTS_DEVICE_CARGO_H
#define TIDEMARK_TESTS_DEVICE_CARGO_H

#include "device/park/store.h"
#include "machine/counting_heap.h"

#include "conformance/tools.h"  // behind t.h

#define YARD_PARCELS 64
#define YARD_CONTENTS 256

typedef struct yard {
  tide_machine* m;
  tide_device_cache* d;
  counting_heap machine_records;
  counting_heap records;
  size_t descriptors;  // before
  size_t threads;
  uint64_t unit;
  uint64_t address;
  uint64_t bytes;
  tide__parcel parcels[YARD_PARCELS];
  tide__content contents[YARD_CONTENTS];
  tide__cargo cargo;
  uint64_t store_bytes;
  uint8_t* truth;  // owned; of the whole range
} yard;

static inline bool yard_has_memory(const yard* y) { return !is_dry(y->m); }

static inline void yard_open_machine(yard* y, const char* name, uint64_t capacity) {
  tide_host_options host = TIDE_HOST_OPTIONS_INIT;
  tide_dry_options dry = TIDE_DRY_OPTIONS_INIT;
  y->unit = host.granularity = dry.granularity = 64 * KIB;
  host.capacity = dry.capacity = capacity;
  host.heap = dry.heap = &y->machine_records.heap;
  if (strcmp(name, "dry") == 0) T_OK(tide_machine_new_dry(&dry, &y->m));
  else T_OK(tide_machine_new_host(&host, &y->m));
}

static inline void yard_open(yard* y, const char* name, uint64_t capacity, uint64_t bytes) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  void* address = NULL;
  memset(y, 0, sizeof *y);
  y->descriptors = t_count_descriptors();
  y->threads = t_count_threads();
  counting_heap_init(&y->machine_records, SIZE_MAX, false);
  counting_heap_init(&y->records, SIZE_MAX, false);
  yard_open_machine(y, name, capacity);
  options.policy = TIDE_POLICY_TIDE;
  options.heap = &y->records.heap;
  T_OK(tide_device_new(y->m, 0, &options, &y->d));
  T_OK(tide_machine_address_reserve(y->m, 0, bytes, 0, NULL, &address));
  y->address = tide__address(address);
  y->bytes = bytes;
  y->truth = malloc(bytes);
  T_CHECK(y->truth != NULL);
  y->cargo = (tide__cargo){ .parcels = y->parcels, .contents = y->contents };
}

static inline void yard_add_parcel(yard* y, uint64_t offset, uint64_t bytes) {
  T_LT(y->cargo.parcel_count, YARD_PARCELS);
  tide__parcel* const parcel = &y->parcels[y->cargo.parcel_count++];
  *parcel = (tide__parcel){ .address = y->address + offset, .bytes = bytes };
  T_OK(tide_machine_physical_new(y->m, 0, bytes, 0, &parcel->physical));
  T_OK(tide_machine_map(y->m, tide__pointer(parcel->address), parcel->physical));
  T_OK(tide_machine_set_access(y->m, tide__pointer(parcel->address), bytes, 0, TIDE_ACCESS_READ_WRITE));
}

static inline void yard_add_content(yard* y, uint64_t offset, uint64_t bytes) {
  T_LT(y->cargo.content_count, YARD_CONTENTS);
  y->contents[y->cargo.content_count++] =
      (tide__content){ .address = y->address + offset, .bytes = bytes, .offset = y->store_bytes };
  y->store_bytes += bytes;
}

// Fills the contents at random, and remembers them. Every 8 bytes differ.
static inline void yard_write(yard* y, t_rng* rng) {
  for (size_t i = 0; i < y->cargo.content_count; i++) {
    const tide__content* const content = &y->contents[i];
    uint8_t* const truth = y->truth + (content->address - y->address);
    uint64_t word = t_rng_next(rng);
    for (uint64_t k = 0; k < content->bytes; k += 8, word += 0x9e3779b97f4a7c15u) {
      memcpy(truth + k, &word, tide__min(8, content->bytes - k));
    }
    if (yard_has_memory(y)) memcpy(tide__pointer(content->address), truth, content->bytes);
  }
}

// Random parcels, some of them adjacent, with random contents.
static inline void yard_lay_out(yard* y, t_rng* rng) {
  uint64_t at = 0;
  while (y->cargo.parcel_count < YARD_PARCELS) {
    if (t_rng_below(rng, 4) == 0) at += y->unit * (1 + t_rng_below(rng, 3));
    const uint64_t begin = at;
    const uint64_t parcels = 1 + t_rng_below(rng, 4);
    for (uint64_t i = 0; i < parcels && y->cargo.parcel_count < YARD_PARCELS; i++) {
      const uint64_t bytes = y->unit * (1 + t_rng_below(rng, 8));
      if (at + bytes > y->bytes) break;
      yard_add_parcel(y, at, bytes);
      at += bytes;
    }
    for (uint64_t from = begin; from < at;) {
      const uint64_t bytes = tide__min(at - from, 512 * (1 + t_rng_below(rng, 600)));
      const bool is_used = t_rng_below(rng, 3) != 0 && y->cargo.content_count < YARD_CONTENTS;
      if (is_used) yard_add_content(y, from, bytes);
      from += bytes;
    }
    if (at + 8 * y->unit > y->bytes) break;
    at += t_rng_below(rng, 2) * y->unit;
  }
  yard_write(y, rng);
}

static inline void yard_expect_contents(const yard* y) {
  for (size_t i = 0; i < y->cargo.content_count && yard_has_memory(y); i++) {
    const tide__content* const content = &y->contents[i];
    if (content->is_lost) continue;
    if (memcmp(tide__pointer(content->address), y->truth + (content->address - y->address), content->bytes) !=
        0) {
      T_FAIL("content %zu of %llu bytes is wrong", i, (unsigned long long)content->bytes);
    }
  }
}

static inline uint64_t yard_parcel_bytes(const yard* y) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < y->cargo.parcel_count; i++) bytes += y->parcels[i].bytes;
  return bytes;
}

static inline size_t yard_away(const yard* y) {
  size_t count = 0;
  for (size_t i = 0; i < y->cargo.parcel_count; i++) {
    count += y->parcels[i].bytes != 0 && y->parcels[i].physical == NULL;
  }
  return count;
}

static inline void yard_close(yard* y) {
  tide__store_free(y->cargo.store);
  for (size_t i = 0; i < y->cargo.parcel_count; i++) {
    const tide__parcel* const parcel = &y->parcels[i];
    if (parcel->physical == NULL) continue;
    T_OK(tide_machine_unmap(y->m, tide__pointer(parcel->address), parcel->bytes));
    T_OK(tide_machine_physical_free(y->m, parcel->physical));
  }
  tide_device_free(y->d);
  size_t total = 0;
  size_t idle = 0;
  T_OK(tide_machine_memory_info(y->m, 0, &idle, &total));
  T_EQ(idle, total);
  T_OK(tide_machine_address_release(y->m, tide__pointer(y->address), y->bytes));
  const tide_call_stats locks = tide_machine_call_stats(y->m, TIDE_CALL_PINNED_REGISTER);
  const tide_call_stats unlocks = tide_machine_call_stats(y->m, TIDE_CALL_PINNED_UNREGISTER);
  T_EQ(locks.calls - locks.failures, unlocks.calls - unlocks.failures);
  T_EQ(atomic_load(&y->records.outstanding), 0);
  tide_machine_free(y->m);
  T_EQ(atomic_load(&y->machine_records.outstanding), 0);
  T_EQ(t_count_descriptors(), y->descriptors);
  T_WAIT(t_count_threads() <= y->threads + T_HAS_THREAD_SANITIZER);
  free(y->truth);
}

#endif
