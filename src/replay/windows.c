// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The cache gets the requests, the releases, the end of work on side streams, the addresses of new segments
// and reserves, and calls of trim; never the address of an allocation. An observer compares what it does with
// the recording: every address, every segment in order, every refusal; and at the end the remaining blocks.
//
// A snapshot of PyTorch records neither when the cache was emptied, nor how many completions came before a
// search and how many in a flush. So entries are grouped in windows: from the last request or release to the
// next request. If segments were freed or memory ran out, there are several hypotheses (hypothesis_of()), and
// the first that repeats the window is used. The cache cannot be copied, so after a wrong guess the run
// starts again: O(n) for each wrong guess. There is none if only emptying explains what was freed, or if the
// cache serves a request where the recording frees memory.
#include "replay/windows.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "replay/limit.h"
#include "replay/meter.h"
#include "replay/remains.h"

#define CHECK_ATTEMPTS 4096u              // then the current window counts as a mismatch
#define CHECK_REORDERED 1024u             // completions searched for one that comes early
#define CHECK_PROGRESS ((size_t)1 << 14)  // steps between two calls of on_progress

// The hypotheses taken so far, one for each window that has several.
typedef struct check_plan {
  const tide_heap* heap;  // borrowed until the check ends
  uint32_t* choices;      // owned
  size_t count;
  size_t capacity;
  size_t attempts;
  tide__step* steps;         // owned: a copy of the script's, with completions in the order of the run
  tide__empties* empties;    // borrowed until the check ends
  tide_replay_result first;  // of the first hypothesis of the last window
} check_plan;

typedef struct check_run {
  const tide__script* script;  // borrowed until the run ends
  check_plan* plan;            // borrowed until the run ends
  tide_replay_result* result;  // borrowed until the run ends
  tide__step* steps;           // borrowed from the plan
  tide__stage stage;
  tide__meter meter;
  size_t at;              // the next step that must happen
  size_t window;          // how many windows with several hypotheses came before
  uint64_t limit_likely;  // the limit is below, if memory was freed by retries; UINT64_MAX: there are none
  size_t next_report;     // the step before which on_progress is called
  bool is_half;           // the first of the two parts of a release at once was seen
  bool is_vague;   // idle blocks may have other requested sizes: completions came in another order than
                   // recorded, or some before the recording, or a request was taken back
  bool is_cached;  // the first mismatch is a request that was served where memory is to be freed
  bool is_wrong;
  bool is_retried;  // another hypothesis is to be tried
} check_run;

// ---------------------------------------------------------------------------------------------------
// Mismatches

// Records the first mismatch of a run.
__attribute__((format(printf, 3, 4))) static void check_fault(check_run* c, uint64_t* counter,
                                                              const char* format, ...) {
  if (c->is_wrong) return;
  c->is_wrong = true;
  ++*counter;
  const bool is_end = c->at >= c->script->step_count;
  const size_t entry = is_end ? c->script->entry_count : c->steps[c->at].entry;
  char* const text = c->result->mismatch;
  const size_t room = sizeof c->result->mismatch;
  const size_t length = (size_t)snprintf(text, room, "entry %zu: ", entry);
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text + length, room - length, format, list);
  va_end(list);
}
#define CHECK_FAULT(c, ...) check_fault(c, &(c)->result->mismatched_segments, __VA_ARGS__)

// An unexpected failure is a mismatch too: the recording contains something impossible.
static void check_call(check_run* c, tide_status status) {
  if (status != TIDE_OK) CHECK_FAULT(c, "%s", tide_last_error()->text);
}

// ---------------------------------------------------------------------------------------------------
// Entries of the run

static bool kind_is_like(const check_run* c, uint8_t kind, uint8_t action) {
  switch (kind) {
    case TIDE__STEP_ALLOC: return action == TIDE_ACTION_ALLOC;
    case TIDE__STEP_OOM: return action == TIDE_ACTION_OOM;
    case TIDE__STEP_FREE:
      return action == (c->is_half ? TIDE_ACTION_FREE_COMPLETED : TIDE_ACTION_FREE_REQUESTED);
    case TIDE__STEP_FREE_LATER: return action == TIDE_ACTION_FREE_REQUESTED;
    case TIDE__STEP_DONE: return action == TIDE_ACTION_FREE_COMPLETED;
    case TIDE__STEP_SEGMENT: return action == TIDE_ACTION_SEGMENT_ALLOC;
    case TIDE__STEP_SEGMENT_FREE: return action == TIDE_ACTION_SEGMENT_FREE;
    case TIDE__STEP_RESERVE:
    case TIDE__STEP_MAP: return action == TIDE_ACTION_SEGMENT_MAP;
    case TIDE__STEP_UNMAP: return action == TIDE_ACTION_SEGMENT_UNMAP;
    default: return false;
  }
}

static bool kind_is_release(uint8_t kind) { return kind >= TIDE__STEP_FREE && kind <= TIDE__STEP_DONE; }

// Is the entry that of the step, apart from its address? A release at once has two entries.
static bool step_is_like(const check_run* c, const tide__step* want, const tide_trace_entry* got) {
  if (!kind_is_like(c, want->kind, got->action)) return false;
  if (kind_is_release(want->kind)) return true;
  return want->bytes == got->bytes && got->stream == tide__address(c->stage.streams[want->stream]);
}

static uint64_t step_address(const check_run* c, const tide__step* step) {
  return c->script->entries[step->entry].address;
}

// Completions that are found together have no defined order (PyTorch's is that of a hash table). So the one
// that happened is moved to the front. The requested sizes of inactive blocks depend on that order, and are
// not compared then.
static void check_reorder(check_run* c, uint64_t address) {
  const size_t end = tide__min(c->script->step_count, c->at + CHECK_REORDERED);
  for (size_t i = c->at; i < end && c->steps[i].kind == TIDE__STEP_DONE; i++) {
    if (step_address(c, &c->steps[i]) != address) continue;
    if (i != c->at) c->is_vague = true;
    const tide__step first = c->steps[c->at];
    c->steps[c->at] = c->steps[i];
    c->steps[i] = first;
    return;
  }
}

static void check_mismatch(check_run* c, const tide_trace_entry* got, bool is_like) {
  const tide__step* const want = c->at < c->script->step_count ? &c->steps[c->at] : NULL;
  c->is_cached = want != NULL && got->action == TIDE_ACTION_ALLOC &&
                 (want->kind == TIDE__STEP_SEGMENT_FREE || want->kind == TIDE__STEP_UNMAP);
  const tide_trace_entry* const entry = want != NULL ? &c->script->entries[want->entry] : NULL;
  uint64_t* const counter = is_like && want->kind == TIDE__STEP_ALLOC ? &c->result->mismatched_addresses
                                                                      : &c->result->mismatched_segments;
  if (entry == NULL) {
    check_fault(c, counter, "%s 0x%" PRIx64 ", %" PRIu64 " bytes; the recording is at its end",
                tide_action_name(got->action), got->address, got->bytes);
    return;
  }
  check_fault(c, counter,
              "%s 0x%" PRIx64 ", %" PRIu64 " bytes; recorded: %s 0x%" PRIx64 ", %" PRIu64
              " bytes, stream 0x%" PRIx64,
              tide_action_name(got->action), got->address, got->bytes, tide_action_name(entry->action),
              entry->address, entry->bytes, entry->stream);
}

static void check_on_entry(void* user, const tide_trace_entry* got) {
  check_run* const c = user;
  if (c->is_wrong || got->action == TIDE_ACTION_SNAPSHOT) return;
  if (got->action == TIDE_ACTION_FREE_COMPLETED) check_reorder(c, got->address);
  const bool is_end = c->at >= c->script->step_count;
  const tide__step* const want = is_end ? NULL : &c->steps[c->at];
  const bool is_like = !is_end && step_is_like(c, want, got);
  if (!is_like || (want->kind != TIDE__STEP_OOM && step_address(c, want) != got->address)) {
    check_mismatch(c, got, is_like);
    return;
  }
  c->is_half = want->kind == TIDE__STEP_FREE && !c->is_half;
  if (!c->is_half) c->at++;
}

// ---------------------------------------------------------------------------------------------------
// Hypotheses

typedef struct hypothesis {
  size_t polled;  // completions before the search
  bool empties;   // the cache was emptied first
} hypothesis;

// An upper bound of the memory that the request of a window needs: the segment that it created, or a size
// that no rounding exceeds.
static uint64_t window_growth(const check_run* c, const tide__window* w) {
  for (size_t i = w->end; i > w->first; i--) {
    if (c->steps[i - 1].kind == TIDE__STEP_SEGMENT) return c->steps[i - 1].bytes;
  }
  return 2 * c->steps[w->end].bytes + c->stage.options->device->large_segment_bytes + ((uint64_t)4 << 20);
}

// Is there certainly room for that, so that the cache frees nothing for the request?
static bool has_room(check_run* c, uint64_t most) {
  const tide_device_options* const options = c->stage.options->device;
  const uint64_t limit = tide_device_limit(c->stage.device);
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (options->collect_threshold > 0 && limit != TIDE_NO_LIMIT) return false;
  if (tide_device_get_stats(c->stage.device, &stats) != TIDE_OK) return false;
  if (tide_machine_memory_info(c->stage.machine, 0, &free_bytes, &total_bytes) != TIDE_OK) return false;
  const uint64_t reserved = (uint64_t)stats.reserved_bytes[TIDE_STAT_ALL].current;
  return most <= free_bytes && reserved <= limit && most <= limit - reserved;
}

// The bytes of the segment that a request needs at most, as PyTorch computes them.
static uint64_t segment_most(const check_run* c, const tide__window* w) {
  for (size_t i = w->first; i < w->end; i++) {
    if (c->steps[i].kind == TIDE__STEP_SEGMENT) return c->steps[i].bytes;
  }
  return tide__limit_segment_most(c->stage.options->device, &c->steps[w->end]);
}

typedef struct cache_state {
  uint64_t reserved;
  uint64_t retries;
} cache_state;

static cache_state cache_look(check_run* c) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  if (tide_device_get_stats(c->stage.device, &stats) != TIDE_OK) return (cache_state){ 0, 0 };
  return (cache_state){ (uint64_t)stats.reserved_bytes[TIDE_STAT_ALL].current,
                        (uint64_t)stats.num_alloc_retries };
}

// A request was refused, or freed memory for itself: the limit is below what it asked for. After a refusal
// that is measured behind the request, which has freed what it could. A call to empty_cache would explain a
// retry as well, which frees everything, but nothing else.
static void window_learn(check_run* c, const tide__window* w, const cache_state* before) {
  const double share = c->stage.options->device->collect_threshold;
  const bool is_refused = c->steps[w->end].kind == TIDE__STEP_OOM;
  const cache_state after = cache_look(c);
  const uint64_t reserved = is_refused ? after.reserved : before->reserved;
  const bool is_certain = is_refused || after.retries == before->retries;
  uint64_t passed = UINT64_MAX;
  if (!tide__add(reserved, segment_most(c, w), &passed)) return;
  if (!is_refused && share > 0) passed = tide__max(passed, (uint64_t)((double)reserved / share) + 1);
  uint64_t* const high = is_certain ? &c->result->limit_high : &c->limit_likely;
  *high = tide__min(*high, passed);
}

static size_t hypothesis_count(const check_run* c, const tide__window* w) {
  if (!w->has_request || w->first == w->end) return 1;
  if (!w->gives_back && c->steps[w->end].kind == TIDE__STEP_ALLOC) return 1;
  return 2 + w->lead;
}

// First, the request found all completions at the front. Second, the cache was emptied before the request;
// this comes first if the request has no reason to free memory. Then, only some completions were found, most
// first, and the others came when a flush waited for them.
static hypothesis hypothesis_of(check_run* c, const tide__window* w, size_t choice) {
  if (!w->has_request) return (hypothesis){ w->lead, w->gives_back };
  if (choice > 1) return (hypothesis){ w->lead + 1 - choice, false };
  const bool is_swapped = w->gives_back && has_room(c, window_growth(c, w));
  return (hypothesis){ w->lead, (choice == 1) != is_swapped };
}

// ---------------------------------------------------------------------------------------------------
// Windows

// Sets the addresses of the segments and reserves of a window.
static tide_status window_dictate(check_run* c, const tide__window* w) {
  for (size_t i = w->first; i < w->end; i++) {
    const tide__step* const step = &c->steps[i];
    const bool is_raw = step->kind == TIDE__STEP_SEGMENT;
    if (!is_raw && step->kind != TIDE__STEP_RESERVE) continue;
    TIDE_TRY(tide_dry_dictate(c->stage.machine, 0, is_raw ? TIDE_CALL_RAW_ALLOC : TIDE_CALL_ADDRESS_RESERVE,
                              tide__pointer(step_address(c, step))));
  }
  return TIDE_OK;
}

static tide_status empties_add(check_run* c, size_t step) {
  tide__empties* const empties = c->plan->empties;
  TIDE_REQUIRE(tide__heap_grow(c->plan->heap, (void**)&empties->steps, &empties->capacity, empties->count + 1,
                               sizeof *empties->steps),
               TIDE_ERR_NO_MEMORY, "replay: no memory for %zu calls of empty_cache", empties->count + 1);
  empties->steps[empties->count++] = (uint32_t)step;
  return tide__stage_empty(&c->stage, step);
}

static void check_request(check_run* c, const tide__step* want) {
  tide__stage* const stage = &c->stage;
  const bool is_alloc = want->kind == TIDE__STEP_ALLOC;
  check_call(c, is_alloc ? tide__stage_alloc(stage, want) : tide__stage_oom(stage, want));
}

// Polls for completions one by one. The last one is left for the request, if that polls itself.
static void window_poll(check_run* c, const tide__window* w, size_t count, bool looks) {
  for (size_t i = 0; i < count && !c->is_wrong; i++) {
    check_call(c, tide__stage_clock_to(&c->stage, c->steps[w->first + i].entry));
    if (!looks || i + 1 < count) check_call(c, tide_device_poll(c->stage.device));
  }
}

// Makes the request of a window, if there is one.
static void window_request(check_run* c, const tide__window* w, bool is_emptied) {
  if (w->has_request && !c->is_wrong) {
    const tide__step* const request = &c->steps[w->end];
    const bool shows_limit = request->kind == TIDE__STEP_OOM || (w->gives_back && !is_emptied);
    const cache_state before = shows_limit ? cache_look(c) : (cache_state){ 0, 0 };
    check_request(c, request);
    if (shows_limit && !c->is_wrong) window_learn(c, w, &before);
  }
  if (c->at != w->end + w->has_request) CHECK_FAULT(c, "the replay did not repeat this entry");
}

static tide_status window_try(check_run* c, const tide__window* w, hypothesis guess) {
  const tide__step* const request = w->has_request ? &c->steps[w->end] : NULL;
  const bool looks = request != NULL && request->pool == 0 && !guess.empties;
  TIDE_TRY(tide__stage_end_pools(&c->stage, w->first));
  window_poll(c, w, guess.polled, looks);
  if (guess.empties && !c->is_wrong) TIDE_TRY(empties_add(c, w->first + w->lead));
  for (size_t i = w->first; i < w->end; i++) {
    if (c->steps[i].kind == TIDE__STEP_DONE) tide__stage_end_life(&c->stage, &c->steps[i]);
  }
  check_call(c, window_dictate(c, w));
  window_request(c, w, guess.empties);
  return TIDE_OK;
}

// Was the request of a window served from the cache, where the recording frees memory? Then the cache was
// emptied before. Collection counts searches, so there the search cannot be undone.
static bool window_was_cached(const check_run* c, const tide__window* w, hypothesis guess) {
  return c->is_cached && !guess.empties && guess.polled == w->lead && c->at == w->first + w->lead &&
         c->stage.options->device->collect_threshold == 0;
}

// Returns the block of such a request, empties the cache and makes the request again. So a program that often
// empties its cache costs no new attempts.
static tide_status window_empty_after_all(check_run* c, const tide__window* w) {
  check_call(c, tide__stage_take_back(&c->stage, &c->steps[w->end]));
  c->is_vague = true;
  c->is_wrong = false;
  c->result->mismatched_addresses = c->result->mismatched_segments = 0;
  c->result->mismatch[0] = '\0';
  TIDE_TRY(empties_add(c, w->first + w->lead));
  window_request(c, w, true);
  return TIDE_OK;
}

static tide_status plan_take(check_plan* plan, size_t index, size_t* out) {
  if (index == plan->count) {
    TIDE_REQUIRE(tide__heap_grow(plan->heap, (void**)&plan->choices, &plan->capacity, index + 1,
                                 sizeof *plan->choices),
                 TIDE_ERR_NO_MEMORY, "replay: no memory for %zu windows", index + 1);
    plan->choices[plan->count++] = 0;
  }
  *out = plan->choices[index];
  return TIDE_OK;
}

static void plan_give_up(tide_replay_result* result) {
  const size_t length = strlen(result->mismatch);
  (void)snprintf(result->mismatch + length, sizeof result->mismatch - length,
                 "; gave up after %u guesses at when the cache was emptied", CHECK_ATTEMPTS);
}

// A hypothesis failed: selects the next one. If none is left, the mismatch is that of the first.
static void plan_fail(check_run* c, size_t choice, size_t count) {
  check_plan* const plan = c->plan;
  if (choice == 0 || c->is_cached) plan->first = *c->result;
  c->is_retried = choice + 1 < count && plan->attempts < CHECK_ATTEMPTS;
  if (c->is_retried) plan->choices[c->window - 1] = (uint32_t)choice + 1;
  else *c->result = plan->first;
  if (!c->is_retried && choice + 1 < count) plan_give_up(c->result);
}

static tide_status check_window(check_run* c) {
  const tide__window w = tide__window_at(c->steps, c->script->step_count, c->at);
  const size_t count = hypothesis_count(c, &w);
  size_t choice = 0;
  if (count > 1) TIDE_TRY(plan_take(c->plan, c->window++, &choice));
  const size_t empties = c->plan->empties->count;
  const hypothesis guess = hypothesis_of(c, &w, choice);
  c->is_cached = false;
  TIDE_TRY(window_try(c, &w, guess));
  if (choice == 0 && count > 1 && window_was_cached(c, &w, guess)) {
    c->plan->choices[c->window - 1] = 1;
    choice = 1;
    TIDE_TRY(window_empty_after_all(c, &w));
  }
  if (!c->is_wrong) return TIDE_OK;
  c->plan->empties->count = empties;
  if (count > 1) plan_fail(c, choice, count);
  return TIDE_OK;
}

static void check_release(check_run* c) {
  const size_t index = c->at;
  const tide__step* const step = &c->steps[index];
  const bool waits = step->kind == TIDE__STEP_FREE_LATER;
  check_call(c, waits ? tide__stage_free_later(&c->stage, step) : tide__stage_free(&c->stage, step));
  if (c->at != index + 1) CHECK_FAULT(c, "the replay did not repeat this release");
}

// ---------------------------------------------------------------------------------------------------
// One attempt

static tide_status check_report(check_run* c) {
  const tide_replay_options* const options = c->stage.options;
  if (options->on_progress == NULL || c->at < c->next_report) return TIDE_OK;
  c->next_report = c->at + CHECK_PROGRESS;
  const bool goes_on = options->on_progress(options->user, c->steps[c->at].entry, c->script->entry_count);
  TIDE_REQUIRE(goes_on, TIDE_ERR_STATE, "replay_run: cancelled by on_progress at entry %" PRIu32,
               c->steps[c->at].entry);
  return TIDE_OK;
}

// Runs up to the first mismatch, or to the end.
static tide_status check_play(check_run* c) {
  while (c->at < c->script->step_count && !c->is_wrong) {
    TIDE_TRY(check_report(c));
    if (c->at >= c->meter.next) TIDE_TRY(tide__meter_tick(&c->meter, c->at, c->result));
    const uint8_t kind = c->steps[c->at].kind;
    if (kind == TIDE__STEP_FREE || kind == TIDE__STEP_FREE_LATER) check_release(c);
    else TIDE_TRY(check_window(c));
  }
  if (c->is_wrong) return TIDE_OK;
  TIDE_TRY(tide__meter_finish(&c->meter, c->at, c->result));
  char text[200] = "";
  TIDE_TRY(tide__remains_compare(&c->stage, c->is_vague, text, sizeof text));
  if (text[0] != '\0') CHECK_FAULT(c, "%s", text);
  return TIDE_OK;
}

// One attempt. *out_same: the recording was repeated; *out_retried: another hypothesis is to be tried.
static tide_status check_once(const tide__script* script, const tide_replay_options* options,
                              check_plan* plan, tide_replay_result* result, bool* out_same,
                              bool* out_retried) {
  check_run c = { .script = script, .plan = plan, .result = result, .steps = plan->steps };
  c.at = script->first_step;
  c.limit_likely = UINT64_MAX;
  c.is_vague = script->old_count > 0;  // nothing is known of requests before the recording
  tide_observer observer = 0;
  *result = (tide_replay_result){ .first_oom = UINT64_MAX, .limit_high = UINT64_MAX };
  plan->attempts++;
  plan->empties->count = 0;
  TIDE_TRY(tide__stage_init(&c.stage, script, plan->heap, options));
  tide__meter_init(&c.meter, &c.stage);
  tide_status status = tide_device_observe_trace(c.stage.device, check_on_entry, &c, &observer);
  if (status == TIDE_OK) status = check_play(&c);
  c.is_wrong = true;  // do not compare what freeing the stage does
  *out_retried = c.is_retried;
  *out_same = result->mismatch[0] == '\0';
  result->is_limit_certain = result->limit_high != UINT64_MAX;
  if (!result->is_limit_certain) result->limit_high = c.limit_likely;
  tide__stage_fini(&c.stage);
  return status;
}

// Adds the certain calls of empty_cache behind the mismatch, for the plain run that follows.
static tide_status empties_complete(const tide__script* script, check_plan* plan) {
  tide__empties* const empties = plan->empties;
  const size_t last = empties->count > 0 ? empties->steps[empties->count - 1] : 0;
  for (size_t i = 0; i < script->empty_count; i++) {
    if (empties->count > 0 && script->empties[i] <= last) continue;
    TIDE_REQUIRE(tide__heap_grow(plan->heap, (void**)&empties->steps, &empties->capacity, empties->count + 1,
                                 sizeof *empties->steps),
                 TIDE_ERR_NO_MEMORY, "replay: no memory for %zu calls of empty_cache", empties->count + 1);
    empties->steps[empties->count++] = script->empties[i];
  }
  return TIDE_OK;
}

static tide_status plan_init(check_plan* plan, const tide__script* script) {
  const size_t count = script->step_count;
  if (count == 0) return TIDE_OK;
  plan->steps = tide__heap_alloc(plan->heap, count, sizeof *plan->steps);
  TIDE_REQUIRE(plan->steps != NULL, TIDE_ERR_NO_MEMORY, "replay: no memory for %zu steps", count);
  memcpy(plan->steps, script->steps, count * sizeof *plan->steps);
  return TIDE_OK;
}

tide_status tide__check_run(const tide__script* script, const tide_heap* heap,
                            const tide_replay_options* options, tide__empties* empties,
                            tide_replay_result* result, bool* out_same) {
  check_plan plan = { .heap = heap, .empties = empties };
  bool is_retried = true;
  *out_same = false;
  tide_status status = plan_init(&plan, script);
  while (status == TIDE_OK && is_retried) {
    status = check_once(script, options, &plan, result, out_same, &is_retried);
  }
  if (status == TIDE_OK && !*out_same) status = empties_complete(script, &plan);
  tide__heap_release(heap, plan.steps, script->step_count, sizeof *plan.steps);
  tide__heap_release(heap, plan.choices, plan.capacity, sizeof *plan.choices);
  return status;
}
