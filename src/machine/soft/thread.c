// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The default streams of a thread end with the thread. The machine may have been freed before, so it is
// looked up by its serial number in a registry of existing machines.
#include "machine/soft/thread.h"

#include <pthread.h>

#include "machine/machine.h"

// One default stream of a thread.
typedef struct thread_stream {
  struct thread_stream* next;  // owned
  uint64_t serial;             // of its machine
  int device;
  tide__stream* stream;  // borrowed: valid while the machine with that serial number exists
  void (*end)(tide__stream* stream);
} thread_stream;

static _Thread_local uint64_t thread_token;
static _Thread_local tide_capture_mode thread_mode;
static _Thread_local bool thread_is_in_callback;
static _Thread_local thread_stream* thread_streams;

static tide__atomic_u64 last_token;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end_key;
static tide__mutex registry_lock;
static tide__link registry;   // of tide__soft, shared under registry_lock
static uint64_t last_serial;  // shared under registry_lock

uint64_t tide__thread_token(void) {
  if (thread_token == 0) thread_token = tide__add_relaxed(&last_token, 1) + 1;
  return thread_token;
}

tide_capture_mode* tide__thread_capture_mode(void) { return &thread_mode; }

bool tide__soft_is_in_callback(const void* self) {
  (void)self;
  return thread_is_in_callback;
}

void tide__thread_callback(tide_call_fn function, void* user) {
  thread_is_in_callback = true;
  function(user);
  thread_is_in_callback = false;
}

// In a child of fork() the machines of the parent are not found.
static tide__soft* registry_find_locked(uint64_t serial) {
  TIDE_LIST_EACH(it, &registry) {
    tide__soft* soft = TIDE_OWNER(it, tide__soft, in_registry);
    const bool is_own = soft->machine == NULL || tide__load_relaxed(&soft->machine->is_inherited) == 0;
    if (soft->serial == serial && is_own) return soft;
  }
  return NULL;
}

// Runs when a thread ends that has default streams.
static void thread_end(void* unused) {
  (void)unused;
  for (thread_stream* it = thread_streams; it != NULL;) {
    thread_stream* next = it->next;
    tide__mutex_lock(&registry_lock);
    if (registry_find_locked(it->serial) != NULL) it->end(it->stream);
    tide__mutex_unlock(&registry_lock);
    tide__heap_release(&tide__system_heap, it, 1, sizeof *it);
    it = next;
  }
  thread_streams = NULL;
}

static void registry_init(void) {
  (void)pthread_key_create(&thread_end_key, thread_end);
  tide__mutex_init(&registry_lock, TIDE__RANK_REGISTRY);
  tide__fork_hold(&registry_lock);
  tide__list_init(&registry);
}

void tide__soft_register(tide__soft* soft) {
  (void)pthread_once(&registry_once, registry_init);
  tide__mutex_lock(&registry_lock);
  soft->serial = ++last_serial;
  tide__list_append(&registry, &soft->in_registry);
  tide__mutex_unlock(&registry_lock);
}

void tide__soft_unregister(tide__soft* soft) {
  tide__mutex_lock(&registry_lock);
  tide__list_unlink(&soft->in_registry);
  tide__mutex_unlock(&registry_lock);
}

tide__stream* tide__thread_stream(const tide__soft* soft, int device) {
  for (const thread_stream* it = thread_streams; it != NULL; it = it->next) {
    if (it->serial == soft->serial && it->device == device) return it->stream;
  }
  return NULL;
}

// Removes the notes of machines that were freed.
static void thread_streams_sweep(void) {
  for (thread_stream** it = &thread_streams; *it != NULL;) {
    thread_stream* note = *it;
    tide__mutex_lock(&registry_lock);
    const bool is_gone = registry_find_locked(note->serial) == NULL;
    tide__mutex_unlock(&registry_lock);
    if (is_gone) {
      *it = note->next;
      tide__heap_release(&tide__system_heap, note, 1, sizeof *note);
    } else {
      it = &note->next;
    }
  }
}

// The notes come from the system heap, because they may outlive the machine and its own heap.
bool tide__thread_stream_note(tide__soft* soft, int device, tide__stream* stream,
                              void (*end)(tide__stream* stream)) {
  thread_streams_sweep();
  thread_stream* note = tide__heap_alloc(&tide__system_heap, 1, sizeof *note);
  if (note == NULL) return false;
  *note = (thread_stream){ thread_streams, soft->serial, device, stream, end };
  thread_streams = note;
  (void)pthread_setspecific(thread_end_key, note);
  return true;
}
