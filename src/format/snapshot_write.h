// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes a trace as a memory snapshot, in whatever encoding: the walk over the trace is here, an encoding is
// a table of functions that put plain data down.
#ifndef TIDEMARK_SRC_FORMAT_SNAPSHOT_WRITE_H
#define TIDEMARK_SRC_FORMAT_SNAPSHOT_WRITE_H

#include "format/output.h"
#include "format/schema.h"

typedef struct tide__encoder tide__encoder;

// Values are put down in order; in a dict each after its key. Failures are kept in the encoder's output.
typedef struct tide__encoding {
  void (*open)(tide__encoder* e, tide_value_kind kind,
               size_t count);  // LIST, TUPLE or DICT of that many items
  void (*close)(tide__encoder* e, tide_value_kind kind, size_t count);
  void (*word)(tide__encoder* e, tide__word word);  // a key or a text of the snapshot's own
  void (*text)(tide__encoder* e, uint32_t text);    // a key or a text of the trace's names
  void (*uint)(tide__encoder* e, uint64_t number);
  void (*scalar)(tide__encoder* e, const tide_value* value);  // NONE, BOOL, INT, UINT, FLOAT
  // (optional) A stack, frame or container of plain data that is put down once more, or for the first time:
  // true if it was there and nothing else is to be done. After the first time `shared_end` follows its
  // contents.
  bool (*shared)(tide__encoder* e, int kind, uint32_t number);
  void (*shared_end)(tide__encoder* e, int kind, uint32_t number);
} tide__encoding;

// Kinds of things that may be shared.
#define TIDE__SHARED_STACK 0
#define TIDE__SHARED_FRAME 1
#define TIDE__SHARED_VALUE 2
#define TIDE__SHARED_KINDS 3

struct tide__encoder {
  const tide__encoding* encoding;
  const tide_trace* trace;   // borrowed
  const tide_intern* names;  // borrowed from the trace
  tide__output* output;      // borrowed
  uint64_t written;          // parts, where nothing can be shared
};

// Puts the whole snapshot down; what fails is in the output.
void tide__snapshot_write(tide__encoder* e);

#endif
