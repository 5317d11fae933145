// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark info: what a recording contains. The entries of each device are counted, and followed once for the
// peaks and for contradictions. Text output and JSON come from the same list of facts.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "devices.h"
#include "limit.h"
#include "moment.h"
#include "picture.h"
#include "sums.h"
#include "tags.h"
#include "tidemark/ledger.h"
#include "tool.h"

// ---------------------------------------------------------------------------------------------------
// Facts about a device

typedef struct device_facts {
  size_t device;
  size_t entries;
  uint64_t actions[TIDE_ACTION_COUNT];
  uint64_t with_stack;  // entries
  uint64_t first_ns;
  uint64_t span_ns;
  uint64_t steps;
  bool has_times;
  bool has_steps;  // instead of times
  bool has_segments;
  bool knows_reserved;
  uint64_t segments;  // in the trace's list
  uint64_t blocks;
  uint64_t blocks_in_use;
  tide_ledger_peaks peaks;
  tide_ledger_faults faults;
  tool_limit limit;
  tool_sums streams;  // by stream: allocations and their bytes
  tool_sums pools;    // by pool: segments of the list and their bytes
  tool_sums parked;   // by pool: those of them that are parked
} device_facts;

static void device_count_entries(device_facts* facts, const tide_trace* trace) {
  const tide_trace_entry* const entries = tide_trace_entries(trace, facts->device, NULL);
  facts->entries = tool_device_actions(trace, facts->device, facts->actions);
  for (size_t i = 0; i < facts->entries; i++) {
    const tide_trace_entry* const entry = &entries[i];
    facts->with_stack += entry->stack != 0;
    if (entry->action == TIDE_ACTION_ALLOC)
      (void)tool_sums_add(&facts->streams, entry->stream, 0, entry->bytes);
  }
  if (facts->entries == 0) return;
  facts->has_times = tool_device_times(trace, facts->device, &facts->first_ns, &facts->span_ns);
  facts->steps = (entries[facts->entries - 1].time_ns - entries[0].time_ns) / 1000;
}

static void device_count_segments(device_facts* facts, const tide_trace* trace) {
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  const tide_trace_block* const blocks = tide_trace_blocks(trace, NULL);
  for (size_t i = 0; i < count; i++) {
    if (segments[i].device != facts->device) continue;
    facts->segments++;
    facts->blocks += segments[i].block_count;
    for (size_t k = 0; k < segments[i].block_count; k++)
      facts->blocks_in_use += blocks[segments[i].first_block + k].state != TIDE_BLOCK_INACTIVE;
    (void)tool_sums_add(&facts->pools, segments[i].pool, 0, segments[i].bytes);
    if (tide_trace_segment_is_parked(trace, &segments[i]))
      (void)tool_sums_add(&facts->parked, segments[i].pool, 0, segments[i].bytes);
  }
}

// Infers the memory limit of the run as report does. Only freed segments and refused requests can show one.
static int device_find_limit(device_facts* facts, const tool_call* call, tide_trace* trace,
                             tide_ledger* ledger) {
  const uint64_t* const actions = facts->actions;
  tool_recording recording = { .trace = NULL };
  tool_limits refusals;
  size_t count = 0;
  facts->limit = (tool_limit){ .bytes = TIDE_NO_LIMIT, .less_than = TIDE_NO_LIMIT };
  if (actions[TIDE_ACTION_OOM] + actions[TIDE_ACTION_SEGMENT_FREE] + actions[TIDE_ACTION_SEGMENT_UNMAP] == 0)
    return TOOL_DONE;
  int status = tool_refusals_find(trace, facts->device, ledger, NULL, 0, &count, &refusals);
  if (status == TOOL_DONE && tool_recording_begin(trace, facts->device, ledger, &recording)) {
    (void)tool_recording_compare(&recording);
    status = tool_limit_choose(call, &recording, facts->has_segments ? &refusals : NULL, &facts->limit);
  }
  tide_replay_free(recording.replay);
  return status;
}

static int device_look(device_facts* facts, const tool_call* call, tide_trace* trace) {
  device_count_entries(facts, trace);
  device_count_segments(facts, trace);
  facts->has_steps = tide_trace_get_about(trace).has_steps;
  facts->has_segments = tool_device_has_segments(trace, facts->device);
  facts->knows_reserved = tool_device_knows_reserved(trace, facts->device);
  tool_sums_sort_by_keys(&facts->streams);
  tool_sums_sort_by_keys(&facts->pools);
  tide_ledger* ledger = NULL;
  if (tide_ledger_new(trace, facts->device, &ledger) != TIDE_OK) return tool_fail("%s", tool_error());
  facts->peaks = tide_ledger_get_peaks(ledger);
  facts->faults = tide_ledger_get_faults(ledger);
  const int status = device_find_limit(facts, call, trace, ledger);
  tide_ledger_free(ledger);
  return status;
}

static void device_facts_fini(device_facts* facts) {
  tool_sums_fini(&facts->streams);
  tool_sums_fini(&facts->pools);
  tool_sums_fini(&facts->parked);
}

// ---------------------------------------------------------------------------------------------------
// One list of facts for both forms of output

typedef enum fact_kind { FACT_COUNT, FACT_BYTES, FACT_REAL, FACT_SHARE, FACT_YES, FACT_UNKNOWN } fact_kind;

typedef struct info_fact {
  const char* key;
  const char* label;  // NULL: only in JSON
  fact_kind kind;
  double real;
  uint64_t number;
} info_fact;

#define INFO_FACTS 64

typedef struct fact_list {
  info_fact facts[INFO_FACTS];
  size_t count;
} fact_list;

static void fact_add(fact_list* list, const char* key, const char* label, fact_kind kind, uint64_t number) {
  list->facts[list->count++] = (info_fact){ key, label, kind, 0, number };
}

static void fact_add_real(fact_list* list, const char* key, const char* label, double real) {
  list->facts[list->count++] = (info_fact){ key, label, FACT_REAL, real, 0 };
}

static void fact_add_share(fact_list* list, const char* key, const char* label, double share) {
  list->facts[list->count++] = (info_fact){ key, label, FACT_SHARE, share, 0 };
}

static void fact_add_unknown(fact_list* list, const char* key) {
  list->facts[list->count++] = (info_fact){ key, NULL, FACT_UNKNOWN, 0, 0 };
}

static void facts_of_entries(const device_facts* device, fact_list* list) {
  static const char* const keys[TIDE_ACTION_COUNT] = { "allocs",         "free_requests", "free_completions",
                                                       "segment_allocs", "segment_frees", "segment_maps",
                                                       "segment_unmaps", "snapshots",     "ooms",
                                                       "user_defined",   "others" };
  fact_add(list, "device", NULL, FACT_COUNT, device->device);
  fact_add(list, "entries", "entries", FACT_COUNT, device->entries);
  for (uint32_t i = 0; i < TIDE_ACTION_COUNT; i++) {
    const char* const label = device->actions[i] != 0 ? tide_action_name(i) : NULL;
    fact_add(list, keys[i], label, FACT_COUNT, device->actions[i]);
  }
  fact_add(list, "entries_with_stack", "entries with a stack", FACT_COUNT, device->with_stack);
  fact_add(list, "streams", "streams", FACT_COUNT, device->streams.count);
  fact_add(list, "pools", "pools", FACT_COUNT, device->pools.count);
  fact_add(list, "segments", "segments at the end", FACT_COUNT, device->segments);
  fact_add(list, "blocks", "blocks at the end", FACT_COUNT, device->blocks);
  fact_add(list, "blocks_in_use", "of these in use", FACT_COUNT, device->blocks_in_use);
}

static void facts_of_peaks(const device_facts* device, fact_list* list) {
  const tide_ledger_peaks* const peaks = &device->peaks;
  const bool has_peaks = device->entries > 0;  // otherwise only the final state is known
  fact_add(list, "peak_allocated", has_peaks ? "peak allocated" : "allocated", FACT_BYTES, peaks->live.bytes);
  fact_add(list, "peak_allocated_blocks", "  as PyTorch counts", FACT_BYTES, peaks->allocated.bytes);
  fact_add(list, "peak_requested", "  as requested", FACT_BYTES, peaks->requested.bytes);
  fact_add(list, "peak_active", NULL, FACT_BYTES, peaks->active.bytes);
  if (device->knows_reserved) {
    const uint64_t reserved = peaks->reserved.bytes;
    fact_add(list, "peak_reserved", has_peaks ? "peak reserved" : "reserved", FACT_BYTES, reserved);
    fact_add_share(list, "utilisation", "utilisation", tool_utilisation(peaks->live.bytes, reserved));
  } else {
    fact_add_unknown(list, "peak_reserved");
    fact_add_unknown(list, "utilisation");
  }
}

static void fact_add_bytes_if(fact_list* list, bool is_known, const char* key, const char* label,
                              uint64_t bytes) {
  if (is_known) fact_add(list, key, label, FACT_BYTES, bytes);
  else fact_add_unknown(list, key);
}

static void facts_of_limit(const device_facts* device, fact_list* list) {
  const tool_limit* const limit = &device->limit;
  const bool is_shown = tool_limit_is_shown(limit);
  fact_add_bytes_if(list, is_shown, "limit", "limit (inferred)", limit->bytes);
  fact_add_bytes_if(list, is_shown, "limit_at_least", NULL, limit->at_least);
  fact_add_bytes_if(list, is_shown, "limit_less_than", NULL, limit->less_than);
  fact_add(list, "is_limit_certain", NULL, FACT_YES, is_shown && limit->is_certain);
}

// In text output, faults are shown only if there are any.
static void fact_add_fault(fact_list* list, const char* key, const char* label, uint64_t count) {
  fact_add(list, key, count != 0 ? label : NULL, FACT_COUNT, count);
}

static void facts_of_faults(const device_facts* device, fact_list* list) {
  const tide_ledger_faults* const faults = &device->faults;
  fact_add(list, "is_from_start", "recorded from the start", FACT_YES, faults->is_from_start);
  fact_add_fault(list, "segments_before", "segments already there", faults->segments_before);
  fact_add_fault(list, "blocks_before", "blocks already there", faults->blocks_before);
  fact_add(list, "block_bytes_before", faults->bytes_before != 0 ? "  their size" : NULL, FACT_BYTES,
           faults->bytes_before);
  fact_add_fault(list, "unknown_frees", "frees of unknown blocks", faults->unknown_frees);
  fact_add(list, "homeless_allocs",
           device->has_segments && faults->homeless_allocs != 0 ? "allocs outside segments" : NULL,
           FACT_COUNT, faults->homeless_allocs);
  fact_add_fault(list, "overlaps", "overlapping allocs", faults->overlaps);
  fact_add_fault(list, "odd_segments", "inconsistent segments", faults->odd_segments);
  fact_add_fault(list, "differences", "differences from the segment list", faults->differences);
}

static void fact_emit(tool_emit* emit, const info_fact* fact, const char* key, const char* label) {
  switch (fact->kind) {
    case FACT_COUNT: tool_emit_uint(emit, key, label, fact->number); break;
    case FACT_BYTES: tool_emit_bytes(emit, key, label, fact->number); break;
    case FACT_REAL: tool_emit_real(emit, key, label, fact->real, 4); break;
    case FACT_SHARE: tool_emit_share(emit, key, label, fact->real); break;
    case FACT_YES: tool_emit_bool(emit, key, label, fact->number != 0); break;
    case FACT_UNKNOWN: tool_emit_text(emit, key, label, NULL); break;
  }
}

// ---------------------------------------------------------------------------------------------------
// Devices

static void facts_of_time(const device_facts* device, fact_list* list) {
  if (device->has_times) {
    fact_add(list, "first_us", NULL, FACT_COUNT, device->first_ns / 1000);
    fact_add_real(list, "span_ms", NULL, (double)device->span_ns / 1e6);
  } else {
    fact_add_unknown(list, "first_us");
    fact_add_unknown(list, "span_ms");
  }
  if (device->has_steps) fact_add(list, "steps", "steps", FACT_COUNT, device->steps);
  else fact_add_unknown(list, "steps");
}

static void device_list(const device_facts* device, fact_list* list) {
  list->count = 0;
  facts_of_entries(device, list);
  facts_of_time(device, list);
  facts_of_peaks(device, list);
  facts_of_limit(device, list);
  facts_of_faults(device, list);
}

static void devices_emit_json(tool_emit* emit, const device_facts* devices, size_t count) {
  fact_list list;
  tool_column columns[INFO_FACTS];
  const device_facts none = { .limit.less_than = TIDE_NO_LIMIT };
  device_list(count > 0 ? &devices[0] : &none, &list);
  for (size_t i = 0; i < list.count; i++) columns[i] = (tool_column){ list.facts[i].key, NULL };
  tool_emit_table(emit, "devices", columns, list.count);
  for (size_t i = 0; i < count; i++) {
    device_list(&devices[i], &list);
    tool_emit_row(emit);
    for (size_t k = 0; k < list.count; k++) fact_emit(emit, &list.facts[k], NULL, NULL);
  }
  tool_emit_table_end(emit);
}

// The time of the first entry, and the time to the last.
static void device_emit_time(tool_emit* emit, const device_facts* device) {
  if (!device->has_times) return;
  const time_t seconds = (time_t)(device->first_ns / 1000000000u);
  struct tm parts;
  char text[64] = "";
  const char* const form = seconds < 86400 ? "%H:%M:%S"
                                           : "%Y-%m-%d %H:%M:%S UTC";  // time of day, or since 1970
  if (gmtime_r(&seconds, &parts) != NULL) (void)strftime(text, sizeof text, form, &parts);
  tool_emit_text(emit, NULL, "first entry", text);
  tool_emit_format(emit, NULL, "duration", "%.3f s", (double)device->span_ns / 1e9);
}

static void device_emit_words(tool_emit* emit, const device_facts* device) {
  const tide_ledger_faults* const faults = &device->faults;
  tool_limit_emit_bounds(emit, &device->limit, "");
  if (!faults->is_from_start && device->entries > 0)
    tool_emit_words(emit, "The recording begins in the middle of the run: older entries were overwritten, or "
                          "recording was switched on late. What existed before was reconstructed from the "
                          "final state.");
  if (!device->has_times && !device->has_steps && device->entries > 0)
    tool_emit_words(emit, "No times were recorded.");
  if (!device->has_segments && device->entries > 0)
    tool_emit_words(emit, "Only requests were recorded, not segments.");
  if (tool_fault_count(faults, device->has_segments) > 0)
    tool_emit_words(
        emit, "Some entries contradict others, or refer to entries that are missing, so the figures are "
              "approximate.");
}

static void devices_emit_people(tool_emit* emit, const device_facts* devices, size_t count) {
  fact_list list;
  for (size_t i = 0; i < count; i++) {
    if (devices[i].entries == 0 && devices[i].segments == 0) continue;
    device_list(&devices[i], &list);
    tool_emit_title(emit, "Device %zu", devices[i].device);
    device_emit_time(emit, &devices[i]);
    for (size_t k = 0; k < list.count; k++) fact_emit(emit, &list.facts[k], NULL, list.facts[k].label);
    device_emit_words(emit, &devices[i]);
  }
}

static void streams_emit(tool_emit* emit, const tool_call* call, const device_facts* devices, size_t count) {
  static const tool_column columns[] = {
    { "device", "device" },
    { "stream", "stream" },
    { "allocations", "allocations" },
    { "largest", "largest" },
    { "bytes", "requested in total" },
  };
  size_t total = 0;
  for (size_t i = 0; i < count; i++) total += devices[i].streams.count;
  if (total == 0 && !call->is_json) return;
  tool_emit_title(emit, "Streams");
  tool_emit_table(emit, "streams", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < count; i++) {
    for (size_t k = 0; k < devices[i].streams.count; k++) {
      const tool_sum* const stream = &devices[i].streams.items[k];
      tool_emit_row(emit);
      tool_emit_uint(emit, NULL, NULL, devices[i].device);
      tool_emit_uint(emit, NULL, NULL, stream->key);
      tool_emit_uint(emit, NULL, NULL, stream->count);
      tool_emit_bytes(emit, NULL, NULL, stream->largest);
      tool_emit_bytes(emit, NULL, NULL, stream->bytes);
    }
  }
  tool_emit_table_end(emit);
}

static void pool_emit(tool_emit* emit, const tide_trace* trace, const tool_pool_tags* tags,
                      const device_facts* facts, const tool_sum* pool) {
  const tool_sum* const parked = tool_sums_find(&facts->parked, pool->key, 0);
  tool_emit_row(emit);
  tool_emit_uint(emit, NULL, NULL, facts->device);
  tool_emit_pool(emit, trace, (uint32_t)pool->key);
  tool_emit_text(emit, NULL, NULL, tool_pool_tag(tags, pool->key));
  tool_emit_uint(emit, NULL, NULL, pool->count);
  tool_emit_bytes(emit, NULL, NULL, pool->bytes);
  tool_emit_bytes(emit, NULL, NULL, parked != NULL ? parked->bytes : 0);
}

static void pools_emit(tool_emit* emit, const tool_call* call, const tide_trace* trace,
                       const device_facts* devices, size_t count) {
  size_t total = 0;
  tool_pool_tags tags;
  for (size_t i = 0; i < count; i++) total += devices[i].pools.count;
  if (total == 0 && !call->is_json) return;
  tool_pool_tags_find(trace, &tags);
  const tool_column columns[] = {
    { "device", "device" },
    { "pool", "pool" },
    { "tag", tags.has_any ? "tag" : NULL },
    { "segments", "segments at the end" },
    { "bytes", "bytes" },
    { "parked", tags.has_any ? "parked" : NULL },
  };
  tool_emit_title(emit, "Pools");
  tool_emit_table(emit, "pools", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < count; i++) {
    for (size_t k = 0; k < devices[i].pools.count; k++)
      pool_emit(emit, trace, &tags, &devices[i], &devices[i].pools.items[k]);
  }
  tool_emit_table_end(emit);
  tool_pool_tags_fini(&tags);
}

// ---------------------------------------------------------------------------------------------------
// Settings

// Does a setting have PyTorch's default?
static bool setting_is_default(const tide_intern* names, const char* key, const tide_value* value) {
  switch (value->kind) {
    case TIDE_VALUE_NONE: return true;
    case TIDE_VALUE_FLOAT: return !(value->number < 0) && !(value->number > 0);
    case TIDE_VALUE_TEXT: return value->text == 0;
    case TIDE_VALUE_INT:
      if (strcmp(key, "max_split_size") == 0) return value->integer == -1;
      if (strcmp(key, "pinned_num_register_threads") == 0) return value->integer == 1;
      return value->integer == 0;
    case TIDE_VALUE_DICT:
      for (size_t i = 0; i < value->count; i++) {
        const tide_value item = tide_intern_value(names, (uint32_t)value->items[i]);
        if (item.kind != TIDE_VALUE_INT || item.integer > 1) return false;
      }
      return true;
    default: return value->integer == 0;
  }
}

static void setting_emit(tool_emit* emit, const tide_intern* names, const char* key, const char* label,
                         const tide_value* value) {
  switch (value->kind) {
    case TIDE_VALUE_BOOL: tool_emit_bool(emit, key, label, value->integer != 0); break;
    case TIDE_VALUE_INT:
      if (value->integer < 0) tool_emit_real(emit, key, label, (double)value->integer, 0);
      else tool_emit_uint(emit, key, label, (uint64_t)value->integer);
      break;
    case TIDE_VALUE_UINT: tool_emit_uint(emit, key, label, (uint64_t)value->integer); break;
    case TIDE_VALUE_FLOAT: tool_emit_real(emit, key, label, value->number, 6); break;
    case TIDE_VALUE_TEXT: tool_emit_text(emit, key, label, tide_intern_text(names, value->text, NULL)); break;
    default: tool_emit_text(emit, key, label, NULL); break;
  }
}

// A dict in the settings contains only numbers.
static void setting_emit_dict_json(tool_emit* emit, const tide_intern* names, const char* key,
                                   const tide_value* dict) {
  tool_emit_open(emit, key, NULL);
  for (size_t i = 0; i < dict->count; i++) {
    const tide_value item = tide_intern_value(names, (uint32_t)dict->items[i]);
    const char* const name = tide_intern_text(names, (uint32_t)(dict->items[i] >> 32), NULL);
    if (name != NULL) setting_emit(emit, names, name, NULL, &item);
  }
  tool_emit_close(emit);
}

// In text output a dict is one line, [256:1,512:2], as the setting is written.
static void setting_emit_dict_people(tool_emit* emit, const tide_intern* names, const char* key,
                                     const tide_value* dict) {
  char text[512] = "[";
  size_t length = 1;
  for (size_t i = 0; i < dict->count && length + 1 < sizeof text; i++) {
    const tide_value item = tide_intern_value(names, (uint32_t)dict->items[i]);
    const char* const name = tide_intern_text(names, (uint32_t)(dict->items[i] >> 32), NULL);
    const int added = snprintf(text + length, sizeof text - length, "%s%s:%lld", i == 0 ? "" : ",",
                               name != NULL ? name : "", (long long)item.integer);
    length += added > 0 ? (size_t)added : 0;
  }
  tool_emit_format(emit, NULL, key, "%s]", text);
}

static void settings_emit(tool_emit* emit, const tool_call* call, const tide_trace* trace) {
  const tide_intern* const names = tide_trace_names(trace);
  const tide_value settings = tide_intern_value(names, tide_trace_get_about(trace).settings);
  if (settings.kind != TIDE_VALUE_DICT) {
    tool_emit_text(emit, "settings", NULL, NULL);
    return;
  }
  tool_emit_open(emit, "settings", "Settings that differ from PyTorch's defaults");
  size_t shown = 0;
  for (size_t i = 0; i < settings.count; i++) {
    const tide_value value = tide_intern_value(names, (uint32_t)settings.items[i]);
    const char* const name = tide_intern_text(names, (uint32_t)(settings.items[i] >> 32), NULL);
    if (name == NULL) continue;
    const bool is_default = setting_is_default(names, name, &value);
    shown += !is_default;
    if (value.kind != TIDE_VALUE_DICT) setting_emit(emit, names, name, is_default ? NULL : name, &value);
    else if (call->is_json) setting_emit_dict_json(emit, names, name, &value);
    else if (!is_default) setting_emit_dict_people(emit, names, name, &value);
  }
  if (shown == 0) tool_emit_text(emit, NULL, "none", "");
  tool_emit_close(emit);
}

// ---------------------------------------------------------------------------------------------------
// The verb

static void about_emit(tool_emit* emit, const tool_call* call, const tide_trace* trace, bool has_entries) {
  const tide_trace_about about = tide_trace_get_about(trace);
  const tide_intern_counts counts = tide_intern_counts_of(tide_trace_names(trace));
  size_t annotations = 0;
  if (about.annotations != 0)
    annotations = tide_intern_value(tide_trace_names(trace), about.annotations).count;
  tool_emit_text(emit, "file", "file", call->operands[0]);
  tool_emit_bool(emit, "has_entries", "has entries", has_entries);
  tool_emit_bool(emit, "has_segments", "has a segment list", about.has_segments);
  tool_emit_bool(emit, "has_steps", NULL, about.has_steps);
  tool_emit_bool(emit, "is_cut", about.is_cut ? "is truncated" : NULL, about.is_cut);
  tool_emit_uint(emit, "stacks", "stacks", counts.stacks);
  tool_emit_uint(emit, "frames", "frames", counts.frames);
  tool_emit_uint(emit, "annotations", "annotations", annotations);
}

static int info_answer(const tool_call* call, const tide_trace* trace, const device_facts* devices,
                       size_t count) {
  bool has_entries = false;
  for (size_t i = 0; i < count; i++) has_entries |= devices[i].entries > 0;
  tool_emit* const emit = tool_emit_begin(call);
  about_emit(emit, call, trace, has_entries);
  settings_emit(emit, call, trace);
  if (call->is_json) devices_emit_json(emit, devices, count);
  else devices_emit_people(emit, devices, count);
  streams_emit(emit, call, devices, count);
  pools_emit(emit, call, trace, devices, count);
  return tool_emit_end(emit);
}

// The device at a place of the list, which begins with the one that ran out of memory first.
static size_t device_in_order(size_t place, size_t first) {
  if (place == 0) return first;
  return place <= first ? place - 1 : place;
}

static int info_run(const tool_call* call) {
  tide_trace* trace = NULL;
  int status = tool_trace_read(call->operands[0], &trace);
  if (status != TOOL_DONE) return status;
  const size_t count = tool_device_count(trace);
  uint64_t refused_at = 0;
  size_t first = tool_device_default(trace);
  if (!tool_device_first_refusal(trace, first, &refused_at)) first = 0;
  device_facts* const devices = tool_alloc(count + 1, sizeof *devices);
  for (size_t i = 0; i < count && status == TOOL_DONE; i++) {
    devices[i].device = device_in_order(i, first);
    status = device_look(&devices[i], call, trace);
  }
  if (status == TOOL_DONE) status = info_answer(call, trace, devices, count);
  for (size_t i = 0; i < count; i++) device_facts_fini(&devices[i]);
  free(devices);
  tide_trace_free(trace);
  return status;
}

static const tool_option info_options[] = { { NULL, 0, NULL, NULL } };

const tool_verb tool_info = {
  .name = "info",
  .summary = "show what a recording contains",
  .operands = "FILE",
  .text =
      "Shows the entries by kind, the time they span, allocator settings, streams, pools and peaks, the "
      "memory limit of the run if it shows, and whether the recording is complete.\n\n"
      "\"allocated\" is the peak of live requests, each rounded up to 512 bytes; \"as PyTorch counts\" is "
      "the peak of the blocks handed out for them; \"reserved\" is all memory taken from the device; "
      "\"utilisation\" is allocated / reserved. tidemark(1) lists the keys of --json.",
  .options = info_options,
  .operands_min = 1,
  .operands_max = 1,
  .run = info_run,
};
