// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the CPU cache. The bytes of an input drive all calls on up to three caches of any options: some on
// the system, some on a source that counts and fails, with a heap that ends. Blocks are taken, resized,
// looked up, released, forgotten, released twice, inside and on another thread; memory of the C
// library and of the source is released through a cache; caches are trimmed, limited, freed with blocks out
// and made anew.
//
// Every block is filled when it is allocated and compared when it is released. No two overlap; each is
// aligned, filled as its cache promises, and found at every byte. Wrong addresses are refused and change
// nothing. Sometimes and at the end, tide_cpu_check() and the statistics are checked; nothing is left.
#define T_THREADS
#include <pthread.h>

#include "memory.h"
#include "tidemark/cpu.h"

enum {
  FUZZ_CACHES = 3,
  FUZZ_STEPS = 48,
  FUZZ_BLOCKS = 24,
  FUZZ_GONE = 8,
  FUZZ_STEPS_A_CHECK = 16,
  FUZZ_SPAN = 128
};
#define FUZZ_MIB ((size_t)1 << 20)
#define FUZZ_LARGEST (32 * FUZZ_MIB)  // the stores give no more

// ---------------------------------------------------------------------------------------------------
// Caches and what they handed out

typedef struct fuzz_block {
  uint8_t* address;
  size_t bytes;   // asked for
  size_t usable;  // what the cache says
  uint8_t stamp;
  uint32_t cache;  // the number of its cache, which no other ever has
} fuzz_block;

typedef struct fuzz_side {
  tide_cpu_cache* cache;  // NULL: there is none
  tide_cpu_options options;
  uint32_t number;
  fuzz_store store;
} fuzz_side;

typedef struct fuzz_world {
  fuzz_side sides[FUZZ_CACHES];
  size_t side_count;
  fuzz_heap taken;
  tide_heap heap;
  fuzz_block blocks[FUZZ_BLOCKS];
  size_t count;
  uint8_t* gone[FUZZ_GONE];  // addresses of blocks that were released
  size_t gone_count;
  uint32_t numbers;
  uint8_t stamp;
  size_t threads_left;  // that may still be started
  size_t pressed;       // calls of on_pressure
} fuzz_world;

static bool fuzz_may_fail(const fuzz_world* w, const fuzz_side* s) {
  return s->store.has_failed || fuzz_heap_has_failed(&w->taken) || s->options.max_bytes != TIDE_NO_LIMIT;
}

static fuzz_side* fuzz_side_of(fuzz_world* w, const fuzz_block* b) {
  for (size_t i = 0; i < w->side_count; i++) {
    if (w->sides[i].cache != NULL && w->sides[i].number == b->cache) return &w->sides[i];
  }
  return NULL;
}

static bool fuzz_begins_at(const fuzz_world* w, const uint8_t* address) {
  for (size_t i = 0; i < w->count; i++) {
    if (w->blocks[i].address == address) return true;
  }
  return false;
}

// Both ends of a block are looked at: the byte after one.
static size_t fuzz_next(size_t at, size_t bytes) {
  const bool is_end_of_head = at + 1 == FUZZ_SPAN && bytes > 2 * (size_t)FUZZ_SPAN;
  return is_end_of_head ? bytes - FUZZ_SPAN : at + 1;
}

// They hold the stamp of the block, counted up.
static void fuzz_stamp(const fuzz_block* b, bool writes) {
  for (size_t i = 0; i < b->bytes; i = fuzz_next(i, b->bytes)) {
    if (writes) b->address[i] = (uint8_t)(b->stamp + i);
    else FUZZ_REQUIRE(b->address[i] == (uint8_t)(b->stamp + i));
  }
}

static void fuzz_check_fill(tide_fill fill, const uint8_t* memory, size_t bytes) {
  static const uint8_t junk[] = { 0xef, 0xbe, 0xed, 0x7f };
  if (fill == TIDE_FILL_NOTHING) return;
  for (size_t i = 0; i < bytes; i = fuzz_next(i, bytes))
    FUZZ_REQUIRE(memory[i] == (fill == TIDE_FILL_JUNK ? junk[i % 4] : 0));
}

static void fuzz_check_found(fuzz_world* w, const fuzz_block* b, size_t offset) {
  const fuzz_side* const s = fuzz_side_of(w, b);
  const tide_cpu_info info = tide_cpu_find(b->address + offset);
  FUZZ_REQUIRE(info.is_live && info.is_ours && info.address == b->address && info.bytes == b->usable);
  FUZZ_REQUIRE(info.cache == (s != NULL ? s->cache : NULL));
}

static void fuzz_check_apart(const fuzz_world* w, const fuzz_block* b) {
  for (size_t i = 0; i < w->count; i++) {
    const fuzz_block* const other = &w->blocks[i];
    if (other == b) continue;
    FUZZ_REQUIRE(b->address + b->usable <= other->address || other->address + other->usable <= b->address);
  }
}

static void fuzz_begin(fuzz_world* w, fuzz_side* s, fuzz_block* b, uint8_t* address, size_t bytes) {
  *b = (fuzz_block){ address, bytes, (size_t)tide_cpu_find(address).bytes, w->stamp++, s->number };
  FUZZ_REQUIRE((uintptr_t)address % 64 == 0 && b->usable >= bytes);
  fuzz_check_apart(w, b);
  fuzz_check_found(w, b, 0);
  fuzz_check_found(w, b, bytes - 1);
  fuzz_check_found(w, b, b->usable - 1);
  if (s->options.memory.alloc != NULL) FUZZ_REQUIRE(fuzz_store_has(&s->store, address, b->usable));
  fuzz_stamp(b, true);
}

// ---------------------------------------------------------------------------------------------------
// Calls

// Sizes where something changes; the last few make no sense, and those before them cost time.
static const size_t fuzz_sizes[] = { 0,           1,
                                     63,          64,
                                     65,          100,
                                     1000,        1024,
                                     1025,        4095,
                                     4096,        4097,
                                     8192,        20000,
                                     32767,       32768,
                                     32769,       40000,
                                     65536,       65537,
                                     100000,      300000,
                                     1048576,     2097151,
                                     2097152,     2097153,
                                     6291456,     ((size_t)1 << 43) + 1,
                                     PTRDIFF_MAX, SIZE_MAX - 63,
                                     SIZE_MAX };
enum { FUZZ_SIZES = sizeof fuzz_sizes / sizeof *fuzz_sizes, FUZZ_CHEAP_SIZES = 22, FUZZ_REAL_SIZES = 27 };

static size_t fuzz_bytes_of(uint8_t b, uint8_t c) {
  if (b < 0x40) return (size_t)(b & 7) << 8 | c;
  if (b < 0x80) return ((size_t)(b & 15) << 8 | c) * 16;
  if (b < 0xf0) return fuzz_sizes[c % FUZZ_CHEAP_SIZES];
  return fuzz_sizes[c % (b < 0xf8 ? FUZZ_REAL_SIZES : FUZZ_SIZES)];
}

static void fuzz_alloc(fuzz_world* w, fuzz_side* s, uint8_t kind, uint8_t b, uint8_t c) {
  const size_t bytes = fuzz_bytes_of(b, c);
  const size_t alignment = kind % 4 == 1 ? (size_t)1 << (b & 31) : 1;
  void* address = &address;
  if (w->count == FUZZ_BLOCKS) return;
  tide_status status = TIDE_OK;
  if (kind % 4 == 1) status = tide_cpu_alloc_aligned(s->cache, bytes, alignment, &address);
  else if (kind % 4 == 2) status = tide_cpu_alloc_zeros(s->cache, bytes, &address);
  else status = tide_cpu_alloc(s->cache, bytes, &address);
  if (status == TIDE_OK && bytes > 0) {
    FUZZ_REQUIRE((uintptr_t)address % alignment == 0);
    fuzz_check_fill(kind % 4 == 2 ? TIDE_FILL_ZEROS : s->options.fill, address, bytes);
    w->count++;
    fuzz_begin(w, s, &w->blocks[w->count - 1], address, bytes);
    return;
  }
  FUZZ_REQUIRE(address == NULL);
  const bool is_senseless = bytes > TIDE_CPU_MAX_BYTES || alignment > TIDE_CPU_MAX_ALIGNMENT;
  if (status == TIDE_ERR_ARGUMENT) FUZZ_REQUIRE(is_senseless);
  else FUZZ_REQUIRE(bytes == 0 || (status == TIDE_ERR_NO_MEMORY && fuzz_may_fail(w, s)));
}

static void fuzz_end(fuzz_world* w, size_t at) {
  w->gone[w->gone_count++ % FUZZ_GONE] = w->blocks[at].address;
  w->blocks[at] = w->blocks[--w->count];
}

static void* fuzz_release_there(void* address) {
  FUZZ_REQUIRE(tide_cpu_release(address) == TIDE_OK);
  return NULL;
}

// Memory that came from no cache: refused, or freed once.
static void fuzz_release_foreign(fuzz_side* s, uint8_t b, uint8_t c) {
  const tide_memory cpu = tide_memory_cpu();
  const tide_memory* const source = s->options.memory.alloc != NULL ? &s->options.memory : &cpu;
  void* theirs = NULL;
  if (source->alloc(source, 1 + (size_t)b * c, 64, &theirs) != TIDE_OK) return;
  const tide_status status = tide_cpu_release_any(s->cache, theirs);
  FUZZ_REQUIRE(status == (s->options.frees_foreign ? TIDE_OK : TIDE_ERR_ARGUMENT));
  if (status != TIDE_OK) FUZZ_REQUIRE(source->release(source, theirs) == TIDE_OK);
}

static void fuzz_release(fuzz_world* w, size_t at, uint8_t how) {
  const fuzz_block* const b = &w->blocks[at];
  fuzz_stamp(b, false);
  if (how % 16 == 1 && w->threads_left > 0) {
    pthread_t thread;
    w->threads_left--;
    FUZZ_REQUIRE(pthread_create(&thread, NULL, fuzz_release_there, b->address) == 0);
    FUZZ_REQUIRE(pthread_join(thread, NULL) == 0);
  } else {
    FUZZ_REQUIRE((how % 8 == 0 ? tide_cpu_forget(b->address) : tide_cpu_release(b->address)) == TIDE_OK);
  }
  fuzz_end(w, at);
}

static void fuzz_resize(fuzz_world* w, fuzz_side* s, size_t at, size_t bytes) {
  fuzz_block* const b = &w->blocks[at];
  const fuzz_block before = *b;
  void* address = &address;
  fuzz_stamp(b, false);
  const tide_status status = tide_cpu_resize(s->cache, b->address, bytes, &address);
  if (status != TIDE_OK || bytes == 0) {
    FUZZ_REQUIRE(address == NULL);
    FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_NO_MEMORY && fuzz_may_fail(w, s)) ||
                 (status == TIDE_ERR_ARGUMENT && bytes > TIDE_CPU_MAX_BYTES));
    if (status == TIDE_OK) fuzz_end(w, at);
    else fuzz_stamp(b, false);
    return;
  }
  const size_t common = bytes < b->bytes ? bytes : b->bytes;
  const fuzz_block kept = { address, common < FUZZ_SPAN ? common : FUZZ_SPAN, 0, b->stamp, 0 };
  fuzz_side* const owner = address == before.address ? fuzz_side_of(w, b) : s;
  fuzz_stamp(&kept, false);
  if (address != before.address) w->gone[w->gone_count++ % FUZZ_GONE] = before.address;
  if (owner != NULL) {
    fuzz_begin(w, owner, b, address, bytes);
    return;
  }
  *b = (fuzz_block){ address, bytes, (size_t)tide_cpu_find(address).bytes, w->stamp++, before.cache };
  FUZZ_REQUIRE(b->usable >= bytes);
  fuzz_check_apart(w, b);
  fuzz_stamp(b, true);
}

// Releases an address that was released before, lies inside a block, or belongs to no cache.
static void fuzz_release_wrong(fuzz_world* w, uint8_t b, uint8_t c) {
  uint64_t own = 0;
  uint8_t* address = (uint8_t*)&own;
  if (b % 4 == 1 && w->gone_count > 0) address = w->gone[c % FUZZ_GONE];
  if (b % 4 == 2 && w->count > 0) {
    const fuzz_block* const block = &w->blocks[c % w->count];
    address = block->address + 1 + (size_t)b * 64 % block->usable;
  }
  if (b % 4 == 3) address = (uint8_t*)(((uintptr_t)c << 8 | b) << b % 56);
  if (address == NULL || fuzz_begins_at(w, address)) return;
  const tide_status status = b % 8 < 4 ? tide_cpu_release(address) : tide_cpu_forget(address);
  FUZZ_REQUIRE(status == TIDE_ERR_ARGUMENT || (status == TIDE_ERR_STATE && b % 4 != 0));
  FUZZ_REQUIRE(own == 0);
}

// ---------------------------------------------------------------------------------------------------
// Caches

static bool fuzz_relieve(void* user, uint64_t bytes) {
  fuzz_world* const w = user;
  FUZZ_REQUIRE(bytes > 0);
  return ++w->pressed % 2 == 0;
}

static void fuzz_open(fuzz_bytes* b, fuzz_world* w, fuzz_side* s) {
  const unsigned first = fuzz_take(b);
  const unsigned second = fuzz_take(b);
  tide_cpu_options* const o = &s->options;
  *o = (tide_cpu_options)TIDE_CPU_OPTIONS_INIT;
  o->fill = (tide_fill)(first % 4 < 3 ? first % 4 : 0);
  o->huge_pages = (first & 4) != 0;
  o->idle_ns = (first & 8) != 0 ? 1 : 0;
  o->region_bytes = (first >> 4 & 3) == 3 ? 0 : (1 + (uint64_t)(first >> 4 & 3)) * 2 * FUZZ_MIB;
  if (first & 128) o->memory = (tide_memory){ fuzz_store_alloc, fuzz_store_release, &s->store, 0, true };
  o->max_cached_bytes = second & 1 ? (uint64_t)(second >> 4) * FUZZ_MIB / 2 : TIDE_NO_LIMIT;
  o->max_bytes = second & 2 ? (uint64_t)(second >> 4) * FUZZ_MIB : TIDE_NO_LIMIT;
  o->max_block_bytes = second & 4 ? (uint64_t)1 << 20 : TIDE_NO_LIMIT;
  o->on_pressure = second & 8 ? fuzz_relieve : NULL;
  o->frees_foreign = (second & 16) != 0;
  o->user = w;
  o->heap = &w->heap;
  s->store.largest = FUZZ_LARGEST;
  s->store.is_strict = true;
  s->store.failing = s->store.calls + fuzz_take(b) % 32;
  s->number = ++w->numbers;
  const tide_status status = tide_cpu_new(o, &s->cache);
  FUZZ_REQUIRE((status == TIDE_OK) == (s->cache != NULL));
  FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_NO_MEMORY && w->taken.calls > w->taken.last));
}

static size_t fuzz_count_of(const fuzz_world* w, const fuzz_side* s) {
  size_t count = 0;
  for (size_t i = 0; i < w->count; i++) count += w->blocks[i].cache == s->number;
  return count;
}

static void fuzz_close(fuzz_world* w, fuzz_side* s) {
  uint64_t orphans = 0;
  tide_cpu_free(s->cache, &orphans);
  FUZZ_REQUIRE(orphans == fuzz_count_of(w, s));
  s->cache = NULL;
}

static void fuzz_check(fuzz_world* w, const fuzz_side* s) {
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  int64_t usable = 0;
  for (size_t i = 0; i < w->count; i++)
    usable += w->blocks[i].cache == s->number ? (int64_t)w->blocks[i].usable : 0;
  FUZZ_REQUIRE(tide_cpu_get_stats(s->cache, &stats) == TIDE_OK);
  FUZZ_REQUIRE(stats.active.current == (int64_t)fuzz_count_of(w, s) && stats.active_bytes.current == usable);
  FUZZ_REQUIRE(stats.active.allocated - stats.active.freed == stats.active.current);
  FUZZ_REQUIRE(stats.reserved_bytes.current >= usable);
  FUZZ_REQUIRE(stats.cached_bytes <= (uint64_t)(stats.reserved_bytes.current - usable));
  FUZZ_REQUIRE(tide_cpu_check(s->cache) == 0);
}

static void fuzz_check_all(fuzz_world* w) {
  for (size_t i = 0; i < w->side_count; i++) {
    if (w->sides[i].cache != NULL) fuzz_check(w, &w->sides[i]);
  }
}

static void fuzz_do_rare(fuzz_bytes* bytes, fuzz_world* w, fuzz_side* s, uint8_t b, uint8_t c) {
  switch (b % 8) {
    case 0:
    case 1: FUZZ_REQUIRE(tide_cpu_trim(s->cache, (uint64_t)c << 14) == TIDE_OK); break;
    case 2: FUZZ_REQUIRE(tide_cpu_poll(s->cache) == TIDE_OK); break;
    case 3:
      s->options.max_bytes = b & 128 ? TIDE_NO_LIMIT : (uint64_t)c << 17;
      FUZZ_REQUIRE(tide_cpu_set_limits(s->cache, (uint64_t)c << 16, s->options.max_bytes) == TIDE_OK);
      break;
    case 4:
    case 5:
      fuzz_close(w, s);
      fuzz_open(bytes, w, s);
      break;
    case 6:
      fuzz_release_foreign(s, b, c);
      s->store.failing = s->store.calls + 1 + c % 4;
      break;
    default: {
      tide_cpu_reset_peaks(s->cache);
      for (size_t i = 0; i < w->count; i++) fuzz_stamp(&w->blocks[i], false);
    }
  }
}

static void fuzz_step(fuzz_bytes* bytes, fuzz_world* w) {
  const uint8_t a = fuzz_take(bytes);
  const uint8_t b = fuzz_take(bytes);
  const uint8_t c = fuzz_take(bytes);
  const unsigned kind = a % 16;
  fuzz_side* const s = &w->sides[(a >> 4) % w->side_count];
  if (kind >= 6 && kind < 11 && w->count > 0) fuzz_release(w, b % w->count, c);
  if (kind == 11 || kind == 12) fuzz_release_wrong(w, b, c);
  if (s->cache == NULL) return;
  if (kind < 6) fuzz_alloc(w, s, (uint8_t)kind, b, c);
  if (kind == 13 && w->count > 0) fuzz_resize(w, s, b % w->count, fuzz_bytes_of(c, b));
  if (kind == 14) fuzz_do_rare(bytes, w, s, b, c);
  if (kind == 15 && w->count > 0) {
    const fuzz_block* const block = &w->blocks[b % w->count];
    fuzz_check_found(w, block, ((size_t)c << 12 | b) % block->usable);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz_bytes b = { data, bytes };
  fuzz_world* const w = calloc(1, sizeof *w);
  FUZZ_REQUIRE(w != NULL);
  const uint8_t head = fuzz_take(&b);
  w->side_count = 1 + (size_t)head % 3;
  w->threads_left = 1;
  w->heap = (tide_heap){ fuzz_heap_alloc, fuzz_heap_release, &w->taken };
  w->taken.last = head & 128 ? fuzz_take(&b) : 0;
  for (size_t i = 0; i < w->side_count; i++) fuzz_open(&b, w, &w->sides[i]);
  for (size_t i = 0; i < FUZZ_STEPS && b.left > 0; i++) {
    fuzz_step(&b, w);
    if (i % FUZZ_STEPS_A_CHECK == 0 || b.left == 0) fuzz_check_all(w);
  }
  if (head & 64) {
    while (w->count > 0) fuzz_release(w, w->count - 1, 2);
  }
  for (size_t i = 0; i < w->side_count; i++) fuzz_close(w, &w->sides[i]);
  while (w->count > 0) fuzz_release(w, 0, 2);
  for (size_t i = 0; i < w->side_count; i++) FUZZ_REQUIRE(w->sides[i].store.count == 0);
  FUZZ_REQUIRE(w->taken.blocks == 0);
  free(w);
  return 0;
}
