// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The lifetimes are sorted by stream and stack, so that those of one holder are adjacent, and then summed.
#include "format/holders.h"

#include <stdlib.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/lifetimes.h"

// ---------------------------------------------------------------------------------------------------
// Summing up

static int holder_compare(const void* a, const void* b) {
  const tide__lifetime* const x = a;
  const tide__lifetime* const y = b;
  if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

// The holder of a lifetime: the last one, or a new one.
static tide__holder* holder_of(tide__holders* holders, const tide__lifetime* lifetime) {
  tide__holder* const last = holders->count > 0 ? &holders->items[holders->count - 1] : NULL;
  if (last != NULL && last->stream == lifetime->stream && last->stack == lifetime->stack) return last;
  if (!tide__heap_grow(holders->heap, (void**)&holders->items, &holders->capacity, holders->count + 1,
                       sizeof *holders->items)) {
    return NULL;
  }
  tide__holder* const added = &holders->items[holders->count++];
  *added = (tide__holder){ .stream = lifetime->stream, .stack = lifetime->stack };
  return added;
}

static tide_status holders_sum(tide__holders* holders, const tide__lifetimes* lifetimes) {
  uint64_t made_bytes = 0;
  for (size_t i = 0; i < lifetimes->count; i++) {
    const tide__lifetime* const lifetime = &lifetimes->items[i];
    tide__holder* const holder = holder_of(holders, lifetime);
    TIDE_REQUIRE(holder != NULL, TIDE_ERR_NO_MEMORY, "trace_write: no memory for %zu holders",
                 holders->count + 1);
    if (lifetime->begin != 0) {
      TIDE_REQUIRE(tide__add(made_bytes, lifetime->bytes, &made_bytes) && made_bytes <= INT64_MAX,
                   TIDE_ERR_LIMIT, "trace_write: more than 2^63 bytes were requested in total");
      holder->made_count++;
      holder->made_bytes += lifetime->bytes;
    }
    if (!tide__lifetime_is_live(lifetime, lifetimes->peak_instant)) continue;
    holder->held_count++;
    holder->held_bytes += lifetime->bytes;
  }
  return TIDE_OK;
}

tide_status tide__holders_init(tide__holders* holders, const tide_trace* trace, size_t device,
                               const tide_heap* heap) {
  tide__lifetimes lifetimes;
  *holders = (tide__holders){ .heap = heap };
  TIDE_TRY(tide__lifetimes_init(&lifetimes, trace, device, TIDE__LIFETIMES_OF_REQUESTS, heap));
  if (lifetimes.count > 0) qsort(lifetimes.items, lifetimes.count, sizeof *lifetimes.items, holder_compare);
  const tide_status status = holders_sum(holders, &lifetimes);
  tide__lifetimes_fini(&lifetimes);
  if (status != TIDE_OK) tide__holders_fini(holders);
  return status;
}

void tide__holders_fini(tide__holders* holders) {
  tide__heap_release(holders->heap, holders->items, holders->capacity, sizeof *holders->items);
  *holders = (tide__holders){ .heap = holders->heap };
}
