// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which source serves the requests of a thread. What is handed out has a record in front of it that says
// where it came from, so that it finds its way back without the scope it was made in.
#include "tidemark/tensor.h"

#include "base/arith.h"
#include "base/atomic.h"
#include "base/error.h"
#include "tidemark/profile.h"

typedef enum tensor_source { TENSOR_RAW = 1, TENSOR_CACHE, TENSOR_PROFILE } tensor_source;

typedef struct tensor_record {
  uint64_t mark;          // depends on the address, and on whether the memory is handed out
  uint64_t source;        // a tensor_source
  tide_profile* profile;  // borrowed
} tensor_record;

_Static_assert(sizeof(tensor_record) <= TIDE_TENSOR_FRONT_BYTES, "the record fits in front");

#define TENSOR_LIVE 0x9e3779b97f4a7c15u
#define TENSOR_RELEASED 0xc2b2ae3d27d4eb4fu

static _Thread_local tide_cpu* tensor_caches[TIDE_TENSOR_DEPTH];  // borrowed; those in force, outermost first
static _Thread_local uint32_t tensor_count;
static tide__atomic_u32 tensor_raw_flags;

// ---------------------------------------------------------------------------------------------------
// Scopes

tide_status tide_tensor_enter(tide_cpu* cache) {
  TIDE_REQUIRE(tensor_count < TIDE_TENSOR_DEPTH, TIDE_ERR_LIMIT,
               "%u caches are in force on this thread already", tensor_count);
  tensor_caches[tensor_count++] = cache;
  return TIDE_OK;
}

tide_status tide_tensor_leave(tide_cpu* cache) {
  TIDE_REQUIRE(tensor_count > 0 && tensor_caches[tensor_count - 1] == cache, TIDE_ERR_STATE,
               "this cache was not entered last on this thread");
  tensor_count--;
  return TIDE_OK;
}

tide_cpu* tide_tensor_cache(void) { return tensor_count > 0 ? tensor_caches[tensor_count - 1] : NULL; }

uint32_t tide_tensor_depth(void) { return tensor_count; }

tide_status tide_tensor_set_raw(uint32_t flags) {
  const uint32_t all = TIDE_RAW_ZEROS | TIDE_RAW_JUNK | TIDE_RAW_HUGE_PAGES;
  const uint32_t both = TIDE_RAW_ZEROS | TIDE_RAW_JUNK;
  TIDE_REQUIRE((flags & ~all) == 0 && (flags & both) != both, TIDE_ERR_ARGUMENT,
               "0x%x are not flags of raw memory", flags);
  tide__store_relaxed(&tensor_raw_flags, flags);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Memory

static tide_status tensor_ask(size_t bytes, tensor_record* record, void** out) {
  tide_cpu* const cache = tide_tensor_cache();
  record->profile = cache == NULL ? tide_profile_innermost() : NULL;
  if (cache != NULL) {
    record->source = TENSOR_CACHE;
    return tide_cpu_alloc(cache, bytes, out);
  }
  if (record->profile != NULL) {
    record->source = TENSOR_PROFILE;
    return tide_profile_alloc(record->profile, bytes, TIDE_TENSOR_FRONT_BYTES, out);
  }
  const tide_memory raw = tide_memory_raw(tide__load_relaxed(&tensor_raw_flags));
  record->source = TENSOR_RAW;
  return raw.alloc(&raw, bytes, TIDE_TENSOR_FRONT_BYTES, out);
}

tide_status tide_tensor_alloc(size_t bytes, void** out) {
  uint64_t all = 0;
  tensor_record record = { 0 };
  void* base = NULL;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "tensor_alloc: the result is NULL");
  *out = NULL;
  if (bytes == 0) return TIDE_OK;
  TIDE_REQUIRE(bytes <= PTRDIFF_MAX &&
                   tide__add(bytes, TIDE_TENSOR_FRONT_BYTES + TIDE_TENSOR_GUARD_BYTES, &all),
               TIDE_ERR_ARGUMENT, "tensor_alloc: %zu bytes are too many", bytes);
  TIDE_TRY(tensor_ask(all, &record, &base));
  record.mark = tide__address(base) ^ TENSOR_LIVE;
  *(tensor_record*)base = record;
  *out = (char*)base + TIDE_TENSOR_FRONT_BYTES;
  return TIDE_OK;
}

static tide_status tensor_give(const tensor_record* record, void* base) {
  if (record->source == TENSOR_CACHE) return tide_cpu_release(base);
  if (record->source == TENSOR_PROFILE) return tide_profile_release(record->profile, base);
  const tide_memory raw = tide_memory_raw(0);
  return raw.release(&raw, base);
}

tide_status tide_tensor_release(void* address) {
  if (address == NULL) return TIDE_OK;
  void* const base = (char*)address - TIDE_TENSOR_FRONT_BYTES;
  TIDE_REQUIRE(tide__is_aligned(tide__address(base), TIDE_TENSOR_FRONT_BYTES), TIDE_ERR_ARGUMENT,
               "tensor_release: 0x%llx was not handed out", (unsigned long long)tide__address(address));
  tensor_record* const front = base;
  const tensor_record record = *front;
  TIDE_REQUIRE(record.mark != (tide__address(base) ^ TENSOR_RELEASED), TIDE_ERR_STATE,
               "tensor_release: the memory at 0x%llx was released already",
               (unsigned long long)tide__address(address));
  TIDE_REQUIRE(record.mark == (tide__address(base) ^ TENSOR_LIVE), TIDE_ERR_ARGUMENT,
               "tensor_release: 0x%llx was not handed out", (unsigned long long)tide__address(address));
  front->mark = tide__address(base) ^ TENSOR_RELEASED;
  return tensor_give(&record, base);
}
