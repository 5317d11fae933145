// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A table of memory for objects under test. It counts calls and bytes, fills memory with junk, refuses
// addresses that it did not hand out, and fails on command with a status that nothing else returns.
#ifndef TIDEMARK_TESTS_MEMORY_MEMORY_TABLE_H
#define TIDEMARK_TESTS_MEMORY_MEMORY_TABLE_H

#include "t.h"
#include "tidemark/memory.h"

#define TABLE_MOST 8192
#define TABLE_FAILURE TIDE_ERR_DEVICE

typedef struct table {
  tide_memory memory;
  pthread_mutex_t lock;  // guards all below
  void* out[TABLE_MOST];
  size_t sizes[TABLE_MOST];
  size_t count;   // of blocks handed out
  size_t bytes;   // of those
  size_t most;    // bytes at once
  size_t allocs;  // calls so far, failures included
  size_t releases;
  size_t fail_at;     // the index of the alloc that fails
  bool is_exhausted;  // all after it fail too
  bool has_failed;
  bool keeps;  // released blocks are kept until table_fini(), so that a late reader finds junk
  void* kept;  // owned; behind the bytes of each block is the address of the next
  size_t kept_bytes;
} table;

static inline tide_status table_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  table* const t = memory->user;
  *out = NULL;
  T_CHECK(bytes != 0);
  T_CHECK(alignment != 0 && (alignment & (alignment - 1)) == 0);
  T_EQ(pthread_mutex_lock(&t->lock), 0);
  const size_t at = t->allocs++;
  const bool fails = at == t->fail_at || (t->is_exhausted && at > t->fail_at);
  if (fails) {
    t->has_failed = true;
  } else {
    const size_t extra = t->keeps ? sizeof(void*) + sizeof(size_t) : 0;
    T_LT(t->count, TABLE_MOST);
    T_EQ(posix_memalign(out, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes + extra), 0);
    memset(*out, 0xcd, bytes);
    t->out[t->count] = *out;
    t->sizes[t->count++] = bytes;
    t->bytes += bytes;
    if (t->bytes > t->most) t->most = t->bytes;
  }
  T_EQ(pthread_mutex_unlock(&t->lock), 0);
  return fails ? TABLE_FAILURE : TIDE_OK;
}

static inline void table_keep(table* t, void* address, size_t bytes) {
  memset(address, 0xdd, bytes);
  memcpy((char*)address + bytes, &t->kept, sizeof t->kept);
  memcpy((char*)address + bytes + sizeof t->kept, &t->kept_bytes, sizeof t->kept_bytes);
  t->kept = address;
  t->kept_bytes = bytes;
}

static inline tide_status table_release(const tide_memory* memory, void* address) {
  table* const t = memory->user;
  size_t at = 0;
  T_CHECK(address != NULL);
  T_EQ(pthread_mutex_lock(&t->lock), 0);
  t->releases++;
  while (at < t->count && t->out[at] != address) at++;
  const bool is_known = at < t->count;
  if (is_known) {
    const size_t bytes = t->sizes[at];
    t->bytes -= bytes;
    t->sizes[at] = t->sizes[--t->count];
    t->out[at] = t->out[t->count];
    if (t->keeps) table_keep(t, address, bytes);
    else free(address);
  }
  T_EQ(pthread_mutex_unlock(&t->lock), 0);
  return is_known ? TIDE_OK : TABLE_FAILURE;
}

static inline void table_init(table* t) {
  memset(t, 0, sizeof *t);
  T_EQ(pthread_mutex_init(&t->lock, NULL), 0);
  t->memory = (tide_memory){ .alloc = table_alloc, .release = table_release, .user = t, .is_host = true };
  t->fail_at = SIZE_MAX;
}

// Nothing may be left.
static inline void table_fini(table* t) {
  T_EQ(t->count, 0);
  T_EQ(t->bytes, 0);
  while (t->kept != NULL) {
    char* const newest = t->kept;
    memcpy(&t->kept, newest + t->kept_bytes, sizeof t->kept);
    memcpy(&t->kept_bytes, newest + t->kept_bytes + sizeof t->kept, sizeof t->kept_bytes);
    free(newest);
  }
  T_EQ(pthread_mutex_destroy(&t->lock), 0);
}

// The alloc after `more` others fails, and with `is_exhausted` all that follow.
static inline void table_fail(table* t, size_t more, bool is_exhausted) {
  t->fail_at = t->allocs + more;
  t->is_exhausted = is_exhausted;
  t->has_failed = false;
}

static inline void table_mend(table* t) {
  t->fail_at = SIZE_MAX;
  t->is_exhausted = false;
}

static inline size_t table_calls(const table* t) { return t->allocs + t->releases; }

#endif
