// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Replays a recording through the device allocator on a dry machine and compares what happens, entry by
// entry. The allocator is given the requests, the releases, when announced work ends, the addresses of new
// segments and reserves, and calls of trim; never the address of an allocation. What it does, told by an
// observer of its trace, must be the recording: every address, every segment in its order, every refusal;
// then what is left, block by block.
//
// Time is the index of the entry: entry i happens at i + 1 ns. A release that waits is given work on a
// stream of its own that ends at the entry of its completion.
//
// A snapshot of PyTorch does not tell when the cache was emptied, nor how many completions came before a
// search and how many through a flush. So entries are taken in windows: what happened since the last request
// or release, up to the request that ends it. Where segments were given back, or memory ran out, there are
// several hypotheses (hypothesis_of()); the first that repeats the window is taken. The allocator cannot be
// copied, so a wrong guess is noted and everything begins again.
//
//   replay_result result;
//   replay_run(&rec, &result);
//   T_EQ(result.mismatched_addresses + result.mismatched_segments, 0);
#ifndef TIDEMARK_TESTS_REPLAY_H
#define TIDEMARK_TESTS_REPLAY_H

#include "device/recording.h"
#include "machine/machines.h"

#define REPLAY_NEVER ((uint64_t)1 << 60)
#define REPLAY_CHECKED_ENTRIES 4000  // recordings up to this are checked after every step

typedef struct replay_result {
  size_t allocations;
  size_t mismatched_addresses;
  size_t mismatched_segments;  // or anything else that is not an address
  size_t empty_caches;         // inferred
  size_t attempts;
  recording_figures figures;
  char text[400];  // the first mismatch
} replay_result;

// The hypotheses taken so far, one for each window that has several.
typedef struct replay_plan {
  size_t* choices;  // owned
  size_t count;
  char text[400];  // why the first hypothesis of the last one failed
} replay_plan;

typedef struct replay {
  recording* rec;         // borrowed until the replay ends
  replay_plan* plan;      // borrowed until the replay ends
  replay_result* result;  // borrowed until the replay ends
  tide_machine* m;        // owned
  tide_device* device;    // owned
  tide_stream streams[RECORDING_STREAMS];
  tide_pool pools[RECORDING_POOLS];
  size_t at;          // the next entry that must happen
  size_t row;         // the next row that must be left
  size_t window;      // how many windows with several hypotheses came before
  bool is_half;       // the first of the two parts of a release at once was seen
  bool is_reordered;  // completions came in another order than recorded
  bool is_wrong;
  bool is_retried;  // another hypothesis is left
} replay;

__attribute__((format(printf, 3, 4))) static inline void replay_fault(replay* r, size_t* counter,
                                                                      const char* format, ...) {
  if (r->is_wrong) return;
  r->is_wrong = true;
  ++*counter;
  const int length = snprintf(r->result->text, sizeof r->result->text, "entry %zu: ", r->at);
  va_list list;
  va_start(list, format);
  (void)vsnprintf(r->result->text + length, sizeof r->result->text - (size_t)length, format, list);
  va_end(list);
}
#define REPLAY_FAULT(r, ...) replay_fault(r, &(r)->result->mismatched_segments, __VA_ARGS__)

// ---------------------------------------------------------------------------------------------------
// What happens

static inline const char* replay_kinds_of(uint8_t action) {
  switch (action) {
    case TIDE_ACTION_ALLOC: return "a";
    case TIDE_ACTION_OOM: return "o";
    case TIDE_ACTION_FREE_REQUESTED: return "fd";
    case TIDE_ACTION_FREE_COMPLETED: return "cd";
    case TIDE_ACTION_SEGMENT_ALLOC: return "s";
    case TIDE_ACTION_SEGMENT_FREE: return "r";
    case TIDE_ACTION_SEGMENT_MAP: return "mn";
    case TIDE_ACTION_SEGMENT_UNMAP: return "u";
    default: return "";
  }
}

// Is it the entry, its address aside? A release at once is two things, one after the other.
static inline bool replay_is_like(const replay* r, const recording_entry* want, const tide_trace_entry* got) {
  if (strchr(replay_kinds_of(got->action), want->kind) == NULL) return false;
  if (want->kind == 'd') return r->is_half == (got->action == TIDE_ACTION_FREE_COMPLETED);
  if (want->kind == 'f' || want->kind == 'c') return true;
  return want->bytes == got->bytes && got->stream == (uint64_t)(uintptr_t)r->streams[want->stream];
}

// Blocks that are waited for together come in an order that nobody promises (PyTorch's is that of a hash
// table). So where the model decided, the entry that happened is moved to the front of its run of
// completions. The sizes that idle blocks were last requested with depend on that order, and are not
// compared then.
static inline void replay_reorder(replay* r, const tide_trace_entry* got) {
  recording_entry* const entries = r->rec->entries;
  if (!r->rec->has_figures || got->action != TIDE_ACTION_FREE_COMPLETED) return;
  for (size_t i = r->at; i < r->rec->entry_count && entries[i].kind == 'c'; ++i) {
    if (entries[i].address != got->address) continue;
    r->is_reordered |= i != r->at;
    const recording_entry first = entries[r->at];
    entries[r->at] = entries[i];
    entries[i] = first;
    return;
  }
}

static inline void replay_on_entry(void* user, const tide_trace_entry* got) {
  replay* const r = user;
  if (r->is_wrong || got->action == TIDE_ACTION_SNAPSHOT) return;
  static const recording_entry nothing = { .kind = '-' };
  while (r->at < r->rec->entry_count && r->rec->entries[r->at].kind == 'p') ++r->at;
  replay_reorder(r, got);
  const recording_entry* const want = r->at < r->rec->entry_count ? &r->rec->entries[r->at] : &nothing;
  const bool is_like = replay_is_like(r, want, got);
  const bool is_same = is_like && (want->kind == 'o' || want->address == got->address);
  if (is_same) {
    r->is_half = want->kind == 'd' && !r->is_half;
    if (!r->is_half) ++r->at;
    return;
  }
  size_t* const counter = is_like && want->kind == 'a' ? &r->result->mismatched_addresses
                                                       : &r->result->mismatched_segments;
  replay_fault(r, counter,
               "%s 0x%" PRIx64 ", %" PRIu64 " bytes, stream 0x%" PRIx64 "; recorded: %c 0x%" PRIx64
               ", %" PRIu64 " bytes, stream %u",
               tide_action_name(got->action), got->address, got->bytes, got->stream, want->kind,
               want->address, want->bytes, (unsigned)want->stream);
}

// ---------------------------------------------------------------------------------------------------
// Inputs

static inline uint64_t replay_time_of(size_t index) { return (uint64_t)index + 1; }

static inline void replay_clock_to(replay* r, size_t index) {
  const uint64_t now = clock_ns(r->m);
  if (now < replay_time_of(index)) T_OK(tide_dry_advance(r->m, replay_time_of(index) - now));
}

// How long the release at an index waits.
static inline uint64_t replay_wait_ns(const replay* r, size_t index) {
  const recording_entry* const entries = r->rec->entries;
  for (size_t i = index + 1; i < r->rec->entry_count; ++i) {
    if (entries[i].kind == 'c' && entries[i].address == entries[index].address)
      return replay_time_of(i) - clock_ns(r->m);
  }
  return REPLAY_NEVER;
}

// Dictates where the segments and reserves of some entries lie.
static inline void replay_dictate(replay* r, size_t first, size_t end) {
  for (size_t i = first; i < end; ++i) {
    const recording_entry* const entry = &r->rec->entries[i];
    void* const address = (void*)(uintptr_t)entry->address;
    if (entry->kind == 's') T_OK(tide_dry_dictate(r->m, 0, TIDE_CALL_RAW_ALLOC, address));
    if (entry->kind == 'n') T_OK(tide_dry_dictate(r->m, 0, TIDE_CALL_ADDRESS_RESERVE, address));
  }
}

static inline void replay_release(replay* r) {
  const size_t index = r->at;
  const recording_entry* const entry = &r->rec->entries[index];
  tide_block block = { NULL, 0 };
  replay_clock_to(r, index);
  T_OK(tide_device_find(r->device, (void*)(uintptr_t)entry->address, &block));
  tide_stream side = NULL;
  if (entry->kind == 'f') {
    side = stream_new(r->m, 0, TIDE_STREAM_NON_BLOCKING);
    T_OK(tide_dry_work(r->m, 0, side, replay_wait_ns(r, index)));
    T_OK(tide_device_record(r->device, block, side));
  }
  T_OK(tide_device_release(r->device, block));
  if (side != NULL) T_OK(tide_machine_stream_free(r->m, 0, side));
  if (r->at != index + 1) REPLAY_FAULT(r, "the release was not seen");
}

static inline void replay_request(replay* r, const recording_entry* want) {
  const tide_pool pool = r->pools[want->pool];
  const tide_scope scope = { .size = sizeof scope, .kind = TIDE_SCOPE_ALL };
  tide_block block = { NULL, 0 };
  if (want->pool != 0) T_OK(tide_device_pool_begin(r->device, pool, &scope));
  const tide_status status = tide_device_alloc(r->device, r->streams[want->stream], want->bytes, &block);
  if (status != TIDE_OK && status != TIDE_ERR_NO_MEMORY)
    REPLAY_FAULT(r, "%s: %s", tide_status_name(status), tide_last_error()->text);
  if (want->pool != 0) T_OK(tide_device_pool_end(r->device, pool));
  if (want->pool != 0) T_OK(tide_device_pool_release(r->device, pool));  // the user that the scope added
  if (r->is_wrong) return;
  T_EQ(status, want->kind == 'a' ? TIDE_OK : TIDE_ERR_NO_MEMORY);
  T_EQ((uintptr_t)block.address, want->kind == 'a' ? want->address : 0);
  r->result->allocations += want->kind == 'a';
}

static inline void replay_trim(replay* r) { T_OK(tide_device_trim(r->device)); }

// ---------------------------------------------------------------------------------------------------
// Windows

typedef struct replay_window {
  size_t first;
  size_t end;         // one behind its last entry, where the request is
  size_t lead;        // completions it begins with
  bool has_request;   // false: broken off by a release, or by the end
  bool gives_back;    // segments or mappings
  bool is_written;    // it says how many completions came before the search
  bool has_segments;  // anything but completions
} replay_window;

typedef struct replay_hypothesis {
  size_t polled;  // completions before the search
  bool empties;   // the cache was emptied first
} replay_hypothesis;

static inline replay_window replay_window_at(const recording* rec, size_t first) {
  replay_window w = { .first = first, .end = first };
  for (; w.end < rec->entry_count && strchr("csrnmup", rec->entries[w.end].kind) != NULL; ++w.end) {
    const char kind = rec->entries[w.end].kind;
    w.lead += kind == 'c' && w.lead == w.end - first;
    w.gives_back |= kind == 'r' || kind == 'u';
    w.is_written |= kind == 'p';
    w.has_segments |= kind != 'c' && kind != 'p';
  }
  w.has_request = w.end < rec->entry_count && strchr("ao", rec->entries[w.end].kind) != NULL;
  return w;
}

static inline size_t hypothesis_count(const recording* rec, const replay_window* w) {
  if (!w->has_request || w->is_written || w->first == w->end) return 1;
  if (!w->gives_back && rec->entries[w->end].kind == 'a') return 1;
  return 2 + w->lead;
}

// First, all completions at the front were found by the request. Then, the cache was emptied before the
// request. Then, only some completions were found, most first, and the others came when a flush waited for
// them.
static inline replay_hypothesis hypothesis_of(const replay_window* w, size_t choice) {
  if (!w->has_request) return (replay_hypothesis){ w->lead, w->has_segments };
  if (choice <= 1) return (replay_hypothesis){ w->lead, choice == 1 };
  return (replay_hypothesis){ w->lead + 1 - choice, false };
}

// The last completion is left for the request itself to find, where that looks.
static inline void replay_try(replay* r, const replay_window* w, replay_hypothesis hypothesis) {
  const recording_entry* const request = w->has_request ? &r->rec->entries[w->end] : NULL;
  const bool looks = request != NULL && request->pool == 0 && !hypothesis.empties;
  for (size_t i = 0; i < hypothesis.polled; ++i) {
    replay_clock_to(r, w->first + i);
    if (!looks || i + 1 < hypothesis.polled) T_OK(tide_device_poll(r->device));
  }
  if (hypothesis.empties) replay_trim(r);
  r->result->empty_caches += hypothesis.empties;
  replay_dictate(r, w->first, w->end);
  if (request != NULL) replay_request(r, request);
  if (r->at != w->end + w->has_request) REPLAY_FAULT(r, "this did not happen");
}

static inline size_t plan_take(replay_plan* plan, size_t index) {
  if (index == plan->count) {
    plan->choices = recording_grow(plan->choices, plan->count, sizeof *plan->choices);
    plan->choices[plan->count++] = 0;
  }
  return plan->choices[index];
}

static inline void replay_window_step(replay* r) {
  const replay_window w = replay_window_at(r->rec, r->at);
  const size_t count = hypothesis_count(r->rec, &w);
  const size_t choice = count > 1 ? plan_take(r->plan, r->window++) : 0;
  replay_try(r, &w, hypothesis_of(&w, choice));
  if (!r->is_wrong || count == 1) return;
  if (choice == 0) memcpy(r->plan->text, r->result->text, sizeof r->plan->text);
  memcpy(r->result->text, r->plan->text, sizeof r->result->text);
  r->is_retried = choice + 1 < count;
  if (r->is_retried) r->plan->choices[r->window - 1] = choice + 1;
}

// ---------------------------------------------------------------------------------------------------
// What is left

static inline const recording_row* replay_row(replay* r, char kind) {
  const recording_row* const row = r->row < r->rec->row_count ? &r->rec->rows[r->row] : NULL;
  ++r->row;
  return row != NULL && row->kind == kind ? row : NULL;
}

static inline bool replay_on_segment(void* user, const tide_segment_info* got) {
  replay* const r = user;
  const recording_row* const want = replay_row(r, 'S');
  const bool is_same = want != NULL && want->address == got->address && want->bytes == got->bytes &&
                       r->streams[want->stream] == got->stream && r->pools[want->pool] == got->pool &&
                       r->rec->labels[want->pool][0] == got->pool_label[0] &&
                       r->rec->labels[want->pool][1] == got->pool_label[1] &&
                       want->is_large == got->is_large && want->is_expandable == got->is_expandable;
  if (!is_same)
    REPLAY_FAULT(r, "row %zu: left is another segment 0x%" PRIx64 " of %" PRIu64 " bytes, pool %u", r->row,
                 got->address, got->bytes, (unsigned)got->pool);
  return is_same;
}

static inline bool replay_on_block(void* user, const tide_block_info* got) {
  replay* const r = user;
  const recording_row* const want = replay_row(r, 'B');
  const char state = "iap"[got->state];
  const bool is_vague = r->is_reordered && state == 'i';
  const bool is_same = want != NULL && want->address == got->address && want->bytes == got->bytes &&
                       (is_vague || want->requested == got->requested_bytes) && want->state == state;
  if (!is_same)
    REPLAY_FAULT(
        r, "row %zu: left is another block 0x%" PRIx64 " of %" PRIu64 " bytes, requested %" PRIu64 ", %c",
        r->row, got->address, got->bytes, got->requested_bytes, state);
  return is_same;
}

static inline void replay_compare_rest(replay* r) {
  const tide_device_visitor visitor = { replay_on_segment, replay_on_block, r };
  T_OK(tide_device_visit(r->device, &visitor));
  if (r->row != r->rec->row_count) REPLAY_FAULT(r, "%zu rows are left of %zu", r->row, r->rec->row_count);
}

static inline void replay_take_figures(replay* r) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  T_OK(tide_device_get_stats(r->device, &stats));
  r->result->figures = (recording_figures){
    .peak_reserved = (uint64_t)stats.reserved_bytes[TIDE_STAT_ALL].peak,
    .device_allocs = (uint64_t)stats.num_device_alloc,
    .device_frees = (uint64_t)stats.num_device_free,
    .retries = (uint64_t)stats.num_alloc_retries,
    .ooms = (uint64_t)stats.num_ooms,
  };
}

// ---------------------------------------------------------------------------------------------------
// The replay

static inline void replay_open_streams(replay* r) {
  for (uint32_t i = 1; i < r->rec->stream_count; ++i) {
    r->streams[i] = stream_new(r->m, 0, TIDE_STREAM_NON_BLOCKING);
    T_LT((uintptr_t)r->streams[i - 1], (uintptr_t)r->streams[i]);
  }
}

static inline void replay_open_pools(replay* r) {
  for (uint32_t i = 1; i < r->rec->pool_count; ++i) {
    tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
    memcpy(options.label, r->rec->labels[i], sizeof options.label);
    T_OK(tide_device_pool_new(r->device, &options, &r->pools[i]));
  }
}

static inline void replay_open(replay* r) {
  const tide_dry_costs costs = { .size = sizeof costs };
  tide_dry_options machine = TIDE_DRY_OPTIONS_INIT;
  machine.capacity = r->rec->total;
  machine.granularity = 2 * MIB;
  machine.costs = &costs;
  T_OK(tide_machine_new_dry(&machine, &r->m));
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  T_OK(tide_device_options_parse(r->rec->options, &options));
  T_OK(tide_device_new(r->m, 0, &options, &r->device));
  T_OK(tide_device_set_limit(r->device, r->rec->limit));
  replay_open_streams(r);
  replay_open_pools(r);
  tide_observer observer = 0;
  T_OK(tide_device_observe_trace(r->device, replay_on_entry, r, &observer));
}

static inline void replay_step(replay* r) {
  const recording_entry* const entry = &r->rec->entries[r->at];
  switch (entry->kind) {
    case 'd':
    case 'f': replay_release(r); return;
    case 'e':
      ++r->at;
      replay_trim(r);
      return;
    case 'x':
      ++r->at;
      T_OK(tide_device_pool_release(r->device, r->pools[entry->pool]));
      return;
    default: replay_window_step(r); return;
  }
}

// Plays everything once, or up to the first mismatch; true if another hypothesis is worth a try.
static inline bool replay_once(recording* rec, replay_plan* plan, replay_result* result) {
  replay r = { .rec = rec, .plan = plan, .result = result };
  const size_t attempts = result->attempts;
  *result = (replay_result){ .attempts = attempts + 1 };
  replay_open(&r);
  while (r.at < rec->entry_count && !r.is_wrong) {
    replay_step(&r);
    if (rec->entry_count <= REPLAY_CHECKED_ENTRIES && tide_device_check(r.device) != 0)
      T_FAIL("entry %zu: %s", r.at, tide_last_error()->text);
  }
  T_EQ(tide_device_check(r.device), 0);
  replay_take_figures(&r);
  if (!r.is_wrong) replay_compare_rest(&r);
  tide_device_free(r.device);
  tide_machine_free(r.m);
  return r.is_retried;
}

static inline void replay_run(recording* rec, replay_result* out) {
  replay_plan plan = { NULL, 0, "" };
  *out = (replay_result){ 0 };
  while (replay_once(rec, &plan, out)) {}
  free(plan.choices);
}

#endif
