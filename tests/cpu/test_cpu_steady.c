// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Nothing grows without bound. The idle time is five milliseconds, so that as many idle times pass in a
// second as usually in half an hour. Now and then the tests compare idle bytes with the cap, the resident
// memory beyond live blocks with the cap, and the resident memory beyond live and idle blocks with the first
// eighth of the run.
#define T_THREADS
#include "blocks.h"

#define LOOKS 32             // how often a run is looked at
#define SETTLED (LOOKS / 8)  // from then on nothing may grow
#define SLOTS 48             // blocks live at once in one thread
#define CACHED (24 * MIB)    // the cap
#define LARGEST (4 * MIB)    // of one block
#define TOLERANCE (8 * MIB)  // between two looks: huge pages, records, the C library
#define STEPS 16000          // of one run

static tide_cpu_cache* steady_cache(void) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.max_cached_bytes = CACHED;
  options.idle_ns = 5000000;
  return cache_open(&options);
}

// ---------------------------------------------------------------------------------------------------
// Random blocks, with their first and last bytes written

typedef struct crowd {
  tide_cpu_cache* cache;  // borrowed
  t_rng rng;
  uint8_t* blocks[SLOTS];
  size_t bytes[SLOTS];
} crowd;

// From 64 bytes to LARGEST; every power of two is equally likely.
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
  c->blocks[slot] = cache_take(c->cache, bytes);
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
// Observations

typedef struct watch {
  tide_cpu_cache* cache;  // borrowed
  size_t looks;           // so far
  uint64_t first;         // bytes of the process in the beginning
  uint64_t resident;      // the most beyond that and beyond what was live or idle, until it had settled
  uint64_t addresses;
  size_t mappings;
} watch;

static watch watch_start(tide_cpu_cache* cache) {
  return (watch){ .cache = cache, .first = process_bytes(true) };
}

// Under a sanitizer the process keeps memory of its own. How much is idle depends on the time.
static void watch_process(watch* w, const tide_cpu_stats* stats) {
  const uint64_t all = process_bytes(true);
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
  const tide_cpu_stats stats = cache_stats(w->cache);
  T_LE(stats.cached_bytes, CACHED);
  if (w->looks < SETTLED && stats.address_bytes > w->addresses) w->addresses = stats.address_bytes;
  if (w->looks >= SETTLED) T_LE(stats.address_bytes, 2 * w->addresses);
  watch_process(w, &stats);
  w->looks++;
}

// Everything is released: the rest is idle, and goes back after a while.
static void watch_end(const watch* w) {
  cache_expect_live(w->cache, 0);
  T_LE(cache_stats(w->cache).cached_bytes, CACHED);
  for (size_t i = 0; i < 2; i++) {
    t_sleep_us(20000);
    T_OK(tide_cpu_poll(w->cache));
  }
  T_LE(cache_stats(w->cache).cached_bytes, MIB);
  cache_close(w->cache);
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
}

// Every size is new (B-W4): a cache that reuses only equal sizes would keep everything.
T_TEST(test_cpu_steady__sizes_that_never_come_again) {
  crowd c = { .cache = steady_cache(), .rng = t_rng_new(2) };
  watch w = watch_start(c.cache);
  size_t bytes = 1000;

  for (size_t look = 0; look < LOOKS; look++) {
    for (size_t i = 0; i < t_scaled(STEPS / LOOKS); i++, bytes += 37) {
      crowd_alloc(&c, i % SLOTS, bytes % LARGEST + 64);
      crowd_release(&c, i % SLOTS);
    }
    watch_look(&w);
  }

  const tide_cpu_stats stats = cache_stats(c.cache);
  T_LT(stats.num_misses, stats.num_hits / 4);
  watch_end(&w);
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

// Returns when the other thread has released the block, so that the idle memory does not depend on
// scheduling.
static void relay_put(relay* r, void* address) {
  (void)pthread_mutex_lock(&r->lock);
  r->block = address;
  r->is_over = address == NULL;
  (void)pthread_cond_signal(&r->changed);
  while (r->block != NULL) (void)pthread_cond_wait(&r->changed, &r->lock);
  (void)pthread_mutex_unlock(&r->lock);
}

// One thread only allocates and another only releases: memory must return to the first.
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
      uint8_t* const address = cache_take(r.cache, bytes);
      for (size_t offset = 0; offset < bytes; offset += 4096) address[offset] = 1;
      relay_put(&r, address);
    }
    watch_look(&w);
  }

  relay_put(&r, NULL);
  t_thread_join(thread);
  (void)pthread_cond_destroy(&r.changed);
  (void)pthread_mutex_destroy(&r.lock);
  watch_end(&w);
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
  v[1].cache = v[0].cache;

  for (size_t look = 0; look < LOOKS; look++) {
    for (size_t i = 0; i < t_scaled(1); i++) {
      on_threads(2, visit_run, v, sizeof *v);
      for (size_t k = 0; k < 2; k++) v[k].index += 2;
    }
    watch_look(&w);
  }

  T_LE(cache_stats(v[0].cache).threads, 4);
  watch_end(&w);
}

// A freed cache leaves nothing: the process is as large after hundreds of caches as after a few.
T_TEST(test_cpu_steady__caches_that_come_and_go) {
  size_t mappings = 0;
  uint64_t resident = 0;
  for (size_t look = 0; look < LOOKS; look++) {
    for (size_t i = 0; i < t_scaled(3); i++) {
      crowd c = { .cache = steady_cache(), .rng = t_rng_new(200 + look) };
      for (size_t step = 0; step < 2 * SLOTS; step++) crowd_step(&c);
      crowd_fini(&c);
      cache_close(c.cache);
    }
    if (look < SETTLED) {
      mappings = t_count_mappings();
      resident = process_bytes(true);
    }
    if (T_HAS_SANITIZER) continue;
    T_LE(t_count_mappings(), mappings + 16);
    T_LE(process_bytes(true), resident + 2 * MIB);
  }
}
