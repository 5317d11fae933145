// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Graphs of captured work. The capture lock guards them until the capture has ended.
#include "machine/soft/graph.h"

#include <string.h>

#include "base/arith.h"

// ---------------------------------------------------------------------------------------------------
// Sets of nodes

bool tide__node_set_assign(const tide_heap* heap, tide__node_set* set, const tide__node_set* from) {
  void* nodes = set->nodes;
  if (!tide__heap_grow(heap, &nodes, &set->capacity, from->count, sizeof(uint32_t))) return false;
  set->nodes = nodes;
  if (from->count != 0) memcpy(set->nodes, from->nodes, from->count * sizeof(uint32_t));
  set->count = from->count;
  return true;
}

// Adds one node to a sorted set that has room for it.
static void set_insert(tide__node_set* set, uint32_t node) {
  size_t at = set->count;
  while (at > 0 && set->nodes[at - 1] > node) at--;
  if (at > 0 && set->nodes[at - 1] == node) return;
  memmove(&set->nodes[at + 1], &set->nodes[at], (set->count - at) * sizeof(uint32_t));
  set->nodes[at] = node;
  set->count++;
}

bool tide__node_set_add(const tide_heap* heap, tide__node_set* set, const tide__node_set* from) {
  void* nodes = set->nodes;
  if (!tide__heap_grow(heap, &nodes, &set->capacity, set->count + from->count, sizeof(uint32_t)))
    return false;
  set->nodes = nodes;
  for (size_t i = 0; i < from->count; i++) set_insert(set, from->nodes[i]);
  return true;
}

static bool set_has(const tide__node_set* set, uint32_t node) {
  for (size_t i = 0; i < set->count; i++) {
    if (set->nodes[i] == node) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Graphs

tide__graph* tide__graph_new(tide__soft* soft, uint64_t id) {
  tide__graph* graph = tide__slots_take(&soft->graphs);
  if (graph == NULL) return NULL;
  graph->id = id;
  tide__store_relaxed(&graph->refs, 1);
  graph->nodes = NULL;
  graph->count = graph->capacity = 0;
  graph->duration_ns = 0;
  graph->last_launch = (tide__point){ NULL, 0 };
  return graph;
}

void tide__graph_drop(tide__soft* soft, tide__graph* graph) {
  if (tide__sub_seq(&graph->refs, 1) != 1) return;
  tide__mutex_lock(&soft->capture_lock);  // another thread may be reading nodes
  tide__node* nodes = graph->nodes;
  const size_t count = graph->count;
  const size_t capacity = graph->capacity;
  graph->nodes = NULL;
  graph->count = graph->capacity = 0;
  tide__mutex_unlock(&soft->capture_lock);
  for (size_t i = 0; i < count; i++) {
    tide__heap_release(soft->heap, nodes[i].dependencies, nodes[i].dependency_count, sizeof(uint32_t));
  }
  tide__heap_release(soft->heap, nodes, capacity, sizeof(tide__node));
  tide__slots_give(&soft->graphs, graph);
}

uint64_t tide__op_duration_ns(const tide__op* op) {
  if (op->kind == TIDE__OP_LAUNCH) return op->u.graph->duration_ns;
  if (op->kind == TIDE__OP_COPY) return op->u.move.ns;
  return op->kind == TIDE__OP_WORK ? op->u.work_ns : 0;
}

bool tide__graph_add(tide__soft* soft, tide__graph* graph, const tide__op* op,
                     const tide__node_set* dependencies) {
  void* nodes = graph->nodes;
  if (!tide__heap_grow(soft->heap, &nodes, &graph->capacity, graph->count + 1, sizeof(tide__node)))
    return false;
  graph->nodes = nodes;
  tide__node node = { .op = *op, .dependency_count = (uint32_t)dependencies->count };
  if (dependencies->count != 0) {
    node.dependencies = tide__heap_alloc(soft->heap, dependencies->count, sizeof(uint32_t));
    if (node.dependencies == NULL) return false;
    memcpy(node.dependencies, dependencies->nodes, dependencies->count * sizeof(uint32_t));
  }
  for (size_t i = 0; i < dependencies->count; i++) {
    tide__node* before = &graph->nodes[dependencies->nodes[i]];
    before->has_successor = true;
    node.end_ns = tide__max(node.end_ns, before->end_ns);
  }
  if (!tide__add(node.end_ns, tide__op_duration_ns(op), &node.end_ns)) node.end_ns = UINT64_MAX;
  graph->duration_ns = tide__max(graph->duration_ns, node.end_ns);
  graph->nodes[graph->count++] = node;
  return true;
}

// Only a node that nothing depends on can fail to lead to a terminal.
bool tide__graph_leads_to(const tide__graph* graph, const tide__node_set* terminals) {
  for (size_t i = 0; i < graph->count; i++) {
    if (!graph->nodes[i].has_successor && !set_has(terminals, (uint32_t)i)) return false;
  }
  return true;
}

// The handle of a node contains the index of its graph, the low 16 bits of the capture's id, and its own
// index. So a stale handle can name another node only after 65,536 captures.
#define GRAPH_BITS 24u

tide_node tide__node_handle(const tide__graph* graph, uint32_t node) {
  const uint64_t place = (uint64_t)(graph->slot.index) << TIDE__NODE_BITS | (node + 1);
  return (tide_node)tide__pointer(graph->id << (TIDE__NODE_BITS + GRAPH_BITS) | place);
}

const tide__node* tide__node_find_locked(tide__soft* soft, tide_node handle, const tide__graph** out_graph) {
  const uint64_t value = tide__address(handle);
  const uint32_t index = (uint32_t)(value >> TIDE__NODE_BITS) & ((1u << GRAPH_BITS) - 1);
  const uint32_t node = (uint32_t)value & ((1u << TIDE__NODE_BITS) - 1);
  if (index >= tide__slots_count(&soft->graphs)) return NULL;
  const tide__graph* graph = tide__slots_at(&soft->graphs, index);
  const bool is_same = (graph->id << (TIDE__NODE_BITS + GRAPH_BITS)) >> (TIDE__NODE_BITS + GRAPH_BITS) ==
                       value >> (TIDE__NODE_BITS + GRAPH_BITS);
  if (!is_same || tide__load_relaxed(&graph->refs) == 0 || node == 0 || node > graph->count) return NULL;
  *out_graph = graph;
  return &graph->nodes[node - 1];
}
