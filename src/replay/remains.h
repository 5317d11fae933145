// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Compares what an allocator holds at the end with the segments and blocks of the recording.
#ifndef TIDEMARK_SRC_REPLAY_REMAINS_H
#define TIDEMARK_SRC_REPLAY_REMAINS_H

#include "replay/stage.h"

// Writes the first difference to `text`, and nothing if there is none. What the recording lacks is not
// compared; `is_vague`: nor are the sizes that idle blocks were last requested with.
tide_status tide__remains_compare(tide__stage* stage, bool is_vague, char* text, size_t text_bytes);

#endif
