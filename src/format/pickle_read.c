// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reads pickles of plain data, protocols 2 to 5. A pickle is a program for a small stack machine. This one
// knows the instructions for plain data and refuses all others, in particular those that look up a name, call
// something or make an object. Nothing in a file is executed.
//
// Reading takes one pass. The assembler keeps what the file may refer to later.
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "format/assemble.h"
#include "format/decode.h"
#include "format/numbers.h"
#include "format/record.h"

#define PICKLE_PROTO 0x80
#define PICKLE_STOP '.'
#define PICKLE_FRAME 0x95

typedef struct pickle {
  tide__input* input;
  tide__assembler a;
} pickle;

bool tide__pickle_is(const void* head, size_t bytes) {
  const uint8_t* const at = head;
  return bytes >= 2 && at[0] == PICKLE_PROTO && at[1] >= 2 && at[1] <= 5;
}

// ---------------------------------------------------------------------------------------------------
// Numbers in instructions

static tide_status pickle_uint(pickle* p, size_t bytes, uint64_t* out) {
  const uint8_t* at = NULL;
  TIDE_TRY(tide__input_take(p->input, bytes, &at));
  *out = tide__load_fixed(at, bytes);
  return TIDE_OK;
}

static tide_status pickle_int32(pickle* p) {
  uint64_t number = 0;
  TIDE_TRY(pickle_uint(p, 4, &number));
  return tide__assemble_int(&p->a, (int32_t)(uint32_t)number);
}

static tide_status pickle_small(pickle* p, size_t bytes) {
  uint64_t number = 0;
  TIDE_TRY(pickle_uint(p, bytes, &number));
  return tide__assemble_int(&p->a, (int64_t)number);
}

// The number with which old files of torch.save() begin, before these became archives.
static const char torch_magic[] = "l\xfc\x9c"
                                  "F\xf9 j\xa8P\x19";

static tide_status pickle_check_torch(pickle* p) {
  const size_t bytes = sizeof torch_magic - 1;
  TIDE_TRY(tide__input_fill(p->input, bytes));
  const bool is_torch = tide__input_ready(p->input) >= bytes &&
                        memcmp(p->input->buffer + p->input->at, torch_magic, bytes) == 0;
  if (!is_torch) return TIDE_OK;
  return TIDE__FILE_FAIL(&p->a, "%s",
                         "the file is one of torch.save(), not a recording; "
                         "torch.cuda.memory._dump_snapshot() writes a memory snapshot");
}

// An integer of any length in two's complement, which must fit into 64 bits. An address above 2^63 has a
// ninth byte, which is 0.
static tide_status pickle_long(pickle* p, size_t length_bytes) {
  uint64_t bytes = 0;
  const uint8_t* at = NULL;
  TIDE_TRY(pickle_uint(p, length_bytes, &bytes));
  if (bytes == sizeof torch_magic - 1) TIDE_TRY(pickle_check_torch(p));
  if (bytes > 9) return TIDE__FILE_FAIL(&p->a, "an integer of %" PRIu64 " bytes", bytes);
  TIDE_TRY(tide__input_take(p->input, (size_t)bytes, &at));
  if (bytes == 9) {
    if (at[8] != 0) return TIDE__FILE_FAIL(&p->a, "%s", "an integer does not fit into 64 bits");
    return tide__assemble_uint(&p->a, tide__load_fixed(at, 8));
  }
  const uint64_t number = tide__load_fixed(at, (size_t)bytes);
  const bool is_negative = bytes > 0 && at[bytes - 1] >= 0x80;
  const uint64_t sign = is_negative && bytes < 8 ? UINT64_MAX << 8 * bytes : 0;
  return tide__assemble_int(&p->a, (int64_t)(number | sign));
}

static tide_status pickle_float(pickle* p) {
  const uint8_t* at = NULL;
  uint64_t bits = 0;
  double number = 0;
  TIDE_TRY(tide__input_take(p->input, 8, &at));
  for (size_t i = 0; i < 8; i++) bits = bits << 8 | at[i];
  memcpy(&number, &bits, sizeof number);
  return tide__assemble_float(&p->a, number);
}

static tide_status pickle_text(pickle* p, size_t length_bytes) {
  uint64_t bytes = 0;
  const uint8_t* at = NULL;
  TIDE_TRY(pickle_uint(p, length_bytes, &bytes));
  if (bytes > SIZE_MAX / 2) return TIDE__FILE_FAIL(&p->a, "a text of %" PRIu64 " bytes", bytes);
  TIDE_TRY(tide__input_take(p->input, (size_t)bytes, &at));
  return tide__assemble_text(&p->a, at, (size_t)bytes);
}

static tide_status pickle_remember(pickle* p, size_t bytes) {
  uint64_t number = 0;
  TIDE_TRY(pickle_uint(p, bytes, &number));
  return tide__assemble_remember(&p->a, (size_t)number);
}

static tide_status pickle_recall(pickle* p, size_t bytes) {
  uint64_t number = 0;
  TIDE_TRY(pickle_uint(p, bytes, &number));
  return tide__assemble_recall(&p->a, (size_t)number);
}

// A frame is a hint how much to read at once. Its length is checked, but not used.
static tide_status pickle_frame(pickle* p) {
  uint64_t bytes = 0;
  TIDE_TRY(pickle_uint(p, 8, &bytes));
  if (bytes > INT64_MAX) return TIDE__FILE_FAIL(&p->a, "a frame of %" PRIu64 " bytes", bytes);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Instructions

// Does an instruction look up a name, make an object, or refer to an external one?
static bool code_is_of_objects(uint8_t code) {
  static const uint8_t codes[] = { 'c', 'i', 'o', 'R', 'b', 'P', 'Q', 0x81, 0x92, 0x93 };
  return memchr(codes, code, sizeof codes) != NULL;
}

static tide_status pickle_refuse(pickle* p, uint8_t code) {
  if (code_is_of_objects(code))
    return TIDE__FILE_FAIL(
        &p->a,
        "instruction 0x%02x does not make plain data: this is a pickle of objects, as torch.save() "
        "writes it; torch.cuda.memory._dump_snapshot() writes a memory snapshot",
        code);
  const bool is_print = code > ' ' && code < 0x7f;
  const char text[] = { ' ', '\'', (char)code, '\'', '\0' };
  return TIDE__FILE_FAIL(&p->a, "instruction 0x%02x%s does not make plain data", code, is_print ? text : "");
}

static tide_status pickle_step(pickle* p, uint8_t code) {
  tide__assembler* const a = &p->a;
  switch (code) {
    case '(': return tide__assemble_mark(a);
    case '}': return tide__assemble_open(a, true);
    case ']': return tide__assemble_open(a, false);
    case 'u': return tide__assemble_set(a, 0, true);
    case 's': return tide__assemble_set(a, 2, false);
    case 'e': return tide__assemble_append(a, 0, true);
    case 'a': return tide__assemble_append(a, 1, false);
    case 0x8c: return pickle_text(p, 1);
    case 'X': return pickle_text(p, 4);
    case 0x8d: return pickle_text(p, 8);
    case 0x94: return tide__assemble_remember(a, SIZE_MAX);
    case 'q': return pickle_remember(p, 1);
    case 'r': return pickle_remember(p, 4);
    case 'h': return pickle_recall(p, 1);
    case 'j': return pickle_recall(p, 4);
    case 'K': return pickle_small(p, 1);
    case 'M': return pickle_small(p, 2);
    case 'J': return pickle_int32(p);
    case 0x8a: return pickle_long(p, 1);
    case 0x8b: return pickle_long(p, 4);
    case 'G': return pickle_float(p);
    case 0x88: return tide__assemble_bool(a, true);
    case 0x89: return tide__assemble_bool(a, false);
    case 'N': return tide__assemble_none(a);
    case ')': return tide__assemble_gather(a, TIDE_VALUE_TUPLE, 0, false);
    case 0x85: return tide__assemble_gather(a, TIDE_VALUE_TUPLE, 1, false);
    case 0x86: return tide__assemble_gather(a, TIDE_VALUE_TUPLE, 2, false);
    case 0x87: return tide__assemble_gather(a, TIDE_VALUE_TUPLE, 3, false);
    case 't': return tide__assemble_gather(a, TIDE_VALUE_TUPLE, 0, true);
    case 'l': return tide__assemble_gather(a, TIDE_VALUE_LIST, 0, true);
    case 'd': return tide__assemble_gather(a, TIDE_VALUE_DICT, 0, true);
    case '0': return tide__assemble_pop(a);
    case '1': return tide__assemble_pop_mark(a);
    case PICKLE_FRAME: return pickle_frame(p);
    default: return pickle_refuse(p, code);
  }
}

static tide_status pickle_head(pickle* p) {
  const uint8_t* at = NULL;
  TIDE_TRY(tide__input_take(p->input, 2, &at));
  if (at[0] != PICKLE_PROTO) return TIDE__FILE_FAIL(&p->a, "%s", "the file does not begin with a protocol");
  if (at[1] < 2 || at[1] > 5)
    return TIDE__FILE_FAIL(&p->a, "protocol %u is not supported; 2 to 5 are", at[1]);
  return TIDE_OK;
}

// Bytes after the end are ignored: web pages that embed a snapshot pad it.
static tide_status pickle_run(pickle* p) {
  TIDE_TRY(pickle_head(p));
  for (;;) {
    const uint8_t* at = NULL;
    p->a.offset = tide__input_offset(p->input);
    if (tide__input_ready(p->input) == 0) TIDE_TRY(tide__input_fill(p->input, 1));
    TIDE_REQUIRE(tide__input_ready(p->input) > 0, TIDE_ERR_FORMAT, "pickle: truncated at byte %" PRIu64,
                 p->a.offset);
    TIDE_TRY(tide__input_take(p->input, 1, &at));
    if (*at == PICKLE_STOP) return tide__assemble_end(&p->a);
    TIDE_TRY(pickle_step(p, *at));
  }
}

tide_status tide__pickle_read(tide__input* input, tide_trace* trace) {
  pickle p = { .input = input };
  tide_status status = tide__assembler_init(&p.a, trace, "pickle");
  if (status == TIDE_OK) status = pickle_run(&p);
  if (status == TIDE_OK) status = tide__input_drain(input);
  tide__assembler_fini(&p.a);
  return status;
}
