// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The parts of a store, for the files of this room.
#ifndef TIDEMARK_SRC_DEVICE_PARK_STORE_H
#define TIDEMARK_SRC_DEVICE_PARK_STORE_H

#include "device/park/park.h"
#include "machine/pinned_range.h"

// ---------------------------------------------------------------------------------------------------
// crew.c: threads that do one job together

enum { TIDE__CREW_MOST = 12 };

typedef struct tide__crew {
  pthread_t threads[TIDE__CREW_MOST];
  uint32_t count;
} tide__crew;

// Starts threads, no more than processors; there may be none. Joining them waits until all have returned.
void tide__crew_start(tide__crew* crew, uint64_t wanted, void* (*run)(void*), void* user);
void tide__crew_join(tide__crew* crew);

// ---------------------------------------------------------------------------------------------------
// store.c

struct tide__store {
  tide_device_cache* device;  // borrowed
  struct tide__store* next;   // among those that the machine refused to unlock
  tide_backup kind;           // as asked for
  uint64_t bytes;             // whole pages
  tide__pinned_range* range;  // owned; pages that are locked piece by piece; NULL: none
  uint64_t address;           // of its pages; 0: none
  int file;                   // -1: none
  bool is_open;
  bool is_dry;     // its addresses have no memory
  bool is_making;  // threads lock or touch its pages ahead
  // The sizes of its parts; they may be changed before it is opened.
  uint64_t piece_bytes;  // of pages that are locked in one call
  uint64_t slot_bytes;   // of the ring through which contents go that are not locked
  uint32_t slot_count;
  uint32_t thread_count;
  tide__atomic_u32 is_refused;  // the machine refused to lock a piece
  tide__crew toucher;           // touches pages that are not to be locked
  size_t path_bytes;
  char path[];  // of the folder
};

// Makes the file, or maps the pages. Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__store_open(tide__store* store);
// Can the machine copy to and from its pages at the full speed of the bus? The store is open. If not, no
// thread makes pages any more.
bool tide__store_is_direct(tide__store* store);
// The address of an offset, and how many of `*bytes` the machine can copy there at once. Waits for the pages.
void* tide__store_window(tide__store* store, uint64_t offset, uint64_t* bytes);
tide_status tide__store_write(tide__store* store, uint64_t offset, uint64_t bytes, const void* source);
// Tries again to free the stores whose memory the machine refused to unlock.
void tide__stores_retry(tide_device_cache* device);
// The same at the end of the allocator: frees the records of those that are still refused.
void tide__stores_end(tide_device_cache* device);

#endif
