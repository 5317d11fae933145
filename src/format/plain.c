// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parts of a snapshot as plain data: lists, tuples and dicts of what the trace has no field for, put together
// on the assembler's second stack and interned. Frames and call stacks become plain data again where that is
// asked for.
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "format/record.h"
#include "format/schema.h"

#define UNFOLD_SHARE 2u  // parts for each byte of the file
#define UNFOLD_MIN ((uint64_t)1 << 16)

tide__item tide__value_item(const tide_intern* names, uint32_t id) {
  const tide_value value = tide_intern_value(names, id);
  switch (value.kind) {
    case TIDE_VALUE_NONE: return (tide__item){ .kind = TIDE__ITEM_NONE };
    case TIDE_VALUE_BOOL: return (tide__item){ .kind = TIDE__ITEM_BOOL, .as.integer = value.integer };
    case TIDE_VALUE_INT: return (tide__item){ .kind = TIDE__ITEM_INT, .as.integer = value.integer };
    case TIDE_VALUE_UINT: return (tide__item){ .kind = TIDE__ITEM_UINT, .as.integer = value.integer };
    case TIDE_VALUE_FLOAT: return (tide__item){ .kind = TIDE__ITEM_FLOAT, .as.number = value.number };
    case TIDE_VALUE_TEXT: return (tide__item){ .kind = TIDE__ITEM_TEXT, .id = value.text };
    default: return (tide__item){ .kind = TIDE__ITEM_VALUE, .id = id };
  }
}

static tide_status value_add(tide__assembler* a, const tide_value* value, uint32_t* out) {
  const tide_status status = tide_intern_add_value(a->names, value, out);
  if (status == TIDE_ERR_LIMIT) return TIDE__FILE_FAIL(a, "%s", tide_last_error()->text);
  return status;
}

tide_status tide__unshare(tide__assembler* a, size_t parts) {
  a->unfolded += parts;
  if (a->unfolded / UNFOLD_SHARE <= a->offset + UNFOLD_MIN) return TIDE_OK;
  return TIDE__FILE_FAIL(a, "shared parts are used %llu times, too often for the length of the file",
                         (unsigned long long)a->unfolded);
}

// Pops the words from `begin` on and makes them a value.
static tide_status words_value(tide__assembler* a, tide_value_kind kind, size_t begin, uint32_t* out) {
  const tide_value value = { .kind = kind, .items = a->words + begin, .count = a->word_count - begin };
  a->word_count = begin;
  return value_add(a, &value, out);
}

tide_status tide__words_add_pair(tide__assembler* a, uint32_t key, const tide__item* item) {
  uint32_t value = 0;
  TIDE_TRY(tide__item_value(a, item, &value));
  return tide__assembler_word(a, (uint64_t)key << 32 | value);
}

static tide_status words_add_text(tide__assembler* a, uint32_t key, uint32_t text) {
  return tide__words_add_pair(a, key, &(tide__item){ .kind = TIDE__ITEM_TEXT, .id = text });
}

static tide_status frame_value(tide__assembler* a, uint32_t id, uint32_t* out) {
  const tide_frame frame = tide_intern_frame(a->names, id);
  const tide_value extra = tide_intern_value(a->names, frame.extra);
  const size_t begin = a->word_count;
  if (!(frame.absent & TIDE_FRAME_NAME)) TIDE_TRY(words_add_text(a, TIDE__WORD_NAME, frame.name));
  if (!(frame.absent & TIDE_FRAME_FILE)) TIDE_TRY(words_add_text(a, TIDE__WORD_FILENAME, frame.file));
  if (!(frame.absent & TIDE_FRAME_LINE)) {
    const tide__item line = { .kind = TIDE__ITEM_INT, .as.integer = frame.line };
    TIDE_TRY(tide__words_add_pair(a, TIDE__WORD_LINE, &line));
  }
  for (size_t i = 0; i < extra.count; i++) TIDE_TRY(tide__assembler_word(a, extra.items[i]));
  return words_value(a, TIDE_VALUE_DICT, begin, out);
}

static tide_status stack_value(tide__assembler* a, uint32_t id, uint32_t* out) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(a->names, id, &count);
  const size_t begin = a->word_count;
  TIDE_TRY(tide__unshare(a, count));
  for (size_t i = 0; i < count; i++) {
    uint32_t value = 0;
    TIDE_TRY(frame_value(a, (uint32_t)frames[i], &value));
    TIDE_TRY(tide__assembler_word(a, value));
  }
  return words_value(a, TIDE_VALUE_LIST, begin, out);
}

tide_status tide__item_value(tide__assembler* a, const tide__item* item, uint32_t* out) {
  tide_value value = { .integer = item->as.integer };
  switch (item->kind) {
    case TIDE__ITEM_VALUE: *out = item->id; return TIDE_OK;
    case TIDE__ITEM_NONE: value.kind = TIDE_VALUE_NONE; break;
    case TIDE__ITEM_BOOL: value.kind = TIDE_VALUE_BOOL; break;
    case TIDE__ITEM_INT: value.kind = TIDE_VALUE_INT; break;
    case TIDE__ITEM_UINT: value.kind = TIDE_VALUE_UINT; break;
    case TIDE__ITEM_FLOAT: value = (tide_value){ .kind = TIDE_VALUE_FLOAT, .number = item->as.number }; break;
    case TIDE__ITEM_TEXT: value = (tide_value){ .kind = TIDE_VALUE_TEXT, .text = item->id }; break;
    default:
      if (item->role == TIDE__ROLE_FRAME) return frame_value(a, item->id, out);
      if (item->role == TIDE__ROLE_STACK) return stack_value(a, item->id, out);
      return TIDE__FILE_FAIL(a, "%s is not allowed here", tide__item_name(item));
  }
  return value_add(a, &value, out);
}

// ---------------------------------------------------------------------------------------------------
// Repeated keys: the last one counts

typedef struct placed_pair {
  uint64_t pair;
  size_t place;
} placed_pair;

static int placed_by_key(const void* a, const void* b) {
  const placed_pair* const left = a;
  const placed_pair* const right = b;
  if (left->pair >> 32 != right->pair >> 32) return left->pair >> 32 < right->pair >> 32 ? -1 : 1;
  return left->place < right->place ? -1 : 1;
}

static int placed_by_place(const void* a, const void* b) {
  const placed_pair* const left = a;
  const placed_pair* const right = b;
  return left->place < right->place ? -1 : 1;
}

static size_t pairs_drop_repeated(placed_pair* pairs, size_t count) {
  size_t kept = 0;
  qsort(pairs, count, sizeof *pairs, placed_by_key);
  for (size_t i = 0; i < count; i++) {
    const bool is_last = i + 1 == count || pairs[i].pair >> 32 != pairs[i + 1].pair >> 32;
    if (is_last) pairs[kept++] = pairs[i];
  }
  qsort(pairs, kept, sizeof *pairs, placed_by_place);
  return kept;
}

static bool words_repeat_a_key(const uint64_t* words, size_t count) {
  for (size_t i = 1; i < count; i++) {
    for (size_t k = 0; k < i; k++) {
      if (words[i] >> 32 == words[k] >> 32) return true;
    }
  }
  return false;
}

// Removes repeated keys from the words from `begin` on. Few words are compared, many are sorted.
static tide_status words_keep_last(tide__assembler* a, size_t begin) {
  uint64_t* const words = a->words + begin;
  const size_t count = a->word_count - begin;
  if (count <= 32 && !words_repeat_a_key(words, count)) return TIDE_OK;
  placed_pair* const pairs = tide__heap_alloc(a->heap, count, sizeof *pairs);
  TIDE_REQUIRE(pairs != NULL, TIDE_ERR_NO_MEMORY, "%s: no memory for a dict of %zu keys", a->format, count);
  for (size_t i = 0; i < count; i++) pairs[i] = (placed_pair){ words[i], i };
  const size_t kept = pairs_drop_repeated(pairs, count);
  for (size_t i = 0; i < kept; i++) words[i] = pairs[i].pair;
  a->word_count = begin + kept;
  tide__heap_release(a->heap, pairs, count, sizeof *pairs);
  return TIDE_OK;
}

tide_status tide__words_extra(tide__assembler* a, size_t begin, uint32_t* out) {
  *out = 0;
  if (a->word_count == begin) return TIDE_OK;
  TIDE_TRY(words_keep_last(a, begin));
  return words_value(a, TIDE_VALUE_DICT, begin, out);
}

tide_status tide__pack_plain(tide__assembler* a, const tide__open* open, tide__item* out) {
  const size_t begin = a->word_count;
  const size_t step = open->is_dict ? 2 : 1;
  for (size_t i = 0; i + step <= open->count; i += step) {
    if (open->is_dict) {
      TIDE_TRY(tide__words_add_pair(a, open->items[i].id, &open->items[i + 1]));
    } else {
      uint32_t value = 0;
      TIDE_TRY(tide__item_value(a, &open->items[i], &value));
      TIDE_TRY(tide__assembler_word(a, value));
    }
  }
  *out = (tide__item){ .kind = TIDE__ITEM_VALUE };
  if (open->is_dict) TIDE_TRY(words_keep_last(a, begin));
  const tide_value_kind other = open->is_tuple ? TIDE_VALUE_TUPLE : TIDE_VALUE_LIST;
  return words_value(a, open->is_dict ? TIDE_VALUE_DICT : other, begin, &out->id);
}
