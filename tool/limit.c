// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// If the comparison repeated the recording, its bounds hold. Otherwise refusals still bound the limit. If the
// device itself was full, its memory is the limit.
#include "limit.h"

#include "policy.h"

static void bounds_find(const tool_recording* r, const tool_limits* refusals, tool_limit* out) {
  const tide_replay_result* const shown = &r->result;
  out->bytes = TIDE_NO_LIMIT;
  out->at_least = 0;
  out->less_than = TIDE_NO_LIMIT;
  out->is_certain = false;
  if (r->is_repeated && shown->limit_high != TIDE_NO_LIMIT) {
    out->bytes = shown->limit;
    out->at_least = shown->limit_low;
    out->less_than = shown->limit_high;
    out->is_certain = shown->is_limit_certain;
  } else if (refusals->count > 0 && refusals->at_least > 0) {
    out->bytes = out->at_least = refusals->at_least;
    out->less_than = refusals->less_than;
    out->is_certain = true;
  }
  const bool is_inside = refusals->likely >= out->at_least && refusals->likely < out->less_than;
  if (refusals->is_device_full && is_inside && out->at_least > 0) out->bytes = refusals->likely;
}

int tool_limit_choose(const tool_call* call, const tool_recording* r, const tool_limits* refusals,
                      tool_limit* out) {
  uint64_t given = TIDE_NO_LIMIT;
  tool_limits found = { .count = 0 };
  int status = tool_limit_parse(call, &given);
  if (status == TOOL_DONE && refusals == NULL) status = tool_limits_find(r->trace, r->device, &found);
  if (status != TOOL_DONE) return status;
  bounds_find(r, refusals != NULL ? refusals : &found, out);
  out->is_given = tool_option_value(call, "limit") != NULL;
  if (out->is_given) out->bytes = given;
  return TOOL_DONE;
}

bool tool_limit_is_shown(const tool_limit* limit) { return limit->less_than != TIDE_NO_LIMIT; }

bool tool_limit_is_recorded(const tool_limit* limit, const tool_recording* r) {
  const bool collects = tide_replay_recorded_options(r->replay).collect_threshold > 0;
  if (!r->is_repeated) return false;
  if (limit->bytes == r->result.limit) return true;
  return !collects && tool_limit_is_shown(limit) && limit->bytes >= limit->at_least &&
         limit->bytes < limit->less_than;
}

void tool_limit_emit_bounds(tool_emit* emit, const tool_limit* limit, const char* behind) {
  char sizes[2][TOOL_SIZE_TEXT];
  if (!tool_limit_is_shown(limit)) return;
  tool_size_pair(limit->at_least, limit->less_than, sizes[0], sizes[1]);
  tool_emit_words(emit, "The recorded run had a limit of at least %s and less than %s: %s%s", sizes[0],
                  sizes[1],
                  limit->is_certain ? "refused requests, or memory given back for a request, show it."
                                    : "retries show it. Cached memory was given back just when a request "
                                      "would have passed such a limit. Calls to empty_cache at these points "
                                      "would look the same.",
                  behind);
}

void tool_limit_emit(tool_emit* emit, const tool_limit* limit, bool is_said) {
  const bool has_limit = limit->bytes != TIDE_NO_LIMIT;
  const bool is_shown = tool_limit_is_shown(limit);
  tool_emit_bool(emit, "is_limit_inferred", NULL, has_limit && !limit->is_given);
  tool_emit_bytes_if(emit, has_limit, "limit", limit->is_given ? "limit" : "limit (inferred)", limit->bytes);
  tool_emit_uint_if(emit, is_shown, "limit_at_least", NULL, limit->at_least);
  tool_emit_uint_if(emit, is_shown, "limit_less_than", NULL, limit->less_than);
  tool_emit_bool(emit, "is_limit_certain", NULL, is_shown && limit->is_certain);
  if (is_said) return;
  tool_limit_emit_bounds(emit, limit,
                         limit->is_given ? "" : " Replays use the limit above; --limit sets another.");
}
