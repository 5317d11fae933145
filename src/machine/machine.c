// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The public calls of every machine. Each is one MACHINE_CALL, which checks the arguments, applies faults,
// calls the table and counts, so that no call can omit a step.
#include "machine/machine.h"

#include <stddef.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"

static const char* const call_names[TIDE_CALL_COUNT + 1] = {
#define CALL_NAME(upper, lower) #lower,
  TIDE_CALL_MAP(CALL_NAME)
#undef CALL_NAME
      "any"
};

const char* tide_call_name(tide_call call) {
  return (uint32_t)call <= TIDE_CALL_ANY ? call_names[call] : "unknown";
}

// ---------------------------------------------------------------------------------------------------
// Creating and freeing

static tide_status ops_check(const tide_machine_ops* ops, int device_count) {
  TIDE_REQUIRE(ops->size >= offsetof(tide_machine_ops, memory_info), TIDE_ERR_ARGUMENT,
               "machine_new: the size is %u: set it to sizeof(tide_machine_ops)", (unsigned)ops->size);
  TIDE_REQUIRE(ops->version == TIDE_MACHINE_OPS_VERSION, TIDE_ERR_UNSUPPORTED,
               "machine_new: the version of the table is %u, this library knows %u", (unsigned)ops->version,
               TIDE_MACHINE_OPS_VERSION);
  TIDE_REQUIRE(ops->name != NULL && ops->free != NULL && ops->device_info != NULL, TIDE_ERR_ARGUMENT,
               "machine_new: the table needs name, free and device_info");
  const uint32_t known = TIDE_MACHINE_HOST_READABLE | TIDE_MACHINE_NO_MEMORY | TIDE_MACHINE_TRUSTED;
  TIDE_REQUIRE((ops->flags & ~known) == 0, TIDE_ERR_ARGUMENT, "machine_new: unknown flags 0x%x",
               (unsigned)ops->flags);
  TIDE_REQUIRE(device_count >= 1 && device_count <= TIDE_DEVICE_MAX, TIDE_ERR_ARGUMENT,
               "machine_new: the device count is %d; it must be 1 to %d", device_count, TIDE_DEVICE_MAX);
  return TIDE_OK;
}

tide_status tide_machine_new(const tide_machine_ops* ops, void* self, int device_count, const tide_heap* heap,
                             tide_machine** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "machine_new: needs out != NULL");
  *out = NULL;
  TIDE_REQUIRE(ops != NULL, TIDE_ERR_ARGUMENT, "machine_new: needs ops != NULL");
  TIDE_TRY(ops_check(ops, device_count));
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "machine_new: the heap lacks a function");
  heap = tide__heap_or_system(heap);
  tide_machine* machine = tide__heap_alloc(heap, 1, sizeof *machine);
  TIDE_REQUIRE(machine != NULL, TIDE_ERR_NO_MEMORY,
               "machine_new: no memory for the records of the %s machine", ops->name);
  memcpy(&machine->ops, ops, tide__min(ops->size, sizeof machine->ops));
  tide__machine_defaults(&machine->ops);
  machine->kind = ops;
  machine->self = self;
  machine->heap = heap;
  machine->device_count = device_count;
  tide__faults_init(&machine->faults);
  tide__fork_watch(&machine->fork_note, &machine->is_inherited, 1);
  *out = machine;
  return TIDE_OK;
}

void tide_machine_free(tide_machine* machine) {
  if (machine == NULL || tide__load_relaxed(&machine->is_inherited) != 0) return;
  TIDE_ASSERT_UNLOCKED();
  tide__fork_unwatch(&machine->fork_note);
  machine->ops.free(machine->self);
  tide__faults_fini(&machine->faults);
  tide__probes_free(machine);
  tide__heap_release(machine->heap, machine, 1, sizeof *machine);
}

void* tide__machine_self(tide_machine* machine, const tide_machine_ops* ops) {
  const bool is_it = machine != NULL && machine->kind == ops &&
                     tide__load_relaxed(&machine->is_inherited) == 0;
  return is_it ? machine->self : NULL;
}

const char* tide_machine_name(const tide_machine* machine) {
  return machine != NULL ? machine->ops.name : "none";
}
int tide_machine_device_count(const tide_machine* machine) {
  return machine != NULL ? machine->device_count : 0;
}

static tide__call_counter* call_counter(tide_machine* machine, tide_call call) {
  return &machine->counters[tide__stripe()].of[call];
}

void tide__machine_charge(tide_machine* machine, tide_call call, uint64_t ns) {
  tide__add_relaxed(&call_counter(machine, call)->ns, ns);
}

static void call_stats_add(tide_call_stats* stats, const tide__call_counter* counter) {
  stats->calls += tide__load_relaxed(&counter->calls);
  stats->failures += tide__load_relaxed(&counter->failures);
  stats->ns += tide__load_relaxed(&counter->ns);
}

tide_call_stats tide_machine_call_stats(const tide_machine* machine, tide_call call) {
  tide_call_stats stats = { 0, 0, 0 };
  const uint32_t stripes = machine != NULL ? tide__stripe_count() : 0;
  for (uint32_t i = 0; i < TIDE_CALL_COUNT; i++) {
    if (call != TIDE_CALL_ANY && (uint32_t)call != i) continue;
    for (uint32_t k = 0; k < stripes; k++) call_stats_add(&stats, &machine->counters[k].of[i]);
  }
  return stats;
}

// Delays a call, or makes it fail, as the active faults say.
__attribute__((noinline)) static tide_status call_apply_faults(tide_machine* machine, tide_call call,
                                                               uint64_t bytes) {
  uint64_t delay_ns = 0;
  const tide_status fault = tide__faults_apply(&machine->faults, call, bytes, &delay_ns);
  if (delay_ns != 0) machine->ops.delay(machine->self, delay_ns);
  TIDE_REQUIRE(fault == TIDE_OK, fault, "%s: failed by an injected fault", call_names[call]);
  return TIDE_OK;
}

// The steps before the function of the table. `needs` is the text of the condition on the arguments.
static tide_status call_enter(tide_machine* machine, tide_call call, int device, uint64_t bytes,
                              bool is_valid, const char* needs) {
  TIDE_ASSERT_UNLOCKED();
  const char* name = call_names[call];
  TIDE_REQUIRE(tide__load_relaxed(&machine->is_inherited) == 0, TIDE_ERR_STATE,
               "%s: the machine belongs to the parent process", name);
  TIDE_REQUIRE(is_valid, TIDE_ERR_ARGUMENT, "%s: needs %s", name, needs);
  TIDE_REQUIRE(device >= 0 && device < machine->device_count, TIDE_ERR_DEVICE,
               "%s: there is no device %d, only 0 to %d", name, device, machine->device_count - 1);
  const bool is_in_callback = machine->ops.is_in_callback != NULL &&
                              machine->ops.is_in_callback(machine->self);
  TIDE_REQUIRE(!is_in_callback, TIDE_ERR_STATE, "%s: a callback of a stream must not call the machine", name);
  return tide__faults_exist(&machine->faults) ? call_apply_faults(machine, call, bytes) : TIDE_OK;
}

static tide_status call_unsupported(const tide_machine* machine, const char* name) {
  return TIDE_FAIL(TIDE_ERR_UNSUPPORTED, "%s: the %s machine does not support this", name, machine->ops.name);
}

// Sets a general error text for a machine that fails without one.
static void call_explain(const tide_machine* machine, tide_call call, tide_status status) {
  if (tide_last_error()->status == status) return;
  tide__ignore(
      TIDE_FAIL(status, "%s: the %s machine failed and gave no reason", call_names[call], machine->ops.name));
}

static tide_status call_leave(tide_machine* machine, tide_call call, tide_status status) {
  tide__call_counter* const counter = call_counter(machine, call);
  tide__add_relaxed(&counter->calls, 1);
  if (status != TIDE_OK) {
    tide__add_relaxed(&counter->failures, 1);
    call_explain(machine, call, status);
  } else if (machine->ops.charge != NULL) {
    machine->ops.charge(machine->self, call);
  }
  return status;
}

// The body of a public call: its device and bytes (0 if it has none), the condition on its arguments, and the
// arguments of the table's function.
#define MACHINE_CALL(name, upper, device, bytes, needs, ...)                                        \
  TIDE_REQUIRE(machine != NULL, TIDE_ERR_ARGUMENT, #name ": needs a machine");                      \
  tide_status status_ = call_enter(machine, TIDE_CALL_##upper, (device), (bytes), (needs), #needs); \
  if (status_ == TIDE_OK) {                                                                         \
    status_ = machine->ops.name != NULL ? machine->ops.name(machine->self, __VA_ARGS__)             \
                                        : call_unsupported(machine, #name);                         \
  }                                                                                                 \
  return call_leave(machine, TIDE_CALL_##upper, status_)

#define CLEAR(out, value)                \
  do {                                   \
    if ((out) != NULL) *(out) = (value); \
  } while (0)

static tide_status device_info_get(tide_machine* machine, int device, tide_device_info* out) {
  MACHINE_CALL(device_info, DEVICE_INFO, device, 0, out != NULL, device, out);
}

tide_status tide_machine_device_info(tide_machine* machine, int device, tide_device_info* out) {
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  TIDE_TRY(tide__sized_write("device_info", &info, out, sizeof info));
  info.is_host_readable = machine != NULL && (machine->ops.flags & TIDE_MACHINE_HOST_READABLE) != 0;
  TIDE_TRY(device_info_get(machine, device, &info));
  return tide__sized_write("device_info", &info, out, sizeof info);
}

tide_status tide_machine_memory_info(tide_machine* machine, int device, size_t* out_free, size_t* out_total) {
  CLEAR(out_free, 0);
  CLEAR(out_total, 0);
  MACHINE_CALL(memory_info, MEMORY_INFO, device, 0, out_free != NULL && out_total != NULL, device, out_free,
               out_total);
}

tide_status tide_machine_clock(tide_machine* machine, uint64_t* out_ns) {
  CLEAR(out_ns, 0);
  MACHINE_CALL(clock, CLOCK, 0, 0, out_ns != NULL, out_ns);
}

tide_status tide_machine_raw_alloc(tide_machine* machine, int device, size_t bytes, void** out) {
  CLEAR(out, NULL);
  MACHINE_CALL(raw_alloc, RAW_ALLOC, device, bytes, out != NULL && bytes != 0, device, bytes, out);
}

tide_status tide_machine_raw_release(tide_machine* machine, int device, void* address) {
  MACHINE_CALL(raw_release, RAW_RELEASE, device, 0, address != NULL, device, address);
}

tide_status tide_machine_pinned_alloc(tide_machine* machine, size_t bytes, void** out) {
  CLEAR(out, NULL);
  MACHINE_CALL(pinned_alloc, PINNED_ALLOC, 0, bytes, out != NULL && bytes != 0, bytes, out);
}

tide_status tide_machine_pinned_release(tide_machine* machine, void* address) {
  MACHINE_CALL(pinned_release, PINNED_RELEASE, 0, 0, address != NULL, address);
}

tide_status tide_machine_pinned_register(tide_machine* machine, void* address, size_t bytes) {
  MACHINE_CALL(pinned_register, PINNED_REGISTER, 0, bytes, address != NULL && bytes != 0, address, bytes);
}

tide_status tide_machine_pinned_unregister(tide_machine* machine, void* address) {
  MACHINE_CALL(pinned_unregister, PINNED_UNREGISTER, 0, 0, address != NULL, address);
}

tide_status tide_machine_address_reserve(tide_machine* machine, int device, size_t bytes, size_t alignment,
                                         void* hint, void** out) {
  CLEAR(out, NULL);
  MACHINE_CALL(address_reserve, ADDRESS_RESERVE, device, bytes,
               out != NULL && bytes != 0 && (alignment == 0 || tide__is_power_of_two(alignment)), device,
               bytes, alignment, hint, out);
}

tide_status tide_machine_address_release(tide_machine* machine, void* address, size_t bytes) {
  MACHINE_CALL(address_release, ADDRESS_RELEASE, 0, 0, address != NULL && bytes != 0, address, bytes);
}

#define PHYSICAL_FLAGS (TIDE_PHYSICAL_SHAREABLE | TIDE_PHYSICAL_RDMA | TIDE_PHYSICAL_FABRIC)

tide_status tide_machine_physical_new(tide_machine* machine, int device, size_t bytes, uint32_t flags,
                                      tide_physical* out) {
  CLEAR(out, NULL);
  MACHINE_CALL(physical_new, PHYSICAL_NEW, device, bytes,
               out != NULL && bytes != 0 && (flags & ~PHYSICAL_FLAGS) == 0, device, bytes, flags, out);
}

tide_status tide_machine_physical_free(tide_machine* machine, tide_physical physical) {
  if (machine != NULL && physical == NULL) return TIDE_OK;
  MACHINE_CALL(physical_free, PHYSICAL_FREE, 0, 0, true, physical);
}

tide_status tide_machine_map(tide_machine* machine, void* address, tide_physical physical) {
  MACHINE_CALL(map, MAP, 0, 0, address != NULL && physical != NULL, address, physical);
}

tide_status tide_machine_unmap(tide_machine* machine, void* address, size_t bytes) {
  MACHINE_CALL(unmap, UNMAP, 0, 0, address != NULL && bytes != 0, address, bytes);
}

static bool access_is_known(tide_access access) {
  return access == TIDE_ACCESS_NONE || access == TIDE_ACCESS_READ || access == TIDE_ACCESS_READ_WRITE;
}

tide_status tide_machine_set_access(tide_machine* machine, void* address, size_t bytes, int device,
                                    tide_access access) {
  MACHINE_CALL(set_access, SET_ACCESS, device, 0, address != NULL && bytes != 0 && access_is_known(access),
               address, bytes, device, access);
}

static tide_status pointer_info_get(tide_machine* machine, const void* pointer, tide_pointer_info* out) {
  MACHINE_CALL(pointer_info, POINTER_INFO, 0, 0, out != NULL, pointer, out);
}

tide_status tide_machine_pointer_info(tide_machine* machine, const void* pointer, tide_pointer_info* out) {
  tide_pointer_info info = TIDE_POINTER_INFO_INIT;
  TIDE_TRY(tide__sized_write("pointer_info", &info, out, sizeof info));
  TIDE_TRY(pointer_info_get(machine, pointer, &info));
  return tide__sized_write("pointer_info", &info, out, sizeof info);
}

tide_status tide_machine_stream_new(tide_machine* machine, int device, uint32_t flags, int priority,
                                    tide_stream* out) {
  CLEAR(out, NULL);
  MACHINE_CALL(stream_new, STREAM_NEW, device, 0, out != NULL && (flags & ~TIDE_STREAM_NON_BLOCKING) == 0,
               device, flags, priority, out);
}

static bool stream_is_default(tide_stream stream) {
  return stream == NULL || stream == TIDE_STREAM_LEGACY || stream == TIDE_STREAM_PER_THREAD;
}

tide_status tide_machine_stream_free(tide_machine* machine, int device, tide_stream stream) {
  MACHINE_CALL(stream_free, STREAM_FREE, device, 0, !stream_is_default(stream), device, stream);
}

tide_status tide_machine_stream_info(tide_machine* machine, int device, tide_stream stream,
                                     bool* out_captured, uint64_t* out_number) {
  CLEAR(out_captured, false);
  CLEAR(out_number, 0);
  MACHINE_CALL(stream_info, STREAM_INFO, device, 0, out_captured != NULL && out_number != NULL, device,
               stream, out_captured, out_number);
}

tide_status tide_machine_stream_query(tide_machine* machine, int device, tide_stream stream, bool* out_idle) {
  CLEAR(out_idle, false);
  MACHINE_CALL(stream_query, STREAM_QUERY, device, 0, out_idle != NULL, device, stream, out_idle);
}

tide_status tide_machine_stream_synchronize(tide_machine* machine, int device, tide_stream stream) {
  MACHINE_CALL(stream_synchronize, STREAM_SYNCHRONIZE, device, 0, true, device, stream);
}

tide_status tide_machine_stream_wait(tide_machine* machine, int device, tide_stream stream,
                                     tide_event event) {
  MACHINE_CALL(stream_wait, STREAM_WAIT, device, 0, event != NULL, device, stream, event);
}

tide_status tide_machine_device_synchronize(tide_machine* machine, int device) {
  MACHINE_CALL(device_synchronize, DEVICE_SYNCHRONIZE, device, 0, true, device);
}

tide_status tide_machine_event_new(tide_machine* machine, int device, tide_event* out) {
  CLEAR(out, NULL);
  MACHINE_CALL(event_new, EVENT_NEW, device, 0, out != NULL, device, out);
}

tide_status tide_machine_event_free(tide_machine* machine, tide_event event) {
  if (machine != NULL && event == NULL) return TIDE_OK;
  MACHINE_CALL(event_free, EVENT_FREE, 0, 0, true, event);
}

tide_status tide_machine_event_record(tide_machine* machine, int device, tide_event event,
                                      tide_stream stream) {
  MACHINE_CALL(event_record, EVENT_RECORD, device, 0, event != NULL, device, event, stream);
}

tide_status tide_machine_event_record_all(tide_machine* machine, int device, tide_event event) {
  MACHINE_CALL(event_record_all, EVENT_RECORD_ALL, device, 0, event != NULL, device, event);
}

tide_status tide_machine_event_query(tide_machine* machine, tide_event event, bool* out_done) {
  CLEAR(out_done, false);
  MACHINE_CALL(event_query, EVENT_QUERY, 0, 0, event != NULL && out_done != NULL, event, out_done);
}

tide_status tide_machine_event_synchronize(tide_machine* machine, tide_event event) {
  MACHINE_CALL(event_synchronize, EVENT_SYNCHRONIZE, 0, 0, event != NULL, event);
}

tide_status tide_machine_copy(tide_machine* machine, int device, tide_stream stream, void* destination,
                              const void* source, size_t bytes) {
  if (machine != NULL && bytes == 0) return TIDE_OK;
  MACHINE_CALL(copy, COPY, device, bytes, destination != NULL && source != NULL, device, stream, destination,
               source, bytes);
}

tide_status tide_machine_fill(tide_machine* machine, int device, tide_stream stream, void* destination,
                              uint8_t value, size_t bytes) {
  if (machine != NULL && bytes == 0) return TIDE_OK;
  MACHINE_CALL(fill, FILL, device, bytes, destination != NULL, device, stream, destination, value, bytes);
}

tide_status tide_machine_call(tide_machine* machine, int device, tide_stream stream, tide_call_fn function,
                              void* user) {
  MACHINE_CALL(call, CALL, device, 0, function != NULL, device, stream, function, user);
}

static bool mode_is_known(tide_capture_mode mode) { return (uint32_t)mode <= TIDE_CAPTURE_RELAXED; }

tide_status tide_machine_capture_exchange(tide_machine* machine, tide_capture_mode mode,
                                          tide_capture_mode* out_before) {
  CLEAR(out_before, TIDE_CAPTURE_GLOBAL);
  MACHINE_CALL(capture_exchange, CAPTURE_EXCHANGE, 0, 0, mode_is_known(mode) && out_before != NULL, mode,
               out_before);
}

tide_status tide_machine_capture_begin(tide_machine* machine, int device, tide_stream stream,
                                       tide_capture_mode mode) {
  MACHINE_CALL(capture_begin, CAPTURE_BEGIN, device, 0, mode_is_known(mode), device, stream, mode);
}

tide_status tide_machine_capture_end(tide_machine* machine, int device, tide_stream stream,
                                     tide_launch* out) {
  CLEAR(out, NULL);
  MACHINE_CALL(capture_end, CAPTURE_END, device, 0, out != NULL, device, stream, out);
}

tide_status tide_machine_capture_info(tide_machine* machine, int device, tide_stream stream,
                                      tide_capture_state* out_state, uint64_t* out_id) {
  CLEAR(out_state, TIDE_CAPTURE_NONE);
  CLEAR(out_id, 0);
  MACHINE_CALL(capture_info, CAPTURE_INFO, device, 0, out_state != NULL && out_id != NULL, device, stream,
               out_state, out_id);
}

tide_status tide_machine_capture_terminals(tide_machine* machine, int device, tide_stream stream,
                                           tide_node* nodes, size_t capacity, size_t* out_count) {
  CLEAR(out_count, 0);
  MACHINE_CALL(capture_terminals, CAPTURE_TERMINALS, device, 0,
               out_count != NULL && (nodes != NULL || capacity == 0), device, stream, nodes, capacity,
               out_count);
}

tide_status tide_machine_node_dependencies(tide_machine* machine, tide_node node, tide_node* nodes,
                                           size_t capacity, size_t* out_count) {
  CLEAR(out_count, 0);
  MACHINE_CALL(node_dependencies, NODE_DEPENDENCIES, 0, 0,
               node != NULL && out_count != NULL && (nodes != NULL || capacity == 0), node, nodes, capacity,
               out_count);
}

tide_status tide_machine_launch(tide_machine* machine, int device, tide_launch graph, tide_stream stream) {
  MACHINE_CALL(launch, LAUNCH, device, 0, graph != NULL, device, graph, stream);
}

tide_status tide_machine_launch_free(tide_machine* machine, tide_launch graph) {
  if (machine != NULL && graph == NULL) return TIDE_OK;
  MACHINE_CALL(launch_free, LAUNCH_FREE, 0, 0, true, graph);
}

// Checks the second device of a call.
static tide_status peer_check(const tide_machine* machine, const char* name, int device, int peer) {
  TIDE_REQUIRE(peer >= 0 && peer < machine->device_count, TIDE_ERR_DEVICE,
               "%s: there is no device %d, only 0 to %d", name, peer, machine->device_count - 1);
  TIDE_REQUIRE(device != peer, TIDE_ERR_ARGUMENT, "%s: device %d is not a peer of itself", name, device);
  return TIDE_OK;
}

#define PEER_CHECK(name, upper)                                                                     \
  do {                                                                                              \
    const tide_status peer_ = machine != NULL ? peer_check(machine, #name, device, peer) : TIDE_OK; \
    if (peer_ != TIDE_OK) return call_leave(machine, TIDE_CALL_##upper, peer_);                     \
  } while (0)

tide_status tide_machine_peer_query(tide_machine* machine, int device, int peer, bool* out) {
  CLEAR(out, false);
  PEER_CHECK(peer_query, PEER_QUERY);
  MACHINE_CALL(peer_query, PEER_QUERY, device, 0, out != NULL, device, peer, out);
}

tide_status tide_machine_peer_enable(tide_machine* machine, int device, int peer) {
  PEER_CHECK(peer_enable, PEER_ENABLE);
  MACHINE_CALL(peer_enable, PEER_ENABLE, device, 0, true, device, peer);
}

tide_status tide_machine_peer_disable(tide_machine* machine, int device, int peer) {
  PEER_CHECK(peer_disable, PEER_DISABLE);
  MACHINE_CALL(peer_disable, PEER_DISABLE, device, 0, true, device, peer);
}

tide_status tide_machine_raw_export(tide_machine* machine, int device, void* address, tide_raw_share* out) {
  CLEAR(out, (tide_raw_share){ { 0 } });
  MACHINE_CALL(raw_export, RAW_EXPORT, device, 0, address != NULL && out != NULL, device, address, out);
}

tide_status tide_machine_raw_import(tide_machine* machine, int device, const tide_raw_share* share,
                                    void** out) {
  CLEAR(out, NULL);
  MACHINE_CALL(raw_import, RAW_IMPORT, device, 0, share != NULL && out != NULL, device, share, out);
}

tide_status tide_machine_raw_unimport(tide_machine* machine, void* address) {
  MACHINE_CALL(raw_unimport, RAW_UNIMPORT, 0, 0, address != NULL, address);
}

tide_status tide_machine_physical_export(tide_machine* machine, tide_physical physical,
                                         tide_physical_share* out) {
  CLEAR(out, ((tide_physical_share){ -1, 0, 0 }));
  MACHINE_CALL(physical_export, PHYSICAL_EXPORT, 0, 0, physical != NULL && out != NULL, physical, out);
}

tide_status tide_machine_physical_import(tide_machine* machine, int device, const tide_physical_share* share,
                                         tide_physical* out) {
  CLEAR(out, NULL);
  MACHINE_CALL(physical_import, PHYSICAL_IMPORT, device, 0, share != NULL && share->bytes != 0 && out != NULL,
               device, share, out);
}
