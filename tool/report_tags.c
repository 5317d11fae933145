// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The part of the report about tags: what each holds at the end, how much of it is parked, what it may have,
// and what giving way has cost.
#include <math.h>

#include "report.h"

#define NO_LIMIT UINT64_MAX

// ---------------------------------------------------------------------------------------------------
// Memory

static double limit_share(const tide_trace_tag* tag) {
  return tag->limit == NO_LIMIT ? NAN : tool_share(tag->peak_reserved_bytes, tag->limit);
}

// The budget, and what was counted.
static void listed_emit(tool_emit* emit, const tool_tag* tag) {
  const tide_trace_tag* const listed = &tag->listed;
  const bool is = tag->is_listed;
  tool_emit_bytes_if(emit, is, NULL, NULL, listed->peak_reserved_bytes);
  tool_emit_bytes_if(emit, is && listed->limit != NO_LIMIT, NULL, NULL, listed->limit);
  tool_emit_share(emit, NULL, NULL, is ? limit_share(listed) : NAN);
  tool_emit_bool(emit, NULL, NULL, is && listed->has_budget);
  tool_emit_uint_if(emit, is && listed->soft_limit != NO_LIMIT, NULL, NULL, listed->soft_limit);
  tool_emit_uint_if(emit, is, NULL, NULL, listed->guarantee);
  tool_emit_real(emit, NULL, NULL, is ? (double)listed->priority : NAN, 0);
  tool_emit_bool(emit, NULL, NULL, is && listed->yields);
  tool_emit_bool(emit, NULL, NULL, is && listed->is_constant);
  tool_emit_uint_if(emit, is, NULL, NULL, listed->parked_count);
  tool_emit_uint_if(emit, is, NULL, NULL, listed->fetched_count);
  tool_emit_uint_if(emit, is, NULL, NULL, listed->ahead_count);
  tool_emit_uint_if(emit, is, NULL, NULL, listed->sent_bytes);
  tool_emit_uint_if(emit, is, NULL, NULL, listed->fetched_bytes);
  tool_emit_uint_if(emit, is, NULL, NULL, listed->idle_bytes);
  tool_emit_uint_if(emit, is, NULL, NULL, listed->refused_count);
}

static void tag_emit(tool_emit* emit, const tool_tag* tag, uint64_t allocated) {
  tool_emit_row(emit);
  tool_emit_format(emit, NULL, NULL, "%.*s", (int)tag->length, tag->path);
  tool_emit_uint(emit, NULL, NULL, tag->blocks);
  tool_emit_bytes(emit, NULL, NULL, tag->allocated);
  tool_emit_bytes(emit, NULL, NULL, tag->reserved);
  tool_emit_bytes(emit, NULL, NULL, tag->parked);
  tool_emit_share(emit, NULL, NULL, tool_share(tag->allocated, allocated));
  listed_emit(emit, tag);
}

static bool tags_have(const tool_tags* tags, bool (*has)(const tool_tag* tag)) {
  for (size_t i = 0; i < tags->count; i++) {
    if (tags->items[i].is_listed && has(&tags->items[i])) return true;
  }
  return false;
}

static bool has_limit(const tool_tag* tag) { return tag->listed.limit != NO_LIMIT; }

static void memory_emit(tool_emit* emit, const tool_tags* tags) {
  const bool is_limited = tags_have(tags, has_limit);
  const tool_column columns[] = {
    { "tag", "tag" },
    { "blocks", "blocks" },
    { "allocated", "allocated" },
    { "reserved", "reserved" },
    { "parked", "parked" },
    { "share", "share" },
    { "peak_reserved", tags->has_list ? "peak" : NULL },
    { "limit", is_limited ? "limit" : NULL },
    { "limit_share", is_limited ? "of limit" : NULL },
    { "has_budget", NULL },
    { "soft_limit", NULL },
    { "guarantee", NULL },
    { "priority", NULL },
    { "yields", NULL },
    { "is_constant", NULL },
    { "parked_count", NULL },
    { "fetched_count", NULL },
    { "ahead_count", NULL },
    { "sent_bytes", NULL },
    { "fetched_bytes", NULL },
    { "idle_bytes", NULL },
    { "refused_count", NULL },
  };
  tool_emit_title(emit, "Memory by tag at the end");
  tool_emit_table(emit, "tags", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < tags->count; i++) tag_emit(emit, &tags->items[i], tags->allocated);
  tool_emit_table_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// Rules, and what they have cost

static bool has_story(const tool_tag* tag) {
  const tide_trace_tag* const t = &tag->listed;
  return t->has_budget || t->parked_count + t->fetched_count + t->idle_bytes + t->refused_count > 0;
}

static void story_emit(tool_emit* emit, const tool_tag* tag) {
  const tide_trace_tag* const t = &tag->listed;
  tool_emit_row(emit);
  tool_emit_format(emit, NULL, NULL, "%.*s", (int)tag->length, tag->path);
  tool_emit_bytes_if(emit, t->soft_limit != NO_LIMIT, NULL, NULL, t->soft_limit);
  tool_emit_bytes_if(emit, t->guarantee > 0, NULL, NULL, t->guarantee);
  tool_emit_real(emit, NULL, NULL, t->has_budget ? (double)t->priority : NAN, 0);
  tool_emit_text(emit, NULL, NULL, t->has_budget ? t->yields ? "yes" : "no" : NULL);
  tool_emit_uint(emit, NULL, NULL, t->parked_count);
  tool_emit_bytes(emit, NULL, NULL, t->sent_bytes);
  tool_emit_bytes(emit, NULL, NULL, t->fetched_bytes);
  tool_emit_bytes(emit, NULL, NULL, t->idle_bytes);
  tool_emit_uint(emit, NULL, NULL, t->refused_count);
}

static void stories_emit(tool_emit* emit, const tool_tags* tags) {
  static const tool_column columns[] = {
    { NULL, "tag" },        { NULL, "soft limit" }, { NULL, "guarantee" }, { NULL, "priority" },
    { NULL, "yields" },     { NULL, "parked" },     { NULL, "sent" },      { NULL, "fetched" },
    { NULL, "idle given" }, { NULL, "refused" },
  };
  if (!tags_have(tags, has_story)) return;
  tool_emit_title(emit, "Who gave way: times parked, and bytes, since the allocator was made");
  tool_emit_table(emit, NULL, columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < tags->count; i++) {
    if (tags->items[i].is_listed && has_story(&tags->items[i])) story_emit(emit, &tags->items[i]);
  }
  tool_emit_table_end(emit);
}

// The first request that the limit of a tag refused.
static void refusal_emit(tool_emit* emit, const tool_limits* limits) {
  const tool_tag_refusal* const refusal = &limits->by_tag;
  if (limits->tag_count == 0) {
    tool_emit_text(emit, "tag_refusal", NULL, NULL);
    return;
  }
  tool_emit_open(emit, "tag_refusal", NULL);
  tool_emit_uint(emit, "count", NULL, limits->tag_count);
  tool_emit_uint(emit, "entry", NULL, refusal->at);
  tool_emit_uint(emit, "requested", NULL, refusal->bytes);
  tool_emit_text(emit, "tag", NULL, refusal->tag);
  tool_emit_uint(emit, "limit", NULL, refusal->limit);
  tool_emit_uint(emit, "reserved", NULL, refusal->reserved);
  tool_emit_close(emit);
}

void tool_diagnosis_emit_tags(tool_emit* emit, const tool_diagnosis* r) {
  tool_tags tags;
  tool_tags_find(r->trace, r->device, &tags);
  if (tags.count > 0 || r->call->is_json) memory_emit(emit, &tags);
  if (r->call->is_json) refusal_emit(emit, &r->limits);
  else stories_emit(emit, &tags);
  tool_tags_fini(&tags);
}
