// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// History: entries for what happens, in the ring that all allocators share (trace/ring.h).
#include "base/sized.h"
#include "pinned/pinned_cache.h"
#include "trace/words.h"

enum { PINNED_FRAMES = 64 };

uint64_t tide__pin_now(tide_pinned* pinned) {
  uint64_t ns = 0;
  tide_error before;
  tide__pin_error_keep(&before);
  if (tide_machine_clock(pinned->machine, &ns) != TIDE_OK) tide__pin_error_restore(&before);
  return ns;
}

static uint32_t caller_stack(tide_pinned* pinned) {
  uint64_t frames[PINNED_FRAMES];
  uint32_t id = 0;
  tide__mutex_lock(&pinned->pools_lock);
  const tide_history_options history = pinned->history;
  tide__mutex_unlock(&pinned->pools_lock);
  if (history.gather == NULL) return 0;
  const size_t count = history.gather(history.user, frames, PINNED_FRAMES);
  tide_error before;
  tide__pin_error_keep(&before);
  const tide_status status =
      tide_intern_add_stack(pinned->names, frames, tide__min(count, PINNED_FRAMES), &id);
  if (status != TIDE_OK) tide__pin_error_restore(&before);
  return id;
}

tide__pin_moment tide__pin_moment_now(tide_pinned* pinned, uint32_t level) {
  tide__pin_moment moment = { 0, 0, 0 };
  if (!tide__pin_is_recording(pinned)) return moment;
  moment.time_ns = tide__pin_now(pinned);
  if (level != 0 && tide__load_relaxed(&pinned->history_level) >= level) moment.stack = caller_stack(pinned);
  moment.note = tide__words_note(pinned->names);
  return moment;
}

static void pin_entry_add(tide_pinned* pinned, const tide_trace_entry* entry) {
  const bool is_kept = (tide__load_relaxed(&pinned->history_skips) >> entry->action & 1u) == 0;
  if (is_kept && tide__pin_is_recording(pinned)) tide__ring_add(&pinned->ring, entry);
}

static uint32_t stack_shown(tide_pinned* pinned, const tide__pin_moment* moment) {
  return tide__load_relaxed(&pinned->history_level) >= TIDE_HISTORY_ALLOC ? moment->stack : 0;
}

void tide__pin_history_add(tide_pinned* pinned, tide_action action, const tide__pin_moment* moment,
                           uint64_t address, uint64_t bytes, tide_pool pool) {
  const tide_trace_entry entry = { .time_ns = moment->time_ns,
                                   .address = address,
                                   .bytes = bytes,
                                   .stack = stack_shown(pinned, moment),
                                   .note = moment->note,
                                   .pool = pool,
                                   .action = (uint8_t)action };
  pin_entry_add(pinned, &entry);
}

void tide__pin_history_block(tide_pinned* pinned, tide_action action, const tide__pin_moment* moment,
                             const tide__pin* block) {
  const tide_trace_entry entry = { .time_ns = moment->time_ns,
                                   .address = tide__pin_address(block),
                                   .bytes = tide__load_relaxed(&block->requested_bytes),
                                   .stream = tide__address(block->stream),
                                   .stack = stack_shown(pinned, moment),
                                   .note = moment->note,
                                   .pool = block->segment->pool->number,
                                   .action = (uint8_t)action,
                                   .device = (uint8_t)(block->device > 0 ? block->device : 0) };
  pin_entry_add(pinned, &entry);
}

tide_status tide_pinned_annotate(tide_pinned* pinned, const char* text) {
  TIDE_REQUIRE(pinned != NULL && text != NULL, TIDE_ERR_ARGUMENT, "pinned_annotate: no cache or text");
  if (!tide__pin_is_recording(pinned)) return TIDE_OK;
  tide__pin_moment moment = tide__pin_moment_now(pinned, TIDE_HISTORY_ALL);
  TIDE_TRY(tide__words_remark(pinned->names, text, &moment.note));
  tide__pin_history_add(pinned, TIDE_ACTION_USER_DEFINED, &moment, 0, 0, TIDE_POOL_DEFAULT);
  return TIDE_OK;
}

tide_status tide_pinned_history(tide_pinned* pinned, const tide_history_options* options) {
  TIDE_REQUIRE(pinned != NULL && options != NULL, TIDE_ERR_ARGUMENT, "pinned_history: no cache or options");
  tide_history_options whole = TIDE_HISTORY_OPTIONS_INIT;
  TIDE_REQUIRE(tide__sized_in(&whole, sizeof whole, options, TIDE__END_OF(tide_history_options, user)) &&
                   options->level <= TIDE_HISTORY_ALL,
               TIDE_ERR_ARGUMENT, "pinned_history: options of %u bytes and level %u", options->size,
               options->level);
  options = &whole;
  TIDE_REQUIRE(!options->is_on || options->level == TIDE_HISTORY_NEVER || options->gather != NULL,
               TIDE_ERR_ARGUMENT, "pinned_history: level %u needs a function that gathers stacks",
               options->level);
  if (options->is_on) TIDE_TRY(tide__ring_resize(&pinned->ring, tide__max(1, options->max_entries)));
  if (options->clears || !options->is_on) tide__ring_clear(&pinned->ring);
  tide__mutex_lock(&pinned->pools_lock);
  pinned->history = *options;
  tide__store_relaxed(&pinned->history_skips, options->skips);
  tide__store_relaxed(&pinned->history_level, options->is_on ? options->level : TIDE_HISTORY_NEVER);
  tide__pin_set_unusual(pinned, TIDE__PIN_RECORDS, options->is_on);
  tide__mutex_unlock(&pinned->pools_lock);
  return options->is_on ? TIDE_OK : tide__ring_resize(&pinned->ring, 0);
}

bool tide_pinned_has_history(const tide_pinned* pinned) {
  return pinned != NULL && tide__pin_is_recording(pinned);
}

tide_intern* tide_pinned_names(tide_pinned* pinned) { return pinned != NULL ? pinned->names : NULL; }

tide_status tide_pinned_history_visit(tide_pinned* pinned, tide_history_fn function, void* user) {
  TIDE_REQUIRE(pinned != NULL && function != NULL, TIDE_ERR_ARGUMENT,
               "pinned_history_visit: no cache or function");
  return tide__ring_visit(&pinned->ring, function, user);
}
