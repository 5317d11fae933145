// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `stats`: the history of the cache: core/history.h, with entries about blocks and segments.
#include "pinned/stats/stats.h"

tide__call_context tide__pin_context_now(tide_pinned_cache* pinned, uint32_t level) {
  if (!tide__pin_is_recording(pinned)) return (tide__call_context){ 0, 0, 0 };
  return tide__history_context(&pinned->history, level, TIDE__STEP_ENTRIES);
}

void tide__pin_history_add(tide_pinned_cache* pinned, tide_action action, const tide__call_context* context,
                           uint64_t address, uint64_t bytes, tide_pool pool) {
  const tide_trace_entry entry = {
    .address = address, .bytes = bytes, .stack = context->stack, .pool = pool, .action = (uint8_t)action
  };
  tide__history_add(&pinned->history, context, entry);
}

void tide__pin_history_block(tide_pinned_cache* pinned, tide_action action, const tide__call_context* context,
                             const tide__pin* block) {
  const tide_trace_entry entry = { .address = tide__pin_address(block),
                                   .bytes = tide__load_relaxed(&block->requested_bytes),
                                   .stream = tide__address(block->stream),
                                   .stack = context->stack,
                                   .pool = block->segment->pool->base.number,
                                   .action = (uint8_t)action,
                                   .device = (uint8_t)(block->device > 0 ? block->device : 0) };
  tide__history_add(&pinned->history, context, entry);
}

// ---------------------------------------------------------------------------------------------------
// Calls

tide_status tide_pinned_history(tide_pinned_cache* pinned, const tide_history_options* options) {
  TIDE_REQUIRE(pinned != NULL && options != NULL, TIDE_ERR_ARGUMENT, "pinned_history: no cache or options");
  return tide__history_configure(&pinned->history, "pinned_history", options);
}

tide_intern* tide_pinned_names(tide_pinned_cache* pinned) {
  return pinned != NULL ? pinned->history.names : NULL;
}

tide_status tide_pinned_history_visit(tide_pinned_cache* pinned, tide_history_fn function, void* user) {
  TIDE_REQUIRE(pinned != NULL && function != NULL, TIDE_ERR_ARGUMENT,
               "pinned_history_visit: no cache or function");
  return tide__ring_visit(&pinned->history.ring, function, user);
}
