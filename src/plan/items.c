// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A buffer's pieces are its lifetime cut at its gaps. Buffers that share storage become one item. At each
// instant it uses a range of bytes from the lowest `first` to the highest `last` of its members, though not
// always all of it. Its alignment is the least common multiple of theirs. O((n + g) log n) for n buffers
// with g gaps.
#include "plan/items.h"

#include <inttypes.h>
#include <string.h>

#include "base/arith.h"
#include "base/check.h"
#include "base/error.h"
#include "plan/paint.h"
#include "plan/radix.h"

#define ITEMS_LIMIT ((uint64_t)1 << 30)
#define ITEMS_POOLS ((uint64_t)1 << 16)

// Temporary arrays.
typedef struct items_work {
  tide__scratch scratch;
  const tide_plan_problem* problem;  // borrowed
  tide__keyed* keys;                 // of scratch; large enough for every sort
  tide__keyed* spare;
  tide__piece* pieces;    // of scratch; of every single buffer
  uint32_t* first_piece;  // of scratch; by buffer, and one more
} items_work;

static size_t items_pools(const tide_plan_problem* problem) {
  return problem->pools > 0 ? problem->pools : 1;
}

// ---------------------------------------------------------------------------------------------------
// Validation

static tide_status items_check_buffer(const tide_plan_problem* problem, size_t index) {
  const tide_plan_buffer* const buffer = &problem->buffers[index];
  TIDE_REQUIRE(buffer->lower <= buffer->upper, TIDE_ERR_ARGUMENT,
               "buffer %zu ends at %" PRIu64 ", before it begins at %" PRIu64, index, buffer->upper,
               buffer->lower);
  TIDE_REQUIRE(buffer->bytes <= TIDE_PLAN_MAX_BYTES && buffer->alignment <= TIDE_PLAN_MAX_BYTES,
               TIDE_ERR_ARGUMENT, "buffer %zu has %" PRIu64 " bytes and alignment %" PRIu64, index,
               buffer->bytes, buffer->alignment);
  TIDE_REQUIRE(buffer->offset == TIDE_PLAN_ANYWHERE || buffer->offset <= TIDE_PLAN_MAX_BYTES,
               TIDE_ERR_ARGUMENT, "buffer %zu has the offset %" PRIu64, index, buffer->offset);
  TIDE_REQUIRE(buffer->pool == TIDE_PLAN_ANY_POOL || buffer->pool < items_pools(problem), TIDE_ERR_ARGUMENT,
               "buffer %zu is in pool %" PRIu32 " of %zu", index, buffer->pool, items_pools(problem));
  TIDE_REQUIRE(buffer->gap_count == 0 || buffer->gaps != NULL, TIDE_ERR_ARGUMENT,
               "buffer %zu has %zu gaps at NULL", index, buffer->gap_count);
  for (size_t i = 0; i < buffer->gap_count; i++) {
    const tide_plan_gap* const gap = &buffer->gaps[i];
    TIDE_REQUIRE(gap->lower <= gap->upper && buffer->lower <= gap->lower && gap->upper <= buffer->upper,
                 TIDE_ERR_ARGUMENT, "gap %zu of buffer %zu is not in its lifetime", i, index);
    TIDE_REQUIRE(gap->first <= gap->last && gap->last <= buffer->bytes, TIDE_ERR_ARGUMENT,
                 "gap %zu of buffer %zu has a window outside of the buffer", i, index);
  }
  return TIDE_OK;
}

static tide_status items_check(const tide_plan_problem* problem, size_t* out_gaps) {
  TIDE_REQUIRE(problem->count == 0 || problem->buffers != NULL, TIDE_ERR_ARGUMENT, "%zu buffers at NULL",
               problem->count);
  TIDE_REQUIRE(problem->pools == 0 || problem->capacities != NULL, TIDE_ERR_ARGUMENT,
               "%zu pools without capacities", problem->pools);
  TIDE_REQUIRE(problem->count < ITEMS_LIMIT && problem->pools <= ITEMS_POOLS, TIDE_ERR_LIMIT,
               "%zu buffers and %zu pools are too many", problem->count, problem->pools);
  for (size_t i = 0; i < problem->pools; i++) {
    TIDE_REQUIRE(problem->capacities[i] <= TIDE_PLAN_MAX_BYTES || problem->capacities[i] == UINT64_MAX,
                 TIDE_ERR_ARGUMENT, "pool %zu has a capacity of %" PRIu64, i, problem->capacities[i]);
  }
  *out_gaps = 0;
  for (size_t i = 0; i < problem->count; i++) {
    TIDE_REQUIRE(problem->buffers[i].gap_count < ITEMS_LIMIT - problem->count - *out_gaps, TIDE_ERR_LIMIT,
                 "the gaps of buffer %zu are too many", i);
    TIDE_TRY(items_check_buffer(problem, i));
    *out_gaps += problem->buffers[i].gap_count;
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The pieces of a buffer

static void items_append(tide__piece* pieces, uint32_t* count, tide__piece piece) {
  TIDE_ASSERT(pieces != NULL);
  if (piece.lower < piece.upper && piece.first < piece.last) pieces[(*count)++] = piece;
}

// Each gap adds at most two pieces to the lifetime.
static tide_status items_cut(items_work* work, size_t index, uint32_t* count) {
  const tide_plan_buffer* const buffer = &work->problem->buffers[index];
  for (uint32_t i = 0; i < buffer->gap_count; i++) work->keys[i] = (tide__keyed){ buffer->gaps[i].lower, i };
  tide__radix_sort(work->keys, work->spare, buffer->gap_count);
  uint64_t at = buffer->lower;
  for (size_t i = 0; i < buffer->gap_count; i++) {
    const tide_plan_gap* const gap = &buffer->gaps[work->keys[i].value];
    if (gap->lower == gap->upper) continue;
    TIDE_REQUIRE(at <= gap->lower, TIDE_ERR_ARGUMENT, "two gaps of buffer %zu overlap", index);
    items_append(work->pieces, count, (tide__piece){ at, gap->lower, 0, buffer->bytes, buffer->bytes });
    items_append(work->pieces, count,
                 (tide__piece){ gap->lower, gap->upper, gap->first, gap->last, gap->last - gap->first });
    at = gap->upper;
  }
  items_append(work->pieces, count, (tide__piece){ at, buffer->upper, 0, buffer->bytes, buffer->bytes });
  return TIDE_OK;
}

static tide_status items_cut_all(items_work* work, size_t gaps) {
  const size_t count = work->problem->count;
  size_t most = count;
  for (size_t i = 0; i < count; i++) most = tide__max(most, work->problem->buffers[i].gap_count);
  const size_t keys = tide__max(most, 2 * (count + 2 * gaps));  // the ends of all pieces of one item
  work->keys = tide__scratch_alloc(&work->scratch, gaps > 0 ? keys : 2 * count, sizeof *work->keys);
  work->spare = tide__scratch_alloc(&work->scratch, gaps > 0 ? keys : 2 * count, sizeof *work->spare);
  work->pieces = tide__scratch_alloc(&work->scratch, count + 2 * gaps, sizeof *work->pieces);
  work->first_piece = tide__scratch_alloc(&work->scratch, count + 1, sizeof *work->first_piece);
  if (work->scratch.is_short) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %zu buffers", count);
  uint32_t pieces = 0;
  for (size_t i = 0; i < count; i++) {
    work->first_piece[i] = pieces;
    TIDE_TRY(items_cut(work, i, &pieces));
  }
  work->first_piece[count] = pieces;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Buffers that share storage

static uint64_t items_common_alignment(uint64_t a, uint64_t b) {
  uint64_t multiple = 0;
  // Above the largest offset, 0 is the only multiple of any alignment.
  return tide__mul(a / tide__gcd(a, b), b, &multiple) && multiple <= TIDE_PLAN_MAX_BYTES
             ? multiple
             : TIDE_PLAN_MAX_BYTES + 1;
}

static void items_note_pair(tide__items* items, uint32_t buffer, uint32_t other) {
  if (items->proof.reason != TIDE_PLAN_NO_REASON) return;
  items->proof = (tide_plan_proof){ .reason = TIDE_PLAN_PAIR, .buffer = buffer, .other = other };
}

// Adds a buffer to `item`; the first contradiction is recorded.
static void items_join(tide__items* items, const items_work* work, tide__item* item, uint32_t index) {
  const tide_plan_buffer* const buffer = &work->problem->buffers[index];
  if (item->offset == TIDE_PLAN_ANYWHERE) {
    item->offset = buffer->offset;
    item->offset_by = index;
  } else if (buffer->offset != TIDE_PLAN_ANYWHERE && item->offset != buffer->offset) {
    items_note_pair(items, item->offset_by, index);
  }
  if (item->pool == TIDE_PLAN_ANY_POOL) {
    item->pool = buffer->pool;
    item->pool_by = index;
  } else if (buffer->pool != TIDE_PLAN_ANY_POOL && item->pool != buffer->pool) {
    items_note_pair(items, item->pool_by, index);
  }
  const bool holds = work->first_piece[index] < work->first_piece[index + 1];
  if (holds && buffer->bytes > item->bytes) item->bytes = buffer->bytes;
  if (buffer->alignment > 1) item->alignment = items_common_alignment(item->alignment, buffer->alignment);
  if (item->hint == TIDE_PLAN_ANYWHERE) item->hint = buffer->hint;
  items->of_buffer[index] = (uint32_t)(item - items->items);
}

static tide__item* items_begin(tide__items* items, uint32_t index, uint32_t piece) {
  tide__item* const item = &items->items[items->count++];
  *item = (tide__item){ .alignment = 1,
                        .offset = TIDE_PLAN_ANYWHERE,
                        .hint = TIDE_PLAN_ANYWHERE,
                        .pool = TIDE_PLAN_ANY_POOL,
                        .buffer = index,
                        .piece = piece };
  return item;
}

// For painting a union: the instants at which something changes, and three values between each two.
typedef enum items_value { ITEMS_FIRST, ITEMS_LAST, ITEMS_HELD, ITEMS_VALUES } items_value;
typedef struct items_union {
  uint64_t* instants;
  uint64_t* values[ITEMS_VALUES];
  uint32_t* next;
  size_t cells;
} items_union;

static uint32_t items_cell(const items_union* all, uint64_t instant) {
  size_t low = 0;
  size_t high = all->cells;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (all->instants[middle] < instant) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return (uint32_t)low;
}

static uint64_t items_value_of(const tide__piece* piece, items_value value) {
  if (value == ITEMS_FIRST) return piece->first;
  return value == ITEMS_LAST ? piece->last : piece->held;
}

// Gives each cell the lowest `first`, or the greatest of the other values.
static void items_paint(items_work* work, items_union* all, const tide__piece* pieces, size_t count,
                        items_value value) {
  for (uint32_t i = 0; i < count; i++) {
    const uint64_t n = items_value_of(&pieces[i], value);
    work->keys[i] = (tide__keyed){ value == ITEMS_FIRST ? n : ~n, i };
  }
  tide__radix_sort(work->keys, work->spare, count);
  tide__paint_clear(all->next, all->cells);
  for (size_t i = 0; i < count; i++) {
    const tide__piece* const piece = &pieces[work->keys[i].value];
    tide__paint(all->next, all->values[value], items_cell(all, piece->lower), items_cell(all, piece->upper),
                items_value_of(piece, value));
  }
}

static void items_find_instants(items_work* work, items_union* all, const tide__piece* pieces, size_t count) {
  for (size_t i = 0; i < count; i++) {
    work->keys[2 * i] = (tide__keyed){ .key = pieces[i].lower };
    work->keys[2 * i + 1] = (tide__keyed){ .key = pieces[i].upper };
  }
  tide__radix_sort(work->keys, work->spare, 2 * count);
  size_t instants = 0;
  for (size_t i = 0; i < 2 * count; i++) {
    if (i == 0 || work->keys[i].key != work->keys[i - 1].key) all->instants[instants++] = work->keys[i].key;
  }
  all->cells = instants > 0 ? instants - 1 : 0;
}

static tide_status items_union_init(items_union* all, tide__scratch* scratch, size_t count) {
  all->instants = tide__scratch_alloc(scratch, 2 * count + 1, sizeof *all->instants);
  all->next = tide__scratch_alloc(scratch, 2 * count + 2, sizeof *all->next);
  for (unsigned i = 0; i < ITEMS_VALUES; i++) {
    all->values[i] = tide__scratch_alloc(scratch, 2 * count + 1, sizeof *all->values[i]);
  }
  if (!scratch->is_short) return TIDE_OK;
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %zu parts of a storage", count);
}

// Appends a piece, or extends the one before it.
static void items_append_or_extend(tide__piece* pieces, uint32_t* count, tide__piece piece) {
  tide__piece* const before = *count > 0 ? &pieces[*count - 1] : NULL;
  if (before != NULL && before->upper == piece.lower && before->first == piece.first &&
      before->last == piece.last && before->held == piece.held) {
    before->upper = piece.upper;
  } else {
    items_append(pieces, count, piece);
  }
}

// Writes the union of `count` pieces to `out`, which has room for twice as many. Several members may leave
// a part of the range unused; `held` is at least what one of them uses.
static tide_status items_unite(items_work* work, const tide__piece* pieces, size_t count, tide__piece* out,
                               uint32_t* out_count) {
  tide__scratch scratch;
  tide__scratch_init(&scratch, work->scratch.heap);
  items_union all = { .cells = 0 };
  *out_count = 0;
  const tide_status status = items_union_init(&all, &scratch, count);
  if (status == TIDE_OK) {
    items_find_instants(work, &all, pieces, count);
    for (unsigned i = 0; i < ITEMS_VALUES; i++) items_paint(work, &all, pieces, count, (items_value)i);
    for (size_t i = 0; i < all.cells; i++) {
      const tide__piece here = { all.instants[i], all.instants[i + 1], all.values[ITEMS_FIRST][i],
                                 all.values[ITEMS_LAST][i], all.values[ITEMS_HELD][i] };
      items_append_or_extend(out, out_count, here);
    }
  }
  tide__scratch_fini(&scratch);
  return status;
}

// Makes one item of the buffers at keys[first, last), which have the same alias number.
static tide_status items_group(tide__items* items, items_work* work, const tide__keyed* members, size_t count,
                               tide__piece* gathered, uint32_t* pieces) {
  tide__item* const item = items_begin(items, members[0].value, *pieces);
  size_t parts = 0;
  for (size_t i = 0; i < count; i++) {
    const uint32_t index = members[i].value;
    items_join(items, work, item, index);
    for (uint32_t p = work->first_piece[index]; p < work->first_piece[index + 1]; p++) {
      gathered[parts++] = work->pieces[p];
    }
  }
  TIDE_TRY(items_unite(work, gathered, parts, &items->pieces[*pieces], &item->piece_count));
  *pieces += item->piece_count;
  return TIDE_OK;
}

static tide_status items_group_all(tide__items* items, items_work* work, size_t shared, uint32_t* pieces) {
  if (shared == 0) return TIDE_OK;
  tide__keyed* const members = tide__scratch_alloc(&work->scratch, shared, sizeof *members);
  tide__piece* const gathered =
      tide__scratch_alloc(&work->scratch, work->first_piece[work->problem->count], sizeof *gathered);
  if (work->scratch.is_short) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %zu buffers", shared);
  size_t count = 0;
  for (uint32_t i = 0; i < work->problem->count; i++) {
    const uint32_t alias = work->problem->buffers[i].alias;
    if (alias != 0) members[count++] = (tide__keyed){ alias, i };
  }
  tide__radix_sort(members, work->spare, count);
  for (size_t first = 0; first < count;) {
    size_t last = first + 1;
    while (last < count && members[last].key == members[first].key) last++;
    TIDE_TRY(items_group(items, work, &members[first], last - first, gathered, pieces));
    first = last;
  }
  return TIDE_OK;
}

static void items_single(tide__items* items, const items_work* work, uint32_t index, uint32_t* pieces) {
  tide__item* const item = items_begin(items, index, *pieces);
  items_join(items, work, item, index);
  item->piece_count = work->first_piece[index + 1] - work->first_piece[index];
  memcpy(&items->pieces[*pieces], &work->pieces[work->first_piece[index]],
         item->piece_count * sizeof *items->pieces);
  *pieces += item->piece_count;
}

// Records the first item whose fixed offset contradicts its alignment.
static void items_check_fixed(tide__items* items) {
  for (size_t i = 0; i < items->count && items->proof.reason == TIDE_PLAN_NO_REASON; i++) {
    const tide__item* const item = &items->items[i];
    if (item->offset == TIDE_PLAN_ANYWHERE || item->offset % item->alignment == 0) continue;
    items->proof = (tide_plan_proof){ .reason = TIDE_PLAN_BUFFER, .buffer = item->buffer };
  }
}

// ---------------------------------------------------------------------------------------------------

static tide_status items_build(tide__items* items, items_work* work) {
  size_t gaps = 0;
  TIDE_TRY(items_check(work->problem, &gaps));
  TIDE_TRY(items_cut_all(work, gaps));
  const size_t count = work->problem->count;
  size_t shared = 0;
  for (size_t i = 0; i < count; i++) shared += work->problem->buffers[i].alias != 0;
  items->items = tide__scratch_alloc(&items->scratch, count, sizeof *items->items);
  items->of_buffer = tide__scratch_alloc(&items->scratch, count, sizeof *items->of_buffer);
  items->pieces = tide__scratch_alloc(
      &items->scratch, (size_t)work->first_piece[count] * (shared > 0 ? 2 : 1), sizeof *items->pieces);
  if (items->scratch.is_short) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %zu buffers", count);
  uint32_t pieces = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (work->problem->buffers[i].alias == 0) items_single(items, work, i, &pieces);
  }
  TIDE_TRY(items_group_all(items, work, shared, &pieces));
  items_check_fixed(items);
  return TIDE_OK;
}

tide_status tide__items_init(tide__items* items, const tide_plan_problem* problem, const tide_heap* heap) {
  *items = (tide__items){ .count = 0 };
  tide__scratch_init(&items->scratch, heap);
  items_work work = { .problem = problem };
  tide__scratch_init(&work.scratch, heap);
  const tide_status status = items_build(items, &work);
  tide__scratch_fini(&work.scratch);
  return status;
}

void tide__items_fini(tide__items* items) { tide__scratch_fini(&items->scratch); }
