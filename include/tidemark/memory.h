// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: memory, what all allocators share: the names of pieces of memory and pools, statistics, what new
// memory holds, and the small table through which arenas and caches get their memory: the computer's own, a
// machine's (machine.h), a cache's (device.h, pinned.h, cpu.h), or a program's.
//
//   const tide_memory memory = tide_memory_raw(TIDE_RAW_HUGE_PAGES | TIDE_RAW_ZEROS);
//   void* address = NULL;
//   if (memory.alloc(&memory, 4096, 64, &address) == TIDE_OK) memory.release(&memory, address);
#ifndef TIDEMARK_MEMORY_H
#define TIDEMARK_MEMORY_H

#include "tidemark/base.h"

TIDE_BEGIN_DECLS

#define TIDE_NO_LIMIT UINT64_MAX

// A piece of memory that was handed out. The handle finds its record without a look-up, and a handle that was
// released already is recognised.
typedef struct tide_block {
  void* address;
  uint64_t handle;
} tide_block;

// A pool of memory beside the default one, 0. Numbers are not used again.
typedef uint32_t tide_pool;
#define TIDE_POOL_DEFAULT ((tide_pool)0)

// Which requests a scope sends to its pool.
typedef enum tide_scope_kind {
  TIDE_SCOPE_ALL = 0,      // all
  TIDE_SCOPE_THREAD = 1,   // those of the thread that opened it
  TIDE_SCOPE_STREAM = 2,   // those for `stream`
  TIDE_SCOPE_CAPTURE = 3,  // those for streams in the same capture as `stream`, when the request comes
  TIDE_SCOPE_FILTER = 4    // those for which `filter` returns true
} tide_scope_kind;

typedef struct tide_stat {
  int64_t current;
  int64_t peak;       // since the last reset
  int64_t allocated;  // sum of all rises since the last reset
  int64_t freed;      // sum of all falls since the last reset
} tide_stat;

// What memory holds when it is handed out, new or used before.
typedef enum tide_fill {
  TIDE_FILL_NOTHING,  // anything
  TIDE_FILL_ZEROS,
  TIDE_FILL_JUNK,  // the bytes ef be ed 7f, again and again: not a number, or a large one
} tide_fill;

// Where memory comes from. Both functions may be called from any thread, and no lock of ours is held then.
typedef struct tide_memory {
  // Hands out `bytes` (never 0) at an address that is a multiple of `alignment`, a power of two.
  tide_status (*alloc)(const struct tide_memory* memory, size_t bytes, size_t alignment, void** out);
  // Takes back what `alloc` handed out; never called with NULL.
  tide_status (*release)(const struct tide_memory* memory, void* address);
  void* user;  // whatever the two make of these; what `user` points to is borrowed until the last release
  uint64_t detail;  //
  bool is_host;     // the processor can read and write there
} tide_memory;
#define TIDE_MEMORY_NONE \
  { NULL, NULL, NULL, 0, false }

// The memory of this computer, from the C library.
// Errors (of alloc): TIDE_ERR_ARGUMENT for more than PTRDIFF_MAX bytes; TIDE_ERR_NO_MEMORY, which names them.
TIDE_API tide_memory tide_memory_cpu(void);

// The same with all of these that are asked for; addresses are multiples of 64 at least.
#define TIDE_RAW_ZEROS 1u       // filled with zeros
#define TIDE_RAW_JUNK 2u        // filled with junk (see tide_fill); not with zeros as well
#define TIDE_RAW_HUGE_PAGES 4u  // from 2 MiB on: whole huge pages, where the system has them
// Errors (of alloc): as above; TIDE_ERR_ARGUMENT for both fills, or flags that are none.
TIDE_API tide_memory tide_memory_raw(uint32_t flags);

TIDE_END_DECLS
#endif
