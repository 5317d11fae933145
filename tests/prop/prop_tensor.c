// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Model test of tensors: random calls beside a list of the tensors that are handed out, over every source
// that can serve one: caches that keep what is released, that do not, and that lie on another cache;
// recorded, replayed and strict runs; tables of functions, one of which refuses some releases, and one that
// is a cache's; the computer's memory. Scopes come and go, caches are trimmed and freed, tensors outlive them
// all and are released on any thread. Each tensor is filled at birth and compared at death.
//
// And wrong releases of every kind, at any time: of what was released before, once or often, whichever source
// had it; of addresses inside a tensor and beside it; of blocks that the program took from a cache itself; of
// memory of others, and where there is none. All are refused, and no tensor notices.
#define T_THREADS
#include "cpu/blocks.h"
#include "prop/oplist.h"
#include "tidemark/profile.h"
#include "tidemark/tensor.h"

#define PROP_SLOTS 48u
#define PROP_STALE 64u
#define PROP_OPS 1500u
#define PROP_LISTS (T_HAS_THREAD_SANITIZER ? 2 : T_HAS_ADDRESS_SANITIZER ? 4 : 8)

enum { CACHE_KEEPS, CACHE_FORGETS, CACHE_ON_CACHE, CACHE_COUNT };
enum { RUN_LOOSE, RUN_STRICT, RUN_COUNT };
enum { SOURCE_STUBBORN, SOURCE_CACHE, SOURCE_COUNT };

typedef struct item {
  uint8_t* address;  // NULL: none
  size_t bytes;
  uint64_t seed;
  bool may_stay;  // it came from where a release may be refused
} item;

typedef struct model {
  tide_cpu_cache* below;  // the source of another cache
  tide_cpu_cache* caches[CACHE_COUNT];
  tide_profile* profiles[RUN_COUNT];
  bool has_run[RUN_COUNT];
  tide_memory sources[SOURCE_COUNT];
  size_t source_count;  // of what the stubborn one has out
  size_t source_calls;
  item items[PROP_SLOTS];
  uint8_t* stale[PROP_STALE];  // tensors that were released
  size_t stale_next;
  block plain;  // a block of a cache that is no tensor
  uint64_t seeds;
} model;

static model prop_model;

// ---------------------------------------------------------------------------------------------------
// Tensors

static size_t op_bytes(const op* o) {
  if (o->value % 32 == 31) return 2 * MIB + o->number % (40 * MIB);  // the C library maps these apart
  const size_t power = (size_t)1 << (o->number >> 8) % 21;
  return power + (o->number >> 16) % power;
}

static void expect_apart(const model* s, const item* it) {
  for (size_t i = 0; i < PROP_SLOTS; i++) {
    const item* const other = &s->items[i];
    if (other->address == NULL || other == it) continue;
    const bool is_apart = it->address + it->bytes <= other->address ||
                          other->address + other->bytes <= it->address;
    if (!is_apart) T_FAIL("two tensors overlap");
  }
}

// Strict runs refuse requests that they do not expect.
static void do_alloc(model* s, const op* o) {
  item* const it = &s->items[o->slot % PROP_SLOTS];
  void* address = &address;
  if (it->address != NULL) return;
  const bool is_run = tide_tensor_cache() == NULL && tide_tensor_source() == NULL;
  const bool may_refuse = s->has_run[RUN_STRICT] && is_run;
  const tide_status status = tide_tensor_alloc(op_bytes(o), &address);
  if (status != TIDE_OK) {
    T_CHECK(may_refuse);
    T_PTR_EQ(address, NULL);
    return;
  }
  const bool is_stubborn = tide_tensor_source() == &s->sources[SOURCE_STUBBORN];
  *it = (item){ address, op_bytes(o), ++s->seeds, may_refuse || is_stubborn };
  T_EQ((uintptr_t)address % 64, 0);
  expect_apart(s, it);
  pattern_write(it->address, it->seed, it->bytes);
}

static void release_it(void* user) {
  item* const it = user;
  const tide_status status = tide_tensor_release(it->address);
  if (status == TIDE_OK) it->bytes = 0;
  else if (!it->may_stay) T_STATUS(status, TIDE_OK);
}

static void give(model* s, item* it, bool is_elsewhere) {
  if (it->address == NULL) return;
  pattern_expect(it->address, it->seed, it->bytes);
  if (is_elsewhere) on_other_thread(release_it, it);
  else release_it(it);
  if (it->bytes > 0) return;  // it stays
  s->stale[s->stale_next++ % PROP_STALE] = it->address;
  it->address = NULL;
}

static void do_release(model* s, const op* o) {
  give(s, &s->items[o->slot % PROP_SLOTS], o->value % 16 == 0);
}

// ---------------------------------------------------------------------------------------------------
// Wrong releases

static bool is_tensor(const model* s, const uint8_t* address) {
  for (size_t i = 0; i < PROP_SLOTS; i++) {
    if (s->items[i].address == address) return true;
  }
  return address == NULL;
}

static void expect_refused(const model* s, uint8_t* address) {
  if (is_tensor(s, address)) return;
  const tide_status status = tide_tensor_release(address);
  T_CHECK(status == TIDE_ERR_ARGUMENT || status == TIDE_ERR_STATE);
}

static void do_release_twice(model* s, const op* o) {
  uint8_t* const address = s->items[o->slot % PROP_SLOTS].address;
  give(s, &s->items[o->slot % PROP_SLOTS], false);
  for (unsigned i = 0; i <= o->value % 3u; i++) expect_refused(s, address);
}

static void do_release_stale(model* s, const op* o) { expect_refused(s, s->stale[o->slot % PROP_STALE]); }

static void do_release_beside(model* s, const op* o) {
  const item* const it = &s->items[o->slot % PROP_SLOTS];
  if (it->address == NULL) return;
  expect_refused(s, it->address + 1 + o->number % it->bytes);
  expect_refused(s, it->address + 64 * (1 + (size_t)o->number % (1 + it->bytes / 64)));
  expect_refused(s, it->address - 64);
  expect_refused(s, it->address + ((size_t)o->value << 22));  // mostly where a cache has no memory yet
}

static void do_release_foreign(model* s, const op* o) {
  static _Alignas(64) uint8_t own[256];
  expect_refused(s, own + o->value % 192 + 64);
  expect_refused(s, s->plain.address);
  expect_refused(s, s->plain.address + 64);
  expect_refused(s, (uint8_t*)((uintptr_t)o->number << o->value % 40));  // NOLINT
}

// ---------------------------------------------------------------------------------------------------
// Scopes, runs and caches

static tide_status stubborn_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  const tide_memory cpu = tide_memory_cpu();
  ((model*)memory->user)->source_count++;
  return cpu.alloc(&cpu, bytes, alignment, out);
}

static tide_status stubborn_release(const tide_memory* memory, void* address) {
  model* const s = memory->user;
  if (++s->source_calls % 3 == 0) return TIDE_ERR_STATE;
  T_LT(0, s->source_count);
  s->source_count--;
  free(address);
  return TIDE_OK;
}

static void do_enter(model* s, const op* o) {
  if (tide_tensor_depth() >= 4) return;
  const uint32_t which = o->value % (CACHE_COUNT + SOURCE_COUNT + 1);
  if (which < CACHE_COUNT) T_OK(tide_tensor_enter(s->caches[which]));
  else if (which == CACHE_COUNT) T_OK(tide_tensor_enter(NULL));
  else T_OK(tide_tensor_enter_source(&s->sources[which - CACHE_COUNT - 1]));
}

static void leave_one(void) {
  const tide_memory* const now = tide_tensor_source();
  if (now != NULL) T_OK(tide_tensor_leave_source(now));
  else T_OK(tide_tensor_leave(tide_tensor_cache()));
}

static void leave_all(void) {
  while (tide_tensor_depth() > 0) leave_one();
}

static void do_leave(model* s, const op* o) {
  (void)s;
  (void)o;
  if (tide_tensor_depth() > 0) leave_one();
}

static void do_run(model* s, const op* o) {
  const uint32_t which = o->value % RUN_COUNT;
  if (s->has_run[which]) {
    const tide_status status = tide_profile_end(s->profiles[which], NULL);
    T_CHECK(status == TIDE_OK || which == RUN_STRICT);
    s->has_run[which] = false;
    return;
  }
  bool is_inside = false;
  for (size_t i = 0; i < RUN_COUNT; i++) is_inside = is_inside || s->has_run[i];
  const tide_status status = tide_profile_begin(s->profiles[which], TIDE_PROFILE_AUTO, o->number % 2);
  s->has_run[which] = status == TIDE_OK;
  if (!is_inside || status == TIDE_OK) T_OK(status);
  else T_STATUS(status, TIDE_ERR_STATE);  // the run around it records
}

static tide_cpu_cache* open_cache(const model* s, uint32_t which) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  if (which == CACHE_FORGETS) {
    options.max_block_bytes = TIDE_CPU_SMALL_BYTES;
    options.max_cached_bytes = 0;
  }
  if (which == CACHE_ON_CACHE) options.memory = tide_cpu_memory(s->below);
  return cache_open(&options);
}

// Its tensors live on.
static void do_replace(model* s, const op* o) {
  const uint32_t which = o->value % CACHE_COUNT;
  leave_all();
  if (which == CACHE_KEEPS) block_give(&s->plain);
  tide_cpu_free(s->caches[which], NULL);
  s->caches[which] = open_cache(s, which);
  if (which == CACHE_KEEPS) s->plain = block_take(s->caches[CACHE_KEEPS], 1000 + o->number % 100000, 7);
}

static void do_trim(model* s, const op* o) {
  for (size_t i = 0; i < CACHE_COUNT && o->value % 2 == 0; i++) {
    T_OK(tide_cpu_trim(s->caches[i], 0));
  }
  if (o->value % 4 == 1 && !s->has_run[RUN_LOOSE]) T_OK(tide_profile_trim(s->profiles[RUN_LOOSE]));
}

static void do_verify(model* s, const op* o) {
  for (size_t i = o->slot % 4; i < PROP_SLOTS; i += 4) {
    const item* const it = &s->items[i];
    if (it->address != NULL) pattern_expect(it->address, it->seed, it->bytes);
  }
  for (size_t i = 0; i < CACHE_COUNT; i++) cache_expect_sound(s->caches[i]);
}

// ---------------------------------------------------------------------------------------------------
// Lists of operations

// Name, function, how often.
// clang-format off
#define VERB_MAP(X)                                                                                     \
  X(ALLOC, do_alloc, 30) X(RELEASE, do_release, 18) X(RELEASE_TWICE, do_release_twice, 8)               \
  X(RELEASE_STALE, do_release_stale, 8) X(RELEASE_BESIDE, do_release_beside, 5)                         \
  X(RELEASE_FOREIGN, do_release_foreign, 2) X(ENTER, do_enter, 8) X(LEAVE, do_leave, 7)                 \
  X(RUN, do_run, 6) X(REPLACE, do_replace, 1) X(TRIM, do_trim, 2) X(VERIFY, do_verify, 2)
// clang-format on

static const op_verb verbs[] = { VERB_MAP(OP_VERB) };
static void (*const functions[])(model* s, const op* o) = { VERB_MAP(OP_FUNCTION) };

static void model_begin(model* s) {
  memset(s, 0, sizeof *s);
  s->below = cache_open(NULL);
  for (uint32_t i = 0; i < CACHE_COUNT; i++) s->caches[i] = open_cache(s, i);
  for (uint32_t i = 0; i < RUN_COUNT; i++) {
    tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
    options.is_strict = i == RUN_STRICT;
    T_OK(tide_profile_new(&options, &s->profiles[i]));
  }
  s->sources[SOURCE_STUBBORN] = (tide_memory){ stubborn_alloc, stubborn_release, s, 0, true };
  s->sources[SOURCE_CACHE] = tide_cpu_memory(s->below);
  s->plain = block_take(s->caches[CACHE_KEEPS], 1000, 7);
}

// Everything is given back, and nothing is left.
static void model_end(model* s) {
  leave_all();
  for (uint32_t i = 0; i < RUN_COUNT; i++) {
    if (s->has_run[i]) T_OK(tide_profile_cancel(s->profiles[i]));
  }
  for (size_t i = 0; i < 8 * PROP_SLOTS; i++) give(s, &s->items[i % PROP_SLOTS], false);
  for (size_t i = 0; i < PROP_SLOTS; i++) T_PTR_EQ(s->items[i].address, NULL);
  T_EQ(s->source_count, 0);
  for (size_t i = 0; i < PROP_STALE; i++) expect_refused(s, s->stale[i]);
  block_give(&s->plain);
  for (uint32_t i = 0; i < CACHE_COUNT; i++) cache_close(s->caches[i]);
  cache_close(s->below);
  for (uint32_t i = 0; i < RUN_COUNT; i++) tide_profile_free(s->profiles[i]);
  for (size_t i = 0; i < PROP_STALE; i++) expect_refused(s, s->stale[i]);
}

static bool play(const op* list, size_t count, size_t check_every) {
  model* const s = &prop_model;
  model_begin(s);
  for (size_t i = 0; i < count; i++) {
    const op all = { 0, (uint8_t)i, 0, 0, 0 };
    outcome->at = i;
    functions[list[i].verb](s, &list[i]);
    if (i % check_every == 0) do_verify(s, &all);
  }
  model_end(s);
  return true;
}

static const op_suite suite = { "tensors", verbs, sizeof verbs / sizeof *verbs, play, PROP_OPS, 4, 64 };

T_TEST(prop_tensor__random_calls_beside_a_model) {
  suite_run(&suite, t_scaled_alone(PROP_LISTS) * PROP_OPS, true);
}
