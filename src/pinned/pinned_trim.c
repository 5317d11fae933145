// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Giving idle memory back: down to a size, what is too old, what is too much. Segments are taken out of the
// depot under its locks and given to the machine without any.
#include "pinned/pinned_cache.h"

// Gives back what a pick takes out of the default pool's depot, and counts it: first, so that whoever
// sees the memory gone finds it counted.
static tide_status trim_pick(tide_pinned_cache* pinned, const tide__pin_pick* pick, size_t counter,
                             uint32_t* out_count) {
  tide__link list;
  tide__list_init(&list);
  const uint32_t picked = tide__pin_depot_pick(pinned, pinned->default_pool, pick, &list);
  if (counter != 0) tide__pin_totals_count(pinned, pinned->default_pool, counter, picked);
  const tide_status status = tide__pin_segments_give(pinned, &list, out_count);
  const int64_t refused = (int64_t)picked - *out_count;
  if (counter != 0 && refused != 0) tide__pin_totals_count(pinned, pinned->default_pool, counter, -refused);
  return status;
}

tide_status tide__pin_trim(tide_pinned_cache* pinned, uint64_t least_bytes, uint64_t keep_bytes,
                           uint32_t* out_count) {
  const tide__pin_pick pick = { .least_bytes = least_bytes, .keep_bytes = keep_bytes };
  tide__pin_tcaches_flush(pinned);
  const tide_status status = trim_pick(pinned, &pick, 0, out_count);
  const tide_status refused = tide__pin_refused_give(pinned, out_count);
  return status != TIDE_OK ? status : refused;
}

// ---------------------------------------------------------------------------------------------------
// What is too much

// Gives back from the depot until there is room again; true if there is.
static bool cap_shrink(tide_pinned_cache* pinned) {
  uint32_t count = 0;
  const int64_t room = tide__load_relaxed(&pinned->room_left);
  if (room >= 0) return true;
  const uint64_t idle = tide__load_relaxed(&pinned->default_pool->depot.idle_bytes);
  const uint64_t excess = (uint64_t)-room;
  const tide__pin_pick pick = { .keep_bytes = idle > excess ? idle - excess : 0 };
  tide__ignore(trim_pick(pinned, &pick, offsetof(tide_pinned_stats, num_capped), &count));
  return tide__load_relaxed(&pinned->room_left) >= 0;
}

void tide__pin_enforce_cap(tide_pinned_cache* pinned) {
  tide_error before;
  tide__error_keep(&before);
  if (!cap_shrink(pinned)) {
    tide__pin_tcaches_flush(pinned);
    (void)cap_shrink(pinned);
  }
  tide__error_restore(&before);
}

// ---------------------------------------------------------------------------------------------------
// What is too old

enum { LOOKS = 4 };  // in idle_ns

// Is it time for another look at idle memory? One thread gets the answer yes.
static bool age_is_due(tide_pinned_cache* pinned, uint64_t now_ns) {
  uint64_t last_ns = tide__load_relaxed(&pinned->looked_ns);
  if (last_ns != 0 && now_ns - last_ns < pinned->options.idle_ns / LOOKS) return false;
  return atomic_compare_exchange_strong(&pinned->looked_ns, &last_ns, now_ns);
}

static tide_status age_look(tide_pinned_cache* pinned) {
  const uint64_t idle_ns = pinned->options.idle_ns;
  if (idle_ns == 0) return TIDE_OK;
  const uint64_t now_ns = tide__max(1, tide__pin_now(pinned));
  if (!age_is_due(pinned, now_ns)) return TIDE_OK;
  const tide__pin_pick pick = { .now_ns = now_ns, .seen_before = now_ns > idle_ns ? now_ns - idle_ns : 0 };
  uint32_t count = 0;
  tide__pin_tcaches_flush(pinned);
  return trim_pick(pinned, &pick, offsetof(tide_pinned_stats, num_aged), &count);
}

tide_status tide__pin_look(tide_pinned_cache* pinned) {
  const tide_status polled = tide__pin_poll(pinned);
  const tide_status aged = age_look(pinned);
  return polled != TIDE_OK ? polled : aged;
}

// ---------------------------------------------------------------------------------------------------
// Calls

tide_status tide_pinned_poll(tide_pinned_cache* pinned) {
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "pinned_poll: no cache");
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_poll");
  const tide_status status = tide__pin_look(pinned);
  if (pinned->has_cap) {
    tide__pin_tcaches_flush(pinned);
    tide__pin_keep_cap(pinned);
  }
  return status;
}

tide_status tide_pinned_trim(tide_pinned_cache* pinned, uint64_t keep_bytes) {
  uint32_t count = 0;
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "pinned_trim: no cache");
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_trim");
  tide_error before;
  tide__error_keep(&before);
  if (tide__pin_poll(pinned) != TIDE_OK) tide__error_restore(&before);
  return tide__pin_trim(pinned, 0, keep_bytes, &count);
}

tide_status tide_pinned_empty(tide_pinned_cache* pinned) {
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "pinned_empty: no cache");
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_empty");
  const tide_status trimmed = tide_pinned_trim(pinned, 0);
  const tide_status emptied = tide__pin_pools_empty(pinned);
  return trimmed != TIDE_OK ? trimmed : emptied;
}
