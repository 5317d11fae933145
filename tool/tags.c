// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tags are sorted as a tree, each before those below it. Two neighbours show what joins them: the parts of
// their paths that are equal. Sums then go up to all tags that are above. Texts of a file that are longer
// than a tag can be are ignored, so the tree is not deep.
#include "tags.h"

#include <stdlib.h>
#include <string.h>

#include "tidemark/device.h"
#include "tool.h"

#define TAG_DEPTH (TIDE_TAG_MOST / 2 + 1)

static const char* segment_tag(const tide_trace* trace, const tide_trace_segment* segment) {
  const char* const tag = tide_trace_segment_tag(trace, segment);
  return strlen(tag) <= TIDE_TAG_MOST ? tag : "";
}

// ---------------------------------------------------------------------------------------------------
// Sums

static void tags_add(tool_tags* tags, const tool_tag* tag) {
  if (tags->count == tags->room) {
    tags->room = 2 * tags->room + 8;
    tags->items = tool_grow(tags->items, tags->room, sizeof *tags->items);
  }
  tags->items[tags->count++] = *tag;
}

static void tag_add(tool_tag* tag, const tool_tag* more) {
  tag->blocks += more->blocks;
  tag->allocated += more->allocated;
  tag->reserved += more->reserved;
  tag->parked += more->parked;
}

static tool_tag segment_sum(const tide_trace* trace, const tide_trace_segment* segment) {
  const tide_trace_block* const blocks = tide_trace_blocks(trace, NULL);
  const bool is_parked = tide_trace_segment_is_parked(trace, segment);
  tool_tag sum = { .reserved = is_parked ? 0 : segment->bytes, .parked = is_parked ? segment->bytes : 0 };
  for (uint64_t i = 0; i < segment->block_count; i++) {
    const tide_trace_block* const block = &blocks[segment->first_block + i];
    if (block->state != TIDE_BLOCK_ALLOCATED) continue;
    sum.blocks++;
    sum.allocated += block->bytes;
  }
  return sum;
}

static void segments_add(tool_tags* tags, const tide_trace* trace, size_t device) {
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  for (size_t i = 0; i < count; i++) {
    if (segments[i].device != device) continue;
    tool_tag sum = segment_sum(trace, &segments[i]);
    tags->allocated += sum.allocated;
    sum.path = segment_tag(trace, &segments[i]);
    sum.length = strlen(sum.path);
    if (sum.length > 0) tags_add(tags, &sum);
  }
}

// ---------------------------------------------------------------------------------------------------
// The tree

// A tag comes before those below it, and these before the next of its own level.
static int tag_order(const void* a, const void* b) {
  const tool_tag* const left = a;
  const tool_tag* const right = b;
  const size_t least = left->length < right->length ? left->length : right->length;
  for (size_t i = 0; i < least; i++) {
    const unsigned char x = (unsigned char)left->path[i];
    const unsigned char y = (unsigned char)right->path[i];
    if (x != y) return x == '/' || (y != '/' && x < y) ? -1 : 1;
  }
  return tool_compare(left->length, right->length);
}

// Sorts all tags, and adds up equal ones.
static void tags_sort(tool_tags* tags) {
  size_t kept = 0;
  if (tags->count > 1) qsort(tags->items, tags->count, sizeof *tags->items, tag_order);
  for (size_t i = 0; i < tags->count; i++) {
    if (kept > 0 && tag_order(&tags->items[kept - 1], &tags->items[i]) == 0)
      tag_add(&tags->items[kept - 1], &tags->items[i]);
    else tags->items[kept++] = tags->items[i];
  }
  tags->count = kept;
}

static bool part_ends(const tool_tag* tag, size_t at) { return at == tag->length || tag->path[at] == '/'; }

// The length of the whole parts with which two tags begin.
static size_t parts_shared(const tool_tag* a, const tool_tag* b) {
  size_t shared = 0;
  for (size_t i = 0; i <= a->length && i <= b->length; i++) {
    if (part_ends(a, i) && part_ends(b, i)) shared = i;
    if (i == a->length || i == b->length || a->path[i] != b->path[i]) break;
  }
  return shared;
}

static void joints_add(tool_tags* tags) {
  const size_t count = tags->count;
  for (size_t i = 1; i < count; i++) {
    const tool_tag joint = { .path = tags->items[i].path,
                             .length = parts_shared(&tags->items[i - 1], &tags->items[i]) };
    if (joint.length > 0) tags_add(tags, &joint);
  }
  tags_sort(tags);
}

static bool tag_is_above(const tool_tag* above, const tool_tag* tag) {
  return above->length < tag->length && tag->path[above->length] == '/' &&
         memcmp(above->path, tag->path, above->length) == 0;
}

// Adds each tag to all that are above it. Those come first, so a tag has only its own sums when it is added.
static void sums_raise(tool_tags* tags) {
  size_t above[TAG_DEPTH];
  size_t depth = 0;
  for (size_t i = 0; i < tags->count; i++) {
    while (depth > 0 && !tag_is_above(&tags->items[above[depth - 1]], &tags->items[i])) depth--;
    for (size_t k = 0; k < depth; k++) tag_add(&tags->items[above[k]], &tags->items[i]);
    if (depth < TAG_DEPTH) above[depth++] = i;
  }
}

// ---------------------------------------------------------------------------------------------------
// What the snapshot lists

// The listed tag with a number, if it is one of the device.
static bool listed_get(const tide_trace* trace, size_t device, size_t number, tide_trace_tag* out) {
  *out = (tide_trace_tag)TIDE_TRACE_TAG_INIT;
  if (tide_trace_get_tag(trace, number, out) != TIDE_OK || out->device != device) return false;
  return out->tag[0] != '\0' && strlen(out->tag) <= TIDE_TAG_MOST;
}

static void budgets_add(tool_tags* tags, const tide_trace* trace, size_t device) {
  tide_trace_tag listed;
  for (size_t i = 0; i < tide_trace_tag_count(trace); i++) {
    if (!listed_get(trace, device, i, &listed)) continue;
    const tool_tag tag = { .path = listed.tag, .length = strlen(listed.tag) };
    tags->has_list = true;
    if (listed.has_budget) tags_add(tags, &tag);
  }
}

static void listed_join(tool_tags* tags, const tide_trace* trace, size_t device) {
  tide_trace_tag listed;
  for (size_t i = 0; tags->has_list && i < tide_trace_tag_count(trace); i++) {
    if (!listed_get(trace, device, i, &listed)) continue;
    const tool_tag key = { .path = listed.tag, .length = strlen(listed.tag) };
    tool_tag* const found = bsearch(&key, tags->items, tags->count, sizeof key, tag_order);
    if (found == NULL) continue;
    found->is_listed = true;
    found->listed = listed;
  }
}

void tool_tags_find(const tide_trace* trace, size_t device, tool_tags* out) {
  *out = (tool_tags){ .items = NULL };
  segments_add(out, trace, device);
  budgets_add(out, trace, device);
  tags_sort(out);
  joints_add(out);
  sums_raise(out);
  if (out->count > 0) listed_join(out, trace, device);
}

void tool_tags_fini(tool_tags* tags) { free(tags->items); }

// ---------------------------------------------------------------------------------------------------
// Pools

void tool_pool_tags_find(const tide_trace* trace, tool_pool_tags* out) {
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  *out = (tool_pool_tags){ .count = tide_trace_pool_count(trace) };
  out->tags = tool_alloc(out->count + 1, sizeof *out->tags);
  for (size_t i = 0; i < count; i++) {
    const char* const tag = segment_tag(trace, &segments[i]);
    if (*tag == '\0' || segments[i].pool == 0 || segments[i].pool >= out->count) continue;
    out->tags[segments[i].pool] = tag;
    out->has_any = true;
  }
}

void tool_pool_tags_fini(tool_pool_tags* tags) { free(tags->tags); }

const char* tool_pool_tag(const tool_pool_tags* tags, uint64_t pool) {
  return pool < tags->count ? tags->tags[pool] : NULL;
}
