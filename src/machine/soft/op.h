// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// An operation on a stream of the host and dry machines, and a point in a stream.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_OP_H
#define TIDEMARK_SRC_MACHINE_SOFT_OP_H

#include "tidemark/machine.h"

typedef struct tide__stream tide__stream;
typedef struct tide__graph tide__graph;

typedef enum tide__op_kind {
  TIDE__OP_FILL,
  TIDE__OP_COPY,
  TIDE__OP_CALL,
  TIDE__OP_WAIT,    // until another stream reaches a point
  TIDE__OP_LAUNCH,  // a whole graph
  TIDE__OP_WORK     // dry: takes time and does nothing
} tide__op_kind;

// A point in a stream: its first `ticket` operations are done. Tickets only increase, even when the slot is
// reused for another stream. So a point that was reached stays reached.
typedef struct tide__point {
  tide__stream* stream;  // NULL: nothing to wait for
  uint64_t ticket;
} tide__point;

typedef struct tide__op {
  uint32_t kind;       // a tide__op_kind
  uint8_t value;       // of a fill
  int16_t device;      // of the stream it was queued on
  uint64_t queued_at;  // in virtual time, on dry
  union {
    struct {
      uint64_t destination;
      uint64_t source;
      uint64_t bytes;
      uint64_t destination_identity;  // of its range when it was queued; 0: ordinary host memory
      uint64_t source_identity;
      uint64_t ns;  // on dry: how long it takes
    } move;         // fill and copy
    struct {
      tide_call_fn function;
      void* user;
    } call;
    tide__point wait;
    tide__graph* graph;  // holds a reference
    uint64_t work_ns;
  } u;
} tide__op;

#endif
