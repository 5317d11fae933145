// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A trace: arrays of entries (one per device), segments, blocks and pools, and the table of interned values.
// Arrays grow by a quarter, so that they never take more than 2.25 times their contents.
#include "trace/limit.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"

#define TRACE_ROOM_MIN 64u
#define TRACE_DEVICES ((size_t)UINT8_MAX + 1)
#define TRACE_POOLS_MAX 16384u  // the search is linear

// [T1] count <= room; items is NULL while room is 0
typedef struct trace_array {
  void* items;  // owned
  size_t count;
  size_t room;
} trace_array;

struct tide_trace {
  tide__limited_heap limited;  // provides all memory of the trace except this record
  tide_intern* names;          // owned
  tide_trace_about about;
  trace_array devices;  // of trace_array, of tide_trace_entry
  trace_array segments;
  trace_array blocks;
  trace_array pools;  // of tide_pool_label; number 0, the default pool, is not among them
};

static const char* const state_names[] = { "inactive", "active_allocated", "active_pending_free" };

const char* tide_block_state_name(uint32_t state) {
  return state < sizeof state_names / sizeof state_names[0] ? state_names[state] : NULL;
}

int tide_block_state_from_name(const char* name) {
  if (name == NULL) return -1;
  for (int i = 0; i < (int)(sizeof state_names / sizeof state_names[0]); i++) {
    if (strcmp(name, state_names[i]) == 0) return i;
  }
  // The documentation of PyTorch has this name; its code writes the other.
  return strcmp(name, "active_awaiting_free") == 0 ? TIDE_BLOCK_PENDING : -1;
}

// ---------------------------------------------------------------------------------------------------
// Arrays

static tide_status array_grow(trace_array* array, const tide_heap* heap, size_t item_bytes) {
  uint64_t room = 0;
  uint64_t bytes = 0;
  const bool is_sane = tide__add(array->room, tide__max(array->room / 4, TRACE_ROOM_MIN), &room) &&
                       tide__mul(room, item_bytes, &bytes) && bytes <= SIZE_MAX / 2;
  void* const items = is_sane ? heap->alloc(heap->user, bytes, sizeof(uint64_t) * 2) : NULL;
  TIDE_REQUIRE(items != NULL, TIDE_ERR_NO_MEMORY, "trace: no memory for %zu and more items", array->count);
  if (array->count > 0) memcpy(items, array->items, array->count * item_bytes);
  if (array->items != NULL) heap->release(heap->user, array->items, array->room * item_bytes);
  array->items = items;
  array->room = room;
  return TIDE_OK;
}

static tide_status array_add(trace_array* array, const tide_heap* heap, const void* item, size_t item_bytes) {
  if (array->count == array->room) TIDE_TRY(array_grow(array, heap, item_bytes));
  memcpy((char*)array->items + array->count * item_bytes, item, item_bytes);
  array->count++;
  return TIDE_OK;
}

static void array_fini(trace_array* array, const tide_heap* heap, size_t item_bytes) {
  if (array->items != NULL) heap->release(heap->user, array->items, array->room * item_bytes);
}

static const void* array_items(const trace_array* array, size_t* out_count) {
  if (out_count != NULL) *out_count = array != NULL ? array->count : 0;
  return array != NULL ? array->items : NULL;
}

// ---------------------------------------------------------------------------------------------------
// Life

const tide_heap* tide__trace_heap(const tide_trace* trace) { return &trace->limited.heap; }

tide__limited_heap* tide__trace_limited_heap(tide_trace* trace) { return &trace->limited; }

tide_status tide__trace_new_limited(const tide_heap* heap, uint64_t limit, tide_trace** out) {
  *out = NULL;
  tide_trace* const trace = tide__heap_alloc(heap, 1, sizeof *trace);
  TIDE_REQUIRE(trace != NULL, TIDE_ERR_NO_MEMORY, "trace_new: no memory for the trace");
  tide__limited_heap_init(&trace->limited, heap, limit);
  const tide_status status = tide_intern_new(&trace->limited.heap, &trace->names);
  const bool is_limited = tide__limited_heap_has_refused(&trace->limited);
  if (status == TIDE_OK) *out = trace;
  else tide__heap_release(heap, trace, 1, sizeof *trace);
  TIDE_REQUIRE(!is_limited, TIDE_ERR_LIMIT, "trace_new: a trace needs more than %llu bytes",
               (unsigned long long)limit);
  return status;
}

tide_status tide_trace_new(const tide_heap* heap, tide_trace** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "trace_new: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "trace_new: the heap lacks a function");
  return tide__trace_new_limited(tide__heap_or_system(heap), UINT64_MAX, out);
}

void tide_trace_free(tide_trace* trace) {
  if (trace == NULL) return;
  trace_array* const devices = trace->devices.items;
  for (size_t i = 0; i < trace->devices.count; i++) {
    array_fini(&devices[i], &trace->limited.heap, sizeof(tide_trace_entry));
  }
  array_fini(&trace->devices, &trace->limited.heap, sizeof(trace_array));
  array_fini(&trace->segments, &trace->limited.heap, sizeof(tide_trace_segment));
  array_fini(&trace->blocks, &trace->limited.heap, sizeof(tide_trace_block));
  array_fini(&trace->pools, &trace->limited.heap, sizeof(tide_pool_label));
  tide_intern_free(trace->names);
  tide__heap_release(trace->limited.outer, trace, 1, sizeof *trace);
}

// ---------------------------------------------------------------------------------------------------
// Looking

tide_intern* tide_trace_names(const tide_trace* trace) { return trace != NULL ? trace->names : NULL; }

tide_trace_about tide_trace_get_about(const tide_trace* trace) {
  return trace != NULL ? trace->about : (tide_trace_about){ 0 };
}

void tide_trace_set_about(tide_trace* trace, const tide_trace_about* about) {
  if (trace != NULL && about != NULL) trace->about = *about;
}

size_t tide_trace_device_count(const tide_trace* trace) { return trace != NULL ? trace->devices.count : 0; }

const tide_trace_entry* tide_trace_entries(const tide_trace* trace, size_t device, size_t* out_count) {
  const bool is_there = trace != NULL && device < trace->devices.count;
  return array_items(is_there ? (const trace_array*)trace->devices.items + device : NULL, out_count);
}

const tide_trace_segment* tide_trace_segments(const tide_trace* trace, size_t* out_count) {
  return array_items(trace != NULL ? &trace->segments : NULL, out_count);
}

const tide_trace_block* tide_trace_blocks(const tide_trace* trace, size_t* out_count) {
  return array_items(trace != NULL ? &trace->blocks : NULL, out_count);
}

static tide_value segment_extra(const tide_trace* trace, const tide_trace_segment* segment, uint32_t kind,
                                const char* key) {
  const tide_value none = { .kind = TIDE_VALUE_NONE };
  if (trace == NULL || segment == NULL || segment->extra == 0) return none;
  const tide_intern* const names = tide_trace_names(trace);
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, segment->extra, key));
  return value.kind == kind ? value : none;
}

const char* tide_trace_segment_tag(const tide_trace* trace, const tide_trace_segment* segment) {
  const tide_value tag = segment_extra(trace, segment, TIDE_VALUE_TEXT, TIDE_SEGMENT_KEY_TAG);
  return tag.text != 0 ? tide_intern_text(tide_trace_names(trace), tag.text, NULL) : "";
}

bool tide_trace_segment_is_parked(const tide_trace* trace, const tide_trace_segment* segment) {
  return segment_extra(trace, segment, TIDE_VALUE_BOOL, TIDE_SEGMENT_KEY_PARKED).integer != 0;
}

tide_pool_label tide_trace_pool(const tide_trace* trace, uint32_t number) {
  if (trace == NULL || number == 0 || number > trace->pools.count) return (tide_pool_label){ 0, 0 };
  return ((const tide_pool_label*)trace->pools.items)[number - 1];
}

size_t tide_trace_pool_count(const tide_trace* trace) { return trace != NULL ? trace->pools.count + 1 : 0; }

// ---------------------------------------------------------------------------------------------------
// Adding

// There are few pools, and the newest is the most likely one.
tide_status tide_trace_add_pool(tide_trace* trace, tide_pool_label label, uint32_t* out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "trace_add_pool: out is NULL");
  *out = 0;
  TIDE_REQUIRE(trace != NULL, TIDE_ERR_ARGUMENT, "trace_add_pool: trace is NULL");
  if (label.first == 0 && label.second == 0) return TIDE_OK;
  for (size_t number = trace->pools.count; number > 0; number--) {
    const tide_pool_label known = tide_trace_pool(trace, (uint32_t)number);
    if (known.first != label.first || known.second != label.second) continue;
    *out = (uint32_t)number;
    return TIDE_OK;
  }
  TIDE_REQUIRE(trace->pools.count < TRACE_POOLS_MAX, TIDE_ERR_LIMIT,
               "trace_add_pool: there are %zu pools already", trace->pools.count);
  TIDE_TRY(array_add(&trace->pools, &trace->limited.heap, &label, sizeof label));
  *out = (uint32_t)trace->pools.count;
  return TIDE_OK;
}

tide_status tide_trace_add_device(tide_trace* trace, size_t device) {
  TIDE_REQUIRE(trace != NULL, TIDE_ERR_ARGUMENT, "trace_add_device: trace is NULL");
  TIDE_REQUIRE(device < TRACE_DEVICES, TIDE_ERR_ARGUMENT, "trace_add_device: device %zu is not below %zu",
               device, TRACE_DEVICES);
  const trace_array empty = { 0 };
  trace_array* const devices = &trace->devices;
  while (devices->room <= device) TIDE_TRY(array_grow(devices, &trace->limited.heap, sizeof empty));
  while (devices->count <= device) ((trace_array*)devices->items)[devices->count++] = empty;
  return TIDE_OK;
}

tide_status tide_trace_add_entry(tide_trace* trace, const tide_trace_entry* entry) {
  TIDE_REQUIRE(trace != NULL && entry != NULL, TIDE_ERR_ARGUMENT, "trace_add_entry: an argument is NULL");
  TIDE_REQUIRE(entry->action < TIDE_ACTION_COUNT, TIDE_ERR_ARGUMENT, "trace_add_entry: %u is not an action",
               entry->action);
  const size_t device_count = trace->devices.count;
  if (entry->device >= device_count) TIDE_TRY(tide_trace_add_device(trace, entry->device));
  trace_array* const entries = (trace_array*)trace->devices.items + entry->device;
  const tide_status status = array_add(entries, &trace->limited.heap, entry, sizeof *entry);
  if (status != TIDE_OK) trace->devices.count = device_count;
  return status;
}

tide_status tide_trace_add_segment(tide_trace* trace, const tide_trace_segment* segment) {
  TIDE_REQUIRE(trace != NULL && segment != NULL, TIDE_ERR_ARGUMENT, "trace_add_segment: an argument is NULL");
  tide_trace_segment added = *segment;
  added.first_block = trace->blocks.count;
  added.block_count = 0;
  return array_add(&trace->segments, &trace->limited.heap, &added, sizeof added);
}

tide_status tide_trace_add_block(tide_trace* trace, const tide_trace_block* block) {
  TIDE_REQUIRE(trace != NULL && block != NULL, TIDE_ERR_ARGUMENT, "trace_add_block: an argument is NULL");
  TIDE_REQUIRE(trace->segments.count > 0, TIDE_ERR_ARGUMENT, "trace_add_block: there is no segment yet");
  TIDE_REQUIRE(block->state <= TIDE_BLOCK_PENDING, TIDE_ERR_ARGUMENT, "trace_add_block: %u is not a state",
               block->state);
  tide_trace_segment* const segment = (tide_trace_segment*)trace->segments.items + trace->segments.count - 1;
  TIDE_REQUIRE(segment->block_count < UINT32_MAX, TIDE_ERR_LIMIT, "trace_add_block: the segment is full");
  TIDE_TRY(array_add(&trace->blocks, &trace->limited.heap, block, sizeof *block));
  segment->block_count++;
  return TIDE_OK;
}
