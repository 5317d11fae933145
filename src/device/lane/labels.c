// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Labels of pools. Entries outlive their pools. So while a history is kept, the labels of pools that are gone
// are kept too: the newest, as many as a trace can name.
#include "device/lane/lane.h"

enum { LABELS_MAX = 16384 };

static bool pool_has_label(const tide__pool* pool) {
  return pool->options.label[0] != 0 || pool->options.label[1] != 0;
}

static tide_pool_label pool_label(const tide__pool* pool) {
  return (tide_pool_label){ pool->options.label[0], pool->options.label[1] };
}

// Without memory for it, the entries of the pool are shown by its number.
void tide__labels_keep(tide_device_cache* device, const tide__pool* pool) {
  if (!tide__history_is_kept(&device->history) || !pool_has_label(pool)) return;
  tide__gone_label* const label = tide__heap_alloc(device->heap, 1, sizeof *label);
  if (label == NULL) return;
  tide__gone_label* oldest = NULL;
  *label = (tide__gone_label){ NULL, pool_label(pool), pool->base.number };
  tide__mutex_lock(&device->pools_lock);
  *(device->gone_labels != NULL ? &device->gone_last->next : &device->gone_labels) = label;
  device->gone_last = label;
  if (++device->gone_count > LABELS_MAX) {
    oldest = device->gone_labels;
    device->gone_labels = oldest->next;
    device->gone_count--;
  }
  tide__mutex_unlock(&device->pools_lock);
  tide__heap_release(device->heap, oldest, 1, sizeof *oldest);
}

void tide__labels_forget(tide_device_cache* device) {
  tide__mutex_lock(&device->pools_lock);
  tide__gone_label* list = device->gone_labels;
  device->gone_labels = device->gone_last = NULL;
  device->gone_count = 0;
  tide__mutex_unlock(&device->pools_lock);
  while (list != NULL) {
    tide__gone_label* const next = list->next;
    tide__heap_release(device->heap, list, 1, sizeof *list);
    list = next;
  }
}

bool tide__labels_find(void* owner, tide_pool number, tide_pool_label* out) {
  tide_device_cache* const device = owner;
  tide__mutex_lock(&device->pools_lock);
  const tide__pool* const pool = tide__pool_find_locked(device, number);
  const tide__gone_label* gone = pool == NULL ? device->gone_labels : NULL;
  while (gone != NULL && gone->number != number) gone = gone->next;
  const bool is_labelled = pool != NULL ? pool_has_label(pool) : gone != NULL;
  if (is_labelled) *out = pool != NULL ? pool_label(pool) : gone->label;
  tide__mutex_unlock(&device->pools_lock);
  return is_labelled;
}
