// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The smaller formats: two CSV formats that are read and written, and three formats for viewers that are only
// written. A reader fills an empty trace; a writer leaves the last flush to its caller.
#ifndef TIDEMARK_SRC_FORMAT_OTHERS_H
#define TIDEMARK_SRC_FORMAT_OTHERS_H

#include "format/input.h"
#include "format/output.h"

// Do the first bytes of a file look like the format? They may end within the first line.
bool tide__rmm_is(const void* head, size_t bytes);
bool tide__minimalloc_is(const void* head, size_t bytes);

// Errors: TIDE_ERR_FORMAT with line and offset; TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for numbers that no trace
//         can hold; any error of the input. The trace is then incomplete.
tide_status tide__rmm_read(tide__input* input, tide_trace* trace);
tide_status tide__minimalloc_read(tide__input* input, tide_trace* trace);

// Errors: TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for what the format cannot hold; any error of the output.
tide_status tide__rmm_write(const tide_trace* trace, tide__output* output);
tide_status tide__minimalloc_write(const tide_trace* trace, tide__output* output);
tide_status tide__chrome_write(const tide_trace* trace, tide__output* output);
tide_status tide__folded_write(const tide_trace* trace, tide__output* output);
tide_status tide__pprof_write(const tide_trace* trace, tide__output* output);

#endif
