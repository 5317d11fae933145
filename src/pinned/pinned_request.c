// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Requests. The short way takes a block out of the thread's tcache. If that has none, in this order: the
// depot, blocks whose work is done, what other threads have at hand, and then the machine. When the
// machine refuses, memory is given back to it step by step, each followed by one more try:
//   blocks whose work is done; cached blocks of at least that size; all cached blocks; streams are waited
//   for.
#include "pinned/pinned_cache.h"

// ---------------------------------------------------------------------------------------------------
// Handing out

// The block is the calling thread's alone; its class is counted, and it is published.
static inline void block_hand_out(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__pin* block,
                                  uint64_t requested, uint64_t bytes, tide_block* out) {
  tide__store_relaxed(&block->requested_bytes, requested);
  tide__pin_count_out_locked(pinned, tcache, block->class_index, bytes);
  out->address = tide__pointer(tide__pin_address(block));
  out->handle = tide__slots_publish(&pinned->blocks, block);
}

static void pin_request_finish(const tide__pin_request* request, tide__pin* block, tide_block* out) {
  tide_pinned_cache* const pinned = request->pinned;
  block->is_scoped = request->is_scoped;
  block->device = request->device;
  block->stream = request->stream;
  tide__store_relaxed(&block->stack, request->moment.stack);
  tide__store_relaxed(&block->requested_bytes, request->bytes);
  if (tide__pin_is_recording(pinned)) {
    tide__pin_history_block(pinned, TIDE_ACTION_ALLOC, &request->moment, block);
  }
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  tide__pin_turn_locked(pinned, tcache, request->pool);
  block_hand_out(pinned, tcache, block, request->bytes, tide__pin_bytes(block), out);
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
  if (request->pool != pinned->default_pool ||
      tide__pin_class_bytes(class_index) > TIDE__PIN_MAGAZINE_BYTES) {
    (void)tide__pin_depot_take(pinned, request->pool, class_index, 1, &block);
    return block;
  }
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  block = tide__pin_tcache_take_locked(pinned, tcache, class_index);
  tide__pin_leave(tcache);
  return block;
}

// Finds cached memory that is not at hand. `is_needed`: the machine has no more.
static tide__pin* pin_request_search(const tide__pin_request* request, bool is_needed) {
  tide_pinned_cache* const pinned = request->pinned;
  tide_error before;
  tide__error_keep(&before);
  if (tide__pin_look(pinned) != TIDE_OK) tide__error_restore(&before);
  tide__pin* block = request_find(request);
  if (block != NULL || request->pool != pinned->default_pool) return block;
  return tide__pin_tcaches_rob(pinned, request->class_index, is_needed) ? request_find(request) : NULL;
}

// ---------------------------------------------------------------------------------------------------
// The ladder

static bool status_is_of_memory(tide_status status) {
  return status == TIDE_ERR_NO_MEMORY || status == TIDE_ERR_MACHINE || status == TIDE_ERR_LIMIT;
}

// Gives cached memory back; true if some went.
static bool ladder_trim(tide_pinned_cache* pinned, uint64_t least_bytes) {
  uint32_t count = 0;
  tide__ignore(tide__pin_trim(pinned, least_bytes, 0, &count));
  return count != 0;
}

// Tries again to make a segment; *status says how it went.
static bool ladder_retry(const tide__pin_request* request, tide_status* status, tide__pin** out) {
  *status = tide__pin_segment_make(request, true, out);
  return *status == TIDE_OK || !status_is_of_memory(*status);
}

static tide_status ladder_climb(const tide__pin_request* request, tide_status status, tide__pin** out) {
  tide_pinned_cache* const pinned = request->pinned;
  TIDE__PIN_COUNT(pinned, request->pool, num_alloc_retries, 1);
  *out = pin_request_search(request, true);
  if (*out != NULL) return TIDE_OK;
  if (ladder_trim(pinned, request->rounded) && ladder_retry(request, &status, out)) return status;
  const tide_status emptied = tide__pin_pools_empty(pinned);
  if ((ladder_trim(pinned, 0) || emptied == TIDE_OK) && ladder_retry(request, &status, out)) return status;
  if (!tide__pin_is_waiting(pinned)) return status;
  tide__ignore(tide__pin_drain(pinned));
  *out = pin_request_search(request, true);
  if (*out != NULL) return TIDE_OK;
  (void)ladder_trim(pinned, 0);
  (void)ladder_retry(request, &status, out);
  return status;
}

static tide_status request_fail(const tide__pin_request* request, tide_status status) {
  tide_pinned_cache* const pinned = request->pinned;
  const tide_error reason = *tide_last_error();
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  TIDE__PIN_COUNT(pinned, request->pool, num_ooms, 1);
  tide__pin_history_add(pinned, TIDE_ACTION_OOM, &request->moment, 0, request->rounded,
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
  TIDE__PIN_COUNT(request->pinned, request->pool, num_misses, 1);
  tide_status status = tide__pin_segment_make(request, false, out);
  if (status_is_of_memory(status)) status = ladder_climb(request, status, out);
  return status_is_of_memory(status) ? request_fail(request, status) : status;
}

// ---------------------------------------------------------------------------------------------------
// Calls

static tide_status pin_request_serve(tide__pin_request* request, tide_block* out) {
  tide__pin* block = request_find(request);
  if (block == NULL) block = pin_request_search(request, false);
  if (block == NULL) TIDE_TRY(request_grow(request, &block));
  pin_request_finish(request, block, out);
  return TIDE_OK;
}

static tide_status request_any(tide_pinned_cache* pinned, int device, tide_stream stream, uint64_t bytes,
                               tide_block* out) {
  tide__pin_request request = { .pinned = pinned, .bytes = bytes, .device = device, .stream = stream };
  if (bytes == 0) return TIDE_OK;
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_alloc");
  TIDE_REQUIRE(tide__pin_round(pinned, bytes, &request.rounded, &request.class_index), TIDE_ERR_ARGUMENT,
               "pinned_alloc: %llu bytes are more than there can be", (unsigned long long)bytes);
  request.pool = pinned->default_pool;
  request.moment = tide__pin_context_now(pinned, TIDE_HISTORY_STATE);
  tide__pin_pool_choose(&request);
  const tide_status status = pin_request_serve(&request, out);
  if (request.is_scoped) tide__pin_pool_leave(pinned, request.pool);
  tide__pin_keep_cap(pinned);
  return status;
}

// The short way: out of the tcache.
static inline bool request_plain(tide_pinned_cache* pinned, uint64_t bytes, tide_block* out) {
  const uint32_t class_index = tide__class_of((bytes + 511) >> TIDE__PIN_UNIT_SHIFT);
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  tide__magazine* const magazine = &tcache->magazines[class_index].magazine;
  const bool is_there = magazine->count != 0 && tcache->tally.pool == pinned->default_pool;
  if (is_there) {
    const uint64_t rounded = (uint64_t)magazine->units << TIDE__PIN_UNIT_SHIFT;
    tide__pin* const block = tide__magazine_take(magazine, offsetof(tide__pin, next));
    if (tide__pin_is_capped(pinned, class_index)) tcache->idle_bytes -= rounded;
    block_hand_out(pinned, tcache, block, bytes, rounded, out);
  }
  tide__pin_leave(tcache);
  return is_there;
}

tide_status tide_pinned_alloc(tide_pinned_cache* pinned, size_t bytes, tide_block* out) {
  if (out != NULL) *out = (tide_block){ NULL, 0 };
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_alloc: no cache or out");
  // 0 bytes are above the limit, too.
  const bool is_plain = tide__load_relaxed(&pinned->unusual) == 0 && bytes - 1 < pinned->class_limit;
  if (is_plain && request_plain(pinned, bytes, out)) return TIDE_OK;
  return request_any(pinned, -1, NULL, bytes, out);
}

tide_status tide_pinned_alloc_on(tide_pinned_cache* pinned, int device, tide_stream stream, size_t bytes,
                                 tide_block* out) {
  if (out != NULL) *out = (tide_block){ NULL, 0 };
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_alloc_on: no cache or out");
  TIDE_REQUIRE(device >= 0 && device < pinned->device_count, TIDE_ERR_DEVICE,
               "pinned_alloc_on: there is no device %d", device);
  const bool is_plain = tide__load_relaxed(&pinned->unusual) == 0 && bytes - 1 < pinned->class_limit;
  if (is_plain && request_plain(pinned, bytes, out)) return TIDE_OK;
  return request_any(pinned, device, stream, bytes, out);
}
