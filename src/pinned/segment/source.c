// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `segment`: pinned memory of the machine, or pages that the cache maps, touches with several threads
// and registers. The time that calls of the machine take is counted. No lock is held here.
#include "base/sys.h"
#include "pinned/segment/segment.h"
#include "pinned/stats/stats.h"

// ---------------------------------------------------------------------------------------------------
// Registered pages

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

// No more threads than processors or pages.
static uint32_t touch_threads(const tide_pinned_cache* pinned, uint64_t pages) {
  return (uint32_t)tide__min(tide__min(pinned->options.register_threads, tide__sys_processors()), pages);
}

// The calling thread does the shares for which no thread could be started.
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

// Maps whole pages. On the dry machine the addresses have no memory.
static tide_status pages_map(const tide_pinned_cache* pinned, uint64_t bytes, uint64_t* out) {
  const bool is_huge = bytes >= TIDE__PIN_HUGE_BYTES;
  const uint64_t alignment = is_huge ? TIDE__PIN_HUGE_BYTES : pinned->page_bytes;
  const int error = pinned->is_dry ? tide__sys_reserve(bytes, alignment, 0, out)
                                   : tide__sys_map_sparse(bytes, alignment, out);
  if (error != 0) {
    return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error, "pinned: cannot map %llu bytes",
                            (unsigned long long)bytes);
  }
  if (is_huge && !pinned->is_dry) tide__sys_ask_huge_pages(*out, bytes);
  if (!pinned->is_dry) touch_all(pinned, *out, bytes);
  return TIDE_OK;
}

static tide_status pages_take(tide_pinned_cache* pinned, uint64_t bytes, uint64_t* out) {
  const uint64_t whole = tide__pin_whole_pages(pinned, bytes);
  TIDE_TRY(pages_map(pinned, whole, out));
  const tide_status status = tide_machine_pinned_register(pinned->machine, tide__pointer(*out), whole);
  if (status != TIDE_OK) (void)tide__sys_release(*out, whole);
  return status;
}

static tide_status pages_give(tide_pinned_cache* pinned, const tide__pin_memory* memory) {
  TIDE_TRY(tide_machine_pinned_unregister(pinned->machine, tide__pointer(memory->address)));
  (void)tide__sys_release(memory->address, tide__pin_whole_pages(pinned, memory->bytes));
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The machine

// The NUMA node for new memory; -1: any.
static int node_wanted(const tide_pinned_cache* pinned) {
  if (pinned->options.numa == TIDE_NUMA_CALLER) return tide__sys_node();
  return pinned->options.numa == TIDE_NUMA_DEVICE ? pinned->device_node : -1;
}

tide_status tide__pin_source_take(tide_pinned_cache* pinned, uint64_t bytes, tide__pin_memory* out) {
  void* address = NULL;
  const bool is_registered = pinned->options.uses_register;
  const tide__relaxed relaxed = tide__relax_or_not(pinned->machine);
  const int node = node_wanted(pinned);
  if (node >= 0) tide__sys_prefer_node(node);
  const uint64_t begin_ns = tide__history_clock(&pinned->history);
  uint64_t pages = 0;
  const tide_status status = is_registered ? pages_take(pinned, bytes, &pages)
                                           : tide_machine_pinned_alloc(pinned->machine, bytes, &address);
  const uint64_t ns = tide__history_clock(&pinned->history) - begin_ns;
  if (node >= 0) tide__sys_prefer_node(-1);
  tide__relax_end(&relaxed);
  TIDE_TRY(status);
  tide__pin_totals_call(pinned, true, ns);
  *out = (tide__pin_memory){ is_registered ? pages : tide__address(address), bytes,
                             is_registered ? TIDE__PIN_FROM_PAGES : TIDE__PIN_FROM_MACHINE };
  return TIDE_OK;
}

tide_status tide__pin_source_give(tide_pinned_cache* pinned, const tide__pin_memory* memory) {
  const tide__relaxed relaxed = tide__relax_or_not(pinned->machine);
  const uint64_t begin_ns = tide__history_clock(&pinned->history);
  const tide_status status =
      memory->source == TIDE__PIN_FROM_PAGES
          ? pages_give(pinned, memory)
          : tide_machine_pinned_release(pinned->machine, tide__pointer(memory->address));
  const uint64_t ns = tide__history_clock(&pinned->history) - begin_ns;
  tide__relax_end(&relaxed);
  if (status == TIDE_OK) tide__pin_totals_call(pinned, false, ns);
  return status;
}
