// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Who holds memory at a point, as a tree of stacks.
#ifndef TIDEMARK_TOOL_STACKS_H
#define TIDEMARK_TOOL_STACKS_H

#include "picture.h"
#include "sites.h"

typedef struct tool_stacks_options {
  bool is_wanted;    // --stacks
  bool is_unfolded;  // --unfold: lines of libraries are shown one by one
  size_t depth;      // --depth: lines below each other
  double percent;    // --min-share: smaller branches are summed up
} tool_stacks_options;

// For the table of options of a verb.
#define TOOL_STACKS_OPTIONS                                                                  \
  { "stacks", 's', NULL, "show what holds memory at the peak, as a tree of stacks" },        \
      { "depth", 0, "N", "with --stacks: show at most N levels of the tree (default: 40)" }, \
      { "min-share", 0, "PERCENT",                                                           \
        "with --stacks: add up branches that hold less than PERCENT (default: 1)" },         \
  {                                                                                          \
    "unfold", 0, NULL, "with --stacks: show every line of PyTorch and of other libraries"    \
  }

// Parses the options. On failure it prints why and returns TOOL_USAGE.
int tool_stacks_parse(const tool_call* call, tool_stacks_options* out);

// Emits the tree of the blocks in use: a line of the program, the lines that it called below it, the largest
// first. `has_entries` says whether blocks without an entry are older than the recording.
// Cost: O(blocks + frames of all stacks), and sorting.
void tool_stacks_emit(tool_emit* emit, const tool_call* call, const tool_sites* sites,
                      const tool_picture* picture, bool has_entries, const tool_stacks_options* options);

#endif
