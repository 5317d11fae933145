// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Compares what a cache holds at the end with the segments and blocks of the recording.
#ifndef TIDEMARK_SRC_REPLAY_REMAINS_H
#define TIDEMARK_SRC_REPLAY_REMAINS_H

#include "replay/stage.h"

// Writes the first difference to `text`; the empty text if there is none. Keys that the recording lacks are
// not compared; with `is_vague`, neither are the requested sizes of inactive blocks.
tide_status tide__remains_compare(tide__stage* stage, bool is_vague, char* text, size_t text_bytes);

#endif
