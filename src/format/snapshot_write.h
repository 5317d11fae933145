// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes a trace as a memory snapshot. The walk over the trace is the same for all encodings; an encoding is
// a table of functions that write plain data.
#ifndef TIDEMARK_SRC_FORMAT_SNAPSHOT_WRITE_H
#define TIDEMARK_SRC_FORMAT_SNAPSHOT_WRITE_H

#include "format/output.h"
#include "format/schema.h"

typedef struct tide__encoder tide__encoder;

// Values are written in order; in a dict each after its key. The encoder's output keeps failures.
typedef struct tide__encoding {
  void (*open)(tide__encoder* e, tide_value_kind kind,
               size_t count);  // LIST, TUPLE or DICT of that many items
  void (*close)(tide__encoder* e, tide_value_kind kind, size_t count);
  void (*word)(tide__encoder* e, tide__word word);  // a key or a text of the snapshot's own
  void (*text)(tide__encoder* e, uint32_t text);    // a key or a text of the trace's names
  void (*uint)(tide__encoder* e, uint64_t number);
  void (*scalar)(tide__encoder* e, const tide_value* value);  // NONE, BOOL, INT, UINT, FLOAT
  // (optional) Called before a stack, frame or container of plain data. Returns true if it wrote a reference,
  // and nothing else must be written. Otherwise the contents follow, and then `shared_end`.
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
  uint64_t written;          // items, if the encoding cannot share
};

// Writes the whole snapshot. The output keeps the first failure.
void tide__snapshot_write(tide__encoder* e);
// Parts of it: the list of segments; the entries of a device, into a list that is open.
void tide__segments_write(tide__encoder* e);
void tide__entries_write(tide__encoder* e, size_t device);

#endif
