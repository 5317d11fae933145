// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A tour on the memory of this computer: two concurrent streams, an asynchronous copy ordered by an event, a
// growing address range in which the same memory is mapped twice, and the caching allocator, which reuses
// memory without waiting and reports why a request fails.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemark/tidemark.h"

#define MIB ((size_t)1 << 20)
#define CHUNK (2 * MIB)
#define COUNT ((size_t)16)

static tide_machine* machine;
static uint64_t begin_ns;

// Ends the program with the reason if a call fails.
static void must(tide_status status) {
  if (status == TIDE_OK) return;
  (void)fprintf(stderr, "demo: %s: %s\n", tide_status_name(status), tide_last_error()->text);
  exit(1);
}

static uint64_t clock_ns(void) {
  uint64_t ns = 0;
  must(tide_machine_clock(machine, &ns));
  return ns;
}

static void start(const char* what) {
  (void)printf("%s\n", what);
  begin_ns = clock_ns();
}

static void done(const char* what) {
  (void)printf("  %8.3f ms  %s\n", (double)(clock_ns() - begin_ns) / 1e6, what);
}

static void check(bool is_right, const char* what) {
  if (is_right) return;
  (void)fprintf(stderr, "demo: wrong result: %s\n", what);
  exit(1);
}

// Host work of about 30 ms, to show what runs concurrently.
static void work(void* user) {
  volatile uint64_t* sum = user;
  for (uint64_t i = 0; i < 20000000; i++) *sum += i;
}

static void show_streams(void) {
  tide_stream first = NULL;
  tide_stream second = NULL;
  static uint64_t sums[2];
  must(tide_machine_stream_new(machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &first));
  must(tide_machine_stream_new(machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &second));
  start("Two streams, the same work on both:");
  must(tide_machine_call(machine, 0, first, work, &sums[0]));
  must(tide_machine_stream_synchronize(machine, 0, first));
  done("on one stream");
  begin_ns = clock_ns();
  must(tide_machine_call(machine, 0, first, work, &sums[0]));
  must(tide_machine_call(machine, 0, second, work, &sums[1]));
  done("queued on both: the caller does not wait");
  must(tide_machine_device_synchronize(machine, 0));
  done("done on both");
  must(tide_machine_stream_free(machine, 0, first));
  must(tide_machine_stream_free(machine, 0, second));
}

static void show_copy(void) {
  const size_t bytes = 64 * MIB;
  tide_stream copier = NULL;
  tide_stream user = NULL;
  tide_event copied = NULL;
  void* pinned = NULL;
  void* memory = NULL;
  void* result = NULL;
  must(tide_machine_stream_new(machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &copier));
  must(tide_machine_stream_new(machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &user));
  must(tide_machine_event_new(machine, 0, &copied));
  must(tide_machine_pinned_alloc(machine, bytes, &pinned));
  must(tide_machine_raw_alloc(machine, 0, bytes, &memory));
  must(tide_machine_raw_alloc(machine, 0, bytes, &result));
  for (size_t i = 0; i < bytes; i++) ((unsigned char*)pinned)[i] = (unsigned char)(i * 31 >> 4);
  start("A copy of 64 MiB from pinned memory, and a second stream that waits for it by an event:");
  must(tide_machine_copy(machine, 0, copier, memory, pinned, bytes));
  must(tide_machine_event_record(machine, 0, copied, copier));
  must(tide_machine_stream_wait(machine, 0, user, copied));
  must(tide_machine_copy(machine, 0, user, result, memory, bytes));
  done("queued");
  must(tide_machine_event_synchronize(machine, copied));
  done("the copy is done");
  must(tide_machine_stream_synchronize(machine, 0, user));
  done("and so is the work after it");
  check(memcmp(pinned, result, bytes) == 0, "the second stream read before the copy was done");
  must(tide_machine_raw_release(machine, 0, memory));
  must(tide_machine_raw_release(machine, 0, result));
  must(tide_machine_pinned_release(machine, pinned));
  must(tide_machine_event_free(machine, copied));
  must(tide_machine_stream_free(machine, 0, copier));
  must(tide_machine_stream_free(machine, 0, user));
}

static void show_growth(void) {
  void* range = NULL;
  tide_physical parts[COUNT];
  must(tide_machine_address_reserve(machine, 0, 2 * COUNT * CHUNK, 0, NULL, &range));
  unsigned char* const base = range;
  start("A range of addresses that grows by 2 MiB at a time and never moves:");
  for (size_t i = 0; i < COUNT; i++) {
    must(tide_machine_physical_new(machine, 0, CHUNK, 0, &parts[i]));
    must(tide_machine_map(machine, base + i * CHUNK, parts[i]));
    must(tide_machine_set_access(machine, base + i * CHUNK, CHUNK, 0, TIDE_ACCESS_READ_WRITE));
    memset(base + i * CHUNK, (int)i + 1, CHUNK);
  }
  done("grown to 32 MiB and written");
  begin_ns = clock_ns();
  unsigned char* const again = base + COUNT * CHUNK;
  for (size_t i = 0; i < COUNT; i++) must(tide_machine_map(machine, again + i * CHUNK, parts[COUNT - 1 - i]));
  must(tide_machine_set_access(machine, again, COUNT * CHUNK, 0, TIDE_ACCESS_READ));
  done("the same memory mapped once more, in reverse order");
  for (size_t i = 0; i < COUNT; i++)
    check(again[i * CHUNK] == COUNT - i, "the second view shows other memory");
  must(tide_machine_unmap(machine, base, 2 * COUNT * CHUNK));
  for (size_t i = 0; i < COUNT; i++) must(tide_machine_physical_free(machine, parts[i]));
  must(tide_machine_address_release(machine, base, 2 * COUNT * CHUNK));
}

static void show_allocator(void) {
  tide_device_cache* device = NULL;
  tide_stream stream = NULL;
  tide_block block;
  must(tide_machine_stream_new(machine, 0, 0, 0, &stream));
  must(tide_device_new(machine, 0, NULL, &device));
  start("The caching allocator:");
  must(tide_device_alloc(device, stream, 32 * MIB, &block));
  done("32 MiB from the machine");
  must(tide_machine_fill(machine, 0, stream, block.address, 1, 32 * MIB));
  must(tide_device_release(device, block));
  void* const address = block.address;
  begin_ns = clock_ns();
  must(tide_device_alloc(device, stream, 32 * MIB, &block));
  done("and again, from the cache, while the first user still works");
  check(block.address == address, "the cache gives the same memory");
  must(tide_device_set_limit(device, 64 * MIB));
  check(tide_device_alloc(device, stream, 48 * MIB, &block) == TIDE_ERR_NO_MEMORY, "the limit holds");
  (void)printf("  %s\n", tide_device_last_oom()->text);
  tide_device_free(device);
  must(tide_machine_stream_free(machine, 0, stream));
}

int main(void) {
  must(tide_machine_new_host(NULL, &machine));
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  must(tide_machine_device_info(machine, 0, &info));
  (void)printf("Tidemark %s on %s: %.1f GiB\n\n", tide_version(), info.name,
               (double)info.total_bytes / (1 << 30));
  show_streams();
  show_copy();
  show_growth();
  show_allocator();
  const tide_call_stats calls = tide_machine_call_stats(machine, TIDE_CALL_ANY);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  must(tide_machine_memory_info(machine, 0, &free_bytes, &total_bytes));
  (void)printf("\n%llu calls, %llu failed, %zu bytes not released\n", (unsigned long long)calls.calls,
               (unsigned long long)calls.failures, total_bytes - free_bytes);
  tide_machine_free(machine);
  return 0;
}
