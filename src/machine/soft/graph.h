// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Captured work: nodes, sets of nodes, and graphs. Does not depend on streams.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_GRAPH_H
#define TIDEMARK_SRC_MACHINE_SOFT_GRAPH_H

#include "machine/soft/state.h"

// A set of nodes of one graph, by index.
typedef struct tide__node_set {
  uint32_t* nodes;  // owned; sorted, each once
  size_t count;
  size_t capacity;
} tide__node_set;

typedef struct tide__node {
  tide__op op;
  uint32_t* dependencies;  // owned; indices of earlier nodes
  uint32_t dependency_count;
  bool has_successor;  // a later node depends on it
  uint64_t end_ns;     // dry: its end, relative to the launch
} tide__node;

// Nodes depend only on earlier nodes, so they can run in this order.
struct tide__graph {
  tide__slot slot;
  uint64_t id;            // of its capture
  tide__atomic_u32 refs;  // the handle or the capture, and each queued launch
  tide__node* nodes;      // owned; fixed once the capture has ended
  size_t count;
  size_t capacity;
  uint64_t duration_ns;     // dry: of a launch
  tide__point last_launch;  // shared under the capture lock
};

#define TIDE__NODE_BITS 24u  // of a node's index in its handle

// Copies a set, or adds one to another. Returns false if there is no memory.
bool tide__node_set_assign(const tide_heap* heap, tide__node_set* set, const tide__node_set* from);
bool tide__node_set_add(const tide_heap* heap, tide__node_set* set, const tide__node_set* from);

// Creates a graph with one reference, or returns NULL. All functions but drop are called under the capture
// lock.
tide__graph* tide__graph_new(tide__soft* soft, uint64_t id);
// Drops a reference; the last one frees the nodes. Takes the capture lock.
void tide__graph_drop(tide__soft* soft, tide__graph* graph);
// Adds a node. Returns false if there is no memory.
bool tide__graph_add(tide__soft* soft, tide__graph* graph, const tide__op* op,
                     const tide__node_set* dependencies);
// Does every node lead to one of these terminals?
bool tide__graph_leads_to(const tide__graph* graph, const tide__node_set* terminals);
// The handle of a node; and the node of a handle, or NULL, with its graph.
tide_node tide__node_handle(const tide__graph* graph, uint32_t node);
const tide__node* tide__node_find_locked(tide__soft* soft, tide_node handle, const tide__graph** out_graph);
// The duration of an operation in virtual time.
uint64_t tide__op_duration_ns(const tide__op* op);

#endif
