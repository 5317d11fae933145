// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A memory snapshot of a cache: its history and its segments are added to a trace, under one number for the
// device. What they name is carried from the table of the cache to that of the trace (trace/carry.h).
#include "base/sized.h"
#include "pinned/pinned_cache.h"
#include "trace/carry.h"

enum { TRACE_DEVICES = 256 };

typedef struct pinned_carry {
  tide_pinned* pinned;  // borrowed
  tide_trace* trace;    // borrowed
  tide__carry names;
  bool has_entries;
  uint8_t device;
  tide_status status;
} pinned_carry;

static tide_status carry_pool(pinned_carry* c, tide_pool number, uint32_t* out) {
  *out = 0;
  if (number == TIDE_POOL_DEFAULT) return TIDE_OK;
  return tide_trace_add_pool(c->trace, (tide_pool_label){ 0, number }, out);
}

static tide_status carry_entry(pinned_carry* c, const tide_trace_entry* from) {
  tide_trace_entry entry = *from;
  entry.device = c->device;
  TIDE_TRY(tide__carry_entry(&c->names, &entry));
  TIDE_TRY(carry_pool(c, from->pool, &entry.pool));
  return tide_trace_add_entry(c->trace, &entry);
}

static bool carry_entries(void* user, const tide_trace_entry* entries, size_t count) {
  pinned_carry* const c = user;
  for (size_t i = 0; i < count && c->status == TIDE_OK; i++) c->status = carry_entry(c, &entries[i]);
  return c->status == TIDE_OK;
}

static tide_status carry_segment(pinned_carry* c, const tide_segment_info* from) {
  tide_trace_segment segment = { .address = from->address,
                                 .bytes = from->bytes,
                                 .allocated_bytes = from->allocated_bytes,
                                 .active_bytes = from->active_bytes,
                                 .requested_bytes = from->requested_bytes,
                                 .device = c->device,
                                 .is_large = from->is_large };
  TIDE_TRY(carry_pool(c, from->pool, &segment.pool));
  TIDE_TRY(tide__carry_stack(&c->names, from->stack, &segment.stack));
  return tide_trace_add_segment(c->trace, &segment);
}

static bool carry_on_segment(void* user, const tide_segment_info* segment) {
  pinned_carry* const c = user;
  c->status = carry_segment(c, segment);
  return c->status == TIDE_OK;
}

static bool carry_on_block(void* user, const tide_block_info* from) {
  pinned_carry* const c = user;
  tide_trace_block block = { .address = from->address,
                             .bytes = from->bytes,
                             .requested_bytes = from->requested_bytes,
                             .state = (uint8_t)from->state };
  c->status = tide__carry_stack(&c->names, from->stack, &block.stack);
  if (c->status == TIDE_OK) c->status = tide_trace_add_block(c->trace, &block);
  return c->status == TIDE_OK;
}

static tide_status carry_all(pinned_carry* c) {
  const tide_device_visitor visitor = { .segment = carry_on_segment, .block = carry_on_block, .user = c };
  tide_trace_about about = tide_trace_get_about(c->trace);
  about.has_segments = about.has_entries = true;
  TIDE_TRY(tide__carry_init(&c->names));
  TIDE_TRY(tide_trace_add_device(c->trace, c->device));
  if (c->has_entries) TIDE_TRY(tide_pinned_history_visit(c->pinned, carry_entries, c));
  TIDE_TRY(c->status);
  TIDE_TRY(tide_pinned_visit(c->pinned, &visitor));
  TIDE_TRY(c->status);
  tide_trace_set_about(c->trace, &about);
  return TIDE_OK;
}

tide_status tide_pinned_snapshot(tide_pinned* pinned, const tide_snapshot_options* options, int device,
                                 tide_trace* trace) {
  tide_snapshot_options whole = TIDE_SNAPSHOT_OPTIONS_INIT;
  if (options == NULL) options = &whole;
  TIDE_REQUIRE(pinned != NULL && trace != NULL, TIDE_ERR_ARGUMENT, "pinned_snapshot: no cache or trace");
  TIDE_REQUIRE(tide__sized_in(&whole, sizeof whole, options, TIDE__END_OF(tide_snapshot_options, user)),
               TIDE_ERR_ARGUMENT, "pinned_snapshot: options have %u bytes, not %zu", options->size,
               sizeof whole);
  TIDE_REQUIRE(device >= 0 && device < TRACE_DEVICES, TIDE_ERR_ARGUMENT,
               "pinned_snapshot: no device %d is told", device);
  pinned_carry c = {
    .pinned = pinned,
    .trace = trace,
    .names = { .heap = pinned->heap, .from = pinned->names, .to = tide_trace_names(trace) },
    .has_entries = whole.has_entries,
    .device = (uint8_t)device,
  };
  c.names.describe = whole.describe;
  c.names.user = whole.user;
  c.names.epoch_ns = whole.epoch_ns;
  const tide_status status = carry_all(&c);
  tide__carry_fini(&c.names);
  return status;
}
