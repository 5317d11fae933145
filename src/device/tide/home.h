// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Handles of homes: finding those under a range of addresses.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_HOME_H
#define TIDEMARK_SRC_DEVICE_TIDE_HOME_H

#include "device/segment/virtual.h"
#include "device/tide/tide.h"

static inline uint64_t tide__handle_end(const tide__handle* handle) {
  return handle->address + handle->bytes;
}

// Puts a handle at a place of the home's arrays, which must have room.
static inline void tide__home_put_handle_locked(tide__home* home, size_t index, tide__handle* handle) {
  home->handles[index] = handle;
  home->ends[index] = tide__handle_end(handle);
}

// The index of the first handle that ends after an address, if it is from `low` to `high`.
static inline size_t tide__handle_index_between(const tide__home* home, size_t low, size_t high,
                                                uint64_t address) {
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (home->ends[middle] <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

static inline size_t tide__handle_index_at(const tide__home* home, uint64_t address) {
  return tide__handle_index_between(home, 0, home->count, address);
}

// The same if it is probably not far behind `low`, and not before.
static inline size_t tide__handle_index_from(const tide__home* home, size_t low, uint64_t address) {
  size_t high = low;
  for (size_t step = 1; high < home->count && home->ends[high] <= address; step *= 2) {
    low = high + 1;
    high += step;
  }
  return tide__handle_index_between(home, low, tide__min(high, home->count), address);
}

// Where a range begins and ends in a handle.
static inline uint64_t tide__handle_from(const tide__handle* handle, uint64_t address) {
  return tide__max(address, handle->address) - handle->address;
}

static inline uint64_t tide__handle_to(const tide__handle* handle, uint64_t end) {
  return tide__min(end, tide__handle_end(handle)) - handle->address;
}

// The next handle with idle memory at an end, at the last survey, from `index` on; or the count.
static inline size_t tide__home_next_idle(const tide__home* home, size_t index) {
  while (index < home->count) {
    const uint64_t bits = home->idle_bits[index / 64] >> index % 64;
    if (bits != 0) return tide__min(index + (size_t)__builtin_ctzll(bits), home->count);
    index = (index / 64 + 1) * 64;
  }
  return home->count;
}

#define TIDE__HANDLES_EACH(i, home, begin, end)       \
  for (size_t i = tide__handle_index_at(home, begin); \
       i < (home)->count && (home)->handles[i]->address < (end); i++)

// Updates whether a handle is mapped at home and used by no other lane.
void tide__handle_note_locked(tide_device_cache* device, tide__handle* handle);
// Takes the record of a handle out of its home and frees it.
void tide__home_remove_handle(tide_device_cache* device, tide__segment* segment, size_t index);
// Makes a part of a BUSY block unmapped, and what is left of it idle; all of it, if the part is empty.
void tide__home_hollow_locked(tide__block* block, uint64_t from, uint64_t to);
// Gives back the handles that lie wholly in an idle block: see tide__segment_kind.
tide_status tide__home_give_idle(tide_device_cache* device, tide__block* block, uint64_t target,
                                 const tide__call_context* context);
// Gives all of them back, of a block that no work uses, or none any more: nothing is waited for.
tide_status tide__home_give_unused(tide_device_cache* device, tide__block* block,
                                   const tide__call_context* context);

#endif
