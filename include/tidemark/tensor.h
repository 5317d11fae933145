// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: tensor. Memory for CPU kernels that do not choose its source. A runtime enters a cache (cpu.h)
// or a source (memory.h), or begins a run of a profile (profile.h), on a thread. Kernels on that thread
// call tide_tensor_alloc(); any thread may call tide_tensor_release(). See examples/inference.c.
//
//   tide_status status = tide_tensor_enter(cache);
//   if (status == TIDE_OK) {
//     run_the_model();  // tide_tensor_alloc(), tide_tensor_release()
//     status = tide_tensor_leave(cache);
//   }
//   if (status != TIDE_OK) fprintf(stderr, "%s\n", tide_last_error()->text);
//
// A request is served by the first of these that the thread has: the innermost cache or source; the
// innermost run of a profile; the C library's memory. So a profile records nothing while a cache or source
// is entered. A release goes to where the memory came from, on any thread and in any scope.
#ifndef TIDEMARK_TENSOR_H
#define TIDEMARK_TENSOR_H

#include "tidemark/base.h"
#include "tidemark/cpu.h"
#include "tidemark/memory.h"

TIDE_BEGIN_DECLS

// Each allocation takes these bytes on top of the requested ones: a header, which also aligns the memory to
// 64, and trailing bytes that a vector kernel may read.
#define TIDE_TENSOR_FRONT_BYTES 64
#define TIDE_TENSOR_GUARD_BYTES 16
#define TIDE_TENSOR_DEPTH 64  // the limit of nested scopes per thread

// Enter and leave a scope in which the calling thread allocates from a cache. Scopes nest. A NULL cache
// hides the outer scopes. The cache must live until it is left.
// Errors:  enter: TIDE_ERR_LIMIT above TIDE_TENSOR_DEPTH. leave: TIDE_ERR_STATE if the cache was not
//          entered last.
TIDE_API TIDE_NODISCARD tide_status tide_tensor_enter(tide_cpu_cache* cache);
TIDE_API tide_status tide_tensor_leave(tide_cpu_cache* cache);

// The same for a source, a table of functions in front of any cache or arena. The table is borrowed until
// it is left, and its address identifies the scope. Each tensor keeps a copy of the table, so its `user`
// must live until the last tensor is released.
// Errors:  as above; TIDE_ERR_ARGUMENT for a table without both functions, or of memory that the processor
//          cannot write.
TIDE_API TIDE_NODISCARD tide_status tide_tensor_enter_source(const tide_memory* source);
TIDE_API tide_status tide_tensor_leave_source(const tide_memory* source);

// Return the cache of the innermost scope of the calling thread, or NULL; its source, or NULL; and the
// number of open scopes.
TIDE_API tide_cpu_cache* tide_tensor_cache(void);
TIDE_API const tide_memory* tide_tensor_source(void);
TIDE_API uint32_t tide_tensor_depth(void);

// Sets the flags of tide_memory_raw() with which tensors outside all scopes are allocated, for the whole
// process. The default is 0.
// Errors:  TIDE_ERR_ARGUMENT for invalid flags.
TIDE_API TIDE_NODISCARD tide_status tide_tensor_set_raw(uint32_t flags);

// Allocates `bytes` at a multiple of 64, followed by TIDE_TENSOR_GUARD_BYTES that may be read. 0 bytes
// yield NULL.
// Errors:  an error from the source; TIDE_ERR_ARGUMENT for more than PTRDIFF_MAX bytes.
TIDE_API TIDE_NODISCARD tide_status tide_tensor_alloc(size_t bytes, void** out);
// Releases a tensor. Releasing NULL is a no-op. An invalid address is dereferenced only if it lies in
// memory of a cache.
// Errors:  TIDE_ERR_STATE for a tensor that was released and that a cache still keeps; TIDE_ERR_ARGUMENT
//          for any other address at which no tensor begins; an error from the source, after which the
//          tensor stays valid.
TIDE_API tide_status tide_tensor_release(void* address);

TIDE_END_DECLS
#endif
