// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// device.h: a caching allocator. Memory is reused without waiting, a block that another stream uses is
// recorded, a pool keeps memory apart, and a failed request has a report.
#include "example.h"

static void say_oom(void* user, const tide_oom* oom) {
  (void)user;
  (void)printf("%s\n", oom->text);
}

static void say_entry(void* user, const tide_trace_entry* entry, uint64_t number) {
  (void)user;
  (void)printf("%llu: %s\n", (unsigned long long)number, tide_action_name(entry->action));
}

static void use_pool(tide_device_cache* device, tide_stream stream) {
  tide_pool pool = TIDE_POOL_DEFAULT;
  tide_block block;
  uint64_t reserved = 0;
  must(tide_device_pool_new(device, NULL, &pool));
  must(tide_device_pool_begin(device, pool, NULL));  // requests of this thread go to the pool
  must(tide_device_alloc(device, stream, 4 * MIB, &block));
  must(tide_device_pool_end(device, pool));
  must(tide_device_pool_reserved(device, pool, &reserved));
  (void)printf("the pool has %llu MiB\n", (unsigned long long)(reserved / MIB));
  tide_device_release(device, block);
  tide_device_pool_drop(device, pool);
  tide_device_trim(device, 0);  // frees the pool
}

// What a program asks of an allocator that it was given: options, caching, and the end of a stream.
static void look_around(tide_device_cache* device, tide_stream stream, tide_stream other) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  const tide_memory memory = tide_device_memory(device, stream);  // for an arena, a planned run, or by hand
  void* address = NULL;
  must(memory.alloc(&memory, MIB, 64, &address));
  tide_device_get_options(device, &options);
  (void)printf("expandable segments: %s, caching: %s\n", options.expandable_segments ? "yes" : "no",
               tide_device_is_caching(device) ? "yes" : "no");
  must(memory.release(&memory, address));
  must(tide_device_close_stream(device, other));  // before a stream is destroyed whose blocks are still there
}

int main(void) {
  tide_host_options computer = TIDE_HOST_OPTIONS_INIT;
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_machine* machine = NULL;
  tide_device_cache* device = NULL;
  tide_stream stream = NULL;
  tide_stream other = NULL;
  tide_block block;
  tide_block again;
  tide_observer observer = 0;
  tide_observer entries = 0;
  computer.capacity = 128 * MIB;
  must(tide_machine_new_host(&computer, &machine));
  must(tide_machine_stream_new(machine, 0, 0, 0, &stream));
  must(tide_machine_stream_new(machine, 0, 0, 0, &other));
  must(tide_device_options_from_env(&options));  // as a user set them; and our own on top
  must(tide_device_options_parse("expandable_segments:True", &options));
  must(tide_device_new(machine, 0, &options, &device));
  must(tide_device_observe_entries(device, say_entry, NULL, &entries));

  must(tide_device_alloc(device, stream, MIB, &block));
  must(tide_machine_fill(machine, 0, other, block.address, 7, MIB));
  must(tide_device_record(device, block, other));  // `other` uses it as well
  tide_device_release(device, block);              // no need to wait for the fill
  must(tide_device_alloc(device, stream, MIB, &again));
  (void)printf("handed out again at once: %s\n", again.address == block.address ? "yes" : "no, it is in use");
  tide_device_release(device, again);

  tide_device_detach(device, entries);

  use_pool(device, stream);
  look_around(device, stream, other);
  must(tide_device_observe_oom(device, say_oom, NULL, &observer));
  const bool is_refused = tide_device_alloc(device, stream, 1024 * MIB, &block) == TIDE_ERR_NO_MEMORY;
  tide_device_detach(device, observer);
  tide_device_free(device);
  tide_machine_free(machine);
  return is_refused ? 0 : 1;
}
