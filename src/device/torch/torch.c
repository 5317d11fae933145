// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `torch`: the decisions of PyTorch 2.11's native allocator. Best fit by (size, address) among the
// idle blocks of the request's pool, stream and size class; then the ladder: callbacks, collection by age,
// growth, idle memory of pools that allow it, targeted release, and at last waiting for everything and giving
// everything back. With the option `fixes`, the free index is searched again after every rung that may have
// filled it, announced work is waited for one by one, and collection looks at all pools.
#include "device/torch/torch.h"

// ---------------------------------------------------------------------------------------------------
// Sizes

static uint64_t torch_segment_bytes(const tide_device_options* options, uint64_t rounded) {
  if (rounded <= TIDE__SMALL_BYTES) return TIDE__SMALL_SEGMENT_BYTES;
  if (rounded < TIDE__OWN_SEGMENT_BYTES) return options->large_segment_bytes;
  return tide__round_up(rounded, TIDE__SEGMENT_STEP);
}

static bool uses_expandable(const tide__request* request) {
  return request->options->expandable_segments && !request->pool->is_raw;
}

static bool torch_splits(const tide__request* request, const tide__block* block) {
  const uint64_t rest = block->bytes - request->rounded;
  if (tide__load_relaxed(&block->segment->lane->pool->no_split)) return false;
  if (request->kind == TIDE__SMALL || uses_expandable(request)) return rest >= TIDE__GRAIN;
  return request->rounded < request->options->max_split_bytes && rest > TIDE__SMALL_BYTES;
}

// ---------------------------------------------------------------------------------------------------
// Search

static bool collects(const tide__request* request) {
  return request->options->collect_threshold > 0 &&
         tide__load_relaxed(&request->device->limit) != TIDE_NO_LIMIT;
}

// How large a block could become by growing into the addresses behind it.
static uint64_t growable_bytes(const tide__block* block) {
  const bool grows = block->segment->is_expandable && block->next != NULL &&
                     block->next->state == TIDE__BLOCK_UNMAPPED;
  return block->bytes + (grows ? block->next->bytes : 0);
}

// Walks the idle blocks of at least `bytes` in order, taking them out, as long as `passes` wants to go on
// from one to the next; puts back what was passed and returns where the walk ended, or NULL behind the last.
typedef bool (*pass_fn)(const tide__block* block, const tide__block* next);

static tide__block* free_index_walk_locked(tide__bins* bins, uint64_t bytes, pass_fn passes) {
  tide__block* passed = NULL;
  tide__block* block = tide__bins_peek(bins, bytes);
  while (block != NULL) {
    tide__bins_take(bins, block);
    tide__block* const next = tide__bins_peek(bins, bytes);
    if (!passes(block, next)) break;
    block->list_next = passed;
    passed = block;
    block = next;
  }
  while (passed != NULL) {
    tide__block* const next = passed->list_next;
    tide__bins_put(bins, passed);
    passed = next;
  }
  if (block != NULL) tide__bins_put(bins, block);
  return block;
}

static bool passes_growable(const tide__block* block, const tide__block* next) {
  return block->segment->is_expandable && next != NULL && growable_bytes(next) < growable_bytes(block);
}

static bool passes_expandable(const tide__block* block, const tide__block* next) {
  (void)next;
  return block->segment->is_expandable;
}

static tide__block* best_fit_locked(const tide__request* request, tide__bins* bins) {
  tide__block* const first = tide__bins_peek(bins, request->rounded);
  if (first == NULL || !first->segment->is_expandable) return first;
  if (!uses_expandable(request)) return free_index_walk_locked(bins, request->rounded, passes_expandable);
  if (growable_bytes(first) == first->bytes) return first;  // no later one can be smaller
  return free_index_walk_locked(bins, request->rounded, passes_growable);
}

static bool is_oversize_refused(const tide__request* request, const tide__block* block) {
  const uint64_t max_split = request->options->max_split_bytes;
  const uint64_t excess = request->options->non_split_excess_bytes != 0
                              ? request->options->non_split_excess_bytes
                              : request->options->large_segment_bytes;
  if (request->rounded < max_split) return block->bytes >= max_split && max_split != TIDE_NO_LIMIT;
  return block->bytes - request->rounded >= excess;
}

static tide__block* torch_choose_locked(const tide__request* request, const tide__tally* tally) {
  (void)tally;
  tide__free_index* const index = &request->lane->free_index[request->kind];
  if (collects(request)) (void)tide__add_relaxed(&request->pool->searches[request->kind], 1);
  tide__block* const block = best_fit_locked(request, &index->bins);
  return block == NULL || is_oversize_refused(request, block) ? NULL : block;
}

// ---------------------------------------------------------------------------------------------------
// The ladder

static tide_status rung_search_if_fixed(tide__request* request, tide__block** out) {
  return request->options->fixes ? tide__request_choose(request, out) : TIDE_OK;
}

// Would a segment for the request pass a limit on what is reserved?
static bool passes_limit(const tide__request* request, uint64_t limit) {
  const uint64_t reserved = tide__load_relaxed(&request->device->reserved_bytes);
  return limit != TIDE_NO_LIMIT &&
         (request->segment_bytes > limit || reserved > limit - request->segment_bytes);
}

static bool is_rejected_early(const tide__request* request) {
  const tide_device_options* const options = request->options;
  return options->rejects_early &&
         passes_limit(request, (uint64_t)(options->memory_fraction * (double)request->device->total_bytes));
}

static tide_status grow(tide__request* request, tide__block** out) {
  request->is_rejected = is_rejected_early(request);
  if (request->is_rejected) return TIDE_ERR_NO_MEMORY;  // the end of the ladder
  if (passes_limit(request, tide__load_relaxed(&request->device->limit))) return TIDE_OK;
  if (request->segment_bytes > tide__budget_room(request->device, request->pool)) return TIDE_OK;
  const bool is_expandable = uses_expandable(request);
  tide_status status = is_expandable ? tide__expand_grow(request, out) : tide__segment_grow(request, out);
  if (is_expandable && tide__request_falls_back(request, status)) status = tide__segment_grow(request, out);
  return status == TIDE_ERR_NO_MEMORY ? TIDE_OK : status;
}

// Idle memory of the request's own tag, if a budget is in the way.
static tide_status rung_give_own(tide__request* request, tide__block** out) {
  tide__pool* const pool = request->pool;
  const uint64_t room = tide__budget_room(request->device, pool);
  if (request->is_capturing || request->segment_bytes <= room || tide__load_relaxed(&pool->is_captured))
    return TIDE_OK;
  TIDE_TRY(tide__timeline_wait(request->device, pool, &request->context));
  TIDE_TRY(tide__request_choose(request, out));
  if (*out != NULL) return TIDE_OK;
  TIDE_TRY(tide__reclaim_pool_some(request->device, pool, request->segment_bytes - room, &request->context));
  return grow(request, out);
}

static tide_status rung_collect(tide__request* request, tide__block** out) {
  if (!collects(request)) return TIDE_OK;
  TIDE_TRY(tide__reclaim_by_age(request));
  return rung_search_if_fixed(request, out);
}

static tide_status rung_release_some(tide__request* request, tide__block** out) {
  bool is_enough = false;
  if (request->is_capturing && request->options->captures_by_stream)
    return TIDE_OK;  // it would break the capture
  TIDE_TRY(tide__reclaim_available(request, &is_enough));
  return is_enough ? grow(request, out) : TIDE_OK;
}

static tide_status rung_wait_one_by_one(tide__request* request, tide__block** out) {
  bool has_waited = request->options->fixes && !request->is_capturing;
  while (has_waited && *out == NULL) {
    TIDE_TRY(tide__timeline_wait_one(request->device, request->lane, &request->context, &has_waited));
    if (has_waited) TIDE_TRY(tide__request_choose(request, out));
  }
  return TIDE_OK;
}

static tide_status rung_release_all(tide__request* request, tide__block** out) {
  if (request->is_capturing) return TIDE_OK;
  TIDE_TRY(tide__timeline_wait(request->device, NULL, &request->context));
  TIDE_TRY(rung_search_if_fixed(request, out));
  if (*out != NULL) return TIDE_OK;
  TIDE_TRY(tide__reclaim_all(request->device, &request->context));
  TIDE__COUNT(request->device, num_alloc_retries);
  return grow(request, out);
}

// Growth is nearly always the end of it, and so is not looked at.
static tide_status climb(tide__request* request, tide__block** out) {
  static const tide__rung rungs[] = {
    { "other pools", tide__rung_borrow },
    { "idle segments of its size", rung_release_some },
    { "work of its stream", rung_wait_one_by_one },
    { "all work and all idle memory", rung_release_all },
  };
  static const tide__rung own = { "idle memory of its tag", rung_give_own };
  tide__oom_begin();
  TIDE_TRY(rung_collect(request, out));
  if (*out == NULL) TIDE_TRY(grow(request, out));
  if (*out == NULL && tide__budgets_exist(request->device) && !request->is_rejected) {
    const tide_status status = tide__oom_climb(&own, 1, request, out);
    if (status != TIDE_ERR_NO_MEMORY) TIDE_TRY(status);
  }
  return *out != NULL ? TIDE_OK : tide__oom_climb(rungs, sizeof rungs / sizeof rungs[0], request, out);
}

// If another thread had the gate since the request was made, it may have made room, or have had blocks in its
// hands when the free index was searched: then it is searched once more.
static tide_status climb_at_gate(tide__request* request, tide__block** out) {
  const bool has_changed = tide__gate_enter(request->device) != request->gate_turn;
  tide_status status = has_changed ? tide__request_choose(request, out) : TIDE_OK;
  if (status == TIDE_OK && *out == NULL) status = climb(request, out);
  if (status == TIDE_ERR_NO_MEMORY) tide__oom_note_budgets(request);
  tide__gate_leave(request->device);
  return status;
}

static tide_status torch_recover(tide__request* request, tide__block** out) {
  if (tide__observers_reclaim(request->device)) TIDE_TRY(tide__request_choose(request, out));
  if (*out != NULL) return TIDE_OK;
  const tide_error before = *tide_last_error();
  tide_status status = climb_at_gate(request, out);
  if (status == TIDE_ERR_NO_MEMORY && !request->is_capturing && !request->is_rejected)
    status = tide__oom_press(request, climb_at_gate, out);
  if (status == TIDE_OK) tide__error_restore(&before);
  return status == TIDE_ERR_NO_MEMORY ? tide__oom_report(request) : status;
}

// A segment as for one request, which grows at once.
static tide_status torch_reserve(tide__request* request, uint64_t* out_bytes) {
  tide__block* block = NULL;
  request->rounded = request->segment_bytes = tide__round_up(request->rounded, TIDE__SEGMENT_STEP);
  const tide_status status = grow(request, &block);
  if (block == NULL && (status == TIDE_OK || status == TIDE_ERR_NO_MEMORY))
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "there is no memory for a segment of %llu bytes",
                     (unsigned long long)request->rounded);
  TIDE_TRY(status);
  tide__mutex_lock(&request->lane->lock);
  tide__block_return_locked(block, true);
  tide__mutex_unlock(&request->lane->lock);
  *out_bytes = request->rounded;
  return TIDE_OK;
}

const tide__policy tide__policy_torch = {
  .name = "torch",
  .small_bytes = TIDE__SMALL_BYTES,
  .round = tide__round_divided,
  .segment_bytes = torch_segment_bytes,
  .choose_locked = torch_choose_locked,
  .splits = torch_splits,
  .recover = torch_recover,
  .reserve = torch_reserve,
};
