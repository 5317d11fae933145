// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks that were released while streams use them. For each stream an event is recorded, and the block is
// reusable when all its events have passed. The events of a stream pass in the order they were recorded, so
// only the first of each queue is asked about, and a stream that is stuck holds back nothing else. (The
// per-thread stream is another one on each thread: all of its queue are asked.) If the first has passed,
// the last is asked next: if that has passed, all that were certainly recorded before it have.
//
// A queue is asked by one thread at a time, which takes its uses out and puts those back that have not
// passed; who finds a queue taken waits for the answer rather than pin new memory.
//
// A block with an event that could not be recorded is deferred, with the others recorded already: it is
// tried again with every look, and while waiting for all, its device is waited for instead. An event that
// was recorded in a capture says nothing: it is not asked before the capture is over, and then recorded
// again.
//
// Lock: pending, held for moments; also for the statistics of what waits. The machine is called without it.
#include "pinned/pinned_cache.h"

void tide__pin_pending_init(tide_pinned* pinned) {
  tide__mutex_init(&pinned->pending.lock, TIDE__RANK_PENDING);
  tide__signal_init(&pinned->pending.changed);
}

void tide__pin_pending_fini(tide_pinned* pinned) {
  tide__signal_fini(&pinned->pending.changed);
  tide__mutex_fini(&pinned->pending.lock);
}

// Says that a queue, or the deferred blocks, are nobody's any more.
static void pending_changed_locked(tide__pin_pending* p) TIDE_REQUIRES(&p->lock) {
  if (p->listeners != 0) tide__signal_all(&p->changed);
}

static void pending_listen_locked(tide__pin_pending* p) TIDE_REQUIRES(&p->lock) {
  p->listeners++;
  tide__signal_wait(&p->changed, &p->lock);
  p->listeners--;
}

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

static void waits_begin_locked(tide_pinned* pinned, const tide__pin* block) {
  tide_pinned_stats* const stats[2] = { &pinned->totals, &tide__pin_pool_of(pinned, block)->stats };
  const int64_t bytes = (int64_t)tide__pin_bytes(block);
  for (int i = 0; i < 2; i++) {
    waits_rise(&stats[i]->waiting, 1);
    waits_rise(&stats[i]->waiting_bytes, bytes);
  }
  tide__store_relaxed(&pinned->pending.waiting, tide__load_relaxed(&pinned->pending.waiting) + 1);
}

// Of blocks of one pool: falls are added up, since they make no peak.
static void waits_end(tide_pinned* pinned, tide__pin_pool* pool, int64_t count, int64_t bytes) {
  tide__pin_pending* const p = &pinned->pending;
  tide__mutex_lock(&p->lock);
  waits_fall(&pinned->totals, count, bytes);
  waits_fall(&pool->stats, count, bytes);
  tide__store_relaxed(&p->waiting, tide__load_relaxed(&p->waiting) - (uint64_t)count);
  tide__mutex_unlock(&p->lock);
}

// ---------------------------------------------------------------------------------------------------
// Queues

// An idle queue, now among those in use. There is one: every record of a use brought one along, and those
// that are in use hold at least one record each.
static tide__pin_queue* queue_take_locked(tide__pin_pending* p) TIDE_REQUIRES(&p->lock) {
  tide__pin_queue* const queue = p->idle_queues;
  TIDE_ASSERT(queue != NULL);
  p->idle_queues = queue->next;
  queue->next = p->queues;
  p->queues = queue;
  return queue;
}

// The queue of a stream.
static tide__pin_queue* pin_queue_find_locked(tide__pin_pending* p, const tide__pin_use* use)
    TIDE_REQUIRES(&p->lock) {
  tide__pin_queue* queue = p->queues;
  while (queue != NULL && (queue->stream != use->stream || queue->device != use->device)) queue = queue->next;
  if (queue != NULL) return queue;
  queue = queue_take_locked(p);
  queue->stream = use->stream;
  queue->device = use->device;
  queue->pass = 0;
  return queue;
}

// Puts a use behind those that were recorded before it: usually at the end, but an event may have been
// recorded long before the block was released.
static void queue_insert_locked(tide__pin_queue* queue, tide__pin_use* use) {
  const bool is_last = queue->first == NULL || queue->last->begin <= use->begin;
  tide__pin_use** place = &queue->first;
  if (is_last && queue->first != NULL) place = &queue->last->next;
  while (!is_last && (*place)->begin <= use->begin) place = &(*place)->next;
  use->next = *place;
  *place = use;
  if (is_last) queue->last = use;
}

// Takes the turn to ask a queue that this pass has not been to, and its uses; NULL if there is none.
static tide__pin_queue* queue_enter(tide__pin_pending* p, uint64_t pass, tide__pin_use** out_uses,
                                    tide__pin_use** out_last) {
  tide__mutex_lock(&p->lock);
  tide__pin_queue* queue = p->queues;
  while (queue != NULL && (queue->pass >= pass || queue->is_polled)) {
    const bool is_taken = queue->pass < pass;
    if (is_taken) pending_listen_locked(p);
    queue = is_taken ? p->queues : queue->next;  // anything may have changed
  }
  if (queue != NULL) {
    queue->is_polled = true;
    queue->pass = pass;
    *out_uses = queue->first;
    *out_last = queue->last;
    queue->first = queue->last = NULL;
  }
  tide__mutex_unlock(&p->lock);
  return queue;
}

static void queue_end_locked(tide__pin_pending* p, tide__pin_queue* queue) TIDE_REQUIRES(&p->lock) {
  tide__pin_queue** place = &p->queues;
  while (*place != queue) place = &(*place)->next;
  *place = queue->next;
  queue->next = p->idle_queues;
  p->idle_queues = queue;
}

// Ends the turn: what has not passed goes back to the beginning.
static void queue_leave(tide__pin_pending* p, tide__pin_queue* queue, tide__pin_use* rest,
                        tide__pin_use* rest_last) {
  tide__mutex_lock(&p->lock);
  if (rest != NULL) {
    rest_last->next = queue->first;
    if (queue->first == NULL) queue->last = rest_last;
    queue->first = rest;
  }
  queue->is_polled = false;
  if (queue->first == NULL) queue_end_locked(p, queue);
  pending_changed_locked(p);
  tide__mutex_unlock(&p->lock);
}

// ---------------------------------------------------------------------------------------------------
// Waiting

// Puts the uses of a block into their queues.
static void block_queue_locked(tide__pin_pending* p, tide__pin* block, tide__pin_use* uses)
    TIDE_REQUIRES(&p->lock) {
  const uint64_t end = tide__load_relaxed(&p->tickets) + 1;
  const bool is_only = uses->next == NULL;
  tide__store_release(&p->tickets, end);  // pairs with tide__pin_use_record
  while (uses != NULL) {
    tide__pin_use* const use = uses;
    uses = use->next;
    use->block = block;
    use->end = end;
    use->is_only = is_only;
    if (!is_only) block->event_count++;
    queue_insert_locked(pin_queue_find_locked(p, use), use);
  }
}

static void block_defer_locked(tide__pin_pending* p, tide__pin* block, tide__pin_use* uses)
    TIDE_REQUIRES(&p->lock) {
  block->held = uses;
  block->next = p->deferred;
  p->deferred = block;
}

// Records the events of uses that have none yet.
static tide_status uses_record(tide_pinned* pinned, const tide__pin* block, tide__pin_use* uses) {
  for (tide__pin_use* use = uses; use != NULL; use = use->next) {
    if (use->is_recorded) continue;
    const tide_status status = tide__pin_use_record(pinned, use);
    if (status != TIDE_OK) {
      TIDE__PIN_COUNT(pinned, block->segment->pool, num_record_failures, 1);
      return status;
    }
  }
  return TIDE_OK;
}

// What a graph may use is kept with its pool.
static void block_keep(tide_pinned* pinned, tide__pin* block, tide__pin_use* uses) {
  tide__pin_pending* const p = &pinned->pending;
  tide__store_relaxed(&block->state, TIDE__PIN_KEPT);
  tide__mutex_lock(&p->lock);
  block->held = uses;
  block->next = block->segment->pool->kept;
  block->segment->pool->kept = block;
  tide__mutex_unlock(&p->lock);
}

void tide__pin_wait(tide_pinned* pinned, tide__pin* block, tide__pin_use* uses) {
  tide__pin_pending* const p = &pinned->pending;
  if (block->is_scoped) {
    block_keep(pinned, block, uses);
    return;
  }
  tide__store_relaxed(&block->state, TIDE__PIN_WAITING);
  tide_error before;
  tide__error_keep(&before);
  const bool is_recorded = uses_record(pinned, block, uses) == TIDE_OK;
  if (!is_recorded) tide__error_restore(&before);
  tide__mutex_lock(&p->lock);
  waits_begin_locked(pinned, block);
  if (is_recorded) block_queue_locked(p, block, uses);
  else block_defer_locked(p, block, uses);
  tide__mutex_unlock(&p->lock);
  if (pinned->watcher.is_running) tide__pin_watcher_call(pinned);
}

// ---------------------------------------------------------------------------------------------------
// Asking

// One pass over all that waits.
typedef struct pending_pass {
  tide_pinned* pinned;
  bool waits;         // for what is not done
  tide__link going;   // segments to be given back at the end
  tide_status first;  // failure
} pending_pass;

// A list of uses with its end.
typedef struct use_chain {
  tide__pin_use* first;
  tide__pin_use* last;
} use_chain;

static void chain_add(use_chain* chain, tide__pin_use* use) {
  use->next = NULL;
  if (chain->first == NULL) chain->first = use;
  else chain->last->next = use;
  chain->last = use;
}

static void pass_note(pending_pass* pass, tide_status status) {
  if (pass->first == TIDE_OK) pass->first = status;
}

// An event that was recorded in a capture which is over is recorded again, behind what is queued by now.
static tide_status use_query(tide_pinned* pinned, tide__pin_use* use, bool* out_done) {
  const tide_status status = tide_machine_event_query(pinned->machine, use->event, out_done);
  if (status != TIDE_ERR_ARGUMENT && status != TIDE_ERR_CAPTURE) return status;
  return tide__pin_use_record(pinned, use);
}

// Does a capture that is under way have the event? A stream that may be gone is asked only if it had.
static bool use_is_in_capture(tide_pinned* pinned, const tide__pin_use* use) {
  if (!pinned->has_unique_streams && !use->is_captured) return false;
  return tide__capture_has(pinned->machine, use->device, use->stream);
}

// Is the work before the use's event done? Where it cannot be waited for, the device is.
static bool use_is_done(pending_pass* pass, tide__pin_use* use) {
  tide_machine* const machine = pass->pinned->machine;
  bool is_done = false;
  tide_status status = TIDE_OK;
  if (use_is_in_capture(pass->pinned, use)) return false;
  if (pass->waits) {
    status = tide_machine_event_synchronize(machine, use->event);
    if (status != TIDE_OK) status = tide_machine_device_synchronize(machine, use->device);
    is_done = status == TIDE_OK;
  } else {
    status = use_query(pass->pinned, use, &is_done);
  }
  if (status != TIDE_OK) TIDE__PIN_COUNT(pass->pinned, use->block->segment->pool, num_query_failures, 1);
  pass_note(pass, status);
  return is_done;
}

// What a look at a queue found.
typedef struct queue_answer {
  use_chain rest;       // uses that have not passed
  tide__pin_use* left;  // records of uses that have, but for those that their blocks keep
  tide__pin* blocks;    // that have nothing else to wait for, as a list
  int64_t plain_count;  // of these, of the default pool
  int64_t plain_bytes;
} queue_answer;

// Has the block of a use that has passed nothing else to wait for?
static bool use_was_last(tide__pin_pending* p, const tide__pin_use* use) {
  if (use->is_only) return true;
  tide__mutex_lock(&p->lock);
  const bool is_last = --use->block->event_count == 0;
  tide__mutex_unlock(&p->lock);
  return is_last;
}

// A block that goes into a thread cache keeps its record for its next use. One record of each queue does not
// go with a block: see pin_queue_pass.
static void answer_record(queue_answer* answer, tide__pin_use* use) {
  tide__pin* const block = use->block;
  const bool is_kept = answer->left != NULL && use->is_only && block->spare == NULL &&
                       tide__pin_is_magazined(block);
  use->next = is_kept ? NULL : answer->left;
  if (is_kept) block->spare = use;
  else answer->left = use;
}

// A use has passed.
static void answer_done(tide_pinned* pinned, queue_answer* answer, tide__pin_use* use) {
  tide__pin* const block = use->block;
  const bool is_last = use_was_last(&pinned->pending, use);
  answer_record(answer, use);
  if (!is_last) return;
  block->next = answer->blocks;
  answer->blocks = block;
  const int64_t bytes = (int64_t)tide__pin_bytes(block);
  answer->plain_count += block->is_plain ? 1 : 0;
  answer->plain_bytes += block->is_plain ? bytes : 0;
  if (!block->is_plain) waits_end(pinned, block->segment->pool, 1, bytes);
}

// Asks the uses of a queue, and parts those that have passed from the rest.
static void queue_ask(pending_pass* pass, const tide__pin_queue* queue, tide__pin_use* uses,
                      tide__pin_use* last, queue_answer* answer) {
  const bool is_ordered = queue->stream != TIDE_STREAM_PER_THREAD;
  const uint64_t number = last->number;
  const bool infers = is_ordered && number != 0 && !pass->waits;
  uint64_t passed = 0;  // what ended before on the stream of this number has passed
  bool is_stopped = false;
  for (tide__pin_use* use = uses; use != NULL;) {
    tide__pin_use* const next = use->next;
    const bool is_inferred = use->end <= passed && use->number == number;
    const bool is_done = is_inferred || (!is_stopped && use_is_done(pass, use));
    if (is_done && use == uses && infers && use != last && use_is_done(pass, last)) passed = last->begin;
    is_stopped = is_stopped || (!is_done && is_ordered);
    if (is_done) answer_done(pass->pinned, answer, use);
    else chain_add(&answer->rest, use);
    use = next;
  }
}

// The blocks are reusable before others are let to the queue, and the records are given back after, because
// the queue is one for each record.
static void pin_queue_pass(pending_pass* pass, tide__pin_queue* queue, tide__pin_use* uses,
                           tide__pin_use* last) {
  tide_pinned* const pinned = pass->pinned;
  queue_answer answer = { .left = NULL };
  queue_ask(pass, queue, uses, last, &answer);
  tide__pin_retire(pinned, answer.blocks, &pass->going);
  if (answer.plain_count != 0) {  // only now: who finds nothing waiting must find the blocks
    waits_end(pinned, pinned->default_pool, answer.plain_count, answer.plain_bytes);
  }
  queue_leave(&pinned->pending, queue, answer.rest.first, answer.rest.last);
  tide__pin_uses_give(pinned, answer.left);
}

// ---------------------------------------------------------------------------------------------------
// Deferred blocks

// Waits for the device of uses that get no event, which are then over. Not while their stream is captured.
static tide__pin_use* uses_wait(tide_pinned* pinned, tide__pin_use* uses) {
  use_chain over = { NULL, NULL };
  use_chain left = { NULL, NULL };
  while (uses != NULL) {
    tide__pin_use* const use = uses;
    uses = use->next;
    const bool is_over = !use->is_recorded && !tide__capture_has(pinned->machine, use->device, use->stream) &&
                         tide_machine_device_synchronize(pinned->machine, use->device) == TIDE_OK;
    chain_add(is_over ? &over : &left, use);
  }
  tide__pin_uses_give(pinned, over.first);
  return left.first;
}

static void deferred_retry(pending_pass* pass, tide__pin* block) {
  tide_pinned* const pinned = pass->pinned;
  tide__pin_pending* const p = &pinned->pending;
  tide__pin_use* uses = block->held;
  block->held = NULL;
  block->next = NULL;
  tide_status status = uses_record(pinned, block, uses);
  if (status != TIDE_OK && pass->waits) {
    uses = uses_wait(pinned, uses);
    status = uses_record(pinned, block, uses);
  }
  pass_note(pass, status);
  if (uses == NULL) {
    const bool is_plain = block->is_plain;  // a private pool may be gone when its last block is
    const int64_t bytes = (int64_t)tide__pin_bytes(block);
    if (!is_plain) waits_end(pinned, block->segment->pool, 1, bytes);
    tide__pin_retire(pinned, block, &pass->going);
    if (is_plain) waits_end(pinned, pinned->default_pool, 1, bytes);
    return;
  }
  tide__mutex_lock(&p->lock);
  if (status == TIDE_OK) block_queue_locked(p, block, uses);
  else block_defer_locked(p, block, uses);
  tide__mutex_unlock(&p->lock);
}

// Tries the deferred blocks again; one thread at a time, and others wait for it.
static void deferred_pass(pending_pass* pass) {
  tide__pin_pending* const p = &pass->pinned->pending;
  tide__mutex_lock(&p->lock);
  while (p->is_retried) pending_listen_locked(p);
  tide__pin* list = p->deferred;
  p->deferred = NULL;
  p->is_retried = list != NULL;
  tide__mutex_unlock(&p->lock);
  if (list == NULL) return;
  while (list != NULL) {
    tide__pin* const block = list;
    list = block->next;
    deferred_retry(pass, block);
  }
  tide__mutex_lock(&p->lock);
  p->is_retried = false;
  pending_changed_locked(p);
  tide__mutex_unlock(&p->lock);
}

// ---------------------------------------------------------------------------------------------------
// Passes

static void pass_run(pending_pass* pass) {
  tide__pin_pending* const p = &pass->pinned->pending;
  tide__pin_use* uses = NULL;
  tide__pin_use* last = NULL;
  deferred_pass(pass);
  tide__mutex_lock(&p->lock);
  const uint64_t number = ++p->passes;
  tide__mutex_unlock(&p->lock);
  for (;;) {
    tide__pin_queue* const queue = queue_enter(p, number, &uses, &last);
    if (queue == NULL) return;
    pin_queue_pass(pass, queue, uses, last);
  }
}

static tide_status pending_run(tide_pinned* pinned, bool waits) {
  pending_pass pass = { .pinned = pinned, .waits = waits };
  uint32_t count = 0;
  if (!tide__pin_is_waiting(pinned)) return TIDE_OK;
  tide__list_init(&pass.going);
  tide_error before;
  tide__error_keep(&before);
  const tide__relaxed relaxed = tide__relax_or_not(pinned->machine);
  pass_run(&pass);
  tide__relax_end(&relaxed);
  pass_note(&pass, tide__pin_segments_give(pinned, &pass.going, &count));
  tide__pin_keep_cap(pinned);
  if (pass.first == TIDE_OK) tide__error_restore(&before);
  return pass.first;
}

tide_status tide__pin_poll(tide_pinned* pinned) { return pending_run(pinned, false); }
tide_status tide__pin_drain(tide_pinned* pinned) { return pending_run(pinned, true); }

// ---------------------------------------------------------------------------------------------------
// The end

static void uses_join(tide__pin_use** list, tide__pin_use* uses) {
  while (uses != NULL) {
    tide__pin_use* const use = uses;
    uses = use->next;
    use->next = *list;
    *list = use;
  }
}

uint64_t tide__pin_pending_devices(tide_pinned* pinned) {
  uint64_t devices = 0;
  for (const tide__pin_queue* queue = pinned->pending.queues; queue != NULL; queue = queue->next) {
    for (const tide__pin_use* use = queue->first; use != NULL; use = use->next) {
      devices |= (uint64_t)1 << use->device;
    }
  }
  return devices;
}

tide__pin_use* tide__pin_pending_clear(tide_pinned* pinned) {
  tide__pin_pending* const p = &pinned->pending;
  tide__pin_use* list = NULL;
  for (tide__pin_queue* queue = p->queues; queue != NULL; queue = queue->next) uses_join(&list, queue->first);
  for (int i = 0; i < TIDE_DEVICE_MAX; i++) uses_join(&list, p->idle_uses[i]);
  tide__thread_cache* tcache = tide__thread_caches_first(&pinned->tcaches);
  for (; tcache != NULL; tcache = tcache->next) uses_join(&list, ((tide__pin_tcache*)(void*)tcache)->uses);
  return list;
}
