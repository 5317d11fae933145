// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Who holds memory at the peak of allocated memory. Blocks are sorted by size, call sites by the sum of their
// requests: O(blocks log blocks).
#include "report.h"

#include <stdlib.h>
#include <string.h>

#include "display.h"
#include "sums.h"

#define LINE_COLUMNS 100   // of a line of a table
#define BLOCK_COLUMNS 55   // of the figures of a block
#define SUM_COLUMNS 31     // of the figures of a call site
#define SITE_COLUMNS 44    // of a call site at most
#define NARROW_COLUMNS 24  // of a call site at least, however long the rest is

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

// The call site, and the file and line of the library behind it.
static void site_emit_people(tool_emit* emit, tool_diagnosis* r, uint32_t stack) {
  char text[TOOL_SITE_TEXT];
  char called[TOOL_SITE_TEXT] = "";
  const tool_site behind = tool_sites_find_called(&r->sites, stack);
  const char* slash = NULL;
  if (tool_site_is_known(behind)) {
    (void)tool_site_text(&r->sites, behind, called);
    called[strcspn(called, " ")] = '\0';
    slash = strrchr(called, '/');
  }
  const char* const line = slash != NULL ? slash + 1 : called;
  const size_t used = BLOCK_COLUMNS + (*line != '\0' ? 3 + tool_display_columns(line) : 0);
  const size_t columns = used + NARROW_COLUMNS < LINE_COLUMNS ? LINE_COLUMNS - used : NARROW_COLUMNS;
  (void)tool_site_short(&r->sites, tool_sites_find(&r->sites, stack), columns, text);
  tool_emit_format(emit, NULL, NULL, "%s%s%s", text, *line != '\0' ? " > " : "", line);
}

void tool_diagnosis_emit_site(tool_emit* emit, tool_diagnosis* r, uint32_t stack, uint64_t made_at) {
  char text[TOOL_SITE_TEXT];
  const tool_site site = tool_sites_find(&r->sites, stack);
  const bool is_old = made_at == TIDE_LEDGER_BEFORE && r->entry_count > 0 && !tool_site_is_known(site);
  if (is_old) tool_emit_text(emit, NULL, NULL, "(before the recording)");
  else if (r->call->is_json) tool_emit_text(emit, NULL, NULL, tool_site_text(&r->sites, site, text));
  else site_emit_people(emit, r, stack);
}

// People read the tag of a pool, if it has one.
static void pool_emit(tool_emit* emit, const tool_diagnosis* r, uint32_t pool) {
  const char* const tag = r->call->is_json ? NULL : tool_pool_tag(&r->tags, pool);
  if (tag != NULL) tool_emit_text(emit, NULL, NULL, tag);
  else tool_emit_pool(emit, r->trace, pool);
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
  pool_emit(emit, r, segment->pool);
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

// The sums of the blocks in use by call site.
typedef struct site_sums {
  tool_sums holders;  // by call site; the stack of a sum leads to the text of its call site
  tool_sums called;   // by the same keys; `count` is the number of lines behind it, `stack` has the largest
} site_sums;

static tool_sum* site_add(tool_sums* sums, tool_site site, uint64_t bytes, uint32_t stack) {
  const uint64_t key = (uint64_t)site.file << 32 | site.function;
  tool_sum* const sum = tool_sums_add(sums, key, (uint64_t)site.line, bytes);
  if (sum->count == 1) sum->stack = stack;
  return sum;
}

static void sites_sum(tool_diagnosis* r, site_sums* out) {
  tool_sums stacks = { .items = NULL };
  for (size_t i = 0; i < r->peak.block_count; i++) {
    const tide_ledger_block* const block = &r->peak.blocks[i];
    if (block->state == TIDE_BLOCK_INACTIVE) continue;
    (void)site_add(&out->holders, tool_sites_find(&r->sites, block->stack), block->requested_bytes,
                   block->stack);
    const tool_site_frames lines = tool_sites_lines(&r->sites, block->stack);
    tool_sums_add(&stacks, lines.own, lines.called, block->requested_bytes)->stack = block->stack;
  }
  tool_sums_sort_by_bytes(&stacks);
  for (size_t i = 0; i < stacks.count; i++)
    (void)site_add(&out->called, tool_sites_find(&r->sites, stacks.items[i].stack), stacks.items[i].bytes,
                   stacks.items[i].stack);
  tool_sums_fini(&stacks);
  tool_sums_sort_by_bytes(&out->holders);
}

// The columns that are left for the line behind a call site, if every row of the table is to fit.
static size_t called_columns(tool_diagnosis* r, const tool_sums* holders) {
  size_t widest = 0;
  if (r->call->is_json) return SIZE_MAX;
  for (size_t i = 0; i < holders->count && i < r->top; i++) {
    char text[TOOL_SITE_TEXT];
    const tool_site site = tool_sites_find(&r->sites, holders->items[i].stack);
    const size_t columns = tool_display_columns(tool_site_short(&r->sites, site, SITE_COLUMNS, text));
    if (columns > widest) widest = columns;
  }
  return LINE_COLUMNS - SUM_COLUMNS - widest;
}

static void called_emit(tool_emit* emit, tool_diagnosis* r, const tool_sum* called, size_t columns) {
  char text[TOOL_SITE_TEXT] = "";
  char more[TOOL_SITE_TEXT] = "";
  const tool_site site = tool_sites_find_called(&r->sites, called->stack);
  const bool is_known = tool_site_is_known(site);
  if (called->count > 1 && !r->call->is_json)
    (void)snprintf(more, sizeof more, "%s+%llu more", is_known ? " " : "",
                   (unsigned long long)called->count - 1);
  if (is_known) (void)tool_site_short(&r->sites, site, columns - strlen(more), text);
  tool_emit_uint(emit, NULL, NULL, called->count);
  if (r->call->is_json) tool_emit_text(emit, NULL, NULL, is_known ? text : NULL);
  else tool_emit_format(emit, NULL, NULL, "%s%s", text, more);
}

static void site_emit(tool_emit* emit, tool_diagnosis* r, const tool_sum* holder, const tool_sum* called,
                      size_t columns) {
  char text[TOOL_SITE_TEXT];
  const tide_intern* const names = tide_trace_names(r->trace);
  const tool_site site = tool_sites_find(&r->sites, holder->stack);
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL,
                 tool_site_short(&r->sites, site, r->call->is_json ? SIZE_MAX : SITE_COLUMNS, text));
  tool_emit_text(emit, NULL, NULL, tide_intern_text(names, site.file, NULL));
  tool_emit_real(emit, NULL, NULL, (double)site.line, 0);
  tool_emit_text(emit, NULL, NULL, tide_intern_text(names, site.function, NULL));
  tool_emit_bytes(emit, NULL, NULL, holder->bytes);
  tool_emit_uint(emit, NULL, NULL, holder->count);
  tool_emit_share(emit, NULL, NULL, tool_share(holder->bytes, r->peak.totals.requested_bytes));
  called_emit(emit, r, called, columns);
}

static void sites_emit_table(tool_emit* emit, tool_diagnosis* r, const site_sums* sums, size_t count) {
  static const tool_column columns[] = {
    { "call_site", "call site" }, { "file", NULL },         { "line", NULL },
    { "function", NULL },         { "bytes", "bytes" },     { "blocks", "blocks" },
    { "share", "share" },         { "called_lines", NULL }, { "calls", "calls" },
  };
  const size_t called = called_columns(r, &sums->holders);
  tool_emit_table(emit, "call_sites", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < count && i < r->top; i++) {
    const tool_sum* const holder = &sums->holders.items[i];
    site_emit(emit, r, holder, tool_sums_find(&sums->called, holder->key, holder->other), called);
  }
  tool_emit_table_end(emit);
}

static void sites_emit(tool_emit* emit, tool_diagnosis* r) {
  site_sums sums = { .holders = { .items = NULL }, .called = { .items = NULL } };
  sites_sum(r, &sums);
  const size_t count = sums.holders.count;
  const bool has_stacks = count > 1 || (count == 1 && sums.holders.items[0].key != 0);
  tool_emit_title(emit, "Call sites that hold the most memory at %s", peak_name(r));
  if (!has_stacks)
    tool_emit_words(emit,
                    "No stacks were recorded: torch.cuda.memory._record_memory_history(stacks=\"python\") "
                    "records them.");
  if (has_stacks || r->call->is_json) sites_emit_table(emit, r, &sums, has_stacks ? count : 0);
  if (r->stacks.is_wanted && (has_stacks || r->call->is_json)) {
    tool_emit_title(emit, "Stacks at %s", peak_name(r));
    tool_stacks_emit(emit, r->call, &r->sites, &r->peak, r->entry_count > 0, &r->stacks);
  }
  tool_sums_fini(&sums.holders);
  tool_sums_fini(&sums.called);
}

void tool_diagnosis_emit_peak(tool_emit* emit, tool_diagnosis* r) {
  blocks_emit(emit, r);
  sites_emit(emit, r);
}
