// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Budgets at random: a tree of 50 tags, with budgets that change on the way, compared with a model that
// knows all blocks. After each operation the model reads what is reserved and parked, and checks the rules:
// no limit is exceeded, no guarantee broken, nothing in use gives way, and whoever was refused could not
// have been served: nothing was left that might have given way. All sizes are multiples of a handle, so
// that idle memory is what is reserved and not handed out. Also faults at every call of the machine, and
// threads.
#include "device/budget.h"

static const char* const tide_host[] = { "host tide", NULL };
static const char* const tide_dry[] = { "dry tide", NULL };

enum { TAGS = 50, ROOTS = 5, BLOCKS = 160, STREAMS = 3, USES = 6, PROBE = 4096 };
enum { NONE = -1 };

// A tag with one pool; figures are in units.
typedef struct tag_model {
  char name[32];
  int parent;  // NONE: none; otherwise a lower number
  tide_pool pool;
  tide_budget budget;
  uint64_t live;      // handed out
  uint64_t reserved;  // read from the allocator, like
  bool is_parked;
  uint32_t uses;
  // No more may be reserved with the tags below: the limit, or what was there when it was lowered.
  uint64_t ceiling;
  // Sums with the tags below.
  uint64_t all;
  uint64_t basis;
} tag_model;

typedef struct block_model {
  tide_block block;
  uint64_t units;
  int tag;
  known probe;  // some bytes of it
} block_model;

typedef struct budget_world {
  tide_machine* m;
  tide_device_cache* d;
  t_rng rng;
  tag_model tags[TAGS];
  block_model blocks[BLOCKS];
  size_t count;
  int uses[USES];
  size_t use_count;
  int last_used;  // NONE: none
  int followers[TAGS];
  bool is_confirmed[TAGS];
  tide_stream streams[STREAMS];
  uint64_t total;  // of the device
  uint64_t limit;  // of the device; UINT64_MAX: none
} budget_world;

static void world_init(tide_machine* m, tide_device_cache* d, budget_world* w, uint64_t seed) {
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  *w = (budget_world){ .m = m, .d = d, .rng = t_rng_new(seed), .limit = UINT64_MAX, .last_used = NONE };
  small_handles(d);
  budget_to(d, "other", budget_none());  // the rules are in force as long as there is a budget
  T_OK(tide_machine_device_info(m, 0, &info));
  w->total = info.total_bytes / UNIT;
  for (size_t i = 1; i < STREAMS; ++i) w->streams[i] = side_new(m);
  for (int i = 0; i < TAGS; ++i) {
    tag_model* const t = &w->tags[i];
    t->parent = i < ROOTS ? NONE : (i - ROOTS) / 3;  // three below each, as far as they go
    const char* const above = t->parent != NONE ? strdup(w->tags[t->parent].name) : NULL;
    (void)snprintf(t->name, sizeof t->name, "%.16s%s%d", above != NULL ? above : "", above != NULL ? "/" : "",
                   i);
    free((void*)(uintptr_t)above);
    t->pool = tagged(d, t->name);
    t->budget = budget_none();
    t->budget.size = 0;
    t->ceiling = UINT64_MAX;
    w->followers[i] = NONE;
  }
}

static bool is_under(const budget_world* w, int tag, int other) {
  while (tag != NONE && tag != other) tag = w->tags[tag].parent;
  return tag == other;
}

static uint64_t units(uint64_t bytes) { return bytes == TIDE_NO_LIMIT ? UINT64_MAX : bytes / UNIT; }
static uint64_t over(uint64_t now, uint64_t most) { return now > most ? now - most : 0; }
static uint64_t most_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

// ---------------------------------------------------------------------------------------------------
// The rules

// What all tags have, if one gets `more`. Returns what the device has, and in *out_basis what it must have
// room for.
static uint64_t world_sum(budget_world* w, int tag, uint64_t more, uint64_t* out_basis) {
  const uint64_t all = (uint64_t)current(w->d, reserved_bytes) / UNIT + more;
  *out_basis = all;
  for (int i = 0; i < TAGS; ++i) {
    w->tags[i].all = w->tags[i].basis = w->tags[i].reserved + (i == tag ? more : 0);
  }
  for (int i = TAGS - 1; i >= 0; --i) {
    const tag_model* const t = &w->tags[i];
    const uint64_t claimed = most_of(t->basis, units(t->budget.guarantee));
    if (t->parent == NONE) {
      *out_basis += claimed - t->all;
      continue;
    }
    w->tags[t->parent].all += t->all;
    w->tags[t->parent].basis += claimed;
  }
  return all;
}

// The most special tag that is in the way of `more` for a tag (NONE: the default pool), TAGS for the
// device, or NONE.
static int world_lack(budget_world* w, int tag, uint64_t more) {
  uint64_t basis[TAGS];
  uint64_t before = 0;
  uint64_t after = 0;
  (void)world_sum(w, tag, 0, &before);
  for (int i = 0; i < TAGS; ++i) basis[i] = w->tags[i].basis;
  const uint64_t all = world_sum(w, tag, more, &after);
  for (int i = tag; i != NONE; i = w->tags[i].parent) {
    const uint64_t limit = units(w->tags[i].budget.limit);
    if (over(w->tags[i].all, limit) > 0 || over(w->tags[i].basis, most_of(limit, basis[i])) > 0) return i;
  }
  const uint64_t limit = w->limit != UINT64_MAX ? w->limit : w->total;
  return over(all, limit) > 0 || over(after, most_of(limit, before)) > 0 ? TAGS : NONE;
}

static const tide_budget* budget_for(const budget_world* w, int tag) {
  static const tide_budget none = TIDE_BUDGET_INIT;
  // A budget that was never set looks like none; what was set names itself by its size.
  while (tag != NONE && w->tags[tag].budget.size == 0) tag = w->tags[tag].parent;
  return tag != NONE ? &w->tags[tag].budget : &none;
}

static bool is_in_use(const budget_world* w, int tag) {
  while (tag != NONE && w->tags[tag].uses == 0) tag = w->tags[tag].parent;
  return tag != NONE;
}

// What guarantees let go of a tag's own memory, for another tag.
static uint64_t takeable(const budget_world* w, int tag, int asker) {
  uint64_t most = w->tags[tag].reserved;
  for (int i = tag; i != NONE; i = w->tags[i].parent) {
    if (asker != NONE && is_under(w, asker, i)) continue;
    const uint64_t left = over(w->tags[i].all, units(w->tags[i].budget.guarantee));
    if (left < most) most = left;
  }
  return most;
}

// Might a tag still have given way, for an asker that lacks room under `lack`? `held` was in use meanwhile.
static bool might_give(const budget_world* w, int tag, int asker, int lack, int held) {
  const tag_model* const t = &w->tags[tag];
  if (t->is_parked || (lack != TAGS && !is_under(w, tag, lack))) return false;
  const uint64_t most = takeable(w, tag, asker);
  if (t->reserved > t->live && most > 0) return true;
  const bool is_held = is_in_use(w, tag) || (held != NONE && is_under(w, tag, held)) || tag == asker;
  return budget_for(w, tag)->yields && !is_held && t->reserved > 0 && most >= t->reserved;
}

// Checks that a refusal was right.
static bool refusal_is_right(budget_world* w, int asker, uint64_t more, int held) {
  uint64_t basis = 0;
  const int lack = world_lack(w, asker, more);
  if (lack == NONE) return false;
  (void)world_sum(w, NONE, 0, &basis);
  for (int i = 0; i < TAGS; ++i) {
    if (might_give(w, i, asker, lack, held)) return false;
  }
  return true;
}

// Notes a use, and returns the tag that is expected after it: it asks for memory, too. NONE: unknown.
static int world_learn(budget_world* w, int tag) {
  const int last = w->last_used;
  w->last_used = tag;
  if (last != NONE && last != tag) {
    w->is_confirmed[last] = w->followers[last] == tag;
    w->followers[last] = tag;
  }
  return w->is_confirmed[tag] ? w->followers[tag] : NONE;
}

// Is memory of a tag taken for the tag itself? A use may fetch all that is below.
static bool asks(const budget_world* w, int tag, int asker, bool is_use) {
  return asker != NONE && (is_under(w, asker, tag) || (is_use && is_under(w, tag, asker)));
}

// Reads the state of the allocator, and checks what must hold after an operation of `asker`. If that is a
// use, `next` is expected after it.
static void world_look_at(budget_world* w, int asker, bool is_use, int next) {
  uint64_t before[TAGS];
  uint64_t basis = 0;
  (void)world_sum(w, NONE, 0, &basis);
  for (int i = 0; i < TAGS; ++i) {
    tag_model* const t = &w->tags[i];
    before[i] = t->all;
    t->reserved = pool_reserved(w->d, t->pool) / UNIT;
    const bool was_parked = t->is_parked;
    t->is_parked = t->live > 0 && t->reserved < t->live;
    T_CHECK(!t->is_parked || t->reserved == 0);
    if (t->is_parked && !was_parked) T_CHECK(!is_in_use(w, i) && budget_for(w, i)->yields);
  }
  (void)world_sum(w, NONE, 0, &basis);
  for (int i = 0; i < TAGS; ++i) {
    tag_model* const t = &w->tags[i];
    const uint64_t limit = units(t->budget.limit);
    T_LE(t->all, t->ceiling);
    t->ceiling = limit == UINT64_MAX ? UINT64_MAX : most_of(limit, t->all);
    const uint64_t kept = units(t->budget.guarantee);
    if (asks(w, i, asker, is_use) || asks(w, i, next, true)) continue;
    T_LE(before[i] < kept ? before[i] : kept, t->all);
  }
}

static void world_look(budget_world* w, int asker) { world_look_at(w, asker, false, NONE); }

// ---------------------------------------------------------------------------------------------------
// Operations

static void block_note(budget_world* w, int tag, tide_block block, uint64_t count, tide_stream stream) {
  block_model* const b = &w->blocks[w->count++];
  *b = (block_model){ .block = block, .units = count, .tag = tag };
  b->probe = (known){ .bytes = PROBE, .stream = stream };
  b->probe.block.address = bytes_of(block) + t_rng_below(&w->rng, count * UNIT / PROBE) * PROBE;
  known_write(w->m, &b->probe, t_rng_next(&w->rng));
  if (tag != NONE) w->tags[tag].live += count;
}

// A request while the pool is parked brings the pool back first.
static void world_take(budget_world* w) {
  const int tag = (int)t_rng_below(&w->rng, TAGS + 5);
  const int asker = tag < TAGS ? tag : NONE;
  const uint64_t count = 1 + t_rng_below(&w->rng, 4);
  const tide_stream stream = w->streams[t_rng_below(&w->rng, STREAMS)];
  tide_block block = { NULL, 0 };
  if (w->count == BLOCKS) return;
  const tide_status status = asker != NONE
                                 ? try_tagged(w->d, w->tags[asker].pool, stream, count * UNIT, &block)
                                 : tide_device_alloc(w->d, stream, count * UNIT, &block);
  if (status == TIDE_OK) block_note(w, asker, block, count, stream);
  world_look(w, asker);
  if (status == TIDE_OK) return;
  T_STATUS(status, TIDE_ERR_NO_MEMORY);
  const bool is_away = asker != NONE && w->tags[asker].is_parked;
  if (!refusal_is_right(w, asker, is_away ? w->tags[asker].live : count, NONE)) {
    T_FAIL("%s is refused %llu units: %s", asker != NONE ? w->tags[asker].name : "the default pool",
           (unsigned long long)count, tide_last_error()->text);
  }
}

static void block_give(budget_world* w, size_t i) {
  block_model* const b = &w->blocks[i];
  if (b->tag != NONE) w->tags[b->tag].live -= b->units;
  if (t_rng_below(&w->rng, 8) == 0 && !(b->tag != NONE && w->tags[b->tag].is_parked)) {
    announce(w->d, b->block, w->streams[t_rng_below(&w->rng, STREAMS)]);
  }
  give(w->d, b->block);
  w->blocks[i] = w->blocks[--w->count];
}

static void world_give(budget_world* w) {
  if (w->count > 0) block_give(w, t_rng_below(&w->rng, w->count));
  world_look(w, NONE);
}

static uint64_t random_units(t_rng* rng, uint64_t most) { return t_rng_below(rng, most) * UNIT; }

// Sets or takes away a budget. Memory above a lowered limit gives way, if it can.
static void world_budget(budget_world* w) {
  const int i = (int)t_rng_below(&w->rng, TAGS);
  tag_model* const t = &w->tags[i];
  tide_budget budget = TIDE_BUDGET_INIT;
  const bool is_taken_away = t_rng_below(&w->rng, 6) == 0;
  budget.yields = t_rng_below(&w->rng, 2) != 0;
  budget.is_constant = t_rng_below(&w->rng, 2) != 0;
  budget.priority = (int32_t)t_rng_below(&w->rng, 3);
  if (t_rng_below(&w->rng, 2) != 0) budget.limit = random_units(&w->rng, i < ROOTS ? 40 : 16);
  if (t_rng_below(&w->rng, 2) != 0) budget.soft_limit = random_units(&w->rng, 16);
  if (t_rng_below(&w->rng, 3) == 0) budget.guarantee = random_units(&w->rng, 6);
  if (budget.guarantee > budget.limit) budget.guarantee = budget.limit;
  T_OK(tide_device_budget_set(w->d, t->name, is_taken_away ? NULL : &budget));
  t->budget = is_taken_away ? budget_none() : budget;
  if (is_taken_away) t->budget.size = 0;
  t->ceiling = UINT64_MAX;
  world_look(w, i);
  if (t->all <= units(t->budget.limit)) return;
  for (int k = 0; k < TAGS; ++k) T_CHECK(!might_give(w, k, i, i, NONE) || k == i);
}

static void world_limit(budget_world* w) {
  const uint64_t reserved = (uint64_t)current(w->d, reserved_bytes) / UNIT;
  w->limit = t_rng_below(&w->rng, 3) == 0 ? UINT64_MAX : most_of(reserved, 20 + t_rng_below(&w->rng, 60));
  limit_to(w->d, w->limit == UINT64_MAX ? TIDE_NO_LIMIT : w->limit * UNIT);
}

// One of the pools under the tag could not come back, and nothing was left that might have given way for it.
static bool use_refusal_is_right(budget_world* w, int tag) {
  for (int i = 0; i < TAGS; ++i) {
    if (!is_under(w, i, tag) || !w->tags[i].is_parked) continue;
    if (refusal_is_right(w, i, w->tags[i].live, tag)) return true;
  }
  return false;
}

static void world_use(budget_world* w) {
  const int tag = (int)t_rng_below(&w->rng, TAGS);
  if (w->use_count == USES) return;
  const tide_stream stream = w->streams[t_rng_below(&w->rng, STREAMS)];
  const tide_status status = tide_device_use(w->d, w->tags[tag].name, stream);
  w->tags[tag].uses += status == TIDE_OK;
  world_look_at(w, tag, true, world_learn(w, tag));
  if (status != TIDE_OK) {
    T_STATUS(status, TIDE_ERR_NO_MEMORY);
    if (!use_refusal_is_right(w, tag)) T_FAIL("%s: %s", w->tags[tag].name, tide_last_error()->text);
    return;
  }
  w->uses[w->use_count++] = tag;
  for (size_t i = 0; i < w->count; ++i) {
    block_model* const b = &w->blocks[i];
    if (b->tag == NONE || !is_under(w, b->tag, tag)) continue;
    T_CHECK(!w->tags[b->tag].is_parked);
    T_OK(tide_machine_stream_synchronize(w->m, 0, b->probe.stream));  // which has written it
    b->probe.stream = stream;
    known_expect(w->m, &b->probe);
  }
}

static void world_done(budget_world* w) {
  if (w->use_count == 0) return;
  const size_t i = t_rng_below(&w->rng, w->use_count);
  T_OK(tide_device_done(w->d, w->tags[w->uses[i]].name, NULL));
  w->tags[w->uses[i]].uses--;
  w->uses[i] = w->uses[--w->use_count];
}

// Blocks that are away come back one tag after another, when all others have gone.
static void world_end(budget_world* w) {
  while (w->use_count > 0) world_done(w);
  for (int i = 0; i < TAGS; ++i) T_OK(tide_device_budget_set(w->d, w->tags[i].name, NULL));
  limit_to(w->d, TIDE_NO_LIMIT);
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = w->count; i-- > 0;) {
      const block_model* const b = &w->blocks[i];
      if (b->tag != NONE && w->tags[b->tag].is_parked && pass == 0) continue;
      if (b->tag != NONE && pass == 1) (void)unpark(w->d, w->tags[b->tag].name);
      known_expect(w->m, &b->probe);
      block_give(w, i);
    }
  }
  T_EQ(w->count, 0);
  device_expect_valid(w->d);
}

static void world_rounds(budget_world* w, size_t rounds) {
  for (size_t i = 0; i < rounds; ++i) {
    switch (t_rng_below(&w->rng, 16)) {
      case 0: world_budget(w); break;
      case 1: world_use(w); break;
      case 2: world_done(w); break;
      case 3: (i % 4 == 0 ? world_limit : world_use)(w); break;
      case 4:
      case 5:
      case 6:
      case 7:
      case 8: world_give(w); break;
      default: world_take(w); break;
    }
    if (i % 64 == 0) device_expect_valid(w->d);
  }
  world_end(w);
}

DEVICE_TEST_OVER(test_budget__random_rounds_follow_the_rules, tide_dry) {
  budget_world* const w = malloc(sizeof *w);
  T_CHECK(w != NULL);
  world_init(m, d, w, 25);
  world_rounds(w, t_scaled_alone(4000));
  free(w);
}

DEVICE_TEST_OVER(test_budget__random_rounds_keep_every_byte, tide_host) {
  budget_world* const w = malloc(sizeof *w);
  T_CHECK(w != NULL);
  world_init(m, d, w, 26);
  world_rounds(w, t_scaled_alone(500));
  free(w);
}

// ---------------------------------------------------------------------------------------------------
// Faults

// Each round starts threads, which the thread sanitizer makes slow.
enum { LAYERS = 3, FAULT_STEP = T_HAS_THREAD_SANITIZER ? 7 : 1 };

typedef struct layer_stage {
  tide_pool pools[LAYERS];
  known blocks[LAYERS];
  tide_stream stream;
} layer_stage;

static const char* const layers[LAYERS] = { "net/0", "net/1", "net/2" };

// Three layers, of which two fit.
static layer_stage stage_new(tide_machine* m, tide_device_cache* d, bool is_constant) {
  layer_stage s = { .stream = side_new(m) };
  tide_budget budget = yielding(0);
  small_handles(d);
  budget.limit = 6 * UNIT;
  budget.is_constant = is_constant;
  budget_to(d, "net", budget);
  for (size_t i = 0; i < LAYERS; ++i) {
    s.pools[i] = tagged(d, layers[i]);
    T_OK(tide_device_use(d, layers[i], s.stream));
    s.blocks[i] = known_new(m, d, s.pools[i], s.stream, 3 * UNIT, i + 1);
    T_OK(tide_device_done(d, layers[i], s.stream));
  }
  return s;
}

static void stage_run(tide_machine* m, tide_device_cache* d, const layer_stage* s) {
  for (size_t i = 0; i < LAYERS; ++i) {
    T_OK(tide_device_use(d, layers[i], s->stream));
    known_expect(m, &s->blocks[i]);
    T_OK(tide_device_done(d, layers[i], s->stream));
    T_LE(reserved_under(d, "net"), 6 * UNIT);
  }
}

static uint64_t failures(const tide_machine* m) { return tide_machine_call_stats(m, TIDE_CALL_ANY).failures; }

static void fault_set(tide_machine* m, uint64_t skip, uint64_t count) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.status = (uint32_t)(skip % 3 == 2 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE);
  fault.skip = skip;
  fault.count = count;
  T_OK(tide_machine_fault_add(m, &fault));
}

// One call fails, or all from one on until the end of the use.
static void faults_in_use(tide_machine* m, tide_device_cache* d, bool is_constant, uint64_t count) {
  const layer_stage s = stage_new(m, d, is_constant);
  bool has_failed = true;
  stage_run(m, d, &s);
  for (uint64_t skip = 0; has_failed; skip += FAULT_STEP) {
    const char* const tag = layers[skip % LAYERS];
    T_LT(skip, 10000);
    const uint64_t before = failures(m);
    fault_set(m, skip, count);
    const tide_status status = tide_device_use(d, tag, s.stream);
    has_failed = failures(m) != before;
    tide_machine_fault_clear(m);
    if (!has_failed) T_STATUS(status, TIDE_OK);
    if (status == TIDE_OK) T_OK(tide_device_done(d, tag, s.stream));
    T_EQ(budget_stats(d, "net").use_count, 0);
    device_expect_valid(d);
    stage_run(m, d, &s);
  }
  all_give(d, s.blocks, LAYERS);
}

DEVICE_TEST_OVER(test_budget__a_fault_at_any_call_of_a_use_loses_nothing, tide_host) {
  faults_in_use(m, d, false, 1);
}

DEVICE_TEST_OVER(test_budget__a_fault_while_nothing_is_copied_loses_nothing, tide_host) {
  faults_in_use(m, d, true, 1);
}

DEVICE_TEST_OVER(test_budget__a_machine_that_fails_for_good_in_a_use_loses_nothing, tide_host) {
  faults_in_use(m, d, true, UINT64_MAX);
}

// A request that makes others give way meets the same faults.
DEVICE_TEST_OVER(test_budget__a_fault_in_a_request_that_others_give_way_to_loses_nothing, tide_host) {
  const layer_stage s = stage_new(m, d, false);
  bool has_failed = true;
  limit_to(d, 7 * UNIT);
  for (uint64_t skip = 0; has_failed; skip += FAULT_STEP) {
    tide_block block = { NULL, 0 };
    T_LT(skip, 10000);
    stage_run(m, d, &s);
    const uint64_t before = failures(m);
    fault_set(m, skip, 1);
    const tide_status status = tide_device_alloc(d, NULL, 4 * UNIT, &block);
    has_failed = failures(m) != before;
    tide_machine_fault_clear(m);
    if (!has_failed) T_STATUS(status, TIDE_OK);
    if (status == TIDE_OK) give(d, block);
    device_expect_valid(d);
  }
  stage_run(m, d, &s);
  all_give(d, s.blocks, LAYERS);
}

// Memory for records runs out at every allocation in turn.
DEVICE_TEST_OVER(test_budget__without_memory_for_records_nothing_is_lost, tide_host) {
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, true);
  tide_device_cache* const own = device_new(m, 0, &records.heap);
  const layer_stage s = stage_new(m, own, true);
  bool is_done = false;
  stage_run(m, own, &s);
  for (size_t allowed = 0; !is_done; ++allowed) {
    const char* const tag = layers[allowed % LAYERS];
    T_LT(allowed, 10000);
    atomic_store(&records.has_failed, false);
    atomic_store(&records.fail_at, atomic_load(&records.allocs) + allowed);
    const tide_status status = tide_device_use(own, tag, s.stream);
    is_done = !atomic_load(&records.has_failed);
    atomic_store(&records.fail_at, SIZE_MAX);
    if (is_done || status == TIDE_OK) T_STATUS(status, TIDE_OK);
    else T_STATUS(status, TIDE_ERR_NO_MEMORY);
    if (status == TIDE_OK) T_OK(tide_device_done(own, tag, s.stream));
    device_expect_valid(own);
    stage_run(m, own, &s);
  }
  all_give(own, s.blocks, LAYERS);
  tide_device_free(own);
  T_EQ(atomic_load(&records.outstanding), 0);
  (void)d;
}

// ---------------------------------------------------------------------------------------------------
// Threads

enum { THREADS = 8 };

typedef struct budget_crowd {
  tide_machine* m;
  tide_device_cache* d;
  atomic_int next;
  atomic_size_t used;
} budget_crowd;

// Each thread has a tag of its own, all of them under one limit, and allocates in the default pool as well.
static void* crowd_work(void* user) {
  budget_crowd* const c = user;
  const int number = atomic_fetch_add(&c->next, 1);
  const size_t rounds = t_scaled(40);
  const tide_stream stream = side_new(c->m);
  t_rng rng = t_rng_new(300 + (uint64_t)number);
  char tag[16];
  (void)snprintf(tag, sizeof tag, "net/%d", number);
  const tide_pool pool = tagged(c->d, tag);
  known k = { .block = { NULL, 0 } };
  for (size_t i = 0; i < rounds; ++i) {
    tide_block other = { NULL, 0 };
    if (number == 0 && i % 8 == 0) {
      tide_budget budget = yielding((int32_t)i % 3);
      budget.limit = (6 + t_rng_below(&rng, 6)) * UNIT;
      budget.is_constant = i % 16 == 0;
      budget_to(c->d, "net", budget);
    }
    tide_status status = tide_device_use(c->d, tag, stream);
    if (status == TIDE_OK) {
      tide_block block = { NULL, 0 };
      if (k.block.address == NULL && try_tagged(c->d, pool, stream, UNIT, &block) == TIDE_OK) {
        k = (known){ .block = block, .bytes = PROBE, .stream = stream };
        known_write(c->m, &k, i + 1);
      }
      if (k.block.address != NULL) known_expect(c->m, &k);
      T_OK(tide_device_done(c->d, tag, stream));
      (void)atomic_fetch_add(&c->used, 1);
    } else {
      T_STATUS(status, TIDE_ERR_NO_MEMORY);
    }
    status = tide_device_alloc(c->d, stream, (1 + t_rng_below(&rng, 3)) * UNIT, &other);
    if (status == TIDE_OK) give(c->d, other);
    else T_STATUS(status, TIDE_ERR_NO_MEMORY);
    if (k.block.address != NULL && t_rng_below(&rng, 4) == 0) {
      give(c->d, k.block);
      k.block.address = NULL;
    }
  }
  if (k.block.address != NULL) give(c->d, k.block);
  return NULL;
}

DEVICE_TEST_OVER(test_budget__threads_use_their_tags_under_one_limit, tide_host) {
  budget_crowd c = { .m = m, .d = d };
  small_handles(d);
  limit_to(d, 16 * UNIT);
  budget_to(d, "net", yielding(0));
  run_threads(THREADS, crowd_work, &c);
  T_LT(0, atomic_load(&c.used));
  T_OK(tide_device_budget_set(d, "net", NULL));
}
