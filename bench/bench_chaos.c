// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Programs without a pattern of sizes, on the dry machine: the time of driver calls for an allocation, and
// how much of the reserved memory is in use at the peaks. Between two allocations pass 20 us, about what
// Python needs. This time is virtual, so that these rows are the same on every computer. The processor time
// of an allocation, with its release and the load itself, is not. pytorch/bench/chaos.py runs such loads on a
// GPU.
//
// For a profile, TIDE_BENCH_LOAD=NAME runs one load with the options in TIDE_BENCH_OPTIONS (policy:tide).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "tidemark/device.h"
#include "tidemark/machine.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
enum { CALL_NS = 20000, WARM = 50000, REQUESTS = 100000, LIVE_MOST = 8192, SESSIONS_MOST = 4096 };

typedef struct rig {
  tide_machine* machine;
  tide_device_cache* device;
  tide_stream streams[3];
  uint64_t random;
  uint64_t requests;
  uint64_t begin_ns;  // at the WARM-th request
  uint64_t begin_processor_ns;
} rig;

static double chaos_draw(rig* r) { return (double)(bench_random(&r->random) >> 11) / 9007199254740992.0; }

static uint64_t clock_ns(const rig* r) {
  uint64_t ns = 0;
  bench_require(tide_machine_clock(r->machine, &ns), "machine_clock");
  return ns;
}

static void chaos_begin(rig* r) {
  r->begin_ns = clock_ns(r);
  r->begin_processor_ns = bench_processor_now();
}

static tide_block chaos_take(rig* r, size_t bytes, size_t stream) {
  tide_block block;
  if (r->requests++ == WARM) chaos_begin(r);
  bench_require(tide_dry_advance(r->machine, CALL_NS), "dry_advance");
  bench_require(tide_device_alloc(r->device, r->streams[stream], bytes, &block), "device_alloc");
  return block;
}

static void chaos_give(rig* r, tide_block block) {
  bench_require(tide_device_release(r->device, block), "device_release");
}

static void chaos_use(rig* r, tide_block block, size_t stream) {
  bench_require(tide_device_record(r->device, block, r->streams[stream]), "device_record");
}

// ---------------------------------------------------------------------------------------------------
// Loads

// Blocks of 512 B to 512 MiB on three streams, released in random order; 12 to 20 GiB are live.
static void sizes_work(rig* r) {
  static tide_block blocks[LIVE_MOST];
  static size_t bytes[LIVE_MOST];
  size_t count = 0;
  double held = 0;
  while (r->requests < REQUESTS) {
    const size_t stream = (size_t)(chaos_draw(r) * 3);
    bytes[count] = (size_t)((double)((size_t)512 << (size_t)(chaos_draw(r) * 20)) * (1 + chaos_draw(r)));
    blocks[count] = chaos_take(r, bytes[count], stream);
    if (chaos_draw(r) < 0.2) chaos_use(r, blocks[count], (stream + 1) % 3);
    held += (double)bytes[count++];
    while (count == LIVE_MOST || held > (double)(20 * GIB) * (0.6 + 0.4 * chaos_draw(r))) {
      const size_t i = (size_t)(chaos_draw(r) * (double)count);
      chaos_give(r, blocks[i]);
      held -= (double)bytes[i];
      blocks[i] = blocks[--count];
      bytes[i] = bytes[count];
    }
  }
}

enum { TOKEN_BYTES = 8 << 10, SESSION_BLOCKS = 8, SERVED_TOKENS = 1 << 17, GROWTH_TOKENS = 64 };

typedef struct session {
  size_t tokens;
  tide_block blocks[SESSION_BLOCKS];
} session;

static session session_begin(rig* r, size_t tokens) {
  session s = { .tokens = tokens };
  tide_block work[3];
  for (size_t i = 0; i < 3; i++) work[i] = chaos_take(r, tokens * TOKEN_BYTES * (2 * i + 3) / 2, 0);
  for (size_t i = 0; i < SESSION_BLOCKS; i++) {
    s.blocks[i] = chaos_take(r, tokens * TOKEN_BYTES, 0);
    chaos_use(r, s.blocks[i], 1);
  }
  for (size_t i = 0; i < 3; i++) chaos_give(r, work[i]);
  return s;
}

static void session_grow(rig* r, session* s) {
  s->tokens += GROWTH_TOKENS;
  for (size_t i = 0; i < SESSION_BLOCKS; i++) {
    const tide_block larger = chaos_take(r, s->tokens * TOKEN_BYTES, 1);
    chaos_give(r, s->blocks[i]);
    s->blocks[i] = larger;
  }
}

// Sessions of 32 to 8192 tokens come, grow, and go, beside weights of 4 GiB.
static void server_work(rig* r) {
  static session sessions[SESSIONS_MOST];
  size_t count = 0;
  size_t served = 0;
  for (size_t i = 0; i < 32; i++) (void)chaos_take(r, 128 * MIB, 0);
  while (r->requests < REQUESTS) {
    const size_t tokens = (size_t)((double)((size_t)32 << (size_t)(chaos_draw(r) * 8)) * (1 + chaos_draw(r)));
    if (served + tokens <= SERVED_TOKENS && count < SESSIONS_MOST) {
      sessions[count++] = session_begin(r, tokens);
      served += tokens;
    }
    session* const s = &sessions[(size_t)(chaos_draw(r) * (double)count)];
    if (chaos_draw(r) < 1.0 / 16 || served + GROWTH_TOKENS > SERVED_TOKENS) {
      for (size_t i = 0; i < SESSION_BLOCKS; i++) chaos_give(r, s->blocks[i]);
      served -= s->tokens;
      *s = sessions[--count];
    } else {
      session_grow(r, s);
      served += GROWTH_TOKENS;
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Runs

typedef struct load {
  const char* name;
  void (*work)(rig* r);
} load;

static const load loads[] = { { "sizes", sizes_work }, { "server", server_work } };

static void measure_load(bench* run, const load* l, const char* options_text) {
  char what[128];
  rig r = { .random = 88172645463325252u };
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  bench_require(tide_device_options_parse(options_text, &options), options_text);
  bench_require(tide_machine_new_dry(NULL, &r.machine), "machine_new_dry");
  bench_require(tide_device_new(r.machine, 0, &options, &r.device), "device_new");
  for (size_t i = 0; i < 3; i++)
    bench_require(tide_machine_stream_new(r.machine, 0, 0, 0, &r.streams[i]), "stream_new");

  l->work(&r);
  const uint64_t end_processor_ns = bench_processor_now();

  bench_require(tide_device_get_stats(r.device, &stats), "device_get_stats");
  const double counted = (double)(r.requests - WARM);
  (void)snprintf(what, sizeof what, "%s, %s: driver time", l->name, options_text);
  bench_row(run, "chaos", what, (double)(clock_ns(&r) - r.begin_ns) / counted - CALL_NS, "ns");
  (void)snprintf(what, sizeof what, "%s, %s: processor time", l->name, options_text);
  bench_row(run, "chaos", what, (double)(end_processor_ns - r.begin_processor_ns) / counted, "ns");
  (void)snprintf(what, sizeof what, "%s, %s: in use", l->name, options_text);
  bench_row(run, "chaos", what,
            (double)stats.allocated_bytes[TIDE_STAT_ALL].peak /
                (double)stats.reserved_bytes[TIDE_STAT_ALL].peak,
            "of reserved");
  tide_device_free(r.device);
  tide_machine_free(r.machine);
}

// For a profile; false if the environment names no load.
static bool measure_one(bench* run) {
  const char* const name = getenv("TIDE_BENCH_LOAD");
  const char* const options_text = getenv("TIDE_BENCH_OPTIONS");
  for (size_t i = 0; name != NULL && i < sizeof loads / sizeof *loads; i++) {
    if (strcmp(name, loads[i].name) != 0) continue;
    measure_load(run, &loads[i], options_text != NULL ? options_text : "policy:tide");
    return true;
  }
  return false;
}

// The server makes few views: it is never in a hurry.
enum { SERVED_SETTINGS = 3 };

void bench_chaos(bench* run) {
  static const char* const settings[] = {
    "policy:torch",
    "expandable_segments:True",
    "policy:tide",
    "policy:tide,tide_stitch_share:1",
    "policy:tide,tide_most_slack:0.05",
    "policy:tide,tide_most_slack:0.08",
    "policy:tide,tide_most_slack:0.1",
    "policy:tide,tide_most_slack:0.12",
    "policy:tide,tide_most_slack:0.14",
    "policy:tide,tide_most_slack:0.16",
    "policy:tide,tide_most_slack:0.2",
    "policy:tide,tide_most_slack:0.3",
  };
  if (measure_one(run)) return;
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    measure_load(run, &loads[0], settings[i]);
    if (i < SERVED_SETTINGS) measure_load(run, &loads[1], settings[i]);
  }
}
