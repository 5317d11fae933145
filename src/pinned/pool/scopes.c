// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `pool`: the scopes of the cache, and the bytes that captured copies will read. Calls pools.c only.
// Lock: pools.
#include <string.h>

#include "base/sized.h"
#include "pinned/pool/pool.h"

enum { SCOPE_CHECKS_COPIES = 1 };  // a flag of tide__scope

typedef bool (*scope_filter_fn)(void* user, int device, tide_stream stream);

static bool filter_ask(const tide__scope* scope, int device, tide_stream stream) {
  return ((scope_filter_fn)scope->filter)(scope->user, device, stream);
}

tide_status tide_pinned_pool_begin(tide_pinned_cache* pinned, tide_pool pool,
                                   const tide_pinned_scope* scope) {
  tide_pinned_scope whole = TIDE_PINNED_SCOPE_INIT;
  if (scope != NULL) TIDE_TRY(tide__sized_read("pinned_pool_begin", scope, &whole, sizeof whole));
  scope = &whole;
  TIDE_TRY(tide__pin_cache_check(pinned, "pinned_pool_begin"));
  const bool needs_device = scope->kind == TIDE_SCOPE_STREAM || scope->kind == TIDE_SCOPE_CAPTURE;
  TIDE_REQUIRE(!needs_device || (scope->device >= 0 && scope->device < pinned->device_count), TIDE_ERR_DEVICE,
               "pinned_pool_begin: there is no device %d", scope->device);
  const tide__scope opened = { .kind = scope->kind,
                               .flags = scope->checks_copies ? SCOPE_CHECKS_COPIES : 0u,
                               .device = scope->device,
                               .stream = scope->stream,
                               .ask = filter_ask,
                               .filter = (void (*)(void))scope->filter,
                               .user = scope->user };
  return tide__pools_begin(&pinned->pools, pool, &opened, "pinned_pool_begin");
}

void tide__pin_pool_choose(tide__pin_request* request) {
  tide_pinned_cache* const pinned = request->pinned;
  if ((tide__load_relaxed(&pinned->unusual) & TIDE__PIN_HAS_SCOPES) == 0) return;
  tide__pin_pool* const pool = tide__pin_pool_at(
      tide__pools_choose(&pinned->pools, pinned->machine, request->device, request->stream));
  if (pool == NULL) return;
  request->pool = pool;
  request->is_scoped = true;
}

// ---------------------------------------------------------------------------------------------------
// Captured copies

enum { COPY_STEP = 8 };

// FNV-1a over words, with a shift.
static uint64_t copy_hash(const void* address, uint64_t bytes) {
  const unsigned char* const data = address;
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  uint64_t i = 0;
  for (; i + COPY_STEP <= bytes; i += COPY_STEP) {
    uint64_t word = 0;
    memcpy(&word, data + i, sizeof word);
    hash = (hash ^ word) * UINT64_C(0x100000001b3);
    hash ^= hash >> 29;
  }
  for (; i < bytes; i++) hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
  return hash;
}

static bool pool_checks_copies(tide_pinned_cache* pinned, const tide__pin_pool* pool) {
  tide__mutex_lock(&pinned->pools_lock);
  const tide__scope* const scope = tide__pools_scope_locked(&pinned->pools, &pool->base);
  const bool checks_copies = scope != NULL && (scope->flags & SCOPE_CHECKS_COPIES) != 0;
  tide__mutex_unlock(&pinned->pools_lock);
  return checks_copies;
}

void tide__pin_copy_note(tide_pinned_cache* pinned, const tide__pin* block, int device, tide_stream stream,
                         const void* source, uint64_t bytes) {
  if (!block->is_scoped || pinned->is_dry) return;
  tide__pin_pool* const pool = block->segment->pool;
  if (!pool_checks_copies(pinned, pool)) return;
  if (tide__capture_of(pinned->machine, device, stream) == 0) return;
  tide__pin_copy* const copy = tide__heap_alloc(pinned->heap, 1, sizeof *copy);
  if (copy == NULL) return;  // the copy is not checked
  copy->address = source;
  copy->bytes = bytes;
  copy->hash = copy_hash(source, bytes);
  tide__mutex_lock(&pinned->pools_lock);
  copy->next = pool->copies;
  pool->copies = copy;
  tide__mutex_unlock(&pinned->pools_lock);
}

// Compares the bytes that captured copies will read with their hashes, and frees the list.
static tide_status copies_check(tide_pinned_cache* pinned, tide__pin_copy* copies) {
  tide_status status = TIDE_OK;
  while (copies != NULL) {
    tide__pin_copy* const copy = copies;
    copies = copy->next;
    if (copy_hash(copy->address, copy->bytes) != copy->hash) {
      status = TIDE_FAIL(TIDE_ERR_STATE,
                         "pinned_pool_end: the %llu bytes at %p that a captured copy reads were changed",
                         (unsigned long long)copy->bytes, copy->address);
    }
    tide__heap_release(pinned->heap, copy, 1, sizeof *copy);
  }
  return status;
}

static tide__pin_copy* copies_take(tide_pinned_cache* pinned, tide_pool number) {
  tide__mutex_lock(&pinned->pools_lock);
  tide__pin_pool* const pool = tide__pin_pool_at(tide__pools_find_locked(&pinned->pools, number));
  tide__pin_copy* const copies = pool != NULL ? pool->copies : NULL;
  if (pool != NULL) pool->copies = NULL;
  tide__mutex_unlock(&pinned->pools_lock);
  return copies;
}

tide_status tide_pinned_pool_end(tide_pinned_cache* pinned, tide_pool pool) {
  TIDE_TRY(tide__pin_cache_check(pinned, "pinned_pool_end"));
  TIDE_TRY(tide__pools_end(&pinned->pools, pool, "pinned_pool_end"));
  return copies_check(pinned, copies_take(pinned, pool));
}
