// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics as readable tables.
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tidemark/report.h"

enum { LINE_BYTES = 256 };

// Prints to a sink. After the first failure nothing more is written.
typedef struct stats_printer {
  const tide_sink* sink;  // borrowed during the call
  tide_status status;
} stats_printer;

static void put(stats_printer* p, const char* format, ...) __attribute__((format(printf, 2, 3)));
static void put(stats_printer* p, const char* format, ...) {
  char line[LINE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length <= 0 || p->status != TIDE_OK) return;
  const size_t bytes = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
  p->status = p->sink->write(p->sink->user, line, bytes);
}

static void put_number(stats_printer* p, int64_t number, bool is_bytes) {
  char text[TIDE_SIZE_TEXT];
  if (is_bytes && number >= 0) put(p, " %14s", tide_size_text((uint64_t)number, text));
  else put(p, " %14" PRId64, number);
}

// A statistic counts bytes if its name says so.
static bool name_is_of_bytes(const char* name) { return strstr(name, "bytes") != NULL; }

static void put_stat(stats_printer* p, const char* name, const tide_stat* stat) {
  const bool is_bytes = name_is_of_bytes(name);
  put(p, "%-24s", name);
  put_number(p, stat->current, is_bytes);
  put_number(p, stat->peak, is_bytes);
  put_number(p, stat->allocated, is_bytes);
  put_number(p, stat->freed, is_bytes);
  put(p, "\n");
}

static void put_head(stats_printer* p) {
  put(p, "%-24s %14s %14s %14s %14s\n", "", "current", "peak", "allocated", "freed");
}

static void put_count(stats_printer* p, const char* name, uint64_t count) {
  put(p, "%-24s", name);
  put_number(p, (int64_t)count, name_is_of_bytes(name));
  put(p, "\n");
}

static void put_duration(stats_printer* p, const char* name, const tide_duration* d) {
  put(p, "%-24s %14" PRIu64 " calls, %" PRIu64 " us in all, %" PRIu64 " us at most\n", name, d->count,
      d->total_ns / 1000, d->max_ns / 1000);
}

static tide_status sink_check(const char* call, const void* cache, const tide_sink* sink) {
  TIDE_REQUIRE(cache != NULL && sink != NULL && sink->write != NULL, TIDE_ERR_ARGUMENT,
               "%s: cache or sink is NULL", call);
  return TIDE_OK;
}

tide_status tide_device_print_stats(tide_device_cache* device, const tide_sink* sink) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  stats_printer p = { sink, TIDE_OK };
  TIDE_TRY(sink_check("device_print_stats", device, sink));
  TIDE_TRY(tide_device_get_stats(device, &stats));
  put(&p, "device %d of the machine %s, policy %s\n", tide_device_index(device),
      tide_machine_name(tide_device_machine(device)), tide_device_name(device));
  put_head(&p);
#define PUT_STAT(name) put_stat(&p, #name, &stats.name[TIDE_STAT_ALL]);
  TIDE_DEVICE_STAT_MAP(PUT_STAT)
#undef PUT_STAT
  put_stat(&p, "oversize_allocations", &stats.oversize_allocations);
  put_stat(&p, "oversize_segments", &stats.oversize_segments);
#define PUT_COUNT(name) put_count(&p, #name, (uint64_t)stats.name);
  TIDE_DEVICE_COUNTER_MAP(PUT_COUNT)
#undef PUT_COUNT
  return p.status;
}

tide_status tide_pinned_print_stats(tide_pinned_cache* pinned, const tide_sink* sink) {
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  stats_printer p = { sink, TIDE_OK };
  TIDE_TRY(sink_check("pinned_print_stats", pinned, sink));
  TIDE_TRY(tide_pinned_get_stats(pinned, &stats));
  put(&p, "pinned memory of the machine %s\n", tide_machine_name(tide_pinned_machine(pinned)));
  const char* const reason = tide_pinned_fallback_reason(pinned);
  if (*reason != '\0') put(&p, "pages are not registered: %s\n", reason);
  put_head(&p);
#define PUT_STAT(name) put_stat(&p, #name, &stats.name);
  TIDE_PINNED_STAT_MAP(PUT_STAT)
#undef PUT_STAT
  put_duration(&p, "host_alloc_time", &stats.host_alloc_time);
  put_duration(&p, "host_free_time", &stats.host_free_time);
#define PUT_COUNT(name) put_count(&p, #name, (uint64_t)stats.name);
  TIDE_PINNED_COUNTER_MAP(PUT_COUNT)
#undef PUT_COUNT
  return p.status;
}

tide_status tide_cpu_print_stats(tide_cpu_cache* cache, const tide_sink* sink) {
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  stats_printer p = { sink, TIDE_OK };
  TIDE_TRY(sink_check("cpu_print_stats", cache, sink));
  TIDE_TRY(tide_cpu_get_stats(cache, &stats));
  put(&p, "memory of CPU tensors, %" PRIu32 " threads\n", stats.threads);
  put_head(&p);
#define PUT_STAT(name) put_stat(&p, #name, &stats.name);
  TIDE_CPU_STAT_MAP(PUT_STAT)
#undef PUT_STAT
  put_count(&p, "cached_bytes", stats.cached_bytes);
  put_count(&p, "address_bytes", stats.address_bytes);
#define PUT_COUNT(name) put_count(&p, #name, (uint64_t)stats.name);
  TIDE_CPU_COUNTER_MAP(PUT_COUNT)
#undef PUT_COUNT
  return p.status;
}
