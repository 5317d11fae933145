// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Streams of the host and dry machines. A stream counts the pieces of work that were queued and
// that are done; a point in a stream is such a count. So recording an event is reading a number, querying
// it is comparing two, and waiting for it in another stream is one piece of work there.
//
// The default streams are ordered by points too: work on the legacy stream first waits for the tail of each
// blocking stream of its device, and work on these for the tail of the legacy stream. Each tail is waited
// for once. No cycle can arise: a wait is for work that was queued before it.
#include "base/arith.h"
#include "machine/soft/soft.h"

#define LONG_QUEUE 1024u  // a machine in virtual time plays what it can whenever this much was queued
// Up to this size a move is done while the memory lock is held, which is cheaper than marking a range busy.
#define SMALL_MOVE_BYTES 4096u

// ---------------------------------------------------------------------------------------------------
// Making and finding

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

void tide__soft_settle(tide__soft* soft) {
  if (soft->backend->settle != NULL) soft->backend->settle(soft);
}

// Sets up an object that may have served another stream before; its counts go on.
static void stream_reset(tide__stream* stream, tide__soft* soft, int device, uint32_t flags, bool is_legacy) {
  // Under the lock, for who walks over all streams or holds a handle that is just now stale.
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

void tide__stream_end(tide__stream* stream) { stream->soft->backend->stream_stop(stream); }

// Until here the legacy stream sees the work that is left.
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

static tide_status legacy_find(tide__soft* soft, const char* name, int device, tide__stream** out) {
  tide__soft_device* owner = &soft->devices[device];
  *out = tide__load_acquire(&owner->legacy);  // pairs with the exchange below
  if (*out != NULL) return TIDE_OK;
  tide__stream* made = NULL;
  tide__stream* first = NULL;
  TIDE_TRY(stream_make(soft, name, device, 0, true, &made));
  if (!atomic_compare_exchange_strong(&owner->legacy, &first, made)) tide__stream_end(made);
  *out = first != NULL ? first : made;
  return TIDE_OK;
}

static tide_status per_thread_find(tide__soft* soft, const char* name, int device, tide__stream** out) {
  *out = tide__thread_stream(soft, device);
  if (*out != NULL) return TIDE_OK;
  TIDE_TRY(stream_make(soft, name, device, 0, false, out));
  if (tide__thread_stream_note(soft, device, *out)) return TIDE_OK;
  tide__stream_end(*out);
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "%s: no memory for the records of a stream", name);
}

tide_status tide__stream_find(tide__soft* soft, const char* name, int device, tide_stream handle,
                              tide__stream** out) {
  if (handle == NULL || handle == TIDE_STREAM_LEGACY) return legacy_find(soft, name, device, out);
  if (handle == TIDE_STREAM_PER_THREAD) return per_thread_find(soft, name, device, out);
  tide__stream* stream = tide__slots_find(&soft->streams, tide__address(handle));
  TIDE_REQUIRE(stream != NULL, TIDE_ERR_HANDLE, "%s: %p is no stream of this machine", name, (void*)handle);
  const int owner = tide__load_relaxed(&stream->device);
  TIDE_REQUIRE(owner == device, TIDE_ERR_DEVICE, "%s: the stream %p is of device %d, not %d", name,
               (void*)handle, owner, device);
  *out = stream;
  return TIDE_OK;
}

tide_status tide__soft_stream_new(void* self, int device, uint32_t flags, int priority, tide_stream* out) {
  (void)priority;  // all streams run at once: none has to wait for another
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
               "stream_free: %p is given up already", (void*)handle);
  tide__capture_abandon(stream);
  tide__stream_end(stream);
  tide__soft_settle(soft);  // so that its slot can be used again
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Queueing

bool tide__point_is_reached(tide__point point) {
  // pairs with tide__stream_complete: who sees the count sees what the work wrote
  return point.stream == NULL || tide__load_acquire(&point.stream->completed) >= point.ticket;
}

tide__point tide__stream_point(tide__stream* stream) {
  return (tide__point){ stream, tide__load_acquire(&stream->enqueued) };  // pairs with queue_append_locked
}

// What is locked to queue work: a stream and, for the legacy one, the list of its device's streams.
typedef struct queue_hold {
  tide__stream* stream;
  tide__soft_device* owner;
  bool is_legacy;
} queue_hold;

TIDE_UNCHECKED_LOCKING static void queue_unlock(const queue_hold* hold) {
  tide__mutex_unlock(&hold->stream->lock);
  if (hold->is_legacy) tide__mutex_unlock(&hold->owner->streams_lock);
}

// Is the stream still what it was when we looked which locks it needs?
static bool queue_is_same(const queue_hold* hold) {
  const tide__stream* stream = hold->stream;
  return !stream->is_closing && tide__load_relaxed(&stream->is_legacy) == hold->is_legacy &&
         &stream->soft->devices[tide__load_relaxed(&stream->device)] == hold->owner;
}

TIDE_UNCHECKED_LOCKING static void queue_lock_once(const queue_hold* hold) {
  if (hold->is_legacy) tide__mutex_lock(&hold->owner->streams_lock);
  tide__mutex_lock(&hold->stream->lock);
}

// Is there room for a piece of work, a wait before it, and all waits that the rules of the default streams
// may put before both?
static bool queue_has_room(const queue_hold* hold) {
  return hold->stream->queue.room >= 2 + (hold->is_legacy ? hold->owner->stream_count : 1);
}

// Locks a stream with room to queue a piece of work. The heap is asked without the lock.
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
  return TIDE_FAIL(TIDE_ERR_HANDLE, "%s: the stream was given up meanwhile", name);
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

bool tide__stream_is_blocking(const tide__stream* stream) {
  return (tide__load_relaxed(&stream->flags) & TIDE_STREAM_NON_BLOCKING) == 0;
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

// Puts the waits that the rules of the default streams ask for before whatever comes next.
static void queue_join_locked(const queue_hold* hold) {
  if (hold->is_legacy) {
    legacy_join_locked(hold);
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

tide_status tide__stream_submit(tide__stream* stream, const char* name, const tide__op* op) {
  tide__soft* soft = stream->soft;
  if (tide__capture_is_possible(soft)) {
    tide__mutex_lock(&soft->capture_lock);
    const bool is_capturing = stream->capture != NULL;
    const tide_status status = is_capturing ? tide__capture_note_locked(stream, name, op)
                                            : tide__capture_check_use_locked(stream, name);
    tide__mutex_unlock(&soft->capture_lock);
    if (is_capturing || status != TIDE_OK) return status;
  }
  const uint64_t before = tide__load_relaxed(&stream->enqueued);
  TIDE_TRY(tide__stream_push(stream, name, NULL, op, NULL));
  if (tide__load_relaxed(&stream->enqueued) / LONG_QUEUE != before / LONG_QUEUE) tide__soft_settle(soft);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Work

// Checks both ends of a move and finds the ranges they lie in. Only a copy can be staged.
static tide_status move_check_locked(tide__soft* soft, const char* name, const tide__op* op, bool* out_staged,
                                     uint64_t* out_source, uint64_t* out_destination) {
  const uint64_t bytes = op->u.move.bytes;
  *out_source = 0;
  if (op->kind == TIDE__OP_COPY) {
    TIDE_TRY(tide__soft_check_locked(soft, name, op->device, op->u.move.source, bytes, false, out_staged,
                                     out_source));
  }
  TIDE_TRY(tide__soft_check_locked(soft, name, op->device, op->u.move.destination, bytes, true, out_staged,
                                   out_destination));
  TIDE_REQUIRE(!*out_staged || op->kind == TIDE__OP_COPY, TIDE_ERR_ACCESS,
               "%s: device %d has no access to %p", name, op->device, tide__pointer(op->u.move.destination));
  return TIDE_OK;
}

static tide_status move_submit(tide__soft* soft, const char* name, tide_stream handle, tide__op* op) {
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(soft, name, op->device, handle, &stream));
  bool is_staged = false;
  tide__mutex_lock(&soft->memory_lock);
  const tide_status status = move_check_locked(soft, name, op, &is_staged, &op->u.move.source_identity,
                                               &op->u.move.destination_identity);
  tide__mutex_unlock(&soft->memory_lock);
  TIDE_TRY(status);
  return tide__stream_submit(stream, name, op);
}

tide_status tide__soft_copy(void* self, int device, tide_stream stream, void* destination, const void* source,
                            size_t bytes) {
  tide__op op = { .kind = TIDE__OP_COPY, .device = (int16_t)device };
  op.u.move.destination = tide__address(destination);
  op.u.move.source = tide__address(source);
  op.u.move.bytes = bytes;
  return move_submit(self, "copy", stream, &op);
}

tide_status tide__soft_fill(void* self, int device, tide_stream stream, void* destination, uint8_t value,
                            size_t bytes) {
  tide__op op = { .kind = TIDE__OP_FILL, .value = value, .device = (int16_t)device };
  op.u.move.destination = tide__address(destination);
  op.u.move.bytes = bytes;
  return move_submit(self, "fill", stream, &op);
}

tide_status tide__soft_call(void* self, int device, tide_stream handle, tide_call_fn function, void* user) {
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(self, "call", device, handle, &stream));
  tide__op op = { .kind = TIDE__OP_CALL, .device = (int16_t)device };
  op.u.call.function = function;
  op.u.call.user = user;
  return tide__stream_submit(stream, "call", &op);
}

// Checks a move once more, now that it is its turn: its memory may be gone, or be somebody else's.
static tide_status move_check_again_locked(tide__soft* soft, const tide__op* op, bool* out_staged) {
  const char* name = op->kind == TIDE__OP_COPY ? "copy, when its turn came" : "fill, when its turn came";
  uint64_t source = 0;
  uint64_t destination = 0;
  TIDE_TRY(move_check_locked(soft, name, op, out_staged, &source, &destination));
  const bool is_same = source == op->u.move.source_identity && destination == op->u.move.destination_identity;
  TIDE_REQUIRE(is_same, TIDE_ERR_STATE, "%s: memory at %p or %p was given back meanwhile", name,
               tide__pointer(op->u.move.destination), tide__pointer(op->u.move.source));
  return TIDE_OK;
}

// Moves a large range without the lock; the ranges are marked, so that nobody takes them away meanwhile.
TIDE_UNCHECKED_LOCKING static tide_status move_large_locked(tide__stream* stream, const tide__op* op,
                                                            bool is_staged) {
  tide__soft* soft = stream->soft;
  const uint64_t bytes = op->u.move.bytes;
  stream->busy[0] = (tide__busy_range){ op->u.move.destination, op->u.move.destination + bytes };
  if (op->kind == TIDE__OP_COPY) {
    stream->busy[1] = (tide__busy_range){ op->u.move.source, op->u.move.source + bytes };
  }
  tide__mutex_unlock(&soft->memory_lock);
  const tide_status status = soft->backend->move(op, is_staged);
  tide__mutex_lock(&soft->memory_lock);
  stream->busy[0] = stream->busy[1] = (tide__busy_range){ 0, 0 };
  tide__signal_all(&soft->quiet);
  return status;
}

static void move_execute(tide__stream* stream, const tide__op* op) {
  tide__soft* soft = stream->soft;
  bool is_staged = false;
  tide__mutex_lock(&soft->memory_lock);
  tide_status status = move_check_again_locked(soft, op, &is_staged);
  if (status == TIDE_OK && soft->backend->move != NULL) {
    const bool is_small = op->u.move.bytes <= SMALL_MOVE_BYTES;
    status = is_small ? soft->backend->move(op, is_staged) : move_large_locked(stream, op, is_staged);
  }
  tide__mutex_unlock(&soft->memory_lock);
  if (is_staged) tide__add_relaxed(&soft->staged_copies, 1);
  if (status != TIDE_OK) tide__soft_note_error(soft, op->device);
}

static void graph_execute(tide__stream* stream, const tide__graph* graph) {
  for (size_t i = 0; i < graph->count; i++) tide__op_execute(stream, &graph->nodes[i].op);
}

void tide__op_execute(tide__stream* stream, const tide__op* op) {
  switch ((tide__op_kind)op->kind) {
    case TIDE__OP_FILL:
    case TIDE__OP_COPY: move_execute(stream, op); break;
    case TIDE__OP_CALL: tide__thread_callback(op->u.call.function, op->u.call.user); break;
    case TIDE__OP_LAUNCH: graph_execute(stream, op->u.graph); break;
    case TIDE__OP_WAIT:
    case TIDE__OP_WORK: break;
  }
}

uint64_t tide__op_duration_ns(const tide__op* op) {
  if (op->kind == TIDE__OP_LAUNCH) return op->u.graph->duration_ns;
  return op->kind == TIDE__OP_WORK ? op->u.work_ns : 0;
}

void tide__op_drop(tide__soft* soft, const tide__op* op) {
  if (op->kind == TIDE__OP_LAUNCH) tide__graph_drop(soft, op->u.graph);
}

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

// ---------------------------------------------------------------------------------------------------
// Questions and waiting

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
  for (uint32_t i = 0; i < count; i++) {  // also streams that were given up with work left
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
    if (is_in_use) tide__stream_end(stream);
  }
}
