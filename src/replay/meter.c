// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The counters of the machine are read eleven times per run; tenths are differences. As many calls to map,
// unmap and set access as memory was created or freed count as growth and shrinking. Further calls move
// existing memory, and count as remapping, at the average cost of their kind.
#include "replay/meter.h"

#include "base/arith.h"
#include "base/error.h"

enum {
  METER_RAW_ALLOC,
  METER_RAW_RELEASE,
  METER_PHYSICAL_NEW,
  METER_PHYSICAL_FREE,
  METER_MAP,
  METER_UNMAP,
  METER_SET_ACCESS,
  METER_ADDRESS_RESERVE,
  METER_ADDRESS_RELEASE
};

static const tide_call meter_calls[TIDE__METER_CALLS] = {
  TIDE_CALL_RAW_ALLOC,
  TIDE_CALL_RAW_RELEASE,
  TIDE_CALL_PHYSICAL_NEW,
  TIDE_CALL_PHYSICAL_FREE,
  TIDE_CALL_MAP,
  TIDE_CALL_UNMAP,
  TIDE_CALL_SET_ACCESS,
  TIDE_CALL_ADDRESS_RESERVE,
  TIDE_CALL_ADDRESS_RELEASE,
};

static size_t tenth_end(const tide__script* script, size_t tenth) {
  if (tenth + 1 >= TIDE_REPLAY_TENTHS) return script->step_count;
  return tide__script_find(script, script->entry_count * (tenth + 1) / TIDE_REPLAY_TENTHS);
}

// The first step of the part after a part of the curve. The product fits: there are below 2^27 entries.
static size_t part_end(const tide__stage* stage, size_t part) {
  const tide_replay_options* const options = stage->options;
  if (options->curve == NULL || part >= options->curve_count) return SIZE_MAX;
  if (part + 1 == options->curve_count) return stage->script->step_count;
  const uint64_t share = (uint64_t)stage->script->entry_count * (part + 1) / options->curve_count;
  return tide__script_find(stage->script, (size_t)share);
}

void tide__meter_init(tide__meter* meter, const tide__stage* stage) {
  *meter = (tide__meter){ .stage = stage, .tenth_end = tenth_end(stage->script, 0) };
  meter->part_end = part_end(stage, 0);
  meter->next = tide__min(meter->tenth_end, meter->part_end);
  for (size_t i = 0; i < TIDE__METER_CALLS; i++) {
    meter->before[i] = tide_machine_call_stats(stage->machine, meter_calls[i]);
  }
}

// The cost of the calls of a kind beyond those that belong to created or freed memory.
static uint64_t excess_ns(const tide_call_stats* kind, uint64_t paired_calls) {
  if (kind->calls <= paired_calls) return 0;
  const double share = (double)(kind->calls - paired_calls) / (double)kind->calls;
  return (uint64_t)((double)kind->ns * share);
}

static uint64_t remap_ns(const tide_call_stats spent[TIDE__METER_CALLS]) {
  const tide_call_stats* const map = &spent[METER_MAP];
  const uint64_t made = spent[METER_PHYSICAL_NEW].calls;
  const uint64_t unmapped = excess_ns(&spent[METER_UNMAP], spent[METER_PHYSICAL_FREE].calls);
  if (map->calls <= made) return unmapped;
  const double share = (double)(map->calls - made) / (double)map->calls;
  return unmapped + excess_ns(map, made) + (uint64_t)((double)spent[METER_SET_ACCESS].ns * share);
}

// Ends the current tenth.
static tide_status meter_read(tide__meter* meter, tide_replay_result* result) {
  tide_call_stats spent[TIDE__METER_CALLS];
  uint64_t calls = 0;
  uint64_t ns = 0;
  for (size_t i = 0; i < TIDE__METER_CALLS; i++) {
    const tide_call_stats now = tide_machine_call_stats(meter->stage->machine, meter_calls[i]);
    spent[i].calls = now.calls - meter->before[i].calls;
    spent[i].ns = now.ns - meter->before[i].ns;
    meter->before[i] = now;
    calls += spent[i].calls;
    ns += spent[i].ns;
  }
  result->driver_calls_by_tenth[meter->tenth] += calls;
  result->driver_ns_by_tenth[meter->tenth] += ns;
  result->remap_ns_by_tenth[meter->tenth] += remap_ns(spent);
  result->driver_calls += calls;
  result->driver_ns += ns;
  return TIDE_OK;
}

// The peaks since the last part of the curve, or of the whole run.
static tide_status meter_take_peaks(const tide__stage* stage, tide_replay_result* result,
                                    tide_device_stats* stats) {
  TIDE_TRY(tide_device_get_stats(stage->device, stats));
  const uint64_t reserved = (uint64_t)stats->reserved_bytes[TIDE_STAT_ALL].peak;
  const uint64_t blocks = (uint64_t)stats->allocated_bytes[TIDE_STAT_ALL].peak;
  result->peak_reserved = tide__max(result->peak_reserved, reserved);
  result->peak_blocks = tide__max(result->peak_blocks, blocks);
  return TIDE_OK;
}

static tide_status meter_end_part(tide__meter* meter, tide_replay_result* result) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  TIDE_TRY(meter_take_peaks(meter->stage, result, &stats));
  meter->stage->options->curve[meter->part] = (uint64_t)stats.reserved_bytes[TIDE_STAT_ALL].peak;
  tide_device_reset_peaks(meter->stage->device);
  meter->part++;
  meter->part_end = part_end(meter->stage, meter->part);
  return TIDE_OK;
}

tide_status tide__meter_tick(tide__meter* meter, size_t at, tide_replay_result* result) {
  while (at >= meter->part_end) TIDE_TRY(meter_end_part(meter, result));
  while (meter->tenth + 1 < TIDE_REPLAY_TENTHS && at >= meter->tenth_end) {
    TIDE_TRY(meter_read(meter, result));
    meter->tenth++;
    meter->tenth_end = tenth_end(meter->stage->script, meter->tenth);
  }
  meter->next = tide__min(meter->tenth_end, meter->part_end);
  return TIDE_OK;
}

static uint64_t script_span_ns(const tide__script* script) {
  if (script->entry_count == 0) return 0;
  const uint64_t first = script->entries[0].time_ns;
  const uint64_t last = script->entries[script->entry_count - 1].time_ns;
  return last > first ? last - first : 0;
}

static tide_status meter_take_stats(const tide__stage* stage, tide_replay_result* result) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  TIDE_TRY(meter_take_peaks(stage, result, &stats));
  result->driver_allocs = (uint64_t)stats.num_device_alloc;
  result->driver_frees = (uint64_t)stats.num_device_free;
  result->retries = (uint64_t)stats.num_alloc_retries;
  return TIDE_OK;
}

tide_status tide__meter_finish(tide__meter* meter, size_t at, tide_replay_result* result) {
  const tide__stage* const stage = meter->stage;
  const tide__script* const script = stage->script;
  TIDE_TRY(tide__meter_tick(meter, at, result));
  TIDE_TRY(meter_read(meter, result));
  result->entries = at < script->step_count ? script->steps[at].entry : script->entry_count;
  result->allocations = stage->allocations;
  result->skipped = script->skipped;
  result->blocks_before = script->before_count;
  result->bytes_before = script->before_bytes;
  result->peak_allocated = stage->peak_bytes;
  result->ooms = stage->ooms;
  result->first_oom = stage->first_oom;
  result->oom_bytes = stage->oom_bytes;
  result->inferred_empty_cache = stage->empties;
  result->unscaled_blocks = stage->unscaled_blocks;
  result->unscaled_bytes = stage->unscaled_bytes;
  result->is_in_place = stage->is_in_place;
  result->span_ns = script_span_ns(script);
  return meter_take_stats(stage, result);
}
