// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The tree of tags. A record is made when a pool gets the tag, or the tag a budget or a use, after those of
// the tags above it. Records are never removed, so a walk needs no lock.
#include <string.h>

#include "device/lane/lane.h"

tide__tag* tide__tag_find(tide_device_cache* device, const char* kept) {
  tide__tag* tag = tide__tags_first(device);
  while (tag != NULL && tag->text != kept) tag = tag->next;
  return tag;
}

static tide__tag* tag_new(tide_device_cache* device, const char* kept, tide__tag* parent) {
  const tide_budget none = TIDE_BUDGET_INIT;
  tide__tag* const tag = tide__heap_alloc(device->heap, 1, sizeof *tag);
  if (tag == NULL) return NULL;
  tag->text = kept;
  tag->parent = parent;
  tag->budget = none;
  return tag;
}

// Adds a record, unless another thread was faster.
static tide_status tag_add(tide_device_cache* device, const char* kept, tide__tag* parent, tide__tag** out) {
  tide__tag* const made = tag_new(device, kept, parent);
  TIDE_REQUIRE(made != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of the tag \"%s\"", kept);
  tide__mutex_lock(&device->pools_lock);
  *out = tide__tag_find(device, kept);
  const bool is_new = *out == NULL;
  if (is_new) {
    made->next = tide__load_relaxed(&device->tags);
    tide__store_release(&device->tags, made);  // pairs with tide__tags_first
    *out = made;
  }
  tide__mutex_unlock(&device->pools_lock);
  if (!is_new) tide__heap_release(device->heap, made, 1, sizeof *made);
  return TIDE_OK;
}

// The tag that the first bytes of a text are.
static tide_status prefix_keep(tide_device_cache* device, const char* text, size_t bytes, const char** out) {
  uint32_t number = 0;
  TIDE_TRY(tide_intern_add_text(device->history.names, text, bytes, &number));
  *out = tide_intern_text(device->history.names, number, NULL);
  return TIDE_OK;
}

tide_status tide__tag_make(tide_device_cache* device, const char* kept, tide__tag** out) {
  *out = kept[0] != '\0' ? tide__tag_find(device, kept) : NULL;
  if (*out != NULL || kept[0] == '\0') return TIDE_OK;
  const char* end = kept;
  for (tide__tag* parent = NULL; *end != '\0'; parent = *out) {
    const char* prefix = NULL;
    end += strcspn(end + (*end == '/'), "/") + (*end == '/');
    TIDE_TRY(prefix_keep(device, kept, (size_t)(end - kept), &prefix));
    *out = tide__tag_find(device, prefix);
    if (*out == NULL) TIDE_TRY(tag_add(device, prefix, parent, out));
  }
  return TIDE_OK;
}

void tide__tag_move_locked(tide__tag* tag, int64_t bytes) {
  for (; tag != NULL; tag = tag->parent) {
    tag->held += (uint64_t)bytes;
    tag->held_most = tide__max(tag->held_most, tag->held);
  }
}

void tide__tags_free(tide_device_cache* device) {
  tide__tag* tag = tide__tags_first(device);
  tide__store_relaxed(&device->tags, NULL);
  while (tag != NULL) {
    tide__tag* const next = tag->next;
    TIDE_ASSERT(tag->done == NULL);
    tide__heap_release(device->heap, tag, 1, sizeof *tag);
    tag = next;
  }
}
