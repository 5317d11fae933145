// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Giving idle memory back: down to a size, and memory that was not used for long. Calls the rooms `idle`,
// `stream` and `pool`.
#include "pinned/calls.h"
#include "pinned/idle/idle.h"
#include "pinned/pool/pool.h"
#include "pinned/stream/stream.h"

tide_status tide__pin_trim(tide_pinned_cache* pinned, uint64_t least_bytes, uint64_t keep_bytes,
                           uint32_t* out_count) {
  const tide__pin_pick pick = { .least_bytes = least_bytes, .keep_bytes = keep_bytes };
  tide__first_failure failure;
  tide__pin_tcaches_flush(pinned);
  tide__first_failure_begin(&failure);
  tide__first_failure_note(&failure, tide__pin_shrink(pinned, &pick, 0, out_count));
  tide__first_failure_note(&failure, tide__pin_refused_give(pinned, out_count));
  return tide__first_failure_end(&failure);
}

// ---------------------------------------------------------------------------------------------------
// Age

enum { AGE_CHECKS = 4 };  // in idle_ns, at most

// Is it time to check the age of idle memory? Only one thread gets the answer yes.
static bool age_is_due(tide_pinned_cache* pinned, uint64_t now_ns) {
  uint64_t last_ns = tide__load_relaxed(&pinned->swept_ns);
  if (last_ns != 0 && now_ns - last_ns < pinned->options.idle_ns / AGE_CHECKS) return false;
  return atomic_compare_exchange_strong(&pinned->swept_ns, &last_ns, now_ns);
}

static tide_status age_check(tide_pinned_cache* pinned) {
  const uint64_t idle_ns = pinned->options.idle_ns;
  if (idle_ns == 0) return TIDE_OK;
  const uint64_t now_ns = tide__max(1, tide__history_clock(&pinned->history));
  if (!age_is_due(pinned, now_ns)) return TIDE_OK;
  const tide__pin_pick pick = { .now_ns = now_ns, .seen_before = now_ns > idle_ns ? now_ns - idle_ns : 0 };
  uint32_t count = 0;
  tide__pin_tcaches_flush(pinned);
  return tide__pin_shrink(pinned, &pick, offsetof(tide_pinned_stats, num_aged), &count);
}

tide_status tide__pin_sweep(tide_pinned_cache* pinned) {
  tide__first_failure failure;
  tide__first_failure_begin(&failure);
  tide__first_failure_note(&failure, tide__pin_poll(pinned));
  tide__first_failure_note(&failure, age_check(pinned));
  return tide__first_failure_end(&failure);
}

// ---------------------------------------------------------------------------------------------------
// Calls

tide_status tide_pinned_poll(tide_pinned_cache* pinned) {
  TIDE_TRY(tide__pin_cache_check(pinned, "pinned_poll"));
  const tide_status status = tide__pin_sweep(pinned);
  if (pinned->has_cap) {
    tide__pin_tcaches_flush(pinned);
    tide__pin_keep_cap(pinned);
  }
  return status;
}

tide_status tide_pinned_trim(tide_pinned_cache* pinned, uint64_t keep_bytes) {
  uint32_t count = 0;
  TIDE_TRY(tide__pin_cache_check(pinned, "pinned_trim"));
  tide_error before;
  tide__error_keep(&before);
  if (tide__pin_poll(pinned) != TIDE_OK) tide__error_restore(&before);
  return tide__pin_trim(pinned, 0, keep_bytes, &count);
}

tide_status tide_pinned_empty(tide_pinned_cache* pinned) {
  TIDE_TRY(tide__pin_cache_check(pinned, "pinned_empty"));
  tide__first_failure failure;
  tide__first_failure_begin(&failure);
  tide__first_failure_note(&failure, tide_pinned_trim(pinned, 0));
  tide__first_failure_note(&failure, tide__pin_pools_empty(pinned));
  return tide__first_failure_end(&failure);
}
