// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How fast the peak of large blocks grows. While it grows steadily, as from layer to layer in the first step
// of training, what is idle now is needed soon: a view would save memory for a moment only. So more may be
// reserved above the peak, and handles are as large as the peak to come allows. The caller has the gate.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_PACE_H
#define TIDEMARK_SRC_DEVICE_TIDE_PACE_H

#include "device/allocator.h"

// The peak is so much after so many large requests.
void tide__pace_note(tide__pace* pace, uint64_t served, uint64_t peak);
// How much may be reserved above the peak for steady growth, where it is such a part of the peak without.
uint64_t tide__pace_slack(const tide__pace* pace, uint64_t peak, double slack);
// The peak that is expected soon.
uint64_t tide__pace_peak(const tide__pace* pace, uint64_t peak);

#endif
