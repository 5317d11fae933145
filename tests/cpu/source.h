// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A source of memory for caches under test. It keeps a list of its blocks, has a budget, can fail at any
// call, and can make callers wait at a gate. New memory is not zero, so that a cache that relies on zeros
// fails.
#ifndef TIDEMARK_TESTS_CPU_SOURCE_H
#define TIDEMARK_TESTS_CPU_SOURCE_H

#include "t.h"
#include "tidemark/memory.h"

#define SOURCE_MOST 4096
#define SOURCE_MARK 0xcd

typedef struct source {
  tide_memory memory;
  pthread_mutex_t lock;  // guards all below
  pthread_cond_t changed;
  void* out[SOURCE_MOST];
  size_t sizes[SOURCE_MOST];
  size_t count;         // of what is out
  size_t bytes;         // of that
  size_t budget;        // more bytes are never out
  size_t calls;         // of both kinds so far, failures included
  size_t fail_at;       // the index of the call that fails
  size_t failures;      // for either reason
  bool spares_release;  // only calls for memory are counted and fail
  bool is_exhausted;    // all calls after it fail too
  bool is_bare;         // new memory has no mark, which takes long
  bool is_gate_shut;
  size_t waiting;  // at the gate
} source;

static inline void source_lock(source* s) { T_EQ(pthread_mutex_lock(&s->lock), 0); }
static inline void source_unlock(source* s) { T_EQ(pthread_mutex_unlock(&s->lock), 0); }

static inline void source_pass_gate(source* s) {
  s->waiting++;
  T_EQ(pthread_cond_broadcast(&s->changed), 0);
  while (s->is_gate_shut) T_EQ(pthread_cond_wait(&s->changed, &s->lock), 0);
  s->waiting--;
}

static inline bool source_fails_now(source* s) {
  const size_t at = s->calls++;
  const bool fails = at == s->fail_at || (s->is_exhausted && at > s->fail_at);
  s->failures += fails ? 1 : 0;
  return fails;
}

static inline tide_status source_take(source* s, size_t bytes, size_t alignment, void** out) {
  if (source_fails_now(s)) return TIDE_ERR_NO_MEMORY;
  if (bytes > s->budget - s->bytes) {
    s->failures++;
    return TIDE_ERR_NO_MEMORY;
  }
  T_LT(s->count, SOURCE_MOST);
  T_EQ(posix_memalign(out, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes), 0);
  if (!s->is_bare) memset(*out, SOURCE_MARK, bytes);
  s->out[s->count] = *out;
  s->sizes[s->count++] = bytes;
  s->bytes += bytes;
  return TIDE_OK;
}

static inline tide_status source_alloc(const tide_memory* memory, size_t bytes, size_t alignment,
                                       void** out) {
  source* const s = memory->user;
  *out = NULL;
  T_CHECK(bytes != 0);
  T_CHECK(alignment != 0 && (alignment & (alignment - 1)) == 0);
  source_lock(s);
  source_pass_gate(s);
  const tide_status status = source_take(s, bytes, alignment, out);
  source_unlock(s);
  return status;
}

static inline size_t source_find(const source* s, const void* address) {
  size_t at = 0;
  while (at < s->count && s->out[at] != address) at++;
  return at;
}

// An unknown address, or one that was released before, is a fault of the cache.
static inline tide_status source_release(const tide_memory* memory, void* address) {
  source* const s = memory->user;
  T_CHECK(address != NULL);
  source_lock(s);
  const size_t at = source_find(s, address);
  T_LT(at, s->count);
  const bool fails = !s->spares_release && source_fails_now(s);
  if (!fails) {
    s->bytes -= s->sizes[at];
    s->sizes[at] = s->sizes[--s->count];
    s->out[at] = s->out[s->count];
    free(address);
  }
  source_unlock(s);
  return fails ? TIDE_ERR_MACHINE : TIDE_OK;
}

static inline void source_init(source* s) {
  memset(s, 0, sizeof *s);
  T_EQ(pthread_mutex_init(&s->lock, NULL), 0);
  T_EQ(pthread_cond_init(&s->changed, NULL), 0);
  s->memory = (tide_memory){ .alloc = source_alloc, .release = source_release, .user = s, .is_host = true };
  s->fail_at = SIZE_MAX;
  s->budget = SIZE_MAX;
}

// Frees what could not be given back because release failed.
static inline void source_drain(source* s) {
  while (s->count > 0) free(s->out[--s->count]);
  s->bytes = 0;
}

// Nothing may be left.
static inline void source_fini(source* s) {
  T_EQ(s->count, 0);
  T_EQ(s->bytes, 0);
  T_EQ(pthread_cond_destroy(&s->changed), 0);
  T_EQ(pthread_mutex_destroy(&s->lock), 0);
}

static inline void source_fail(source* s, size_t more, bool is_exhausted) {
  source_lock(s);
  s->fail_at = s->calls + more;
  s->is_exhausted = is_exhausted;
  source_unlock(s);
}

static inline void source_mend(source* s) {
  source_lock(s);
  s->fail_at = SIZE_MAX;
  s->is_exhausted = false;
  source_unlock(s);
}

static inline void source_set_budget(source* s, size_t bytes) {
  source_lock(s);
  s->budget = bytes;
  source_unlock(s);
}

static inline void source_set_gate(source* s, bool is_shut) {
  source_lock(s);
  s->is_gate_shut = is_shut;
  T_EQ(pthread_cond_broadcast(&s->changed), 0);
  source_unlock(s);
}

static inline void source_await_callers(source* s, size_t count) {
  source_lock(s);
  while (s->waiting < count) T_EQ(pthread_cond_wait(&s->changed, &s->lock), 0);
  source_unlock(s);
}

static inline size_t source_bytes(source* s) {
  source_lock(s);
  const size_t bytes = s->bytes;
  source_unlock(s);
  return bytes;
}

// Does a range lie in one block of the source?
static inline bool source_has(source* s, const void* address, size_t bytes) {
  bool is_inside = false;
  source_lock(s);
  for (size_t i = 0; i < s->count && !is_inside; i++) {
    const uintptr_t offset = (uintptr_t)address - (uintptr_t)s->out[i];
    is_inside = offset < s->sizes[i] && bytes <= s->sizes[i] - offset;
  }
  source_unlock(s);
  return is_inside;
}

#endif
