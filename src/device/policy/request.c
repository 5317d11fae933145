// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What both policies do with a request: sizes, the choice of an idle block, and memory of other pools.
#include "device/policy/policy.h"

static uint32_t log2_floor(uint64_t n) { return 63u - (uint32_t)__builtin_clzll(n); }

static uint32_t divisions_for(const tide_device_options* options, uint64_t bytes) {
  const uint32_t power = log2_floor(bytes);
  const uint32_t slot = power < 20 ? 0 : power - 20;
  return options->roundup_divisions[slot < TIDE_ROUNDUP_SLOTS ? slot : TIDE_ROUNDUP_SLOTS - 1];
}

uint64_t tide__round_divided(const tide_device_options* options, uint64_t bytes) {
  if (bytes < TIDE__GRAIN) return TIDE__GRAIN;
  const uint32_t divisions = divisions_for(options, bytes);
  if (divisions <= 1 || bytes <= TIDE__GRAIN * divisions) return tide__round_up(bytes, TIDE__GRAIN);
  const uint64_t power = (uint64_t)1 << log2_floor(bytes);
  return power == bytes ? bytes : tide__round_up(bytes, power >> log2_floor(divisions));
}

tide_status tide__request_choose(tide__request* request, tide__block** out) {
  if (!tide__lane_lock_with_spares(request->device, request->lane)) return TIDE_ERR_NO_MEMORY;
  *out = request->policy->choose_locked(request);
  tide__mutex_unlock(&request->lane->lock);
  return TIDE_OK;
}

tide_status tide__rung_borrow(tide__request* request, tide__block** out) {
  tide_device_cache* const device = request->device;
  if (request->pool != &device->default_pool) return TIDE_OK;
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(device, &at);
  for (; pool != NULL && *out == NULL; pool = tide__pool_next(device, &at)) {
    if (!tide__load_relaxed(&pool->use_on_oom)) continue;
    tide__request inner = *request;
    inner.pool = pool;
    inner.is_borrowing = true;
    tide__request_decide(&inner);
    inner.segment_bytes = inner.policy->segment_bytes(inner.options, inner.rounded);
    TIDE_TRY(tide__lane_get(device, pool, request->stream, &inner.lane));
    TIDE_TRY(tide__request_choose(&inner, out));
    if (*out == NULL) continue;
    *request = inner;
    tide__lane_turn(device, inner.lane);
  }
  return TIDE_OK;
}
