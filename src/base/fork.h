// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Objects in a child of fork(). The child has only one thread, other threads may have held locks, and device
// memory still belongs to the parent. So a child must not use any object of a device. Each such object has a
// word that its calls read anyway; in a child, a bit of that word is set.
#ifndef TIDEMARK_SRC_BASE_FORK_H
#define TIDEMARK_SRC_BASE_FORK_H

#include "base/atomic.h"
#include "base/list.h"
#include "base/lock.h"

typedef struct tide__fork_note {
  tide__link link;         // in the list of all notes
  tide__atomic_u32* word;  // borrowed until the note is unwatched
  uint32_t bit;
  // Called in the parent before each fork(), by the thread that calls it; NULL: nothing. It must release all
  // locks that it takes, and must not watch or unwatch notes.
  void (*before)(void* user);
  // Called in each child, when the bit is set; NULL: nothing. It may call only what a signal handler may.
  void (*in_child)(void* user);
  void* user;  // borrowed until the note is unwatched
} tide__fork_note;

// Until the note is unwatched, the word has the bit set in every child. `before`, `in_child` and `user`
// are set by the caller.
void tide__fork_watch(tide__fork_note* note, tide__atomic_u32* word, uint32_t bit);
void tide__fork_unwatch(tide__fork_note* note);

// Holds a global lock during fork(), so that it is free in the child. It cannot be undone, and is limited to
// a few locks.
void tide__fork_hold(tide__mutex* lock);

#endif
