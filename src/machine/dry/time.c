// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Streams of the dry machine, in virtual time: a discrete-event simulation. When a stream or event is
// queried, one thread runs the operations of all streams up to the current time, always the one that ends
// first; ties go to the stream that was created first. Waiting continues the simulation and moves the clock.
#include "base/arith.h"
#include "machine/dry/dry.h"

#define NEVER UINT64_MAX

// ---------------------------------------------------------------------------------------------------
// The player

static void runner_enter(tide__dry* dry) {
  tide__mutex_lock(&dry->runner_lock);
  while (dry->has_runner) {
    dry->waiters++;
    tide__signal_wait(&dry->runner_left, &dry->runner_lock);
    dry->waiters--;
  }
  dry->has_runner = true;
  tide__mutex_unlock(&dry->runner_lock);
}

static void runner_leave(tide__dry* dry) {
  tide__mutex_lock(&dry->runner_lock);
  dry->has_runner = false;
  if (dry->waiters > 0) tide__signal_all(&dry->runner_left);
  tide__mutex_unlock(&dry->runner_lock);
}

// Reads the count of queued operations of every stream. Until the next reading the player sees no new work,
// so a thread that queues forever cannot keep it from finishing.
static void streams_look(tide__dry* dry) {
  const uint32_t count = tide__slots_count(&dry->soft.streams);
  for (uint32_t i = 0; i < count; i++) {
    tide__stream* stream = tide__slots_at(&dry->soft.streams, i);
    stream->seen = tide__load_acquire(&stream->enqueued);  // pairs with queue_append_locked
  }
}

// The next operation of a stream that the player has seen, or NULL.
static const tide__op* stream_head(tide__stream* stream) {
  if (tide__load_relaxed(&stream->completed) >= stream->seen) return NULL;
  return tide__queue_head(&stream->queue, stream->soft->heap);
}

static bool stream_is_held(tide__stream* stream) {
  tide__mutex_lock(&stream->lock);
  const bool is_held = stream->is_held;
  tide__mutex_unlock(&stream->lock);
  return is_held;
}

// The earliest end of the next operation; NEVER if it cannot begin yet.
static uint64_t head_end(const tide__stream* stream, const tide__op* op) {
  if (op->kind == TIDE__OP_WAIT) {
    if (!tide__point_is_reached(op->u.wait)) return NEVER;
    return tide__max(stream->time, op->u.wait.stream->time);
  }
  uint64_t end = 0;
  const uint64_t begin = tide__max(stream->time, op->queued_at);
  return tide__add(begin, tide__op_duration_ns(op), &end) ? end : NEVER - 1;
}

// The next synchronize reports work that fails. The error record of the thread that runs it does not change.
static void head_finish(tide__stream* stream, const tide__op* op, uint64_t end) {
  tide_error before;
  tide__error_keep(&before);
  stream->time = end;
  tide__op_execute(stream, op);
  tide__error_restore(&before);
  tide__op_drop(stream->soft, op);
  tide__queue_advance(&stream->queue);
  tide__stream_complete(stream, 1);
}

// The stream whose next operation ends first, or NULL.
static tide__stream* streams_next(tide__dry* dry, bool is_forced, uint64_t* out_end) {
  tide__stream* next = NULL;
  *out_end = NEVER;
  const uint32_t count = tide__slots_count(&dry->soft.streams);
  for (uint32_t i = 0; i < count; i++) {
    tide__stream* stream = tide__slots_at(&dry->soft.streams, i);
    const tide__op* op = stream_head(stream);
    if (op == NULL || (!is_forced && stream_is_held(stream))) continue;
    const uint64_t end = head_end(stream, op);
    if (end < *out_end) {
      *out_end = end;
      next = stream;
    }
  }
  return next;
}

// The same, but reads the counts again if there is nothing to do.
static tide__stream* streams_next_or_new(tide__dry* dry, bool is_forced, uint64_t* out_end) {
  tide__stream* next = streams_next(dry, is_forced, out_end);
  if (next != NULL) return next;
  streams_look(dry);
  return streams_next(dry, is_forced, out_end);
}

// Returns the slots of freed streams without work.
static void streams_bury(tide__dry* dry) {
  const uint32_t count = tide__slots_count(&dry->soft.streams);
  for (uint32_t i = 0; i < count; i++) {
    tide__stream* stream = tide__slots_at(&dry->soft.streams, i);
    tide__mutex_lock(&stream->lock);
    const bool is_empty = tide__load_relaxed(&stream->completed) == tide__load_relaxed(&stream->enqueued);
    const bool is_over = stream->is_closing && stream->is_open && is_empty;
    tide__mutex_unlock(&stream->lock);
    if (is_over) tide__stream_bury(stream);
  }
}

// Work that waits for other work, or for a stream that is held, has no time at which it ends. Whatever makes
// it ready sets has_work.
void tide__dry_settle(tide__soft* soft) {
  tide__dry* dry = tide__dry_of(soft);
  if (tide__load_seq(&dry->has_work) == 0 && tide__dry_now(dry) < tide__load_seq(&dry->due)) return;
  runner_enter(dry);
  tide__store_seq(&dry->due, 0);       // until it is known, other threads wait
  tide__store_seq(&dry->has_work, 0);  // work that is queued from here on sets it again
  streams_look(dry);
  uint64_t end = 0;
  tide__stream* stream = streams_next(dry, false, &end);
  while (stream != NULL && end <= tide__dry_now(dry)) {
    head_finish(stream, stream_head(stream), end);
    stream = streams_next(dry, false, &end);
  }
  streams_bury(dry);
  tide__store_seq(&dry->due, end);
  runner_leave(dry);
}

tide_status tide__dry_await(tide__soft* soft, const char* name, tide__point point) {
  tide__dry* dry = tide__dry_of(soft);
  tide__dry_settle(soft);
  runner_enter(dry);
  bool is_stuck = false;
  while (!tide__point_is_reached(point) && !is_stuck) {
    uint64_t end = 0;
    tide__stream* stream = streams_next_or_new(dry, false, &end);
    is_stuck = stream == NULL;
    if (is_stuck) break;
    const uint64_t now = tide__dry_now(dry);
    if (end > now) tide__dry_pass(dry, end - now);
    head_finish(stream, stream_head(stream), end);
  }
  tide__store_seq(&dry->has_work, 1);
  runner_leave(dry);
  TIDE_REQUIRE(!is_stuck, TIDE_ERR_STATE, "%s: the work waits for a stream that is held", name);
  return TIDE_OK;
}

// Runs all remaining work, even of held streams.
void tide__dry_drain(tide__soft* soft) {
  tide__dry* dry = tide__dry_of(soft);
  runner_enter(dry);
  for (;;) {
    uint64_t end = 0;
    tide__stream* stream = streams_next_or_new(dry, true, &end);
    if (stream == NULL) break;
    head_finish(stream, stream_head(stream), end);
  }
  streams_bury(dry);
  runner_leave(dry);
}

// ---------------------------------------------------------------------------------------------------
// Streams

// Holds a stream, or lets it continue at the current time.
static void stream_hold(tide__stream* stream, bool is_held) {
  tide__dry* dry = tide__dry_of(stream->soft);
  runner_enter(dry);
  tide__mutex_lock(&stream->lock);
  if (stream->is_held && !is_held) stream->time = tide__max(stream->time, tide__dry_now(dry));
  stream->is_held = is_held;
  tide__mutex_unlock(&stream->lock);
  runner_leave(dry);
}

tide_status tide__dry_stream_start(tide__stream* stream, const char* name) {
  (void)name;
  tide__dry* dry = tide__dry_of(stream->soft);
  runner_enter(dry);
  stream->time = tide__dry_now(dry);
  runner_leave(dry);
  return TIDE_OK;
}

void tide__dry_stream_kick(tide__stream* stream) {
  tide__store_seq(&tide__dry_of(stream->soft)->has_work, 1);
}

void tide__dry_stream_stop(tide__stream* stream) {
  tide__soft* soft = stream->soft;
  tide__mutex_lock(&stream->lock);
  stream->is_closing = true;
  stream->is_held = false;  // without a handle it could not be released
  tide__mutex_unlock(&stream->lock);
  tide__store_seq(&tide__dry_of(soft)->has_work, 1);  // so that the next settle returns the slot
}

tide_status tide__dry_work(tide__dry* dry, int device, tide_stream handle, uint64_t ns) {
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(&dry->soft, "dry_work", device, handle, &stream));
  const tide__op op = { .kind = TIDE__OP_WORK, .device = (int16_t)device, .u.work_ns = ns };
  return tide__stream_submit(stream, "dry_work", &op);
}

tide_status tide__dry_hold(tide__dry* dry, int device, tide_stream handle, bool is_held) {
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(&dry->soft, "dry_hold", device, handle, &stream));
  tide__dry_settle(&dry->soft);  // runs the work that is due
  stream_hold(stream, is_held);
  tide__store_seq(&dry->has_work, 1);
  return TIDE_OK;
}

tide_status tide__dry_finish(tide__dry* dry, tide_event handle) {
  tide__event* event = NULL;
  TIDE_TRY(tide__event_find(&dry->soft, "dry_finish", handle, &event));
  tide__mutex_lock(&event->lock);
  const tide__point point = event->point;
  tide__mutex_unlock(&event->lock);
  runner_enter(dry);
  while (!tide__point_is_reached(point)) {
    if (stream_head(point.stream) == NULL) streams_look(dry);
    const tide__op* op = stream_head(point.stream);
    if (op == NULL) break;
    head_finish(point.stream, op, tide__max(point.stream->time, tide__dry_now(dry)));
  }
  tide__store_seq(&dry->has_work, 1);
  runner_leave(dry);
  return TIDE_OK;
}
