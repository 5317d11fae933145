// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Notes of segments in one array, sorted, and calling the visitor.
// Cost: O(n log n) for n segments, beside what showing each of them costs.
#include "core/visit.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"

tide_status tide__visit_reserve(tide__visit* visit, size_t more) {
  const size_t need = visit->count + more;
  TIDE_REQUIRE(tide__heap_grow(visit->heap, &visit->notes, &visit->capacity, need, visit->note_bytes),
               TIDE_ERR_NO_MEMORY, "%s: no memory to note %zu segments", visit->call, need);
  return TIDE_OK;
}

void tide__visit_fini(tide__visit* visit) {
  tide__heap_release(visit->heap, visit->notes, visit->capacity, visit->note_bytes);
}

static int note_compare(const void* a, const void* b) {
  uint64_t x = 0;
  uint64_t y = 0;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  return (x > y) - (x < y);
}

void tide__visit_show(tide__visit* visit, bool (*show)(tide__visit* visit, void* note)) {
  if (visit->count > 0) qsort(visit->notes, visit->count, visit->note_bytes, note_compare);
  for (size_t i = 0; i < visit->count; i++) {
    if (!show(visit, (char*)visit->notes + i * visit->note_bytes)) return;
  }
}

bool tide__visit_segment(tide__visit* visit, const tide_segment_info* segment) {
  visit->active_bytes += segment->active_bytes;
  return visit->visitor->segment(visit->visitor->user, segment);
}

bool tide__visit_blocks(const tide__visit* visit, const tide_block_info* blocks, size_t count) {
  const tide_device_visitor* const v = visit->visitor;
  for (size_t i = 0; i < count && v->block != NULL; i++) {
    if (!v->block(v->user, &blocks[i])) return false;
  }
  return true;
}
