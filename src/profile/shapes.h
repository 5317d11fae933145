// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which plan a shape has, and when it is worn out.
#ifndef TIDEMARK_SRC_PROFILE_SHAPES_H
#define TIDEMARK_SRC_PROFILE_SHAPES_H

#include "tidemark/profile.h"

// How a run of a shape begins in a mode, and with a share in which plan (NULL when it records).
// Errors: TIDE_ERR_HANDLE if there is none where there must be one.
tide_status tide__shapes_choose(tide_profile* profile, uint64_t shape, tide_profile_mode mode,
                                tide_profile_mode* out_mode, tide_profile_plan** out_plan);
// Keeps a share in a plan for a shape, in place of an earlier one or of the shape that was not used for
// longest.
void tide__shapes_set(tide_profile* profile, uint64_t shape, tide_profile_plan* plan);
// A replayed run has ended: did it deviate from the plan?
void tide__shapes_note(tide_profile* profile, uint64_t shape, const tide_profile_plan* plan, bool is_off);

#endif
