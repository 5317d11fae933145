// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Records of one size that come and go all the time: taken from the heap in chunks, and given back together.
// A record that is not in use holds the link to the next such one, so taking and giving cost a few
// instructions.
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

// There is one: tide__stock_fill() made sure.
static inline void* tide__stock_take(tide__stock* stock) {
  TIDE_ASSERT(stock->spare_count > 0);
  void* const record = stock->spare;
  memcpy(&stock->spare, record, sizeof stock->spare);
  stock->spare_count--;
  return record;
}

// Makes sure that `count` records can be taken, which are not more than a chunk; false when there is no
// memory. A chunk has one record more than it gives: the link to the next chunk lies there.
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
