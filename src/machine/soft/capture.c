// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Captures of the host and dry machines, by the rules of CUDA stream capture. A captured stream has a set of
// terminal nodes: the next operation depends on them and replaces them. An event that is recorded there keeps
// the set. A stream that waits for the event joins the capture and adds the set to its own.
//
// One lock guards all of it. No call takes it while no capture is active.
#include "machine/soft/capture.h"

#include "machine/soft/thread.h"

// ---------------------------------------------------------------------------------------------------
// Rules

tide_status tide__capture_fail(const char* name, const char* rule) {
  return TIDE_FAIL(TIDE_ERR_CAPTURE, "%s: %s", name, rule);
}

// The CUDA driver treats such an event as invalid until it is recorded again.
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
  return is_refused ? tide__capture_fail(name, "is not safe during a capture") : TIDE_OK;
}

// Does a capture contain a stream of this device? Unless `is_any`, only blocking streams count.
static bool capture_touches(const tide__capture* capture, int device, bool is_any) {
  for (const tide__link* it = capture->members.next; it != &capture->members; it = it->next) {
    const tide__stream* stream = TIDE_OWNER_CONST(it, tide__stream, in_capture);
    if (tide__load_relaxed(&stream->device) == device && (is_any || tide__stream_is_blocking(stream)))
      return true;
  }
  return false;
}

// Invalidates the captures that contain such a stream. Returns whether there are any.
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
  return tide__capture_fail(name, "the legacy stream would depend on a stream that is being captured");
}

tide_status tide__capture_refuse_stream_locked(tide__stream* stream, const char* name) {
  if (stream->capture == NULL) return tide__capture_check_use_locked(stream, name);
  stream->capture->is_invalid = true;
  return tide__capture_fail(name, "the stream is being captured");
}

tide_status tide__capture_refuse_event_locked(tide__soft* soft, const char* name, uint64_t capture_id) {
  tide__capture* capture = capture_find_locked(soft, capture_id);
  if (capture == NULL) return capture_fail_ended(name);
  capture->is_invalid = true;
  return tide__capture_fail(name, "the event was recorded in a capture");
}

tide_status tide__capture_refuse_device_locked(tide__soft* soft, const char* name, int device) {
  if (!captures_invalidate_locked(soft, device, true)) return TIDE_OK;
  return tide__capture_fail(name, "a stream of the device is being captured");
}

bool tide__capture_has_device_locked(tide__soft* soft, int device) {
  TIDE_LIST_EACH(it, &soft->captures) {
    if (capture_touches(TIDE_OWNER(it, tide__capture, link), device, true)) return true;
  }
  return false;
}

tide_status tide__capture_check_valid(const tide__capture* capture, const char* name) {
  return capture->is_invalid ? tide__capture_fail(name, "the capture is invalid; end it") : TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Work in a capture

tide_status tide__capture_note_locked(tide__stream* stream, const char* name, const tide__op* op) {
  tide__soft* soft = stream->soft;
  tide__capture* capture = stream->capture;
  TIDE_TRY(tide__capture_check_valid(capture, name));
  tide__graph* graph = capture->graph;
  TIDE_REQUIRE(graph->count + 1 < (size_t)1 << TIDE__NODE_BITS, TIDE_ERR_LIMIT,
               "%s: the capture has %zu nodes", name, graph->count);
  void* terminals = stream->terminals.nodes;
  const bool has_room =
      tide__heap_grow(soft->heap, &terminals, &stream->terminals.capacity, 1, sizeof(uint32_t));
  stream->terminals.nodes = terminals;
  TIDE_REQUIRE(has_room && tide__graph_add(soft, graph, op, &stream->terminals), TIDE_ERR_NO_MEMORY,
               "%s: no memory for a node of the capture", name);
  stream->terminals.nodes[0] = (uint32_t)(graph->count - 1);
  stream->terminals.count = 1;
  return TIDE_OK;
}

tide_status tide__capture_record_locked(tide__stream* stream, const char* name, tide__event* event) {
  TIDE_TRY(tide__capture_check_valid(stream->capture, name));
  TIDE_REQUIRE(tide__node_set_assign(stream->soft->heap, &event->nodes, &stream->terminals),
               TIDE_ERR_NO_MEMORY, "%s: no memory for the nodes of an event", name);
  tide__mutex_lock(&event->lock);
  event->point = (tide__point){ NULL, 0 };
  event->capture_id = stream->capture->id;
  tide__mutex_unlock(&event->lock);
  return TIDE_OK;
}

// A captured stream waits for an event outside of its capture. Only an event that was never recorded is
// allowed.
static tide_status capture_wait_outside_locked(tide__stream* stream, const char* name, tide__point point) {
  TIDE_ASSERT(stream->capture != NULL);
  if (point.stream == NULL) return TIDE_OK;
  stream->capture->is_invalid = true;
  return tide__capture_fail(name, "a captured stream cannot wait for work outside its capture");
}

tide_status tide__capture_wait_locked(tide__stream* stream, const char* name, tide__event* event,
                                      tide__point point, uint64_t capture_id) {
  if (stream->capture != NULL) TIDE_TRY(tide__capture_check_valid(stream->capture, name));
  if (capture_id == 0) return capture_wait_outside_locked(stream, name, point);
  tide__capture* capture = capture_find_locked(stream->soft, capture_id);
  if (capture == NULL) return capture_fail_ended(name);
  TIDE_TRY(tide__capture_check_valid(capture, name));
  if (tide__load_relaxed(&stream->is_legacy)) return tide__capture_check_use_locked(stream, name);
  if (stream->capture != NULL && stream->capture != capture) {
    stream->capture->is_invalid = capture->is_invalid = true;
    return tide__capture_fail(name, "it would merge two captures");
  }
  TIDE_REQUIRE(tide__node_set_add(stream->soft->heap, &stream->terminals, &event->nodes), TIDE_ERR_NO_MEMORY,
               "%s: no memory for the nodes of a stream", name);
  if (stream->capture == NULL) {
    stream->capture = capture;
    tide__list_append(&capture->members, &stream->in_capture);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Begin and end

tide_status tide__capture_start_locked(tide__stream* stream, tide__capture* capture) {
  tide__soft* soft = stream->soft;
  TIDE_REQUIRE(stream->capture == NULL, TIDE_ERR_CAPTURE,
               "capture_begin: the stream is already being captured");
  capture->id = soft->last_capture_id + 1;
  capture->graph = tide__graph_new(soft, capture->id);
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

tide__graph* tide__capture_finish_locked(tide__soft* soft, tide__capture* capture) {
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
    graph = tide__capture_finish_locked(soft, capture);
  } else if (capture != NULL) {
    tide__list_unlink(&stream->in_capture);
    stream->capture = NULL;
    stream->terminals.count = 0;
  }
  tide__mutex_unlock(&soft->capture_lock);
  if (graph != NULL) tide__graph_drop(soft, graph);
}

void tide__captures_fini(tide__soft* soft) {
  while (!tide__list_is_empty(&soft->captures)) {
    tide__mutex_lock(&soft->capture_lock);
    tide__graph* graph =
        tide__capture_finish_locked(soft, TIDE_OWNER(soft->captures.next, tide__capture, link));
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
