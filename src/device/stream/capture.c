// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reuse inside a capture (option is_capture_reuse). A block that other streams use and that is released while
// its streams are captured notes the nodes at which these streams stand: its markers. A later request on the
// block's stream may have it when all markers lie before the point where that stream stands now, because then
// the graph itself orders the new use behind the old ones.
#include "base/hash_map.h"
#include "device/stream/stream.h"

// A set of nodes, in the order they were added.
typedef struct node_set {
  const tide_heap* heap;
  tide_node* nodes;  // owned
  size_t count;
  size_t capacity;
  tide__hash_map numbers;  // from a node to its number, from 1
} node_set;

static void set_init(node_set* set, const tide_heap* heap) {
  *set = (node_set){ .heap = heap };
  tide__hash_map_init(&set->numbers, heap);
}

static void set_free(node_set* set) {
  tide__heap_release(set->heap, set->nodes, set->capacity, sizeof *set->nodes);
  tide__hash_map_fini(&set->numbers);
}

static bool set_has(const node_set* set, tide_node node) {
  return tide__hash_map_find(&set->numbers, tide__address(node)) != 0;
}

static tide_status set_add(node_set* set, tide_node node) {
  if (set_has(set, node)) return TIDE_OK;
  TIDE_REQUIRE(
      tide__hash_map_reserve(&set->numbers, set->count + 1) &&
          tide__heap_grow(set->heap, (void**)&set->nodes, &set->capacity, set->count + 1, sizeof *set->nodes),
      TIDE_ERR_NO_MEMORY, "no memory for %zu nodes of a capture", set->count + 1);
  set->nodes[set->count++] = node;
  (void)tide__hash_map_put(&set->numbers, tide__address(node), set->count);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Walking the graph

enum { FEW_NODES = 16 };

// Asks for a list of nodes: where a stream stands, or what a node depends on.
typedef tide_status (*ask_fn)(tide_device_cache* device, const void* what, tide_node* nodes, size_t room,
                              size_t* count);

static tide_status ask_terminals(tide_device_cache* device, const void* what, tide_node* nodes, size_t room,
                                 size_t* count) {
  const tide_stream stream = *(const tide_stream*)what;
  return tide_machine_capture_terminals(device->machine, device->index, stream, nodes, room, count);
}

static tide_status ask_dependencies(tide_device_cache* device, const void* what, tide_node* nodes,
                                    size_t room, size_t* count) {
  return tide_machine_node_dependencies(device->machine, *(const tide_node*)what, nodes, room, count);
}

static tide_status set_add_asked(tide_device_cache* device, node_set* set, ask_fn ask, const void* what) {
  tide_node few[FEW_NODES];
  tide_node* nodes = few;
  size_t count = 0;
  size_t room = FEW_NODES;
  tide_status status = ask(device, what, nodes, room, &count);
  if (status == TIDE_OK && count > room) {
    room = count;
    nodes = tide__heap_alloc(device->heap, room, sizeof *nodes);
    TIDE_REQUIRE(nodes != NULL, TIDE_ERR_NO_MEMORY, "no memory for %zu nodes of a capture", room);
    status = ask(device, what, nodes, room, &count);
  }
  for (size_t i = 0; i < count && i < room && status == TIDE_OK; i++) status = set_add(set, nodes[i]);
  if (nodes != few) tide__heap_release(device->heap, nodes, room, sizeof *nodes);
  return status;
}

// Adds everything before the nodes of the set.
static tide_status set_close(tide_device_cache* device, node_set* set) {
  for (size_t i = 0; i < set->count; i++) {
    const tide_node node = set->nodes[i];
    TIDE_TRY(set_add_asked(device, set, ask_dependencies, &node));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Markers

void tide__markers_free(tide_device_cache* device, tide__block* block) {
  if (block->markers == NULL) return;
  const size_t bytes = sizeof(tide__markers) + block->markers->count * sizeof(tide_node);
  tide__heap_release(device->heap, block->markers, 1, bytes);
  block->markers = NULL;
}

// The nodes at which the streams of a block stand, if all are in one capture; else an empty set.
static tide_status block_markers(tide_device_cache* device, const tide__block* block, uint64_t capture,
                                 node_set* set) {
  const tide_stream own = tide__block_lane(block)->stream;
  if (capture == 0) return TIDE_OK;
  for (const tide__use* use = block->uses; use != NULL; use = use->next) {
    if (use->device != device->index || tide__stream_capture(device, use->stream) != capture) return TIDE_OK;
  }
  TIDE_TRY(set_add_asked(device, set, ask_terminals, &own));
  for (const tide__use* use = block->uses; use != NULL; use = use->next) {
    TIDE_TRY(set_add_asked(device, set, ask_terminals, &use->stream));
  }
  return TIDE_OK;
}

void tide__markers_make(tide_device_cache* device, tide__block* block) {
  const tide_error before = *tide_last_error();
  node_set set;
  set_init(&set, device->heap);
  const uint64_t capture = tide__stream_capture(device, tide__block_lane(block)->stream);
  const tide_status status = block_markers(device, block, capture, &set);
  if (status == TIDE_OK && set.count > 0) {
    block->markers = tide__heap_alloc(device->heap, 1, sizeof(tide__markers) + set.count * sizeof(tide_node));
    if (block->markers != NULL) {
      block->markers->capture = capture;
      block->markers->count = set.count;
      for (size_t i = 0; i < set.count; i++) block->markers->nodes[i] = set.nodes[i];
    }
  }
  set_free(&set);
  if (status != TIDE_OK) tide__error_restore(&before);  // without markers it waits for the end of the capture
}

static bool markers_are_in(const tide__markers* markers, const node_set* set) {
  for (size_t i = 0; i < markers->count; i++) {
    if (!set_has(set, markers->nodes[i])) return false;
  }
  return true;
}

// A point in a capture, and all that lies before it.
typedef struct capture_point {
  tide_stream stream;
  uint64_t capture;
  const node_set* before;
} capture_point;

// Does the graph order all uses of a waiting block before the point?
static bool block_is_over(tide__waiter* waiter, const void* user) {
  const tide__block* const block = TIDE_OWNER(waiter, tide__block, waiter);
  const capture_point* const point = user;
  return block->markers != NULL && block->markers->capture == point->capture &&
         tide__block_lane(block)->stream == point->stream && markers_are_in(block->markers, point->before);
}

// Frees every waiting block of the request's stream whose markers lie before the point the request's stream
// has come to.
static tide_status reuse_before(tide__request* request, uint64_t capture, node_set* set) {
  TIDE_TRY(set_add_asked(request->device, set, ask_terminals, &request->stream));
  TIDE_TRY(set_close(request->device, set));
  const capture_point point = { request->stream, capture, set };
  tide__waits_end_deferred(&request->device->waits, block_is_over, &point, &request->context);
  return TIDE_OK;
}

tide_status tide__capture_reuse(tide__request* request) {
  const uint64_t capture = tide__stream_capture(request->device, request->stream);
  if (capture == 0) return TIDE_OK;
  node_set set;
  set_init(&set, request->device->heap);
  const tide_status status = reuse_before(request, capture, &set);
  set_free(&set);
  return status;
}
