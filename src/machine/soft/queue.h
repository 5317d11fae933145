// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The queue of a stream. It knows operations and the heap, and nothing of streams.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_QUEUE_H
#define TIDEMARK_SRC_MACHINE_SOFT_QUEUE_H

#include "base/atomic.h"
#include "base/heap.h"
#include "machine/soft/op.h"

// Work in order, in chunks of a fixed size. Producers append under the stream's lock. The executor takes no
// lock: the counts of the stream tell it how much there is.
// [Q1] room == free places behind the last piece of work, in chunks that are linked already
typedef struct tide__chunk tide__chunk;
typedef struct tide__queue {
  // shared under the stream's lock
  tide__chunk* tail;  // the chunk that is being filled; owned, like all from the first to the last
  tide__chunk* last;  // the end of the empty chunks behind it
  size_t tail_used;
  size_t room;
  // the executor's
  _Alignas(64) tide__chunk* head;
  size_t head_used;
  // either side's
  _Atomic(tide__chunk*) spare;  // one used-up chunk, owned
} tide__queue;

// Makes a chunk, or returns NULL without memory. Called without the lock; adding it, under the lock, makes
// room.
tide__chunk* tide__queue_chunk_new(tide__queue* queue, const tide_heap* heap);
void tide__queue_chunk_free(tide__chunk* chunk, const tide_heap* heap);
void tide__queue_add(tide__queue* queue, tide__chunk* chunk);
// Appends where there is room. Under the stream's lock.
void tide__queue_append(tide__queue* queue, const tide__op* op);
// The next piece of work, which must exist, and the step behind it. For the executor.
const tide__op* tide__queue_head(tide__queue* queue, const tide_heap* heap);
void tide__queue_advance(tide__queue* queue);
// Releases its memory, once nobody queues or executes any more.
void tide__queue_reset(tide__queue* queue, const tide_heap* heap);

#endif
