// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A program whose sizes never repeat makes views all the time. When that has taken its share of the time, the
// policy is in a hurry: it may reserve tide_most_slack above the peak, and makes large handles, so that views
// have few. It gives small handles back for them. The hurry ends when the share of a whole window is left.
//
// What private pools spend on idle memory that makes way for them counts as well.
#include "device/tide/hurry.h"

#define STITCH_WINDOW_NS 20e9
// If views take this share of the time even so, in such bursts, new memory is made without that bound.
#define HURRY_SHARE 0.5
#define HURRY_BURST_NS 2e9

static bool can_hurry(const tide_device_options* options) {
  return options->tide_stitch_share < 1 && options->tide_most_slack > options->tide_slack;
}

bool tide__is_hurried(const tide__request* request) {
  return tide__may_stitch(request) && request->device->is_hurried && can_hurry(request->options);
}

// The machine's time, or 0: is making views bounded at all?
static uint64_t stitch_clock(const tide__request* request) {
  uint64_t now_ns = 0;
  if (request->options->tide_stitch_share >= 1) return 0;
  const tide_error before = *tide_last_error();
  if (tide_machine_clock(request->device->machine, &now_ns) != TIDE_OK) tide__error_restore(&before);
  return now_ns;
}

// What is left of a share of the time is at most `most`, and at least as much below 0.
static double time_within(double left, double most) {
  return left > most ? most : left < -most ? -most : left;
}

static void statistics_count(tide_device_cache* device, double spent_ns, bool is_new_hurry) {
  if (spent_ns <= 0 && !is_new_hurry) return;
  tide__mutex_lock(&device->totals_lock);
  device->totals.stitch_ns += (int64_t)spent_ns;
  device->totals.num_hurries += is_new_hurry;
  tide__mutex_unlock(&device->totals_lock);
}

// Counts time that has passed, and time that views took.
static void stitch_time_count(const tide__request* request, double passed_ns, double spent_ns) {
  tide_device_cache* const device = request->device;
  const bool was_hurried = device->is_hurried;
  const double share = request->options->tide_stitch_share;
  const double burst = share * STITCH_WINDOW_NS;
  device->stitch_ns_left = time_within(device->stitch_ns_left + share * passed_ns - spent_ns, burst);
  device->hurry_ns_left =
      time_within(device->hurry_ns_left + HURRY_SHARE * passed_ns - spent_ns, HURRY_BURST_NS);
  const bool is_calm = device->stitch_ns_left >= burst;
  const bool is_late = device->stitch_ns_left <= 0 || (device->is_hurried && !is_calm);
  device->is_hurried = is_late && can_hurry(request->options);
  statistics_count(device, spent_ns, device->is_hurried && !was_hurried);
}

static double elapsed_ns(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? (double)(to_ns - from_ns) : 0;
}

uint64_t tide__stitch_begin(const tide__request* request) {
  tide_device_cache* const device = request->device;
  const uint64_t now_ns = stitch_clock(request);
  if (now_ns == 0) return 0;
  const bool is_first = device->stitch_clock_ns == 0;
  const double passed_ns = is_first ? STITCH_WINDOW_NS : elapsed_ns(device->stitch_clock_ns, now_ns);
  device->stitch_clock_ns = now_ns;
  stitch_time_count(request, passed_ns, 0);
  return now_ns;
}

void tide__stitch_end(const tide__request* request, uint64_t begin_ns) {
  if (begin_ns != 0) stitch_time_count(request, 0, elapsed_ns(begin_ns, stitch_clock(request)));
}
