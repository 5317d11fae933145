// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `idle`: where a block goes when it becomes idle. Calls tcache.c, the depot, and the room `stats`.
#include "pinned/idle/idle.h"

static void history_completed(tide_pinned_cache* pinned, const tide__pin* list) {
  if (!tide__pin_is_recording(pinned)) return;
  const tide__call_context context = tide__pin_context_now(pinned, TIDE_HISTORY_ALL);
  for (; list != NULL; list = list->next) {
    tide__pin_history_block(pinned, TIDE_ACTION_FREE_COMPLETED, &context, list);
  }
}

// Puts blocks into the thread cache as far as they belong there; returns the others.
static tide__pin* retire_to_tcache(tide_pinned_cache* pinned, tide__pin* list) {
  tide__pin* others = NULL;
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  while (list != NULL) {
    tide__pin* const block = list;
    list = block->next;
    tide__store_relaxed(&block->state, TIDE__PIN_IDLE);
    if (block->is_plain && tide__pin_tcache_keep_locked(pinned, tcache, block)) continue;
    tide__pin_count_back_locked(pinned, tcache, tide__pin_bytes(block));
    if (block->is_plain && tcache->magazines[block->class_index].limit != 0) {
      tide__pin_tcache_put_locked(pinned, tcache, block);
    } else {
      block->next = others;
      others = block;
    }
  }
  tide__pin_leave(tcache);
  return others;
}

void tide__pin_retire(tide_pinned_cache* pinned, tide__pin* list, tide__link* going) {
  history_completed(pinned, list);
  list = retire_to_tcache(pinned, list);
  while (list != NULL) {
    tide__pin* const block = list;
    tide__pin_segment* const segment = block->segment;
    list = block->next;
    block->next = NULL;
    if (segment->is_cached) {
      tide__pin_depot_put(pinned, segment->pool, segment->class_index, block);
    } else {
      segment->idle = block;
      segment->idle_count = 1;
      tide__list_append(going, &segment->link);
    }
  }
}
