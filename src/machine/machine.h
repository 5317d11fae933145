// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A machine: the copy of its table, its counters and its faults. The table is public, in
// tidemark/machine_ops.h. machine.c checks each call, applies faults, calls the table and counts. It holds no
// lock while it calls the table.
#ifndef TIDEMARK_SRC_MACHINE_MACHINE_H
#define TIDEMARK_SRC_MACHINE_MACHINE_H

#include "base/atomic.h"
#include "base/fork.h"
#include "base/lock.h"
#include "base/stripe.h"
#include "tidemark/machine_ops.h"

// Counts of one kind of call.
typedef struct tide__call_counter {
  tide__atomic_u64 calls;
  tide__atomic_u64 failures;
  tide__atomic_u64 ns;
} tide__call_counter;

// The counts of the threads of one stripe.
typedef struct tide__call_counters {
  _Alignas(64) tide__call_counter of[TIDE_CALL_COUNT];
} tide__call_counters;

// The kinds of handles.
enum { TIDE__KIND_STREAM, TIDE__KIND_EVENT, TIDE__KIND_PHYSICAL, TIDE__KIND_LAUNCH };

#define TIDE__FAULT_MAX 16

// The active faults. `count` is read without the lock, so that machines without faults pay nothing.
typedef struct tide__faults {
  tide__mutex lock;
  tide__atomic_u32 count;
  struct {
    tide_fault fault;
    uint64_t seen;   // matching calls above the budget so far; shared under lock, like all fields here
    uint64_t bytes;  // requested by matching calls
  } plan[TIDE__FAULT_MAX];
} tide__faults;

// What a probe of a device found, by feature.
typedef struct tide__probe_results {
  uint32_t call_count;
  bool works[TIDE_FEATURE_COUNT];
  char reasons[TIDE_FEATURE_COUNT][TIDE_PROBE_REASON];
} tide__probe_results;

struct tide_machine {
  tide__call_counters counters[TIDE__STRIPES];
  tide_machine_ops ops;   // a copy; functions that the table lacks are NULL or a default
  const void* kind;       // address of the original table, which identifies our own machines
  void* self;             // owned through ops.free
  const tide_heap* heap;  // borrowed until the machine is freed
  int device_count;
  tide__faults faults;
  _Atomic(tide__probe_results*) probed[TIDE_DEVICE_MAX];  // owned; NULL before the first probe of a device
  tide__fork_note fork_note;
  tide__atomic_u32 is_inherited;  // this process is a child of the process that created it
};

// The state of a machine that was made from this table, or NULL.
void* tide__machine_self(tide_machine* machine, const tide_machine_ops* ops);
// Sets the defaults of absent functions: see machine_ops.h.
void tide__machine_defaults(tide_machine_ops* ops);
// Adds to the virtual time of a kind of call.
void tide__machine_charge(tide_machine* machine, tide_call call, uint64_t ns);

void tide__probes_free(tide_machine* machine);

void tide__faults_init(tide__faults* faults);
void tide__faults_fini(tide__faults* faults);
static inline bool tide__faults_exist(const tide__faults* faults) {
  return tide__load_acquire(&faults->count) != 0;  // pairs with tide_machine_fault_add
}
// Applies the active faults to one call: returns its status and the delay before it.
tide_status tide__faults_apply(tide__faults* faults, tide_call call, uint64_t bytes, uint64_t* out_delay_ns);

#endif
