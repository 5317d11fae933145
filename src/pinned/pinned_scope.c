// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Scopes: which requests go to which pool, and what captured copies will read. Filters are the user's:
// they are asked with no lock held, on a copy of the open scopes, and the scope that took a request is
// looked up again before the request stays in its pool. Lock: pools.
#include <pthread.h>
#include <string.h>

#include "base/sized.h"
#include "pinned/pinned_cache.h"

// A number that no other living thread has.
static uint64_t scope_thread(void) {
  static _Thread_local char place;
  return tide__address(&place);
}

static tide_status scope_check(const tide_pinned* pinned, const tide_pinned_scope* scope) {
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "pinned_pool_begin: no cache");
  TIDE_REQUIRE(scope->kind <= TIDE_SCOPE_FILTER, TIDE_ERR_ARGUMENT, "pinned_pool_begin: a scope of kind %u",
               scope->kind);
  TIDE_REQUIRE(scope->kind != TIDE_SCOPE_FILTER || scope->filter != NULL, TIDE_ERR_ARGUMENT,
               "pinned_pool_begin: no filter");
  const bool needs_device = scope->kind == TIDE_SCOPE_STREAM || scope->kind == TIDE_SCOPE_CAPTURE;
  TIDE_REQUIRE(!needs_device || (scope->device >= 0 && scope->device < pinned->device_count), TIDE_ERR_DEVICE,
               "pinned_pool_begin: there is no device %d", scope->device);
  return TIDE_OK;
}

// Everything is tested before anything is changed.
static tide_status scope_open_locked(tide_pinned* pinned, tide_pool number, const tide_pinned_scope* scope)
    TIDE_REQUIRES(&pinned->pools_lock) {
  tide__pin_pool* const pool = number != TIDE_POOL_DEFAULT ? tide__pin_pool_find_locked(pinned, number)
                                                           : NULL;
  if (pool == NULL) return TIDE_ERR_HANDLE;
  if (pool->users == 0 || pool->has_scope) return TIDE_ERR_STATE;
  if (pinned->scope_count == TIDE__PIN_MAX_SCOPES) return TIDE_ERR_LIMIT;
  pool->has_scope = true;
  pinned->scopes[pinned->scope_count++] =
      (tide__pin_scope){ pool, ++pinned->next_scope, scope_thread(), *scope };
  tide__pin_set_unusual(pinned, TIDE__PIN_HAS_SCOPES, true);
  return TIDE_OK;
}

tide_status tide_pinned_pool_begin(tide_pinned* pinned, tide_pool pool, const tide_pinned_scope* scope) {
  tide_pinned_scope whole = TIDE_PINNED_SCOPE_INIT;
  if (scope != NULL) TIDE_TRY(tide__sized_read("pinned_pool_begin", scope, &whole, sizeof whole));
  scope = &whole;
  TIDE_TRY(scope_check(pinned, scope));
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_pool_begin");
  tide__mutex_lock(&pinned->pools_lock);
  const tide_status status = scope_open_locked(pinned, pool, scope);
  tide__mutex_unlock(&pinned->pools_lock);
  TIDE_REQUIRE(status != TIDE_ERR_HANDLE, status, "pinned_pool_begin: there is no private pool %u", pool);
  TIDE_REQUIRE(status != TIDE_ERR_STATE, status,
               "pinned_pool_begin: pool %u has an open scope already, or no users any more", pool);
  TIDE_REQUIRE(status != TIDE_ERR_LIMIT, status, "pinned_pool_begin: %d scopes are open",
               TIDE__PIN_MAX_SCOPES);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Copies that a capture has noted

enum { COPY_STEP = 8 };

// A hash of bytes that differs if any of them does, almost surely (FNV-1a over words).
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

// Has the pool an open scope that wants captured copies to be checked?
static bool pool_checks_locked(const tide_pinned* pinned, const tide__pin_pool* pool) {
  for (uint32_t i = 0; i < pinned->scope_count; i++) {
    if (pinned->scopes[i].pool == pool) return pinned->scopes[i].scope.checks_copies;
  }
  return false;
}

void tide__pin_copy_note(tide_pinned* pinned, const tide__pin* block, int device, tide_stream stream,
                         const void* source, uint64_t bytes) {
  if (!block->is_scoped || pinned->is_dry) return;
  tide__pin_pool* const pool = block->segment->pool;
  tide__mutex_lock(&pinned->pools_lock);
  const bool is_checked = pool_checks_locked(pinned, pool);
  tide__mutex_unlock(&pinned->pools_lock);
  if (!is_checked || !tide__pin_stream_is_captured(pinned, device, stream)) return;
  tide__pin_copy* const copy = tide__heap_alloc(pinned->heap, 1, sizeof *copy);
  if (copy == NULL) return;  // it is not checked then
  copy->address = source;
  copy->bytes = bytes;
  copy->hash = copy_hash(source, bytes);
  tide__mutex_lock(&pinned->pools_lock);
  copy->next = pool->copies;
  pool->copies = copy;
  tide__mutex_unlock(&pinned->pools_lock);
}

// Compares what the copies of a scope read with what was there; frees the notes.
static tide_status copies_check(tide_pinned* pinned, tide__pin_copy* copies) {
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

tide_status tide_pinned_pool_end(tide_pinned* pinned, tide_pool pool) {
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "pinned_pool_end: no cache");
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_pool_end");
  tide__pin_copy* copies = NULL;
  tide__mutex_lock(&pinned->pools_lock);
  tide__pin_pool* const found = pool != TIDE_POOL_DEFAULT ? tide__pin_pool_find_locked(pinned, pool) : NULL;
  const bool had_scope = found != NULL && found->has_scope;
  if (had_scope) {
    uint32_t i = 0;
    while (pinned->scopes[i].pool != found) i++;
    for (pinned->scope_count--; i < pinned->scope_count; i++) pinned->scopes[i] = pinned->scopes[i + 1];
    tide__pin_set_unusual(pinned, TIDE__PIN_HAS_SCOPES, pinned->scope_count != 0);
    found->has_scope = false;
    copies = found->copies;
    found->copies = NULL;
    tide__askers_wait_locked(&pinned->askers, &pinned->pools_lock);
  }
  tide__mutex_unlock(&pinned->pools_lock);
  TIDE_REQUIRE(found != NULL, TIDE_ERR_HANDLE, "pinned_pool_end: there is no private pool %u", pool);
  TIDE_REQUIRE(had_scope, TIDE_ERR_STATE, "pinned_pool_end: pool %u has no open scope", pool);
  return copies_check(pinned, copies);
}

// ---------------------------------------------------------------------------------------------------
// Requests

// The number of the capture that a stream is in; 0: none.
static uint64_t stream_capture_id(tide_pinned* pinned, int device, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  tide_error before;
  tide__pin_error_keep(&before);
  if (tide_machine_capture_info(pinned->machine, device, stream, &state, &id) != TIDE_OK) {
    tide__pin_error_restore(&before);
    return 0;
  }
  return state == TIDE_CAPTURE_ACTIVE ? id : 0;
}

static bool scope_takes_request(const tide__pin_scope* open, const tide__pin_request* request) {
  const tide_pinned_scope* const scope = &open->scope;
  switch ((tide_scope_kind)scope->kind) {
    case TIDE_SCOPE_ALL: return true;
    case TIDE_SCOPE_THREAD: return open->thread == scope_thread();
    case TIDE_SCOPE_STREAM: return scope->device == request->device && scope->stream == request->stream;
    case TIDE_SCOPE_CAPTURE: {
      if (request->device < 0) return false;
      const uint64_t id = stream_capture_id(request->pinned, scope->device, scope->stream);
      return id != 0 && stream_capture_id(request->pinned, request->device, request->stream) == id;
    }
    case TIDE_SCOPE_FILTER: return scope->filter(scope->user, request->device, request->stream);
  }
  return false;
}

// Makes the request a guest of the pool of a copied scope, if that is still open.
static bool scope_visit(tide_pinned* pinned, const tide__pin_scope* copy) {
  bool is_open = false;
  tide__mutex_lock(&pinned->pools_lock);
  for (uint32_t i = 0; i < pinned->scope_count; i++) {
    is_open = is_open || pinned->scopes[i].number == copy->number;
  }
  if (is_open) copy->pool->guests++;
  tide__mutex_unlock(&pinned->pools_lock);
  return is_open;
}

void tide__pin_pool_leave(tide_pinned* pinned, tide__pin_pool* pool) {
  tide__mutex_lock(&pinned->pools_lock);
  pool->guests--;
  tide__mutex_unlock(&pinned->pools_lock);
}

void tide__pin_pool_choose(tide__pin_request* request) {
  tide_pinned* const pinned = request->pinned;
  tide__pin_scope scopes[TIDE__PIN_MAX_SCOPES];
  tide__asker asker;
  if ((tide__load_relaxed(&pinned->unusual) & TIDE__PIN_HAS_SCOPES) == 0) return;
  tide__mutex_lock(&pinned->pools_lock);
  uint32_t count = pinned->scope_count;
  for (uint32_t i = 0; i < count; i++) scopes[i] = pinned->scopes[i];
  tide__askers_enter_locked(&pinned->askers, &asker);
  tide__mutex_unlock(&pinned->pools_lock);
  while (count-- > 0) {
    if (!scope_takes_request(&scopes[count], request) || !scope_visit(pinned, &scopes[count])) continue;
    request->pool = scopes[count].pool;
    request->is_scoped = true;
    break;
  }
  tide__mutex_lock(&pinned->pools_lock);
  tide__askers_leave_locked(&pinned->askers, &asker);
  tide__mutex_unlock(&pinned->pools_lock);
}
