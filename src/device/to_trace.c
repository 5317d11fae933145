// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory snapshots of the device allocator: what core/snapshot.h needs to know of it.
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "core/snapshot.h"
#include "device/tide/tide.h"

// ---------------------------------------------------------------------------------------------------
// The options, under the keys that PyTorch has for them

typedef struct settings_dict {
  uint64_t items[16];
  size_t count;
} settings_dict;

static tide_status dict_add(tide_intern* names, settings_dict* dict, const char* key,
                            const tide_value* value) {
  uint32_t text = 0;
  uint32_t id = 0;
  TIDE_TRY(tide_intern_add_text(names, key, strlen(key), &text));
  TIDE_TRY(tide_intern_add_value(names, value, &id));
  dict->items[dict->count++] = (uint64_t)text << 32 | id;
  return TIDE_OK;
}

static tide_value value_int(int64_t number) {
  return (tide_value){ .kind = TIDE_VALUE_INT, .integer = number };
}
static tide_value value_bool(bool is_on) { return (tide_value){ .kind = TIDE_VALUE_BOOL, .integer = is_on }; }

// Sixteen divisions, by the size in MiB that each begins at.
static tide_status dict_add_divisions(tide_intern* names, settings_dict* dict, const uint32_t* divisions) {
  settings_dict slots = { .count = 0 };
  char key[12];
  for (uint32_t i = 0; i < TIDE_ROUNDUP_SLOTS; i++) {
    (void)snprintf(key, sizeof key, "%u", 1u << i);
    const tide_value division = value_int(divisions[i]);
    TIDE_TRY(dict_add(names, &slots, key, &division));
  }
  const tide_value value = { .kind = TIDE_VALUE_DICT, .items = slots.items, .count = slots.count };
  return dict_add(names, dict, "roundup_power2_divisions", &value);
}

static tide_status dict_add_conf(tide_intern* names, settings_dict* dict,
                                 const tide_device_options* options) {
  char text[512];
  tide_value value = { .kind = TIDE_VALUE_TEXT };
  const size_t length = tide_device_options_print(options, text, sizeof text);
  TIDE_TRY(tide_intern_add_text(names, text, tide__min(length, sizeof text - 1), &value.text));
  return dict_add(names, dict, "PYTORCH_CUDA_ALLOC_CONF", &value);
}

static tide_status settings_add(void* owner, tide_intern* names, uint32_t* out) {
  settings_dict dict = { .count = 0 };
  const tide_device_options o = *tide__device_options(owner);
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
  TIDE_TRY(dict_add_conf(names, &dict, &o));
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
    TIDE_TRY(dict_add(names, &dict, settings[i].key, &settings[i].value));
  }
  TIDE_TRY(dict_add_divisions(names, &dict, o.roundup_divisions));
  const tide_value value = { .kind = TIDE_VALUE_DICT, .items = dict.items, .count = dict.count };
  return tide_intern_add_value(names, &value, out);
}

// ---------------------------------------------------------------------------------------------------
// Calls

static tide_status visit_pools(void* owner, const tide_pool* pool, const tide_device_visitor* visitor) {
  return pool != NULL ? tide_device_visit_pool(owner, *pool, visitor) : tide_device_visit(owner, visitor);
}

tide_status tide_device_snapshot(tide_device_cache* device, const tide_snapshot_options* options,
                                 tide_trace* trace) {
  TIDE_REQUIRE(device != NULL && trace != NULL, TIDE_ERR_ARGUMENT, "device_snapshot: an argument is NULL");
  tide__snapshot_source source = { .call = "device_snapshot",
                                   .history = &device->history,
                                   .heap = device->heap,
                                   .device = (uint8_t)device->index,
                                   .owner = device,
                                   .visit = visit_pools,
                                   .label = tide__labels_find,
                                   .settings = settings_add };
  tide__mutex_lock(&device->pools_lock);
  source.last_pool = device->pools.last_number;
  tide__mutex_unlock(&device->pools_lock);
  TIDE_TRY(tide__snapshot_take(&source, options, trace));
  return tide__tags_to_trace(device, trace);
}
