// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A run under budgets: requests go to pools of tags, and tags that yield may be away between their uses.
#ifndef TIDEMARK_SRC_REPLAY_BUDGETS_H
#define TIDEMARK_SRC_REPLAY_BUDGETS_H

#include "replay/stage.h"

// Checks the options about budgets. Errors: TIDE_ERR_ARGUMENT.
tide_status tide__budgets_check(const tide_replay_options* options, size_t entry_count);

// Makes the pools and budgets of a run, if it has tags; `stage->budgets` is set then. End frees them.
tide_status tide__budgets_begin(tide__stage* stage);
void tide__budgets_end(tide__stage* stage);

// Runs one step, as the functions of stage.h do.
tide_status tide__budgets_step(tide__stage* stage, const tide__step* step);

// The step before which use number `index` happens; SIZE_MAX if there is none. And that use.
size_t tide__budgets_use_step(const tide__stage* stage, size_t index);
tide_status tide__budgets_use(tide__stage* stage, size_t index);

// Fills in the results of the tags, and of the run about them.
tide_status tide__budgets_finish(tide__stage* stage, tide_replay_result* result);

#endif
