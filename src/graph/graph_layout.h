// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A layout: a place for every value that has one.
#ifndef TIDEMARK_SRC_GRAPH_GRAPH_LAYOUT_H
#define TIDEMARK_SRC_GRAPH_GRAPH_LAYOUT_H

#include "graph/roles.h"

struct tide_graph_layout {
  const tide_heap* heap;     // borrowed until the layout is freed
  tide_graph_place* places;  // owned; by value
  size_t count;
  tide_graph_layout_info info;
};

// As tide_graph_layout_new(), with options that were checked and have a heap.
tide_status tide__graph_layout_make(const tide_graph* graph, const tide_graph_options* options,
                                    const uint64_t* bytes, tide_graph_layout** out);

// Rounds up to the alignment. False: the sum would not be below 2^62.
bool tide__graph_round(const tide_graph_options* options, uint64_t bytes, uint64_t* out);

#endif
