// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pieces of a range are claimed by an atomic step from NEW to BUSY, and no lock is held while they are
// locked. A thread that needs a busy piece sleeps on its state.
#include "machine/pinned_range.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/sys.h"
#include "machine/pages.h"

static uint64_t piece_begin(const tide__pinned_range* range, uint32_t piece) {
  return range->address + piece * range->piece_bytes;
}

static uint64_t piece_length(const tide__pinned_range* range, uint32_t piece) {
  return tide__min(range->piece_bytes, range->bytes - piece * range->piece_bytes);
}

// ---------------------------------------------------------------------------------------------------
// Making

static tide_status range_measure(tide__pinned_range* range, uint64_t bytes, uint64_t piece_bytes) {
  if (piece_bytes == 0) piece_bytes = TIDE__PINNED_PIECE_BYTES;
  TIDE_REQUIRE(tide__pages_can_lock(range->machine), TIDE_ERR_UNSUPPORTED,
               "pinned range: the %s machine cannot lock pages", tide_machine_name(range->machine));
  TIDE_REQUIRE(bytes != 0 && tide__align_up(bytes, tide__sys_page_bytes(), &range->bytes) &&
                   tide__align_up(piece_bytes, TIDE__PAGES_HUGE_BYTES, &range->piece_bytes) &&
                   (range->bytes - 1) / range->piece_bytes < UINT32_MAX,
               TIDE_ERR_NO_MEMORY, "pinned range: %llu bytes are none or too many",
               (unsigned long long)bytes);
  range->piece_count = (uint32_t)((range->bytes - 1) / range->piece_bytes + 1);
  return TIDE_OK;
}

static tide_status range_fill(tide__pinned_range* range) {
  range->states = tide__heap_alloc(range->heap, range->piece_count, sizeof *range->states);
  TIDE_REQUIRE(range->states != NULL, TIDE_ERR_NO_MEMORY, "pinned range: no memory for its records");
  const tide_status status = tide__pages_map(range->machine, range->bytes, &range->address);
  if (status != TIDE_OK) {
    tide__heap_release(range->heap, range->states, range->piece_count, sizeof *range->states);
    return status;
  }
  tide__pages_share(range->machine, range->address, range->bytes, false);
  return TIDE_OK;
}

tide_status tide__pinned_range_new(tide_machine* machine, const tide_heap* heap, uint64_t bytes,
                                   uint64_t piece_bytes, tide__pinned_range** out) {
  *out = NULL;
  heap = tide__heap_or_system(heap);
  tide__pinned_range* const range = tide__heap_alloc(heap, 1, sizeof *range);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_NO_MEMORY, "pinned range: no memory for its records");
  range->machine = machine;
  range->heap = heap;
  tide_status status = range_measure(range, bytes, piece_bytes);
  if (status == TIDE_OK) status = range_fill(range);
  if (status != TIDE_OK) {
    tide__heap_release(heap, range, 1, sizeof *range);
    return status;
  }
  *out = range;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Locking

static bool piece_claim(tide__pinned_range* range, uint32_t piece) {
  uint32_t expected = TIDE__PINNED_NEW;
  return atomic_compare_exchange_strong(&range->states[piece], &expected, TIDE__PINNED_BUSY);
}

// Locks a piece that was claimed. `threads`: see tide__sys_touch().
static tide_status piece_lock(tide__pinned_range* range, uint32_t piece, uint32_t threads) {
  const tide_status status =
      tide__pages_lock(range->machine, piece_begin(range, piece), piece_length(range, piece), threads);
  const uint32_t state = status == TIDE_OK ? TIDE__PINNED_LOCKED : TIDE__PINNED_NEW;
  if (atomic_exchange(&range->states[piece], state) == TIDE__PINNED_AWAITED) {
    tide__sys_futex_wake(&range->states[piece]);
  }
  return status;
}

// Waits until no thread is locking a piece; returns its state.
static uint32_t piece_await(tide__pinned_range* range, uint32_t piece) {
  tide__atomic_u32* const word = &range->states[piece];
  for (;;) {
    uint32_t state = tide__load_acquire(word);
    if (state != TIDE__PINNED_BUSY && state != TIDE__PINNED_AWAITED) return state;
    if (state == TIDE__PINNED_BUSY && !atomic_compare_exchange_strong(word, &state, TIDE__PINNED_AWAITED)) {
      continue;
    }
    tide__sys_futex_wait(word, TIDE__PINNED_AWAITED);
  }
}

static tide_status piece_need(tide__pinned_range* range, uint32_t piece) {
  for (;;) {
    if (piece_await(range, piece) == TIDE__PINNED_LOCKED) return TIDE_OK;
    if (piece_claim(range, piece)) return piece_lock(range, piece, 0);
  }
}

// The pieces from *first to before *end have a byte in the range of offsets; false if it leaves the range.
static bool pieces_find(const tide__pinned_range* range, uint64_t offset, uint64_t bytes, uint32_t* first,
                        uint32_t* end) {
  if (bytes == 0 || offset >= range->bytes || bytes > range->piece_count * range->piece_bytes - offset) {
    return false;
  }
  *first = (uint32_t)(offset / range->piece_bytes);
  *end = (uint32_t)((offset + bytes - 1) / range->piece_bytes) + 1;
  return true;
}

tide_status tide__pinned_range_lock(tide__pinned_range* range, uint64_t offset, uint64_t bytes) {
  uint32_t first = 0;
  uint32_t end = 0;
  TIDE_REQUIRE(pieces_find(range, offset, bytes, &first, &end), TIDE_ERR_ARGUMENT,
               "pinned range: %llu bytes at offset %llu of %llu", (unsigned long long)bytes,
               (unsigned long long)offset, (unsigned long long)range->bytes);
  for (uint32_t i = first; i < end; i++) TIDE_TRY(piece_need(range, i));
  return TIDE_OK;
}

bool tide__pinned_range_is_locked(tide__pinned_range* range, uint64_t offset, uint64_t bytes) {
  uint32_t first = 0;
  uint32_t end = 0;
  if (!pieces_find(range, offset, bytes, &first, &end)) return false;
  for (uint32_t i = first; i < end; i++) {
    if (tide__load_acquire(&range->states[i]) != TIDE__PINNED_LOCKED) return false;
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Helpers

// A helper runs in the capture mode RELAXED, so that its calls do not disturb captures of other threads. It
// ends when a piece is refused: whoever needs that piece tries again, and gets the error.
static void* helper_run(void* argument) {
  tide__pinned_range* const range = argument;
  tide_capture_mode before = TIDE_CAPTURE_GLOBAL;
  tide__ignore(tide_machine_capture_exchange(range->machine, TIDE_CAPTURE_RELAXED, &before));
  while (tide__load_acquire(&range->is_ending) == 0) {
    const uint32_t piece = tide__add_relaxed(&range->next_ahead, 1);
    if (piece >= range->piece_count) return NULL;
    if (!piece_claim(range, piece)) continue;
    if (piece_lock(range, piece, 1) != TIDE_OK) tide__store_release(&range->is_ending, 1);
  }
  return NULL;
}

void tide__pinned_range_ahead(tide__pinned_range* range, uint32_t threads) {
  tide__pinned_range_join(range);
  tide__store_relaxed(&range->next_ahead, 0);
  const uint32_t useful = tide__sys_touch_threads(range->bytes, threads);
  const uint32_t most = (uint32_t)tide__min(tide__min(useful, TIDE__PINNED_HELPERS), range->piece_count);
  for (uint32_t i = 0; i < most; i++) {
    if (tide__sys_thread_start(&range->helpers[i], helper_run, range) != 0) return;
    range->helper_count = i + 1;
  }
}

void tide__pinned_range_join(tide__pinned_range* range) {
  while (range->helper_count > 0) (void)pthread_join(range->helpers[--range->helper_count], NULL);
  tide__store_relaxed(&range->is_ending, 0);
}

// ---------------------------------------------------------------------------------------------------
// Giving back

static tide_status pieces_unlock(tide__pinned_range* range) {
  tide__first_failure failure;
  tide__first_failure_begin(&failure);
  for (uint32_t i = 0; i < range->piece_count; i++) {
    if (tide__load_relaxed(&range->states[i]) != TIDE__PINNED_LOCKED) continue;
    const tide_status status = tide__pages_unlock(range->machine, piece_begin(range, i));
    if (status == TIDE_OK) tide__store_relaxed(&range->states[i], TIDE__PINNED_NEW);
    tide__first_failure_note(&failure, status);
  }
  return tide__first_failure_end(&failure);
}

tide_status tide__pinned_range_free(tide__pinned_range* range) {
  if (range == NULL) return TIDE_OK;
  tide__store_release(&range->is_ending, 1);
  tide__pinned_range_join(range);
  TIDE_TRY(pieces_unlock(range));
  tide__pages_unmap(range->address, range->bytes);
  tide__heap_release(range->heap, range->states, range->piece_count, sizeof *range->states);
  tide__heap_release(range->heap, range, 1, sizeof *range);
  return TIDE_OK;
}
