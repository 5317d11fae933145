// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tags of pools. A tag is a path, and its text belongs to the names of the allocator: it stays as long as the
// allocator, so a reader needs no lock for it.
#include <stdlib.h>
#include <string.h>

#include "device/lane/lane.h"

// The length of the first part of a path, or 0 if that is empty or has control characters.
static size_t part_length(const char* path) {
  size_t length = 0;
  while (path[length] != '\0' && path[length] != '/') {
    const unsigned char c = (unsigned char)path[length++];
    if (c < 0x20 || c == 0x7f) return 0;
  }
  return length;
}

tide_status tide__tag_check(const char* call, const char* tag) {
  const size_t bytes = strnlen(tag, TIDE_TAG_MOST + 1);
  TIDE_REQUIRE(bytes <= TIDE_TAG_MOST, TIDE_ERR_ARGUMENT, "%s: a tag has at most %d bytes", call,
               TIDE_TAG_MOST);
  const char* at = tag;
  for (;;) {
    const size_t length = part_length(at);
    TIDE_REQUIRE(length > 0, TIDE_ERR_ARGUMENT,
                 "%s: the tag \"%s\" has an empty part, or a control character", call, tag);
    at += length;
    if (*at == '\0') return TIDE_OK;
    at++;
  }
}

bool tide__tag_covers(const char* tag, const char* other) {
  if (tag == NULL) return other[0] != '\0';
  const size_t bytes = strlen(tag);
  return strncmp(tag, other, bytes) == 0 && (other[bytes] == '\0' || other[bytes] == '/');
}

tide_status tide__tag_keep(tide_device_cache* device, const char* call, const char* tag, const char** out) {
  uint32_t number = 0;
  *out = "";
  if (tag == NULL) return TIDE_OK;
  TIDE_TRY(tide__tag_check(call, tag));
  TIDE_TRY(tide_intern_add_text(device->history.names, tag, strlen(tag), &number));
  *out = tide_intern_text(device->history.names, number, NULL);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Calls

// What the pool has counts in its new tag from now on.
static void pool_tag_put(tide_device_cache* device, tide__pool* pool, const char* kept, tide__tag* record) {
  tide__mutex_lock(&device->totals_lock);
  const int64_t bytes = (int64_t)tide__load_relaxed(&pool->reserved_bytes);
  tide__tag_move_locked(tide__pool_tag_record(pool), -bytes);
  tide__tag_move_locked(record, bytes);
  tide__store_relaxed(&pool->tag, kept);
  tide__store_relaxed(&pool->tag_record, record);
  tide__mutex_unlock(&device->totals_lock);
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_set_tag(tide_device_cache* device, tide_pool pool,
                                                            const char* tag) {
  tide__pool_base* found = NULL;
  const char* kept = NULL;
  tide__tag* record = NULL;
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_pool_set_tag: no device");
  TIDE__REQUIRE_OWN(device, "device_pool_set_tag");
  TIDE_TRY(tide__tag_keep(device, "device_pool_set_tag", tag, &kept));
  TIDE_TRY(tide__tag_make(device, kept, &record));
  (void)tide__gate_enter(device);  // pools are parked by their tags
  const tide_status status = tide__pools_lock(&device->pools, pool, false, "device_pool_set_tag", &found);
  bool is_parked = false;
  if (status == TIDE_OK) {
    tide__pool* const own = tide__pool_of(found);
    is_parked = own->parked != NULL || own->is_moving;
    if (!is_parked) pool_tag_put(device, own, kept, record);
    tide__mutex_unlock(&device->pools_lock);
  }
  tide__gate_leave(device);
  TIDE_TRY(status);
  TIDE_REQUIRE(!is_parked, TIDE_ERR_STATE, "device_pool_set_tag: pool %u is parked", pool);
  return TIDE_OK;
}

tide_status tide_device_tag_find(tide_device_cache* device, const char* tag, tide_pool* out) {
  TIDE_REQUIRE(device != NULL && tag != NULL && out != NULL, TIDE_ERR_ARGUMENT,
               "device_tag_find: no device, tag or out");
  *out = 0;
  TIDE__REQUIRE_OWN(device, "device_tag_find");
  tide__mutex_lock(&device->pools_lock);
  tide__pool_base* base = tide__pools_first_locked(&device->pools);
  for (; base != NULL; base = tide__pools_after_locked(base)) {
    const bool is_it = base->users > 0 && strcmp(tide__pool_tag(tide__pool_of(base)), tag) == 0;
    if (is_it && base->number > *out) *out = base->number;
  }
  tide__mutex_unlock(&device->pools_lock);
  TIDE_REQUIRE(*out != 0 && tag[0] != '\0', TIDE_ERR_HANDLE, "device_tag_find: no pool has the tag \"%s\"",
               tag);
  return TIDE_OK;
}

// The first tag after another one among those of all pools; NULL at the end.
static const char* tag_after_locked(tide_device_cache* device, const char* before) {
  const char* first = NULL;
  tide__pool_base* base = tide__pools_first_locked(&device->pools);
  for (; base != NULL; base = tide__pools_after_locked(base)) {
    const char* const tag = tide__pool_tag(tide__pool_of(base));
    if (strcmp(tag, before) > 0 && (first == NULL || strcmp(tag, first) < 0)) first = tag;
  }
  return first;
}

tide_status tide_device_visit_tags(tide_device_cache* device, bool (*function)(void* user, const char* tag),
                                   void* user) {
  TIDE_REQUIRE(device != NULL && function != NULL, TIDE_ERR_ARGUMENT,
               "device_visit_tags: no device or function");
  TIDE__REQUIRE_OWN(device, "device_visit_tags");
  const char* tag = "";
  do {
    tide__mutex_lock(&device->pools_lock);
    tag = tag_after_locked(device, tag);
    tide__mutex_unlock(&device->pools_lock);
  } while (tag != NULL && function(user, tag));
  return TIDE_OK;
}
