// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Stream waits: records with events, the queues of streams, how a waiter begins to wait, and the end. Passes
// over the queues are in stream_passes.c.
//
// A queue that becomes empty stays in its place in the list, and the next stream without a queue gets it. So
// passes visit streams in a fixed order, and a pass can leave the lock and go on from where it was.
#include "core/stream_waits.h"

#include "base/error.h"
#include "core/capture.h"

void tide__waits_init(tide__stream_waits* w, tide_machine* machine, const tide_heap* heap,
                      const tide__waits_callbacks* callbacks, void* owner, tide__waits_options options) {
  w->machine = machine;
  w->heap = heap;
  w->callbacks = callbacks;
  w->owner = owner;
  w->options = options;
  w->idle_queues = &w->extra;
  tide__mutex_init(&w->lock, TIDE__RANK_WAITS);
  tide__signal_init(&w->changed);
}

void tide__waits_fini(tide__stream_waits* w) {
  tide__waits_clear(w);
  tide__signal_fini(&w->changed);
  tide__mutex_fini(&w->lock);
}

// ---------------------------------------------------------------------------------------------------
// Records

tide__wait* tide__waits_take_idle(tide__stream_waits* w, int device, uint32_t count, uint32_t* out_count) {
  tide__wait* list = NULL;
  *out_count = 0;
  tide__mutex_lock(&w->lock);
  while (*out_count < count && w->idle[device] != NULL) {
    tide__wait_push(&list, tide__wait_pop(&w->idle[device]));
    ++*out_count;
  }
  tide__mutex_unlock(&w->lock);
  return list;
}

tide_status tide__wait_make(tide__stream_waits* w, int device, tide__wait** out) {
  tide__wait* const wait = tide__heap_alloc(w->heap, 1, sizeof *wait);
  TIDE_REQUIRE(wait != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of an event");
  const tide_status status = tide_machine_event_new(w->machine, device, &wait->event);
  if (status != TIDE_OK) {
    tide__heap_release(w->heap, wait, 1, sizeof *wait);
    return status;
  }
  wait->device = device;
  tide__mutex_lock(&w->lock);
  wait->queue.next = w->idle_queues;
  w->idle_queues = &wait->queue;
  tide__mutex_unlock(&w->lock);
  *out = wait;
  return TIDE_OK;
}

void tide__waits_give_locked(tide__stream_waits* w, tide__wait* list) {
  while (list != NULL) {
    tide__wait* const wait = tide__wait_pop(&list);
    tide__wait_push(&w->idle[wait->device], wait);
  }
}

void tide__waits_give(tide__stream_waits* w, tide__wait* list) {
  if (list == NULL) return;
  tide__mutex_lock(&w->lock);
  tide__waits_give_locked(w, list);
  tide__mutex_unlock(&w->lock);
}

void tide__waits_spend(tide__stream_waits* w, tide__wait* list) {
  if (list == NULL) return;
  if (w->callbacks->spent != NULL) w->callbacks->spent(w->owner, list);
  else tide__waits_give(w, list);
}

tide_status tide__waiter_add(tide__stream_waits* w, tide__waiter* waiter, int device, tide_stream stream) {
  tide__mutex_lock(&w->lock);
  tide__wait* wait = tide__wait_pop(&w->idle[device]);
  tide__mutex_unlock(&w->lock);
  if (wait == NULL) TIDE_TRY(tide__wait_make(w, device, &wait));
  tide__wait_reset(wait, stream);
  tide__wait** end = &waiter->waits;
  while (*end != NULL) end = &(*end)->next;
  *end = wait;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Recording events

// Asks for the number of the stream and whether it is captured. Later its handle may be that of another.
static void wait_identify(const tide__stream_waits* w, tide__wait* wait) {
  tide_error before;
  tide__error_keep(&before);
  const tide_status status =
      tide_machine_stream_info(w->machine, wait->device, wait->stream, &wait->is_captured, &wait->number);
  if (status == TIDE_OK) return;
  wait->number = 0;
  wait->is_captured = status != TIDE_ERR_HANDLE;
  tide__error_restore(&before);
}

tide_status tide__wait_record(tide__stream_waits* w, tide__wait* wait) {
  const tide__waits_identity identity = w->options.identity;
  const uint64_t begin =
      tide__load_acquire(&w->tickets);  // pairs with tide__waits_queue_locked, _record_early
  wait->is_captured = false;
  wait->number = identity == TIDE__STREAMS_ASKED_LATE;
  if (identity == TIDE__STREAMS_ASKED_BEFORE) wait_identify(w, wait);
  TIDE_TRY(tide_machine_event_record(w->machine, wait->device, wait->event, wait->stream));
  if (identity == TIDE__STREAMS_ASKED_AFTER)
    wait->is_captured = tide__capture_has(w->machine, wait->device, wait->stream);
  wait->begin = begin;
  wait->is_recorded = true;
  return TIDE_OK;
}

// The ticket lets later records begin later, although this wait may be queued behind them.
tide_status tide__wait_record_early(tide__stream_waits* w, tide__wait* wait) {
  TIDE_TRY(tide__wait_record(w, wait));
  tide__mutex_lock(&w->lock);
  tide__store_release(&w->tickets, tide__load_relaxed(&w->tickets) + 1);  // pairs with tide__wait_record
  tide__mutex_unlock(&w->lock);
  return TIDE_OK;
}

void tide__waits_failed(tide__stream_waits* w, tide__waiter* waiter, tide__waits_failure what) {
  if (w->callbacks->failed != NULL) w->callbacks->failed(w->owner, waiter, what);
}

// Records the events of waits that have none; *out_at is the first that fails.
static tide_status waiter_record(tide__stream_waits* w, tide__waiter* waiter, tide__wait** out_at) {
  for (tide__wait* wait = waiter->waits; wait != NULL; wait = wait->next) {
    if (wait->is_recorded) continue;
    const tide_status status = tide__wait_record(w, wait);
    if (status == TIDE_OK) continue;
    tide__waits_failed(w, waiter, TIDE__WAITS_RECORD_FAILED);
    *out_at = wait;
    return status;
  }
  return TIDE_OK;
}

bool tide__waits_record(tide__stream_waits* w, tide__waiter* waiter) {
  tide__wait* at = NULL;
  tide_error before;
  tide__error_keep(&before);
  if (waiter_record(w, waiter, &at) == TIDE_OK) return true;
  tide__error_restore(&before);
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Queues

// A queue that was never used, now the last of the list. There is one: every record has one, and each queue
// in use holds at least one record, which is not the caller's; or it has the extra queue in its place.
static tide__wait_queue* queue_take_locked(tide__stream_waits* w) TIDE_REQUIRES(&w->lock) {
  tide__wait_queue* const queue = w->idle_queues;
  TIDE_ASSERT(queue != NULL);
  w->idle_queues = queue->next;
  queue->next = NULL;
  if (w->queues == NULL) w->queues = queue;
  else w->queues_last->next = queue;
  w->queues_last = queue;
  return queue;
}

static inline bool queue_is_used(const tide__wait_queue* queue) {
  return queue->first != NULL || queue->is_asked;
}

// The queue of a stream; else the first that is not used, or a new one.
static tide__wait_queue* queue_find_locked(tide__stream_waits* w, const tide__wait* wait)
    TIDE_REQUIRES(&w->lock) {
  tide__wait_queue* empty = NULL;
  for (tide__wait_queue* queue = w->queues; queue != NULL; queue = queue->next) {
    const bool is_used = queue_is_used(queue);
    if (is_used && queue->stream == wait->stream && queue->device == wait->device) return queue;
    if (!is_used && empty == NULL) empty = queue;
  }
  if (empty == NULL) empty = queue_take_locked(w);
  empty->stream = wait->stream;
  empty->device = wait->device;
  empty->pass = 0;
  return empty;
}

// Puts a wait behind those that were recorded before it: usually at the end, but an event may have been
// recorded long before the waiter began to wait.
static void queue_insert_locked(tide__wait_queue* queue, tide__wait* wait) {
  const bool is_last = queue->first == NULL || queue->last->begin <= wait->begin;
  tide__wait** place = &queue->first;
  if (is_last && queue->first != NULL) place = &queue->last->next;
  while (!is_last && (*place)->begin <= wait->begin) place = &(*place)->next;
  wait->next = *place;
  *place = wait;
  if (is_last) queue->last = wait;
}

void tide__waits_queue_locked(tide__stream_waits* w, tide__waiter* waiter) {
  const uint64_t end = tide__load_relaxed(&w->tickets) + 1;
  tide__wait* waits = waiter->waits;
  const bool is_only = waits->next == NULL;
  tide__store_release(&w->tickets, end);  // pairs with tide__wait_record
  waiter->waits = NULL;
  while (waits != NULL) {
    tide__wait* const wait = tide__wait_pop(&waits);
    wait->waiter = waiter;
    wait->end = end;
    wait->is_only = is_only;
    waiter->event_count++;
    queue_insert_locked(queue_find_locked(w, wait), wait);
  }
}

void tide__waits_defer_locked(tide__stream_waits* w, tide__waiter* waiter) {
  waiter->next = NULL;
  if (w->deferred == NULL) w->deferred = waiter;
  else w->deferred_last->next = waiter;
  w->deferred_last = waiter;
}

static void waiting_rise_locked(tide__stream_waits* w) TIDE_REQUIRES(&w->lock) {
  tide__store_relaxed(&w->waiting, tide__load_relaxed(&w->waiting) + 1);
}

void tide__waits_enter_locked(tide__stream_waits* w, tide__waiter* waiter, bool is_recorded) {
  waiting_rise_locked(w);
  if (is_recorded) tide__waits_queue_locked(w, waiter);
  else tide__waits_defer_locked(w, waiter);
}

void tide__waits_defer(tide__stream_waits* w, tide__waiter* waiter) {
  tide__mutex_lock(&w->lock);
  tide__waits_enter_locked(w, waiter, false);
  tide__mutex_unlock(&w->lock);
}

void tide__waiters_end(tide__stream_waits* w, tide__waiter* list, uint64_t count, void* call) {
  if (list == NULL) return;
  w->callbacks->ready(w->owner, list, call);
  tide__mutex_lock(&w->lock);
  tide__store_relaxed(&w->waiting, tide__load_relaxed(&w->waiting) - count);
  tide__mutex_unlock(&w->lock);
}

tide_status tide__waiter_prepare(tide__stream_waits* w, tide__waiter* waiter, tide__wait** out_at) {
  *out_at = NULL;
  tide__first_failure failure;
  if (w->callbacks->prepare == NULL) return waiter_record(w, waiter, out_at);
  tide__first_failure_begin(&failure);
  tide__first_failure_note(&failure, w->callbacks->prepare(w->owner, waiter));
  tide__first_failure_note(&failure, waiter_record(w, waiter, out_at));
  return tide__first_failure_end(&failure);
}

void tide__waits_begin(tide__stream_waits* w, tide__waiter* waiter, void* call) {
  tide__wait* at = NULL;
  tide_error before;
  tide__error_keep(&before);
  const bool is_recorded = tide__waiter_prepare(w, waiter, &at) == TIDE_OK;
  if (!is_recorded) tide__error_restore(&before);
  const bool is_ready = is_recorded && waiter->waits == NULL;
  tide__mutex_lock(&w->lock);
  if (is_ready) waiting_rise_locked(w);
  else tide__waits_enter_locked(w, waiter, is_recorded);
  tide__mutex_unlock(&w->lock);
  if (!is_ready) return;
  waiter->next = NULL;
  tide__waiters_end(w, waiter, 1, call);
}

// ---------------------------------------------------------------------------------------------------
// The end

static uint64_t waits_devices(const tide__wait* list) {
  uint64_t devices = 0;
  for (; list != NULL; list = list->next) devices |= (uint64_t)1 << list->device;
  return devices;
}

uint64_t tide__waits_devices(const tide__stream_waits* w) {
  uint64_t devices = 0;
  for (const tide__wait_queue* queue = w->queues; queue != NULL; queue = queue->next) {
    devices |= waits_devices(queue->first);
  }
  for (const tide__waiter* waiter = w->deferred; waiter != NULL; waiter = waiter->next) {
    devices |= waits_devices(waiter->waits);
  }
  return devices;
}

static void waits_move(tide__wait** from, tide__wait** to) {
  while (*from != NULL) tide__wait_push(to, tide__wait_pop(from));
}

// All records are gathered before the first is freed, because the queues are inside them.
void tide__waits_clear(tide__stream_waits* w) {
  tide__wait* list = NULL;
  for (tide__wait_queue* queue = w->queues; queue != NULL; queue = queue->next)
    waits_move(&queue->first, &list);
  for (; w->deferred != NULL; w->deferred = w->deferred->next) waits_move(&w->deferred->waits, &list);
  for (int i = 0; i < TIDE_DEVICE_MAX; i++) waits_move(&w->idle[i], &list);
  w->queues = w->queues_last = NULL;
  w->extra = (tide__wait_queue){ .next = NULL };
  w->idle_queues = &w->extra;
  w->deferred_last = NULL;
  while (list != NULL) {
    tide__wait* const wait = tide__wait_pop(&list);
    tide__ignore(tide_machine_event_free(w->machine, wait->event));
    tide__heap_release(w->heap, wait, 1, sizeof *wait);
  }
}
