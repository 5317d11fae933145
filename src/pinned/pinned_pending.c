// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks that were released while streams use them. For each stream an event is recorded, and the block is
// reusable when all its events have passed. The events of a stream pass in the order they were recorded, so
// only the first of each queue is asked about, and a stream that is stuck holds back nothing else. (The
// per-thread stream is another one on each thread: all of its queue are asked.)
//
// A block with an event that could not be recorded is deferred, with the others recorded already: it is
// tried again with every look, and while waiting for all, its device is waited for instead.
//
// A queue is asked by one thread at a time (is_polled), without the lock; the use that is asked about
// stays in it, and who finds the queue taken waits for the answer rather than pin new memory. Lock:
// pending.
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
// Queues

// An idle queue, now among those in use; or one in use that just ran empty, which is as good. There is
// one for every record of a use.
static tide__pin_queue* queue_take_locked(tide__pin_pending* p) TIDE_REQUIRES(&p->lock) {
  tide__pin_queue* queue = p->idle_queues;
  if (queue != NULL) {
    p->idle_queues = queue->next;
    queue->next = p->queues;
    p->queues = queue;
    return queue;
  }
  queue = p->queues;
  while (queue != NULL && queue->first != NULL) queue = queue->next;
  TIDE_ASSERT(queue != NULL);
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
  const bool is_last = queue->first == NULL || queue->last->ticket < use->ticket;
  tide__pin_use** place = &queue->first;
  if (is_last && queue->first != NULL) place = &queue->last->next;
  while (!is_last && (*place)->ticket < use->ticket) place = &(*place)->next;
  use->next = *place;
  *place = use;
  if (is_last) queue->last = use;
}

static void queue_remove_locked(tide__pin_queue* queue, const tide__pin_use* use) {
  tide__pin_use* before = NULL;
  tide__pin_use** place = &queue->first;
  while (*place != use) {
    before = *place;
    place = &before->next;
  }
  *place = use->next;
  if (queue->last == use) queue->last = before;
}

// Takes the turn to ask a queue that this pass has not been to; NULL if there is none.
static tide__pin_queue* queue_enter(tide__pin_pending* p, uint64_t pass, tide__pin_use** out_last) {
  tide__mutex_lock(&p->lock);
  tide__pin_queue* queue = p->queues;
  while (queue != NULL) {
    if (queue->pass >= pass || queue->first == NULL) {
      queue = queue->next;
    } else if (queue->is_polled) {
      pending_listen_locked(p);
      queue = p->queues;  // anything may have changed
    } else {
      queue->is_polled = true;
      queue->pass = pass;
      *out_last = queue->last;
      break;
    }
  }
  tide__mutex_unlock(&p->lock);
  return queue;
}

static void queue_leave(tide__pin_pending* p, tide__pin_queue* queue) {
  tide__mutex_lock(&p->lock);
  queue->is_polled = false;
  if (queue->first == NULL) {
    tide__pin_queue** place = &p->queues;
    while (*place != queue) place = &(*place)->next;
    *place = queue->next;
    queue->next = p->idle_queues;
    p->idle_queues = queue;
  }
  pending_changed_locked(p);
  tide__mutex_unlock(&p->lock);
}

// ---------------------------------------------------------------------------------------------------
// Waiting

static void block_queue(tide_pinned* pinned, tide__pin* block, tide__pin_use* uses) {
  tide__pin_pending* const p = &pinned->pending;
  tide__mutex_lock(&p->lock);
  while (uses != NULL) {
    tide__pin_use* const use = uses;
    uses = use->next;
    use->block = block;
    block->event_count++;
    queue_insert_locked(pin_queue_find_locked(p, use), use);
  }
  tide__mutex_unlock(&p->lock);
}

static void block_defer(tide_pinned* pinned, tide__pin* block, tide__pin_use* uses) {
  tide__pin_pending* const p = &pinned->pending;
  block->held = uses;
  tide__mutex_lock(&p->lock);
  block->next = p->deferred;
  p->deferred = block;
  tide__mutex_unlock(&p->lock);
}

// Records the events of uses that have none yet. An event in a capture would be no event: the end of the
// capture is waited for.
static tide_status uses_record(tide_pinned* pinned, const tide__pin* block, tide__pin_use* uses) {
  for (tide__pin_use* use = uses; use != NULL; use = use->next) {
    if (use->is_recorded) continue;
    TIDE_REQUIRE(!tide__pin_stream_is_captured(pinned, use->device, use->stream), TIDE_ERR_CAPTURE,
                 "pinned: a stream that uses a released block is being captured");
    const tide_status status = tide__pin_use_record(pinned, use);
    if (status != TIDE_OK) {
      TIDE__PIN_COUNT(pinned, block->segment->pool, num_record_failures, 1);
      return status;
    }
  }
  return TIDE_OK;
}

// Counts a block that was handed out as one that waits.
static void block_count_wait(tide_pinned* pinned, const tide__pin* block) {
  tide__pin_front* const front = tide__pin_enter(pinned);
  tide__pin_turn_locked(pinned, front, block->segment->pool);
  tide__pin_count_rise(front, TIDE__PIN_WAITS, 1);
  tide__pin_count_rise(front, TIDE__PIN_WAITS_BYTES, (int64_t)tide__pin_bytes(block));
  tide__pin_counted_locked(pinned, front);
  tide__pin_leave(front);
}

// What a graph may use is kept with its pool.
static void block_keep(tide_pinned* pinned, tide__pin* block, tide__pin_use* uses) {
  tide__pin_pending* const p = &pinned->pending;
  block->held = uses;
  tide__store_relaxed(&block->state, TIDE__PIN_KEPT);
  tide__mutex_lock(&p->lock);
  block->next = block->segment->pool->kept;
  block->segment->pool->kept = block;
  tide__mutex_unlock(&p->lock);
}

void tide__pin_wait(tide_pinned* pinned, tide__pin* block, tide__pin_use* uses) {
  if (block->is_scoped) {
    block_keep(pinned, block, uses);
    return;
  }
  tide__store_relaxed(&block->state, TIDE__PIN_WAITING);
  block_count_wait(pinned, block);
  (void)tide__add_relaxed(&pinned->pending.waiting, 1);
  const tide_error before = *tide_last_error();
  if (uses_record(pinned, block, uses) == TIDE_OK) {
    block_queue(pinned, block, uses);
  } else {
    tide__error_restore(&before);
    block_defer(pinned, block, uses);
  }
  tide__pin_watcher_call(pinned);
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

static void pass_note(pending_pass* pass, tide_status status) {
  if (pass->first == TIDE_OK) pass->first = status;
}

static void pass_retire(pending_pass* pass, tide__pin* block) {
  tide__pin_segment* const segment = tide__pin_retire(pass->pinned, block, true);
  if (segment != NULL) tide__list_append(&pass->going, &segment->link);
  (void)tide__add_relaxed(&pass->pinned->pending.waiting, (uint64_t)-1);
}

// Is the work before the use's event done? Where it cannot be waited for, the device is.
static bool use_is_done(pending_pass* pass, const tide__pin_use* use) {
  tide_machine* const machine = pass->pinned->machine;
  bool is_done = false;
  tide_status status = TIDE_OK;
  if (pass->waits) {
    status = tide_machine_event_synchronize(machine, use->event);
    if (status != TIDE_OK) status = tide_machine_device_synchronize(machine, use->device);
    is_done = status == TIDE_OK;
  } else {
    status = tide_machine_event_query(machine, use->event, &is_done);
  }
  if (status != TIDE_OK) TIDE__PIN_COUNT(pass->pinned, use->block->segment->pool, num_query_failures, 1);
  pass_note(pass, status);
  return is_done;
}

// The use behind `before`, the first if that is NULL.
static tide__pin_use* use_after(tide__pin_pending* p, const tide__pin_queue* queue,
                                const tide__pin_use* before) {
  tide__mutex_lock(&p->lock);
  tide__pin_use* const use = before != NULL ? before->next : queue->first;
  tide__mutex_unlock(&p->lock);
  return use;
}

// Takes a use out whose event has passed; the block is reusable if it was the last.
static void use_pass(pending_pass* pass, tide__pin_queue* queue, tide__pin_use* use) {
  tide__pin_pending* const p = &pass->pinned->pending;
  tide__pin* const block = use->block;
  tide__mutex_lock(&p->lock);
  queue_remove_locked(queue, use);
  const bool is_last = --block->event_count == 0;
  tide__mutex_unlock(&p->lock);
  tide__pin_use_give(pass->pinned, use);
  if (is_last) pass_retire(pass, block);
}

// Asks a queue up to the use that was its last when the turn came; what was added since has a turn to come.
static void pin_queue_pass(pending_pass* pass, tide__pin_queue* queue, const tide__pin_use* last) {
  tide__pin_use* before = NULL;
  for (bool is_end = false; !is_end;) {
    tide__pin_use* const use = use_after(&pass->pinned->pending, queue, before);
    is_end = use == last;
    if (use_is_done(pass, use)) use_pass(pass, queue, use);
    else if (queue->stream == TIDE_STREAM_PER_THREAD) before = use;
    else break;
  }
}

// Waits for the device of uses that get no event, which are then over. Not while their stream is captured.
static tide__pin_use* uses_wait(pending_pass* pass, tide__pin_use* uses) {
  tide_pinned* const pinned = pass->pinned;
  tide__pin_use** place = &uses;
  while (*place != NULL) {
    tide__pin_use* const use = *place;
    const bool is_over = !use->is_recorded &&
                         !tide__pin_stream_is_captured(pinned, use->device, use->stream) &&
                         tide_machine_device_synchronize(pinned->machine, use->device) == TIDE_OK;
    if (!is_over) {
      place = &use->next;
      continue;
    }
    *place = use->next;
    tide__pin_use_give(pinned, use);
  }
  return uses;
}

static void deferred_retry(pending_pass* pass, tide__pin* block) {
  tide_pinned* const pinned = pass->pinned;
  tide__pin_use* uses = block->held;
  block->held = NULL;
  tide_status status = uses_record(pinned, block, uses);
  if (status != TIDE_OK && pass->waits) {
    uses = uses_wait(pass, uses);
    status = uses_record(pinned, block, uses);
  }
  if (status != TIDE_OK) {
    pass_note(pass, status);
    block_defer(pinned, block, uses);
  } else if (uses != NULL) {
    block_queue(pinned, block, uses);
  } else {
    pass_retire(pass, block);
  }
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

static void pass_run(pending_pass* pass) {
  tide__pin_pending* const p = &pass->pinned->pending;
  tide__pin_use* last = NULL;
  deferred_pass(pass);
  tide__mutex_lock(&p->lock);
  const uint64_t number = ++p->passes;
  tide__mutex_unlock(&p->lock);
  for (;;) {
    tide__pin_queue* const queue = queue_enter(p, number, &last);
    if (queue == NULL) break;
    pin_queue_pass(pass, queue, last);
    queue_leave(p, queue);
  }
}

static tide_status pending_run(tide_pinned* pinned, bool waits) {
  pending_pass pass = { .pinned = pinned, .waits = waits };
  uint32_t count = 0;
  if (!tide__pin_is_waiting(pinned)) return TIDE_OK;
  tide__list_init(&pass.going);
  const tide_error before = *tide_last_error();
  const tide__pin_mode mode = tide__pin_relax(pinned);
  pass_run(&pass);
  tide__pin_unrelax(pinned, mode);
  pass_note(&pass, tide__pin_segments_give(pinned, &pass.going, &count));
  tide__pin_keep_cap(pinned);
  if (pass.first == TIDE_OK || pass.first == TIDE_ERR_CAPTURE) {
    tide__error_restore(&before);
    return TIDE_OK;
  }
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

tide__pin_use* tide__pin_pending_clear(tide_pinned* pinned) {
  tide__pin_pending* const p = &pinned->pending;
  tide__pin_use* list = NULL;
  for (tide__pin_queue* queue = p->queues; queue != NULL; queue = queue->next) uses_join(&list, queue->first);
  for (int i = 0; i < TIDE_DEVICE_MAX; i++) uses_join(&list, p->idle_uses[i]);
  tide__front* front = tide__fronts_first(&pinned->fronts);
  for (; front != NULL; front = front->next) uses_join(&list, ((tide__pin_front*)(void*)front)->uses);
  return list;
}
