// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The calls that set and read budgets of tags, and what snapshots say about them.
#include "base/heap.h"
#include "base/sized.h"
#include "device/tide/giving.h"
#include "trace/tags.h"

static tide_status call_check(tide_device_cache* device, const char* call, const char* tag) {
  TIDE_REQUIRE(device != NULL && tag != NULL, TIDE_ERR_ARGUMENT, "%s: no device or tag", call);
  TIDE__REQUIRE_OWN(device, call);
  return tide__tag_check(call, tag);
}

static tide_status record_get(tide_device_cache* device, const char* call, const char* tag, tide__tag** out) {
  const char* kept = NULL;
  TIDE_TRY(call_check(device, call, tag));
  TIDE_TRY(tide__tag_keep(device, call, tag, &kept));
  return tide__tag_make(device, kept, out);
}

// A question makes no record: *out is NULL for a tag that is not known.
static tide_status record_find(tide_device_cache* device, const char* call, const char* tag,
                               tide__tag** out) {
  const char* kept = NULL;
  TIDE_TRY(call_check(device, call, tag));
  TIDE_TRY(tide__tag_keep(device, call, tag, &kept));
  *out = tide__tag_find(device, kept);
  return TIDE_OK;
}

// What is above the limit gives way, as far as that is possible now.
static void limit_lowered(tide_device_cache* device, tide__tag* tag) {
  tide__call_context context = { 0 };
  const bool is_capturing = tide__has_captures(device) && !tide__device_options(device)->captures_by_stream;
  const tide_error before = *tide_last_error();
  if (tag->budget.limit == TIDE_NO_LIMIT || is_capturing) return;
  if (tide__is_recording(device)) context = tide__context_now(device, TIDE_HISTORY_ALL);
  const tide__giving giving = { .device = device, .lowered = tag, .context = &context };
  tide__ignore(tide__give_way(&giving));
  tide__error_restore(&before);
}

static void budget_put(tide_device_cache* device, tide__tag* tag, const tide_budget* budget, bool is_set) {
  device->budget_count += (uint32_t)is_set - (uint32_t)tag->has_budget;
  tag->has_budget = is_set;
  tag->budget = *budget;
}

tide_status tide_device_budget_set(tide_device_cache* device, const char* tag, const tide_budget* budget) {
  tide_budget whole = TIDE_BUDGET_INIT;
  tide__tag* record = NULL;
  if (budget != NULL) TIDE_TRY(tide__sized_read("device_budget_set", budget, &whole, sizeof whole));
  TIDE_REQUIRE(whole.guarantee <= whole.limit, TIDE_ERR_ARGUMENT,
               "device_budget_set: a guarantee of %llu bytes is above the limit of %llu bytes",
               (unsigned long long)whole.guarantee, (unsigned long long)whole.limit);
  TIDE_TRY(record_get(device, "device_budget_set", tag, &record));
  (void)tide__gate_enter(device);
  budget_put(device, record, &whole, budget != NULL);
  limit_lowered(device, record);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  return TIDE_OK;
}

tide_status tide_device_budget_get(tide_device_cache* device, const char* tag, tide_budget* out) {
  tide_budget whole = TIDE_BUDGET_INIT;
  tide__tag* record = NULL;
  TIDE_TRY(tide__sized_check("device_budget_get", out, sizeof *out));
  tide__sized_clear(out);
  TIDE_TRY(record_find(device, "device_budget_get", tag, &record));
  (void)tide__gate_enter(device);
  if (record != NULL) whole = record->budget;
  tide__gate_leave(device);
  return tide__sized_write("device_budget_get", &whole, out, sizeof whole);
}

static void stats_add(tide_budget_stats* stats, const tide__tag* tag) {
  stats->parked_count += tag->parked_count;
  stats->fetched_count += tag->fetched_count;
  stats->ahead_count += tag->ahead_count;
  stats->sent_bytes += tag->sent_bytes;
  stats->fetched_bytes += tag->fetched_bytes;
  stats->idle_bytes += tag->idle_bytes;
  stats->refused_count += tide__load_relaxed(&tag->refused_count);
}

static uint64_t peak_of(tide_device_cache* device, const tide__tag* tag) {
  tide__mutex_lock(&device->totals_lock);
  const uint64_t bytes = tag->held_most;
  tide__mutex_unlock(&device->totals_lock);
  return bytes;
}

// The figures of a tag and of those below it, after tide__budgets_measure().
static tide_budget_stats stats_measured(tide_device_cache* device, const tide__tag* tag) {
  tide_budget_stats stats = TIDE_BUDGET_STATS_INIT;
  stats.use_count = tag->uses;
  stats.reserved_bytes = tag->reserved;
  stats.claimed_bytes = tag->basis;
  stats.peak_reserved_bytes = peak_of(device, tag);
  for (const tide__tag* below = tide__tags_first(device); below != NULL; below = below->next) {
    if (tide__tag_is_under(below, tag)) stats_add(&stats, below);
  }
  return stats;
}

tide_status tide_device_budget_stats(tide_device_cache* device, const char* tag, tide_budget_stats* out) {
  tide_budget_stats stats = TIDE_BUDGET_STATS_INIT;
  tide__tag* record = NULL;
  TIDE_TRY(tide__sized_check("device_budget_stats", out, sizeof *out));
  tide__sized_clear(out);
  TIDE_TRY(record_find(device, "device_budget_stats", tag, &record));
  if (record == NULL) return tide__sized_write("device_budget_stats", &stats, out, sizeof stats);
  (void)tide__gate_enter(device);
  (void)tide__budgets_measure(device, NULL, 0);
  stats = stats_measured(device, record);
  tide__gate_leave(device);
  return tide__sized_write("device_budget_stats", &stats, out, sizeof stats);
}

// ---------------------------------------------------------------------------------------------------
// Snapshots

static tide_trace_tag tag_describe(tide_device_cache* device, const tide__tag* tag) {
  const tide_budget_stats stats = stats_measured(device, tag);
  return (tide_trace_tag){ .size = sizeof(tide_trace_tag),
                           .device = (uint32_t)device->index,
                           .tag = tag->text,
                           .has_budget = tag->has_budget,
                           .yields = tag->budget.yields,
                           .is_constant = tag->budget.is_constant,
                           .priority = tag->budget.priority,
                           .limit = tag->budget.limit,
                           .soft_limit = tag->budget.soft_limit,
                           .guarantee = tag->budget.guarantee,
                           .reserved_bytes = stats.reserved_bytes,
                           .claimed_bytes = stats.claimed_bytes,
                           .peak_reserved_bytes = stats.peak_reserved_bytes,
                           .parked_count = stats.parked_count,
                           .fetched_count = stats.fetched_count,
                           .ahead_count = stats.ahead_count,
                           .sent_bytes = stats.sent_bytes,
                           .fetched_bytes = stats.fetched_bytes,
                           .idle_bytes = stats.idle_bytes,
                           .refused_count = stats.refused_count };
}

// The list of tags grows at its front only. The oldest comes first, so a tag comes behind those above it.
tide_status tide__tags_to_trace(tide_device_cache* device, tide_trace* trace) {
  const tide__tag* const newest = tide__tags_first(device);
  size_t count = 0;
  for (const tide__tag* tag = newest; tag != NULL; tag = tag->next) count++;
  if (count == 0) return TIDE_OK;
  tide_trace_tag* const tags = tide__heap_alloc(device->heap, count, sizeof *tags);
  TIDE_REQUIRE(tags != NULL, TIDE_ERR_NO_MEMORY, "device_snapshot: no memory for the tags");
  size_t at = count;
  (void)tide__gate_enter(device);
  (void)tide__budgets_measure(device, NULL, 0);
  for (const tide__tag* tag = newest; tag != NULL; tag = tag->next) tags[--at] = tag_describe(device, tag);
  tide__gate_leave(device);
  const tide_status status = tide__trace_add_tags(trace, device->heap, tags, count);
  tide__heap_release(device->heap, tags, count, sizeof *tags);
  return status;
}
