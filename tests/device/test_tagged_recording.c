// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A recording with tags: two models and a key-value cache that take turns. What a snapshot says about tags is
// what the allocator says. With TIDEMARK_TAGGED_FILE set, the recording is written there:
//
//   TIDEMARK_TAGGED_FILE=tests/data/tags/turns.tide build/quick/tests/test_tagged_recording
//
// It is made on the dry machine, whose clock and addresses are the same in every run.
#include <fcntl.h>

#include "device/park.h"
#include "tidemark/format.h"

enum { ACTOR = 24, CRITIC = 12, CACHE = 16, STEPS = 6, WORK = 8 };

typedef struct turns {
  tide_device_cache* d;
  tide_pool actor;
  tide_pool critic;
  tide_pool cache;
  tide_block actors[ACTOR];
  tide_block critics[CRITIC];
  tide_block kept[CACHE];
} turns;

static void take_all(tide_device_cache* d, tide_pool pool, tide_block* blocks, size_t count, size_t bytes) {
  for (size_t i = 0; i < count; ++i) blocks[i] = take_tagged(d, pool, NULL, bytes + 4096 * i);
}

static void give_all(tide_device_cache* d, const tide_block* blocks, size_t count) {
  for (size_t i = 0; i < count; ++i) give(d, blocks[i]);
}

// Activations, which come and go.
static void work(tide_device_cache* d, size_t bytes) {
  tide_block blocks[WORK];
  for (size_t i = 0; i < WORK; ++i) blocks[i] = take(d, NULL, bytes);
  for (size_t i = WORK; i > 0; --i) give(d, blocks[i - 1]);
}

// The actor generates while the critic is away; then the critic is trained while the cache is away.
static void step(turns* t, size_t number) {
  (void)park(t->d, "weights/critic", TIDE_BACKUP_PINNED);
  take_all(t->d, t->cache, t->kept, CACHE, MIB + number * 65536);
  work(t->d, 2 * MIB);
  (void)park(t->d, "kv cache", TIDE_BACKUP_NONE);
  (void)unpark_keeping(t->d, "weights/critic");
  work(t->d, 5 * MIB);
  (void)unpark(t->d, "kv cache");
  give_all(t->d, t->kept, CACHE);
}

static tide_trace* recorded(turns* t) {
  tide_trace* trace = NULL;
  t->actor = tagged(t->d, "weights/actor");
  t->critic = tagged(t->d, "weights/critic");
  t->cache = tagged(t->d, "kv cache");
  history_on(t->d);
  take_all(t->d, t->actor, t->actors, ACTOR, 3 * MIB);
  take_all(t->d, t->critic, t->critics, CRITIC, 3 * MIB);
  for (size_t i = 0; i < STEPS; ++i) step(t, i);
  (void)park(t->d, "weights/critic", TIDE_BACKUP_PINNED);
  take_all(t->d, t->cache, t->kept, CACHE / 4, 2 * MIB);
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_device_snapshot(t->d, NULL, trace));
  return trace;
}

// The sums of a snapshot over the segments of one tag.
static tide_tag_stats sums_of(const tide_trace* trace, const char* tag) {
  tide_tag_stats sums = TIDE_TAG_STATS_INIT;
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  const tide_trace_block* const blocks = tide_trace_blocks(trace, NULL);
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(tide_trace_segment_tag(trace, &segments[i]), tag) != 0) continue;
    const bool is_parked = tide_trace_segment_is_parked(trace, &segments[i]);
    *(is_parked ? &sums.parked_bytes : &sums.reserved_bytes) += segments[i].bytes;
    for (size_t k = 0; k < segments[i].block_count; ++k) {
      if (blocks[segments[i].first_block + k].state != TIDE_BLOCK_ALLOCATED) continue;
      sums.allocation_count++;
      sums.allocated_bytes += blocks[segments[i].first_block + k].bytes;
    }
  }
  return sums;
}

static void expect_tag(tide_device_cache* d, const tide_trace* trace, const char* tag) {
  const tide_tag_stats want = stats_under(d, tag);
  const tide_tag_stats got = sums_of(trace, tag);
  T_EQ(got.allocation_count, want.allocation_count);
  T_EQ(got.allocated_bytes, want.allocated_bytes);
  T_EQ(got.reserved_bytes, want.reserved_bytes);
  T_EQ(got.parked_bytes, want.parked_bytes);
}

static void save(const tide_trace* trace, const char* path) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  T_LE(0, file);
  const tide_sink sink = tide_sink_file(file);
  T_OK(tide_trace_write(trace, TIDE_FORMAT_NATIVE, &sink));
  T_EQ(close(file), 0);
}

static const char* const tide_dry[] = { "dry tide", NULL };

DEVICE_TEST_OVER(test_tagged_recording__says_what_the_allocator_says, tide_dry) {
  turns t = { .d = d };
  tide_trace* const trace = recorded(&t);
  const char* const path = getenv("TIDEMARK_TAGGED_FILE");
  expect_tag(d, trace, "weights/actor");
  expect_tag(d, trace, "weights/critic");
  expect_tag(d, trace, "kv cache");
  T_LT(0, sums_of(trace, "weights/critic").parked_bytes);
  T_EQ(sums_of(trace, "weights/critic").reserved_bytes, 0);
  if (path != NULL) save(trace, path);
  tide_trace_free(trace);
  give_all(d, t.actors, ACTOR);
  give_all(d, t.critics, CRITIC);
  give_all(d, t.kept, CACHE / 4);
}
