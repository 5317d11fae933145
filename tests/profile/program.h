// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Programs as arrays of requests, which can be modified and performed on a profile:
//
//   program run;
//   program_random(&run, 200, &rng);
//   program_remove(&run, 17);
//   T_OK(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, 0));
//   performer_play(&performer, &run);
//
// As in a plan, time is the number of requests so far: before request t is made, everything whose release
// is due at t is released. Every block is filled with its own word and compared when it is released. No two
// live blocks overlap, including those that outlive their run.
#ifndef TIDEMARK_TESTS_PROFILE_PROGRAM_H
#define TIDEMARK_TESTS_PROFILE_PROGRAM_H

#include "play.h"

#define PROGRAM_MOST 256
#define PROGRAM_LIVE 2048
#define PROGRAM_NEVER UINT64_MAX

typedef struct program_request {
  size_t bytes;
  size_t alignment;   // 0: that of the profile
  uint64_t due;       // for release; PROGRAM_NEVER: after the run
  bool is_elsewhere;  // released on another thread
} program_request;

typedef struct program {
  program_request requests[PROGRAM_MOST];
  size_t count;
} program;

// ---------------------------------------------------------------------------------------------------
// Making and changing

// Sizes of which no two are equal, in no order; lifetimes of up to `longest` requests.
static inline void program_random(program* run, size_t count, uint64_t longest, t_rng* rng) {
  T_LE(count, PROGRAM_MOST);
  memset(run, 0, sizeof *run);
  run->count = count;
  for (size_t i = 0; i < count; i++) {
    const uint64_t due = i + 1 + t_rng_below(rng, longest);
    run->requests[i].bytes = 64 + 24 * i;
    run->requests[i].due = due < count ? due : count;
  }
  for (size_t i = count; i-- > 1;) {
    const size_t k = t_rng_below(rng, i + 1);
    const size_t bytes = run->requests[i].bytes;
    run->requests[i].bytes = run->requests[k].bytes;
    run->requests[k].bytes = bytes;
  }
}

// Puts a request before another one; everything keeps its place in the order of events.
static inline void program_insert(program* run, size_t at, program_request extra) {
  T_LT(run->count, PROGRAM_MOST);
  memmove(&run->requests[at + 1], &run->requests[at], (run->count - at) * sizeof *run->requests);
  run->requests[at] = extra;
  run->count++;
  for (size_t i = 0; i < run->count; i++) {
    program_request* const r = &run->requests[i];
    if (i != at && r->due != PROGRAM_NEVER && r->due > at) r->due++;
  }
}

// Leaves a request out, with its release.
static inline void program_remove(program* run, size_t at) {
  run->count--;
  memmove(&run->requests[at], &run->requests[at + 1], (run->count - at) * sizeof *run->requests);
  for (size_t i = 0; i < run->count; i++) {
    program_request* const r = &run->requests[i];
    if (r->due != PROGRAM_NEVER && r->due > at) r->due--;
    if (r->due <= i) r->due = i + 1;
  }
}

// ---------------------------------------------------------------------------------------------------
// Performing

typedef struct program_block {
  uint8_t* address;
  size_t bytes;
  uint64_t word;  // that it is filled with
  uint64_t due;
  bool is_elsewhere;
  atomic_bool is_gone;  // another thread has compared it and is releasing it, or has
} program_block;

typedef struct performer {
  tide_profile* profile;
  program_block* live;  // owned, with room for PROGRAM_LIVE
  size_t count;
  uint64_t word;  // of the newest
  size_t default_alignment;
  size_t hits;  // blocks of this run that lie in an arena
  // (optional) Compares and releases a block on another thread, now or later; else a thread is made for it.
  void (*elsewhere)(void* user, program_block* block);
  void* user;
} performer;

static inline void performer_init(performer* a, tide_profile* profile) {
  memset(a, 0, sizeof *a);
  a->profile = profile;
  a->default_alignment = 64;
  a->live = calloc(PROGRAM_LIVE, sizeof *a->live);
  T_CHECK(a->live != NULL);
}

static inline void performer_fini(performer* a) {
  T_EQ(a->count, 0);
  free(a->live);
}

static inline void block_fill(const program_block* block) {
  size_t i = 0;
  for (; i + sizeof block->word <= block->bytes; i += sizeof block->word)
    memcpy(block->address + i, &block->word, sizeof block->word);
  memcpy(block->address + i, &block->word, block->bytes - i);
}

static inline void block_compare(const program_block* block) {
  size_t i = 0;
  int difference = 0;
  for (; difference == 0 && i + sizeof block->word <= block->bytes; i += sizeof block->word)
    difference = memcmp(block->address + i, &block->word, sizeof block->word);
  if (difference == 0) difference = memcmp(block->address + i, &block->word, block->bytes - i);
  if (difference != 0) T_FAIL("a block of %zu bytes was changed near its byte %zu", block->bytes, i);
}

static inline void performer_expect_apart(performer* a, const uint8_t* address, size_t bytes) {
  for (size_t i = 0; i < a->count; i++) {
    program_block* const other = &a->live[i];
    if (address + bytes <= other->address || other->address + other->bytes <= address) continue;
    if (!atomic_load(&other->is_gone)) T_FAIL("%zu bytes lie over %zu others", bytes, other->bytes);
  }
}

// Keeps a block that was handed out.
static inline void performer_keep(performer* a, const program_request* r, void* address) {
  const size_t alignment = r->alignment == 0 ? a->default_alignment : r->alignment;
  T_CHECK(address != NULL);
  T_EQ((uintptr_t)address % alignment, 0);
  performer_expect_apart(a, address, r->bytes);
  T_LT(a->count, PROGRAM_LIVE);
  program_block* const block = &a->live[a->count++];
  block->address = address;
  block->bytes = r->bytes;
  block->due = r->due;
  block->is_elsewhere = r->is_elsewhere;
  block->word = (a->word += 0x9e3779b97f4a7c15u);
  atomic_store(&block->is_gone, false);
  block_fill(block);
  a->hits += tide_profile_owns(a->profile, address) ? 1 : 0;
}

static inline void performer_request(performer* a, const program_request* r) {
  void* address = NULL;
  T_OK(tide_profile_alloc(a->profile, r->bytes, r->alignment, &address));
  performer_keep(a, r, address);
}

static inline void performer_release(performer* a, program_block* block) {
  if (block->is_elsewhere && a->elsewhere != NULL) {
    a->elsewhere(a->user, block);
    return;
  }
  block_compare(block);
  atomic_store(&block->is_gone, true);
  if (block->is_elsewhere) T_OK(play_release_elsewhere(a->profile, block->address));
  else T_OK(tide_profile_release(a->profile, block->address));
}

// Releases, in their order, what is due at a time or before.
static inline void performer_release_due(performer* a, uint64_t time) {
  for (size_t i = 0; i < a->count; i++) {
    program_block* const block = &a->live[i];
    if (block->due > time || atomic_load(&block->is_gone)) continue;
    block->due = PROGRAM_NEVER;  // not twice
    performer_release(a, block);
  }
}

// Forgets what is gone. No other thread may be at work.
static inline void performer_tidy(performer* a) {
  size_t kept = 0;
  for (size_t i = 0; i < a->count; i++) {
    if (atomic_load(&a->live[i].is_gone)) continue;
    if (kept != i) memcpy(&a->live[kept], &a->live[i], sizeof *a->live);
    kept++;
  }
  a->count = kept;
}

// Everything between the beginning of a run and its end.
static inline void performer_play(performer* a, const program* run) {
  a->hits = 0;
  for (size_t t = 0; t < run->count; t++) {
    performer_release_due(a, t);
    performer_request(a, &run->requests[t]);
  }
  performer_release_due(a, run->count);
  if (a->elsewhere == NULL) performer_tidy(a);
}

// A whole run.
static inline tide_profile_report performer_run(performer* a, tide_profile_mode mode, uint64_t shape,
                                                const program* run) {
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  T_OK(tide_profile_begin(a->profile, mode, shape));
  performer_play(a, run);
  T_OK(tide_profile_end(a->profile, &report));
  return report;
}

// Releases what outlived its run.
static inline void performer_release_all(performer* a) {
  for (size_t i = 0; i < a->count; i++) {
    if (!atomic_load(&a->live[i].is_gone)) performer_release(a, &a->live[i]);
  }
  if (a->elsewhere == NULL) performer_tidy(a);
}

#endif
