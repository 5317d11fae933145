// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark diff: what changed between two runs. Addresses differ from run to run, so blocks are matched by
// call site, by stack and size, and by size and stream, at the peak of allocated memory. The largest changes
// come first.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "diff.h"
#include "tidemark/ledger.h"
#include "tool.h"

#define DIFF_TOP 20

// ---------------------------------------------------------------------------------------------------
// One run

// The number of a stream: 0 for the default stream, the others in the order of their first request. Handles
// are addresses, which differ from run to run.
static uint64_t side_stream(const tool_diff_side* side, uint64_t handle) {
  if (handle == 0) return 0;
  const tool_sum* const found = tool_sums_find(&side->streams, handle, 0);
  return found != NULL ? (uint64_t)(found - side->streams.items) + 1 : side->streams.count + 1;
}

static void side_add_block(tool_diff_side* side, const tide_ledger_segment* segment,
                           const tide_ledger_block* block) {
  if (block->state == TIDE_BLOCK_INACTIVE) return;
  const uint64_t bytes = (block->requested_bytes + 511) & ~(uint64_t)511;
  const uint64_t stack = tool_stack_hash(&side->sites, block->stack);
  side->has_stacks |= stack != 0;
  const uint64_t site = tool_site_hash(&side->sites, tool_sites_find(&side->sites, block->stack));
  tool_sums_add(&side->by_site, site, 0, bytes)->stack = block->stack;
  tool_sums_add(&side->by_stack, stack, bytes, bytes)->stack = block->stack;
  (void)tool_sums_add(&side->by_size, bytes, side_stream(side, segment->stream), bytes);
}

static int side_sum(tool_diff_side* side, tide_ledger* ledger) {
  tool_picture picture;
  const int status = tool_picture_take(ledger, side->peaks.live.at, &picture);
  if (status != TOOL_DONE) return status;
  for (size_t i = 0; i < picture.segment_count; i++) {
    for (size_t k = picture.first_block[i]; k < picture.first_block[i + 1]; k++)
      side_add_block(side, &picture.segments[i], &picture.blocks[k]);
  }
  tool_picture_fini(&picture);
  return TOOL_DONE;
}

static int side_look(tool_diff_side* side) {
  tide_ledger* ledger = NULL;
  if (tide_ledger_new(side->trace, side->device, &ledger) != TIDE_OK) return tool_fail("%s", tool_error());
  side->peaks = tide_ledger_get_peaks(ledger);
  side->knows_reserved = tool_device_knows_reserved(side->trace, side->device);
  const tide_trace_entry* const entries = tide_trace_entries(side->trace, side->device, NULL);
  side->entry_count = tool_device_actions(side->trace, side->device, side->actions);
  for (size_t i = 0; i < side->entry_count; i++) {
    if (entries[i].action == TIDE_ACTION_ALLOC && entries[i].stream != 0)
      (void)tool_sums_add(&side->streams, entries[i].stream, 0, 0);
  }
  const int status = side_sum(side, ledger);
  tide_ledger_free(ledger);
  return status;
}

static int side_open(tool_diff_side* side, const tool_call* call, int operand) {
  const int status = tool_trace_read(call->operands[operand], &side->trace);
  if (status != TOOL_DONE) return status;
  tool_sites_init(&side->sites, side->trace);
  return tool_device_choose(call, side->trace, &side->device);
}

// Without --device, both sides are looked at on one device, if both have it: the one of A, unless only B ran
// out of memory.
static void sides_agree(tool_diff_side* a, tool_diff_side* b) {
  uint64_t at = 0;
  const bool is_b = !tool_device_first_refusal(a->trace, a->device, &at) &&
                    tool_device_first_refusal(b->trace, b->device, &at);
  const size_t wanted = is_b ? b->device : a->device;
  const size_t other = is_b ? a->device : b->device;
  if (tool_device_has_data(a->trace, wanted) && tool_device_has_data(b->trace, wanted))
    a->device = b->device = wanted;
  else if (tool_device_has_data(a->trace, other) && tool_device_has_data(b->trace, other))
    a->device = b->device = other;
}

static void side_close(tool_diff_side* side) {
  tool_sums_fini(&side->streams);
  tool_sums_fini(&side->by_site);
  tool_sums_fini(&side->by_stack);
  tool_sums_fini(&side->by_size);
  tool_sites_fini(&side->sites);
  tide_trace_free(side->trace);
}

// ---------------------------------------------------------------------------------------------------
// What changed

// A sum in both runs, or in one of them.
typedef struct diff_row {
  tool_sum a;
  tool_sum b;
} diff_row;

typedef struct diff_rows {
  diff_row* rows;  // owned; only those that changed
  size_t count;
} diff_rows;

static uint64_t row_change(const diff_row* row) {
  return row->a.bytes > row->b.bytes ? row->a.bytes - row->b.bytes : row->b.bytes - row->a.bytes;
}

// The largest change first; then by keys.
static int row_order(const void* x, const void* y) {
  const diff_row* const left = x;
  const diff_row* const right = y;
  const uint64_t change = row_change(left);
  const uint64_t other = row_change(right);
  if (change != other) return change > other ? -1 : 1;
  if (left->a.key != right->a.key) return left->a.key < right->a.key ? -1 : 1;
  return (left->a.other > right->a.other) - (left->a.other < right->a.other);
}

static diff_rows rows_of(const tool_sums* a, const tool_sums* b) {
  diff_rows rows = { .rows = tool_alloc(a->count + b->count + 1, sizeof *rows.rows) };
  for (size_t i = 0; i < a->count; i++) {
    const tool_sum* const mine = &a->items[i];
    const tool_sum* const theirs = tool_sums_find(b, mine->key, mine->other);
    const tool_sum none = { .key = mine->key, .other = mine->other };
    if (theirs != NULL && theirs->count == mine->count && theirs->bytes == mine->bytes) continue;
    rows.rows[rows.count++] = (diff_row){ *mine, theirs != NULL ? *theirs : none };
  }
  for (size_t i = 0; i < b->count; i++) {
    const tool_sum* const theirs = &b->items[i];
    if (tool_sums_find(a, theirs->key, theirs->other) != NULL) continue;
    rows.rows[rows.count++] = (diff_row){ { .key = theirs->key, .other = theirs->other }, *theirs };
  }
  if (rows.count > 1) qsort(rows.rows, rows.count, sizeof *rows.rows, row_order);
  return rows;
}

// ---------------------------------------------------------------------------------------------------
// Figures

// A figure of a run.
typedef struct diff_figure {
  const char* key;
  const char* label;
  uint64_t value;
  bool is_bytes;
  bool is_known;
} diff_figure;

#define DIFF_FIGURES 9

static void side_figures(const tool_diff_side* side, diff_figure out[DIFF_FIGURES]) {
  const uint64_t* const n = side->actions;
  const uint64_t made = n[TIDE_ACTION_SEGMENT_ALLOC] + n[TIDE_ACTION_SEGMENT_MAP];
  const uint64_t given_back = n[TIDE_ACTION_SEGMENT_FREE] + n[TIDE_ACTION_SEGMENT_UNMAP];
  const bool has_peak = side->knows_reserved;
  const bool has_counts = side->entry_count > 0;
  const diff_figure figures[DIFF_FIGURES] = {
    { "peak_allocated", "peak allocated", side->peaks.live.bytes, true, true },
    { "peak_allocated_blocks", "  as PyTorch counts", side->peaks.allocated.bytes, true, true },
    { "peak_requested", "  as requested", side->peaks.requested.bytes, true, true },
    { "peak_reserved", "peak reserved", side->peaks.reserved.bytes, true, has_peak },
    { "allocations", "allocations", n[TIDE_ACTION_ALLOC], false, has_counts },
    { "frees", "releases", n[TIDE_ACTION_FREE_COMPLETED], false, has_counts },
    { "driver_allocs", "segments allocated", made, false, has_counts && has_peak },
    { "driver_frees", "segments freed", given_back, false, has_counts && has_peak },
    { "ooms", "requests refused", n[TIDE_ACTION_OOM], false, has_counts },
  };
  memcpy(out, figures, sizeof figures);
}

// A value that is unknown in one of the two does not count as a difference.
static bool figures_are_same(const tool_diff_side* a, const tool_diff_side* b) {
  diff_figure left[DIFF_FIGURES];
  diff_figure right[DIFF_FIGURES];
  side_figures(a, left);
  side_figures(b, right);
  for (size_t i = 0; i < DIFF_FIGURES; i++) {
    if (left[i].is_known && right[i].is_known && left[i].value != right[i].value) return false;
  }
  return true;
}

// Not a number if it is unknown.
static double side_utilisation(const tool_diff_side* side) {
  return side->knows_reserved ? tool_utilisation(side->peaks.live.bytes, side->peaks.reserved.bytes)
                              : (double)NAN;
}

// ---------------------------------------------------------------------------------------------------
// The answer

// A change as text, with its sign unless it is too small to be seen.
static void change_emit_text(tool_emit* emit, char sign, const char* text) {
  const bool is_seen = strpbrk(text, "123456789") != NULL;
  tool_emit_format(emit, NULL, NULL, "%.*s%s", is_seen ? 1 : 0, &sign, text);
}

static void count_change_emit(tool_emit* emit, const tool_call* call, uint64_t a, uint64_t b) {
  const uint64_t change = a > b ? a - b : b - a;
  char text[TOOL_SIZE_TEXT];
  if (call->is_json) {
    tool_emit_real(emit, NULL, NULL, a > b ? -(double)change : (double)change, 0);
    return;
  }
  (void)snprintf(text, sizeof text, "%llu", (unsigned long long)change);
  change_emit_text(emit, a > b ? '-' : '+', text);
}

static void utilisation_emit(tool_emit* emit, const tool_call* call, const tool_diff_side* a,
                             const tool_diff_side* b) {
  const double left = side_utilisation(a);
  const double right = side_utilisation(b);
  char text[TOOL_SHARE_TEXT];
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL, "utilisation");
  tool_emit_share(emit, NULL, NULL, left);
  tool_emit_share(emit, NULL, NULL, right);
  if (call->is_json || !isfinite(right - left)) {
    tool_emit_real(emit, NULL, NULL, right - left, 4);
    return;
  }
  change_emit_text(emit, right < left ? '-' : '+', tool_share_text(fabs(right - left), text));
}

static void figure_emit_value(tool_emit* emit, const diff_figure* figure) {
  if (!figure->is_known) tool_emit_text(emit, NULL, NULL, NULL);
  else if (figure->is_bytes) tool_emit_bytes(emit, NULL, NULL, figure->value);
  else tool_emit_uint(emit, NULL, NULL, figure->value);
}

static void figure_emit(tool_emit* emit, const tool_call* call, const diff_figure* a, const diff_figure* b) {
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL, call->is_json ? a->key : a->label);
  figure_emit_value(emit, a);
  figure_emit_value(emit, b);
  if (!a->is_known || !b->is_known) tool_emit_text(emit, NULL, NULL, NULL);
  else if (a->is_bytes) tool_emit_change(emit, NULL, NULL, a->value, b->value);
  else count_change_emit(emit, call, a->value, b->value);
}

static void figures_emit(tool_emit* emit, const tool_call* call, const tool_diff_side* a,
                         const tool_diff_side* b) {
  static const tool_column columns[] = { { "name", "" }, { "a", "A" }, { "b", "B" }, { "change", "change" } };
  diff_figure left[DIFF_FIGURES];
  diff_figure right[DIFF_FIGURES];
  side_figures(a, left);
  side_figures(b, right);
  if (a->entry_count == 0 || b->entry_count == 0)
    tool_emit_words(emit,
                    "A file without entries is compared by its final state, because its peaks are unknown.");
  tool_emit_table(emit, "peaks", columns, 4);
  for (size_t i = 0; i < DIFF_FIGURES; i++) figure_emit(emit, call, &left[i], &right[i]);
  utilisation_emit(emit, call, a, b);
  tool_emit_table_end(emit);
}

static void holder_row_emit(tool_emit* emit, const diff_row* row) {
  tool_emit_uint(emit, NULL, NULL, row->a.count);
  tool_emit_uint(emit, NULL, NULL, row->b.count);
  tool_emit_uint(emit, NULL, NULL, row->a.bytes);
  tool_emit_uint(emit, NULL, NULL, row->b.bytes);
  tool_emit_change(emit, NULL, NULL, row->a.bytes, row->b.bytes);
}

// Stacks can be compared only if both runs have some.
static bool sides_have_stacks(const tool_diff_side* a, const tool_diff_side* b) {
  return a->has_stacks && b->has_stacks;
}

static void row_emit_site(tool_emit* emit, const diff_row* row, tool_diff_side* a, tool_diff_side* b) {
  char text[TOOL_SITE_TEXT];
  tool_sites* const sites = row->a.count > 0 ? &a->sites : &b->sites;
  const uint32_t stack = row->a.count > 0 ? row->a.stack : row->b.stack;
  tool_emit_text(emit, NULL, NULL, tool_site_text(sites, tool_sites_find(sites, stack), text));
}

static void sites_emit(tool_emit* emit, const tool_call* call, tool_diff_side* a, tool_diff_side* b,
                       const diff_rows* rows, size_t top) {
  static const tool_column columns[] = {
    { "a_blocks", "A blocks" }, { "b_blocks", "B blocks" }, { "a_bytes", NULL },
    { "b_bytes", NULL },        { "change", "change" },     { "call_site", "call site" },
  };
  if (rows->count == 0 && !call->is_json) return;
  tool_emit_title(emit, "By call site, at the peak of allocated memory (%zu changed)", rows->count);
  tool_emit_table(emit, "call_sites", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < rows->count && i < top; i++) {
    tool_emit_row(emit);
    holder_row_emit(emit, &rows->rows[i]);
    row_emit_site(emit, &rows->rows[i], a, b);
  }
  tool_emit_table_end(emit);
}

static void stacks_emit(tool_emit* emit, const tool_call* call, tool_diff_side* a, tool_diff_side* b,
                        const diff_rows* rows, size_t top) {
  static const tool_column columns[] = {
    { "size", "size" },  { "a_blocks", "A blocks" }, { "b_blocks", "B blocks" },   { "a_bytes", NULL },
    { "b_bytes", NULL }, { "change", "change" },     { "call_site", "call site" },
  };
  if (rows->count == 0 && !call->is_json) return;
  tool_emit_title(emit, "By stack and size, at the peak of allocated memory (%zu changed)", rows->count);
  tool_emit_table(emit, "holders", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < rows->count && i < top; i++) {
    tool_emit_row(emit);
    tool_emit_uint(emit, NULL, NULL, rows->rows[i].a.other);
    holder_row_emit(emit, &rows->rows[i]);
    row_emit_site(emit, &rows->rows[i], a, b);
  }
  tool_emit_table_end(emit);
}

static void sizes_emit(tool_emit* emit, const tool_call* call, const diff_rows* rows, size_t top) {
  static const tool_column columns[] = {
    { "size", "size" },  { "stream", "stream" }, { "a_blocks", "A blocks" }, { "b_blocks", "B blocks" },
    { "a_bytes", NULL }, { "b_bytes", NULL },    { "change", "change" },
  };
  if (rows->count == 0 && !call->is_json) return;
  tool_emit_title(emit, "By size and stream, at the peak of allocated memory (%zu changed)", rows->count);
  tool_emit_table(emit, "sizes", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < rows->count && i < top; i++) {
    tool_emit_row(emit);
    tool_emit_uint(emit, NULL, NULL, rows->rows[i].a.key);
    tool_emit_uint(emit, NULL, NULL, rows->rows[i].a.other);
    holder_row_emit(emit, &rows->rows[i]);
  }
  tool_emit_table_end(emit);
}

static int diff_answer(const tool_call* call, tool_diff_side* a, tool_diff_side* b, size_t top) {
  diff_rows call_sites = rows_of(&a->by_site, &b->by_site);
  diff_rows stacks = rows_of(&a->by_stack, &b->by_stack);
  if (!sides_have_stacks(a, b)) call_sites.count = stacks.count = 0;
  diff_rows sizes = rows_of(&a->by_size, &b->by_size);
  const bool is_same = figures_are_same(a, b) && stacks.count == 0 && sizes.count == 0 &&
                       tool_diff_count_settings(a, b) == 0 && tool_diff_has_same_requests(a, b);
  const bool is_cut = tide_trace_get_about(a->trace).is_cut || tide_trace_get_about(b->trace).is_cut;
  tool_emit* const emit = tool_emit_begin(call);
  tool_emit_bool(emit, "is_same", NULL, is_same);
  tool_emit_bool(emit, "is_cut", NULL, is_cut);
  tool_diff_emit_verdict(emit, a, b, is_same);
  figures_emit(emit, call, a, b);
  tool_diff_emit_settings(emit, call, a, b);
  if (a->has_stacks != b->has_stacks)
    tool_emit_words(emit, "Only one of the two files has stacks, so call sites cannot be compared.");
  sites_emit(emit, call, a, b, &call_sites, top);
  stacks_emit(emit, call, a, b, &stacks, top);
  sizes_emit(emit, call, &sizes, top);
  const int status = tool_emit_end(emit);
  free(call_sites.rows);
  free(stacks.rows);
  free(sizes.rows);
  if (status != TOOL_DONE) return status;
  return is_same ? TOOL_DONE : TOOL_NO;
}

static int diff_run(const tool_call* call) {
  if (strcmp(call->operands[0], "-") == 0 && strcmp(call->operands[1], "-") == 0)
    return tool_fail("only one of the two files can be standard input");
  size_t top = 0;
  int status = tool_top_parse(call, DIFF_TOP, &top);
  if (status != TOOL_DONE) return status;
  tool_diff_side a = { .trace = NULL };
  tool_diff_side b = { .trace = NULL };
  status = side_open(&a, call, 0);
  if (status == TOOL_DONE) status = side_open(&b, call, 1);
  if (status == TOOL_DONE && tool_option_value(call, "device") == NULL) sides_agree(&a, &b);
  if (status == TOOL_DONE) status = side_look(&a);
  if (status == TOOL_DONE) status = side_look(&b);
  if (status == TOOL_DONE) status = diff_answer(call, &a, &b, top);
  side_close(&a);
  side_close(&b);
  return status;
}

static const tool_option diff_options[] = {
  { "device", 'd', "N",
    "the device to compare (default: the one that ran out of memory first, or the first with entries)" },
  { "top", 'n', "N", "number of rows in a table (default: 20)" },
  { NULL, 0, NULL, NULL },
};

const tool_verb tool_diff = {
  .name = "diff",
  .summary = "show what changed between two runs",
  .operands = "A B",
  .text = "The first paragraph is the verdict: which run needs more, whether because more is live or because "
          "more is wasted (reserved but not live), and whether settings and requests differ.\n\n"
          "Then it compares peaks, counts, recorded settings, and what holds memory at the peak of allocated "
          "memory: by call site, by stack and size (if both files have stacks), and by size and stream. "
          "Blocks are matched by "
          "stack and size (rounded up to 512 bytes), not by address. Streams are numbered in the order of "
          "their first request; 0 is the default stream. The largest changes come first.\n\n"
          "Exit status: 0 if nothing differs, 1 if something does. tidemark(1) lists the keys of --json.",
  .options = diff_options,
  .operands_min = 2,
  .operands_max = 2,
  .run = diff_run,
};
