// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory that is older than the recording: the segments and blocks that existed before its first entry.
#ifndef TIDEMARK_SRC_REPLAY_OLD_H
#define TIDEMARK_SRC_REPLAY_OLD_H

#include "replay/ranges.h"
#include "replay/steps.h"
#include "tidemark/ledger.h"

// Add a segment with the trace's number of its pool, and a live block of the last segment.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__old_segment_add(tide__script* script, const tide_ledger_segment* segment, uint16_t pool);
tide_status tide__old_block_add(tide__script* script, const tide_ledger_block* block);

// Finds where reserves begin, and adds the ranges of all old segments. The device has at least
// `device_bytes`.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__old_ranges_add(tide__script* script, tide__ranges* ranges, uint64_t device_bytes);

#endif
