// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tags of a snapshot, as plain data of the trace.
#ifndef TIDEMARK_SRC_TRACE_TAGS_H
#define TIDEMARK_SRC_TRACE_TAGS_H

#include "tidemark/trace.h"

// Adds tags behind those that the trace has; tide_trace_get_tag() reads them.
// Errors: TIDE_ERR_NO_MEMORY, and then the trace has those that it had.
tide_status tide__trace_add_tags(tide_trace* trace, const tide_heap* heap, const tide_trace_tag* tags,
                                 size_t count);

#endif
