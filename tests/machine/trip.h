// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A trip through the whole interface: one step for every kind of call, each on the objects that earlier steps
// left, and a list of steps that makes a realistic run. Tests break a trip at every step in turn, with faults
// or with a heap that runs out, and look at what is left.
#ifndef TIDEMARK_TESTS_TRIP_H
#define TIDEMARK_TESTS_TRIP_H

#include "machine/peer.h"

#define TRIP_BYTES (64 * KIB)

// What a second process shares with all trips of a test.
typedef struct trip_source {
  peer p;
  peer_message raw;
  peer_message physical;
} trip_source;

// Every field but the first three is empty until its step was made, and again when it was undone.
typedef struct trip {
  tide_machine* m;
  trip_source* source;  // borrowed until the test ends; NULL: the machine can not share
  size_t unit;
  uint8_t* raw;
  uint8_t* pinned;
  uint8_t* registered;
  uint8_t* range;
  uint8_t* mapped;
  uint8_t* imported;
  tide_physical physical;
  tide_physical foreign;
  tide_stream stream;
  tide_stream capturing;
  tide_event event;
  tide_node node;
  tide_launch graph;
  atomic_int calls;
} trip;

typedef tide_status (*trip_step)(trip* t);

static uint8_t trip_buffer[3 * 64 * KIB];  // pages of their own in the middle, to be registered

// An out parameter is empty after a failure.
static inline void* trip_out(tide_status status, void* out) {
  T_EQ(out != NULL, status == TIDE_OK);
  return out;
}

// ---------------------------------------------------------------------------------------------------
// Steps

static inline tide_status step_device_info(trip* t) {
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  return tide_machine_device_info(t->m, 0, &info);
}

static inline tide_status step_memory_info(trip* t) {
  size_t out_free = 1;
  size_t total = 1;
  const tide_status status = tide_machine_memory_info(t->m, 0, &out_free, &total);
  T_EQ(total != 0, status == TIDE_OK);
  return status;
}

static inline tide_status step_clock(trip* t) {
  uint64_t ns = 1;
  const tide_status status = tide_machine_clock(t->m, &ns);
  if (status != TIDE_OK) T_EQ(ns, 0);
  return status;
}

static inline tide_status step_raw_alloc(trip* t) {
  void* out = t;
  const tide_status status = tide_machine_raw_alloc(t->m, 0, TRIP_BYTES, &out);
  t->raw = trip_out(status, out);
  return status;
}

static inline tide_status step_raw_release(trip* t) {
  const tide_status status = tide_machine_raw_release(t->m, 0, t->raw);
  if (status == TIDE_OK) t->raw = NULL;
  return status;
}

static inline tide_status step_pinned_alloc(trip* t) {
  void* out = t;
  const tide_status status = tide_machine_pinned_alloc(t->m, TRIP_BYTES, &out);
  t->pinned = trip_out(status, out);
  return status;
}

static inline tide_status step_pinned_release(trip* t) {
  const tide_status status = tide_machine_pinned_release(t->m, t->pinned);
  if (status == TIDE_OK) t->pinned = NULL;
  return status;
}

static inline tide_status step_pinned_register(trip* t) {
  uint8_t* const buffer = trip_buffer + (64 * KIB - (uintptr_t)trip_buffer % (64 * KIB));
  const tide_status status = tide_machine_pinned_register(t->m, buffer, TRIP_BYTES);
  if (status == TIDE_OK) t->registered = buffer;
  return status;
}

static inline tide_status step_pinned_unregister(trip* t) {
  const tide_status status = tide_machine_pinned_unregister(t->m, t->registered);
  if (status == TIDE_OK) t->registered = NULL;
  return status;
}

static inline tide_status step_address_reserve(trip* t) {
  void* out = t;
  const tide_status status = tide_machine_address_reserve(t->m, 0, 4 * t->unit, 0, NULL, &out);
  t->range = trip_out(status, out);
  return status;
}

static inline tide_status step_address_release(trip* t) {
  const tide_status status = tide_machine_address_release(t->m, t->range, 4 * t->unit);
  if (status == TIDE_OK) t->range = NULL;
  return status;
}

static inline tide_status step_physical_new(trip* t) {
  tide_physical out = (tide_physical)(uintptr_t)1;
  const uint32_t flags = t->source != NULL ? TIDE_PHYSICAL_SHAREABLE : 0;
  const tide_status status = tide_machine_physical_new(t->m, 0, t->unit, flags, &out);
  t->physical = trip_out(status, out);
  return status;
}

static inline tide_status step_physical_free(trip* t) {
  const tide_status status = tide_machine_physical_free(t->m, t->physical);
  if (status == TIDE_OK) t->physical = NULL;
  return status;
}

// Some bytes behind an address; NULL stays NULL, for trips without a machine.
static inline uint8_t* trip_behind(uint8_t* address, size_t bytes) {
  return address == NULL ? NULL : address + bytes;
}

static inline tide_status step_map(trip* t) {
  uint8_t* const address = trip_behind(t->range, t->unit);
  const tide_status status = tide_machine_map(t->m, address, t->physical);
  if (status == TIDE_OK) t->mapped = address;
  return status;
}

static inline tide_status step_unmap(trip* t) {
  const tide_status status = tide_machine_unmap(t->m, t->mapped, t->unit);
  if (status == TIDE_OK) t->mapped = NULL;
  return status;
}

static inline tide_status step_set_access(trip* t) {
  return tide_machine_set_access(t->m, t->mapped, t->unit, 0, TIDE_ACCESS_READ_WRITE);
}

static inline tide_status step_pointer_info(trip* t) {
  tide_pointer_info info = TIDE_POINTER_INFO_INIT;
  return tide_machine_pointer_info(t->m, t->raw, &info);
}

static inline tide_status step_stream_new(trip* t) {
  tide_stream out = (tide_stream)(uintptr_t)1;
  const tide_status status = tide_machine_stream_new(t->m, 0, TIDE_STREAM_NON_BLOCKING, 0, &out);
  t->stream = trip_out(status, out);
  return status;
}

static inline tide_status step_stream_free(trip* t) {
  const tide_status status = tide_machine_stream_free(t->m, 0, t->stream);
  if (status == TIDE_OK) t->stream = NULL;
  return status;
}

static inline tide_status step_stream_info(trip* t) {
  bool is_captured = true;
  uint64_t number = 1;
  const tide_status status = tide_machine_stream_info(t->m, 0, t->stream, &is_captured, &number);
  if (status != TIDE_OK) T_EQ(number, 0);
  T_CHECK(!is_captured);
  return status;
}

static inline tide_status step_stream_query(trip* t) {
  bool is_idle = true;
  const tide_status status = tide_machine_stream_query(t->m, 0, t->stream, &is_idle);
  if (status != TIDE_OK) T_CHECK(!is_idle);
  return status;
}

static inline tide_status step_stream_synchronize(trip* t) {
  return tide_machine_stream_synchronize(t->m, 0, t->stream);
}

static inline tide_status step_stream_wait(trip* t) {
  return tide_machine_stream_wait(t->m, 0, t->stream, t->event);
}

static inline tide_status step_device_synchronize(trip* t) {
  return tide_machine_device_synchronize(t->m, 0);
}

static inline tide_status step_event_new(trip* t) {
  tide_event out = (tide_event)(uintptr_t)1;
  const tide_status status = tide_machine_event_new(t->m, 0, &out);
  t->event = trip_out(status, out);
  return status;
}

static inline tide_status step_event_free(trip* t) {
  const tide_status status = tide_machine_event_free(t->m, t->event);
  if (status == TIDE_OK) t->event = NULL;
  return status;
}

static inline tide_status step_event_record(trip* t) {
  return tide_machine_event_record(t->m, 0, t->event, t->stream);
}

static inline tide_status step_event_query(trip* t) {
  bool is_done = true;
  const tide_status status = tide_machine_event_query(t->m, t->event, &is_done);
  if (status != TIDE_OK) T_CHECK(!is_done);
  return status;
}

static inline tide_status step_event_synchronize(trip* t) {
  return tide_machine_event_synchronize(t->m, t->event);
}

static inline tide_status step_copy(trip* t) {
  return tide_machine_copy(t->m, 0, t->stream, t->raw, trip_behind(t->raw, TRIP_BYTES / 2), TRIP_BYTES / 2);
}

static inline tide_status step_fill(trip* t) {
  return tide_machine_fill(t->m, 0, t->stream, t->raw, 1, TRIP_BYTES);
}

static inline tide_status step_call(trip* t) {
  return tide_machine_call(t->m, 0, t->stream, call_count, &t->calls);
}

static inline tide_status step_capture_exchange(trip* t) {
  tide_capture_mode before = TIDE_CAPTURE_GLOBAL;
  return tide_machine_capture_exchange(t->m, TIDE_CAPTURE_GLOBAL, &before);
}

static inline tide_status step_capture_begin(trip* t) {
  const tide_status status = tide_machine_capture_begin(t->m, 0, t->stream, TIDE_CAPTURE_RELAXED);
  if (status == TIDE_OK) t->capturing = t->stream;
  return status;
}

static inline tide_status step_capture_end(trip* t) {
  tide_launch out = (tide_launch)(uintptr_t)1;
  const tide_status status = tide_machine_capture_end(t->m, 0, t->stream, &out);
  t->graph = trip_out(status, out);
  if (status == TIDE_OK) t->capturing = NULL;
  return status;
}

static inline tide_status step_capture_info(trip* t) {
  tide_capture_state state = TIDE_CAPTURE_ACTIVE;
  uint64_t id = 1;
  const tide_status status = tide_machine_capture_info(t->m, 0, t->stream, &state, &id);
  if (status != TIDE_OK) T_EQ(id, 0);
  return status;
}

static inline tide_status step_capture_terminals(trip* t) {
  size_t count = 1;
  const tide_status status = tide_machine_capture_terminals(t->m, 0, t->stream, &t->node, 1, &count);
  T_EQ(count, status == TIDE_OK);
  return status;
}

static inline tide_status step_node_dependencies(trip* t) {
  size_t count = 1;
  const tide_status status = tide_machine_node_dependencies(t->m, t->node, NULL, 0, &count);
  if (status != TIDE_OK) T_EQ(count, 0);
  return status;
}

static inline tide_status step_launch(trip* t) { return tide_machine_launch(t->m, 0, t->graph, t->stream); }

static inline tide_status step_launch_free(trip* t) {
  const tide_status status = tide_machine_launch_free(t->m, t->graph);
  if (status == TIDE_OK) t->graph = NULL;
  return status;
}

static inline tide_status step_peer_query(trip* t) {
  bool is_possible = true;
  const tide_status status = tide_machine_peer_query(t->m, 0, 1, &is_possible);
  if (status != TIDE_OK) T_CHECK(!is_possible);
  return status;
}

static inline tide_status step_peer_enable(trip* t) { return tide_machine_peer_enable(t->m, 0, 1); }

static inline tide_status step_peer_disable(trip* t) { return tide_machine_peer_disable(t->m, 0, 1); }

static inline tide_status step_raw_export(trip* t) {
  tide_raw_share share;
  return tide_machine_raw_export(t->m, 0, t->raw, &share);
}

static inline tide_status step_raw_import(trip* t) {
  const tide_raw_share nothing = { { 0 } };
  void* out = t;
  const tide_status status =
      tide_machine_raw_import(t->m, 0, t->source == NULL ? &nothing : &t->source->raw.raw, &out);
  t->imported = trip_out(status, out);
  return status;
}

static inline tide_status step_raw_unimport(trip* t) {
  const tide_status status = tide_machine_raw_unimport(t->m, t->imported != NULL ? t->imported : trip_buffer);
  if (status == TIDE_OK) t->imported = NULL;
  return status;
}

static inline tide_status step_physical_export(trip* t) {
  tide_physical_share share = { -1, 0, 0 };
  const tide_status status = tide_machine_physical_export(t->m, t->physical, &share);
  if (status == TIDE_OK) T_EQ(close(share.descriptor), 0);
  return status;
}

static inline tide_status step_physical_import(trip* t) {
  const tide_physical_share nothing = { 0, 0, t->unit };
  tide_physical out = (tide_physical)(uintptr_t)1;
  const tide_status status = tide_machine_physical_import(
      t->m, 0, t->source == NULL ? &nothing : &t->source->physical.physical, &out);
  t->foreign = trip_out(status, out);
  return status;
}

static const trip_step trip_steps[TIDE_CALL_COUNT] = {
#define TRIP_STEP(upper, lower) [TIDE_CALL_##upper] = step_##lower,
  TIDE_CALL_MAP(TRIP_STEP)
#undef TRIP_STEP
};

// ---------------------------------------------------------------------------------------------------
// Trips

// clang-format off
static const tide_call trip_run[] = {
  TIDE_CALL_DEVICE_INFO, TIDE_CALL_MEMORY_INFO, TIDE_CALL_CLOCK, TIDE_CALL_STREAM_NEW,
  TIDE_CALL_EVENT_NEW, TIDE_CALL_RAW_ALLOC, TIDE_CALL_POINTER_INFO, TIDE_CALL_PINNED_ALLOC,
  TIDE_CALL_PINNED_REGISTER, TIDE_CALL_FILL, TIDE_CALL_COPY, TIDE_CALL_CALL, TIDE_CALL_EVENT_RECORD,
  TIDE_CALL_EVENT_QUERY, TIDE_CALL_STREAM_WAIT, TIDE_CALL_STREAM_INFO, TIDE_CALL_STREAM_QUERY,
  TIDE_CALL_STREAM_SYNCHRONIZE,
  TIDE_CALL_EVENT_SYNCHRONIZE, TIDE_CALL_DEVICE_SYNCHRONIZE, TIDE_CALL_ADDRESS_RESERVE,
  TIDE_CALL_PHYSICAL_NEW, TIDE_CALL_MAP, TIDE_CALL_SET_ACCESS, TIDE_CALL_PEER_QUERY,
  TIDE_CALL_PEER_ENABLE, TIDE_CALL_RAW_EXPORT, TIDE_CALL_PHYSICAL_EXPORT, TIDE_CALL_RAW_IMPORT,
  TIDE_CALL_PHYSICAL_IMPORT, TIDE_CALL_RAW_UNIMPORT, TIDE_CALL_CAPTURE_EXCHANGE,
  TIDE_CALL_CAPTURE_BEGIN, TIDE_CALL_FILL, TIDE_CALL_COPY, TIDE_CALL_CALL, TIDE_CALL_CAPTURE_INFO,
  TIDE_CALL_CAPTURE_TERMINALS, TIDE_CALL_NODE_DEPENDENCIES, TIDE_CALL_CAPTURE_END, TIDE_CALL_LAUNCH,
  TIDE_CALL_LAUNCH, TIDE_CALL_STREAM_SYNCHRONIZE, TIDE_CALL_LAUNCH_FREE, TIDE_CALL_PEER_DISABLE,
  TIDE_CALL_UNMAP, TIDE_CALL_PHYSICAL_FREE, TIDE_CALL_ADDRESS_RELEASE, TIDE_CALL_PINNED_UNREGISTER,
  TIDE_CALL_PINNED_RELEASE, TIDE_CALL_RAW_RELEASE, TIDE_CALL_EVENT_FREE, TIDE_CALL_STREAM_FREE,
};
// clang-format on
#define TRIP_LENGTH (sizeof trip_run / sizeof *trip_run)

static inline bool trip_is_shared(tide_call call) {
  return call == TIDE_CALL_RAW_EXPORT || call == TIDE_CALL_RAW_IMPORT || call == TIDE_CALL_RAW_UNIMPORT ||
         call == TIDE_CALL_PHYSICAL_EXPORT || call == TIDE_CALL_PHYSICAL_IMPORT;
}

// Has the step done what it can do on this machine? Without sharing it is refused, and that is right.
static inline bool trip_is_fine(const trip* t, tide_call call, tide_status status) {
  if (t->source != NULL || !trip_is_shared(call)) return status == TIDE_OK;
  return status == TIDE_ERR_UNSUPPORTED || (call == TIDE_CALL_RAW_UNIMPORT && status == TIDE_ERR_ARGUMENT);
}

static inline void trip_init(trip* t, tide_machine* m, trip_source* source) {
  memset(t, 0, sizeof *t);
  t->m = m;
  t->source = source;
  t->unit = 2 * MIB;
}

// A process to share with; only where the machine can share.
static inline trip_source* trip_source_new(trip_source* out, const char* machine) {
  if (strcmp(machine, "host") != 0) return NULL;
  out->p = peer_new();
  out->raw = peer_ask(&out->p, PEER_RAW_NEW, TRIP_BYTES);
  out->physical = peer_ask(&out->p, PEER_PHYSICAL_NEW, 2 * MIB);
  return out;
}

static inline void trip_source_end(trip_source* source) {
  if (source == NULL) return;
  (void)close(source->physical.physical.descriptor);
  peer_end(&source->p);
}

// Undoes, in reverse, every step that was made; the statuses go to `check`.
static inline void trip_undo(trip* t, void (*check)(tide_status status)) {
  if (t->capturing != NULL) check(step_capture_end(t));
  if (t->graph != NULL) check(step_launch_free(t));
  check(step_device_synchronize(t));
  if (t->imported != NULL) check(step_raw_unimport(t));
  if (t->mapped != NULL) check(step_unmap(t));
  if (t->foreign != NULL) check(tide_machine_physical_free(t->m, t->foreign));
  if (t->physical != NULL) check(step_physical_free(t));
  if (t->range != NULL) check(step_address_release(t));
  if (t->registered != NULL) check(step_pinned_unregister(t));
  if (t->pinned != NULL) check(step_pinned_release(t));
  if (t->raw != NULL) check(step_raw_release(t));
  if (t->event != NULL) check(step_event_free(t));
  if (t->stream != NULL) check(step_stream_free(t));
}

static inline void trip_must_work(tide_status status) { T_OK(status); }

static inline void trip_may_fail(tide_status status) { (void)status; }

#endif
