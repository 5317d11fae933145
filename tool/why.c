// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One visit of the growths at the peak: O(growths) beside the cost of tide_ledger_explain().
#include "why.h"

#include <stdlib.h>

#include "tool.h"

static const struct {
  const char* label;
  const char* reason;
} cause_words[TIDE_GROWTH_COUNT] = {
  [TIDE_GROWTH_NEEDED] = { "needed", "because too little was free" },
  [TIDE_GROWTH_HOLE] = { "no block large enough", "because no free block was large enough" },
  [TIDE_GROWTH_SPLIT] = { "split limit",
                          "because blocks of max_split_size or more are kept whole for larger requests" },
  [TIDE_GROWTH_EVENT] = { "waiting for events", "because released memory still waited for other streams" },
  [TIDE_GROWTH_STREAM] = { "other streams", "because the free memory belonged to other streams" },
  [TIDE_GROWTH_POOL] = { "other pools", "because the free memory belonged to other pools" },
  [TIDE_GROWTH_CLASS] = { "size class", "because the free memory was in segments for the other size class "
                                        "(small or large requests)" },
  [TIDE_GROWTH_PASSED] = { "free but not used", "for requests that a free block would have served" },
  [TIDE_GROWTH_UNKNOWN] = { "unknown", "for requests that were not recorded" },
  [TIDE_GROWTH_BEFORE] = { "before the recording", "before the recording begins" },
  [TIDE_GROWTH_UNPARKED] = { "unparked", "because parked memory came back" },
};

const char* tool_why_label(uint32_t cause) { return cause_words[cause].label; }
const char* tool_why_reason(uint32_t cause) { return cause_words[cause].reason; }

bool tool_why_is_avoidable(uint32_t cause) {
  return cause != TIDE_GROWTH_NEEDED && cause != TIDE_GROWTH_UNKNOWN && cause != TIDE_GROWTH_BEFORE &&
         cause != TIDE_GROWTH_UNPARKED;
}

uint64_t tool_why_avoidable(const tool_why* why) {
  uint64_t bytes = 0;
  for (uint32_t cause = 0; cause < TIDE_GROWTH_COUNT; cause++)
    bytes += tool_why_is_avoidable(cause) ? why->sums[cause].bytes : 0;
  return bytes;
}

void tool_why_order(const tool_why* why, uint32_t out[TIDE_GROWTH_COUNT]) {
  for (uint32_t cause = 0; cause < TIDE_GROWTH_COUNT; cause++) {
    uint32_t place = cause;
    for (; place > 0 && why->sums[out[place - 1]].bytes < why->sums[cause].bytes; place--)
      out[place] = out[place - 1];
    out[place] = cause;
  }
}

static void why_add_place(tool_why* why, const tide_ledger_place* place) {
  if (why->place_count == why->place_room) {
    why->place_room = why->place_room * 2 + 16;
    why->places = tool_grow(why->places, why->place_room, sizeof *why->places);
  }
  why->places[why->place_count++] = (tool_why_place){ .growth = why->count, .place = *place };
}

static bool why_on_growth(void* user, const tide_growth* growth) {
  tool_why* const why = user;
  if (why->count == why->room) {
    why->room = why->room * 2 + 16;
    why->growths = tool_grow(why->growths, why->room, sizeof *why->growths);
  }
  for (size_t i = 0; i < growth->place_count; i++) why_add_place(why, &growth->places[i]);
  tool_why_sum* const sum = &why->sums[growth->cause];
  if (sum->count == 0 || growth->bytes > why->growths[sum->largest].bytes) sum->largest = why->count;
  sum->bytes += growth->bytes;
  sum->count++;
  why->growths[why->count] = *growth;
  why->growths[why->count].places = NULL;
  why->count++;
  return true;
}

int tool_why_find(tide_ledger* ledger, uint64_t at, tool_why* out) {
  *out = (tool_why){ .at = at };
  if (tide_ledger_explain(ledger, at, why_on_growth, out) != TIDE_OK) return tool_fail("%s", tool_error());
  out->reserved = tide_ledger_get_totals(ledger).reserved_bytes;
  return TOOL_DONE;
}

void tool_why_fini(tool_why* why) {
  free(why->growths);
  free(why->places);
}
