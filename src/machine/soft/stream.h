// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Streams: making and finding them, queueing work, waiting for it. Stands on queue.h, thread.h and the rules
// of capture.h. What the work does is the business of work.h.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_STREAM_H
#define TIDEMARK_SRC_MACHINE_SOFT_STREAM_H

#include "machine/soft/graph.h"
#include "machine/soft/queue.h"
#include "machine/soft/state.h"

typedef struct tide__capture tide__capture;

// [S1] completed <= enqueued   [S2] queue holds enqueued - completed pieces of work
// What producers write and what the executor writes lie on separate cache lines.
struct tide__stream {
  tide__slot slot;
  tide__soft* soft;    // borrowed: outlives its streams
  _Atomic int device;  // also read by those who iterate over all streams
  _Atomic uint32_t flags;
  _Atomic bool is_legacy;
  tide__mutex lock;
  tide__atomic_u64 number;                 // of no other stream of the machine
  tide__signal progress;                   // completed rose, for waiters; under lock
  tide__signal work;                       // host: for the worker, under lock
  _Alignas(64) tide__atomic_u64 enqueued;  // written under lock, read without
  // shared under lock
  uint64_t legacy_joined;  // blocking streams: the ticket of the legacy stream our queue waits for already
  bool is_sleeping;        // host: the worker waits for `work`
  bool is_closing;         // the stream was freed: end when the queue is empty
  bool is_held;            // dry
  bool is_open;            // it has started and its slot is not back yet
  tide__queue queue;       // see there
  // the executor's: the worker's of the host machine, the player's of the dry one
  _Alignas(64) tide__atomic_u64 completed;  // read by all
  tide__atomic_u32 waiters;                 // threads inside tide__stream_await
  uint64_t seen;                            // how much was enqueued when the executor looked last
  uint64_t time;                            // dry: when its last work ended
  pthread_t worker;                         // host
  tide__link in_ended;                      // host; shared under the workers lock
  // shared under the device's streams_lock
  tide__link in_device;
  uint64_t joined_by_legacy;  // our ticket that the legacy stream's queue waits for already
  // shared under the capture lock
  tide__capture* capture;  // NULL when not captured
  tide__node_set terminals;
  tide__link in_capture;
};

// Does it wait for the legacy stream, and the legacy stream for it?
static inline bool tide__stream_is_blocking(const tide__stream* stream) {
  return (tide__load_relaxed(&stream->flags) & TIDE_STREAM_NON_BLOCKING) == 0;
}

// Pairs with tide__stream_complete: whoever sees the count sees what the work wrote.
static inline bool tide__point_is_reached(tide__point point) {
  return point.stream == NULL || tide__load_acquire(&point.stream->completed) >= point.ticket;
}

// The end of its queue. Pairs with the append of stream.c.
static inline tide__point tide__stream_point(tide__stream* stream) {
  return (tide__point){ stream, tide__load_acquire(&stream->enqueued) };
}

void tide__stream_item_init(void* item);
void tide__stream_item_fini(void* item);
// Gives up all streams, when the machine is freed.
void tide__soft_streams_fini(tide__soft* soft);
// The stream of a handle; a default stream is made at its first use.
tide_status tide__stream_find(tide__soft* soft, const char* name, int device, tide_stream handle,
                              tide__stream** out);
// Puts a stream that was freed and has no work left back into the table.
void tide__stream_bury(tide__stream* stream);
// Queues work on a stream that is not captured, behind a point of another stream (or NULL). Returns where the
// work ends (or NULL).
tide_status tide__stream_push(tide__stream* stream, const char* name, const tide__point* behind,
                              const tide__op* op, tide__point* out);
// The end of the work queued so far, by the rules of the default streams.
tide_status tide__stream_tail(tide__stream* stream, const char* name, tide__point* out);
// Blocks until a point is reached. For machines whose streams run by themselves.
void tide__stream_await(tide__point point);
// Counts pieces of work as done and wakes those who wait for them.
void tide__stream_complete(tide__stream* stream, uint64_t count);

#endif
