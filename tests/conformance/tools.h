// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Helpers of tests and checks for any machine: queries, new objects, memory contents, held work.
//
// On the dry machine no memory may be read or written, pinned memory included, and expect_filled() compares
// nothing.
#ifndef TIDEMARK_CONFORMANCE_TOOLS_H
#define TIDEMARK_CONFORMANCE_TOOLS_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "conformance/expect.h"
#include "tidemark/machine.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

// ---------------------------------------------------------------------------------------------------
// Queries

static inline bool is_host(const tide_machine* m) { return strcmp(tide_machine_name(m), "host") == 0; }

static inline bool is_dry(const tide_machine* m) { return strcmp(tide_machine_name(m), "dry") == 0; }

static inline bool is_cuda(const tide_machine* m) { return strcmp(tide_machine_name(m), "cuda") == 0; }

// On an emulated machine, other processes do not change the free memory.
static inline bool is_emulated(const tide_machine* m) { return is_host(m) || is_dry(m); }

// False on dry, whose addresses have no memory behind them.
static inline bool machine_has_memory(tide_machine* m) { return tide_machine_pinned_memory(m, 0).is_host; }

static inline void need_two_devices(const tide_machine* m) {
  if (tide_machine_device_count(m) < 2) t_skip("only one device");
}

static inline tide_device_info device_info(tide_machine* m, int device) {
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  T_OK(tide_machine_device_info(m, device, &info));
  return info;
}

static inline size_t granularity(tide_machine* m) {
  const size_t bytes = (size_t)device_info(m, 0).granularity;
  if (bytes == 0) t_skip("no virtual memory");
  return bytes;
}

static inline size_t free_bytes(tide_machine* m, int device) {
  size_t bytes = 0;
  size_t total = 0;
  T_OK(tide_machine_memory_info(m, device, &bytes, &total));
  T_LE(bytes, total);
  return bytes;
}

static inline uint64_t clock_ns(tide_machine* m) {
  uint64_t ns = 0;
  T_OK(tide_machine_clock(m, &ns));
  return ns;
}

static inline tide_pointer_info pointer_info(tide_machine* m, const void* pointer) {
  tide_pointer_info info = TIDE_POINTER_INFO_INIT;
  T_OK(tide_machine_pointer_info(m, pointer, &info));
  return info;
}

static inline bool stream_is_idle(tide_machine* m, int device, tide_stream stream) {
  bool is_idle = false;
  T_OK(tide_machine_stream_query(m, device, stream, &is_idle));
  return is_idle;
}

static inline bool event_is_done(tide_machine* m, tide_event event) {
  bool is_done = false;
  T_OK(tide_machine_event_query(m, event, &is_done));
  return is_done;
}

// ---------------------------------------------------------------------------------------------------
// New objects

static inline uint8_t* raw_new(tide_machine* m, int device, size_t bytes) {
  void* address = NULL;
  T_OK(tide_machine_raw_alloc(m, device, bytes, &address));
  T_CHECK(address != NULL);
  return address;
}

static inline uint8_t* pinned_new(tide_machine* m, size_t bytes) {
  void* address = NULL;
  T_OK(tide_machine_pinned_alloc(m, bytes, &address));
  T_CHECK(address != NULL);
  return address;
}

static inline uint8_t* reserve(tide_machine* m, int device, size_t bytes) {
  void* address = NULL;
  T_OK(tide_machine_address_reserve(m, device, bytes, 0, NULL, &address));
  T_CHECK(address != NULL);
  return address;
}

static inline tide_physical physical_new(tide_machine* m, int device, size_t bytes) {
  tide_physical physical = NULL;
  T_OK(tide_machine_physical_new(m, device, bytes, 0, &physical));
  T_CHECK(physical != NULL);
  return physical;
}

// Maps new physical memory at an address. Only the mapping keeps the memory alive.
static inline void map_new(tide_machine* m, int device, uint8_t* address, size_t bytes) {
  const tide_physical physical = physical_new(m, device, bytes);
  T_OK(tide_machine_map(m, address, physical));
  T_OK(tide_machine_set_access(m, address, bytes, device, TIDE_ACCESS_READ_WRITE));
  T_OK(tide_machine_physical_free(m, physical));
}

static inline tide_stream stream_new(tide_machine* m, int device, uint32_t flags) {
  tide_stream stream = NULL;
  T_OK(tide_machine_stream_new(m, device, flags, 0, &stream));
  T_CHECK(stream != NULL);
  return stream;
}

static inline tide_event event_new(tide_machine* m, int device) {
  tide_event event = NULL;
  T_OK(tide_machine_event_new(m, device, &event));
  T_CHECK(event != NULL);
  return event;
}

// Makes `after` wait for the work queued on `before`.
static inline void stream_follow(tide_machine* m, tide_stream after, tide_stream before, tide_event event) {
  T_OK(tide_machine_event_record(m, 0, event, before));
  T_OK(tide_machine_stream_wait(m, 0, after, event));
}

static inline void stream_finish(tide_machine* m, int device, tide_stream stream) {
  T_OK(tide_machine_stream_synchronize(m, device, stream));
}

// ---------------------------------------------------------------------------------------------------
// Contents of device memory

#define WINDOW_BYTES (64 * KIB)

// Pinned memory and one stream for each device, to read and write its memory with. They are never freed:
// freeing them could wait for work that a test blocks.
typedef struct window {
  tide_machine* machine;
  uint8_t* memory;
  tide_stream streams[TIDE_DEVICE_MAX];
} window;

static inline window* window_now(void) {
  static window w;
  return &w;
}

static inline window* window_of(tide_machine* m, int device) {
  window* const w = window_now();
  if (w->machine != m) {
    memset(w, 0, sizeof *w);
    w->machine = m;
    w->memory = pinned_new(m, WINDOW_BYTES);
  }
  if (w->streams[device] == NULL) w->streams[device] = stream_new(m, device, TIDE_STREAM_NON_BLOCKING);
  return w;
}

// A new machine may have the address of one that was freed, whose streams and memory are gone.
static inline void window_forget(const tide_machine* m) {
  if (window_now()->machine == m) window_now()->machine = NULL;
}

static inline void window_prepare(tide_machine* m, int device) { (void)window_of(m, device); }

static inline void device_read(tide_machine* m, int device, const uint8_t* address, void* out, size_t bytes) {
  window* const w = window_of(m, device);
  for (size_t at = 0; at < bytes; at += WINDOW_BYTES) {
    const size_t part = bytes - at < WINDOW_BYTES ? bytes - at : WINDOW_BYTES;
    T_OK(tide_machine_copy(m, device, w->streams[device], w->memory, address + at, part));
    stream_finish(m, device, w->streams[device]);
    if (machine_has_memory(m)) memcpy((uint8_t*)out + at, w->memory, part);
  }
}

static inline void device_write(tide_machine* m, int device, uint8_t* address, const void* data,
                                size_t bytes) {
  window* const w = window_of(m, device);
  for (size_t at = 0; at < bytes; at += WINDOW_BYTES) {
    const size_t part = bytes - at < WINDOW_BYTES ? bytes - at : WINDOW_BYTES;
    if (machine_has_memory(m)) memcpy(w->memory, (const uint8_t*)data + at, part);
    T_OK(tide_machine_copy(m, device, w->streams[device], address + at, w->memory, part));
    stream_finish(m, device, w->streams[device]);
  }
}

// Fills and waits.
static inline void device_fill(tide_machine* m, int device, uint8_t* address, uint8_t value, size_t bytes) {
  window* const w = window_of(m, device);
  T_OK(tide_machine_fill(m, device, w->streams[device], address, value, bytes));
  stream_finish(m, device, w->streams[device]);
}

static inline void expect_filled_at(const char* file, int line, tide_machine* m, int device,
                                    const uint8_t* address, uint8_t value, size_t bytes) {
  if (bytes == 0 || !machine_has_memory(m)) return;
  uint8_t* const copy = calloc(bytes, 1);
  T_CHECK(copy != NULL);
  device_read(m, device, address, copy, bytes);
  t_check_filled(file, line, copy, value, bytes);
  free(copy);
}
#define expect_filled(m, device, address, value, bytes) \
  expect_filled_at(__FILE__, __LINE__, m, device, address, value, bytes)

// ---------------------------------------------------------------------------------------------------
// Blocked work

// Blocks a stream: work queued behind the gate waits until gate_open(). On dry the stream itself is held,
// because no other thread runs there.
typedef struct gate {
  tide_machine* machine;
  tide_stream stream;
  int device;
  atomic_bool is_open;
} gate;

static inline void gate_wait(void* user) {
  gate* const g = user;
  for (int i = 0; i < 300000 && !atomic_load(&g->is_open); ++i) t_sleep_us(100);
}

static inline void gate_close(gate* g, tide_machine* m, int device, tide_stream stream) {
  g->machine = m;
  g->stream = stream;
  g->device = device;
  atomic_store(&g->is_open, false);
  if (is_dry(m)) T_OK(tide_dry_hold(m, device, stream, true));
  else T_OK(tide_machine_call(m, device, stream, gate_wait, g));
}

static inline void gate_open(gate* g) {
  if (is_dry(g->machine)) T_OK(tide_dry_hold(g->machine, g->device, g->stream, false));
  else atomic_store(&g->is_open, true);
}

// Closes a gate on a stream of device 0, which stays busy until let_go().
static inline void hold_up(gate* g, tide_machine* m, tide_stream stream) {
  gate_close(g, m, 0, stream);
  if (is_dry(m)) T_OK(tide_dry_work(m, 0, stream, 1));
}

// Opens the gate and waits for the stream.
static inline void let_go(gate* g) {
  gate_open(g);
  stream_finish(g->machine, g->device, g->stream);
}

// A callback that is slow enough to lose a race.
static inline void call_slow(void* user) {
  (void)user;
  t_sleep_us(30);
}

static inline void call_count(void* user) { atomic_fetch_add((atomic_int*)user, 1); }

// Waits for a counter that callbacks increment.
static inline void wait_for(atomic_int* counter, int value) {
  T_WAIT(atomic_load(counter) >= value);
  T_EQ(atomic_load(counter), value);
}

// ---------------------------------------------------------------------------------------------------
// Buffers, pointers, faults

// Page-aligned memory of the process. It is written to, so that there are pages to lock.
static inline uint8_t* buffer_new(size_t bytes) {
  void* buffer = NULL;
  T_EQ(posix_memalign(&buffer, 65536, bytes), 0);
  memset(buffer, 0, bytes);
  return buffer;
}

static inline void expect_pointer(tide_machine* m, const uint8_t* pointer, tide_memory_kind kind, int device,
                                  const uint8_t* base, size_t bytes) {
  const tide_pointer_info info = pointer_info(m, pointer);
  T_EQ(info.size, sizeof info);
  T_EQ(info.kind, kind);
  T_EQ(info.device, device);
  T_PTR_EQ(info.base, base);
  T_EQ(info.bytes, bytes);
}

static inline tide_fault fault_of(tide_call call, tide_status status) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = (uint32_t)call;
  fault.status = (uint32_t)status;
  return fault;
}

static inline void fault_put(tide_machine* m, const tide_fault* fault) {
  T_OK(tide_machine_fault_add(m, fault));
}

// The call fails once, after `skip` others.
static inline void fault_after(tide_machine* m, tide_call call, tide_status status, uint64_t skip) {
  tide_fault fault = fault_of(call, status);
  fault.skip = skip;
  fault_put(m, &fault);
}

static inline tide_status raw_try(tide_machine* m, size_t bytes) {
  void* memory = NULL;
  return tide_machine_raw_alloc(m, 0, bytes, &memory);
}

#endif
