// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What both policies do with a request: sizes, the choice of an idle block, and memory of other pools.
#include "device/lane/settings.h"
#include "device/policy/policy.h"

static uint64_t round_to_grain(uint64_t bytes) {
  return (bytes + TIDE__GRAIN - 1) / TIDE__GRAIN * TIDE__GRAIN;
}

static uint32_t log2_floor(uint64_t n) { return 63u - (uint32_t)__builtin_clzll(n); }

static uint32_t divisions_for(const tide_device_options* options, uint64_t bytes) {
  const uint32_t power = log2_floor(bytes);
  const uint32_t slot = power < 20 ? 0 : power - 20;
  return options->roundup_divisions[slot < TIDE_ROUNDUP_SLOTS ? slot : TIDE_ROUNDUP_SLOTS - 1];
}

uint64_t tide__round_divided(const tide_device_options* options, uint64_t bytes) {
  if (bytes < TIDE__GRAIN) return TIDE__GRAIN;
  const uint32_t divisions = divisions_for(options, bytes);
  if (divisions <= 1 || bytes <= TIDE__GRAIN * divisions) return round_to_grain(bytes);
  const uint64_t power = (uint64_t)1 << log2_floor(bytes);
  return power == bytes ? bytes : tide__round_up(bytes, power >> log2_floor(divisions));
}

// What a policy that is not plain means for a pool.
static const tide__policy* policy_in(const tide__policy* policy, const tide__policy* plain,
                                     tide__pool* pool) {
  return pool->is_raw || tide__load_relaxed(&pool->no_split) ? plain : policy;
}

const tide__policy* tide__policy_of(const tide_device_cache* device, tide__pool* pool) {
  const tide__policy* const policy = tide__load_relaxed(&device->policy_now);
  return policy == device->plain_policy ? policy : policy_in(policy, device->plain_policy, pool);
}

void tide__request_decide(tide__request* request) {
  const tide__policy* const plain = request->device->plain_policy;
  const tide__policy* policy = tide__load_relaxed(&request->device->policy_now);
  if (policy != plain)
    policy = policy_in(policy, plain, request->pool);  // the pool is read only if it matters
  request->policy = policy;
  request->rounded = request->policy->round(request->options, request->bytes);
  request->kind = request->rounded <= request->policy->small_bytes ? TIDE__SMALL : TIDE__LARGE;
}

tide_status tide__request_choose(tide__request* request, tide__block** out) {
  tide__tally* const tally = tide__lane_open(request->device, request->lane);
  if (tally == NULL) return TIDE_ERR_NO_MEMORY;
  *out = request->policy->choose_locked(request, tally);
  if (*out != NULL) tide__free_index_take_locked(*out);
  tide__lane_shut(request->device, request->lane, tally);
  return TIDE_OK;
}

bool tide__request_falls_back(tide__request* request, tide_status status) {
  tide_device_cache* const device = request->device;
  const bool is_refused = status == TIDE_OK || status == TIDE_ERR_NO_MEMORY || status == TIDE_ERR_CAPTURE;
  if (is_refused || tide__load_relaxed(&device->has_mapped) || !request->options->virtual_fallback)
    return false;
  const tide_error why = *tide_last_error();
  if (tide__settings_fall_back(device, why.text) != TIDE_OK) {
    tide__error_restore(&why);
    return false;
  }
  tide__store_relaxed(&device->policy_now, device->plain_policy);
  request->options = tide__device_options(device);
  tide__request_decide(request);
  request->segment_bytes = request->policy->segment_bytes(request->options, request->rounded);
  return true;
}

tide_status tide__rung_borrow(tide__request* request, tide__block** out) {
  tide_device_cache* const device = request->device;
  if (request->pool != &device->default_pool || request->lane->is_unlisted) return TIDE_OK;
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(device, &at);
  for (; pool != NULL && *out == NULL; pool = tide__pool_next(device, &at)) {
    if (!tide__load_relaxed(&pool->use_on_oom) || tide__pool_is_away(pool)) continue;
    if (tide__pool_is_arriving(device, pool)) continue;  // the stream of the request does not wait for that
    tide__request inner = *request;
    inner.pool = pool;
    inner.is_borrowing = true;
    tide__request_decide(&inner);
    inner.segment_bytes = inner.policy->segment_bytes(inner.options, inner.rounded);
    TIDE_TRY(tide__lane_find(device, pool, request->stream, &inner.lane));
    TIDE_TRY(tide__request_choose(&inner, out));
    if (*out == NULL) continue;
    *request = inner;
    tide__lane_turn(device, inner.lane);
  }
  return TIDE_OK;
}
