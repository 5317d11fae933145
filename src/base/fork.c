// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The notes of all objects that a child of fork() must not use, and the global locks that are held during
// fork(). A pthread mutex guards both: any code may call fork(), so no rank would fit.
#include "base/fork.h"

#include <pthread.h>

enum { HELD_MOST = 8 };

static pthread_mutex_t notes_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t notes_once = PTHREAD_ONCE_INIT;
static tide__link notes = { &notes, &notes };  // shared under notes_lock, like all here
static tide__mutex* held[HELD_MOST];           // borrowed for ever
static uint32_t held_count;

static void fork_begin(void) {
  (void)pthread_mutex_lock(&notes_lock);
  TIDE_LIST_EACH(it, &notes) {
    const tide__fork_note* const note = TIDE_OWNER(it, tide__fork_note, link);
    if (note->before != NULL) note->before(note->user);
  }
  for (uint32_t i = 0; i < held_count; i++) tide__mutex_lock_many(held[i]);
}

static void fork_end_in_parent(void) {
  for (uint32_t i = held_count; i-- > 0;) tide__mutex_unlock_many(held[i]);
  (void)pthread_mutex_unlock(&notes_lock);
}

static void fork_end_in_child(void) {
  TIDE_LIST_EACH(it, &notes) {
    const tide__fork_note* const note = TIDE_OWNER(it, tide__fork_note, link);
    (void)atomic_fetch_or(note->word, note->bit);
    if (note->in_child != NULL) note->in_child(note->user);
  }
  fork_end_in_parent();
}

static void notes_start(void) { (void)pthread_atfork(fork_begin, fork_end_in_parent, fork_end_in_child); }

void tide__fork_watch(tide__fork_note* note, tide__atomic_u32* word, uint32_t bit) {
  note->word = word;
  note->bit = bit;
  (void)pthread_once(&notes_once, notes_start);
  (void)pthread_mutex_lock(&notes_lock);
  tide__list_append(&notes, &note->link);
  (void)pthread_mutex_unlock(&notes_lock);
}

void tide__fork_unwatch(tide__fork_note* note) {
  (void)pthread_mutex_lock(&notes_lock);
  tide__list_unlink(&note->link);
  (void)pthread_mutex_unlock(&notes_lock);
}

void tide__fork_hold(tide__mutex* lock) {
  (void)pthread_once(&notes_once, notes_start);
  (void)pthread_mutex_lock(&notes_lock);
  TIDE_ASSERT(held_count < HELD_MOST);
  held[held_count++] = lock;
  (void)pthread_mutex_unlock(&notes_lock);
}
