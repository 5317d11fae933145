// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The workers of the host machine: one thread for each stream. A worker reads the queue without its lock, up
// to the count that it read last, and reads the count again only then. It spins for a short time before it
// sleeps, because waking a thread costs more than most operations.
//
// The worker of a freed stream ends when the queue is empty. The next thread that creates a stream, or frees
// the machine, joins it and returns the stream's slot.
#include <string.h>

#include "base/arith.h"
#include "base/sys.h"
#include "machine/host/host.h"

#define SPINS 256u
#define LOOK_EVERY 16u  // reading the count moves its cache line away from the producer
#define STAGE_BYTES 16384u

static void spin_until_reached(tide__point point) {
  for (unsigned i = 0; i < SPINS && !tide__point_is_reached(point); i++) tide__cpu_relax();
}

tide_status tide__host_await(tide__soft* soft, const char* name, tide__point point) {
  (void)soft, (void)name;
  spin_until_reached(point);
  tide__stream_await(point);
  return TIDE_OK;
}

// Copies through a buffer, as a device without access to the other memory must.
static void move_staged(char* destination, const char* source, uint64_t bytes) {
  char stage[STAGE_BYTES];
  for (uint64_t done = 0; done < bytes; done += STAGE_BYTES) {
    const uint64_t part = tide__min(STAGE_BYTES, bytes - done);
    memcpy(stage, source + done, part);
    memcpy(destination + done, stage, part);
  }
}

// Fills ordinary memory.
static int fill_ordinary(const tide__op* op) {
  char stage[STAGE_BYTES];
  int error = 0;
  memset(stage, op->value, sizeof stage);
  for (uint64_t done = 0; done < op->u.move.bytes && error == 0; done += STAGE_BYTES) {
    const uint64_t part = tide__min(STAGE_BYTES, op->u.move.bytes - done);
    error = tide__sys_write_any(op->u.move.destination + done, stage, part);
  }
  return error;
}

// Copies from or to ordinary memory, or both.
static int copy_ordinary(const tide__op* op) {
  char stage[STAGE_BYTES];
  const uint64_t destination = op->u.move.destination;
  const uint64_t source = op->u.move.source;
  const uint64_t bytes = op->u.move.bytes;
  if (op->u.move.destination_identity != 0)
    return tide__sys_read_any(tide__pointer(destination), source, bytes);
  if (op->u.move.source_identity != 0) return tide__sys_write_any(destination, tide__pointer(source), bytes);
  int error = 0;
  for (uint64_t done = 0; done < bytes && error == 0; done += STAGE_BYTES) {
    const uint64_t part = tide__min(STAGE_BYTES, bytes - done);
    error = tide__sys_read_any(stage, source + done, part);
    if (error == 0) error = tide__sys_write_any(destination + done, stage, part);
  }
  return error;
}

// Ordinary memory may be invalid, or unmapped meanwhile.
static tide_status move_ordinary(const tide__op* op) {
  const bool is_fill = op->kind == TIDE__OP_FILL;
  const int error = is_fill ? fill_ordinary(op) : copy_ordinary(op);
  if (error == 0) return TIDE_OK;
  const bool is_destination = is_fill || op->u.move.source_identity != 0;
  return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, error, "%s: %llu bytes at %p are not all memory of this process",
                          is_fill ? "fill" : "copy", (unsigned long long)op->u.move.bytes,
                          tide__pointer(is_destination ? op->u.move.destination : op->u.move.source));
}

tide_status tide__host_move(const tide__op* op, bool is_staged) {
  void* destination = tide__pointer(op->u.move.destination);
  const void* source = tide__pointer(op->u.move.source);
  const bool is_known = op->u.move.destination_identity != 0 &&
                        (op->kind == TIDE__OP_FILL || op->u.move.source_identity != 0);
  if (!is_known) return move_ordinary(op);
  if (op->kind == TIDE__OP_FILL) {
    memset(destination, op->value, op->u.move.bytes);
  } else if (is_staged) {
    move_staged(destination, source, op->u.move.bytes);
  } else {
    memmove(destination, source, op->u.move.bytes);
  }
  return TIDE_OK;
}

// Reads the count of queued operations. Returns whether there is something to do.
static bool worker_look(tide__stream* stream) {
  stream->seen = tide__load_acquire(&stream->enqueued);  // pairs with queue_append_locked
  return stream->seen != tide__load_relaxed(&stream->completed);
}

// Waits for work. Returns false when the stream was freed and has none left.
static bool worker_wait(tide__stream* stream) {
  for (unsigned i = 0; i < SPINS; i++) {
    if (i % LOOK_EVERY == 0 && worker_look(stream)) return true;
    tide__cpu_relax();
  }
  tide__mutex_lock(&stream->lock);
  while (!worker_look(stream) && !stream->is_closing) {
    stream->is_sleeping = true;
    tide__signal_wait(&stream->work, &stream->lock);
    stream->is_sleeping = false;
  }
  tide__mutex_unlock(&stream->lock);
  return worker_look(stream);
}

static void worker_do(tide__stream* stream, const tide__op* op) {
  if (op->kind == TIDE__OP_WAIT) {
    (void)tide__host_await(stream->soft, "wait", op->u.wait);
  } else {
    tide__op_execute(stream, op);
    tide__op_drop(stream->soft, op);
  }
}

static void worker_end(tide__stream* stream) {
  tide__host* host = tide__host_of(stream->soft);
  tide__mutex_lock(&host->workers_lock);
  tide__list_append(&host->ended, &stream->in_ended);
  tide__signal_all(&host->worker_ended);
  tide__mutex_unlock(&host->workers_lock);
}

static void* worker_run(void* argument) {
  tide__stream* stream = argument;
  while (worker_wait(stream)) {
    while (tide__load_relaxed(&stream->completed) != stream->seen) {
      worker_do(stream, tide__queue_head(&stream->queue, stream->soft->heap));
      tide__queue_advance(&stream->queue);
      tide__stream_complete(stream, 1);
    }
  }
  worker_end(stream);
  return NULL;
}

// Joins one worker that has ended. With `must_wait` it waits for one. Returns false if there is none.
static bool worker_reap(tide__host* host, bool must_wait) {
  tide__mutex_lock(&host->workers_lock);
  while (must_wait && host->worker_count != 0 && tide__list_is_empty(&host->ended)) {
    tide__signal_wait(&host->worker_ended, &host->workers_lock);
  }
  tide__stream* stream = NULL;
  if (!tide__list_is_empty(&host->ended)) {
    stream = TIDE_OWNER(host->ended.next, tide__stream, in_ended);
    tide__list_unlink(&stream->in_ended);
    host->worker_count--;
  }
  tide__mutex_unlock(&host->workers_lock);
  if (stream == NULL) return false;
  (void)pthread_join(stream->worker, NULL);
  tide__stream_bury(stream);
  return true;
}

tide_status tide__host_stream_start(tide__stream* stream, const char* name) {
  tide__host* host = tide__host_of(stream->soft);
  while (worker_reap(host, false)) {}
  tide__mutex_lock(&host->workers_lock);
  host->worker_count++;
  tide__mutex_unlock(&host->workers_lock);
  const int error = tide__sys_thread_start(&stream->worker, worker_run, stream);
  if (error == 0) return TIDE_OK;
  tide__mutex_lock(&host->workers_lock);
  host->worker_count--;
  tide__mutex_unlock(&host->workers_lock);
  return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error,
                          "%s: the system cannot start a thread for the stream (errno %d)", name, error);
}

void tide__host_stream_kick(tide__stream* stream) {
  if (stream->is_sleeping) tide__signal_all(&stream->work);
}

void tide__host_stream_stop(tide__stream* stream) {
  tide__mutex_lock(&stream->lock);
  stream->is_closing = true;
  tide__signal_all(&stream->work);
  tide__mutex_unlock(&stream->lock);
}

void tide__host_drain(tide__soft* soft) {
  while (worker_reap(tide__host_of(soft), true)) {}
}
