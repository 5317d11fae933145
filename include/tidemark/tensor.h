// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: tensor, memory for CPU kernels that do not know where it comes from. A runtime puts a cache
// (cpu.h), a source of its own (memory.h) or a run of a profile (profile.h) in force on a thread. Kernels on
// that thread call tide_tensor_alloc(), and tide_tensor_release() on any thread. See examples/inference.c.
//
//   tide_status status = tide_tensor_enter(cache);
//   if (status == TIDE_OK) {
//     run_the_model();  // tide_tensor_alloc(), tide_tensor_release()
//     status = tide_tensor_leave(cache);
//   }
//   if (status != TIDE_OK) fprintf(stderr, "%s\n", tide_last_error()->text);
//
// A request is served by the first of these that the thread has: the innermost cache or source; the innermost
// run of a profile, which replays or records it; else the computer's memory. So nothing is recorded while a
// cache or source is in force. A release goes to where the memory came from, on any thread and in any scope
// or none.
#ifndef TIDEMARK_TENSOR_H
#define TIDEMARK_TENSOR_H

#include "tidemark/base.h"
#include "tidemark/cpu.h"
#include "tidemark/memory.h"

TIDE_BEGIN_DECLS

// What is taken from a source beside the bytes asked for: a record in front, which also keeps the memory
// aligned to 64, and bytes behind that a vector kernel may read.
#define TIDE_TENSOR_FRONT_BYTES 64
#define TIDE_TENSOR_GUARD_BYTES 16
#define TIDE_TENSOR_DEPTH 64  // caches and sources in force inside one another on a thread

// Puts a cache in force on the calling thread, inside those it has already; NULL: none is, until this ends.
// The cache must live until then. Leaving names what was entered last.
// Errors: TIDE_ERR_LIMIT above TIDE_TENSOR_DEPTH; TIDE_ERR_STATE for what was not entered last.
TIDE_API TIDE_NODISCARD tide_status tide_tensor_enter(tide_cpu_cache* cache);
TIDE_API tide_status tide_tensor_leave(tide_cpu_cache* cache);

// The same for a source: a table of functions behind which any cache or arena may stand. The table is
// borrowed until it is left, and leaving names the same table; it is copied with each tensor, so that what
// its `user` points to must live until the last of them is released.
// Errors: TIDE_ERR_ARGUMENT for a table without both functions, or of memory that the processor cannot write;
//         those of above.
TIDE_API TIDE_NODISCARD tide_status tide_tensor_enter_source(const tide_memory* source);
TIDE_API tide_status tide_tensor_leave_source(const tide_memory* source);

// The cache in force on the calling thread, or NULL; the source in force, or NULL; and how many of both were
// entered.
TIDE_API tide_cpu_cache* tide_tensor_cache(void);
TIDE_API const tide_memory* tide_tensor_source(void);
TIDE_API uint32_t tide_tensor_depth(void);

// What memory holds that comes from the computer, in the whole process: as flags of
// tide_memory_raw(). At first 0.
// Errors: TIDE_ERR_ARGUMENT.
TIDE_API TIDE_NODISCARD tide_status tide_tensor_set_raw(uint32_t flags);

// Hands out `bytes` at a multiple of 64, with TIDE_TENSOR_GUARD_BYTES behind them that may be read. 0 bytes
// are NULL.
// Errors: those of the source; TIDE_ERR_ARGUMENT for sizes near SIZE_MAX.
TIDE_API TIDE_NODISCARD tide_status tide_tensor_alloc(size_t bytes, void** out);
// Takes it back; NULL is nothing.
// Errors: TIDE_ERR_STATE for memory that was released already, while a cache keeps it unused;
//         TIDE_ERR_ARGUMENT for any other address at which no tensor begins, one that was released among
//         them; what the source returned, and then the memory stays handed out. Wrong addresses are not read
//         through, unless they lie in memory of a cache.
TIDE_API tide_status tide_tensor_release(void* address);

TIDE_END_DECLS
#endif
