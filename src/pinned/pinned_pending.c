// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks that were released while streams use them: the pinned cache's part of core/stream_waits.h, and the
// statistics of what waits. The uses of a block (see pinned_use.c) are wait records from the beginning, so
// that releasing it takes no memory.
//
// A pass waits for the answer of another thread that is asking a queue, rather than pin new memory.
//
// Lock: that of the waits, which also guards these statistics.
#include "pinned/pinned_cache.h"

// ---------------------------------------------------------------------------------------------------
// Statistics

static void waits_rise(tide_stat* stat, int64_t n) {
  stat->current += n;
  stat->allocated += n;
  if (stat->current > stat->peak) stat->peak = stat->current;
}

static void waits_fall(tide_pinned_stats* stats, int64_t count, int64_t bytes) {
  stats->waiting.current -= count;
  stats->waiting.freed += count;
  stats->waiting_bytes.current -= bytes;
  stats->waiting_bytes.freed += bytes;
}

static void waits_begin_locked(tide_pinned_cache* pinned, const tide__pin* block) {
  tide_pinned_stats* const stats[2] = { &pinned->totals, &tide__pin_pool_of(pinned, block)->stats };
  const int64_t bytes = (int64_t)tide__pin_bytes(block);
  for (int i = 0; i < 2; i++) {
    waits_rise(&stats[i]->waiting, 1);
    waits_rise(&stats[i]->waiting_bytes, bytes);
  }
}

// Of blocks of one pool: falls are added up, since they make no peak.
static void waits_end(tide_pinned_cache* pinned, tide__pin_pool* pool, int64_t count, int64_t bytes) {
  tide__mutex_lock(&pinned->waits.lock);
  waits_fall(&pinned->totals, count, bytes);
  waits_fall(&pool->stats, count, bytes);
  tide__mutex_unlock(&pinned->waits.lock);
}

// ---------------------------------------------------------------------------------------------------
// Callbacks

// A private pool may be gone when its last block is idle, so its statistics change before. Those of the
// default pool change after, once for all.
static void pin_blocks_ready(void* owner, tide__waiter* waiters, void* going) {
  tide_pinned_cache* const pinned = owner;
  tide__pin* list = NULL;
  int64_t plain_count = 0;
  int64_t plain_bytes = 0;
  for (; waiters != NULL; waiters = waiters->next) {
    tide__pin* const block = TIDE_OWNER(waiters, tide__pin, waiter);
    const int64_t bytes = (int64_t)tide__pin_bytes(block);
    block->next = list;
    list = block;
    plain_count += block->is_plain ? 1 : 0;
    plain_bytes += block->is_plain ? bytes : 0;
    if (!block->is_plain) waits_end(pinned, block->segment->pool, 1, bytes);
  }
  tide__pin_retire(pinned, list, going);
  if (plain_count != 0) waits_end(pinned, pinned->default_pool, plain_count, plain_bytes);
}

static void records_spent(void* owner, tide__wait* list) { tide__pin_uses_give(owner, list); }

static void call_failed(void* owner, tide__waiter* waiter, tide__waits_failure what) {
  tide_pinned_cache* const pinned = owner;
  tide__pin_pool* const pool = TIDE_OWNER(waiter, tide__pin, waiter)->segment->pool;
  if (what == TIDE__WAITS_RECORD_FAILED) TIDE__PIN_COUNT(pinned, pool, num_record_failures, 1);
  else TIDE__PIN_COUNT(pinned, pool, num_query_failures, 1);
}

// ---------------------------------------------------------------------------------------------------
// Waiting

void tide__pin_pending_init(tide_pinned_cache* pinned) {
  static const tide__waits_callbacks callbacks = { .ready = pin_blocks_ready,
                                                   .spent = records_spent,
                                                   .failed = call_failed };
  const tide__waits_options options = { .identity = pinned->has_unique_streams ? TIDE__STREAMS_ASKED_LATE
                                                                               : TIDE__STREAMS_ASKED_BEFORE,
                                        .survives_failures = true };
  tide__waits_init(&pinned->waits, pinned->machine, pinned->heap, &callbacks, pinned, options);
}

// What a graph may use is kept with its pool.
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
  waits_begin_locked(pinned, block);
  tide__waits_enter_locked(w, &block->waiter, is_recorded);
  tide__mutex_unlock(&w->lock);
  if (pinned->watcher.is_running) tide__pin_watcher_call(pinned);
}

static tide_status pending_run(tide_pinned_cache* pinned, tide__waits_mode mode) {
  uint32_t count = 0;
  tide__link going;
  if (!tide__pin_is_waiting(pinned)) return TIDE_OK;
  tide__list_init(&going);
  tide_error before;
  tide__error_keep(&before);
  const tide__waits_pass pass = { .mode = mode, .call = &going };
  const tide_status asked = tide__waits_run(&pinned->waits, &pass, NULL);
  const tide_status given = tide__pin_segments_give(pinned, &going, &count);
  tide__pin_keep_cap(pinned);
  const tide_status first = asked != TIDE_OK ? asked : given;
  if (first == TIDE_OK) tide__error_restore(&before);
  return first;
}

tide_status tide__pin_poll(tide_pinned_cache* pinned) { return pending_run(pinned, TIDE__WAITS_POLL_ALL); }
tide_status tide__pin_drain(tide_pinned_cache* pinned) { return pending_run(pinned, TIDE__WAITS_FOR_ALL); }
