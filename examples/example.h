// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Shared by the small examples: if a call fails, the program exits with the reason.
#ifndef TIDEMARK_EXAMPLES_EXAMPLE_H
#define TIDEMARK_EXAMPLES_EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>

#include "tidemark/tidemark.h"

#define MIB ((size_t)1 << 20)

static inline void must(tide_status status) {
  if (status == TIDE_OK) return;
  (void)fprintf(stderr, "%s: %s\n", tide_status_name(status), tide_last_error()->text);
  exit(1);
}

// The recording that an example reads: its argument, or the one in this folder.
static inline tide_trace* recording_open(int argc, char** argv) {
  static char path[4096];
  const char* const source = getenv("TIDEMARK_SOURCE");
  tide_trace* trace = NULL;
  (void)snprintf(path, sizeof path, "%s/examples/gnn_varsize.tide", source != NULL ? source : ".");
  must(tide_trace_load(argc > 1 ? argv[1] : path, NULL, &trace));
  return trace;
}

#endif
