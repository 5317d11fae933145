// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Who holds memory at the peak of allocated memory. Blocks are sorted by size, call sites by the sum of their
// requests: O(blocks log blocks).
#include "report.h"

#include <stdlib.h>

#include "sums.h"

// Blocks in use, the largest first; then by address.
static int block_order(const void* a, const void* b) {
  const tide_ledger_block* const left = a;
  const tide_ledger_block* const right = b;
  if (left->requested_bytes != right->requested_bytes)
    return left->requested_bytes > right->requested_bytes ? -1 : 1;
  return (left->address > right->address) - (left->address < right->address);
}

// The segment that contains an address.
static const tide_ledger_segment* picture_segment(const tool_picture* picture, uint64_t address) {
  size_t low = 0;
  size_t high = picture->segment_count;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    if (picture->segments[middle].address <= address) low = middle;
    else high = middle;
  }
  return &picture->segments[low];
}

// The age of a block in ms; below 0 if it is unknown.
static double block_age_ms(const tool_diagnosis* r, const tide_ledger_block* block, uint64_t at) {
  const tide_trace_entry* const entries = tide_trace_entries(r->trace, r->device, NULL);
  if (block->made_at == TIDE_LEDGER_BEFORE || at == TIDE_LEDGER_BEFORE || !r->peak_allocated.has_time ||
      (entries[block->made_at].absent & TIDE_ENTRY_TIME) != 0 ||
      entries[at].time_ns < entries[block->made_at].time_ns)
    return -1;
  return (double)(entries[at].time_ns - entries[block->made_at].time_ns) / 1e6;
}

const char* tool_diagnosis_site_label(const tool_diagnosis* r) {
  const bool has_stacks = tide_intern_counts_of(tide_trace_names(r->trace)).stacks > 0;
  return has_stacks || !r->faults.is_from_start ? "call site" : NULL;
}

void tool_diagnosis_emit_site(tool_emit* emit, tool_diagnosis* r, uint32_t stack, uint64_t made_at) {
  char text[TOOL_SITE_TEXT];
  const tool_site site = tool_sites_find(&r->sites, stack);
  const bool is_old = made_at == TIDE_LEDGER_BEFORE && r->entry_count > 0 && !tool_site_is_known(site);
  tool_emit_text(emit, NULL, NULL, is_old ? "(before the recording)" : tool_site_text(&r->sites, site, text));
}

static void block_emit(tool_emit* emit, tool_diagnosis* r, const tide_ledger_block* block) {
  const tide_ledger_segment* const segment = picture_segment(&r->peak, block->address);
  const double age_ms = block_age_ms(r, block, r->peaks.live.at);
  tool_emit_row(emit);
  tool_emit_format(emit, NULL, NULL, "0x%llx", (unsigned long long)block->address);
  tool_emit_bytes(emit, NULL, NULL, block->requested_bytes);
  tool_emit_uint(emit, NULL, NULL, block->bytes);
  if (age_ms < 0) tool_emit_text(emit, NULL, NULL, NULL);
  else tool_emit_real(emit, NULL, NULL, age_ms, 3);
  tool_emit_uint(emit, NULL, NULL, segment->stream);
  tool_emit_pool(emit, r->trace, segment->pool);
  tool_emit_text(emit, NULL, NULL, tide_block_state_name(block->state));
  tool_diagnosis_emit_site(emit, r, block->stack, block->made_at);
}

static const char* peak_name(const tool_diagnosis* r) {
  return r->entry_count > 0 ? "the peak of allocated memory" : "the end";
}

static void blocks_emit(tool_emit* emit, tool_diagnosis* r) {
  const tool_column columns[] = {
    { "address", "address" }, { "requested", "bytes" },
    { "bytes", NULL },        { "age_ms", r->peak_allocated.has_time ? "age (ms)" : NULL },
    { "stream", "stream" },   { "pool", "pool" },
    { "state", NULL },        { "call_site", tool_diagnosis_site_label(r) },
  };
  tide_ledger_block* const blocks = tool_alloc(r->peak.block_count + 1, sizeof *blocks);
  size_t count = 0;
  for (size_t i = 0; i < r->peak.block_count; i++) {
    if (r->peak.blocks[i].state != TIDE_BLOCK_INACTIVE) blocks[count++] = r->peak.blocks[i];
  }
  if (count > 1) qsort(blocks, count, sizeof *blocks, block_order);
  tool_emit_title(emit, "Largest live blocks at %s", peak_name(r));
  tool_emit_table(emit, "largest_blocks", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < count && i < r->top; i++) block_emit(emit, r, &blocks[i]);
  tool_emit_table_end(emit);
  free(blocks);
}

// Sums by call site. The stack of a sum leads to the text of its call site.
static void sites_sum(tool_diagnosis* r, tool_sums* out) {
  for (size_t i = 0; i < r->peak.block_count; i++) {
    const tide_ledger_block* const block = &r->peak.blocks[i];
    if (block->state == TIDE_BLOCK_INACTIVE) continue;
    const tool_site site = tool_sites_find(&r->sites, block->stack);
    const uint64_t key = (uint64_t)site.file << 32 | site.function;
    tool_sums_add(out, key, (uint64_t)site.line, block->requested_bytes)->stack = block->stack;
  }
  tool_sums_sort_by_bytes(out);
}

static void sites_emit(tool_emit* emit, tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "call_site", "call site" }, { "file", NULL },       { "line", NULL },     { "function", NULL },
    { "bytes", "bytes" },         { "blocks", "blocks" }, { "share", "share" },
  };
  tool_sums holders = { .items = NULL };
  sites_sum(r, &holders);
  const bool has_stacks = holders.count > 1 || (holders.count == 1 && holders.items[0].key != 0);
  tool_emit_title(emit, "Call sites that hold the most memory at %s", peak_name(r));
  if (!has_stacks)
    tool_emit_words(emit,
                    "No stacks were recorded: torch.cuda.memory._record_memory_history(stacks=\"python\") "
                    "records them.");
  if (has_stacks || r->call->is_json) {
    tool_emit_table(emit, "call_sites", columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; has_stacks && i < holders.count && i < r->top; i++) {
      char text[TOOL_SITE_TEXT];
      const tool_site site = tool_sites_find(&r->sites, holders.items[i].stack);
      const tide_intern* const names = tide_trace_names(r->trace);
      tool_emit_row(emit);
      tool_emit_text(emit, NULL, NULL, tool_site_text(&r->sites, site, text));
      tool_emit_text(emit, NULL, NULL, tide_intern_text(names, site.file, NULL));
      tool_emit_real(emit, NULL, NULL, (double)site.line, 0);
      tool_emit_text(emit, NULL, NULL, tide_intern_text(names, site.function, NULL));
      tool_emit_bytes(emit, NULL, NULL, holders.items[i].bytes);
      tool_emit_uint(emit, NULL, NULL, holders.items[i].count);
      tool_emit_share(emit, NULL, NULL, tool_share(holders.items[i].bytes, r->peak.totals.requested_bytes));
    }
    tool_emit_table_end(emit);
  }
  tool_sums_fini(&holders);
}

void tool_diagnosis_emit_peak(tool_emit* emit, tool_diagnosis* r) {
  blocks_emit(emit, r);
  sites_emit(emit, r);
}
