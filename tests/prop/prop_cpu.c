// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Model test of the CPU cache: random calls beside a simple model, the list of blocks that are handed out.
// Every block is filled when it is allocated, and compared at random times and when it is released. It must
// overlap no other block, be aligned, and be found by tide_cpu_find(). Up to three caches are open at a time,
// on the system or on a source that fails now and then; they may be freed with orphans. tide_cpu_check() runs
// after every operation, and statistics are compared with the model.
#define T_THREADS
#include "cpu/blocks.h"
#include "prop/oplist.h"

#define PROP_SLOTS 64u
#define PROP_CACHES 3u
#define PROP_STALE 32u
#define PROP_OPS 1200u
#define PROP_LISTS (T_HAS_THREAD_SANITIZER ? 4 : T_HAS_ADDRESS_SANITIZER ? 8 : 16)

// ---------------------------------------------------------------------------------------------------
// The model

typedef struct item {
  bool is_used;
  uint8_t* address;
  size_t bytes;     // asked for
  uint64_t usable;  // what the cache says
  uint64_t seed;
  uint32_t cache;  // the number of its cache, which no other has; see room
} item;

// A cache, and what the model knows of it.
typedef struct room {
  tide_cpu_cache* cache;  // NULL: there is none
  uint32_t number;
  tide_fill fill;
  source* source;  // NULL: pages of the system
  bool is_limited;
  uint64_t max_cached_bytes;
  uint64_t max_bytes;
  uint64_t max_block_bytes;
  uint64_t idle_ns;
  int64_t live;
  int64_t live_bytes;
  int64_t peak;  // of both, since the last reset
  int64_t peak_bytes;
  int64_t allocated;
  int64_t freed;
  uint64_t double_releases;
  uint64_t failures;
  uint64_t foreign;
  bool frees_foreign;
  bool has_other_threads;  // some calls were made by others
} room;

typedef struct model {
  room rooms[PROP_CACHES];
  item items[PROP_SLOTS];
  uint8_t* stale[PROP_STALE];  // addresses of blocks that were released
  size_t stale_next;
  source sources[PROP_CACHES];
  counting_heap heap;
  uint32_t numbers;     // of caches so far
  uint32_t fault_room;  // whose source fails for the next calls
  uint32_t fault_calls;
  bool is_heap_faulty;
} model;

static model prop_model;

static room* room_of(model* s, const item* it) {
  for (size_t i = 0; i < PROP_CACHES; i++) {
    if (s->rooms[i].cache != NULL && s->rooms[i].number == it->cache) return &s->rooms[i];
  }
  return NULL;  // it is an orphan
}

static room* room_at(model* s, uint8_t index) {
  room* const r = &s->rooms[index % PROP_CACHES];
  return r->cache != NULL ? r : NULL;
}

static void room_rise(room* r, int64_t bytes) {
  r->live++;
  r->live_bytes += bytes;
  r->allocated++;
  if (r->live > r->peak) r->peak = r->live;
  if (r->live_bytes > r->peak_bytes) r->peak_bytes = r->live_bytes;
}

// Resizing in place does not count as an allocation.
static void room_resize(room* r, int64_t before, int64_t after) {
  r->live_bytes += after - before;
  if (r->live_bytes > r->peak_bytes) r->peak_bytes = r->live_bytes;
}

static void room_fall(room* r, int64_t bytes) {
  r->live--;
  r->live_bytes -= bytes;
  r->freed++;
}

// ---------------------------------------------------------------------------------------------------
// Blocks

static void item_expect_apart(const model* s, const item* it) {
  for (size_t i = 0; i < PROP_SLOTS; i++) {
    const item* const other = &s->items[i];
    if (!other->is_used || other == it) continue;
    if (it->address + it->usable <= other->address || other->address + other->usable <= it->address) continue;
    T_FAIL("the block of %zu bytes at %p lies in that of %zu bytes at %p", it->bytes, (void*)it->address,
           other->bytes, (void*)other->address);
  }
}

static void item_expect_found(model* s, const item* it, size_t offset) {
  const room* const r = room_of(s, it);
  const tide_cpu_info info = tide_cpu_find(it->address + offset);
  T_CHECK(info.is_live);
  T_CHECK(info.is_ours);
  T_PTR_EQ(info.address, it->address);
  T_EQ(info.bytes, it->usable);
  T_PTR_EQ(info.cache, r != NULL ? r->cache : NULL);
}

static void expect_filled(tide_fill fill, const uint8_t* memory, size_t bytes) {
  if (fill == TIDE_FILL_ZEROS) expect_zeros(memory, bytes);
  if (fill == TIDE_FILL_JUNK) expect_junk(memory, bytes);
}

// Checks a new block and adds it to the model.
static void item_begin(model* s, room* r, size_t slot, void* address, size_t bytes, size_t alignment) {
  item* const it = &s->items[slot];
  *it = (item){ true, address, bytes, tide_cpu_find(address).bytes, 0, r->number };
  it->seed = (uint64_t)r->allocated << 32 | slot;
  T_CHECK(address != NULL);
  T_EQ((uintptr_t)address % 64, 0);
  T_EQ((uintptr_t)address % alignment, 0);
  T_LE(bytes, it->usable);
  if (alignment <= 64 && bytes > TIDE_CPU_SMALL_BYTES) T_EQ(it->usable, (bytes + 4095) / 4096 * 4096);
  if (alignment <= 64 && bytes <= KIB) T_EQ(it->usable, (bytes + 63) / 64 * 64);
  item_expect_apart(s, it);
  item_expect_found(s, it, 0);
  item_expect_found(s, it, bytes - 1);
  if (r->source != NULL) T_CHECK(source_has(r->source, address, it->usable));
  pattern_write(it->address, it->seed, bytes);
  room_rise(r, (int64_t)it->usable);
}

static void item_note_end(model* s, const item* it) {
  room* const r = room_of(s, it);
  if (r != NULL) room_fall(r, (int64_t)it->usable);
  s->stale[s->stale_next++ % PROP_STALE] = it->address;
}

static void item_end(model* s, item* it) {
  item_note_end(s, it);
  it->is_used = false;
}

static bool is_handed_out(const model* s, const uint8_t* address) {
  for (size_t i = 0; i < PROP_SLOTS; i++) {
    if (s->items[i].is_used && s->items[i].address == address) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Faults: for the next few calls, one call of a source or of the heap fails

static bool fault_is_on(const model* s) { return s->fault_calls > 0; }

static void fault_end(model* s) {
  if (s->fault_calls == 0 || --s->fault_calls > 0) return;
  for (size_t i = 0; i < PROP_CACHES; i++) source_mend(&s->sources[i]);
  atomic_store(&s->heap.fail_at, SIZE_MAX);
  s->heap.is_exhausted = false;
}

static void do_fault(model* s, const op* o) {
  if (fault_is_on(s)) return;
  s->fault_calls = 1 + o->value % 8;
  s->heap.is_exhausted = o->number % 2 == 0;
  if (o->other % 2 == 0) atomic_store(&s->heap.fail_at, atomic_load(&s->heap.allocs) + o->slot % 4);
  else source_fail(&s->sources[o->slot % PROP_CACHES], o->value % 4, o->number % 2 == 0);
}

// Checks that a request may fail: because of a fault, or because little of max_bytes is left.
static void expect_excuse(model* s, room* r, size_t bytes, tide_status status) {
  T_STATUS(status, TIDE_ERR_NO_MEMORY);
  r->failures++;
  if (fault_is_on(s)) return;
  const tide_cpu_stats stats = cache_stats(r->cache);
  const uint64_t needed = 2 * (uint64_t)bytes + 16 * MIB;
  if (r->max_bytes == TIDE_NO_LIMIT || needed + (uint64_t)stats.reserved_bytes.current <= r->max_bytes)
    T_FAIL("%zu bytes were refused with memory in plenty: %s", bytes, tide_last_error()->text);
}

// ---------------------------------------------------------------------------------------------------
// Requests

// Each power of two up to 2 MiB is equally likely; one in 32 is larger; some are odd.
static size_t op_bytes(const op* o) {
  if (o->value % 32 == 31) return 2 * MIB + o->number % (24 * MIB);
  const size_t power = (size_t)1 << (o->number >> 8) % 22;
  switch (o->value % 4) {
    case 0: return power;
    case 1: return power - 1 + (o->number & 3);
    default: return power + (o->number >> 8) / 22 % power;
  }
}

static void take(model* s, const op* o, size_t alignment, bool wants_zeros) {
  const size_t slot = o->slot % PROP_SLOTS;
  room* const r = room_at(s, o->other);
  const size_t bytes = op_bytes(o);
  void* address = &address;
  if (r == NULL || s->items[slot].is_used) return;
  const tide_memory memory = tide_cpu_memory(r->cache);
  tide_status status = TIDE_OK;
  if (wants_zeros) status = tide_cpu_alloc_zeros(r->cache, bytes, &address);
  else if (alignment > 0 && o->value % 2 == 0 && bytes > 0)
    status = memory.alloc(&memory, bytes, alignment, &address);
  else if (alignment > 0) status = tide_cpu_alloc_aligned(r->cache, bytes, alignment, &address);
  else status = tide_cpu_alloc(r->cache, bytes, &address);
  if (status != TIDE_OK) {
    T_PTR_EQ(address, NULL);
    expect_excuse(s, r, bytes + alignment, status);
    return;
  }
  if (bytes == 0) {
    T_PTR_EQ(address, NULL);
    return;
  }
  expect_filled(wants_zeros ? TIDE_FILL_ZEROS : r->fill, address, bytes);
  item_begin(s, r, slot, address, bytes, alignment > 0 ? alignment : 1);
}

static void do_alloc(model* s, const op* o) { take(s, o, 0, false); }
static void do_alloc_zeros(model* s, const op* o) { take(s, o, 0, true); }
static void do_alloc_aligned(model* s, const op* o) { take(s, o, (size_t)1 << o->number % 23, false); }

static void do_alloc_nothing(model* s, const op* o) {
  const room* const r = room_at(s, o->other);
  void* address = &address;
  if (r == NULL) return;
  T_OK(tide_cpu_alloc(r->cache, 0, &address));
  T_PTR_EQ(address, NULL);
  T_OK(tide_cpu_release(NULL));
  T_STATUS(tide_cpu_alloc(r->cache, SIZE_MAX - o->number, &address), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(address, NULL);
}

// ---------------------------------------------------------------------------------------------------
// Giving back

static void release_block(void* address) { T_OK(tide_cpu_release(address)); }

static void give(model* s, const op* o, tide_status (*release)(void* address)) {
  item* const it = &s->items[o->slot % PROP_SLOTS];
  if (!it->is_used) return;
  pattern_expect(it->address, it->seed, it->bytes);
  T_OK(release(it->address));
  item_end(s, it);
}

static void do_release(model* s, const op* o) { give(s, o, tide_cpu_release); }
static void do_forget(model* s, const op* o) { give(s, o, tide_cpu_forget); }

static void do_release_elsewhere(model* s, const op* o) {
  item* const it = &s->items[o->slot % PROP_SLOTS];
  if (!it->is_used) return;
  room* const r = room_of(s, it);
  if (r != NULL) r->has_other_threads = true;
  on_other_thread(release_block, it->address);
  item_end(s, it);
}

// Through any cache, whether it frees foreign memory or not.
static void do_release_any(model* s, const op* o) {
  item* const it = &s->items[o->slot % PROP_SLOTS];
  room* const r = room_at(s, o->other);
  if (!it->is_used || r == NULL) return;
  pattern_expect(it->address, it->seed, it->bytes);
  T_OK(tide_cpu_release_any(r->cache, it->address));
  item_end(s, it);
}

typedef struct order {
  tide_cpu_cache* cache;
  size_t bytes;
  void* address;
  tide_status status;
} order;

static void order_fill(void* user) {
  order* const o = user;
  o->status = tide_cpu_alloc(o->cache, o->bytes, &o->address);
}

static void do_alloc_elsewhere(model* s, const op* o) {
  const size_t slot = o->slot % PROP_SLOTS;
  room* const r = room_at(s, o->other);
  if (r == NULL || s->items[slot].is_used) return;
  order wanted = { r->cache, 1 + op_bytes(o), NULL, TIDE_OK };
  r->has_other_threads = true;
  on_other_thread(order_fill, &wanted);
  if (wanted.status == TIDE_OK) item_begin(s, r, slot, wanted.address, wanted.bytes, 1);
  else expect_excuse(s, r, wanted.bytes, wanted.status);
}

static void do_resize(model* s, const op* o) {
  item* const it = &s->items[o->slot % PROP_SLOTS];
  room* const to = room_at(s, o->other);
  const size_t bytes = 1 + op_bytes(o);
  void* address = &address;
  if (!it->is_used || to == NULL) return;
  const item before = *it;
  pattern_expect(it->address, it->seed, it->bytes);
  pattern_write(it->address, it->seed, it->usable);
  const tide_status status = tide_cpu_resize(to->cache, it->address, bytes, &address);
  if (status != TIDE_OK) {
    T_PTR_EQ(address, NULL);
    pattern_expect(it->address, it->seed, it->usable);
    pattern_write(it->address, it->seed, it->bytes);
    expect_excuse(s, to, bytes, status);
    item_expect_found(s, it, 0);
    return;
  }
  const size_t common = (bytes < it->usable ? bytes : it->usable) / 8 * 8;
  pattern_range(address, it->seed, 0, common < PATTERN_SPAN ? common : PATTERN_SPAN, false);
  if (address != before.address) {
    it->is_used = false;  // it may lie where it lay
    item_begin(s, to, (size_t)(it - s->items), address, bytes, 1);
    item_note_end(s, &before);
    return;
  }
  it->bytes = bytes;
  it->usable = tide_cpu_find(address).bytes;
  T_LE(bytes, it->usable);
  item_expect_apart(s, it);
  item_expect_found(s, it, bytes - 1);
  pattern_write(it->address, it->seed, bytes);
  room* const r = room_of(s, it);
  if (r != NULL) room_resize(r, (int64_t)before.usable, (int64_t)it->usable);
}

// ---------------------------------------------------------------------------------------------------
// Wrong addresses

// A second release is refused, even if the memory was reused or given back.
static void do_release_twice(model* s, const op* o) {
  uint8_t* const address = s->stale[o->slot % PROP_STALE];
  if (address == NULL || is_handed_out(s, address)) return;
  const tide_cpu_cache* const owner = tide_cpu_find(address).cache;
  const tide_status status = o->value % 2 == 0 ? tide_cpu_release(address) : tide_cpu_forget(address);
  T_CHECK(status == TIDE_ERR_STATE || status == TIDE_ERR_ARGUMENT);
  for (size_t i = 0; i < PROP_CACHES && status == TIDE_ERR_STATE; i++) {
    room* const r = &s->rooms[i];
    if (r->cache != NULL && r->cache == owner) r->double_releases++;
  }
}

// Immediately after the first release, the error says so.
static void do_release_and_again(model* s, const op* o) {
  item* const it = &s->items[o->slot % PROP_SLOTS];
  if (!it->is_used) return;
  room* const r = room_of(s, it);
  pattern_expect(it->address, it->seed, it->bytes);
  T_OK(tide_cpu_release(it->address));
  item_end(s, it);
  const tide_status status = tide_cpu_release(it->address);
  const bool is_kept = r != NULL && r->max_cached_bytes == TIDE_NO_LIMIT && it->bytes <= r->max_block_bytes;
  if (is_kept && r->source == NULL) T_STATUS(status, TIDE_ERR_STATE);
  T_CHECK(status == TIDE_ERR_STATE || status == TIDE_ERR_ARGUMENT);
  if (status == TIDE_ERR_STATE && r != NULL) r->double_releases++;
}

static void do_release_inside(model* s, const op* o) {
  const item* const it = &s->items[o->slot % PROP_SLOTS];
  if (!it->is_used) return;
  const size_t offset = 1 + o->number % it->usable;
  uint8_t* const address = it->address + offset;
  void* moved = &moved;
  if (is_handed_out(s, address) || offset == it->usable) return;
  T_STATUS(tide_cpu_release(address), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_cpu_forget(address), TIDE_ERR_ARGUMENT);
  const room* const r = room_at(s, o->other);
  if (r == NULL) return;
  T_STATUS(tide_cpu_resize(r->cache, address, 100, &moved), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(moved, NULL);
}

// Memory of the C library is freed unless the cache has another source, which would refuse it.
static void release_foreign_any(room* r, size_t bytes) {
  if (r->frees_foreign && r->source != NULL) return;
  uint8_t* const theirs = malloc(bytes);
  T_CHECK(theirs != NULL);
  memset(theirs, 5, bytes);
  if (r->frees_foreign) {
    T_OK(tide_cpu_release_any(r->cache, theirs));
    r->foreign++;
    return;
  }
  T_STATUS(tide_cpu_release_any(r->cache, theirs), TIDE_ERR_ARGUMENT);
  T_FILLED(theirs, 5, bytes);
  free(theirs);
}

static void do_release_foreign(model* s, const op* o) {
  uint64_t own[2] = { o->number, o->number };
  room* const r = room_at(s, o->other);
  if (r != NULL) release_foreign_any(r, 1 + o->number % 200000);
  T_STATUS(tide_cpu_release(own), TIDE_ERR_ARGUMENT);
  T_EQ(own[0] + own[1], 2 * (uint64_t)o->number);
}

// ---------------------------------------------------------------------------------------------------
// Looking

static void do_find(model* s, const op* o) {
  const item* const it = &s->items[o->slot % PROP_SLOTS];
  if (it->is_used) item_expect_found(s, it, o->number % it->usable);
  const uint8_t* const stale = s->stale[o->other % PROP_STALE];
  if (stale == NULL) return;
  const tide_cpu_info info = tide_cpu_find(stale);
  T_CHECK(!info.is_live || is_handed_out(s, info.address));
}

static void do_verify(model* s, const op* o) {
  for (size_t i = o->slot % 4; i < PROP_SLOTS; i += 4) {
    const item* const it = &s->items[i];
    if (it->is_used) pattern_expect(it->address, it->seed, it->bytes);
  }
}

static void room_expect_stats(const room* r) {
  const tide_cpu_stats stats = cache_stats(r->cache);
  T_EQ(stats.active.current, r->live);
  T_EQ(stats.active_bytes.current, r->live_bytes);
  T_EQ(stats.active.allocated, r->allocated);
  T_EQ(stats.active.freed, r->freed);
  T_LE(stats.cached_bytes, stats.reserved_bytes.current - stats.active_bytes.current);
  T_EQ(stats.num_double_releases, r->double_releases);
  T_EQ(stats.num_ooms, r->failures);
  T_EQ(stats.num_foreign, r->foreign);
  T_LE(stats.reserved_bytes.current, stats.address_bytes);
  if (r->max_bytes != TIDE_NO_LIMIT && !r->is_limited) T_LE(stats.reserved_bytes.current, r->max_bytes);
  const uint64_t cap = r->max_cached_bytes;
  if (cap != TIDE_NO_LIMIT) T_LE(stats.cached_bytes, cap + (r->has_other_threads ? cap / 16 : 0));
  T_LE(stats.active.current, stats.active.peak);
  T_LE(stats.active_bytes.current, stats.active_bytes.peak);
  if (r->has_other_threads) return;
  T_LE(stats.active.peak, r->peak);  // it may be short, but not too high
  T_LE(stats.active_bytes.peak, r->peak_bytes);
}

static void do_stats(model* s, const op* o) {
  const room* const r = room_at(s, o->other);
  if (r != NULL) room_expect_stats(r);
}

static void do_reset(model* s, const op* o) {
  room* const r = room_at(s, o->other);
  if (r == NULL) return;
  if (o->value % 2 == 0) {
    tide_cpu_reset_accumulated(r->cache);
    r->allocated = r->freed = 0;
    r->double_releases = r->failures = r->foreign = 0;
  }
  tide_cpu_reset_peaks(r->cache);
  r->peak = r->live;
  r->peak_bytes = r->live_bytes;
}

// ---------------------------------------------------------------------------------------------------
// Upkeep

static void do_trim(model* s, const op* o) {
  room* const r = room_at(s, o->other);
  if (r == NULL) return;
  const uint64_t bytes = o->value % 4 == 0 ? 0 : o->number % (4 * MIB);
  T_OK(tide_cpu_trim(r->cache, bytes));
  if (r->live == 0) T_LE(cache_stats(r->cache).cached_bytes, bytes);
}

static void do_poll(model* s, const op* o) {
  const room* const r = room_at(s, o->other);
  if (r != NULL) T_OK(tide_cpu_poll(r->cache));
}

static void do_pause(model* s, const op* o) {
  (void)s;
  t_sleep_us(o->number % 1500);
}

static uint64_t op_limit(uint32_t number, unsigned shift) {
  return (number >> shift) % 4 != 0 ? TIDE_NO_LIMIT : (4 + (number >> shift) / 4 % 64) * MIB;
}

static void do_limits(model* s, const op* o) {
  room* const r = room_at(s, o->other);
  if (r == NULL) return;
  r->max_cached_bytes = op_limit(o->number, 0);
  r->max_bytes = op_limit(o->number, 12);
  T_OK(tide_cpu_set_limits(r->cache, r->max_cached_bytes, r->max_bytes));
  r->is_limited = r->max_bytes != TIDE_NO_LIMIT;  // what is live may be above
}

// ---------------------------------------------------------------------------------------------------
// Caches

static void do_new(model* s, const op* o) {
  room* const r = &s->rooms[o->other % PROP_CACHES];
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  tide_cpu_cache* cache = NULL;
  if (r->cache != NULL) return;
  options.fill = (tide_fill)(o->value % 8 < 2 ? o->value % 8 + 1 : 0);
  options.huge_pages = o->value % 2 == 0;
  options.has_helper = o->value % 16 == 15;
  options.idle_ns = o->value % 4 == 1 ? 300000 : options.idle_ns;
  options.region_bytes = o->slot % 4 == 0 ? (1 + o->slot / 4u % 8u) * 2 * MIB : 0;
  options.max_cached_bytes = op_limit(o->number, 0);
  options.max_bytes = op_limit(o->number, 12);
  if (o->value % 3 == 0) options.max_block_bytes = MIB;
  const bool has_source = o->slot % 8 < 3;
  if (has_source) options.memory = s->sources[r - s->rooms].memory;
  options.frees_foreign = o->number % 3 == 0;
  options.heap = &s->heap.heap;
  const tide_status status = tide_cpu_new(&options, &cache);
  if (status != TIDE_OK) {
    T_CHECK(fault_is_on(s));
    T_STATUS(status, TIDE_ERR_NO_MEMORY);
    return;
  }
  *r = (room){ .cache = cache, .number = ++s->numbers, .fill = options.fill, .idle_ns = options.idle_ns };
  r->source = has_source ? &s->sources[r - s->rooms] : NULL;
  r->frees_foreign = options.frees_foreign;
  r->max_cached_bytes = options.max_cached_bytes;
  r->max_bytes = options.max_bytes;
  r->max_block_bytes = options.max_block_bytes;
}

static void do_free(model* s, const op* o) {
  room* const r = room_at(s, o->other);
  uint64_t orphans = 0;
  if (r == NULL || o->value % 4 != 0) return;
  room_expect_stats(r);
  tide_cpu_free(r->cache, &orphans);
  T_EQ(orphans, r->live);
  r->cache = NULL;
}

// ---------------------------------------------------------------------------------------------------
// Lists of operations

// Name, function, how often.
// clang-format off
#define VERB_MAP(X)                                                                                     \
  X(ALLOC, do_alloc, 40) X(ALLOC_ZEROS, do_alloc_zeros, 6) X(ALLOC_ALIGNED, do_alloc_aligned, 6)        \
  X(ALLOC_NOTHING, do_alloc_nothing, 1) X(ALLOC_ELSEWHERE, do_alloc_elsewhere, 1)                       \
  X(RELEASE, do_release, 36) X(FORGET, do_forget, 4) X(RELEASE_ELSEWHERE, do_release_elsewhere, 1)      \
  X(RESIZE, do_resize, 10) X(RELEASE_TWICE, do_release_twice, 4)                                        \
  X(RELEASE_AND_AGAIN, do_release_and_again, 4) X(RELEASE_INSIDE, do_release_inside, 3)                 \
  X(RELEASE_ANY, do_release_any, 3) X(RELEASE_FOREIGN, do_release_foreign, 1)                           \
  X(FIND, do_find, 4) X(VERIFY, do_verify, 3)                                                           \
  X(STATS, do_stats, 4) X(RESET, do_reset, 1) X(TRIM, do_trim, 3)                                       \
  X(POLL, do_poll, 2) X(PAUSE, do_pause, 1) X(LIMITS, do_limits, 1) X(NEW, do_new, 6)                   \
  X(FREE, do_free, 3) X(FAULT, do_fault, 2)
// clang-format on

static const op_verb verbs[] = { VERB_MAP(OP_VERB) };
static void (*const functions[])(model* s, const op* o) = { VERB_MAP(OP_FUNCTION) };

static void model_check(const model* s) {
  for (size_t i = 0; i < PROP_CACHES; i++) {
    const room* const r = &s->rooms[i];
    if (r->cache == NULL) continue;
    // A thread of the cache's own is a call that is under way.
    cache_expect_sound(r->cache);
  }
}

// Everything is given back, in an order of chance, and nothing is left.
static void model_end(model* s, uint64_t seed) {
  t_rng rng = { seed };
  source_mend(&s->sources[0]);
  s->fault_calls = s->fault_calls > 0 ? 1 : 0;
  fault_end(s);
  for (size_t i = 0; i < PROP_CACHES; i++) {
    const op o = { 0, 0, (uint8_t)i, 0, 0 };
    if (t_rng_below(&rng, 2) == 0) do_free(s, &o);
  }
  for (size_t i = 0; i < PROP_SLOTS; i++) {
    const op o = { 0, (uint8_t)i, 0, 0, 0 };
    do_release(s, &o);
  }
  for (size_t i = 0; i < PROP_CACHES; i++) {
    room* const r = &s->rooms[i];
    if (r->cache == NULL) continue;
    room_expect_stats(r);
    T_EQ(r->live, 0);
    T_OK(tide_cpu_trim(r->cache, 0));
    T_EQ(cache_stats(r->cache).reserved_bytes.current, 0);
    cache_close(r->cache);
    r->cache = NULL;
  }
  for (size_t i = 0; i < PROP_CACHES; i++) source_fini(&s->sources[i]);
  T_EQ(atomic_load(&s->heap.outstanding), 0);
}

static bool play(const op* list, size_t count, size_t check_every) {
  model* const s = &prop_model;
  memset(s, 0, sizeof *s);
  counting_heap_init(&s->heap, SIZE_MAX, false);
  for (size_t i = 0; i < PROP_CACHES; i++) {
    source_init(&s->sources[i]);
    s->sources[i].spares_release = true;
  }
  for (size_t i = 0; i < count; i++) {
    outcome->at = i;
    functions[list[i].verb](s, &list[i]);
    if (functions[list[i].verb] != do_fault) fault_end(s);
    if (i % check_every == 0) model_check(s);
  }
  model_end(s, count);
  return true;
}

static const op_suite suite = { "the cache", verbs, sizeof verbs / sizeof *verbs, play, PROP_OPS, 1, 1 };

T_TEST(prop_cpu__random_calls_beside_a_model) {
  suite_run(&suite, t_scaled_alone(PROP_LISTS) * PROP_OPS, true);
}
