// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Rows as columns of bytes. Both directions use an array with the values of one column: gather, check,
// encode; or decode, check, scatter. Both use the same check, so everything that is written can be read.
//
// Cost: O(rows) for each column.
#include "format/columns.h"

#include <inttypes.h>
#include <string.h>

#include "base/arith.h"
#include "base/check.h"
#include "base/error.h"
#include "base/heap.h"

// ---------------------------------------------------------------------------------------------------
// The tables. Their order and the order of their columns are the format.

#define COLUMN(type, field, rule) \
  { #field, offsetof(type, field), sizeof(((type*)0)->field), TIDE__COLUMN_##rule }
#define TABLE(name, type, columns) \
  { name, sizeof(type), columns, sizeof(columns) / sizeof((columns)[0]) }

static const tide__column entry_columns[] = {
  COLUMN(tide_trace_entry, action, ACTION), COLUMN(tide_trace_entry, device, ANY),
  COLUMN(tide_trace_entry, time_ns, ANY),   COLUMN(tide_trace_entry, address, ANY),
  COLUMN(tide_trace_entry, bytes, ANY),     COLUMN(tide_trace_entry, stream, ANY),
  COLUMN(tide_trace_entry, stack, STACK),   COLUMN(tide_trace_entry, note, NOTE),
  COLUMN(tide_trace_entry, pool, POOL),     COLUMN(tide_trace_entry, absent, ANY),
};

static const tide__column segment_columns[] = {
  COLUMN(tide_trace_segment, is_large, BOOL),       COLUMN(tide_trace_segment, is_expandable, BOOL),
  COLUMN(tide_trace_segment, device, ANY),          COLUMN(tide_trace_segment, address, ANY),
  COLUMN(tide_trace_segment, bytes, ANY),           COLUMN(tide_trace_segment, stream, ANY),
  COLUMN(tide_trace_segment, allocated_bytes, ANY), COLUMN(tide_trace_segment, active_bytes, ANY),
  COLUMN(tide_trace_segment, requested_bytes, ANY), COLUMN(tide_trace_segment, block_count, ANY),
  COLUMN(tide_trace_segment, stack, STACK),         COLUMN(tide_trace_segment, pool, POOL),
  COLUMN(tide_trace_segment, extra, DICT),          COLUMN(tide_trace_segment, absent, ANY),
};

static const tide__column block_columns[] = {
  COLUMN(tide_trace_block, state, STATE), COLUMN(tide_trace_block, address, ANY),
  COLUMN(tide_trace_block, bytes, ANY),   COLUMN(tide_trace_block, requested_bytes, ANY),
  COLUMN(tide_trace_block, stack, STACK), COLUMN(tide_trace_block, extra, DICT),
  COLUMN(tide_trace_block, absent, ANY),
};

const tide__table tide__table_entries = TABLE("entry", tide_trace_entry, entry_columns);
const tide__table tide__table_segments = TABLE("segment", tide_trace_segment, segment_columns);
const tide__table tide__table_blocks = TABLE("block", tide_trace_block, block_columns);

// ---------------------------------------------------------------------------------------------------
// Checks

tide__known tide__known_of(const tide_trace* trace) {
  tide__known known = { .names = tide_trace_names(trace) };
  known.counts = tide_intern_counts_of(known.names);
  known.limits[TIDE__COLUMN_ANY] = UINT64_MAX;
  known.limits[TIDE__COLUMN_ACTION] = TIDE_ACTION_COUNT - 1;
  known.limits[TIDE__COLUMN_BOOL] = 1;
  known.limits[TIDE__COLUMN_STATE] = TIDE_BLOCK_PENDING;
  known.limits[TIDE__COLUMN_STACK] = known.counts.stacks;
  known.limits[TIDE__COLUMN_NOTE] = known.counts.notes;
  known.limits[TIDE__COLUMN_POOL] = tide_trace_pool_count(trace) - 1;
  known.limits[TIDE__COLUMN_DICT] = known.counts.values;
  return known;
}

bool tide__known_is_extra(const tide__known* known, uint64_t number) {
  if (number == 0) return true;
  return number <= known->counts.values &&
         tide_intern_value(known->names, (uint32_t)number).kind == TIDE_VALUE_DICT;
}

// The index of the first invalid value; `count` if all are valid.
static size_t column_find_wrong(const tide__column* column, const tide__known* known, const uint64_t* values,
                                size_t count) {
  const uint64_t limit = tide__min(known->limits[column->rule], UINT64_MAX >> (64 - 8 * column->bytes));
  uint64_t largest = 0;
  size_t i = 0;
  if (limit == UINT64_MAX) return count;
  for (size_t k = 0; k < count; k++) largest = tide__max(largest, values[k]);
  if (largest > limit) {
    while (values[i] <= limit) i++;
    return i;
  }
  if (column->rule != TIDE__COLUMN_DICT || largest == 0) return count;
  while (i < count && tide__known_is_extra(known, values[i])) i++;
  return i;
}

// ---------------------------------------------------------------------------------------------------
// Between rows and values

void tide__values_fini(tide__values* values) {
  tide__heap_release(values->heap, values->items, values->room, sizeof *values->items);
}

tide_status tide__values_reserve(tide__values* values, size_t count) {
  void* items = values->items;
  const bool is_grown = tide__heap_grow(values->heap, &items, &values->room, count, sizeof *values->items);
  TIDE_REQUIRE(is_grown, TIDE_ERR_NO_MEMORY, "native: no memory for a column of %zu values", count);
  values->items = items;
  return TIDE_OK;
}

#define COLUMN_GATHER(type)                                \
  for (size_t i = 0; i < count; i++, field += row_bytes) { \
    type value;                                            \
    memcpy(&value, field, sizeof value);                   \
    values[i] = value;                                     \
  }
#define COLUMN_SCATTER(type)                               \
  for (size_t i = 0; i < count; i++, field += row_bytes) { \
    const type value = (type)values[i];                    \
    memcpy(field, &value, sizeof value);                   \
  }

static void column_gather(const tide__column* column, size_t row_bytes, const void* rows, size_t count,
                          uint64_t* values) {
  const char* field = (const char*)rows + column->offset;
  switch (column->bytes) {
    case 1: COLUMN_GATHER(uint8_t) break;
    case 2: COLUMN_GATHER(uint16_t) break;
    case 4: COLUMN_GATHER(uint32_t) break;
    default: COLUMN_GATHER(uint64_t) break;
  }
}

static void column_scatter(const tide__column* column, size_t row_bytes, const uint64_t* values, size_t count,
                           void* rows) {
  char* field = (char*)rows + column->offset;
  switch (column->bytes) {
    case 1: COLUMN_SCATTER(uint8_t) break;
    case 2: COLUMN_SCATTER(uint16_t) break;
    case 4: COLUMN_SCATTER(uint32_t) break;
    default: COLUMN_SCATTER(uint64_t) break;
  }
}

// ---------------------------------------------------------------------------------------------------
// From values to bytes

static uint64_t odd_gcd(uint64_t a, uint64_t b) {
  while (b != 0) {
    const uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// The largest number that divides all differences; 0 if all are 0. Its power of two and its odd part are
// found separately: in most columns the odd part is 1 after a few values, and costs nothing from then on.
static uint64_t column_unit(const uint64_t* values, size_t count) {
  uint64_t all_bits = 0;
  uint64_t odd = 0;
  for (size_t i = 1; i < count; i++) {
    const uint64_t change = values[i] - values[i - 1];
    all_bits |= change;
    if (odd == 1 || change == 0) continue;
    const uint64_t size = change >> 63 ? 0 - change : change;
    const uint64_t odd_size = size >> __builtin_ctzll(size);
    if (odd == 0 || odd_size % odd != 0) odd = odd_gcd(odd, odd_size);
  }
  return all_bits == 0 ? 0 : odd << __builtin_ctzll(all_bits);
}

// The inverse of an odd number modulo 2^64, by Newton's method: three bits are right at first, and each step
// doubles their number.
static uint64_t odd_inverse(uint64_t odd) {
  uint64_t inverse = odd;
  for (int bits = 3; bits < 64; bits *= 2) inverse *= 2 - odd * inverse;
  return inverse;
}

// The unit divides every difference, so a division is a shift and a multiplication with the inverse.
static tide_status column_put(const uint64_t* values, size_t count, tide__bytes* to) {
  TIDE_TRY(tide__bytes_reserve(to, (count + 2) * TIDE__UINT_BYTES_MAX));
  const uint64_t unit = column_unit(values, count);
  tide__bytes_put_uint(to, values[0]);
  tide__bytes_put_uint(to, unit);
  if (unit == 0) return TIDE_OK;
  const int shift = __builtin_ctzll(unit);
  const uint64_t inverse = odd_inverse(unit >> shift);
  uint8_t* at = to->data + to->used;
  for (size_t i = 1; i < count; i++) {
    const int64_t change = (int64_t)(values[i] - values[i - 1]);
    at = tide__store_uint(at, tide__zigzag((int64_t)((uint64_t)(change >> shift) * inverse)));
  }
  to->used = (size_t)(at - to->data);
  return TIDE_OK;
}

static tide_status column_put_plain(const uint64_t* values, size_t count, tide__bytes* to) {
  TIDE_TRY(tide__bytes_reserve(to, count));
  for (size_t i = 0; i < count; i++) tide__bytes_put_byte(to, (uint8_t)values[i]);
  return TIDE_OK;
}

tide_status tide__table_put(const tide__table* table, const tide__known* known, const void* rows,
                            size_t count, tide__values* values, tide__bytes* to) {
  if (count == 0) return TIDE_OK;
  TIDE_TRY(tide__values_reserve(values, count));
  for (size_t k = 0; k < table->column_count; k++) {
    const tide__column* const column = &table->columns[k];
    column_gather(column, table->row_bytes, rows, count, values->items);
    const size_t wrong = column_find_wrong(column, known, values->items, count);
    TIDE_REQUIRE(wrong == count, TIDE_ERR_ARGUMENT,
                 "trace_write: %s %zu has %s %" PRIu64 ", which does not exist", table->name, wrong,
                 column->name, values->items[wrong]);
    TIDE_TRY(k == 0 ? column_put_plain(values->items, count, to) : column_put(values->items, count, to));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// From bytes to values

// Most differences have one byte or two.
static tide_status column_take(tide__cursor* from, uint64_t* values, size_t count) {
  uint64_t first = 0;
  uint64_t unit = 0;
  TIDE_TRY(tide__cursor_uint(from, &first));
  TIDE_TRY(tide__cursor_uint(from, &unit));
  for (size_t i = 0; i < count; i++) values[i] = first;
  const uint8_t* at = from->at;
  for (size_t i = 1; i < count && unit != 0; i++) {
    uint64_t folded = 0;
    if (from->end - at >= 2 && at[0] < 0x80) {
      folded = *at++;
    } else if (from->end - at >= 2 && at[1] < 0x80) {
      folded = (at[0] & 0x7fu) | (uint64_t)at[1] << 7;
      at += 2;
    } else {
      from->at = at;
      TIDE_TRY(tide__cursor_uint(from, &folded));
      at = from->at;
    }
    values[i] = values[i - 1] + unit * (uint64_t)tide__unzigzag(folded);
  }
  from->at = at;
  return TIDE_OK;
}

static tide_status column_take_plain(tide__cursor* from, uint64_t* values, size_t count) {
  const uint8_t* bytes = NULL;
  TIDE_TRY(tide__cursor_bytes(from, count, &bytes));
  for (size_t i = 0; i < count; i++) values[i] = bytes[i];
  return TIDE_OK;
}

tide_status tide__table_take(const tide__table* table, const tide__known* known, tide__cursor* from,
                             size_t count, tide__values* values, void* rows) {
  if (count == 0) return TIDE_OK;
  TIDE_TRY(tide__values_reserve(values, count));
  for (size_t k = 0; k < table->column_count; k++) {
    const tide__column* const column = &table->columns[k];
    const uint64_t offset = tide__cursor_offset(from);
    TIDE_TRY(k == 0 ? column_take_plain(from, values->items, count)
                    : column_take(from, values->items, count));
    const size_t wrong = column_find_wrong(column, known, values->items, count);
    TIDE_REQUIRE(wrong == count, TIDE_ERR_FORMAT,
                 "native: byte %" PRIu64 ": %s %zu of this column has the invalid %s %" PRIu64, offset,
                 table->name, wrong, column->name, values->items[wrong]);
    column_scatter(column, table->row_bytes, values->items, count, rows);
  }
  return TIDE_OK;
}
