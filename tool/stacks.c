// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The tree of stacks. A node is a line of the program. Consecutive lines of libraries are one node: between
// two lines of the program it only counts them; behind the last line of the program it is named by the line
// of a library that says most. So stacks that differ only in the machinery of a framework are one branch.
//
// Blocks are first summed by stack, then each stack is added to the tree once. Branches below a share of the
// whole are summed up in one row. A line with a single child that holds as much is not indented further, and
// only the first of such lines has figures.
#include "stacks.h"

#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "display.h"
#include "base/stack_tree.h"
#include "sums.h"

#define DEPTH_USUAL 40
#define DEPTH_MOST 1000  // rows are emitted recursively
#define PERCENT_USUAL 1
#define FIGURES_COLUMNS 32  // of the table beside the stack
#define INDENT_MOST 40
#define LINE_COLUMNS 36  // that a line has at least, however far it is indented

// The frame of a node of the tree: the number of a frame or an address, with one of these for other nodes.
#define NODE_BETWEEN (UINT64_C(1) << 63)  // lines of libraries between two lines of the program
#define NODE_BEHIND (UINT64_C(1) << 62)   // behind the last line of the program; with the frame that names it
#define NODE_NO_STACK (UINT64_C(1) << 61)
#define NODE_BEFORE (UINT64_C(1) << 60)  // without a stack, and older than the recording
#define NODE_SELF (UINT64_C(1) << 59)    // what a line requested itself, beside the lines that it called
#define NODE_KINDS (NODE_BETWEEN | NODE_BEHIND | NODE_NO_STACK | NODE_BEFORE | NODE_SELF)

// What is known about a node beside its frame.
typedef struct stack_sum {
  uint64_t bytes;
  uint64_t blocks;
  uint32_t fewest;  // lines of libraries that it stands for
  uint32_t most;
  uint32_t first_child;  // the largest, once the children are sorted; 0: none
  uint32_t next;         // its next sibling
  const char* library;   // whose lines they are; borrowed from the trace, not zero-terminated
  size_t library_bytes;
} stack_sum;

typedef struct stack_work {
  const tool_call* call;
  const tool_sites* sites;
  const tool_stacks_options* options;
  tool_emit* emit;
  tide__stack_tree tree;
  stack_sum* sums;  // owned; by the number of the node; 0 is the root of all
  size_t room;
  size_t columns;  // for a line of the tree
} stack_work;

// ---------------------------------------------------------------------------------------------------
// Options

int tool_stacks_parse(const tool_call* call, tool_stacks_options* out) {
  const char* const depth = tool_option_value(call, "depth");
  const char* const percent = tool_option_value(call, "min-share");
  uint64_t number = DEPTH_USUAL;
  *out = (tool_stacks_options){ .is_wanted = tool_option_value(call, "stacks") != NULL,
                                .is_unfolded = tool_option_value(call, "unfold") != NULL,
                                .percent = PERCENT_USUAL };
  if (depth != NULL && (!tool_number_parse(depth, DEPTH_MOST, &number) || number == 0))
    return tool_fail("--depth must be a number from 1 to %d, not '%s'", DEPTH_MOST, depth);
  out->depth = number;
  if (percent != NULL) {
    char* end = NULL;
    out->percent = strtod(percent, &end);
    if (end == percent || *end != '\0' || !(out->percent >= 0 && out->percent <= 100))
      return tool_fail("--min-share must be a percentage from 0 to 100, not '%s'", percent);
  }
  const bool has_others = depth != NULL || percent != NULL || out->is_unfolded;
  return has_others && !out->is_wanted ? tool_fail("--depth, --min-share and --unfold need --stacks")
                                       : TOOL_DONE;
}

// ---------------------------------------------------------------------------------------------------
// Building

static bool line_is_shown(const stack_work* w, uint64_t frame) {
  return tide_frames_kind(w->sites->frames, frame) != TIDE_FRAME_KIND_HIDDEN;
}

static bool line_is_own(const stack_work* w, uint64_t frame) {
  return tide_frames_kind(w->sites->frames, frame) >= TIDE_FRAME_KIND_OWN_NATIVE;
}

static uint32_t node_add(stack_work* w, uint32_t parent, uint64_t frame) {
  uint32_t node = 0;
  if (tide__stack_tree_add(&w->tree, parent, frame, &node) != TIDE_OK) tool_out_of_memory();
  while (node >= w->room) {
    w->sums = tool_grow(w->sums, 2 * w->room, sizeof *w->sums);
    memset(w->sums + w->room, 0, w->room * sizeof *w->sums);
    w->room *= 2;
  }
  return node;
}

static bool library_is_same(const stack_sum* sum, const char* library, size_t bytes) {
  return sum->library_bytes == bytes && memcmp(sum->library, library, bytes) == 0;
}

// Says whose lines a node stands for; "libraries" if they are of several.
static void library_join(stack_sum* sum, const char* library, size_t bytes) {
  const bool is_same = sum->library == NULL || library_is_same(sum, library, bytes);
  sum->library = is_same ? library : "libraries";
  sum->library_bytes = is_same ? bytes : strlen("libraries");
}

// The package of a frame: the first folder inside the folder of packages. PyTorch and Python do not count
// beside another package, because they are between all others.
static void library_add_frame(const stack_work* w, stack_sum* sum, uint64_t frame) {
  if (tide_frames_kind(w->sites->frames, frame) != TIDE_FRAME_KIND_PACKAGE) return;
  size_t bytes = 0;
  const char* const path =
      tide_frames_path(w->sites->frames, tool_site_of_frame(w->sites, frame).file, &bytes);
  const char* const slash = memchr(path, '/', bytes);
  library_join(sum, path, slash != NULL ? (size_t)(slash - path) : bytes);
}

// Adds the shown lines in [from, to) of a stack to a node that stands for them.
static void lines_join(stack_work* w, uint32_t node, const uint64_t* stack, size_t from, size_t to) {
  stack_sum run = { .bytes = 0 };
  uint32_t count = 0;
  for (size_t i = from; i < to; i++) {
    if (!line_is_shown(w, stack[i])) continue;
    library_add_frame(w, &run, stack[i]);
    count++;
  }
  stack_sum* const sum = &w->sums[node];
  if (run.library == NULL) library_join(sum, "torch", strlen("torch"));
  else library_join(sum, run.library, run.library_bytes);
  sum->fewest = sum->most == 0 || count < sum->fewest ? count : sum->fewest;
  sum->most = count > sum->most ? count : sum->most;
}

// Is a frame a line of its own, rather than part of a run of lines of libraries?
static bool line_is_apart(const stack_work* w, uint64_t frame) {
  return w->options->is_unfolded || line_is_own(w, frame);
}

// Adds the lines of libraries in [from, to), the inner ones of which come first.
static uint32_t run_add(stack_work* w, uint32_t parent, const uint64_t* stack, size_t from, size_t to) {
  const tide_frames_site site = tide_frames_find_site(w->sites->frames, stack + from, to - from);
  if (site.own == to - from || !line_is_shown(w, stack[from + site.own])) return parent;
  const uint64_t frame = from == 0 ? NODE_BEHIND | (stack[site.own] & ~NODE_KINDS) : NODE_BETWEEN;
  const uint32_t node = node_add(w, parent, frame);
  lines_join(w, node, stack, from, to);
  return node;
}

// Adds a stack from its outermost frame on, and returns the node of its end.
static uint32_t stack_add(stack_work* w, const uint64_t* stack, size_t count) {
  uint32_t node = 0;
  size_t run_end = count;
  for (size_t i = count; i-- > 0;) {
    if (!line_is_shown(w, stack[i]) || !line_is_apart(w, stack[i])) continue;
    if (i + 1 < run_end) node = run_add(w, node, stack, i + 1, run_end);
    node = node_add(w, node, stack[i] & ~NODE_KINDS);
    run_end = i;
  }
  return run_end > 0 ? run_add(w, node, stack, 0, run_end) : node;
}

static void holder_add(stack_work* w, const tool_sum* holder) {
  size_t count = 0;
  const uint64_t* const stack = tide_intern_stack(w->sites->names, (uint32_t)holder->key, &count);
  uint32_t node = stack_add(w, stack, count);
  if (node == 0) node = node_add(w, 0, holder->other != 0 ? NODE_BEFORE : NODE_NO_STACK);
  w->sums[node].bytes += holder->bytes;
  w->sums[node].blocks += holder->count;
}

// So far the sums are those of stacks that end at a node. If others go on, it gets a child for these sums.
static void tree_add_selves(stack_work* w) {
  const size_t count = w->tree.count;
  bool* const has_child = tool_alloc(count + 1, sizeof *has_child);
  for (size_t i = 0; i < count; i++) has_child[w->tree.nodes[i].parent] = true;
  for (uint32_t i = 1; i <= count; i++) {
    if (!has_child[i] || w->sums[i].blocks == 0) continue;
    const uint32_t self = node_add(w, i, NODE_SELF);
    w->sums[self].bytes = w->sums[i].bytes;
    w->sums[self].blocks = w->sums[i].blocks;
    w->sums[i].bytes = w->sums[i].blocks = 0;
  }
  free(has_child);
}

// Adds the blocks in use, and sums up from the leaves to the root.
static void tree_build(stack_work* w, const tool_picture* picture, bool has_entries) {
  tool_sums holders = { .items = NULL };
  for (size_t i = 0; i < picture->block_count; i++) {
    const tide_ledger_block* const block = &picture->blocks[i];
    if (block->state == TIDE_BLOCK_INACTIVE) continue;
    const bool is_old = has_entries && block->stack == 0 && block->made_at == TIDE_LEDGER_BEFORE;
    (void)tool_sums_add(&holders, block->stack, is_old, block->requested_bytes);
  }
  for (size_t i = 0; i < holders.count; i++) holder_add(w, &holders.items[i]);
  tool_sums_fini(&holders);
  tree_add_selves(w);
  for (size_t i = w->tree.count; i > 0; i--) {
    stack_sum* const parent = &w->sums[w->tree.nodes[i - 1].parent];
    parent->bytes += w->sums[i].bytes;
    parent->blocks += w->sums[i].blocks;
  }
}

// Nodes by parent, the largest first.
typedef struct stack_order {
  uint64_t bytes;
  uint32_t parent;
  uint32_t node;
} stack_order;

static int order_compare(const void* a, const void* b) {
  const stack_order* const x = a;
  const stack_order* const y = b;
  if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->node > y->node) - (x->node < y->node);
}

static void tree_sort(stack_work* w) {
  const size_t count = w->tree.count;
  stack_order* const order = tool_alloc(count + 1, sizeof *order);
  for (size_t i = 0; i < count; i++)
    order[i] = (stack_order){ w->sums[i + 1].bytes, w->tree.nodes[i].parent, (uint32_t)i + 1 };
  if (count > 1) qsort(order, count, sizeof *order, order_compare);
  for (size_t i = count; i-- > 0;) {
    w->sums[order[i].node].next = w->sums[order[i].parent].first_child;
    w->sums[order[i].parent].first_child = order[i].node;
  }
  free(order);
}

// ---------------------------------------------------------------------------------------------------
// Rows

// One row of the table.
typedef struct stack_row {
  const char* kind;
  const char* text;
  tool_site site;
  uint64_t folded;
  uint64_t bytes;
  uint64_t blocks;
  size_t depth;
  size_t indent;
  bool is_chained;  // it holds as much as the row above
} stack_row;

static void row_emit_figures(const stack_work* w, const stack_row* row) {
  const double share = tool_share(row->bytes, w->sums[0].bytes);
  if (row->is_chained && !w->call->is_json) {
    for (size_t i = 0; i < 4; i++) tool_emit_text(w->emit, NULL, NULL, "");
    return;
  }
  tool_emit_bytes(w->emit, NULL, NULL, row->bytes);
  tool_emit_real(w->emit, NULL, NULL, share, 4);
  tool_emit_real(w->emit, NULL, NULL, 100 * share, 1);
  tool_emit_uint(w->emit, NULL, NULL, row->blocks);
}

static void row_emit(const stack_work* w, const stack_row* row) {
  const tide_intern* const names = w->sites->names;
  const bool is_known = tool_site_is_known(row->site);
  tool_emit_row(w->emit);
  tool_emit_uint(w->emit, NULL, NULL, row->depth);
  tool_emit_text(w->emit, NULL, NULL, row->kind);
  tool_emit_text(w->emit, NULL, NULL, is_known ? tide_intern_text(names, row->site.file, NULL) : NULL);
  tool_emit_real(w->emit, NULL, NULL, is_known ? (double)row->site.line : (double)NAN, 0);
  tool_emit_text(w->emit, NULL, NULL, is_known ? tide_intern_text(names, row->site.function, NULL) : NULL);
  tool_emit_uint(w->emit, NULL, NULL, row->folded);
  row_emit_figures(w, row);
  const int indent = (int)(w->call->is_json ? 0 : row->indent);
  tool_emit_format(w->emit, NULL, NULL, "%*s%s", indent, "", row->text);
}

// The lines that a node stands for, beside `without` of them.
static void lines_text(const stack_sum* sum, uint32_t without, const char* unit, char out[TOOL_SITE_TEXT]) {
  const unsigned fewest = sum->fewest - without;
  const unsigned most = sum->most - without;
  if (fewest == most) (void)snprintf(out, TOOL_SITE_TEXT, "%u %s%s", most, unit, most == 1 ? "" : "s");
  else (void)snprintf(out, TOOL_SITE_TEXT, "%u to %u %ss", fewest, most, unit);
}

static void node_text_behind(const stack_work* w, const stack_sum* sum, tool_site site, size_t columns,
                             char out[TOOL_SITE_TEXT]) {
  char lines[TOOL_SITE_TEXT] = "";
  char more[TOOL_SITE_TEXT] = "";
  if (sum->most > 1) {
    lines_text(sum, 1, "frame", lines);
    (void)snprintf(more, sizeof more, " (+%.64s)", lines);
  }
  (void)tool_site_short(w->sites, site, columns - tool_display_columns(more), out);
  const size_t used = strlen(out);
  (void)snprintf(out + used, TOOL_SITE_TEXT - used, "%s", more);
}

static const char* node_text(const stack_work* w, uint32_t node, tool_site site, size_t columns,
                             char out[TOOL_SITE_TEXT]) {
  const uint64_t frame = w->tree.nodes[node - 1].frame;
  const stack_sum* const sum = &w->sums[node];
  char lines[TOOL_SITE_TEXT];
  if ((frame & NODE_BETWEEN) != 0) {
    lines_text(sum, 0, "frame", lines);
    (void)snprintf(out, TOOL_SITE_TEXT, "\xe2\x80\xa6 %.64s of %.*s", lines, (int)sum->library_bytes,
                   sum->library);
  } else if ((frame & NODE_BEHIND) != 0 && tool_site_is_known(site)) {
    node_text_behind(w, sum, site, columns, out);
  } else if ((frame & (NODE_BEFORE | NODE_SELF)) != 0) {
    (void)snprintf(out, TOOL_SITE_TEXT, "%s",
                   (frame & NODE_SELF) != 0 ? "(this line itself)" : "(before the recording)");
  } else if ((frame & NODE_NO_STACK) != 0 || tool_site_is_known(site)) {
    (void)tool_site_short(w->sites, site, columns, out);
  } else {
    (void)snprintf(out, TOOL_SITE_TEXT, "0x%llx", (unsigned long long)(frame & ~NODE_KINDS));
  }
  return out;
}

static const char* node_kind(const stack_work* w, uint64_t frame) {
  if ((frame & NODE_BETWEEN) != 0) return "folded";
  if ((frame & NODE_SELF) != 0) return "self";
  if ((frame & (NODE_BEFORE | NODE_NO_STACK)) != 0) return "unknown";
  return line_is_own(w, frame & ~NODE_KINDS) ? "own" : "library";
}

static bool node_is_small(const stack_work* w, uint32_t node) {
  return 100 * tool_share(w->sums[node].bytes, w->sums[0].bytes) < w->options->percent;
}

// Are there lines below a node that are not shown? They are too deep, or all too small.
static bool node_is_cut(const stack_work* w, uint32_t node, size_t depth) {
  const uint32_t child = w->sums[node].first_child;
  if (child == 0) return false;
  return depth + 1 >= w->options->depth || (node_is_small(w, child) && w->sums[child].next != 0);
}

static void node_emit(const stack_work* w, uint32_t node, size_t depth, size_t indent, bool is_chained) {
  const uint64_t frame = w->tree.nodes[node - 1].frame;
  const stack_sum* const sum = &w->sums[node];
  const bool is_line = (frame & (NODE_KINDS & ~NODE_BEHIND)) == 0;
  char text[TOOL_SITE_TEXT];
  stack_row row = { .kind = node_kind(w, frame), .bytes = sum->bytes, .blocks = sum->blocks };
  if (is_line) row.site = tool_site_of_frame(w->sites, frame & ~NODE_KINDS);
  row.depth = depth;
  row.indent = indent < INDENT_MOST ? indent : INDENT_MOST;
  row.is_chained = is_chained;
  row.folded = sum->most - (sum->most > 0 && is_line ? 1 : 0);
  const size_t columns = w->columns > row.indent + LINE_COLUMNS ? w->columns - row.indent : LINE_COLUMNS;
  row.text = node_text(w, node, row.site, w->call->is_json ? SIZE_MAX : columns - strlen(" +"), text);
  if (node_is_cut(w, node, depth) && !w->call->is_json)
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), " +");
  row_emit(w, &row);
}

// The siblings from `node` on, in one row.
static void others_emit(const stack_work* w, uint32_t node, size_t depth, size_t indent) {
  stack_row row = { .kind = "others", .depth = depth, .indent = indent };
  char text[TOOL_SITE_TEXT];
  unsigned long long count = 0;
  for (; node != 0; node = w->sums[node].next) {
    row.bytes += w->sums[node].bytes;
    row.blocks += w->sums[node].blocks;
    count++;
  }
  (void)snprintf(text, sizeof text, "(others: %llu lines)", count);
  row.text = text;
  row.folded = count;
  row_emit(w, &row);
}

static void children_emit(const stack_work* w, uint32_t parent, size_t depth, size_t indent) {
  const stack_sum* const sum = &w->sums[parent];
  const bool is_chain = parent != 0 && w->sums[sum->first_child].next == 0;
  const size_t inner = is_chain || parent == 0 ? indent : indent + 2;
  for (uint32_t node = sum->first_child; node != 0; node = w->sums[node].next) {
    if (node_is_small(w, node) && w->sums[node].next != 0) {
      others_emit(w, node, depth, inner);
      return;
    }
    node_emit(w, node, depth, inner, is_chain);
    if (!node_is_cut(w, node, depth)) children_emit(w, node, depth + 1, inner);
  }
}

void tool_stacks_emit(tool_emit* emit, const tool_call* call, const tool_sites* sites,
                      const tool_picture* picture, bool has_entries, const tool_stacks_options* options) {
  static const tool_column columns[] = {
    { "depth", NULL },    { "kind", NULL },       { "file", NULL },     { "line", NULL },
    { "function", NULL }, { "folded", NULL },     { "bytes", "bytes" }, { "share", NULL },
    { NULL, "%" },        { "blocks", "blocks" }, { "frame", "stack" },
  };
  stack_work w = { .call = call, .sites = sites, .options = options, .emit = emit, .room = 64 };
  w.sums = tool_alloc(w.room, sizeof *w.sums);
  w.columns = tool_text_columns(stdout);
  w.columns = w.columns > FIGURES_COLUMNS + LINE_COLUMNS ? w.columns - FIGURES_COLUMNS : LINE_COLUMNS;
  tide__stack_tree_init(&w.tree, &tide__system_heap);
  tree_build(&w, picture, has_entries);
  tree_sort(&w);
  tool_emit_table(emit, "stacks", columns, sizeof columns / sizeof columns[0]);
  children_emit(&w, 0, 0, 0);
  tool_emit_table_end(emit);
  tide__stack_tree_fini(&w.tree);
  free(w.sums);
}
