// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: reports for people: statistics as text, call stacks, and memory snapshots in files.
//
//   const tide_sink console = tide_sink_file(2);   // standard error
//   tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
//   history.level = TIDE_HISTORY_ALL;
//   history.gather = tide_stack_gather;
//   tide_status status = tide_device_history(device, &history);   // before the work
//   if (status == TIDE_OK) status = tide_device_print_stats(device, &console);
//   if (status == TIDE_OK) status = tide_device_snapshot_to(device, "run.pickle");
#ifndef TIDEMARK_REPORT_H
#define TIDEMARK_REPORT_H

#include "tidemark/cpu.h"
#include "tidemark/device.h"
#include "tidemark/pinned.h"

TIDE_BEGIN_DECLS

// Writes the statistics of a cache as a readable table. Do not parse it: the text may change between
// versions.
// Errors: as the _get_stats() function of the cache; any error of the sink.
TIDE_API TIDE_NODISCARD tide_status tide_device_print_stats(tide_device_cache* device, const tide_sink* sink);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_print_stats(tide_pinned_cache* pinned, const tide_sink* sink);
TIDE_API TIDE_NODISCARD tide_status tide_cpu_print_stats(tide_cpu_cache* cache, const tide_sink* sink);

// Gathers the call stack of the calling thread, for tide_history_options.gather: return addresses, innermost
// first, without a frame of this function. Returns how many were stored. `user` is ignored. The stack ends at
// code without unwind tables.
// Cost: some microseconds. The first call in a process may allocate.
TIDE_API size_t tide_stack_gather(void* user, uint64_t* frames, size_t capacity);

// Names a frame from tide_stack_gather(), for tide_snapshot_options.describe: the function, and the program
// or library that contains it. Without a symbol the name is that file and an offset in it, for addr2line.
// Returns false if the address belongs to no file. The texts are valid until the thread calls this again.
TIDE_API bool tide_stack_describe(void* user, uint64_t frame, tide_frame_words* out);

// Writes a memory snapshot of a cache to a file, with frames named by tide_stack_describe(). The ending of
// the path decides the format: "run.pickle" for PyTorch's viewers, "run.json", "run.tide".
// Errors: as tide_device_snapshot() and tide_trace_save().
TIDE_API TIDE_NODISCARD tide_status tide_device_snapshot_to(tide_device_cache* device, const char* path);
// The same of one pool alone: see `pool` in tide_snapshot_options.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_snapshot_to(tide_device_cache* device, tide_pool pool,
                                                                 const char* path);
// The same of all pools, with the pinned memory of a cache: see tide_trace_add_host().
TIDE_API TIDE_NODISCARD tide_status tide_device_pinned_snapshot_to(tide_device_cache* device,
                                                                   tide_pinned_cache* pinned,
                                                                   const char* path);

TIDE_END_DECLS
#endif
