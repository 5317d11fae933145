// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Taking blocks back, and finding the block that a caller names. A release ends the handle by one atomic
// step, so that of two releases one fails; from then on the block is the releasing thread's alone. A
// block without uses goes into the thread's thread cache: nothing is written that another thread reads.
#include "pinned/pinned_cache.h"

// ---------------------------------------------------------------------------------------------------
// Names

// The record that a handle names, whatever life of it; NULL if it can be none of ours.
static tide__pin* handle_record(tide_pinned_cache* pinned, uint64_t handle) {
  const uint32_t low = (uint32_t)handle & TIDE__SLOT_INDEX_MASK;
  const bool is_ours = (uint32_t)handle >> TIDE__SLOT_KIND_SHIFT == pinned->blocks.kind &&
                       (handle >> 32 & 1u) != 0 && low >= TIDE__SLOT_FIRST_HANDLE &&
                       low - TIDE__SLOT_FIRST_HANDLE < tide__slots_count(&pinned->blocks);
  return is_ours ? tide__slots_at(&pinned->blocks, low - TIDE__SLOT_FIRST_HANDLE) : NULL;
}

// Does an address lie in the memory of a record?
static bool block_covers(const tide__pin* block, const void* address) {
  return tide__address(address) - tide__pin_address(block) < tide__pin_bytes(block);
}

// Why a handle is not that of a block that is handed out with this address. A record that lost its memory
// has a later generation than one whose block was just released.
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
  return TIDE_FAIL(TIDE_ERR_HANDLE, "%s: the handle %#llx of %p is of an earlier life (stale)", call,
                   (unsigned long long)block.handle, block.address);
}

// The record of the block at exactly this address, handed out or not, with its generation; NULL if none.
static tide__pin* pin_address_find(tide_pinned_cache* pinned, const void* address, uint32_t* out_generation) {
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
  *out = pin_address_find(pinned, block.address, out_generation);
  if (*out == NULL || *out == handle_record(pinned, block.handle)) return handle_refuse(pinned, call, block);
  if ((*out_generation & 1u) != 0) return TIDE_OK;
  return address_refuse(call, block.address, *out);
}

tide_status tide_pinned_find(tide_pinned_cache* pinned, const void* address, tide_block* out) {
  uint32_t generation = 0;
  if (out != NULL) *out = (tide_block){ NULL, 0 };
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_find: no cache or out");
  tide__pin* const block = pin_address_find(pinned, address, &generation);
  if (block == NULL || (generation & 1u) == 0) return address_refuse("pinned_find", address, block);
  *out = (tide_block){ tide__pointer(tide__pin_address(block)),
                       tide__slot_handle(&pinned->blocks, &block->slot, generation) };
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Taking back

static void retire_tell(tide_pinned_cache* pinned, const tide__pin* list) {
  if (list == NULL || !tide__pin_is_recording(pinned)) return;
  const tide__call_context moment = tide__pin_context_now(pinned, TIDE_HISTORY_ALL);
  for (; list != NULL; list = list->next) {
    tide__pin_history_block(pinned, TIDE_ACTION_FREE_COMPLETED, &moment, list);
  }
}

// Puts a block of the default pool into the thread cache, if that has room and counts for that pool.
static inline bool block_keep_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__pin* block) {
  tide__magazine* const magazine = &tcache->magazines[block->class_index].magazine;
  const uint64_t bytes = (uint64_t)magazine->units << TIDE__PIN_UNIT_SHIFT;
  const uint64_t idle = tide__pin_is_capped(pinned, block->class_index) ? bytes : 0;
  if (!tide__magazine_has_room(magazine) || tcache->tally.pool != pinned->default_pool ||
      tcache->room_bytes - tcache->idle_bytes < idle) {
    return false;
  }
  tide__magazine_put(magazine, block, offsetof(tide__pin, next));
  tcache->idle_bytes += idle;
  tide__pin_count_back_locked(pinned, tcache, block->class_index, bytes);
  return true;
}

// Puts blocks into the thread cache as far as they belong there; returns the others.
static tide__pin* retire_to_tcache(tide_pinned_cache* pinned, tide__pin* list) {
  tide__pin* others = NULL;
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  while (list != NULL) {
    tide__pin* const block = list;
    const uint32_t class_index = block->class_index;
    list = block->next;
    tide__store_relaxed(&block->state, TIDE__PIN_IDLE);
    if (block->is_plain && block_keep_locked(pinned, tcache, block)) continue;
    tide__pin_turn_locked(pinned, tcache, tide__pin_pool_of(pinned, block));
    tide__pin_count_back_locked(pinned, tcache, class_index, tide__pin_bytes(block));
    if (block->is_plain && tcache->magazines[class_index].magazine.limit != 0) {
      tide__pin_tcache_put_locked(pinned, tcache, block);
    } else {
      block->next = others;
      others = block;
    }
  }
  tide__pin_leave(tcache);
  return others;
}

void tide__pin_retire(tide_pinned_cache* pinned, tide__pin* list, tide__link* going) {
  if (list == NULL) return;
  retire_tell(pinned, list);
  list = retire_to_tcache(pinned, list);
  while (list != NULL) {
    tide__pin* const block = list;
    tide__pin_segment* const segment = block->segment;
    list = block->next;
    block->next = NULL;
    if (segment->is_cached) {
      tide__pin_depot_put(pinned, segment->pool, segment->class_index, block);
    } else {
      segment->idle = block;
      segment->idle_count = 1;
      tide__list_append(going, &segment->link);
    }
  }
}

// A block that has no handle any more, and is in no list. In a child of a fork it stays the parent's.
static void release_any(tide_pinned_cache* pinned, tide__pin* block) {
  if (tide__pin_is_inherited(pinned)) return;
  if (tide__pin_is_recording(pinned)) {
    const tide__call_context moment = tide__pin_context_now(pinned, TIDE_HISTORY_ALL);
    tide__pin_history_block(pinned, TIDE_ACTION_FREE_REQUESTED, &moment, block);
  }
  tide__wait* const uses = tide__pin_uses_take(block);
  if (uses != NULL) {
    block->waiter.waits = uses;
    tide__pin_wait(pinned, block);
    return;
  }
  uint32_t count = 0;
  tide__link going;
  tide__list_init(&going);
  block->next = NULL;
  tide__pin_retire(pinned, block, &going);
  // What the machine refuses stays cached, and goes with the next trim.
  if (!tide__list_is_empty(&going)) {
    tide_error before;
    tide__error_keep(&before);
    if (tide__pin_segments_give(pinned, &going, &count) != TIDE_OK) tide__error_restore(&before);
  }
  tide__pin_keep_cap(pinned);
}

// The short way: into the tcache.
static inline bool release_plain(tide_pinned_cache* pinned, tide__pin* block) {
  if (!block->is_plain || tide__load_seq(&block->use_word) != 0) return false;
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  const bool is_done = block_keep_locked(pinned, tcache, block);
  tide__pin_leave(tcache);
  return is_done;
}

// Ends the handle of a block; false if it is over already.
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
  if (tide__load_relaxed(&pinned->unusual) == 0 && release_plain(pinned, found)) return TIDE_OK;
  release_any(pinned, found);
  return TIDE_OK;
}

tide_status tide_pinned_release_address(tide_pinned_cache* pinned, void* address) {
  uint32_t generation = 0;
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "pinned_release_address: no cache");
  if (address == NULL) return TIDE_OK;
  tide__pin* const found = pin_address_find(pinned, address, &generation);
  if (found == NULL || (generation & 1u) == 0 || !block_claim(found, generation)) {
    return address_refuse("pinned_release_address", address, found);
  }
  if (tide__load_relaxed(&pinned->unusual) == 0 && release_plain(pinned, found)) return TIDE_OK;
  release_any(pinned, found);
  return TIDE_OK;
}
