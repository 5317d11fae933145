// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Requests. The fast path takes a block out of the calling thread's cache. Otherwise a request tries, in this
// order: the depot, waiting blocks whose work is done, the caches of other threads, and the machine. If the
// machine refuses, memory is given back to it step by step, and each step is followed by another attempt:
// cached blocks of at least the same size, all cached blocks, and blocks that are waited for.
// Calls trim.c and all rooms.
#include "pinned/calls.h"
#include "pinned/idle/idle.h"
#include "pinned/pool/pool.h"
#include "pinned/stream/stream.h"

// ---------------------------------------------------------------------------------------------------
// Sizes

static uint64_t power_of_two_above(uint64_t bytes) {
  const uint64_t least = (uint64_t)1 << TIDE__PIN_UNIT_SHIFT;
  return bytes <= least ? least : (uint64_t)1 << (64 - __builtin_clzll(bytes - 1));
}

// The class of a size that has one.
static inline uint32_t class_of(uint64_t bytes) {
  const uint64_t unit = (uint64_t)1 << TIDE__PIN_UNIT_SHIFT;
  return tide__class_of((bytes + unit - 1) >> TIDE__PIN_UNIT_SHIFT);
}

// The size and the class of the block for a request; false for 0 bytes, and for 2^60 and more.
static bool size_round(const tide_pinned_cache* pinned, uint64_t bytes, uint64_t* out_rounded,
                       uint32_t* out_class) {
  const tide_pinned_options* const o = &pinned->options;
  if (bytes == 0 || bytes >= TIDE__PIN_MAX_REQUEST) return false;
  *out_class = TIDE__PIN_SIZED;
  if (bytes > o->max_round_bytes || bytes > o->max_block_bytes) {
    return tide__align_up(bytes, pinned->page_bytes, out_rounded);
  }
  if (o->powers_of_two) bytes = power_of_two_above(bytes);
  const bool is_over = bytes > o->max_block_bytes;  // only now, as a power of two
  if (is_over || bytes > TIDE__PIN_CLASS_BYTES) {
    return tide__align_up(bytes, is_over ? pinned->page_bytes : TIDE__PIN_HUGE_BYTES, out_rounded);
  }
  *out_class = class_of(bytes);
  *out_rounded = tide__pin_class_bytes(*out_class);
  return true;
}

size_t tide_pinned_round(const tide_pinned_cache* pinned, size_t bytes) {
  uint64_t rounded = 0;
  uint32_t class_index = 0;
  const bool is_good = pinned != NULL && size_round(pinned, bytes, &rounded, &class_index);
  return is_good ? rounded : 0;
}

// ---------------------------------------------------------------------------------------------------
// Handing out

// The calling thread has the block and its thread cache.
static inline void block_hand_out_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                         tide__pin* block, uint64_t bytes, tide_block* out) {
  tide__pin_count_out_locked(pinned, tcache, bytes);
  out->address = tide__pointer(tide__pin_address(block));
  out->handle = tide__slots_publish(&pinned->blocks, block);
}

static void request_finish(const tide__pin_request* request, tide__pin* block, tide_block* out) {
  tide_pinned_cache* const pinned = request->pinned;
  block->is_scoped = request->is_scoped;
  block->device = request->device;
  block->stream = request->stream;
  tide__store_relaxed(&block->stack, request->context.stack);
  tide__store_relaxed(&block->requested_bytes, request->bytes);
  if (tide__pin_is_recording(pinned)) {
    tide__pin_history_block(pinned, TIDE_ACTION_ALLOC, &request->context, block);
  }
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  block_hand_out_locked(pinned, tcache, block, tide__pin_bytes(block), out);
  tide__pin_leave(tcache);
}

// ---------------------------------------------------------------------------------------------------
// Finding

static tide__pin* request_find(const tide__pin_request* request) {
  tide_pinned_cache* const pinned = request->pinned;
  const uint32_t class_index = request->class_index;
  tide__pin* block = NULL;
  if (class_index == TIDE__PIN_SIZED) {
    return tide__pin_depot_take_sized(pinned, request->pool, request->rounded);
  }
  if (request->pool != pinned->default_pool || request->rounded > TIDE__PIN_MAGAZINE_BYTES) {
    (void)tide__pin_depot_take(pinned, request->pool, class_index, 1, &block);
    return block;
  }
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  block = tide__pin_tcache_take_locked(pinned, tcache, class_index);
  tide__pin_leave(tcache);
  return block;
}

// Looks for memory among waiting blocks and in the caches of other threads. `is_needed`: the machine has no
// more.
static tide__pin* request_search(const tide__pin_request* request, bool is_needed) {
  tide_pinned_cache* const pinned = request->pinned;
  tide_error before;
  tide__error_keep(&before);
  if (tide__pin_sweep(pinned) != TIDE_OK) tide__error_restore(&before);
  tide__pin* const block = request_find(request);
  if (block != NULL || request->pool != pinned->default_pool) return block;
  return tide__pin_tcaches_steal(pinned, request->class_index, is_needed) ? request_find(request) : NULL;
}

// ---------------------------------------------------------------------------------------------------
// Recovery

// Drivers report a lack of memory by several codes.
static bool is_lack_of_memory(tide_status status) {
  return status == TIDE_ERR_NO_MEMORY || status == TIDE_ERR_MACHINE || status == TIDE_ERR_LIMIT;
}

// Gives cached memory back; true if some went.
static bool recover_trim(tide_pinned_cache* pinned, uint64_t least_bytes) {
  uint32_t count = 0;
  tide__ignore(tide__pin_trim(pinned, least_bytes, 0, &count));
  return count != 0;
}

// Tries again to make a segment. True: *status is the result of the request.
static bool recover_retry(const tide__pin_request* request, tide_status* status, tide__pin** out) {
  *status = tide__pin_segment_make(request, true, out);
  return *status == TIDE_OK || !is_lack_of_memory(*status);
}

static tide_status request_recover(const tide__pin_request* request, tide_status status, tide__pin** out) {
  tide_pinned_cache* const pinned = request->pinned;
  TIDE__PIN_COUNT(pinned, num_alloc_retries);
  *out = request_search(request, true);
  if (*out != NULL) return TIDE_OK;
  if (recover_trim(pinned, request->rounded) && recover_retry(request, &status, out)) return status;
  const tide_status emptied = tide__pin_pools_empty(pinned);
  if ((recover_trim(pinned, 0) || emptied == TIDE_OK) && recover_retry(request, &status, out)) return status;
  if (tide__waits_is_empty(&pinned->waits)) return status;
  tide__ignore(tide__pin_drain(pinned));
  *out = request_search(request, true);
  if (*out != NULL) return TIDE_OK;
  (void)recover_trim(pinned, 0);
  (void)recover_retry(request, &status, out);
  return status;
}

static tide_status request_fail(const tide__pin_request* request, tide_status status) {
  tide_pinned_cache* const pinned = request->pinned;
  const tide_error reason = *tide_last_error();
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  TIDE__PIN_COUNT(pinned, num_ooms);
  tide__pin_history_add(pinned, TIDE_ACTION_OOM, &request->context, 0, request->rounded,
                        request->pool->base.number);
  TIDE_TRY(tide_pinned_get_stats(pinned, &stats));
  return TIDE_FAIL_NATIVE(status, reason.native,
                          "pinned_alloc: no memory for %llu bytes (a block of %llu); %lld are handed out or "
                          "wait, %lld cached. %.100s",
                          (unsigned long long)request->bytes, (unsigned long long)request->rounded,
                          (long long)stats.active_bytes.current,
                          (long long)(stats.allocated_bytes.current - stats.active_bytes.current),
                          reason.text);
}

static tide_status request_grow(const tide__pin_request* request, tide__pin** out) {
  TIDE__PIN_COUNT(request->pinned, num_misses);
  tide_status status = tide__pin_segment_make(request, false, out);
  if (is_lack_of_memory(status)) status = request_recover(request, status, out);
  return is_lack_of_memory(status) ? request_fail(request, status) : status;
}

// ---------------------------------------------------------------------------------------------------
// Calls

static tide_status request_serve(const tide__pin_request* request, tide_block* out) {
  tide__pin* block = request_find(request);
  if (block == NULL) block = request_search(request, false);
  if (block == NULL) TIDE_TRY(request_grow(request, &block));
  request_finish(request, block, out);
  return TIDE_OK;
}

static tide_status request_slow(tide_pinned_cache* pinned, int device, tide_stream stream, uint64_t bytes,
                                tide_block* out) {
  tide__pin_request request = { .pinned = pinned, .bytes = bytes, .device = device, .stream = stream };
  if (bytes == 0) return TIDE_OK;
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_alloc");
  TIDE_REQUIRE(size_round(pinned, bytes, &request.rounded, &request.class_index), TIDE_ERR_ARGUMENT,
               "pinned_alloc: %llu bytes are too many", (unsigned long long)bytes);
  request.pool = pinned->default_pool;
  request.context = tide__pin_context_now(pinned, TIDE_HISTORY_STATE);
  tide__pin_pool_choose(&request);
  const tide_status status = request_serve(&request, out);
  if (request.is_scoped) tide__pools_leave(&pinned->pools, &request.pool->base);
  tide__pin_keep_cap(pinned);
  return status;
}

// Takes a block out of the thread cache. 0 bytes exceed every limit by the subtraction.
static inline bool request_fast(tide_pinned_cache* pinned, uint64_t bytes, tide_block* out) {
  if (tide__load_relaxed(&pinned->unusual) != 0 || bytes - 1 >= pinned->class_limit) return false;
  const uint32_t class_index = class_of(bytes);
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  tide__magazine* const magazine = &tcache->magazines[class_index];
  const bool has_block = magazine->count != 0;
  if (has_block) {
    const uint64_t rounded = (uint64_t)magazine->units << TIDE__PIN_UNIT_SHIFT;
    tide__pin* const block = tide__magazine_take(magazine, offsetof(tide__pin, next));
    if (tide__pin_is_capped(pinned, class_index)) tcache->idle_bytes -= rounded;
    tide__store_relaxed(&block->requested_bytes, bytes);
    block_hand_out_locked(pinned, tcache, block, rounded, out);
  }
  tide__pin_leave(tcache);
  return has_block;
}

tide_status tide_pinned_alloc(tide_pinned_cache* pinned, size_t bytes, tide_block* out) {
  if (out != NULL) *out = (tide_block){ NULL, 0 };
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_alloc: no cache or out");
  if (request_fast(pinned, bytes, out)) return TIDE_OK;
  return request_slow(pinned, -1, NULL, bytes, out);
}

tide_status tide_pinned_alloc_on(tide_pinned_cache* pinned, int device, tide_stream stream, size_t bytes,
                                 tide_block* out) {
  if (out != NULL) *out = (tide_block){ NULL, 0 };
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_alloc_on: no cache or out");
  TIDE_REQUIRE(device >= 0 && device < pinned->device_count, TIDE_ERR_DEVICE,
               "pinned_alloc_on: there is no device %d", device);
  if (request_fast(pinned, bytes, out)) return TIDE_OK;
  return request_slow(pinned, device, stream, bytes, out);
}
