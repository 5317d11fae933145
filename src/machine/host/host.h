// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The host machine on the inside.
//
//   pages.c   memory files, mappings, page locks
//   worker.c  a thread for each stream
//   share.c   other processes; calls pages.c
//   host.c    options, the tables; calls all of them
#ifndef TIDEMARK_SRC_MACHINE_HOST_HOST_H
#define TIDEMARK_SRC_MACHINE_HOST_HOST_H

#include "machine/soft/soft.h"

// The physical memory of a device is ranges of one file. They are handed out one behind the other and never
// twice: the file is sparse and its size is 63 bits, so a range that was given back is just a hole.
// Others may have descriptors of it, so it is sealed: it never becomes smaller, and no mapping loses its
// pages. The file begins with the ledger: 64-bit words, first the mark below, then one word for each export.
#define TIDE__HOST_LEDGER_BYTES ((uint64_t)64 << 10)
#define TIDE__HOST_LEDGER_WORDS (TIDE__HOST_LEDGER_BYTES / sizeof(uint64_t))
#define TIDE__HOST_MARK 0x314b52414d454454u  // "TDEMARK1" in memory

typedef struct tide__host_file {
  int descriptor;        // owned; -1 before the first use
  uint64_t next_offset;  // shared under the memory lock, like all here
  uint64_t bytes;        // how large it is
  uint64_t last_export;  // the word used last
} tide__host_file;

typedef struct tide__host {
  tide__soft soft;                   // first: the operations get a pointer to it
  tide__host_file* files;            // owned; one a device
  tide__atomic_u32 is_lock_refused;  // the system did not let us lock pages
  uint64_t export_count;             // shared under the memory lock
  tide__mutex workers_lock;
  tide__signal worker_ended;
  uint32_t worker_count;  // running, shared under workers_lock
  tide__link ended;       // streams whose worker has ended, by in_ended, shared under workers_lock
} tide__host;

// The host machine behind what it shares with the dry one.
static inline tide__host* tide__host_of(tide__soft* soft) { return (tide__host*)(void*)soft; }

// pages.c
// The status for an errno of the system, with the call and the bytes in its text.
tide_status tide__host_fail(const char* name, const char* what, uint64_t bytes, int error);
tide_status tide__host_physical_take(tide__soft* soft, const char* name, tide__physical* physical);
bool tide__host_physical_give(tide__soft* soft, tide__physical* physical);
tide_status tide__host_reserve(tide__soft* soft, int device, tide_call call, uint64_t bytes,
                               uint64_t alignment, uint64_t hint, uint64_t* out);
void tide__host_unreserve(tide__soft* soft, uint64_t address, uint64_t bytes);
tide_status tide__host_map(tide__soft* soft, const tide__physical* physical, uint64_t address);
tide_status tide__host_unmap(tide__soft* soft, uint64_t address, uint64_t bytes);
tide_status tide__host_protect(tide__soft* soft, uint64_t address, uint64_t bytes, bool can_read,
                               bool can_write);
tide_status tide__host_pinned_take(tide__soft* soft, tide__range* range);
void tide__host_pinned_give(tide__soft* soft, tide__range* range);

// worker.c
tide_status tide__host_stream_start(tide__stream* stream, const char* name);
void tide__host_stream_kick(tide__stream* stream);
void tide__host_stream_stop(tide__stream* stream);
void tide__host_drain(tide__soft* soft);
tide_status tide__host_await(tide__soft* soft, const char* name, tide__point point);
tide_status tide__host_move(const tide__op* op, bool is_staged);

// share.c
tide_status tide__host_raw_export(void* self, int device, void* address, tide_raw_share* out);
tide_status tide__host_raw_import(void* self, int device, const tide_raw_share* share, void** out);
tide_status tide__host_physical_export(void* self, tide_physical physical, tide_physical_share* out);
tide_status tide__host_physical_import(void* self, int device, const tide_physical_share* share,
                                       tide_physical* out);
void tide__host_export_end(tide__soft* soft, tide__range* range);

#endif
