// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: makes the pages of a store, chunk by chunk. Each thread touches a chunk and locks it, while
// copies to earlier chunks run. If the machine refuses to lock one, the rest is not locked either.
#include "base/sys.h"
#include "core/capture.h"
#include "device/park/store.h"

// Unlocking fewer chunks than this is not worth a thread.
#define CHUNKS_ALONE 8

static uint64_t chunk_bytes(const tide__store* store, size_t chunk) {
  return tide__min(store->chunk_bytes, store->bytes - chunk * store->chunk_bytes);
}

// Without touching them first, one thread would have to clear all pages when they are locked.
static void chunk_touch(const tide__store* store, size_t chunk) {
  const uint64_t begin = store->address + chunk * store->chunk_bytes;
  const uint64_t end = begin + chunk_bytes(store, chunk);
  const uint64_t page_bytes = tide__sys_page_bytes();
  if (store->is_dry) return;
  for (uint64_t at = begin; at < end; at += page_bytes) *(volatile char*)tide__pointer(at) = 0;
}

static bool chunk_lock(tide__store* store, size_t chunk) {
  tide_error before;
  if (store->kind != TIDE_BACKUP_PINNED || tide__load_relaxed(&store->is_refused)) return false;
  tide__error_keep(&before);
  void* const address = tide__pointer(store->address + chunk * store->chunk_bytes);
  const tide_status status =
      tide_machine_pinned_register(store->device->machine, address, chunk_bytes(store, chunk));
  if (status != TIDE_OK) tide__store_relaxed(&store->is_refused, 1);
  tide__error_restore(&before);
  return status == TIDE_OK;
}

// Takes the next chunk that is to be made. False if there is none.
static bool chunk_take(tide__store* store, size_t* out) {
  tide__mutex_lock(&store->lock);
  const bool is_left = !store->is_ending && store->next_chunk < store->chunk_count;
  if (is_left) *out = store->next_chunk++;
  tide__mutex_unlock(&store->lock);
  return is_left;
}

static bool chunk_make_next(tide__store* store) {
  size_t chunk = 0;
  if (!chunk_take(store, &chunk)) return false;
  chunk_touch(store, chunk);
  const bool is_locked = chunk_lock(store, chunk);
  tide__mutex_lock(&store->lock);
  store->chunks[chunk] = is_locked ? TIDE__CHUNK_LOCKED : TIDE__CHUNK_PLAIN;
  tide__signal_all(&store->changed);
  tide__mutex_unlock(&store->lock);
  return true;
}

static void* maker_run(void* user) {
  tide__store* const store = user;
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  const tide__relaxed relaxed = tide__relax_or_not(store->device->machine);
  const tide_status known = tide_machine_device_info(store->device->machine, store->device->index, &info);
  if (known == TIDE_OK && info.numa_node >= 0) tide__sys_prefer_node(info.numa_node);
  while (chunk_make_next(store)) {}
  tide__relax_end(&relaxed);
  return NULL;
}

void tide__chunks_make(tide__store* store) {
  if (store->is_making) return;
  store->is_making = true;
  if (!store->is_dry) {
    tide__crew_start(&store->makers, tide__min(store->thread_count, store->chunk_count), maker_run, store);
  }
}

uint8_t tide__chunk_wait(tide__store* store, size_t chunk) {
  tide__mutex_lock(&store->lock);
  while (store->chunks[chunk] == TIDE__CHUNK_NEW) {
    if (store->makers.count == 0) {
      tide__mutex_unlock(&store->lock);
      (void)chunk_make_next(store);
      tide__mutex_lock(&store->lock);
    } else {
      tide__signal_wait(&store->changed, &store->lock);
    }
  }
  const uint8_t state = store->chunks[chunk];
  const bool is_over = store->next_chunk == store->chunk_count;
  tide__mutex_unlock(&store->lock);
  if (is_over && chunk + 1 == store->chunk_count) tide__crew_join(&store->makers);
  return state;
}

void tide__chunks_stop(tide__store* store) {
  tide__mutex_lock(&store->lock);
  store->is_ending = true;
  tide__mutex_unlock(&store->lock);
  tide__crew_join(&store->makers);
}

// ---------------------------------------------------------------------------------------------------
// The end

// Purging the pages here spares the call that unmaps them the work.
static void* unlocker_run(void* user) {
  tide__store* const store = user;
  const tide__relaxed relaxed = tide__relax_or_not(store->device->machine);
  for (;;) {
    const size_t chunk = (size_t)tide__add_relaxed(&store->unlocked, 1);
    if (chunk >= store->chunk_count) break;
    void* const address = tide__pointer(store->address + chunk * store->chunk_bytes);
    if (store->chunks[chunk] == TIDE__CHUNK_LOCKED &&
        tide_machine_pinned_unregister(store->device->machine, address) == TIDE_OK) {
      store->chunks[chunk] = TIDE__CHUNK_PLAIN;
    }
    const bool is_purged = store->chunks[chunk] != TIDE__CHUNK_LOCKED && !store->is_dry;
    if (is_purged) (void)tide__sys_purge(tide__address(address), chunk_bytes(store, chunk));
  }
  tide__relax_end(&relaxed);
  return NULL;
}

bool tide__chunks_unlock(tide__store* store) {
  tide_error before;
  tide__crew crew = { .count = 0 };
  tide__error_keep(&before);
  tide__store_relaxed(&store->unlocked, 0);
  if (store->chunk_count >= CHUNKS_ALONE && !store->is_dry) {
    tide__crew_start(&crew, tide__min(store->thread_count, store->chunk_count), unlocker_run, store);
  }
  (void)unlocker_run(store);
  tide__crew_join(&crew);
  tide__error_restore(&before);
  for (size_t i = 0; i < store->chunk_count; i++) {
    if (store->chunks[i] == TIDE__CHUNK_LOCKED) return false;
  }
  return true;
}
