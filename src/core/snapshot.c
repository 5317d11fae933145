// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Carrying entries, segments and blocks into a trace. Each distinct pool, stack and note is carried once.
#include "core/snapshot.h"

#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "trace/carry.h"

typedef struct snapshot {
  const tide__snapshot_source* source;  // borrowed
  tide_trace* trace;                    // borrowed
  tide__carry names;
  tide__carried pools;
  const tide_pool* only;  // borrowed; NULL: all pools
  bool is_skipping;       // the blocks of a segment of another pool
  tide_status status;     // of what a visitor did
} snapshot;

// ---------------------------------------------------------------------------------------------------
// Parts

static tide_status pool_carry(snapshot* s, tide_pool number, uint32_t* out) {
  uint32_t spare = 0;
  uint32_t* const known = tide__carried_at(&s->pools, number, &spare);
  *out = 0;
  if (number == TIDE_POOL_DEFAULT) return TIDE_OK;
  if (*known == 0) {
    tide_pool_label label = { 0, number };
    if (s->source->label != NULL) (void)s->source->label(s->source->owner, number, &label);
    TIDE_TRY(tide_trace_add_pool(s->trace, label, out));
    *known = *out + 1;
  }
  *out = *known - 1;
  return TIDE_OK;
}

static tide_status entry_carry(snapshot* s, const tide_trace_entry* from) {
  tide_trace_entry entry = *from;
  entry.device = s->source->device;
  TIDE_TRY(tide__carry_entry(&s->names, &entry));
  TIDE_TRY(pool_carry(s, from->pool, &entry.pool));
  return tide_trace_add_entry(s->trace, &entry);
}

// A key of a dict, as an item of its value.
static tide_status item_add(tide_intern* names, const char* key, const tide_value* value, uint64_t* out) {
  uint32_t text = 0;
  uint32_t number = 0;
  TIDE_TRY(tide_intern_add_text(names, key, strlen(key), &text));
  TIDE_TRY(tide_intern_add_value(names, value, &number));
  *out = (uint64_t)text << 32 | number;
  return TIDE_OK;
}

// The keys of a segment that PyTorch does not have: its tag, and whether it is parked.
static tide_status extra_carry(snapshot* s, const tide_segment_info* from, uint32_t* out) {
  tide_intern* const names = s->names.to;
  tide_value tag = { .kind = TIDE_VALUE_TEXT };
  const tide_value parked = { .kind = TIDE_VALUE_BOOL, .integer = 1 };
  uint64_t items[2];
  tide_value dict = { .kind = TIDE_VALUE_DICT, .items = items };
  if (from->tag != NULL && from->tag[0] != '\0') {
    TIDE_TRY(tide_intern_add_text(names, from->tag, strlen(from->tag), &tag.text));
    TIDE_TRY(item_add(names, TIDE_SEGMENT_KEY_TAG, &tag, &items[dict.count++]));
  }
  if (from->is_parked) TIDE_TRY(item_add(names, TIDE_SEGMENT_KEY_PARKED, &parked, &items[dict.count++]));
  return dict.count != 0 ? tide_intern_add_value(names, &dict, out) : TIDE_OK;
}

static tide_status segment_carry(snapshot* s, const tide_segment_info* from) {
  tide_trace_segment segment = { .address = from->address,
                                 .bytes = from->bytes,
                                 .stream = (uint64_t)(uintptr_t)from->stream,
                                 .allocated_bytes = from->allocated_bytes,
                                 .active_bytes = from->active_bytes,
                                 .requested_bytes = from->requested_bytes,
                                 .device = s->source->device,
                                 .is_large = from->is_large,
                                 .is_expandable = from->is_expandable };
  TIDE_TRY(pool_carry(s, from->pool, &segment.pool));
  TIDE_TRY(tide__carry_stack(&s->names, from->stack, &segment.stack));
  TIDE_TRY(extra_carry(s, from, &segment.extra));
  return tide_trace_add_segment(s->trace, &segment);
}

static tide_status block_carry(snapshot* s, const tide_block_info* from) {
  tide_trace_block block = { .address = from->address,
                             .bytes = from->bytes,
                             .requested_bytes = from->requested_bytes,
                             .state = (uint8_t)from->state };
  TIDE_TRY(tide__carry_stack(&s->names, from->stack, &block.stack));
  return tide_trace_add_block(s->trace, &block);
}

// ---------------------------------------------------------------------------------------------------
// Visitors

static bool is_shown(const snapshot* s, tide_pool pool) { return s->only == NULL || *s->only == pool; }

static bool entry_is_shown(const snapshot* s, const tide_trace_entry* entry) {
  const bool has_memory = entry->action != TIDE_ACTION_SNAPSHOT && entry->action != TIDE_ACTION_USER_DEFINED;
  return !has_memory || is_shown(s, entry->pool);
}

static bool on_entries(void* user, const tide_trace_entry* entries, size_t count) {
  snapshot* const s = user;
  for (size_t i = 0; i < count && s->status == TIDE_OK; i++) {
    if (entry_is_shown(s, &entries[i])) s->status = entry_carry(s, &entries[i]);
  }
  return s->status == TIDE_OK;
}

static bool on_segment(void* user, const tide_segment_info* segment) {
  snapshot* const s = user;
  s->is_skipping = !is_shown(s, segment->pool);
  if (!s->is_skipping) s->status = segment_carry(s, segment);
  return s->status == TIDE_OK;
}

static bool on_block(void* user, const tide_block_info* block) {
  snapshot* const s = user;
  if (!s->is_skipping) s->status = block_carry(s, block);
  return s->status == TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The whole

static tide_status snapshot_fill(snapshot* s, bool has_entries) {
  const tide__snapshot_source* const source = s->source;
  const tide_device_visitor visitor = { .segment = on_segment, .block = on_block, .user = s };
  tide_trace_about about = tide_trace_get_about(s->trace);
  about.has_segments = about.has_entries = true;
  TIDE_TRY(tide__carry_init(&s->names));
  TIDE_TRY(tide__carried_init(&s->pools, source->heap, source->last_pool));
  TIDE_TRY(tide_trace_add_device(s->trace, source->device));
  if (has_entries) TIDE_TRY(tide__ring_visit(&source->history->ring, on_entries, s));
  TIDE_TRY(s->status);
  TIDE_TRY(source->visit(source->owner, s->only, &visitor));
  TIDE_TRY(s->status);
  const bool has_settings = source->settings != NULL && about.settings == 0;
  if (has_settings) TIDE_TRY(source->settings(source->owner, s->names.to, &about.settings));
  tide_trace_set_about(s->trace, &about);
  return TIDE_OK;
}

tide_status tide__snapshot_take(const tide__snapshot_source* source, const tide_snapshot_options* options,
                                tide_trace* trace) {
  tide_snapshot_options whole = TIDE_SNAPSHOT_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read(source->call, options, &whole, sizeof whole));
  snapshot s = { .source = source,
                 .trace = trace,
                 .only = whole.pool,
                 .names = { .heap = source->heap,
                            .from = source->history->names,
                            .to = tide_trace_names(trace),
                            .describe = whole.describe,
                            .user = whole.user,
                            .epoch_ns = whole.epoch_ns,
                            .has_numbers = tide__history_has_numbers(source->history) } };
  const tide_status status = snapshot_fill(&s, whole.has_entries);
  tide__carry_fini(&s.names);
  tide__carried_fini(&s.pools, source->heap);
  return status;
}
