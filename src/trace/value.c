// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Interned plain data. A value is a word of {kind, depth, weight}, followed by one word, or one for each
// item. Items are interned before, so a value cannot contain itself, and its depth and its weight (the number
// of its parts if written out) are known when it is added.
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "trace/intern.h"

#define VALUE_DEPTH_MAX 64u
#define VALUE_WEIGHT_MAX ((uint64_t)1 << 32)
#define VALUE_WORDS_NEAR 34u  // values up to this size are built on the stack

static uint64_t value_head(uint32_t kind, uint64_t depth, uint64_t weight) {
  return kind | depth << 8 | tide__min(weight, VALUE_WEIGHT_MAX) << 16;
}
static uint32_t head_kind(uint64_t head) { return (uint32_t)(head & 0xff); }
static uint64_t head_depth(uint64_t head) { return head >> 8 & 0xff; }
static uint64_t head_weight(uint64_t head) { return head >> 16; }

// The words of a value, or NULL.
static const uint64_t* value_find(const tide_intern* names, uint32_t id, size_t* out_count) {
  size_t bytes = 0;
  const uint64_t* const words = tide__intern_find(names, TIDE__INTERN_VALUE, id, &bytes);
  if (out_count != NULL) *out_count = bytes / sizeof *words;
  return words;
}

static bool value_has_items(uint32_t kind) {
  return kind == TIDE_VALUE_LIST || kind == TIDE_VALUE_TUPLE || kind == TIDE_VALUE_DICT;
}

static bool value_has_word(uint32_t kind) { return kind != TIDE_VALUE_NONE && !value_has_items(kind); }

// The word of a value without items.
static uint64_t value_word(const tide_value* value) {
  uint64_t bits = 0;
  switch (value->kind) {
    case TIDE_VALUE_BOOL: return value->integer != 0;
    case TIDE_VALUE_TEXT: return value->text;
    case TIDE_VALUE_FLOAT: memcpy(&bits, &value->number, sizeof bits); return bits;
    default: return (uint64_t)value->integer;
  }
}

static int word_compare(const void* a, const void* b) {
  const uint64_t left = *(const uint64_t*)a >> 32;
  const uint64_t right = *(const uint64_t*)b >> 32;
  return (left > right) - (left < right);
}

// Does a key occur twice? Sorts the items.
static bool value_repeats_a_key(uint64_t* items, size_t count) {
  qsort(items, count, sizeof *items, word_compare);
  for (size_t i = 1; i < count; i++) {
    if (items[i - 1] >> 32 == items[i] >> 32) return true;
  }
  return false;
}

// The head of a value with items, which must exist.
static tide_status value_weigh(const tide_intern* names, const tide_value* value, uint64_t* out_head) {
  uint64_t depth = 0;
  uint64_t weight = 1;
  for (size_t i = 0; i < value->count; i++) {
    const uint64_t* const item = value_find(names, (uint32_t)value->items[i], NULL);
    const bool is_known = item != NULL && (value->kind == TIDE_VALUE_DICT || value->items[i] >> 32 == 0);
    TIDE_REQUIRE(is_known, TIDE_ERR_ARGUMENT, "intern_add_value: item %zu is not a value", i);
    depth = tide__max(depth, head_depth(item[0]));
    weight = tide__min(weight + head_weight(item[0]), VALUE_WEIGHT_MAX);
  }
  TIDE_REQUIRE(depth < VALUE_DEPTH_MAX, TIDE_ERR_LIMIT, "intern_add_value: nested deeper than %u",
               VALUE_DEPTH_MAX);
  *out_head = value_head(value->kind, depth + 1, weight);
  return TIDE_OK;
}

// Adds a value with items; `words` has room for them and one more.
static tide_status value_add_items(tide_intern* names, const tide_value* value, uint64_t* words,
                                   uint32_t* out) {
  const size_t bytes = value->count * sizeof *words;
  if (value->kind == TIDE_VALUE_DICT) {
    if (bytes > 0) memcpy(words, value->items, bytes);
    TIDE_REQUIRE(!value_repeats_a_key(words, value->count), TIDE_ERR_ARGUMENT,
                 "intern_add_value: a key occurs twice");
  }
  TIDE_TRY(value_weigh(names, value, &words[0]));
  if (bytes > 0) memcpy(&words[1], value->items, bytes);
  return tide__intern_add(names, TIDE__INTERN_VALUE, words, sizeof *words + bytes, 0, out);
}

tide_status tide_intern_add_value(tide_intern* names, const tide_value* value, uint32_t* out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "intern_add_value: out is NULL");
  *out = 0;
  TIDE_REQUIRE(names != NULL && value != NULL, TIDE_ERR_ARGUMENT, "intern_add_value: an argument is NULL");
  TIDE_REQUIRE(value->kind < TIDE_VALUE_KIND_COUNT, TIDE_ERR_ARGUMENT, "intern_add_value: %u is not a kind",
               value->kind);
  uint64_t near[VALUE_WORDS_NEAR];
  if (!value_has_items(value->kind)) {
    near[0] = value_head(value->kind, 1, 1);
    near[1] = value_word(value);
    return tide__intern_add(names, TIDE__INTERN_VALUE, near,
                            (value_has_word(value->kind) ? 2 : 1) * sizeof *near, 0, out);
  }
  TIDE_REQUIRE(value->count == 0 || value->items != NULL, TIDE_ERR_ARGUMENT,
               "intern_add_value: items is NULL");
  if (value->count < VALUE_WORDS_NEAR) return value_add_items(names, value, near, out);
  uint64_t* const far = tide__heap_alloc(tide__intern_heap(names), value->count + 1, sizeof *far);
  TIDE_REQUIRE(far != NULL, TIDE_ERR_NO_MEMORY, "intern_add_value: no memory for %zu items", value->count);
  const tide_status status = value_add_items(names, value, far, out);
  tide__heap_release(tide__intern_heap(names), far, value->count + 1, sizeof *far);
  return status;
}

tide_value tide_intern_value(const tide_intern* names, uint32_t id) {
  tide_value value = { 0 };
  size_t count = 0;
  const uint64_t* const words = value_find(names, id, &count);
  if (words == NULL) return value;
  value.kind = head_kind(words[0]);
  if (value_has_items(value.kind)) {
    value.items = words + 1;
    value.count = count - 1;
  } else if (value.kind == TIDE_VALUE_FLOAT) {
    memcpy(&value.number, &words[1], sizeof value.number);
  } else if (value.kind == TIDE_VALUE_TEXT) {
    value.text = (uint32_t)words[1];
  } else if (value.kind != TIDE_VALUE_NONE) {
    value.integer = (int64_t)words[1];
  }
  return value;
}

uint64_t tide_intern_value_weight(const tide_intern* names, uint32_t id) {
  const uint64_t* const words = value_find(names, id, NULL);
  return words != NULL ? head_weight(words[0]) : 0;
}

uint32_t tide_intern_value_find(const tide_intern* names, uint32_t dict, const char* key) {
  const tide_value value = tide_intern_value(names, dict);
  if (value.kind != TIDE_VALUE_DICT || key == NULL) return 0;
  const size_t bytes = strlen(key);
  for (size_t i = 0; i < value.count; i++) {
    size_t length = 0;
    const char* const text = tide_intern_text(names, (uint32_t)(value.items[i] >> 32), &length);
    if (length == bytes && (bytes == 0 || memcmp(text, key, bytes) == 0)) return (uint32_t)value.items[i];
  }
  return 0;
}
