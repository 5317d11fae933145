// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Survivors are sorted by spot and step, one kind of spot after the other. Those of a spot that leaks are
// taken out before wider spots are judged.
#include "steps/suspects.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/heap.h"
#include "steps/leaks.h"

// One order for each kind of spot, because qsort() passes nothing to its function.
static int survivors_compare(const tide__survivor* a, const tide__survivor* b, size_t level) {
  if (a->spots[level] != b->spots[level]) return a->spots[level] < b->spots[level] ? -1 : 1;
  if (a->born != b->born) return a->born < b->born ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return (a->stack > b->stack) - (a->stack < b->stack);
}
static int order_by_site(const void* a, const void* b) { return survivors_compare(a, b, TIDE__SPOT_SITE); }
static int order_by_size(const void* a, const void* b) { return survivors_compare(a, b, TIDE__SPOT_SIZE); }
static int order_by_power(const void* a, const void* b) { return survivors_compare(a, b, TIDE__SPOT_POWER); }
static int order_by_stream(const void* a, const void* b) {
  return survivors_compare(a, b, TIDE__SPOT_STREAM);
}

static tide_leak leak_of(const tide__survivor* blocks, size_t count, const tide__verdict* v, uint64_t site) {
  tide_leak leak = { .site = site, .smallest = UINT64_MAX, .certainty = v->certainty };
  for (size_t i = 0; i < count; i++) {
    const tide__survivor* const b = &blocks[i];
    if (b->born < v->from || b->born > v->to) continue;
    leak.blocks++;
    leak.bytes += tide__request_bytes(b->bytes);
    leak.smallest = b->bytes < leak.smallest ? b->bytes : leak.smallest;
    leak.largest = b->bytes > leak.largest ? b->bytes : leak.largest;
    leak.stack = b->stack;
    leak.stream = b->stream;
  }
  const double steps = v->to - v->from + 1.0;
  leak.blocks_per_step = (double)leak.blocks / steps;
  leak.bytes_per_step = (double)leak.bytes / steps;
  leak.growing_steps = v->growing;
  leak.first_step = v->first + UINT64_C(1);
  leak.last_step = v->last + UINT64_C(1);
  return leak;
}

static tide_status suspects_add(tide__suspects* s, const tide_leak* leak) {
  void* items = s->items;
  const bool has_room = tide__heap_grow(s->heap, &items, &s->room, s->count + 1, sizeof *s->items);
  s->items = items;
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "steps_find: no memory for %zu leaks", s->count + 1);
  s->items[s->count++] = *leak;
  return TIDE_OK;
}

// Judges the blocks of one spot. The blocks of a leak get no spot any more.
static tide_status spot_judge(tide__suspects* s, const tide__spot* spot, tide__survivor* blocks, size_t count,
                              uint32_t steps, uint32_t* births) {
  for (size_t i = 0; i < count; i++) births[i] = blocks[i].born;
  const tide__survival growth = { steps, spot->longest, births, count };
  const tide__verdict verdict = tide__survival_judge(&growth);
  if (!verdict.is_leak) return TIDE_OK;
  const tide_leak leak = leak_of(blocks, count, &verdict, spot->site);
  for (size_t i = 0; i < count; i++) {
    for (size_t k = 0; k < TIDE__SPOT_LEVELS; k++) blocks[i].spots[k] = 0;
  }
  return suspects_add(s, &leak);
}

static tide_status level_judge(tide__suspects* s, tide__measure* m, size_t level, uint32_t steps,
                               uint32_t* births) {
  for (size_t i = 0; i < m->survivor_count;) {
    const uint32_t number = m->survivors[i].spots[level];
    size_t end = i + 1;
    while (end < m->survivor_count && m->survivors[end].spots[level] == number) end++;
    if (number != 0) TIDE_TRY(spot_judge(s, &m->spots[number - 1], &m->survivors[i], end - i, steps, births));
    i = end;
  }
  return TIDE_OK;
}

static int leak_order(const void* a, const void* b) {
  const tide_leak* const left = a;
  const tide_leak* const right = b;
  if (left->bytes_per_step > right->bytes_per_step) return -1;
  if (left->bytes_per_step < right->bytes_per_step) return 1;
  if (left->site != right->site) return left->site < right->site ? -1 : 1;
  return (left->largest > right->largest) - (left->largest < right->largest);
}

tide_status tide__suspects_find(tide__suspects* s, tide__measure* m, uint32_t steps) {
  static int (*const orders[])(const void*, const void*) = { order_by_site, order_by_size, order_by_power,
                                                             order_by_stream };
  if (m->survivor_count == 0 || steps < TIDE_LEAK_STEPS) return TIDE_OK;
  uint32_t* const births = tide__heap_alloc(s->heap, m->survivor_count, sizeof *births);
  TIDE_REQUIRE(births != NULL, TIDE_ERR_NO_MEMORY, "steps_find: no memory for %zu blocks", m->survivor_count);
  tide_status status = TIDE_OK;
  for (size_t level = 0; level < TIDE__SPOT_LEVELS && status == TIDE_OK; level++) {
    qsort(m->survivors, m->survivor_count, sizeof *m->survivors, orders[level]);
    status = level_judge(s, m, level, steps, births);
  }
  tide__heap_release(s->heap, births, m->survivor_count, sizeof *births);
  if (s->count > 0) qsort(s->items, s->count, sizeof *s->items, leak_order);
  return status;
}
