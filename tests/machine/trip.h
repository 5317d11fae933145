// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A trip through the whole interface. There is one step for every kind of call, which works on the objects of
// earlier steps, and a list of steps that makes a realistic run. Tests make each step fail in turn, by a
// fault or by a heap that runs out, and check what is left.
#ifndef TIDEMARK_TESTS_TRIP_H
#define TIDEMARK_TESTS_TRIP_H

#include "machine/peer.h"

#define TRIP_BYTES (64 * KIB)

// Memory that a second process shares with all trips of a test.
typedef struct trip_source {
  peer p;
  peer_message raw;
  peer_message physical;
} trip_source;

// The fields behind `unit` are empty until their step has succeeded, and again once it is undone.
typedef struct trip {
  tide_machine* m;
  trip_source* source;  // borrowed until the test ends; NULL: the machine cannot share
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

static uint8_t trip_buffer[3 * 64 * KIB];  // whole pages in its middle are registered

// ---------------------------------------------------------------------------------------------------
// Steps: the macros write those that only call

#define STEP(name) static inline tide_status step_##name(trip* t)

#define STEP_CALL(name, ...) \
  STEP(name) { return tide_machine_##name(t->m, __VA_ARGS__); }

// Makes an object. `field` is empty if the call fails.
#define STEP_MAKE(name, type, field, ...)                                    \
  STEP(name) {                                                               \
    type out = (type)(uintptr_t)1;                                           \
    const tide_status status = tide_machine_##name(t->m, __VA_ARGS__, &out); \
    T_EQ(out != NULL, status == TIDE_OK);                                    \
    t->field = (void*)out;                                                   \
    return status;                                                           \
  }

// Ends an object.
#define STEP_END(name, field, ...)                                     \
  STEP(name) {                                                         \
    const tide_status status = tide_machine_##name(t->m, __VA_ARGS__); \
    if (status == TIDE_OK) t->field = NULL;                            \
    return status;                                                     \
  }

// Asks for a number, which is 0 if the call fails. The arguments before it end with a comma.
#define STEP_ASK(name, type, ...)                                            \
  STEP(name) {                                                               \
    type out = (type)1;                                                      \
    const tide_status status = tide_machine_##name(t->m, __VA_ARGS__ & out); \
    if (status != TIDE_OK) T_EQ(out, 0);                                     \
    return status;                                                           \
  }

// `bytes` bytes behind an address; NULL stays NULL, for trips without a machine.
static inline uint8_t* trip_behind(uint8_t* address, size_t bytes) {
  return address == NULL ? NULL : address + bytes;
}

static inline uint32_t trip_flags(const trip* t) { return t->source != NULL ? TIDE_PHYSICAL_SHAREABLE : 0; }

// What is imported; without a source something that no machine can have exported.
static inline const tide_raw_share* trip_raw_share(const trip* t) {
  static const tide_raw_share none = { { 0 } };
  return t->source != NULL ? &t->source->raw.raw : &none;
}

static inline const tide_physical_share* trip_physical_share(const trip* t) {
  static tide_physical_share none;
  none = (tide_physical_share){ 0, 0, t->unit };
  return t->source != NULL ? &t->source->physical.physical : &none;
}

STEP_CALL(device_info, 0, &(tide_device_info)TIDE_DEVICE_INFO_INIT)
STEP_ASK(memory_info, size_t, 0, &(size_t){ 1 }, )
STEP_ASK(clock, uint64_t, )
STEP_MAKE(raw_alloc, void*, raw, 0, TRIP_BYTES)
STEP_END(raw_release, raw, 0, t->raw)
STEP_MAKE(pinned_alloc, void*, pinned, TRIP_BYTES)
STEP_END(pinned_release, pinned, t->pinned)
STEP_END(pinned_unregister, registered, t->registered)
STEP_MAKE(address_reserve, void*, range, 0, 4 * t->unit, 0, NULL)
STEP_END(address_release, range, t->range, 4 * t->unit)
STEP_MAKE(physical_new, tide_physical, physical, 0, t->unit, trip_flags(t))
STEP_END(physical_free, physical, t->physical)
STEP_END(unmap, mapped, t->mapped, t->unit)
STEP_CALL(set_access, t->mapped, t->unit, 0, TIDE_ACCESS_READ_WRITE)
STEP_CALL(pointer_info, t->raw, &(tide_pointer_info)TIDE_POINTER_INFO_INIT)
STEP_MAKE(stream_new, tide_stream, stream, 0, TIDE_STREAM_NON_BLOCKING, 0)
STEP_END(stream_free, stream, 0, t->stream)
STEP_ASK(stream_info, uint64_t, 0, t->stream, &(bool){ true }, )
STEP_ASK(stream_query, bool, 0, t->stream, )
STEP_CALL(stream_synchronize, 0, t->stream)
STEP_CALL(stream_wait, 0, t->stream, t->event)
STEP_CALL(device_synchronize, 0)
STEP_MAKE(event_new, tide_event, event, 0)
STEP_END(event_free, event, t->event)
STEP_CALL(event_record, 0, t->event, t->stream)
STEP_CALL(event_record_all, 0, t->event)
STEP_ASK(event_query, bool, t->event, )
STEP_CALL(event_synchronize, t->event)
STEP_CALL(copy, 0, t->stream, t->raw, trip_behind(t->raw, TRIP_BYTES / 2), TRIP_BYTES / 2)
STEP_CALL(fill, 0, t->stream, t->raw, 1, TRIP_BYTES)
STEP_CALL(call, 0, t->stream, call_count, &t->calls)
STEP_CALL(capture_exchange, TIDE_CAPTURE_GLOBAL, &(tide_capture_mode){ TIDE_CAPTURE_GLOBAL })
STEP_ASK(capture_info, uint64_t, 0, t->stream, &(tide_capture_state){ TIDE_CAPTURE_ACTIVE }, )
STEP_ASK(node_dependencies, size_t, t->node, NULL, 0, )
STEP_CALL(launch, 0, t->graph, t->stream)
STEP_END(launch_free, graph, t->graph)
STEP_ASK(peer_query, bool, 0, 1, )
STEP_CALL(peer_enable, 0, 1)
STEP_CALL(peer_disable, 0, 1)
STEP_CALL(raw_export, 0, t->raw, &(tide_raw_share){ { 0 } })
STEP_MAKE(raw_import, void*, imported, 0, trip_raw_share(t))
STEP_END(raw_unimport, imported, t->imported != NULL ? t->imported : trip_buffer)
STEP_MAKE(physical_import, tide_physical, foreign, 0, trip_physical_share(t))

STEP(pinned_register) {
  uint8_t* const buffer = trip_buffer + (64 * KIB - (uintptr_t)trip_buffer % (64 * KIB));
  const tide_status status = tide_machine_pinned_register(t->m, buffer, TRIP_BYTES);
  if (status == TIDE_OK) t->registered = buffer;
  return status;
}

STEP(map) {
  uint8_t* const address = trip_behind(t->range, t->unit);
  const tide_status status = tide_machine_map(t->m, address, t->physical);
  if (status == TIDE_OK) t->mapped = address;
  return status;
}

STEP(capture_begin) {
  const tide_status status = tide_machine_capture_begin(t->m, 0, t->stream, TIDE_CAPTURE_RELAXED);
  if (status == TIDE_OK) t->capturing = t->stream;
  return status;
}

STEP(capture_end) {
  tide_launch out = (tide_launch)(uintptr_t)1;
  const tide_status status = tide_machine_capture_end(t->m, 0, t->stream, &out);
  T_EQ(out != NULL, status == TIDE_OK);
  t->graph = out;
  if (status == TIDE_OK) t->capturing = NULL;
  return status;
}

STEP(capture_terminals) {
  size_t count = 1;
  const tide_status status = tide_machine_capture_terminals(t->m, 0, t->stream, &t->node, 1, &count);
  T_EQ(count, status == TIDE_OK);
  return status;
}

STEP(physical_export) {
  tide_physical_share share = { -1, 0, 0 };
  const tide_status status = tide_machine_physical_export(t->m, t->physical, &share);
  if (status == TIDE_OK) T_EQ(close(share.descriptor), 0);
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
  TIDE_CALL_EVENT_SYNCHRONIZE, TIDE_CALL_EVENT_RECORD_ALL, TIDE_CALL_DEVICE_SYNCHRONIZE,
  TIDE_CALL_ADDRESS_RESERVE,
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

// Is this the status that a step must have? A machine that cannot share refuses the steps of sharing.
static inline bool trip_is_fine(const trip* t, tide_call call, tide_status status) {
  if (t->source != NULL || !trip_is_shared(call)) return status == TIDE_OK;
  return status == TIDE_ERR_UNSUPPORTED || (call == TIDE_CALL_RAW_UNIMPORT && status == TIDE_ERR_ARGUMENT);
}

// Makes a step, which must have the status it should.
static inline void trip_make(trip* t, tide_call call) {
  const tide_status status = trip_steps[call](t);
  if (trip_is_fine(t, call, status)) return;
  T_FAIL("%s is %s: %s", tide_call_name(call), tide_status_name(status), tide_last_error()->text);
}

static inline void trip_init(trip* t, tide_machine* m, trip_source* source) {
  memset(t, 0, sizeof *t);
  t->m = m;
  t->source = source;
  t->unit = 2 * MIB;
}

// Starts a process that shares memory; NULL on a machine that cannot share.
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

// Undoes all steps in reverse order and passes each status to `check`.
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
