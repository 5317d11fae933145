// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the tests of parking share: pools with tags, and blocks of which every byte is known. A block is
// filled in four quarters, each with a value of its own, by work that is queued on the block's stream.
#ifndef TIDEMARK_TESTS_DEVICE_PARK_H
#define TIDEMARK_TESTS_DEVICE_PARK_H

#include "device/devices.h"

static const tide_backup backups[] = { TIDE_BACKUP_PINNED, TIDE_BACKUP_PAGEABLE, TIDE_BACKUP_FILE };
enum { BACKUPS = 3 };

static inline tide_pool tagged(tide_device_cache* d, const char* tag) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.tag = tag;
  return pool_new(d, &options);
}

static inline void region_open(tide_device_cache* d, tide_pool pool) {
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.is_region = true;
  T_OK(tide_device_pool_begin(d, pool, &scope));
}

static inline void region_close(tide_device_cache* d, tide_pool pool) { T_OK(tide_device_pool_end(d, pool)); }

static inline tide_block take_tagged(tide_device_cache* d, tide_pool pool, tide_stream stream, size_t bytes) {
  region_open(d, pool);
  const tide_block block = take(d, stream, bytes);
  region_close(d, pool);
  return block;
}

static inline tide_tag_stats stats_under(tide_device_cache* d, const char* tag) {
  tide_tag_stats stats = TIDE_TAG_STATS_INIT;
  T_OK(tide_device_tag_stats(d, tag, &stats));
  return stats;
}

static inline tide_park_options park_how(tide_backup backup) {
  tide_park_options options = TIDE_PARK_OPTIONS_INIT;
  options.backup = backup;
  return options;
}

static inline tide_park_result park(tide_device_cache* d, const char* tag, tide_backup backup) {
  const tide_park_options options = park_how(backup);
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  T_OK(tide_device_park(d, tag, &options, &result));
  return result;
}

static inline tide_park_result unpark_keeping(tide_device_cache* d, const char* tag) {
  tide_unpark_options options = TIDE_UNPARK_OPTIONS_INIT;
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  options.keeps_backup = true;
  T_OK(tide_device_unpark(d, tag, &options, &result));
  return result;
}

static inline tide_park_result unpark(tide_device_cache* d, const char* tag) {
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  T_OK(tide_device_unpark(d, tag, NULL, &result));
  return result;
}

// ---------------------------------------------------------------------------------------------------
// Blocks of which every byte is known

enum { QUARTERS = 4 };

typedef struct known {
  tide_block block;
  size_t bytes;  // a multiple of 4
  tide_stream stream;
  uint8_t values[QUARTERS];
  bool is_lost;  // its contents were discarded
} known;

// Queues work that writes new values.
static inline void known_write(tide_machine* m, known* k, uint64_t salt) {
  const size_t quarter = k->bytes / QUARTERS;
  k->is_lost = false;
  for (size_t i = 0; i < QUARTERS; ++i) {
    k->values[i] = (uint8_t)(salt * 2654435761u >> (8 + i));
    T_OK(tide_machine_fill(m, 0, k->stream, bytes_of(k->block) + i * quarter, k->values[i], quarter));
  }
}

static inline known known_new(tide_machine* m, tide_device_cache* d, tide_pool pool, tide_stream stream,
                              size_t bytes, uint64_t salt) {
  known k = { .bytes = bytes, .stream = stream };
  k.block = take_tagged(d, pool, stream, bytes);
  known_write(m, &k, salt);
  return k;
}

// Copies the block on its own stream, behind all work there, and compares the copy.
static inline void known_expect(tide_machine* m, const known* k) {
  const size_t quarter = k->bytes / QUARTERS;
  if (is_dry(m) || k->is_lost) return;
  uint8_t* const copy = malloc(k->bytes);
  T_CHECK(copy != NULL);
  T_OK(tide_machine_copy(m, 0, k->stream, copy, k->block.address, k->bytes));
  T_OK(tide_machine_stream_synchronize(m, 0, k->stream));
  for (size_t i = 0; i < quarter * QUARTERS; ++i) {
    // All bytes of a quarter are equal if each equals the next one.
    if (i % quarter == 0 && copy[i] == k->values[i / quarter] &&
        memcmp(&copy[i], &copy[i + 1], quarter - 1) == 0)
      i += quarter - 1;
    else if (copy[i] != k->values[i / quarter]) {
      T_FAIL("byte %zu of %zu is %u and should be %u", i, k->bytes, copy[i], k->values[i / quarter]);
    }
  }
  free(copy);
}

static inline void all_expect(tide_machine* m, const known* blocks, size_t count) {
  for (size_t i = 0; i < count; ++i) known_expect(m, &blocks[i]);
}

static inline void all_give(tide_device_cache* d, const known* blocks, size_t count) {
  for (size_t i = 0; i < count; ++i) give(d, blocks[i].block);
}

#endif
