// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: memory. The types that all allocators share: blocks, pools, scopes, statistics, fills, and the
// table through which arenas and caches get their memory. That memory may come from the C library, from a
// machine (machine.h), from a cache (device.h, pinned.h, cpu.h), or from the program.
//
//   const tide_memory memory = tide_memory_raw(TIDE_RAW_HUGE_PAGES | TIDE_RAW_ZEROS);
//   void* address = NULL;
//   if (memory.alloc(&memory, 4096, 64, &address) == TIDE_OK) memory.release(&memory, address);
#ifndef TIDEMARK_MEMORY_H
#define TIDEMARK_MEMORY_H

#include "tidemark/base.h"

TIDE_BEGIN_DECLS

#define TIDE_NO_LIMIT UINT64_MAX

// A block of memory that was handed out. The handle locates its record without a search, and makes it
// possible to recognise a block that was released before.
typedef struct tide_block {
  void* address;
  uint64_t handle;
} tide_block;

// The number of a pool; 0 is the default pool. Numbers are not reused.
typedef uint32_t tide_pool;
#define TIDE_POOL_DEFAULT ((tide_pool)0)

// Which requests a scope sends to its pool.
typedef enum tide_scope_kind {
  TIDE_SCOPE_ALL = 0,      // all requests
  TIDE_SCOPE_THREAD = 1,   // requests of the thread that opened the scope
  TIDE_SCOPE_STREAM = 2,   // requests for `stream`
  TIDE_SCOPE_CAPTURE = 3,  // requests for streams that are in the same capture as `stream` at that time
  TIDE_SCOPE_FILTER = 4    // requests for which `filter` returns true
} tide_scope_kind;

typedef struct tide_stat {
  int64_t current;
  int64_t peak;       // since the last reset
  int64_t allocated;  // sum of all increases since the last reset
  int64_t freed;      // sum of all decreases since the last reset
} tide_stat;

// The contents of memory when it is handed out, whether new or reused.
typedef enum tide_fill {
  TIDE_FILL_NOTHING,  // not defined
  TIDE_FILL_ZEROS,
  TIDE_FILL_JUNK,  // the repeated bytes ef be ed 7f: a NaN as a float, a large integer
} tide_fill;

// A source of memory. The library calls both functions from any thread, and never with a lock held.
typedef struct tide_memory {
  // Allocates `bytes` (never 0) at a multiple of `alignment`, a power of two.
  tide_status (*alloc)(const struct tide_memory* memory, size_t bytes, size_t alignment, void** out);
  // Releases what `alloc` returned; never called with NULL.
  tide_status (*release)(const struct tide_memory* memory, void* address);
  void* user;       // for the two functions; must stay valid until the last release
  uint64_t detail;  // for the two functions
  bool is_host;     // the processor can read and write the memory
} tide_memory;
#define TIDE_MEMORY_NONE \
  { NULL, NULL, NULL, 0, false }

// Memory of the C library.
// Errors (of alloc): TIDE_ERR_ARGUMENT for more than PTRDIFF_MAX bytes; TIDE_ERR_NO_MEMORY, with the size
//                    in the text.
TIDE_API tide_memory tide_memory_cpu(void);

// The same with flags. Addresses are multiples of 64 at least.
#define TIDE_RAW_ZEROS 1u       // fill with zeros
#define TIDE_RAW_JUNK 2u        // fill with junk (see tide_fill); excludes TIDE_RAW_ZEROS
#define TIDE_RAW_HUGE_PAGES 4u  // from 2 MiB on: align to huge pages, and ask the system for them
// Errors (of alloc): as above; TIDE_ERR_ARGUMENT for both fills at once, or for unknown flags.
TIDE_API tide_memory tide_memory_raw(uint32_t flags);

TIDE_END_DECLS
#endif
