// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The tags of a snapshot. They are known from its final list of segments, so the sums are those at the end.
// What a tag may have, and what was counted, is known if the snapshot lists its tags.
#ifndef TIDEMARK_TOOL_TAGS_H
#define TIDEMARK_TOOL_TAGS_H

#include "tidemark/trace.h"

// What the pools of a tag and of those below it hold together.
typedef struct tool_tag {
  const char* path;  // borrowed from the trace; its first `length` bytes
  size_t length;
  uint64_t blocks;  // that are handed out
  uint64_t allocated;
  uint64_t reserved;  // without parked memory
  uint64_t parked;
  bool is_listed;  // by the snapshot
  tide_trace_tag listed;
} tool_tag;

// All tags that pools have, those with a budget, and those above them that join several: one above a single
// tag says nothing new.
typedef struct tool_tags {
  tool_tag* items;  // owned; each behind the one above it
  size_t count;
  size_t room;
  uint64_t allocated;  // of all memory of the device, with a tag or without
  bool has_list;       // the snapshot lists its tags
} tool_tags;

// Cost: O(n log n) for n segments and tags.
void tool_tags_find(const tide_trace* trace, size_t device, tool_tags* out);
void tool_tags_fini(tool_tags* tags);

// The tags of pools.
typedef struct tool_pool_tags {
  const char** tags;  // owned: by the number of the pool; NULL: it has none, or none is known
  size_t count;       // of pools
  bool has_any;
} tool_pool_tags;

// Cost: O(n) for n segments.
void tool_pool_tags_find(const tide_trace* trace, tool_pool_tags* out);
void tool_pool_tags_fini(tool_pool_tags* tags);
// The tag of a pool, or NULL.
const char* tool_pool_tag(const tool_pool_tags* tags, uint64_t pool);

#endif
