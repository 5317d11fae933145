// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Ranges that grow: the calls, and what a commit tries before it fails. tide/range.h has the memory behind
// them.
#include "device/tide/range.h"

#include "device/tide/giving.h"

// ---------------------------------------------------------------------------------------------------
// Lanes

static bool is_tide(tide_device_cache* device) {
  return tide__load_relaxed(&device->policy_now) != device->plain_policy;
}

// The lane of ranges under the policy torch, which no request finds: its homes are only for ranges. The
// caller has the gate.
static tide_status plain_lane(tide_device_cache* device, tide__lane** out) {
  if (device->range_lane == NULL) device->range_lane = tide__lane_new_external(device, NULL);
  TIDE_REQUIRE(device->range_lane != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of ranges");
  *out = device->range_lane;
  return TIDE_OK;
}

// The lane whose memory a commit uses first, and where its new memory has its place.
static tide_status lane_for(tide_device_cache* device, tide_stream stream, tide__lane** out) {
  return is_tide(device) ? tide__lane_find(device, &device->default_pool, stream, out)
                         : plain_lane(device, out);
}

// ---------------------------------------------------------------------------------------------------
// Making

// The policy torch without expandable segments has not asked the probes.
static tide_status virtual_check(tide_device_cache* device) {
  tide_probe probe = TIDE_PROBE_INIT;
  if (tide__load_relaxed(&device->has_mapped)) return TIDE_OK;
  TIDE_TRY(tide_machine_probe(device->machine, device->index, TIDE_FEATURE_VIRTUAL_MEMORY, &probe));
  TIDE_REQUIRE(probe.works && device->granularity != 0, TIDE_ERR_UNSUPPORTED,
               "device_range_new: virtual memory does not work on device %d: %s", device->index,
               probe.reason);
  return tide__physical_learn(device);
}

static tide_status new_at_gate(tide_device_cache* device, uint64_t bytes, uint32_t stack, tide_range** out) {
  tide__lane* lane = NULL;
  TIDE_TRY(lane_for(device, NULL, &lane));
  return tide__range_new(device, lane, bytes, stack, out);
}

tide_status tide_device_range_new(tide_device_cache* device, uint64_t most_bytes, tide_range** out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_range_new: no device or out");
  *out = NULL;
  TIDE_REQUIRE(most_bytes - 1 < TIDE__MAX_REQUEST - 1, TIDE_ERR_ARGUMENT, "device_range_new: %llu bytes",
               (unsigned long long)most_bytes);
  TIDE__REQUIRE_OWN(device, "device_range_new");
  TIDE_TRY(virtual_check(device));
  tide__call_context context = { 0 };
  if (tide__is_recording(device)) context = tide__context_now(device, TIDE_HISTORY_STATE);
  (void)tide__gate_enter(device);
  const tide_status status = new_at_gate(device, most_bytes, context.stack, out);
  tide__gate_leave(device);
  return status;
}

void* tide_range_address(const tide_range* range) {
  return range != NULL ? tide__pointer(range->address) : NULL;
}
uint64_t tide_range_bytes(const tide_range* range) { return range != NULL ? range->bytes : 0; }
uint64_t tide_range_unit(const tide_range* range) { return range != NULL ? range->unit : 0; }
uint64_t tide_range_committed(tide_range* range) {
  return range != NULL ? tide__load_relaxed(&range->committed) : 0;
}

// ---------------------------------------------------------------------------------------------------
// Committing

// A commit as a request: the rungs of the ladder get the request in it.
typedef struct range_request {
  tide__request own;
  tide_range* range;
  uint64_t from;
  uint64_t to;
} range_request;

static tide_status commit_with(tide__request* request, tide__fill how, tide__block** out) {
  const range_request* const r = TIDE_OWNER(request, range_request, own);
  const tide_status status = tide__range_fill(request, r->range, r->from, r->to, how);
  if (status == TIDE_OK) *out = r->range->segment->head;
  return status == TIDE_ERR_NO_MEMORY ? TIDE_OK : status;
}

static tide_status rung_wait(tide__request* request, tide__block** out) {
  TIDE_TRY(tide__timeline_wait(request->device, NULL, &request->context));
  return commit_with(request, TIDE__FILL_WAITED, out);
}

// What is idle may lie in handles that are too large, or be parts of handles.
static tide_status rung_give_enough(tide__request* request, tide__block** out) {
  TIDE_TRY(tide__reclaim_some(request->device, request->rounded, &request->context));
  TIDE__COUNT(request->device, num_alloc_retries);
  return commit_with(request, TIDE__FILL_WAITED, out);
}

static tide_status rung_give_all(tide__request* request, tide__block** out) {
  TIDE_TRY(tide__reclaim_all(request->device, &request->context));
  return commit_with(request, TIDE__FILL_WAITED, out);
}

// Pools with tags give way by the rules of budgets.
static tide_status rung_give_way(tide__request* request, tide__block** out) {
  const tide__want want = { request->pool, request->rounded };
  const tide__giving giving = { .device = request->device,
                                .wants = &want,
                                .want_count = 1,
                                .refused_bytes = want.bytes,
                                .context = &request->context };
  uint64_t turn = 0;
  TIDE_TRY(tide__give_idle(&giving, TIDE__GIVES_EXCESS));
  TIDE_TRY(tide__give_idle(&giving, TIDE__GIVES_ALL));
  TIDE_TRY(commit_with(request, TIDE__FILL_WAITED, out));
  while (*out == NULL && tide__give_next(&giving, &turn)) {
    TIDE_TRY(commit_with(request, TIDE__FILL_WAITED, out));
  }
  return TIDE_OK;
}

static tide_status commit_climb(tide__request* request, tide__block** out) {
  static const tide__rung rungs[] = {
    { "all work", rung_wait },
    { "as much idle memory", rung_give_enough },
    { "all idle memory", rung_give_all },
    { "tags that give way", rung_give_way },
  };
  enum { RUNGS = sizeof rungs / sizeof rungs[0] };
  (void)tide__observers_reclaim(request->device);
  (void)tide__gate_enter(request->device);
  tide__oom_begin();
  const size_t count = tide__budgets_exist(request->device) ? RUNGS : RUNGS - 1;
  const tide_status status = tide__oom_climb(rungs, count, request, out);
  if (status == TIDE_ERR_NO_MEMORY) tide__oom_note_budgets(request);
  tide__gate_leave(request->device);
  return status;
}

// A capture must not be broken by a wait, and its work runs later: nothing that is idle now serves it.
static tide_status capture_ask(range_request* r) {
  tide_device_cache* const device = r->own.device;
  bool is_captured = false;
  TIDE_TRY(tide__capture_ask(device->machine, device->index, r->own.stream, &is_captured));
  r->own.is_capturing = is_captured || tide__is_capturing(device, r->own.stream);
  return TIDE_OK;
}

static tide_status commit_at_gate(range_request* r, tide__block** out) {
  tide_device_cache* const device = r->own.device;
  (void)tide__gate_enter(device);
  tide_status status = lane_for(device, r->own.stream, &r->own.lane);
  if (status == TIDE_OK) {
    status = commit_with(&r->own, r->own.is_capturing ? TIDE__FILL_NEW : TIDE__FILL_QUEUED, out);
  }
  tide__gate_leave(device);
  return status;
}

static tide_status commit(range_request* r) {
  const tide_error before = *tide_last_error();
  tide__block* block = NULL;
  tide__oom_begin();
  tide_status status = commit_at_gate(r, &block);
  if (r->own.lane == NULL) return status;
  if (status == TIDE_OK && block == NULL) status = TIDE_ERR_NO_MEMORY;
  if (status == TIDE_ERR_NO_MEMORY && !r->own.is_capturing) status = commit_climb(&r->own, &block);
  if (status == TIDE_OK) tide__error_restore(&before);
  return status == TIDE_ERR_NO_MEMORY ? tide__oom_report(&r->own) : status;
}

// Checks that a part lies in a range of the device.
static tide_status part_check(const char* call, const tide_device_cache* device, const tide_range* range,
                              uint64_t offset, uint64_t bytes) {
  TIDE_REQUIRE(device != NULL && range != NULL, TIDE_ERR_ARGUMENT, "%s: no device or range", call);
  TIDE_REQUIRE(range->device == device, TIDE_ERR_ARGUMENT, "%s: the range is of another allocator", call);
  TIDE_REQUIRE(offset <= range->bytes && bytes <= range->bytes - offset, TIDE_ERR_ARGUMENT,
               "%s: %llu bytes at %llu in a range of %llu", call, (unsigned long long)bytes,
               (unsigned long long)offset, (unsigned long long)range->bytes);
  return TIDE_OK;
}

tide_status tide_device_range_commit(tide_device_cache* device, tide_range* range, tide_stream stream,
                                     uint64_t offset, uint64_t bytes) {
  TIDE_TRY(part_check("device_range_commit", device, range, offset, bytes));
  TIDE__REQUIRE_OWN(device, "device_range_commit");
  if (bytes == 0) return TIDE_OK;
  range_request r = { .range = range };
  r.from = range->address + offset / range->unit * range->unit;
  r.to = range->address + tide__round_up(offset + bytes, range->unit);
  if (!tide__range_has_gap(range, r.from, r.to)) return TIDE_OK;
  r.own.device = device;
  r.own.options = tide__device_options(device);
  r.own.policy = device->policy;
  r.own.pool = &device->default_pool;
  r.own.stream = stream;
  r.own.kind = TIDE__LARGE;
  r.own.bytes = r.own.rounded = r.own.segment_bytes = r.to - r.from;
  r.own.has_captures = tide__has_captures(device);
  TIDE_TRY(capture_ask(&r));
  if (tide__is_recording(device)) r.own.context = tide__context_now(device, TIDE_HISTORY_STATE);
  const tide_status status = commit(&r);
  tide__history_tell(&device->history);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Decommitting

// Waits until no work of the device and its peers that was queued before uses the memory. Others can grow
// meanwhile: only the list of peers needs the gate.
static tide_status devices_wait(tide_device_cache* device) {
  uint32_t peers[TIDE_DEVICE_MAX];
  (void)tide__gate_enter(device);
  const uint32_t count = device->peer_count;
  for (uint32_t i = 0; i < count; i++) peers[i] = device->peers[i];
  tide__gate_leave(device);
  const uint64_t begin_ns = tide__host_wait_begin(device);
  tide_status status = tide_machine_device_synchronize(device->machine, device->index);
  for (uint32_t i = 0; i < count && status == TIDE_OK; i++) {
    status = tide_machine_device_synchronize(device->machine, (int)peers[i]);
  }
  tide__host_wait_end(device, begin_ns);
  return status;
}

static tide_status decommit(tide_range* range, uint64_t offset, uint64_t bytes, bool is_end) {
  tide_device_cache* const device = range->device;
  const uint64_t from = range->address + offset;
  tide__call_context context = { 0 };
  TIDE_REQUIRE(!tide__has_captures(device), TIDE_ERR_CAPTURE,
               "device_range_decommit: a scope is open, and work in a capture cannot be waited for");
  if (tide__range_has_memory(range, from, from + bytes)) TIDE_TRY(devices_wait(device));
  if (tide__is_recording(device)) context = tide__context_now(device, TIDE_HISTORY_ALL);
  (void)tide__gate_enter(device);
  tide_status status = tide__range_empty(range, from, from + bytes, &context);
  if (status == TIDE_OK && is_end) status = tide__range_free(range);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  return status;
}

tide_status tide_device_range_decommit(tide_device_cache* device, tide_range* range, uint64_t offset,
                                       uint64_t bytes) {
  TIDE_TRY(part_check("device_range_decommit", device, range, offset, bytes));
  TIDE__REQUIRE_OWN(device, "device_range_decommit");
  return decommit(range, offset, bytes, false);
}

tide_status tide_device_range_free(tide_device_cache* device, tide_range* range) {
  if (range == NULL) return TIDE_OK;
  TIDE_TRY(part_check("device_range_free", device, range, 0, 0));
  TIDE__REQUIRE_OWN(device, "device_range_free");
  return decommit(range, 0, range->bytes, true);
}
