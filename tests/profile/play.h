// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Programs in one line for tests of profiles, and a profile whose heap, arenas and fallback are all
// watched:
//
//   play p;
//   play_open(&p, NULL);
//   play_run(&p, TIDE_PROFILE_RECORD, "a64 b128 -b c100@256 -a -c");
//   const tide_profile_report report = play_run(&p, TIDE_PROFILE_REPLAY, "a64 b128 -b c100@256 -a -c");
//   play_close(&p);   // nothing may be left
//
// `a64` requests 64 bytes and names them a, `@256` sets an alignment, `-a` releases them, `~a` releases
// them on another thread before the next step. Every block is filled with its own pattern and compared when
// it is released, and no two live blocks may overlap.
#ifndef TIDEMARK_TESTS_PROFILE_PLAY_H
#define TIDEMARK_TESTS_PROFILE_PLAY_H

#include "machine/counting_heap.h"
#include "memory/memory_table.h"
#include "stats.h"
#include "tidemark/profile.h"

#define PLAY_NAMES 26

typedef struct play_block {
  uint8_t* address;  // NULL: none
  size_t bytes;
  uint8_t pattern;
} play_block;

typedef struct play {
  tide_profile* profile;
  counting_heap heap;
  table arenas;
  table fallback;
  play_block blocks[PLAY_NAMES];  // by their letters
  uint8_t pattern;                // of the newest
  bool may_fail;                  // requests may fail, and such blocks are not released
} play;

// ---------------------------------------------------------------------------------------------------
// Profiles

// The options with everything watched; NULL options are the defaults, with plans that are soon made.
static inline tide_profile_options play_options(play* p, const tide_profile_options* options) {
  tide_profile_options watched = TIDE_PROFILE_OPTIONS_INIT;
  watched.plan_nodes = 5000;
  if (options != NULL) watched = *options;
  watched.heap = &p->heap.heap;
  watched.memory = p->arenas.memory;
  watched.fallback = p->fallback.memory;
  return watched;
}

static inline void play_open(play* p, const tide_profile_options* options) {
  memset(p, 0, sizeof *p);
  counting_heap_init(&p->heap, SIZE_MAX, false);
  table_init(&p->arenas);
  table_init(&p->fallback);
  const tide_profile_options watched = play_options(p, options);
  T_OK(tide_profile_new(&watched, &p->profile));
  T_CHECK(p->profile != NULL);
}

static inline void play_close(play* p) {
  tide_profile_free(p->profile);
  table_fini(&p->arenas);
  table_fini(&p->fallback);
  T_EQ(atomic_load(&p->heap.outstanding), 0);
}

// A test of one profile `p`, which `open` opens. It is closed afterwards, and then nothing may be left.
#define PLAY_TEST(function, open)     \
  static void function##_in(play* p); \
  T_TEST(function) {                  \
    static play opened;               \
    play* const p = &opened;          \
    open;                             \
    function##_in(p);                 \
    play_close(p);                    \
  }                                   \
  static void function##_in(play* p)

static inline tide_profile_stats play_stats(const play* p) { return profile_stats(p->profile); }

// ---------------------------------------------------------------------------------------------------
// Steps

static inline play_block* play_block_of(play* p, char letter) {
  T_CHECK(letter >= 'a' && letter <= 'z');
  return &p->blocks[letter - 'a'];
}

static inline uint8_t* play_address(play* p, char letter) { return play_block_of(p, letter)->address; }

static inline void play_expect_apart(play* p, const play_block* block) {
  for (size_t i = 0; i < PLAY_NAMES; i++) {
    const play_block* const other = &p->blocks[i];
    if (other == block || other->address == NULL) continue;
    if (block->address + block->bytes <= other->address || other->address + other->bytes <= block->address)
      continue;
    T_FAIL("%c lies over %c", (int)('a' + (block - p->blocks)), (int)('a' + i));
  }
}

static inline void play_alloc(play* p, char letter, size_t bytes, size_t alignment) {
  play_block* const block = play_block_of(p, letter);
  void* address = NULL;
  T_CHECK(block->address == NULL);
  const tide_status status = tide_profile_alloc(p->profile, bytes, alignment, &address);
  T_EQ(address != NULL, status == TIDE_OK);
  if (p->may_fail && status != TIDE_OK) return;
  T_OK(status);
  T_EQ((uintptr_t)address % (alignment == 0 ? 64 : alignment), 0);
  *block = (play_block){ address, bytes, ++p->pattern };
  play_expect_apart(p, block);
  memset(address, block->pattern, bytes);
}

// Compares the content of a block and forgets it.
static inline void* play_take(play* p, char letter) {
  play_block* const block = play_block_of(p, letter);
  void* const address = block->address;
  T_CHECK(address != NULL);
  T_FILLED(address, block->pattern, block->bytes);
  block->address = NULL;
  return address;
}

static inline void play_release(play* p, char letter) {
  if (p->may_fail && play_address(p, letter) == NULL) return;
  T_OK(tide_profile_release(p->profile, play_take(p, letter)));
}

typedef struct play_errand {
  tide_profile* profile;
  void* address;
  tide_status status;
} play_errand;

static inline void* play_errand_run(void* user) {
  play_errand* const errand = user;
  errand->status = tide_profile_release(errand->profile, errand->address);
  return NULL;
}

// On another thread, which has ended when this returns.
static inline tide_status play_release_elsewhere(tide_profile* profile, void* address) {
  play_errand errand = { profile, address, TIDE_OK };
  pthread_t thread;
  t_thread_start(&thread, play_errand_run, &errand);
  t_thread_join(thread);
  return errand.status;
}

static inline void play_steps(play* p, const char* steps) {
  for (const char* at = steps; *at != '\0';) {
    const bool is_release = *at == '-' || *at == '~';
    const char letter = at[is_release ? 1 : 0];
    if (*at == '-') play_release(p, letter);
    else if (*at == '~') T_OK(play_release_elsewhere(p->profile, play_take(p, letter)));
    char* end = NULL;
    const size_t bytes = strtoull(at + (is_release ? 2 : 1), &end, 10);
    const size_t alignment = *end == '@' ? strtoull(end + 1, &end, 10) : 0;
    if (!is_release) play_alloc(p, letter, bytes, alignment);
    T_CHECK(*end == ' ' || *end == '\0');
    at = *end == ' ' ? end + 1 : end;
  }
}

// Ends the run of this thread.
static inline tide_profile_report play_end(play* p) {
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  T_OK(tide_profile_end(p->profile, &report));
  return report;
}

// A whole run of a shape, or of the shape 0.
static inline tide_profile_report play_run_shape(play* p, tide_profile_mode mode, uint64_t shape,
                                                 const char* steps) {
  T_OK(tide_profile_begin(p->profile, mode, shape));
  play_steps(p, steps);
  return play_end(p);
}

static inline tide_profile_report play_run(play* p, tide_profile_mode mode, const char* steps) {
  return play_run_shape(p, mode, 0, steps);
}

// ---------------------------------------------------------------------------------------------------
// Expectations

// Every replayed run, whatever happened in it.
static inline void play_expect_consistent(const tide_profile_report* r) {
  T_EQ(r->requests, r->hits + r->fallbacks);
  T_EQ(r->fallbacks, r->larger + r->surplus + r->blocked + r->escaped);
  T_LE(r->smaller, r->requests);
  const uint64_t requests = r->smaller + r->larger + r->surplus + r->blocked + r->missing;
  const uint64_t deviations = requests + r->early + r->late + r->survivors;
  T_EQ(r->is_same, deviations == 0);
  T_EQ(r->first == UINT64_MAX, deviations == 0);
}

// A replayed run like the recorded one.
static inline void play_expect_same(const tide_profile_report* r, uint64_t requests) {
  play_expect_consistent(r);
  T_EQ(r->mode, TIDE_PROFILE_REPLAY);
  T_EQ(r->requests, requests);
  T_EQ(r->hits, requests);
  T_CHECK(r->is_same);
}

// Counters of a report by name, as in "hits=3 smaller=1 first=1".
typedef struct play_field {
  const char* name;
  size_t offset;
} play_field;
#define PLAY_FIELD(name) \
  { #name, offsetof(tide_profile_report, name) }

static const play_field play_fields[] = {
  PLAY_FIELD(requests),      PLAY_FIELD(hits),         PLAY_FIELD(fallbacks),  PLAY_FIELD(refused),
  PLAY_FIELD(escaped),       PLAY_FIELD(smaller),      PLAY_FIELD(larger),     PLAY_FIELD(surplus),
  PLAY_FIELD(blocked),       PLAY_FIELD(missing),      PLAY_FIELD(early),      PLAY_FIELD(late),
  PLAY_FIELD(survivors),     PLAY_FIELD(first),        PLAY_FIELD(plan_bytes), PLAY_FIELD(lower_bound),
  PLAY_FIELD(first_planned), PLAY_FIELD(first_actual),
};
#define PLAY_FIELDS (sizeof play_fields / sizeof *play_fields)

// Compares the named counters; "same" says that nothing deviates, "other" that something does.
static inline void play_expect_report(const char* rule, const tide_profile_report* r, const char* wanted) {
  int length = 0;
  for (const char* at = wanted; *at != '\0'; at += length) {
    char name[20];
    unsigned long long value = 0;
    size_t i = 0;
    const int read = sscanf(at, " %19[a-z_]%n=%llu%n", name, &length, &value, &length);
    if (read == 1) {
      if (r->is_same != (strcmp(name, "same") == 0)) T_FAIL("%s: the run is not %s", rule, name);
      continue;
    }
    T_EQ(read, 2);
    while (i < PLAY_FIELDS && strcmp(play_fields[i].name, name) != 0) i++;
    T_LT(i, PLAY_FIELDS);
    const uint64_t found = *(const uint64_t*)(const void*)((const char*)r + play_fields[i].offset);
    if (found != value) T_FAIL("%s: %s is %llu, not %llu", rule, name, (unsigned long long)found, value);
  }
}

// Releases everything that is still live.
static inline void play_release_all(play* p) {
  for (char letter = 'a'; letter <= 'z'; letter++) {
    if (play_address(p, letter) != NULL) play_release(p, letter);
  }
}

// The plan in use; to be freed.
static inline tide_profile_plan* play_plan(play* p, uint64_t shape) {
  tide_profile_plan* plan = NULL;
  T_OK(tide_profile_get_plan(p->profile, shape, &plan));
  T_CHECK(plan != NULL);
  return plan;
}

// The lifetime of one request in the plan of the shape 0.
static inline uint64_t play_lifetime(play* p, size_t index) {
  tide_profile_plan* const plan = play_plan(p, 0);
  const uint64_t lifetime = tide_profile_plan_request(plan, index).lifetime;
  tide_profile_plan_free(plan);
  return lifetime;
}

static inline tide_profile_plan_info play_info(play* p, uint64_t shape) {
  tide_profile_plan* const plan = play_plan(p, shape);
  const tide_profile_plan_info info = tide_profile_plan_describe(plan);
  tide_profile_plan_free(plan);
  return info;
}

#endif
