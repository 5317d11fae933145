// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: memory, the small table through which planned arenas get their memory: the computer's own, a
// machine's (machine.h), a cache's (device.h), or a program's.
//
//   const tide_memory memory = tide_memory_cpu();
//   void* address = NULL;
//   if (memory.alloc(&memory, 4096, 64, &address) == TIDE_OK) memory.release(&memory, address);
#ifndef TIDEMARK_MEMORY_H
#define TIDEMARK_MEMORY_H

#include "tidemark/base.h"

TIDE_BEGIN_DECLS

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

TIDE_END_DECLS
#endif
