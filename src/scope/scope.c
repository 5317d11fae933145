// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which source serves the requests of a thread. What is handed out has a record in front of it that says
// where it came from, so that it finds its way back without the scope it was made in.
#include "tidemark/scope.h"

#include "base/arith.h"
#include "base/atomic.h"
#include "base/error.h"
#include "tidemark/profile.h"

typedef enum scope_source { SCOPE_RAW = 1, SCOPE_CACHE, SCOPE_PROFILE } scope_source;

typedef struct scope_record {
  uint64_t mark;          // depends on the address, and on whether the memory is handed out
  uint64_t source;        // a scope_source
  tide_profile* profile;  // borrowed
} scope_record;

_Static_assert(sizeof(scope_record) <= TIDE_SCOPE_FRONT_BYTES, "the record fits in front");

#define SCOPE_LIVE 0x9e3779b97f4a7c15u
#define SCOPE_RELEASED 0xc2b2ae3d27d4eb4fu

static _Thread_local tide_cpu* scope_caches[TIDE_SCOPE_DEPTH];  // borrowed; those in force, outermost first
static _Thread_local uint32_t scope_count;
static tide__atomic_u32 scope_raw_flags;

// ---------------------------------------------------------------------------------------------------
// Scopes

tide_status tide_scope_enter(tide_cpu* cache) {
  TIDE_REQUIRE(scope_count < TIDE_SCOPE_DEPTH, TIDE_ERR_LIMIT,
               "%u caches are in force on this thread already", scope_count);
  scope_caches[scope_count++] = cache;
  return TIDE_OK;
}

tide_status tide_scope_leave(tide_cpu* cache) {
  TIDE_REQUIRE(scope_count > 0 && scope_caches[scope_count - 1] == cache, TIDE_ERR_STATE,
               "this cache was not entered last on this thread");
  scope_count--;
  return TIDE_OK;
}

tide_cpu* tide_scope_cache(void) { return scope_count > 0 ? scope_caches[scope_count - 1] : NULL; }

uint32_t tide_scope_depth(void) { return scope_count; }

tide_status tide_scope_set_raw(uint32_t flags) {
  const uint32_t all = TIDE_RAW_ZEROS | TIDE_RAW_JUNK | TIDE_RAW_HUGE_PAGES;
  const uint32_t both = TIDE_RAW_ZEROS | TIDE_RAW_JUNK;
  TIDE_REQUIRE((flags & ~all) == 0 && (flags & both) != both, TIDE_ERR_ARGUMENT,
               "0x%x are not flags of raw memory", flags);
  tide__store_relaxed(&scope_raw_flags, flags);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Memory

static tide_status scope_ask(size_t bytes, scope_record* record, void** out) {
  tide_cpu* const cache = tide_scope_cache();
  record->profile = cache == NULL ? tide_profile_innermost() : NULL;
  if (cache != NULL) {
    record->source = SCOPE_CACHE;
    return tide_cpu_alloc(cache, bytes, out);
  }
  if (record->profile != NULL) {
    record->source = SCOPE_PROFILE;
    return tide_profile_alloc(record->profile, bytes, TIDE_SCOPE_FRONT_BYTES, out);
  }
  const tide_memory raw = tide_memory_raw(tide__load_relaxed(&scope_raw_flags));
  record->source = SCOPE_RAW;
  return raw.alloc(&raw, bytes, TIDE_SCOPE_FRONT_BYTES, out);
}

tide_status tide_scope_alloc(size_t bytes, void** out) {
  uint64_t all = 0;
  scope_record record = { 0 };
  void* base = NULL;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "scope_alloc: the result is NULL");
  *out = NULL;
  if (bytes == 0) return TIDE_OK;
  TIDE_REQUIRE(bytes <= PTRDIFF_MAX &&
                   tide__add(bytes, TIDE_SCOPE_FRONT_BYTES + TIDE_SCOPE_GUARD_BYTES, &all),
               TIDE_ERR_ARGUMENT, "scope_alloc: %zu bytes are too many", bytes);
  TIDE_TRY(scope_ask(all, &record, &base));
  record.mark = tide__address(base) ^ SCOPE_LIVE;
  *(scope_record*)base = record;
  *out = (char*)base + TIDE_SCOPE_FRONT_BYTES;
  return TIDE_OK;
}

static tide_status scope_give(const scope_record* record, void* base) {
  if (record->source == SCOPE_CACHE) return tide_cpu_release(base);
  if (record->source == SCOPE_PROFILE) return tide_profile_release(record->profile, base);
  const tide_memory raw = tide_memory_raw(0);
  return raw.release(&raw, base);
}

tide_status tide_scope_release(void* address) {
  if (address == NULL) return TIDE_OK;
  void* const base = (char*)address - TIDE_SCOPE_FRONT_BYTES;
  TIDE_REQUIRE(tide__is_aligned(tide__address(base), TIDE_SCOPE_FRONT_BYTES), TIDE_ERR_ARGUMENT,
               "scope_release: 0x%llx was not handed out", (unsigned long long)tide__address(address));
  scope_record* const front = base;
  const scope_record record = *front;
  TIDE_REQUIRE(record.mark != (tide__address(base) ^ SCOPE_RELEASED), TIDE_ERR_STATE,
               "scope_release: the memory at 0x%llx was released already",
               (unsigned long long)tide__address(address));
  TIDE_REQUIRE(record.mark == (tide__address(base) ^ SCOPE_LIVE), TIDE_ERR_ARGUMENT,
               "scope_release: 0x%llx was not handed out", (unsigned long long)tide__address(address));
  front->mark = tide__address(base) ^ SCOPE_RELEASED;
  return scope_give(&record, base);
}
