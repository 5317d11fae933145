// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The record of a run. New memory is allocated before the lock is taken. O(1) per note; 32 to 64 bytes per
// live address, and 36 to 72 per request.
#include "profile/recorder.h"

#include <string.h>

#include "base/heap.h"

#define RECORDER_FIRST_REQUESTS 1024u

void tide__recorder_init(tide__recorder* recorder, const tide_heap* heap) {
  *recorder = (tide__recorder){ .heap = heap };
  tide__hash_map_init(&recorder->live, heap);
  tide__mutex_init(&recorder->lock, TIDE__RANK_RECORDER);
}

void tide__recorder_fini(tide__recorder* recorder) {
  tide__hash_map_fini(&recorder->live);
  tide__heap_release(recorder->heap, recorder->requests, recorder->capacity, sizeof *recorder->requests);
  tide__heap_release(recorder->heap, recorder->releases, recorder->capacity, sizeof *recorder->releases);
  tide__mutex_fini(&recorder->lock);
}

void tide__recorder_clear(tide__recorder* recorder) {
  tide__hash_map_clear(&recorder->live);
  recorder->count = 0;
  recorder->released = 0;
}

// ---------------------------------------------------------------------------------------------------
// Growing

// Makes room for one more live address. Meanwhile, other threads can only remove some.
static bool recorder_grow_live(tide__recorder* recorder) {
  tide__hash_map larger;
  tide__hash_map_init(&larger, recorder->heap);
  tide__mutex_lock(&recorder->lock);
  const bool has_room = tide__hash_map_has_room(&recorder->live);
  const size_t wanted = recorder->live.count + 1;
  tide__mutex_unlock(&recorder->lock);
  if (has_room) return true;
  if (!tide__hash_map_reserve(&larger, wanted)) return false;
  tide__mutex_lock(&recorder->lock);
  tide__hash_map_grow_into(&recorder->live, &larger);
  tide__mutex_unlock(&recorder->lock);
  tide__hash_map_fini(&larger);
  return true;
}

static void recorder_release_requests(tide__recorder* recorder, tide_profile_request* requests,
                                      uint32_t* releases, size_t capacity) {
  tide__heap_release(recorder->heap, requests, capacity, sizeof *requests);
  tide__heap_release(recorder->heap, releases, capacity, sizeof *releases);
}

static bool recorder_grow_requests(tide__recorder* recorder) {
  const size_t capacity = recorder->capacity != 0 ? 2 * recorder->capacity : RECORDER_FIRST_REQUESTS;
  tide_profile_request* const requests = tide__heap_alloc(recorder->heap, capacity, sizeof *requests);
  uint32_t* const releases = tide__heap_alloc(recorder->heap, capacity, sizeof *releases);
  if (requests == NULL || releases == NULL) {
    recorder_release_requests(recorder, requests, releases, capacity);
    return false;
  }
  tide_profile_request* const old_requests = recorder->requests;
  uint32_t* const old_releases = recorder->releases;
  const size_t old_capacity = recorder->capacity;
  tide__mutex_lock(&recorder->lock);
  if (recorder->count != 0) {
    memcpy(requests, old_requests, recorder->count * sizeof *requests);
    memcpy(releases, old_releases, recorder->released * sizeof *releases);
  }
  recorder->requests = requests;
  recorder->releases = releases;
  recorder->capacity = capacity;
  tide__mutex_unlock(&recorder->lock);
  recorder_release_requests(recorder, old_requests, old_releases, old_capacity);
  return true;
}

bool tide__recorder_reserve(tide__recorder* recorder) {
  if (!recorder_grow_live(recorder)) return false;
  return recorder->count < recorder->capacity || recorder_grow_requests(recorder);
}

// ---------------------------------------------------------------------------------------------------
// Notes

static void recorder_end_locked(tide__recorder* recorder, uint32_t request) TIDE_REQUIRES(&recorder->lock) {
  recorder->requests[request].lifetime = recorder->count;
  recorder->releases[recorder->released++] = request;
}

void tide__recorder_add(tide__recorder* recorder, uint64_t address, uint64_t bytes, uint64_t alignment) {
  tide__mutex_lock(&recorder->lock);
  const size_t count = recorder->count;
  const uint64_t before = tide__hash_map_put(&recorder->live, address, tide__recorder_value((uint32_t)count));
  if (before != 0) recorder_end_locked(recorder, tide__recorder_request(before));
  recorder->requests[count] = (tide_profile_request){ bytes, alignment, TIDE_PROFILE_NEVER, 0 };
  recorder->count = count + 1;
  tide__mutex_unlock(&recorder->lock);
}

bool tide__recorder_end(tide__recorder* recorder, uint64_t address) {
  tide__mutex_lock(&recorder->lock);
  const uint64_t value = tide__hash_map_take(&recorder->live, address);
  if (value != 0) recorder_end_locked(recorder, tide__recorder_request(value));
  tide__mutex_unlock(&recorder->lock);
  return value != 0;
}

void tide__recorder_put(tide__recorder* recorder, uint64_t address, uint32_t request) {
  tide__mutex_lock(&recorder->lock);
  (void)tide__hash_map_put(&recorder->live, address, tide__recorder_value(request));
  tide__mutex_unlock(&recorder->lock);
}

uint32_t tide__recorder_take(tide__recorder* recorder, uint64_t address, bool* out_found) {
  tide__mutex_lock(&recorder->lock);
  const uint64_t value = tide__hash_map_take(&recorder->live, address);
  tide__mutex_unlock(&recorder->lock);
  *out_found = value != 0;
  return value != 0 ? tide__recorder_request(value) : TIDE__NO_REQUEST;
}
