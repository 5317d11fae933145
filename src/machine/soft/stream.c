// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Streams of the host and dry machines. A stream counts the operations that were queued and those that are
// done. A point in a stream is such a count. So recording an event reads a number, querying it compares two,
// and waiting for it in another stream is one operation there.
//
// Points also order the default streams: work on the legacy stream first waits for the tail of each blocking
// stream of its device, and their work waits for the tail of the legacy stream. Each tail is waited for once.
// No cycle can arise, because a wait is for work that was queued before it.
#include "machine/soft/stream.h"

#include "base/arith.h"
#include "machine/soft/capture.h"
#include "machine/soft/thread.h"

// ---------------------------------------------------------------------------------------------------
// Creating and finding

void tide__stream_item_init(void* item) {
  tide__stream* stream = item;
  tide__mutex_init(&stream->lock, TIDE__RANK_STREAM);
  tide__signal_init(&stream->progress);
  tide__signal_init(&stream->work);
  tide__list_init(&stream->in_device);
  tide__list_init(&stream->in_ended);
  tide__list_init(&stream->in_capture);
}

void tide__stream_item_fini(void* item) {
  tide__stream* stream = item;
  const tide_heap* heap = stream->soft != NULL ? stream->soft->heap : NULL;
  if (heap != NULL) {
    tide__queue_reset(&stream->queue, heap);
    tide__heap_release(heap, stream->terminals.nodes, stream->terminals.capacity, sizeof(uint32_t));
  }
  tide__signal_fini(&stream->work);
  tide__signal_fini(&stream->progress);
  tide__mutex_fini(&stream->lock);
}

// Initialises a slot that may have served another stream; its counts continue.
static void stream_reset(tide__stream* stream, tide__soft* soft, int device, uint32_t flags, bool is_legacy) {
  // Under the lock, for threads that iterate over all streams or use a handle that has just become stale.
  tide__mutex_lock(&stream->lock);
  if (stream->soft == NULL) stream->soft = soft;
  tide__store_relaxed(&stream->number, tide__add_relaxed(&soft->last_stream, 1) + 1);
  tide__store_relaxed(&stream->device, device);
  tide__store_relaxed(&stream->flags, flags);
  tide__store_relaxed(&stream->is_legacy, is_legacy);
  stream->legacy_joined = 0;
  stream->joined_by_legacy = tide__load_relaxed(&stream->enqueued);
  stream->is_sleeping = stream->is_closing = stream->is_held = stream->is_open = false;
  tide__mutex_unlock(&stream->lock);
}

static tide_status stream_make(tide__soft* soft, const char* name, int device, uint32_t flags, bool is_legacy,
                               tide__stream** out) {
  tide__stream* stream = tide__slots_take(&soft->streams);
  TIDE_REQUIRE(stream != NULL, TIDE_ERR_NO_MEMORY, "%s: no memory for the records of a stream", name);
  stream_reset(stream, soft, device, flags, is_legacy);
  const tide_status status = soft->backend->stream_start(stream, name);
  if (status != TIDE_OK) {
    tide__slots_give(&soft->streams, stream);
    return status;
  }
  tide__mutex_lock(&stream->lock);
  stream->is_open = true;
  tide__mutex_unlock(&stream->lock);
  tide__soft_device* owner = &soft->devices[device];
  tide__mutex_lock(&owner->streams_lock);
  tide__list_append(&owner->streams, &stream->in_device);
  owner->stream_count++;
  tide__mutex_unlock(&owner->streams_lock);
  *out = stream;
  return TIDE_OK;
}

static void stream_end(tide__stream* stream) { stream->soft->backend->stream_stop(stream); }

// Until then the legacy stream waits for the remaining work.
void tide__stream_bury(tide__stream* stream) {
  tide__soft_device* owner = &stream->soft->devices[tide__load_relaxed(&stream->device)];
  tide__mutex_lock(&owner->streams_lock);
  tide__list_unlink(&stream->in_device);
  owner->stream_count--;
  tide__mutex_unlock(&owner->streams_lock);
  tide__mutex_lock(&stream->lock);
  stream->is_open = false;
  tide__mutex_unlock(&stream->lock);
  tide__queue_reset(&stream->queue, stream->soft->heap);
  tide__slots_give(&stream->soft->streams, stream);
}

// A stream of which a device has one, made at its first use.
static tide_status single_find(tide__soft* soft, const char* name, int device, uint32_t flags,
                               _Atomic(tide__stream*)* place, tide__stream** out) {
  *out = tide__load_acquire(place);  // pairs with the exchange below
  if (*out != NULL) return TIDE_OK;
  tide__stream* made = NULL;
  tide__stream* first = NULL;
  TIDE_TRY(stream_make(soft, name, device, flags, true, &made));
  if (!atomic_compare_exchange_strong(place, &first, made)) stream_end(made);
  *out = first != NULL ? first : made;
  return TIDE_OK;
}

static tide_status legacy_find(tide__soft* soft, const char* name, int device, tide__stream** out) {
  return single_find(soft, name, device, 0, &soft->devices[device].legacy, out);
}

// Ends the default stream of a thread that ends.
static void thread_stream_end(tide__stream* stream) {
  tide__capture_abandon(stream);
  stream_end(stream);
}

static tide_status per_thread_find(tide__soft* soft, const char* name, int device, tide__stream** out) {
  *out = tide__thread_stream(soft, device);
  if (*out != NULL) return TIDE_OK;
  TIDE_TRY(stream_make(soft, name, device, 0, false, out));
  if (tide__thread_stream_note(soft, device, *out, thread_stream_end)) return TIDE_OK;
  stream_end(*out);
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "%s: no memory for the records of a stream", name);
}

tide_status tide__stream_find(tide__soft* soft, const char* name, int device, tide_stream handle,
                              tide__stream** out) {
  if (handle == NULL || handle == TIDE_STREAM_LEGACY) return legacy_find(soft, name, device, out);
  if (handle == TIDE_STREAM_PER_THREAD) return per_thread_find(soft, name, device, out);
  tide__stream* stream = tide__slots_find(&soft->streams, tide__address(handle));
  TIDE_REQUIRE(stream != NULL, TIDE_ERR_HANDLE, "%s: %p is not a stream of this machine", name,
               (void*)handle);
  const int owner = tide__load_relaxed(&stream->device);
  TIDE_REQUIRE(owner == device, TIDE_ERR_DEVICE, "%s: the stream %p belongs to device %d, not %d", name,
               (void*)handle, owner, device);
  *out = stream;
  return TIDE_OK;
}

tide_status tide__soft_stream_new(void* self, int device, uint32_t flags, int priority, tide_stream* out) {
  (void)priority;  // all streams run concurrently
  tide__stream* stream = NULL;
  TIDE_TRY(stream_make(self, "stream_new", device, flags, false, &stream));
  *out = (tide_stream)tide__pointer(tide__slots_publish(&stream->soft->streams, stream));
  return TIDE_OK;
}

static tide_status stream_refuse_if_capturing(tide__stream* stream, const char* name) {
  tide__soft* soft = stream->soft;
  if (!tide__capture_is_possible(soft)) return TIDE_OK;
  tide__mutex_lock(&soft->capture_lock);
  const tide_status status = tide__capture_refuse_stream_locked(stream, name);
  tide__mutex_unlock(&soft->capture_lock);
  return status;
}

tide_status tide__soft_stream_free(void* self, int device, tide_stream handle) {
  tide__soft* soft = self;
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(soft, "stream_free", device, handle, &stream));
  TIDE_REQUIRE(tide__slots_claim(&soft->streams, tide__address(handle)) != NULL, TIDE_ERR_HANDLE,
               "stream_free: the stream %p is already freed", (void*)handle);
  tide__capture_abandon(stream);
  stream_end(stream);
  tide__soft_settle(soft);  // so that its slot can be used again
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Queueing

// The locks for queueing: a stream and, for the legacy stream, the list of its device's streams.
typedef struct queue_hold {
  tide__stream* stream;
  tide__soft_device* owner;
  bool is_legacy;
} queue_hold;

TIDE_UNCHECKED_LOCKING static void queue_unlock(const queue_hold* hold) {
  tide__mutex_unlock(&hold->stream->lock);
  if (hold->is_legacy) tide__mutex_unlock(&hold->owner->streams_lock);
}

// Does the stream still need the locks that were chosen for it?
static bool queue_is_same(const queue_hold* hold) {
  const tide__stream* stream = hold->stream;
  return !stream->is_closing && tide__load_relaxed(&stream->is_legacy) == hold->is_legacy &&
         &stream->soft->devices[tide__load_relaxed(&stream->device)] == hold->owner;
}

TIDE_UNCHECKED_LOCKING static void queue_lock_once(const queue_hold* hold) {
  if (hold->is_legacy) tide__mutex_lock(&hold->owner->streams_lock);
  tide__mutex_lock(&hold->stream->lock);
}

// Is there room for an operation, a wait before it, and all waits that the default streams may require?
static bool queue_has_room(const queue_hold* hold) {
  return hold->stream->queue.room >= 2 + (hold->is_legacy ? hold->owner->stream_count : 1);
}

// Locks a stream that has room to queue an operation. The heap is called without the lock.
TIDE_UNCHECKED_LOCKING static tide_status queue_lock(tide__stream* stream, const char* name,
                                                     queue_hold* out) {
  *out = (queue_hold){ stream, &stream->soft->devices[tide__load_relaxed(&stream->device)],
                       tide__load_relaxed(&stream->is_legacy) };
  const tide_heap* heap = stream->soft->heap;
  queue_lock_once(out);
  while (queue_is_same(out)) {
    if (queue_has_room(out)) return TIDE_OK;
    queue_unlock(out);
    tide__chunk* chunk = tide__queue_chunk_new(&stream->queue, heap);
    TIDE_REQUIRE(chunk != NULL, TIDE_ERR_NO_MEMORY, "%s: no memory to queue more work", name);
    queue_lock_once(out);
    if (!queue_is_same(out)) {
      tide__queue_chunk_free(chunk, heap);
      break;
    }
    tide__queue_add(&stream->queue, chunk);
  }
  queue_unlock(out);
  return TIDE_FAIL(TIDE_ERR_HANDLE, "%s: the stream was freed meanwhile", name);
}

static void queue_append_locked(tide__stream* stream, tide__op op) {
  if (stream->soft->backend->now != NULL) op.queued_at = stream->soft->backend->now(stream->soft);
  tide__queue_append(&stream->queue, &op);
  const uint64_t enqueued = tide__load_relaxed(&stream->enqueued) + 1;
  tide__store_release(&stream->enqueued, enqueued);  // pairs with tide__stream_point and the executors
}

static void queue_append_wait_locked(tide__stream* stream, tide__point point) {
  if (tide__point_is_reached(point)) return;
  const tide__op op = { .kind = TIDE__OP_WAIT, .u.wait = point };
  queue_append_locked(stream, op);
}

// The joiner waits for all streams, the legacy stream for those that are blocking.
static void joiner_join_locked(const queue_hold* hold) {
  TIDE_LIST_EACH(it, &hold->owner->streams) {
    tide__stream* other = TIDE_OWNER(it, tide__stream, in_device);
    if (other != hold->stream) queue_append_wait_locked(hold->stream, tide__stream_point(other));
  }
}

static void legacy_join_locked(const queue_hold* hold) {
  TIDE_LIST_EACH(it, &hold->owner->streams) {
    tide__stream* other = TIDE_OWNER(it, tide__stream, in_device);
    if (other == hold->stream || !tide__stream_is_blocking(other)) continue;
    const tide__point tail = tide__stream_point(other);
    if (tail.ticket == other->joined_by_legacy) continue;
    other->joined_by_legacy = tail.ticket;
    queue_append_wait_locked(hold->stream, tail);
  }
}

// Queues the waits that the default streams require before the next operation.
static void queue_join_locked(const queue_hold* hold) {
  if (hold->is_legacy) {
    if (tide__stream_is_blocking(hold->stream)) legacy_join_locked(hold);
    else joiner_join_locked(hold);
    return;
  }
  tide__stream* stream = hold->stream;
  tide__stream* legacy = tide__load_acquire(&hold->owner->legacy);
  if (legacy == NULL || !tide__stream_is_blocking(stream)) return;
  const tide__point tail = tide__stream_point(legacy);
  if (tail.ticket == stream->legacy_joined) return;
  stream->legacy_joined = tail.ticket;
  queue_append_wait_locked(stream, tail);
}

tide_status tide__stream_push(tide__stream* stream, const char* name, const tide__point* behind,
                              const tide__op* op, tide__point* out) {
  queue_hold hold;
  TIDE_TRY(queue_lock(stream, name, &hold));
  queue_join_locked(&hold);
  if (behind != NULL) queue_append_wait_locked(stream, *behind);
  queue_append_locked(stream, *op);
  if (out != NULL) *out = tide__stream_point(stream);
  stream->soft->backend->stream_kick(stream);
  queue_unlock(&hold);
  return TIDE_OK;
}

tide_status tide__stream_tail(tide__stream* stream, const char* name, tide__point* out) {
  queue_hold hold;
  TIDE_TRY(queue_lock(stream, name, &hold));
  const uint64_t before = tide__load_relaxed(&stream->enqueued);
  queue_join_locked(&hold);
  *out = tide__stream_point(stream);
  if (out->ticket != before) stream->soft->backend->stream_kick(stream);
  queue_unlock(&hold);
  return TIDE_OK;
}

tide_status tide__stream_tail_of_all(tide__soft* soft, const char* name, int device, tide__point* out) {
  tide__stream* joiner = NULL;
  TIDE_TRY(single_find(soft, name, device, TIDE_STREAM_NON_BLOCKING, &soft->devices[device].joiner, &joiner));
  return tide__stream_tail(joiner, name, out);
}

// ---------------------------------------------------------------------------------------------------
// Queries and waiting

void tide__stream_complete(tide__stream* stream, uint64_t count) {
  // pairs with tide__point_is_reached, and with the count of waiters in tide__stream_await
  tide__store_seq(&stream->completed, tide__load_relaxed(&stream->completed) + count);
  if (tide__load_seq(&stream->waiters) == 0) return;
  tide__mutex_lock(&stream->lock);
  tide__signal_all(&stream->progress);
  tide__mutex_unlock(&stream->lock);
}

void tide__stream_await(tide__point point) {
  if (tide__point_is_reached(point)) return;
  tide__stream* stream = point.stream;
  tide__mutex_lock(&stream->lock);
  tide__add_seq(&stream->waiters, 1);  // before the count is read again: see tide__stream_complete
  while (tide__load_seq(&stream->completed) < point.ticket)
    tide__signal_wait(&stream->progress, &stream->lock);
  tide__sub_seq(&stream->waiters, 1);
  tide__mutex_unlock(&stream->lock);
}

tide_status tide__soft_stream_info(void* self, int device, tide_stream handle, bool* out_captured,
                                   uint64_t* out_number) {
  tide__soft* soft = self;
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(soft, "stream_info", device, handle, &stream));
  *out_number = tide__load_relaxed(&stream->number);
  if (!tide__capture_is_possible(soft)) return TIDE_OK;
  tide__mutex_lock(&soft->capture_lock);
  *out_captured = stream->capture != NULL;
  tide__mutex_unlock(&soft->capture_lock);
  return TIDE_OK;
}

tide_status tide__soft_stream_query(void* self, int device, tide_stream handle, bool* out_idle) {
  tide__soft* soft = self;
  tide__stream* stream = NULL;
  tide__point tail;
  TIDE_TRY(tide__stream_find(soft, "stream_query", device, handle, &stream));
  TIDE_TRY(stream_refuse_if_capturing(stream, "stream_query"));
  TIDE_TRY(tide__capture_guard(soft, "stream_query"));
  TIDE_TRY(tide__stream_tail(stream, "stream_query", &tail));
  tide__soft_settle(soft);
  *out_idle = tide__point_is_reached(tail);
  return TIDE_OK;
}

tide_status tide__soft_stream_synchronize(void* self, int device, tide_stream handle) {
  tide__soft* soft = self;
  tide__stream* stream = NULL;
  tide__point tail;
  TIDE_TRY(tide__stream_find(soft, "stream_synchronize", device, handle, &stream));
  TIDE_TRY(stream_refuse_if_capturing(stream, "stream_synchronize"));
  TIDE_TRY(tide__capture_guard(soft, "stream_synchronize"));
  TIDE_TRY(tide__stream_tail(stream, "stream_synchronize", &tail));
  TIDE_TRY(soft->backend->await(soft, "stream_synchronize", tail));
  return tide__soft_report_error(soft, device);
}

static tide_status device_refuse_if_capturing(tide__soft* soft, int device) {
  if (!tide__capture_is_possible(soft)) return TIDE_OK;
  tide__mutex_lock(&soft->capture_lock);
  const tide_status status = tide__capture_refuse_device_locked(soft, "device_synchronize", device);
  tide__mutex_unlock(&soft->capture_lock);
  return status;
}

tide_status tide__soft_device_synchronize(void* self, int device) {
  tide__soft* soft = self;
  TIDE_TRY(device_refuse_if_capturing(soft, device));
  TIDE_TRY(tide__capture_guard(soft, "device_synchronize"));
  const uint32_t count = tide__slots_count(&soft->streams);
  for (uint32_t i = 0; i < count; i++) {  // also freed streams with work left
    tide__stream* stream = tide__slots_at(&soft->streams, i);
    if (tide__load_relaxed(&stream->device) == device) {
      TIDE_TRY(soft->backend->await(soft, "device_synchronize", tide__stream_point(stream)));
    }
  }
  return tide__soft_report_error(soft, device);
}

void tide__soft_streams_fini(tide__soft* soft) {
  const uint32_t count = tide__slots_count(&soft->streams);
  for (uint32_t i = 0; i < count; i++) {
    tide__stream* stream = tide__slots_at(&soft->streams, i);
    tide__mutex_lock(&stream->lock);
    const bool is_in_use = stream->is_open && !stream->is_closing;
    tide__mutex_unlock(&stream->lock);
    (void)tide__slots_retire(stream);
    if (is_in_use) stream_end(stream);
  }
}
