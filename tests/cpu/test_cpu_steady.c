// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Nothing grows without bound: an hour of a program with random sizes, in seconds. Idle memory is given back
// after five milliseconds here, so that as many of these periods pass in a second as of the usual ten seconds
// in half an hour. Now and then the idle bytes are compared with their cap; and what the process has of the
// computer's memory, beyond what is live, with the cap, and beyond what is live or idle, with what it was in
// the first eighth of the time.
#include "../t.h"

#include "tidemark/cpu.h"

#define MIB ((uint64_t)1 << 20)
#define LOOKS 32             // how often a run is looked at
#define SETTLED (LOOKS / 8)  // from then on nothing may grow
#define SLOTS 48             // blocks live at once in one thread
#define CACHED (24 * MIB)    // the cap
#define LARGEST (4 * MIB)    // of one block
#define TOLERANCE (8 * MIB)  // between two looks: huge pages, records, the C library
#define STEPS 16000          // of one run

static uint64_t resident_bytes(void) {
  unsigned long long pages = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  T_CHECK(file != NULL && fscanf(file, "%*u %llu", &pages) == 1);
  (void)fclose(file);
  return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static tide_cpu_cache* steady_cache(void) {
  tide_cpu_cache* cache = NULL;
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_cached_bytes = CACHED;
  options.idle_ns = 5000000;
  T_OK(tide_cpu_new(&options, &cache));
  return cache;
}

static void steady_cache_free(tide_cpu_cache* cache) {
  uint64_t orphans = 0;
  T_EQ(tide_cpu_check(cache), 0);
  tide_cpu_free(cache, &orphans);
  T_EQ(orphans, 0);
}

// ---------------------------------------------------------------------------------------------------
// Blocks at random, with their first and last bytes written

typedef struct crowd {
  tide_cpu_cache* cache;  // borrowed
  t_rng rng;
  uint8_t* blocks[SLOTS];
  size_t bytes[SLOTS];
} crowd;

// From 64 bytes to LARGEST, as often in one doubling as in another.
static size_t crowd_size(t_rng* rng) {
  const size_t power = (size_t)64 << t_rng_below(rng, 16);
  return power + t_rng_below(rng, power);
}

static void crowd_release(crowd* c, size_t slot) {
  if (c->blocks[slot] == NULL) return;
  T_EQ(c->blocks[slot][0], (uint8_t)slot);
  T_EQ(c->blocks[slot][c->bytes[slot] - 1], (uint8_t)slot);
  T_OK(tide_cpu_release(c->blocks[slot]));
  c->blocks[slot] = NULL;
}

static void crowd_alloc(crowd* c, size_t slot, size_t bytes) {
  void* block = NULL;
  T_OK(tide_cpu_alloc(c->cache, bytes, &block));
  c->blocks[slot] = block;
  c->bytes[slot] = bytes;
  for (size_t offset = 0; offset < bytes; offset += 4096) c->blocks[slot][offset] = (uint8_t)slot;
  c->blocks[slot][bytes - 1] = (uint8_t)slot;
}

static void crowd_step(crowd* c) {
  const size_t slot = t_rng_below(&c->rng, SLOTS);
  crowd_release(c, slot);
  crowd_alloc(c, slot, crowd_size(&c->rng));
}

static void crowd_fini(crowd* c) {
  for (size_t slot = 0; slot < SLOTS; slot++) crowd_release(c, slot);
}

// ---------------------------------------------------------------------------------------------------
// What is looked at

typedef struct watch {
  tide_cpu_cache* cache;  // borrowed
  size_t looks;           // so far
  uint64_t first;         // bytes of the process in the beginning
  uint64_t resident;      // the most beyond that and beyond what was live or idle, until it had settled
  uint64_t addresses;
  size_t mappings;
} watch;

static watch watch_start(tide_cpu_cache* cache) {
  return (watch){ .cache = cache, .first = resident_bytes() };
}

// The process keeps more than the cache does under a sanitizer. How much is idle depends on the time.
static void watch_process(watch* w, const tide_cpu_stats* stats) {
  const uint64_t all = resident_bytes();
  const uint64_t live = w->first + (uint64_t)stats->active_bytes.current;
  const uint64_t known = live + stats->cached_bytes;
  const uint64_t resident = all > known ? all - known : 0;
  const size_t mappings = t_count_mappings();
  if (T_HAS_SANITIZER) return;
  T_LE(all, live + CACHED + TOLERANCE);
  if (w->looks >= SETTLED) {
    T_LE(resident, w->resident + TOLERANCE);
    T_LE(mappings, 2 * w->mappings + 64);
    return;
  }
  if (resident > w->resident) w->resident = resident;
  if (mappings > w->mappings) w->mappings = mappings;
}

static void watch_look(watch* w) {
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  T_OK(tide_cpu_get_stats(w->cache, &stats));
  T_LE(stats.cached_bytes, CACHED);
  if (w->looks < SETTLED && stats.address_bytes > w->addresses) w->addresses = stats.address_bytes;
  if (w->looks >= SETTLED) T_LE(stats.address_bytes, 2 * w->addresses);
  watch_process(w, &stats);
  w->looks++;
}

// Everything is released: what is left is idle, and gone after a while.
static void watch_end(const watch* w) {
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  T_OK(tide_cpu_get_stats(w->cache, &stats));
  T_EQ(stats.active.current, 0);
  T_LE(stats.cached_bytes, CACHED);
  t_sleep_us(20000);
  T_OK(tide_cpu_poll(w->cache));
  t_sleep_us(20000);
  T_OK(tide_cpu_poll(w->cache));
  T_OK(tide_cpu_get_stats(w->cache, &stats));
  T_LE(stats.cached_bytes, MIB);
}

// ---------------------------------------------------------------------------------------------------

T_TEST(test_cpu_steady__an_hour_of_random_sizes) {
  crowd c = { .cache = steady_cache(), .rng = t_rng_new(1) };
  watch w = watch_start(c.cache);

  for (size_t look = 0; look < LOOKS; look++) {
    for (size_t i = 0; i < t_scaled(STEPS / LOOKS); i++) crowd_step(&c);
    watch_look(&w);
  }

  crowd_fini(&c);
  watch_end(&w);
  steady_cache_free(c.cache);
}

// Every size is new (B-W4): a cache that looks for the very size finds nothing and keeps everything.
T_TEST(test_cpu_steady__sizes_that_never_come_again) {
  crowd c = { .cache = steady_cache(), .rng = t_rng_new(2) };
  watch w = watch_start(c.cache);
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  size_t bytes = 1000;

  for (size_t look = 0; look < LOOKS; look++) {
    for (size_t i = 0; i < t_scaled(STEPS / LOOKS); i++, bytes += 37) {
      crowd_alloc(&c, i % SLOTS, bytes % LARGEST + 64);
      crowd_release(&c, i % SLOTS);
    }
    watch_look(&w);
  }

  T_OK(tide_cpu_get_stats(c.cache, &stats));
  T_LT(stats.num_misses, stats.num_hits / 4);
  watch_end(&w);
  steady_cache_free(c.cache);
}

// ---------------------------------------------------------------------------------------------------
// Threads

typedef struct relay {
  tide_cpu_cache* cache;  // borrowed
  pthread_mutex_t lock;
  pthread_cond_t changed;
  void* block;  // on its way from one thread to the other, until it is released
  bool is_over;
} relay;

static void* relay_release(void* user) {
  relay* const r = user;
  (void)pthread_mutex_lock(&r->lock);
  while (!r->is_over) {
    if (r->block == NULL) {
      (void)pthread_cond_wait(&r->changed, &r->lock);
      continue;
    }
    T_OK(tide_cpu_release(r->block));
    r->block = NULL;
    (void)pthread_cond_signal(&r->changed);
  }
  (void)pthread_mutex_unlock(&r->lock);
  return NULL;
}

// Returns when the other thread has released the block, so that what is idle does not depend on which of the
// two gets to run.
static void relay_put(relay* r, void* block) {
  (void)pthread_mutex_lock(&r->lock);
  r->block = block;
  r->is_over = block == NULL;
  (void)pthread_cond_signal(&r->changed);
  while (r->block != NULL) (void)pthread_cond_wait(&r->changed, &r->lock);
  (void)pthread_mutex_unlock(&r->lock);
}

// One thread only allocates and another only releases: what the second has must come back to the first.
T_TEST(test_cpu_steady__one_thread_allocates_another_releases) {
  relay r = { .cache = steady_cache() };
  watch w = watch_start(r.cache);
  t_rng rng = t_rng_new(3);
  pthread_t thread;
  (void)pthread_mutex_init(&r.lock, NULL);
  (void)pthread_cond_init(&r.changed, NULL);
  t_thread_start(&thread, relay_release, &r);

  for (size_t look = 0; look < LOOKS; look++) {
    for (size_t i = 0; i < t_scaled(STEPS / 4 / LOOKS); i++) {
      const size_t bytes = crowd_size(&rng);
      uint8_t* block = NULL;
      T_OK(tide_cpu_alloc(r.cache, bytes, (void**)&block));
      for (size_t offset = 0; offset < bytes; offset += 4096) block[offset] = 1;
      relay_put(&r, block);
    }
    watch_look(&w);
  }

  relay_put(&r, NULL);
  t_thread_join(thread);
  watch_end(&w);
  (void)pthread_cond_destroy(&r.changed);
  (void)pthread_mutex_destroy(&r.lock);
  steady_cache_free(r.cache);
}

typedef struct visit {
  tide_cpu_cache* cache;  // borrowed
  uint64_t index;
} visit;

static void* visit_run(void* user) {
  const visit* const v = user;
  crowd c = { .cache = v->cache, .rng = t_rng_new(100 + v->index) };
  for (size_t i = 0; i < 100; i++) crowd_step(&c);
  crowd_fini(&c);
  return NULL;
}

// The memory of a thread that ended serves the next one.
T_TEST(test_cpu_steady__threads_that_come_and_go) {
  visit v[2] = { { steady_cache(), 0 }, { NULL, 1 } };
  watch w = watch_start(v[0].cache);
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  pthread_t threads[2];
  v[1].cache = v[0].cache;

  for (size_t look = 0; look < LOOKS; look++) {
    for (size_t i = 0; i < t_scaled(1); i++) {
      for (size_t t = 0; t < 2; t++) t_thread_start(&threads[t], visit_run, &v[t]);
      for (size_t t = 0; t < 2; t++) {
        t_thread_join(threads[t]);
        v[t].index += 2;
      }
    }
    watch_look(&w);
  }

  T_OK(tide_cpu_get_stats(v[0].cache, &stats));
  T_LE(stats.threads, 4);
  watch_end(&w);
  steady_cache_free(v[0].cache);
}

// A cache that is freed leaves nothing: the process is as large after hundreds of them as after a few.
T_TEST(test_cpu_steady__caches_that_come_and_go) {
  size_t mappings = 0;
  uint64_t resident = 0;
  for (size_t look = 0; look < LOOKS; look++) {
    for (size_t i = 0; i < t_scaled(3); i++) {
      crowd c = { .cache = steady_cache(), .rng = t_rng_new(200 + look) };
      for (size_t step = 0; step < 2 * SLOTS; step++) crowd_step(&c);
      crowd_fini(&c);
      steady_cache_free(c.cache);
    }
    if (look < SETTLED) {
      mappings = t_count_mappings();
      resident = resident_bytes();
    }
    if (T_HAS_SANITIZER) continue;
    T_LE(t_count_mappings(), mappings + 16);
    T_LE(resident_bytes(), resident + 2 * MIB);
  }
}
