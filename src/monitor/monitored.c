// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The list of all caches of this process. Its lock is held for list operations only; a cache that is shown is
// held by a flag instead, so that its own locks are taken with no lock held.
#include "monitor/monitored.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/sys.h"

static tide__mutex list_lock = TIDE__MUTEX_INIT(TIDE__RANK_LEAF);
static tide__link list = { &list, &list };  // shared under list_lock, like all here
static uint64_t last_serial;
static bool has_read_environment;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

// ---------------------------------------------------------------------------------------------------
// Forks: the list is free in the child, and nobody there shows its caches

static void fork_prepare(void) { tide__mutex_lock_many(&list_lock); }
static void fork_parent(void) { tide__mutex_unlock_many(&list_lock); }

static void fork_child(void) {
  TIDE_LIST_EACH(it, &list) { TIDE_OWNER(it, tide__monitored, link)->is_held = false; }
  has_read_environment = false;
  tide__monitor_disown();
  tide__mutex_unlock_many(&list_lock);
}

static void fork_start(void) { (void)pthread_atfork(fork_prepare, fork_parent, fork_child); }

void tide__monitored_watch_forks(void) { (void)pthread_once(&fork_once, fork_start); }

// ---------------------------------------------------------------------------------------------------
// Joining and leaving

// The process works without a page, too.
static void environment_follow(void) {
  const char* const value = tide__sys_environment("TIDEMARK_MONITOR");
  if (value == NULL || *value == '\0' || strcmp(value, "0") == 0) return;
  tide_error before;
  tide__error_keep(&before);
  tide__ignore(tide_monitor_open(NULL));
  tide__error_restore(&before);
}

void tide__monitored_add(tide__monitored* entry, void* cache, tide__monitored_fill fill) {
  tide__monitored_watch_forks();
  *entry = (tide__monitored){ .cache = cache, .fill = fill };
  tide__mutex_lock(&list_lock);
  entry->serial = ++last_serial;
  tide__list_append(&list, &entry->link);
  const bool is_first = !has_read_environment;
  has_read_environment = true;
  tide__mutex_unlock(&list_lock);
  if (is_first) environment_follow();
}

void tide__monitored_remove(tide__monitored* entry) {
  for (uint32_t times = 0;; times++) {
    tide__mutex_lock(&list_lock);
    const bool is_held = entry->is_held;
    if (!is_held) tide__list_unlink(&entry->link);
    tide__mutex_unlock(&list_lock);
    if (!is_held) return;
    tide__wait_a_moment(times);
  }
}

tide_status tide_monitor_set_label(const void* cache, const char* label) {
  const char* const text = label != NULL ? label : "";
  TIDE_REQUIRE(cache != NULL, TIDE_ERR_ARGUMENT, "monitor_set_label: no cache");
  TIDE_REQUIRE(strlen(text) < TIDE_MONITOR_LABEL, TIDE_ERR_ARGUMENT,
               "monitor_set_label: the label has %zu bytes; %d are allowed", strlen(text),
               TIDE_MONITOR_LABEL - 1);
  bool is_found = false;
  tide__mutex_lock(&list_lock);
  TIDE_LIST_EACH(it, &list) {
    tide__monitored* const entry = TIDE_OWNER(it, tide__monitored, link);
    if (entry->cache != cache) continue;
    is_found = true;
    memset(entry->label, 0, sizeof entry->label);
    memcpy(entry->label, text, strlen(text));
  }
  tide__mutex_unlock(&list_lock);
  TIDE_REQUIRE(is_found, TIDE_ERR_HANDLE, "monitor_set_label: there is no such cache");
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Showing

static tide__monitored* entry_after_locked(uint64_t serial) {
  TIDE_LIST_EACH(it, &list) {
    tide__monitored* const entry = TIDE_OWNER(it, tide__monitored, link);
    if (entry->serial > serial) return entry;
  }
  return NULL;
}

tide__monitored* tide__monitored_hold_after(uint64_t serial, char out_label[TIDE_MONITOR_LABEL]) {
  tide__mutex_lock(&list_lock);
  tide__monitored* const entry = entry_after_locked(serial);
  if (entry != NULL) {
    entry->is_held = true;
    memcpy(out_label, entry->label, sizeof entry->label);
  }
  tide__mutex_unlock(&list_lock);
  return entry;
}

void tide__monitored_drop(tide__monitored* entry) {
  tide__mutex_lock(&list_lock);
  entry->is_held = false;
  tide__mutex_unlock(&list_lock);
}
