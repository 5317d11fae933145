// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How fast memory is parked and unparked, beside a plain copy of the same run and beside the way of other
// tools: a synchronous copy for each block into memory of tide_machine_pinned_alloc().
//
//   tidemark_bench_park [--machine host|dry|cuda] [--mib N] [--least MIB] [--most MIB] [--idle PERCENT]
//                       [--backup pinned|pageable|file] [--folder PATH] [--rounds N] [--peer-mib N]
//                       [--pause MS] [--handle MIB] [--no-check]
//
// The driver clears memory that was released, in the background, and copies to the device wait for that.
// --pause waits so long after other memory was released, and before the pool is unparked.
//
// Blocks of random sizes are allocated in a tagged pool, and some of them are released again, so that a part
// of the memory is idle. Every byte is checked after it came back. On dry, times are those of the virtual
// clock.
#define _GNU_SOURCE

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tidemark/device.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define PATTERN_BYTES (64 * MIB)
#define PLAIN_BYTES (4 * GIB)

typedef struct park_bench {
  // What was asked for.
  const char* machine_name;
  uint64_t bytes;
  uint64_t least;
  uint64_t most;
  uint64_t idle_percent;
  uint64_t peer_bytes;
  uint64_t rounds;
  uint64_t pause_ms;
  uint64_t handle_bytes;  // the largest handle; 0: the default
  bool checks;
  tide_park_options how;
  // What is there.
  tide_machine* machine;
  tide_device_cache* device;
  tide_pool pool;
  tide_stream stream;
  tide_block* blocks;  // owned
  uint64_t* sizes;     // owned
  size_t count;
  size_t capacity;
  uint64_t live_bytes;
  uint8_t* pattern;  // page-locked
  uint8_t* copy;     // page-locked
  uint64_t random;
  double plain[2];  // GiB/s to the host, and to the device
} park_bench;

static void need(tide_status status, const char* what) {
  if (status == TIDE_OK) return;
  (void)fprintf(stderr, "tidemark_bench_park: %s: %s: %s\n", what, tide_status_name(status),
                tide_last_error()->text);
  exit(1);
}

static void refuse(const char* text, const char* what) {
  (void)fprintf(stderr, "tidemark_bench_park: %s: %s\n", text, what);
  exit(1);
}

static uint64_t next_random(park_bench* b) {
  b->random ^= b->random << 13;
  b->random ^= b->random >> 7;
  b->random ^= b->random << 17;
  return b->random;
}

static uint64_t now_ns(park_bench* b) {
  uint64_t ns = 0;
  need(tide_machine_clock(b->machine, &ns), "clock");
  return ns;
}

static bool has_memory(const park_bench* b) { return strcmp(b->machine_name, "dry") != 0; }

static void row(const char* what, double value, const char* unit) {
  (void)printf("%-52s %10.*f %s\n", what, value < 100 ? 2 : 0, value, unit);
  (void)fflush(stdout);
}

static double rate(uint64_t bytes, uint64_t ns) {
  return ns == 0 ? 0 : (double)bytes / (double)GIB / ((double)ns / 1e9);
}

static void row_rate(const char* what, uint64_t bytes, uint64_t ns) {
  char label[80];
  (void)snprintf(label, sizeof label, "%s (%.0f ms)", what, (double)ns / 1e6);
  row(label, rate(bytes, ns), "GiB/s");
}

// ---------------------------------------------------------------------------------------------------
// Page-locked memory, and copies

static uint8_t* pages_new(park_bench* b, uint64_t bytes) {
  void* const pages =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) refuse("mmap", "no memory");
  (void)madvise(pages, bytes, MADV_HUGEPAGE);
  if (has_memory(b)) memset(pages, 0, bytes);
  need(tide_machine_pinned_register(b->machine, pages, bytes), "pinned_register");
  return pages;
}

static void pages_free(park_bench* b, uint8_t* pages, uint64_t bytes) {
  need(tide_machine_pinned_unregister(b->machine, pages), "pinned_unregister");
  (void)munmap(pages, bytes);
}

static void copy_now(park_bench* b, void* to, const void* from, uint64_t bytes) {
  need(tide_machine_copy(b->machine, 0, b->stream, to, from, bytes), "copy");
  need(tide_machine_stream_synchronize(b->machine, 0, b->stream), "stream_synchronize");
}

// The best of three, in both directions.
static void plain_measure(park_bench* b) {
  void* memory = NULL;
  const uint64_t bytes = b->bytes < PLAIN_BYTES ? b->bytes : PLAIN_BYTES;
  uint8_t* const pages = pages_new(b, bytes);
  need(tide_machine_raw_alloc(b->machine, 0, bytes, &memory), "raw_alloc");
  for (int i = 0; i < 6; i++) {
    const uint64_t begin = now_ns(b);
    copy_now(b, i % 2 == 0 ? (void*)pages : memory, i % 2 == 0 ? memory : (void*)pages, bytes);
    const double found = rate(bytes, now_ns(b) - begin);
    if (found > b->plain[i % 2]) b->plain[i % 2] = found;
  }
  need(tide_machine_raw_release(b->machine, 0, memory), "raw_release");
  pages_free(b, pages, bytes);
  row("plain copy to the host", b->plain[0], "GiB/s");
  row("plain copy to the device", b->plain[1], "GiB/s");
}

// ---------------------------------------------------------------------------------------------------
// Blocks and their contents

static void block_add(park_bench* b, uint64_t bytes) {
  if (b->count == b->capacity) {
    b->capacity = b->capacity == 0 ? 1024 : b->capacity * 2;
    b->blocks = realloc(b->blocks, b->capacity * sizeof *b->blocks);
    b->sizes = realloc(b->sizes, b->capacity * sizeof *b->sizes);
    if (b->blocks == NULL || b->sizes == NULL) refuse("blocks", "no memory");
  }
  need(tide_device_alloc(b->device, b->stream, bytes, &b->blocks[b->count]), "alloc");
  b->sizes[b->count++] = bytes;
  b->live_bytes += bytes;
}

static void block_drop(park_bench* b, size_t index) {
  need(tide_device_release(b->device, b->blocks[index]), "release");
  b->live_bytes -= b->sizes[index];
  b->blocks[index] = b->blocks[--b->count];
  b->sizes[index] = b->sizes[b->count];
}

// Sizes are spread evenly over the logarithm.
static uint64_t size_next(park_bench* b) {
  const double u = (double)(next_random(b) >> 11) / 9007199254740992.0;
  const double bytes = (double)b->least * exp(u * log((double)b->most / (double)b->least));
  return ((uint64_t)bytes + 511) / 512 * 512;
}

static void blocks_make(park_bench* b) {
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.is_region = true;
  need(tide_device_pool_begin(b->device, b->pool, &scope), "pool_begin");
  while (b->live_bytes < b->bytes) block_add(b, size_next(b));
  need(tide_device_pool_end(b->device, b->pool), "pool_end");
  const uint64_t wanted = b->live_bytes - b->live_bytes * b->idle_percent / 100;
  while (b->live_bytes > wanted && b->count > 1) block_drop(b, (size_t)(next_random(b) % b->count));
}

// Where the contents of a byte of a block are in the pattern.
static uint64_t pattern_at(size_t block, uint64_t offset) {
  return (block * UINT64_C(40961) * 8 + offset) % PATTERN_BYTES;
}

static void contents_write(park_bench* b) {
  for (size_t i = 0; i < b->count && has_memory(b); i++) {
    for (uint64_t at = 0; at < b->sizes[i];) {
      const uint64_t from = pattern_at(i, at);
      const uint64_t left = b->sizes[i] - at;
      const uint64_t some = left < PATTERN_BYTES - from ? left : PATTERN_BYTES - from;
      uint8_t* const to = (uint8_t*)b->blocks[i].address + at;
      need(tide_machine_copy(b->machine, 0, b->stream, to, b->pattern + from, some), "copy");
      at += some;
    }
  }
  need(tide_machine_stream_synchronize(b->machine, 0, b->stream), "stream_synchronize");
}

static void contents_check(park_bench* b) {
  uint64_t wrong = 0;
  if (!b->checks || !has_memory(b)) return;
  for (size_t i = 0; i < b->count; i++) {
    for (uint64_t at = 0; at < b->sizes[i];) {
      const uint64_t from = pattern_at(i, at);
      const uint64_t left = b->sizes[i] - at;
      const uint64_t some = left < PATTERN_BYTES - from ? left : PATTERN_BYTES - from;
      copy_now(b, b->copy, (uint8_t*)b->blocks[i].address + at, some);
      wrong += memcmp(b->copy, b->pattern + from, some) != 0;
      at += some;
    }
  }
  row("pieces with a wrong byte", (double)wrong, "");
  if (wrong != 0) refuse("contents", "wrong");
}

// ---------------------------------------------------------------------------------------------------
// Parking

// Other memory takes the place of what is parked, and is written.
static void memory_take(park_bench* b, uint64_t bytes) {
  void* other = NULL;
  need(tide_machine_raw_alloc(b->machine, 0, bytes, &other), "raw_alloc while parked");
  need(tide_machine_fill(b->machine, 0, b->stream, other, 0xee, bytes), "fill");
  need(tide_machine_stream_synchronize(b->machine, 0, b->stream), "stream_synchronize");
  need(tide_machine_raw_release(b->machine, 0, other), "raw_release");
}

static void row_against(const char* what, double found, double plain) {
  if (plain > 0) row(what, 100 * found / plain, "% of the plain copy");
}

static void park_measure(park_bench* b, uint64_t round) {
  tide_park_result out = TIDE_PARK_RESULT_INIT;
  const uint64_t begin = now_ns(b);
  need(tide_device_park(b->device, "bench", &b->how, &out), "park");
  const uint64_t ns = now_ns(b) - begin;
  if (round == 0) {
    row("physical memory", (double)out.physical_bytes / (double)GIB, "GiB");
    row("blocks", (double)out.block_bytes / (double)GIB, "GiB");
    row("bytes on the bus", (double)out.copied_bytes / (double)GIB, "GiB");
    row_rate("park, backup included", out.copied_bytes, ns);
  } else {
    row_rate("park", out.copied_bytes, ns);
    row_against("park", rate(out.copied_bytes, ns), b->plain[0]);
  }
  memory_take(b, out.physical_bytes);
  const struct timespec pause = { (time_t)(b->pause_ms / 1000), (long)(b->pause_ms % 1000) * 1000000 };
  (void)nanosleep(&pause, NULL);
}

static void unpark_measure(park_bench* b) {
  tide_park_result out = TIDE_PARK_RESULT_INIT;
  tide_unpark_options how = TIDE_UNPARK_OPTIONS_INIT;
  how.keeps_backup = true;
  const uint64_t begin = now_ns(b);
  need(tide_device_unpark(b->device, "bench", &how, &out), "unpark");
  const uint64_t returned = now_ns(b);
  need(tide_machine_stream_synchronize(b->machine, 0, b->stream), "stream_synchronize");
  const uint64_t ns = now_ns(b) - begin;
  row("unpark, until the call returns", (double)(returned - begin) / 1e6, "ms");
  row_rate("unpark", out.copied_bytes, ns);
  row_against("unpark", rate(out.copied_bytes, ns), b->plain[1]);
  contents_check(b);
}

static void discard_measure(park_bench* b) {
  tide_park_options how = b->how;
  how.backup = TIDE_BACKUP_NONE;
  uint64_t begin = now_ns(b);
  need(tide_device_park(b->device, "bench", &how, NULL), "park");
  row("park, discarding", (double)(now_ns(b) - begin) / 1e6, "ms");
  begin = now_ns(b);
  need(tide_device_unpark(b->device, "bench", NULL, NULL), "unpark");
  row("unpark, discarded", (double)(now_ns(b) - begin) / 1e6, "ms");
}

// ---------------------------------------------------------------------------------------------------
// The way of other tools

static void peers_copy(park_bench* b, void** pages, size_t count, bool is_back, const char* what) {
  uint64_t bytes = 0;
  const uint64_t begin = now_ns(b);
  for (size_t i = 0; i < count; i++) {
    if (pages[i] == NULL) need(tide_machine_pinned_alloc(b->machine, b->sizes[i], &pages[i]), "pinned_alloc");
    if (is_back) copy_now(b, b->blocks[i].address, pages[i], b->sizes[i]);
    else copy_now(b, pages[i], b->blocks[i].address, b->sizes[i]);
    bytes += b->sizes[i];
  }
  row_rate(what, bytes, now_ns(b) - begin);
}

static void peers_measure(park_bench* b) {
  size_t count = 0;
  for (uint64_t bytes = 0; count < b->count && bytes < b->peer_bytes; count++) bytes += b->sizes[count];
  void** const pages = calloc(count + 1, sizeof *pages);
  if (pages == NULL) refuse("peers", "no memory");
  peers_copy(b, pages, count, false, "a copy for each block, memory included");
  peers_copy(b, pages, count, false, "a copy for each block");
  peers_copy(b, pages, count, true, "a copy back for each block");
  for (size_t i = 0; i < count; i++)
    need(tide_machine_pinned_release(b->machine, pages[i]), "pinned_release");
  free(pages);
}

// ---------------------------------------------------------------------------------------------------
// The program

static uint64_t number(const char* text, const char* option) {
  char* end = NULL;
  const unsigned long long value = strtoull(text, &end, 10);
  if (end == text || *end != '\0') refuse(option, "needs a number");
  return value;
}

static uint32_t backup_of(const char* text) {
  if (strcmp(text, "pinned") == 0) return TIDE_BACKUP_PINNED;
  if (strcmp(text, "pageable") == 0) return TIDE_BACKUP_PAGEABLE;
  if (strcmp(text, "file") == 0) return TIDE_BACKUP_FILE;
  refuse("--backup", "pinned, pageable or file");
  return 0;
}

static void option_read(park_bench* b, const char* name, const char* value) {
  if (strcmp(name, "--machine") == 0) b->machine_name = value;
  else if (strcmp(name, "--mib") == 0) b->bytes = number(value, name) * MIB;
  else if (strcmp(name, "--least") == 0) b->least = number(value, name) * MIB;
  else if (strcmp(name, "--most") == 0) b->most = number(value, name) * MIB;
  else if (strcmp(name, "--idle") == 0) b->idle_percent = number(value, name);
  else if (strcmp(name, "--peer-mib") == 0) b->peer_bytes = number(value, name) * MIB;
  else if (strcmp(name, "--rounds") == 0) b->rounds = number(value, name);
  else if (strcmp(name, "--pause") == 0) b->pause_ms = number(value, name);
  else if (strcmp(name, "--handle") == 0) b->handle_bytes = number(value, name) * MIB;
  else if (strcmp(name, "--backup") == 0) b->how.backup = backup_of(value);
  else if (strcmp(name, "--folder") == 0) b->how.folder = value;
  else refuse(name, "unknown option");
}

static void options_read(park_bench* b, int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--no-check") == 0) {
      b->checks = false;
      continue;
    }
    if (i + 1 == argc) refuse(argv[i], "needs a value");
    option_read(b, argv[i], argv[i + 1]);
    i++;
  }
  if (b->least == 0 || b->most < b->least || b->idle_percent > 90) refuse("sizes", "out of range");
}

static void machine_open(park_bench* b) {
  tide_host_options host = TIDE_HOST_OPTIONS_INIT;
  host.capacity = b->bytes * 3;
  if (strcmp(b->machine_name, "host") == 0) need(tide_machine_new_host(&host, &b->machine), "host");
  else if (strcmp(b->machine_name, "dry") == 0) need(tide_machine_new_dry(NULL, &b->machine), "dry");
  else if (strcmp(b->machine_name, "cuda") == 0) need(tide_machine_new_cuda(NULL, &b->machine), "cuda");
  else refuse(b->machine_name, "is not a machine");
}

static void bench_open(park_bench* b) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_pool_options pool = TIDE_POOL_OPTIONS_INIT;
  options.policy = TIDE_POLICY_TIDE;
  if (b->handle_bytes != 0) options.tide_most_handle_bytes = b->handle_bytes;
  pool.tag = "bench";
  machine_open(b);
  need(tide_machine_stream_new(b->machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &b->stream), "stream_new");
  need(tide_device_new(b->machine, 0, &options, &b->device), "device_new");
  need(tide_device_pool_new(b->device, &pool, &b->pool), "pool_new");
  b->pattern = pages_new(b, PATTERN_BYTES);
  b->copy = pages_new(b, PATTERN_BYTES);
  for (uint64_t i = 0; i < PATTERN_BYTES && has_memory(b); i += 8) {
    const uint64_t word = next_random(b);
    memcpy(b->pattern + i, &word, sizeof word);
  }
}

static void bench_close(park_bench* b) {
  while (b->count > 0) block_drop(b, b->count - 1);
  need(tide_device_pool_drop(b->device, b->pool), "pool_drop");
  tide_device_free(b->device);
  pages_free(b, b->pattern, PATTERN_BYTES);
  pages_free(b, b->copy, PATTERN_BYTES);
  need(tide_machine_stream_free(b->machine, 0, b->stream), "stream_free");
  tide_machine_free(b->machine);
  free(b->blocks);
  free(b->sizes);
}

int main(int argc, char** argv) {
  park_bench b = { .machine_name = "host",
                   .bytes = 256 * MIB,
                   .least = MIB,
                   .most = 32 * MIB,
                   .idle_percent = 10,
                   .peer_bytes = 8 * GIB,
                   .rounds = 3,
                   .checks = true,
                   .how = TIDE_PARK_OPTIONS_INIT,
                   .random = 1 };
  options_read(&b, argc, argv);
  bench_open(&b);
  blocks_make(&b);
  row("blocks that are handed out", (double)b.count, "");
  row("handles", (double)tide_machine_call_stats(b.machine, TIDE_CALL_PHYSICAL_NEW).calls, "");
  plain_measure(&b);
  contents_write(&b);
  for (uint64_t i = 0; i < b.rounds; i++) {
    park_measure(&b, i);
    unpark_measure(&b);
  }
  discard_measure(&b);
  discard_measure(&b);
  peers_measure(&b);
  bench_close(&b);
  return 0;
}
