// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Where pinned memory comes from: the reserve, the machine, or pages of our own that are touched by several
// threads and then registered. A piece remembers where it came from, so that it goes back the same way. How
// long the calls of the machine take is counted. No lock is held here.
#include "base/sys.h"
#include "pinned/pinned_cache.h"

// ---------------------------------------------------------------------------------------------------
// Pages of our own

// The share of one thread in touching a range.
typedef struct touch_share {
  pthread_t thread;
  uint64_t begin;
  uint64_t end;
  uint64_t page_bytes;
} touch_share;

enum { TOUCH_THREADS = 128 };

static void* touch_pages(void* argument) {
  const touch_share* const share = argument;
  for (uint64_t at = share->begin; at < share->end; at += share->page_bytes) {
    *(volatile char*)tide__pointer(at) = 0;
  }
  return NULL;
}

// How many threads touch `pages` pages: no more than there are processors or pages.
static uint32_t touch_threads(const tide_pinned_cache* pinned, uint64_t pages) {
  return (uint32_t)tide__min(tide__min(pinned->options.register_threads, tide__sys_processors()), pages);
}

// A share for which no thread could be started is done by the caller.
static void touch_all(const tide_pinned_cache* pinned, uint64_t address, uint64_t bytes) {
  const uint64_t pages = bytes / pinned->page_bytes;
  const uint32_t count = touch_threads(pinned, pages);
  touch_share shares[TOUCH_THREADS];
  bool is_started[TOUCH_THREADS];
  for (uint32_t i = 0; i < count; i++) {
    const uint64_t whole = pages / count;
    const uint64_t extra = pages % count;
    const uint64_t first = whole * i + tide__min(i, extra);
    const uint64_t mine = whole + (i < extra ? 1 : 0);
    shares[i].begin = address + first * pinned->page_bytes;
    shares[i].end = shares[i].begin + mine * pinned->page_bytes;
    shares[i].page_bytes = pinned->page_bytes;
    is_started[i] = i != 0 && tide__sys_thread_start(&shares[i].thread, touch_pages, &shares[i]) == 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (!is_started[i]) (void)touch_pages(&shares[i]);
  }
  for (uint32_t i = 0; i < count; i++) {
    if (is_started[i]) (void)pthread_join(shares[i].thread, NULL);
  }
}

// Maps whole pages; the dry machine gets addresses without memory.
static tide_status pages_map(const tide_pinned_cache* pinned, uint64_t bytes, uint64_t* out) {
  const bool is_huge = bytes >= TIDE__PIN_HUGE_BYTES;
  const uint64_t alignment = is_huge ? TIDE__PIN_HUGE_BYTES : pinned->page_bytes;
  const int error = pinned->is_dry ? tide__sys_reserve(bytes, alignment, 0, out)
                                   : tide__sys_map_sparse(bytes, alignment, out);
  if (error != 0) {
    return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error, "pinned: no mapping of %llu bytes",
                            (unsigned long long)bytes);
  }
  if (is_huge && !pinned->is_dry) tide__sys_ask_huge_pages(*out, bytes);
  if (!pinned->is_dry) touch_all(pinned, *out, bytes);
  return TIDE_OK;
}

static uint64_t pages_bytes(const tide_pinned_cache* pinned, uint64_t bytes) {
  return (bytes + pinned->page_bytes - 1) & ~(pinned->page_bytes - 1);
}

static tide_status pages_take(tide_pinned_cache* pinned, uint64_t bytes, uint64_t* out) {
  const uint64_t whole = pages_bytes(pinned, bytes);
  TIDE_TRY(pages_map(pinned, whole, out));
  const tide_status status = tide_machine_pinned_register(pinned->machine, tide__pointer(*out), whole);
  if (status != TIDE_OK) (void)tide__sys_release(*out, whole);
  return status;
}

static tide_status pages_give(tide_pinned_cache* pinned, const tide__pin_memory* memory) {
  TIDE_TRY(tide_machine_pinned_unregister(pinned->machine, tide__pointer(memory->address)));
  (void)tide__sys_release(memory->address, pages_bytes(pinned, memory->bytes));
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Nodes of a computer with several

// The node on which new memory is wanted; -1: any.
static int node_wanted(tide_pinned_cache* pinned) {
  if (pinned->options.numa == TIDE_NUMA_CALLER) return tide__sys_node();
  return pinned->options.numa == TIDE_NUMA_DEVICE ? pinned->device_node : -1;
}

// ---------------------------------------------------------------------------------------------------
// The machine

static tide_status source_take(tide_pinned_cache* pinned, tide__pin_pool* pool, uint64_t bytes,
                               tide__pin_memory* out) {
  void* address = NULL;
  const bool is_own = pinned->options.uses_register;
  const tide__relaxed relaxed = tide__relax_or_not(pinned->machine);
  const int node = node_wanted(pinned);
  if (node >= 0) tide__sys_prefer_node(node);
  const uint64_t begin_ns = tide__pin_now(pinned);
  uint64_t pages = 0;
  const tide_status status = is_own ? pages_take(pinned, bytes, &pages)
                                    : tide_machine_pinned_alloc(pinned->machine, bytes, &address);
  const uint64_t ns = tide__pin_now(pinned) - begin_ns;
  if (node >= 0) tide__sys_prefer_node(-1);
  tide__relax_end(&relaxed);
  TIDE_TRY(status);
  tide__pin_totals_call(pinned, pool, true, ns);
  *out = (tide__pin_memory){ is_own ? pages : tide__address(address), bytes,
                             is_own ? TIDE__PIN_FROM_PAGES : TIDE__PIN_FROM_MACHINE };
  return TIDE_OK;
}

static tide_status source_give(tide_pinned_cache* pinned, tide__pin_pool* pool,
                               const tide__pin_memory* memory) {
  const tide__relaxed relaxed = tide__relax_or_not(pinned->machine);
  const uint64_t begin_ns = tide__pin_now(pinned);
  const tide_status status =
      memory->source == TIDE__PIN_FROM_PAGES
          ? pages_give(pinned, memory)
          : tide_machine_pinned_release(pinned->machine, tide__pointer(memory->address));
  const uint64_t ns = tide__pin_now(pinned) - begin_ns;
  tide__relax_end(&relaxed);
  if (status == TIDE_OK) tide__pin_totals_call(pinned, pool, false, ns);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// The reserve

// May the calling thread make the reserve? One does; others that come meanwhile do without it.
static bool reserve_claim(tide_pinned_cache* pinned) {
  tide__mutex_lock(&pinned->chunks_lock);
  const bool is_mine = !pinned->has_reserve && !pinned->is_reserve_made;
  if (is_mine) pinned->is_reserve_made = true;
  tide__mutex_unlock(&pinned->chunks_lock);
  return is_mine;
}

// A reserve that cannot be had is tried again with the next segment. Its record is made first: so nothing
// can fail when the memory is pinned.
static void reserve_make(tide_pinned_cache* pinned, tide__pin_pool* pool) {
  tide__pin_memory memory;
  if (!reserve_claim(pinned)) return;
  tide_error before;
  tide__error_keep(&before);
  const uint64_t bytes = pages_bytes(pinned, pinned->options.reserve_bytes);
  tide__free_range* const range = tide__heap_alloc(pinned->heap, 1, sizeof *range);
  const bool is_made = range != NULL && source_take(pinned, pool, bytes, &memory) == TIDE_OK;
  if (is_made) tide__pin_range_add(pinned, range, &memory);
  else tide__heap_release(pinned->heap, range, 1, sizeof *range);
  if (!is_made) tide__error_restore(&before);
  tide__mutex_lock(&pinned->chunks_lock);
  pinned->is_reserve_made = false;
  pinned->has_reserve = is_made;
  if (is_made) pinned->reserve = memory;
  tide__mutex_unlock(&pinned->chunks_lock);
}

tide_status tide__pin_memory_take(tide_pinned_cache* pinned, tide__pin_pool* pool, uint64_t bytes,
                                  tide__pin_memory* out) {
  if (bytes <= pinned->options.reserve_bytes) {
    reserve_make(pinned, pool);
    if (tide__pin_range_take(pinned, bytes, out)) return TIDE_OK;
  }
  return source_take(pinned, pool, bytes, out);
}

tide_status tide__pin_memory_give(tide_pinned_cache* pinned, tide__pin_pool* pool,
                                  const tide__pin_memory* memory) {
  if (memory->source != TIDE__PIN_FROM_RESERVE) return source_give(pinned, pool, memory);
  tide__pin_range_give(pinned, memory);
  return TIDE_OK;
}

tide_status tide__pin_reserve_end(tide_pinned_cache* pinned) {
  if (pinned->has_reserve) TIDE_TRY(source_give(pinned, pinned->default_pool, &pinned->reserve));
  pinned->has_reserve = false;
  return TIDE_OK;
}
