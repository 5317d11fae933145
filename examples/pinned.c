// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// pinned.h: page-locked memory for copies. A block is released while its copy still runs, and reused only
// when the copy is done.
#include <string.h>

#include "example.h"

// Queues four copies to the device, one after the other, and never waits for one.
static void send_batches(tide_pinned_cache* pinned, tide_stream stream, void* there) {
  tide_block block;
  for (int batch = 0; batch < 4; batch++) {
    must(tide_pinned_alloc(pinned, MIB, &block));
    memset(block.address, 'a' + batch, MIB);
    must(tide_pinned_copy(pinned, block, 0, stream, there, block.address, MIB));
    tide_pinned_release(pinned, block);  // the copy may still run
  }
}

// Ordinary memory goes through blocks of the cache, and has arrived when the call returns.
static bool copy_there_and_back(tide_pinned_cache* pinned, tide_stream stream, void* there) {
  static char result[MIB];
  must(tide_pinned_download(pinned, 0, stream, result, there, MIB));
  (void)printf("the last batch: %c\n", result[0]);
  const bool is_right = result[0] == 'd' && result[MIB - 1] == 'd';
  memset(result, 'e', MIB);
  must(tide_pinned_upload(pinned, 0, stream, there, result, MIB));
  memset(result, 0, MIB);
  must(tide_pinned_download(pinned, 0, stream, result, there, MIB));
  return is_right && result[0] == 'e' && result[MIB - 1] == 'e';
}

// An arena takes its memory from the cache.
static void use_as_source(tide_pinned_cache* pinned) {
  const tide_memory source = tide_pinned_memory(pinned);
  void* arena = NULL;
  must(source.alloc(&source, 3 * MIB, 64, &arena));
  must(source.release(&source, arena));
}

static bool print_entry(void* user, const tide_trace_entry* entries, size_t count) {
  const tide_intern* const names = user;
  size_t depth = 0;
  for (size_t i = 0; i < count; i++) {
    (void)tide_intern_stack(names, entries[i].stack, &depth);
    (void)printf("%s of %llu bytes, %zu frames\n", tide_action_name(entries[i].action),
                 (unsigned long long)entries[i].bytes, depth);
  }
  return true;
}

// The history shows what the cache did, and a snapshot holds it together with the segments.
static void look_inside(tide_pinned_cache* pinned) {
  tide_trace* trace = NULL;
  size_t count = 0;
  must(tide_pinned_history_visit(pinned, print_entry, tide_pinned_names(pinned)));
  must(tide_trace_new(NULL, &trace));
  must(tide_pinned_snapshot(pinned, NULL, 0, trace));
  (void)tide_trace_segments(trace, &count);
  (void)printf("%zu segments\n", count);
  tide_trace_free(trace);
}

int main(void) {
  tide_host_options computer = TIDE_HOST_OPTIONS_INIT;
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
  const tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  tide_machine* machine = NULL;
  tide_pinned_cache* pinned = NULL;
  tide_stream stream = NULL;
  void* there = NULL;
  computer.capacity = 64 * MIB;
  must(tide_machine_new_host(&computer, &machine));
  must(tide_machine_stream_new(machine, 0, 0, 0, &stream));
  must(tide_machine_raw_alloc(machine, 0, MIB, &there));
  options.max_cached_bytes = 32 * MIB;
  must(tide_pinned_new(machine, &options, &pinned));
  tide_pinned_get_options(pinned, &options);
  (void)printf("at most %llu bytes are cached\n", (unsigned long long)options.max_cached_bytes);

  send_batches(pinned, stream, there);
  const bool is_right = copy_there_and_back(pinned, stream, there);
  must(tide_pinned_history(pinned, &history));
  use_as_source(pinned);
  look_inside(pinned);
  must(tide_pinned_poll(pinned));  // between two steps: makes blocks reusable whose copies are done
  must(tide_pinned_trim(pinned, MIB));
  if (tide_pinned_check(pinned) != 0) puts(tide_last_error()->text);

  const tide_sink console = tide_sink_file(1);
  (void)fflush(stdout);
  must(tide_pinned_print_stats(pinned, &console));
  tide_pinned_free(pinned, &leaks);
  tide_machine_free(machine);
  return is_right && leaks.blocks == 0 ? 0 : 1;
}
