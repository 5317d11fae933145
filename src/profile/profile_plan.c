// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Plans: the smallest of three sets of offsets, verified, and arranged for replay. Best fit is always among
// them, so no plan is worse than that of PyTorch's mobile profiler.
#include "profile/profile_plan.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/scratch.h"
#include "base/sized.h"
#include "profile/requests.h"

// ---------------------------------------------------------------------------------------------------
// Places

static tide_status places_init(tide__places* places, size_t offsets, const tide_heap* heap) {
  tide__hash_map_init(&places->map, heap);
  TIDE_REQUIRE(tide__hash_map_reserve(&places->map, offsets), TIDE_ERR_NO_MEMORY,
               "no memory for the places of %zu requests", offsets);
  return TIDE_OK;
}

static void places_fini(tide__places* places) { tide__hash_map_fini(&places->map); }

// The place of an offset, which may be new.
static uint32_t places_add(tide__places* places, uint64_t offset) {
  const uint32_t known = tide__places_find(places, offset);
  if (known != TIDE__NO_PLACE) return known;
  const size_t count = tide__places_count(places);
  (void)tide__hash_map_put(&places->map, offset, count + 1);
  return (uint32_t)count;
}

// ---------------------------------------------------------------------------------------------------
// Layout

static uint64_t hash_mix(uint64_t hash, uint64_t number) {
  hash = (hash ^ number) * UINT64_C(0xff51afd7ed558ccd);
  return hash ^ (hash >> 29);
}

static tide_profile_plan_info plan_describe_requests(const tide_profile_request* requests, size_t count,
                                                     tide_profile_planner planner) {
  tide_profile_plan_info info = { .count = count,
                                  .bytes = tide__requests_bytes(requests, count),
                                  .alignment = tide__requests_alignment(requests, count),
                                  .hash = hash_mix(0, count),
                                  .planner = planner };
  for (size_t i = 0; i < count; i++) {
    if (tide__request_is_managed(&requests[i])) {
      info.managed++;
    } else {
      info.escape_bytes = tide__max(info.escape_bytes, requests[i].offset + requests[i].bytes);
    }
    info.hash = hash_mix(info.hash, requests[i].bytes);
    info.hash = hash_mix(info.hash, tide__request_alignment(&requests[i]));
    info.hash = hash_mix(info.hash, requests[i].lifetime);
  }
  return info;
}

static tide_status plan_alloc_tables(tide_profile_plan* plan) {
  const size_t count = plan->info.count;
  plan->steps = tide__heap_alloc(plan->heap, count + 2, sizeof *plan->steps);
  plan->endings = tide__heap_alloc(plan->heap, plan->info.managed + 1, sizeof *plan->endings);
  TIDE_REQUIRE(plan->steps != NULL && plan->endings != NULL, TIDE_ERR_NO_MEMORY,
               "no memory for a plan of %zu requests", count);
  TIDE_TRY(places_init(&plan->managed, plan->info.managed, plan->heap));
  return places_init(&plan->escaping, count - plan->info.managed, plan->heap);
}

static tide__step plan_step(tide_profile_plan* plan, const tide_profile_request* request) {
  const bool is_managed = tide__request_is_managed(request);
  tide__places* const places = is_managed ? &plan->managed : &plan->escaping;
  return (tide__step){ .bytes = request->bytes,
                       .offset = request->offset,
                       .lifetime = is_managed ? (uint32_t)request->lifetime : TIDE__STEP_NEVER,
                       .place = places_add(places, request->offset),
                       .alignment = (uint32_t)tide__request_alignment(request) };
}

static tide_status plan_fill_tables(tide_profile_plan* plan, const tide_profile_request* requests,
                                    const uint32_t* releases) {
  const size_t count = plan->info.count;
  tide__scratch scratch;
  tide__scratch_init(&scratch, plan->heap);
  uint32_t* const first = tide__scratch_alloc(&scratch, count + 2, sizeof *first);
  uint32_t* const ended = tide__scratch_alloc(&scratch, count + 1, sizeof *ended);
  const bool has_room = !scratch.is_short;
  if (has_room) {
    tide__requests_endings(requests, count, first, ended);
    for (size_t i = 0; i < count; i++) plan->steps[i] = plan_step(plan, &requests[i]);
    plan->steps[count].lifetime = TIDE__STEP_NEVER;
    for (size_t i = 0; i <= count + 1; i++) plan->steps[i].ending = first[i];
    for (size_t i = 0; i < plan->info.managed; i++) {
      const uint32_t request = releases != NULL ? releases[i] : ended[i];
      plan->endings[i] = (tide__ending){ plan->steps[request].offset, request, plan->steps[request].place };
    }
    plan->endings[plan->info.managed].offset = UINT64_MAX;
  }
  tide__scratch_fini(&scratch);
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "no memory for a plan of %zu requests", count);
  return TIDE_OK;
}

tide_status tide__profile_plan_make(const tide_profile_request* requests, const uint32_t* releases,
                                    size_t count, tide_profile_planner planner, const tide_heap* heap,
                                    tide_profile_plan** out) {
  tide_profile_plan* const plan = tide__heap_alloc(heap, 1, sizeof *plan);
  TIDE_REQUIRE(plan != NULL, TIDE_ERR_NO_MEMORY, "no memory for a plan");
  plan->heap = heap;
  tide__store_relaxed(&plan->shares, 1);
  plan->info = plan_describe_requests(requests, count, planner);
  tide_status status = tide__requests_load(requests, count, heap, &plan->info.lower_bound);
  if (status == TIDE_OK) status = plan_alloc_tables(plan);
  if (status == TIDE_OK) status = plan_fill_tables(plan, requests, releases);
  if (status != TIDE_OK) {
    tide_profile_plan_free(plan);
    return status;
  }
  *out = plan;
  return TIDE_OK;
}

tide_profile_plan* tide__profile_plan_share(tide_profile_plan* plan) {
  tide__add_relaxed(&plan->shares, 1);
  return plan;
}

void tide_profile_plan_free(tide_profile_plan* plan) {
  if (plan == NULL || tide__sub_seq(&plan->shares, 1) != 1) return;
  const tide_heap* const heap = plan->heap;
  const size_t count = plan->info.count;
  places_fini(&plan->managed);
  places_fini(&plan->escaping);
  tide__heap_release(heap, plan->endings, plan->info.managed + 1, sizeof *plan->endings);
  tide__heap_release(heap, plan->steps, count + 2, sizeof *plan->steps);
  tide__heap_release(heap, plan, 1, sizeof *plan);
}

// ---------------------------------------------------------------------------------------------------
// Planning

static tide_status plan_by(tide_profile_planner planner, tide_profile_request* requests, size_t count,
                           uint64_t nodes, const tide_heap* heap) {
  switch (planner) {
    case TIDE_PROFILE_SMALLEST: return tide__requests_solve(requests, count, nodes, heap);
    case TIDE_PROFILE_BEST_FIT: return tide__holes_fit(requests, count, false, heap);
    case TIDE_PROFILE_TOP_FIT: return tide__holes_fit(requests, count, true, heap);
  }
  return TIDE_FAIL(TIDE_ERR_ARGUMENT, "there is no planner %d", (int)planner);
}

// Tries the heuristics, and the solver unless one of them reaches the lower bound; `requests` gets the
// smallest result.
static tide_status plan_smallest(tide_profile_request* requests, tide_profile_request* trial, size_t count,
                                 uint64_t nodes, const tide_heap* heap, tide_profile_planner* out_planner) {
  static const tide_profile_planner order[] = { TIDE_PROFILE_BEST_FIT, TIDE_PROFILE_TOP_FIT,
                                                TIDE_PROFILE_SMALLEST };
  uint64_t least = UINT64_MAX;
  uint64_t load = 0;
  TIDE_TRY(tide__requests_load(requests, count, heap, &load));
  for (size_t i = 0; i < sizeof order / sizeof *order && least > load; i++) {
    TIDE_TRY(plan_by(order[i], trial, count, nodes, heap));
    const uint64_t bytes = tide__requests_bytes(trial, count);
    if (bytes >= least) continue;
    least = bytes;
    *out_planner = order[i];
    memcpy(requests, trial, count * sizeof *requests);
  }
  return TIDE_OK;
}

static tide_status plan_offsets(tide_profile_request* requests, size_t count,
                                const tide_profile_plan_options* options, tide_profile_planner* out_planner) {
  const tide_heap* const heap = options->heap;
  *out_planner = options->planner;
  if (options->planner != TIDE_PROFILE_SMALLEST || count == 0) {
    return plan_by(options->planner, requests, count, options->nodes, heap);
  }
  tide_profile_request* const trial = tide__heap_alloc(heap, count, sizeof *trial);
  TIDE_REQUIRE(trial != NULL, TIDE_ERR_NO_MEMORY, "no memory to plan %zu requests", count);
  memcpy(trial, requests, count * sizeof *trial);
  const tide_status status = plan_smallest(requests, trial, count, options->nodes, heap, out_planner);
  tide__heap_release(heap, trial, count, sizeof *trial);
  return status;
}

static tide_status plan_requests(tide_profile_request* requests, const uint32_t* releases, size_t count,
                                 const tide_profile_plan_options* options, tide_profile_plan** out) {
  tide_profile_planner planner = options->planner;
  for (size_t i = 0; i < count; i++) requests[i].offset = 0;
  TIDE_TRY(plan_offsets(requests, count, options, &planner));
  tide__requests_line_up(requests, count);
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  TIDE_TRY(
      tide_profile_verify(requests, count, tide__requests_bytes(requests, count), options->heap, &check));
  TIDE_REQUIRE(check.fault == TIDE_PLAN_NO_FAULT, TIDE_ERR_STATE, "the planner made a wrong plan: %s",
               check.text);
  return tide__profile_plan_make(requests, releases, count, planner, options->heap, out);
}

tide_status tide_profile_plan_new(const tide_profile_request* requests, size_t count,
                                  const tide_profile_plan_options* options, tide_profile_plan** out) {
  return tide__profile_plan_new_ordered(requests, NULL, count, options, out);
}

tide_status tide__profile_plan_new_ordered(const tide_profile_request* requests, const uint32_t* releases,
                                           size_t count, const tide_profile_plan_options* options,
                                           tide_profile_plan** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "plan: out is NULL");
  *out = NULL;
  tide_profile_plan_options chosen = TIDE_PROFILE_PLAN_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("profile_plan_new", options, &chosen, sizeof chosen));
  TIDE_REQUIRE((unsigned)chosen.planner <= TIDE_PROFILE_TOP_FIT && chosen.nodes != 0 &&
                   tide__heap_is_valid(chosen.heap),
               TIDE_ERR_ARGUMENT, "profile_plan_new: the options are out of range");
  chosen.heap = tide__heap_or_system(chosen.heap);
  TIDE_TRY(tide__requests_check(requests, count));
  tide_profile_request* const copy = tide__heap_alloc(chosen.heap, count + 1, sizeof *copy);
  TIDE_REQUIRE(copy != NULL, TIDE_ERR_NO_MEMORY, "no memory to plan %zu requests", count);
  if (count != 0) memcpy(copy, requests, count * sizeof *copy);
  const tide_status status = plan_requests(copy, releases, count, &chosen, out);
  tide__heap_release(chosen.heap, copy, count + 1, sizeof *copy);
  return status;
}

tide_profile_plan_info tide_profile_plan_describe(const tide_profile_plan* plan) {
  return plan != NULL ? plan->info : (tide_profile_plan_info){ 0 };
}

tide_profile_request tide_profile_plan_request(const tide_profile_plan* plan, size_t index) {
  if (plan == NULL || index >= plan->info.count) return (tide_profile_request){ 0 };
  const tide__step* const step = &plan->steps[index];
  const uint64_t lifetime = step->lifetime == TIDE__STEP_NEVER ? TIDE_PROFILE_NEVER : step->lifetime;
  return (tide_profile_request){ step->bytes, step->alignment, lifetime, step->offset };
}
