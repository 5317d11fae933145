// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The door to every machine, on the inside: the copy of its table, its counters and its faults. The table is
// public: tidemark/machine_ops.h. machine.c checks, counts and fails calls before it calls the table, always
// with no lock held.
#ifndef TIDEMARK_SRC_MACHINE_MACHINE_H
#define TIDEMARK_SRC_MACHINE_MACHINE_H

#include "base/atomic.h"
#include "base/fork.h"
#include "base/lock.h"
#include "tidemark/machine_ops.h"

// How often one kind of call was made; a cache line each, so that counting one kind does not slow another.
typedef struct tide__call_counter {
  _Alignas(64) tide__atomic_u64 calls;
  tide__atomic_u64 failures;
  tide__atomic_u64 ns;
} tide__call_counter;

// What handles name; a number in each handle.
enum { TIDE__KIND_STREAM, TIDE__KIND_EVENT, TIDE__KIND_PHYSICAL, TIDE__KIND_LAUNCH };

#define TIDE__FAULT_MAX 16

// The faults in force. `count` is read without the lock, to pay nothing where there are none.
typedef struct tide__faults {
  tide__mutex lock;
  tide__atomic_u32 count;
  struct {
    tide_fault fault;
    uint64_t seen;   // matching calls beyond the budget so far, shared under lock like all here
    uint64_t bytes;  // they asked for
  } plan[TIDE__FAULT_MAX];
} tide__faults;

struct tide_machine {
  tide__call_counter counters[TIDE_CALL_COUNT];
  tide_machine_ops ops;   // a copy: what an older table lacks is NULL or a default
  const void* kind;       // the table it was made from, to tell our machines apart
  void* self;             // owned through ops.free
  const tide_heap* heap;  // borrowed until the machine is freed
  int device_count;
  tide__faults faults;
  tide__fork_note fork_note;
  tide__atomic_u32 is_inherited;  // this process is a child of the one that made it
};

// The state behind a machine that was made from this table, or NULL.
void* tide__machine_self(tide_machine* machine, const tide_machine_ops* ops);
// Gives a meaning to functions that may be absent and have one: see machine_ops.h.
void tide__machine_defaults(tide_machine_ops* ops);
// Adds to what a kind of call has cost.
void tide__machine_charge(tide_machine* machine, tide_call call, uint64_t ns);

void tide__faults_init(tide__faults* faults);
void tide__faults_fini(tide__faults* faults);
// What the faults in force do to one call: how long it is held up, and the status it then has.
tide_status tide__faults_apply(tide__faults* faults, tide_call call, uint64_t bytes, uint64_t* out_delay_ns);

#endif
