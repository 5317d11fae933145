// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
#include "device/tide/growth.h"

#include "device/tide/hurry.h"
#include "device/tide/pace.h"

// Large blocks: what is handed out, the highest that ever was at once, with this request, and what is
// reserved. Parked memory counts as if it were there, because its blocks do.
typedef struct level {
  uint64_t active;
  uint64_t peak;
  uint64_t reserved;
  uint64_t served;  // requests so far
} level;

// Exact for one thread; of others the last few changes may be missing, because asking them all would stop
// them. Small blocks are left out: how they are cached is not to decide where large ones lie.
static level level_with(const tide__request* request) {
  tide_device_cache* const device = request->device;
  const uint64_t more = request->kind == TIDE__LARGE ? request->rounded : 0;
  tide__tcache_settle_own(device);
  tide__mutex_lock(&device->totals_lock);
  const tide_device_stats* const totals = &device->totals;
  const uint64_t active = tide__totals_large(device, 0);
  const uint64_t reserved = (uint64_t)(totals->reserved_bytes[TIDE_STAT_LARGE].current +
                                       totals->parked_bytes[TIDE_STAT_LARGE].current);
  const uint64_t peak = tide__max(device->peak_large, active + more);
  const level now = { active, peak, reserved, device->served[TIDE__LARGE] };
  tide__mutex_unlock(&device->totals_lock);
  return now;
}

void tide__growth_served(const tide__request* request) {
  tide_device_cache* const device = request->device;
  if (request->kind != TIDE__LARGE) return;
  tide__mutex_lock(&device->totals_lock);
  const uint64_t active = tide__totals_large(device, 0) + request->rounded;
  device->peak_large = tide__max(device->peak_large, active);
  tide__mutex_unlock(&device->totals_lock);
}

// In a small program each stream may have a few idle handles, so that streams need not share memory all the
// time. Of many streams most are gone, or do little.
enum { IDLE_LANES_MOST = 16 };

// How much more memory may be made for that; 0 where this is less than the slack.
static uint64_t idle_left(const tide__request* request, const level* now, uint64_t slack) {
  tide_device_cache* const device = request->device;
  tide__mutex_lock(&device->pools_lock);
  const uint64_t lanes = tide__min(request->pool->lane_count, IDLE_LANES_MOST);
  tide__mutex_unlock(&device->pools_lock);
  const uint64_t most = lanes * request->options->tide_idle_handles * tide__request_unit(request);
  return most > slack ? tide__difference(now->active + request->rounded + most, now->reserved) : 0;
}

void tide__growth_choose(const tide__request* request, tide__growth* growth) {
  if (growth->handles.least != 0) return;
  growth->handles = request->kind == TIDE__SMALL ? tide__handles_of(tide__request_unit(request))
                                                 : tide__handle_sizes_for(request, growth->peak);
}

// How much more may be reserved for a request: under the limit of the device, and by the budgets of tags.
uint64_t tide__growth_limit(const tide__request* request) {
  tide_device_cache* const device = request->device;
  const uint64_t limit = tide__load_relaxed(&device->limit);
  const uint64_t left = tide__difference(limit, tide__load_relaxed(&device->reserved_bytes));
  return tide__min(limit == TIDE_NO_LIMIT ? UINT64_MAX : left, tide__budget_room(device, request->pool));
}

// How much may be reserved above the peak, as a fraction of it.
static double slack_of(const tide__request* request) {
  return tide__is_hurried(request) ? request->options->tide_most_slack : request->options->tide_slack;
}

// A handle that is made in a hurry is such a part of what may be reserved above the peak.
enum { HURRY_PARTS = 15 };

// Large handles, unless there is no memory for that.
static void growth_hurry(const tide__request* request, uint64_t slack, tide__growth* growth) {
  const uint64_t unit = tide__request_unit(request);
  tide__growth_choose(request, growth);
  const uint64_t bytes = tide__max(growth->handles.least, slack / HURRY_PARTS / unit * unit);
  if (tide__round_up(request->rounded, bytes) > growth->limit_left) return;
  growth->handles = tide__handles_of(bytes);
  growth->unit = bytes;
}

// Would new memory within the second slack serve the request, so that no stream has to wait?
static bool growth_would_do(const tide__request* request, const level* now) {
  const double slack = slack_of(request) + request->options->tide_wait_slack;
  const uint64_t left = tide__difference(now->peak + (uint64_t)((double)now->peak * slack), now->reserved);
  const uint64_t needed = tide__round_up(request->rounded, tide__request_unit(request));
  return request->options->tide_wait_slack > 0 && needed <= tide__min(left, tide__growth_limit(request));
}

// In a hurry a request also looks for handles that its own stream no longer uses: see recast.c.
static bool marks_poll(const tide__request* request) {
  return tide__is_hurried(request) ? tide__marks_poll(request->device, request->lane)
                                   : tide__marks_poll_others(request->device, request->lane);
}

// Polls marks. May the request's stream wait for those of others, where that helps?
static bool can_wait_for_others(const tide__request* request, const level* now, tide__patience how,
                                bool* out_avoids) {
  const bool can_wait = marks_poll(request) && tide__marks_can_wait(request->device, request->lane);
  *out_avoids = can_wait && how == TIDE__AVOIDS_WAITS && growth_would_do(request, now);
  return can_wait && !*out_avoids;
}

bool tide__growth_can_wait(const tide__request* request, tide__patience how, bool* out_avoids) {
  const level now = level_with(request);
  return can_wait_for_others(request, &now, how, out_avoids);
}

// Notes how fast the peak grows. Where there is a limit, that changes nothing: then memory counts more than
// time.
static tide__pace pace_at(const tide__request* request, const level* now) {
  tide_device_cache* const device = request->device;
  if (request->kind == TIDE__LARGE) tide__pace_note(&device->pace, now->served, now->peak);
  const tide__pace none = { 0 };
  return tide__load_relaxed(&device->limit) == TIDE_NO_LIMIT ? device->pace : none;
}

tide__growth tide__growth_of(const tide__request* request, tide__patience how) {
  tide_device_cache* const device = request->device;
  const level now = level_with(request);
  if (tide__is_hurried(request)) (void)tide__stitch_begin(request);
  const tide__pace pace = pace_at(request, &now);
  const uint64_t slack = tide__max((uint64_t)((double)now.peak * slack_of(request)),
                                   tide__pace_slack(&pace, now.peak, request->options->tide_slack));
  const uint64_t unit = tide__request_unit(request);
  tide__growth growth = {
    .look = ++device->looks,
    .peak = tide__pace_peak(&pace, now.peak),
    .unit = unit,
    .slack_left = tide__difference(now.peak + slack, now.reserved),
    .idle_left = idle_left(request, &now, slack),
    .limit_left = tide__growth_limit(request),
  };
  if (tide__is_hurried(request)) growth_hurry(request, slack, &growth);
  growth.can_wait = can_wait_for_others(request, &now, how, &growth.avoids_waits);
  return growth;
}
