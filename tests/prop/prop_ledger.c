// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Model test of the ledger. The model is a map of memory in granules of 512 bytes, with the segment and the
// block of each. It makes random traces as an allocator with PyTorch's rules would, and notes the state after
// every entry. The ledger must show the same state at every entry, also if the first entries are cut off. The
// same holds for the history of a real allocator, with room for all entries or for the newest only. Random
// entries, which mostly contradict each other, must leave a consistent ledger.
//
// A failure prints the entries up to it as calls of trace_add().
#include "ledger/recorded.h"
#include "tidemark/machine.h"

#define BASE ((uint64_t)0x600000000000)
#define GRANULE 512u
#define GRANULES (64 * MIB / GRANULE)
#define CHUNK (2 * MIB / GRANULE)  // segments begin and end at multiples of it
#define STREAMS 2u
#define OBJECTS 4000u
#define ENTRIES 260u

// ---------------------------------------------------------------------------------------------------
// The model

typedef struct model_segment {
  uint8_t stream;
  bool is_expandable;
  bool is_large;
} model_segment;

typedef struct model_block {
  uint64_t requested;
  uint32_t state;
} model_block;

typedef struct model {
  uint16_t segment[GRANULES + 1];  // 0: none; the last stays 0
  uint16_t block[GRANULES + 1];    // 0: free
  model_segment segments[OBJECTS];
  model_block blocks[OBJECTS];
  uint16_t segment_count;
  uint16_t block_count;
  const char* options;
  t_rng rng;
  tide_trace* trace;
} model;

// The settings that the model knows.
static const char* const settings[] = { "", "expandable_segments:True", "roundup_power2_divisions:4",
                                        "max_split_size_mb:24", NULL };

static uint64_t model_round(const model* m, uint64_t bytes) {
  uint64_t unit = 512;
  if (strcmp(m->options, "roundup_power2_divisions:4") == 0 && bytes > 2048) {
    uint64_t power = 1;
    while (power * 2 <= bytes) power *= 2;
    unit = power / 4;
  }
  return (bytes + unit - 1) / unit * unit;
}

static bool model_cuts(const model* m, uint64_t bytes, uint64_t rest, bool is_expandable) {
  if (bytes <= MIB || is_expandable || strcmp(m->options, "expandable_segments:True") == 0)
    return rest >= 512;
  if (strcmp(m->options, "max_split_size_mb:24") == 0 && bytes >= 24 * MIB) return false;
  return rest > MIB;
}

// Where the run of granules ends that have the same segment and the same block as the one at `from`.
static size_t model_run_end(const model* m, size_t from) {
  size_t to = from + 1;
  while (to < GRANULES && m->segment[to] == m->segment[from] && m->block[to] == m->block[from]) to++;
  return to;
}

static void model_add(model* m, tide_action action, size_t granule, uint64_t bytes, uint64_t stream) {
  size_t count = 0;
  (void)tide_trace_entries(m->trace, 0, &count);
  const tide_trace_entry entry = { .time_ns = count,
                                   .address = BASE + granule * GRANULE,
                                   .bytes = bytes,
                                   .stream = stream,
                                   .action = (uint8_t)action,
                                   .absent = TIDE_ENTRY_POOL };
  T_OK(tide_trace_add_entry(m->trace, &entry));
}

// Neighbours that are expandable and of one stream are one segment.
static void model_join(model* m) {
  for (size_t i = 1; i < GRANULES; i++) {
    const uint16_t left = m->segment[i - 1];
    const uint16_t right = m->segment[i];
    if (left == right || left == 0 || right == 0) continue;
    const model_segment* const a = &m->segments[left];
    const model_segment* const b = &m->segments[right];
    if (a->is_expandable && b->is_expandable && a->stream == b->stream) m->segment[i] = left;
  }
}

// What is not joined any more is a segment of its own.
static void model_part(model* m) {
  static bool is_seen[OBJECTS];
  memset(is_seen, 0, sizeof is_seen);
  for (size_t i = 0; i < GRANULES; i++) {
    const uint16_t own = m->segment[i];
    if (own == 0 || (i > 0 && m->segment[i - 1] == own)) continue;
    if (!is_seen[own]) {
      is_seen[own] = true;
      continue;
    }
    const uint16_t part = ++m->segment_count;
    m->segments[part] = m->segments[own];
    for (size_t k = i; m->segment[k] == own; k++) m->segment[k] = part;
  }
}

// A place for a segment, at random; false if it is taken.
static bool model_find_gap(model* m, size_t granules, size_t* out) {
  *out = t_rng_below(&m->rng, (GRANULES - granules) / CHUNK + 1) * CHUNK;
  for (size_t i = 0; i < granules; i++) {
    if (m->segment[*out + i] != 0) return false;
  }
  return true;
}

static bool model_make_segment(model* m, bool is_large, bool is_expandable, uint8_t stream) {
  const size_t chunks = is_large ? 10 + t_rng_below(&m->rng, 4) : 1;
  size_t at = 0;
  if (m->segment_count + 2u >= OBJECTS || !model_find_gap(m, chunks * CHUNK, &at)) return false;
  const uint16_t number = ++m->segment_count;
  m->segments[number] = (model_segment){ stream, is_expandable, is_large };
  for (size_t i = 0; i < chunks * CHUNK; i++) m->segment[at + i] = number;
  model_add(m, is_expandable ? TIDE_ACTION_SEGMENT_MAP : TIDE_ACTION_SEGMENT_ALLOC, at,
            chunks * CHUNK * GRANULE, stream);
  if (is_expandable) model_join(m);
  return true;
}

static uint64_t model_size(model* m, bool is_large) {
  const uint64_t n = t_rng_below(&m->rng, 100);
  if (!is_large) return 1 + t_rng_below(&m->rng, n < 50 ? 5000 : 1000000);
  return MIB + 1 + t_rng_below(&m->rng, n < 70 ? 6 * MIB : 26 * MIB);
}

// Gives a free run to a request.
static void model_occupy(model* m, size_t from, uint64_t requested, uint64_t bytes) {
  const size_t room = (model_run_end(m, from) - from) * GRANULE;
  const model_segment* const segment = &m->segments[m->segment[from]];
  const bool is_cut = model_cuts(m, bytes, room - bytes, segment->is_expandable);
  const uint16_t number = ++m->block_count;
  m->blocks[number] = (model_block){ requested, TIDE_BLOCK_ALLOCATED };
  for (size_t i = 0; i < (is_cut ? bytes : room) / GRANULE; i++) m->block[from + i] = number;
  model_add(m, TIDE_ACTION_ALLOC, from, requested, segment->stream);
}

// Takes one of the runs that are large enough, or makes a segment for the next time.
static void model_alloc(model* m) {
  const bool wants_large = t_rng_below(&m->rng, 2) == 0;
  const uint64_t requested = model_size(m, wants_large);
  const uint64_t bytes = model_round(m, requested);
  const bool is_large = bytes > MIB;
  const uint8_t stream = (uint8_t)t_rng_below(&m->rng, STREAMS);
  size_t found[64];
  size_t count = 0;
  if (m->block_count + 1u >= OBJECTS) return;
  for (size_t i = 0; i < GRANULES && count < 64; i = model_run_end(m, i)) {
    const model_segment* const segment = &m->segments[m->segment[i]];
    const bool fits = m->segment[i] != 0 && m->block[i] == 0 && segment->stream == stream &&
                      segment->is_large == is_large && (model_run_end(m, i) - i) * GRANULE >= bytes;
    if (fits) found[count++] = i;
  }
  const bool has_expandable = strcmp(m->options, "expandable_segments:True") == 0;
  const bool is_expandable = has_expandable || (m->options[0] == '\0' && t_rng_below(&m->rng, 4) == 0);
  if (count == 0) (void)model_make_segment(m, is_large, is_expandable, stream);
  else model_occupy(m, found[t_rng_below(&m->rng, count)], requested, bytes);
}

// The first granule of some block in a state, or GRANULES.
static size_t model_pick(model* m, uint32_t state) {
  size_t found = GRANULES;
  uint64_t count = 0;
  for (size_t i = 0; i < GRANULES; i = model_run_end(m, i)) {
    if (m->block[i] == 0 || m->blocks[m->block[i]].state != state) continue;
    if (t_rng_below(&m->rng, ++count) == 0) found = i;
  }
  return found;
}

static void model_request(model* m) {
  const size_t at = model_pick(m, TIDE_BLOCK_ALLOCATED);
  if (at == GRANULES) return;
  model_block* const block = &m->blocks[m->block[at]];
  block->state = TIDE_BLOCK_PENDING;
  model_add(m, TIDE_ACTION_FREE_REQUESTED, at, block->requested, 0);
}

static void model_complete(model* m) {
  const size_t at = model_pick(m, TIDE_BLOCK_PENDING);
  if (at == GRANULES) return;
  const uint64_t requested = m->blocks[m->block[at]].requested;
  const size_t end = model_run_end(m, at);
  for (size_t i = at; i < end; i++) m->block[i] = 0;
  model_add(m, TIDE_ACTION_FREE_COMPLETED, at, requested, 0);
}

// Gives back a free run: a whole segment, or some chunks of an expandable one.
static void model_give_back(model* m) {
  size_t at = t_rng_below(&m->rng, GRANULES / CHUNK) * CHUNK;
  const uint16_t number = m->segment[at];
  if (number == 0 || m->block[at] != 0) return;
  const bool is_expandable = m->segments[number].is_expandable;
  while (!is_expandable && at > 0 && m->segment[at - 1] == number) at--;
  size_t end = model_run_end(m, at) / CHUNK * CHUNK;
  if (m->block[at] != 0 || end <= at || (!is_expandable && m->segment[end] == number)) return;
  if (is_expandable && end - at > CHUNK) end -= t_rng_below(&m->rng, (end - at) / CHUNK) * CHUNK;
  for (size_t i = at; i < end; i++) m->segment[i] = 0;
  model_add(m, is_expandable ? TIDE_ACTION_SEGMENT_UNMAP : TIDE_ACTION_SEGMENT_FREE, at, (end - at) * GRANULE,
            m->segments[number].stream);
  model_part(m);
}

static void model_step(model* m) {
  const uint64_t n = t_rng_below(&m->rng, 100);
  if (n < 50) model_alloc(m);
  else if (n < 70) model_request(m);
  else if (n < 92) model_complete(m);
  else model_give_back(m);
}

// ---------------------------------------------------------------------------------------------------
// What there is, as one number: of everything, and of everything but the sizes of blocks

typedef struct digest {
  uint64_t all;
  uint64_t known;
} digest;

static uint64_t digest_mix(uint64_t state, uint64_t value) {
  return ((state ^ value) * 0x9e3779b97f4a7c15u) ^ (state >> 29);
}

static void digest_add_segment(digest* d, uint64_t address, uint64_t bytes, uint64_t stream,
                               bool is_expandable) {
  d->all = digest_mix(digest_mix(d->all, address), bytes << 8 | stream << 1 | is_expandable);
  d->known = digest_mix(digest_mix(d->known, address), bytes << 8 | stream << 1 | is_expandable);
}

static void digest_add_block(digest* d, uint64_t address, uint64_t bytes, uint64_t requested,
                             uint32_t state) {
  const bool is_used = state != TIDE_BLOCK_INACTIVE;
  d->all = digest_mix(digest_mix(d->all, address), bytes << 8 | state);
  if (is_used) d->all = digest_mix(d->all, requested);
  if (is_used) d->known = digest_mix(digest_mix(d->known, address), requested << 8 | state);
}

static digest model_digest(const model* m) {
  digest d = { 1, 1 };
  for (size_t i = 0; i < GRANULES; i = model_run_end(m, i)) {
    const uint16_t number = m->segment[i];
    if (number == 0) continue;
    if (i == 0 || m->segment[i - 1] != number) {
      size_t end = i;
      while (m->segment[end] == number) end++;
      digest_add_segment(&d, BASE + i * GRANULE, (end - i) * GRANULE, m->segments[number].stream,
                         m->segments[number].is_expandable);
    }
    const model_block* const block = &m->blocks[m->block[i]];
    const uint32_t state = m->block[i] == 0 ? TIDE_BLOCK_INACTIVE : block->state;
    digest_add_block(&d, BASE + i * GRANULE, (model_run_end(m, i) - i) * GRANULE, block->requested, state);
  }
  return d;
}

static bool ledger_digest_segment(void* user, const tide_ledger_segment* s) {
  digest_add_segment(user, s->address, s->bytes, s->stream, s->is_expandable);
  return true;
}

static bool ledger_digest_block(void* user, const tide_ledger_block* b) {
  digest_add_block(user, b->address, b->bytes, b->requested_bytes, b->state);
  return true;
}

static digest ledger_digest(const tide_ledger* ledger) {
  digest d = { 1, 1 };
  tide_ledger_visit(ledger, ledger_digest_segment, ledger_digest_block, &d);
  return d;
}

// ---------------------------------------------------------------------------------------------------
// Traces

static void model_list(const model* m) {
  for (size_t i = 0; i < GRANULES; i = model_run_end(m, i)) {
    const uint16_t number = m->segment[i];
    if (number == 0) continue;
    if (i == 0 || m->segment[i - 1] != number) {
      size_t end = i;
      while (m->segment[end] == number) end++;
      const tide_trace_segment segment = { .address = BASE + i * GRANULE,
                                           .bytes = (end - i) * GRANULE,
                                           .stream = m->segments[number].stream,
                                           .is_large = m->segments[number].is_large,
                                           .is_expandable = m->segments[number].is_expandable };
      T_OK(tide_trace_add_segment(m->trace, &segment));
    }
    const tide_trace_block block = { .address = BASE + i * GRANULE,
                                     .bytes = (model_run_end(m, i) - i) * GRANULE,
                                     .requested_bytes = m->blocks[m->block[i]].requested,
                                     .state = (uint8_t)(m->block[i] == 0 ? TIDE_BLOCK_INACTIVE
                                                                         : m->blocks[m->block[i]].state) };
    T_OK(tide_trace_add_block(m->trace, &block));
  }
}

static tide_trace* empty_trace(const char* options) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  const tide_trace_about about = { .has_segments = true, .has_entries = true };
  tide_trace_set_about(trace, &about);
  T_OK(tide_trace_add_device(trace, 0));
  trace_set_options(trace, options);
  return trace;
}

// A random trace, and what there is after each of its entries.
static size_t model_run(model* m, digest* out, size_t most) {
  size_t count = 0;
  for (size_t tries = 0; count < most && tries < 4 * most; tries++) {
    model_step(m);
    (void)tide_trace_entries(m->trace, 0, &count);
    T_LE(count, most);
    if (count > 0) out[count - 1] = model_digest(m);
  }
  model_list(m);
  return count;
}

// The same without its first entries.
static tide_trace* trace_without(const tide_trace* whole, size_t skip, const char* options) {
  tide_trace* const trace = empty_trace(options);
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(whole, 0, &count);
  for (size_t i = skip; i < count; i++) T_OK(tide_trace_add_entry(trace, &entries[i]));
  const tide_trace_segment* const segments = tide_trace_segments(whole, &count);
  const tide_trace_block* const blocks = tide_trace_blocks(whole, NULL);
  for (size_t i = 0; i < count; i++) {
    T_OK(tide_trace_add_segment(trace, &segments[i]));
    for (size_t k = 0; k < segments[i].block_count; k++) {
      T_OK(tide_trace_add_block(trace, &blocks[segments[i].first_block + k]));
    }
  }
  return trace;
}

__attribute__((noreturn)) static void fail_with(const tide_trace* trace, size_t at, const char* what) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  for (size_t i = 0; i < count && i <= at; i++) {
    (void)fprintf(stderr, "  trace_add(trace, %u, 0x%" PRIx64 ", %" PRIu64 ");  // %s, stream %" PRIu64 "\n",
                  entries[i].action, entries[i].address, entries[i].bytes,
                  tide_action_name(entries[i].action), entries[i].stream);
  }
  T_FAIL("%s at entry %zu of %zu", what, at, count);
}

// ---------------------------------------------------------------------------------------------------
// Whatever the trace: the parts of a ledger fit together

typedef struct sums {
  tide_ledger_totals totals;
  tide_ledger_segment segment;
  uint64_t next;    // where the next block of the segment begins
  uint64_t active;  // bytes of the segment
  uint64_t blocks;  // of the segment
  bool was_free;
  bool is_good;
} sums;

static bool sums_segment(void* user, const tide_ledger_segment* segment) {
  sums* const s = user;
  s->is_good &= s->next == s->segment.address + s->segment.bytes && s->active == s->segment.active_bytes &&
                s->blocks == s->segment.block_count && segment->address >= s->next;
  s->segment = *segment;
  s->next = segment->address;
  s->active = s->blocks = 0;
  s->was_free = false;
  s->totals.reserved_bytes += segment->is_parked ? 0 : segment->bytes;
  s->totals.segment_count += !segment->is_parked;
  return true;
}

static bool sums_block(void* user, const tide_ledger_block* block) {
  sums* const s = user;
  const bool is_free = block->state == TIDE_BLOCK_INACTIVE;
  s->is_good &= block->address == s->next && block->bytes > 0 && !(is_free && s->was_free);
  s->next = block->address + block->bytes;
  s->blocks++;
  s->was_free = is_free;
  if (is_free) return true;
  s->active += block->bytes;
  s->totals.active_bytes += block->bytes;
  s->totals.allocated_bytes += block->state == TIDE_BLOCK_ALLOCATED ? block->bytes : 0;
  s->totals.requested_bytes += block->requested_bytes;
  s->totals.live_bytes += (block->requested_bytes + 511) / 512 * 512;
  s->totals.live_count++;
  return true;
}

static void expect_sane(const tide_ledger* ledger, const tide_trace* trace, size_t at) {
  sums s = { .is_good = true };
  tide_ledger_visit(ledger, sums_segment, sums_block, &s);
  const tide_ledger_segment end = { .address = UINT64_MAX };
  (void)sums_segment(&s, &end);
  s.totals.segment_count--;
  s.totals.at = at;
  const tide_ledger_totals totals = tide_ledger_get_totals(ledger);
  if (!s.is_good || memcmp(&s.totals, &totals, sizeof totals) != 0)
    fail_with(trace, at, "the parts do not fit");
}

// ---------------------------------------------------------------------------------------------------
// Tests

static bool has_faults(const tide_ledger* ledger) {
  const tide_ledger_faults f = tide_ledger_get_faults(ledger);
  return f.unknown_frees + f.homeless_allocs + f.overlaps + f.odd_segments + f.differences != 0;
}

// Every moment of the trace from `skip` on.
static void expect_moments(const tide_trace* trace, const digest* wanted, size_t skip, size_t count,
                           bool is_exact) {
  tide_ledger* ledger = NULL;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  if (has_faults(ledger)) fail_with(trace, count, "there are faults");
  for (size_t at = skip; at < count; at++) {
    T_OK(tide_ledger_seek(ledger, at - skip));
    const digest got = ledger_digest(ledger);
    if (got.known != wanted[at].known) fail_with(trace, at - skip, "segments or blocks differ");
    if (is_exact && got.all != wanted[at].all) fail_with(trace, at - skip, "sizes differ");
    expect_sane(ledger, trace, at - skip);
  }
  tide_ledger_free(ledger);
}

T_TEST_OVER(prop_ledger__shows_what_the_model_has, settings) {
  static model m;
  static digest wanted[ENTRIES];
  for (size_t round = 0; round < t_scaled_alone(2); round++) {
    memset(&m, 0, sizeof m);
    m.options = t_variant();
    m.rng = t_rng_new(round);
    m.trace = empty_trace(t_variant());

    const size_t count = model_run(&m, wanted, ENTRIES);

    expect_moments(m.trace, wanted, 0, count, true);
    tide_trace_free(m.trace);
  }
}

// The size of a block from before is only certain where every rest is cut off.
T_TEST_OVER(prop_ledger__finds_what_was_before, settings) {
  static model m;
  static digest wanted[ENTRIES];
  const bool is_exact = strcmp(t_variant(), "expandable_segments:True") == 0;
  for (size_t round = 0; round < t_scaled_alone(2); round++) {
    memset(&m, 0, sizeof m);
    m.options = t_variant();
    m.rng = t_rng_new(1000 + round);
    m.trace = empty_trace(t_variant());
    const size_t count = model_run(&m, wanted, ENTRIES);

    for (size_t i = 0; i < 20; i++) {
      const size_t skip = t_rng_below(&m.rng, count);
      tide_trace* const trace = trace_without(m.trace, skip, t_variant());
      expect_moments(trace, wanted, skip, count, is_exact);
      tide_trace_free(trace);
    }
    tide_trace_free(m.trace);
  }
}

// ---------------------------------------------------------------------------------------------------
// A living allocator

#define LIVE_BLOCKS 40u
#define LIVE_STREAMS 3u

typedef struct live_run {
  tide_machine* machine;
  tide_device_cache* device;
  tide_stream streams[LIVE_STREAMS];
  tide_block blocks[LIVE_BLOCKS];
  t_rng rng;
} live_run;

static void live_open(live_run* run, const char* options, uint64_t max_entries) {
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  history.max_entries = max_entries;
  T_OK(tide_device_options_parse(options, &device));
  T_OK(tide_machine_new_dry(NULL, &run->machine));
  T_OK(tide_device_new(run->machine, 0, &device, &run->device));
  T_OK(tide_device_history(run->device, &history));
  for (size_t i = 1; i < LIVE_STREAMS; i++)
    T_OK(tide_machine_stream_new(run->machine, 0, 0, 0, &run->streams[i]));
}

static void live_step(live_run* run) {
  tide_block* const block = &run->blocks[t_rng_below(&run->rng, LIVE_BLOCKS)];
  tide_stream const stream = run->streams[t_rng_below(&run->rng, LIVE_STREAMS)];
  const uint64_t n = t_rng_below(&run->rng, 100);
  if (n < 2) {
    T_OK(tide_device_trim(run->device, 0));
  } else if (block->address == NULL) {
    const uint64_t most = n < 50 ? 3000 : n < 80 ? 2 * MIB : 40 * MIB;
    T_OK(tide_device_alloc(run->device, stream, 1 + t_rng_below(&run->rng, most), block));
  } else {
    if (n < 30) T_OK(tide_device_record(run->device, *block, stream));
    T_OK(tide_device_release(run->device, *block));
    *block = (tide_block){ NULL, 0 };
  }
}

static void live_expect(live_run* run, bool is_whole) {
  tide_trace* trace = NULL;
  tide_ledger* ledger = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_device_snapshot(run->device, NULL, trace));
  T_OK(tide_ledger_new(trace, 0, &ledger));
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  if (has_faults(ledger)) fail_with(trace, count, "there are faults");
  T_EQ(tide_ledger_get_faults(ledger).is_from_start, is_whole);
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

static void live_close(live_run* run) {
  tide_device_free(run->device);
  for (size_t i = 1; i < LIVE_STREAMS; i++) T_OK(tide_machine_stream_free(run->machine, 0, run->streams[i]));
  tide_machine_free(run->machine);
}

T_TEST_OVER(prop_ledger__follows_a_living_allocator, settings) {
  for (size_t round = 0; round < t_scaled_alone(10); round++) {
    const bool is_whole = round % 2 == 0;
    live_run run = { .rng = t_rng_new(3000 + round) };
    live_open(&run, t_variant(), is_whole ? 1000000 : 60 + t_rng_below(&run.rng, 300));
    for (size_t i = 0; i < 800; i++) live_step(&run);

    live_expect(&run, is_whole);

    live_close(&run);
  }
}

// ---------------------------------------------------------------------------------------------------
// Anything

static tide_trace_entry random_entry(t_rng* rng) {
  static const uint64_t far[] = { 0, 1, UINT64_MAX, UINT64_MAX - 4096, (uint64_t)1 << 62, (uint64_t)1 << 63 };
  tide_trace_entry entry = { .action = (uint8_t)t_rng_below(rng, TIDE_ACTION_COUNT) };
  entry.address = BASE + t_rng_below(rng, 64) * 512;
  entry.bytes = t_rng_below(rng, 12) * 512 + t_rng_below(rng, 2) * t_rng_below(rng, 512);
  entry.stream = t_rng_below(rng, STREAMS);
  entry.pool = (uint32_t)t_rng_below(rng, 3);
  entry.absent = t_rng_below(rng, 2) == 0 ? TIDE_ENTRY_POOL : 0;
  if (t_rng_below(rng, 40) == 0) entry.address = far[t_rng_below(rng, 6)] - t_rng_below(rng, 2);
  if (t_rng_below(rng, 40) == 0) entry.bytes = far[t_rng_below(rng, 6)] - t_rng_below(rng, 2);
  return entry;
}

static void add_random_list(tide_trace* trace, t_rng* rng) {
  for (size_t i = t_rng_below(rng, 6); i > 0; i--) {
    const tide_trace_entry like = random_entry(rng);
    const tide_trace_segment segment = { .address = like.address,
                                         .bytes = like.bytes * 4,
                                         .stream = like.stream,
                                         .pool = like.pool,
                                         .is_expandable = t_rng_below(rng, 2) == 0 };
    T_OK(tide_trace_add_segment(trace, &segment));
    for (size_t k = t_rng_below(rng, 5); k > 0; k--) {
      const tide_trace_entry part = random_entry(rng);
      const tide_trace_block block = { .address = part.address,
                                       .bytes = part.bytes,
                                       .requested_bytes = t_rng_below(rng, 2) == 0 ? part.bytes : part.pool,
                                       .state = (uint8_t)t_rng_below(rng, 3) };
      T_OK(tide_trace_add_block(trace, &block));
    }
  }
}

T_TEST(prop_ledger__fits_together_whatever_the_trace) {
  for (size_t round = 0; round < t_scaled_alone(400); round++) {
    t_rng rng = t_rng_new(2000 + round);
    tide_trace* const trace = empty_trace(settings[t_rng_below(&rng, 4)]);
    add_random_list(trace, &rng);
    const size_t count = 1 + t_rng_below(&rng, 120);
    for (size_t i = 0; i < count; i++) {
      const tide_trace_entry entry = random_entry(&rng);
      T_OK(tide_trace_add_entry(trace, &entry));
    }
    tide_ledger* ledger = NULL;
    T_OK(tide_ledger_new(trace, 0, &ledger));

    T_OK(tide_ledger_seek(ledger, TIDE_LEDGER_BEFORE));
    expect_sane(ledger, trace, TIDE_LEDGER_BEFORE);
    for (size_t at = 0; at < count; at++) {
      T_OK(tide_ledger_seek(ledger, at));
      expect_sane(ledger, trace, at);
    }
    tide_ledger_free(ledger);
    tide_trace_free(trace);
  }
}
