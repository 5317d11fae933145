// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The lifetimes of the requests of one device, from ALLOC to FREE_COMPLETED, or of its segments, from
// SEGMENT_ALLOC to SEGMENT_FREE. They include those that began before the recording or never ended. Only
// addresses are followed, so this works for every trace.
//
// An instant is the number of entries that have happened; 0 is before the first one.
#ifndef TIDEMARK_SRC_FORMAT_LIFETIMES_H
#define TIDEMARK_SRC_FORMAT_LIFETIMES_H

#include "tidemark/trace.h"

#define TIDE__INSTANT_NEVER UINT64_MAX

typedef enum tide__lifetimes_kind {
  TIDE__LIFETIMES_OF_REQUESTS = 0,
  TIDE__LIFETIMES_OF_SEGMENTS = 1  // without expandable ones, which grow and shrink
} tide__lifetimes_kind;

// [L1] begin <= end; it is live at the instants from begin to below end
typedef struct tide__lifetime {
  uint64_t begin;  // the instant after its first entry; 0: it is older than the recording
  uint64_t end;    // the instant after its release, or after another one got its address
  uint64_t bytes;  // of a request: the requested size
  uint64_t stream;
  uint32_t stack;
  uint32_t note;       // of the entry that it is known from
  uint32_t displaced;  // number (from 1) of the unreleased lifetime that its first entry ended; 0: none
} tide__lifetime;

typedef struct tide__lifetimes {
  const tide_heap* heap;            // borrowed until fini
  const tide_trace_entry* entries;  // borrowed from the trace
  size_t entry_count;
  tide__lifetimes_kind kind;
  tide__lifetime* items;  // owned; those with a first entry are in the order of these entries
  size_t count;
  size_t capacity;
  uint32_t* of_entry;     // owned; the lifetime (from 1) that an entry begins or ends; 0: none
  uint64_t peak_bytes;    // the most live bytes
  uint64_t peak_instant;  // the first instant with that many
  uint64_t first_bytes;   // live at instant 0
} tide__lifetimes;

// Devices that have entries or segments are below this number.
size_t tide__lifetimes_device_count(const tide_trace* trace);

// The earliest first and the latest last time of all devices; UINT64_MAX and 0 without entries.
void tide__lifetimes_times(const tide_trace* trace, uint64_t* out_first_ns, uint64_t* out_last_ns);

// Follows the entries of a device. The trace is borrowed until fini and must not change.
// Errors: TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for more than 2^32 entries or 2^63 live bytes.
// Cost:   O(entries + blocks); 48 bytes per lifetime, 4 per entry, and temporarily 32 to 64 per address.
tide_status tide__lifetimes_init(tide__lifetimes* lifetimes, const tide_trace* trace, size_t device,
                                 tide__lifetimes_kind kind, const tide_heap* heap);
void tide__lifetimes_fini(tide__lifetimes* lifetimes);

static inline bool tide__lifetime_is_live(const tide__lifetime* lifetime, uint64_t instant) {
  return lifetime->begin <= instant && instant < lifetime->end;
}

// The lifetimes that an entry begins and ends, or NULL.
const tide__lifetime* tide__lifetimes_begun_by(const tide__lifetimes* lifetimes, size_t entry);
const tide__lifetime* tide__lifetimes_ended_by(const tide__lifetimes* lifetimes, size_t entry);

#endif
