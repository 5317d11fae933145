// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Internals of the host machine.
//
//   pages.c   memory files, mappings, page locks
//   worker.c  a thread for each stream
//   share.c   other processes; calls pages.c
//   host.c    options, the tables; calls all of them
#ifndef TIDEMARK_SRC_MACHINE_HOST_HOST_H
#define TIDEMARK_SRC_MACHINE_HOST_HOST_H

#include "machine/soft/soft.h"

// The physical memory of a device is ranges of one file, at increasing offsets. Offsets are not reused while
// memory is in use: the file is sparse and its size has 63 bits, so a freed range is just a hole. Other
// processes may have descriptors of the file, so it is sealed: it never shrinks, and no mapping loses its
// pages. The file begins with the ledger: 64-bit words, first the mark below, then one word for each export.
#define TIDE__HOST_LEDGER_BYTES ((uint64_t)64 << 10)
#define TIDE__HOST_LEDGER_WORDS (TIDE__HOST_LEDGER_BYTES / sizeof(uint64_t))
#define TIDE__HOST_MARK 0x314b52414d454454u  // "TDEMARK1" in memory

typedef struct tide__host_file {
  int descriptor;        // owned; -1 before the first use
  uint64_t next_offset;  // shared under the memory lock, like all fields here
  uint64_t bytes;        // size of the file
  uint64_t last_export;  // the word that was used last
} tide__host_file;

typedef struct tide__host {
  tide__soft soft;                   // must be first: the functions of the table get a pointer to it
  tide__host_file* files;            // owned; one for each device
  tide__atomic_u32 is_lock_refused;  // the system refused to lock pages
  uint64_t export_count;             // shared under the memory lock
  tide__mutex workers_lock;
  tide__signal worker_ended;
  uint32_t worker_count;  // not joined yet, shared under workers_lock
  tide__link ended;       // streams whose worker has ended, by in_ended, shared under workers_lock
} tide__host;

// The host machine of its shared part.
static inline tide__host* tide__host_of(tide__soft* soft) { return (tide__host*)(void*)soft; }

// The functions of the backend, and the functions of the table that only this machine has. Each is
// tide__host_NAME() and has the prototype of its entry in tide__soft_backend or tide_machine_ops.
// clang-format off
#define TIDE__HOST_BACKEND_MAP(X)                                                                 \
  X(reserve) X(unreserve) X(physical_take) X(physical_give) X(map) X(unmap) X(protect)           \
  X(pinned_take) X(pinned_give) X(export_end) X(stream_start) X(stream_kick) X(stream_stop)      \
  X(drain) X(await) X(move)
#define TIDE__HOST_CALL_MAP(X) X(raw_export) X(raw_import) X(physical_export) X(physical_import)
// clang-format on
#define HOST_BACKEND_PROTOTYPE(name) __typeof__(*((tide__soft_backend*)0)->name) tide__host_##name;
#define HOST_CALL_PROTOTYPE(name) __typeof__(*((tide_machine_ops*)0)->name) tide__host_##name;
TIDE__HOST_BACKEND_MAP(HOST_BACKEND_PROTOTYPE)
TIDE__HOST_CALL_MAP(HOST_CALL_PROTOTYPE)
#undef HOST_BACKEND_PROTOTYPE
#undef HOST_CALL_PROTOTYPE

// The status for an errno of the system. The error text names the call and the bytes.
tide_status tide__host_fail(const char* name, const char* what, uint64_t bytes, int error);

#endif
