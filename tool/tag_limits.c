// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A limit was in the way if what its tag had reserved, and the request, are more together. Idle memory of the
// tag went before, so what is left of it could not serve the request.
#include "tag_limits.h"

#include <stdlib.h>
#include <string.h>

#include "tidemark/device.h"

#define PICTURES_MOST 1000

void tool_tag_limits_init(tool_tag_limits* limits, const tide_trace* trace, size_t device) {
  const size_t count = tide_trace_tag_count(trace);
  *limits = (tool_tag_limits){ .items = tool_alloc(count + 1, sizeof *limits->items) };
  tool_pool_tags_find(trace, &limits->pools);
  for (size_t i = 0; i < count; i++) {
    tide_trace_tag tag = TIDE_TRACE_TAG_INIT;
    if (tide_trace_get_tag(trace, i, &tag) != TIDE_OK || tag.device != device) continue;
    const size_t length = strlen(tag.tag);
    if (tag.limit != UINT64_MAX && length > 0 && length <= TIDE_TAG_MOST)
      limits->items[limits->count++] = tag;
  }
}

void tool_tag_limits_fini(tool_tag_limits* limits) {
  tool_pool_tags_fini(&limits->pools);
  free(limits->items);
}

static bool tag_is_under(const char* tag, const char* above) {
  const size_t length = strlen(above);
  return tag != NULL && strncmp(tag, above, length) == 0 && (tag[length] == '\0' || tag[length] == '/');
}

static uint64_t reserved_under(const tool_tag_limits* limits, const tool_picture* picture, const char* tag) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < picture->segment_count; i++) {
    const tide_ledger_segment* const segment = &picture->segments[i];
    if (!segment->is_parked && tag_is_under(tool_pool_tag(&limits->pools, segment->pool), tag))
      bytes += segment->bytes;
  }
  return bytes;
}

static bool limit_is_above(const tide_trace_tag* item, const char* tag, const tool_tag_refusal* found) {
  return tag_is_under(tag, item->tag) && (found->tag == NULL || strlen(item->tag) > strlen(found->tag));
}

int tool_tag_limits_ask(tool_tag_limits* limits, tide_ledger* ledger, const tide_trace_entry* entry,
                        uint64_t at, tool_tag_refusal* out) {
  const char* const tag = tool_pool_tag(&limits->pools, entry->pool);
  tool_picture picture;
  *out = (tool_tag_refusal){ .at = at, .bytes = entry->bytes };
  if (limits->count == 0 || tag == NULL || (entry->absent & TIDE_ENTRY_POOL) != 0) return TOOL_DONE;
  if (limits->pictures++ >= PICTURES_MOST) return TOOL_DONE;
  const int status = tool_picture_take(ledger, at, &picture);
  if (status != TOOL_DONE) return status;
  for (size_t i = 0; i < limits->count; i++) {
    const tide_trace_tag* const item = &limits->items[i];
    if (!limit_is_above(item, tag, out)) continue;
    const uint64_t reserved = reserved_under(limits, &picture, item->tag);
    if (reserved <= item->limit && item->limit - reserved >= entry->bytes) continue;
    out->tag = item->tag;
    out->limit = item->limit;
    out->reserved = reserved;
  }
  tool_picture_fini(&picture);
  return TOOL_DONE;
}
