// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parking pools of the policy `tide`: see docs/park.md. The caller of these functions has the gate, and is a
// guest of the pools. They may leave the gate for observers in between.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_PARKING_H
#define TIDEMARK_SRC_DEVICE_TIDE_PARKING_H

#include "device/park/park.h"
#include "device/tide/tide.h"

// The pools of a call.
typedef struct tide__pool_list {
  tide__pool** pools;
  size_t count;
} tide__pool_list;

// How pools are parked.
typedef struct tide__park_order {
  tide__backup_wish wish;  // without contents if its kind is TIDE_BACKUP_NONE
  bool unparks_on_request;
  tide__backup* backup;  // one that was kept, with the caller as its user; NULL: none
} tide__park_order;

// Parks pools that are not parked. The caller has settled at the gate, has seen since that the pools are not
// away, and has not left the gate since: two threads would else park the same pool.
tide_status tide__pools_park(tide_device_cache* device, tide__pool_list list, const tide__park_order* order,
                             const tide__call_context* context, tide_park_result* out);

// A block whose contents are lost.
typedef struct tide__lost_block {
  uint64_t address;
  uint64_t bytes;
} tide__lost_block;

// How pools are unparked, and what is lost.
typedef struct tide__unpark_order {
  const tide_stream* streams;  // borrowed
  size_t stream_count;
  bool waits;
  bool keeps_backup;
  const struct tide__ahead* ahead;  // NULL: somebody has asked for the memory
  bool is_for_streams;              // only the streams of the list wait for the contents
  bool lacks_device_memory;         // set: no budget of a tag is in the way
  tide__lost_block* lost;           // owned by the caller afterwards
  size_t lost_count;
  size_t lost_capacity;
} tide__unpark_order;

// Unparks pools that are parked, and that nobody moves.
tide_status tide__pools_unpark(tide_device_cache* device, tide__pool_list list, tide__unpark_order* order,
                               const tide__call_context* context, tide_park_result* out);

// The caller may use the pools without tide_device_use(): makes all streams wait for contents that are on
// their way.
tide_status tide__pools_arrive(tide_device_cache* device, tide__pool_list list,
                               const tide__unpark_order* order);

// Before a request gets memory of its pool: unparks that, or fails, where it is parked.
tide_status tide__pool_open(const tide__request* request);
// Settles at the gate, and waits until no other thread is parking or unparking pools of a list. None of them
// is, then, until the caller leaves the gate again; they may be parked or not, whatever they were before.
// Errors: TIDE_ERR_STATE inside an observer, which must not wait.
tide_status tide__pools_wait(tide_device_cache* device, tide__pool_list list, const char* call);
// Refuses a call while a scope acts as a capture.
tide_status tide__pools_check_captures(tide_device_cache* device, const char* call);
// Notes that pools are being parked or unparked, or not any more.
void tide__pools_set_moving(tide__pool_list list, bool is_moving);
// Forgets parked memory of pools without users in which nothing is handed out, and what it needed.
void tide__parking_tidy(tide_device_cache* device);
// Frees the record of a parked pool, at the end of the allocator.
void tide__parked_free(tide_device_cache* device, tide__pool* pool);
// The homes of pools as a freight; the caller frees it, also after a failure.
struct tide__freight;
tide_status tide__freight_of(tide_device_cache* device, tide__pool_list list, struct tide__freight* out);
// The bytes of a pool that are away, and those of its contents that are in a backup.
uint64_t tide__parked_bytes(tide_device_cache* device, tide__pool* pool);
uint64_t tide__parked_content_bytes(tide_device_cache* device, tide__pool* pool, const tide__backup* backup);
// How much room a backup of pools would need now.
tide_status tide__pools_measure(tide_device_cache* device, tide__pool_list list, uint64_t* out);

// Where contents are.
typedef struct tide__parked_place {
  tide__store* store;  // NULL: they were discarded
  uint64_t offset;
} tide__parked_place;
// Finds a range that lies in a block with contents in a backup; false if it does not.
bool tide__parked_find(tide_device_cache* device, uint64_t address, uint64_t bytes, tide__parked_place* out);

#endif
