// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
#include "device/tide/pace.h"

#include "base/arith.h"

// Growth is measured over windows of so many large requests: about two layers of a transformer.
enum { WINDOW = 48 };
// Where the slack is a part of the peak, so many times this part of steady growth may be reserved above the
// peak, but at most so many times the slack.
enum { STEADY_SLACKS = 30, PEAK_SLACKS = 10 };
// Such a part of the last window is expected to follow at least.
#define EXPECTED_PART 0.5

// Of the growth in two windows, the smaller one is steady. Where growth slows down, it may end soon: then
// only that part of it counts to which it fell.
static uint64_t steady_growth(uint64_t before, uint64_t last) {
  return last < before ? (uint64_t)((double)last * (double)last / (double)before) : before;
}

// A window may be longer, because only growth is noted: then its growth counts in proportion.
void tide__pace_note(tide__pace* pace, uint64_t served, uint64_t peak) {
  const uint64_t requests = served - pace->served;
  if (requests < WINDOW) return;
  const double rise = peak > pace->peak ? (double)(peak - pace->peak) : 0;  // a trim lowers the peak
  const uint64_t growth = (uint64_t)(rise * WINDOW / (double)requests);
  *pace = (tide__pace){ served, peak, growth, steady_growth(pace->last, growth) };
}

uint64_t tide__pace_slack(const tide__pace* pace, uint64_t peak, double slack) {
  return tide__min((uint64_t)(STEADY_SLACKS * slack * (double)pace->steady),
                   (uint64_t)(PEAK_SLACKS * slack * (double)peak));
}

uint64_t tide__pace_peak(const tide__pace* pace, uint64_t peak) {
  return peak + (uint64_t)(EXPECTED_PART * (double)pace->last);
}
