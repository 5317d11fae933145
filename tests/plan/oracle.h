// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The smallest peak of a small problem, found by looking at everything. Buffers that share storage are one
// item. There are two ways, and a test compares them.
//
// By offsets: every item at every offset below a height, for rising heights. This needs no argument.
//
// By orders: items one after another, each at the lowest place above what it meets among those before. This
// finds a smallest plan if at every instant an item holds its bytes from the first one on, without a hole.
// Take a smallest plan whose offsets have the smallest sum, and the items by rising offset. An item must lie
// above each one before it that it meets; were it higher than that, it could be lowered, and would stay below
// those after it. So it lies where the order puts it, and the offsets of this order never fall.
#ifndef TIDEMARK_TESTS_PLAN_ORACLE_H
#define TIDEMARK_TESTS_PLAN_ORACLE_H

#include "plan/small.h"

#define ORACLE_NONE UINT64_MAX  // there is no plan
#define ORACLE_SETS (1u << SMALL_BUFFERS)

typedef struct oracle_item {
  uint64_t held[SMALL_INSTANTS];  // one bit a byte, counted from its offset
  uint64_t end;                   // bytes of the largest of its buffers that hold something; 0: none does
  uint64_t alignment;
  uint64_t fixed;  // or TIDE_PLAN_ANYWHERE
  uint32_t pool;   // or TIDE_PLAN_ANY_POOL
} oracle_item;

typedef struct oracle {
  oracle_item items[SMALL_BUFFERS];
  size_t count;
  bool is_impossible;  // whatever the capacities
  bool is_flat;        // items hold from their first byte on, without holes
  // How far [k] must be above [i] if it is not below; 0: they never meet.
  uint64_t above[SMALL_BUFFERS][SMALL_BUFFERS];
  uint64_t heights[SMALL_BUFFERS][SMALL_INSTANTS];  // the byte after the highest that is held
  uint64_t smallest[ORACLE_SETS];                   // of each set of items; 0: not known yet
} oracle;

// ---------------------------------------------------------------------------------------------------
// Items

static inline uint64_t oracle_top_bit(uint64_t word) {
  uint64_t top = 0;
  for (; word != 0; word >>= 1) top++;
  return top;
}

static inline uint64_t oracle_common_multiple(uint64_t a, uint64_t b) {
  uint64_t multiple = a;
  while (multiple % b != 0) multiple += a;
  return multiple;
}

// Adds a buffer to an item; false if they cannot have one place.
static inline bool oracle_join(oracle_item* item, const tide_plan_buffer* b) {
  for (uint64_t t = 0; t < SMALL_INSTANTS; t++) item->held[t] |= small_held(b, t);
  if (small_holds(b) && b->bytes > item->end) item->end = b->bytes;
  item->alignment = oracle_common_multiple(item->alignment, small_alignment(b));
  const bool is_apart = item->fixed != TIDE_PLAN_ANYWHERE && b->offset != TIDE_PLAN_ANYWHERE &&
                        item->fixed != b->offset;
  const bool is_elsewhere = item->pool != TIDE_PLAN_ANY_POOL && b->pool != TIDE_PLAN_ANY_POOL &&
                            item->pool != b->pool;
  if (b->offset != TIDE_PLAN_ANYWHERE) item->fixed = b->offset;
  if (b->pool != TIDE_PLAN_ANY_POOL) item->pool = b->pool;
  const bool is_aligned = item->fixed == TIDE_PLAN_ANYWHERE || item->fixed % item->alignment == 0;
  return !is_apart && !is_elsewhere && is_aligned;
}

static inline uint64_t oracle_distance(const oracle_item* below, const oracle_item* above) {
  uint64_t distance = 0;
  for (uint64_t t = 0; t < SMALL_INSTANTS; t++) {
    const uint64_t top = above->held[t] != 0 ? oracle_top_bit(below->held[t]) : 0;
    if (top > distance) distance = top;
  }
  return distance;
}

static inline void oracle_init(oracle* o, const small_problem* p) {
  size_t item_of[SMALL_BUFFERS];
  o->count = 0;
  o->is_impossible = false;
  o->is_flat = true;
  for (size_t i = 0; i < p->problem.count; i++) {
    const size_t holder = small_holder(p, i);
    item_of[i] = holder == i ? o->count++ : item_of[holder];
    oracle_item* const item = &o->items[item_of[i]];
    if (holder == i)
      *item = (oracle_item){ .alignment = 1, .fixed = TIDE_PLAN_ANYWHERE, .pool = TIDE_PLAN_ANY_POOL };
    if (!oracle_join(item, &p->buffers[i])) o->is_impossible = true;
  }
  for (size_t i = 0; i < o->count; i++) {
    for (uint64_t t = 0; t < SMALL_INSTANTS; t++) {
      o->heights[i][t] = oracle_top_bit(o->items[i].held[t]);
      if ((o->items[i].held[t] & (o->items[i].held[t] + 1)) != 0) o->is_flat = false;
    }
    for (size_t k = 0; k < o->count; k++) o->above[i][k] = oracle_distance(&o->items[i], &o->items[k]);
  }
  memset(o->smallest, 0, sizeof *o->smallest << o->count);
}

// What the items of a set hold together at the worst instant, or the end of one alone: no peak is smaller.
static inline uint64_t oracle_bound(const oracle* o, uint32_t set) {
  uint64_t bound = 0;
  for (uint64_t t = 0; t < SMALL_INSTANTS; t++) {
    uint64_t load = 0;
    for (size_t i = 0; i < o->count; i++) {
      const oracle_item* const item = &o->items[i];
      if ((set >> i & 1) == 0) continue;
      const uint64_t end = item->end +
                           (item->fixed != TIDE_PLAN_ANYWHERE && item->end != 0 ? item->fixed : 0);
      load += (uint64_t)__builtin_popcountll(item->held[t]);
      if (end > bound) bound = end;
    }
    if (load > bound) bound = load;
  }
  return bound;
}

// A height at which all items fit one upon another above those that are fixed, if any plan does.
static inline uint64_t oracle_enough(const oracle* o, uint32_t set) {
  uint64_t fixed = 0;
  uint64_t others = 0;
  for (size_t i = 0; i < o->count; i++) {
    const oracle_item* const item = &o->items[i];
    if ((set >> i & 1) == 0) continue;
    if (item->fixed == TIDE_PLAN_ANYWHERE) others += item->end + item->alignment - 1;
    else if (item->fixed + item->end > fixed) fixed = item->fixed + item->end;
  }
  T_LT(fixed + others, SMALL_BYTES);
  return fixed + others;
}

// ---------------------------------------------------------------------------------------------------
// By orders

typedef struct oracle_orders {
  const oracle* o;
  uint64_t height;
  uint64_t offsets[SMALL_BUFFERS];
} oracle_orders;

// The lowest place for an item above those of `placed` that it meets, or where it must lie; ORACLE_NONE: it
// has no room where it must lie.
static inline uint64_t oracle_place(const oracle_orders* s, size_t index, uint32_t placed) {
  const oracle_item* const item = &s->o->items[index];
  uint64_t low = 0;
  for (size_t i = 0; i < s->o->count; i++) {
    const uint64_t above = s->o->above[i][index];
    if ((placed >> i & 1) != 0 && above != 0 && s->offsets[i] + above > low) low = s->offsets[i] + above;
  }
  if (item->fixed != TIDE_PLAN_ANYWHERE) return item->fixed >= low ? item->fixed : ORACLE_NONE;
  return (low + item->alignment - 1) / item->alignment * item->alignment;
}

// May the items of `rest` end in time, all above those of `placed` that they meet, and none below `lowest`?
static inline bool oracle_has_room(const oracle_orders* s, uint32_t placed, uint32_t rest, uint64_t lowest) {
  for (uint64_t t = 0; t < SMALL_INSTANTS; t++) {
    uint64_t top = lowest;
    uint64_t load = 0;
    for (size_t i = 0; i < s->o->count; i++) {
      const uint64_t held = s->o->heights[i][t];
      if ((placed >> i & 1) != 0 && held != 0 && s->offsets[i] + held > top) top = s->offsets[i] + held;
      if ((rest >> i & 1) != 0) load += held;
    }
    if (load != 0 && top + load > s->height) return false;
  }
  return true;
}

// Goes on with every item that may come next: offsets rise, and where they are equal, the positions do.
static inline bool oracle_try_orders(oracle_orders* s, uint32_t placed, uint32_t rest, size_t last) {
  const uint64_t lowest = placed == 0 ? 0 : s->offsets[last];
  if (rest == 0) return true;
  if (!oracle_has_room(s, placed, rest, lowest)) return false;
  for (size_t i = 0; i < s->o->count; i++) {
    if ((rest >> i & 1) == 0) continue;
    const uint64_t offset = oracle_place(s, i, placed);
    if (offset == ORACLE_NONE || offset < lowest || (offset == lowest && placed != 0 && i < last)) continue;
    if (offset + s->o->items[i].end > s->height) continue;
    s->offsets[i] = offset;
    if (oracle_try_orders(s, placed | 1u << i, rest & ~(1u << i), i)) return true;
  }
  return false;
}

static inline uint64_t oracle_by_orders(const oracle* o, uint32_t set) {
  const uint64_t enough = oracle_enough(o, set);
  for (uint64_t height = oracle_bound(o, set); height <= enough; height++) {
    oracle_orders s = { .o = o, .height = height };
    if (oracle_try_orders(&s, 0, set, 0)) return height;
  }
  return ORACLE_NONE;
}

// ---------------------------------------------------------------------------------------------------
// By offsets

typedef struct oracle_offsets {
  const oracle* o;
  uint64_t height;
  uint64_t used[SMALL_INSTANTS];
} oracle_offsets;

static inline bool oracle_is_free(const oracle_offsets* s, const oracle_item* item, uint64_t offset) {
  for (uint64_t t = 0; t < SMALL_INSTANTS; t++) {
    if ((s->used[t] & item->held[t] << offset) != 0) return false;
  }
  return true;
}

static inline void oracle_toggle(oracle_offsets* s, const oracle_item* item, uint64_t offset) {
  for (uint64_t t = 0; t < SMALL_INSTANTS; t++) s->used[t] ^= item->held[t] << offset;
}

static inline bool oracle_try_offsets(oracle_offsets* s, uint32_t rest) {
  if (rest == 0) return true;
  const uint32_t index = (uint32_t)__builtin_ctz(rest);
  const oracle_item* const item = &s->o->items[index];
  const bool is_fixed = item->fixed != TIDE_PLAN_ANYWHERE;
  for (uint64_t offset = is_fixed ? item->fixed : 0; offset + item->end <= s->height;
       offset += item->alignment) {
    if (oracle_is_free(s, item, offset)) {
      oracle_toggle(s, item, offset);
      if (oracle_try_offsets(s, rest & (rest - 1))) return true;
      oracle_toggle(s, item, offset);
    }
    if (is_fixed) return false;
  }
  return false;
}

static inline uint64_t oracle_by_offsets(const oracle* o, uint32_t set) {
  const uint64_t enough = oracle_enough(o, set);
  for (uint64_t height = oracle_bound(o, set); height <= enough; height++) {
    oracle_offsets s = { .o = o, .height = height };
    if (oracle_try_offsets(&s, set)) return height;
  }
  return ORACLE_NONE;
}

// ---------------------------------------------------------------------------------------------------
// The whole problem

// The items that hold something.
static inline uint32_t oracle_all(const oracle* o) {
  uint32_t set = 0;
  for (size_t i = 0; i < o->count; i++) set |= o->items[i].end != 0 ? 1u << i : 0;
  return set;
}

// The smallest peak of a set of items in one pool, or ORACLE_NONE.
static inline uint64_t oracle_smallest(oracle* o, uint32_t set) {
  if (set == 0) return 0;
  if (o->smallest[set] == 0)
    o->smallest[set] = o->is_flat ? oracle_by_orders(o, set) : oracle_by_offsets(o, set);
  return o->smallest[set];
}

// The smallest sum of the peaks of all pools within the capacities, whichever pools the items that may choose
// are in; ORACLE_NONE: there is no plan. `sets` are the items of each pool so far.
static inline uint64_t oracle_try_pools(oracle* o, const tide_plan_problem* problem, uint32_t* sets,
                                        uint32_t rest) {
  const size_t pools = problem->pools == 0 ? 1 : problem->pools;
  uint64_t best = ORACLE_NONE;
  if (rest == 0) {
    uint64_t sum = 0;
    for (size_t i = 0; i < pools; i++) {
      const uint64_t peak = oracle_smallest(o, sets[i]);
      if (peak == ORACLE_NONE || (problem->pools != 0 && peak > problem->capacities[i])) return ORACLE_NONE;
      sum += peak;
    }
    return sum;
  }
  const uint32_t index = (uint32_t)__builtin_ctz(rest);
  const uint32_t pool = o->items[index].pool;
  for (uint32_t i = 0; i < pools; i++) {
    if (pool != TIDE_PLAN_ANY_POOL && pool != i) continue;
    sets[i] |= 1u << index;
    const uint64_t sum = oracle_try_pools(o, problem, sets, rest & (rest - 1));
    sets[i] &= ~(1u << index);
    if (sum < best) best = sum;
  }
  return best;
}

static inline uint64_t oracle_solve(oracle* o, const small_problem* p) {
  uint32_t sets[SMALL_POOLS] = { 0 };
  oracle_init(o, p);
  return o->is_impossible ? ORACLE_NONE : oracle_try_pools(o, &p->problem, sets, oracle_all(o));
}

#endif
