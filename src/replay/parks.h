// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parking in a run: what it costs if all memory of the program steps aside for a moment.
#ifndef TIDEMARK_SRC_REPLAY_PARKS_H
#define TIDEMARK_SRC_REPLAY_PARKS_H

#include "replay/stage.h"

// Checks the options about parking. Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_UNSUPPORTED.
tide_status tide__parks_check(const tide_replay_options* options, size_t entry_count);

// Sends all requests of the run to one pool with a tag, if there is anything to park.
tide_status tide__parks_begin(tide__stage* stage);

// The step before which parking number `index` happens; SIZE_MAX if there is none.
size_t tide__parks_step(const tide__stage* stage, size_t index);

// Parks and unparks all memory of the run, and fills in the sizes and times.
tide_status tide__parks_run(tide__stage* stage, tide_replay_park* park);

#endif
