// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The caches of this process, for whoever shows them. A cache joins the list when it is made and leaves it
// before it is freed. The list knows a cache by a function that fills in a row, so it depends on no cache.
#ifndef TIDEMARK_SRC_MONITOR_MONITORED_H
#define TIDEMARK_SRC_MONITOR_MONITORED_H

#include "base/list.h"
#include "tidemark/monitor.h"

// Fills in what the cache knows: all but `serial`, `label`, `updated_ns` and the points, of a row that is all
// zeros. Returns false for a cache that cannot be shown: it belongs to the parent of this process. Called
// with no lock held.
typedef bool (*tide__monitored_fill)(void* cache, tide_monitor_row* row);

// Lies in the cache. All fields are shared under the lock of the list.
typedef struct tide__monitored {
  tide__link link;  // in the list of all caches, the oldest first
  uint64_t serial;  // from 1, rising
  void* cache;
  tide__monitored_fill fill;
  char label[TIDE_MONITOR_LABEL];
  bool is_held;  // it is being shown, and must not go
} tide__monitored;

// Adds a cache that is ready for use. For the first cache of a process, opens the page if the environment
// says so; the thread's last error does not change.
void tide__monitored_add(tide__monitored* entry, void* cache, tide__monitored_fill fill);
// Removes a cache; waits until nobody shows it.
void tide__monitored_remove(tide__monitored* entry);

// The first cache with a larger serial number than `serial`, or NULL. It stays until it is dropped. Copies
// its label.
tide__monitored* tide__monitored_hold_after(uint64_t serial, char out_label[TIDE_MONITOR_LABEL]);
void tide__monitored_drop(tide__monitored* entry);

// From now on, a child of fork() finds the list free, and no page. Further calls do nothing.
void tide__monitored_watch_forks(void);

// monitor.c, in a child of fork(): closes the page, which is the parent's.
void tide__monitor_disown(void);

#endif
