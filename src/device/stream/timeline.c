// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks that were released while other streams use them. For each such stream an event is recorded when the
// block is released, and the block is free when all its events have passed. The events of a stream pass in
// the order they were recorded, so only the first of each queue is asked about.
//
// A block that is released inside a scope, or whose event could not be recorded, is deferred: it gets its
// events later. Its count of events holds one more for as long as that takes, so that nobody frees it before.
//
// Other code may capture a stream at any moment. An event that was recorded while it does belongs to the
// capture and can never be asked: it waits until that is over and is recorded again, behind what is queued by
// then. So neither does a block wait for ever, nor do we break a capture that is not ours.
//
// One thread at a time looks at the queues (is_polling); others add to their ends. The machine is called
// without the lock.
#include "device/stream/stream.h"

void tide__timeline_init(tide_device* device) {
  tide__mutex_init(&device->timeline.lock, TIDE__RANK_TIMELINE);
  tide__signal_init(&device->timeline.changed);
}

static void waits_free(tide_device* device, tide__wait* wait) {
  while (wait != NULL) {
    tide__wait* const next = wait->next;
    if (wait->event != NULL) tide__ignore(tide_machine_event_free(device->machine, wait->event));
    tide__heap_release(device->heap, wait, 1, sizeof *wait);
    wait = next;
  }
}

void tide__timeline_fini(tide_device* device) {
  tide__timeline* const t = &device->timeline;
  while (t->queues != NULL) {
    tide__queue* const queue = t->queues;
    t->queues = queue->next;
    waits_free(device, queue->first);
    tide__heap_release(device->heap, queue, 1, sizeof *queue);
  }
  waits_free(device, t->idle_waits);
  tide__signal_fini(&t->changed);
  tide__mutex_fini(&t->lock);
}

// ---------------------------------------------------------------------------------------------------
// Waits: a record with an event. Idle ones are kept together with their event.

static tide_status wait_make(tide_device* device, int index, tide__wait** out) {
  *out = NULL;
  tide__wait* const wait = tide__heap_alloc(device->heap, 1, sizeof *wait);
  TIDE_REQUIRE(wait != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of an event");
  wait->device = index;
  const tide_status status = tide_machine_event_new(device->machine, index, &wait->event);
  if (status != TIDE_OK) {
    tide__heap_release(device->heap, wait, 1, sizeof *wait);
    return status;
  }
  *out = wait;
  return TIDE_OK;
}

static tide_status wait_take(tide_device* device, int index, tide__wait** out) {
  tide__timeline* const t = &device->timeline;
  tide__mutex_lock(&t->lock);
  tide__wait** place = &t->idle_waits;
  while (*place != NULL && (*place)->device != index) place = &(*place)->next;
  *out = *place;
  if (*out != NULL) *place = (*out)->next;
  tide__mutex_unlock(&t->lock);
  return *out != NULL ? TIDE_OK : wait_make(device, index, out);
}

static void wait_give_locked(tide__timeline* t, tide__wait* wait) {
  wait->block = NULL;
  wait->next = t->idle_waits;
  t->idle_waits = wait;
}

// The queue of a stream, or one that is empty; NULL if there is none.
static tide__queue* queue_find_locked(tide__timeline* t, const tide__use* use) {
  tide__queue* empty = NULL;
  for (tide__queue* queue = t->queues; queue != NULL; queue = queue->next) {
    if (queue->first == NULL && empty == NULL) empty = queue;
    if (queue->first != NULL && queue->stream == use->stream && queue->device == use->device) return queue;
  }
  if (empty != NULL) empty->stream = use->stream;
  if (empty != NULL) empty->device = use->device;
  return empty;
}

static void queue_append_locked(tide__queue* queue, tide__wait* wait) {
  wait->next = NULL;
  if (queue->first == NULL) queue->first = wait;
  if (queue->last != NULL) queue->last->next = wait;
  queue->last = wait;
}

static void queue_add_last_locked(tide__timeline* t, tide__queue* made) {
  tide__queue** place = &t->queues;
  while (*place != NULL) place = &(*place)->next;
  *place = made;
}

// Puts a wait behind the others of its stream.
static tide_status queue_add(tide_device* device, const tide__use* use, tide__wait* wait) {
  tide__timeline* const t = &device->timeline;
  tide__queue* made = NULL;
  for (;;) {
    tide__mutex_lock(&t->lock);
    if (made != NULL) queue_add_last_locked(t, made);
    tide__queue* const queue = queue_find_locked(t, use);
    if (queue != NULL) {
      wait->block->event_count++;
      wait->number = t->next_number++;
      queue_append_locked(queue, wait);
    }
    tide__mutex_unlock(&t->lock);
    if (queue != NULL) return TIDE_OK;
    made = tide__heap_alloc(device->heap, 1, sizeof *made);
    TIDE_REQUIRE(made != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a stream");
  }
}

// Records the event of a wait behind the work of a stream. If that is captured just now, so may the event be.
static tide_status wait_record(tide_device* device, tide__wait* wait, tide_stream stream) {
  TIDE_TRY(tide_machine_event_record(device->machine, wait->device, wait->event, stream));
  wait->is_captured = tide__capture_has(device->machine, wait->device, stream);
  return TIDE_OK;
}

// Records an event behind the work of a stream and lets the block wait for it.
static tide_status wait_begin(tide_device* device, tide__block* block, const tide__use* use) {
  tide__wait* wait = NULL;
  TIDE_TRY(wait_take(device, use->device, &wait));
  wait->block = block;
  tide_status status = wait_record(device, wait, use->stream);
  if (status == TIDE_OK) status = queue_add(device, use, wait);
  if (status == TIDE_OK) return TIDE_OK;
  tide__mutex_lock(&device->timeline.lock);
  wait_give_locked(&device->timeline, wait);
  tide__mutex_unlock(&device->timeline.lock);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Adding blocks

static void use_give(tide__block* block, tide__use* use) {
  tide__lane* const lane = block->segment->lane;
  tide__mutex_lock(&lane->lock);
  use->next = lane->spare_uses;
  lane->spare_uses = use;
  tide__mutex_unlock(&lane->lock);
}

// One event less, or the hold on a block that is being added; frees the block when it was the last.
static void block_passed(tide_device* device, tide__block* block, const tide__moment* moment) {
  tide__timeline* const t = &device->timeline;
  tide__mutex_lock(&t->lock);
  const bool is_last = --block->event_count == 0;
  tide__mutex_unlock(&t->lock);
  if (!is_last) return;
  tide__lane* const lane = block->segment->lane;
  tide__lane_turn(device, lane);
  tide__tally* const tally = tide__tally_enter(device, lane);
  tide__mutex_lock(&lane->lock);
  tide__block_wait_end_locked(device, block, moment, tally);
  tide__lane_unlock_ended(device, lane);
  tide__tally_leave(device, tally);
  (void)tide__sub_seq(&t->waiting, 1);
  if (tide__is_recording(device)) {
    tide__history_make_room(&device->history, TIDE__STEP_ENTRIES + tide__load_relaxed(&device->most_pieces));
  }
}

void tide__timeline_defer(tide_device* device, tide__block* block) {
  tide__timeline* const t = &device->timeline;
  block->list_next = NULL;
  tide__mutex_lock(&t->lock);
  if (t->deferred == NULL) t->deferred = block;
  if (t->deferred_last != NULL) t->deferred_last->list_next = block;
  t->deferred_last = block;
  tide__mutex_unlock(&t->lock);
}

// Drops the uses of a block: all, or those announced while a scope was open. These are over when the capture
// is, because it ends with all its streams joined.
static void uses_drop(tide__block* block, bool drops_all) {
  tide__use** place = &block->uses;
  while (*place != NULL) {
    tide__use* const use = *place;
    if (!drops_all && !use->is_captured) {
      place = &use->next;
      continue;
    }
    *place = use->next;
    use_give(block, use);
  }
}

// For a block whose stream is gone, so that no event can be recorded there: waits for all streams.
static tide_status block_wait_for_all(tide_device* device, tide__block* block, int index) {
  TIDE_TRY(tide_machine_device_synchronize(device->machine, index));
  tide__use* const use = block->uses;
  block->uses = use->next;
  use_give(block, use);
  return TIDE_OK;
}

// Gives a block the events of its uses and then lets it go. Uses that get no event stay, and defer the block.
static tide_status block_begin_waits(tide_device* device, tide__block* block, bool waits,
                                     const tide__moment* moment) {
  tide_status status = TIDE_OK;
  while (block->uses != NULL && status == TIDE_OK) {
    tide__use* const use = block->uses;
    status = wait_begin(device, block, use);
    if (status == TIDE_ERR_HANDLE && waits) {
      status = block_wait_for_all(device, block, use->device);
      continue;
    }
    if (status != TIDE_OK) break;
    block->uses = use->next;
    use_give(block, use);
  }
  if (status == TIDE_OK) {
    block_passed(device, block, moment);
  } else {
    tide__timeline_defer(device, block);
  }
  return status;
}

void tide__timeline_add(tide_device* device, tide__block* block, const tide__moment* moment) {
  block->event_count = 1;  // the hold
  (void)tide__add_seq(&device->timeline.waiting, 1);
  block->is_scoped = tide__is_capturing(device, tide__block_lane(block)->stream);
  if (block->is_scoped) {
    if (tide__device_options(device)->is_capture_reuse) tide__markers_make(device, block);
    tide__timeline_defer(device, block);
    return;
  }
  const tide_error before = *tide_last_error();
  if (block_begin_waits(device, block, false, moment) != TIDE_OK) tide__error_restore(&before);
}

tide__block* tide__timeline_take_deferred(tide_device* device) {
  tide__timeline* const t = &device->timeline;
  tide__mutex_lock(&t->lock);
  tide__block* const list = t->deferred;
  t->deferred = t->deferred_last = NULL;
  tide__mutex_unlock(&t->lock);
  return list;
}

void tide__timeline_end_deferred(tide_device* device, tide__block* block, const tide__moment* moment) {
  tide__markers_free(device, block);
  uses_drop(block, true);
  block_passed(device, block, moment);
}

// Gives events to the blocks that were deferred. What fails is deferred again; the first failure is returned,
// but not that of a capture, whose end is waited for.
static tide_status deferred_begin_waits(tide_device* device, bool waits, const tide__moment* moment) {
  tide__block* list = tide__timeline_take_deferred(device);
  tide_status first = TIDE_OK;
  while (list != NULL) {
    tide__block* const block = list;
    list = block->list_next;
    tide__markers_free(device, block);
    if (block->is_scoped) uses_drop(block, false);
    const tide_status status = block_begin_waits(device, block, waits, moment);
    if (first == TIDE_OK && status != TIDE_ERR_CAPTURE) first = status;
  }
  return first;
}

// ---------------------------------------------------------------------------------------------------
// Polling and waiting

// A turn to look at the queues. Meanwhile the thread meets captures in the mode RELAXED: events that are in
// none may be asked while other streams are captured.
typedef struct poll_turn {
  tide__relaxed relaxed;
  tide_error error;  // before
} poll_turn;

// Takes the turn; without `waits` only if nobody has it.
static bool poll_enter(tide_device* device, bool waits, poll_turn* out) {
  tide__timeline* const t = &device->timeline;
  tide__mutex_lock(&t->lock);
  while (waits && t->is_polling) tide__signal_wait(&t->changed, &t->lock);
  const bool is_mine = !t->is_polling;
  t->is_polling = true;
  tide__mutex_unlock(&t->lock);
  if (!is_mine) return false;
  out->error = *tide_last_error();
  out->relaxed = tide__relax_or_not(device->machine);
  return true;
}

// Ends the turn. If it succeeded, the thread's record of errors is as before.
static tide_status poll_leave(tide_device* device, poll_turn* turn, tide_status status) {
  tide__timeline* const t = &device->timeline;
  tide__relax_end(&turn->relaxed);
  tide__mutex_lock(&t->lock);
  t->is_polling = false;
  tide__signal_all(&t->changed);
  tide__mutex_unlock(&t->lock);
  if (status == TIDE_OK) tide__error_restore(&turn->error);
  return status;
}

static tide__queue* queue_next(tide__timeline* t, const tide__queue* queue) {
  tide__mutex_lock(&t->lock);
  tide__queue* const next = queue != NULL ? queue->next : t->queues;
  tide__mutex_unlock(&t->lock);
  return next;
}

// Which waits: of one pool, of one lane, before a number. NULL: any.
typedef struct wait_filter {
  const tide__pool* pool;
  const tide__lane* lane;
  uint64_t end;
} wait_filter;

static bool wait_passes(const tide__wait* wait, const wait_filter* filter) {
  const tide__lane* const own = tide__block_lane(wait->block);
  return (filter->pool == NULL || own->pool == filter->pool) &&
         (filter->lane == NULL || own == filter->lane) && wait->number < filter->end;
}

// What is added while somebody waits is not waited for: the end comes.
static uint64_t timeline_end(tide__timeline* t) {
  tide__mutex_lock(&t->lock);
  const uint64_t end = t->next_number;
  tide__mutex_unlock(&t->lock);
  return end;
}

static tide__wait* queue_first(tide__timeline* t, const tide__queue* queue, const wait_filter* filter) {
  tide__mutex_lock(&t->lock);
  tide__wait* wait = queue->first;
  while (wait != NULL && !wait_passes(wait, filter)) wait = wait->next;
  tide__mutex_unlock(&t->lock);
  return wait;
}

// Takes a wait out of its queue, because its event has passed.
static void queue_pass(tide_device* device, tide__queue* queue, tide__wait* wait,
                       const tide__moment* moment) {
  tide__timeline* const t = &device->timeline;
  tide__block* const block = wait->block;
  tide__mutex_lock(&t->lock);
  tide__wait* before = NULL;
  tide__wait** place = &queue->first;
  while (*place != wait) {
    before = *place;
    place = &before->next;
  }
  *place = wait->next;
  if (queue->last == wait) queue->last = before;
  wait_give_locked(t, wait);
  tide__mutex_unlock(&t->lock);
  block_passed(device, block, moment);
}

// Has the work before a wait ended? With `waits` it is waited for. Not while its stream is captured, if the
// event is, too.
static tide_status wait_ask(tide_device* device, const tide__queue* queue, tide__wait* wait, bool waits,
                            bool* out_done) {
  *out_done = false;
  for (int i = 0; i < 2; i++) {
    if (wait->is_captured) {
      bool is_under_way = false;
      TIDE_TRY(tide__capture_ask(device->machine, wait->device, queue->stream, &is_under_way));
      if (is_under_way) return TIDE_OK;
      TIDE_TRY(wait_record(device, wait, queue->stream));
      if (wait->is_captured) return TIDE_OK;
    }
    const tide_status status = waits ? tide_machine_event_synchronize(device->machine, wait->event)
                                     : tide_machine_event_query(device->machine, wait->event, out_done);
    *out_done = *out_done || (waits && status == TIDE_OK);
    if (status != TIDE_ERR_ARGUMENT) return status;
    wait->is_captured = true;  // the capture had ended before we looked for it
  }
  return TIDE_OK;
}

// The same, for a stream that may be gone: then all streams are waited for.
static tide_status wait_await(tide_device* device, const tide__queue* queue, tide__wait* wait,
                              bool* out_done) {
  const tide_status status = wait_ask(device, queue, wait, true, out_done);
  if (status != TIDE_ERR_HANDLE) return status;
  TIDE_TRY(tide_machine_device_synchronize(device->machine, wait->device));
  *out_done = true;
  return TIDE_OK;
}

// Passes the events at the front of a queue that are done.
static tide_status queue_poll(tide_device* device, tide__queue* queue, const tide__moment* moment) {
  const wait_filter all = { NULL, NULL, UINT64_MAX };
  for (;;) {
    tide__wait* const wait = queue_first(&device->timeline, queue, &all);
    bool is_done = false;
    if (wait == NULL) return TIDE_OK;
    TIDE_TRY(wait_ask(device, queue, wait, false, &is_done));
    if (!is_done) return TIDE_OK;
    queue_pass(device, queue, wait, moment);
  }
}

tide_status tide__timeline_poll(tide_device* device, const tide__moment* moment) {
  tide__timeline* const t = &device->timeline;
  poll_turn turn;
  if (!poll_enter(device, false, &turn)) return TIDE_OK;
  tide_status first = deferred_begin_waits(device, false, moment);
  for (tide__queue* queue = queue_next(t, NULL); queue != NULL; queue = queue_next(t, queue)) {
    const tide_status status = queue_poll(device, queue, moment);
    if (first == TIDE_OK) first = status;
  }
  return poll_leave(device, &turn, first);
}

// Waits for the events of a queue; if its stream is captured, only for those before the capture.
static tide_status queue_wait(tide_device* device, tide__queue* queue, const wait_filter* filter,
                              const tide__moment* moment) {
  for (;;) {
    bool is_done = false;
    tide__wait* const wait = queue_first(&device->timeline, queue, filter);
    if (wait == NULL) return TIDE_OK;
    TIDE_TRY(wait_await(device, queue, wait, &is_done));
    if (!is_done) return TIDE_OK;
    queue_pass(device, queue, wait, moment);
  }
}

tide_status tide__timeline_wait(tide_device* device, const tide__pool* pool, const tide__moment* moment) {
  tide__timeline* const t = &device->timeline;
  poll_turn turn;
  TIDE__COUNT(device, num_sync_all_streams);
  if (tide__timeline_is_empty(device)) return TIDE_OK;
  (void)poll_enter(device, true, &turn);
  tide_status status = deferred_begin_waits(device, true, moment);
  const wait_filter filter = { pool, NULL, timeline_end(t) };
  tide__queue* queue = queue_next(t, NULL);
  for (; queue != NULL && status == TIDE_OK; queue = queue_next(t, queue)) {
    status = queue_wait(device, queue, &filter, moment);
  }
  return poll_leave(device, &turn, status);
}

tide_status tide__timeline_wait_one(tide_device* device, const tide__lane* lane, const tide__moment* moment,
                                    bool* out_waited) {
  tide__timeline* const t = &device->timeline;
  poll_turn turn;
  *out_waited = false;
  if (tide__timeline_is_empty(device)) return TIDE_OK;
  (void)poll_enter(device, true, &turn);
  tide_status status = deferred_begin_waits(device, true, moment);
  const wait_filter filter = { NULL, lane, UINT64_MAX };
  tide__queue* queue = queue_next(t, NULL);
  for (; queue != NULL && status == TIDE_OK && !*out_waited; queue = queue_next(t, queue)) {
    tide__wait* const wait = queue_first(t, queue, &filter);
    if (wait == NULL) continue;
    status = wait_await(device, queue, wait, out_waited);
    if (*out_waited) queue_pass(device, queue, wait, moment);
  }
  return poll_leave(device, &turn, status);
}
