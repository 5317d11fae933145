// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The parts of a device, as docs/view.md describes them: sequences of columns.
#include <stdlib.h>

#include "view.h"

#define PART_BLOCKS ((size_t)1 << 18)  // of one part at most
#define TIME_NS 1000u
#define PART_NAME 40  // of a part of a device, without the device

const char* tool_view_name(char letter, size_t number, const char* part, char out[TOOL_VIEW_NAME]) {
  (void)snprintf(out, TOOL_VIEW_NAME, "%c%zu-%s", letter, number, part);
  return out;
}

static tool_view_part* part_add(tool_view_parts* parts, const tool_view_device* device, const char* name,
                                uint32_t rank, tool_view_bytes* bytes) {
  char text[TOOL_VIEW_NAME];
  tool_view_part* const part =
      tool_view_parts_add(parts, tool_view_name('d', device->number, name, text), rank, bytes);
  part->device = device->number;
  return part;
}

// ---------------------------------------------------------------------------------------------------
// Segments

#define RANGE_COLUMN(name, expression)                                        \
  static uint64_t name(const tool_view_memory* m, const tool_view_range* r) { \
    (void)m;                                                                  \
    return expression;                                                        \
  }
RANGE_COLUMN(range_address, r->address / m->unit)
RANGE_COLUMN(range_bytes, r->bytes / m->unit)
RANGE_COLUMN(range_begin, r->begin)
RANGE_COLUMN(range_life, r->life)
RANGE_COLUMN(range_stream, r->stream)
RANGE_COLUMN(range_pool, r->pool)
RANGE_COLUMN(range_lane, r->lane)
RANGE_COLUMN(range_flags, r->flags)
RANGE_COLUMN(range_stack, r->stack)
RANGE_COLUMN(range_cause, r->cause)

typedef enum column_kind { COLUMN_PLAIN, COLUMN_RISING, COLUMN_SIGNED } column_kind;

static void value_put(tool_view_bytes* out, column_kind kind, uint64_t before, uint64_t value) {
  if (kind == COLUMN_SIGNED) tool_view_put_change(out, before, value);
  else tool_view_put(out, kind == COLUMN_RISING ? value - before : value);
}

static void segments_add(tool_view_parts* parts, const tool_view_device* device) {
  static const struct {
    uint64_t (*value)(const tool_view_memory* m, const tool_view_range* r);
    column_kind kind;
  } columns[] = {
    { range_address, COLUMN_SIGNED }, { range_bytes, COLUMN_PLAIN },  { range_begin, COLUMN_RISING },
    { range_life, COLUMN_PLAIN },     { range_stream, COLUMN_PLAIN }, { range_pool, COLUMN_PLAIN },
    { range_lane, COLUMN_PLAIN },     { range_flags, COLUMN_PLAIN },  { range_stack, COLUMN_PLAIN },
    { range_cause, COLUMN_PLAIN },
  };
  const tool_view_memory* const m = &device->memory;
  tool_view_bytes out = { .data = NULL };
  size_t count = 0;
  for (size_t i = 0; i < m->range_count; i++) count += m->ranges[i].begin != TOOL_VIEW_GONE;
  for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
    uint64_t before = 0;
    tool_view_put(&out, count);
    for (size_t i = 0; i < m->range_count; i++) {
      if (m->ranges[i].begin == TOOL_VIEW_GONE) continue;
      const uint64_t value = columns[c].value(m, &m->ranges[i]);
      value_put(&out, columns[c].kind, before, value);
      before = value;
    }
  }
  (void)part_add(parts, device, "segments", TOOL_VIEW_SEGMENTS, &out);
}

// ---------------------------------------------------------------------------------------------------
// Blocks

#define BLOCK_COLUMN(name, expression)                                        \
  static uint64_t name(const tool_view_memory* m, const tool_view_block* b) { \
    (void)m;                                                                  \
    return expression;                                                        \
  }
BLOCK_COLUMN(block_begin, b->begin)
BLOCK_COLUMN(block_life, b->life)
BLOCK_COLUMN(block_wait, b->wait)
BLOCK_COLUMN(block_lane, tool_view_lane_of(m, b->address))
BLOCK_COLUMN(block_offset, (b->address - m->lanes[tool_view_lane_of(m, b->address)].address) / m->unit)
BLOCK_COLUMN(block_bytes, b->bytes / m->unit)
BLOCK_COLUMN(block_slack, b->slack)
BLOCK_COLUMN(block_stack, b->stack)
BLOCK_COLUMN(block_stream, b->stream)
BLOCK_COLUMN(block_pool, b->pool)

void tool_view_blocks_put(tool_view_bytes* out, const tool_view_memory* m, const uint32_t* numbers,
                          size_t count) {
  static uint64_t (*const columns[])(const tool_view_memory* m, const tool_view_block* b) = {
    block_begin, block_life,  block_wait,  block_lane,   block_offset,
    block_bytes, block_slack, block_stack, block_stream, block_pool,
  };
  for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
    uint64_t before = 0;
    tool_view_put(out, count);
    for (size_t i = 0; i < count; i++) {
      const uint64_t value = columns[c](m, &m->blocks[numbers[i]]);
      value_put(out, c == 0 ? COLUMN_RISING : COLUMN_PLAIN, before, value);
      before = value;
    }
  }
}

// The level of a block by its length in positions.
uint32_t tool_view_block_level(const tool_view_memory* m, const tool_view_block* block) {
  const uint64_t length = (uint64_t)block->life + block->wait;
  if (length == 0 || block->begin + length > m->entry_count) return TOOL_VIEW_LEVELS - 1;
  uint32_t level = 0;
  while (level + 1 < TOOL_VIEW_LEVELS && length >> (level + 1) != 0) level++;
  return level;
}

// The numbers of all blocks, those of level k from ends[k - 1] to ends[k]; within a level by their begin.
static uint32_t* blocks_sort(const tool_view_memory* m, size_t ends[TOOL_VIEW_LEVELS]) {
  size_t next[TOOL_VIEW_LEVELS + 1] = { 0 };
  uint32_t* const numbers = tool_alloc(m->block_count + 1, sizeof *numbers);
  for (size_t i = 0; i < m->block_count; i++) {
    if (m->blocks[i].begin != TOOL_VIEW_GONE) next[tool_view_block_level(m, &m->blocks[i]) + 1]++;
  }
  for (size_t k = 0; k < TOOL_VIEW_LEVELS; k++) ends[k] = next[k + 1] += next[k];
  for (size_t i = 0; i < m->block_count; i++) {
    if (m->blocks[i].begin != TOOL_VIEW_GONE)
      numbers[next[tool_view_block_level(m, &m->blocks[i])]++] = (uint32_t)i;
  }
  return numbers;
}

static void blocks_add(tool_view_parts* parts, const tool_view_device* device) {
  size_t ends[TOOL_VIEW_LEVELS];
  uint32_t* const numbers = blocks_sort(&device->memory, ends);
  for (uint32_t level = TOOL_VIEW_LEVELS; level-- > 0;) {
    size_t at = level > 0 ? ends[level - 1] : 0;
    for (size_t piece = 0; at < ends[level]; piece++) {
      const size_t rest = ends[level] - at;
      const size_t count = rest < PART_BLOCKS ? rest : PART_BLOCKS;
      tool_view_bytes out = { .data = NULL };
      char name[PART_NAME];
      (void)snprintf(name, sizeof name, "blocks-%u-%zu", level, piece);
      tool_view_blocks_put(&out, &device->memory, numbers + at, count);
      tool_view_part* const part =
          part_add(parts, device, name, TOOL_VIEW_BLOCKS + TOOL_VIEW_LEVELS - 1 - level, &out);
      part->level = level;
      part->block_count = count;
      at += count;
    }
  }
  free(numbers);
}

// ---------------------------------------------------------------------------------------------------
// The rest

// An entry without a time has that of the one before it.
static void times_add(tool_view_parts* parts, const tool_view_device* device) {
  const tool_view_memory* const m = &device->memory;
  uint64_t first_ns = 0;
  uint64_t span_ns = 0;
  if (!tool_device_times(m->trace, device->diagnosis.device, &first_ns, &span_ns)) return;
  tool_view_bytes out = { .data = NULL };
  uint64_t before = first_ns / TIME_NS;
  tool_view_put(&out, m->entry_count);
  for (uint64_t i = 0; i < m->entry_count; i++) {
    const bool has_time = (m->entries[i].absent & TIDE_ENTRY_TIME) == 0;
    const uint64_t time = has_time ? m->entries[i].time_ns / TIME_NS : before;
    tool_view_put_change(&out, before, time);
    before = time;
  }
  (void)part_add(parts, device, "times", TOOL_VIEW_TIMES, &out);
}

static bool entry_is_other(const tide_trace_entry* entry) { return entry->action >= TIDE_ACTION_SNAPSHOT; }

// A column of `others`.
static uint64_t other_value(const tool_view_memory* m, const tide_trace_entry* entry, size_t column) {
  switch (column) {
    case 1: return entry->action;
    case 2: return entry->bytes;
    case 3: return tool_view_text(m->stacks, tide_intern_note(m->stacks->names, entry->note).metadata);
    default: return tool_view_stack(m->stacks, entry->stack);
  }
}

static void others_add(tool_view_parts* parts, const tool_view_device* device) {
  const tool_view_memory* const m = &device->memory;
  tool_view_bytes out = { .data = NULL };
  size_t count = 0;
  for (uint64_t i = 0; i < m->entry_count; i++) count += entry_is_other(&m->entries[i]);
  for (size_t c = 0; c < 5; c++) {
    uint64_t before = 0;
    tool_view_put(&out, count);
    for (uint64_t i = 0; i < m->entry_count; i++) {
      if (!entry_is_other(&m->entries[i])) continue;
      tool_view_put(&out, c == 0 ? i - before : other_value(m, &m->entries[i], c));
      before = i;
    }
  }
  (void)part_add(parts, device, "others", TOOL_VIEW_OTHERS, &out);
}

// It is only in the page if blocks are left out.
static void curves_add(tool_view_parts* parts, const tool_view_device* device) {
  const tool_view_curves* const curves = &device->memory.fine;
  tool_view_bytes out = { .data = NULL };
  for (size_t c = 0; c < (size_t)3 * TOOL_VIEW_CURVE_COUNT; c++) {
    uint64_t before = 0;
    tool_view_put(&out, curves->count);
    for (size_t i = 0; i < curves->count; i++) {
      const tide_timeline_range* const range = tool_view_range_of(curves, c / 3, i);
      const uint64_t value = c % 3 == 0 ? range->least : c % 3 == 1 ? range->most : range->last;
      tool_view_put_change(&out, before, value);
      before = value;
    }
  }
  part_add(parts, device, "curves", TOOL_VIEW_CURVES, &out)->is_left_out = true;
}

static void whatif_add(tool_view_parts* parts, const tool_view_device* device) {
  const tool_trials* const trials = &device->whatif.trials;
  for (size_t i = 0; i < trials->count; i++) {
    tool_view_bytes out = { .data = NULL };
    char name[PART_NAME];
    tool_view_put(&out, trials->curve_count);
    for (size_t k = 0; k < trials->curve_count; k++) tool_view_put(&out, trials->rows[i].curve[k] / 512);
    (void)snprintf(name, sizeof name, "whatif-%zu", i);
    (void)part_add(parts, device, name, TOOL_VIEW_WHATIF, &out);
  }
}

void tool_view_parts_of(tool_view_parts* parts, const tool_view_device* device) {
  segments_add(parts, device);
  blocks_add(parts, device);
  curves_add(parts, device);
  others_add(parts, device);
  times_add(parts, device);
  whatif_add(parts, device);
}
