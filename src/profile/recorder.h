// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The requests and releases of one run so far, by address. The thread of the run records requests; any
// thread may record a release.
#ifndef TIDEMARK_SRC_PROFILE_RECORDER_H
#define TIDEMARK_SRC_PROFILE_RECORDER_H

#include "base/hash_map.h"
#include "base/lock.h"
#include "tidemark/profile.h"

#define TIDE__NO_REQUEST UINT32_MAX

typedef struct tide__recorder {
  const tide_heap* heap;  // borrowed
  tide__mutex lock;
  tide__hash_map live;             // from the address of a live request to its value; shared under lock
  tide_profile_request* requests;  // owned; shared under lock
  uint32_t* releases;              // owned; requests in the order of their releases; shared under lock
  size_t capacity;                 // of both
  size_t count;                    // rises under lock
  uint32_t released;               // shared under lock
} tide__recorder;

// The request of a value in `live`. Values are never 0, not even for TIDE__NO_REQUEST.
static inline uint64_t tide__recorder_value(uint32_t request) { return (uint64_t)request + 1; }
static inline uint32_t tide__recorder_request(uint64_t value) { return (uint32_t)(value - 1); }

void tide__recorder_init(tide__recorder* recorder, const tide_heap* heap);
void tide__recorder_fini(tide__recorder* recorder);
// Clears the record but keeps its memory.
void tide__recorder_clear(tide__recorder* recorder);

// Makes room for one more, so that the next note cannot fail. False: no memory.
bool tide__recorder_reserve(tide__recorder* recorder);

// Appends a request; call reserve first. If the address is still live, its release was not seen, and
// happens now.
void tide__recorder_add(tide__recorder* recorder, uint64_t address, uint64_t bytes, uint64_t alignment);
// Ends the live request at an address; false if there is none.
bool tide__recorder_end(tide__recorder* recorder, uint64_t address);

// Only the table, for callers that keep requests elsewhere: insert an address with any number, and remove
// it. Without such an address, removal returns TIDE__NO_REQUEST and sets `*out_found` to false.
void tide__recorder_put(tide__recorder* recorder, uint64_t address, uint32_t request);
uint32_t tide__recorder_take(tide__recorder* recorder, uint64_t address, bool* out_found);

#endif
