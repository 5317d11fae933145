// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A table of memory for planners under test: it counts the calls and what is out, checks what comes back,
// fills what it hands out and what comes back with rubbish, and fails on command.
#ifndef TIDEMARK_TESTS_COUNTING_MEMORY_H
#define TIDEMARK_TESTS_COUNTING_MEMORY_H

#include "t.h"
#include "tidemark/memory.h"

typedef struct counting_memory {
  tide_memory table;
  size_t allocs;      // asked for so far
  size_t releases;    // made so far
  size_t blocks;      // handed out and not given back
  size_t bytes;       // of those
  size_t most;        // bytes out at once
  size_t fail_at;     // the index of the alloc that fails; SIZE_MAX: none
  bool is_exhausted;  // all after it fail too
  bool keeps;         // what comes back is kept until _fini(), so that a late reader reads rubbish
  void* kept;         // owned; the blocks, each begins with the address of the next
} counting_memory;

typedef struct counting_head {
  void* block;
  size_t bytes;
  uint64_t mark;
} counting_head;
#define COUNTING_MARK UINT64_C(0x51de7ab1e0c0ffee)

static inline tide_status counting_memory_alloc(const tide_memory* memory, size_t bytes, size_t alignment,
                                                void** out) {
  counting_memory* const m = memory->user;
  const size_t at = m->allocs++;
  T_CHECK(bytes != 0);
  T_CHECK(alignment != 0 && (alignment & (alignment - 1)) == 0);
  if (at == m->fail_at || (m->is_exhausted && at > m->fail_at)) return TIDE_ERR_NO_MEMORY;
  const size_t head = alignment < 64 ? 64 : alignment;
  void* block = NULL;
  T_EQ(posix_memalign(&block, head, head + bytes), 0);
  uint8_t* const address = (uint8_t*)block + head;
  const counting_head record = { block, bytes, COUNTING_MARK };
  memcpy(address - sizeof record, &record, sizeof record);
  memset(address, 0xcd, bytes);
  m->blocks++;
  m->bytes += bytes;
  if (m->bytes > m->most) m->most = m->bytes;
  *out = address;
  return TIDE_OK;
}

static inline tide_status counting_memory_release(const tide_memory* memory, void* address) {
  counting_memory* const m = memory->user;
  counting_head record;
  T_CHECK(address != NULL);
  memcpy(&record, (uint8_t*)address - sizeof record, sizeof record);
  T_EQ(record.mark, COUNTING_MARK);
  memset((uint8_t*)address - sizeof record, 0xdd, sizeof record + record.bytes);
  m->releases++;
  m->blocks--;
  m->bytes -= record.bytes;
  if (m->keeps) {
    memcpy(record.block, &m->kept, sizeof m->kept);
    m->kept = record.block;
  } else {
    free(record.block);
  }
  return TIDE_OK;
}

static inline void counting_memory_init(counting_memory* m) {
  memset(m, 0, sizeof *m);
  m->fail_at = SIZE_MAX;
  m->table = (tide_memory){ counting_memory_alloc, counting_memory_release, m, 0, true };
}

static inline void counting_memory_fini(counting_memory* m) {
  while (m->kept != NULL) {
    void* const block = m->kept;
    memcpy(&m->kept, block, sizeof m->kept);
    free(block);
  }
}

static inline size_t counting_memory_calls(const counting_memory* m) { return m->allocs + m->releases; }

#endif
