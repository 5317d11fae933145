// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// cache.h: what the caching allocators share: every segment and block, and the newest entries of a history.
#include "example.h"

static bool show_segment(void* user, const tide_segment_info* segment) {
  size_t* const segments = user;
  ++*segments;
  (void)printf("segment of %llu KiB, %llu KiB handed out\n", (unsigned long long)segment->bytes / 1024,
               (unsigned long long)segment->allocated_bytes / 1024);
  return true;
}

static bool show_block(void* user, const tide_block_info* block) {
  (void)user;
  (void)printf("  %-26s %8llu KiB\n", tide_block_state_name(block->state),
               (unsigned long long)block->bytes / 1024);
  return true;
}

static bool show_entries(void* user, const tide_trace_entry* entries, size_t count) {
  (void)user;
  for (size_t i = 0; i < count; i++) (void)printf("%s\n", tide_action_name(entries[i].action));
  return true;
}

int main(void) {
  const tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  size_t segments = 0;
  const tide_device_visitor visitor = { show_segment, show_block, &segments };
  tide_machine* machine = NULL;
  tide_device_cache* device = NULL;
  tide_block block;
  must(tide_machine_new_dry(NULL, &machine));
  must(tide_device_new(machine, 0, NULL, &device));
  must(tide_device_history(device, &history));
  must(tide_device_alloc(device, NULL, 3 * MIB, &block));
  must(tide_device_alloc(device, NULL, 30 * MIB, &block));
  tide_device_release(device, block);

  must(tide_device_visit(device, &visitor));
  must(tide_device_history_visit(device, show_entries, NULL));
  tide_device_free(device);
  tide_machine_free(machine);
  return segments == 2 ? 0 : 1;
}
