// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Budgets at random: a tree of 50 tags, with budgets that change on the way, compared with a model that
// knows all blocks. After each operation the model reads what is reserved and parked, and checks the rules:
// no limit is exceeded, no guarantee broken, nothing in use gives way, and whoever was refused could not
// have been served: nothing was left that might have given way. All sizes are multiples of a handle, so
// that idle memory is what is reserved and not handed out.
#define T_THREADS
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
  tide_stream streams[STREAMS];
  uint64_t total;  // of the device
  uint64_t limit;  // of the device; UINT64_MAX: none
} budget_world;

static void world_init(tide_machine* m, tide_device_cache* d, budget_world* w, uint64_t seed) {
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  *w = (budget_world){ .m = m, .d = d, .rng = t_rng_new(seed), .limit = UINT64_MAX };
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

// What must go below a limit. A level above it that does not rise is none of the request's.
static uint64_t excess(uint64_t now, uint64_t before, uint64_t limit) {
  return now > before ? over(now, limit) : 0;
}

// The most special tag that is in the way of `more` for a tag (NONE: the default pool), TAGS for the
// device, or NONE; and how much must go.
static int world_lack(budget_world* w, int tag, uint64_t more, uint64_t* out_units) {
  uint64_t basis[TAGS];
  uint64_t before = 0;
  uint64_t after = 0;
  (void)world_sum(w, tag, 0, &before);
  for (int i = 0; i < TAGS; ++i) basis[i] = w->tags[i].basis;
  const uint64_t all = world_sum(w, tag, more, &after);
  for (int i = tag; i != NONE; i = w->tags[i].parent) {
    const uint64_t limit = units(w->tags[i].budget.limit);
    *out_units = most_of(over(w->tags[i].all, limit), excess(w->tags[i].basis, basis[i], limit));
    if (*out_units > 0) return i;
  }
  const uint64_t limit = w->limit != UINT64_MAX ? w->limit : w->total;
  *out_units = most_of(over(all, limit), excess(after, before, limit));
  return *out_units > 0 ? TAGS : NONE;
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

// Who has made room under `lack`, and for whom.
typedef struct giving {
  int asker;    // NONE: the default pool
  int wanting;  // the pool that needs memory, and so is not parked; NONE: none
  int lack;     // TAGS: the device
  int held;     // was in use meanwhile; NONE: none
} giving;

// What a tag might still have given. Idle memory has gone; a pool is parked as a whole.
static uint64_t might_give(const budget_world* w, int tag, giving g) {
  const tag_model* const t = &w->tags[tag];
  if (t->is_parked || (g.lack != TAGS && !is_under(w, tag, g.lack))) return 0;
  const uint64_t most = takeable(w, tag, g.asker);
  if (t->reserved > t->live && most > 0) return UINT32_MAX;
  const bool is_held = is_in_use(w, tag) || (g.held != NONE && is_under(w, tag, g.held)) || tag == g.wanting;
  return budget_for(w, tag)->yields && !is_held && most >= t->reserved ? t->reserved : 0;
}

// Checks that a refusal was right: all that might still have given way is too little.
static bool refusal_is_right(budget_world* w, int asker, uint64_t more, int held) {
  uint64_t basis = 0;
  uint64_t lacking = 0;
  uint64_t might = 0;
  const int lack = world_lack(w, asker, more, &lacking);
  if (lack == NONE) return false;
  (void)world_sum(w, NONE, 0, &basis);
  for (int i = 0; i < TAGS; ++i) might += might_give(w, i, (giving){ asker, asker, lack, held });
  return might < lacking;
}

// May memory of a tag have gone for the tag itself? A guarantee protects against other tags only: a pool is
// parked as a whole, so a request of the same tag may leave it with less. A use, or the end of one, may bring
// back what was away.
static bool is_for_itself(const budget_world* w, int tag, int asker, const bool* were_parked) {
  if (asker != NONE && is_under(w, asker, tag)) return true;
  for (int i = 0; i < TAGS && were_parked != NULL; ++i) {
    if (were_parked[i] && is_under(w, i, tag)) return true;
  }
  return false;
}

// Reads the state of the allocator, and checks what must hold after an operation of `asker`, or the use of a
// tag, or the end of one.
static void world_look_at(budget_world* w, int asker, bool is_use) {
  uint64_t before[TAGS];
  bool were_parked[TAGS];
  uint64_t basis = 0;
  (void)world_sum(w, NONE, 0, &basis);
  for (int i = 0; i < TAGS; ++i) {
    tag_model* const t = &w->tags[i];
    before[i] = t->all;
    were_parked[i] = t->is_parked;
    t->reserved = pool_reserved(w->d, t->pool) / UNIT;
    t->is_parked = t->live > 0 && t->reserved < t->live;
    T_CHECK(!t->is_parked || t->reserved == 0);
    if (t->is_parked && !were_parked[i]) T_CHECK(!is_in_use(w, i) && budget_for(w, i)->yields);
  }
  (void)world_sum(w, NONE, 0, &basis);
  for (int i = 0; i < TAGS; ++i) {
    tag_model* const t = &w->tags[i];
    const uint64_t limit = units(t->budget.limit);
    T_LE(t->all, t->ceiling);
    t->ceiling = limit == UINT64_MAX ? UINT64_MAX : most_of(limit, t->all);
    const uint64_t kept = units(t->budget.guarantee);
    if (is_for_itself(w, i, asker, is_use ? were_parked : NULL)) continue;
    T_LE(before[i] < kept ? before[i] : kept, t->all);
  }
}

static void world_look(budget_world* w, int asker) { world_look_at(w, asker, false); }

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
  for (int k = 0; k < TAGS; ++k) T_EQ(might_give(w, k, (giving){ i, NONE, i, NONE }), 0);
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

// Returns false if the tag cannot be used now.
static bool tag_use(budget_world* w, int tag, tide_stream stream) {
  if (w->use_count == USES) return false;
  const tide_status status = tide_device_use(w->d, w->tags[tag].name, stream);
  w->tags[tag].uses += status == TIDE_OK;
  world_look_at(w, NONE, true);
  if (status != TIDE_OK) {
    T_STATUS(status, TIDE_ERR_NO_MEMORY);
    if (!use_refusal_is_right(w, tag)) T_FAIL("%s: %s", w->tags[tag].name, tide_last_error()->text);
    return false;
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
  return true;
}

static void world_use(budget_world* w) {
  const int tag = (int)t_rng_below(&w->rng, TAGS);
  (void)tag_use(w, tag, w->streams[t_rng_below(&w->rng, STREAMS)]);
}

// Ends the use at an index of the list.
static void use_end(budget_world* w, size_t i, tide_stream stream) {
  const int tag = w->uses[i];
  w->tags[tag].uses--;
  w->uses[i] = w->uses[--w->use_count];
  T_OK(tide_device_done(w->d, w->tags[tag].name, stream));
  world_look_at(w, NONE, true);
}

static void world_done(budget_world* w) {
  if (w->use_count > 0) use_end(w, t_rng_below(&w->rng, w->use_count), NULL);
}

// A program that repeats itself, so that its order is learnt.
static void world_repeat(budget_world* w) {
  enum { LENGTH = 4, REPEATS = 4 };
  const tide_stream stream = w->streams[t_rng_below(&w->rng, STREAMS)];
  int tags[LENGTH];
  for (size_t i = 0; i < LENGTH; ++i) tags[i] = (int)t_rng_below(&w->rng, TAGS);
  for (size_t i = 0; i < REPEATS * LENGTH; ++i) {
    if (tag_use(w, tags[i % LENGTH], stream)) use_end(w, w->use_count - 1, stream);
  }
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
    if (i % 128 == 127) world_repeat(w);
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
