// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The part of the report about tags: what each holds at the end, and how much of it is parked.
#include "report.h"

static void tag_emit(tool_emit* emit, const tool_tag* tag, uint64_t allocated) {
  tool_emit_row(emit);
  tool_emit_format(emit, NULL, NULL, "%.*s", (int)tag->length, tag->path);
  tool_emit_uint(emit, NULL, NULL, tag->blocks);
  tool_emit_bytes(emit, NULL, NULL, tag->allocated);
  tool_emit_bytes(emit, NULL, NULL, tag->reserved);
  tool_emit_bytes(emit, NULL, NULL, tag->parked);
  tool_emit_share(emit, NULL, NULL, tool_share(tag->allocated, allocated));
}

void tool_diagnosis_emit_tags(tool_emit* emit, const tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "tag", "tag" },           { "blocks", "blocks" }, { "allocated", "allocated" },
    { "reserved", "reserved" }, { "parked", "parked" }, { "share", "share" }
  };
  tool_tags tags;
  tool_tags_find(r->trace, r->device, &tags);
  if (tags.count > 0 || r->call->is_json) {
    tool_emit_title(emit, "Memory by tag at the end");
    tool_emit_table(emit, "tags", columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < tags.count; i++) tag_emit(emit, &tags.items[i], tags.allocated);
    tool_emit_table_end(emit);
  }
  tool_tags_fini(&tags);
}
