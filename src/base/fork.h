// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a child of fork() inherits. Its threads but one are gone, with the locks that they held, and memory of
// a device is still the parent's. So nothing there may be used that has to do with a device: each such object
// has a word that its calls look at anyway, or on their slow way, and in a child a bit of it is set.
#ifndef TIDEMARK_SRC_BASE_FORK_H
#define TIDEMARK_SRC_BASE_FORK_H

#include "base/atomic.h"
#include "base/list.h"
#include "base/lock.h"

typedef struct tide__fork_note {
  tide__link link;         // among all notes
  tide__atomic_u32* word;  // borrowed until the note is unwatched
  uint32_t bit;
} tide__fork_note;

// From now on, and until it is unwatched: a child gets the bit in the word.
void tide__fork_watch(tide__fork_note* note, tide__atomic_u32* word, uint32_t bit);
void tide__fork_unwatch(tide__fork_note* note);

// A lock of the whole process that a child finds free, whoever had it. For ever; a few can be held.
void tide__fork_hold(tide__mutex* lock);

#endif
