// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The ranges of a device allocator's options. tide_device_options_parse() applies the same ranges to a text,
// so its results are always valid.
//
//   all sizes                multiples of 1 MiB, the unit of the text form
//   large_segment_bytes      above 10 MiB, the largest request that it serves, up to 64 GiB. PyTorch has no
//                            upper bound; ours detects a number of bytes where MiB are expected
//   max_split_bytes          at least large_segment_bytes, or TIDE_NO_LIMIT
//   non_split_excess_bytes   at least large_segment_bytes, or 0
//   collect_threshold        0, or between 0 and 1, both excluded
//   memory_fraction          0 to 1
//   pinned_round_bytes, pinned_block_bytes  TIDE_NO_LIMIT is possible too
//   roundup_divisions        each 0 or a power of two
//   pinned_register_threads  a power of two up to 128
//   address_reserve          a fraction up to 1e6, or a multiple of 1 GiB below 10^6 GiB; not both
//   tide_..._handle_bytes    multiples of 2 MiB, not 0, up to 1 TiB; least <= most
//   tide_slack, _stitch_share  0 to 1
//   tide_idle_handles        up to 65536
//   policy, heap             a known policy; NULL or both functions
#ifndef TIDEMARK_SRC_DEVICE_OPTIONS_H
#define TIDEMARK_SRC_DEVICE_OPTIONS_H

#include "base/sized.h"
#include "tidemark/device.h"

#define TIDE__LARGE_SEGMENT_ABOVE ((uint64_t)10 << 20)  // bytes
#define TIDE__LARGE_SEGMENT_MAX ((uint64_t)64 << 30)    // bytes
#define TIDE__REGISTER_THREADS_MAX 128u
#define TIDE__HANDLE_BYTES_MAX ((uint64_t)1 << 40)

// Checks the options of a caller and copies them to a complete struct. The caller's struct may be an older
// and shorter one (base/sized.h). `call` names the call in errors.
// Errors: TIDE_ERR_ARGUMENT; the text names the field, its value and the range.
TIDE_NODISCARD tide_status tide__device_options_take(const tide_device_options* options, const char* call,
                                                     tide_device_options* out);

#endif
