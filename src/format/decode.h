// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The two encodings of a memory snapshot, both ways.
#ifndef TIDEMARK_SRC_FORMAT_DECODE_H
#define TIDEMARK_SRC_FORMAT_DECODE_H

#include "format/input.h"
#include "format/output.h"

// Does a file that begins with these bytes look like one?
bool tide__pickle_is(const void* head, size_t bytes);
bool tide__json_is(const void* head, size_t bytes);

// Fill an empty trace.
tide_status tide__pickle_read(tide__input* input, tide_trace* trace);
tide_status tide__json_read(tide__input* input, tide_trace* trace);

tide_status tide__pickle_write(const tide_trace* trace, tide__output* output);
tide_status tide__json_write(const tide_trace* trace, tide__output* output);

#endif
