// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The role of each value under given options.
#ifndef TIDEMARK_SRC_GRAPH_ROLES_H
#define TIDEMARK_SRC_GRAPH_ROLES_H

#include "graph/graph_parts.h"

// Errors: TIDE_ERR_ARGUMENT for options that contradict each other or are out of range.
tide_status tide__graph_options_check(const tide_graph_options* options);

tide_value_role tide__graph_role(const tide_graph* graph, const tide_graph_options* options, uint32_t value);

static inline bool tide__role_has_place(tide_value_role role) {
  return role == TIDE_ROLE_MANAGED || role == TIDE_ROLE_MANAGED_OUTPUT;
}

// Must the memory of a value outlive the run, because an output of the graph may share it?
static inline bool tide__value_outlives_run(const tide__value* value) { return value->output_depth == 0; }

#endif
