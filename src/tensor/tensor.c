// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which source serves the requests of a thread. The source of a tensor is found without its scope: for a
// cache by the address, for others by a record (parcel.h).
#include "tidemark/tensor.h"

#include "base/arith.h"
#include "base/atomic.h"
#include "base/error.h"
#include "tensor/parcel.h"

// The header word of a tensor from a cache. It depends on the address and on whether the tensor is live. So
// a block that the program took from the cache directly is not mistaken for a tensor. Tensors of other
// sources have 0, because their memory may also lie in a cache.
#define TENSOR_LIVE 0x9e3779b97f4a7c15u
#define TENSOR_RELEASED 0xc2b2ae3d27d4eb4fu

// Keeps rare paths out of line, so that cached tensors need little stack.
#define TENSOR_SELDOM __attribute__((noinline))

static inline uint64_t tensor_mark(const void* base, uint64_t state) { return tide__address(base) ^ state; }

// At most one of the two is set.
typedef struct tensor_scope {
  tide_cpu_cache* cache;      // borrowed
  const tide_memory* source;  // borrowed
} tensor_scope;

static _Thread_local tensor_scope tensor_scopes[TIDE_TENSOR_DEPTH];  // the outermost first
static _Thread_local uint32_t tensor_count;
static tide__atomic_u32 tensor_raw_flags;

// ---------------------------------------------------------------------------------------------------
// Scopes

static tide_status scope_enter(tensor_scope scope) {
  TIDE_REQUIRE(tensor_count < TIDE_TENSOR_DEPTH, TIDE_ERR_LIMIT, "%u scopes are open on this thread already",
               tensor_count);
  tensor_scopes[tensor_count++] = scope;
  return TIDE_OK;
}

static tensor_scope scope_now(void) {
  return tensor_count > 0 ? tensor_scopes[tensor_count - 1] : (tensor_scope){ 0 };
}

static tide_status scope_leave(tensor_scope scope) {
  const tensor_scope now = scope_now();
  TIDE_REQUIRE(tensor_count > 0 && now.cache == scope.cache && now.source == scope.source, TIDE_ERR_STATE,
               "leave: this scope was not entered last on this thread");
  tensor_count--;
  return TIDE_OK;
}

tide_status tide_tensor_enter(tide_cpu_cache* cache) { return scope_enter((tensor_scope){ .cache = cache }); }

tide_status tide_tensor_leave(tide_cpu_cache* cache) { return scope_leave((tensor_scope){ .cache = cache }); }

tide_status tide_tensor_enter_source(const tide_memory* source) {
  TIDE_REQUIRE(source != NULL && source->alloc != NULL && source->release != NULL, TIDE_ERR_ARGUMENT,
               "enter_source: the source does not have both of its functions");
  TIDE_REQUIRE(source->is_host, TIDE_ERR_ARGUMENT, "enter_source: the processor cannot write the memory");
  return scope_enter((tensor_scope){ .source = source });
}

tide_status tide_tensor_leave_source(const tide_memory* source) {
  TIDE_REQUIRE(source != NULL, TIDE_ERR_ARGUMENT, "leave_source: the source is NULL");
  return scope_leave((tensor_scope){ .source = source });
}

tide_cpu_cache* tide_tensor_cache(void) { return scope_now().cache; }

const tide_memory* tide_tensor_source(void) { return scope_now().source; }

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

static tide_status tensor_ask(tide__parcel* parcel, size_t bytes, void** out) {
  const tide_memory* const source = tide_tensor_source();
  parcel->profile = source == NULL ? tide_profile_innermost() : NULL;
  if (parcel->profile != NULL) {
    return tide_profile_alloc(parcel->profile, bytes, TIDE_TENSOR_FRONT_BYTES, out);
  }
  parcel->memory = source != NULL ? *source : tide_memory_raw(tide__load_relaxed(&tensor_raw_flags));
  return parcel->memory.alloc(&parcel->memory, bytes, TIDE_TENSOR_FRONT_BYTES, out);
}

// Allocates from any source but a cache. The record is made first, so that nothing can fail once the memory
// exists.
TENSOR_SELDOM static tide_status tensor_take(size_t bytes, void** out) {
  tide__parcel* const parcel = tide__parcel_new();
  if (parcel == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "tensor_alloc: no memory for a record");
  const tide_status status = tensor_ask(parcel, bytes, out);
  if (status != TIDE_OK) {
    tide__parcel_free(parcel);
    return status;
  }
  parcel->address = tide__address(*out);
  *(uint64_t*)*out = 0;
  tide__parcel_add(parcel);
  return TIDE_OK;
}

static tide_status tensor_take_cached(tide_cpu_cache* cache, size_t bytes, void** out) {
  TIDE_TRY(tide_cpu_alloc(cache, bytes, out));
  *(uint64_t*)*out = tensor_mark(*out, TENSOR_LIVE);
  return TIDE_OK;
}

tide_status tide_tensor_alloc(size_t bytes, void** out) {
  uint64_t all = 0;
  void* base = NULL;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "tensor_alloc: the result is NULL");
  *out = NULL;
  if (bytes == 0) return TIDE_OK;
  TIDE_REQUIRE(bytes <= PTRDIFF_MAX &&
                   tide__add(bytes, TIDE_TENSOR_FRONT_BYTES + TIDE_TENSOR_GUARD_BYTES, &all),
               TIDE_ERR_ARGUMENT, "tensor_alloc: %zu bytes are too many", bytes);
  tide_cpu_cache* const cache = tide_tensor_cache();
  TIDE_TRY(cache != NULL ? tensor_take_cached(cache, all, &base) : tensor_take(all, &base));
  *out = (char*)base + TIDE_TENSOR_FRONT_BYTES;
  return TIDE_OK;
}

// The caller has removed the record, because the address may be reused as soon as the source has it. If the
// source refuses, the tensor stays.
static tide_status tensor_give(tide__parcel* parcel, void* base) {
  const tide_status status = parcel->profile != NULL ? tide_profile_release(parcel->profile, base)
                                                     : parcel->memory.release(&parcel->memory, base);
  if (status == TIDE_OK) tide__parcel_free(parcel);
  else tide__parcel_add(parcel);
  return status;
}

// `mark` is the header word, or 0 if it must not be read.
TENSOR_SELDOM static tide_status tensor_release_other(void* base, uint64_t mark) {
  tide__parcel* const parcel = tide__parcel_take(tide__address(base));
  if (parcel != NULL) return tensor_give(parcel, base);
  const unsigned long long address = tide__address(base) + TIDE_TENSOR_FRONT_BYTES;
  TIDE_REQUIRE(mark != tensor_mark(base, TENSOR_RELEASED), TIDE_ERR_STATE,
               "tensor_release: the memory at 0x%llx was released already", address);
  return TIDE_FAIL(TIDE_ERR_ARGUMENT, "tensor_release: no live tensor begins at 0x%llx", address);
}

tide_status tide_tensor_release(void* address) {
  if (address == NULL) return TIDE_OK;
  uint64_t* const base = tide__pointer(tide__address(address) - TIDE_TENSOR_FRONT_BYTES);  // may be anywhere
  const bool is_aligned = tide__is_aligned(tide__address(base), TIDE_TENSOR_FRONT_BYTES);
  const uint64_t mark = is_aligned && tide_cpu_owns(base) ? *base : 0;
  if (mark != tensor_mark(base, TENSOR_LIVE)) return tensor_release_other(base, mark);
  *base = tensor_mark(base, TENSOR_RELEASED);
  return tide_cpu_release(base);
}
