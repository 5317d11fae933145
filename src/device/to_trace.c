// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A memory snapshot of an allocator: its history and its segments become a trace of their own, with the shape
// that PyTorch's snapshots have. Texts, stacks and notes are carried from the allocator's table to that of
// the trace, each distinct stack and note once.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "device/allocator.h"

#define SNAPSHOT_FRAMES 64u  // a gathered stack has no more

// What was carried over already: the number in the trace + 1, by the number in the allocator's table.
typedef struct carried {
  uint32_t* numbers;  // owned
  size_t count;
} carried;

typedef struct snapshot {
  tide_device* device;                   // borrowed
  const tide_snapshot_options* options;  // caller keeps
  tide_trace* trace;                     // borrowed
  tide_intern* to;                       // borrowed from the trace
  bool has_numbers;                      // stacks are the caller's numbers
  carried stacks;
  carried notes;
  uint32_t no_context;  // the text that stands for no compile context
  tide_status status;
} snapshot;

// ---------------------------------------------------------------------------------------------------
// Names

static uint32_t* carried_at(carried* list, uint32_t number, uint32_t* spare) {
  return number < list->count ? &list->numbers[number] : spare;
}

static tide_status carried_init(carried* list, const tide_heap* heap, uint32_t count) {
  list->count = (size_t)count + 1;
  list->numbers = tide__heap_alloc(heap, list->count, sizeof *list->numbers);
  TIDE_REQUIRE(list->numbers != NULL, TIDE_ERR_NO_MEMORY, "device_snapshot: no memory for %zu names",
               list->count);
  return TIDE_OK;
}

static tide_status text_carry(snapshot* s, uint32_t text, uint32_t* out) {
  size_t bytes = 0;
  const char* const words = tide_intern_text(s->device->names, text, &bytes);
  return tide_intern_add_text(s->to, words, bytes, out);
}

static tide_status text_add(snapshot* s, const char* text, uint32_t* out) {
  return tide_intern_add_text(s->to, text, text != NULL ? strlen(text) : 0, out);
}

static tide_status frame_carry(snapshot* s, uint64_t number, uint64_t* out) {
  char hex[20];
  tide_frame frame = { 0 };
  tide_frame_words words = { NULL, NULL, 0 };
  uint32_t id = 0;
  const tide_snapshot_options* const options = s->options;
  if (options->describe == NULL || !options->describe(options->user, number, &words)) {
    (void)snprintf(hex, sizeof hex, "0x%" PRIx64, number);
    words = (tide_frame_words){ hex, NULL, 0 };
  }
  TIDE_TRY(text_add(s, words.name, &frame.name));
  TIDE_TRY(text_add(s, words.file, &frame.file));
  frame.line = words.line;
  TIDE_TRY(tide_intern_add_frame(s->to, &frame, &id));
  *out = id;
  return TIDE_OK;
}

// A number of the caller's stands for a stack of one frame.
static tide_status number_carry(snapshot* s, uint32_t number, uint32_t* out) {
  uint64_t frame = 0;
  TIDE_TRY(frame_carry(s, number, &frame));
  return tide_intern_add_stack(s->to, &frame, 1, out);
}

static tide_status stack_carry(snapshot* s, uint32_t stack, uint32_t* out) {
  uint32_t spare = 0;
  uint64_t frames[SNAPSHOT_FRAMES];
  uint32_t* const known = carried_at(&s->stacks, stack, &spare);
  *out = 0;
  if (stack == 0) return TIDE_OK;
  if (s->has_numbers) return number_carry(s, stack, out);
  if (*known == 0) {
    size_t count = 0;
    const uint64_t* const from = tide_intern_stack(s->device->names, stack, &count);
    count = tide__min(count, SNAPSHOT_FRAMES);
    for (size_t i = 0; i < count; i++) TIDE_TRY(frame_carry(s, from[i], &frames[i]));
    TIDE_TRY(tide_intern_add_stack(s->to, frames, count, out));
    *known = *out + 1;
  }
  *out = *known - 1;
  return TIDE_OK;
}

static tide_status note_carry(snapshot* s, uint32_t note, uint32_t* out) {
  uint32_t spare = 0;
  uint32_t* const known = carried_at(&s->notes, note, &spare);
  if (*known == 0) {
    const tide_note from = tide_intern_note(s->device->names, note);
    tide_note to = { 0, s->no_context, 0 };
    TIDE_TRY(text_carry(s, from.metadata, &to.metadata));
    if (from.compile_context != 0) TIDE_TRY(text_carry(s, from.compile_context, &to.compile_context));
    TIDE_TRY(tide_intern_add_note(s->to, to, out));
    *known = *out + 1;
  }
  *out = *known - 1;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The history

// A pool that is gone is shown by its number.
static tide_status pool_carry(snapshot* s, tide_pool number, uint32_t* out) {
  tide_pool_label label = { 0, number };
  *out = 0;
  if (number == TIDE_POOL_DEFAULT) return TIDE_OK;
  tide__mutex_lock(&s->device->pools_lock);
  const tide__pool* const pool = tide__pool_find_locked(s->device, number);
  if (pool != NULL) label = (tide_pool_label){ pool->options.label[0], pool->options.label[1] };
  tide__mutex_unlock(&s->device->pools_lock);
  return tide_trace_add_pool(s->trace, label, out);
}

static tide_status entry_carry(snapshot* s, const tide_trace_entry* from) {
  tide_trace_entry entry = *from;
  entry.time_ns += s->options->epoch_ns;
  if (entry.stack == 0) entry.absent |= TIDE_ENTRY_STACK;
  TIDE_TRY(stack_carry(s, from->stack, &entry.stack));
  TIDE_TRY(note_carry(s, from->note, &entry.note));
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
  const tide_pool_label label = { from->pool_label[0], from->pool_label[1] };
  TIDE_TRY(tide_trace_add_pool(s->trace, label, &segment.pool));
  TIDE_TRY(stack_carry(s, from->stack, &segment.stack));
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
  s->status = stack_carry(s, from->stack, &block.stack);
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
  TIDE_TRY(text_add(s, key, &text));
  TIDE_TRY(tide_intern_add_value(s->to, value, &id));
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
  TIDE_TRY(tide_intern_add_text(s->to, text, tide__min(length, sizeof text - 1), &value.text));
  return dict_add(s, dict, "PYTORCH_CUDA_ALLOC_CONF", &value);
}

static tide_status settings_carry(snapshot* s, uint32_t* out) {
  settings_dict dict = { .count = 0 };
  tide_device_options o;
  tide_device_get_options(s->device, &o);
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
  return tide_intern_add_value(s->to, &value, out);
}

// ---------------------------------------------------------------------------------------------------
// The whole

static tide_status snapshot_prepare(snapshot* s) {
  tide__mutex_lock(&s->device->pools_lock);
  s->has_numbers = s->device->history.number != NULL;
  tide__mutex_unlock(&s->device->pools_lock);
  const tide_intern_counts counts = tide_intern_counts_of(s->device->names);
  TIDE_TRY(carried_init(&s->stacks, s->device->heap, counts.stacks));
  TIDE_TRY(carried_init(&s->notes, s->device->heap, counts.notes));
  TIDE_TRY(tide_intern_add_text(s->to, "N/A", 3, &s->no_context));
  return tide_trace_add_device(s->trace, (size_t)s->device->index);
}

static tide_status snapshot_fill(snapshot* s) {
  const tide_device_visitor visitor = { .segment = on_segment, .block = on_block, .user = s };
  tide_trace_about about = tide_trace_get_about(s->trace);
  about.has_segments = about.has_entries = true;
  TIDE_TRY(snapshot_prepare(s));
  if (s->options->has_entries) TIDE_TRY(tide_device_history_visit(s->device, on_entries, s));
  TIDE_TRY(s->status);
  TIDE_TRY(tide_device_visit(s->device, &visitor));
  TIDE_TRY(s->status);
  if (about.settings == 0) TIDE_TRY(settings_carry(s, &about.settings));
  tide_trace_set_about(s->trace, &about);
  return TIDE_OK;
}

tide_status tide_device_snapshot(tide_device* device, const tide_snapshot_options* options,
                                 tide_trace* trace) {
  static const tide_snapshot_options defaults = TIDE_SNAPSHOT_OPTIONS_INIT;
  if (options == NULL) options = &defaults;
  TIDE_REQUIRE(device != NULL && trace != NULL, TIDE_ERR_ARGUMENT, "device_snapshot: an argument is NULL");
  TIDE_REQUIRE(options->size == sizeof *options, TIDE_ERR_ARGUMENT,
               "device_snapshot: options have %u bytes, not %zu", options->size, sizeof *options);
  snapshot s = { .device = device, .options = options, .trace = trace, .to = tide_trace_names(trace) };
  const tide_status status = snapshot_fill(&s);
  tide__heap_release(device->heap, s.stacks.numbers, s.stacks.count, sizeof *s.stacks.numbers);
  tide__heap_release(device->heap, s.notes.numbers, s.notes.count, sizeof *s.notes.numbers);
  return status;
}
