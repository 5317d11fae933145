// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the profile-guided arena. An input is one of two things.
//
// Arrays of requests with numbers of any sense: a plan is refused or made; one that is made passes the
// verifier and a check of this file's own, is never larger than best fit and never smaller than what lives at
// once; and the verifier and the check judge offsets at random alike.
//
// Runs of a program of up to 40 operations on one or two profiles, recorded, validated and replayed, each
// time with some operations changed: so requests are missing, larger or too many, releases early, late,
// twice, of other addresses or on another thread, runs nested, cancelled and cut short, while memory fails
// now and then. Every piece is filled at its birth and verified at its death, which may be after that of its
// profile; no two overlap; nothing is left in the end.
#define T_THREADS
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "tidemark/profile.h"

enum {
  FUZZ_REQUESTS = 40,
  FUZZ_STEPS = 40,
  FUZZ_RUNS = 12,
  FUZZ_PIECES = 128,
  FUZZ_GONE = 8,
  FUZZ_LARGEST = 1 << 16  // the stores give no more
};

// ---------------------------------------------------------------------------------------------------
// Bytes

// Most numbers are small, some have two bytes, some are where arithmetic ends.
static uint64_t fuzz_take_number(fuzz_bytes* b) {
  static const uint64_t far[] = { 1000000,
                                  UINT32_MAX,
                                  (uint64_t)UINT32_MAX + 1,
                                  (uint64_t)1 << 40,
                                  (uint64_t)1 << 61,
                                  TIDE_PLAN_MAX_BYTES - 64,
                                  TIDE_PLAN_MAX_BYTES - 1,
                                  TIDE_PLAN_MAX_BYTES,
                                  INT64_MAX,
                                  (uint64_t)1 << 63,
                                  UINT64_MAX - 63,
                                  UINT64_MAX - 1,
                                  UINT64_MAX,
                                  TIDE_PROFILE_MAX_ALIGNMENT,
                                  (uint64_t)TIDE_PROFILE_MAX_ALIGNMENT << 1,
                                  TIDE_PROFILE_MAX_REQUESTS };
  const uint8_t first = fuzz_take(b);
  if (first < 0xc0) return first % 48;
  if (first < 0xe0) return (uint64_t)(first - 0xc0) << 8 | fuzz_take(b);
  return far[first % 16];
}

// ---------------------------------------------------------------------------------------------------
// Arrays

static bool fuzz_is_request(const tide_profile_request* request, size_t index, size_t count) {
  const uint64_t alignment = request->alignment;
  const bool is_never = request->lifetime == TIDE_PROFILE_NEVER;
  return request->bytes > 0 && request->bytes < TIDE_PLAN_MAX_BYTES && (alignment & (alignment - 1)) == 0 &&
         alignment <= TIDE_PROFILE_MAX_ALIGNMENT &&
         (is_never || (request->lifetime > index && request->lifetime <= count));
}

// 2: to be refused, 0: to be accepted, 1: either, because sums are near their limit, to which each request
// counts with the largest alignment of all.
static int fuzz_judge_requests(const tide_profile_request* requests, size_t count) {
  uint64_t largest = 1;
  for (size_t i = 0; i < count; i++) {
    if (!fuzz_is_request(&requests[i], i, count)) return 2;
    if (requests[i].alignment > largest) largest = requests[i].alignment;
  }
  uint64_t sum = 0;
  bool is_far = false;
  for (size_t i = 0; i < count; i++) {
    sum += requests[i].bytes + largest;
    is_far = is_far || sum >= TIDE_PLAN_MAX_BYTES;
    sum = is_far ? 0 : sum;
  }
  return is_far;
}

static bool fuzz_may_lie(const tide_profile_request* requests, size_t index, uint64_t bytes) {
  const tide_profile_request* const request = &requests[index];
  if (request->lifetime == TIDE_PROFILE_NEVER) return true;
  if (request->alignment > 0 && request->offset % request->alignment != 0) return false;
  if (request->bytes > bytes || request->offset > bytes - request->bytes) return false;
  for (size_t i = 0; i < index; i++) {
    const tide_profile_request* const other = &requests[i];
    if (other->lifetime == TIDE_PROFILE_NEVER || other->lifetime <= index) continue;
    if (request->offset < other->offset + other->bytes && other->offset < request->offset + request->bytes)
      return false;
  }
  return true;
}

static bool fuzz_is_plan(const tide_profile_request* requests, size_t count, uint64_t bytes) {
  for (size_t i = 0; i < count; i++) {
    if (!fuzz_may_lie(requests, i, bytes)) return false;
  }
  return true;
}

// The most bytes that are planned and live at once.
static uint64_t fuzz_load(const tide_profile_request* requests, size_t count) {
  uint64_t most = 0;
  for (size_t time = 0; time < count; time++) {
    uint64_t sum = 0;
    for (size_t i = 0; i <= time; i++) {
      const bool is_live = requests[i].lifetime != TIDE_PROFILE_NEVER && requests[i].lifetime > time;
      sum += is_live ? requests[i].bytes : 0;
    }
    if (sum > most) most = sum;
  }
  return most;
}

static uint64_t fuzz_check_plan(const tide_profile_plan* plan, const tide_profile_request* given,
                                size_t count) {
  const tide_profile_plan_info info = tide_profile_plan_describe(plan);
  tide_profile_request requests[FUZZ_REQUESTS];
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  FUZZ_REQUIRE(info.count == count);
  for (size_t i = 0; i < count; i++) {
    requests[i] = tide_profile_plan_request(plan, i);
    FUZZ_REQUIRE(requests[i].bytes == given[i].bytes && requests[i].lifetime == given[i].lifetime);
    FUZZ_REQUIRE(requests[i].alignment == (given[i].alignment > 0 ? given[i].alignment : 1));
  }
  FUZZ_REQUIRE(fuzz_is_plan(requests, count, info.bytes));
  FUZZ_REQUIRE(tide_profile_verify(requests, count, info.bytes, NULL, &check) == TIDE_OK);
  FUZZ_REQUIRE(check.fault == TIDE_PLAN_NO_FAULT && check.peak <= info.bytes);
  FUZZ_REQUIRE(info.bytes >= info.lower_bound && info.lower_bound >= fuzz_load(requests, count));
  return info.bytes;
}

// Bytes of the arena; UINT64_MAX when the requests are refused.
static uint64_t fuzz_plan_with(const tide_profile_request* requests, size_t count,
                               tide_profile_planner planner, size_t last) {
  fuzz_heap taken = { .last = last };
  const tide_heap heap = { fuzz_heap_alloc, fuzz_heap_release, &taken };
  tide_profile_plan_options options = TIDE_PROFILE_PLAN_OPTIONS_INIT;
  tide_profile_plan* plan = NULL;
  uint64_t bytes = UINT64_MAX;
  const int judged = fuzz_judge_requests(requests, count);
  options.planner = planner;
  options.nodes = 200;
  options.heap = &heap;
  const tide_status status = tide_profile_plan_new(requests, count, &options, &plan);
  FUZZ_REQUIRE((status == TIDE_OK) == (plan != NULL));
  FUZZ_REQUIRE(status != TIDE_ERR_NO_MEMORY || taken.calls > taken.last);
  if (status == TIDE_ERR_NO_MEMORY) FUZZ_REQUIRE(last > 0);
  else FUZZ_REQUIRE(judged == 1 || (status == TIDE_OK) == (judged == 0));
  if (plan != NULL) bytes = fuzz_check_plan(plan, requests, count);
  tide_profile_plan_free(plan);
  FUZZ_REQUIRE(taken.blocks == 0);
  return bytes;
}

static void fuzz_run_arrays(fuzz_bytes* b) {
  tide_profile_request requests[FUZZ_REQUESTS];
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  const size_t count = fuzz_take(b) % (FUZZ_REQUESTS + 1);
  const size_t last = fuzz_take(b);
  const uint64_t bytes = fuzz_take_number(b);
  for (size_t i = 0; i < count; i++) {
    const unsigned fields = fuzz_take(b);
    const uint64_t lifetime = fuzz_take_number(b);
    const uint64_t power = (uint64_t)1 << (fields >> 4);
    const bool is_near = (fields & 1) == 0 && lifetime < UINT64_MAX - FUZZ_REQUESTS;
    requests[i].lifetime = is_near ? i + 1 + lifetime % (count - i) : lifetime;
    requests[i].bytes = (fields & 2) == 0 ? (uint64_t)1 + fuzz_take(b) : fuzz_take_number(b);
    requests[i].alignment = (fields & 4) == 0 ? power : fuzz_take_number(b);
    requests[i].offset = (fields & 8) == 0 ? fuzz_take(b) : fuzz_take_number(b);
  }
  const tide_status status = tide_profile_verify(requests, count, bytes, NULL, &check);
  const int judged = bytes <= TIDE_PLAN_MAX_BYTES ? fuzz_judge_requests(requests, count) : 2;
  FUZZ_REQUIRE(judged == 1 || (status == TIDE_OK) == (judged == 0));
  if (status == TIDE_OK)
    FUZZ_REQUIRE((check.fault == TIDE_PLAN_NO_FAULT) == fuzz_is_plan(requests, count, bytes));
  const uint64_t smallest = fuzz_plan_with(requests, count, TIDE_PROFILE_SMALLEST, 0);
  FUZZ_REQUIRE(smallest <= fuzz_plan_with(requests, count, TIDE_PROFILE_BEST_FIT, 0));
  FUZZ_REQUIRE(smallest <= fuzz_plan_with(requests, count, TIDE_PROFILE_TOP_FIT, 0));
  if (last > 0) (void)fuzz_plan_with(requests, count, TIDE_PROFILE_SMALLEST, last);
}

// ---------------------------------------------------------------------------------------------------
// A profile and what it handed out

typedef struct fuzz_piece {
  uint8_t* address;
  size_t bytes;
  uint8_t stamp;
  bool is_in_arena;
} fuzz_piece;

typedef struct fuzz_side {
  tide_profile* profile;  // owned
  tide_profile_options options;
  fuzz_heap taken;
  tide_heap heap;
  fuzz_store arenas;
  fuzz_store fallback;
  fuzz_piece pieces[FUZZ_PIECES];  // that are live
  size_t count;
  uint8_t* gone[FUZZ_GONE];  // addresses of pieces that were released
  size_t gone_count;
  uint64_t requests;  // of the run that is open
  bool is_certain;    // no request of it has failed
} fuzz_side;

typedef struct fuzz_world {
  fuzz_side sides[2];
  size_t side_count;
  uint8_t stamp;
  size_t threads_left;  // that may still be started
} fuzz_world;

static bool fuzz_has_failed(const fuzz_side* s) {
  return s->arenas.has_failed || s->fallback.has_failed || fuzz_heap_has_failed(&s->taken);
}

static bool fuzz_is_strict_now(const fuzz_side* s) {
  return s->options.is_strict && tide_profile_current(s->profile) == TIDE_PROFILE_REPLAY;
}

static bool fuzz_begins_at(const fuzz_world* w, const uint8_t* address) {
  for (size_t k = 0; k < w->side_count; k++) {
    for (size_t i = 0; i < w->sides[k].count; i++) {
      if (w->sides[k].pieces[i].address == address) return true;
    }
  }
  return false;
}

static void fuzz_check_apart(const fuzz_world* w, const uint8_t* address, size_t bytes) {
  for (size_t k = 0; k < w->side_count; k++) {
    for (size_t i = 0; i < w->sides[k].count; i++) {
      const fuzz_piece* const piece = &w->sides[k].pieces[i];
      FUZZ_REQUIRE(address + bytes <= piece->address || piece->address + piece->bytes <= address);
    }
  }
}

static void fuzz_check_contents(const fuzz_piece* piece) {
  for (size_t i = 0; i < piece->bytes; i++) FUZZ_REQUIRE(piece->address[i] == (uint8_t)(piece->stamp + i));
}

// What a replayed run promises of the contents of its arena.
static void fuzz_check_fill(const fuzz_side* s, const uint8_t* address, size_t bytes) {
  static const uint8_t junk[] = { 0xef, 0xbe, 0xed, 0x7f };
  const tide_fill fill = s->options.fill;
  if (fill == TIDE_FILL_NOTHING || !s->options.memory.is_host) return;
  if (tide_profile_current(s->profile) != TIDE_PROFILE_REPLAY) return;
  for (size_t i = 0; i < bytes; i++) FUZZ_REQUIRE(address[i] == (fill == TIDE_FILL_JUNK ? junk[i % 4] : 0));
}

static void fuzz_take_piece(fuzz_world* w, fuzz_side* s, uint8_t* address, size_t bytes, size_t alignment) {
  const bool is_in_arena = tide_profile_owns(s->profile, address);
  const size_t wanted = alignment > 0 ? alignment : s->options.alignment;
  FUZZ_REQUIRE((uintptr_t)address % wanted == 0);
  FUZZ_REQUIRE(fuzz_store_has(is_in_arena ? &s->arenas : &s->fallback, address, bytes));
  fuzz_check_apart(w, address, bytes);
  if (is_in_arena) fuzz_check_fill(s, address, bytes);
  const fuzz_piece piece = { address, bytes, w->stamp++, is_in_arena };
  for (size_t i = 0; i < bytes; i++) address[i] = (uint8_t)(piece.stamp + i);
  s->pieces[s->count++] = piece;
}

static void fuzz_alloc(fuzz_world* w, fuzz_side* s, size_t bytes, size_t alignment) {
  void* address = NULL;
  if (s->count == FUZZ_PIECES) return;
  const bool is_sense = (alignment & (alignment - 1)) == 0 && alignment <= TIDE_PROFILE_MAX_ALIGNMENT;
  const tide_status status = tide_profile_alloc(s->profile, bytes, alignment, &address);
  FUZZ_REQUIRE(status == TIDE_OK || address == NULL);
  if (status == TIDE_OK && bytes > 0) {
    FUZZ_REQUIRE(is_sense && address != NULL);
    s->requests++;
    fuzz_take_piece(w, s, address, bytes, alignment);
  } else if (status == TIDE_OK) {
    FUZZ_REQUIRE(address == NULL);
  } else {
    s->is_certain = s->is_certain && status == TIDE_ERR_ARGUMENT;
    FUZZ_REQUIRE(status != TIDE_ERR_STATE || fuzz_is_strict_now(s));
    FUZZ_REQUIRE(status != TIDE_ERR_NO_MEMORY || fuzz_has_failed(s));
    FUZZ_REQUIRE(status != TIDE_ERR_ARGUMENT || !is_sense || bytes > PTRDIFF_MAX);
    FUZZ_REQUIRE(status != TIDE_ERR_HANDLE);
  }
}

static void fuzz_forget(fuzz_side* s, size_t index) {
  s->gone[s->gone_count++ % FUZZ_GONE] = s->pieces[index].address;
  s->pieces[index] = s->pieces[--s->count];
}

static void fuzz_release(fuzz_side* s, size_t index) {
  const fuzz_piece piece = s->pieces[index];
  fuzz_check_contents(&piece);
  const tide_status status = tide_profile_release(s->profile, piece.address);
  FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_STATE && fuzz_is_strict_now(s)));
  if (status == TIDE_OK) fuzz_forget(s, index);
  else fuzz_check_contents(&piece);
}

typedef struct fuzz_errand {
  tide_profile* profile;
  void* address;
  tide_status status;
} fuzz_errand;

static void* fuzz_errand_run(void* user) {
  fuzz_errand* const errand = user;
  errand->status = tide_profile_release(errand->profile, errand->address);
  return NULL;
}

static void fuzz_release_elsewhere(fuzz_world* w, fuzz_side* s, size_t index) {
  pthread_t thread;
  fuzz_errand errand = { s->profile, s->pieces[index].address, TIDE_OK };
  if (w->threads_left == 0) return;
  w->threads_left--;
  fuzz_check_contents(&s->pieces[index]);
  FUZZ_REQUIRE(pthread_create(&thread, NULL, fuzz_errand_run, &errand) == 0);
  FUZZ_REQUIRE(pthread_join(thread, NULL) == 0);
  FUZZ_REQUIRE(errand.status == TIDE_OK || (errand.status == TIDE_ERR_STATE && fuzz_is_strict_now(s)));
  if (errand.status == TIDE_OK) fuzz_forget(s, index);
}

// An address at which no block begins: it was released before, or lies inside a block.
static void fuzz_release_wrong(fuzz_world* w, fuzz_side* s, uint8_t choice) {
  uint8_t* address = NULL;
  if (choice % 2 == 0 && s->gone_count > 0) address = s->gone[choice / 2 % FUZZ_GONE];
  if (choice % 2 == 1 && s->count > 0) {
    const fuzz_piece* const piece = &s->pieces[choice / 2 % s->count];
    address = piece->address + (piece->bytes > 1 ? 1 + choice % (piece->bytes - 1) : 1);
  }
  if (address == NULL || fuzz_begins_at(w, address)) return;
  const tide_status status = tide_profile_release(s->profile, address);
  FUZZ_REQUIRE(status == TIDE_ERR_HANDLE || (status == TIDE_ERR_STATE && fuzz_is_strict_now(s)));
}

// ---------------------------------------------------------------------------------------------------
// Runs

static void fuzz_begin(fuzz_side* s, tide_profile_mode mode, uint64_t shape) {
  const tide_profile_mode before = tide_profile_current(s->profile);
  const tide_status status = tide_profile_begin(s->profile, mode, shape);
  if (before != TIDE_PROFILE_NONE) {
    FUZZ_REQUIRE(status == TIDE_ERR_STATE || status == TIDE_ERR_ARGUMENT);
    FUZZ_REQUIRE(tide_profile_current(s->profile) == before);
    return;
  }
  s->requests = 0;
  s->is_certain = true;
  FUZZ_REQUIRE(status == TIDE_OK || tide_profile_current(s->profile) == TIDE_PROFILE_NONE);
  FUZZ_REQUIRE(status != TIDE_ERR_NO_MEMORY || fuzz_has_failed(s));
  if (status == TIDE_OK) {
    const tide_profile_mode now = tide_profile_current(s->profile);
    FUZZ_REQUIRE(mode == now || (mode == TIDE_PROFILE_AUTO && now != TIDE_PROFILE_NONE));
  }
}

static tide_profile_stats fuzz_stats(tide_profile* profile) {
  tide_profile_stats stats = TIDE_PROFILE_STATS_INIT;
  FUZZ_REQUIRE(tide_profile_get_stats(profile, &stats) == TIDE_OK);
  return stats;
}

static void fuzz_check_counts(const tide_profile_report* r, tide_profile_mode mode) {
  if (mode == TIDE_PROFILE_RECORD) FUZZ_REQUIRE(r->hits + r->fallbacks == 0);
  else FUZZ_REQUIRE(r->requests == r->hits + r->fallbacks);
  FUZZ_REQUIRE(r->first_actual != 0 || r->first_planned + r->smaller + r->larger + r->surplus == 0);
  FUZZ_REQUIRE(r->smaller <= r->requests);
}

static void fuzz_check_report(const fuzz_side* s, const tide_profile_report* r, tide_profile_mode mode) {
  size_t in_arena = 0;
  const bool is_certain = s->is_certain && !fuzz_has_failed(s);  // a note that failed is no request
  for (size_t i = 0; i < s->count; i++) in_arena += s->pieces[i].is_in_arena;
  FUZZ_REQUIRE(r->mode == mode);
  FUZZ_REQUIRE(!is_certain || r->requests == s->requests);
  fuzz_check_counts(r, mode);
  FUZZ_REQUIRE(mode != TIDE_PROFILE_REPLAY || r->survivors <= in_arena);
  FUZZ_REQUIRE(mode != TIDE_PROFILE_REPLAY ||
               r->larger + r->surplus + r->blocked + r->escaped == r->fallbacks);
  FUZZ_REQUIRE(mode == TIDE_PROFILE_RECORD || (r->first == UINT64_MAX) == r->is_same);
  FUZZ_REQUIRE(r->plan_bytes >= r->lower_bound);
}

static void fuzz_end(fuzz_side* s, bool is_cancelled) {
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  const tide_profile_mode mode = tide_profile_current(s->profile);
  const tide_status status = is_cancelled ? tide_profile_cancel(s->profile)
                                          : tide_profile_end(s->profile, &report);
  FUZZ_REQUIRE(tide_profile_current(s->profile) == TIDE_PROFILE_NONE);
  FUZZ_REQUIRE((mode == TIDE_PROFILE_NONE) == (status == TIDE_ERR_STATE));
  FUZZ_REQUIRE(status != TIDE_ERR_NO_MEMORY || fuzz_has_failed(s));
  if (status == TIDE_OK && !is_cancelled) fuzz_check_report(s, &report, mode);
}

static void fuzz_check_stats(fuzz_side* s) {
  size_t in_arena = 0;
  const tide_profile_stats stats = fuzz_stats(s->profile);
  for (size_t i = 0; i < s->count; i++) in_arena += s->pieces[i].is_in_arena;
  FUZZ_REQUIRE(stats.arenas == s->arenas.count && stats.arena_bytes <= stats.arena_bytes_peak);
  FUZZ_REQUIRE(stats.survivors <= in_arena && stats.plans <= s->options.max_plans);
  if (tide_profile_current(s->profile) == TIDE_PROFILE_NONE) FUZZ_REQUIRE(stats.survivors == in_arena);
}

static void fuzz_move_plan(fuzz_side* s, uint64_t from, uint64_t to) {
  tide_profile_plan* plan = NULL;
  if (tide_profile_get_plan(s->profile, from, &plan) != TIDE_OK) return;
  const tide_status status = tide_profile_set_plan(s->profile, to, plan);
  FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_NO_MEMORY && fuzz_has_failed(s)));
  tide_profile_plan_free(plan);
}

// A plan that is cleared is gone.
static bool fuzz_clear_plan(fuzz_side* s, uint64_t shape) {
  tide_profile_plan* plan = NULL;
  const uint64_t plans = fuzz_stats(s->profile).plans;
  const tide_status status = tide_profile_clear_plan(s->profile, shape);
  const bool was_there = status == TIDE_OK;
  return (was_there || status == TIDE_ERR_HANDLE) &&
         tide_profile_get_plan(s->profile, shape, &plan) == TIDE_ERR_HANDLE &&
         fuzz_stats(s->profile).plans == plans - was_there;
}

static void fuzz_do_rare(fuzz_world* w, fuzz_side* s, uint8_t b) {
  fuzz_side* const other = &w->sides[w->side_count - 1];
  const uint8_t number = b / 8;
  switch (b % 8) {
    case 0: fuzz_begin(other, TIDE_PROFILE_AUTO, number % 3); break;
    case 1: fuzz_end(other, number % 4 == 0); break;
    case 2: FUZZ_REQUIRE(tide_profile_trim(s->profile) == TIDE_OK); break;
    case 3: fuzz_move_plan(s, number % 3, number / 3 % 3); break;
    case 4:
    case 5:
      if (s->count > 0) fuzz_release_elsewhere(w, s, number % s->count);
      break;
    case 6:
      if (number >= 24) FUZZ_REQUIRE(fuzz_clear_plan(s, number % 3));
      else fuzz_begin(s, TIDE_PROFILE_REPLAY, number % 3);
      break;
    default: fuzz_check_stats(s); break;
  }
}

static size_t fuzz_bytes_of(uint8_t b) {
  static const size_t sizes[] = { 0,   1,   8,    16,   24,   48,           64,          100,
                                  128, 200, 1000, 3000, 4096, FUZZ_LARGEST, PTRDIFF_MAX, SIZE_MAX };
  return b < 0xe0 ? sizes[1 + b % 12] : sizes[b % 16];
}

static size_t fuzz_alignment_of(uint8_t a) {
  static const size_t alignments[] = { 0, 0, 0, 0, 1, 16, 256, 3 };
  return a == 0x70 ? 2 * (size_t)TIDE_PROFILE_MAX_ALIGNMENT : alignments[a >> 4 & 7];
}

static void fuzz_note(fuzz_side* s, uint8_t a, uint8_t b) {
  const void* const address = (const void*)(uintptr_t)(4096 + 64 * (uintptr_t)(a >> 4));
  if (a % 16 == 13) {
    const tide_status status = tide_profile_note_alloc(s->profile, address, fuzz_bytes_of(b), 0);
    const tide_profile_mode mode = tide_profile_current(s->profile);
    const bool is_told = mode == TIDE_PROFILE_RECORD || mode == TIDE_PROFILE_VALIDATE;
    s->requests += status == TIDE_OK && is_told && fuzz_bytes_of(b) > 0;
    s->is_certain = s->is_certain && status == TIDE_OK;
    FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_ARGUMENT || fuzz_has_failed(s));
  } else {
    const tide_status status = tide_profile_note_release(s->profile, address);
    FUZZ_REQUIRE(status == TIDE_OK || fuzz_has_failed(s));
  }
}

static void fuzz_do(fuzz_world* w, uint8_t a, uint8_t b) {
  fuzz_side* const s = &w->sides[a >> 7 & (w->side_count - 1)];
  const unsigned kind = a % 16;
  if (kind < 7) fuzz_alloc(w, s, fuzz_bytes_of(b), fuzz_alignment_of(a));
  else if (kind < 12 && s->count > 0) fuzz_release(s, b % s->count);
  else if (kind == 12) fuzz_release_wrong(w, s, b);
  else if (kind == 13 || kind == 14) fuzz_note(s, a, b);
  else if (kind == 15) fuzz_do_rare(w, s, b);
}

// ---------------------------------------------------------------------------------------------------
// A whole input

static void fuzz_take_options(fuzz_bytes* b, fuzz_side* s) {
  const unsigned first = fuzz_take(b);
  const unsigned second = fuzz_take(b);
  tide_profile_options* const o = &s->options;
  *o = (tide_profile_options)TIDE_PROFILE_OPTIONS_INIT;
  o->planner = (tide_profile_planner)(first % 3);
  o->is_strict = (first & 4) != 0;
  o->fill = (first & 128) == 0 ? (tide_fill)(first / 8 % 3) : TIDE_FILL_NOTHING;
  o->escape_arenas = first / 32 % 4;
  o->alignment = (uint64_t)1 << second % 8;
  o->max_plans = 1 + second / 8 % 3;
  o->replan_after = second / 32 % 3;
  o->tolerance = second & 128 ? 0 : 0.25;
  o->trim_after = second / 16 % 4;
  o->plan_nodes = 200;
  s->arenas.largest = s->fallback.largest = FUZZ_LARGEST;
  o->memory = (tide_memory){ fuzz_store_alloc, fuzz_store_release, &s->arenas, 0, (first & 128) == 0 };
  o->fallback = (tide_memory){ fuzz_store_alloc, fuzz_store_release, &s->fallback, 0, true };
  o->heap = &s->heap;
  s->heap = (tide_heap){ fuzz_heap_alloc, fuzz_heap_release, &s->taken };
  s->arenas.failing = fuzz_take(b);
  s->fallback.failing = fuzz_take(b);
  s->taken.last = fuzz_take(b);
}

static void fuzz_side_close(fuzz_side* s, bool releases) {
  if (s->profile == NULL) return;
  if (tide_profile_current(s->profile) != TIDE_PROFILE_NONE) fuzz_end(s, true);
  fuzz_check_stats(s);
  for (size_t i = 0; i < s->count; i++) fuzz_check_contents(&s->pieces[i]);
  while (releases && s->count > 0) fuzz_release(s, s->count - 1);
  if (releases) FUZZ_REQUIRE(fuzz_stats(s->profile).survivors == 0);
  tide_profile_free(s->profile);
  while (s->count > 0) {
    const fuzz_piece* const piece = &s->pieces[--s->count];
    fuzz_check_contents(piece);
    FUZZ_REQUIRE(tide_profile_release(s->profile, piece->address) == TIDE_OK);
  }
  FUZZ_REQUIRE(s->arenas.count == 0 && s->taken.blocks == 0 && s->fallback.count == 0);
}

// One run of the program: up to three steps are changed, and it may end early.
static void fuzz_run_once(fuzz_bytes* b, fuzz_world* w, const uint8_t* steps, size_t count) {
  static const tide_profile_mode modes[] = { TIDE_PROFILE_AUTO,     TIDE_PROFILE_AUTO,   TIDE_PROFILE_RECORD,
                                             TIDE_PROFILE_VALIDATE, TIDE_PROFILE_REPLAY, TIDE_PROFILE_REPLAY,
                                             TIDE_PROFILE_NONE,     TIDE_PROFILE_REPLAY };
  uint8_t changed[2 * FUZZ_STEPS] = { 0 };
  const uint8_t head = fuzz_take(b);
  const uint8_t tail = fuzz_take(b);
  memcpy(changed, steps, 2 * count);
  for (size_t i = head >> 6; i > 0 && count > 0; i--) {
    const size_t at = fuzz_take(b) % count;
    changed[2 * at] = fuzz_take(b);
    changed[2 * at + 1] = fuzz_take(b);
  }
  const size_t length = tail < 0xc0 ? count : count - count * (tail & 15) / 16;
  fuzz_begin(&w->sides[0], modes[head % 8], head / 8 % 3);
  for (size_t i = 0; i < length; i++) fuzz_do(w, changed[2 * i], changed[2 * i + 1]);
  if (tail % 16 != 15) fuzz_end(&w->sides[0], tail % 16 == 14);
}

static void fuzz_run_program(fuzz_bytes* b, fuzz_world* w) {
  uint8_t steps[2 * FUZZ_STEPS] = { 0 };
  const size_t count = fuzz_take(b) % (FUZZ_STEPS + 1);
  for (size_t i = 0; i < 2 * count; i++) steps[i] = fuzz_take(b);
  for (size_t run = 0; run < FUZZ_RUNS && b->left > 0; run++) fuzz_run_once(b, w, steps, count);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz_bytes b = { data, bytes };
  const uint8_t head = fuzz_take(&b);
  if (head & 1) {
    fuzz_run_arrays(&b);
    return 0;
  }
  fuzz_world* const w = calloc(1, sizeof *w);
  FUZZ_REQUIRE(w != NULL);
  w->side_count = head & 2 ? 2 : 1;
  w->threads_left = 1;
  bool is_made = true;
  for (size_t i = 0; i < w->side_count; i++) {
    fuzz_side* const s = &w->sides[i];
    fuzz_take_options(&b, s);
    const tide_status status = tide_profile_new(&s->options, &s->profile);
    FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_NO_MEMORY && fuzz_has_failed(s)));
    is_made = is_made && status == TIDE_OK;
  }
  if (is_made) fuzz_run_program(&b, w);
  for (size_t i = 0; i < w->side_count; i++) fuzz_side_close(&w->sides[i], (head & 4) != 0);
  FUZZ_REQUIRE(tide_profile_innermost() == NULL);
  free(w);
  return 0;
}
