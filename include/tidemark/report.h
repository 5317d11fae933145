// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: report, what people look at: statistics as text, call stacks, and a memory snapshot in a file.
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

// Writes the statistics of a cache as a table for people, in lines. The text may change from version to
// version.
// Errors: as the _get_stats() of the cache; what the sink returned.
TIDE_API TIDE_NODISCARD tide_status tide_device_print_stats(tide_device_cache* device, const tide_sink* sink);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_print_stats(tide_pinned_cache* pinned, const tide_sink* sink);
TIDE_API TIDE_NODISCARD tide_status tide_cpu_print_stats(tide_cpu_cache* cache, const tide_sink* sink);

// Gathers the stack of the calling thread, for tide_history_options.gather: return addresses, innermost
// first, without its own frame. `user` is ignored. Code that was built without unwind tables ends the stack.
// Cost: some microseconds. The first call in a process may allocate.
TIDE_API size_t tide_stack_gather(void* user, uint64_t* frames, size_t capacity);

// Names a frame that tide_stack_gather() gave, for tide_snapshot_options.describe: the function and the file
// that it was linked into. Without a symbol the name is the file and the offset in it, for addr2line. Returns
// false for an address of no file. The texts are good until the thread asks again.
TIDE_API bool tide_stack_describe(void* user, uint64_t frame, tide_frame_words* out);

// Writes a memory snapshot of an allocator to a file, with frames named by tide_stack_describe(), in the
// format of the ending: "run.pickle" for PyTorch's viewers, "run.json", "run.tide".
// Errors: as tide_device_snapshot() and tide_trace_save().
TIDE_API TIDE_NODISCARD tide_status tide_device_snapshot_to(tide_device_cache* device, const char* path);

TIDE_END_DECLS
#endif
