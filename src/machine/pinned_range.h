// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A range of page-locked memory of any size, made of our own pages (pages.h) and locked in pieces. A piece is
// locked when it is first needed, or ahead by helper threads. So a copy can use the first pieces while the
// others are being locked:
//
//   tide__pinned_range* range = NULL;
//   tide_status status = tide__pinned_range_new(machine, heap, bytes, 0, &range);
//   if (status == TIDE_OK) tide__pinned_range_ahead(range, 0);  // begins to lock, and returns at once
//   for (uint64_t at = 0; status == TIDE_OK && at < bytes; at += range->piece_bytes) {
//     status = tide__pinned_range_lock(range, at, range->piece_bytes);  // usually it is locked already
//     ... queue the copy of this piece
//   }
//   ... when all copies are done
//   status = tide__pinned_range_free(range);
//
// A copy must lie in one piece, because a driver refuses a copy over two registrations.
// Not for a child of fork(): helpers do not exist there.
#ifndef TIDEMARK_SRC_MACHINE_PINNED_RANGE_H
#define TIDEMARK_SRC_MACHINE_PINNED_RANGE_H

#include <pthread.h>

#include "base/atomic.h"
#include "tidemark/machine.h"

#define TIDE__PINNED_PIECE_BYTES ((uint64_t)32 << 20)  // the default
enum { TIDE__PINNED_HELPERS = 16 };                    // at most

typedef enum tide__pinned_state {
  TIDE__PINNED_NEW,      // not locked; maybe touched
  TIDE__PINNED_BUSY,     // a thread locks it
  TIDE__PINNED_AWAITED,  // the same, and other threads sleep until it is done
  TIDE__PINNED_LOCKED
} tide__pinned_state;

// [N1] piece i is registered exactly if its state is LOCKED, or while BUSY or AWAITED just before that
typedef struct tide__pinned_range {
  tide_machine* machine;  // borrowed until the range is freed
  const tide_heap* heap;  // borrowed until the range is freed
  uint64_t address;       // a multiple of 2 MiB, if the range has so many bytes
  uint64_t bytes;         // rounded up to whole pages
  uint64_t piece_bytes;   // the last piece may be shorter
  uint32_t piece_count;
  tide__atomic_u32* states;     // owned; a tide__pinned_state for each piece
  tide__atomic_u32 next_ahead;  // the next piece for helpers
  tide__atomic_u32 is_ending;   // helpers take no further piece
  uint32_t helper_count;
  pthread_t helpers[TIDE__PINNED_HELPERS];
} tide__pinned_range;

// Maps a range and locks nothing. `piece_bytes` is rounded up to a multiple of 2 MiB; 0: 32 MiB. One piece as
// large as the range is possible.
// Errors: TIDE_ERR_NO_MEMORY for addresses, records, or if the system cannot give that much memory;
//         TIDE_ERR_UNSUPPORTED if the machine cannot lock pages.
tide_status tide__pinned_range_new(tide_machine* machine, const tide_heap* heap, uint64_t bytes,
                                   uint64_t piece_bytes, tide__pinned_range** out);

// Makes sure that all pieces with a byte in [offset, offset + bytes) are locked. Locks new pieces itself, and
// waits for those that another thread is locking.
// Errors: TIDE_ERR_ARGUMENT outside of the range; TIDE_ERR_CAPTURE. With any other status the machine refused
//         to lock, as drivers and systems with a small limit do. Earlier pieces stay locked, and the refused
//         one is ordinary memory. A later call tries again.
// Threads: any thread, several at the same time.
tide_status tide__pinned_range_lock(tide__pinned_range* range, uint64_t offset, uint64_t bytes);
// Are all these pieces locked now? Does not wait.
bool tide__pinned_range_is_locked(tide__pinned_range* range, uint64_t offset, uint64_t bytes);

// Starts helper threads that lock all pieces from the first to the last, and returns at once. They end with
// the last piece, or when one piece is refused. `threads` is at most 16; 0: by bytes and processors. If none
// can be started, tide__pinned_range_lock() does all the work. The second call waits until they end.
// Threads: one at a time of these calls and tide__pinned_range_free().
void tide__pinned_range_ahead(tide__pinned_range* range, uint32_t threads);
void tide__pinned_range_join(tide__pinned_range* range);

// Ends the helpers, unlocks all pieces and gives the memory back to the system. NULL is a no-op. No queued
// work may still use the range.
// Errors: the first error of tide_machine_pinned_unregister(). Then the range stays with the pieces that are
//         still locked, and the call can be made again.
tide_status tide__pinned_range_free(tide__pinned_range* range);

#endif
