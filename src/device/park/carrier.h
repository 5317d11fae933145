// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What copies need: a stream with events, and a ring for contents that do not lie in locked memory.
#ifndef TIDEMARK_SRC_DEVICE_PARK_CARRIER_H
#define TIDEMARK_SRC_DEVICE_PARK_CARRIER_H

#include "device/park/store.h"

// ---------------------------------------------------------------------------------------------------
// carrier.c

enum { TIDE__CARRIER_EVENTS = 64, TIDE__CARRIER_SLOTS = 32, TIDE__CARRIER_ARRIVALS = 4 };

// Kept by the allocator. Events are made when they are needed.
typedef struct tide__carrier {
  tide_stream stream;
  tide_event all;                           // behind the work of the device
  tide_event done[TIDE__CARRIER_ARRIVALS];  // behind the last fetches, by the number of their arrival
  tide_event groups[TIDE__CARRIER_EVENTS];
  tide_event slots[TIDE__CARRIER_SLOTS];
  tide__store* ring;  // owned; NULL: none
  bool is_unsettled;  // waiting for copies failed: some may still be under way
} tide__carrier;

// Makes the stream. If waiting for copies failed before, waits again.
tide_status tide__carrier_open(tide_device_cache* device);
// The event of an arrival, or of one of the last that is not before it.
static inline tide_event* tide__arrival_place(tide_device_cache* device, uint64_t number) {
  const uint64_t last = device->arrival_number;
  const bool is_kept = number + TIDE__CARRIER_ARRIVALS > last;
  return &device->carrier->done[(is_kept ? number : last + 1) % TIDE__CARRIER_ARRIVALS];
}
// Makes an event of the carrier, if need be, and records the end of its stream.
tide_status tide__carrier_mark(tide_device_cache* device, tide_event* event);
// Waits for the work that is queued on the device and its peers.
tide_status tide__carrier_quiesce(tide_device_cache* device);
// Waits for all copies, also if the machine reports failures.
tide_status tide__carrier_drain(tide_device_cache* device);
// Frees the ring when its copies are done. On failure it stays until the next time.
tide_status tide__carrier_close_ring(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// relay.c: copies by way of a ring of locked memory

// A contiguous part of a store that goes through one slot of the ring.
typedef struct tide__relay_run {
  uint64_t offset;  // in the store
  uint64_t bytes;
  uint8_t state;
} tide__relay_run;

// Runs follow each other in the order in which they were added. Run r uses slot r modulo the number of slots.
// One thread adds, and queues copies; the others move bytes between slots and store.
typedef struct tide__relay {
  tide_device_cache* device;  // borrowed
  tide__store* store;         // borrowed
  bool is_fetch;
  tide__relay_run* runs;  // owned
  size_t run_count;
  size_t run_capacity;
  bool is_cut;  // the next run begins
  uint32_t slot_count;
  uint64_t slot_bytes;
  size_t run;         // that is being queued
  uint64_t run_done;  // bytes of it
  size_t written;     // runs that are known to be in the store
  tide__mutex lock;
  tide__signal changed;
  size_t next;  // run for a thread; under the lock, like the states, and
  bool is_ending;
  tide_status status;  // of the first failure of a thread
  tide_error error;
  tide__crew crew;
} tide__relay;

void tide__relay_init(tide__relay* relay, tide_device_cache* device, tide__store* store, bool is_fetch);
// Announces contents, in order. After a cut, a new run begins.
tide_status tide__relay_add(tide__relay* relay, uint64_t offset, uint64_t bytes);
void tide__relay_cut(tide__relay* relay);
// Makes the ring and starts the threads.
tide_status tide__relay_start(tide__relay* relay);
// The place in the ring for the next contents, and how many of `*bytes` fit there. Waits until it is free, or
// has been read; `*out_lost`: it could not be read.
tide_status tide__relay_place(tide__relay* relay, uint64_t* bytes, void** out, bool* out_lost);
// So many bytes of that place were queued.
tide_status tide__relay_queued(tide__relay* relay, uint64_t bytes);
// How many runs the contents so far are in. Waits until so many have been written; all of them were queued.
size_t tide__relay_begun(const tide__relay* relay);
tide_status tide__relay_wait(tide__relay* relay, size_t runs);
// Ends the threads and frees the records.
void tide__relay_fini(tide__relay* relay);

#endif
