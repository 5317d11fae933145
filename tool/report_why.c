// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The part of the report about why memory is reserved at the peak: one paragraph, then a table of causes. In
// JSON also every segment with its request, and what was free then.
#include "report.h"

// ---------------------------------------------------------------------------------------------------
// In words

static void words_add_causes(const tool_why* why, tool_words* w) {
  uint32_t causes[TIDE_GROWTH_COUNT];
  bool is_first = true;
  tool_why_order(why, causes);
  for (size_t i = 0; i < TIDE_GROWTH_COUNT; i++) {
    const uint64_t bytes = why->sums[causes[i]].bytes;
    if (!tool_why_is_avoidable(causes[i]) || bytes == 0) continue;
    tool_words_add_size(w, is_first ? ": " : ", ", bytes, " ");
    tool_words_add(w, "%s", tool_why_reason(causes[i]));
    is_first = false;
  }
}

static void words_add_rest(const tool_why* why, uint32_t cause, const char* text, tool_words* w) {
  if (why->sums[cause].bytes == 0) return;
  tool_words_add_size(w, " ", why->sums[cause].bytes, " ");
  tool_words_add(w, "%s", text);
}

void tool_words_add_why(const tool_why* why, tool_words* w) {
  const uint64_t avoidable = tool_why_avoidable(why);
  if (avoidable == 0) {
    tool_words_add_size(w, "None of the ", why->reserved, " was reserved while enough was free.");
  } else {
    tool_words_add_size(w, "", avoidable, " of the ");
    tool_words_add_size(w, "", why->reserved, " were reserved although enough was free");
    words_add_causes(why, w);
    tool_words_add(w, ".");
  }
  words_add_rest(why, TIDE_GROWTH_NEEDED, "had to be reserved: too little was free.", w);
  words_add_rest(why, TIDE_GROWTH_UNPARKED, "came back when parked memory was unparked.", w);
  words_add_rest(why, TIDE_GROWTH_BEFORE, "had been reserved before the recording began.", w);
  words_add_rest(why, TIDE_GROWTH_UNKNOWN, "were reserved for requests that were not recorded.", w);
}

// What was in the way, as free bytes: the part of an example that depends on the cause.
static void words_add_obstacle(const tide_growth* g, tool_words* w) {
  switch (g->cause) {
    case TIDE_GROWTH_HOLE:
      tool_words_add_size(w, "; ", g->place_bytes, " were free");
      tool_words_add_size(w, ", the largest block ", g->place_largest, "");
      break;
    case TIDE_GROWTH_SPLIT:
    case TIDE_GROWTH_PASSED: tool_words_add_size(w, "; a block of ", g->place_fitting, " was free"); break;
    case TIDE_GROWTH_EVENT: tool_words_add_size(w, "; ", g->place_waiting, " waited"); break;
    case TIDE_GROWTH_STREAM:
      tool_words_add_size(w, "; ", g->place_bytes + g->other_streams, " were free");
      tool_words_add_size(w, ", ", g->other_streams, " of it on other streams");
      break;
    case TIDE_GROWTH_POOL:
      tool_words_add_size(w, "; ", g->place_bytes + g->other_streams + g->other_pools, " were free");
      tool_words_add_size(w, ", ", g->other_pools, " of it in other pools");
      break;
    case TIDE_GROWTH_CLASS:
      tool_words_add_size(w, "; ", g->place_bytes + g->other_streams + g->other_pools + g->other_class,
                          " were free");
      tool_words_add(w, ", part of it for %s requests", g->is_large ? "small" : "large");
      break;
    default: break;
  }
}

static void example_words(tool_diagnosis* r, const tide_growth* g, tool_words* w) {
  char site[TOOL_SITE_TEXT];
  if (g->at == TIDE_LEDGER_BEFORE) return;
  tool_words_add(w, "entry %llu: ", (unsigned long long)g->at);
  tool_words_add_size(w, "", g->bytes, "");
  if (g->request_at == TIDE_LEDGER_BEFORE) return;
  tool_words_add_size(w, " for a request of ", g->requested_bytes, "");
  tool_words_add(w, " on stream %llu", (unsigned long long)g->stream);
  words_add_obstacle(g, w);
  if (g->stack != 0)
    tool_words_add(w, "; from %s", tool_site_text(&r->sites, tool_sites_find(&r->sites, g->stack), site));
}

// ---------------------------------------------------------------------------------------------------
// Tables

static void causes_emit(tool_emit* emit, tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "cause", NULL },
    { NULL, "cause" },
    { "segments", "segments" },
    { "bytes", "bytes" },
    { "is_avoidable", NULL },
    { "example_entry", NULL },
    { "example", "the largest segment" },
  };
  uint32_t causes[TIDE_GROWTH_COUNT];
  tool_why_order(&r->why, causes);
  tool_emit_table(emit, "why_causes", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < TIDE_GROWTH_COUNT; i++) {
    const tool_why_sum* const sum = &r->why.sums[causes[i]];
    if (sum->count == 0) continue;
    const tide_growth* const growth = &r->why.growths[sum->largest];
    tool_words example = { .length = 0 };
    example_words(r, growth, &example);
    tool_emit_row(emit);
    tool_emit_text(emit, NULL, NULL, tide_growth_cause_name(causes[i]));
    tool_emit_text(emit, NULL, NULL, tool_why_label(causes[i]));
    tool_emit_uint(emit, NULL, NULL, sum->count);
    tool_emit_bytes(emit, NULL, NULL, sum->bytes);
    tool_emit_bool(emit, NULL, NULL, tool_why_is_avoidable(causes[i]));
    tool_emit_uint_if(emit, growth->at != TIDE_LEDGER_BEFORE, NULL, NULL, growth->at);
    tool_emit_text(emit, NULL, NULL, example.length > 0 ? example.text : NULL);
  }
  tool_emit_table_end(emit);
}

static void growth_emit_request(tool_emit* emit, tool_diagnosis* r, const tide_growth* g) {
  const tool_moment moment = tool_moment_of(r->trace, r->device, g->request_at);
  const bool is_known = g->request_at != TIDE_LEDGER_BEFORE;
  char site[TOOL_SITE_TEXT];
  tool_emit_uint_if(emit, is_known, NULL, NULL, g->request_at);
  if (moment.has_time) tool_emit_real(emit, NULL, NULL, moment.ms, 3);
  else tool_emit_text(emit, NULL, NULL, NULL);
  tool_emit_uint_if(emit, is_known, NULL, NULL, g->requested_bytes);
  tool_emit_uint_if(emit, is_known, NULL, NULL, g->rounded_bytes);
  tool_emit_text(emit, NULL, NULL,
                 g->stack != 0 ? tool_site_text(&r->sites, tool_sites_find(&r->sites, g->stack), site)
                               : NULL);
}

static void growth_emit(tool_emit* emit, tool_diagnosis* r, const tide_growth* g) {
  const bool is_judged = g->at != TIDE_LEDGER_BEFORE;
  tool_emit_row(emit);
  tool_emit_format(emit, NULL, NULL, "0x%llx", (unsigned long long)g->address);
  tool_emit_uint(emit, NULL, NULL, g->bytes);
  tool_emit_uint_if(emit, is_judged, NULL, NULL, g->at);
  tool_emit_text(emit, NULL, NULL, tide_growth_cause_name(g->cause));
  tool_emit_uint(emit, NULL, NULL, g->stream);
  tool_emit_pool(emit, r->trace, g->pool);
  tool_emit_text(emit, NULL, NULL, g->is_large ? "large" : "small");
  growth_emit_request(emit, r, g);
  tool_emit_uint_if(emit, is_judged, NULL, NULL, g->place_bytes);
  tool_emit_uint_if(emit, is_judged, NULL, NULL, g->place_largest);
  tool_emit_uint_if(emit, g->place_fitting > 0, NULL, NULL, g->place_fitting);
  tool_emit_uint_if(emit, is_judged, NULL, NULL, g->place_waiting);
  tool_emit_uint_if(emit, is_judged, NULL, NULL, g->other_streams);
  tool_emit_uint_if(emit, is_judged, NULL, NULL, g->other_pools);
  tool_emit_uint_if(emit, is_judged, NULL, NULL, g->other_class);
}

static void growths_emit(tool_emit* emit, tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "address", NULL },       { "bytes", NULL },         { "entry", NULL },
    { "cause", NULL },         { "stream", NULL },        { "pool", NULL },
    { "kind", NULL },          { "request_entry", NULL }, { "request_ms", NULL },
    { "requested", NULL },     { "rounded", NULL },       { "call_site", NULL },
    { "place_free", NULL },    { "place_largest", NULL }, { "place_fitting", NULL },
    { "place_waiting", NULL }, { "other_streams", NULL }, { "other_pools", NULL },
    { "other_class", NULL },
  };
  tool_emit_table(emit, "why_segments", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < r->why.count; i++) growth_emit(emit, r, &r->why.growths[i]);
  tool_emit_table_end(emit);
}

static void places_emit(tool_emit* emit, const tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "entry", NULL }, { "pool", NULL },   { "stream", NULL },  { "kind", NULL },
    { "free", NULL },  { "pieces", NULL }, { "largest", NULL }, { "waiting", NULL },
  };
  tool_emit_table(emit, "why_free", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < r->why.place_count; i++) {
    const tide_ledger_place* const place = &r->why.places[i].place;
    tool_emit_row(emit);
    tool_emit_uint(emit, NULL, NULL, r->why.growths[r->why.places[i].growth].at);
    tool_emit_pool(emit, r->trace, place->pool);
    tool_emit_uint(emit, NULL, NULL, place->stream);
    tool_emit_text(emit, NULL, NULL, place->is_large ? "large" : "small");
    tool_emit_uint(emit, NULL, NULL, place->free_bytes);
    tool_emit_uint(emit, NULL, NULL, place->free_count);
    tool_emit_uint(emit, NULL, NULL, place->largest_bytes);
    tool_emit_uint(emit, NULL, NULL, place->waiting_bytes);
  }
  tool_emit_table_end(emit);
}

void tool_diagnosis_emit_why(tool_emit* emit, tool_diagnosis* r) {
  if (!r->has_segments || r->entry_count == 0 || r->why.count == 0) return;
  tool_words w = { .length = 0 };
  tool_words_add_why(&r->why, &w);
  tool_emit_title(emit, "Why memory was reserved");
  tool_emit_words(emit, "%s", w.text);
  tool_emit_text(emit, "why", NULL, w.text);
  causes_emit(emit, r);
  if (!r->call->is_json) return;
  growths_emit(emit, r);
  places_emit(emit, r);
}
