// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A program on three streams whose sizes never repeat, as in a server. The policy `tide` cannot settle, but
// must bound the work that it spends.
#include "device/devices.h"
#include "machine/counting_heap.h"

#define LIVE 4096
#define HELD_BYTES ((uint64_t)2 << 30)
#define CALL_NS 20000  // between two requests

typedef struct chaos {
  tide_machine* m;
  tide_device_cache* d;
  counting_heap records;  // of the allocator alone
  tide_stream streams[3];
  tide_block blocks[LIVE];
  size_t bytes[LIVE];
  size_t count;
  uint64_t held;
  uint64_t random;
} chaos;

static double draw(chaos* c) {
  c->random = c->random * 6364136223846793005u + 1442695040888963407u;
  return (double)(c->random >> 11) / 9007199254740992.0;
}

static void chaos_begin(chaos* c, double share) {
  memset(c, 0, sizeof *c);
  c->random = 88172645463325252u;
  counting_heap_init(&c->records, SIZE_MAX, false);
  T_OK(tide_machine_new_dry(NULL, &c->m));
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = TIDE_POLICY_TIDE;
  options.heap = &c->records.heap;
  if (share > 0) options.tide_stitch_share = share;
  T_OK(tide_device_new(c->m, 0, &options, &c->d));
  for (size_t i = 0; i < 3; ++i) c->streams[i] = side_new(c->m);
}

static void chaos_release_any(chaos* c) {
  const size_t i = (size_t)(draw(c) * (double)c->count);
  give(c->d, c->blocks[i]);
  c->held -= c->bytes[i];
  c->blocks[i] = c->blocks[--c->count];
  c->bytes[i] = c->bytes[c->count];
}

static void chaos_run(chaos* c, size_t requests) {
  for (size_t k = 0; k < requests; ++k) {
    const size_t bytes = (size_t)((double)((size_t)4096 << (unsigned)(14 * draw(c))) * (1 + draw(c)));
    while (c->count == LIVE || c->held + bytes > HELD_BYTES) chaos_release_any(c);
    T_OK(tide_dry_advance(c->m, CALL_NS));
    c->blocks[c->count] = take(c->d, c->streams[(size_t)(draw(c) * 3)], bytes);
    if (draw(c) < 0.2) announce(c->d, c->blocks[c->count], c->streams[(size_t)(draw(c) * 3)]);
    c->bytes[c->count++] = bytes;
    c->held += bytes;
  }
}

static void chaos_end(chaos* c) {
  tide_device_free(c->d);
  T_EQ(atomic_load(&c->records.outstanding), 0);
  tide_machine_free(c->m);
}

// Ranges of addresses that are reserved now.
static uint64_t ranges(const tide_machine* m) {
  return tide_machine_call_stats(m, TIDE_CALL_ADDRESS_RESERVE).calls -
         tide_machine_call_stats(m, TIDE_CALL_ADDRESS_RELEASE).calls;
}

// Views are made all the time, and their records and addresses are used again.
T_TEST(test_tide__its_own_memory_is_bounded_in_chaos) {
  static chaos c;
  chaos_begin(&c, 1);
  chaos_run(&c, 12000);
  const uint64_t mapped = tide_machine_call_stats(c.m, TIDE_CALL_MAP).calls;
  const size_t records = atomic_load(&c.records.outstanding);
  const uint64_t reserved = ranges(c.m);

  chaos_run(&c, 24000);

  T_LT(mapped * 2, tide_machine_call_stats(c.m, TIDE_CALL_MAP).calls);  // it did not come to rest
  T_LE(atomic_load(&c.records.outstanding), records + records / 4);
  T_LE(ranges(c.m), reserved + reserved / 2);
  chaos_end(&c);
}

// Time of the driver that views cost, in ns.
static uint64_t mapping_ns(const tide_machine* m) {
  return tide_machine_call_stats(m, TIDE_CALL_MAP).ns + tide_machine_call_stats(m, TIDE_CALL_UNMAP).ns +
         tide_machine_call_stats(m, TIDE_CALL_SET_ACCESS).ns +
         tide_machine_call_stats(m, TIDE_CALL_PHYSICAL_NEW).ns;
}

static uint64_t now_ns(tide_machine* m) {
  uint64_t ns = 0;
  T_OK(tide_machine_clock(m, &ns));
  return ns;
}

// What the first 20 s allow is spent first; from then on a twentieth of the time goes into mapping, and a
// little more into what is made instead, until there is enough.
T_TEST(test_tide__mapping_takes_a_small_share_of_the_time_in_chaos) {
  static chaos c;
  chaos_begin(&c, 0);
  chaos_run(&c, 60000);
  const uint64_t begin = now_ns(c.m);
  const uint64_t before = mapping_ns(c.m);

  chaos_run(&c, 60000);

  T_LE((double)(mapping_ns(c.m) - before), 0.10 * (double)(now_ns(c.m) - begin));
  T_LE(stats_of(c.d).reserved_bytes[TIDE_STAT_ALL].current, (int64_t)(2 * HELD_BYTES));
  chaos_end(&c);
}

// Streams that come and go, each with a little memory: what the dead ones had serves the others.
T_TEST(test_tide__a_thousand_streams_keep_little_memory_idle) {
  static chaos c;
  chaos_begin(&c, 0);
  for (size_t i = 0; i < 1000; ++i) {
    const tide_stream passing = side_new(c.m);
    give(c.d, take(c.d, passing, (4 + i % 25) * MIB));
    T_OK(tide_machine_stream_free(c.m, 0, passing));
    give(c.d, take(c.d, c.streams[0], (4 + i * 7 % 61) * MIB));
  }

  T_LE(stats_of(c.d).reserved_bytes[TIDE_STAT_LARGE].current, (int64_t)(2 * 64 * MIB + 16 * 4 * 2 * MIB));
  chaos_end(&c);
}
