// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The limit on reserved memory under which a recorded run may have run. It is not recorded, but shows in what
// the run reserved, freed and was refused.
#ifndef TIDEMARK_SRC_REPLAY_LIMIT_H
#define TIDEMARK_SRC_REPLAY_LIMIT_H

#include "replay/steps.h"
#include "tidemark/device.h"

#define TIDE__LIMIT_GUESSES 8u

typedef struct tide__limit_guesses {
  uint64_t low;  // the run had at least this much
  size_t count;
  uint64_t limits[TIDE__LIMIT_GUESSES];  // to be tried in this order; the last is TIDE_NO_LIMIT
} tide__limit_guesses;

// The limits that are worth trying. Without a retry, a collection or a refusal it is only TIDE_NO_LIMIT.
tide__limit_guesses tide__limit_guess(const tide__script* script, const tide_device_options* options);

// The most bytes of the segment that PyTorch needs for a request, and compares with the limit.
uint64_t tide__limit_segment_most(const tide_device_options* options, const tide__step* request);

#endif
