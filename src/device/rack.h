// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The short ways through the racks (rack.c): a small request that finds a block at hand, and a release that
// puts one back. They take no lock; all else goes the long way.
#ifndef TIDEMARK_SRC_DEVICE_RACK_H
#define TIDEMARK_SRC_DEVICE_RACK_H

#include "core/classes.h"
#include "device/allocator.h"

enum { TIDE__RACK_ABOVE = 4 };  // how many classes larger a block may be than its request: about a half

// The class in which all blocks have at least so many bytes.
static inline uint32_t tide__rack_class_for(uint64_t bytes) {
  return tide__class_to((bytes - 1) >> TIDE__GRAIN_SHIFT);
}

// The place of a stream's rack.
static inline tide__rack* tide__rack_at(tide__racks* racks, tide_stream stream) {
  const uint64_t hash = (uint64_t)(uintptr_t)stream * UINT64_C(0x9E3779B97F4A7C15);
  return &racks->racks[hash >> 61];
}

static inline void tide__rack_put(tide__rack* rack, uint32_t class_index, tide__block* block) {
  tide__magazine_put(&rack->magazines[class_index], block, offsetof(tide__block, heap_next));
  rack->filled |= (uint64_t)1 << class_index;
}

static inline tide__block* tide__rack_pop(tide__rack* rack, uint32_t class_index) {
  tide__magazine* const magazine = &rack->magazines[class_index];
  tide__block* const block = tide__magazine_take(magazine, offsetof(tide__block, heap_next));
  // Without a branch, because no processor could predict it.
  rack->filled &= ~((uint64_t)(magazine->count == 0) << class_index);
  return block;
}

// A block of a class, or a little larger; NULL if there is none.
static inline tide__block* tide__rack_take(tide__rack* rack, uint32_t class_index) {
  const uint64_t filled = rack->filled >> class_index;
  if (filled == 0) return NULL;
  const uint32_t above = (uint32_t)__builtin_ctzll(filled);
  return above <= TIDE__RACK_ABOVE ? tide__rack_pop(rack, class_index + above) : NULL;
}

static inline void tide__racks_hand_out(tide_device* device, tide__racks* racks, tide__block* block,
                                        uint64_t bytes, uint32_t stack, tide_block* out) {
  tide__store_relaxed(&block->requested_bytes, bytes);
  tide__store_relaxed(&block->stack, stack);
  tide__tally_hand_out(&racks->tally, true, tide__round_up(bytes, TIDE__GRAIN), bytes);
  tide__tally_count(device, &racks->tally);
  out->address = tide__pointer(block->address);
  out->handle = tide__slots_publish(&device->blocks, block);
}

// Puts a block that nobody has into a rack of its lane that has a place for it.
static inline void tide__racks_take_back(tide_device* device, tide__racks* racks, tide__rack* rack,
                                         uint32_t class_index, tide__block* block) {
  const uint64_t bytes = tide__load_relaxed(&block->requested_bytes);
  tide__tally_take_back(&racks->tally, true, tide__round_up(bytes, TIDE__GRAIN), bytes);
  tide__tally_count(device, &racks->tally);
  tide__rack_put(rack, class_index, block);
}

// The short way of a request: false if there is no block at hand.
static inline bool tide__racks_alloc(tide_device* device, tide_stream stream, uint64_t bytes,
                                     tide_block* out) {
  tide__racks* const racks = tide__fronts_enter_fast(device->fronts.id);
  if (racks == NULL) return false;
  tide__rack* rack = racks->newest;
  tide__block* block = NULL;
  if (rack->stream != stream) rack = racks->newest = tide__rack_at(racks, stream);
  if (rack->stream == stream) block = tide__rack_take(rack, tide__rack_class_for(bytes));
  if (block != NULL) tide__racks_hand_out(device, racks, block, bytes, 0, out);
  tide__front_leave_fast(racks);
  return block != NULL;
}

// The short way of a release: of a racked block whose handle was ended by the caller.
static inline bool tide__racks_release(tide_device* device, tide__block* block) {
  tide__racks* const racks = tide__fronts_enter_fast(device->fronts.id);
  if (racks == NULL) return false;
  const tide__lane* const lane = tide__block_lane(block);
  tide__rack* rack = racks->newest;
  if (tide__load_relaxed(&rack->lane) != lane) rack = tide__rack_at(racks, lane->stream);
  const uint32_t class_index = tide__load_relaxed(&block->rack_shelf) - 1;
  const bool is_done = tide__load_relaxed(&rack->lane) == lane &&
                       tide__magazine_has_room(&rack->magazines[class_index]);
  if (is_done) tide__racks_take_back(device, racks, rack, class_index, block);
  tide__front_leave_fast(racks);
  return is_done;
}

#endif
