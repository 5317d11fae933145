// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A machine in one file. It shows what a port to a new accelerator has to provide: memory, streams, events,
// and three kinds of work. Functions that it does not have (virtual memory, captures, sharing, peers) are
// absent from the table at the end.
//
// To keep it short, one lock guards everything, and one condition variable signals every change. A stream
// counts the work that was queued and the work that is done. An event is a stream and a count. Records of
// streams live until the machine is freed, so an event may outlive its stream.
#include "small.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 512u

typedef struct small_stream small_stream;

// A point in a stream: its first `count` operations are done.
typedef struct small_point {
  small_stream* stream;  // NULL: nothing to wait for
  uint64_t count;
} small_point;

// An operation: a wait, a callback, or a move (a fill if it has no source).
typedef struct small_work {
  struct small_work* next;
  small_point wait;
  tide_call_fn function;
  void* user;
  void* destination;
  const void* source;
  size_t bytes;
  uint8_t value;
} small_work;

struct small_stream {
  small_stream* next;  // in small->streams
  struct small* owner;
  pthread_t thread;
  uint64_t number;
  uint64_t queued;
  uint64_t done;
  small_work* first;
  small_work* last;
  bool is_blocking;  // waits for the legacy stream, and the legacy stream for it
  bool is_closing;
};

// Memory of the machine, or memory that was registered with it.
typedef struct small_range {
  struct small_range* next;
  uint8_t* begin;
  size_t bytes;
  tide_memory_kind kind;
  bool is_registered;  // the caller owns the memory
} small_range;

typedef struct small {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t capacity;
  uint64_t used;
  uint64_t last_number;
  small_range* ranges;
  small_stream* streams;
  small_stream* legacy;  // made at its first use
} small;

// ---------------------------------------------------------------------------------------------------
// Memory

// The range that shares a byte with [begin, begin + bytes), or NULL.
static small_range* range_over(const small* s, const void* begin, size_t bytes) {
  const uintptr_t first = (uintptr_t)begin;
  for (small_range* range = s->ranges; range != NULL; range = range->next) {
    const uintptr_t at = (uintptr_t)range->begin;
    if (at < first + bytes && first < at + range->bytes) return range;
  }
  return NULL;
}

static tide_status range_add(small* s, void* begin, size_t bytes, tide_memory_kind kind, bool is_registered) {
  small_range* range = calloc(1, sizeof *range);
  if (range == NULL) return TIDE_ERROR_SET(TIDE_ERR_NO_MEMORY, 0, "small: no memory for a record");
  *range = (small_range){ s->ranges, begin, bytes, kind, is_registered };
  s->ranges = range;
  return TIDE_OK;
}

// Removes the range that begins at an address from the list. Returns its size, or 0 if there is none.
static size_t range_remove(small* s, const void* begin, tide_memory_kind kind, bool is_registered) {
  for (small_range** at = &s->ranges; *at != NULL; at = &(*at)->next) {
    small_range* range = *at;
    if (range->begin != begin || range->kind != kind || range->is_registered != is_registered) continue;
    const size_t bytes = range->bytes;
    *at = range->next;
    free(range);
    return bytes;
  }
  return 0;
}

static tide_status memory_new(small* s, const char* name, size_t bytes, tide_memory_kind kind, void** out) {
  void* address = NULL;
  if (bytes > SIZE_MAX - ALIGNMENT || posix_memalign(&address, ALIGNMENT, bytes) != 0) {
    return TIDE_ERROR_SET(TIDE_ERR_NO_MEMORY, 0, "%s: the system has no %zu bytes", name, bytes);
  }
  const tide_status status = range_add(s, address, bytes, kind, false);
  if (status == TIDE_OK) *out = address;
  else free(address);
  return status;
}

static tide_status small_raw_alloc(void* self, int device, size_t bytes, void** out) {
  (void)device;
  small* s = self;
  tide_status status = TIDE_OK;
  pthread_mutex_lock(&s->lock);
  if (bytes > s->capacity - s->used) {
    status = TIDE_ERROR_SET(TIDE_ERR_NO_MEMORY, 0, "raw_alloc: %zu bytes requested, %llu are free", bytes,
                            (unsigned long long)(s->capacity - s->used));
  } else {
    status = memory_new(s, "raw_alloc", bytes, TIDE_MEMORY_RAW, out);
  }
  if (status == TIDE_OK) s->used += bytes;
  pthread_mutex_unlock(&s->lock);
  return status;
}

static tide_status small_raw_release(void* self, int device, void* address) {
  (void)device;
  small* s = self;
  pthread_mutex_lock(&s->lock);
  const size_t bytes = range_remove(s, address, TIDE_MEMORY_RAW, false);
  s->used -= bytes;
  pthread_mutex_unlock(&s->lock);
  if (bytes == 0) return TIDE_ERROR_SET(TIDE_ERR_ARGUMENT, 0, "raw_release: no memory begins at %p", address);
  free(address);
  return TIDE_OK;
}

static tide_status small_pinned_alloc(void* self, size_t bytes, void** out) {
  small* s = self;
  pthread_mutex_lock(&s->lock);
  const tide_status status = memory_new(s, "pinned_alloc", bytes, TIDE_MEMORY_PINNED, out);
  pthread_mutex_unlock(&s->lock);
  return status;
}

static tide_status pinned_end(small* s, const char* name, void* address, bool is_registered) {
  pthread_mutex_lock(&s->lock);
  const size_t bytes = range_remove(s, address, TIDE_MEMORY_PINNED, is_registered);
  pthread_mutex_unlock(&s->lock);
  if (bytes != 0) return TIDE_OK;
  return TIDE_ERROR_SET(TIDE_ERR_ARGUMENT, 0, "%s: no such memory begins at %p", name, address);
}

static tide_status small_pinned_release(void* self, void* address) {
  const tide_status status = pinned_end(self, "pinned_release", address, false);
  if (status == TIDE_OK) free(address);
  return status;
}

static tide_status small_pinned_register(void* self, void* address, size_t bytes) {
  small* s = self;
  tide_status status = TIDE_OK;
  pthread_mutex_lock(&s->lock);
  if (bytes > UINTPTR_MAX - (uintptr_t)address || range_over(s, address, bytes) != NULL) {
    status =
        TIDE_ERROR_SET(TIDE_ERR_ARGUMENT, 0, "pinned_register: %zu bytes at %p are taken", bytes, address);
  } else {
    status = range_add(s, address, bytes, TIDE_MEMORY_PINNED, true);
  }
  pthread_mutex_unlock(&s->lock);
  return status;
}

static tide_status small_pinned_unregister(void* self, void* address) {
  return pinned_end(self, "pinned_unregister", address, true);
}

static tide_status small_pointer_info(void* self, const void* pointer, tide_pointer_info* out) {
  small* s = self;
  pthread_mutex_lock(&s->lock);
  const small_range* range = range_over(s, pointer, 1);
  if (range != NULL) {
    out->kind = (uint32_t)range->kind;
    out->device = range->kind == TIDE_MEMORY_RAW ? 0 : -1;
    out->base = range->begin;
    out->bytes = range->bytes;
  }
  pthread_mutex_unlock(&s->lock);
  return TIDE_OK;
}

static tide_status small_device_info(void* self, int device, tide_device_info* out) {
  (void)device;
  const small* s = self;
  out->total_bytes = s->capacity;
  (void)snprintf(out->name, sizeof out->name, "small device");
  return TIDE_OK;
}

static tide_status small_memory_info(void* self, int device, size_t* out_free, size_t* out_total) {
  (void)device;
  small* s = self;
  pthread_mutex_lock(&s->lock);
  *out_free = s->capacity - s->used;
  *out_total = s->capacity;
  pthread_mutex_unlock(&s->lock);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Streams

static bool point_is_reached(small_point point) {
  return point.stream == NULL || point.stream->done >= point.count;
}

static void point_wait_locked(small* s, small_point point) {
  while (!point_is_reached(point)) pthread_cond_wait(&s->changed, &s->lock);
}

// Executes one operation, without the lock.
static void work_do(const small_work* work) {
  if (work->function != NULL) work->function(work->user);
  else if (work->source != NULL) memmove(work->destination, work->source, work->bytes);
  else if (work->destination != NULL) memset(work->destination, work->value, work->bytes);
}

// The thread of a stream executes its work in order. It ends when the stream is freed and no work is left.
static void* stream_run(void* argument) {
  small_stream* stream = argument;
  small* s = stream->owner;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (stream->first == NULL && !stream->is_closing) pthread_cond_wait(&s->changed, &s->lock);
    small_work* work = stream->first;
    if (work == NULL) break;
    point_wait_locked(s, work->wait);
    pthread_mutex_unlock(&s->lock);
    work_do(work);
    pthread_mutex_lock(&s->lock);
    stream->first = work->next;
    stream->done++;
    pthread_cond_broadcast(&s->changed);
    free(work);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

static tide_status stream_make_locked(small* s, bool is_blocking, small_stream** out) {
  small_stream* stream = calloc(1, sizeof *stream);
  if (stream == NULL) return TIDE_ERROR_SET(TIDE_ERR_NO_MEMORY, 0, "stream_new: no memory for a record");
  stream->owner = s;
  stream->number = ++s->last_number;
  stream->is_blocking = is_blocking;
  const int error = pthread_create(&stream->thread, NULL, stream_run, stream);
  if (error != 0) {
    free(stream);
    return TIDE_ERROR_SET(TIDE_ERR_NO_MEMORY, error, "stream_new: no thread (errno %d)", error);
  }
  stream->next = s->streams;
  s->streams = stream;
  *out = stream;
  return TIDE_OK;
}

// Finds the stream of a handle. This machine has no per-thread streams.
static tide_status stream_find_locked(small* s, tide_stream handle, small_stream** out) {
  if (handle == TIDE_STREAM_PER_THREAD) {
    return TIDE_ERROR_SET(TIDE_ERR_UNSUPPORTED, 0, "the small machine has no per-thread streams");
  }
  if (handle != NULL && handle != TIDE_STREAM_LEGACY) {
    *out = (small_stream*)(void*)handle;
    return TIDE_OK;
  }
  const tide_status status = s->legacy == NULL ? stream_make_locked(s, false, &s->legacy) : TIDE_OK;
  *out = s->legacy;
  return status;
}

static tide_status work_append_locked(small_stream* stream, small_work work) {
  small_work* copy = malloc(sizeof *copy);
  if (copy == NULL) return TIDE_ERROR_SET(TIDE_ERR_NO_MEMORY, 0, "no memory to queue work");
  *copy = work;
  copy->next = NULL;
  if (stream->first == NULL) stream->first = copy;
  else stream->last->next = copy;
  stream->last = copy;
  stream->queued++;
  pthread_cond_broadcast(&stream->owner->changed);
  return TIDE_OK;
}

static tide_status wait_append_locked(small_stream* stream, small_stream* other) {
  const small_point point = { other, other->queued };
  if (point_is_reached(point)) return TIDE_OK;
  return work_append_locked(stream, (small_work){ .wait = point });
}

// Queues the waits that the legacy stream requires before the next work: it waits for all blocking streams,
// and they wait for it.
static tide_status stream_join_locked(small_stream* stream) {
  small* s = stream->owner;
  tide_status status = TIDE_OK;
  if (stream->is_blocking && s->legacy != NULL) return wait_append_locked(stream, s->legacy);
  if (stream != s->legacy) return TIDE_OK;
  for (small_stream* other = s->streams; other != NULL && status == TIDE_OK; other = other->next) {
    if (other->is_blocking) status = wait_append_locked(stream, other);
  }
  return status;
}

// The end of the work queued so far on a stream.
static tide_status stream_tail_locked(small* s, tide_stream handle, small_point* out) {
  small_stream* stream = NULL;
  tide_status status = stream_find_locked(s, handle, &stream);
  if (status == TIDE_OK) status = stream_join_locked(stream);
  if (status == TIDE_OK) *out = (small_point){ stream, stream->queued };
  return status;
}

static tide_status work_submit(small* s, tide_stream handle, small_work work) {
  small_point tail = { NULL, 0 };
  pthread_mutex_lock(&s->lock);
  tide_status status = stream_tail_locked(s, handle, &tail);
  if (status == TIDE_OK) status = work_append_locked(tail.stream, work);
  pthread_mutex_unlock(&s->lock);
  return status;
}

static tide_status small_stream_new(void* self, int device, uint32_t flags, int priority, tide_stream* out) {
  (void)device;
  (void)priority;
  small* s = self;
  small_stream* stream = NULL;
  pthread_mutex_lock(&s->lock);
  const tide_status status = stream_make_locked(s, (flags & TIDE_STREAM_NON_BLOCKING) == 0, &stream);
  pthread_mutex_unlock(&s->lock);
  *out = (tide_stream)(void*)stream;
  return status;
}

// The record stays, because events and waits may still refer to it.
static tide_status small_stream_free(void* self, int device, tide_stream handle) {
  (void)device;
  small* s = self;
  pthread_mutex_lock(&s->lock);
  ((small_stream*)(void*)handle)->is_closing = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return TIDE_OK;
}

static tide_status small_stream_info(void* self, int device, tide_stream handle, bool* out_captured,
                                     uint64_t* out_number) {
  (void)device;
  small* s = self;
  small_stream* stream = NULL;
  pthread_mutex_lock(&s->lock);
  const tide_status status = stream_find_locked(s, handle, &stream);
  pthread_mutex_unlock(&s->lock);
  *out_captured = false;
  if (status == TIDE_OK) *out_number = stream->number;
  return status;
}

static tide_status small_stream_query(void* self, int device, tide_stream handle, bool* out_idle) {
  (void)device;
  small* s = self;
  small_point tail = { NULL, 0 };
  pthread_mutex_lock(&s->lock);
  const tide_status status = stream_tail_locked(s, handle, &tail);
  *out_idle = status == TIDE_OK && point_is_reached(tail);
  pthread_mutex_unlock(&s->lock);
  return status;
}

static tide_status small_stream_synchronize(void* self, int device, tide_stream handle) {
  (void)device;
  small* s = self;
  small_point tail = { NULL, 0 };
  pthread_mutex_lock(&s->lock);
  const tide_status status = stream_tail_locked(s, handle, &tail);
  if (status == TIDE_OK) point_wait_locked(s, tail);
  pthread_mutex_unlock(&s->lock);
  return status;
}

static tide_status small_device_synchronize(void* self, int device) {
  (void)device;
  small* s = self;
  pthread_mutex_lock(&s->lock);
  for (small_stream* it = s->streams; it != NULL; it = it->next) {
    point_wait_locked(s, (small_point){ it, it->queued });
  }
  pthread_mutex_unlock(&s->lock);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Events: a handle is the address of a point

static tide_status small_event_new(void* self, int device, tide_event* out) {
  (void)self;
  (void)device;
  small_point* point = calloc(1, sizeof *point);
  if (point == NULL) return TIDE_ERROR_SET(TIDE_ERR_NO_MEMORY, 0, "event_new: no memory for a record");
  *out = (tide_event)(void*)point;
  return TIDE_OK;
}

static tide_status small_event_free(void* self, tide_event event) {
  (void)self;
  free(event);
  return TIDE_OK;
}

static tide_status small_event_record(void* self, int device, tide_event event, tide_stream handle) {
  (void)device;
  small* s = self;
  pthread_mutex_lock(&s->lock);
  const tide_status status = stream_tail_locked(s, handle, (small_point*)(void*)event);
  pthread_mutex_unlock(&s->lock);
  return status;
}

static tide_status small_event_query(void* self, tide_event event, bool* out_done) {
  small* s = self;
  pthread_mutex_lock(&s->lock);
  *out_done = point_is_reached(*(small_point*)(void*)event);
  pthread_mutex_unlock(&s->lock);
  return TIDE_OK;
}

static tide_status small_event_synchronize(void* self, tide_event event) {
  small* s = self;
  pthread_mutex_lock(&s->lock);
  point_wait_locked(s, *(small_point*)(void*)event);
  pthread_mutex_unlock(&s->lock);
  return TIDE_OK;
}

static tide_status small_stream_wait(void* self, int device, tide_stream handle, tide_event event) {
  (void)device;
  small* s = self;
  pthread_mutex_lock(&s->lock);
  const small_point point = *(small_point*)(void*)event;
  pthread_mutex_unlock(&s->lock);
  return work_submit(s, handle, (small_work){ .wait = point });
}

// ---------------------------------------------------------------------------------------------------
// Work

static tide_status small_copy(void* self, int device, tide_stream stream, void* destination,
                              const void* source, size_t bytes) {
  (void)device;
  return work_submit(self, stream,
                     (small_work){ .destination = destination, .source = source, .bytes = bytes });
}

static tide_status small_fill(void* self, int device, tide_stream stream, void* destination, uint8_t value,
                              size_t bytes) {
  (void)device;
  return work_submit(self, stream,
                     (small_work){ .destination = destination, .value = value, .bytes = bytes });
}

static tide_status small_call(void* self, int device, tide_stream stream, tide_call_fn function, void* user) {
  (void)device;
  return work_submit(self, stream, (small_work){ .function = function, .user = user });
}

// ---------------------------------------------------------------------------------------------------
// The machine

static void streams_free(small* s) {
  pthread_mutex_lock(&s->lock);
  for (small_stream* it = s->streams; it != NULL; it = it->next) it->is_closing = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  for (small_stream* it = s->streams; it != NULL; it = it->next) pthread_join(it->thread, NULL);
  for (small_stream* it = s->streams; it != NULL;) {
    small_stream* next = it->next;
    free(it);
    it = next;
  }
}

// Waits for all work, then frees everything.
static void small_free(void* self) {
  small* s = self;
  streams_free(s);
  while (s->ranges != NULL) {
    small_range* range = s->ranges;
    s->ranges = range->next;
    if (!range->is_registered) free(range->begin);
    free(range);
  }
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

static const tide_machine_ops small_ops = {
  .size = sizeof(tide_machine_ops),
  .version = TIDE_MACHINE_OPS_VERSION,
  .flags = TIDE_MACHINE_HOST_READABLE,
  .name = "small",
  .free = small_free,
  .device_info = small_device_info,
  .memory_info = small_memory_info,
  .raw_alloc = small_raw_alloc,
  .raw_release = small_raw_release,
  .pinned_alloc = small_pinned_alloc,
  .pinned_release = small_pinned_release,
  .pinned_register = small_pinned_register,
  .pinned_unregister = small_pinned_unregister,
  .pointer_info = small_pointer_info,
  .stream_new = small_stream_new,
  .stream_free = small_stream_free,
  .stream_info = small_stream_info,
  .stream_query = small_stream_query,
  .stream_synchronize = small_stream_synchronize,
  .stream_wait = small_stream_wait,
  .device_synchronize = small_device_synchronize,
  .event_new = small_event_new,
  .event_free = small_event_free,
  .event_record = small_event_record,
  .event_query = small_event_query,
  .event_synchronize = small_event_synchronize,
  .copy = small_copy,
  .fill = small_fill,
  .call = small_call,
};

tide_status small_machine_new(uint64_t capacity, tide_machine** out) {
  *out = NULL;
  small* s = calloc(1, sizeof *s);
  if (s == NULL) return TIDE_ERROR_SET(TIDE_ERR_NO_MEMORY, 0, "small_machine_new: no memory");
  s->capacity = capacity;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  const tide_status status = tide_machine_new(&small_ops, s, 1, NULL, out);
  if (status != TIDE_OK) small_free(s);
  return status;
}
