// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What threads of prop_crossing.c do with limits, ledgers, ranges, observers and faults, and how they look at
// all that.
#ifndef TIDEMARK_TESTS_CROSSING_CALLS_H
#define TIDEMARK_TESTS_CROSSING_CALLS_H

#include "prop/crossing_memory.h"

// ---------------------------------------------------------------------------------------------------
// Limits and ledgers

static uint64_t any_limit(worker* w) {
  return chance(w, 3) ? TIDE_NO_LIMIT : LIMIT_UNIT * below(w, w->s->p.capacity / LIMIT_UNIT / 2);
}

static void do_budget(worker* w) {
  member* const m = any_member(w);
  const char* const tag = any_tag(w);
  tide_budget budget = TIDE_BUDGET_INIT;
  budget.limit = any_limit(w);
  budget.soft_limit = any_limit(w);
  budget.guarantee = chance(w, 3) ? LIMIT_UNIT * below(w, 5) : 0;
  if (budget.guarantee > budget.limit) budget.guarantee = budget.limit;
  budget.yields = !chance(w, 4);
  budget.is_constant = is_under(tag, "fixed") && chance(w, 2);
  budget.priority = (int32_t)below(w, 3);
  (void)ASKED(w->s, tide_device_budget_set(m->d, tag, chance(w, 4) ? NULL : &budget), 0);
}

static void do_limit(worker* w) {
  member* const m = any_member(w);
  const uint64_t capacity = w->s->p.capacity;
  const uint64_t limit = capacity / 4 + below(w, capacity);
  T_OK(tide_device_set_limit(m->d, chance(w, 3) ? TIDE_NO_LIMIT : limit));
}

static void do_join(worker* w) {
  member* const m = any_member(w);
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  options.ledger = ledger_path();
  options.guarantee_bytes = chance(w, 2) ? 0 : LIMIT_UNIT * below(w, 6);
  options.wait_ns = below(w, 3) * UINT64_C(1500000);
  options.priority = (int32_t)below(w, 3);
  (void)ASKED(w->s, tide_device_join(m->d, &options), MAY(TIDE_ERR_STATE) | MAY(TIDE_ERR_LIMIT));
}

static void do_leave(worker* w) { tide_device_leave(any_member(w)->d); }

// Somebody else in the ledger, who asks for memory.
static void do_neighbour(worker* w) {
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  tide_quota* quota = NULL;
  options.ledger = ledger_path();
  options.wait_ns = below(w, 3) * UINT64_C(1000000);
  options.priority = (int32_t)below(w, 3);
  if (!ASKED(w->s, tide_quota_join(&options, &quota), MAY(TIDE_ERR_LIMIT))) return;
  const uint64_t bytes = LIMIT_UNIT * (1 + below(w, w->s->p.ledger_bytes / LIMIT_UNIT));
  (void)ASKED(w->s, tide_quota_take(quota, bytes), MAY(TIDE_ERR_LIMIT));
  tide_quota_leave(quota);
}

static void do_total(worker* w) {
  const uint64_t total = w->s->p.ledger_bytes;
  const uint64_t bytes = chance(w, 2) ? total : total / 2 + below(w, total / 2);
  (void)ASKED(w->s, tide_quota_set_total(ledger_path(), bytes), MAY(TIDE_ERR_LIMIT));
}

static void do_options(worker* w) {
  static const char* const texts[] = { "tide_idle_handles:0",
                                       "tide_idle_handles:4,tide_slack:0.1",
                                       "tide_slack:0,tide_wait_slack:0",
                                       "tide_least_handle_mb:2,tide_most_handle_mb:2",
                                       "tide_least_handle_mb:4,tide_most_handle_mb:16",
                                       "tide_most_handle_mb:128",
                                       "tide_stitch_share:0.05",
                                       "tide_floor_mb:8",
                                       "captures_by_stream:True",
                                       "plain_pools:True",
                                       "expandable_segments:True",
                                       "fixes:True",
                                       "garbage_collection_threshold:0.5",
                                       "max_split_size_mb:20" };
  member* const m = any_member(w);
  tide_device_options options = device_defaults();
  T_OK(tide_device_options_parse(texts[below(w, sizeof texts / sizeof texts[0])], &options));
  if (chance(w, 3)) options = device_defaults();
  (void)ASKED(w->s, tide_device_configure(m->d, &options), 0);
}

// ---------------------------------------------------------------------------------------------------
// Ranges

static void unit_touch(worker* w, size_t i) {
  if (w->units[i].address != NULL) INSIST(w->s, work_read(w->s->m, w->unit_streams[i], w->units[i]));
}

// Units are committed one by one, so that they go one by one.
static void unit_commit(worker* w, size_t i) {
  const uint64_t unit = tide_range_unit(w->range);
  const tide_stream stream = stream_of(w, any_stream(w));
  if (w->units[i].address != NULL) return;
  if (!ASKED(w->s, tide_device_range_commit(w->range_member->d, w->range, stream, i * unit, unit),
             ALLOC_MASK))
    return;
  uint8_t* const address = (uint8_t*)tide_range_address(w->range) + i * unit;
  w->units[i] = (content){ address, unit, 1 + atomic_fetch_add(&w->s->tags, 1) };
  w->unit_streams[i] = stream;
  INSIST(w->s, work_write(w->s->m, stream, w->units[i]));
}

// After an error a part may be gone. What is left is committed again later, by any stream.
static void units_forget(worker* w, size_t first, size_t count) {
  memset(&w->units[first], 0, count * sizeof w->units[0]);
}

static void units_wait(worker* w) {
  for (size_t i = 0; i < RANGE_UNITS; ++i)
    INSIST(w->s, tide_machine_stream_synchronize(w->s->m, 0, w->unit_streams[i]));
}

static void range_end(worker* w) {
  for (size_t i = 0; i < RANGE_UNITS; ++i) unit_touch(w, i);
  units_forget(w, 0, RANGE_UNITS);
  if (ASKED(w->s, tide_device_range_free(w->range_member->d, w->range), MAY(TIDE_ERR_CAPTURE)))
    w->range = NULL;
  else units_wait(w);
}

static void units_decommit(worker* w) {
  const uint64_t unit = tide_range_unit(w->range);
  const size_t first = below(w, RANGE_UNITS);
  const size_t count = 1 + below(w, RANGE_UNITS - first);
  for (size_t i = first; i < first + count; ++i) unit_touch(w, i);
  tide_device_cache* const d = w->range_member->d;
  units_forget(w, first, count);
  if (!ASKED(w->s, tide_device_range_decommit(d, w->range, first * unit, count * unit),
             MAY(TIDE_ERR_CAPTURE)))
    units_wait(w);
}

static void do_range(worker* w) {
  if (w->range == NULL) {
    w->range_member = any_member(w);
    const uint64_t bytes = RANGE_UNITS * 4 * LIMIT_UNIT;
    (void)ASKED(w->s, tide_device_range_new(w->range_member->d, bytes, &w->range), MAY(TIDE_ERR_UNSUPPORTED));
    return;
  }
  const uint64_t what = below(w, 8);
  if (what < 5) unit_commit(w, below(w, RANGE_UNITS));
  else if (what < 7) units_decommit(w);
  else range_end(w);
}

// The range that all threads use.
static void do_span(worker* w) {
  member* const m = any_member(w);
  if (m->span == NULL) return;
  const uint64_t unit = tide_range_unit(m->span);
  const uint64_t first = below(w, SPAN_UNITS);
  const uint64_t bytes = (1 + below(w, SPAN_UNITS - first)) * unit;
  const tide_stream stream = stream_of(w, any_stream(w));
  if (chance(w, 2)) {
    (void)ASKED(w->s, tide_device_range_commit(m->d, m->span, stream, first * unit, bytes), ALLOC_MASK);
  } else {
    (void)ASKED(w->s, tide_device_range_decommit(m->d, m->span, first * unit, bytes), MAY(TIDE_ERR_CAPTURE));
  }
}

// ---------------------------------------------------------------------------------------------------
// Looking

static void do_trim(worker* w) {
  const uint64_t keep = chance(w, 2) ? 0 : below(w, w->s->p.capacity / 4);
  (void)ASKED(w->s, tide_device_trim(any_member(w)->d, keep), MAY(TIDE_ERR_CAPTURE));
}

static void do_poll(worker* w) {
  (void)ASKED(w->s, tide_device_poll(any_member(w)->d), MAY(TIDE_ERR_CAPTURE));
}

static void do_snapshot(worker* w) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  (void)ASKED(w->s, tide_device_snapshot(any_member(w)->d, NULL, trace), 0);
  tide_trace_free(trace);
}

static void do_stats(worker* w) {
  member* const m = any_member(w);
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  tide_tag_stats tag = TIDE_TAG_STATS_INIT;
  tide_budget_stats budget = TIDE_BUDGET_STATS_INIT;
  T_OK(tide_device_get_stats(m->d, &stats));
  T_LE(0, stats.reserved_bytes[0].current);
  T_LE((uint64_t)stats.reserved_bytes[0].current, w->s->p.capacity);
  (void)ASKED(w->s, tide_device_tag_stats(m->d, any_tag_or_all(w), &tag), MAY(TIDE_ERR_HANDLE));
  (void)ASKED(w->s, tide_device_budget_stats(m->d, any_tag(w), &budget), 0);
  if (chance(w, 4)) tide_device_reset_peaks(m->d);
}

static size_t frames_make(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  const size_t count = capacity < 3 ? capacity : 3;
  for (size_t i = 0; i < count; ++i) frames[i] = 0x1000 + (self != NULL ? self->steps % 16 : 0) + i;
  return count;
}

static void do_history(worker* w) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.is_on = !chance(w, 3);
  options.clears = chance(w, 4);
  options.max_entries = 1 + below(w, 300);
  options.level = (uint8_t)below(w, TIDE_HISTORY_ALL + 1);
  if (options.level != TIDE_HISTORY_NEVER) options.gather = frames_make;
  (void)ASKED(w->s, tide_device_history(any_member(w)->d, &options), 0);
}

static bool see_entries(void* user, const tide_trace_entry* entries, size_t count) {
  size_t* const sum = user;
  for (size_t i = 0; i < count; ++i) *sum += entries[i].bytes;
  return true;
}

static bool see_segment(void* user, const tide_segment_info* segment) {
  size_t* const sum = user;
  *sum += segment->bytes;
  return true;
}

static bool see_block(void* user, const tide_block_info* block) {
  size_t* const sum = user;
  *sum += block->bytes;
  return true;
}

static bool see_tag(void* user, const char* tag) {
  size_t* const sum = user;
  *sum += strlen(tag);
  return true;
}

static void see_stack(void* user, uint32_t stack) {
  size_t* const sum = user;
  *sum += stack;
}

static void do_visit(worker* w) {
  tide_device_cache* const d = any_member(w)->d;
  size_t sum = 0;
  const tide_device_visitor visitor = { see_segment, chance(w, 2) ? see_block : NULL, &sum };
  switch (below(w, 5)) {
    case 0: (void)ASKED(w->s, tide_device_history_visit(d, see_entries, &sum), 0); break;
    case 1: (void)ASKED(w->s, tide_device_visit_tags(d, see_tag, &sum), 0); break;
    case 2: (void)ASKED(w->s, tide_device_visit_stacks(d, see_stack, &sum), 0); break;
    case 3: (void)ASKED(w->s, tide_device_annotate(d, "crossing"), 0); break;
    default: (void)ASKED(w->s, tide_device_visit(d, &visitor), 0); break;
  }
}

// ---------------------------------------------------------------------------------------------------
// Observers

static void spin(uint64_t turns) {
  for (volatile uint64_t i = turns; i > 0; --i) continue;
}

// Calls of an observer. It takes no lock that a call may need, and waits for no thread.
static void callback_call(worker* w, member* m, uint64_t what) {
  const tide_stream stream = stream_of(w, w->number);
  tide_block block = { NULL, 0 };
  switch (what) {
    case 0: do_stats(w); break;
    case 1: do_poll(w); break;
    case 2: do_trim(w); break;
    case 3: do_unpark(w); break;
    case 4: do_visit(w); break;
    case 5: do_limit(w); break;
    case 6: do_budget(w); break;
    case 7: do_span(w); break;
    case 8:
      if (pthread_rwlock_trywrlock(&m->touch) != 0) break;
      tag_park(w, m, any_tag(w));
      T_EQ(pthread_rwlock_unlock(&m->touch), 0);
      break;
    case 9:
      if (!ASKED(w->s, tide_device_use(m->d, tags[w->steps % TAGS], stream), USE_MASK)) break;
      T_OK(tide_device_done(m->d, tags[w->steps % TAGS], stream));
      break;
    default:
      (void)ASKED(w->s, tide_device_alloc(m->d, stream, any_bytes(w), &block), ALLOC_MASK);
      T_OK(tide_device_release(m->d, block));
      break;
  }
}

// Nothing, or slow, or a call of this cache: two that call each other could wait for each other. Threads of
// the library only take their time.
static void listener_hear(listener* l, const char* callback) {
  const unsigned number = atomic_fetch_add(&l->calls, 1);
  if (atomic_load(&l->s->is_ending)) return;
  if (number % 8 == 3) spin(2000 * (number % 5));
  if (number % 8 == 5) (void)sched_yield();
  worker* const w = self;
  if (w == NULL || w->hearing != NULL || number % 16 != 0) return;
  const char* const before = watch_enter(callback);
  w->hearing = l->member;
  callback_call(w, l->member, below(w, 14));
  w->hearing = NULL;
  watch_leave(before);
}

static void hear_trace(void* user, const tide_trace_entry* entry) {
  (void)entry;
  listener_hear(user, "trace");
}

static void hear_entry(void* user, const tide_trace_entry* entry, uint64_t number) {
  (void)entry, (void)number;
  listener_hear(user, "entries");
}

static void hear_oom(void* user, const tide_oom* oom) {
  (void)oom;
  listener_hear(user, "oom");
}

// Releases a block of the thread that asks, if it has one there.
static bool callback_release(const member* m) {
  worker* const w = self;
  for (size_t i = 0; w != NULL && i < PLACES; ++i) {
    if (w->places[i].member != m || &w->places[i] == w->held) continue;
    item_give(w, &w->places[i]);
    return true;
  }
  return false;
}

static bool hear_reclaim(void* user, tide_device_cache* device) {
  listener* const l = user;
  (void)device;
  listener_hear(l, "reclaim");
  return atomic_load(&l->calls) % 4 == 1 && callback_release(l->member);
}

static void hear_pressure(void* user, tide_device_cache* device, const tide_pressure* pressure) {
  listener* const l = user;
  (void)device, (void)pressure;
  listener_hear(l, "pressure");
  if (atomic_load(&l->calls) % 2 == 1) (void)callback_release(l->member);
}

static void do_observe(worker* w) {
  member* const m = any_member(w);
  listener* const l = &m->listeners[below(w, LISTENERS)];
  tide_observer observer = atomic_exchange(&l->observer, 0);
  tide_status status = TIDE_OK;
  if (observer != 0) {
    T_OK(tide_device_detach(m->d, observer));
    return;
  }
  switch (below(w, 6)) {
    case 0: status = tide_device_observe_oom(m->d, hear_oom, l, &observer); break;
    case 1: status = tide_device_observe_entries(m->d, hear_entry, l, &observer); break;
    case 2: status = tide_device_observe_reclaim(m->d, hear_reclaim, l, &observer); break;
    case 3: status = tide_device_observe_pressure(m->d, hear_pressure, l, &observer); break;
    default: status = tide_device_observe_trace(m->d, hear_trace, l, &observer); break;
  }
  if (!expect_one_of(w->s, "device_observe", status, MAY(TIDE_ERR_LIMIT))) return;
  observer = atomic_exchange(&l->observer, observer);
  if (observer != 0) T_OK(tide_device_detach(m->d, observer));
}

// ---------------------------------------------------------------------------------------------------
// Faults

// Calls fail, or take long.
static void do_fault(worker* w) {
  const uint64_t bits = t_rng_next(&w->rng);
  const op o = { 0, (uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint32_t)(bits >> 32) };
  faults f = { .m = w->s->m };
  if (!w->s->p.has_faults) return;
  faults_draw(&f, &o);
  if (chance(w, 3)) f.fault.status = TIDE_OK, f.fault.latency_ns = below(w, 300000), f.fault.count = 8;
  tide_machine_fault_clear(w->s->m);
  T_ANY(tide_machine_fault_add(w->s->m, &f.fault));  // others add theirs
}

static void do_heap(worker* w) {
  world* const s = w->s;
  counting_heap* const heap = chance(w, 8) ? &s->machine_records : &s->records;
  if (!s->p.has_heap_faults) return;
  const bool is_set = atomic_load(&heap->fail_at) != SIZE_MAX && s->p.is_exhausted;
  atomic_store(&heap->fail_at, is_set ? SIZE_MAX : atomic_load(&heap->allocs) + below(w, 40));
}

static void do_relief(worker* w) { world_relieve(w->s); }

#endif
