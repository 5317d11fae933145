// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The queue of a stream. It depends on operations and the heap, not on streams.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_QUEUE_H
#define TIDEMARK_SRC_MACHINE_SOFT_QUEUE_H

#include "base/atomic.h"
#include "base/heap.h"
#include "machine/soft/op.h"

// Operations in order, in chunks of a fixed size. Producers append under the stream's lock. The executor
// takes no lock: it reads as many operations as the counts of the stream say.
// [Q1] room == free places after the last operation, in chunks that are linked already
typedef struct tide__chunk tide__chunk;
typedef struct tide__queue {
  // shared under the stream's lock
  tide__chunk* tail;  // the chunk that is being filled; owned, like all chunks from head to last
  tide__chunk* last;  // the last of the empty chunks after it
  size_t tail_used;
  size_t room;
  // only for the executor
  _Alignas(64) tide__chunk* head;
  size_t head_used;
  // for both sides
  _Atomic(tide__chunk*) spare;  // one used chunk, owned
} tide__queue;

// Creates a chunk, or returns NULL. Called without the lock. tide__queue_add(), under the lock, adds its
// room.
tide__chunk* tide__queue_chunk_new(tide__queue* queue, const tide_heap* heap);
void tide__queue_chunk_free(tide__chunk* chunk, const tide_heap* heap);
void tide__queue_add(tide__queue* queue, tide__chunk* chunk);
// Appends an operation. There must be room. Under the stream's lock.
void tide__queue_append(tide__queue* queue, const tide__op* op);
// The next operation, which must exist, and the step to the one after it. For the executor.
const tide__op* tide__queue_head(tide__queue* queue, const tide_heap* heap);
void tide__queue_advance(tide__queue* queue);
// Frees the memory of the queue, when no thread uses it any more.
void tide__queue_reset(tide__queue* queue, const tide_heap* heap);

#endif
