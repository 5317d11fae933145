// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The ranges of a device allocator's options, for a struct that was filled in by hand. A text is held to the
// same ranges while it is read, so what tide_device_options_parse() makes of the defaults always passes.
//
//   all sizes                whole MiB, because that is what a text can say
//   large_segment_bytes      above 10 MiB, the largest request that it serves, up to 64 GiB; PyTorch
//                            has no upper bound, ours finds bytes that were given where MiB are wanted
//   max_split_bytes          at least large_segment_bytes, or TIDE_NO_LIMIT
//   non_split_excess_bytes   at least large_segment_bytes, or 0
//   collect_threshold        0, or between 0 and 1, both excluded
//   memory_fraction          0 to 1
//   roundup_divisions        each 0 or a power of two
//   pinned_register_threads  a power of two up to 128
//   policy, heap             a known one; NULL or both functions
#ifndef TIDEMARK_SRC_DEVICE_OPTIONS_H
#define TIDEMARK_SRC_DEVICE_OPTIONS_H

#include "base/sized.h"
#include "tidemark/device.h"

#define TIDE__LARGE_SEGMENT_ABOVE ((uint64_t)10 << 20)  // bytes
#define TIDE__LARGE_SEGMENT_MAX ((uint64_t)64 << 30)    // bytes
#define TIDE__REGISTER_THREADS_MAX 128u
#define TIDE__HANDLE_BYTES_MAX ((uint64_t)1 << 40)

// The options of a caller, whose struct may be an older and shorter one (base/sized.h), as a whole one that
// an allocator can work with. `call` is who asks, and opens the error's text.
// Errors: TIDE_ERR_ARGUMENT; the text names the field, what it is and what it wants.
TIDE_NODISCARD tide_status tide__device_options_take(const tide_device_options* options, const char* call,
                                                     tide_device_options* out);

#endif
