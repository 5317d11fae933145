// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `stream`: released blocks that wait for streams (core/stream_waits.h), and the statistics about them.
// The uses of a block are wait records from the beginning, so releasing a block takes no memory. A pass waits
// for another thread that is asking a queue, because its answer may make pinning new memory unnecessary.
// Calls the rooms `idle`, `segment` and `stats`. Lock: that of the waits, which also guards the statistics.
#include <string.h>

#include "base/sys.h"
#include "pinned/stream/stream.h"

// ---------------------------------------------------------------------------------------------------
// Callbacks

// The statistics fall after the blocks are idle, once for all.
static void blocks_ready(void* owner, tide__waiter* waiters, void* going) {
  tide_pinned_cache* const pinned = owner;
  tide__pin* list = NULL;
  int64_t count = 0;
  int64_t bytes = 0;
  for (; waiters != NULL; waiters = waiters->next) {
    tide__pin* const block = TIDE_OWNER(waiters, tide__pin, waiter);
    block->next = list;
    list = block;
    count++;
    bytes += (int64_t)tide__pin_bytes(block);
  }
  tide__pin_retire(pinned, list, going);
  tide__mutex_lock(&pinned->waits.lock);
  tide__stat_move(&pinned->totals.waiting, -count);
  tide__stat_move(&pinned->totals.waiting_bytes, -bytes);
  tide__mutex_unlock(&pinned->waits.lock);
}

static void records_spent(void* owner, tide__wait* list) { tide__pin_records_give(owner, list); }

static void call_failed(void* owner, tide__waiter* waiter, tide__waits_failure what) {
  (void)waiter;
  if (what == TIDE__WAITS_RECORD_FAILED) TIDE__PIN_COUNT(owner, num_record_failures);
  else TIDE__PIN_COUNT(owner, num_query_failures);
}

// On cuda a new stream may have the handle of an earlier one, and stale handles must not be asked.
void tide__pin_waits_init(tide_pinned_cache* pinned) {
  static const tide__waits_callbacks callbacks = { .ready = blocks_ready,
                                                   .spent = records_spent,
                                                   .failed = call_failed };
  const bool is_cuda = strcmp(tide_machine_name(pinned->machine), "cuda") == 0;
  const tide__waits_options options = { .identity = is_cuda ? TIDE__STREAMS_ASKED_BEFORE
                                                            : TIDE__STREAMS_ASKED_LATE,
                                        .survives_failures = true };
  tide__waits_init(&pinned->waits, pinned->machine, pinned->heap, &callbacks, pinned, options);
}

// ---------------------------------------------------------------------------------------------------
// Waiting

void tide__pin_helper_wake(tide_pinned_cache* pinned) {
  tide__pin_helper* const helper = &pinned->helper;
  (void)tide__add_seq(&helper->calls, 1);
  if (tide__load_seq(&helper->is_asleep) != 0) tide__sys_futex_wake(&helper->calls);
}

// Keeps a block with its pool, because a graph may use it.
static void block_keep(tide_pinned_cache* pinned, tide__pin* block) {
  tide__store_relaxed(&block->state, TIDE__PIN_KEPT);
  tide__mutex_lock(&pinned->waits.lock);
  block->next = block->segment->pool->kept;
  block->segment->pool->kept = block;
  tide__mutex_unlock(&pinned->waits.lock);
}

void tide__pin_wait(tide_pinned_cache* pinned, tide__pin* block) {
  tide__stream_waits* const w = &pinned->waits;
  if (block->is_scoped) {
    block_keep(pinned, block);
    return;
  }
  tide__store_relaxed(&block->state, TIDE__PIN_WAITING);
  const bool is_recorded = tide__waits_record(w, &block->waiter);
  tide__mutex_lock(&w->lock);
  tide__stat_move(&pinned->totals.waiting, 1);
  tide__stat_move(&pinned->totals.waiting_bytes, (int64_t)tide__pin_bytes(block));
  tide__waits_enter_locked(w, &block->waiter, is_recorded);
  tide__mutex_unlock(&w->lock);
  if (pinned->helper.is_running) tide__pin_helper_wake(pinned);
}

static tide_status waits_run(tide_pinned_cache* pinned, tide__waits_mode mode) {
  tide__link going;
  if (tide__waits_is_empty(&pinned->waits)) return TIDE_OK;
  tide__list_init(&going);
  tide__first_failure failure;
  const tide__waits_pass pass = { .mode = mode, .call = &going };
  tide__first_failure_begin(&failure);
  tide__first_failure_note(&failure, tide__waits_run(&pinned->waits, &pass, NULL));
  tide__first_failure_note(&failure, tide__pin_segments_give(pinned, &going, NULL));
  tide__pin_keep_cap(pinned);
  return tide__first_failure_end(&failure);
}

tide_status tide__pin_poll(tide_pinned_cache* pinned) { return waits_run(pinned, TIDE__WAITS_POLL_ALL); }
tide_status tide__pin_drain(tide_pinned_cache* pinned) { return waits_run(pinned, TIDE__WAITS_FOR_ALL); }
