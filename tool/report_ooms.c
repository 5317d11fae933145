// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The part of the report about refused requests: why each was refused, in words and tables.
#include "report.h"

static void refusal_words(tool_diagnosis* r, const tool_refusal* refusal, tool_words* w) {
  const tool_moment moment = tool_moment_of(r->trace, r->device, refusal->at);
  char when[TOOL_MOMENT_TEXT];
  char site[TOOL_SITE_TEXT];
  tool_words_add(w, "%s: ", tool_moment_text(&moment, when));
  tool_words_add_size(w, "", refusal->bytes, "");
  tool_words_add(w, " on stream %llu", (unsigned long long)refusal->stream);
  if (refusal->stack != 0)
    tool_words_add(w, ", from %s",
                   tool_site_text(&r->sites, tool_sites_find(&r->sites, refusal->stack), site));
  tool_words_add_size(w, ". ", refusal->reserved, " were reserved");
  if (refusal->free_bytes == 0) {
    tool_words_add(w, ", all of it in use.");
    return;
  }
  tool_words_add_size(w, ", of which ", refusal->free_bytes, " were free");
  if (refusal->place_pieces == 0) {
    tool_words_add(w, ", but none that this request could use.");
    return;
  }
  tool_words_add(w, "; this request could use %llu free block%s", (unsigned long long)refusal->place_pieces,
                 refusal->place_pieces == 1 ? "" : "s");
  tool_words_add_size(w, " of ", refusal->place_free, " in total");
  tool_words_add_size(w, ", the largest ", refusal->place_largest, ".");
}

static void limits_words(const tool_limits* limits, const tool_refusal* refusal, tool_words* w) {
  char sizes[2][TOOL_SIZE_TEXT];
  if (limits->is_device_full) {
    tool_words_add_size(w, " The device itself had ", refusal->device_free, " left.");
    return;
  }
  if (refusal->has_device_free)
    tool_words_add_size(w, " The device had ", refusal->device_free,
                        " left, so the program had a limit of its own:");
  else tool_words_add(w, " The limit was not recorded. It was");
  tool_size_pair(limits->at_least, limits->less_than, sizes[0], sizes[1]);
  tool_words_add(w, " at least %s and less than %s.", sizes[0], sizes[1]);
}

static void refusals_emit_words(tool_emit* emit, tool_diagnosis* r) {
  for (size_t i = 0; i < r->refusal_count; i++) {
    tool_words w = { .length = 0 };
    refusal_words(r, &r->refusals[i], &w);
    tool_words_add_missed(r, i, &w);
    tool_words_add_room(r, i, &w);
    if (i == 0) limits_words(&r->limits, &r->refusals[i], &w);
    tool_emit_words(emit, "%s", w.text);
  }
  if (r->limits.count > r->refusal_count)
    tool_emit_words(emit, "Requests refused later: %llu.",
                    (unsigned long long)(r->limits.count - r->refusal_count));
}

static void room_emit(tool_emit* emit, const tool_room* room) {
  static const char* const ways[] = { NULL, "hole", "segments" };
  tool_emit_uint(emit, NULL, NULL, room->missing_bytes);
  tool_emit_bool(emit, NULL, NULL, room->is_exact);
  tool_emit_uint_if(emit, room->has_hole, NULL, NULL, room->hole_bytes);
  tool_emit_uint_if(emit, room->has_segments, NULL, NULL, room->segments_bytes);
  tool_emit_uint_if(emit, room->has_segments, NULL, NULL, room->given_bytes);
  tool_emit_bool(emit, NULL, NULL, room->is_least);
  tool_emit_text(emit, NULL, NULL, ways[room->way]);
}

void tool_diagnosis_emit_refusals(tool_emit* emit, const char* key, const tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "entry", NULL },         { "bytes", NULL },
    { "stream", NULL },        { "is_large", NULL },
    { "reserved", NULL },      { "allocated", NULL },
    { "free", NULL },          { "place_free", NULL },
    { "place_pieces", NULL },  { "place_largest", NULL },
    { "segment_bytes", NULL }, { "device_free", NULL },
    { "missing", NULL },       { "is_missing_exact", NULL },
    { "hole_bytes", NULL },    { "segments_bytes", NULL },
    { "given_bytes", NULL },   { "is_least", NULL },
    { "way", NULL },
  };
  tool_emit_table(emit, key, columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < r->refusal_count; i++) {
    const tool_refusal* const refusal = &r->refusals[i];
    tool_emit_row(emit);
    tool_emit_uint(emit, NULL, NULL, refusal->at);
    tool_emit_uint(emit, NULL, NULL, refusal->bytes);
    tool_emit_uint(emit, NULL, NULL, refusal->stream);
    tool_emit_bool(emit, NULL, NULL, refusal->is_large);
    tool_emit_uint(emit, NULL, NULL, refusal->reserved);
    tool_emit_uint(emit, NULL, NULL, refusal->allocated);
    tool_emit_uint(emit, NULL, NULL, refusal->free_bytes);
    tool_emit_uint(emit, NULL, NULL, refusal->place_free);
    tool_emit_uint(emit, NULL, NULL, refusal->place_pieces);
    tool_emit_uint(emit, NULL, NULL, refusal->place_largest);
    tool_emit_uint(emit, NULL, NULL, refusal->segment_bytes);
    tool_emit_uint_if(emit, refusal->has_device_free, NULL, NULL, refusal->device_free);
    room_emit(emit, &r->rooms[i]);
  }
  tool_emit_table_end(emit);
}

static void ranges_emit(tool_emit* emit, const tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "entry", "refused at entry" },
    { "pool", "pool" },
    { "stream", "stream" },
    { "kind", "kind" },
    { "free", "free" },
    { "pieces", "pieces" },
    { "largest", "largest" },
  };
  size_t total = 0;
  for (size_t i = 0; i < r->refusal_count; i++) total += r->refusals[i].ranges.count;
  if (total == 0 && !r->call->is_json) return;
  tool_emit_table(emit, "oom_free_ranges", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < r->refusal_count; i++) {
    const tool_sums* const ranges = &r->refusals[i].ranges;
    for (size_t k = 0; k < ranges->count; k++) {
      const tool_sum* const range = &ranges->items[k];
      tool_emit_row(emit);
      tool_emit_uint(emit, NULL, NULL, r->refusals[i].at);
      tool_emit_pool(emit, r->trace, tool_range_pool(range));
      tool_emit_uint(emit, NULL, NULL, range->other);
      tool_emit_text(emit, NULL, NULL, tool_range_is_large(range) ? "large" : "small");
      tool_emit_bytes(emit, NULL, NULL, range->bytes);
      tool_emit_uint(emit, NULL, NULL, range->count);
      tool_emit_bytes(emit, NULL, NULL, range->largest);
    }
  }
  tool_emit_table_end(emit);
}

static void trials_emit(tool_emit* emit, const tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "settings", "setting" },     { "is_served", "serves it" },    { "runs_through", "completes" },
    { "first_oom", "refused at" }, { "peak_reserved", "reserved" },
  };
  char limit[TOOL_SIZE_TEXT];
  char text[TOOL_POLICY_TEXT];
  tool_emit_title(emit, "Would another setting have served it? Replays with a limit of %s",
                  tool_size_text(r->limit.bytes, limit));
  tool_emit_table(emit, "oom_settings", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < r->trials.count; i++) {
    const tool_trial* const trial = &r->trials.rows[i];
    if (trial->status != TIDE_OK) continue;
    const tide_replay_result* const result = &trial->result;
    const char* const settings = tool_policy_settings(&trial->device, text);
    tool_emit_row(emit);
    tool_emit_text(emit, NULL, NULL, *settings == '\0' && !r->call->is_json ? "(defaults)" : settings);
    tool_emit_bool(emit, NULL, NULL, result->ooms == 0 || result->first_oom > r->refusals[0].at);
    tool_emit_bool(emit, NULL, NULL, result->ooms == 0);
    if (result->ooms == 0) tool_emit_text(emit, NULL, NULL, NULL);
    else tool_emit_uint(emit, NULL, NULL, result->first_oom);
    tool_emit_bytes(emit, NULL, NULL, result->peak_reserved);
  }
  tool_emit_table_end(emit);
}

void tool_diagnosis_emit_ooms(tool_emit* emit, tool_diagnosis* r) {
  if (r->refusal_count == 0 || !r->knows_reserved) return;
  tool_emit_title(emit, "Refused requests");
  refusals_emit_words(emit, r);
  if (r->call->is_json) tool_diagnosis_emit_refusals(emit, "oom_requests", r);
  tool_emit_bool(emit, "is_device_full", NULL, r->limits.is_device_full);
  ranges_emit(emit, r);
  tool_diagnosis_emit_rooms(emit, r);
  if (r->trials.count > 0) trials_emit(emit, r);
}
