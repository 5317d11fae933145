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
  uint64_t call_ns;
  double least;  // of HELD_BYTES: what is live is between this part and all of it
} chaos;

static double draw(chaos* c) {
  c->random = c->random * 6364136223846793005u + 1442695040888963407u;
  return (double)(c->random >> 11) / 9007199254740992.0;
}

static void chaos_begin(chaos* c, const char* options_text) {
  memset(c, 0, sizeof *c);
  c->random = 88172645463325252u;
  c->call_ns = CALL_NS;
  c->least = 1;
  counting_heap_init(&c->records, SIZE_MAX, false);
  T_OK(tide_machine_new_dry(NULL, &c->m));
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  T_OK(tide_device_options_parse(options_text, &options));
  options.heap = &c->records.heap;
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

// Is there too much for a block of so many bytes?
static bool chaos_is_full(chaos* c, size_t bytes) {
  const double most = (double)HELD_BYTES * (c->least + (1 - c->least) * draw(c));
  return c->count == LIVE || (c->count > 0 && (double)(c->held + bytes) > most);
}

static void chaos_run(chaos* c, size_t requests) {
  for (size_t k = 0; k < requests; ++k) {
    const size_t bytes = (size_t)((double)((size_t)4096 << (unsigned)(14 * draw(c))) * (1 + draw(c)));
    while (chaos_is_full(c, bytes)) chaos_release_any(c);
    T_OK(tide_dry_advance(c->m, c->call_ns));
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
  chaos_begin(&c, "policy:tide,tide_stitch_share:1");
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

static double in_use(const chaos* c) {
  const tide_device_stats stats = stats_of(c->d);
  return (double)stats.allocated_bytes[TIDE_STAT_ALL].peak / (double)stats.reserved_bytes[TIDE_STAT_ALL].peak;
}

// What the first 20 s allow is spent first. From then on there is more memory than at other times, in large
// handles, so that few views are made, and of few handles.
T_TEST(test_tide__chaos_costs_little_time_and_little_memory) {
  static chaos c;
  chaos_begin(&c, "policy:tide");
  c.least = 0.6;
  chaos_run(&c, 60000);
  const uint64_t before = mapping_ns(c.m);

  chaos_run(&c, 60000);

  T_LE((double)(mapping_ns(c.m) - before), 0.5 * CALL_NS * 60000);
  T_LE(0.85, in_use(&c));
  chaos_end(&c);
}

// However much of what is reserved is live: apart from the parts of handles that blocks leave idle.
T_TEST(test_tide__memory_is_bounded_in_any_chaos) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    static chaos c;
    chaos_begin(&c, "policy:tide");
    c.random += seed;
    c.least = (double)(seed % 3 + 1) / 3;
    c.call_ns = 5 * CALL_NS;

    chaos_run(&c, 20000);

    T_LE(0.8, in_use(&c));
    chaos_end(&c);
  }
}

// It has not come to rest, but what it holds for itself has. The time for views is spent before the first
// look; after it, memory is held in larger pieces.
T_TEST(test_tide__its_own_memory_is_flat_in_chaos) {
  static chaos c;
  chaos_begin(&c, "policy:tide,tide_stitch_share:0.02");
  c.least = 0.6;
  chaos_run(&c, 50000);
  const size_t records = atomic_load(&c.records.outstanding);
  const uint64_t mapped = tide_machine_call_stats(c.m, TIDE_CALL_MAP).calls;

  for (int i = 0; i < 10; ++i) {
    chaos_run(&c, 10000);
    T_LE(atomic_load(&c.records.outstanding), records + records / 20);
  }

  T_LT(mapped, tide_machine_call_stats(c.m, TIDE_CALL_MAP).calls);
  chaos_end(&c);
}

// A program that does nothing else. Only while views take so much time is more memory made than in a hurry.
// Bursts of 2 s are allowed.
T_TEST(test_tide__views_take_half_of_the_time_at_most) {
  for (uint64_t seed = t_is_thorough() ? 0 : t_seed() % 2; seed < 2; seed += t_is_thorough() ? 1 : 2) {
    static chaos c;
    chaos_begin(&c, "policy:tide");
    c.call_ns = 2000;
    c.random += seed;
    chaos_run(&c, 500000);
    T_LE((double)mapping_ns(c.m), 0.5 * (double)clock_of(c.m) + 2e9);
    chaos_end(&c);
  }
}

// After a calm the policy saves memory again: what is idle is used before new memory is made.
T_TEST(test_tide__the_hurry_of_chaos_ends) {
  static chaos c;
  chaos_begin(&c, "policy:tide");
  c.least = 0.6;
  chaos_run(&c, 100000);
  T_LT(1.1 * (double)stats_of(c.d).allocated_bytes[TIDE_STAT_ALL].peak,
       (double)stats_of(c.d).reserved_bytes[TIDE_STAT_ALL].current);
  T_EQ(stats_of(c.d).num_hurries, 1);
  while (c.count > 0) chaos_release_any(&c);
  T_OK(tide_dry_advance(c.m, (uint64_t)60 * 1000000000));

  for (size_t i = 0; i < 70; ++i) c.blocks[c.count++] = take(c.d, c.streams[i % 3], (51 + i % 7) * MIB);

  const tide_device_stats stats = stats_of(c.d);
  T_LT(HELD_BYTES, (uint64_t)stats.allocated_bytes[TIDE_STAT_ALL].peak);
  T_LE((double)stats.reserved_bytes[TIDE_STAT_ALL].current,
       1.02 * (double)stats.allocated_bytes[TIDE_STAT_ALL].current);

  while (c.count > 0) give(c.d, c.blocks[--c.count]);
  // The same again, from the beginning.
  T_OK(tide_device_trim(c.d, 0));
  tide_device_reset_peaks(c.d);
  chaos_run(&c, 100000);
  T_EQ(stats_of(c.d).num_hurries, 2);
  chaos_end(&c);
}

// Without the bound on time, and with a wider one on memory: a loop comes to rest at the same place.
T_TEST(test_tide__a_loop_is_never_in_a_hurry) {
  static const char* const texts[] = { "policy:tide,tide_stitch_share:1", "policy:tide,tide_most_slack:1" };
  int64_t reserved[2];
  uint64_t calls[2];
  int64_t hurries = 0;
  for (int i = 0; i < 2; ++i) {
    static chaos c;
    chaos_begin(&c, texts[i]);
    c.least = 0.6;
    for (int step = 0; step < 200; ++step) {
      c.random = 88172645463325252u;
      chaos_run(&c, 500);
      while (c.count > 0) chaos_release_any(&c);
      T_OK(tide_machine_device_synchronize(c.m, 0));
    }
    reserved[i] = stats_of(c.d).reserved_bytes[TIDE_STAT_ALL].peak;
    calls[i] = tide_machine_call_stats(c.m, TIDE_CALL_MAP).calls;
    hurries += stats_of(c.d).num_hurries;
    chaos_end(&c);
  }

  T_EQ(reserved[0], reserved[1]);
  T_EQ(calls[0], calls[1]);
  T_EQ(hurries, 0);
}

// Streams that come and go, each with a little memory: what the dead ones had serves the others.
T_TEST(test_tide__a_thousand_streams_keep_little_memory_idle) {
  static chaos c;
  chaos_begin(&c, "policy:tide");
  for (size_t i = 0; i < 1000; ++i) {
    const tide_stream passing = side_new(c.m);
    give(c.d, take(c.d, passing, (4 + i % 25) * MIB));
    T_OK(tide_machine_stream_free(c.m, 0, passing));
    give(c.d, take(c.d, c.streams[0], (4 + i * 7 % 61) * MIB));
  }

  T_LE(stats_of(c.d).reserved_bytes[TIDE_STAT_LARGE].current, (int64_t)(2 * 64 * MIB + 16 * 4 * 2 * MIB));
  chaos_end(&c);
}
