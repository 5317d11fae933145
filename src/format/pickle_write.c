// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes a snapshot as a pickle for PyTorch's tools and viewers: protocol 4 without frames, only instructions
// that the viewers know, and at most 1000 items appended to a list or dict at once. Texts, call stacks and
// frames are written once and then referred to.
#include <inttypes.h>

#include "base/error.h"
#include "base/heap.h"
#include "format/decode.h"
#include "format/numbers.h"
#include "format/snapshot_write.h"
#include "trace/limit.h"

#define PICKLE_BATCH 1000u
#define PICKLE_TUPLE 3u   // items of a tuple that needs no mark
#define PICKLE_DEPTH 80u  // of lists and dicts; plain data has 64, a snapshot some more

// Memo numbers + 1 of words, texts, stacks, frames and values; 0: not written yet.
typedef struct pickle_numbers {
  uint32_t* numbers;  // owned
  size_t count;
} pickle_numbers;

typedef struct pickler {
  tide__encoder e;  // first, so that one leads to the other
  uint32_t words[TIDE__WORD_COUNT];
  pickle_numbers texts;
  pickle_numbers shared[TIDE__SHARED_KINDS];
  uint32_t memo_count;
  uint32_t pending[PICKLE_DEPTH];  // items since the last mark
  uint8_t kinds[PICKLE_DEPTH];
  size_t depth;
} pickler;

static void put(pickler* p, uint8_t byte) { tide__output_byte(p->e.output, byte); }

static void put_little(pickler* p, uint64_t number, size_t bytes) {
  uint8_t text[8];
  tide__store_fixed(text, number, bytes);
  tide__output_bytes(p->e.output, text, bytes);
}

// ---------------------------------------------------------------------------------------------------
// Lists and dicts, in batches

static void batch_end(pickler* p, size_t level) {
  if (p->pending[level] > 0) put(p, p->kinds[level] == TIDE_VALUE_DICT ? 'u' : 'e');
  p->pending[level] = 0;
}

// Called before each item; in a dict, before each key and each value.
static void item_begin(pickler* p) {
  if (p->depth == 0 || p->kinds[p->depth - 1] == TIDE_VALUE_TUPLE) return;
  const size_t level = p->depth - 1;
  const bool is_dict = p->kinds[level] == TIDE_VALUE_DICT;
  if (p->pending[level] == PICKLE_BATCH * (is_dict ? 2 : 1)) batch_end(p, level);
  if (p->pending[level]++ == 0) put(p, '(');
}

static void pickle_open(tide__encoder* e, tide_value_kind kind, size_t count) {
  pickler* const p = (pickler*)e;
  item_begin(p);
  if (p->depth == PICKLE_DEPTH) {
    tide__output_fail(e->output, TIDE_FAIL(TIDE_ERR_LIMIT, "pickle: nested deeper than %u", PICKLE_DEPTH));
    return;
  }
  if (kind == TIDE_VALUE_LIST) put(p, ']');
  if (kind == TIDE_VALUE_DICT) put(p, '}');
  if (kind == TIDE_VALUE_TUPLE && count > PICKLE_TUPLE) put(p, '(');
  p->kinds[p->depth] = (uint8_t)kind;
  p->pending[p->depth++] = 0;
}

static void pickle_close(tide__encoder* e, tide_value_kind kind, size_t count) {
  pickler* const p = (pickler*)e;
  if (p->depth == 0) return;  // it was not opened
  p->depth--;
  if (kind != TIDE_VALUE_TUPLE) batch_end(p, p->depth);
  else put(p, count > PICKLE_TUPLE ? 't' : count == 0 ? ')' : (uint8_t)(0x84 + count));
}

// ---------------------------------------------------------------------------------------------------
// References

static void memo_get(pickler* p, uint32_t number) {
  put(p, number <= UINT8_MAX ? 'h' : 'j');
  put_little(p, number, number <= UINT8_MAX ? 1 : 4);
}

static void memo_put(pickler* p, uint32_t* number) {
  put(p, 0x94);
  *number = ++p->memo_count;
}

static bool pickle_shared(tide__encoder* e, int kind, uint32_t id) {
  pickler* const p = (pickler*)e;
  const uint32_t number = id < p->shared[kind].count ? p->shared[kind].numbers[id] : 0;
  if (number == 0) return false;
  item_begin(p);
  memo_get(p, number - 1);
  return true;
}

static void pickle_shared_end(tide__encoder* e, int kind, uint32_t id) {
  pickler* const p = (pickler*)e;
  if (id < p->shared[kind].count) memo_put(p, &p->shared[kind].numbers[id]);
}

// ---------------------------------------------------------------------------------------------------
// Texts and numbers

static void text_put(pickler* p, const char* text, size_t bytes, uint32_t* number) {
  item_begin(p);
  if (*number != 0) {
    memo_get(p, *number - 1);
    return;
  }
  if (bytes > UINT32_MAX) {
    tide__output_fail(p->e.output, TIDE_FAIL(TIDE_ERR_LIMIT, "pickle: a text of %zu bytes", bytes));
    return;
  }
  put(p, bytes <= UINT8_MAX ? 0x8c : 'X');
  put_little(p, bytes, bytes <= UINT8_MAX ? 1 : 4);
  tide__output_bytes(p->e.output, text, bytes);
  memo_put(p, number);
}

static void pickle_word(tide__encoder* e, tide__word word) {
  const char* const text = tide__word_text(word);
  text_put((pickler*)e, text, strlen(text), &((pickler*)e)->words[word]);
}

static void pickle_text_of(tide__encoder* e, uint32_t id) {
  pickler* const p = (pickler*)e;
  size_t bytes = 0;
  const char* const text = tide_intern_text(e->names, id, &bytes);
  text_put(p, text, bytes, &p->texts.numbers[id < p->texts.count ? id : 0]);
}

static void int_put(pickler* p, int64_t number) {
  item_begin(p);
  if (number >= 0 && number <= UINT16_MAX) {
    put(p, number <= UINT8_MAX ? 'K' : 'M');
    put_little(p, (uint64_t)number, number <= UINT8_MAX ? 1 : 2);
  } else if (number >= INT32_MIN && number <= INT32_MAX) {
    put(p, 'J');
    put_little(p, (uint64_t)number, 4);
  } else {
    put(p, 0x8a);
    put(p, 8);
    put_little(p, (uint64_t)number, 8);
  }
}

static void pickle_uint_of(tide__encoder* e, uint64_t number) {
  pickler* const p = (pickler*)e;
  if (number <= INT64_MAX) {
    int_put(p, (int64_t)number);
    return;
  }
  item_begin(p);
  put(p, 0x8a);
  put(p, 9);
  put_little(p, number, 8);
  put(p, 0);
}

static void pickle_scalar(tide__encoder* e, const tide_value* value) {
  pickler* const p = (pickler*)e;
  uint64_t bits = 0;
  switch (value->kind) {
    case TIDE_VALUE_INT: int_put(p, value->integer); return;
    case TIDE_VALUE_UINT: pickle_uint_of(e, (uint64_t)value->integer); return;
    case TIDE_VALUE_BOOL:
      item_begin(p);
      put(p, value->integer ? 0x88 : 0x89);
      return;
    case TIDE_VALUE_NONE:
      item_begin(p);
      put(p, 'N');
      return;
    default: break;
  }
  memcpy(&bits, &value->number, sizeof bits);
  item_begin(p);
  put(p, 'G');
  for (size_t i = 8; i > 0; i--) put(p, (uint8_t)(bits >> 8 * (i - 1)));
}

static const tide__encoding pickle_encoding = { pickle_open,    pickle_close,     pickle_word,
                                                pickle_text_of, pickle_uint_of,   pickle_scalar,
                                                pickle_shared,  pickle_shared_end };

// ---------------------------------------------------------------------------------------------------
// The whole

static tide_status numbers_init(pickle_numbers* numbers, const tide_heap* heap, uint32_t count) {
  numbers->count = (size_t)count + 1;
  numbers->numbers = tide__heap_alloc(heap, numbers->count, sizeof *numbers->numbers);
  TIDE_REQUIRE(numbers->numbers != NULL, TIDE_ERR_NO_MEMORY, "pickle: no memory for %zu numbers",
               numbers->count);
  return TIDE_OK;
}

static void numbers_fini(pickle_numbers* numbers, const tide_heap* heap) {
  tide__heap_release(heap, numbers->numbers, numbers->count, sizeof *numbers->numbers);
}

static tide_status pickler_init(pickler* p, const tide_heap* heap) {
  const tide_intern_counts counts = tide_intern_counts_of(p->e.names);
  TIDE_TRY(numbers_init(&p->texts, heap, counts.texts));
  TIDE_TRY(numbers_init(&p->shared[TIDE__SHARED_STACK], heap, counts.stacks));
  TIDE_TRY(numbers_init(&p->shared[TIDE__SHARED_FRAME], heap, counts.frames));
  return numbers_init(&p->shared[TIDE__SHARED_VALUE], heap, counts.values);
}

tide_status tide__pickle_write(const tide_trace* trace, tide__output* output) {
  pickler p = { .e = { &pickle_encoding, trace, tide_trace_names(trace), output, 0 } };
  const tide_heap* const heap = output->heap;
  const tide_status status = pickler_init(&p, heap);
  if (status == TIDE_OK) {
    put(&p, 0x80);
    put(&p, 4);
    tide__snapshot_write(&p.e);
    put(&p, '.');
  }
  numbers_fini(&p.texts, heap);
  for (size_t i = 0; i < TIDE__SHARED_KINDS; i++) numbers_fini(&p.shared[i], heap);
  return status != TIDE_OK ? status : output->status;
}
