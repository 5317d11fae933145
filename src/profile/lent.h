// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which addresses of the fallback a profile has handed out: with the last of them, and of what lies in its
// arenas, a profile that was freed is gone.
#ifndef TIDEMARK_SRC_PROFILE_LENT_H
#define TIDEMARK_SRC_PROFILE_LENT_H

#include "tidemark/base.h"

// An open hash table that keeps no trace of what was removed.
typedef struct tide__lent {
  uint64_t* slots;  // owned; a power of two of them, at most half of them taken; 0: free
  uint32_t log;     // of their number
  size_t count;
} tide__lent;

void tide__lent_fini(tide__lent* lent, const tide_heap* heap);

// Adds an address; one that is there already was released unseen. False: there is no room. O(1), as below.
bool tide__lent_add(tide__lent* lent, uint64_t address);
// Takes one out; false if it is not there.
bool tide__lent_remove(tide__lent* lent, uint64_t address);

// A larger table, which is empty, of the log that follows; NULL: no memory. It is made without a lock, and
// `grow` moves everything into it and returns the old one: `*slots` and `*log` become that.
uint64_t* tide__lent_new_slots(const tide_heap* heap, uint32_t log);
void tide__lent_free_slots(const tide_heap* heap, uint64_t* slots, uint32_t log);
void tide__lent_grow(tide__lent* lent, uint64_t** slots, uint32_t* log);

#endif
