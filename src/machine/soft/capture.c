// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Captures of the host and dry machines, by the rules of CUDA stream capture. A stream in a capture has a
// set of terminal nodes: the next piece of work depends on them and replaces them. An event recorded there
// remembers the set; a stream that waits for it joins the capture and adds the set to its own.
//
// All of it is guarded by one lock, which nobody takes while no capture is under way.
#include <string.h>

#include "base/arith.h"
#include "machine/soft/soft.h"

bool tide__capture_is_possible(tide__soft* soft) { return tide__load_acquire(&soft->capture_count) != 0; }

// ---------------------------------------------------------------------------------------------------
// Sets of nodes

static bool set_assign(const tide_heap* heap, tide__node_set* set, const tide__node_set* from) {
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

static bool set_add(const tide_heap* heap, tide__node_set* set, const tide__node_set* from) {
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

// Under the capture lock.
static tide__graph* graph_new(tide__soft* soft, uint64_t id) {
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
  tide__mutex_lock(&soft->capture_lock);  // for who looks at nodes just now
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

static bool graph_add(tide__soft* soft, tide__graph* graph, const tide__op* op,
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

// Does every node lead to one of these terminals? Only one that nothing depends on can fail to.
static bool graph_leads_to(const tide__graph* graph, const tide__node_set* terminals) {
  for (size_t i = 0; i < graph->count; i++) {
    if (!graph->nodes[i].has_successor && !set_has(terminals, (uint32_t)i)) return false;
  }
  return true;
}

// A node is named by the place of its graph, the last 16 bits of its capture's number, and its own place.
// So a stale one can be taken for another only after 65,536 captures.
#define NODE_BITS 24u
#define GRAPH_BITS 24u

static tide_node node_handle(const tide__graph* graph, uint32_t node) {
  const uint64_t place = (uint64_t)(graph->slot.index) << NODE_BITS | (node + 1);
  return (tide_node)tide__pointer(graph->id << (NODE_BITS + GRAPH_BITS) | place);
}

// The node of a handle, or NULL. Under the capture lock.
static const tide__node* node_find_locked(tide__soft* soft, tide_node handle, const tide__graph** out_graph) {
  const uint64_t value = tide__address(handle);
  const uint32_t index = (uint32_t)(value >> NODE_BITS) & ((1u << GRAPH_BITS) - 1);
  const uint32_t node = (uint32_t)value & ((1u << NODE_BITS) - 1);
  if (index >= tide__slots_count(&soft->graphs)) return NULL;
  const tide__graph* graph = tide__slots_at(&soft->graphs, index);
  const bool is_same = (graph->id << (NODE_BITS + GRAPH_BITS)) >> (NODE_BITS + GRAPH_BITS) ==
                       value >> (NODE_BITS + GRAPH_BITS);
  if (!is_same || tide__load_relaxed(&graph->refs) == 0 || node == 0 || node > graph->count) return NULL;
  *out_graph = graph;
  return &graph->nodes[node - 1];
}

// ---------------------------------------------------------------------------------------------------
// Rules

static tide_status capture_fail(const char* name, const char* rule) {
  return TIDE_FAIL(TIDE_ERR_CAPTURE, "%s: %s", name, rule);
}

// As the CUDA driver sees it, such an event is no event until it is recorded again.
static tide_status capture_fail_ended(const char* name) {
  return TIDE_FAIL(TIDE_ERR_ARGUMENT, "%s: the event was recorded in a capture that has ended", name);
}

static tide__capture* capture_find_locked(tide__soft* soft, uint64_t id) {
  TIDE_LIST_EACH(it, &soft->captures) {
    tide__capture* capture = TIDE_OWNER(it, tide__capture, link);
    if (capture->id == id) return capture;
  }
  return NULL;
}

tide_status tide__capture_guard(tide__soft* soft, const char* name) {
  if (!tide__capture_is_possible(soft)) return TIDE_OK;
  const tide_capture_mode mode = *tide__thread_capture_mode();
  if (mode == TIDE_CAPTURE_RELAXED) return TIDE_OK;
  bool is_refused = false;
  tide__mutex_lock(&soft->capture_lock);
  TIDE_LIST_EACH(it, &soft->captures) {
    tide__capture* capture = TIDE_OWNER(it, tide__capture, link);
    const bool is_own = capture->thread == tide__thread_token() && capture->mode != TIDE_CAPTURE_RELAXED;
    const bool is_global = mode == TIDE_CAPTURE_GLOBAL && capture->mode == TIDE_CAPTURE_GLOBAL;
    if (is_own || is_global) capture->is_invalid = is_refused = true;
  }
  tide__mutex_unlock(&soft->capture_lock);
  return is_refused ? capture_fail(name, "is not safe while a capture is under way") : TIDE_OK;
}

// Does a capture contain a stream of this device for which `is_any`, or which waits for the legacy stream?
static bool capture_touches(const tide__capture* capture, int device, bool is_any) {
  for (const tide__link* it = capture->members.next; it != &capture->members; it = it->next) {
    const tide__stream* stream = TIDE_OWNER_CONST(it, tide__stream, in_capture);
    if (tide__load_relaxed(&stream->device) == device && (is_any || tide__stream_is_blocking(stream)))
      return true;
  }
  return false;
}

// Invalidates the captures that contain such a stream; true if there are any.
static bool captures_invalidate_locked(tide__soft* soft, int device, bool is_any) {
  bool is_found = false;
  TIDE_LIST_EACH(it, &soft->captures) {
    tide__capture* capture = TIDE_OWNER(it, tide__capture, link);
    if (capture_touches(capture, device, is_any)) capture->is_invalid = is_found = true;
  }
  return is_found;
}

tide_status tide__capture_check_use_locked(tide__stream* stream, const char* name) {
  if (!tide__load_relaxed(&stream->is_legacy)) return TIDE_OK;
  if (!captures_invalidate_locked(stream->soft, tide__load_relaxed(&stream->device), false)) return TIDE_OK;
  return capture_fail(name, "the legacy stream would depend on a stream that is being captured");
}

tide_status tide__capture_refuse_stream_locked(tide__stream* stream, const char* name) {
  if (stream->capture == NULL) return tide__capture_check_use_locked(stream, name);
  stream->capture->is_invalid = true;
  return capture_fail(name, "the stream is being captured");
}

tide_status tide__capture_refuse_event_locked(tide__soft* soft, const char* name, uint64_t capture_id) {
  tide__capture* capture = capture_find_locked(soft, capture_id);
  if (capture == NULL) return capture_fail_ended(name);
  capture->is_invalid = true;
  return capture_fail(name, "the event was recorded in a capture");
}

tide_status tide__capture_refuse_device_locked(tide__soft* soft, const char* name, int device) {
  if (!captures_invalidate_locked(soft, device, true)) return TIDE_OK;
  return capture_fail(name, "a stream of the device is being captured");
}

static tide_status capture_check_valid(const tide__capture* capture, const char* name) {
  return capture->is_invalid ? capture_fail(name, "the capture is invalid; end it") : TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Work in a capture

tide_status tide__capture_note_locked(tide__stream* stream, const char* name, const tide__op* op) {
  tide__soft* soft = stream->soft;
  tide__capture* capture = stream->capture;
  TIDE_TRY(capture_check_valid(capture, name));
  tide__graph* graph = capture->graph;
  TIDE_REQUIRE(graph->count + 1 < (size_t)1 << NODE_BITS, TIDE_ERR_LIMIT, "%s: the capture has %zu nodes",
               name, graph->count);
  void* terminals = stream->terminals.nodes;
  const bool has_room =
      tide__heap_grow(soft->heap, &terminals, &stream->terminals.capacity, 1, sizeof(uint32_t));
  stream->terminals.nodes = terminals;
  TIDE_REQUIRE(has_room && graph_add(soft, graph, op, &stream->terminals), TIDE_ERR_NO_MEMORY,
               "%s: no memory for a node of the capture", name);
  stream->terminals.nodes[0] = (uint32_t)(graph->count - 1);
  stream->terminals.count = 1;
  return TIDE_OK;
}

tide_status tide__capture_record_locked(tide__stream* stream, const char* name, tide__event* event) {
  TIDE_TRY(capture_check_valid(stream->capture, name));
  TIDE_REQUIRE(set_assign(stream->soft->heap, &event->nodes, &stream->terminals), TIDE_ERR_NO_MEMORY,
               "%s: no memory for the nodes of an event", name);
  tide__mutex_lock(&event->lock);
  event->point = (tide__point){ NULL, 0 };
  event->capture_id = stream->capture->id;
  tide__mutex_unlock(&event->lock);
  return TIDE_OK;
}

// A capturing stream waits for an event of ordinary work: only one that never was recorded is no dependency.
static tide_status capture_wait_outside_locked(tide__stream* stream, const char* name, tide__point point) {
  TIDE_ASSERT(stream->capture != NULL);
  if (point.stream == NULL) return TIDE_OK;
  stream->capture->is_invalid = true;
  return capture_fail(name, "a captured stream cannot wait for work outside its capture");
}

tide_status tide__capture_wait_locked(tide__stream* stream, const char* name, tide__event* event,
                                      tide__point point, uint64_t capture_id) {
  if (stream->capture != NULL) TIDE_TRY(capture_check_valid(stream->capture, name));
  if (capture_id == 0) return capture_wait_outside_locked(stream, name, point);
  tide__capture* capture = capture_find_locked(stream->soft, capture_id);
  if (capture == NULL) return capture_fail_ended(name);
  TIDE_TRY(capture_check_valid(capture, name));
  if (tide__load_relaxed(&stream->is_legacy)) return tide__capture_check_use_locked(stream, name);
  if (stream->capture != NULL && stream->capture != capture) {
    stream->capture->is_invalid = capture->is_invalid = true;
    return capture_fail(name, "two captures would become one");
  }
  TIDE_REQUIRE(set_add(stream->soft->heap, &stream->terminals, &event->nodes), TIDE_ERR_NO_MEMORY,
               "%s: no memory for the nodes of a stream", name);
  if (stream->capture == NULL) {
    stream->capture = capture;
    tide__list_append(&capture->members, &stream->in_capture);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Begin and end

tide_status tide__soft_capture_exchange(void* self, tide_capture_mode mode, tide_capture_mode* out_before) {
  (void)self;
  *out_before = *tide__thread_capture_mode();
  *tide__thread_capture_mode() = mode;
  return TIDE_OK;
}

static tide_status capture_start_locked(tide__stream* stream, tide__capture* capture) {
  tide__soft* soft = stream->soft;
  TIDE_REQUIRE(stream->capture == NULL, TIDE_ERR_CAPTURE,
               "capture_begin: the stream is being captured already");
  capture->id = soft->last_capture_id + 1;
  capture->graph = graph_new(soft, capture->id);
  TIDE_REQUIRE(capture->graph != NULL, TIDE_ERR_NO_MEMORY, "capture_begin: no memory for its records");
  soft->last_capture_id++;
  tide__list_init(&capture->members);
  tide__list_append(&capture->members, &stream->in_capture);
  tide__list_append(&soft->captures, &capture->link);
  stream->capture = capture;
  stream->terminals.count = 0;
  tide__add_seq(&soft->capture_count, 1);
  return TIDE_OK;
}

tide_status tide__soft_capture_begin(void* self, int device, tide_stream handle, tide_capture_mode mode) {
  tide__soft* soft = self;
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(soft, "capture_begin", device, handle, &stream));
  TIDE_REQUIRE(!tide__load_relaxed(&stream->is_legacy), TIDE_ERR_CAPTURE,
               "capture_begin: the legacy stream cannot be captured");
  tide__capture* capture = tide__heap_alloc(soft->heap, 1, sizeof *capture);
  TIDE_REQUIRE(capture != NULL, TIDE_ERR_NO_MEMORY, "capture_begin: no memory for its records");
  capture->mode = mode;
  capture->thread = tide__thread_token();
  capture->origin = stream;
  tide__mutex_lock(&soft->capture_lock);
  const tide_status status = capture_start_locked(stream, capture);
  tide__mutex_unlock(&soft->capture_lock);
  if (status != TIDE_OK) tide__heap_release(soft->heap, capture, 1, sizeof *capture);
  return status;
}

// Lets all streams out of a capture and ends it; the graph is the caller's.
static tide__graph* capture_finish_locked(tide__soft* soft, tide__capture* capture) {
  tide__graph* graph = capture->graph;
  while (!tide__list_is_empty(&capture->members)) {
    tide__stream* stream = TIDE_OWNER(capture->members.next, tide__stream, in_capture);
    tide__list_unlink(&stream->in_capture);
    stream->capture = NULL;
    stream->terminals.count = 0;
  }
  tide__list_unlink(&capture->link);
  tide__sub_seq(&soft->capture_count, 1);
  tide__heap_release(soft->heap, capture, 1, sizeof *capture);
  return graph;
}

void tide__capture_abandon(tide__stream* stream) {
  tide__soft* soft = stream->soft;
  tide__graph* graph = NULL;
  tide__mutex_lock(&soft->capture_lock);
  tide__capture* capture = stream->capture;
  if (capture != NULL && capture->origin == stream) {
    graph = capture_finish_locked(soft, capture);
  } else if (capture != NULL) {
    tide__list_unlink(&stream->in_capture);
    stream->capture = NULL;
    stream->terminals.count = 0;
  }
  tide__mutex_unlock(&soft->capture_lock);
  if (graph != NULL) tide__graph_drop(soft, graph);
}

// Who may end a capture here?
static tide_status capture_check_end_locked(const tide__stream* stream) {
  tide__capture* capture = stream->capture;
  if (capture == NULL) return capture_fail("capture_end", "the stream is not being captured");
  if (capture->origin != stream) {
    capture->is_invalid = true;
    return capture_fail("capture_end", "the capture began on another stream");
  }
  if (capture->mode != TIDE_CAPTURE_RELAXED && capture->thread != tide__thread_token()) {
    return capture_fail("capture_end", "the capture began on another thread");
  }
  return TIDE_OK;
}

static tide_status capture_end_locked(tide__stream* stream, tide__graph** out_graph) {
  TIDE_TRY(capture_check_end_locked(stream));
  tide_status status = capture_check_valid(stream->capture, "capture_end");
  if (status == TIDE_OK && !graph_leads_to(stream->capture->graph, &stream->terminals)) {
    status =
        capture_fail("capture_end", "work of another stream in the capture was not joined into this one");
  }
  *out_graph = capture_finish_locked(stream->soft, stream->capture);
  return status;
}

tide_status tide__soft_capture_end(void* self, int device, tide_stream handle, tide_launch* out) {
  tide__soft* soft = self;
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(soft, "capture_end", device, handle, &stream));
  tide__graph* graph = NULL;
  tide__mutex_lock(&soft->capture_lock);
  const tide_status status = capture_end_locked(stream, &graph);
  tide__mutex_unlock(&soft->capture_lock);
  if (status == TIDE_OK) {
    *out = (tide_launch)tide__pointer(tide__slots_publish(&soft->graphs, graph));
  } else if (graph != NULL) {
    tide__graph_drop(soft, graph);
  }
  return status;
}

tide_status tide__soft_stream_info(void* self, int device, tide_stream handle, bool* out_captured,
                                   uint64_t* out_number) {
  tide__soft* soft = self;
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(soft, "stream_info", device, handle, &stream));
  *out_number = tide__load_relaxed(&stream->number);
  if (!tide__capture_is_possible(soft)) return TIDE_OK;
  tide__mutex_lock(&soft->capture_lock);
  *out_captured = stream->capture != NULL;
  tide__mutex_unlock(&soft->capture_lock);
  return TIDE_OK;
}

tide_status tide__soft_capture_info(void* self, int device, tide_stream handle, tide_capture_state* out_state,
                                    uint64_t* out_id) {
  tide__soft* soft = self;
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(soft, "capture_info", device, handle, &stream));
  if (!tide__capture_is_possible(soft)) return TIDE_OK;
  tide__mutex_lock(&soft->capture_lock);
  const tide__capture* capture = stream->capture;
  if (capture != NULL) {
    *out_state = capture->is_invalid ? TIDE_CAPTURE_INVALIDATED : TIDE_CAPTURE_ACTIVE;
    *out_id = capture->is_invalid ? 0 : capture->id;
  }
  tide__mutex_unlock(&soft->capture_lock);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Nodes

static void nodes_write(const tide__graph* graph, const uint32_t* from, size_t count, tide_node* nodes,
                        size_t capacity) {
  for (size_t i = 0; i < count && i < capacity; i++) nodes[i] = node_handle(graph, from[i]);
}

tide_status tide__soft_capture_terminals(void* self, int device, tide_stream handle, tide_node* nodes,
                                         size_t capacity, size_t* out_count) {
  tide__soft* soft = self;
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(soft, "capture_terminals", device, handle, &stream));
  tide__mutex_lock(&soft->capture_lock);
  const bool is_capturing = stream->capture != NULL;
  if (is_capturing) {
    *out_count = stream->terminals.count;
    nodes_write(stream->capture->graph, stream->terminals.nodes, *out_count, nodes, capacity);
  }
  tide__mutex_unlock(&soft->capture_lock);
  TIDE_REQUIRE(is_capturing, TIDE_ERR_STATE, "capture_terminals: the stream is not being captured");
  return TIDE_OK;
}

tide_status tide__soft_node_dependencies(void* self, tide_node handle, tide_node* nodes, size_t capacity,
                                         size_t* out_count) {
  tide__soft* soft = self;
  const tide__graph* graph = NULL;
  tide__mutex_lock(&soft->capture_lock);
  const tide__node* node = node_find_locked(soft, handle, &graph);
  if (node != NULL) {
    *out_count = node->dependency_count;
    nodes_write(graph, node->dependencies, *out_count, nodes, capacity);
  }
  tide__mutex_unlock(&soft->capture_lock);
  TIDE_REQUIRE(node != NULL, TIDE_ERR_HANDLE, "node_dependencies: %p is no node of this machine",
               (void*)handle);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Launching

// Queues a launch behind the one before it, wherever that was.
static tide_status launch_locked(tide__stream* stream, tide__graph* graph) {
  TIDE_TRY(tide__capture_refuse_stream_locked(stream, "launch"));
  const tide__op op = { .kind = TIDE__OP_LAUNCH, .u.graph = graph };
  const tide__point before = graph->last_launch;
  const bool must_wait = before.stream != stream;
  tide__add_seq(&graph->refs, 1);  // for the queued launch
  const tide_status status =
      tide__stream_push(stream, "launch", must_wait ? &before : NULL, &op, &graph->last_launch);
  if (status != TIDE_OK) tide__sub_seq(&graph->refs, 1);  // the handle still holds one
  return status;
}

tide_status tide__soft_launch(void* self, int device, tide_launch handle, tide_stream stream_handle) {
  tide__soft* soft = self;
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(soft, "launch", device, stream_handle, &stream));
  tide__mutex_lock(&soft->capture_lock);
  tide__graph* graph = tide__slots_find(&soft->graphs, tide__address(handle));
  const tide_status status = graph != NULL ? launch_locked(stream, graph) : TIDE_OK;
  tide__mutex_unlock(&soft->capture_lock);
  TIDE_REQUIRE(graph != NULL, TIDE_ERR_HANDLE, "launch: %p is no graph of this machine", (void*)handle);
  return status;
}

tide_status tide__soft_launch_free(void* self, tide_launch handle) {
  tide__soft* soft = self;
  tide__mutex_lock(&soft->capture_lock);
  tide__graph* graph = tide__slots_claim(&soft->graphs, tide__address(handle));
  tide__mutex_unlock(&soft->capture_lock);
  TIDE_REQUIRE(graph != NULL, TIDE_ERR_HANDLE, "launch_free: %p is no graph of this machine", (void*)handle);
  tide__graph_drop(soft, graph);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The end

void tide__captures_fini(tide__soft* soft) {
  while (!tide__list_is_empty(&soft->captures)) {
    tide__mutex_lock(&soft->capture_lock);
    tide__graph* graph = capture_finish_locked(soft, TIDE_OWNER(soft->captures.next, tide__capture, link));
    tide__mutex_unlock(&soft->capture_lock);
    tide__graph_drop(soft, graph);
  }
  const uint32_t graphs = tide__slots_count(&soft->graphs);
  for (uint32_t i = 0; i < graphs; i++) {
    tide__graph* graph = tide__slots_at(&soft->graphs, i);
    if (tide__slots_retire(graph)) tide__graph_drop(soft, graph);
  }
  const uint32_t events = tide__slots_count(&soft->events);
  for (uint32_t i = 0; i < events; i++) {
    tide__event* event = tide__slots_at(&soft->events, i);
    tide__heap_release(soft->heap, event->nodes.nodes, event->nodes.capacity, sizeof(uint32_t));
  }
}
