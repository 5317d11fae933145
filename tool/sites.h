// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Call sites: the line of the program that asked for memory, and the line of a library behind it.
#ifndef TIDEMARK_TOOL_SITES_H
#define TIDEMARK_TOOL_SITES_H

#include "tidemark/format.h"

#define TOOL_SITE_TEXT 512

// A line of a stack. The numbers of texts differ between traces.
typedef struct tool_site {
  uint32_t file;  // a text; both are 0 if nothing was recorded
  uint32_t function;
  int64_t line;
} tool_site;

// The numbers of two frames; 0: none.
typedef struct tool_site_frames {
  uint32_t own;
  uint32_t called;
} tool_site_frames;

typedef struct tool_sites {
  const tide_intern* names;    // borrowed from the trace until fini
  tide_frames* frames;         // owned
  tool_site_frames* of_stack;  // owned; by the number of the stack
  bool* is_known;              // owned
  uint32_t count;              // stacks have numbers below it
  uint64_t frame_count;        // and frames below this one; other frames are addresses
} tool_sites;

void tool_sites_init(tool_sites* sites, const tide_trace* trace);
void tool_sites_fini(tool_sites* sites);

// The call site of a stack: the innermost line of the program itself. Without one, the innermost line of an
// installed package other than PyTorch; without one, the outermost line of PyTorch.
tool_site tool_sites_find(tool_sites* sites, uint32_t stack);
// The line of a library that was called from there: the innermost one of a package, or the outermost of
// PyTorch. There may be none.
tool_site tool_sites_find_called(tool_sites* sites, uint32_t stack);
// Both as numbers of frames.
tool_site_frames tool_sites_lines(tool_sites* sites, uint32_t stack);
bool tool_site_is_known(tool_site site);
// The line of a frame.
tool_site tool_site_of_frame(const tool_sites* sites, uint64_t frame);

// "models/resnet.py:154 forward", without the folders where packages or the program are; "(no stack)". Names
// of C++ are without arguments. The second one fits into a number of columns: first the path loses folders at
// its beginning, then the text its end.
const char* tool_site_text(const tool_sites* sites, tool_site site, char out[TOOL_SITE_TEXT]);
const char* tool_site_short(const tool_sites* sites, tool_site site, size_t columns,
                            char out[TOOL_SITE_TEXT]);

// Hashes of a whole stack and of a call site that are the same in every trace; 0 for none.
uint64_t tool_stack_hash(const tool_sites* sites, uint32_t stack);
uint64_t tool_site_hash(const tool_sites* sites, tool_site site);

#endif
