// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The capture functions of the table. Each finds its stream or graph and applies the rules of capture.h.
#include "machine/soft/capture.h"

#include "base/arith.h"
#include "machine/soft/thread.h"

// ---------------------------------------------------------------------------------------------------
// Begin and end

tide_status tide__soft_capture_exchange(void* self, tide_capture_mode mode, tide_capture_mode* out_before) {
  (void)self;
  *out_before = *tide__thread_capture_mode();
  *tide__thread_capture_mode() = mode;
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
  const tide_status status = tide__capture_start_locked(stream, capture);
  tide__mutex_unlock(&soft->capture_lock);
  if (status != TIDE_OK) tide__heap_release(soft->heap, capture, 1, sizeof *capture);
  return status;
}

// May this thread end the capture on this stream?
static tide_status capture_check_end_locked(const tide__stream* stream) {
  tide__capture* capture = stream->capture;
  if (capture == NULL) return tide__capture_fail("capture_end", "the stream is not being captured");
  if (capture->origin != stream) {
    capture->is_invalid = true;
    return tide__capture_fail("capture_end", "the capture began on another stream");
  }
  if (capture->mode != TIDE_CAPTURE_RELAXED && capture->thread != tide__thread_token()) {
    return tide__capture_fail("capture_end", "the capture began on another thread");
  }
  return TIDE_OK;
}

static tide_status capture_end_locked(tide__stream* stream, tide__graph** out_graph) {
  TIDE_TRY(capture_check_end_locked(stream));
  tide_status status = tide__capture_check_valid(stream->capture, "capture_end");
  if (status == TIDE_OK && !tide__graph_leads_to(stream->capture->graph, &stream->terminals)) {
    status = tide__capture_fail("capture_end",
                                "work of another stream in the capture was not joined into this one");
  }
  *out_graph = tide__capture_finish_locked(stream->soft, stream->capture);
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
  for (size_t i = 0; i < count && i < capacity; i++) nodes[i] = tide__node_handle(graph, from[i]);
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
  const tide__node* node = tide__node_find_locked(soft, handle, &graph);
  if (node != NULL) {
    *out_count = node->dependency_count;
    nodes_write(graph, node->dependencies, *out_count, nodes, capacity);
  }
  tide__mutex_unlock(&soft->capture_lock);
  TIDE_REQUIRE(node != NULL, TIDE_ERR_HANDLE, "node_dependencies: %p is not a node of this machine",
               (void*)handle);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Launching

// Queues a launch after the previous one, which may be on another stream.
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
  TIDE_REQUIRE(graph != NULL, TIDE_ERR_HANDLE, "launch: %p is not a graph of this machine", (void*)handle);
  return status;
}

tide_status tide__soft_launch_free(void* self, tide_launch handle) {
  tide__soft* soft = self;
  tide__mutex_lock(&soft->capture_lock);
  tide__graph* graph = tide__slots_claim(&soft->graphs, tide__address(handle));
  tide__mutex_unlock(&soft->capture_lock);
  TIDE_REQUIRE(graph != NULL, TIDE_ERR_HANDLE, "launch_free: %p is not a graph of this machine",
               (void*)handle);
  tide__graph_drop(soft, graph);
  return TIDE_OK;
}
