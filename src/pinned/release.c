// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Releases, and which block a caller names. A release ends the handle by one atomic step, so that of two
// releases one fails. From then on only the releasing thread has the block. A block without uses goes into
// the thread cache, and nothing is written that another thread reads. Calls the rooms `stream` and `idle`.
#include "pinned/calls.h"
#include "pinned/idle/idle.h"
#include "pinned/stream/stream.h"

// ---------------------------------------------------------------------------------------------------
// Names

// The record that a handle names, whatever its generation; NULL if the handle cannot be from this cache.
static tide__pin* handle_record(tide_pinned_cache* pinned, uint64_t handle) {
  const uint32_t low = (uint32_t)handle & TIDE__SLOT_INDEX_MASK;
  const bool is_ours = (uint32_t)handle >> TIDE__SLOT_KIND_SHIFT == pinned->blocks.kind &&
                       (handle >> 32 & 1u) != 0 && low >= TIDE__SLOT_FIRST_HANDLE &&
                       low - TIDE__SLOT_FIRST_HANDLE < tide__slots_count(&pinned->blocks);
  return is_ours ? tide__slots_at(&pinned->blocks, low - TIDE__SLOT_FIRST_HANDLE) : NULL;
}

static bool block_covers(const tide__pin* block, const void* address) {
  return tide__address(address) - tide__pin_address(block) < tide__pin_bytes(block);
}

// Says why a handle does not name a block that is handed out at this address. The generation of a record
// rises by one at a release, and by more when it loses its memory.
static tide_status handle_refuse(tide_pinned_cache* pinned, const char* call, tide_block block) {
  const uint32_t generation = (uint32_t)(block.handle >> 32);
  const tide__pin* const record = handle_record(pinned, block.handle);
  const uint32_t now = record != NULL ? tide__load_acquire(&record->slot.generation) : generation;
  const bool is_released = now == generation + 1;
  const bool is_known = (int32_t)(now - generation) > 0 &&
                        (!is_released || block_covers(record, block.address));
  TIDE_REQUIRE(is_known, TIDE_ERR_ARGUMENT,
               "%s: %p with the handle %#llx was never handed out here (foreign)", call, block.address,
               (unsigned long long)block.handle);
  TIDE_REQUIRE(!is_released, TIDE_ERR_STATE, "%s: the block at %p was released already (double free)", call,
               block.address);
  return TIDE_FAIL(TIDE_ERR_HANDLE, "%s: the handle %#llx of %p is of an earlier block (stale)", call,
                   (unsigned long long)block.handle, block.address);
}

// The record of the block at exactly this address, handed out or not, with its generation; NULL if none.
static tide__pin* address_find(tide_pinned_cache* pinned, const void* address, uint32_t* out_generation) {
  uint32_t index = 0;
  if (!tide__map_find(&pinned->map, tide__address(address), &index)) return NULL;
  tide__pin* const block = tide__slots_at(&pinned->blocks, index);
  *out_generation = tide__load_acquire(&block->slot.generation);  // pairs with tide__slots_publish
  return tide__pin_address(block) == tide__address(address) ? block : NULL;
}

static tide_status address_refuse(const char* call, const void* address, const tide__pin* block) {
  TIDE_REQUIRE(block != NULL, TIDE_ERR_ARGUMENT, "%s: no block of this cache begins at %p (foreign)", call,
               address);
  return TIDE_FAIL(TIDE_ERR_STATE, "%s: the block at %p was released already (double free)", call, address);
}

tide_status tide__pin_name(tide_pinned_cache* pinned, const char* call, tide_block block, tide__pin** out,
                           uint32_t* out_generation) {
  *out = tide__slots_find(&pinned->blocks, block.handle);
  *out_generation = (uint32_t)(block.handle >> 32);
  if (*out != NULL && tide__pin_address(*out) == tide__address(block.address)) return TIDE_OK;
  if (*out != NULL && block_covers(*out, block.address)) return TIDE_OK;
  *out = address_find(pinned, block.address, out_generation);
  if (*out == NULL || *out == handle_record(pinned, block.handle)) return handle_refuse(pinned, call, block);
  if ((*out_generation & 1u) != 0) return TIDE_OK;
  return address_refuse(call, block.address, *out);
}

// ---------------------------------------------------------------------------------------------------
// Releasing

// The handle of the block has ended. In a child of fork() nothing happens: the block belongs to the parent.
static void release_slow(tide_pinned_cache* pinned, tide__pin* block) {
  if (tide__pin_is_inherited(pinned)) return;
  if (tide__pin_is_recording(pinned)) {
    const tide__call_context context = tide__pin_context_now(pinned, TIDE_HISTORY_ALL);
    tide__pin_history_block(pinned, TIDE_ACTION_FREE_REQUESTED, &context, block);
  }
  tide__wait* const uses = tide__pin_uses_take(block);
  if (uses != NULL) {
    block->waiter.waits = uses;
    tide__pin_wait(pinned, block);
    return;
  }
  tide__link going;
  tide__list_init(&going);
  block->next = NULL;
  tide__pin_retire(pinned, block, &going);
  // A segment that the machine refuses stays cached until the next trim.
  if (!tide__list_is_empty(&going)) {
    tide_error before;
    tide__error_keep(&before);
    if (tide__pin_segments_give(pinned, &going, NULL) != TIDE_OK) tide__error_restore(&before);
  }
  tide__pin_keep_cap(pinned);
}

static inline bool release_fast(tide_pinned_cache* pinned, tide__pin* block) {
  if (tide__load_relaxed(&pinned->unusual) != 0) return false;
  if (!block->is_plain || tide__load_seq(&block->use_word) != 0) return false;
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  const bool is_done = tide__pin_tcache_keep_locked(pinned, tcache, block);
  tide__pin_leave(tcache);
  return is_done;
}

// Ends the handle of a block; false if it has ended already.
static inline bool block_claim(tide__pin* block, uint32_t generation) {
  return atomic_compare_exchange_strong(&block->slot.generation, &generation, generation + 1);
}

tide_status tide_pinned_release(tide_pinned_cache* pinned, tide_block block) {
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "pinned_release: no cache");
  if (block.address == NULL) return TIDE_OK;
  tide__pin* const found = tide__pin_named(pinned, block);
  if (found == NULL || !block_claim(found, (uint32_t)(block.handle >> 32))) {
    return handle_refuse(pinned, "pinned_release", block);
  }
  if (!release_fast(pinned, found)) release_slow(pinned, found);
  return TIDE_OK;
}

tide_status tide_pinned_release_address(tide_pinned_cache* pinned, void* address) {
  uint32_t generation = 0;
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "pinned_release_address: no cache");
  if (address == NULL) return TIDE_OK;
  tide__pin* const found = address_find(pinned, address, &generation);
  if (found == NULL || (generation & 1u) == 0 || !block_claim(found, generation)) {
    return address_refuse("pinned_release_address", address, found);
  }
  if (!release_fast(pinned, found)) release_slow(pinned, found);
  return TIDE_OK;
}
