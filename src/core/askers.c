// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The list of threads that call functions of the user, and waiting for them.
#include "core/askers.h"

#include "base/atomic.h"

uint64_t tide__thread_number(void) {
  static tide__atomic_u64 last;
  static _Thread_local uint64_t number;
  if (number == 0) number = tide__add_relaxed(&last, 1) + 1;
  return number;
}

void tide__askers_init(tide__askers* askers) {
  tide__list_init(&askers->list);
  askers->count = 0;
  askers->waits = 0;
  tide__signal_init(&askers->left);
}

void tide__askers_fini(tide__askers* askers) { tide__signal_fini(&askers->left); }

void tide__askers_enter_locked(tide__askers* askers, tide__asker* asker) {
  asker->number = ++askers->count;
  asker->thread = tide__thread_number();
  tide__list_append(&askers->list, &asker->link);
}

void tide__askers_leave_locked(tide__askers* askers, tide__asker* asker) {
  tide__list_unlink(&asker->link);
  if (askers->waits > 0) tide__signal_all(&askers->left);
}

void tide__askers_inherit_locked(tide__askers* askers) {
  const uint64_t thread = tide__thread_number();
  askers->waits = 0;
  for (tide__link* it = askers->list.next; it != &askers->list;) {
    tide__asker* const asker = TIDE_OWNER(it, tide__asker, link);
    it = it->next;
    if (asker->thread != thread) tide__list_unlink(&asker->link);
  }
}

static bool thread_is_asking(const tide__askers* askers) {
  const uint64_t thread = tide__thread_number();
  TIDE_LIST_EACH(it, &askers->list) {
    if (TIDE_OWNER(it, tide__asker, link)->thread == thread) return true;
  }
  return false;
}

void tide__askers_wait_locked(tide__askers* askers, tide__mutex* mutex) {
  const uint64_t last = askers->count;
  if (thread_is_asking(askers)) return;
  askers->waits++;
  while (!tide__list_is_empty(&askers->list) &&
         TIDE_OWNER(askers->list.next, tide__asker, link)->number <= last) {
    tide__signal_wait(&askers->left, mutex);
  }
  askers->waits--;
}
