// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `idle`: giving idle memory of the default pool back to the machine, and the limit max_cached_bytes.
// Segments are taken out of the depot under its locks, and given back with no lock held. Calls tcache.c and
// the room `segment`.
#include "pinned/idle/idle.h"

// The counter rises before the memory goes, so that whoever sees the memory gone finds it counted.
tide_status tide__pin_shrink(tide_pinned_cache* pinned, const tide__pin_pick* pick, size_t counter,
                             uint32_t* out_count) {
  tide__link list;
  tide__list_init(&list);
  const uint32_t picked = tide__pin_depot_pick(pinned, pinned->default_pool, pick, &list);
  if (counter != 0) tide__pin_totals_count(pinned, counter, picked);
  const tide_status status = tide__pin_segments_give(pinned, &list, out_count);
  const int64_t refused = (int64_t)picked - *out_count;
  if (counter != 0 && refused != 0) tide__pin_totals_count(pinned, counter, -refused);
  return status;
}

// Gives memory back from the depot; true if max_cached_bytes is kept then.
static bool cap_shrink(tide_pinned_cache* pinned) {
  uint32_t count = 0;
  const int64_t room = tide__load_relaxed(&pinned->room_left);
  if (room >= 0) return true;
  const uint64_t idle = tide__load_relaxed(&pinned->default_pool->depot.idle_bytes);
  const uint64_t excess = (uint64_t)-room;
  const tide__pin_pick pick = { .keep_bytes = idle > excess ? idle - excess : 0 };
  tide__ignore(tide__pin_shrink(pinned, &pick, offsetof(tide_pinned_stats, num_capped), &count));
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
