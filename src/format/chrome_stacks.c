// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
#include "format/chrome_stacks.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/heap.h"
#include "format/json_text.h"

tide_status tide__chrome_stacks_init(tide__chrome_stacks* stacks, const tide_intern* names,
                                     const tide_heap* heap) {
  *stacks = (tide__chrome_stacks){ .heap = heap, .frames = { .heap = heap }, .texts = { .heap = heap } };
  tide__stack_tree_init(&stacks->tree, heap);
  TIDE_TRY(tide__frames_init(&stacks->frames, names, heap));
  const size_t count = (size_t)tide_intern_counts_of(names).stacks + 1;
  stacks->items = tide__heap_alloc(heap, count, sizeof *stacks->items);
  stacks->is_known = tide__heap_alloc(heap, count, sizeof *stacks->is_known);
  stacks->count = count;
  TIDE_REQUIRE(stacks->items != NULL && stacks->is_known != NULL, TIDE_ERR_NO_MEMORY,
               "trace_write: no memory for %zu stacks", count);
  return TIDE_OK;
}

void tide__chrome_stacks_fini(tide__chrome_stacks* stacks) {
  tide__heap_release(stacks->heap, stacks->items, stacks->count, sizeof *stacks->items);
  tide__heap_release(stacks->heap, stacks->is_known, stacks->count, sizeof *stacks->is_known);
  tide__bytes_fini(&stacks->texts);
  tide__stack_tree_fini(&stacks->tree);
  tide__frames_fini(&stacks->frames);
}

// ---------------------------------------------------------------------------------------------------
// Examining

// Adds a frame as the name of a slice. A long one loses its first folders.
static tide_status text_add(tide__chrome_stacks* stacks, uint64_t frame, uint16_t* out_bytes) {
  char text[TIDE__FRAME_TEXT];
  char name[TIDE__CHROME_NAME];
  const size_t bytes = tide__frames_text(&stacks->frames, frame, text);
  size_t from = 0;
  while (bytes - from > sizeof name) {
    const char* const slash = memchr(text + from, '/', bytes - from);
    if (slash == NULL) break;
    from = (size_t)(slash - text) + 1;
  }
  *out_bytes = (uint16_t)tide__shown_copy(name, sizeof name, text + from, bytes - from);
  return tide__bytes_add(&stacks->texts, name, *out_bytes);
}

static tide_status names_add(tide__chrome_stacks* stacks, const uint64_t* frames, size_t count,
                             tide__chrome_stack* stack) {
  const tide_frames_site site = tide_frames_find_site(&stacks->frames, frames, count);
  stack->texts = stacks->texts.used;
  if (site.own == count || !tide__frames_is_shown(&stacks->frames, frames[site.own])) return TIDE_OK;
  const bool is_package = site.called < count &&
                          tide__frames_kind(&stacks->frames, frames[site.called]) == TIDE_FRAME_KIND_PACKAGE;
  TIDE_TRY(text_add(stacks, frames[is_package ? site.called : site.own], &stack->name_bytes));
  const bool has_other = is_package && tide__frames_is_own(&stacks->frames, frames[site.own]);
  return has_other ? text_add(stacks, frames[site.own], &stack->from_bytes) : TIDE_OK;
}

static tide_status frames_add(tide__chrome_stacks* stacks, const uint64_t* frames, size_t count,
                              tide__chrome_stack* stack) {
  for (size_t i = count; i-- > 0;) {
    if (!tide__frames_is_shown(&stacks->frames, frames[i])) continue;
    TIDE_TRY(tide__stack_tree_add(&stacks->tree, stack->node, frames[i], &stack->node));
  }
  return TIDE_OK;
}

tide_status tide__chrome_stacks_find(tide__chrome_stacks* stacks, uint32_t stack, tide__chrome_stack* out) {
  *out = (tide__chrome_stack){ .node = 0 };
  if (stack == 0 || stack >= stacks->count) return TIDE_OK;
  if (!stacks->is_known[stack]) {
    size_t count = 0;
    const uint64_t* const frames = tide_intern_stack(stacks->frames.names, stack, &count);
    TIDE_TRY(names_add(stacks, frames, count, out));
    TIDE_TRY(frames_add(stacks, frames, count, out));
    stacks->items[stack] = *out;
    stacks->is_known[stack] = true;
  }
  *out = stacks->items[stack];
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Writing

static const char* kind_category(tide_frame_kind kind) {
  if (kind >= TIDE_FRAME_KIND_OWN_NATIVE) return "program";
  return kind == TIDE_FRAME_KIND_PACKAGE ? "package" : kind == TIDE_FRAME_KIND_STANDARD ? "python" : "torch";
}

void tide__chrome_stacks_write(const tide__chrome_stacks* stacks, tide__output* output) {
  if (stacks->tree.count == 0) return;
  tide__output_text(output, ",\"stackFrames\":{");
  for (size_t i = 0; i < stacks->tree.count; i++) {
    const tide__stack_node* const node = &stacks->tree.nodes[i];
    char text[TIDE__FRAME_TEXT];
    const size_t bytes = tide__frames_text(&stacks->frames, node->frame, text);
    tide__output_format(output, "%s\n\"%zu\":{\"category\":\"%s\",\"name\":", i > 0 ? "," : "", i + 1,
                        kind_category(tide__frames_kind(&stacks->frames, node->frame)));
    tide__output_json_text(output, text, bytes, TIDE__JSON_SHOW);
    if (node->parent != 0) tide__output_format(output, ",\"parent\":\"%" PRIu32 "\"", node->parent);
    tide__output_byte(output, '}');
  }
  tide__output_text(output, "\n}");
}
