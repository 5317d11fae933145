// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A pool of records of one size, which are allocated in chunks and released together. An unused record holds
// the link to the next one, so taking and giving cost a few instructions.
#ifndef TIDEMARK_SRC_LEDGER_STOCK_H
#define TIDEMARK_SRC_LEDGER_STOCK_H

#include <string.h>

#include "base/check.h"
#include "base/heap.h"

#define TIDE__STOCK_CHUNK 128u  // records taken from the heap at a time

typedef struct tide__stock {
  void* chunks;  // owned; linked through their first word, like spare records
  void* spare;
  size_t spare_count;
  size_t record_bytes;
} tide__stock;

static inline void tide__stock_give(tide__stock* stock, void* record) {
  memcpy(record, &stock->spare, sizeof stock->spare);
  stock->spare = record;
  stock->spare_count++;
}

// Requires an unused record: see tide__stock_fill().
static inline void* tide__stock_take(tide__stock* stock) {
  TIDE_ASSERT(stock->spare_count > 0);
  void* const record = stock->spare;
  memcpy(&stock->spare, record, sizeof stock->spare);
  stock->spare_count--;
  return record;
}

// Makes sure that `count` records, at most a chunk, can be taken; false without memory. A chunk has one extra
// record, which holds the link to the next chunk.
static inline bool tide__stock_fill(tide__stock* stock, const tide_heap* heap, size_t count) {
  if (stock->spare_count >= count) return true;
  char* const chunk = tide__heap_alloc(heap, TIDE__STOCK_CHUNK + 1, stock->record_bytes);
  if (chunk == NULL) return false;
  memcpy(chunk, &stock->chunks, sizeof stock->chunks);
  stock->chunks = chunk;
  for (size_t i = TIDE__STOCK_CHUNK; i > 0; i--) tide__stock_give(stock, chunk + i * stock->record_bytes);
  return true;
}

static inline void tide__stock_fini(tide__stock* stock, const tide_heap* heap) {
  while (stock->chunks != NULL) {
    void* const chunk = stock->chunks;
    memcpy(&stock->chunks, chunk, sizeof stock->chunks);
    tide__heap_release(heap, chunk, TIDE__STOCK_CHUNK + 1, stock->record_bytes);
  }
}

#endif
