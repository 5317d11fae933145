// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sizes: which block a request gets. Classes of 512 bytes to 64 MiB (core/classes.h); above, whole pages of
// 2 MiB; above the thresholds of the options, whole pages of the system.
#include "pinned/pinned_cache.h"

static uint64_t power_of_two_above(uint64_t bytes) {
  const uint64_t least = (uint64_t)1 << TIDE__PIN_UNIT_SHIFT;
  return bytes <= least ? least : (uint64_t)1 << (64 - __builtin_clzll(bytes - 1));
}

bool tide__pin_round(const tide_pinned_cache* pinned, uint64_t bytes, uint64_t* out_rounded,
                     uint32_t* out_class) {
  const tide_pinned_options* const o = &pinned->options;
  if (bytes == 0 || bytes >= TIDE__PIN_MAX_REQUEST) return false;
  *out_class = TIDE__PIN_SIZED;
  if (bytes > o->max_round_bytes || bytes > o->max_block_bytes) {
    return tide__align_up(bytes, pinned->page_bytes, out_rounded);
  }
  if (o->powers_of_two) bytes = power_of_two_above(bytes);
  if (bytes > TIDE__PIN_CLASS_BYTES) return tide__align_up(bytes, TIDE__PIN_HUGE_BYTES, out_rounded);
  *out_class = tide__class_of((bytes + 511) >> TIDE__PIN_UNIT_SHIFT);
  *out_rounded = tide__pin_class_bytes(*out_class);
  return true;
}

size_t tide_pinned_round(const tide_pinned_cache* pinned, size_t bytes) {
  uint64_t rounded = 0;
  uint32_t class_index = 0;
  const bool is_good = pinned != NULL && tide__pin_round(pinned, bytes, &rounded, &class_index);
  return is_good ? rounded : 0;
}

uint32_t tide_pinned_class_count(const tide_pinned_cache* pinned) {
  (void)pinned;
  return TIDE__PIN_KINDS;
}
