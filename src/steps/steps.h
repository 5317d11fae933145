// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the files of this folder share. Each way to find steps yields cuts: numbers of entries, rising, where
// one step ends and the next begins. Whole steps lie between two cuts.
#ifndef TIDEMARK_SRC_STEPS_STEPS_H
#define TIDEMARK_SRC_STEPS_STEPS_H

#include "ledger/rules.h"
#include "tidemark/steps.h"

#define TIDE__STEPS_NAME 256

typedef struct tide__cuts {
  const tide_heap* heap;  // borrowed until fini
  uint64_t* items;        // owned
  size_t count;
  size_t room;
  char name[TIDE__STEPS_NAME];  // of what marks a step; empty: nothing with a name
} tide__cuts;

// Adds a cut, unless it is not behind the last one.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__cuts_add(tide__cuts* cuts, uint64_t at);
void tide__cuts_set_name(tide__cuts* cuts, const char* name);

// The entries of one device.
typedef struct tide__recorded {
  const tide_trace* trace;  // all borrowed
  const tide_intern* names;
  const tide_trace_entry* entries;
  const tide_heap* heap;
  size_t count;
  size_t device;
} tide__recorded;

// The finders. Each leaves `cuts` without items if it finds nothing. `name` is that of the options.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__steps_by_annotation(const tide__recorded* run, const char* name, tide__cuts* cuts);
tide_status tide__steps_by_metadata(const tide__recorded* run, const char* name, tide__cuts* cuts);
tide_status tide__steps_by_frame(const tide__recorded* run, const char* name, tide__cuts* cuts);
tide_status tide__steps_by_pattern(const tide__recorded* run, tide__cuts* cuts, tide_steps_source* out);

// Does a name, without a number at its end, end in a word for a step?
bool tide__name_is_step(const char* name);

#endif
