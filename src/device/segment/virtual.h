// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Virtual memory under both policies. The caller of these functions has the gate, and holds no lock.
#ifndef TIDEMARK_SRC_DEVICE_SEGMENT_VIRTUAL_H
#define TIDEMARK_SRC_DEVICE_SEGMENT_VIRTUAL_H

#include "device/lane/lane.h"

// Makes physical memory. If the device has none left, memory that the machine refused before is tried first.
tide_status tide__physical_new(tide_device_cache* device, uint64_t bytes, tide_physical* out);
// Gives physical memory back. What the machine refuses is an orphan, kept and tried again: for that the
// caller has reserved records of `count` handles.
tide_status tide__orphans_reserve(tide_device_cache* device, size_t count);
void tide__physical_give(tide_device_cache* device, tide_physical handle);
void tide__orphans_retry(tide_device_cache* device);

// How many bytes of addresses a segment of virtual memory should have.
uint64_t tide__reserve_wanted(const tide_device_cache* device, const tide_reserve* reserve);
// Lets the device and its peers use a mapped range.
tide_status tide__access_give(tide_device_cache* device, uint64_t address, uint64_t bytes);

// A range that the machine would not unmap, and all that is to be given back with it: because mapping it
// failed half way, or because it was refused when it was closed. It is tried again later.
typedef struct tide__stuck {
  struct tide__stuck* next;
  uint64_t address;
  uint64_t bytes;        // that are mapped
  uint64_t range_bytes;  // of addresses to be given back from there on; 0: none
  size_t capacity;
  size_t count;
  tide_physical handles[];  // owned; to be given back as well
} tide__stuck;

// A record with room for handles; adds it to those that are tried again; and frees it.
tide__stuck* tide__stuck_new(tide_device_cache* device, size_t handles);
void tide__stuck_add(tide_device_cache* device, tide__stuck* stuck);
void tide__stuck_free(tide_device_cache* device, tide__stuck* stuck);
// Unmaps and gives back as much as the machine takes; true when nothing is left.
bool tide__stuck_try(tide_device_cache* device, tide__stuck* stuck);
// The same; frees the record, or adds it to those that are tried again.
void tide__stuck_end(tide_device_cache* device, tide__stuck* stuck);
void tide__stuck_retry(tide_device_cache* device);
// Is a range free of what could not be unmapped? That is tried again first.
tide_status tide__range_clear(tide_device_cache* device, uint64_t address, uint64_t bytes);

#endif
