// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Virtual memory under both policies. The caller of these functions has the gate, and holds no lock.
#ifndef TIDEMARK_SRC_DEVICE_SEGMENT_VIRTUAL_H
#define TIDEMARK_SRC_DEVICE_SEGMENT_VIRTUAL_H

#include "device/lane/lane.h"

// Finds out which flags of physical memory work; and those with which it is made now.
tide_status tide__physical_learn(tide_device_cache* device);
uint32_t tide__physical_flags(tide_device_cache* device);
// Makes physical memory. If the device has none left, it first tries again to give orphans back.
tide_status tide__physical_new(tide_device_cache* device, uint64_t bytes, tide_physical* out);
// Gives physical memory back. Memory that the machine refuses becomes an orphan, which is kept and tried
// again. The caller must have reserved records of `count` handles for that.
tide_status tide__orphans_reserve(tide_device_cache* device, size_t count);
void tide__physical_give(tide_device_cache* device, tide_physical handle);
void tide__orphans_retry(tide_device_cache* device);
// While the stock is open, physical memory of pools that give way goes there, and the pool that comes takes
// it. So the machine need not clear it, which would hold up copies to the device. Memory in the stock belongs
// to no pool and is not counted. It never adds to what is reserved: before memory is made, as much of the
// stock is given back.
void tide__stock_open(tide_device_cache* device);
void tide__stock_close(tide_device_cache* device);
// False if the stock is closed or has no room: the caller gives the memory back.
bool tide__stock_put(tide_device_cache* device, tide_physical handle, uint64_t bytes);
// Memory of just this size. NULL: there is none, and as much as is there, up to `bytes`, was given back.
tide_physical tide__stock_take(tide_device_cache* device, uint64_t bytes);
void tide__stock_empty(tide_device_cache* device);
void tide__stock_free(tide_device_cache* device);
// The descriptor of physical memory that stays open until the memory is given back; and closes all.
tide_status tide__kept_open(tide_device_cache* device, tide_physical handle, tide_physical_share* out);
void tide__kept_close_all(tide_device_cache* device);

// How many bytes of addresses a segment of virtual memory should have.
uint64_t tide__reserve_wanted(const tide_device_cache* device, const tide_reserve* reserve);
// Gives the device and its peers access to a mapped range.
tide_status tide__access_give(tide_device_cache* device, uint64_t address, uint64_t bytes);

// Handles that are being mapped one after another, and the memory that was made for them, until the mapping
// is committed. If a step fails, tide__mapping_end() undoes all of them. A mapping that the machine refuses
// to undo is stuck: it is kept in tide_device_cache.stuck and tried again.
typedef struct tide__mapping {
  struct tide__mapping* next;  // among the stuck ones
  uint64_t address;
  uint64_t bytes;        // that are mapped
  uint64_t made_bytes;   // of the handles that were made for it
  uint64_t range_bytes;  // of addresses to be given back from there on; 0: none
  bool is_busy;          // work may still use it, and is waited for before it is unmapped
  size_t capacity;
  size_t count;
  tide_physical handles[];  // owned; given back with the mapping
} tide__mapping;

// A mapping of `bytes` from an address on, with room for new handles. Fails if a stuck mapping is in that
// range.
tide_status tide__mapping_new(tide_device_cache* device, uint64_t address, uint64_t bytes, size_t handles,
                              tide__mapping** out);
// Makes a new handle, which belongs to the mapping.
tide_status tide__mapping_make(tide_device_cache* device, tide__mapping* mapping, uint64_t bytes,
                               tide_physical* out);
// Maps a handle after what is mapped already.
tide_status tide__mapping_add(tide_device_cache* device, tide__mapping* mapping, tide_physical handle,
                              uint64_t bytes);
// Commits: gives the device and its peers access to what is mapped. The caller then owns the new handles, and
// the record is freed. On failure nothing changes.
tide_status tide__mapping_commit(tide_device_cache* device, tide__mapping* mapping);
// Unmaps all, and gives back the handles that belong to the mapping and `range_bytes` of addresses. False if
// the machine refuses: the record stays among the stuck ones, with what is left. It needs no memory, so
// nothing is lost when there is none. The thread's error stays as it is.
bool tide__mapping_end(tide_device_cache* device, tide__mapping* mapping);
void tide__mapping_free(tide_device_cache* device, tide__mapping* mapping);
// Tries all stuck mappings again.
void tide__stuck_retry(tide_device_cache* device);
// Tries again, and fails if a stuck mapping is still in a range.
tide_status tide__range_clear(tide_device_cache* device, uint64_t address, uint64_t bytes);

#endif
