// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Stream waits: released blocks that other streams still use. When such a block is released, an event is
// recorded on each of these streams. The block is ready for reuse when all its events have passed.
//
//   tide__stream_waits   all waits of one allocator
//     tide__wait_queue   the waits for one stream, in the order in which their events were recorded
//       tide__wait       one stream that one block waits for, with an event
//   tide__waiter         what a block record embeds; the owner gets from it to its block by TIDE_OWNER
//
// The contract, which tests/core/test_stream_waits.c checks against a model:
// - A waiter is never ready before its streams have done the work that they had when it began to wait.
// - It becomes ready in the first pass after that work is done, unless a call of the machine fails.
// - Events of a stream pass in order, so a pass queries ("asks") only the first of a queue, and the next if
//   it has passed. TIDE_STREAM_PER_THREAD is a different stream on each thread: all events of its queue are
//   asked.
// - If streams have numbers, a pass asks the first and then the last event of a queue. If the last has
//   passed, so have all events of the same stream number that were certainly recorded before it.
// - Other code may capture a stream at any time. An event recorded meanwhile belongs to the capture, and
//   asking it would invalidate the capture. It is recorded again when the capture is over, after all work
//   that is queued by then.
// - A waiter that lacks an event is deferred. Every pass tries again; a pass that waits can synchronize the
//   device instead.
// - Beginning to wait never fails: each wait record has room for a queue, so one is always available. One
//   more lies in no record: for one thread at a time that leaves all records of a queue to their waiters.
//
// The machine is called with no lock held, and in a pass in the capture mode RELAXED. A pass that succeeds
// leaves the thread's error record as it was. One thread at a time asks a queue, and owns its waits
// meanwhile; others append to it.
#ifndef TIDEMARK_SRC_CORE_STREAM_WAITS_H
#define TIDEMARK_SRC_CORE_STREAM_WAITS_H

#include "base/atomic.h"
#include "base/heap.h"
#include "base/lock.h"
#include "tidemark/machine.h"

struct tide__wait;

typedef struct tide__wait_queue {
  struct tide__wait_queue* next;  // in the list of queues, permanently; or among those never used
  tide_stream stream;
  int device;
  bool is_asked;   // one thread asks its events, and owns its waits
  bool gives_all;  // that thread may leave all its records to their waiters
  uint64_t pass;   // the last one that asked it
  struct tide__wait* first;
  struct tide__wait* last;
} tide__wait_queue;

// A record with an event of its own. Records are made for a device, and reused until the allocator ends.
typedef struct tide__wait {
  struct tide__wait* next;      // of a waiter, in a queue, or among idle ones
  struct tide__waiter* waiter;  // in a queue
  tide_stream stream;
  tide_event event;  // owned
  int device;        // of the stream and the event
  bool is_recorded;
  bool is_captured;  // the event may belong to a capture: it is not asked before the capture is over
  bool is_only;      // in a queue: the waiter has no other
  uint32_t version;  // rises with each use of the record
  // `begin`: tickets issued before the event was recorded. `end`: the waiter's ticket, issued when it was
  // queued. If one wait's `end` is not above another's `begin`, its event was recorded first.
  uint64_t begin;
  uint64_t end;
  uint64_t number;         // of the stream, because its handle may be reused by now; 0: unknown
  tide__wait_queue queue;  // of some stream, not necessarily of this one
} tide__wait;

// [W1] event_count is the number of its waits in queues; while that is not 0, `waits` is NULL
typedef struct tide__waiter {
  struct tide__waiter* next;  // among the deferred or the ready ones
  tide__wait* waits;          // owned; before they are queued
  tide__wait* spare;          // owned; a record for its next use, if keeps_record
  uint32_t event_count;       // shared under the lock
  bool keeps_record;          // when its only event has passed, it keeps the record as `spare`
} tide__waiter;

typedef enum tide__waits_failure { TIDE__WAITS_RECORD_FAILED, TIDE__WAITS_ASK_FAILED } tide__waits_failure;

// What the owner does. All are called with no lock held. Only `ready` is required.
typedef struct tide__waits_callbacks {
  // A list of waiters, by `next`, became ready: in order of their events. They are counted as waiting until
  // this returns. `call` comes from the caller of the pass.
  void (*ready)(void* owner, tide__waiter* list, void* call);
  // Adds the wait records that a waiter still lacks, by tide__waiter_add().
  tide_status (*prepare)(void* owner, tide__waiter* waiter);
  // Takes a list of records that are not needed any more. NULL: they become idle here.
  void (*spent)(void* owner, tide__wait* list);
  void (*failed)(void* owner, tide__waiter* waiter, tide__waits_failure what);
} tide__waits_callbacks;

// How a wait finds out which stream it is for, and whether that is captured.
typedef enum tide__waits_identity {
  TIDE__STREAMS_ASKED_AFTER,   // asks for the capture after each record; numbers are not known
  TIDE__STREAMS_ASKED_BEFORE,  // asks for capture and number before each record: handles may be reused
  TIDE__STREAMS_ASKED_LATE     // asks for the capture before the event is asked: handles are never reused
} tide__waits_identity;

typedef struct tide__waits_options {
  tide__waits_identity identity;
  // Where an event cannot be recorded or waited for, a pass that waits synchronizes the device instead: after
  // any failure, or only if the stream is gone.
  bool survives_failures;
} tide__waits_options;

typedef struct tide__stream_waits {
  tide_machine* machine;  // borrowed
  const tide_heap* heap;  // borrowed
  void* owner;            // borrowed
  const tide__waits_callbacks* callbacks;
  tide__waits_options options;
  tide__mutex lock;               // guards all below; the owner may keep counters under it
  tide__signal changed;           // a thread is done with a queue, or with the deferred waiters
  uint32_t listeners;             // threads that wait for that
  bool is_retried;                // one thread owns the deferred waiters
  tide__atomic_u64 tickets;       // changed under the lock
  tide__atomic_u64 waiting;       // waiters in queues and deferred ones; likewise
  tide__atomic_u64 passes;        // so far
  tide__wait_queue* queues;       // inside wait records, like the idle ones; in order of their first use
  tide__wait_queue* queues_last;  // the end of that list
  tide__wait_queue* idle_queues;  // never used
  tide__wait_queue extra;         // in no record
  bool is_extra_taken;            // a queue that is asked gives all
  tide__waiter* deferred;         // in order
  tide__waiter* deferred_last;
  tide__wait* idle[TIDE_DEVICE_MAX];  // owned; records by device
} tide__stream_waits;

void tide__waits_init(tide__stream_waits* w, tide_machine* machine, const tide_heap* heap,
                      const tide__waits_callbacks* callbacks, void* owner, tide__waits_options options);
// Frees all records that are in queues, idle, or of deferred waiters.
void tide__waits_clear(tide__stream_waits* w);
void tide__waits_fini(tide__stream_waits* w);
// The devices whose work waiters wait for, as bits. Called at the end, when no other thread calls.
uint64_t tide__waits_devices(const tide__stream_waits* w);

static inline bool tide__waits_is_empty(tide__stream_waits* w) {
  return tide__load_relaxed(&w->waiting) == 0;
}

// --- Records -----------------------------------------------------------------------------------------
// Takes up to `count` idle records of a device, a list; makes a record; gives a list back.
tide__wait* tide__waits_take_idle(tide__stream_waits* w, int device, uint32_t count, uint32_t* out_count);
tide_status tide__wait_make(tide__stream_waits* w, int device, tide__wait** out);
void tide__waits_give(tide__stream_waits* w, tide__wait* list);
// Lists of records.
static inline tide__wait* tide__wait_pop(tide__wait** list) {
  tide__wait* const wait = *list;
  if (wait != NULL) *list = wait->next;
  return wait;
}
static inline void tide__wait_push(tide__wait** list, tide__wait* wait) {
  wait->next = *list;
  *list = wait;
}
// Prepares a record for a new use, by a stream of its device.
static inline void tide__wait_reset(tide__wait* wait, tide_stream stream) {
  wait->stream = stream;
  wait->is_recorded = false;
  wait->version++;
  wait->next = NULL;
}
// Records the event now, before the waiter begins to wait.
tide_status tide__wait_record_early(tide__stream_waits* w, tide__wait* wait);
// Adds a wait to a waiter that does not wait yet; its event is not recorded yet.
tide_status tide__waiter_add(tide__stream_waits* w, tide__waiter* waiter, int device, tide_stream stream);

// --- Beginning to wait -------------------------------------------------------------------------------
// Prepares a waiter, records its events, and lets it wait; or defers it. If it has nothing to wait for, it is
// ready at once. The thread's error record is kept.
void tide__waits_begin(tide__stream_waits* w, tide__waiter* waiter, void* call);
// Lets it wait without events, which the next pass records.
void tide__waits_defer(tide__stream_waits* w, tide__waiter* waiter);
// The same as tide__waits_begin() in two steps, for an owner that counts under the lock. The first records
// the events, and returns whether all are recorded. The second lets the waiter wait.
bool tide__waits_record(tide__stream_waits* w, tide__waiter* waiter);
void tide__waits_enter_locked(tide__stream_waits* w, tide__waiter* waiter, bool is_recorded)
    TIDE_REQUIRES(&w->lock);
// Makes those deferred waiters ready for which `is_over` returns true: they need no events.
void tide__waits_end_deferred(tide__stream_waits* w, bool (*is_over)(tide__waiter*, const void*),
                              const void* user, void* call);

// --- Passes ------------------------------------------------------------------------------------------
typedef enum tide__waits_mode {
  TIDE__WAITS_POLL,      // asks the queues that no other thread is asking now
  TIDE__WAITS_POLL_ALL,  // also waits for threads that are asking a queue, and then asks the rest of it
  TIDE__WAITS_FOR_ALL,   // waits for the waits that are queued now
  TIDE__WAITS_FOR_ONE    // waits for one: the first of the first queue that has one
} tide__waits_mode;

typedef struct tide__waits_pass {
  tide__waits_mode mode;
  bool (*matches)(tide__waiter* waiter, const void* filter);  // which waiters; NULL: all
  const void* filter;
  void* call;  // for `ready`
} tide__waits_pass;

// Tries the deferred waiters again, then goes through the queues. Returns the first failure that is not due
// to a capture. *out_passed (may be NULL) says whether an event passed.
tide_status tide__waits_run(tide__stream_waits* w, const tide__waits_pass* pass, bool* out_passed);

// --- Between stream_waits.c and stream_passes.c ------------------------------------------------------
// Records the event of a wait, after the work that its stream has by now.
tide_status tide__wait_record(tide__stream_waits* w, tide__wait* wait);
void tide__waits_give_locked(tide__stream_waits* w, tide__wait* list) TIDE_REQUIRES(&w->lock);
void tide__waits_failed(tide__stream_waits* w, tide__waiter* waiter, tide__waits_failure what);
// Gives back a list of records that are not needed any more.
void tide__waits_spend(tide__stream_waits* w, tide__wait* list);
// Gives a waiter the waits and events it lacks; *out_at is a wait whose event cannot be recorded, or NULL.
tide_status tide__waiter_prepare(tide__stream_waits* w, tide__waiter* waiter, tide__wait** out_at);
// Puts the waits of a waiter, all recorded, into their queues; or appends it to the deferred ones.
void tide__waits_queue_locked(tide__stream_waits* w, tide__waiter* waiter) TIDE_REQUIRES(&w->lock);
void tide__waits_defer_locked(tide__stream_waits* w, tide__waiter* waiter) TIDE_REQUIRES(&w->lock);
// Makes a list of `count` waiters ready. They count as waiting until then, so that a thread that sees no
// waiter finds their blocks.
void tide__waiters_end(tide__stream_waits* w, tide__waiter* list, uint64_t count, void* call);

#endif
