// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The queue of a stream: a list of chunks. Producers append under the stream's lock, and the executor reads
// without it. The stream's counts synchronise both: an operation is written before `enqueued` is increased,
// and the executor reads only up to the `enqueued` it has seen. One used chunk is kept for reuse.
#include "machine/soft/queue.h"

#include "base/check.h"

#define CHUNK_OPS 64u

struct tide__chunk {
  tide__chunk* next;  // owned through the queue; written under the lock before `enqueued` passes this chunk
  tide__op ops[CHUNK_OPS];
};

tide__chunk* tide__queue_chunk_new(tide__queue* queue, const tide_heap* heap) {
  tide__chunk* chunk = atomic_exchange(&queue->spare, NULL);
  return chunk != NULL ? chunk : tide__heap_alloc(heap, 1, sizeof *chunk);
}

void tide__queue_chunk_free(tide__chunk* chunk, const tide_heap* heap) {
  tide__heap_release(heap, chunk, 1, sizeof *chunk);
}

void tide__queue_add(tide__queue* queue, tide__chunk* chunk) {
  chunk->next = NULL;
  if (queue->last == NULL) {
    queue->head = queue->tail = chunk;
  } else {
    queue->last->next = chunk;
  }
  queue->last = chunk;
  queue->room += CHUNK_OPS;
}

void tide__queue_append(tide__queue* queue, const tide__op* op) {
  TIDE_ASSERT(queue->room > 0);
  if (queue->tail_used == CHUNK_OPS) {
    queue->tail = queue->tail->next;
    queue->tail_used = 0;
  }
  queue->tail->ops[queue->tail_used++] = *op;
  queue->room--;
}

const tide__op* tide__queue_head(tide__queue* queue, const tide_heap* heap) {
  if (queue->head_used == CHUNK_OPS) {
    tide__chunk* used = queue->head;
    queue->head = used->next;
    queue->head_used = 0;
    tide__queue_chunk_free(atomic_exchange(&queue->spare, used), heap);
  }
  return &queue->head->ops[queue->head_used];
}

void tide__queue_advance(tide__queue* queue) { queue->head_used++; }

void tide__queue_reset(tide__queue* queue, const tide_heap* heap) {
  for (tide__chunk* chunk = queue->head; chunk != NULL;) {
    tide__chunk* next = chunk->next;
    tide__queue_chunk_free(chunk, heap);
    chunk = next;
  }
  tide__queue_chunk_free(atomic_exchange(&queue->spare, NULL), heap);
  queue->head = queue->tail = queue->last = NULL;
  queue->head_used = queue->tail_used = queue->room = 0;
}
