// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A memory snapshot of a cache: its history and its segments are added to a trace, under one number for the
// device. Stacks and texts are carried from the table of the cache to that of the trace, each distinct
// stack once.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pinned/pinned_cache.h"

enum { CARRY_FRAMES = 64, TRACE_DEVICES = 256 };

typedef struct trace_carry {
  tide_pinned* pinned;                   // borrowed
  const tide_snapshot_options* options;  // caller keeps
  tide_trace* trace;                     // borrowed
  tide_intern* to;                       // borrowed from the trace
  uint8_t device;
  uint32_t* stacks;  // owned; the number in the trace + 1, by the number in the cache's table
  size_t stack_count;
  tide_status status;
} trace_carry;

static tide_status carry_text(trace_carry* c, const char* text, uint32_t* out) {
  return tide_intern_add_text(c->to, text, text != NULL ? strlen(text) : 0, out);
}

static tide_status carry_frame(trace_carry* c, uint64_t number, uint64_t* out) {
  char hex[20];
  tide_frame frame = { 0 };
  tide_frame_words words = { NULL, NULL, 0 };
  uint32_t id = 0;
  if (c->options->describe == NULL || !c->options->describe(c->options->user, number, &words)) {
    (void)snprintf(hex, sizeof hex, "0x%" PRIx64, number);
    words = (tide_frame_words){ hex, NULL, 0 };
  }
  TIDE_TRY(carry_text(c, words.name, &frame.name));
  TIDE_TRY(carry_text(c, words.file, &frame.file));
  frame.line = words.line;
  TIDE_TRY(tide_intern_add_frame(c->to, &frame, &id));
  *out = id;
  return TIDE_OK;
}

// A stack that came after the snapshot began is carried each time it is met.
static tide_status carry_stack(trace_carry* c, uint32_t stack, uint32_t* out) {
  uint64_t frames[CARRY_FRAMES];
  size_t count = 0;
  *out = 0;
  if (stack == 0) return TIDE_OK;
  if (stack < c->stack_count && c->stacks[stack] != 0) {
    *out = c->stacks[stack] - 1;
    return TIDE_OK;
  }
  const uint64_t* const from = tide_intern_stack(c->pinned->names, stack, &count);
  count = tide__min(count, CARRY_FRAMES);
  for (size_t i = 0; i < count; i++) TIDE_TRY(carry_frame(c, from[i], &frames[i]));
  TIDE_TRY(tide_intern_add_stack(c->to, frames, count, out));
  if (stack < c->stack_count) c->stacks[stack] = *out + 1;
  return TIDE_OK;
}

static tide_status carry_pool(trace_carry* c, tide_pool number, uint32_t* out) {
  *out = 0;
  if (number == TIDE_POOL_DEFAULT) return TIDE_OK;
  return tide_trace_add_pool(c->trace, (tide_pool_label){ 0, number }, out);
}

static tide_status carry_entry(trace_carry* c, const tide_trace_entry* from) {
  tide_trace_entry entry = *from;
  size_t bytes = 0;
  entry.device = c->device;
  entry.time_ns += c->options->epoch_ns;
  if (from->stack == 0) entry.absent |= TIDE_ENTRY_STACK;
  TIDE_TRY(carry_stack(c, from->stack, &entry.stack));
  TIDE_TRY(carry_pool(c, from->pool, &entry.pool));
  if (from->note != 0) {
    const char* const text = tide_intern_text(c->pinned->names, from->note, &bytes);
    TIDE_TRY(tide_intern_add_text(c->to, text, bytes, &entry.note));
  }
  return tide_trace_add_entry(c->trace, &entry);
}

static bool carry_entries(void* user, const tide_trace_entry* entries, size_t count) {
  trace_carry* const c = user;
  for (size_t i = 0; i < count && c->status == TIDE_OK; i++) c->status = carry_entry(c, &entries[i]);
  return c->status == TIDE_OK;
}

static tide_status carry_segment(trace_carry* c, const tide_segment_info* from) {
  tide_trace_segment segment = { .address = from->address,
                                 .bytes = from->bytes,
                                 .allocated_bytes = from->allocated_bytes,
                                 .active_bytes = from->active_bytes,
                                 .requested_bytes = from->requested_bytes,
                                 .device = c->device,
                                 .is_large = from->is_large };
  TIDE_TRY(carry_pool(c, from->pool, &segment.pool));
  TIDE_TRY(carry_stack(c, from->stack, &segment.stack));
  return tide_trace_add_segment(c->trace, &segment);
}

static bool carry_on_segment(void* user, const tide_segment_info* segment) {
  trace_carry* const c = user;
  c->status = carry_segment(c, segment);
  return c->status == TIDE_OK;
}

static bool carry_on_block(void* user, const tide_block_info* from) {
  trace_carry* const c = user;
  tide_trace_block block = { .address = from->address,
                             .bytes = from->bytes,
                             .requested_bytes = from->requested_bytes,
                             .state = (uint8_t)from->state };
  c->status = carry_stack(c, from->stack, &block.stack);
  if (c->status == TIDE_OK) c->status = tide_trace_add_block(c->trace, &block);
  return c->status == TIDE_OK;
}

static tide_status carry_all(trace_carry* c) {
  const tide_device_visitor visitor = { .segment = carry_on_segment, .block = carry_on_block, .user = c };
  tide_trace_about about = tide_trace_get_about(c->trace);
  about.has_segments = about.has_entries = true;
  TIDE_TRY(tide_trace_add_device(c->trace, c->device));
  if (c->options->has_entries) TIDE_TRY(tide_pinned_history_visit(c->pinned, carry_entries, c));
  TIDE_TRY(c->status);
  TIDE_TRY(tide_pinned_visit(c->pinned, &visitor));
  TIDE_TRY(c->status);
  tide_trace_set_about(c->trace, &about);
  return TIDE_OK;
}

tide_status tide_pinned_snapshot(tide_pinned* pinned, const tide_snapshot_options* options, int device,
                                 tide_trace* trace) {
  static const tide_snapshot_options defaults = TIDE_SNAPSHOT_OPTIONS_INIT;
  if (options == NULL) options = &defaults;
  TIDE_REQUIRE(pinned != NULL && trace != NULL, TIDE_ERR_ARGUMENT, "pinned_snapshot: no cache or trace");
  TIDE_REQUIRE(options->size == sizeof *options, TIDE_ERR_ARGUMENT,
               "pinned_snapshot: options have %u bytes, not %zu", options->size, sizeof *options);
  TIDE_REQUIRE(device >= 0 && device < TRACE_DEVICES, TIDE_ERR_ARGUMENT,
               "pinned_snapshot: no device %d is told", device);
  trace_carry c = { .pinned = pinned, .options = options, .trace = trace, .to = tide_trace_names(trace) };
  c.device = (uint8_t)device;
  c.stack_count = (size_t)tide_intern_counts_of(pinned->names).stacks + 1;
  c.stacks = tide__heap_alloc(pinned->heap, c.stack_count, sizeof *c.stacks);
  TIDE_REQUIRE(c.stacks != NULL, TIDE_ERR_NO_MEMORY, "pinned_snapshot: no memory for %zu stacks",
               c.stack_count);
  const tide_status status = carry_all(&c);
  tide__heap_release(pinned->heap, c.stacks, c.stack_count, sizeof *c.stacks);
  return status;
}
