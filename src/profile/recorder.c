// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The record of a run. The table of live addresses is open with linear probing; an entry that goes is filled
// by those behind it, so that the table never fills with traces of the past. Growing takes the new memory
// before the lock. Cost: O(1) a note; 16 bytes for each live address, twice, and 36 for each request.
#include "profile/recorder.h"

#include <string.h>

#include "base/arith.h"
#include "base/heap.h"

#define RECORDER_FIRST_LOG 8u
#define RECORDER_FIRST_REQUESTS 1024u

void tide__recorder_init(tide__recorder* recorder, const tide_heap* heap) {
  *recorder = (tide__recorder){ .heap = heap };
  tide__mutex_init(&recorder->lock, TIDE__RANK_RECORDER);
}

static size_t recorder_slots(const tide__recorder* recorder) {
  return recorder->entries != NULL ? (size_t)1 << recorder->log : 0;
}

void tide__recorder_fini(tide__recorder* recorder) {
  tide__heap_release(recorder->heap, recorder->entries, recorder_slots(recorder), sizeof *recorder->entries);
  tide__heap_release(recorder->heap, recorder->requests, recorder->capacity, sizeof *recorder->requests);
  tide__heap_release(recorder->heap, recorder->releases, recorder->capacity, sizeof *recorder->releases);
  tide__mutex_fini(&recorder->lock);
}

void tide__recorder_clear(tide__recorder* recorder) {
  if (tide__load_relaxed(&recorder->live) != 0)
    memset(recorder->entries, 0, recorder_slots(recorder) * sizeof *recorder->entries);
  tide__store_relaxed(&recorder->live, 0);
  recorder->count = 0;
  recorder->released = 0;
}

// ---------------------------------------------------------------------------------------------------
// The table

static size_t live_slot(uint64_t address, uint32_t log) {
  return (size_t)((address * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - log));
}

// The entry of an address, or the free one where it would be.
static size_t live_find(const tide__live_entry* entries, uint32_t log, uint64_t address) {
  const size_t mask = ((size_t)1 << log) - 1;
  size_t slot = live_slot(address, log);
  while (entries[slot].address != 0 && entries[slot].address != address) slot = (slot + 1) & mask;
  return slot;
}

// Removes an entry and moves those behind it that would not be found any more.
static void live_remove(tide__recorder* recorder, size_t hole) {
  const size_t mask = ((size_t)1 << recorder->log) - 1;
  tide__live_entry* const entries = recorder->entries;
  for (size_t slot = (hole + 1) & mask; entries[slot].address != 0; slot = (slot + 1) & mask) {
    const size_t home = live_slot(entries[slot].address, recorder->log);
    // It may move back to the hole if that is not before its home.
    if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
    entries[hole] = entries[slot];
    hole = slot;
  }
  entries[hole].address = 0;
  tide__store_relaxed(&recorder->live, tide__load_relaxed(&recorder->live) - 1);
}

static bool recorder_grow_table(tide__recorder* recorder) {
  const uint32_t log = recorder->entries != NULL ? recorder->log + 1 : RECORDER_FIRST_LOG;
  const size_t old_slots = recorder_slots(recorder);
  tide__live_entry* const grown = tide__heap_alloc(recorder->heap, (size_t)1 << log, sizeof *grown);
  if (grown == NULL) return false;
  tide__live_entry* const old = recorder->entries;
  tide__mutex_lock(&recorder->lock);
  for (size_t i = 0; i < old_slots; i++) {
    if (old[i].address != 0) grown[live_find(grown, log, old[i].address)] = old[i];
  }
  recorder->entries = grown;
  recorder->log = log;
  tide__mutex_unlock(&recorder->lock);
  tide__heap_release(recorder->heap, old, old_slots, sizeof *old);
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
  // Others only make it smaller meanwhile.
  const size_t taken = 2 * ((size_t)tide__load_relaxed(&recorder->live) + 1);
  if (taken > recorder_slots(recorder) && !recorder_grow_table(recorder)) return false;
  return recorder->count < recorder->capacity || recorder_grow_requests(recorder);
}

// ---------------------------------------------------------------------------------------------------
// Notes

// Returns what the address meant before, or TIDE__NO_REQUEST.
static uint32_t live_put(tide__recorder* recorder, uint64_t address, uint32_t request) {
  tide__live_entry* const entry = &recorder->entries[live_find(recorder->entries, recorder->log, address)];
  const uint32_t before = entry->address != 0 ? entry->request : TIDE__NO_REQUEST;
  if (entry->address == 0) tide__store_relaxed(&recorder->live, tide__load_relaxed(&recorder->live) + 1);
  *entry = (tide__live_entry){ .address = address, .request = request };
  return before;
}

static void recorder_end_locked(tide__recorder* recorder, uint32_t request) TIDE_REQUIRES(&recorder->lock) {
  recorder->requests[request].lifetime = recorder->count;
  recorder->releases[recorder->released++] = request;
}

void tide__recorder_add(tide__recorder* recorder, uint64_t address, uint64_t bytes, uint64_t alignment) {
  tide__mutex_lock(&recorder->lock);
  const size_t count = recorder->count;
  const uint32_t before = live_put(recorder, address, (uint32_t)count);
  if (before != TIDE__NO_REQUEST) recorder_end_locked(recorder, before);
  recorder->requests[count] = (tide_profile_request){ bytes, alignment, TIDE_PROFILE_NEVER, 0 };
  recorder->count = count + 1;
  tide__mutex_unlock(&recorder->lock);
}

static uint32_t live_take(tide__recorder* recorder, uint64_t address, bool* out_found) {
  *out_found = false;
  if (tide__load_relaxed(&recorder->live) == 0) return TIDE__NO_REQUEST;
  const size_t slot = live_find(recorder->entries, recorder->log, address);
  if (recorder->entries[slot].address == 0) return TIDE__NO_REQUEST;
  const uint32_t request = recorder->entries[slot].request;
  live_remove(recorder, slot);
  *out_found = true;
  return request;
}

bool tide__recorder_end(tide__recorder* recorder, uint64_t address) {
  bool is_found = false;
  tide__mutex_lock(&recorder->lock);
  const uint32_t request = live_take(recorder, address, &is_found);
  if (is_found) recorder_end_locked(recorder, request);
  tide__mutex_unlock(&recorder->lock);
  return is_found;
}

void tide__recorder_put(tide__recorder* recorder, uint64_t address, uint32_t request) {
  tide__mutex_lock(&recorder->lock);
  live_put(recorder, address, request);
  tide__mutex_unlock(&recorder->lock);
}

uint32_t tide__recorder_take(tide__recorder* recorder, uint64_t address, bool* out_found) {
  tide__mutex_lock(&recorder->lock);
  const uint32_t request = live_take(recorder, address, out_found);
  tide__mutex_unlock(&recorder->lock);
  return request;
}
