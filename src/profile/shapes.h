// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The plan of a shape, and when to record it again.
#ifndef TIDEMARK_SRC_PROFILE_SHAPES_H
#define TIDEMARK_SRC_PROFILE_SHAPES_H

#include "tidemark/profile.h"

// Decides the mode of a run, and takes a reference to its plan (NULL when it records).
// Errors: TIDE_ERR_HANDLE if the mode needs a plan and there is none.
tide_status tide__shapes_choose(tide_profile* profile, uint64_t shape, tide_profile_mode mode,
                                tide_profile_mode* out_mode, tide_profile_plan** out_plan);
// Keeps a reference to a plan for a shape. It replaces an earlier plan of the shape, or the least recently
// used shape.
void tide__shapes_set(tide_profile* profile, uint64_t shape, tide_profile_plan* plan);
// Records the end of a replayed run, and whether it deviated.
void tide__shapes_note(tide_profile* profile, uint64_t shape, const tide_profile_plan* plan, bool is_off);

#endif
