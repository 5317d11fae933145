// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Intrusive doubly linked circular lists. An empty list is a link that points to itself.
#ifndef TIDEMARK_SRC_BASE_LIST_H
#define TIDEMARK_SRC_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tide__link {
  struct tide__link* prev;
  struct tide__link* next;
} tide__link;

// The struct of `type` whose field `member` is `link`.
#define TIDE_OWNER(link, type, member) ((type*)(void*)((char*)(link)-offsetof(type, member)))
#define TIDE_OWNER_CONST(link, type, member) \
  ((const type*)(const void*)((const char*)(link)-offsetof(type, member)))

// Iterates over a list. The body must not unlink `it`.
#define TIDE_LIST_EACH(it, list) for (tide__link* it = (list)->next; it != (list); it = it->next)

static inline void tide__list_init(tide__link* list) { list->prev = list->next = list; }
static inline bool tide__list_is_empty(const tide__link* list) { return list->next == list; }

static inline void tide__list_append(tide__link* list, tide__link* link) {
  link->prev = list->prev;
  link->next = list;
  list->prev->next = link;
  list->prev = link;
}

static inline void tide__list_unlink(tide__link* link) {
  link->prev->next = link->next;
  link->next->prev = link->prev;
  tide__list_init(link);
}

#endif
