// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Traces out of random numbers, with everything a trace can hold: small tables of names first, then entries,
// segments and blocks that refer to them.
#ifndef TIDEMARK_TESTS_FORMAT_RANDOM_TRACE_H
#define TIDEMARK_TESTS_FORMAT_RANDOM_TRACE_H

#include "t.h"
#include "tidemark/format.h"

typedef struct trace_maker {
  t_rng rng;
  tide_trace* trace;
  tide_intern* names;
  uint32_t dict;  // a dict among the values, 0: none yet
} trace_maker;

static inline uint64_t maker_below(trace_maker* maker, uint64_t limit) {
  return t_rng_below(&maker->rng, limit);
}

// A number of any size: as often small as large, as often at an edge as not.
static inline uint64_t maker_number(trace_maker* maker) {
  const uint64_t bits = maker_below(maker, 65);
  const uint64_t number = bits == 0 ? 0 : t_rng_next(&maker->rng) >> (64 - bits);
  switch (maker_below(maker, 8)) {
    case 0: return bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
    case 1: return bits == 64 ? 0 : (uint64_t)1 << bits;
    default: return number;
  }
}

// A size that memory can have, up to the largest.
static inline uint64_t maker_size(trace_maker* maker) {
  return maker_below(maker, 8) == 0 ? TIDE_FORMAT_BYTES - 1 : maker_number(maker) % TIDE_FORMAT_BYTES;
}

// An address that so many bytes can have, up to the last.
static inline uint64_t maker_address(trace_maker* maker, uint64_t bytes) {
  const uint64_t address = maker_number(maker);
  return address > UINT64_MAX - bytes ? UINT64_MAX - bytes : address;
}

// 0, or one of the numbers up to `count`.
static inline uint32_t maker_pick(trace_maker* maker, uint32_t count) {
  return (uint32_t)maker_below(maker, (uint64_t)count + 1);
}

static inline uint32_t maker_extra(trace_maker* maker) {
  return maker_below(maker, 3) == 0 ? maker->dict : 0;
}

static inline void maker_add_text(trace_maker* maker) {
  char text[300];
  uint32_t number = 0;
  const size_t bytes = maker_below(maker, maker_below(maker, 10) == 0 ? sizeof text : 12);
  for (size_t i = 0; i < bytes; i++) text[i] = (char)maker_below(maker, 256);
  T_OK(tide_intern_add_text(maker->names, text, bytes, &number));
}

// Up to 8 items; of a dict with keys that rise, so that none comes twice.
static inline void maker_fill_items(trace_maker* maker, tide_value* value, uint64_t* items) {
  const tide_intern_counts counts = tide_intern_counts_of(maker->names);
  uint64_t key = 0;
  for (size_t i = 0; i < 8 && counts.values > 0 && maker_below(maker, 4) != 0; i++) {
    const uint64_t item = 1 + maker_below(maker, counts.values);
    if (value->kind == TIDE_VALUE_DICT && key > counts.texts) break;
    items[value->count++] = (value->kind == TIDE_VALUE_DICT ? key << 32 : 0) | item;
    key += 1 + maker_below(maker, 3);
  }
  value->items = items;
}

static inline void maker_add_value(trace_maker* maker) {
  tide_value value = { .kind = (uint32_t)maker_below(maker, TIDE_VALUE_KIND_COUNT) };
  uint64_t items[8];
  uint64_t bits = maker_number(maker);
  uint32_t number = 0;
  if (value.kind == TIDE_VALUE_BOOL) value.integer = (int64_t)maker_below(maker, 2);
  if (value.kind == TIDE_VALUE_INT || value.kind == TIDE_VALUE_UINT) value.integer = (int64_t)bits;
  if (value.kind == TIDE_VALUE_FLOAT) memcpy(&value.number, &bits, sizeof bits);
  if (value.kind == TIDE_VALUE_TEXT)
    value.text = maker_pick(maker, tide_intern_counts_of(maker->names).texts);
  if (value.kind >= TIDE_VALUE_LIST) maker_fill_items(maker, &value, items);
  const tide_status status = tide_intern_add_value(maker->names, &value, &number);
  if (status != TIDE_ERR_LIMIT) T_OK(status);  // nested too deep
  if (value.kind == TIDE_VALUE_DICT && number != 0) maker->dict = number;
}

static inline void maker_add_frame(trace_maker* maker) {
  const tide_intern_counts counts = tide_intern_counts_of(maker->names);
  uint32_t number = 0;
  const tide_frame frame = { .name = maker_pick(maker, counts.texts),
                             .file = maker_pick(maker, counts.texts),
                             .extra = maker_extra(maker),
                             .absent = (uint32_t)maker_below(maker, 8),
                             .line = (int64_t)maker_number(maker) };
  T_OK(tide_intern_add_frame(maker->names, &frame, &number));
}

static inline void maker_add_stack(trace_maker* maker) {
  const tide_intern_counts counts = tide_intern_counts_of(maker->names);
  uint64_t frames[20];
  uint32_t number = 0;
  const size_t count = maker_below(maker, sizeof frames / sizeof frames[0]);
  for (size_t i = 0; i < count; i++) frames[i] = maker_pick(maker, counts.frames);
  T_OK(tide_intern_add_stack(maker->names, frames, count, &number));
}

static inline void maker_add_note(trace_maker* maker) {
  const tide_intern_counts counts = tide_intern_counts_of(maker->names);
  uint32_t number = 0;
  const tide_note note = { maker_pick(maker, counts.texts), maker_pick(maker, counts.texts),
                           maker_extra(maker) };
  T_OK(tide_intern_add_note(maker->names, note, &number));
}

static inline void maker_add_names(trace_maker* maker, uint64_t size) {
  uint32_t number = 0;
  for (uint64_t i = 0; i < size; i++) {
    switch (maker_below(maker, 6)) {
      case 0: maker_add_text(maker); break;
      case 1: maker_add_value(maker); break;
      case 2: maker_add_frame(maker); break;
      case 3: maker_add_stack(maker); break;
      case 4: maker_add_note(maker); break;
      default: break;
    }
  }
  for (uint64_t i = maker_below(maker, 5); i > 0; i--) {
    const tide_pool_label label = { maker_below(maker, 3), maker_number(maker) };
    T_OK(tide_trace_add_pool(maker->trace, label, &number));
  }
}

// A note whose extra has a text, or now and then something else, under a key of a reader's.
static inline uint32_t maker_note_with(trace_maker* maker, const char* key, tide_value value) {
  uint32_t text = 0;
  uint32_t number = 0;
  tide_note note = { 0 };
  T_OK(tide_intern_add_text(maker->names, key, strlen(key), &text));
  T_OK(tide_intern_add_value(maker->names, &value, &number));
  const uint64_t item = (uint64_t)text << 32 | number;
  const tide_value dict = { .kind = TIDE_VALUE_DICT, .items = &item, .count = 1 };
  T_OK(tide_intern_add_value(maker->names, &dict, &note.extra));
  T_OK(tide_intern_add_note(maker->names, note, &number));
  return number;
}

// An action that is not one of ours.
static inline void maker_make_action_foreign(trace_maker* maker, tide_trace_entry* entry) {
  tide_value value = { .kind = TIDE_VALUE_TEXT };
  T_OK(tide_intern_add_text(maker->names, "annotate", 8, &value.text));
  entry->note = maker_note_with(maker, "action", value);
  entry->action = TIDE_ACTION_OTHER;
  entry->absent |= TIDE_ENTRY_ACTION;
}

// Entries like those of an allocator, and now and then one with anything in it. Times go on from the last, or
// jump.
static inline void maker_add_entry(trace_maker* maker, uint64_t* time_ns, uint64_t devices) {
  const tide_intern_counts counts = tide_intern_counts_of(maker->names);
  const bool is_wild = maker_below(maker, 20) == 0;
  *time_ns = is_wild ? maker_number(maker) : *time_ns + 1000 * maker_below(maker, 200);
  tide_trace_entry entry = { .time_ns = *time_ns,
                             .address = 0x7f0000000000 + 512 * maker_below(maker, 100000),
                             .bytes = 4 * maker_below(maker, 1 << 20),
                             .stream = maker_below(maker, 2) * 0x55aa1234,
                             .action = (uint8_t)maker_below(maker, TIDE_ACTION_COUNT),
                             .device = (uint8_t)maker_below(maker, devices) };
  entry.stack = maker_pick(maker, counts.stacks);
  if (is_wild) {
    entry.bytes = maker_size(maker);
    entry.address = maker_address(maker, entry.bytes);
    entry.stream = maker_number(maker);
    entry.note = maker_pick(maker, counts.notes);
    entry.pool = maker_pick(maker, (uint32_t)tide_trace_pool_count(maker->trace) - 1);
    entry.absent = (uint16_t)(maker_number(maker) & ~(uint64_t)TIDE_ENTRY_ACTION);
    if (maker_below(maker, 2) == 0) maker_make_action_foreign(maker, &entry);
  }
  if (entry.action == TIDE_ACTION_OOM) {
    entry.address %= TIDE_FORMAT_BYTES;
    if (is_wild) entry.bytes = maker_number(maker) % TIDE_FORMAT_REQUEST;
  }
  T_OK(tide_trace_add_entry(maker->trace, &entry));
}

static inline void maker_add_segment(trace_maker* maker) {
  const tide_intern_counts counts = tide_intern_counts_of(maker->names);
  const uint64_t bytes = maker_size(maker);
  tide_trace_segment segment = { .address = maker_address(maker, bytes),
                                 .bytes = bytes,
                                 .stream = maker_number(maker),
                                 .allocated_bytes = maker_size(maker),
                                 .active_bytes = maker_size(maker),
                                 .requested_bytes = maker_size(maker),
                                 .stack = maker_pick(maker, counts.stacks),
                                 .pool = maker_pick(maker, (uint32_t)tide_trace_pool_count(maker->trace) - 1),
                                 .extra = maker_extra(maker) };
  segment.absent = (uint16_t)(maker_number(maker) & ~(uint64_t)(TIDE_SEGMENT_ADDRESS | TIDE_SEGMENT_BYTES));
  segment.device = (uint8_t)maker_number(maker);
  segment.is_large = maker_below(maker, 2) == 1;
  segment.is_expandable = maker_below(maker, 2) == 1;
  T_OK(tide_trace_add_segment(maker->trace, &segment));
}

static inline void maker_add_block(trace_maker* maker) {
  const tide_intern_counts counts = tide_intern_counts_of(maker->names);
  const uint64_t bytes = maker_size(maker);
  const tide_trace_block block = { .address = maker_address(maker, bytes),
                                   .bytes = bytes,
                                   .requested_bytes = maker_size(maker),
                                   .stack = maker_pick(maker, counts.stacks),
                                   .extra = maker_extra(maker),
                                   .absent = (uint16_t)maker_number(maker),
                                   .state = (uint8_t)maker_below(maker, 3) };
  T_OK(tide_trace_add_block(maker->trace, &block));
}

static inline void maker_set_about(trace_maker* maker, bool has_segments) {
  const uint32_t values = tide_intern_counts_of(maker->names).values;
  tide_trace_about about = { .settings = maker_pick(maker, values),
                             .annotations = maker_pick(maker, values),
                             .extra = maker_extra(maker),
                             .has_segments = has_segments };
  about.has_entries = maker_below(maker, 2) == 1;
  about.is_segments_only = maker_below(maker, 2) == 1;
  about.is_cut = maker_below(maker, 8) == 0;
  about.has_steps = maker_below(maker, 2) == 1;
  tide_trace_set_about(maker->trace, &about);
}

// A trace with up to about `size` of everything. `heap` may be NULL.
static inline tide_trace* random_trace(const tide_heap* heap, t_rng rng, uint64_t size) {
  trace_maker maker = { .rng = rng };
  T_OK(tide_trace_new(heap, &maker.trace));
  maker.names = tide_trace_names(maker.trace);
  maker_add_names(&maker, maker_below(&maker, 2 * size + 1));
  const bool has_segments = maker_below(&maker, 4) != 0;
  for (uint64_t i = has_segments ? maker_below(&maker, size + 1) : 0; i > 0; i--) {
    maker_add_segment(&maker);
    for (uint64_t k = maker_below(&maker, 6); k > 0; k--) maker_add_block(&maker);
  }
  maker_set_about(&maker, has_segments);
  const uint64_t devices = 1 + maker_below(&maker, maker_below(&maker, 4) == 0 ? 256 : 3);
  if (maker_below(&maker, 2) == 0) T_OK(tide_trace_add_device(maker.trace, maker_below(&maker, devices)));
  uint64_t time_ns = maker_number(&maker);
  for (uint64_t i = maker_below(&maker, size + 1); i > 0; i--) maker_add_entry(&maker, &time_ns, devices);
  return maker.trace;
}

#endif
