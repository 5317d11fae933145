// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Call sites: the most informative frame of a stack.
#ifndef TIDEMARK_TOOL_SITES_H
#define TIDEMARK_TOOL_SITES_H

#include "tidemark/trace.h"

#define TOOL_SITE_TEXT 512

// The innermost frame outside of the interpreter and of PyTorch, preferably of Python. If there is none, the
// innermost frame. The numbers of texts differ between traces.
typedef struct tool_site {
  uint32_t file;  // a text; both are 0 if nothing was recorded
  uint32_t function;
  int64_t line;
} tool_site;

typedef struct tool_sites {
  const tide_intern* names;  // borrowed from the trace until fini
  tool_site* of_stack;       // owned; by the number of the stack
  bool* is_known;            // owned
  uint32_t count;
} tool_sites;

void tool_sites_init(tool_sites* sites, const tide_trace* trace);
void tool_sites_fini(tool_sites* sites);

tool_site tool_sites_find(tool_sites* sites, uint32_t stack);
bool tool_site_is_known(tool_site site);

// "models/resnet.py:154 forward", without the folders where packages are installed; "(no stack)".
const char* tool_site_text(const tool_sites* sites, tool_site site, char out[TOOL_SITE_TEXT]);

// Hashes of a whole stack and of a call site that are the same in every trace; 0 for none.
uint64_t tool_stack_hash(const tool_sites* sites, uint32_t stack);
uint64_t tool_site_hash(const tool_sites* sites, tool_site site);

#endif
