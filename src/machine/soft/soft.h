// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The part that the host and the dry machine share: all rules and all bookkeeping. What differs (real pages
// or none, real threads or virtual time) is behind a small table, the backend. So a rule is written and
// tested once, and a program that runs dry runs on the host.
//
//   soft_memory.c   ranges of addresses, physical, raw and pinned memory, peers
//   soft_virtual.c  reservations, mappings, access
//   soft_stream.c   streams, waiting
//   soft_event.c    events
//   soft_queue.c    the work of one stream
//   soft_capture.c  captures and the graphs they make
//   soft_thread.c   what belongs to a calling thread
//   soft.c          making and freeing
#ifndef TIDEMARK_SRC_MACHINE_SOFT_SOFT_H
#define TIDEMARK_SRC_MACHINE_SOFT_SOFT_H

#include "base/atomic.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/slots.h"
#include "base/tree.h"
#include "machine/machine.h"

typedef struct tide__soft tide__soft;
typedef struct tide__stream tide__stream;
typedef struct tide__capture tide__capture;
typedef struct tide__graph tide__graph;

// ---------------------------------------------------------------------------------------------------
// Memory

// Physical memory of a device, named by a tide_physical as long as its owner has not given it up.
// [P1] refs == (handle is live) + mappings + (belongs to a raw or imported range)
typedef struct tide__physical {
  tide__slot slot;
  int device;
  uint32_t flags;
  uint32_t refs;   // shared under the memory lock
  int descriptor;  // host: the opening of another process's file it lives in, owned; -1 for our own memory
  uint64_t bytes;
  uint64_t offset;       // in that file
  tide__link lingering;  // in soft->lingering while another process uses what we gave up
} tide__physical;

typedef struct tide__mapping {
  tide__tree_node node;      // key: where it begins
  tide__physical* physical;  // shared under the memory lock
  uint64_t readers;          // one bit a device
  uint64_t writers;          // [M1] writers is a subset of readers
} tide__mapping;

// A top-level range of addresses: raw, pinned, reserved or imported.
// [R1] ranges do not overlap   [R2] mappings lie inside their range and do not overlap
typedef struct tide__range {
  tide__tree_node node;  // key: where it begins
  uint64_t identity;     // differs for all ranges of a machine; never 0
  uint64_t bytes;        // as asked for
  uint64_t span;         // as taken: whole pages
  tide_memory_kind kind;
  int device;                // -1 for pinned
  bool is_registered;        // pinned: the pages are the caller's
  bool is_locked;            // pinned: the system locked them
  uint32_t export_slot;      // host, raw: 1 + its place in the ledger of exports, 0 when not exported
  tide__physical* physical;  // raw and imported; shared under the memory lock
  tide__tree mappings;       // reserved
} tide__range;

// A range of addresses that a worker is reading or writing right now.
typedef struct tide__busy_range {
  uint64_t begin;
  uint64_t end;
} tide__busy_range;

// ---------------------------------------------------------------------------------------------------
// Streams and events

typedef enum tide__op_kind {
  TIDE__OP_FILL,
  TIDE__OP_COPY,
  TIDE__OP_CALL,
  TIDE__OP_WAIT,    // for another stream to get to a ticket
  TIDE__OP_LAUNCH,  // a whole graph
  TIDE__OP_WORK     // dry: takes time
} tide__op_kind;

// A point in a stream: its first `ticket` pieces of work are done. Tickets of a stream only ever rise, also
// when its slot serves another stream later, so a point that was reached stays reached.
typedef struct tide__point {
  tide__stream* stream;  // NULL: nothing to wait for
  uint64_t ticket;
} tide__point;

// One piece of work.
typedef struct tide__op {
  uint32_t kind;       // a tide__op_kind
  uint8_t value;       // of a fill
  int16_t device;      // on whose stream it was queued
  uint64_t queued_at;  // in the machine's virtual time, if it has one
  union {
    struct {
      uint64_t destination;
      uint64_t source;
      uint64_t bytes;
      uint64_t destination_identity;  // of the range it lay in when it was queued; 0: ordinary host memory
      uint64_t source_identity;
    } move;  // fill and copy
    struct {
      tide_call_fn function;
      void* user;
    } call;
    tide__point wait;
    tide__graph* graph;  // holds a reference
    uint64_t work_ns;
  } u;
} tide__op;

// Work in order, in chunks of a fixed size. Who queues does so under the stream's lock; the one who executes
// takes no lock: a stream's counts tell it how much there is.
// [Q1] room == places behind the last piece of work, in chunks that are linked already
typedef struct tide__chunk tide__chunk;
typedef struct tide__queue {
  // shared under the stream's lock
  tide__chunk* tail;  // the chunk that is being filled; owned, like all from the first to the last
  tide__chunk* last;  // behind it, empty ones
  size_t tail_used;
  size_t room;
  // the executor's
  _Alignas(64) tide__chunk* head;
  size_t head_used;
  // either's
  _Atomic(tide__chunk*) spare;  // one chunk that was used up, owned
} tide__queue;

// Places in the work of a capture: indices of nodes.
typedef struct tide__node_set {
  uint32_t* nodes;  // owned; sorted, each once
  size_t count;
  size_t capacity;
} tide__node_set;

// [S1] completed <= enqueued   [S2] queue holds enqueued - completed pieces of work
// What those who queue write and what the executor writes are on cache lines of their own.
struct tide__stream {
  tide__slot slot;
  tide__soft* soft;    // borrowed: outlives its streams
  _Atomic int device;  // also read by who walks over all streams
  _Atomic uint32_t flags;
  _Atomic bool is_legacy;
  tide__mutex lock;
  tide__atomic_u64 number;                 // of no other stream of the machine
  tide__signal progress;                   // completed rose, for waiters; under lock
  tide__signal work;                       // host: for the worker, under lock
  _Alignas(64) tide__atomic_u64 enqueued;  // written under lock, read without
  // shared under lock
  uint64_t legacy_joined;  // blocking streams: the ticket of the legacy stream our queue waits for already
  bool is_sleeping;        // host: the worker waits for `work`
  bool is_closing;         // the stream was given up: end when the queue is empty
  bool is_held;            // dry
  bool is_open;            // it has begun and is not buried yet
  tide__queue queue;       // see there
  // the executor's: the worker's of the host machine, the player's of the dry one
  _Alignas(64) tide__atomic_u64 completed;  // read by all
  tide__atomic_u32 waiters;                 // threads inside tide__stream_await
  uint64_t seen;                            // how much was enqueued when the executor looked last
  uint64_t time;                            // dry: when its last work ended
  pthread_t worker;                         // host
  tide__link in_ended;                      // host; shared under the workers lock
  tide__busy_range busy[2];                 // host; shared under the memory lock
  // shared under the device's streams_lock
  tide__link in_device;
  uint64_t joined_by_legacy;  // our ticket that the legacy stream's queue waits for already
  // shared under the capture lock
  tide__capture* capture;  // NULL when not capturing
  tide__node_set terminals;
  tide__link in_capture;
};

typedef struct tide__event {
  tide__slot slot;
  _Atomic int device;
  tide__mutex lock;
  tide__point point;     // shared under lock
  uint64_t capture_id;   // recorded in this capture; 0: not in a capture. Shared under lock
  tide__node_set nodes;  // of that capture; shared under the capture lock
} tide__event;

// ---------------------------------------------------------------------------------------------------
// Captures

typedef struct tide__node {
  tide__op op;
  uint32_t* dependencies;  // owned; indices of earlier nodes
  uint32_t dependency_count;
  bool has_successor;  // a later node depends on it
  uint64_t end_ns;     // dry: when it ends, from the launch on
} tide__node;

// Captured work. Nodes depend on earlier ones only, so their order is one in which they can run.
struct tide__graph {
  tide__slot slot;
  uint64_t id;            // of its capture
  tide__atomic_u32 refs;  // the handle or the capture, and each queued launch
  tide__node* nodes;      // owned; fixed once the capture has ended
  size_t count;
  size_t capacity;
  uint64_t duration_ns;     // dry: of a launch
  tide__point last_launch;  // shared under the capture lock
};

struct tide__capture {
  uint64_t id;
  tide_capture_mode mode;
  bool is_invalid;
  uint64_t thread;       // that began it
  tide__stream* origin;  // borrowed: a stream in a capture is not given back
  tide__graph* graph;    // holds a reference
  tide__link members;    // streams
  tide__link link;       // in soft->captures
};

// ---------------------------------------------------------------------------------------------------
// The machine

// What the host and the dry machine do differently. Addresses and sizes are checked and whole pages;
// functions that return nothing cannot fail.
typedef struct tide__soft_backend {
  // Memory. Called with the memory lock held, except where it says otherwise.
  tide_status (*reserve)(tide__soft* soft, int device, tide_call call, uint64_t bytes, uint64_t alignment,
                         uint64_t hint, uint64_t* out);
  void (*unreserve)(tide__soft* soft, uint64_t address, uint64_t bytes);
  tide_status (*physical_take)(tide__soft* soft, const char* name, tide__physical* physical);
  bool (*physical_give)(tide__soft* soft,
                        tide__physical* physical);  // false: another process uses it. No lock
  tide_status (*map)(tide__soft* soft, const tide__physical* physical, uint64_t address);
  tide_status (*unmap)(tide__soft* soft, uint64_t address, uint64_t bytes);
  tide_status (*protect)(tide__soft* soft, uint64_t address, uint64_t bytes, bool can_read, bool can_write);
  void (*export_end)(tide__soft* soft, tide__range* range);          // (optional: no exports)
  tide_status (*pinned_take)(tide__soft* soft, tide__range* range);  // sets the address. No lock
  void (*pinned_give)(tide__soft* soft, tide__range* range);         // No lock
  void (*charge)(tide__soft* soft, tide_call call, uint64_t mappings, uint64_t bytes);  // (optional: free)
  // Streams
  tide_status (*stream_start)(tide__stream* stream, const char* name);  // before anybody can see it
  void (*stream_kick)(tide__stream* stream);  // work was queued; under the stream's lock
  void (*stream_stop)(tide__stream* stream);  // it was given up: drain, then put the slot back
  void (*settle)(tide__soft* soft);           // (optional) lets time that passed take effect
  uint64_t (*now)(tide__soft* soft);          // (optional: 0) its virtual time
  void (*drain)(tide__soft* soft);            // all streams were given up: does what is left of their work
  tide_status (*await)(tide__soft* soft, const char* name, tide__point point);  // waits until it is reached
  // (optional) Does a fill or copy that was checked. Fails where ordinary host memory is none.
  tide_status (*move)(const tide__op* op, bool is_staged);
} tide__soft_backend;

typedef struct tide__soft_device {
  tide__mutex streams_lock;
  tide__link streams;             // shared under streams_lock
  size_t stream_count;            // of these
  _Atomic(tide__stream*) legacy;  // made at its first use
  uint64_t used_bytes;            // shared under the memory lock
  uint64_t peers;                 // devices whose memory this one may use, shared under the memory lock
  tide__mutex error_lock;
  bool has_error;  // work failed after its call had returned; shared under error_lock
  tide_error error;
} tide__soft_device;

struct tide__soft {
  const tide__soft_backend* backend;  // static
  const tide_heap* heap;              // borrowed until freed
  tide_machine* machine;              // borrowed: the machine this is the state of
  int device_count;
  uint64_t capacity;     // of each device
  uint64_t granularity;  // of virtual memory
  uint64_t page_bytes;   // sizes are rounded up to this
  uint64_t serial;       // differs for all machines of the process
  tide__link in_registry;
  tide__soft_device* devices;  // owned

  tide__mutex memory_lock;
  tide__signal quiet;      // a worker ended a busy range
  tide__tree ranges;       // of tide__range, shared under memory_lock
  uint64_t last_identity;  // given to a range, shared under memory_lock
  tide__link lingering;    // of tide__physical, shared under memory_lock
  tide__slots physicals;
  tide__atomic_u64 staged_copies;

  tide__slots streams;
  tide__atomic_u64 last_stream;  // the number that was given last
  tide__slots events;
  tide__slots graphs;

  tide__mutex capture_lock;
  tide__link captures;             // under way, shared under capture_lock
  tide__atomic_u32 capture_count;  // of these; read without the lock to pay nothing when there is none
  uint64_t last_capture_id;        // shared under capture_lock
};

// soft.c
tide_status tide__soft_init(tide__soft* soft, const tide__soft_backend* backend, const tide_heap* heap,
                            int device_count, uint64_t capacity, uint64_t granularity, uint64_t page_bytes);
void tide__soft_fini(tide__soft* soft);
uint64_t tide__soft_staged_copies(const void* self);
void tide__soft_charge(tide__soft* soft, tide_call call, uint64_t mappings, uint64_t bytes);
// Keeps the calling thread's last error for the next _synchronize call on a device.
void tide__soft_note_error(tide__soft* soft, int device);
tide_status tide__soft_report_error(tide__soft* soft, int device);

// soft_memory.c
void tide__soft_memory_fini(tide__soft* soft);
tide_status tide__soft_memory_info(void* self, int device, size_t* out_free, size_t* out_total);
tide_status tide__soft_raw_alloc(void* self, int device, size_t bytes, void** out);
tide_status tide__soft_raw_release(void* self, int device, void* address);
tide_status tide__soft_raw_unimport(void* self, void* address);
tide_status tide__soft_pinned_alloc(void* self, size_t bytes, void** out);
tide_status tide__soft_pinned_release(void* self, void* address);
tide_status tide__soft_pinned_register(void* self, void* address, size_t bytes);
tide_status tide__soft_pinned_unregister(void* self, void* address);
tide_status tide__soft_physical_new(void* self, int device, size_t bytes, uint32_t flags, tide_physical* out);
tide_status tide__soft_physical_free(void* self, tide_physical physical);
tide_status tide__soft_pointer_info(void* self, const void* pointer, tide_pointer_info* out);
tide_status tide__soft_peer_query(void* self, int device, int peer, bool* out);
tide_status tide__soft_peer_enable(void* self, int device, int peer);
tide_status tide__soft_peer_disable(void* self, int device, int peer);
// Builds a range over memory that is there already (an import), which belongs to the range if this succeeds.
tide_status tide__soft_range_over(tide__soft* soft, tide__physical* physical, tide_memory_kind kind,
                                  uint64_t bytes, tide_call call, void** out);
// Does pinned memory have a byte in [begin, end)?
bool tide__soft_has_pinned(tide__soft* soft, uint64_t begin, uint64_t end);
// Ends physical memory that nothing refers to any more.
void tide__physical_end(tide__soft* soft, tide__physical* physical);
uint64_t tide__range_end(const tide__range* range);
uint64_t tide__mask_with(uint64_t mask, int device, bool is_set);
// The rest is called under the memory lock.
// The range around an address, or the one of a kind that begins there, or NULL.
tide__range* tide__range_around_locked(tide__soft* soft, uint64_t address);
tide__range* tide__soft_range_at_locked(tide__soft* soft, uint64_t address, tide_memory_kind kind)
    TIDE_REQUIRES(&soft->memory_lock);
void tide__range_enter_locked(tide__soft* soft, tide__range* range);
// Is a worker inside a range of addresses? Waits until none is; the lock is open meanwhile.
bool tide__range_is_busy_locked(tide__soft* soft, uint64_t begin, uint64_t end);
void tide__range_wait_locked(tide__soft* soft, uint64_t begin, uint64_t end);
// Drops one reference; true if it was the last and tide__physical_end() must follow without the lock.
bool tide__physical_drop_locked(tide__physical* physical);
// May a stream of `device` use these bytes, must they be staged, and which range are they in (0: in none)?
tide_status tide__soft_check_locked(tide__soft* soft, const char* name, int device, uint64_t address,
                                    uint64_t bytes, bool is_write, bool* out_staged, uint64_t* out_identity);

// soft_virtual.c
tide_status tide__soft_address_reserve(void* self, int device, size_t bytes, size_t alignment, void* hint,
                                       void** out);
tide_status tide__soft_address_release(void* self, void* address, size_t bytes);
tide_status tide__soft_map(void* self, void* address, tide_physical physical);
tide_status tide__soft_unmap(void* self, void* address, size_t bytes);
tide_status tide__soft_set_access(void* self, void* address, size_t bytes, int device, tide_access access);
// The mapping around an address of a reservation, or NULL. Under the memory lock, like the next.
tide__mapping* tide__mapping_around(const tide__range* range, uint64_t address);
tide_status tide__mappings_check_locked(const tide__range* range, const char* name, int device,
                                        uint64_t address, uint64_t bytes, bool is_write, bool* out_staged);
// Ends all mappings of a reservation, when the machine ends.
void tide__mappings_free(tide__soft* soft, tide__range* range);

// soft_queue.c
// A chunk, or NULL without memory; without the lock. Adding it, under the lock, makes room.
tide__chunk* tide__queue_chunk_new(tide__queue* queue, const tide_heap* heap);
void tide__queue_chunk_free(tide__chunk* chunk, const tide_heap* heap);
void tide__queue_add(tide__queue* queue, tide__chunk* chunk);
// Appends where there is room. Under the stream's lock.
void tide__queue_append(tide__queue* queue, const tide__op* op);
// The next piece of work, which there must be, and the step behind it. For the executor.
const tide__op* tide__queue_head(tide__queue* queue, const tide_heap* heap);
void tide__queue_advance(tide__queue* queue);
// Gives its memory back, when nobody queues or executes any more.
void tide__queue_reset(tide__queue* queue, const tide_heap* heap);

// soft_stream.c
void tide__soft_streams_fini(tide__soft* soft);
// Lets a machine in virtual time play what it can. With no lock held: it may call functions of the caller.
void tide__soft_settle(tide__soft* soft);
void tide__stream_item_init(void* item);
void tide__stream_item_fini(void* item);
tide_status tide__soft_stream_new(void* self, int device, uint32_t flags, int priority, tide_stream* out);
tide_status tide__soft_stream_free(void* self, int device, tide_stream stream);
tide_status tide__soft_stream_query(void* self, int device, tide_stream stream, bool* out_idle);
tide_status tide__soft_stream_synchronize(void* self, int device, tide_stream stream);
tide_status tide__soft_device_synchronize(void* self, int device);
tide_status tide__soft_copy(void* self, int device, tide_stream stream, void* destination, const void* source,
                            size_t bytes);
tide_status tide__soft_fill(void* self, int device, tide_stream stream, void* destination, uint8_t value,
                            size_t bytes);
tide_status tide__soft_call(void* self, int device, tide_stream stream, tide_call_fn function, void* user);
// The stream of a handle; the default ones are made at their first use.
tide_status tide__stream_find(tide__soft* soft, const char* name, int device, tide_stream handle,
                              tide__stream** out);
// Gives up a stream whose handle is retired, or that never had one.
void tide__stream_end(tide__stream* stream);
// Puts a stream that was given up and has nothing left to do back into the table.
void tide__stream_bury(tide__stream* stream);
// Queues work, or notes it down if the stream is capturing.
tide_status tide__stream_submit(tide__stream* stream, const char* name, const tide__op* op);
// Queues work on a stream that is not capturing, behind a point of another (or NULL); says where it ends
// (or NULL).
tide_status tide__stream_push(tide__stream* stream, const char* name, const tide__point* behind,
                              const tide__op* op, tide__point* out);
// The end of the work queued so far, as the rules of the default streams see it.
tide_status tide__stream_tail(tide__stream* stream, const char* name, tide__point* out);
// The end of what is in its queue.
tide__point tide__stream_point(tide__stream* stream);
bool tide__point_is_reached(tide__point point);
// Does it wait for the legacy stream, and the legacy stream for it?
bool tide__stream_is_blocking(const tide__stream* stream);
// Blocks until a point is reached. For machines whose streams run by themselves.
void tide__stream_await(tide__point point);
// Does one piece of work (not a wait); drops the references it holds.
void tide__op_execute(tide__stream* stream, const tide__op* op);
void tide__op_drop(tide__soft* soft, const tide__op* op);
// How long it takes in virtual time.
uint64_t tide__op_duration_ns(const tide__op* op);
// Marks pieces of work as done and wakes who waits for them.
void tide__stream_complete(tide__stream* stream, uint64_t count);

// soft_event.c
void tide__event_item_init(void* item);
void tide__event_item_fini(void* item);
tide_status tide__soft_stream_wait(void* self, int device, tide_stream stream, tide_event event);
tide_status tide__soft_event_new(void* self, int device, tide_event* out);
tide_status tide__soft_event_free(void* self, tide_event event);
tide_status tide__soft_event_record(void* self, int device, tide_event event, tide_stream stream);
tide_status tide__soft_event_query(void* self, tide_event event, bool* out_done);
tide_status tide__soft_event_synchronize(void* self, tide_event event);
// The event of a handle.
tide_status tide__event_find(tide__soft* soft, const char* name, tide_event handle, tide__event** out);
// Where an event was recorded: a point, or a capture.
tide__point tide__event_get(tide__event* event, uint64_t* out_capture_id);

// soft_thread.c
// A number that no other thread of the process ever has; not 0.
uint64_t tide__thread_token(void);
// The mode in which the calling thread meets captures.
tide_capture_mode* tide__thread_capture_mode(void);
// Calls a tide_call_fn; meanwhile tide__soft_is_in_callback() is true on this thread.
void tide__thread_callback(tide_call_fn function, void* user);
bool tide__soft_is_in_callback(void);
// The stream this thread has on a device, NULL if none yet; and notes one, to be given up when the thread
// ends.
tide__stream* tide__thread_stream(const tide__soft* soft, int device);
bool tide__thread_stream_note(tide__soft* soft, int device, tide__stream* stream);
// While a machine is registered, threads that end give up their streams on it.
void tide__soft_register(tide__soft* soft);
void tide__soft_unregister(tide__soft* soft);

// soft_capture.c
// Refuses an unsafe call, and invalidates what it would have broken.
tide_status tide__capture_guard(tide__soft* soft, const char* name);
bool tide__capture_is_possible(tide__soft* soft);
// Takes a stream that goes away out of its capture; one that began on it ends without a graph.
void tide__capture_abandon(tide__stream* stream);
// The rest are called under the capture lock, with a capture under way somewhere.
tide_status tide__capture_check_use_locked(tide__stream* stream, const char* name);
tide_status tide__capture_note_locked(tide__stream* stream, const char* name, const tide__op* op);
tide_status tide__capture_wait_locked(tide__stream* stream, const char* name, tide__event* event,
                                      tide__point point, uint64_t capture_id);
tide_status tide__capture_record_locked(tide__stream* stream, const char* name, tide__event* event);
tide_status tide__capture_refuse_stream_locked(tide__stream* stream, const char* name);
tide_status tide__capture_refuse_event_locked(tide__soft* soft, const char* name, uint64_t capture_id);
tide_status tide__capture_refuse_device_locked(tide__soft* soft, const char* name, int device);
tide_status tide__soft_capture_exchange(void* self, tide_capture_mode mode, tide_capture_mode* out_before);
tide_status tide__soft_capture_begin(void* self, int device, tide_stream stream, tide_capture_mode mode);
tide_status tide__soft_capture_end(void* self, int device, tide_stream stream, tide_launch* out);
tide_status tide__soft_stream_info(void* self, int device, tide_stream stream, bool* out_captured,
                                   uint64_t* out_number);
tide_status tide__soft_capture_info(void* self, int device, tide_stream stream, tide_capture_state* out_state,
                                    uint64_t* out_id);
tide_status tide__soft_capture_terminals(void* self, int device, tide_stream stream, tide_node* nodes,
                                         size_t capacity, size_t* out_count);
tide_status tide__soft_node_dependencies(void* self, tide_node node, tide_node* nodes, size_t capacity,
                                         size_t* out_count);
tide_status tide__soft_launch(void* self, int device, tide_launch graph, tide_stream stream);
tide_status tide__soft_launch_free(void* self, tide_launch graph);
void tide__graph_drop(tide__soft* soft, tide__graph* graph);
void tide__captures_fini(tide__soft* soft);

// What both machines have in their table of operations; the rest is their own.
#define TIDE__SOFT_OPS                                                                                     \
  .is_in_callback = tide__soft_is_in_callback, .staged_copies = tide__soft_staged_copies,                  \
  .memory_info = tide__soft_memory_info, .raw_alloc = tide__soft_raw_alloc,                                \
  .raw_release = tide__soft_raw_release, .pinned_alloc = tide__soft_pinned_alloc,                          \
  .pinned_release = tide__soft_pinned_release, .pinned_register = tide__soft_pinned_register,              \
  .pinned_unregister = tide__soft_pinned_unregister, .address_reserve = tide__soft_address_reserve,        \
  .address_release = tide__soft_address_release, .physical_new = tide__soft_physical_new,                  \
  .physical_free = tide__soft_physical_free, .map = tide__soft_map, .unmap = tide__soft_unmap,             \
  .set_access = tide__soft_set_access, .pointer_info = tide__soft_pointer_info,                            \
  .stream_new = tide__soft_stream_new, .stream_free = tide__soft_stream_free,                              \
  .stream_info = tide__soft_stream_info, .stream_query = tide__soft_stream_query,                          \
  .stream_synchronize = tide__soft_stream_synchronize, .stream_wait = tide__soft_stream_wait,              \
  .device_synchronize = tide__soft_device_synchronize, .event_new = tide__soft_event_new,                  \
  .event_free = tide__soft_event_free, .event_record = tide__soft_event_record,                            \
  .event_query = tide__soft_event_query, .event_synchronize = tide__soft_event_synchronize,                \
  .copy = tide__soft_copy, .fill = tide__soft_fill, .call = tide__soft_call,                               \
  .capture_exchange = tide__soft_capture_exchange, .capture_begin = tide__soft_capture_begin,              \
  .capture_end = tide__soft_capture_end, .capture_info = tide__soft_capture_info,                          \
  .capture_terminals = tide__soft_capture_terminals, .node_dependencies = tide__soft_node_dependencies,    \
  .launch = tide__soft_launch, .launch_free = tide__soft_launch_free, .peer_query = tide__soft_peer_query, \
  .peer_enable = tide__soft_peer_enable, .peer_disable = tide__soft_peer_disable,                          \
  .raw_unimport = tide__soft_raw_unimport

#endif
