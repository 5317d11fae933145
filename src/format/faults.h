// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Records that files cannot hold; the rules are in format.h.
#ifndef TIDEMARK_SRC_FORMAT_FAULTS_H
#define TIDEMARK_SRC_FORMAT_FAULTS_H

#include "tidemark/format.h"

// Why a file cannot hold a record, as a sentence about "it"; NULL if it can. The text is static.
const char* tide__entry_fault(const tide_trace* trace, const tide_trace_entry* entry);
const char* tide__segment_fault(const tide_trace_segment* segment);
const char* tide__block_fault(const tide_trace_block* block);

#endif
