// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `tide` reserves little more memory than the program holds. Most requests are served by best fit,
// by (size, address), in the home of their stream. If nothing fits there, the policy tries in turn:
//
//   1. a view that was stitched before,
//   2. new memory, as long as all large blocks stay within tide_slack (half a percent) above the highest sum
//      that was ever handed out at once, or within more while this grows steadily: see pace.h,
//   3. a new view, stitched from idle memory of any stream.
//
// A stream does not wait for work of another that has not passed, as long as new memory within
// tide_wait_slack above that would do instead.
//
// A program whose sizes never repeat would make views all the time. Its slack becomes wider: see hurry.c.
//
// Apart from tide_stitch_share, no decision depends on the clock. So the memory of a program that repeats
// itself stops growing.
//
// Small requests have homes of their own, which grow without these limits. So do private pools and captures,
// because the memory that a graph was captured with must stay where it is.
#include "device/segment/virtual.h"
#include "device/tide/giving.h"
#include "device/tide/growth.h"
#include "device/tide/hurry.h"
#include "device/tide/lasting.h"
#include "device/tide/parking.h"
#include "device/tide/tide.h"

#define SMALL_MOST_BYTES ((uint64_t)512 << 10)

// ---------------------------------------------------------------------------------------------------
// Sizes

// Small blocks come in classes, which no option changes.
static uint64_t tide_round(const tide_device_options* options, uint64_t bytes) {
  return bytes > SMALL_MOST_BYTES ? tide__round_divided(options, bytes) : tide__round_up(bytes, TIDE__GRAIN);
}

static uint64_t tide_segment_bytes(const tide_device_options* options, uint64_t rounded) {
  return tide__round_up(rounded, options->tide_least_handle_bytes);
}

static bool tide_splits(const tide__request* request, const tide__block* block) {
  return block->bytes - request->rounded >= TIDE__GRAIN;
}

// ---------------------------------------------------------------------------------------------------
// Idle memory at home

static bool tide_is_ready_locked(const tide__request* request, const tide__block* block) {
  return tide__home_is_ready_locked(block, request->rounded);
}

// Is at least half of the most that was ever handed out in use? If so when blocks that last are requested,
// they are most of the memory. Exact for one thread, as in growth.c: reading statistics, which adds the tally
// to the totals, must not decide where a block lies.
static bool half_is_in_use(tide_device_cache* device, const tide__tally* tally) {
  const tide__count* const own = &tally->items[TIDE__TALLY_BYTES].sides[TIDE__LARGE];
  tide__mutex_lock(&device->totals_lock);
  const uint64_t peak = tide__max(device->peak_large, tide__totals_large(device, own->high));
  const bool is_half = tide__totals_large(device, own->sum) >= peak / 2;
  tide__mutex_unlock(&device->totals_lock);
  return is_half;
}

// The end of a hole, if the block behind it may last; or else the hole.
static tide__block* end_of_hole_locked(const tide__request* request, tide__sizes* sizes, tide__block* hole) {
  const tide__block* const behind = hole->next;
  if (hole->bytes == request->rounded || behind == NULL || behind->state != TIDE__BLOCK_ALLOCATED)
    return hole;
  if (!tide__size_lasts(sizes, tide__size_place(sizes, behind->bytes))) return hole;
  if (!tide__home_is_ready_locked(hole, hole->bytes)) return hole;
  tide__block* const end = tide__block_take_from_locked(hole, tide__block_end(hole) - request->rounded);
  tide__free_index_put_locked(end, true);
  return end;
}

// Blocks that last are put side by side, if they are most of the memory. Otherwise each would leave a rest
// that splits a handle for long. If all of their size last, they go into the largest hole; if some do, into
// the tightest, beside a block that lasts.
static tide__block* hole_choose_locked(const tide__request* request, const tide__tally* tally) {
  const tide__bins* const bins = &request->lane->free_index[request->kind].bins;
  tide__block* const tightest = tide__bins_peek(bins, request->rounded);
  tide__sizes* const sizes = request->kind == TIDE__LARGE ? tide__sizes_of_locked(request->lane) : NULL;
  if (tightest == NULL || sizes == NULL) return tightest;
  const tide__size* const size = tide__size_place(sizes, request->rounded);
  if (!tide__size_lasts(sizes, size) || !half_is_in_use(request->device, tally)) return tightest;
  if (size->was_released) return end_of_hole_locked(request, sizes, tightest);
  tide__block* const largest = tide__bins_largest(bins);
  return tide_is_ready_locked(request, largest) ? largest : tightest;
}

// In a capture no other stream may be waited for.
static tide__block* tide_choose_locked(const tide__request* request, const tide__tally* tally) {
  tide__block* const block = hole_choose_locked(request, tally);
  if (block != NULL && request->is_capturing && !tide_is_ready_locked(request, block)) return NULL;
  return block;
}

// Cuts off what a BUSY block has too much.
static tide_status block_fit(const tide__request* request, tide__block** inout) {
  tide__lane* const lane = (*inout)->segment->lane;
  if (!tide__lane_lock_with_spares(request->device, lane)) return TIDE_ERR_NO_MEMORY;
  if ((*inout)->bytes > request->rounded) {
    tide__block* const front = tide__block_cut_front_locked(lane, *inout, request->rounded);
    tide__block_return_locked(*inout, true);
    *inout = front;
  }
  tide__mutex_unlock(&lane->lock);
  return TIDE_OK;
}

// On failure, and if another stream cannot be waited for, the block is idle again and NULL.
static tide_status prepare_at_gate(tide__request* request, tide__patience how, tide__block** inout) {
  bool is_ready = false;
  bool avoids = false;
  if ((*inout)->segment->home == NULL) return TIDE_OK;
  const bool can_wait = tide__growth_can_wait(request, how, &avoids);
  tide_status status = tide__pool_open(request);
  if (status == TIDE_OK) status = block_fit(request, inout);
  if (status == TIDE_OK) status = tide__home_prepare(request->device, *inout, can_wait, &is_ready);
  if (status == TIDE_OK && is_ready) return TIDE_OK;
  tide__lane* const lane = (*inout)->segment->lane;
  tide__mutex_lock(&lane->lock);
  tide__block_return_locked(*inout, true);
  tide__mutex_unlock(&lane->lock);
  *inout = NULL;
  return status;
}

static tide_status or_none(tide_status status) { return status == TIDE_ERR_NO_MEMORY ? TIDE_OK : status; }

// Where there is no memory to bring a parked pool back with the block, the ladder may find some without it.
static tide_status tide_prepare(tide__request* request, tide__block** inout) {
  (void)tide__gate_enter(request->device);
  const tide_status status = prepare_at_gate(request, TIDE__AVOIDS_WAITS, inout);
  if (*inout != NULL) tide__growth_served(request);
  tide__gate_leave(request->device);
  return or_none(status);
}

// ---------------------------------------------------------------------------------------------------
// The ladder

static tide_status search_with(tide__request* request, tide__patience how, tide__block** out) {
  TIDE_TRY(tide__request_choose(request, out));
  return *out != NULL ? prepare_at_gate(request, how, out) : TIDE_OK;
}

static tide_status tide_search(tide__request* request, tide__block** out) {
  return search_with(request, TIDE__AVOIDS_WAITS, out);
}

// Empties the thread caches, and cuts off what blocks have beyond their requests.
static tide_status rung_squeeze(tide__request* request, tide__block** out) {
  if (!tide__tcache_serve(request)) return TIDE_OK;
  tide__tcache_squeeze(request->device, request->lane);
  return tide_search(request, out);
}

// Returns the blocks of thread caches to the lane, unless that was done recently: then making memory is
// cheaper.
enum { FLUSH_PAUSE = 4096 };  // small requests

static tide_status flush_if_due(tide__request* request, tide__block** out) {
  tide_device_cache* const device = request->device;
  if (!tide__tcache_serve(request)) return TIDE_OK;
  tide__tcache_settle_own(device);
  tide__mutex_lock(&device->totals_lock);
  const uint64_t served = device->served[TIDE__SMALL];
  tide__mutex_unlock(&device->totals_lock);
  if (device->flushed_at != 0 && served - device->flushed_at < FLUSH_PAUSE) return TIDE_OK;
  if (!tide__tcache_flush_lane(device, request->lane)) return TIDE_OK;
  device->flushed_at = served + 1;
  return tide_search(request, out);
}

// Makes memory at home, ready to be handed out. Whenever memory was given back, the gate may have been left,
// and other threads may have used up what the limit allows.
static tide_status grow(tide__request* request, tide__growth* growth, uint64_t most, tide__block** out) {
  TIDE_TRY(tide__pool_open(request));
  tide__growth_choose(request, growth);
  TIDE_TRY(or_none(tide__home_grow(request, growth, tide__min(most, tide__growth_limit(request)), out)));
  return *out != NULL ? prepare_at_gate(request, growth->can_wait ? TIDE__WAITS : TIDE__AVOIDS_WAITS, out)
                      : TIDE_OK;
}

// Makes memory in large handles, in the place of small ones that are idle.
static tide_status recast(tide__request* request, tide__growth* growth, tide__block** out) {
  const uint64_t most = tide__min(growth->slack_left, growth->limit_left);
  const uint64_t missing = tide__difference(tide__round_up(request->rounded, growth->unit), most);
  if (missing == 0 || !tide__recast(request, growth->unit, missing)) return TIDE_OK;
  return grow(request, growth, most + missing, out);
}

static tide_status stitch(tide__request* request, tide__growth* growth, tide__block** out) {
  if (tide__is_hurried(request)) TIDE_TRY(recast(request, growth, out));
  if (*out != NULL) return TIDE_OK;
  growth->limit_left = tide__growth_limit(request);
  tide__growth_choose(request, growth);
  TIDE_TRY(tide__view_make(request, growth, out));
  return *out != NULL ? prepare_at_gate(request, growth->can_wait ? TIDE__WAITS : TIDE__AVOIDS_WAITS, out)
                      : TIDE_OK;
}

// Stitches, if there is time for it; else makes memory as far as the limit allows.
static tide_status rung_stitch(tide__request* request, tide__growth* growth, tide__block** out) {
  const uint64_t begin_ns = tide__stitch_begin(request);
  if (tide__is_hurried(request) && request->device->hurry_ns_left <= 0) {
    TIDE_TRY(grow(request, growth, growth->limit_left, out));
    if (*out != NULL) return TIDE_OK;
  }
  const tide_status status = stitch(request, growth, out);
  tide__stitch_end(request, begin_ns);
  return status;
}

// May idle memory of other pools be given back, so that a private pool can grow? Not while a stream is
// captured. The scope of a capture accepts only streams of the capture.
static bool may_make_way(const tide__request* request) {
  tide_device_cache* const device = request->device;
  return request->kind == TIDE__LARGE && request->pool != &device->default_pool &&
         !tide__capture_has(device->machine, device->index, request->stream) &&
         !tide__pools_is_captured_elsewhere(&device->pools, &request->pool->base);
}

// A private pool cannot use what is idle elsewhere. So as much of that goes as the pool needs beyond the
// slack, as long as there is time for it, as for views.
static void make_way(const tide__request* request, const tide__growth* growth) {
  const uint64_t missing = tide__home_missing(request, growth);
  const uint64_t left = tide__max(growth->slack_left, growth->idle_left);
  if (missing <= left || missing > growth->limit_left || !may_make_way(request)) return;
  const tide_error before = *tide_last_error();
  const uint64_t begin_ns = tide__stitch_begin(request);
  if (begin_ns != 0 && request->device->stitch_ns_left <= 0) return;
  tide_status status = tide__reclaim_homes(request->device, missing - left, &request->context);
  if (status != TIDE_OK) tide__error_restore(&before);
  tide__stitch_end(request, begin_ns);
}

// In a private pool, and in a capture.
static tide_status make_in_place(tide__request* request, tide__growth* growth, tide__block** out) {
  make_way(request, growth);
  return grow(request, growth, growth->limit_left, out);
}

// Makes memory, or stitches what is idle; where that must not be, only makes memory.
static tide_status make(tide__request* request, tide__growth* growth, tide__block** out) {
  if (!tide__may_stitch(request)) return make_in_place(request, growth, out);
  if (growth->idle_left != 0)
    TIDE_TRY(grow(request, growth, tide__min(growth->idle_left, growth->limit_left), out));
  if (*out != NULL) return TIDE_OK;
  TIDE_TRY(tide__view_use(request, growth, out));
  if (*out != NULL) return TIDE_OK;
  TIDE_TRY(grow(request, growth, tide__min(growth->slack_left, growth->limit_left), out));
  return *out != NULL ? TIDE_OK : or_none(rung_stitch(request, growth, out));
}

static uint64_t reserved_large(tide_device_cache* device) {
  tide__mutex_lock(&device->totals_lock);
  const uint64_t reserved = (uint64_t)device->totals.reserved_bytes[TIDE_STAT_LARGE].current;
  tide__mutex_unlock(&device->totals_lock);
  return reserved;
}

// The same while other streams have work under way: without a wait, if new memory can be had; or else with
// one, beginning with what is idle at home.
static tide_status make_or_wait(tide__request* request, tide__growth* growth, tide__block** out) {
  tide_device_cache* const device = request->device;
  const uint64_t before = reserved_large(device);
  TIDE_TRY(make(request, growth, out));
  if (*out != NULL) {
    if (reserved_large(device) > before + growth->slack_left) TIDE__COUNT(device, num_waits_avoided);
    return TIDE_OK;
  }
  TIDE_TRY(search_with(request, TIDE__WAITS, out));
  if (*out != NULL) return TIDE_OK;
  tide__growth patient = tide__growth_of(request, TIDE__WAITS);
  return make(request, &patient, out);
}

static tide_status rung_make(tide__request* request, tide__block** out) {
  if (request->rounded > request->device->total_bytes) return TIDE_OK;
  tide__growth growth = tide__growth_of(request, TIDE__AVOIDS_WAITS);
  tide__stuck_retry(request->device);
  return growth.avoids_waits ? make_or_wait(request, &growth, out) : make(request, &growth, out);
}

static tide_status rung_wait(tide__request* request, tide__block** out) {
  bool has_waited = !request->is_capturing;
  while (has_waited && *out == NULL) {
    TIDE_TRY(tide__timeline_wait_one(request->device, request->lane, &request->context, &has_waited));
    if (has_waited) TIDE_TRY(tide_search(request, out));
    if (has_waited && *out == NULL) TIDE_TRY(rung_make(request, out));
  }
  return TIDE_OK;
}

// Waits for all work, which may be enough.
static tide_status wait_for_all(tide__request* request, tide__block** out) {
  TIDE_TRY(tide__timeline_wait(request->device, NULL, &request->context));
  tide__ignore(tide__external_synchronize(request->device));
  TIDE_TRY(tide_search(request, out));
  return *out != NULL ? TIDE_OK : rung_make(request, out);
}

static tide_status rung_give_back(tide__request* request, tide__block** out) {
  if (request->is_capturing) return TIDE_OK;
  TIDE_TRY(wait_for_all(request, out));
  if (*out != NULL) return TIDE_OK;
  TIDE_TRY(tide__reclaim_all(request->device, &request->context));
  TIDE__COUNT(request->device, num_alloc_retries);
  return rung_make(request, out);
}

// ---------------------------------------------------------------------------------------------------
// Giving way by budgets

static tide__giving giving_for(const tide__request* request, tide__want* want) {
  *want = (tide__want){ request->pool, tide__round_up(request->rounded, tide__request_unit(request)) };
  return (tide__giving){ .device = request->device,
                         .wants = want,
                         .want_count = 1,
                         .refused_bytes = want->bytes,
                         .context = &request->context };
}

static tide_status give_idle(tide__request* request, tide__giver giver, tide__block** out) {
  tide__want want;
  const tide__giving giving = giving_for(request, &want);
  if (request->is_capturing) return TIDE_OK;
  TIDE_TRY(tide__give_idle(&giving, giver));
  TIDE_TRY(tide_search(request, out));
  return *out != NULL ? TIDE_OK : rung_make(request, out);
}

static tide_status rung_own_idle(tide__request* request, tide__block** out) {
  return give_idle(request, TIDE__GIVES_OWN, out);
}

static tide_status rung_excess_idle(tide__request* request, tide__block** out) {
  return give_idle(request, TIDE__GIVES_EXCESS, out);
}

// If no tag is in the way, everything that is idle goes at last.
static tide_status rung_all_idle(tide__request* request, tide__block** out) {
  tide__want want;
  const tide__giving giving = giving_for(request, &want);
  if (request->is_capturing) return TIDE_OK;
  TIDE_TRY(wait_for_all(request, out));
  if (*out == NULL) TIDE_TRY(give_idle(request, TIDE__GIVES_ALL, out));
  if (*out != NULL || tide__giving_lack(&giving).tag != NULL) return TIDE_OK;
  return rung_give_back(request, out);
}

static tide_status rung_park(tide__request* request, tide__block** out) {
  tide__want want;
  uint64_t turn = 0;
  const tide__giving giving = giving_for(request, &want);
  if (request->is_capturing) return TIDE_OK;
  while (*out == NULL && tide__give_next(&giving, &turn)) TIDE_TRY(rung_make(request, out));
  return TIDE_OK;
}

static tide_status rungs_climb(tide__request* request, tide__block** out) {
  static const tide__rung plain[] = {
    { "what threads have at hand", rung_squeeze },
    { "other pools", tide__rung_borrow },
    { "work of its stream", rung_wait },
    { "all work and all idle memory", rung_give_back },
  };
  static const tide__rung budgeted[] = {
    { "what threads have at hand", rung_squeeze },
    { "other pools", tide__rung_borrow },
    { "work of its stream", rung_wait },
    { "idle memory of its tag", rung_own_idle },
    { "idle memory above soft limits", rung_excess_idle },
    { "all work and all idle memory", rung_all_idle },
    { "tags that yield", rung_park },
  };
  return tide__budgets_exist(request->device)
             ? tide__oom_climb(budgeted, sizeof budgeted / sizeof budgeted[0], request, out)
             : tide__oom_climb(plain, sizeof plain / sizeof plain[0], request, out);
}

static tide_status tide_climb(tide__request* request, tide__block** out) {
  (void)tide__gate_enter(request->device);
  const tide__pace pace = request->device->pace;
  tide__oom_begin();
  tide_status status = tide__pool_open(request);
  if (status == TIDE_OK) status = tide_search(request, out);
  if (status == TIDE_OK && *out == NULL) status = flush_if_due(request, out);
  if (status == TIDE_OK && *out == NULL) status = rung_make(request, out);
  if (status == TIDE_OK && *out == NULL) status = rungs_climb(request, out);
  if (status == TIDE_ERR_NO_MEMORY) tide__oom_note_budgets(request);
  if (*out != NULL) tide__growth_served(request);
  else request->device->pace = pace;
  tide__gate_leave(request->device);
  return status;
}

static tide_status tide_recover(tide__request* request, tide__block** out) {
  (void)tide__observers_reclaim(request->device);  // what it released is found by the search at the gate
  tide_error before;
  tide__error_keep(&before);
  tide_status status = tide_climb(request, out);
  if (status == TIDE_ERR_NO_MEMORY && !request->is_capturing)
    status = tide__oom_press(request, tide_climb, out);
  const bool is_plain = tide__request_falls_back(request, status);
  if (is_plain) status = request->policy->recover(request, out);
  if (status == TIDE_OK) tide__error_restore(&before);
  if (is_plain) return status;
  return status == TIDE_ERR_NO_MEMORY ? tide__oom_report(request) : status;
}

// ---------------------------------------------------------------------------------------------------
// Giving back

// Returns the blocks of thread caches to their lanes, and unmaps views that no block is in.
static tide_status tide_let_go(tide_device_cache* device, tide__pool* pool) {
  if (pool == &device->default_pool) {
    tide__tcache_flush(device);
    TIDE_TRY(tide__external_synchronize(device));
  }
  return tide__views_trim(device, pool);
}

const tide__policy tide__policy_tide = {
  .name = "tide",
  .small_bytes = SMALL_MOST_BYTES,
  .round = tide_round,
  .segment_bytes = tide_segment_bytes,
  .choose_locked = tide_choose_locked,
  .splits = tide_splits,
  .is_ready_locked = tide_is_ready_locked,
  .prepare = tide_prepare,
  .recover = tide_recover,
  .let_go = tide_let_go,
  .tidy = tide__parking_tidy,
  .reserve = tide__home_reserve,
  .gives_when_unused = true,
  .settle = tide__tcache_settle,
};
