// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Streams, events and captures of the cuda machine.
#include "machine/cuda/cuda.h"

static tide__cu_stream cuda_stream(tide_stream stream) { return (tide__cu_stream)(void*)stream; }

// ---------------------------------------------------------------------------------------------------
// Streams

tide_status tide__cuda_stream_new(void* self, int device, uint32_t flags, int priority, tide_stream* out) {
  tide__cuda* cuda = self;
  tide__cu_stream stream = NULL;
  tide__cu_result result = 0;
  const unsigned kind = (flags & TIDE_STREAM_NON_BLOCKING) != 0 ? TIDE__CU_STREAM_NON_BLOCKING : 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.stream_create(&stream, kind, priority));
  TIDE_TRY(tide__cuda_status(cuda, "stream_new", result));
  *out = (tide_stream)(void*)stream;
  return TIDE_OK;
}

tide_status tide__cuda_stream_free(void* self, int device, tide_stream stream) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.stream_destroy(cuda_stream(stream)));
  return tide__cuda_status(cuda, "stream_free", result);
}

tide_status tide__cuda_stream_query(void* self, int device, tide_stream stream, bool* out_idle) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.stream_query(cuda_stream(stream)));
  *out_idle = result == TIDE__CU_SUCCESS;
  return result == TIDE__CU_NOT_READY ? TIDE_OK : tide__cuda_status(cuda, "stream_query", result);
}

tide_status tide__cuda_stream_synchronize(void* self, int device, tide_stream stream) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.stream_synchronize(cuda_stream(stream)));
  return tide__cuda_status(cuda, "stream_synchronize", result);
}

tide_status tide__cuda_device_synchronize(void* self, int device) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.context_synchronize());
  return tide__cuda_status(cuda, "device_synchronize", result);
}

// ---------------------------------------------------------------------------------------------------
// Events

static tide_status cuda_event_find(tide__cuda* cuda, const char* name, tide_event handle,
                                   tide__cuda_event** out) {
  *out = tide__slots_find(&cuda->events, tide__address(handle));
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_HANDLE, "%s: %p is not an event of this machine", name, (void*)handle);
  return TIDE_OK;
}

tide_status tide__cuda_event_new(void* self, int device, tide_event* out) {
  tide__cuda* cuda = self;
  tide__cu_event event = NULL;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.event_create(&event, TIDE__CU_EVENT_DISABLE_TIMING));
  TIDE_TRY(tide__cuda_status(cuda, "event_new", result));
  tide__cuda_event* record = tide__slots_take(&cuda->events);
  if (record == NULL) {
    (void)cuda->api.event_destroy(event);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "event_new: no memory for its records");
  }
  record->device = device;
  record->event = event;
  *out = (tide_event)tide__pointer(tide__slots_publish(&cuda->events, record));
  return TIDE_OK;
}

tide_status tide__cuda_event_free(void* self, tide_event handle) {
  tide__cuda* cuda = self;
  tide__cuda_event* event = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(cuda_event_find(cuda, "event_free", handle, &event));
  CUDA_IN_DEVICE(cuda, event->device, result, cuda->api.event_destroy(event->event));
  TIDE_TRY(tide__cuda_status(cuda, "event_free", result));
  if (tide__slots_retire(event)) tide__slots_give(&cuda->events, event);
  return TIDE_OK;
}

tide_status tide__cuda_event_record(void* self, int device, tide_event handle, tide_stream stream) {
  tide__cuda* cuda = self;
  tide__cuda_event* event = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(cuda_event_find(cuda, "event_record", handle, &event));
  TIDE_REQUIRE(event->device == device, TIDE_ERR_DEVICE,
               "event_record: the event %p belongs to device %d, not %d", (void*)handle, event->device,
               device);
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.event_record(event->event, cuda_stream(stream)));
  return tide__cuda_status(cuda, "event_record", result);
}

tide_status tide__cuda_event_query(void* self, tide_event handle, bool* out_done) {
  tide__cuda* cuda = self;
  tide__cuda_event* event = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(cuda_event_find(cuda, "event_query", handle, &event));
  CUDA_IN_DEVICE(cuda, event->device, result, cuda->api.event_query(event->event));
  *out_done = result == TIDE__CU_SUCCESS;
  return result == TIDE__CU_NOT_READY ? TIDE_OK : tide__cuda_status(cuda, "event_query", result);
}

tide_status tide__cuda_event_synchronize(void* self, tide_event handle) {
  tide__cuda* cuda = self;
  tide__cuda_event* event = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(cuda_event_find(cuda, "event_synchronize", handle, &event));
  CUDA_IN_DEVICE(cuda, event->device, result, cuda->api.event_synchronize(event->event));
  return tide__cuda_status(cuda, "event_synchronize", result);
}

tide_status tide__cuda_stream_wait(void* self, int device, tide_stream stream, tide_event handle) {
  tide__cuda* cuda = self;
  tide__cuda_event* event = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(cuda_event_find(cuda, "stream_wait", handle, &event));
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.stream_wait(cuda_stream(stream), event->event, 0));
  return tide__cuda_status(cuda, "stream_wait", result);
}

// ---------------------------------------------------------------------------------------------------
// Work

// The device that an address is memory of; -1 for host memory and what the driver does not know.
static int cuda_device_of(const tide__cuda* cuda, tide__cu_pointer address) {
  uint32_t type = 0;
  int device = -1;
  const bool is_device =
      cuda->api.pointer_attribute(&type, TIDE__CU_POINTER_MEMORY_TYPE, address) == TIDE__CU_SUCCESS &&
      type == TIDE__CU_MEMORY_DEVICE &&
      cuda->api.pointer_attribute(&device, TIDE__CU_POINTER_DEVICE, address) == TIDE__CU_SUCCESS;
  return is_device && device < cuda->device_count ? device : -1;
}

// The contexts of both ends if they are memory of different devices, otherwise NULL.
static tide_status copy_find_contexts(tide__cuda* cuda, tide__cu_pointer to, tide__cu_pointer from,
                                      tide__cu_context out[2]) {
  const int destination = cuda_device_of(cuda, to);
  const int source = destination >= 0 ? cuda_device_of(cuda, from) : -1;
  if (source < 0 || source == destination) return TIDE_OK;
  TIDE_TRY(tide__cuda_context(cuda, destination, &out[0]));
  return tide__cuda_context(cuda, source, &out[1]);
}

// The plain copy cannot reach mapped memory of a device without peer access. The copy between two contexts
// stages the bytes there, and is direct elsewhere.
static tide_status copy_inside(tide__cuda* cuda, tide__cu_stream stream, tide__cu_pointer to,
                               tide__cu_pointer from, size_t bytes) {
  tide__cu_context contexts[2] = { NULL, NULL };
  if (cuda->device_count > 1) TIDE_TRY(copy_find_contexts(cuda, to, from, contexts));
  const bool is_plain = contexts[0] == NULL;
  return tide__cuda_status(cuda, "copy",
                           is_plain ? cuda->api.copy(to, from, bytes, stream)
                                    : cuda->api.copy_peer(to, contexts[0], from, contexts[1], bytes, stream));
}

tide_status tide__cuda_copy(void* self, int device, tide_stream stream, void* destination, const void* source,
                            size_t bytes) {
  tide__cuda* cuda = self;
  bool is_pushed = false;
  TIDE_TRY(tide__cuda_enter(cuda, device, &is_pushed));
  const tide_status status = copy_inside(cuda, cuda_stream(stream), tide__cuda_pointer(destination),
                                         tide__cuda_pointer(source), bytes);
  tide__cuda_leave(cuda, is_pushed);
  return status;
}

tide_status tide__cuda_fill(void* self, int device, tide_stream stream, void* destination, uint8_t value,
                            size_t bytes) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result,
                 cuda->api.fill(tide__cuda_pointer(destination), value, bytes, cuda_stream(stream)));
  return tide__cuda_status(cuda, "fill", result);
}

tide_status tide__cuda_call(void* self, int device, tide_stream stream, tide_call_fn function, void* user) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.call(cuda_stream(stream), function, user));
  return tide__cuda_status(cuda, "call", result);
}

// ---------------------------------------------------------------------------------------------------
// Captures

// When a capture begins or ends, a wrong state means that a rule of captures was broken.
static tide_status capture_status_of(const tide__cuda* cuda, const char* name, tide__cu_result result) {
  const tide_status status = tide__cuda_status(cuda, name, result);
  TIDE_REQUIRE(status != TIDE_ERR_STATE, TIDE_ERR_CAPTURE,
               "%s: the stream is already being captured, or is not captured", name);
  return status;
}

tide_status tide__cuda_capture_exchange(void* self, tide_capture_mode mode, tide_capture_mode* out_before) {
  tide__cuda* cuda = self;
  tide__cu_capture_mode inout = (tide__cu_capture_mode)mode;  // the same numbers
  TIDE_TRY(tide__cuda_status(cuda, "capture_exchange", cuda->api.capture_exchange(&inout)));
  *out_before = (tide_capture_mode)inout;
  return TIDE_OK;
}

tide_status tide__cuda_capture_begin(void* self, int device, tide_stream stream, tide_capture_mode mode) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result,
                 cuda->api.capture_begin(cuda_stream(stream), (tide__cu_capture_mode)mode));
  return capture_status_of(cuda, "capture_begin", result);
}

// For the driver, instantiating and destroying a graph are unsafe calls. They do not harm another capture, so
// they are made in relaxed mode.
static tide__cu_result exec_make(tide__cuda* cuda, tide__cu_graph graph, tide__cu_exec* out) {
  tide__cu_capture_mode mode = TIDE__CU_MODE_RELAXED;
  (void)cuda->api.capture_exchange(&mode);
  const tide__cu_result result = cuda->api.instantiate(out, graph, 0);
  (void)cuda->api.capture_exchange(&mode);
  return result;
}

static tide__cu_result exec_end(tide__cuda* cuda, tide__cu_exec exec) {
  tide__cu_capture_mode mode = TIDE__CU_MODE_RELAXED;
  (void)cuda->api.capture_exchange(&mode);
  const tide__cu_result result = cuda->api.exec_destroy(exec);
  (void)cuda->api.capture_exchange(&mode);
  return result;
}

// Ends a capture and instantiates its graph.
static tide_status capture_finish(tide__cuda* cuda, int device, tide_stream stream, tide__cuda_launch* out) {
  tide__cu_result result = 0;
  out->graph = NULL;
  out->device = device;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.capture_end(cuda_stream(stream), &out->graph));
  tide_status status = capture_status_of(cuda, "capture_end", result);
  if (status == TIDE_OK) {
    CUDA_IN_DEVICE(cuda, device, result, exec_make(cuda, out->graph, &out->exec));
    status = tide__cuda_status(cuda, "capture_end", result);
  }
  if (status != TIDE_OK && out->graph != NULL) (void)cuda->api.graph_destroy(out->graph);
  return status;
}

tide_status tide__cuda_capture_end(void* self, int device, tide_stream stream, tide_launch* out) {
  tide__cuda* cuda = self;
  tide__cuda_launch* launch = tide__slots_take(&cuda->launches);  // first: an ended capture cannot be kept
  TIDE_REQUIRE(launch != NULL, TIDE_ERR_NO_MEMORY, "capture_end: no memory for its records");
  const tide_status status = capture_finish(cuda, device, stream, launch);
  if (status != TIDE_OK) {
    tide__slots_give(&cuda->launches, launch);
    return status;
  }
  *out = (tide_launch)tide__pointer(tide__slots_publish(&cuda->launches, launch));
  return TIDE_OK;
}

// The state of a stream's capture. The driver owns the nodes; they are valid until the next call.
typedef struct capture_answer {
  tide__cu_capture_status status;
  tide__cu_id id;
  const tide__cu_node* nodes;
  size_t count;
} capture_answer;

static tide__cu_result capture_ask_inside(tide__cuda* cuda, tide__cu_stream stream, capture_answer* out) {
  tide__cu_graph graph = NULL;
  const tide__cu_edge* edges = NULL;
  if (cuda->api.capture_info_v3 == NULL) {
    return cuda->api.capture_info_v2(stream, &out->status, &out->id, &graph, &out->nodes, &out->count);
  }
  return cuda->api.capture_info_v3(stream, &out->status, &out->id, &graph, &out->nodes, &edges, &out->count);
}

static tide_status capture_ask(tide__cuda* cuda, const char* name, int device, tide_stream stream,
                               capture_answer* out) {
  tide__cu_result result = 0;
  *out = (capture_answer){ TIDE__CU_STATUS_NONE, 0, NULL, 0 };
  CUDA_IN_DEVICE(cuda, device, result, capture_ask_inside(cuda, cuda_stream(stream), out));
  if (result ==
      TIDE__CU_CAPTURE_IMPLICIT) {  // the legacy stream, while another is captured: it is not itself
    *out = (capture_answer){ TIDE__CU_STATUS_NONE, 0, NULL, 0 };
    return TIDE_OK;
  }
  return tide__cuda_status(cuda, name, result);
}

// The legacy stream tells of captures of blocking streams, and the question does not harm them.
static bool blocking_is_captured(tide__cuda* cuda) {
  capture_answer answer = { TIDE__CU_STATUS_NONE, 0, NULL, 0 };
  return capture_ask_inside(cuda, cuda_stream(TIDE_STREAM_LEGACY), &answer) == TIDE__CU_CAPTURE_IMPLICIT;
}

tide_status tide__cuda_event_record_all(void* self, int device, tide_event handle) {
  tide__cuda* cuda = self;
  tide__cuda_event* event = NULL;
  tide__cu_context context = NULL;
  tide__cu_result result = 0;
  bool is_captured = false;
  TIDE_TRY(cuda_event_find(cuda, "event_record_all", handle, &event));
  TIDE_REQUIRE(event->device == device, TIDE_ERR_DEVICE,
               "event_record_all: the event %p belongs to device %d, not %d", (void*)handle, event->device,
               device);
  TIDE_REQUIRE(cuda->api.context_record != NULL, TIDE_ERR_UNSUPPORTED,
               "event_record_all: the driver lacks cuCtxRecordEvent");
  TIDE_TRY(tide__cuda_context(cuda, device, &context));
  CUDA_IN_DEVICE(cuda, device, is_captured, blocking_is_captured(cuda));
  TIDE_REQUIRE(!is_captured, TIDE_ERR_CAPTURE, "event_record_all: a stream of the device is being captured");
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.context_record(context, event->event));
  return tide__cuda_status(cuda, "event_record_all", result);
}

// The number is queried only outside of captures, because the query would invalidate one. It is 0 if the
// driver does not report it.
static tide__cu_result stream_ask_inside(tide__cuda* cuda, tide__cu_stream stream, capture_answer* out,
                                         unsigned long long* out_number) {
  const tide__cu_result result = capture_ask_inside(cuda, stream, out);
  const bool is_asked = result == TIDE__CU_SUCCESS && out->status == TIDE__CU_STATUS_NONE &&
                        cuda->api.stream_number != NULL;
  if (is_asked && cuda->api.stream_number(stream, out_number) != TIDE__CU_SUCCESS) *out_number = 0;
  return result;
}

tide_status tide__cuda_stream_info(void* self, int device, tide_stream stream, bool* out_captured,
                                   uint64_t* out_number) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  unsigned long long number = 0;
  capture_answer answer = { TIDE__CU_STATUS_NONE, 0, NULL, 0 };
  CUDA_IN_DEVICE(cuda, device, result, stream_ask_inside(cuda, cuda_stream(stream), &answer, &number));
  const bool is_legacy = result == TIDE__CU_CAPTURE_IMPLICIT;  // while another is captured: it is not itself
  if (!is_legacy) TIDE_TRY(tide__cuda_status(cuda, "stream_info", result));
  *out_captured = !is_legacy && answer.status != TIDE__CU_STATUS_NONE;
  *out_number = number;
  return TIDE_OK;
}

tide_status tide__cuda_capture_info(void* self, int device, tide_stream stream, tide_capture_state* out_state,
                                    uint64_t* out_id) {
  capture_answer answer;
  TIDE_TRY(capture_ask(self, "capture_info", device, stream, &answer));
  *out_state = (tide_capture_state)answer.status;  // the same numbers
  *out_id = answer.status == TIDE__CU_STATUS_NONE ? 0 : answer.id;
  return TIDE_OK;
}

tide_status tide__cuda_capture_terminals(void* self, int device, tide_stream stream, tide_node* nodes,
                                         size_t capacity, size_t* out_count) {
  capture_answer answer;
  TIDE_TRY(capture_ask(self, "capture_terminals", device, stream, &answer));
  TIDE_REQUIRE(answer.status != TIDE__CU_STATUS_NONE, TIDE_ERR_STATE,
               "capture_terminals: the stream is not being captured");
  *out_count = answer.count;
  for (size_t i = 0; i < answer.count && i < capacity; i++) nodes[i] = (tide_node)(void*)answer.nodes[i];
  return TIDE_OK;
}

// Edges may have data, which is not used here, but the driver requires a place for it.
static tide__cu_result node_ask(tide__cuda* cuda, tide__cu_node node, tide__cu_node* nodes,
                                size_t* inout_count) {
  enum { EDGE_BYTES = 8 };
  if (cuda->api.node_dependencies_v2 == NULL) return cuda->api.node_dependencies_v1(node, nodes, inout_count);
  const size_t room = nodes != NULL ? *inout_count : 0;
  void* const edges = tide__heap_alloc(cuda->heap, room, EDGE_BYTES);  // without it, as far as that goes
  const tide__cu_result result = cuda->api.node_dependencies_v2(node, nodes, edges, inout_count);
  tide__heap_release(cuda->heap, edges, room, EDGE_BYTES);
  return result;
}

tide_status tide__cuda_node_dependencies(void* self, tide_node node, tide_node* nodes, size_t capacity,
                                         size_t* out_count) {
  tide__cuda* cuda = self;
  tide__cu_node theirs = (tide__cu_node)(void*)node;
  size_t count = 0;
  TIDE_TRY(tide__cuda_status(cuda, "node_dependencies", node_ask(cuda, theirs, NULL, &count)));
  size_t wanted = tide__min(count, capacity);
  if (wanted != 0) {
    const tide__cu_result result = node_ask(cuda, theirs, (tide__cu_node*)(void*)nodes, &wanted);
    TIDE_TRY(tide__cuda_status(cuda, "node_dependencies", result));
  }
  *out_count = count;
  return TIDE_OK;
}

static tide_status launch_find(tide__cuda* cuda, const char* name, tide_launch handle,
                               tide__cuda_launch** out) {
  *out = tide__slots_find(&cuda->launches, tide__address(handle));
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_HANDLE, "%s: %p is not a graph of this machine", name, (void*)handle);
  return TIDE_OK;
}

tide_status tide__cuda_launch_graph(void* self, int device, tide_launch handle, tide_stream stream) {
  tide__cuda* cuda = self;
  tide__cuda_launch* launch = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(launch_find(cuda, "launch", handle, &launch));
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.launch(launch->exec, cuda_stream(stream)));
  return tide__cuda_status(cuda, "launch", result);
}

tide_status tide__cuda_launch_free(void* self, tide_launch handle) {
  tide__cuda* cuda = self;
  tide__cuda_launch* launch = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(launch_find(cuda, "launch_free", handle, &launch));
  CUDA_IN_DEVICE(cuda, launch->device, result, exec_end(cuda, launch->exec));
  TIDE_TRY(tide__cuda_status(cuda, "launch_free", result));
  (void)cuda->api.graph_destroy(launch->graph);
  if (tide__slots_retire(launch)) tide__slots_give(&cuda->launches, launch);
  return TIDE_OK;
}
