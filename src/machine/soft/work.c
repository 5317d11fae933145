// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Copies, fills, calls and launches, from the call that queues them until they run. The executor of the
// backend calls tide__op_execute().
#include "machine/soft/work.h"

#include "base/arith.h"
#include "machine/soft/capture.h"
#include "machine/soft/memory.h"
#include "machine/soft/thread.h"

// On dry, work that is due runs each time that this many operations were queued.
#define LONG_QUEUE 1024u
// Up to this size a move runs while the memory lock is held, which is cheaper than an entry in soft->busy.
#define SMALL_MOVE_BYTES 4096u

tide_status tide__stream_submit(tide__stream* stream, const char* name, const tide__op* op) {
  tide__soft* soft = stream->soft;
  if (tide__capture_is_possible(soft)) {
    tide__mutex_lock(&soft->capture_lock);
    const bool is_capturing = stream->capture != NULL;
    const tide_status status = is_capturing ? tide__capture_note_locked(stream, name, op)
                                            : tide__capture_check_use_locked(stream, name);
    tide__mutex_unlock(&soft->capture_lock);
    if (is_capturing || status != TIDE_OK) return status;
  }
  const uint64_t before = tide__load_relaxed(&stream->enqueued);
  TIDE_TRY(tide__stream_push(stream, name, NULL, op, NULL));
  if (tide__load_relaxed(&stream->enqueued) / LONG_QUEUE != before / LONG_QUEUE) tide__soft_settle(soft);
  return TIDE_OK;
}

// Checks both ends of a move and finds the ranges they lie in. Only a copy can be staged.
static tide_status move_check_locked(tide__soft* soft, const char* name, const tide__op* op, bool* out_staged,
                                     uint64_t* out_source, uint64_t* out_destination) {
  const uint64_t bytes = op->u.move.bytes;
  *out_source = 0;
  if (op->kind == TIDE__OP_COPY) {
    TIDE_TRY(tide__soft_check_locked(soft, name, op->device, op->u.move.source, bytes, false, out_staged,
                                     out_source));
  }
  TIDE_TRY(tide__soft_check_locked(soft, name, op->device, op->u.move.destination, bytes, true, out_staged,
                                   out_destination));
  TIDE_REQUIRE(!*out_staged || op->kind == TIDE__OP_COPY, TIDE_ERR_ACCESS,
               "%s: device %d has no access to %p", name, op->device, tide__pointer(op->u.move.destination));
  return TIDE_OK;
}

static bool is_of_device_locked(tide__soft* soft, uint64_t address) {
  const tide__range* range = tide__range_in_locked(soft, address, address + 1);
  return range != NULL && range->kind != TIDE_MEMORY_PINNED;
}

// How long a copy takes; only one between host and device takes time.
static uint64_t copy_ns_locked(tide__soft* soft, const tide__op* op) {
  if (op->kind != TIDE__OP_COPY || soft->backend->copy_ns == NULL) return 0;
  const bool is_from_device = is_of_device_locked(soft, op->u.move.source);
  const bool is_over_bus = is_of_device_locked(soft, op->u.move.destination) != is_from_device;
  return is_over_bus ? soft->backend->copy_ns(soft, op->u.move.bytes) : 0;
}

static tide_status move_submit(tide__soft* soft, const char* name, tide_stream handle, tide__op* op) {
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(soft, name, op->device, handle, &stream));
  bool is_staged = false;
  tide__mutex_lock(&soft->memory_lock);
  const tide_status status = move_check_locked(soft, name, op, &is_staged, &op->u.move.source_identity,
                                               &op->u.move.destination_identity);
  op->u.move.ns = copy_ns_locked(soft, op);
  tide__mutex_unlock(&soft->memory_lock);
  TIDE_TRY(status);
  return tide__stream_submit(stream, name, op);
}

tide_status tide__soft_copy(void* self, int device, tide_stream stream, void* destination, const void* source,
                            size_t bytes) {
  tide__op op = { .kind = TIDE__OP_COPY, .device = (int16_t)device };
  op.u.move.destination = tide__address(destination);
  op.u.move.source = tide__address(source);
  op.u.move.bytes = bytes;
  return move_submit(self, "copy", stream, &op);
}

tide_status tide__soft_fill(void* self, int device, tide_stream stream, void* destination, uint8_t value,
                            size_t bytes) {
  tide__op op = { .kind = TIDE__OP_FILL, .value = value, .device = (int16_t)device };
  op.u.move.destination = tide__address(destination);
  op.u.move.bytes = bytes;
  return move_submit(self, "fill", stream, &op);
}

tide_status tide__soft_call(void* self, int device, tide_stream handle, tide_call_fn function, void* user) {
  tide__stream* stream = NULL;
  TIDE_TRY(tide__stream_find(self, "call", device, handle, &stream));
  tide__op op = { .kind = TIDE__OP_CALL, .device = (int16_t)device };
  op.u.call.function = function;
  op.u.call.user = user;
  return tide__stream_submit(stream, "call", &op);
}

// Checks a move again just before it runs. If its memory was freed meanwhile, the move is skipped and the
// next synchronize on the device reports it.
static tide_status move_check_again_locked(tide__soft* soft, const tide__op* op, bool* out_staged) {
  const char* name = op->kind == TIDE__OP_COPY ? "copy, when its turn came" : "fill, when its turn came";
  uint64_t source = 0;
  uint64_t destination = 0;
  TIDE_TRY(move_check_locked(soft, name, op, out_staged, &source, &destination));
  const bool is_same = source == op->u.move.source_identity && destination == op->u.move.destination_identity;
  TIDE_REQUIRE(is_same, TIDE_ERR_STATE, "%s: the memory at %p or %p was released meanwhile", name,
               tide__pointer(op->u.move.destination), tide__pointer(op->u.move.source));
  return TIDE_OK;
}

// Moves a large range without the lock. The entry in soft->busy keeps both ranges mapped meanwhile.
TIDE_UNCHECKED_LOCKING static tide_status move_large_locked(tide__soft* soft, const tide__op* op,
                                                            bool is_staged) {
  const uint64_t bytes = op->u.move.bytes;
  const uint64_t source = op->kind == TIDE__OP_COPY ? op->u.move.source : op->u.move.destination;
  tide__busy_move move = { .ranges = { { op->u.move.destination, op->u.move.destination + bytes },
                                       { source, source + bytes } } };
  tide__list_append(&soft->busy, &move.link);
  tide__mutex_unlock(&soft->memory_lock);
  const tide_status status = soft->backend->move(op, is_staged);
  tide__mutex_lock(&soft->memory_lock);
  tide__list_unlink(&move.link);
  tide__signal_all(&soft->quiet);
  return status;
}

static void move_execute(tide__stream* stream, const tide__op* op) {
  tide__soft* soft = stream->soft;
  bool is_staged = false;
  tide__mutex_lock(&soft->memory_lock);
  tide_status status = move_check_again_locked(soft, op, &is_staged);
  if (status == TIDE_OK && soft->backend->move != NULL) {
    const bool is_small = op->u.move.bytes <= SMALL_MOVE_BYTES;
    status = is_small ? soft->backend->move(op, is_staged) : move_large_locked(soft, op, is_staged);
  }
  tide__mutex_unlock(&soft->memory_lock);
  if (status != TIDE_OK) tide__soft_note_error(soft, op->device);
}

static void graph_execute(tide__stream* stream, const tide__graph* graph) {
  for (size_t i = 0; i < graph->count; i++) tide__op_execute(stream, &graph->nodes[i].op);
}

void tide__op_execute(tide__stream* stream, const tide__op* op) {
  switch ((tide__op_kind)op->kind) {
    case TIDE__OP_FILL:
    case TIDE__OP_COPY: move_execute(stream, op); break;
    case TIDE__OP_CALL: tide__thread_callback(op->u.call.function, op->u.call.user); break;
    case TIDE__OP_LAUNCH: graph_execute(stream, op->u.graph); break;
    case TIDE__OP_WAIT:
    case TIDE__OP_WORK: break;
  }
}

void tide__op_drop(tide__soft* soft, const tide__op* op) {
  if (op->kind == TIDE__OP_LAUNCH) tide__graph_drop(soft, op->u.graph);
}
