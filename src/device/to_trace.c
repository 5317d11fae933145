// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A memory snapshot of an allocator: its history and its segments become a trace of their own, with the shape
// that PyTorch's snapshots have. What they name is carried from the allocator's table to that of the trace
// (trace/carry.h).
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"
#include "device/allocator.h"
#include "trace/carry.h"

typedef struct snapshot {
  tide_device* device;  // borrowed
  tide_trace* trace;    // borrowed
  tide__carry names;
  tide__carried pools;
  bool has_entries;
  tide_status status;
} snapshot;

// ---------------------------------------------------------------------------------------------------
// Pools
//
// A pool is shown by its label, or by { 0, its number } if it has none. Entries outlive their pools, so the
// labels of pools that are gone are kept while a history is on: the newest, as many as a trace can name.

enum { LABELS_MAX = 16384 };

static bool pool_has_label(const tide__pool* pool) {
  return pool->options.label[0] != 0 || pool->options.label[1] != 0;
}

static tide_pool_label pool_label(const tide__pool* pool) {
  return (tide_pool_label){ pool->options.label[0], pool->options.label[1] };
}

// Without memory for it, the entries of the pool are shown by its number.
void tide__labels_keep(tide_device* device, const tide__pool* pool) {
  if (!tide_device_has_history(device) || !pool_has_label(pool)) return;
  tide__gone_label* const label = tide__heap_alloc(device->heap, 1, sizeof *label);
  if (label == NULL) return;
  tide__gone_label* oldest = NULL;
  *label = (tide__gone_label){ NULL, pool_label(pool), pool->number };
  tide__mutex_lock(&device->pools_lock);
  *(device->gone_labels != NULL ? &device->gone_last->next : &device->gone_labels) = label;
  device->gone_last = label;
  if (++device->gone_count > LABELS_MAX) {
    oldest = device->gone_labels;
    device->gone_labels = oldest->next;
    device->gone_count--;
  }
  tide__mutex_unlock(&device->pools_lock);
  tide__heap_release(device->heap, oldest, 1, sizeof *oldest);
}

void tide__labels_forget(tide_device* device) {
  tide__mutex_lock(&device->pools_lock);
  tide__gone_label* list = device->gone_labels;
  device->gone_labels = device->gone_last = NULL;
  device->gone_count = 0;
  tide__mutex_unlock(&device->pools_lock);
  while (list != NULL) {
    tide__gone_label* const next = list->next;
    tide__heap_release(device->heap, list, 1, sizeof *list);
    list = next;
  }
}

static tide_pool_label label_shown(tide_device* device, tide_pool number) {
  tide_pool_label shown = { 0, number };
  tide__mutex_lock(&device->pools_lock);
  const tide__pool* const pool = tide__pool_find_locked(device, number);
  const tide__gone_label* gone = pool == NULL ? device->gone_labels : NULL;
  while (gone != NULL && gone->number != number) gone = gone->next;
  if (pool != NULL && pool_has_label(pool)) shown = pool_label(pool);
  if (gone != NULL) shown = gone->label;
  tide__mutex_unlock(&device->pools_lock);
  return shown;
}

static tide_status pool_carry(snapshot* s, tide_pool number, uint32_t* out) {
  uint32_t spare = 0;
  uint32_t* const known = tide__carried_at(&s->pools, number, &spare);
  *out = 0;
  if (number == TIDE_POOL_DEFAULT) return TIDE_OK;
  if (*known == 0) {
    TIDE_TRY(tide_trace_add_pool(s->trace, label_shown(s->device, number), out));
    *known = *out + 1;
  }
  *out = *known - 1;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The history

static tide_status entry_carry(snapshot* s, const tide_trace_entry* from) {
  tide_trace_entry entry = *from;
  TIDE_TRY(tide__carry_entry(&s->names, &entry));
  TIDE_TRY(pool_carry(s, from->pool, &entry.pool));
  return tide_trace_add_entry(s->trace, &entry);
}

static bool on_entries(void* user, const tide_trace_entry* entries, size_t count) {
  snapshot* const s = user;
  for (size_t i = 0; i < count && s->status == TIDE_OK; i++) s->status = entry_carry(s, &entries[i]);
  return s->status == TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Segments and blocks

static tide_status segment_carry(snapshot* s, const tide_segment_info* from) {
  tide_trace_segment segment = { .address = from->address,
                                 .bytes = from->bytes,
                                 .stream = (uint64_t)(uintptr_t)from->stream,
                                 .allocated_bytes = from->allocated_bytes,
                                 .active_bytes = from->active_bytes,
                                 .requested_bytes = from->requested_bytes,
                                 .device = (uint8_t)from->device,
                                 .is_large = from->is_large,
                                 .is_expandable = from->is_expandable };
  TIDE_TRY(pool_carry(s, from->pool, &segment.pool));
  TIDE_TRY(tide__carry_stack(&s->names, from->stack, &segment.stack));
  return tide_trace_add_segment(s->trace, &segment);
}

static bool on_segment(void* user, const tide_segment_info* segment) {
  snapshot* const s = user;
  s->status = segment_carry(s, segment);
  return s->status == TIDE_OK;
}

static bool on_block(void* user, const tide_block_info* from) {
  snapshot* const s = user;
  tide_trace_block block = { .address = from->address,
                             .bytes = from->bytes,
                             .requested_bytes = from->requested_bytes,
                             .state = (uint8_t)from->state };
  s->status = tide__carry_stack(&s->names, from->stack, &block.stack);
  if (s->status == TIDE_OK) s->status = tide_trace_add_block(s->trace, &block);
  return s->status == TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The options, under the keys that PyTorch has for them

typedef struct settings_dict {
  uint64_t items[16];
  size_t count;
} settings_dict;

static tide_status dict_add(snapshot* s, settings_dict* dict, const char* key, const tide_value* value) {
  uint32_t text = 0;
  uint32_t id = 0;
  TIDE_TRY(tide_intern_add_text(s->names.to, key, strlen(key), &text));
  TIDE_TRY(tide_intern_add_value(s->names.to, value, &id));
  dict->items[dict->count++] = (uint64_t)text << 32 | id;
  return TIDE_OK;
}

static tide_value value_int(int64_t number) {
  return (tide_value){ .kind = TIDE_VALUE_INT, .integer = number };
}
static tide_value value_bool(bool is_on) { return (tide_value){ .kind = TIDE_VALUE_BOOL, .integer = is_on }; }

// Sixteen divisions, by the size in MiB that each begins at.
static tide_status dict_add_divisions(snapshot* s, settings_dict* dict, const uint32_t* divisions) {
  settings_dict slots = { .count = 0 };
  char key[12];
  for (uint32_t i = 0; i < TIDE_ROUNDUP_SLOTS; i++) {
    (void)snprintf(key, sizeof key, "%u", 1u << i);
    const tide_value division = value_int(divisions[i]);
    TIDE_TRY(dict_add(s, &slots, key, &division));
  }
  const tide_value value = { .kind = TIDE_VALUE_DICT, .items = slots.items, .count = slots.count };
  return dict_add(s, dict, "roundup_power2_divisions", &value);
}

static tide_status dict_add_conf(snapshot* s, settings_dict* dict, const tide_device_options* options) {
  char text[512];
  tide_value value = { .kind = TIDE_VALUE_TEXT };
  const size_t length = tide_device_options_print(options, text, sizeof text);
  TIDE_TRY(tide_intern_add_text(s->names.to, text, tide__min(length, sizeof text - 1), &value.text));
  return dict_add(s, dict, "PYTORCH_CUDA_ALLOC_CONF", &value);
}

static tide_status settings_carry(snapshot* s, uint32_t* out) {
  settings_dict dict = { .count = 0 };
  const tide_device_options o = *tide__device_options(s->device);
  const bool is_unlimited = o.max_split_bytes > INT64_MAX;
  const struct {
    const char* key;
    tide_value value;
  } settings[] = {
    { "max_split_size", value_int(is_unlimited ? -1 : (int64_t)o.max_split_bytes) },
    { "garbage_collection_threshold", { .kind = TIDE_VALUE_FLOAT, .number = o.collect_threshold } },
    { "expandable_segments", value_bool(o.expandable_segments) },
    { "pinned_num_register_threads", value_int(o.pinned_register_threads) },
    { "release_lock_on_cudamalloc", value_bool(o.releases_lock) },
    { "pinned_use_cuda_host_register", value_bool(o.pinned_uses_register) },
    { "graph_capture_record_stream_reuse", value_bool(o.is_capture_reuse) },
  };
  TIDE_TRY(dict_add_conf(s, &dict, &o));
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
    TIDE_TRY(dict_add(s, &dict, settings[i].key, &settings[i].value));
  }
  TIDE_TRY(dict_add_divisions(s, &dict, o.roundup_divisions));
  const tide_value value = { .kind = TIDE_VALUE_DICT, .items = dict.items, .count = dict.count };
  return tide_intern_add_value(s->names.to, &value, out);
}

// ---------------------------------------------------------------------------------------------------
// The whole

static tide_status snapshot_prepare(snapshot* s) {
  tide__mutex_lock(&s->device->pools_lock);
  s->names.has_numbers = s->device->history.number != NULL;
  const tide_pool pools = s->device->next_pool;
  tide__mutex_unlock(&s->device->pools_lock);
  TIDE_TRY(tide__carry_init(&s->names));
  TIDE_TRY(tide__carried_init(&s->pools, s->device->heap, pools));
  return tide_trace_add_device(s->trace, (size_t)s->device->index);
}

static tide_status snapshot_fill(snapshot* s) {
  const tide_device_visitor visitor = { .segment = on_segment, .block = on_block, .user = s };
  tide_trace_about about = tide_trace_get_about(s->trace);
  about.has_segments = about.has_entries = true;
  TIDE_TRY(snapshot_prepare(s));
  if (s->has_entries) TIDE_TRY(tide_device_history_visit(s->device, on_entries, s));
  TIDE_TRY(s->status);
  TIDE_TRY(tide_device_visit(s->device, &visitor));
  TIDE_TRY(s->status);
  if (about.settings == 0) TIDE_TRY(settings_carry(s, &about.settings));
  tide_trace_set_about(s->trace, &about);
  return TIDE_OK;
}

tide_status tide_device_snapshot(tide_device* device, const tide_snapshot_options* options,
                                 tide_trace* trace) {
  tide_snapshot_options whole = TIDE_SNAPSHOT_OPTIONS_INIT;
  if (options == NULL) options = &whole;
  TIDE_REQUIRE(device != NULL && trace != NULL, TIDE_ERR_ARGUMENT, "device_snapshot: an argument is NULL");
  TIDE_REQUIRE(tide__sized_in(&whole, sizeof whole, options, TIDE__END_OF(tide_snapshot_options, user)),
               TIDE_ERR_ARGUMENT, "device_snapshot: options have %u bytes, not %zu", options->size,
               sizeof whole);
  snapshot s = {
    .device = device,
    .trace = trace,
    .names = { .heap = device->heap, .from = device->names, .to = tide_trace_names(trace) },
    .has_entries = whole.has_entries,
  };
  s.names.describe = whole.describe;
  s.names.user = whole.user;
  s.names.epoch_ns = whole.epoch_ns;
  const tide_status status = snapshot_fill(&s);
  tide__carry_fini(&s.names);
  tide__carried_fini(&s.pools, device->heap);
  return status;
}

tide_status tide_device_snapshot_all(const tide_snapshot_options* options, tide_trace* trace) {
  TIDE_REQUIRE(trace != NULL, TIDE_ERR_ARGUMENT, "device_snapshot_all: no trace");
  for (int i = 0; i < TIDE_DEVICE_MAX; i++) {
    tide_device* const device = tide_device_default(i);
    if (device != NULL) TIDE_TRY(tide_device_snapshot(device, options, trace));
  }
  return TIDE_OK;
}
