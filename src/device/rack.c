// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Racks: small blocks that a thread has at hand, so that most small requests and releases take no lock and
// meet no other thread. Each thread has a rack for each of up to eight lanes of the default pool; a rack has
// a shelf for each size class, with up to 512 KiB. A shelf that runs dry is filled from the lane, with one
// block at first and then with twice as many each time up to its half; one that runs over is emptied to its
// half. A request also takes a block that is a little larger than its class, before it asks the lane; what
// it has too much is cut off when memory is short.
//
// A racked block stays in the chain of its home, in the map, and in the state RACKED whether it is handed out
// or not: it is handed out exactly if it has a handle, and who ends the handle by an atomic step owns it. So
// nothing that others look at under the lane's lock changes. Before small memory is made or given back, the
// racks are emptied: idle memory joins and serves whoever needs it.
//
// A stream is announced under the lane's lock, which a release does not take. So who announces one sets the
// block's word first and then looks whether the handle still holds; who releases ends the handle first and
// then looks at the word: one of the two sees the other.
#include "device/rack.h"

#define SHELF_BYTES ((uint64_t)2 << 20)     // that a shelf may have, and
enum { SHELF_LEAST = 8, SHELF_MOST = 32 };  // how many blocks at least and at most

// The last class that a block of so many bytes can serve.
static inline uint32_t class_within(uint64_t bytes) { return tide__class_to(bytes >> TIDE__GRAIN_SHIFT) - 1; }

static void racks_init(void* front, void* device) {
  (void)device;
  tide__racks* const racks = front;
  racks->newest = &racks->racks[0];
  for (uint32_t i = 0; i < TIDE__RACKS * TIDE__RACK_SHELVES; i++) {
    const uint64_t units = tide__class_units(i % TIDE__RACK_SHELVES);
    tide__magazine* const magazine = &racks->racks[i / TIDE__RACK_SHELVES].magazines[i % TIDE__RACK_SHELVES];
    tide__magazine_init(magazine, (uint32_t)units, units << TIDE__GRAIN_SHIFT, SHELF_BYTES, SHELF_LEAST,
                        SHELF_MOST);
  }
}

tide_status tide__racks_init(tide_device* device) {
  device->has_racks =
      tide__fronts_init(&device->fronts, device->heap, sizeof(tide__racks), racks_init, device);
  TIDE_REQUIRE(device->has_racks, TIDE_ERR_NO_MEMORY, "device_new: no memory for the racks of threads");
  tide__detour(device, TIDE__HAS_NO_RACKS, false);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// One rack

static tide__lane* rack_lane(tide__rack* rack) { return tide__load_relaxed(&rack->lane); }

// Gives a block back to its lane, as one that is just idle.
static void block_unrack_locked(tide_device* device, tide__block* block) {
  tide__store_relaxed(&block->rack_shelf, 0);
  tide__map_clear(&device->map, block->address, true);
  block->state = TIDE__BLOCK_BUSY;
  tide__block_return_locked(block, true);
}

// Gives blocks of a shelf back until `keep` are left; the lane is locked.
static void shelf_empty_locked(tide_device* device, tide__rack* rack, uint32_t class_index, uint32_t keep) {
  while (rack->magazines[class_index].count > keep) {
    block_unrack_locked(device, tide__rack_pop(rack, class_index));
  }
}

// False if there was nothing in it.
static bool rack_empty(tide_device* device, tide__rack* rack) {
  if (rack->filled == 0) return false;
  tide__mutex_lock(&rack_lane(rack)->lock);
  for (uint32_t i = 0; i < TIDE__RACK_SHELVES; i++) {
    shelf_empty_locked(device, rack, i, 0);
    rack->magazines[i].fill = 0;
  }
  tide__mutex_unlock(&rack_lane(rack)->lock);
  return true;
}

// The thread's rack for a lane. If another lane has its place, that goes, unless `is_polite`: then NULL. A
// lane whose stream is closed has none: another stream may have the same handle.
static tide__rack* rack_for(tide_device* device, tide__racks* racks, tide__lane* lane, bool is_polite) {
  tide__rack* const rack = tide__rack_at(racks, lane->stream);
  if (is_polite && tide__load_relaxed(&lane->is_closed)) return NULL;
  if (rack_lane(rack) != NULL && rack_lane(rack) != lane) {
    if (is_polite) return NULL;
    (void)rack_empty(device, rack);
  }
  tide__store_relaxed(&rack->lane, lane);
  rack->stream = lane->stream;
  racks->newest = rack;
  return rack;
}

// ---------------------------------------------------------------------------------------------------
// Filling

static bool lane_has_spares(const tide__lane* lane) {
  return lane->spares != NULL && lane->spares->heap_next != NULL;
}

static void block_rack_locked(tide_device* device, tide__rack* rack, tide__block* block) {
  const uint32_t class_index = class_within(block->bytes);
  block->state = TIDE__BLOCK_RACKED;
  block->is_public = true;
  tide__store_relaxed(&block->rack_shelf, class_index + 1);
  tide__map_set(&device->map, block->address, true, block->slot.index);
  tide__rack_put(rack, class_index, block);
}

// Cuts up to `count` blocks of `bytes` off an idle block and puts them into the rack.
static void hole_cut_locked(tide_device* device, tide__rack* rack, tide__block* hole, uint64_t bytes,
                            uint32_t count) {
  tide__shelf_take_locked(hole);
  for (; count > 1 && hole->bytes >= 2 * bytes && lane_has_spares(rack_lane(rack)); count--) {
    block_rack_locked(device, rack, tide__block_cut_front_locked(rack_lane(rack), hole, bytes));
  }
  if (hole->bytes == bytes) {
    block_rack_locked(device, rack, hole);
    return;
  }
  block_rack_locked(device, rack, tide__block_cut_front_locked(rack_lane(rack), hole, bytes));
  tide__shelf_put_locked(hole, true);
}

// Takes a block for a request out of the lane, and puts more of its class into the rack; if the lane has none
// of its class, one that is just large enough. NULL: the lane has no memory.
static tide__block* rack_fill_locked(const tide__request* request, tide__rack* rack, uint32_t class_index) {
  tide__magazine* const magazine = &rack->magazines[class_index];
  const uint32_t wanted = tide__magazine_wanted(magazine);
  uint64_t bytes = (uint64_t)magazine->units << TIDE__GRAIN_SHIFT;
  tide__block* hole = tide__bins_peek(&rack_lane(rack)->shelves[TIDE__SMALL].bins, bytes);
  if (hole == NULL) {
    bytes = request->rounded;
    hole = tide__bins_peek(&rack_lane(rack)->shelves[TIDE__SMALL].bins, bytes);
  }
  if (hole == NULL || !tide__home_is_ready_locked(hole, hole->bytes)) return NULL;
  hole_cut_locked(request->device, rack, hole, bytes, wanted);
  magazine->fill = (uint8_t)wanted;
  return tide__rack_pop(rack, class_within(bytes));
}

static tide__block* racks_find(tide__request* request, tide__racks* racks, tide_status* out_status) {
  tide__rack* const rack = rack_for(request->device, racks, request->lane, false);
  const uint32_t class_index = tide__rack_class_for(request->bytes);
  tide__block* block = tide__rack_take(rack, class_index);
  if (block != NULL) return block;
  if (!tide__lane_lock_with_spares(request->device, request->lane)) {
    *out_status = TIDE_ERR_NO_MEMORY;
    return NULL;
  }
  block = rack_fill_locked(request, rack, class_index);
  tide__mutex_unlock(&request->lane->lock);
  return block;
}

tide_status tide__racks_search(tide__request* request, tide_block* out, bool* out_found) {
  tide_device* const device = request->device;
  tide_status status = TIDE_OK;
  tide__racks* const racks = tide__fronts_enter(&device->fronts);
  tide__block* const block = racks_find(request, racks, &status);
  *out_found = block != NULL;
  if (block != NULL) {
    if (tide__is_recording(device)) {
      tide__entry_add(device, TIDE_ACTION_ALLOC, &request->moment, request->moment.stack, request->lane,
                      block->address, request->bytes);
    }
    tide__racks_hand_out(device, racks, block, request->bytes, request->moment.stack, out);
  }
  tide__fronts_leave(racks);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Taking back

// Makes room for a block in the thread's rack, with its lane locked. NULL: it goes back to the lane instead.
static tide__rack* release_find_place_locked(tide_device* device, tide__rack* rack, tide__block* block) {
  const uint32_t class_index = tide__load_relaxed(&block->rack_shelf) - 1;
  if (rack == NULL || block->uses != NULL) return NULL;
  tide__store_relaxed(&block->use_word, 0);
  const tide__magazine* const magazine = &rack->magazines[class_index];
  if (!tide__magazine_has_room(magazine)) {
    shelf_empty_locked(device, rack, class_index, magazine->limit / 2u);
  }
  return rack;
}

// True if the block must wait for other streams.
static bool release_inside(tide_device* device, tide__racks* racks, tide__block* block,
                           const tide__moment* moment) {
  tide__lane* const lane = tide__block_lane(block);
  bool must_wait = false;
  tide__rack* rack = rack_for(device, racks, lane, true);
  tide__mutex_lock(&lane->lock);
  rack = release_find_place_locked(device, rack, block);
  if (rack == NULL) {
    tide__store_relaxed(&block->rack_shelf, 0);
    must_wait = tide__block_end_locked(device, block, moment, &racks->tally);
  }
  tide__mutex_unlock(&lane->lock);
  if (rack == NULL) return must_wait;
  if (tide__is_recording(device)) {
    tide__block_record_free(device, TIDE_ACTION_FREE_REQUESTED, block, moment);
    tide__block_record_free(device, TIDE_ACTION_FREE_COMPLETED, block, moment);
  }
  tide__racks_take_back(device, racks, rack, tide__load_relaxed(&block->rack_shelf) - 1, block);
  return false;
}

void tide__racks_release_slow(tide_device* device, tide__block* block) {
  tide__moment moment = { 0 };
  if (tide__is_recording(device)) moment = tide__context_now(device, TIDE_HISTORY_ALL);
  tide__racks* const racks = tide__fronts_enter(&device->fronts);
  const bool must_wait = release_inside(device, racks, block, &moment);
  tide__fronts_leave(racks);
  if (must_wait) tide__timeline_add(device, block, &moment);
}

// ---------------------------------------------------------------------------------------------------
// All threads

static tide__rack* racks_find_lane(tide__racks* racks, const tide__lane* lane) {
  for (int i = 0; i < TIDE__RACKS; i++) {
    if (rack_lane(&racks->racks[i]) == lane) return &racks->racks[i];
  }
  return NULL;
}

// Only threads that have a rack for the lane are disturbed; the calling one first, which costs no barrier.
bool tide__racks_flush_lane(tide_device* device, const tide__lane* lane) {
  if (!device->has_racks) return false;
  tide__racks* const own = tide__fronts_enter(&device->fronts);
  tide__rack* rack = racks_find_lane(own, lane);
  bool is_any = rack != NULL && rack_empty(device, rack);
  tide__fronts_leave(own);
  for (tide__front* front = tide__fronts_first(&device->fronts); front != NULL; front = front->next) {
    tide__racks* const racks = (tide__racks*)(void*)front;
    if (racks == own || racks_find_lane(racks, lane) == NULL) continue;
    tide__front_take(front);
    rack = racks_find_lane(racks, lane);
    is_any = (rack != NULL && rack_empty(device, rack)) || is_any;
    tide__front_give(front);
  }
  return is_any;
}

void tide__racks_flush(tide_device* device) {
  if (!device->has_racks) return;
  tide__front* const first = tide__fronts_take_all(&device->fronts);
  for (tide__front* front = first; front != NULL; front = front->next) {
    for (int i = 0; i < TIDE__RACKS; i++) (void)rack_empty(device, &((tide__racks*)(void*)front)->racks[i]);
  }
  tide__fronts_give_all(first);
}

void tide__racks_forget_closed(tide_device* device) {
  if (!device->has_racks) return;
  tide__front* const first = tide__fronts_take_all(&device->fronts);
  for (tide__front* front = first; front != NULL; front = front->next) {
    for (int i = 0; i < TIDE__RACKS; i++) {
      tide__rack* const rack = &((tide__racks*)(void*)front)->racks[i];
      if (rack_lane(rack) == NULL || !tide__load_relaxed(&rack_lane(rack)->is_closed)) continue;
      (void)rack_empty(device, rack);
      tide__store_relaxed(&rack->lane, NULL);
      rack->stream = NULL;
    }
  }
  tide__fronts_give_all(first);
}

// Cuts off what the blocks of a lane that are handed out have beyond their requests, as far as there are
// records for it. Nobody is in a rack, so nobody looks at the class of a block.
static void lane_trim_slack_locked(tide__lane* lane) {
  TIDE_LIST_EACH(it, &lane->segments) {
    tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL && lane_has_spares(lane); block = block->next) {
      if (block->state != TIDE__BLOCK_RACKED || !tide__block_is_handed_out(block)) continue;
      const uint64_t bytes = tide__block_counted_bytes(block);
      if (bytes == block->bytes) continue;
      tide__store_relaxed(&block->rack_shelf, class_within(bytes) + 1);
      tide__block_return_locked(tide__block_cut_back_locked(lane, block, block->bytes - bytes), true);
    }
  }
}

static size_t lane_count_racked(tide__lane* lane) {
  size_t count = 0;
  tide__mutex_lock(&lane->lock);
  TIDE_LIST_EACH(it, &lane->segments) {
    const tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL; block = block->next) count += block->state == TIDE__BLOCK_RACKED;
  }
  tide__mutex_unlock(&lane->lock);
  return count;
}

void tide__racks_squeeze(tide_device* device, tide__lane* lane) {
  if (!device->has_racks) return;
  (void)tide__racks_flush_lane(device, lane);
  tide__ignore(tide__lane_add_spares(device, lane, lane_count_racked(lane) + 2));
  tide__front* const first = tide__fronts_take_all(&device->fronts);
  tide__mutex_lock(&lane->lock);
  lane_trim_slack_locked(lane);
  tide__mutex_unlock(&lane->lock);
  tide__fronts_give_all(first);
}

void tide__racks_settle_own(tide_device* device) {
  if (!device->has_racks) return;
  tide__racks* const racks = tide__fronts_enter(&device->fronts);
  tide__tally_settle(device, &racks->tally);
  tide__fronts_leave(racks);
}

void tide__racks_settle(tide_device* device) {
  if (!device->has_racks) return;
  tide__front* const first = tide__fronts_take_all(&device->fronts);
  for (tide__front* front = first; front != NULL; front = front->next) {
    tide__tally_settle(device, &((tide__racks*)(void*)front)->tally);
  }
  tide__fronts_give_all(first);
}

uint64_t tide__racks_count(tide_device* device) {
  uint64_t count = 0;
  if (!device->has_racks) return 0;
  tide__front* const first = tide__fronts_take_all(&device->fronts);
  for (tide__front* front = first; front != NULL; front = front->next) {
    const tide__racks* const racks = (const tide__racks*)(const void*)front;
    for (size_t i = 0; i < (size_t)TIDE__RACKS * TIDE__RACK_SHELVES; i++) {
      count += racks->racks[i / TIDE__RACK_SHELVES].magazines[i % TIDE__RACK_SHELVES].count;
    }
  }
  tide__fronts_give_all(first);
  return count;
}
