// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What one run has requested and released so far, by address. The thread of the run notes requests; any
// thread may note a release.
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

// The request that a value of `live` stands for. Values are never 0: TIDE__NO_REQUEST is one, too.
static inline uint64_t tide__recorder_value(uint32_t request) { return (uint64_t)request + 1; }
static inline uint32_t tide__recorder_request(uint64_t value) { return (uint32_t)(value - 1); }

void tide__recorder_init(tide__recorder* recorder, const tide_heap* heap);
void tide__recorder_fini(tide__recorder* recorder);
// Forgets everything but keeps its memory.
void tide__recorder_clear(tide__recorder* recorder);

// Makes room for one more, so that the next note cannot fail. False: no memory.
bool tide__recorder_reserve(tide__recorder* recorder);

// Appends a request; an address that is still live was released unseen before. Only after reserve.
void tide__recorder_add(tide__recorder* recorder, uint64_t address, uint64_t bytes, uint64_t alignment);
// Ends the request at an address, now; false if there is none.
bool tide__recorder_end(tide__recorder* recorder, uint64_t address);

// The table alone, for who keeps requests elsewhere: puts an address in with a number of any kind, and takes
// it out; TIDE__NO_REQUEST with `*out_found` false if it is not there.
void tide__recorder_put(tide__recorder* recorder, uint64_t address, uint32_t request);
uint32_t tide__recorder_take(tide__recorder* recorder, uint64_t address, bool* out_found);

#endif
