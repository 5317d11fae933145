// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Everything at once: threads that allocate, park, use, set budgets, join and leave a ledger, grow ranges,
// attach observers that call back, and end, on several caches of one machine, while calls of the machine and
// allocations of records fail. Blocks have contents (see work.h) that are compared before they are released,
// when they were parked, and by other streams.
//
// It is made of many short runs, each in a process of its own that is watched (watch.h), with a seed of its
// own: the first has that of the test, the next ones those behind it. A run draws what it consists of and how
// often each call is made; some are left out. All threads of a run stop from time to time, when all
// invariants of the caches must hold. At its end nothing may be left: no memory, address, event, stream,
// record, descriptor or thread, and no member of the ledger.
//
//   TIDE_TEST_SCALE          makes the test longer: 1 is 30 runs
//   TIDE_CROSSING_REPEATS    how often each seed is run; threads differ from one time to the next
#define T_THREADS
#include "prop/crossing_calls.h"

// ---------------------------------------------------------------------------------------------------
// Threads

// clang-format off
#define VERBS(X)                                                                                           \
  X(alloc, 160) X(room_alloc, 160) X(release, 240) X(touch, 60) X(swap, 40) X(wait, 20) X(delay, 20)       \
  X(stream, 6) X(reserve, 4) X(errand, 4) X(room_new, 24) X(room_end, 12) X(room_change, 6)                \
  X(room_trim, 8) X(pool, 6) X(capture, 3) X(park, 24) X(unpark, 30) X(use, 40) X(backup, 6) X(read, 6)    \
  X(budget, 12) X(limit, 6) X(join, 12) X(leave, 8) X(neighbour, 4) X(total, 2) X(options, 4) X(range, 24) \
  X(span, 12) X(trim, 6) X(poll, 6) X(snapshot, 2) X(stats, 6) X(history, 4) X(visit, 6) X(observe, 16)    \
  X(fault, 10) X(heap, 10) X(relief, 6)
// clang-format on

typedef struct verb {
  const char* name;
  void (*run)(worker* w);
  uint32_t weight;
} verb;

#define VERB_ROW(name, weight) { #name, do_##name, weight },
static const verb verbs[] = { VERBS(VERB_ROW) };
enum { VERB_COUNT = sizeof verbs / sizeof verbs[0] };

// How often each call is made in this run.
static uint32_t weights[VERB_COUNT];
static uint32_t weight_sum;

// Some are left out, others are made more often.
static void weights_draw(t_rng* rng) {
  weight_sum = 0;
  for (size_t i = 0; i < VERB_COUNT; ++i) {
    static const uint32_t factors[] = { 0, 1, 1, 1, 1, 2, 2, 4 };
    const uint32_t factor = i < 3 ? 1 + (uint32_t)t_rng_below(rng, 2) : factors[t_rng_below(rng, 8)];
    weights[i] = verbs[i].weight * factor;
    weight_sum += weights[i];
  }
}

static void worker_step(worker* w) {
  uint64_t at = below(w, weight_sum);
  size_t i = 0;
  while (at >= weights[i]) at -= weights[i++];
  watch_step(verbs[i].name);
  w->steps++;
  if (w->pool != 0 && w->steps > w->pool_until) pool_close(w);
  verbs[i].run(w);
}

static void* worker_run(void* user) {
  worker* const w = user;
  self = w;
  watch_begin(w->number);
  const uint64_t end = w->steps + w->s->p.steps;
  while (w->steps < end) worker_step(w);
  watch_step("end");
  pool_close(w);
  watch_end();
  return NULL;
}

// ---------------------------------------------------------------------------------------------------
// Runs

static plan plan_draw(t_rng* rng) {
  plan p = { .threads = 8 + t_rng_below(rng, 9), .caches = 1 + t_rng_below(rng, CACHES), .phases = 2 };
  p.steps = 20 + t_rng_below(rng, 100);
  p.capacity = (64 + 32 * t_rng_below(rng, 5)) * MIB;
  p.ledger_bytes = p.capacity / 4 * (1 + t_rng_below(rng, 4));
  p.has_faults = t_rng_below(rng, 2) == 0;
  p.has_heap_faults = t_rng_below(rng, 2) == 0;
  p.is_exhausted = t_rng_below(rng, 2) == 0;
  p.is_untidy = t_rng_below(rng, 3) == 0;
  p.has_rest = t_rng_below(rng, 3) == 0;
  return p;
}

static void member_open(world* s, size_t i) {
  member* const m = &s->members[i];
  tide_device_options options = device_defaults();
  options.heap = &s->records.heap;
  if (s->p.has_rest && i + 1 == s->p.caches) options.policy = TIDE_POLICY_TORCH;
  T_OK(tide_device_new(s->m, 0, &options, &m->d));
  T_EQ(pthread_rwlock_init(&m->touch, NULL), 0);
  T_OK(tide_device_range_new(m->d, SPAN_UNITS * LIMIT_UNIT, &m->span));
  for (size_t k = 0; k < LISTENERS; ++k) m->listeners[k] = (listener){ .s = s, .member = m };
}

// Makes the machine probe itself before calls fail: what it cannot take back from a probe stays with it.
static void machine_probe(tide_machine* m) {
  tide_fault none = TIDE_FAULT_INIT;
  tide_probe probe = TIDE_PROBE_INIT;
  none.call = TIDE_CALL_PEER_QUERY;
  none.status = TIDE_OK;
  T_OK(tide_machine_fault_add(m, &none));
  T_OK(tide_machine_probe(m, 0, TIDE_FEATURE_VIRTUAL_MEMORY, &probe));
  T_CHECK(probe.works && probe.call_count > 0);
  tide_machine_fault_clear(m);
}

static void world_open(world* s, uint64_t seed) {
  t_rng rng = t_rng_of(seed, 0);
  tide_host_options host = TIDE_HOST_OPTIONS_INIT;
  s->p = plan_draw(&rng);
  weights_draw(&rng);
  counting_heap_init(&s->records, SIZE_MAX, s->p.is_exhausted);
  counting_heap_init(&s->machine_records, SIZE_MAX, false);
  host.capacity = s->p.capacity;
  host.heap = &s->machine_records.heap;
  T_OK(tide_machine_new_host(&host, &s->m));
  machine_probe(s->m);
  T_OK(tide_quota_make(ledger_path(), s->p.ledger_bytes));
  T_EQ(pthread_mutex_init(&s->lock, NULL), 0);
  for (size_t i = 0; i + 1 < STREAMS; ++i) s->streams[i] = stream_new(s->m, 0, TIDE_STREAM_NON_BLOCKING);
  for (size_t i = 0; i < s->p.threads; ++i) {
    s->workers[i] = (worker){ .s = s, .number = (uint8_t)i, .rng = t_rng_of(seed, 1 + i) };
    s->workers[i].ordering = event_new(s->m, 0);
    s->workers[i].capturing = stream_new(s->m, 0, TIDE_STREAM_NON_BLOCKING);
  }
  for (size_t i = 0; i < s->p.caches; ++i) member_open(s, i);
}

// What members hold is what they have reserved. A cache that is no member has more. The threads that answer
// asks of others may still be at work.
static bool ledger_is_right(world* s) {
  const ledger_view view = ledger_look(ledger_path());
  uint64_t reserved = 0;
  for (size_t i = 0; i < s->p.caches; ++i) {
    tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
    T_OK(tide_device_get_stats(s->members[i].d, &stats));
    reserved += (uint64_t)stats.reserved_bytes[0].current;
  }
  return view.count == s->p.caches ? view.ledger.held_bytes == reserved : view.ledger.held_bytes <= reserved;
}

// All threads have stopped.
static void world_check(world* s) {
  T_OK(tide_machine_device_synchronize(s->m, 0));
  T_WAIT(ledger_is_right(s));
  if (atomic_load(&is_content_wrong)) T_FAIL("a block has other bytes than were written");
  for (size_t i = 0; i < s->p.caches; ++i) {
    const int broken = tide_device_check(s->members[i].d);
    if (broken != 0) T_FAIL("cache %zu: invariant %d: %s", i, broken, tide_last_error()->text);
  }
}

static void world_phase(world* s) {
  pthread_t threads[CREW];
  for (size_t i = 0; i < s->p.threads; ++i) t_thread_start(&threads[i], worker_run, &s->workers[i]);
  for (size_t i = 0; i < s->p.threads; ++i) t_thread_join(threads[i]);
  world_relieve(s);
  world_check(s);
}

// Every place where a block may be.
static item* place_at(world* s, size_t i) {
  return i < BOARD ? &s->board[i] : &s->workers[(i - BOARD) / PLACES].places[(i - BOARD) % PLACES];
}

static bool show_segment(void* user, const tide_segment_info* segment) {
  (void)user;
  (void)fprintf(stderr, "segment %#" PRIx64 ", %" PRIu64 " bytes, pool %u \"%s\", stream %p%s%s\n",
                segment->address, segment->bytes, segment->pool, segment->tag, (void*)segment->stream,
                segment->is_expandable ? ", expandable" : "", segment->is_parked ? ", parked" : "");
  return true;
}

static bool show_block(void* user, const tide_block_info* block) {
  (void)user;
  (void)fprintf(stderr, "  block %#" PRIx64 ", %" PRIu64 " bytes, state %u\n", block->address, block->bytes,
                block->state);
  return true;
}

// Nothing is reserved, or it is shown.
static void expect_nothing_reserved(member* m) {
  const tide_device_visitor visitor = { show_segment, show_block, NULL };
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  T_OK(tide_device_get_stats(m->d, &stats));
  T_EQ(stats.allocation[0].current, 0);
  if (stats.reserved_bytes[0].current != 0) T_OK(tide_device_visit(m->d, &visitor));
  T_EQ(stats.reserved_bytes[0].current, 0);
}

static void member_tidy(member* m) {
  tide_device_options options = device_defaults();
  for (size_t k = 0; k < LISTENERS; ++k) {
    const tide_observer observer = atomic_exchange(&m->listeners[k].observer, 0);
    if (observer != 0) T_OK(tide_device_detach(m->d, observer));
  }
  for (room* in = atomic_load(&m->all_rooms); in != NULL; in = in->next)
    T_ANY(tide_device_pool_drop(m->d, in->pool));
  T_OK(tide_device_range_free(m->d, m->span));
  T_OK(tide_device_configure(m->d, &options));
  T_OK(tide_device_trim(m->d, 0));
  if (tide_device_check(m->d) != 0) T_FAIL("at the end: %s", tide_last_error()->text);
  expect_nothing_reserved(m);
}

// Gives everything back that threads have, comparing it for the last time.
static void world_tidy(world* s) {
  worker* const w = &s->workers[0];
  self = w;
  for (size_t i = 0; i < BOARD + s->p.threads * PLACES; ++i) {
    item* const it = place_at(s, i);
    if (it->member == NULL) continue;
    item_touch(w, it, it->stream);
    item_give(w, it);
  }
  for (size_t i = 0; i < s->p.threads; ++i) {
    if (s->workers[i].range != NULL) range_end(&s->workers[i]);
    T_CHECK(s->workers[i].range == NULL);
  }
  for (size_t i = 0; i < s->p.caches; ++i) member_tidy(&s->members[i]);
}

static void member_close(member* m) {
  for (room* in = atomic_load(&m->all_rooms); in != NULL;) {
    room* const next = in->next;
    free(in);
    in = next;
  }
  tide_device_free(m->d);
  T_EQ(pthread_rwlock_destroy(&m->touch), 0);
}

static void ledger_expect_empty(void) {
  const ledger_view view = ledger_look(ledger_path());
  T_EQ(view.ledger.member_count, 0);
  T_EQ(view.ledger.held_bytes, 0);
  ledger_end();
}

// What was made and not ended, by the machine's own counts.
static uint64_t left(const world* s, tide_call make, tide_call end) {
  const tide_call_stats made = tide_machine_call_stats(s->m, make);
  const tide_call_stats ended = tide_machine_call_stats(s->m, end);
  return (made.calls - made.failures) - (ended.calls - ended.failures);
}

static void machine_close(world* s) {
  for (size_t i = 0; i < s->p.threads; ++i) {
    T_OK(tide_machine_event_free(s->m, s->workers[i].ordering));
    T_OK(tide_machine_stream_free(s->m, 0, s->workers[i].capturing));
  }
  for (size_t i = 0; i + 1 < STREAMS; ++i) T_OK(tide_machine_stream_free(s->m, 0, s->streams[i]));
  T_EQ(s->p.capacity - free_bytes(s->m, 0), 0);
  T_EQ(left(s, TIDE_CALL_RAW_ALLOC, TIDE_CALL_RAW_RELEASE), 0);
  T_EQ(left(s, TIDE_CALL_PINNED_ALLOC, TIDE_CALL_PINNED_RELEASE), 0);
  T_EQ(left(s, TIDE_CALL_PINNED_REGISTER, TIDE_CALL_PINNED_UNREGISTER), 0);
  T_EQ(left(s, TIDE_CALL_ADDRESS_RESERVE, TIDE_CALL_ADDRESS_RELEASE), 0);
  T_EQ(left(s, TIDE_CALL_PHYSICAL_NEW, TIDE_CALL_PHYSICAL_FREE), 0);
  T_EQ(left(s, TIDE_CALL_EVENT_NEW, TIDE_CALL_EVENT_FREE), 0);
  T_EQ(left(s, TIDE_CALL_STREAM_NEW, TIDE_CALL_STREAM_FREE), 0);
  tide_machine_free(s->m);
}

static void play(uint64_t seed) {
  static world s;
  const size_t descriptors = t_count_descriptors();
  const size_t threads = t_count_threads();
  world_open(&s, seed);
  for (size_t i = 0; i < s.p.phases; ++i) world_phase(&s);
  watch_begin(CREW);
  watch_step("the end");
  if (!s.p.is_untidy) world_tidy(&s);
  atomic_store(&s.is_ending, true);
  for (size_t i = 0; i < s.p.caches; ++i) member_close(&s.members[i]);
  if (atomic_load(&is_content_wrong)) T_FAIL("a block has other bytes than were written");
  ledger_expect_empty();
  machine_close(&s);
  if (T_HAS_ADDRESS_SANITIZER && atomic_load(&s.records.outstanding) != 0)
    exit(1);  // the leak checker shows it
  T_EQ(atomic_load(&s.records.outstanding), 0);
  T_EQ(atomic_load(&s.machine_records.outstanding), 0);
  T_EQ(t_count_descriptors(), descriptors);
  T_WAIT(t_count_threads() <= threads + T_HAS_THREAD_SANITIZER);
}

static const char* const variants[] = { "host", "host tide", NULL };

T_TEST_OVER(prop_crossing__everything_at_once, variants) {
  const size_t repeats = (size_t)t_env_number("TIDE_CROSSING_REPEATS", 1);
  const size_t runs = t_scaled(30);
  watch_open();
  for (size_t i = 0; i < runs; ++i) {
    for (size_t k = 0; k < repeats; ++k) watch_run(play, t_seed() + i);
  }
}
