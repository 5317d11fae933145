// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A new ledger follows all entries once, to find peaks and faults. If something contradicts an empty
// beginning, the state before the first entry is inferred from the end, and the entries are followed again
// from there. Seeking forward continues; seeking backward begins again.
//
// Cost: O(log m) per entry, with m blocks; up to three times as much for a trace that begins in the middle.
#include "tidemark/ledger.h"

#include <string.h>

#include "base/arith.h"
#include "base/check.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"
#include "ledger/growths.h"
#include "trace/limit.h"

#define LEDGER_AUDIT_EVERY 1024u  // entries between two checks of the layout, with assertions
#define LEDGER_NOTES_SHARE 8u  // to note the changes of an entry costs as much as to walk over so many blocks

// [G1] the layout is the state after entries[next - 1], unless the ledger is_lost
struct tide_ledger {
  const tide_heap* heap;  // of the trace; borrowed until the ledger is freed, like entries
  const tide_trace_entry* entries;
  uint64_t entry_count;
  uint64_t next;
  bool is_lost;                     // no memory for the state before the first entry
  const tide__layout_watch* watch;  // of the layout; NULL but in tide_ledger_watch()
  tide__rules rules;
  tide__layout layout;
  tide__finals finals;
  tide__before before;
  tide_ledger_peaks peaks;
  tide_ledger_faults faults;
};

// ---------------------------------------------------------------------------------------------------
// Moving

static tide_status ledger_rewind(tide_ledger* ledger) {
  tide__layout_fini(&ledger->layout);
  tide__layout_init(&ledger->layout, ledger->heap, &ledger->rules);
  ledger->layout.watch = ledger->watch;
  ledger->next = 0;
  ledger->is_lost = true;
  TIDE_TRY(tide__before_load(&ledger->before, &ledger->layout));
  ledger->is_lost = false;
  return TIDE_OK;
}

static tide_status ledger_step(tide_ledger* ledger, tide__oddity* out) {
  TIDE_REQUIRE(tide__layout_prepare(&ledger->layout), TIDE_ERR_NO_MEMORY,
               "ledger: no memory for blocks at entry %llu", (unsigned long long)ledger->next);
  const tide_trace_entry* const entry = &ledger->entries[ledger->next];
  *out = tide__follow_entry(&ledger->layout, &ledger->finals, entry, ledger->next);
  ledger->next++;
  TIDE_AUDIT(ledger->next % LEDGER_AUDIT_EVERY != 0 || tide__layout_check(&ledger->layout) == 0);
  return TIDE_OK;
}

tide_status tide_ledger_seek(tide_ledger* ledger, uint64_t at) {
  TIDE_REQUIRE(ledger != NULL, TIDE_ERR_ARGUMENT, "ledger_seek: ledger is NULL");
  TIDE_REQUIRE(at == TIDE_LEDGER_BEFORE || at < ledger->entry_count, TIDE_ERR_ARGUMENT,
               "ledger_seek: entry %llu does not exist; there are %llu", (unsigned long long)at,
               (unsigned long long)ledger->entry_count);
  const uint64_t next = at + 1;  // 0 before the first
  if (ledger->is_lost || next < ledger->next) TIDE_TRY(ledger_rewind(ledger));
  tide__oddity odd = TIDE__ODD_NONE;
  while (ledger->next < next) TIDE_TRY(ledger_step(ledger, &odd));
  TIDE_AUDIT(tide__layout_check(&ledger->layout) == 0);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The first time

static tide_ledger_peaks peaks_of_nothing(void) {
  const tide_ledger_peak none = { 0, TIDE_LEDGER_BEFORE };
  return (tide_ledger_peaks){ none, none, none, none, none, none };
}

static void peak_raise(tide_ledger_peak* peak, uint64_t bytes, uint64_t at) {
  if (bytes > peak->bytes) *peak = (tide_ledger_peak){ bytes, at };
}

// A block that waits has at least the bytes that its request counts for.
static uint64_t held_bytes(const tide_ledger_totals* totals) {
  const uint64_t waiting = totals->active_bytes - totals->allocated_bytes;
  return totals->live_bytes - tide__min(totals->live_bytes, waiting);
}

static void peaks_raise(tide_ledger_peaks* peaks, const tide_ledger_totals* totals, uint64_t at) {
  peak_raise(&peaks->live, totals->live_bytes, at);
  peak_raise(&peaks->requested, totals->requested_bytes, at);
  peak_raise(&peaks->allocated, totals->allocated_bytes, at);
  peak_raise(&peaks->active, totals->active_bytes, at);
  peak_raise(&peaks->reserved, totals->reserved_bytes, at);
  peak_raise(&peaks->held, held_bytes(totals), at);
}

static void faults_count(tide_ledger_faults* faults, tide__oddity odd) {
  switch (odd) {
    case TIDE__ODD_NONE: break;
    case TIDE__ODD_UNKNOWN: faults->unknown_frees++; break;
    case TIDE__ODD_HOMELESS: faults->homeless_allocs++; break;
    case TIDE__ODD_OVERLAP: faults->overlaps++; break;
    case TIDE__ODD_SPAN: faults->odd_segments++; break;
  }
}

static bool faults_are_none(const tide_ledger_faults* faults) {
  return faults->unknown_frees == 0 && faults->homeless_allocs == 0 && faults->overlaps == 0 &&
         faults->odd_segments == 0 && faults->differences == 0;
}

static tide_ledger_faults faults_at_start(const tide__before* before) {
  return (tide_ledger_faults){ .blocks_before = before->block_count,
                               .bytes_before = before->bytes,
                               .segments_before = before->span_count,
                               .is_from_start = before->span_count == 0 };
}

// Follows all entries for peaks and faults; with `stops_at_fault`, up to the first fault.
static tide_status ledger_follow(tide_ledger* ledger, const tide_trace* trace, bool stops_at_fault) {
  ledger->peaks = peaks_of_nothing();
  ledger->faults = faults_at_start(&ledger->before);
  peaks_raise(&ledger->peaks, &ledger->layout.totals, TIDE_LEDGER_BEFORE);
  while (ledger->next < ledger->entry_count) {
    tide__oddity odd = TIDE__ODD_NONE;
    TIDE_TRY(ledger_step(ledger, &odd));
    peaks_raise(&ledger->peaks, &ledger->layout.totals, ledger->next - 1);
    faults_count(&ledger->faults, odd);
    if (odd != TIDE__ODD_NONE && stops_at_fault) return TIDE_OK;
  }
  if (tide_trace_get_about(trace).has_segments) {
    ledger->faults.differences = tide__finals_compare(&ledger->finals, &ledger->layout);
  }
  return TIDE_OK;
}

static tide_status ledger_build(tide_ledger* ledger, const tide_trace* trace, size_t device) {
  TIDE_TRY(tide__finals_init(&ledger->finals, trace, device));
  TIDE_TRY(ledger_follow(ledger, trace, true));
  if (faults_are_none(&ledger->faults)) return TIDE_OK;
  TIDE_TRY(ledger_rewind(ledger));
  TIDE_TRY(tide__before_find(&ledger->before, &ledger->layout, &ledger->finals, ledger->entries,
                             ledger->entry_count));
  TIDE_TRY(ledger_rewind(ledger));
  return ledger_follow(ledger, trace, false);
}

tide_status tide_ledger_new(const tide_trace* trace, size_t device, tide_ledger** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "ledger_new: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(trace != NULL, TIDE_ERR_ARGUMENT, "ledger_new: trace is NULL");
  const tide_heap* const heap = tide__trace_heap(trace);
  tide_ledger* const ledger = tide__heap_alloc(heap, 1, sizeof *ledger);
  TIDE_REQUIRE(ledger != NULL, TIDE_ERR_NO_MEMORY, "ledger_new: no memory for the ledger");
  size_t count = 0;
  ledger->heap = heap;
  ledger->entries = tide_trace_entries(trace, device, &count);
  ledger->entry_count = count;
  ledger->rules = tide__rules_of(trace);
  tide__layout_init(&ledger->layout, heap, &ledger->rules);
  const tide_status status = ledger_build(ledger, trace, device);
  if (status != TIDE_OK) tide_ledger_free(ledger);
  else *out = ledger;
  return status;
}

void tide_ledger_free(tide_ledger* ledger) {
  if (ledger == NULL) return;
  tide__layout_fini(&ledger->layout);
  tide__finals_fini(&ledger->finals, ledger->heap);
  tide__before_fini(&ledger->before, ledger->heap);
  tide__heap_release(ledger->heap, ledger, 1, sizeof *ledger);
}

// ---------------------------------------------------------------------------------------------------
// Looking

tide_ledger_totals tide_ledger_get_totals(const tide_ledger* ledger) {
  tide_ledger_totals totals = { .at = TIDE_LEDGER_BEFORE };
  if (ledger == NULL) return totals;
  totals = ledger->layout.totals;
  totals.at = ledger->next - 1;
  return totals;
}

tide_ledger_peaks tide_ledger_get_peaks(const tide_ledger* ledger) {
  return ledger != NULL ? ledger->peaks : peaks_of_nothing();
}

tide_ledger_faults tide_ledger_get_faults(const tide_ledger* ledger) {
  return ledger != NULL ? ledger->faults : (tide_ledger_faults){ 0 };
}

static tide_ledger_block block_of_tile(const tide__tile* tile) {
  return (tide_ledger_block){ .address = tile->node.key,
                              .bytes = tile->bytes,
                              .requested_bytes = tile->requested_bytes,
                              .made_at = tile->made_at,
                              .stack = tile->stack,
                              .state = tile->state };
}

static tide_ledger_segment segment_of_span(const tide__span* span, const tide__tile* first) {
  tide_ledger_segment segment = { .address = span->node.key,
                                  .bytes = span->bytes,
                                  .stream = span->stream,
                                  .made_at = span->made_at,
                                  .pool = span->pool,
                                  .stack = span->stack,
                                  .is_large = span->is_large,
                                  .is_expandable = span->is_expandable,
                                  .is_parked = span->is_parked };
  for (const tide__tile* tile = first; tile != NULL && (tile == first || !tile->is_first);
       tile = tile->next) {
    segment.block_count++;
    if (tile->state != TIDE_BLOCK_INACTIVE) segment.active_bytes += tile->bytes;
  }
  return segment;
}

void tide_ledger_visit(const tide_ledger* ledger,
                       bool (*on_segment)(void* user, const tide_ledger_segment* segment),
                       bool (*on_block)(void* user, const tide_ledger_block* block), void* user) {
  if (ledger == NULL) return;
  for (const tide__tile* tile = ledger->layout.first; tile != NULL; tile = tile->next) {
    if (tile->is_first && on_segment != NULL) {
      const tide__span* const span = tide__layout_span_from(&ledger->layout, tile->node.key);
      const tide_ledger_segment segment = segment_of_span(span, tile);
      if (!on_segment(user, &segment)) return;
    }
    const tide_ledger_block block = block_of_tile(tile);
    if (on_block != NULL && !on_block(user, &block)) return;
  }
}

// ---------------------------------------------------------------------------------------------------
// Memory over time

static tide_status timeline_follow(tide_ledger* ledger, bool is_time, tide_timeline* line) {
  TIDE_TRY(tide_ledger_seek(ledger, TIDE_LEDGER_BEFORE));
  tide_timeline_start(line, &ledger->layout.totals);
  while (ledger->next < ledger->entry_count) {
    tide__oddity odd = TIDE__ODD_NONE;
    const uint64_t position = is_time ? ledger->entries[ledger->next].time_ns : ledger->next;
    TIDE_TRY(ledger_step(ledger, &odd));
    tide_timeline_add(line, position, &ledger->layout.totals);
  }
  tide_timeline_finish(line);
  return TIDE_OK;
}

// Divides the axis equally: bucket i begins at begin + width * i / count, without an overflow.
static void timeline_divide(const tide_ledger* ledger, bool is_time, size_t count,
                            tide_timeline_bucket* out) {
  const uint64_t begin = is_time && ledger->entry_count > 0 ? ledger->entries[0].time_ns : 0;
  uint64_t end = is_time ? begin : ledger->entry_count;
  for (uint64_t i = 0; i < ledger->entry_count && is_time; i++)
    end = tide__max(end, ledger->entries[i].time_ns);
  const uint64_t width = end - begin;
  for (size_t i = 0; i < count; i++) out[i].begin = begin + width / count * i + width % count * i / count;
}

tide_status tide_ledger_timeline(tide_ledger* ledger, uint32_t axis, size_t count,
                                 tide_timeline_bucket* out) {
  TIDE_REQUIRE(ledger != NULL && out != NULL, TIDE_ERR_ARGUMENT, "ledger_timeline: ledger or out is NULL");
  TIDE_REQUIRE(axis <= TIDE_TIMELINE_TIME, TIDE_ERR_ARGUMENT, "ledger_timeline: %u is not an axis",
               (unsigned)axis);
  TIDE_REQUIRE(count > 0 && count <= UINT32_MAX, TIDE_ERR_ARGUMENT,
               "ledger_timeline: %zu buckets are not possible", count);
  const bool is_time = axis == TIDE_TIMELINE_TIME;
  tide_timeline line = { .buckets = out, .count = count };
  timeline_divide(ledger, is_time, count, out);
  const tide_status status = timeline_follow(ledger, is_time, &line);
  if (status != TIDE_OK) memset(out, 0, count * sizeof *out);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Why memory was reserved

// Moves on to the point before an entry. Few entries change few spans, which are noted; many are followed
// faster than that, and all spans are added up again.
static tide_status ledger_move_on(tide_ledger* ledger, uint64_t next) {
  const tide_ledger_totals* const totals = &ledger->layout.totals;
  const uint64_t blocks = totals->live_count + totals->segment_count;
  if (ledger->is_lost || next < ledger->next || next - ledger->next > blocks / LEDGER_NOTES_SHARE) {
    TIDE_TRY(tide_ledger_seek(ledger, next - 1));
    ledger->layout.generation++;
    return TIDE_OK;
  }
  while (ledger->next < next) {
    tide__oddity odd = TIDE__ODD_NONE;
    TIDE_TRY(ledger_step(ledger, &odd));
    tide__growths_touch(&ledger->layout, &ledger->entries[ledger->next - 1]);
  }
  return TIDE_OK;
}

// Memory that comes back was mapped for no request, although one may follow.
static void growth_note_unparked(const tide__layout* layout, tide_growth* growth) {
  if (!tide__growth_is_unparked(layout, growth)) return;
  growth->cause = TIDE_GROWTH_UNPARKED;
  growth->request_at = TIDE_LEDGER_BEFORE;
  growth->requested_bytes = growth->rounded_bytes = 0;
  growth->stack = 0;
}

// Growths of one request have the findings of the first.
static tide_status ledger_judge(tide_ledger* ledger, tide__growths* growths, tide_growth* growth) {
  if (growth->at == TIDE_LEDGER_BEFORE) return TIDE_OK;
  tide__growth_find_request(growth, &ledger->rules, ledger->entries, ledger->entry_count);
  const uint64_t first = tide__growth_first(growth, ledger->entries);
  TIDE_TRY(ledger_move_on(ledger, first));
  growth_note_unparked(&ledger->layout, growth);
  return tide__growth_judge(growths, &ledger->layout, growth);
}

static tide_status ledger_explain(tide_ledger* ledger, tide__growths* growths, uint64_t at,
                                  bool (*on_growth)(void* user, const tide_growth* growth), void* user) {
  TIDE_TRY(tide__growths_find(growths, &ledger->before, ledger->entries, at + 1, &ledger->layout));
  for (size_t i = 0; i < growths->count; i++) {
    TIDE_TRY(ledger_judge(ledger, growths, &growths->items[i]));
    if (!on_growth(user, &growths->items[i])) break;
  }
  return tide_ledger_seek(ledger, at);
}

tide_status tide_ledger_explain(tide_ledger* ledger, uint64_t at,
                                bool (*on_growth)(void* user, const tide_growth* growth), void* user) {
  TIDE_REQUIRE(on_growth != NULL, TIDE_ERR_ARGUMENT, "ledger_explain: on_growth is NULL");
  TIDE_TRY(tide_ledger_seek(ledger, at));
  tide__growths growths;
  tide__growths_init(&growths, ledger->heap);
  const tide_status status = ledger_explain(ledger, &growths, at, on_growth, user);
  tide__growths_fini(&growths);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Watching

#define WATCH_VISITS ((uint64_t)1 << 26)  // of segments, to find causes

typedef struct ledger_watch {
  tide_ledger* ledger;  // borrowed during the call, like the next
  const tide_ledger_watcher* watcher;
  tide__growths growths;
  tide_growth growth;  // the last one that was judged
  uint64_t growth_at;  // its number; TIDE_LEDGER_BEFORE: none
  uint64_t visits;     // of segments, so far
} ledger_watch;

static uint64_t watch_number(const ledger_watch* w) {
  return w->ledger->is_lost ? TIDE_LEDGER_BEFORE : w->ledger->next;
}

static void watch_on_tile(void* user, tide_ledger_event event, const tide__tile* tile) {
  const ledger_watch* const w = user;
  if (w->watcher->on_block == NULL) return;
  const tide_ledger_block block = block_of_tile(tile);
  w->watcher->on_block(w->watcher->user, event, watch_number(w), &block);
}

static uint32_t watch_cause(const ledger_watch* w, uint64_t at) {
  if (at == TIDE_LEDGER_BEFORE) return TIDE_GROWTH_BEFORE;
  return w->growth_at == at ? w->growth.cause : (uint32_t)TIDE_GROWTH_UNKNOWN;
}

static void watch_on_range(void* user, tide_ledger_event event, const tide__span* span, uint64_t from,
                           uint64_t to) {
  const ledger_watch* const w = user;
  const uint64_t at = watch_number(w);
  const bool is_growth = event == TIDE_LEDGER_BEGINS && !span->is_made_up && !span->is_parked;
  void (*const tell)(void*, tide_ledger_event, uint64_t, const tide_ledger_range*) =
      span->is_parked ? w->watcher->on_parked : w->watcher->on_range;
  if (tell == NULL) return;
  const tide_ledger_range range = {
    .address = from,
    .bytes = to - from,
    .stream = span->stream,
    .pool = span->pool,
    .stack = span->stack,
    .cause = is_growth ? watch_cause(w, at) : (uint32_t)TIDE_GROWTH_UNKNOWN,
    .is_large = span->is_large,
    .is_expandable = span->is_expandable,
    .is_invented = span->is_made_up,
  };
  tell(w->watcher->user, event, at, &range);
}

static bool entry_grows(const tide_trace_entry* entry) {
  return entry->action == TIDE_ACTION_SEGMENT_ALLOC || entry->action == TIDE_ACTION_SEGMENT_MAP;
}

// Finds the cause of the growth by the next entry. Ranges that were mapped for one request have one cause.
static tide_status watch_judge(ledger_watch* w) {
  tide_ledger* const ledger = w->ledger;
  const uint64_t at = ledger->next;
  const tide__span span = tide__follow_span(&ledger->finals, &ledger->entries[at], at);
  tide_growth growth = { .at = at,
                         .address = span.node.key,
                         .bytes = span.bytes,
                         .stream = span.stream,
                         .pool = span.pool,
                         .request_at = TIDE_LEDGER_BEFORE,
                         .cause = TIDE_GROWTH_UNKNOWN,
                         .is_large = span.is_large,
                         .is_expandable = span.is_expandable };
  tide__growth_find_request(&growth, &ledger->rules, ledger->entries, ledger->entry_count);
  growth_note_unparked(&ledger->layout, &growth);
  const bool is_same = tide__growth_first(&growth, ledger->entries) < at &&
                       growth.request_at == w->growth.request_at && w->growth_at == at - 1 &&
                       (growth.cause == TIDE_GROWTH_UNPARKED) == (w->growth.cause == TIDE_GROWTH_UNPARKED);
  if (is_same) growth.cause = w->growth.cause;
  else if (w->visits < WATCH_VISITS) TIDE_TRY(tide__growth_judge(&w->growths, &ledger->layout, &growth));
  if (!is_same) w->visits += ledger->layout.totals.segment_count;
  w->growth = growth;
  w->growth_at = at;
  return TIDE_OK;
}

static void watch_tell_totals(const ledger_watch* w) {
  if (w->watcher->on_entry == NULL) return;
  const tide_ledger_totals totals = tide_ledger_get_totals(w->ledger);
  w->watcher->on_entry(w->watcher->user, &totals);
}

// Follows the entries before the next growth, `end`. Either notes which spans they change, or forgets all
// sums, whichever is cheaper.
static tide_status watch_follow(ledger_watch* w, uint64_t end) {
  tide_ledger* const ledger = w->ledger;
  const tide_ledger_totals* const totals = &ledger->layout.totals;
  const uint64_t blocks = totals->live_count + totals->segment_count;
  const bool is_near = end - ledger->next <= blocks / LEDGER_NOTES_SHARE;
  while (ledger->next < end) {
    tide__oddity odd = TIDE__ODD_NONE;
    TIDE_TRY(ledger_step(ledger, &odd));
    if (is_near) tide__growths_touch(&ledger->layout, &ledger->entries[ledger->next - 1]);
    watch_tell_totals(w);
  }
  if (!is_near) ledger->layout.generation++;
  return TIDE_OK;
}

static tide_status watch_run(ledger_watch* w) {
  tide_ledger* const ledger = w->ledger;
  TIDE_TRY(ledger_rewind(ledger));
  watch_tell_totals(w);
  while (ledger->next < ledger->entry_count) {
    uint64_t end = ledger->next;
    while (end < ledger->entry_count && !entry_grows(&ledger->entries[end])) end++;
    TIDE_TRY(watch_follow(w, end));
    if (end == ledger->entry_count) break;
    if (w->watcher->on_range != NULL) TIDE_TRY(watch_judge(w));
    tide__oddity odd = TIDE__ODD_NONE;
    TIDE_TRY(ledger_step(ledger, &odd));
    tide__growths_touch(&ledger->layout, &ledger->entries[end]);
    watch_tell_totals(w);
  }
  return TIDE_OK;
}

tide_status tide_ledger_watch(tide_ledger* ledger, const tide_ledger_watcher* watcher) {
  TIDE_REQUIRE(ledger != NULL && watcher != NULL, TIDE_ERR_ARGUMENT, "ledger_watch: %s is NULL",
               ledger == NULL ? "ledger" : "watcher");
  tide_ledger_watcher whole = TIDE_LEDGER_WATCHER_INIT;
  TIDE_TRY(tide__sized_read("ledger_watch", watcher, &whole, sizeof whole));
  ledger_watch w = { .ledger = ledger, .watcher = &whole, .growth_at = TIDE_LEDGER_BEFORE };
  const tide__layout_watch watch = { watch_on_tile, watch_on_range, &w };
  tide__growths_init(&w.growths, ledger->heap);
  ledger->watch = &watch;
  const tide_status status = watch_run(&w);
  ledger->watch = ledger->layout.watch = NULL;
  tide__growths_fini(&w.growths);
  return status;
}
