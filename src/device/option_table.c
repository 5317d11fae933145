// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The table of options: the key, the field, the kind and the range of each. options.c reads, prints and
// checks options by it.
#include "device/option_table.h"

#include <string.h>

#include "base/arith.h"

const char* const tide__policy_names[TIDE__POLICY_COUNT] = { "torch", "tide" };

// ---------------------------------------------------------------------------------------------------
// Ranges

static bool is_mibs(uint64_t bytes) { return tide__is_aligned(bytes, TIDE__OPTION_MIB); }

static bool is_limit(uint64_t bytes) { return bytes == TIDE_NO_LIMIT || is_mibs(bytes); }

static bool is_handle(uint64_t bytes) {
  return bytes != 0 && tide__is_aligned(bytes, 2 * TIDE__OPTION_MIB) && bytes <= TIDE__HANDLE_BYTES_MAX;
}

#define RANGE(name, condition) \
  static bool name##_is_valid(const tide_device_options* o) { return (condition); }

RANGE(policy, o->policy < TIDE__POLICY_COUNT)
RANGE(large_segment, is_mibs(o->large_segment_bytes) && o->large_segment_bytes > TIDE__LARGE_SEGMENT_ABOVE &&
                         o->large_segment_bytes <= TIDE__LARGE_SEGMENT_MAX)
RANGE(max_split, is_limit(o->max_split_bytes) && o->max_split_bytes >= o->large_segment_bytes)
RANGE(non_split_excess,
      o->non_split_excess_bytes == 0 ||
          (is_mibs(o->non_split_excess_bytes) && o->non_split_excess_bytes >= o->large_segment_bytes))
RANGE(collect_threshold, o->collect_threshold >= 0 && o->collect_threshold < 1)
RANGE(memory_fraction, o->memory_fraction >= 0 && o->memory_fraction <= 1)
RANGE(register_threads, tide__is_power_of_two(o->pinned_register_threads) &&
                            o->pinned_register_threads <= TIDE__REGISTER_THREADS_MAX)
RANGE(pinned_reserve, is_mibs(o->pinned_reserve_bytes))
RANGE(pinned_round, is_limit(o->pinned_round_bytes))
RANGE(pinned_block, is_limit(o->pinned_block_bytes))
RANGE(tide_slack, o->tide_slack >= 0 && o->tide_slack <= 1)
RANGE(tide_wait_slack, o->tide_wait_slack >= 0 && o->tide_wait_slack <= 1)
RANGE(tide_most_slack, o->tide_most_slack >= 0 && o->tide_most_slack <= 1)
RANGE(tide_stitch_share, o->tide_stitch_share >= 0 && o->tide_stitch_share <= 1)
RANGE(tide_most_handle, is_handle(o->tide_most_handle_bytes))
RANGE(tide_least_handle,
      is_handle(o->tide_least_handle_bytes) && o->tide_least_handle_bytes <= o->tide_most_handle_bytes)
RANGE(tide_floor, is_mibs(o->tide_floor_bytes))
RANGE(tide_idle, o->tide_idle_handles <= 65536)

static bool reserve_is_valid(const tide_device_options* options) {
  const tide_reserve* const reserve = &options->address_reserve;
  const bool is_share = reserve->fraction >= 0 && reserve->fraction <= 1e6;
  const bool is_readable = reserve->bytes >> 30 <= 999999;
  return is_share && is_readable && reserve->bytes % ((uint64_t)1 << 30) == 0 &&
         (reserve->fraction == 0 || reserve->bytes == 0);
}

static bool roundup_is_valid(const tide_device_options* options) {
  for (size_t i = 0; i < TIDE_ROUNDUP_SLOTS; i++) {
    const uint32_t value = options->roundup_divisions[i];
    if (value != 0 && !tide__is_power_of_two(value)) return false;
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Rows

#define OPTION_FIELD(name) #name, offsetof(tide_device_options, name)
#define OPTION_BOOL(key, alias, name) \
  { key, alias, OPTION_FIELD(name), TIDE__OPTION_BOOL, NULL, "True or False" }
#define OPTION_SWITCH(key, name) \
  { key, NULL, OPTION_FIELD(name), TIDE__OPTION_SWITCH, NULL, "True or False, on or off" }

// In the order in which they are printed. An alias is what PyTorch calls it on AMD's devices. `backend` and
// the keys that have no effect have no field of their own: they print nothing.
const tide__option_row tide__option_rows[] = {
  { "policy", NULL, OPTION_FIELD(policy), TIDE__OPTION_POLICY, policy_is_valid,
    "the name of a policy: torch or tide" },
  { "backend", NULL, OPTION_FIELD(size), TIDE__OPTION_BACKEND, NULL, "native" },
  { "large_segment_size_mb", NULL, OPTION_FIELD(large_segment_bytes), TIDE__OPTION_MIBS,
    large_segment_is_valid, "whole MiB, above 10 and up to 65536" },
  { "max_split_size_mb", NULL, OPTION_FIELD(max_split_bytes), TIDE__OPTION_MIBS, max_split_is_valid,
    "whole MiB, at least large_segment_size_mb" },
  { "max_non_split_rounding_mb", NULL, OPTION_FIELD(non_split_excess_bytes), TIDE__OPTION_MIBS,
    non_split_excess_is_valid, "whole MiB, at least large_segment_size_mb" },
  { "garbage_collection_threshold", NULL, OPTION_FIELD(collect_threshold), TIDE__OPTION_SHARE,
    collect_threshold_is_valid, "a number above 0 and below 1" },
  { "per_process_memory_fraction", NULL, OPTION_FIELD(memory_fraction), TIDE__OPTION_REAL,
    memory_fraction_is_valid, "a number from 0 to 1" },
  { "roundup_power2_divisions", NULL, OPTION_FIELD(roundup_divisions), TIDE__OPTION_ROUNDUP, roundup_is_valid,
    "a power of two, or a list [MiB:divisions,>:divisions] of powers of two" },
  OPTION_BOOL("expandable_segments", NULL, expandable_segments),
  OPTION_BOOL("graph_capture_record_stream_reuse", NULL, is_capture_reuse),
  OPTION_BOOL("release_lock_on_cudamalloc", "release_lock_on_hipmalloc", releases_lock),
  OPTION_BOOL("pinned_use_cuda_host_register", "pinned_use_hip_host_register", pinned_uses_register),
  OPTION_BOOL("pinned_use_background_threads", NULL, pinned_uses_threads),
  { "pinned_num_register_threads", NULL, OPTION_FIELD(pinned_register_threads), TIDE__OPTION_COUNT,
    register_threads_is_valid, "a power of two up to 128" },
  { "pinned_reserve_segment_size_mb", NULL, OPTION_FIELD(pinned_reserve_bytes), TIDE__OPTION_MIBS,
    pinned_reserve_is_valid, "whole MiB, at least 1" },
  { "pinned_max_round_threshold_mb", NULL, OPTION_FIELD(pinned_round_bytes), TIDE__OPTION_LIMIT,
    pinned_round_is_valid, "whole MiB" },
  { "pinned_max_cached_size_mb", NULL, OPTION_FIELD(pinned_block_bytes), TIDE__OPTION_LIMIT,
    pinned_block_is_valid, "whole MiB" },
  { "pinned_free_catch_all", NULL, OPTION_FIELD(size), TIDE__OPTION_NO_BOOL, NULL, "True or False" },
  { "expandable_segments_reserve", NULL, OPTION_FIELD(address_reserve), TIDE__OPTION_RESERVE,
    reserve_is_valid, "a share of the device's memory above 0, or whole GiB as in 24G" },
  { "expandable_segments_reserve_by_class", NULL, OPTION_FIELD(size), TIDE__OPTION_NO_LIST, NULL,
    "a list [class:reserve,class:reserve]" },
  { "tide_slack", NULL, OPTION_FIELD(tide_slack), TIDE__OPTION_REAL, tide_slack_is_valid,
    "a number from 0 to 1" },
  { "tide_wait_slack", NULL, OPTION_FIELD(tide_wait_slack), TIDE__OPTION_REAL, tide_wait_slack_is_valid,
    "a number from 0 to 1" },
  { "tide_most_handle_mb", NULL, OPTION_FIELD(tide_most_handle_bytes), TIDE__OPTION_MIBS,
    tide_most_handle_is_valid, "an even number of MiB, at least 2 and up to 1048576" },
  { "tide_least_handle_mb", NULL, OPTION_FIELD(tide_least_handle_bytes), TIDE__OPTION_MIBS,
    tide_least_handle_is_valid, "an even number of MiB, at least 2 and at most tide_most_handle_mb" },
  { "tide_stitch_share", NULL, OPTION_FIELD(tide_stitch_share), TIDE__OPTION_REAL, tide_stitch_share_is_valid,
    "a number from 0 to 1" },
  { "tide_most_slack", NULL, OPTION_FIELD(tide_most_slack), TIDE__OPTION_REAL, tide_most_slack_is_valid,
    "a number from 0 to 1" },
  { "tide_floor_mb", NULL, OPTION_FIELD(tide_floor_bytes), TIDE__OPTION_MIBS, tide_floor_is_valid,
    "whole MiB, at least 1" },
  { "tide_idle_handles", NULL, OPTION_FIELD(tide_idle_handles), TIDE__OPTION_COUNT, tide_idle_is_valid,
    "a number up to 65536" },
  OPTION_BOOL("throw_on_cudamalloc_oom", NULL, rejects_early),
  OPTION_SWITCH("ties_by_age", ties_by_age),
  OPTION_SWITCH("captures_by_stream", captures_by_stream),
  OPTION_SWITCH("virtual_fallback", virtual_fallback),
  OPTION_SWITCH("plain_pools", plain_pools),
  OPTION_SWITCH("rdma_handles", rdma_handles),
  OPTION_SWITCH("fabric_handles", fabric_handles),
  OPTION_SWITCH("pinned_pages", pinned_pages),
  OPTION_SWITCH("fixes", fixes),
  OPTION_SWITCH("audits", has_audits),
};
const size_t tide__option_row_count = sizeof tide__option_rows / sizeof tide__option_rows[0];

// Keys of earlier versions.
static const struct {
  const char* key;
  const char* instead;
} removed[] = { { "tide_ahead", "tide_device_reserve()" } };

const char* tide__option_instead(const char* key) {
  for (size_t i = 0; i < sizeof removed / sizeof removed[0]; i++) {
    if (strcmp(key, removed[i].key) == 0) return removed[i].instead;
  }
  return NULL;
}

const tide__option_row* tide__option_find(const char* key) {
  for (size_t i = 0; i < tide__option_row_count; i++) {
    const tide__option_row* const row = &tide__option_rows[i];
    if (strcmp(key, row->key) == 0 || (row->alias != NULL && strcmp(key, row->alias) == 0)) return row;
  }
  return NULL;
}
