// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `segment`: where pinned memory comes from. Segments of 2 MiB and more are pages of our own, which are
// touched by several threads and registered (machine/pages.h). Small ones are memory of the machine: for them
// registering is not faster. If the machine refuses to register pages and pins memory itself, the cache
// remembers that, and takes all further memory from the machine. The time that all this takes is counted. No
// lock is held here.
#include <stdio.h>

#include "base/sys.h"
#include "machine/pages.h"
#include "pinned/segment/segment.h"
#include "pinned/stats/stats.h"

// ---------------------------------------------------------------------------------------------------
// Registered pages

// *out_refused: there was memory, but the machine did not register it.
static tide_status pages_take(tide_pinned_cache* pinned, uint64_t bytes, uint64_t* out, bool* out_refused) {
  const uint64_t whole = tide__pin_whole_pages(pinned, bytes);
  TIDE_TRY(tide__pages_map(pinned->machine, whole, out));
  const tide_status status = tide__pages_lock(pinned->machine, *out, whole, pinned->options.register_threads);
  *out_refused = status != TIDE_OK && status != TIDE_ERR_CAPTURE;
  if (status != TIDE_OK) tide__pages_unmap(*out, whole);
  if (*out_refused) TIDE__PIN_COUNT(pinned, num_register_refusals);
  return status;
}

static tide_status pages_give(tide_pinned_cache* pinned, const tide__pin_memory* memory) {
  TIDE_TRY(tide__pages_unlock(pinned->machine, memory->address));
  tide__pages_unmap(memory->address, tide__pin_whole_pages(pinned, memory->bytes));
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The choice

void tide__pin_source_init(tide_pinned_cache* pinned) {
  const tide_pinned_options* const o = &pinned->options;
  const bool may = !o->powers_of_two && !o->uses_machine && tide__pages_can_lock(pinned->machine);
  tide__store_relaxed(&pinned->pages_state, may ? TIDE__PIN_PAGES_TRIED : TIDE__PIN_PAGES_UNUSED);
}

static bool source_is_pages(tide_pinned_cache* pinned, uint64_t bytes) {
  if (pinned->options.uses_register) return true;
  return bytes >= TIDE__PAGES_HUGE_BYTES && tide__load_relaxed(&pinned->pages_state) == TIDE__PIN_PAGES_TRIED;
}

// The machine refused to register pages, and then pinned as much memory itself. The first thread that finds
// this writes the reason.
static void pages_give_up(tide_pinned_cache* pinned, const tide_error* reason) {
  uint32_t expected = TIDE__PIN_PAGES_TRIED;
  if (!atomic_compare_exchange_strong(&pinned->pages_state, &expected, TIDE__PIN_PAGES_REFUSED)) return;
  (void)snprintf(pinned->fallback_reason, sizeof pinned->fallback_reason, "%.250s", reason->text);
  tide__store_release(&pinned->pages_state, TIDE__PIN_PAGES_EXPLAINED);
}

const char* tide_pinned_fallback_reason(const tide_pinned_cache* pinned) {
  if (pinned == NULL || tide__load_acquire(&pinned->pages_state) != TIDE__PIN_PAGES_EXPLAINED) return "";
  return pinned->fallback_reason;
}

static tide_status memory_from_machine(tide_pinned_cache* pinned, uint64_t bytes, tide__pin_memory* out) {
  void* address = NULL;
  TIDE_TRY(tide_machine_pinned_alloc(pinned->machine, bytes, &address));
  *out = (tide__pin_memory){ tide__address(address), bytes, TIDE__PIN_FROM_MACHINE };
  return TIDE_OK;
}

static tide_status memory_pin(tide_pinned_cache* pinned, uint64_t bytes, tide__pin_memory* out) {
  uint64_t address = 0;
  bool is_refused = false;
  tide_error before;
  if (!source_is_pages(pinned, bytes)) return memory_from_machine(pinned, bytes, out);
  tide__error_keep(&before);
  const tide_status status = pages_take(pinned, bytes, &address, &is_refused);
  *out = (tide__pin_memory){ address, bytes, TIDE__PIN_FROM_PAGES };
  if (status == TIDE_OK) TIDE__PIN_COUNT(pinned, num_registered);
  if (status == TIDE_OK || pinned->options.uses_register) return status;
  const tide_error reason = *tide_last_error();
  TIDE_TRY(memory_from_machine(pinned, bytes, out));
  if (is_refused) pages_give_up(pinned, &reason);
  tide__error_restore(&before);
  return TIDE_OK;
}

// The NUMA node for new memory; -1: any.
static int node_wanted(const tide_pinned_cache* pinned) {
  if (pinned->options.numa == TIDE_NUMA_CALLER) return tide__sys_node();
  return pinned->options.numa == TIDE_NUMA_DEVICE ? pinned->device_node : -1;
}

tide_status tide__pin_source_take(tide_pinned_cache* pinned, uint64_t bytes, tide__pin_memory* out) {
  tide__pin_memory memory = { 0 };
  const tide__relaxed relaxed = tide__relax_or_not(pinned->machine);
  const int node = node_wanted(pinned);
  if (node >= 0) tide__sys_prefer_node(node);
  const uint64_t begin_ns = tide__history_clock(&pinned->history);
  const tide_status status = memory_pin(pinned, bytes, &memory);
  const uint64_t ns = tide__history_clock(&pinned->history) - begin_ns;
  if (node >= 0) tide__sys_prefer_node(-1);
  tide__relax_end(&relaxed);
  TIDE_TRY(status);
  tide__pin_totals_call(pinned, true, ns);
  *out = memory;
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
