// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Streams: creating and finding them, queueing work, waiting for it. Uses queue.h, thread.h and the rules of
// capture.h. work.h executes the operations.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_STREAM_H
#define TIDEMARK_SRC_MACHINE_SOFT_STREAM_H

#include "machine/soft/graph.h"
#include "machine/soft/queue.h"
#include "machine/soft/state.h"

typedef struct tide__capture tide__capture;

// [S1] completed <= enqueued   [S2] the queue holds enqueued - completed operations
// Fields that producers write and fields that the executor writes are on separate cache lines.
struct tide__stream {
  tide__slot slot;
  tide__soft* soft;    // borrowed: outlives its streams
  _Atomic int device;  // also read by iterations over all streams
  _Atomic uint32_t flags;
  _Atomic bool is_legacy;  // it waits for other streams of its device: the legacy stream, and the joiner
  tide__mutex lock;
  tide__atomic_u64 number;                 // unique in the machine
  tide__signal progress;                   // `completed` was increased; under lock
  tide__signal work;                       // host: wakes the worker; under lock
  _Alignas(64) tide__atomic_u64 enqueued;  // written under lock, read without
  // shared under lock
  uint64_t
      legacy_joined;  // blocking streams: the ticket of the legacy stream that the queue already waits for
  bool is_sleeping;   // host: the worker waits for `work`
  bool is_closing;    // the stream was freed and ends when its queue is empty
  bool is_held;       // dry
  bool is_open;       // it has started, and its slot is not returned yet
  tide__queue queue;
  // for the executor: the worker of the host machine, the player of the dry machine
  _Alignas(64) tide__atomic_u64 completed;  // read by all
  tide__atomic_u32 waiters;                 // threads inside tide__stream_await
  uint64_t seen;                            // the last value of `enqueued` that the executor has read
  uint64_t time;                            // dry: when its last work ended
  pthread_t worker;                         // host
  tide__link in_ended;                      // host; shared under the workers lock
  // shared under the device's streams_lock
  tide__link in_device;
  uint64_t joined_by_legacy;  // our ticket that the legacy stream's queue already waits for
  // shared under the capture lock
  tide__capture* capture;  // NULL when not captured
  tide__node_set terminals;
  tide__link in_capture;
};

// Do this stream and the legacy stream wait for each other?
static inline bool tide__stream_is_blocking(const tide__stream* stream) {
  return (tide__load_relaxed(&stream->flags) & TIDE_STREAM_NON_BLOCKING) == 0;
}

// Pairs with tide__stream_complete: a thread that sees the count sees the writes of the work.
static inline bool tide__point_is_reached(tide__point point) {
  return point.stream == NULL || tide__load_acquire(&point.stream->completed) >= point.ticket;
}

// The end of its queue. Pairs with the append of stream.c.
static inline tide__point tide__stream_point(tide__stream* stream) {
  return (tide__point){ stream, tide__load_acquire(&stream->enqueued) };
}

void tide__stream_item_init(void* item);
void tide__stream_item_fini(void* item);
// Frees all streams, when the machine is freed.
void tide__soft_streams_fini(tide__soft* soft);
// Finds the stream of a handle. A default stream is created at its first use.
tide_status tide__stream_find(tide__soft* soft, const char* name, int device, tide_stream handle,
                              tide__stream** out);
// Returns the slot of a stream that was freed and has no work left.
void tide__stream_bury(tide__stream* stream);
// Queues an operation on a stream that is not captured, after a wait for `behind` (or NULL). Sets *out,
// unless it is NULL, to the end of the operation.
tide_status tide__stream_push(tide__stream* stream, const char* name, const tide__point* behind,
                              const tide__op* op, tide__point* out);
// The end of the work queued so far, with the waits that the default streams require.
tide_status tide__stream_tail(tide__stream* stream, const char* name, tide__point* out);
// A point that is reached when all work that is queued now on a device is done, also that of freed streams.
tide_status tide__stream_tail_of_all(tide__soft* soft, const char* name, int device, tide__point* out);
// Blocks until a point is reached. For machines whose streams run on threads.
void tide__stream_await(tide__point point);
// Counts operations as done and wakes waiters.
void tide__stream_complete(tide__stream* stream, uint64_t count);

#endif
